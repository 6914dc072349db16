//! Mutexes and read-write locks: a place in the order of all who contend, by the parent's counter.
use crate::{
    error::Fault,
    link::{Session, found},
    shared::{Place, Shared},
    wire::{
        node::{Child, Node, Role, hold, last},
        op::{Mode, Op, Stat, code},
        record::Record,
    },
};
use fencelock_core::{Claim, Holder, Kind};

/// Who has waited for less, in ms, may say that he holds since he came.
const WAITED: u64 = 100;

/// How an attempt stands.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// It holds, with this token.
    Granted(i64),
    /// So many are before those whom it waits for.
    Waits {
        ahead: u32,
        front: Front,
    },
    /// Its node is gone.
    Gone,
    /// Nobody wants it any more: nothing was sent.
    Stopped,
    OtherKind(Kind),
    /// The semaphore has this size.
    OtherSize(u32),
}
/// What a waiter hears of, and who holds.
#[derive(Clone, Debug)]
pub(crate) enum Front {
    /// This one goes, who came just before.
    Goes { node: String, holder: Option<String> },
    /// A permit is given back, or the size changes: so many were taken.
    Frees { taken: usize, version: i32, holder: Option<String> },
}
impl Front {
    pub(crate) fn holder(&self) -> Option<&str> {
        match self {
            Self::Goes { holder, .. } | Self::Frees { holder, .. } => holder.as_deref(),
        }
    }
}

