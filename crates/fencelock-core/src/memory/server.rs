//! The store: linearizable, with leases by its own clock, sessions, and direct hand-off to the first waiter.
use crate::{
    clock::{Clock, Moment},
    types::{
        Busy, Claim, Event, HoldId, Holder, Identity, Kind, Listing, LossReason, Name, Page, Released, SessionId,
        Status, Token, Waiter,
    },
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, mpsc};

/// How long a waiter that was handed the lock has to confirm (SAFETY G2).
const GRANT_LEASE: Duration = Duration::from_millis(1_750);
/// How long a waiter lives without a sign.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);

/// The store that memory engines share.
#[derive(Debug)]
pub struct MemoryServer {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}
#[derive(Debug, Default)]
pub(super) struct State {
    records: BTreeMap<Name, Record>,
    sessions: HashMap<SessionId, Moment>,
    voices: HashMap<u64, mpsc::UnboundedSender<Event>>,
    last_id: u64,
}
#[derive(Debug, Default)]
struct Record {
    kind: Option<Kind>,
    holders: Vec<Holding>,
    queue: VecDeque<Waiting>,
    fence: i64,
}
#[derive(Debug)]
struct Holding {
    who: Claimant,
    token: Token,
    since: Moment,
    until: Moment,
}
#[derive(Debug)]
struct Waiting {
    who: Claimant,
    since: Moment,
    alive: Moment,
    wake: Arc<Notify>,
}
/// What a client tells of one attempt.
#[derive(Clone, Debug)]
pub(super) struct Claimant {
    pub(super) hold: HoldId,
    pub(super) claim: Claim,
    pub(super) ttl: Duration,
    pub(super) max_hold: Option<Duration>,
    pub(super) floor: Option<Token>,
    pub(super) session: Option<SessionId>,
    pub(super) identity: Identity,
    pub(super) note: Arc<str>,
    pub(super) voice: u64,
}
#[derive(Debug)]
pub(super) enum Entered {
    Granted(Token),
    /// Woken through the `Notify`; the time is when the holder's lease ends.
    Queued(Busy, Arc<Notify>, Moment),
    Busy(Busy),
    OtherKind(Kind),
    /// The command came after the attempt's end and did nothing (SAFETY A2).
    PastEnd,
    /// A refresh found neither a grant nor a place.
    Unknown,
    /// The session that it was to live in is over.
    NoSession,
}

impl MemoryServer {
    /// An empty store whose leases run by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, state: Mutex::default() })
    }
    /// How many hold and how many wait, over all names.
    pub fn census(&self) -> (usize, usize) {
        self.act(|state, now| {
            let State { records, sessions, voices, .. } = state;
            records.values_mut().fold((0, 0), |(held, queued), record| {
                record.settle(now, sessions, voices);
                (held + record.holders.len(), queued + record.queue.len())
            })
        })
    }
    /// Forgets every record, as a server without persistence does when it restarts.
    pub fn lose_data(&self) {
        self.act(|state, _| state.records.clear());
    }
    /// Ends every session, as an operator does: what they held is free at once.
    pub fn end_sessions(&self) {
        self.act(|state, _| state.sessions.clear());
    }
    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }
    pub(super) fn act<T>(&self, op: impl FnOnce(&mut State, Moment) -> T) -> T {
        let mut state = self.lock();
        let now = self.clock.now();
        op(&mut state, now)
    }
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wall clock in µs: what tokens are made of (SAFETY T1).
pub(super) fn wall_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX / 2)
}

