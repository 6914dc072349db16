//! Values with a version: the transaction that wrote them, which rises over everything.
use crate::{
    error::Fault,
    link::found,
    shared::Shared,
    wire::{
        node::{Child, LEASES, LOCKS, cell_gone, cell_mark},
        op::{Mode, Op, Stat, code},
    },
};
use fencelock_core::{Conflict, HoldId, Kind, Name, Version, Versioned};

/// What lies at the name of a cell. Its value is the node's own, as Curator's `SharedValue` has it.
struct Cell {
    /// `None`: there is no node.
    node: Option<(Vec<u8>, Stat)>,
    /// There is a value as long as this child is; another value has another one.
    mark: Option<String>,
    /// It was removed, not long ago.
    gone: Option<(String, i64)>,
}
impl Cell {
    fn versioned(&self) -> Versioned {
        match (&self.node, &self.mark, &self.gone) {
            (Some((data, stat)), Some(_), _) => {
                Versioned { version: Version::new(stat.modified), value: Some(data.as_slice().into()) }
            }
            (_, None, Some((_, zxid))) => Versioned { version: Version::new(*zxid), value: None },
            _ => Versioned::default(),
        }
    }
}

impl Shared {
    async fn cell(&self, path: &str) -> Result<Result<Cell, Kind>, Fault> {
        let listed = self.link.look(Op::Children { path: path.to_owned(), watch: false });
        let data = self.link.look(Op::Data { path: path.to_owned(), watch: false });
        let names = found(listed.children().await)?.map(|(names, _)| names).unwrap_or_default();
        let mut cell = Cell { node: found(data.data().await)?, mark: None, gone: None };
        let mut rooms = false;
        for name in &names {
            match self.paths.child(name) {
                Child::Contender(node) => return Ok(Err(node.role.kind())),
                Child::Foreign(name) => return Err(Fault::Layout(format!("{path}/{name}"))),
                Child::Locks | Child::Leases => rooms = true,
                Child::Cell => cell.mark = Some(format!("{path}/{name}")),
                Child::Gone => {
                    let at = format!("{path}/{name}");
                    let stat = self.link.look(Op::Exists { path: at.clone(), watch: false }).stat().await;
                    cell.gone = found(stat)?.map(|stat| (at, stat.created)).or(cell.gone);
                }
                Child::Other => {}
            }
        }
        if rooms {
            for room in [LOCKS, LEASES] {
                let listed = self.link.look(Op::Children { path: format!("{path}/{room}"), watch: false });
                if found(listed.children().await)?.is_some_and(|(names, _)| !names.is_empty()) {
                    return Ok(Err(Kind::Semaphore));
                }
            }
        }
        Ok(Ok(cell))
    }
    pub(crate) async fn load(&self, name: &Name) -> Result<Result<Versioned, Kind>, Fault> {
        Ok(self.cell(&self.paths.of(name)).await?.map(|cell| cell.versioned()))
    }
    /// *Invariant (SAFETY A6):* with a write goes a node of its nonce, which outlives it by a minute, or goes with the session: a repeat
    /// finds it and answers its version.
    pub(crate) async fn swap(
        &self,
        name: &Name,
        expected: Version,
        value: Option<&[u8]>,
        nonce: HoldId,
    ) -> Result<Result<Result<Version, Conflict>, Kind>, Fault> {
        let path = self.paths.of(name);
        let written = format!("{}/{nonce}", self.paths.written());
        loop {
            let cell = match self.cell(&path).await? {
                Ok(cell) => cell,
                Err(kind) => return Ok(Err(kind)),
            };
            let now = cell.versioned();
            if now.version != expected {
                let known = self.link.look(Op::Exists { path: written.clone(), watch: false }).stat().await;
                return Ok(Ok(match found(known)? {
                    Some(stat) => Ok(Version::new(stat.created)),
                    None => Err(Conflict { now }),
                }));
            }
            let Some((_, stat)) = cell.node else {
                self.make_room(&path).await?;
                continue;
            };
            let begins = value.is_some() && cell.mark.is_none();
            let mut ops = vec![self.create(written.clone(), Vec::new(), Mode::Ephemeral)];
            ops.extend(self.writes(&path, &cell, stat.version, value));
            match self.link.look(Op::Multi(ops)).all().await? {
                Ok((zxid, made)) => {
                    // Whoever came in between for a lock saw nothing of it.
                    if begins && let Err(kind) = self.cell(&path).await? {
                        let mark = made.into_iter().find(|made| made.starts_with(&path));
                        let gone = [mark, Some(written)].into_iter().flatten();
                        let gone = gone.map(|path| Op::Delete { path, version: -1 }).collect();
                        self.link.look(Op::Multi(gone)).all().await?.map_err(|(_, error)| Fault::Refused(error))?;
                        return Ok(Err(kind));
                    }
                    return Ok(Ok(Ok(Version::new(zxid))));
                }
                Err((0, code::NODE_EXISTS)) => {
                    let known = self.link.look(Op::Exists { path: written.clone(), watch: false }).stat().await;
                    if let Some(stat) = found(known)? {
                        return Ok(Ok(Ok(Version::new(stat.created))));
                    }
                }
                Err((0, code::NO_NODE)) => self.make_parent(&self.paths.written(), false).await?,
                // Somebody was faster: he is seen in the next round.
                Err((_, code::BAD_VERSION | code::NO_NODE | code::NODE_EXISTS)) => {}
                Err((_, error)) => return Err(Fault::Refused(error)),
            }
        }
    }
    /// What writes a value, or none, where this is what lies there.
    ///
    /// *Invariant:* of several who have seen the same one gets through: the node's own number has changed for the others, and the mark is
    /// the same cell's, or the number could be another's. A number wraps, and -1 would be any: there the mark is another one afterwards.
    fn writes(&self, path: &str, cell: &Cell, version: i32, value: Option<&[u8]>) -> Vec<Op> {
        let any = version == -1;
        let gone = |path: &String| Op::Delete { path: path.clone(), version: -1 };
        let mark = |id: u64| self.create(format!("{path}/{}", cell_mark(id)), Vec::new(), Mode::Persistent);
        let data = value.unwrap_or_default().to_vec();
        let mut ops = vec![Op::SetData { path: path.to_owned(), data, version }];
        match (&cell.mark, value) {
            (Some(old), Some(_)) if any => ops.extend([gone(old), mark(fastrand::u64(1..))]),
            (Some(old), Some(_)) => ops.push(Op::Check { path: old.clone(), version: -1 }),
            (Some(old), None) => ops.push(gone(old)),
            (None, Some(_)) => ops.push(mark(if any { 0 } else { fastrand::u64(1..) })),
            (None, None) => {}
        }
        ops.extend(cell.gone.iter().map(|(path, _)| gone(path)));
        if value.is_none() {
            let gone = format!("{path}/{}", cell_gone(fastrand::u64(..)));
            ops.push(self.create(gone, Vec::new(), Mode::Ephemeral));
        }
        ops
    }
    /// A minute after.
    pub(crate) async fn unwrite(&self, nonce: HoldId) {
        let gone = Op::Delete { path: format!("{}/{nonce}", self.paths.written()), version: -1 };
        // What is left goes with the session.
        let _ = self.link.look(gone).done().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, link::Link};
    use std::sync::Arc;

