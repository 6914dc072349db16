//! What callers and the engine's own background share: which leases there are, what is written by them, and how it is asked for.
use crate::{
    error::Fault,
    leases::{Lease, Leases, Place},
    link::{Conn, Link},
    wire::{
        key::Keys,
        pb::{KeyValue, LeaseId, LeaseLeft, TxnDone},
        record::{Record, ago, wall_micros},
        txn::{
            choose, created, delete, every_under, exists, first_under, get, has_value, last_before, last_under,
            modified, nested, none_before, none_under, put,
        },
    },
};
use fencelock_core::{
    BootClock, Busy, Claim, Clock, Event, Grant, HoldId, Holder, Kind, Lease as Validity, Moment, Name, Reports,
    Request, SessionId, Status, Token, Waiter,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::sleep};

/// A hold that is still there after so long is watched, so that short ones cost nothing (SAFETY G6).
const SETTLED: Duration = Duration::from_secs(1);

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
}
/// What became of a claim.
#[derive(Clone, Debug)]
pub(crate) enum Entered {
    /// It holds.
    Granted { token: i64, created: i64 },
    /// Its key is there, behind others.
    Queued(Front),
    /// It is taken, and nothing was written.
    Busy(Busy),
    /// The lease was over: nothing is left of it.
    NoLease,
    /// An undo of another attempt of this lease came between: once more, and it says what the epoch is.
    Epoch(i64),
    /// Another attempt's key lies where this one's would.
    Occupied,
}
/// What a waiter knows of those in front.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    pub(crate) created: i64,
    /// The last one before us; its going is what we wait for. `None`: nobody, as it seems.
    pub(crate) before: Option<Vec<u8>>,
    /// As of this revision.
    pub(crate) revision: i64,
    pub(crate) busy: Busy,
}
/// What became of a waiter's claim to be the first.
#[derive(Clone, Debug)]
pub(crate) enum Confirmed {
    Granted {
        token: i64,
    },
    Waits(Front),
    /// Its key is gone, or its lease.
    Gone,
}