impl Shared {
    /// Makes its node, and looks who is there: two commands, sent together.
    ///
    /// *Invariant:* the list follows our own create in the session's order, so it has every node that was made before ours and is still
    /// there, whichever server answers. So whoever is the first in it is the first.
    pub(crate) async fn enter(&self, place: &mut Place) -> Result<Turn, Fault> {
        if place.claim.capacity().is_some() {
            return self.enter_permits(place).await;
        }
        let (node, (names, stat)) = loop {
            let beginning = format!("{}/{}", place.room, self.paths.beginning(place.role(), place.hold));
            let make = self.create(beginning, place.record.write(), Mode::EphemeralSequential);
            let list = Op::Children { path: place.room.clone(), watch: false };
            let Some([made, listed]) = self.send(place, [make, list]) else { return Ok(Turn::Stopped) };
            match made.created().await {
                Ok((node, stat)) => {
                    (place.node, place.made, place.open) = (Some(node.clone()), stat.created, false);
                    self.keep(place);
                    break (node, listed.children().await?);
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
        };
        self.stands(place, Some(node.as_str()), &names, &stat).await
    }
    /// Looks again.
    pub(crate) async fn look(&self, place: &mut Place, enters: bool) -> Result<Turn, Fault> {
        if place.claim.capacity().is_some() {
            return self.permit(place, enters).await;
        }
        let Some(node) = &place.node else { return Ok(Turn::Gone) };
        let node = node.clone();
        match self.room(place).await? {
            Some((names, stat)) => self.stands(place, Some(node.as_str()), &names, &stat).await,
            None => Ok(Turn::Gone),
        }
    }
    /// How it would stand if it came now: who is refused makes no record. Who would be granted has no token yet.
    pub(crate) async fn peek(&self, place: &mut Place) -> Result<Turn, Fault> {
        if place.claim.capacity().is_some() {
            return self.permit(place, true).await;
        }
        let (names, stat) = self.room(place).await?.unwrap_or_default();
        self.stands(place, None, &names, &stat).await
    }
    async fn room(&self, place: &Place) -> Result<Option<(Vec<String>, Stat)>, Fault> {
        let listed = self.link.ask(place.session, Op::Children { path: place.room.clone(), watch: false });
        found(listed.children().await)
    }
    /// *Invariant (SAFETY K1):* whoever is the first, and there for another kind of lock, refuses us, and so does whoever is there in other
    /// words; whoever came after us sees us. Where a semaphore's queue lies apart, whoever wants permits has said their size before he
    /// looks who is here: either he sees us, or we see the size, and look for him.
    async fn stands(&self, place: &Place, node: Option<&str>, names: &[String], stat: &Stat) -> Result<Turn, Fault> {
        let own = node.map(|node| self.own(node)).transpose()?;
        let mut before: Vec<Node> = Vec::new();
        let (mut there, mut rooms) = (node.is_none(), self.paths.queues_apart() && stat.data_len > 0);
        let mut permits = false;
        for name in names {
            match self.paths.child(name) {
                Child::Contender(one) if one.role == Role::Permit => permits = true,
                Child::Contender(one) if own.as_ref().is_some_and(|own| own.name == one.name) => there = true,
                Child::Contender(one) if own.as_ref().is_none_or(|own| one.is_before(own)) => before.push(one),
                Child::Foreign(name) => return Err(Fault::Layout(format!("{}/{name}", place.path))),
                Child::Cell => return Ok(Turn::OtherKind(Kind::Cell)),
                Child::Locks | Child::Leases => rooms = true,
                Child::Contender(_) | Child::Other => {}
            }
        }
        if !there {
            return Ok(Turn::Gone);
        }
        if permits {
            return Ok(Turn::OtherKind(Kind::Semaphore));
        }
        // The first one's kind is the name's. Whoever follows him for another one is on his way out.
        let first = before.iter().find(|one| !before.iter().any(|other| other.is_before(one)));
        if let Some(other) = first.filter(|first| !first.is_of(place.role())) {
            return Ok(Turn::OtherKind(other.role.kind()));
        }
        before.retain(|one| (place.role(), one.role) != (Role::Read, Role::Read));
        // A difference that wraps is no order of all, so there is no sorting: the last is before nobody else.
        let nearest = before.iter().find(|one| !before.iter().any(|other| one.is_before(other)));
        let first = before.iter().find(|one| !before.iter().any(|other| other.is_before(one)));
        let (Some(nearest), Some(first)) = (nearest, first) else {
            // Where nobody is, there is no semaphore any more; and whoever wants permits while others wait here is on his way out.
            let semaphore = rooms && self.any_in(Some(place.session), &place.path).await?;
            return Ok(if semaphore { Turn::OtherKind(Kind::Semaphore) } else { Turn::Granted(place.made) });
        };
        let path = |node: &Node| format!("{}/{}", place.room, node.name);
        let ahead = u32::try_from(before.len()).unwrap_or(u32::MAX).saturating_sub(1);
        Ok(Turn::Waits { ahead, front: Front::Goes { node: path(nearest), holder: Some(path(first)) } })
    }
    /// What its node's name says.
    ///
    /// *Invariant:* no two contenders have one number. A server counts to 2^31 - 1 and not beyond (one before 3.6 goes on with -2^31): whoever
    /// is given that number may share it with others, so it is nobody's place.
    pub(crate) fn own(&self, node: &str) -> Result<Node, Fault> {
        let own = self.paths.contender(last(node)).ok_or(Fault::Answer)?;
        if own.number == i32::MAX { Err(Fault::Counted(node.to_owned())) } else { Ok(own) }
    }
    /// Whether anybody waits for permits, or has one: who waits first, who holds then, so nobody who goes from one to the other in between
    /// is missed.
    pub(crate) async fn any_in(&self, session: Option<Session>, path: &str) -> Result<bool, Fault> {
        let ask = |room: &String| {
            let children = Op::Children { path: room.clone(), watch: false };
            session.map_or_else(|| self.link.look(children.clone()), |session| self.link.ask(session, children.clone()))
        };
        let rooms = [self.paths.queue(path), self.paths.permits(path)];
        let asked: Vec<_> = rooms.iter().map(ask).collect();
        let is_permit = |name: &String| self.paths.contender(name).is_some_and(|node| node.role == Role::Permit);
        let mut any = false;
        for (room, asked) in rooms.iter().zip(asked) {
            let names = found(asked.children().await)?.map(|(names, _)| names).unwrap_or_default();
            // The name's own node has others below it, too.
            any |= if room == path { names.iter().any(is_permit) } else { !names.is_empty() };
        }
        Ok(any)
    }
    /// What is known of whoever holds.
    pub(crate) async fn holder_at(&self, session: Session, path: &str) -> Result<Option<Holder>, Fault> {
        let known = found(self.link.ask(session, Op::Data { path: path.to_owned(), watch: false }).data().await)?;
        let node = self.paths.contender(last(path));
        Ok(known.zip(node).map(|((data, stat), node)| self.holder(&node, &data, &stat)))
    }
    /// What became of a command that makes a node and was not answered: its nodes, as they are now.
    ///
    /// *Invariant (SAFETY A2):* the leader refuses what the session had sent to a server that it has left, and a transaction that the
    /// majority has agreed to brings the one that answers us to where the leader is. So what is not in the list after it was not made, and will not be. A node of another session
    /// is none of ours, whatever its name (CURATOR-498, 604, 696).
    pub(crate) async fn find(&self, place: &mut Place) -> Result<(), Fault> {
        let mut rooms = vec![place.room.clone()];
        if place.claim.capacity().is_some() {
            rooms.push(self.paths.permits(&place.path));
        }
        // A `sync` may be answered by who takes himself for the leader; a transaction is not. What follows it is answered after it.
        self.agree(place.session).await?;
        let ask = |room: &String| self.link.ask(place.session, Op::Children { path: room.clone(), watch: false });
        let asked: Vec<_> = rooms.iter().map(ask).collect();
        let (mut node, mut permits, mut made) = (None, Vec::new(), 0);
        for (room, asked) in rooms.iter().zip(asked) {
            for name in found(asked.children().await)?.map(|(names, _)| names).unwrap_or_default() {
                let own = self.paths.contender(&name).filter(|one| hold(&one.id) == Some(place.hold));
                let Some(own) = own else { continue };
                let path = format!("{room}/{name}");
                let stat = self.link.ask(place.session, Op::Exists { path: path.clone(), watch: false }).stat().await;
                let stat = found(stat)?.filter(|stat| stat.owner == place.session.0);
                if stat.is_none() {
                    continue;
                }
                match own.role {
                    Role::Permit => permits.push(path),
                    _ => node = Some(path),
                }
                made = stat.map_or(made, |stat| stat.created);
            }
        }
        (place.node, place.permits, place.made, place.open) = (node, permits, made, false);
        self.keep(place);
        Ok(())
    }
    /// Nothing is left of it afterwards. True: all that it was known to have was there still.
    pub(crate) async fn leave(&self, place: &mut Place) -> Result<bool, Fault> {
        if !self.link.is_open(place.session) {
            return Ok(false);
        }
        if place.open {
            match self.find(place).await {
                Err(Fault::SessionOver) => return Ok(false),
                end => end?,
            }
        }
        let gone = |path: &String| Op::Delete { path: path.clone(), version: -1 };
        let mut all: Vec<_> = place.nodes().map(gone).collect();
        let end = match all.len() {
            0 => return Ok(false),
            1 => self.link.ask(place.session, all.remove(0)).done().await,
            _ => match self.link.ask(place.session, Op::Multi(all)).all().await {
                // Somebody has taken a part of it away: the rest goes, too.
                Ok(Err((_, error))) if Fault::Refused(error).is_no_node() => return self.leave_each(place).await,
                Ok(Err((_, error))) => Err(Fault::Refused(error)),
                end => end.map(drop),
            },
        };
        match end {
            Ok(()) => Ok(true),
            Err(fault) if fault.is_no_node() || fault == Fault::SessionOver => Ok(false),
            Err(fault) => Err(fault),
        }
    }
    async fn leave_each(&self, place: &Place) -> Result<bool, Fault> {
        let gone = |path: &String| self.link.ask(place.session, Op::Delete { path: path.clone(), version: -1 });
        let asked: Vec<_> = place.nodes().map(gone).collect();
        for asked in asked {
            match asked.done().await {
                Err(fault) if !(fault.is_no_node() || fault == Fault::SessionOver) => return Err(fault),
                _ => {}
            }
        }
        Ok(false)
    }
    /// Who has waited, and holds for a while now, says since when: until then his record says since when he came.
    pub(crate) async fn tell_since(&self, place: &Place) {
        let since = place.held_since();
        let Some(path) = place.nodes().next().filter(|_| since > place.record.since + WAITED) else { return };
        let data = Record { since, ..place.record.clone() }.write();
        // What somebody else has written there is not for us to overwrite.
        let set = Op::SetData { path: path.clone(), data, version: 0 };
        let _ = self.link.ask(place.session, set).stat().await;
    }
    /// A writer becomes a reader, in his own place in the order: everybody before him has gone, and whoever comes after him waits for
    /// him, or reads beside him.
    ///
    /// False: the writer's node is not there.
    pub(crate) async fn downgrade(&self, place: &mut Place) -> Result<bool, Fault> {
        let Some((old, node)) =
            place.node.clone().and_then(|path| Some((path.clone(), self.paths.contender(last(&path))?)))
        else {
            return Ok(false);
        };
        let new = format!("{}/{}", place.room, self.paths.downgraded(place.hold, node.number));
        // Its token stays what it was, and the node's own number does not tell it any more.
        (place.record.token, place.record.since) = (Some(place.token), place.held_since());
        let swap = Op::Multi(vec![
            self.create(new.clone(), place.record.write(), Mode::Ephemeral),
            Op::Delete { path: old, version: -1 },
        ]);
        let Some(asked) = self.send_of(place, swap) else { return Ok(false) };
        let end = match asked.all().await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err((0, error))) if error == code::NODE_EXISTS => Ok(true),
            Ok(Err((_, error))) if Fault::Refused(error).is_no_node() => Ok(false),
            Ok(Err((_, error))) => Err(Fault::Refused(error)),
            Err(fault) => Err(fault),
        };
        if matches!(end, Ok(true)) {
            (place.node, place.claim) = (Some(new), Claim::Read);
        }
        // Unanswered it stays open. Nothing else of it has changed, but that it may be given back by now.
        if !end.as_ref().is_err_and(Fault::may_pass) {
            self.change(place.hold, |known| {
                known.node.clone_from(&place.node);
                known.record.clone_from(&place.record);
                (known.claim, known.open) = (place.claim, false);
            });
        }
        end
    }
}
