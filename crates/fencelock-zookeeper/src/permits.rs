//! Semaphores, in the tree of Curator's `InterProcessSemaphoreV2`: below `locks` they queue, below `leases` they hold; or in that of
//! kazoo's `Semaphore`, which queue beside the name and hold below it. The rule is the same.
use crate::{
    claims::{Front, Turn},
    error::Fault,
    link::{Word, found},
    shared::{Place, Shared},
    wire::{
        node::{Child, Node, Role, last},
        op::{Mode, Op, code},
    },
};
use fencelock_core::{Claim, Kind, Name};

/// What somebody who waits for permits knows, and hears of.
#[derive(Debug)]
pub(crate) struct Known {
    /// `None`: nobody has said one.
    size: Option<u32>,
    pub(crate) version: i32,
    pub(crate) resized: Word,
    /// Of permits that are given back; one who is not the first does not hear of them.
    pub(crate) freed: Option<Word>,
}

/// How a change of size ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resized {
    Done,
    OtherKind(Kind),
    OtherSize(u32),
}

impl Shared {
    /// Takes a place in the queue, and what is free.
    pub(crate) async fn enter_permits(&self, place: &mut Place) -> Result<Turn, Fault> {
        loop {
            let beginning = format!("{}/{}", place.room, self.paths.beginning(Role::Mutex, place.hold));
            let make = self.create(beginning, place.record.write(), Mode::EphemeralSequential);
            let Some([made]) = self.send(place, [make]) else { return Ok(Turn::Stopped) };
            match made.created().await {
                Ok((node, _)) => {
                    (place.node, place.open) = (Some(node), false);
                    self.keep(place);
                    return self.permit(place, true).await;
                }
                Err(fault) if fault.is_no_node() => {
                    place.open = false;
                    self.keep(place);
                    self.make_room(&place.room).await?;
                }
                Err(fault) => {
                    if !fault.may_pass() {
                        place.open = false;
                        self.keep(place);
                    }
                    return Err(fault);
                }
            }
        }
    }
    /// Whoever is the first in the queue takes permits, and nobody else: so what he counts can only become less.
    ///
    /// *Invariant:* he counts before he takes, and takes all in the transaction that ends his place in the queue. Those of other programs
    /// take before they count, in the same order, and give back.
    pub(crate) async fn permit(&self, place: &mut Place, enters: bool) -> Result<Turn, Fault> {
        // They were made by one transaction, which is the token.
        if !place.permits.is_empty() {
            return Ok(Turn::Granted(place.made));
        }
        // Without a place in the queue: if it came now.
        let (node, Claim::Permits { take, of }) = (place.node.clone(), place.claim) else {
            return Ok(Turn::Gone);
        };
        let leases = self.paths.permits(&place.path);
        let session = place.session;
        let children = |path: &str| Op::Children { path: path.to_owned(), watch: false };
        loop {
            // The size first: whatever begins to write one of its own after that changes its number.
            let size = Op::Data { path: place.path.clone(), watch: false };
            let ops = [size, children(&place.room), children(&leases), children(&place.path)];
            let [sized, queue, held, all] = self.link.ask_all(session, ops);
            let queue = found(queue.children().await)?.map(|(names, _)| names).unwrap_or_default();
            let held = found(held.children().await)?.map(|(names, _)| names);
            let all = found(all.children().await)?.map(|(names, _)| names).unwrap_or_default();
            let (data, stat) = found(sized.data().await)?.unwrap_or_default();
            // Nobody refuses one who is not there any more.
            if node.as_ref().is_some_and(|node| !queue.iter().any(|name| name == last(node))) {
                return Ok(Turn::Gone);
            }
            // Whoever comes later for another kind of lock sees us; a cell's first value may be on its way.
            match self.other_kind(&place.path, &all)? {
                Some(kind) if enters || kind == Kind::Cell => return Ok(Turn::OtherKind(kind)),
                _ => {}
            }
            let (size, version) = match parse(&place.path, &data)? {
                Some(size) => (size, stat.version),
                None if node.is_none() => (of, 0),
                None => {
                    let data = of.to_string().into_bytes();
                    let set = Op::SetData { path: place.path.clone(), data, version: stat.version };
                    match self.link.ask(place.session, set).stat().await {
                        Err(fault) if fault.is_no_node() => self.make_room(&place.path).await?,
                        Err(fault) if !fault.is(code::BAD_VERSION) => return Err(fault),
                        _ => {}
                    }
                    // Once it is said, who is here is looked at anew.
                    continue;
                }
            };
            if (enters && size != of) || take > size {
                return Ok(Turn::OtherSize(size));
            }
            let first = held.iter().flatten().next().map(|name| format!("{leases}/{name}"));
            if let Some(turn) = self.queues(place, &queue, first.clone())? {
                return Ok(turn);
            }
            let taken = held.as_ref().map_or(0, Vec::len);
            if u64::try_from(taken).unwrap_or(u64::MAX).saturating_add(u64::from(take)) > u64::from(size) {
                return Ok(Turn::Waits { ahead: 0, front: Front::Frees { taken, version, holder: first } });
            }
            if node.is_none() {
                return Ok(Turn::Granted(0));
            }
            if let Some(turn) = self.take(place, version).await? {
                return Ok(turn);
            }
        }
    }
    /// All at once, if its size is the one that was counted against still (SAFETY K4). `None`: look again.
    async fn take(&self, place: &mut Place, version: i32) -> Result<Option<Turn>, Fault> {
        let (Some(node), Claim::Permits { take, .. }) = (place.node.clone(), place.claim) else {
            return Ok(Some(Turn::Gone));
        };
        let leases = self.paths.permits(&place.path);
        loop {
            // Who it is stands in the first: a transaction has a megabyte.
            let data = |n| if n == 0 { place.record.write() } else { Vec::new() };
            let permit = |n| {
                let (name, mode) = self.paths.permit(place.hold, n);
                self.create(format!("{leases}/{name}"), data(n), mode)
            };
            let mut ops: Vec<_> = (0..take).map(permit).collect();
            ops.push(Op::Delete { path: node.clone(), version: -1 });
            ops.push(Op::Check { path: place.path.clone(), version });
            let Some([taken]) = self.send(place, [Op::Multi(ops)]) else { return Ok(Some(Turn::Stopped)) };
            match taken.all().await {
                Ok(Ok((zxid, made))) => {
                    (place.node, place.permits, place.made, place.open) = (None, made, zxid, false);
                    self.keep(place);
                    return Ok(Some(Turn::Granted(zxid)));
                }
                Ok(Err((which, error))) => {
                    place.open = false;
                    self.keep(place);
                    match error {
                        code::NO_NODE => {}
                        code::BAD_VERSION => return Ok(None),
                        error => return Err(Fault::Refused(error)),
                    }
                    if which == usize::try_from(take).unwrap_or(usize::MAX) {
                        return Ok(Some(Turn::Gone));
                    }
                    // Only when it is used at once: one that never was does not go by itself.
                    self.make_room(&leases).await?;
                }
                Err(fault) => {
                    if !fault.may_pass() {
                        place.open = false;
                        self.keep(place);
                    }
                    return Err(fault);
                }
            }
        }
    }
    /// Hears of the size from now on.
    pub(crate) async fn hears_of_size(&self, place: &Place) -> Result<Known, Fault> {
        let (asked, resized) = self.link.watch(Some(place.session), Op::Data { path: place.path.clone(), watch: true });
        let (data, stat) = found(asked.data().await)?.unwrap_or_default();
        Ok(Known { size: parse(&place.path, &data)?, version: stat.version, resized, freed: None })
    }
    /// Whom it waited for has gone, or something was given back. What is known saves looks: none at the queue where the one in front
    /// has his permits, as only the first takes any; and none at the size, which is told.
    ///
    /// *Invariant:* who has gone without them need not have been the first. Then whoever is may take while we ask, so that what was counted
    /// before we know that it is us counts for nothing: all is asked anew, in its order.
    pub(crate) async fn next(
        &self,
        place: &mut Place,
        front: &Front,
        known: &mut Option<Known>,
    ) -> Result<Turn, Fault> {
        let (Some(Known { size: Some(size), version, resized, freed }), Claim::Permits { take, .. }) =
            (&mut *known, place.claim)
        else {
            *known = None;
            return self.permit(place, false).await;
        };
        if resized.is_told() || take > *size {
            *known = None;
            return self.permit(place, false).await;
        }
        let leases = self.paths.permits(&place.path);
        let (asked, word) = self.link.watch(Some(place.session), Op::Children { path: leases.clone(), watch: true });
        let Some((held, _)) = found(asked.children().await)? else {
            *known = None;
            return self.permit(place, false).await;
        };
        if let Front::Goes { node, .. } = front {
            let before = self.paths.contender(last(node)).map(|node| node.id);
            let took = |name: &String| self.paths.contender(name).map(|node| node.id) == before;
            if !held.iter().any(took) {
                *known = None;
                return self.permit(place, false).await;
            }
        }
        let free = u64::try_from(held.len()).unwrap_or(u64::MAX).saturating_add(u64::from(take)) <= u64::from(*size);
        let version = *version;
        if !free {
            *freed = Some(word);
            let holder = held.first().map(|name| format!("{leases}/{name}"));
            return Ok(Turn::Waits { ahead: 0, front: Front::Frees { taken: held.len(), version, holder } });
        }
        *known = None;
        match self.take(place, version).await? {
            Some(turn) => Ok(turn),
            None => self.permit(place, false).await,
        }
    }
    /// How it stands in the queue. `None`: it is the first.
    fn queues(&self, place: &Place, queue: &[String], first: Option<String>) -> Result<Option<Turn>, Fault> {
        if place.node.as_ref().is_some_and(|node| !queue.iter().any(|name| name == last(node))) {
            return Ok(Some(Turn::Gone));
        }
        let own = place.node.as_ref().map(|node| self.own(node)).transpose()?;
        let before: Vec<Node> = queue
            .iter()
            .filter_map(|name| self.paths.contender(name))
            .filter(|one| own.as_ref().is_none_or(|own| one.is_before(own)))
            .collect();
        let nearest = before.iter().find(|one| !before.iter().any(|other| one.is_before(other)));
        let ahead = u32::try_from(before.len()).unwrap_or(u32::MAX);
        Ok(nearest.map(|nearest| {
            let node = format!("{}/{}", place.room, nearest.name);
            Turn::Waits { ahead, front: Front::Goes { node, holder: first } }
        }))
    }
    /// Of which kind the contenders are that lie at the name itself.
    pub(crate) fn other_kind(&self, path: &str, names: &[String]) -> Result<Option<Kind>, Fault> {
        for name in names {
            match self.paths.child(name) {
                Child::Contender(node) if node.role != Role::Permit => return Ok(Some(node.role.kind())),
                Child::Cell => return Ok(Some(Kind::Cell)),
                Child::Foreign(name) => return Err(Fault::Layout(format!("{path}/{name}"))),
                Child::Contender(_) | Child::Locks | Child::Leases | Child::Other => {}
            }
        }
        Ok(None)
    }
    pub(crate) async fn resize(&self, name: &Name, from: u32, to: u32) -> Result<Resized, Fault> {
        let path = self.paths.of(name);
        loop {
            let sized = self.link.look(Op::Data { path: path.clone(), watch: false });
            let all = self.link.look(Op::Children { path: path.clone(), watch: false });
            let (sized, all) = (found(sized.data().await)?, found(all.children().await)?);
            let (Some((all, _)), Some((data, stat))) = (all, sized) else {
                self.make_room(&path).await?;
                continue;
            };
            if let Some(kind) = self.other_kind(&path, &all)? {
                return Ok(Resized::OtherKind(kind));
            }
            match parse(&path, &data)? {
                Some(size) if size == to => return Ok(Resized::Done),
                Some(size) if size != from => return Ok(Resized::OtherSize(size)),
                _ => {}
            }
            let set = Op::SetData { path: path.clone(), data: to.to_string().into_bytes(), version: stat.version };
            match self.link.look(set).stat().await {
                Ok(_) => return Ok(Resized::Done),
                Err(fault) if fault.is(code::BAD_VERSION) || fault.is_no_node() => {}
                Err(fault) => return Err(fault),
            }
        }
    }
}
/// A semaphore's size. `None`: nobody has said one.
pub(crate) fn parse(path: &str, data: &[u8]) -> Result<Option<u32>, Fault> {
    if data.is_empty() {
        return Ok(None);
    }
    let size = std::str::from_utf8(data).ok().and_then(|size| size.parse().ok());
    size.map(Some).ok_or_else(|| Fault::Data(path.to_owned()))
}
