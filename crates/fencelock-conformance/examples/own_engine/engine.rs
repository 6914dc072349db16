//! The engine that is proved: mutexes with leases over a map, first come, first served.
use async_trait::async_trait;
use fencelock_core::{
    BootClock, Busy, Capabilities, Claim, Clock, Engine, EngineId, EngineInfo, Fencing, Grant, HoldId, Holder,
    Identity, Kind, Lease, Listing, LossReason, Moment, Name, Ordering, Outcome, Page, Released, Renewed, Request,
    Result, Status, TakenAway, Token, Waiter, Waiting,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::sync::Notify;

/// The store: what all clients share.
#[derive(Debug, Default)]
pub(crate) struct Map(Mutex<BTreeMap<Name, Record>>);
#[derive(Debug, Default)]
struct Record {
    held: Option<Entry>,
    queue: VecDeque<(Entry, Arc<Notify>)>,
    fence: i64,
}
#[derive(Clone, Debug)]
struct Entry {
    hold: HoldId,
    token: i64,
    note: Arc<str>,
    who: Identity,
    since: Moment,
    /// Of a holder the end of its lease; of a waiter the time until which it counts without a sign of life.
    ends: Moment,
}
/// A waiter gives a sign of life this often, and counts for three times as long without one.
const HEARTBEAT: Duration = Duration::from_secs(1);

impl Map {
    /// The names that somebody holds or waits for.
    pub(crate) fn in_use(&self) -> Vec<String> {
        let mut records = self.records();
        let live = records.iter_mut().filter_map(|(name, record)| (!record.is_idle()).then(|| name.to_string()));
        live.collect()
    }
    fn records(&self) -> MutexGuard<'_, BTreeMap<Name, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// One atomic step on one record.
    fn act<T>(&self, name: &Name, op: impl FnOnce(&mut Record, Moment) -> T) -> T {
        let mut records = self.records();
        let record = records.entry(name.clone()).or_default();
        record.expire();
        let out = op(record, BootClock.now());
        record.wake();
        out
    }
}
impl Record {
    fn expire(&mut self) {
        let now = BootClock.now();
        self.held.take_if(|held| held.ends <= now);
        self.queue.retain(|(waiter, _)| waiter.ends > now);
    }
    fn is_idle(&mut self) -> bool {
        self.expire();
        self.held.is_none() && self.queue.is_empty()
    }
    /// A push is a hint (SAFETY G2): the first one looks by itself, and others when he is late.
    fn wake(&self) {
        if let Some((_, first)) = self.queue.front().filter(|_| self.held.is_none()) {
            first.notify_one();
        }
    }
    /// T1: `max(fence + 1, µs, floor + 1)`.
    fn mint(&mut self, floor: Option<Token>) -> i64 {
        let micros = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(0));
        self.fence = (self.fence + 1).max(micros).max(floor.map_or(0, Token::get) + 1);
        self.fence
    }
    fn busy(&self, ahead: usize) -> Busy {
        Busy::new(self.held.as_ref().and_then(holder), u32::try_from(ahead).ok())
    }
    fn leave(&mut self, hold: HoldId, token: Option<i64>) -> Released {
        self.queue.retain(|(waiter, _)| waiter.hold != hold);
        match &self.held {
            Some(held) if held.hold == hold && token.is_none_or(|token| token == held.token) => {
                self.held = None;
                Released::Released
            }
            other => Released::NotHeld { holder: other.as_ref().and_then(holder) },
        }
    }
}
fn holder(held: &Entry) -> Option<Holder> {
    let now = BootClock.now();
    Some(Holder {
        hold: held.hold,
        claim: Claim::Mutex,
        token: Token::new(held.token)?,
        host: held.who.host.clone(),
        pid: held.who.pid,
        note: held.note.clone(),
        held_for: held.since.until(now),
        left: now.until(held.ends),
    })
}

