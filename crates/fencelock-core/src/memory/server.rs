//! The store: linearizable, with leases by its own clock, sessions, and direct hand-off to the first waiter.
use super::{cells::Cell, pushes::Pushes};
use crate::{
    clock::{Clock, Moment},
    mutants::{Mutant, lives},
    types::{
        Busy, Claim, EngineId, Event, HoldId, Holder, Identity, Kind, Listing, LossReason, Name, Page, Released,
        SessionId, Status, Token, Waiter,
    },
};
use foldhash::fast::FixedState;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, mpsc};

/// How long a waiter that was handed the lock has to confirm (SAFETY G2).
const GRANT_LEASE: Duration = Duration::from_millis(1_750);
/// How long a waiter lives without a sign.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);

/// By name. The hash has no random part: a seed of the simulator is one history.
type Records = HashMap<Name, Record, FixedState>;

/// The store that memory engines share.
#[derive(Debug)]
pub struct MemoryServer {
    id: EngineId,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) records: Records,
    sessions: HashMap<SessionId, Moment>,
    voices: HashMap<u64, mpsc::UnboundedSender<Event>>,
    wall: Wall,
    pushes: Pushes,
    last_id: u64,
}
/// The wall clock: what tokens are made of (SAFETY T1).
#[derive(Debug, Default)]
enum Wall {
    #[default]
    System,
    /// What it shows at [`Moment::ZERO`], in µs.
    Simulated(i64),
}
impl Wall {
    fn micros(&self, now: Moment) -> i64 {
        match self {
            Self::System => wall_micros(),
            Self::Simulated(start) => {
                start.saturating_add(i64::try_from(now.as_nanos() / 1_000).unwrap_or(i64::MAX / 2))
            }
        }
    }
}
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) kind: Option<Kind>,
    /// Of a semaphore. Kept while nobody holds it, too (SAFETY K4).
    pub(super) capacity: Option<u32>,
    pub(super) holders: Vec<Holding>,
    pub(super) queue: VecDeque<Waiting>,
    pub(super) cell: Cell,
    pub(super) fence: i64,
    /// Told after every change of holders.
    changed: Arc<Notify>,
}
/// What every record was at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot(Records);
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) who: Claimant,
    token: Token,
    since: Moment,
    until: Moment,
    /// Whoever it was handed to has asked for it (SAFETY G2).
    confirmed: bool,
}
#[derive(Clone, Debug)]
pub(super) struct Waiting {
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
    pub(super) at_least: Duration,
    pub(super) floor: Option<Token>,
    pub(super) session: Option<SessionId>,
    pub(super) identity: Identity,
    pub(super) note: Arc<str>,
    pub(super) voice: u64,
}
#[derive(Debug)]
pub(super) enum Entered {
    /// So long ago: a repeat finds what it was granted before.
    Granted(Token, Duration),
    /// Woken through the `Notify`; the time is when the holder's lease ends.
    Queued(Busy, Arc<Notify>, Moment),
    Busy(Busy),
    OtherKind(Kind),
    OtherCapacity(u32),
    /// The command came after the attempt's end and did nothing (SAFETY A2).
    PastEnd,
    /// A refresh found neither a grant nor a place.
    Unknown,
    /// The session that it was to live in is over.
    NoSession,
}

/// What became of a resize.
#[derive(Debug)]
pub(super) enum Resized {
    Done,
    OtherKind(Kind),
    OtherCapacity(u32),
}

