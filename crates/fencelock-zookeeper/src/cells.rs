//! Values with a version: the transaction that wrote them, which rises over everything.
use crate::{
    error::Fault,
    link::{Session, found},
    permits::parse,
    shared::{Shared, lock},
    wire::{
        node::{Child, cell_mark},
        op::{Mode, Op, Stat, code},
    },
};
use fencelock_core::{Conflict, HoldId, Kind, Name, Version, Versioned};
use std::future::pending;

/// What lies at the name of a cell. Its value is the node's own.
struct Cell {
    /// `None`: there is no node.
    node: Option<(Vec<u8>, Stat)>,
    /// There is a value as long as this child is; another cell's is another one.
    mark: Option<String>,
    /// It was removed by this transaction, not long ago.
    gone: Option<i64>,
}
impl Cell {
    fn versioned(&self) -> Versioned {
        match (&self.node, &self.mark, self.gone) {
            (Some((data, stat)), Some(_), _) => {
                Versioned { version: Version::new(stat.modified), value: Some(data.as_slice().into()) }
            }
            (_, None, Some(zxid)) => Versioned { version: Version::new(zxid), value: None },
            _ => Versioned::default(),
        }
    }
}

impl Shared {
    /// All of it as it was at one moment: what was written between two of the looks is seen by its number.
    async fn cell(&self, name: &Name) -> Result<Result<Cell, Kind>, Fault> {
        let path = self.paths.of(name);
        loop {
            let data = self.link.look(Op::Data { path: path.clone(), watch: false });
            let listed = self.link.look(Op::Children { path: path.clone(), watch: false });
            let gone = self.link.look(Op::Exists { path: self.paths.gone(name), watch: false });
            let (data, listed) = (found(data.data().await)?, found(listed.children().await)?);
            let gone = found(gone.stat().await)?.map(|stat| stat.created);
            if data.as_ref().map(|(_, stat)| stat.modified) != listed.as_ref().map(|(_, stat)| stat.modified) {
                continue;
            }
            let mut cell = Cell { node: data, mark: None, gone };
            let mut rooms = self.paths.queues_apart();
            for name in listed.iter().flat_map(|(names, _)| names) {
                match self.paths.child(name) {
                    Child::Contender(node) => return Ok(Err(node.role.kind())),
                    Child::Foreign(name) => return Err(Fault::Layout(format!("{path}/{name}"))),
                    Child::Locks | Child::Leases => rooms = true,
                    Child::Cell => cell.mark = Some(format!("{path}/{name}")),
                    Child::Other => {}
                }
            }
            if cell.mark.is_some() && gone.is_some() {
                continue;
            }
            if rooms && self.any_in(None, &path).await? {
                return Ok(Err(Kind::Semaphore));
            }
            if let (None, Some((data, _))) = (&cell.mark, &cell.node) {
                // A semaphore's size minds nobody when it is not used; anything else is somebody's.
                parse(&path, data)?;
            }
            return Ok(Ok(cell));
        }
    }
    pub(crate) async fn load(&self, name: &Name) -> Result<Result<Versioned, Kind>, Fault> {
        Ok(self.cell(name).await?.map(|cell| cell.versioned()))
    }
    /// *Invariant (SAFETY A6):* with a write goes a node of its nonce, which outlives it by a minute, or goes with the session: a repeat
    /// looks for it before it refuses, and answers its version; and where that session is over nobody knows.
    pub(crate) async fn swap(
        &self,
        name: &Name,
        expected: Version,
        value: Option<&[u8]>,
        nonce: HoldId,
    ) -> Result<Result<Result<Version, Conflict>, Kind>, Fault> {
        let path = self.paths.of(name);
        let written = format!("{}/{nonce}", self.paths.written());
        let session = self.link.session(pending()).await?;
        let mut agreed = false;
        loop {
            let cell = match self.cell(name).await? {
                Ok(cell) if cell.versioned().version == expected => cell,
                refused => {
                    let known = self.link.look(Op::Data { path: written.clone(), watch: false }).data().await;
                    if let Some((before, stat)) = found(known)? {
                        if let Err(kind) = refused
                            && self.take_back(&path, nonce, &written, (before, stat)).await?
                        {
                            return Ok(Err(kind));
                        }
                        return Ok(Ok(Ok(Version::new(stat.created))));
                    }
                    if lock(&self.writes).get(&nonce).is_some_and(|first| *first != session) {
                        return Err(Fault::Unanswered);
                    }
                    if agreed {
                        return Ok(refused.map(|cell| Err(Conflict { now: cell.versioned() })));
                    }
                    // The server that answers may be behind the one by which the caller has heard of it.
                    self.agree(session).await?;
                    agreed = true;
                    continue;
                }
            };
            let Some((before, stat)) = &cell.node else {
                self.make_room(&path).await?;
                continue;
            };
            let begins = value.is_some() && cell.mark.is_none();
            let before = if begins { before.clone() } else { Vec::new() };
            let mut ops = vec![self.create(written.clone(), before.clone(), Mode::Ephemeral)];
            ops.extend(self.writes(name, &cell, stat.version, value, nonce));
            let last = ops.len() - 1;
            lock(&self.writes).entry(nonce).or_insert(session);
            match self.link.ask(session, Op::Multi(ops)).all().await? {
                Ok((zxid, _)) => {
                    // Whoever came in between for a lock saw nothing of it.
                    if begins && let Err(kind) = self.cell(name).await? {
                        let stat = Stat { created: zxid, ..Stat::default() };
                        self.take_back(&path, nonce, &written, (before, stat)).await?;
                        return Ok(Err(kind));
                    }
                    return Ok(Ok(Ok(Version::new(zxid))));
                }
                // The next look finds it.
                Err((0, code::NODE_EXISTS)) => {
                    let known = self.link.look(Op::Exists { path: written.clone(), watch: false }).stat().await;
                    if let Some(stat) = found(known)? {
                        return Ok(Ok(Ok(Version::new(stat.created))));
                    }
                }
                Err((0, code::NO_NODE)) => self.make_parent(&self.paths.written(), false).await?,
                Err((which, code::NO_NODE)) if which == last && value.is_none() => {
                    self.make_parent(&self.paths.all_gone(), false).await?;
                }
                // Somebody was faster: he is seen in the next round.
                Err((_, code::BAD_VERSION | code::NO_NODE | code::NODE_EXISTS)) => {}
                Err((_, error)) => return Err(Fault::Refused(error)),
            }
        }
    }
    /// A first value is not there any more, and what lay there before is again. False: there was none of this nonce.
    async fn take_back(
        &self,
        path: &str,
        nonce: HoldId,
        written: &str,
        (before, stat): (Vec<u8>, Stat),
    ) -> Result<bool, Fault> {
        loop {
            let now = self.link.look(Op::Exists { path: path.to_owned(), watch: false }).stat().await;
            let gone = |path: String| Op::Delete { path, version: -1 };
            let mut ops = vec![gone(format!("{path}/{}", cell_mark(mark_of(nonce)))), gone(written.to_owned())];
            if let Some(now) = found(now)?.filter(|now| now.modified == stat.created) {
                ops.push(Op::SetData { path: path.to_owned(), data: before.clone(), version: now.version });
            }
            match self.link.look(Op::Multi(ops)).all().await? {
                Ok(_) => return Ok(true),
                Err((_, code::BAD_VERSION)) => {}
                Err((_, code::NO_NODE)) => return Ok(false),
                Err((_, error)) => return Err(Fault::Refused(error)),
            }
        }
    }
    pub(crate) async fn agree(&self, session: Session) -> Result<(), Fault> {
        // Whether we may read there was agreed to, too.
        let all = Op::Multi(vec![Op::Check { path: "/".to_owned(), version: -1 }]);
        self.link.ask(session, all).all().await.map(drop)
    }
    /// What writes a value, or none, where this is what lies there.
    ///
    /// *Invariant:* of several who have seen the same one gets through: the node's own number has changed for the others, and the mark is
    /// the same cell's, or the number could be another's. A number wraps, and -1 would be any: there the mark is another one afterwards.
    fn writes(&self, name: &Name, cell: &Cell, version: i32, value: Option<&[u8]>, nonce: HoldId) -> Vec<Op> {
        let (path, any) = (self.paths.of(name), version == -1);
        let gone = |path: &String| Op::Delete { path: path.clone(), version: -1 };
        let mark = |id: u64| self.create(format!("{path}/{}", cell_mark(id)), Vec::new(), Mode::Persistent);
        let data = value.unwrap_or_default().to_vec();
        let mut ops = vec![Op::SetData { path: path.clone(), data, version }];
        match (&cell.mark, value) {
            (Some(old), Some(_)) if any => ops.extend([gone(old), mark(mark_of(nonce))]),
            (Some(old), Some(_)) => ops.push(Op::Check { path: old.clone(), version: -1 }),
            (Some(old), None) => ops.push(gone(old)),
            (None, Some(_)) => ops.push(mark(if any { 0 } else { mark_of(nonce) })),
            (None, None) => {}
        }
        // Not at the name itself: whoever contends there in other words would wait for it.
        let at = self.paths.gone(name);
        ops.extend(cell.gone.iter().map(|_| gone(&at)));
        if value.is_none() {
            ops.push(self.create(at, Vec::new(), Mode::Ephemeral));
        }
        ops
    }
    /// A minute after.
    pub(crate) async fn unwrite(&self, nonce: HoldId) {
        lock(&self.writes).remove(&nonce);
        let gone = Op::Delete { path: format!("{}/{nonce}", self.paths.written()), version: -1 };
        // What is left goes with the session.
        let _ = self.link.look(gone).done().await;
    }
}
/// Of a cell's first value.
fn mark_of(nonce: HoldId) -> u64 {
    let [_, _, _, _, _, _, _, _, id @ ..] = nonce.to_bytes();
    u64::from_be_bytes(id)
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
        let (name, one, other) = (Name::new("c").unwrap(), HoldId::from_bytes([1; 16]), HoldId::from_bytes([2; 16]));
        let mark = "/fencelock/c/%cell-1";
        let deleted = |ops: &[Op]| ops.iter().any(|op| matches!(op, Op::Delete { path, .. } if path == mark));
        for value in [Some(&b"x"[..]), None] {
            assert!(deleted(&shared.writes(&name, &cell(Some(mark)), -1, value, one)), "the second finds none");
        }
        assert!(!deleted(&shared.writes(&name, &cell(Some(mark)), 7, Some(b"x"), one)));
        let made = |version, nonce| {
            let ops = shared.writes(&name, &cell(None), version, Some(b"x"), nonce);
            ops.into_iter().find_map(|op| if let Op::Create { path, .. } = op { Some(path) } else { None })
        };
        assert_eq!(made(-1, one), made(-1, other), "the second finds it");
        assert_ne!(made(7, one), made(7, other));
    }
}
