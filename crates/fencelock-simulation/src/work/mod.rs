//! What clients do: they think, lock, write, and let go, in every way that the library offers.
mod ask;
mod cells;
mod hold;
mod several;

use crate::{
    clock::{Drift, MS, Nanos, SEC},
    history::{How, Op, Terms, What, Written},
    plan::{Class, Sort, between, chance},
    world::{Process, Shared, sleep},
};
use fastrand::Rng;
use fencelock_core::{Claim, Guard, Held, HoldId, Owner, SharedGuard, Term};
use std::{
    ops::Deref,
    pin::Pin,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
};

pub(crate) use cells::number;

/// What a lock protects: it remembers who wrote last, and refuses who comes too late (SAFETY T5).
#[derive(Debug, Default)]
pub(crate) struct Resource {
    last: Option<(i64, HoldId)>,
}
impl Resource {
    pub(crate) fn write(&mut self, token: i64, owner: HoldId) -> bool {
        let accepted = self.last.is_none_or(|(last, by)| token > last || (token == last && by == owner));
        if accepted {
            self.last = Some((token, owner));
        }
        accepted
    }
}

/// What somebody has in hand.
pub(crate) enum Grip {
    One(Guard),
    Shared(SharedGuard),
    Term(Term),
}
impl Deref for Grip {
    type Target = Held;
    fn deref(&self) -> &Held {
        match self {
            Self::One(guard) => guard,
            Self::Shared(guard) => guard,
            Self::Term(term) => term,
        }
    }
}
impl Grip {
    fn token(&self) -> Option<i64> {
        match self {
            Self::One(guard) => Some(guard.token().get()),
            Self::Term(term) => Some(term.token().get()),
            Self::Shared(_) => None,
        }
    }
    async fn release(self) -> fencelock_core::Result<()> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
            Self::Term(term) => term.resign().await,
        }
    }
}
impl From<Guard> for Grip {
    fn from(guard: Guard) -> Self {
        Self::One(guard)
    }
}
impl From<SharedGuard> for Grip {
    fn from(guard: SharedGuard) -> Self {
        Self::Shared(guard)
    }
}
impl From<Term> for Grip {
    fn from(term: Term) -> Self {
        Self::Term(term)
    }
}
pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What is wanted this time.
#[derive(Clone, Debug)]
struct Errand {
    name: u8,
    claim: Claim,
    how: How,
    patience: Nanos,
    terms: Terms,
    owned: bool,
    gives_up: Option<Nanos>,
    hold: Nanos,
}

/// One task of a process.
pub(crate) struct Worker {
    process: Arc<Process>,
    shared: Arc<Shared>,
    rng: Rng,
    owner: Owner,
}
/// Thinks and works until the world ends.
pub(crate) async fn work(process: Arc<Process>, shared: Arc<Shared>, seed: u64) {
    let owner = process.client.owner();
    let mut worker = Worker { process, shared, rng: Rng::with_seed(seed), owner };
    loop {
        let think = worker.some(worker.shared.plan.think);
        sleep(think).await;
        if worker.shared.is_closing() {
            return;
        }
        worker.errand().await;
    }
}
/// Watches who leads until the world ends.
pub(crate) async fn observe(process: Arc<Process>, shared: Arc<Shared>, name: u8) {
    let observer = shared.history.number();
    shared.log(process.id, What::Observes { observer, name });
    let mut watch = process.client.election(&shared.plan.places[usize::from(name)].name).observe();
    while !shared.is_closing() {
        match watch.changed().await {
            Ok(leader) => {
                let term = leader.map_or(0, |leader| leader.term.get());
                shared.log(process.id, What::Saw { observer, name, term });
            }
            Err(_) => sleep(100 * MS).await,
        }
    }
}