impl MemoryServer {
    /// An empty store whose leases run by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        // Without random numbers it is only less distinguishable from other stores of this process.
        let id = EngineId::random().unwrap_or_else(|_| EngineId::from_bytes([1; 16]));
        Arc::new(Self { id, clock, state: Mutex::default() })
    }
    /// Its wall clock, of which tokens are made, shows `micros` now and goes with the clock of the leases: for simulations,
    /// where nothing may depend on the real day, and for steps of the wall clock.
    pub fn set_wall(&self, micros: i64) {
        self.act(|state, now| {
            let since = i64::try_from(now.as_nanos() / 1_000).unwrap_or(i64::MAX / 2);
            state.wall = Wall::Simulated(micros.saturating_sub(since));
        });
    }
    /// This part of the pushes, by which waiters hear that their turn has come, never arrives.
    pub fn lose_pushes(&self, part: f64, seed: u64) {
        self.act(|state, _| state.pushes = Pushes::lossy(part, seed));
    }
    /// Every record, as a replica has them that lags.
    pub fn snapshot(&self) -> Snapshot {
        self.act(|state, _| Snapshot(state.records.clone()))
    }
    /// Forgets what was written since the snapshot: a failover to a replica that lagged. Engines are told to look again.
    pub fn restore(&self, snapshot: Snapshot) {
        self.act(|state, _| {
            state.records = snapshot.0;
            state.wake_all();
        });
    }
    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
    pub(super) fn id(&self) -> EngineId {
        self.id
    }
    /// How many hold and how many wait, over all names.
    pub fn census(&self) -> (usize, usize) {
        self.act(|state, now| {
            let clock = state.wall.micros(now);
            let State { records, sessions, voices, pushes, .. } = state;
            records.values_mut().fold((0, 0), |(held, queued), record| {
                record.settle(now, sessions, voices, clock, pushes);
                (held + record.holders.len(), queued + record.queue.len())
            })
        })
    }
    /// Forgets every record, as a server without persistence does when it restarts.
    pub fn lose_data(&self) {
        self.act(|state, _| {
            let before = std::mem::take(&mut state.records);
            before.into_values().for_each(|record| record.changed.notify_waiters());
        });
    }
    /// Ends every session, as an operator does: what they held is free at once.
    pub fn end_sessions(&self) {
        self.act(|state, _| {
            state.sessions.clear();
            state.wake_all();
        });
    }
    pub(super) fn wall_micros(&self) -> i64 {
        self.act(|state, now| state.wall.micros(now))
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

fn wall_micros() -> i64 {
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
        let lease = lease.max(self.since + self.who.at_least);
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
    pub(super) fn fits(&self, claim: Claim) -> bool {
        let claim = self.capacity.map_or(claim, |size| claim.of_capacity(size));
        claim.fits(self.holders.iter().map(|holding| holding.who.claim))
    }
    /// *Invariant (SAFETY T1):* greater than every token before, than the floor, and no less than the clock; a floor that is
    /// above both the fence and tomorrow is somebody's mistake and is ignored.
    fn mint(&mut self, floor: Option<Token>, clock: i64) -> Token {
        if lives(Mutant::RelativeTokenJump) {
            self.fence += if self.fence == 0 { 1 << 20 } else { 1 };
            return Token::new(self.fence).unwrap_or_else(|| unreachable!("it rises"));
        }
        if lives(Mutant::TokenOutsideTheStep) {
            self.fence = floor.map_or(0, Token::get) + 1;
            return Token::new(self.fence).unwrap_or_else(|| unreachable!("it is positive"));
        }
        let sane = |floor: i64| floor <= self.fence || floor <= clock + 86_400_000_000;
        let floor = floor.map(Token::get).filter(|floor| sane(*floor)).unwrap_or(0);
        self.fence = (self.fence + 1).max(clock).max(floor + 1);
        Token::new(self.fence).unwrap_or_else(|| unreachable!("a fence starts at 0 and rises"))
    }
    fn grant(&mut self, who: Claimant, now: Moment, lease: Duration, clock: i64) -> Token {
        let token = self.mint(who.floor, clock);
        self.holders.push(Holding { who, token, since: now, until: now + lease, confirmed: true });
        self.changed.notify_waiters();
        token
    }
    /// Drops what is over, then hands over to the head of the queue for as long as it fits: first come, first served.
    fn settle(
        &mut self,
        now: Moment,
        sessions: &HashMap<SessionId, Moment>,
        voices: &HashMap<u64, mpsc::UnboundedSender<Event>>,
        clock: i64,
        pushes: &mut Pushes,
    ) {
        let held = self.holders.len();
        self.holders.retain(|holding| holding.ends(sessions) > now);
        if self.holders.len() < held {
            self.changed.notify_waiters();
        }
        self.queue.retain(|waiting| {
            let listens = !voices.get(&waiting.who.voice).is_none_or(mpsc::UnboundedSender::is_closed);
            let alive = match waiting.who.session {
                None => waiting.alive > now,
                Some(session) => sessions.get(&session).is_some_and(|beat| *beat + waiting.who.ttl > now),
            };
            listens && alive
        });
        while let Some(head) = self.queue.front() {
            if !self.fits(head.who.claim) {
                break;
            }
            if let Some(Waiting { who, wake, .. }) = self.queue.pop_front() {
                let lease = who.ttl.min(GRANT_LEASE);
                self.grant(who, now, lease, clock);
                if let Some(last) = self.holders.last_mut() {
                    last.confirmed = false;
                }
                if !pushes.is_lost() {
                    wake.notify_one();
                }
            }
        }
        if self.holders.is_empty() && self.queue.is_empty() && self.cell.value.is_none() {
            self.kind = None;
        }
    }
    fn first(&self, now: Moment, sessions: &HashMap<SessionId, Moment>) -> Option<Holder> {
        self.holders.first().map(|holding| holding.holder(now, sessions))
    }
    pub(super) fn busy(&self, now: Moment, sessions: &HashMap<SessionId, Moment>, ahead: Option<usize>) -> Busy {
        Busy::new(self.first(now, sessions), ahead.and_then(|n| u32::try_from(n).ok()))
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
            capacity: self.capacity,
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
    pub(super) fn settled(&mut self, name: &Name, now: Moment) -> (&mut Record, &HashMap<SessionId, Moment>) {
        let clock = self.wall.micros(now);
        let Self { records, sessions, voices, pushes, .. } = self;
        let record = records.entry(name.clone()).or_default();
        record.settle(now, sessions, voices, clock, pushes);
        (record, sessions)
    }
    /// As it is now, if there is such a record.
    fn known(&mut self, name: &Name, now: Moment) -> Option<(&mut Record, &HashMap<SessionId, Moment>)> {
        let clock = self.wall.micros(now);
        let Self { records, sessions, voices, pushes, .. } = self;
        let record = records.get_mut(name)?;
        record.settle(now, sessions, voices, clock, pushes);
        Some((record, sessions))
    }
    fn wake_all(&self) {
        for record in self.records.values() {
            record.changed.notify_waiters();
            record.queue.iter().for_each(|waiting| waiting.wake.notify_one());
        }
    }
    pub(super) fn wall_micros(&self, now: Moment) -> i64 {
        self.wall.micros(now)
    }
    /// Claims, or queues. It alone creates (SAFETY A2).
    pub(super) fn enter(&mut self, name: &Name, who: Claimant, wait: bool, ends: Moment, now: Moment) -> Entered {
        let clock = self.wall.micros(now);
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
            _ => {}
        }
        match (record.capacity, who.claim.capacity()) {
            (Some(size), Some(wanted)) if size != wanted && !lives(Mutant::CapacityOverwritten) => {
                return Entered::OtherCapacity(size);
            }
            (_, wanted) => record.capacity = wanted,
        }
        record.kind = Some(who.claim.kind());
        let passes = lives(Mutant::ReaderOvertakes) && who.claim == Claim::Read;
        if (record.queue.is_empty() || passes) && record.fits(who.claim) {
            let ttl = who.ttl;
            return Entered::Granted(record.grant(who, now, ttl, clock), Duration::ZERO);
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
    pub(super) fn renew(&mut self, name: &Name, hold: HoldId, token: Token, ttl: Duration, now: Moment) -> bool {
        let Some((record, sessions)) = self.known(name, now) else { return false };
        let any = lives(Mutant::RenewWithoutCompare);
        let held = record.holders.iter_mut().find(|h| any || h.who.hold == hold && h.token == token);
        held.is_some_and(|holding| {
            holding.until = holding.until.max(now + ttl);
            holding.ends(sessions) > now
        })
    }
    /// A downgrade (the same hold id: the token stays), or the adoption of a hold by another attempt (SAFETY A5).
    pub(super) fn exchange(
        &mut self,
        name: &Name,
        old: (HoldId, Token),
        next: Claimant,
        ends: Moment,
        now: Moment,
    ) -> Entered {
        let clock = self.wall.micros(now);
        let (record, sessions) = self.settled(name, now);
        if next.hold != old.0 {
            if let Some(known) = record.find(next.hold, now, sessions) {
                return known;
            }
            if now > ends {
                return Entered::PastEnd;
            }
        }
        let at = record.holders.iter().position(|h| (h.who.hold, h.token) == old);
        if lives(Mutant::TicketTwice) && next.hold != old.0 && at.is_none() {
            let ttl = next.ttl;
            return Entered::Granted(record.grant(next, now, ttl, clock), Duration::ZERO);
        }
        let Some(at) = at else {
            return Entered::Busy(record.busy(now, sessions, None));
        };
        if next.hold != old.0 {
            let same = record.holders[at].who.claim == next.claim;
            if !same {
                return Entered::Busy(record.busy(now, sessions, None));
            }
            let gone = record.holders.remove(at).who;
            let (ttl, note) = (next.ttl, if next.note.is_empty() { gone.note } else { next.note.clone() });
            let token = record.grant(Claimant { note, ..next }, now, ttl, clock);
            // Whoever let go of it knows; whoever did not is told.
            if let Some(voice) = self.voices.get(&gone.voice) {
                let _ = voice.send(Event::Lost { hold: gone.hold, reason: LossReason::TakenOver });
            }
            return Entered::Granted(token, Duration::ZERO);
        }
        if lives(Mutant::DowngradeByRelease) {
            record.holders.remove(at);
            self.settled(name, now);
            return Entered::Granted(old.1, Duration::ZERO);
        }
        let holding = &mut record.holders[at];
        (holding.who.claim, holding.until) = (next.claim, holding.until.max(now + next.ttl));
        record.changed.notify_waiters();
        self.settled(name, now);
        Entered::Granted(old.1, Duration::ZERO)
    }
    pub(super) fn resize(&mut self, name: &Name, from: u32, to: u32, now: Moment) -> Resized {
        let (record, _) = self.settled(name, now);
        if let Some(kind) = record.kind.filter(|kind| *kind != Kind::Semaphore) {
            return Resized::OtherKind(kind);
        }
        if let Some(size) = record.capacity.filter(|size| *size != from && *size != to) {
            return Resized::OtherCapacity(size);
        }
        record.capacity = Some(to);
        // What can never be granted would stand in everybody's way; it is woken, and finds that it has no place.
        let (stay, go): (VecDeque<_>, _) =
            std::mem::take(&mut record.queue).into_iter().partition(|waiting| waiting.who.claim.take() <= to);
        record.queue = stay;
        go.iter().for_each(|waiting| waiting.wake.notify_one());
        self.settled(name, now);
        Resized::Done
    }
    /// The lock as it is, what tells of its next change, and when it changes by itself.
    pub(super) fn watch(&mut self, name: &Name, now: Moment) -> (Status, Arc<Notify>, Moment) {
        let (record, sessions) = self.settled(name, now);
        let ends = record.holders.iter().map(|holding| holding.ends(sessions)).min().unwrap_or(Moment::FAR);
        (record.status(name, now, sessions), record.changed.clone(), ends)
    }
    /// Ends a hold, or with `token: None` a place in the queue, too.
    pub(super) fn leave(&mut self, name: &Name, hold: HoldId, token: Option<Token>, now: Moment) -> Released {
        let Some((record, sessions)) = self.known(name, now) else { return Released::NotHeld { holder: None } };
        let before = record.holders.len();
        let voice = record.holders.iter().find(|h| h.who.hold == hold).map(|h| h.who.voice);
        let ours = |h: &Holding| {
            let exact = h.who.hold == hold && token.is_none_or(|token| token == h.token);
            exact
                || lives(Mutant::DeleteWithoutCompare)
                || lives(Mutant::ReleaseByOwner) && voice.is_none_or(|voice| h.who.voice == voice)
        };
        record.holders.retain(|h| !ours(h));
        let had = record.holders.len() < before;
        if token.is_none() {
            record.queue.retain(|waiting| waiting.who.hold != hold);
        }
        if had {
            record.changed.notify_waiters();
        }
        let holder = record.first(now, sessions);
        self.settled(name, now);
        if had { Released::Released } else { Released::NotHeld { holder } }
    }
    pub(super) fn force(&mut self, name: &Name, token: Token, now: Moment) -> Released {
        let Some((record, sessions)) = self.known(name, now) else { return Released::NotHeld { holder: None } };
        let Some(at) = record.holders.iter().position(|holding| holding.token == token) else {
            return Released::NotHeld { holder: record.first(now, sessions) };
        };
        let gone = record.holders.remove(at).who;
        record.changed.notify_waiters();
        if let Some(voice) = self.voices.get(&gone.voice) {
            let _ = voice.send(Event::Lost { hold: gone.hold, reason: LossReason::TakenOver });
        }
        self.settled(name, now);
        Released::Released
    }
    pub(super) fn inspect(&mut self, name: &Name, now: Moment) -> Status {
        match self.known(name, now) {
            Some((record, sessions)) => record.status(name, now, sessions),
            None => Status::free(name.clone()),
        }
    }
    pub(super) fn list(&mut self, prefix: &str, page: &Page, now: Moment) -> Listing {
        let clock = self.wall.micros(now);
        let Self { records, sessions, voices, pushes, .. } = self;
        let mut listing = Listing::default();
        let after = |name: &str| page.after.as_deref().is_none_or(|after| name > after);
        let wanted = |name: &Name| name.as_str().starts_with(prefix) && after(name.as_str());
        let mut wanted: Vec<_> = records.iter_mut().filter(|(name, _)| wanted(name)).collect();
        wanted.sort_unstable_by_key(|(name, _)| *name);
        for (name, record) in wanted {
            record.settle(now, sessions, voices, clock, pushes);
            if record.holders.is_empty() && record.queue.is_empty() {
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
    pub(super) fn end_session(&mut self, id: SessionId, now: Moment) {
        self.sessions.remove(&id);
        // What it held is free, which nobody else would notice.
        let names: Vec<Name> = self.records.keys().cloned().collect();
        for name in names {
            self.settled(&name, now);
        }
    }
}
impl Record {
    /// This very attempt's grant or place, if there is one. A grant that is found is confirmed: it has its full ttl again,
    /// in the same step (SAFETY G1).
    fn find(&mut self, hold: HoldId, now: Moment, sessions: &HashMap<SessionId, Moment>) -> Option<Entered> {
        if let Some(holding) = self.holders.iter_mut().find(|holding| holding.who.hold == hold) {
            // From here on it is held: until now nobody knew.
            if !std::mem::replace(&mut holding.confirmed, true) {
                holding.since = now;
            }
            if !lives(Mutant::ReplayWithoutRebase) || holding.until <= holding.since + GRANT_LEASE {
                holding.until = holding.until.max(now + holding.who.ttl);
            }
            return Some(Entered::Granted(holding.token, holding.since.until(now)));
        }
        let at = self.queue.iter().position(|waiting| waiting.who.hold == hold)?;
        self.queue[at].alive = now + SIGN_OF_LIFE;
        let (wake, ends) = (self.queue[at].wake.clone(), self.ends(now, sessions));
        Some(Entered::Queued(self.busy(now, sessions, Some(at)), wake, ends))
    }
}
