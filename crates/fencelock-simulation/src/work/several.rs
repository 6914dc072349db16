//! Several locks, or none.
use super::Worker;
use crate::{
    history::{How, Part, Terms, Way, What},
    plan::Sort,
    world::sleep,
};
use fencelock_core::{Claim, Held, Member, MultiLock};

impl Worker {
    fn member(&mut self, name: u8) -> (Member, Claim) {
        let size = self.size(name);
        let (client, place) = (self.process.client.clone(), self.place(name).to_owned());
        match self.sort(name) {
            Sort::RwLock if self.rng.bool() => (client.rw_lock(place).reading(), Claim::Read),
            Sort::RwLock => (client.rw_lock(place).writing(), Claim::Write),
            Sort::Semaphore => {
                let take = self.rng.u32(1..=size);
                (client.semaphore(place, size).permits(take), Claim::Permits { take, of: size })
            }
            _ => (client.mutex(place).into(), Claim::Mutex),
        }
    }
    pub(super) async fn several(&mut self, locks: &[u8]) {
        let first = self.rng.usize(0..locks.len());
        let second = (first + 1 + self.rng.usize(0..locks.len() - 1)) % locks.len();
        let names = [locks[first], locks[second]];
        let members = names.map(|name| (name, self.member(name)));
        let mut asked = Vec::new();
        let mut all = Vec::new();
        for (name, (member, claim)) in members {
            let op = self.number();
            self.log(What::Asked { op, name, claim, how: How::Multi });
            asked.push((op, name));
            all.push(member);
        }
        let lock = MultiLock::new(all);
        let got = if self.rng.u8(0..3) == 0 { lock.try_lock().await } else { lock.lock().await.map(Ok) };
        let guard = match got {
            Ok(Ok(guard)) => guard,
            Ok(Err(_)) => return asked.iter().for_each(|(op, _)| self.log(What::Refused { op: *op })),
            Err(error) => {
                return asked.iter().for_each(|(op, _)| self.log(What::Failed { op: *op, kind: error.kind() }));
            }
        };
        let ttl = self.shared.plan.ttl;
        let terms = Terms { ttl, session: self.process.node.session, ..Terms::default() };
        let tokens = guard.tokens();
        let mut parts: Vec<Part> = Vec::new();
        for held in guard.members() {
            let place = held.name().as_str();
            let Some((op, name)) = asked.iter().copied().find(|(_, name)| self.place(*name) == place) else { continue };
            let token = tokens.iter().find(|(name, _)| name.as_str() == place).map_or(0, |(_, token)| token.get());
            parts.push(self.have(op, name, held, token, terms));
        }
        let hold = self.some(self.shared.plan.hold);
        tokio::select! {
            biased;
            _ = guard.lost() => {}
            () = sleep(hold) => {}
        }
        let each = |this: &Self, what: &dyn Fn(Part, &Held) -> What| {
            for (part, held) in parts.iter().zip(guard.members()) {
                this.log(what(*part, held));
            }
        };
        // One lost is all lost: nothing is claimed of the others either.
        each(self, &|part, held| {
            let (valid, way) = (self.valid(held), Way::Release);
            if held.is_valid() { What::Leaves { part, valid, way } } else { What::Stops { part, valid } }
        });
        let answer = guard.release().await.err().map(|error| error.kind());
        for part in parts {
            self.log(What::Left { part, answer });
            self.log(What::Gone { part });
        }
    }
}