/// What is known of a hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(crate) there: bool,
    /// Its lease does.
    pub(crate) lives: bool,
    pub(crate) revision: i64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(keys: Keys, link: Arc<Link>) -> Self {
        let (leases, trouble, places, reports, new) = Default::default();
        let (fresh, settles) = (Notify::new(), Notify::new());
        Self { keys, link, leases, trouble, places, reports, new, fresh, settles }
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
        if self.leases().remove(lease) {
            lock(&self.places).retain(|_, place| place.lease.id != lease);
            self.report(Event::SessionEnded { session: session(lease) });
        }
    }

    /// Where this attempt is, or will be, written. *Invariant:* before its first command is sent, so a withdrawal finds it.
    pub(crate) fn place(&self, request: &Request, lease: Lease) -> Place {
        let record = Record::new(request.hold(), request.ttl(), request.note());
        let values = [record.write(false), record.write(true)];
        let most = request.max_hold().map(|most| most + request.ttl());
        let place = Place {
            hold: request.hold(),
            name: request.name().clone(),
            lease,
            created: 0,
            token: 0,
            most,
            values,
            haunted: false,
            leaving: false,
        };
        lock(&self.places).insert(place.hold, place.clone());
        place
    }
    pub(crate) fn found(&self, hold: HoldId) -> Option<Place> {
        lock(&self.places).get(&hold).cloned()
    }
    /// Where this hold is written, if it is ours and has this token.
    pub(crate) fn held(&self, grant: &Grant) -> Option<Place> {
        self.found(grant.hold).filter(|place| place.token == grant.token.get())
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
        lock(&self.places).remove(&place.hold);
    }
    /// Its key is gone. What may still come of it is taken back first.
    pub(crate) fn bury(self: &Arc<Self>, place: &Place) {
        if !self.is_haunted(place) {
            return self.forget(place);
        }
        let (shared, place) = (self.clone(), place.clone());
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
    fn made(&self, hold: HoldId, created: i64) {
        if let Some(place) = lock(&self.places).get_mut(&hold) {
            place.created = created;
        }
    }
    /// Its key is known to be gone.
    pub(crate) fn forget(&self, place: &Place) {
        if lock(&self.places).remove(&place.hold).is_some() {
            self.leases().free(place.lease.id, &place.name);
        }
    }
    /// When the next hold is old enough to be watched.
    pub(crate) fn next_settled(&self) -> Option<Moment> {
        lock(&self.new).front().map(|(at, _)| *at)
    }
    /// Those that are held still.
    pub(crate) fn settled(&self, now: Moment) -> Vec<Place> {
        let mut new = lock(&self.new);
        let due = new.iter().take_while(|(at, _)| *at <= now).count();
        new.drain(..due).filter_map(|(_, hold)| self.found(hold)).collect()
    }

    /// One call: the claim of somebody new, or of one whose answer was lost.
    ///
    /// *Invariant (SAFETY A2):* it writes only while the lease's epoch is what it was when the attempt began. Whoever takes an attempt
    /// back changes the epoch first, so a claim that arrives later writes nothing.
    pub(crate) async fn enter(&self, conn: &Conn, request: &Request, place: &Place) -> Result<Entered, Fault> {
        let Place { name, lease, values: [first, waits], .. } = place;
        let (prefix, own, epoch) = (self.keys.lock(name), self.keys.own(name, lease.id), self.keys.epoch(lease.id));
        let grant = self.keys.grant(name, lease.id);
        // One that an earlier hold of this lease has left, its key having been taken away, would be taken for ours.
        let write = |value: &Vec<u8>| [put(&own, value.clone(), lease.id), delete(&grant)];
        let look = [last_under(&prefix, 2), first_under(&prefix)];
        let behind = match request.wait() {
            true => write(waits).into_iter().chain(look).collect(),
            false => vec![first_under(&prefix)],
        };
        let claim = choose(
            vec![modified(&epoch, lease.epoch), created(&own, 0)],
            vec![nested(choose(vec![none_under(&prefix)], write(first).to_vec(), behind))],
            vec![get(&epoch), get(&own), get(&grant), last_under(&prefix, 2), first_under(&prefix)],
        );
        let answer = self.link.txn(conn, claim).await?;
        let entered = self.entered(request, place, &answer).ok_or(Fault::Answer)?;
        match &entered {
            Entered::Granted { created, .. } | Entered::Queued(Front { created, .. }) => {
                self.made(place.hold, *created)
            }
            Entered::Epoch(epoch) => self.leases().epoch(lease.id, *epoch),
            Entered::Busy(_) | Entered::NoLease | Entered::Occupied => {}
        }
        Ok(entered)
    }
    fn entered(&self, request: &Request, place: &Place, answer: &TxnDone) -> Option<Entered> {
        let revision = answer.revision();
        if answer.succeeded {
            let inner = answer.inner(0)?;
            if inner.succeeded {
                return Some(Entered::Granted { token: revision, created: revision });
            }
            if !request.wait() {
                let ranged = inner.ranged(0)?;
                return Some(Entered::Busy(self.busy(ranged.keys.first(), ranged.count - 1)));
            }
            let (last, first) = (inner.ranged(2)?, inner.ranged(3)?);
            let before = last.keys.get(1).map(|key| key.key.clone());
            let busy = self.busy(first.keys.first(), last.count - 2);
            return Some(Entered::Queued(Front { created: revision, before, revision, busy }));
        }
        let (epoch, own, grant) = (answer.one(0)?, answer.one(1)?, answer.one(2)?);
        let Some(epoch) = epoch else { return Some(Entered::NoLease) };
        let Some(own) = own else { return Some(Entered::Epoch(epoch.modified)) };
        if !place.values.contains(&own.value) {
            return Some(Entered::Occupied);
        }
        // An answer was lost.
        if own.value == place.values[0] {
            return Some(Entered::Granted { token: own.created, created: own.created });
        }
        if let Some(grant) = grant.filter(|grant| is_by(grant, place.hold)) {
            return Some(Entered::Granted { token: grant.created, created: own.created });
        }
        let busy = self.busy(answer.one(4)?, answer.ranged(4)?.count - 2);
        Some(Entered::Queued(Front { created: own.created, before: None, revision, busy }))
    }
    /// One call: whoever waited, and has nobody in front any more, writes so; the revision of that is its token.
    ///
    /// *Invariant (SAFETY T3):* it is written while the one in front is gone, so its revision is greater than every token before.
    pub(crate) async fn confirm(&self, conn: &Conn, place: &Place, made: i64) -> Result<Confirmed, Fault> {
        let Place { name, lease, .. } = place;
        let (prefix, own, grant) =
            (self.keys.lock(name), self.keys.own(name, lease.id), self.keys.grant(name, lease.id));
        let claim = choose(
            vec![created(&own, made), none_before(&prefix, made), created(&grant, 0)],
            vec![put(&grant, grant_value(place.hold), lease.id)],
            vec![get(&own), get(&grant), last_before(&prefix, made), first_under(&prefix)],
        );
        let answer = match self.link.txn(conn, claim).await {
            Err(fault) if fault.is_no_lease() => return Ok(Confirmed::Gone),
            answer => answer?,
        };
        if answer.succeeded {
            return Ok(Confirmed::Granted { token: answer.revision() });
        }
        let confirmed = || {
            let (own, granted) = (answer.one(0)?, answer.one(1)?);
            if own.is_none_or(|own| own.created != made) {
                return Some(Confirmed::Gone);
            }
            // An answer was lost.
            if let Some(granted) = granted.filter(|granted| is_by(granted, place.hold)) {
                return Some(Confirmed::Granted { token: granted.created });
            }
            let (before, first) = (answer.ranged(2)?, answer.one(3)?);
            let busy = self.busy(first, before.count - 1);
            let before = before.keys.first().map(|key| key.key.clone());
            Some(Confirmed::Waits(Front { created: made, before, revision: answer.revision(), busy }))
        };
        confirmed().ok_or(Fault::Answer)
    }
    /// One call: ends this hold, and no other. True: it was there.
    pub(crate) async fn leave(&self, conn: &Conn, place: &Place) -> Result<Result<(), Option<Holder>>, Fault> {
        let prefix = self.keys.lock(&place.name);
        let own = self.keys.own(&place.name, place.lease.id);
        let grant = self.keys.grant(&place.name, place.lease.id);
        let (mut gone, mut look) = (vec![delete(&own), delete(&grant)], vec![first_under(&prefix)]);
        // A claim of it that arrives late would write it again (SAFETY A2).
        if self.is_haunted(place) {
            let epoch = put(&self.keys.epoch(place.lease.id), place.hold.to_string().into_bytes(), place.lease.id);
            gone.push(epoch.clone());
            look.push(epoch);
        }
        let end = choose(vec![created(&own, place.created)], gone, look);
        let answer = self.link.txn(conn, end).await?;
        if answer.succeeded {
            return Ok(Ok(()));
        }
        let first = answer.one(0).ok_or(Fault::Answer)?;
        Ok(Err(first.map(|key| self.holder(key, None))))
    }
    /// One call: afterwards neither a key of this attempt is there nor can one come, whatever is still on its way.
    pub(crate) async fn undo(&self, conn: &Conn, place: &Place) -> Result<(), Fault> {
        let Place { name, lease, values: [first, waits], hold, .. } = place;
        let (own, grant, epoch) =
            (self.keys.own(name, lease.id), self.keys.grant(name, lease.id), self.keys.epoch(lease.id));
        let gone = || vec![delete(&own), delete(&grant)];
        let end = choose(
            vec![exists(&epoch)],
            vec![
                put(&epoch, hold.to_string().into_bytes(), lease.id),
                nested(choose(
                    vec![has_value(&own, first.clone())],
                    gone(),
                    vec![nested(choose(vec![has_value(&own, waits.clone())], gone(), Vec::new()))],
                )),
            ],
            Vec::new(),
        );
        let answer = match self.link.txn(conn, end).await {
            // It ended while the call was on its way.
            Err(fault) if fault.is_no_lease() => return Ok(()),
            answer => answer?,
        };
        if answer.succeeded {
            self.leases().epoch(lease.id, answer.revision());
        }
        Ok(())
    }
    /// Ends whoever has this token. Somebody of another program shows the revision at which he came.
    pub(crate) async fn force(
        &self,
        conn: &Conn,
        name: &Name,
        token: Token,
    ) -> Result<Result<(), Option<Holder>>, Fault> {
        let prefix = self.keys.lock(name);
        let read = choose(Vec::new(), vec![first_under(&prefix), every_under(&self.keys.grants(name))], Vec::new());
        let answer = self.link.txn(conn, read).await?;
        let (first, grants) = (answer.one(0).ok_or(Fault::Answer)?, answer.ranged(1).ok_or(Fault::Answer)?);
        let Some(first) = first else { return Ok(Err(None)) };
        let holder = self.holder(first, grants.keys.iter().find(|grant| is_of(grant, first)));
        if holder.token != token {
            return Ok(Err(Some(holder)));
        }
        let own = String::from_utf8_lossy(&first.key).into_owned();
        let grant = self.keys.grant(name, first.lease);
        let end = choose(vec![created(&own, first.created)], vec![delete(&own), delete(&grant)], Vec::new());
        let answer = self.link.txn(conn, end).await?;
        Ok(if answer.succeeded { Ok(()) } else { Err(None) })
    }
    /// Whether this hold is still written, and by a lease that lives; and as of which revision.
    pub(crate) async fn look(&self, conn: &Conn, place: &Place) -> Result<Looked, Fault> {
        let look = vec![get(&self.keys.own(&place.name, place.lease.id)), get(&self.keys.epoch(place.lease.id))];
        let answer = self.link.txn(conn, choose(Vec::new(), look, Vec::new())).await?;
        let (own, epoch) = (answer.one(0).ok_or(Fault::Answer)?, answer.one(1).ok_or(Fault::Answer)?);
        let there = own.is_some_and(|key| key.created == place.created);
        Ok(Looked { there, lives: epoch.is_some(), revision: answer.revision() })
    }

    pub(crate) fn granted(&self, request: &Request, place: &Place, token: i64) -> Option<Grant> {
        if let Some(place) = lock(&self.places).get_mut(&place.hold) {
            place.token = token;
        }
        let mut new = lock(&self.new);
        new.push_back((BootClock.now() + SETTLED, place.hold));
        if new.len() == 1 {
            self.settles.notify_one();
        }
        drop(new);
        Some(Grant {
            name: request.name().clone(),
            claim: request.claim(),
            hold: request.hold(),
            token: Token::new(token)?,
            ttl: place.lease.term.ttl,
            lease: Validity::Session(session(place.lease.id)),
            server_micros: 0,
            place: Some(self.keys.own(&place.name, place.lease.id).into()),
        })
    }
    fn busy(&self, first: Option<&KeyValue>, ahead: i64) -> Busy {
        Busy::new(first.map(|key| self.holder(key, None)), u32::try_from(ahead.max(0)).ok())
    }
    /// Whoever has the first key. One of another program says nothing of himself.
    fn holder(&self, key: &KeyValue, grant: Option<&KeyValue>) -> Holder {
        let token = Token::new(grant.map_or(key.created, |grant| grant.created));
        let token = token.or(Token::new(1)).unwrap_or_else(|| unreachable!("one is positive"));
        let claim = Claim::Mutex;
        match Record::read(&key.value) {
            Some(Record { hold, since, ttl, host, pid, note, .. }) => {
                let since = grant.and_then(grant_of).map_or(since, |(_, since)| since);
                let held_for = ago(since);
                Holder { hold, claim, token, host, pid, note, held_for, left: ttl }
            }
            None => {
                let mut hold = [0; 16];
                hold[8..].copy_from_slice(&key.lease.to_be_bytes());
                let (hold, held_for, left) = (HoldId::from_bytes(hold), Duration::ZERO, Duration::ZERO);
                let note = "another program".into();
                Holder { hold, claim, token, host: "?".into(), pid: 0, note, held_for, left }
            }
        }
    }
    /// One lock, as it is now. It makes no record.
    pub(crate) async fn status(&self, conn: &Conn, name: &Name) -> Result<Status, Fault> {
        let (keys, grants) = (every_under(&self.keys.lock(name)), every_under(&self.keys.grants(name)));
        let answer = self.link.txn(conn, choose(Vec::new(), vec![keys, grants], Vec::new())).await?;
        let (keys, grants) = (answer.ranged(0).ok_or(Fault::Answer)?, answer.ranged(1).ok_or(Fault::Answer)?);
        let mut status = self.told(name, &keys.keys, &grants.keys);
        // How long it has left only the server knows.
        if let (Some(holder), Some(first)) = (status.holders.first_mut(), keys.keys.first()) {
            holder.left = self.left(conn, first.lease).await?;
        }
        Ok(status)
    }
    /// From the keys of one name, in the order in which they were made.
    pub(crate) fn told(&self, name: &Name, keys: &[KeyValue], grants: &[KeyValue]) -> Status {
        let mut status = Status::free(name.clone());
        let Some((first, rest)) = keys.split_first() else { return status };
        status.kind = Some(Kind::Mutex);
        let grant = grants.iter().find(|grant| is_of(grant, first));
        let hands_over = grant.is_none() && Record::read(&first.value).is_some_and(|record| record.waited);
        let waiter = |key: &KeyValue| {
            let Holder { hold, claim, host, pid, note, held_for, .. } = self.holder(key, None);
            Waiter { hold, claim, host, pid, note, waiting_for: held_for }
        };
        match hands_over {
            true => status.waiters.push(waiter(first)),
            false => {
                let holder = self.holder(first, grant);
                status.last_token = Some(holder.token);
                status.holders.push(holder);
            }
        }
        status.waiters.extend(rest.iter().map(waiter));
        status
    }
    async fn left(&self, conn: &Conn, lease: i64) -> Result<Duration, Fault> {
        let ask = LeaseId { id: lease };
        let answer: LeaseLeft = self.link.call(conn, "/etcdserverpb.Lease/LeaseTimeToLive", ask).await?;
        Ok(Duration::from_secs(u64::try_from(answer.ttl).unwrap_or(0)))
    }
}
/// The grant is written by the lease of its contender.
fn is_of(grant: &KeyValue, key: &KeyValue) -> bool {
    grant.lease == key.lease
}
fn grant_value(hold: HoldId) -> Vec<u8> {
    format!("{hold} {}", wall_micros()).into_bytes()
}
fn is_by(grant: &KeyValue, hold: HoldId) -> bool {
    grant_of(grant).is_some_and(|(known, _)| known == hold)
}
/// Of whom a grant is, and since when by its writer's wall clock.
fn grant_of(grant: &KeyValue) -> Option<(HoldId, u64)> {
    let (hold, since) = std::str::from_utf8(&grant.value).ok()?.split_once(' ')?;
    Some((hold.parse().ok()?, since.parse().ok()?))
}
pub(crate) fn session(lease: i64) -> SessionId {
    SessionId(lease.cast_unsigned())
}
