//! What is seen of a lock: who holds it, who waits, and what somebody else may do about it.
use crate::{
    error::Fault,
    link::{found, heard},
    permits::parse,
    shared::Shared,
    wire::{
        node::{Child, Node, Role, hold},
        op::{Op, Stat, code},
        record::{Record, ago},
    },
};
use fencelock_core::{Claim, HoldId, Holder, Kind, Name, Status, Token, Waiter};
use std::time::Duration;
use tokio::time::sleep;

/// Everything that lies at one name.
pub(crate) struct Seen {
    pub(crate) status: Status,
    /// The nodes of those who hold, in their order.
    held: Vec<Vec<String>>,
}
struct Contender {
    node: Node,
    holder: Holder,
}

impl Shared {
    /// Whoever has this node. One of another program says what its data say, and no more.
    pub(crate) fn holder(&self, node: &Node, data: &[u8], stat: &Stat) -> Holder {
        let record = Record::read(data);
        let token = record.as_ref().and_then(|record| record.token).unwrap_or(stat.created);
        let token = Token::new(token).or(Token::new(1)).unwrap_or_else(|| unreachable!("one is positive"));
        let take = record.as_ref().map_or(1, |record| record.take.max(1));
        let claim = match node.role {
            Role::Mutex | Role::Either => Claim::Mutex,
            Role::Read => Claim::Read,
            Role::Write => Claim::Write,
            Role::Permit => Claim::Permits { take, of: take },
        };
        if let (Some(Record { host, pid, note, since, ttl, .. }), Some(hold)) = (record, hold(&node.id)) {
            return Holder { hold, claim, token, host, pid, note, held_for: ago(since), left: ttl };
        }
        let said = String::from_utf8_lossy(data);
        let note = if said.is_empty() { "another program".into() } else { said.into() };
        let hold = hold(&node.id).unwrap_or_else(|| {
            let mut id = [0; 16];
            id[8..].copy_from_slice(&stat.created.to_be_bytes());
            HoldId::from_bytes(id)
        });
        let born = u64::try_from(stat.born).unwrap_or(0);
        Holder { hold, claim, token, host: "?".into(), pid: 0, note, held_for: ago(born), left: Duration::ZERO }
    }
    /// All of a name, in one moment's order of commands. It makes no record.
    pub(crate) async fn see(&self, name: &Name) -> Result<Seen, Fault> {
        let path = self.paths.of(name);
        let mut seen = Seen { status: Status::free(name.clone()), held: Vec::new() };
        let listed = self.link.look(Op::Children { path: path.clone(), watch: false });
        let Some((names, _)) = found(listed.children().await)? else { return Ok(seen) };
        let (mut nodes, mut rooms, mut kind) = (Vec::new(), self.paths.queues_apart(), None);
        for name in &names {
            match self.paths.child(name) {
                Child::Contender(node) if node.role == Role::Permit => rooms = true,
                Child::Contender(node) => nodes.push(node),
                Child::Locks | Child::Leases => rooms = true,
                Child::Cell => kind = Some(Kind::Cell),
                Child::Foreign(_) | Child::Other => {}
            }
        }
        if let Some(role) = nodes.first().map(|node| node.role) {
            kind = Some(role.kind());
            let all = self.known(&path, nodes).await?;
            seen.queue(&path, all);
        } else if rooms {
            // Whoever goes from one to the other in between is seen twice, and not missed.
            let leases = self.paths.permits(&path);
            let mut queue = self.contenders(&self.paths.queue(&path)).await?;
            let permits = self.contenders(&leases).await?;
            queue.retain(|one| !permits.iter().any(|other| other.holder.hold == one.holder.hold));
            if !permits.is_empty() || !queue.is_empty() {
                kind = Some(Kind::Semaphore);
                let sized = self.link.look(Op::Data { path: path.clone(), watch: false });
                let size = found(sized.data().await)?.and_then(|(data, _)| parse(&path, &data).ok().flatten());
                seen.permits(&leases, permits, queue, size);
            }
        }
        seen.status.kind = kind;
        Ok(seen)
    }
    async fn contenders(&self, room: &str) -> Result<Vec<Contender>, Fault> {
        let listed = self.link.look(Op::Children { path: room.to_owned(), watch: false });
        let names = found(listed.children().await)?.map(|(names, _)| names).unwrap_or_default();
        let nodes = names.iter().filter_map(|name| self.paths.contender(name)).collect();
        self.known(room, nodes).await
    }
    /// In their order, and who they are.
    async fn known(&self, room: &str, mut nodes: Vec<Node>) -> Result<Vec<Contender>, Fault> {
        // As far from the first as they are: that is an order of all, over the end of the counter, too.
        if let Some(first) =
            nodes.iter().find(|one| !nodes.iter().any(|other| other.is_before(one))).map(|one| one.number)
        {
            nodes.sort_by_key(|node| node.number.wrapping_sub(first));
        }
        let ask = |node: &Node| self.link.look(Op::Data { path: format!("{room}/{}", node.name), watch: false });
        let asked: Vec<_> = nodes.iter().map(ask).collect();
        let mut all = Vec::with_capacity(nodes.len());
        for (node, asked) in nodes.into_iter().zip(asked) {
            // One that has gone meanwhile is not there.
            let known = match found(asked.data().await) {
                // He lets nobody read what he says; that he is there anybody may know.
                Err(fault) if fault.is(code::NO_AUTH) => {
                    let path = format!("{room}/{}", node.name);
                    let stat = self.link.look(Op::Exists { path, watch: false }).stat().await;
                    found(stat)?.map(|stat| (Vec::new(), stat))
                }
                known => known?,
            };
            if let Some((data, stat)) = known {
                all.push(Contender { holder: self.holder(&node, &data, &stat), node });
            }
        }
        Ok(all)
    }
    /// Until another one holds exclusively than whoever has this token, or nobody does.
    pub(crate) async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status, Fault> {
        let path = self.paths.of(name);
        loop {
            // Watched first: nothing that happens after the look is missed.
            let (asked, mut word) = self.link.watch(None, Op::Children { path: path.clone(), watch: true });
            if found(asked.children().await)?.is_none() {
                let (asked, absent) = self.link.watch(None, Op::Exists { path: path.clone(), watch: true });
                if found(asked.stat().await)?.is_some() {
                    continue;
                }
                word = absent;
            }
            let status = self.see(name).await?.status;
            if status.exclusive().map(|holder| holder.token) != seen {
                return Ok(status);
            }
            if heard(&mut [&mut word]).await.is_none() {
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
    /// Ends whoever has this token.
    pub(crate) async fn force(&self, name: &Name, token: Token) -> Result<Result<(), Option<Holder>>, Fault> {
        let mut sent = false;
        loop {
            let seen = self.see(name).await?;
            let Some(at) = seen.status.holders.iter().position(|holder| holder.token == token) else {
                // One that was not answered may have done it.
                return Ok(if sent { Ok(()) } else { Err(seen.status.holders.into_iter().next()) });
            };
            let gone = seen.held[at].iter().map(|path| Op::Delete { path: path.clone(), version: -1 }).collect();
            match self.link.look(Op::Multi(gone)).all().await {
                Ok(Ok(_)) => return Ok(Ok(())),
                // He has changed meanwhile.
                Ok(Err((_, error))) if Fault::Refused(error).is_no_node() => {}
                Ok(Err((_, error))) => return Err(Fault::Refused(error)),
                Err(Fault::Unanswered) if !sent => sent = true,
                Err(fault) => return Err(fault),
            }
        }
    }
}
impl Seen {
    fn holds(&mut self, holder: Holder, nodes: Vec<String>) {
        self.status.last_token = self.status.last_token.max(Some(holder.token));
        self.status.holders.push(holder);
        self.held.push(nodes);
    }
    fn waits(&mut self, Holder { hold, claim, host, pid, note, held_for, .. }: Holder) {
        self.status.waiters.push(Waiter { hold, claim, host, pid, note, waiting_for: held_for });
    }
    /// Whoever is first holds, and with a reader those who follow, up to the next writer.
    fn queue(&mut self, room: &str, all: Vec<Contender>) {
        let mut shared = true;
        for (n, Contender { node, holder }) in all.into_iter().enumerate() {
            shared &= node.role == Role::Read;
            if n == 0 || shared {
                self.holds(holder, vec![format!("{room}/{}", node.name)]);
            } else {
                self.waits(holder);
            }
        }
    }
    fn permits(&mut self, room: &str, permits: Vec<Contender>, queue: Vec<Contender>, size: Option<u32>) {
        // The nodes of one hold were made together.
        for Contender { node, holder } in permits {
            let path = format!("{room}/{}", node.name);
            match self.status.holders.iter().position(|known| known.hold == holder.hold && known.token == holder.token)
            {
                Some(known) => self.held[known].push(path),
                None => self.holds(holder, vec![path]),
            }
        }
        self.status.capacity = size;
        for (holder, nodes) in self.status.holders.iter_mut().zip(&self.held) {
            let take = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            holder.claim = Claim::Permits { take, of: size.unwrap_or(take) };
        }
        for Contender { mut holder, .. } in queue {
            let take = if let Claim::Permits { take, .. } = holder.claim { take } else { 1 };
            holder.claim = Claim::Permits { take, of: size.unwrap_or(take) };
            self.waits(holder);
        }
    }
}
