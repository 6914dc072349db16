//! The leases of this client: one per distinct ttl, and one more for each further contender for one mutex.
//!
//! *Invariant:* a mutex's contender is named by its lease, so a lease has one contender for a mutex at most; and it is free for another
//! one only when the key of the one before is known to be gone.
use crate::wire::{
    key::{Keys, Spot},
    record::Record,
};
use fencelock_core::{BootClock, Claim, Clock, HoldId, Moment, Name, Request};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// So long a lease that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(60);

/// How long leases of one kind last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    /// What it is kept alive for: the ttl of its holds.
    pub(crate) ttl: Duration,
    /// What the server is asked for: no less, in whole seconds.
    pub(crate) seconds: i64,
    /// For holds that nobody is to have for a while: it is not ended before its time.
    pub(crate) stays: bool,
}
impl Term {
    /// A hold that nobody is to have for a while even if its client dies comes when the last sign of life may be a third of the ttl
    /// old, and half of it where the server was slow: its lease is longer by that.
    pub(crate) fn of(request: &Request) -> Self {
        let ttl = request.ttl();
        let lasts = if request.at_least().is_zero() { ttl } else { ttl + ttl / 2 };
        let seconds = lasts.as_secs() + u64::from(lasts.subsec_nanos() > 0);
        Self { ttl, seconds: i64::try_from(seconds).unwrap_or(i64::MAX), stays: !request.at_least().is_zero() }
    }
}
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    pub(crate) term: Term,
    /// When its epoch was last changed, as far as we know.
    pub(crate) epoch: i64,
}
#[derive(Debug)]
struct Known {
    lease: Lease,
    /// The mutexes that it contends for.
    names: HashSet<Name>,
    /// By how many attempts and holds it is used.
    users: usize,
    /// The next sign of life.
    due: Moment,
    /// Since when nobody uses it.
    idle: Moment,
}
#[derive(Debug, Default)]
pub(crate) struct Leases {
    all: HashMap<i64, Known>,
    /// That of the store's identity, and its next sign of life: every client gives one now and then, and nobody ends it.
    store: Option<(Lease, Moment)>,
}

impl Leases {
    /// The store's.
    pub(crate) fn remember(&mut self, id: i64, ttl: Duration) {
        let lease = Lease { id, term: Term { ttl, seconds: 0, stays: true }, epoch: 0 };
        self.store = Some((lease, BootClock.now() + ttl / 3));
    }
    /// A new one, asked for at that time, and kept alive from now on.
    pub(crate) fn put(&mut self, lease: Lease, sent_at: Moment) {
        let (due, idle) = (sent_at + lease.term.ttl / 3, BootClock.now());
        self.all.insert(lease.id, Known { lease, names: HashSet::new(), users: 0, due, idle });
    }
    /// One of this term; for a mutex one with nobody who contends for this name by it.
    pub(crate) fn take(&mut self, term: Term, name: &Name, claim: Claim) -> Option<Lease> {
        let alone = claim == Claim::Mutex;
        let free = |known: &&mut Known| known.lease.term == term && !(alone && known.names.contains(name));
        let known = self.all.values_mut().find(free)?;
        if alone {
            known.names.insert(name.clone());
        }
        known.users += 1;
        Some(known.lease)
    }
    pub(crate) fn free(&mut self, id: i64, name: &Name, claim: Claim) {
        if let Some(known) = self.all.get_mut(&id).filter(|_| claim == Claim::Mutex) {
            known.names.remove(name);
        }
        self.leave(id);
    }
    /// The name stays taken.
    pub(crate) fn leave(&mut self, id: i64) {
        if let Some(known) = self.all.get_mut(&id) {
            known.users = known.users.saturating_sub(1);
            known.idle = BootClock.now();
        }
    }
    /// Its next sign of life is due now.
    pub(crate) fn at_once(&mut self, id: i64) {
        if let Some(known) = self.all.get_mut(&id) {
            known.due = BootClock.now();
        }
    }
    /// Its epoch is no older than that.
    pub(crate) fn epoch(&mut self, id: i64, epoch: i64) {
        if let Some(known) = self.all.get_mut(&id) {
            known.lease.epoch = known.lease.epoch.max(epoch);
        }
    }
    pub(crate) fn get(&self, id: i64) -> Option<Lease> {
        self.all.get(&id).map(|known| known.lease)
    }
    /// It is over.
    pub(crate) fn remove(&mut self, id: i64) -> bool {
        self.all.remove(&id).is_some()
    }
    /// All that are to be given back.
    pub(crate) fn drain(&mut self) -> Vec<i64> {
        self.all.drain().filter(|(_, known)| !known.lease.term.stays).map(|(id, _)| id).collect()
    }
    /// When the next sign of life is due.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.all.values().map(|known| known.due).chain(self.store.map(|(_, due)| due)).min()
    }
    /// Those whose sign of life is due, and which will have given it; `all`: every one.
    pub(crate) fn due(&mut self, now: Moment, all: bool) -> Vec<Lease> {
        let due = self.all.values_mut().filter(|known| all || known.due <= now);
        let due = due.map(|known| (known.lease, &mut known.due));
        let store = self.store.as_mut().filter(|(_, due)| *due <= now).map(|(lease, due)| (*lease, due));
        due.chain(store)
            .map(|(lease, due)| {
                *due = now + lease.term.ttl / 3;
                lease
            })
            .collect()
    }
    /// Those that nobody has used for a while. They are not here any more.
    pub(crate) fn idle(&mut self, now: Moment) -> Vec<i64> {
        let idle = |known: &Known| known.users == 0 && known.idle + IDLE.max(known.lease.term.ttl) <= now;
        let gone: Vec<_> = self.all.values().filter(|known| idle(known)).map(|known| known.lease.id).collect();
        gone.iter().for_each(|id| drop(self.all.remove(id)));
        gone
    }
}

/// One attempt, or hold, of ours: where it is written.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) hold: HoldId,
    pub(crate) name: Name,
    pub(crate) claim: Claim,
    pub(crate) spot: Arc<Spot>,
    pub(crate) lease: Lease,
    /// When its key was made; 0: nobody knows whether it was.
    pub(crate) created: i64,
    /// What it was granted; 0: nothing yet.
    pub(crate) token: i64,
    /// For how long after its grant it may be there, whoever forgets it (SAFETY G5).
    pub(crate) most: Option<Duration>,
    /// What its key says who it is, before its turn has come.
    pub(crate) who: Record,
    /// The value of its key: of an election the candidate, as others have it.
    pub(crate) note: Arc<str>,
    /// A claim of it was not answered: it may arrive still.
    pub(crate) haunted: bool,
    /// A claim of it may be on its way.
    pub(crate) asked: bool,
    /// It is being given back: that its key goes is no news.
    pub(crate) leaving: bool,
}
impl Place {
    /// Those of its keys that it needs: a writer who has become a reader has given one back.
    pub(crate) fn keys(&self) -> &[String] {
        if self.claim == Claim::Read { &self.spot.keys[..1] } else { &self.spot.keys }
    }
    pub(crate) fn new(keys: &Keys, name: &Name, who: Record, note: &Arc<str>, lease: Lease) -> Self {
        let Record { hold, claim, .. } = who;
        Self {
            hold,
            name: name.clone(),
            claim,
            spot: Arc::new(keys.spot(name, claim, lease.id, hold)),
            lease,
            created: 0,
            token: 0,
            most: None,
            who,
            note: note.clone(),
            haunted: false,
            asked: false,
            leaving: false,
        }
    }
}