/// One client's way to the store.
#[derive(Debug)]
pub(crate) struct MapEngine {
    info: EngineInfo,
    map: Arc<Map>,
}
impl MapEngine {
    pub(crate) fn new(id: EngineId, map: Arc<Map>, default_ttl: Duration) -> Self {
        let capabilities = Capabilities {
            read_write: false,
            downgrade: false,
            permits: false,
            cells: false,
            fixed_leases: true,
            tickets: false,
            fencing: Fencing::BestEffort,
            ordering: Ordering::Fifo,
            waiting: Waiting::Push,
            taken_away: TakenAway::AtRenewal,
            ttl_per_hold: true,
            renew_batch: 64,
            min_ttl: Duration::from_millis(50),
            max_ttl: Duration::from_secs(86_400),
            drift: 0.0,
        };
        let (namespace, scheme, endpoint, layout) = ("".into(), "map", "map:".into(), "native");
        let info = EngineInfo { id, namespace, scheme, endpoint, url: None, layout, capabilities, default_ttl };
        Self { info, map }
    }
    fn grant(&self, request: &Request, token: i64, sent_at: Moment) -> Option<Outcome> {
        let (name, claim, hold, ttl) = (request.name().clone(), request.claim(), request.hold(), request.ttl());
        let (token, lease) = (Token::new(token)?, Lease::Own { sent_at });
        Some(Outcome::Granted(Grant { name, claim, hold, token, ttl, lease, server_micros: 0, place: None }))
    }
}
enum Step {
    Granted(i64),
    Wait(Busy, Arc<Notify>),
    Busy(Busy),
}
#[async_trait]
impl Engine for MapEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        let hold = request.hold();
        loop {
            // Read before the step, so that the validity counts from no later than the lease (SAFETY G1, G3).
            let sent_at = BootClock.now();
            // Nothing is created after a stop (SAFETY A2, A3); a step takes no time here, so any window will do.
            if request.open(sent_at, Duration::from_millis(500)).is_none() {
                return Ok(Outcome::Busy(Busy::default()));
            }
            let step = self.map.act(request.name(), |record, now| {
                if let Some(held) = record.held.as_mut().filter(|held| held.hold == hold) {
                    held.ends = held.ends.max(now + request.ttl());
                    return Step::Granted(held.token);
                }
                let place = record.queue.iter().position(|(waiter, _)| waiter.hold == hold);
                if record.held.is_none() && place.unwrap_or(record.queue.len()) == 0 {
                    record.queue.retain(|(waiter, _)| waiter.hold != hold);
                    let (token, note) = (record.mint(request.floor()), request.note().clone());
                    let ends = now + request.ttl();
                    record.held = Some(Entry { hold, token, note, who: Identity::here(), since: now, ends });
                    return Step::Granted(token);
                }
                if !request.wait() {
                    return Step::Busy(record.busy(record.queue.len()));
                }
                let busy = record.busy(place.unwrap_or(record.queue.len()));
                if let Some((waiter, wake)) = place.and_then(|place| record.queue.get_mut(place)) {
                    waiter.ends = now + 3 * HEARTBEAT;
                    return Step::Wait(busy, wake.clone());
                }
                let (note, wake) = (request.note().clone(), Arc::new(Notify::new()));
                let ends = now + 3 * HEARTBEAT;
                let entry = Entry { hold, token: 0, note, who: Identity::here(), since: now, ends };
                record.queue.push_back((entry, wake.clone()));
                Step::Wait(busy, wake)
            });
            match step {
                Step::Granted(token) => match self.grant(request, token, sent_at) {
                    Some(granted) => return Ok(granted),
                    None => unreachable!("tokens are microseconds of this century"),
                },
                Step::Busy(busy) => return Ok(Outcome::Busy(busy)),
                Step::Wait(busy, wake) => {
                    let lease = busy.holder.as_ref().map_or(Duration::ZERO, |holder| holder.left);
                    let nap = lease.clamp(Duration::from_millis(1), HEARTBEAT);
                    request.queued(busy.clone());
                    tokio::select! {
                        biased;
                        () = request.stopped() => return Ok(Outcome::Busy(busy)),
                        () = wake.notified() => {}
                        () = tokio::time::sleep(nap) => {}
                    }
                }
            }
        }
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        self.map.act(request.name(), |record, _| record.leave(request.hold(), None));
        Ok(())
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        let sent_at = BootClock.now();
        let renew = |grant: &Grant| {
            self.map.act(&grant.name, |record, now| match &mut record.held {
                Some(held) if (held.hold, held.token) == (grant.hold, grant.token.get()) => {
                    held.ends = held.ends.max(now + grant.ttl);
                    Renewed::Extended { sent_at }
                }
                _ => Renewed::Lost(LossReason::TakenOver),
            })
        };
        Ok(grants.iter().map(renew).collect())
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        Ok(self.map.act(&grant.name, |record, _| record.leave(grant.hold, Some(grant.token.get()))))
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        let mut records = self.map.records();
        Ok(match records.get_mut(name) {
            Some(record) => status(name, record),
            None => Status::free(name.clone()),
        })
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        let mut records = self.map.records();
        let after = |name: &Name| page.after.as_deref().is_none_or(|after| name.as_str() > after);
        let live = records.iter_mut().filter(|(name, _)| name.as_str().starts_with(prefix) && after(name));
        let live = live.filter_map(|(name, record)| (!record.is_idle()).then(|| status(name, record)));
        let items: Vec<_> = live.take(page.limit).collect();
        let next = items.last().filter(|_| items.len() == page.limit).map(|last| last.name.to_string());
        Ok(Listing { items, next })
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        Ok(self.map.act(name, |record, _| match record.held.as_ref().map(|held| held.hold) {
            Some(hold) => record.leave(hold, Some(token.get())),
            None => Released::NotHeld { holder: None },
        }))
    }
}
fn status(name: &Name, record: &mut Record) -> Status {
    let kind = (!record.is_idle()).then_some(Kind::Mutex);
    let now = BootClock.now();
    let waiting = |(waiter, _): &(Entry, _)| Waiter {
        hold: waiter.hold,
        claim: Claim::Mutex,
        host: waiter.who.host.clone(),
        pid: waiter.who.pid,
        note: waiter.note.clone(),
        waiting_for: waiter.since.until(now),
    };
    Status {
        name: name.clone(),
        kind,
        capacity: None,
        holders: record.held.as_ref().and_then(holder).into_iter().collect(),
        waiters: record.queue.iter().map(waiting).collect(),
        last_token: Token::new(record.fence),
    }
}
