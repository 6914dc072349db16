//! What callers and the engine's own background share: which leases there are, and what is written by them.
use crate::{
    error::Fault,
    leases::{Lease, Leases, Place},
    link::Link,
    shelf::Shelf,
    wire::{key::Keys, record::Record},
};
use fencelock_core::{Claim, Event, Grant, HoldId, Moment, Name, Reports, Request, SessionId};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::sleep};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) link: Arc<Link>,
    leases: Mutex<Leases>,
    /// Why there is no lease where one is wanted: for those who give up waiting for it.
    trouble: Mutex<Option<Fault>>,
    places: Mutex<HashMap<HoldId, Place>>,
    reports: Mutex<Option<Reports>>,
    /// Not watched yet, in the order of their grants.
    new: Mutex<VecDeque<(Moment, HoldId)>>,
    /// A lease's sign of life is due earlier than was thought.
    pub(crate) fresh: Notify,
    /// There is a hold to be watched.
    pub(crate) settles: Notify,
    /// The lease of what is kept for a while.
    pub(crate) shelf: Mutex<Option<Shelf>>,
}
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(keys: Keys, link: Arc<Link>) -> Self {
        let (leases, trouble, places, reports, new, shelf) = Default::default();
        let (fresh, settles) = (Notify::new(), Notify::new());
        Self { keys, link, leases, trouble, places, reports, new, fresh, settles, shelf }
    }
    pub(crate) fn leases(&self) -> MutexGuard<'_, Leases> {
        lock(&self.leases)
    }
    pub(crate) fn trouble(&self) -> Option<Fault> {
        lock(&self.trouble).clone()
    }
    pub(crate) fn troubled(&self, by: Option<Fault>) {
        *lock(&self.trouble) = by;
    }
    pub(crate) fn attend(&self, reports: &Reports) {
        *lock(&self.reports) = Some(reports.clone());
    }
    pub(crate) fn report(&self, event: Event) {
        if let Some(reports) = &*lock(&self.reports) {
            reports.send(event);
        }
    }
    /// The server says that this lease is over, and with it everything that was written by it.
    pub(crate) fn over(&self, lease: i64) {
        // An attempt may just have chosen it, when it was not over.
        lock(&self.places).retain(|_, place| place.lease.id != lease);
        if self.leases().remove(lease) {
            self.report(Event::SessionEnded { session: session(lease) });
        }
    }

    /// Where this attempt is, or will be, written. *Invariant:* before its first command is sent, so a withdrawal finds it.
    pub(crate) fn place(&self, request: &Request, lease: Lease) -> Place {
        let most = request.max_hold().map(|most| most + request.ttl());
        let who = Record::new(request.hold(), request.claim(), request.ttl());
        let place = Place { most, ..Place::new(&self.keys, request.name(), who, request.note(), lease) };
        lock(&self.places).insert(place.hold, place.clone());
        place
    }
    /// Those that are held or waited for.
    pub(crate) fn semaphores(&self) -> HashSet<Name> {
        let places = lock(&self.places);
        places.values().filter(|place| place.claim.capacity().is_some()).map(|place| place.name.clone()).collect()
    }
    pub(crate) fn found(&self, hold: HoldId) -> Option<Place> {
        lock(&self.places).get(&hold).cloned()
    }
    /// Where this hold is written, if it is ours and has this token.
    pub(crate) fn held(&self, grant: &Grant) -> Option<Place> {
        self.found(grant.hold).filter(|place| place.token == grant.token.get())
    }
    /// It holds; watched from `settled` on.
    pub(crate) fn holds(&self, hold: HoldId, token: i64, settled: Moment) {
        if let Some(place) = lock(&self.places).get_mut(&hold) {
            place.token = token;
        }
        let mut new = lock(&self.new);
        new.push_back((settled, hold));
        if new.len() == 1 {
            self.settles.notify_one();
        }
    }
    /// It has become a reader.
    pub(crate) fn reads(&self, hold: HoldId) {
        if let Some(place) = lock(&self.places).get_mut(&hold) {
            place.claim = Claim::Read;
        }
    }
    /// It is given back. *Invariant:* before the call that does it, or its watch would tell a loss.
    pub(crate) fn leaves(&self, place: &Place) {
        if let Some(place) = lock(&self.places).get_mut(&place.hold) {
            place.leaving = true;
        }
    }
    /// A claim of it was not answered, and may arrive still.
    pub(crate) fn haunt(&self, place: &Place) {
        if let Some(place) = lock(&self.places).get_mut(&place.hold) {
            place.haunted = true;
        }
    }
    /// Its claim is sent, or answered.
    pub(crate) fn asks(&self, place: &Place, asked: bool) {
        if let Some(place) = lock(&self.places).get_mut(&place.hold) {
            place.asked = asked;
        }
    }
    /// A claim of it may still arrive.
    pub(crate) fn may_come(&self, place: &Place) -> bool {
        self.found(place.hold).is_some_and(|place| place.haunted || place.asked)
    }
    pub(crate) fn is_haunted(&self, place: &Place) -> bool {
        self.found(place.hold).is_some_and(|place| place.haunted)
    }
    /// The attempt goes on with this epoch: its earlier claims have written nothing, and cannot any more.
    pub(crate) fn epoch(&self, place: &Place, epoch: i64) {
        if let Some(place) = lock(&self.places).get_mut(&place.hold) {
            place.lease.epoch = epoch;
        }
    }
    /// Another attempt's key lies there. This one begins anew by another lease; by this one nobody contends for the name.
    pub(crate) fn elsewhere(&self, place: &Place) {
        if lock(&self.places).remove(&place.hold).is_some() {
            self.leases().leave(place.lease.id);
        }
    }
    /// Its key is gone, or nobody can say whose it is. What is left of it, or may still come, is taken back first.
    pub(crate) fn bury(self: &Arc<Self>, place: &Place) {
        let Some(place) = self.found(place.hold) else { return };
        let shared = self.clone();
        tokio::spawn(async move {
            while shared.leases().get(place.lease.id).is_some() {
                if let Ok(conn) = shared.link.here().await
                    && shared.undo(&conn, &place).await.is_ok()
                {
                    break;
                }
                sleep(Duration::from_secs(1)).await;
            }
            shared.forget(&place);
        });
    }
    pub(crate) fn made(&self, hold: HoldId, created: i64) {
        if let Some(place) = lock(&self.places).get_mut(&hold) {
            place.created = created;
        }
    }
    /// Its key is known to be gone.
    pub(crate) fn forget(&self, place: &Place) {
        if lock(&self.places).remove(&place.hold).is_some() {
            self.leases().free(place.lease.id, &place.name, place.claim);
        }
    }
    /// When the next holds are old enough to be watched: those of a moment together, since most are given back before.
    pub(crate) fn next_settled(&self) -> Option<Moment> {
        const TOGETHER: Duration = Duration::from_millis(50);
        lock(&self.new).front().map(|(at, _)| *at + TOGETHER)
    }
    /// Those that are held still.
    pub(crate) fn settled(&self, now: Moment) -> Vec<Place> {
        let mut new = lock(&self.new);
        let due = new.iter().take_while(|(at, _)| *at <= now).count();
        new.drain(..due).filter_map(|(_, hold)| self.found(hold)).collect()
    }
}

pub(crate) fn session(lease: i64) -> SessionId {
    SessionId(lease.cast_unsigned())
}