impl Worker {
    fn log(&self, what: What) {
        self.shared.log(self.process.id, what);
    }
    fn drift(&self) -> Drift {
        self.process.node.drift
    }
    /// Mostly less than this, sometimes a good deal more.
    fn some(&mut self, usual: Nanos) -> Nanos {
        let part = self.rng.u64(0..1_000);
        let nanos = usual / 50 + usual / 1_000_000 * (2 * part * part);
        if self.rng.u8(0..12) == 0 { nanos * 3 } else { nanos }
    }
    /// The end of the claim, in true time.
    fn valid(&self, held: &Held) -> Nanos {
        self.drift().when(held.valid_until())
    }
    fn size(&self, name: u8) -> u32 {
        self.shared.sizes[usize::from(name)].load(Relaxed)
    }
    fn place(&self, name: u8) -> &str {
        &self.shared.plan.places[usize::from(name)].name
    }
    fn sort(&self, name: u8) -> Sort {
        self.shared.plan.places[usize::from(name)].sort
    }
    fn write(&self, name: u8, token: i64, by: HoldId) -> bool {
        let resource = &self.shared.resources[usize::from(name)];
        resource.lock().unwrap_or_else(PoisonError::into_inner).write(token, by)
    }

    async fn errand(&mut self) {
        let places = u8::try_from(self.shared.plan.places.len()).unwrap_or(1);
        let name = self.rng.u8(0..places);
        if self.rng.u8(0..3) == 0 && !self.process.node.session && self.adopt().await {
            return;
        }
        if self.sort(name) == Sort::Cell {
            return self.cell(name).await;
        }
        let locks: Vec<u8> = (0..places).filter(|name| self.sort(*name) != Sort::Cell).collect();
        if locks.len() > 1 && self.rng.u8(0..6) == 0 {
            return self.several(&locks).await;
        }
        if self.sort(name) == Sort::Semaphore && self.shared.plan.class != Class::Disaster && self.rng.u8(0..25) == 0 {
            return self.wrong_size(name).await;
        }
        let errand = self.plan(name);
        if let Some((grip, part)) = self.ask(&errand).await {
            self.hold(grip, part, &errand).await;
        }
    }
    fn plan(&mut self, name: u8) -> Errand {
        let (sort, size) = (self.sort(name), self.size(name));
        let rng = &mut self.rng;
        let claim = match sort {
            Sort::RwLock if rng.u8(0..5) < 3 => Claim::Read,
            Sort::RwLock => Claim::Write,
            Sort::Semaphore => Claim::Permits { take: rng.u32(1..=size), of: size },
            _ => Claim::Mutex,
        };
        let owned = !matches!(sort, Sort::Semaphore) && rng.u8(0..5) == 0;
        let how = match rng.u8(0..10) {
            _ if owned => How::Again,
            0 => How::Try,
            1 | 2 => How::Timed,
            _ => How::Wait,
        };
        let plan = &self.shared.plan;
        let (usual, session) = (plan.ttl, self.process.node.session);
        let mut terms = Terms { ttl: usual, session, ..Terms::default() };
        if !session && rng.u8(0..4) == 0 {
            terms.ttl = between(rng, usual / 2, usual * 2).max(SEC);
        }
        if !session && rng.u8(0..6) == 0 {
            terms.fixed = true;
        } else if rng.u8(0..8) == 0 {
            terms.max_hold = Some(between(rng, terms.ttl / 2, terms.ttl * 2).max(plan.delay * 20));
        }
        if rng.u8(0..8) == 0 {
            terms.at_least = between(rng, terms.ttl / 10, terms.ttl / 2);
        }
        let gives_up = chance(rng, plan.impatience)
            .then(|| if rng.bool() { between(rng, 0, plan.delay * 3) } else { between(rng, 0, 6 * SEC) });
        let patience = between(rng, 100 * MS, 20 * SEC);
        let hold = self.shared.plan.hold;
        let mut hold = self.some(hold).min(40 * SEC);
        if terms.fixed || terms.max_hold.is_some() {
            hold = hold.max(between(&mut self.rng, 0, terms.ttl * 3 / 2)).min(50 * SEC);
        }
        Errand { name, claim, how, patience, terms, owned, gives_up, hold }
    }
    fn number(&self) -> Op {
        self.shared.history.number()
    }
    fn won(&self, name: u8, written: Written) {
        self.log(What::CellWrote { name, written });
    }
}