impl Holding {
    fn ends(&self, sessions: &HashMap<SessionId, Moment>) -> Moment {
        let lease = match self.who.session {
            None => self.until,
            Some(session) => sessions.get(&session).map_or(Moment::ZERO, |beat| *beat + self.who.ttl),
        };
        // The session's other holds would keep it alive for ever (SAFETY G5).
        lease.min(self.who.max_hold.map_or(Moment::FAR, |d| self.since + d + self.who.ttl))
    }
    fn holder(&self, now: Moment, sessions: &HashMap<SessionId, Moment>) -> Holder {
        let Claimant { hold, claim, ref identity, ref note, .. } = self.who;
        let (held_for, left) = (self.since.until(now), now.until(self.ends(sessions)));
        let Identity { host, pid } = identity.clone();
        Holder { hold, claim, token: self.token, host, pid, note: note.clone(), held_for, left }
    }
}
impl Record {
    fn fits(&self, claim: Claim) -> bool {
        match claim {
            Claim::Mutex => self.holders.is_empty(),
        }
    }
    /// *Invariant (SAFETY T1):* greater than every token before, than the floor, and no less than the clock; a floor that is
    /// above both the fence and tomorrow is somebody's mistake and is ignored.
    fn mint(&mut self, floor: Option<Token>) -> Token {
        let clock = wall_micros();
        let sane = |floor: i64| floor <= self.fence || floor <= clock + 86_400_000_000;
        let floor = floor.map(Token::get).filter(|floor| sane(*floor)).unwrap_or(0);
        self.fence = (self.fence + 1).max(clock).max(floor + 1);
        Token::new(self.fence).unwrap_or_else(|| unreachable!("a fence starts at 0 and rises"))
    }
    fn grant(&mut self, who: Claimant, now: Moment, lease: Duration) -> Token {
        let token = self.mint(who.floor);
        self.holders.push(Holding { who, token, since: now, until: now + lease });
        token
    }
    /// Drops what is over, then hands over to the head of the queue for as long as it fits: first come, first served.
    fn settle(
        &mut self,
        now: Moment,
        sessions: &HashMap<SessionId, Moment>,
        voices: &HashMap<u64, mpsc::UnboundedSender<Event>>,
    ) {
        self.holders.retain(|holding| holding.ends(sessions) > now);
        self.queue.retain(|waiting| {
            let listens = !voices.get(&waiting.who.voice).is_none_or(mpsc::UnboundedSender::is_closed);
            let alive = match waiting.who.session {
                None => waiting.alive > now,
                Some(session) => sessions.contains_key(&session),
            };
            listens && alive
        });
        while let Some(head) = self.queue.front() {
            if !self.fits(head.who.claim) {
                break;
            }
            if let Some(Waiting { who, wake, .. }) = self.queue.pop_front() {
                let lease = who.ttl.min(GRANT_LEASE);
                self.grant(who, now, lease);
                wake.notify_one();
            }
        }
        if self.holders.is_empty() && self.queue.is_empty() {
            self.kind = None;
        }
    }
    fn busy(&self, now: Moment, sessions: &HashMap<SessionId, Moment>, ahead: Option<usize>) -> Busy {
        let holder = self.holders.first().map(|holding| holding.holder(now, sessions));
        Busy { holder, ahead: ahead.and_then(|n| u32::try_from(n).ok()) }
    }
    fn ends(&self, now: Moment, sessions: &HashMap<SessionId, Moment>) -> Moment {
        self.holders.iter().map(|holding| holding.ends(sessions)).min().unwrap_or(now)
    }
    fn status(&self, name: &Name, now: Moment, sessions: &HashMap<SessionId, Moment>) -> Status {
        let waiter = |waiting: &Waiting| {
            let Claimant { hold, claim, ref identity, ref note, .. } = waiting.who;
            let Identity { host, pid } = identity.clone();
            Waiter { hold, claim, host, pid, note: note.clone(), waiting_for: waiting.since.until(now) }
        };
        Status {
            name: name.clone(),
            kind: self.kind,
            holders: self.holders.iter().map(|holding| holding.holder(now, sessions)).collect(),
            waiters: self.queue.iter().map(waiter).collect(),
            last_token: Token::new(self.fence),
        }
    }
}