    /// No server can be brought to write four thousand million times.
    #[test]
    fn over_the_end_of_a_nodes_number_one_of_two_writers_gets_through() {
        let config = Config::from_url("zookeeper://h").unwrap();
        let (link, _wire) = Link::new(&config).unwrap();
        let shared = Shared::new(&config, Arc::new(link)).unwrap();
        let stat = Stat { version: -1, ..Stat::default() };
        let cell =
            |mark: Option<&str>| Cell { node: Some((Vec::new(), stat)), mark: mark.map(str::to_owned), gone: None };
        let deleted = |ops: &[Op]| ops.iter().any(|op| matches!(op, Op::Delete { path, .. } if path == "/c/%cell-1"));
        for value in [Some(&b"x"[..]), None] {
            assert!(deleted(&shared.writes("/c", &cell(Some("/c/%cell-1")), -1, value)), "the second finds none");
        }
        assert!(!deleted(&shared.writes("/c", &cell(Some("/c/%cell-1")), 7, Some(b"x"))));
        let made = |version| {
            let ops = shared.writes("/c", &cell(None), version, Some(b"x"));
            ops.into_iter().find_map(|op| if let Op::Create { path, .. } = op { Some(path) } else { None })
        };
        assert_eq!(made(-1), made(-1), "the second finds it");
        assert_ne!(made(7), made(7));
    }
}