impl State {
    /// Who listens to events of one engine. Its waiters leave the queue when it is dropped.
    pub(super) fn voice(&mut self, tx: mpsc::UnboundedSender<Event>) -> u64 {
        self.last_id += 1;
        self.voices.insert(self.last_id, tx);
        self.last_id
    }
    fn settled(&mut self, name: &Name, now: Moment) -> (&mut Record, &HashMap<SessionId, Moment>) {
        let Self { records, sessions, voices, .. } = self;
        let record = records.entry(name.clone()).or_default();
        record.settle(now, sessions, voices);
        (record, sessions)
    }
    /// Claims, or queues. It alone creates (SAFETY A2).
    pub(super) fn enter(&mut self, name: &Name, who: Claimant, wait: bool, ends: Moment, now: Moment) -> Entered {
        let (record, sessions) = self.settled(name, now);
        if let Some(known) = record.find(who.hold, now, sessions) {
            return known;
        }
        if now > ends {
            return Entered::PastEnd;
        }
        let over = |session| sessions.get(&session).is_none_or(|beat| *beat + who.ttl <= now);
        if who.session.is_some_and(over) {
            return Entered::NoSession;
        }
        match record.kind {
            Some(kind) if kind != who.claim.kind() => return Entered::OtherKind(kind),
            _ => record.kind = Some(who.claim.kind()),
        }
        if record.queue.is_empty() && record.fits(who.claim) {
            let ttl = who.ttl;
            return Entered::Granted(record.grant(who, now, ttl));
        }
        let busy = record.busy(now, sessions, Some(record.queue.len()));
        if !wait {
            return Entered::Busy(busy);
        }
        let (wake, ends) = (Arc::new(Notify::new()), record.ends(now, sessions));
        record.queue.push_back(Waiting { who, since: now, alive: now + SIGN_OF_LIFE, wake: wake.clone() });
        Entered::Queued(busy, wake, ends)
    }
    /// A queued attempt's sign of life, and the confirm of a hand-over. Never creates (SAFETY A2).
    pub(super) fn refresh(&mut self, name: &Name, hold: HoldId, now: Moment) -> Entered {
        let (record, sessions) = self.settled(name, now);
        record.find(hold, now, sessions).unwrap_or(Entered::Unknown)
    }
    pub(super) fn renew(&mut self, name: &Name, hold: HoldId, token: Token, now: Moment) -> bool {
        let (record, sessions) = self.settled(name, now);
        let held = record.holders.iter_mut().find(|h| h.who.hold == hold && h.token == token);
        held.is_some_and(|holding| {
            holding.until = now + holding.who.ttl;
            holding.ends(sessions) > now
        })
    }
    /// Ends a hold, or with `token: None` a place in the queue, too.
    pub(super) fn leave(&mut self, name: &Name, hold: HoldId, token: Option<Token>, now: Moment) -> Released {
        let Self { records, sessions, voices, .. } = self;
        let Some(record) = records.get_mut(name) else { return Released::NotHeld { holder: None } };
        record.settle(now, sessions, voices);
        let before = record.holders.len();
        record.holders.retain(|h| h.who.hold != hold || token.is_some_and(|token| token != h.token));
        let had = record.holders.len() < before;
        if token.is_none() {
            record.queue.retain(|waiting| waiting.who.hold != hold);
        }
        record.settle(now, sessions, voices);
        if had { Released::Released } else { Released::NotHeld { holder: record.busy(now, sessions, None).holder } }
    }
    pub(super) fn force(&mut self, name: &Name, token: Token, now: Moment) -> Released {
        let Self { records, sessions, voices, .. } = self;
        let Some(record) = records.get_mut(name) else { return Released::NotHeld { holder: None } };
        record.settle(now, sessions, voices);
        let Some(at) = record.holders.iter().position(|holding| holding.token == token) else {
            return Released::NotHeld { holder: record.busy(now, sessions, None).holder };
        };
        let gone = record.holders.remove(at).who;
        if let Some(voice) = voices.get(&gone.voice) {
            let _ = voice.send(Event::Lost { hold: gone.hold, reason: LossReason::TakenOver });
        }
        record.settle(now, sessions, voices);
        Released::Released
    }
    pub(super) fn inspect(&mut self, name: &Name, now: Moment) -> Status {
        let Self { records, sessions, voices, .. } = self;
        let Some(record) = records.get_mut(name) else { return Status::free(name.clone()) };
        record.settle(now, sessions, voices);
        record.status(name, now, sessions)
    }
    pub(super) fn list(&mut self, prefix: &str, page: &Page, now: Moment) -> Listing {
        let Self { records, sessions, voices, .. } = self;
        let mut listing = Listing::default();
        for (name, record) in records.iter_mut() {
            if !name.as_str().starts_with(prefix) || page.after.as_deref().is_some_and(|after| name.as_str() <= after) {
                continue;
            }
            record.settle(now, sessions, voices);
            if record.kind.is_none() {
                continue;
            }
            if listing.items.len() == page.limit.max(1) {
                listing.next = listing.items.last().map(|last| last.name.to_string());
                break;
            }
            listing.items.push(record.status(name, now, sessions));
        }
        listing
    }
    /// Opens a session, or keeps one that is open. `None`: it is over, and so is all that it held.
    pub(super) fn beat(&mut self, session: Option<SessionId>, ttl: Duration, now: Moment) -> Option<SessionId> {
        match session {
            None => {
                self.last_id += 1;
                let id = SessionId(self.last_id);
                self.sessions.insert(id, now);
                Some(id)
            }
            Some(id) => {
                let alive = self.sessions.get(&id).is_some_and(|beat| now < *beat + ttl);
                if alive {
                    self.sessions.insert(id, now);
                } else {
                    self.sessions.remove(&id);
                }
                alive.then_some(id)
            }
        }
    }
    pub(super) fn end_session(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }
}
impl Record {
    /// This very attempt's grant or place, if there is one. A grant that is found is confirmed: it has its full ttl again,
    /// in the same step (SAFETY G1).
    fn find(&mut self, hold: HoldId, now: Moment, sessions: &HashMap<SessionId, Moment>) -> Option<Entered> {
        if let Some(holding) = self.holders.iter_mut().find(|holding| holding.who.hold == hold) {
            holding.until = now + holding.who.ttl;
            return Some(Entered::Granted(holding.token));
        }
        let at = self.queue.iter().position(|waiting| waiting.who.hold == hold)?;
        self.queue[at].alive = now + SIGN_OF_LIFE;
        let (wake, ends) = (self.queue[at].wake.clone(), self.ends(now, sessions));
        Some(Entered::Queued(self.busy(now, sessions, Some(at)), wake, ends))
    }
}
