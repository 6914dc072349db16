//! Which sessions of the server there are, and what lives in them.
use crate::{Fault, LEAVE, Reply, Turned, after_locked, before_answered};
use async_trait::async_trait;
use fencelock_core::{
    BootClock, Busy, Clock, Error, Event, Grant, HoldId, Lease, Moment, Name, Outcome, Reports, Request, Result,
    SessionId, Token,
};
use std::{
    collections::HashMap,
    future::poll_fn,
    ops::Deref,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};
use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};

/// So many connections that have waited are kept for the next wait, until the server ends them.
const IDLE: usize = 8;

/// What the server takes for a lock.
pub trait Excludes: Clone + Send + 'static {
    /// One session cannot have both: for the server they are one, of which it counts, or gives, more.
    fn excludes(&self, other: &Self) -> bool;
}
/// What is held in a session, or may be: its claim was sent.
#[derive(Clone, Debug)]
pub struct Borne<K> {
    /// Which lock.
    pub name: Name,
    /// As the server takes it.
    pub key: K,
    /// 0: not granted, as far as is known.
    pub token: i64,
    /// It is given back then, whatever its holder does (SAFETY G5).
    pub ends: Option<Moment>,
    /// The server was asked to take it back.
    pub leaves: bool,
}
impl<K> Borne<K> {
    /// Its claim is about to be sent.
    pub fn new(name: &Name, key: K) -> Self {
        Self { name: name.clone(), key, token: 0, ends: None, leaves: false }
    }
}

/// What is known of one session on this side.
#[derive(Debug)]
pub struct Session<K> {
    /// Its number here.
    pub session: SessionId,
    /// The server ends it when it is silent for so long.
    pub ttl: Duration,
    /// One that waited for its lock bears no other.
    pub alone: bool,
    holds: Mutex<HashMap<HoldId, Borne<K>>>,
    /// Up to then its life was reported, in ns.
    reported: AtomicU64,
    /// It has ended, or is about to.
    over: AtomicBool,
    /// A statement of it waits: it says nothing else meanwhile.
    waits: AtomicBool,
    /// It is to be closed, or looked at.
    pub closing: Notify,
    /// Whoever tends it sleeps, since it bears nothing ...
    naps: AtomicBool,
    /// ... and is woken; or something is to be given back.
    pub needed: Notify,
}
impl<K: Excludes> Session<K> {
    /// One that bears nothing yet.
    pub fn new(session: SessionId, ttl: Duration, alone: bool) -> Self {
        let (holds, reported, over, waits, closing, naps, needed) = Default::default();
        Self { session, ttl, alone, holds, reported, over, waits, closing, naps, needed }
    }
    fn holds(&self) -> MutexGuard<'_, HashMap<HoldId, Borne<K>>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Nothing more is taken there.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
    }
    /// The same of one that bears nothing, and waits for nothing. False: it does.
    pub fn end_if_idle(&self) -> bool {
        let holds = self.holds();
        let idle = holds.is_empty() && !self.is_waiting();
        if idle {
            self.end();
        }
        idle
    }
    /// It ends, and its holders are told so before the server is (by whoever tends it).
    pub fn close(&self) {
        self.end();
        self.closing.notify_one();
    }
    /// It has ended, or is about to.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
    /// A statement of it waits.
    pub fn is_waiting(&self) -> bool {
        self.waits.load(Relaxed)
    }
    /// A statement of it is about to wait: from here on it is no idle one.
    pub fn will_wait(&self) {
        let _not_idle = self.holds();
        self.waits.store(true, Relaxed);
    }
    /// It bears what it has waited for.
    pub fn waits_no_more(&self) {
        self.waits.store(false, Relaxed);
    }
    /// From here on it is looked after. False: another hold of this session is in the way.
    pub fn intend(&self, hold: HoldId, borne: Borne<K>) -> bool {
        let mut holds = self.holds();
        if holds.iter().any(|(other, it)| *other != hold && it.key.excludes(&borne.key)) {
            return false;
        }
        holds.insert(hold, borne);
        if self.naps.swap(false, Relaxed) {
            self.needed.notify_one();
        }
        true
    }
    /// Sends its claim, if nobody has taken it back, and what is sent `opens`. `call` goes with its first poll.
    ///
    /// *Invariant (SAFETY A3):* this and [`leave`](Self::leave) exclude each other, and a session is served in order: whoever takes it back comes
    /// after the claim, or there is none. (It would be given to nobody, and nothing would be known of it here any more.)
    pub async fn send<T>(
        &self,
        hold: HoldId,
        opens: impl FnOnce() -> bool,
        call: impl Future<Output = T>,
    ) -> Option<T> {
        let (mut call, mut opens) = (pin!(call), Some(opens));
        let sent = poll_fn(|cx| {
            let holds = self.holds();
            let is_wanted = holds.get(&hold).is_some_and(|borne| !borne.leaves);
            let goes = is_wanted && opens.take().is_some_and(|opens| opens());
            Poll::Ready(goes.then(|| call.as_mut().poll(cx)))
        });
        match sent.await? {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => Some(call.await),
        }
    }
    /// How long whoever tends it may sleep: while it bears nothing he is woken.
    pub fn nap(&self, step: Duration, idle: Duration) -> Duration {
        let holds = self.holds();
        self.naps.store(holds.is_empty(), Relaxed);
        if holds.is_empty() { idle } else { step }
    }
    /// What is known of one that is borne here changes.
    pub fn change(&self, hold: HoldId, change: impl FnOnce(&mut Borne<K>)) {
        if let Some(borne) = self.holds().get_mut(&hold) {
            change(borne);
        }
    }
    /// The server has given it.
    pub fn granted(&self, hold: HoldId, token: i64, ends: Option<Moment>) {
        self.change(hold, |borne| (borne.token, borne.ends) = (token, ends));
    }
    /// What is borne under this id.
    pub fn found(&self, hold: HoldId) -> Option<Borne<K>> {
        self.holds().get(&hold).cloned()
    }
    /// It is about to be given back. True: somebody is at it already.
    pub fn leave(&self, hold: HoldId) -> Option<(Borne<K>, bool)> {
        let mut holds = self.holds();
        let borne = holds.get_mut(&hold)?;
        let again = std::mem::replace(&mut borne.leaves, true);
        Some((borne.clone(), again))
    }
    /// It is not there any more.
    pub fn forget(&self, hold: HoldId) {
        self.holds().remove(&hold);
    }
    /// It bears nothing.
    pub fn is_empty(&self) -> bool {
        self.holds().is_empty()
    }
    /// It is to be given back then, by whoever tends this.
    pub fn due(&self, hold: HoldId, at: Moment) {
        self.change(hold, |borne| {
            borne.ends = Some(at);
            self.needed.notify_one();
        });
    }
    /// The one to be given back first, and when.
    pub fn first_due(&self) -> Option<(Moment, HoldId)> {
        self.holds().iter().filter_map(|(hold, borne)| Some((borne.ends?, *hold))).min()
    }
    /// The server has worked something off that was sent then: it ends the session a ttl later, or after what comes next.
    ///
    /// *Invariant (SAFETY G1):* reported before a grant of it is returned; one that is a little older has been.
    pub fn alive(&self, reports: Option<&Reports>, sent_at: Moment) {
        let step = u64::try_from((self.ttl / 16).as_nanos()).unwrap_or(u64::MAX);
        let last = self.reported.load(Relaxed);
        if last == 0 || sent_at.as_nanos() > last.saturating_add(step) {
            self.reported.fetch_max(sent_at.as_nanos(), Relaxed);
            if let Some(reports) = reports {
                reports.send(Event::SessionAlive { session: self.session, sent_at });
            }
        }
    }
}

/// A connection that bears locks: what is held there lives as long as its session.
#[async_trait]
pub trait Bears: Deref<Target = Session<<Self as Bears>::Key>> + Send + Sync + 'static {
    /// What the server takes for a lock.
    type Key: Excludes;
    /// What stops a call.
    type Fault: Fault;

    /// Something may still be answered there.
    fn is_connected(&self) -> bool;
    /// One call on one lock, of a session that holds: it never waits.
    async fn run(&self, limit: Duration, call: &str) -> Result<Reply, Self::Fault>;
    /// Something may be taken there.
    fn is_open(&self) -> bool {
        !self.is_over() && self.is_connected()
    }
}

/// Which sessions there are, and what lives in them.
#[derive(Debug)]
pub struct Sessions<B> {
    last: AtomicU64,
    table: Mutex<Table<B>>,
    reports: Arc<Mutex<Option<Reports>>>,
}
#[derive(Debug)]
struct Table<B> {
    /// For locks that are free when they are wanted: one for each ttl.
    by_ttl: HashMap<Duration, Arc<B>>,
    /// Where each hold is, or may be.
    by_hold: HashMap<HoldId, Arc<B>>,
    /// Those that waited for a lock, have given it back, and may wait for another one.
    idle: Vec<Arc<B>>,
}
impl<B> Default for Table<B> {
    fn default() -> Self {
        Self { by_ttl: HashMap::new(), by_hold: HashMap::new(), idle: Vec::new() }
    }
}
impl<B> Default for Sessions<B> {
    fn default() -> Self {
        Self { last: AtomicU64::new(1), table: Mutex::default(), reports: Arc::default() }
    }
}
impl<B: Bears> Sessions<B> {
    fn table(&self) -> MutexGuard<'_, Table<B>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The number of another one.
    pub fn next(&self) -> SessionId {
        SessionId(self.last.fetch_add(1, Relaxed))
    }
    /// For as long as this lives: what hears of us has us, and would live as long as we do.
    pub fn report_to(&self, reports: &Reports) -> Reporting {
        *self.reports.lock().unwrap_or_else(PoisonError::into_inner) = Some(reports.clone());
        Reporting(self.reports.clone())
    }
    /// Who hears of sessions.
    pub fn reports(&self) -> Option<Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Tells whoever hears of sessions.
    pub fn report(&self, event: Event) {
        if let Some(reports) = self.reports() {
            reports.send(event);
        }
    }
    /// It bears what others want, too.
    pub fn keep(&self, bearer: &Arc<B>) {
        if !bearer.alone {
            self.table().by_ttl.insert(bearer.ttl, bearer.clone());
        }
    }
    /// The one of this ttl that bears what others want, too.
    pub fn shared_bearer(&self, ttl: Duration) -> Option<Arc<B>> {
        self.table().by_ttl.get(&ttl).filter(|bearer| bearer.is_open()).cloned()
    }
    /// Its claim is sent there.
    pub fn hold(&self, hold: HoldId, bearer: &Arc<B>) {
        self.table().by_hold.insert(hold, bearer.clone());
    }
    /// Where it is, or may be.
    pub fn bearer_of(&self, hold: HoldId) -> Option<Arc<B>> {
        self.table().by_hold.get(&hold).cloned()
    }
    /// Where it is held, and its token.
    pub fn granted(&self, hold: HoldId) -> Option<(Arc<B>, i64)> {
        let bearer = self.bearer_of(hold)?;
        let token = bearer.found(hold)?.token;
        Some((bearer, token)).filter(|_| token != 0)
    }
    /// It is nowhere.
    pub fn forget(&self, hold: HoldId) {
        self.table().by_hold.remove(&hold);
    }
    /// The session has ended, and everything in it.
    pub fn gone(&self, bearer: &Arc<B>) {
        let mut table = self.table();
        table.by_ttl.retain(|_, one| one.session != bearer.session);
        table.by_hold.retain(|_, one| one.session != bearer.session);
        table.idle.retain(|one| one.session != bearer.session);
    }
    /// It bears nothing, and may wait for another lock. False: there are enough of them.
    pub fn rest(&self, bearer: &Arc<B>) -> bool {
        let mut table = self.table();
        let room = table.idle.len() < IDLE;
        if room {
            table.idle.push(bearer.clone());
        }
        room
    }
    /// One that waited before.
    pub fn rested(&self, ttl: Duration) -> Option<Arc<B>> {
        let mut table = self.table();
        loop {
            let at = table.idle.iter().position(|bearer| bearer.ttl == ttl)?;
            let bearer = table.idle.swap_remove(at);
            // From here on it is no idle one.
            bearer.will_wait();
            if bearer.is_open() {
                return Some(bearer);
            }
        }
    }
    /// All of them, for good: the server frees what they held.
    pub fn end(&self) {
        let Table { by_ttl, by_hold, idle } = std::mem::take(&mut *self.table());
        by_ttl.values().chain(by_hold.values()).chain(&idle).for_each(|bearer| bearer.close());
    }
    /// Waits until a session that was closed is not there any more, and nothing of it: whoever tends it has told its holders, and buries it.
    pub async fn is_buried(&self, bearer: &Arc<B>) -> bool {
        let limit = BootClock.now() + LEAVE;
        loop {
            let known = {
                let table = self.table();
                table.by_hold.values().chain(table.by_ttl.values()).any(|one| one.session == bearer.session)
            };
            if !known || BootClock.now() > limit {
                return !known;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
    /// Ends one hold of a session by this call. False: it was not there. `Err`: nobody knows; it is tried again, or the session ends.
    pub async fn let_go(
        &self,
        bearer: &Arc<B>,
        hold: HoldId,
        call: impl FnOnce(&Borne<B::Key>) -> String,
    ) -> Result<bool, B::Fault> {
        let Some((borne, again)) = bearer.leave(hold) else { return Ok(false) };
        let call = call(&borne);
        let (limit, mut tries) = (BootClock.now() + LEAVE, 1);
        // A repeat waits for longer: where the server is slow each answer would come after nobody waits for it.
        let patience = if again { LEAVE.max(bearer.ttl / 3) } else { LEAVE };
        let done = loop {
            let done = bearer.run(patience.min(bearer.ttl), &call).await;
            if !is_locked(&done) || BootClock.now() > limit {
                break done;
            }
            sleep(after_locked(tries)).await;
            tries += 1;
        };
        let released = matches!(done, Ok(Reply::Done { .. }));
        // Gone: it was never granted, or another one has given it back meanwhile.
        let never = borne.token == 0 || again || bearer.found(hold).is_none();
        if released || (never && matches!(done, Ok(Reply::Gone { .. }))) {
            bearer.forget(hold);
            self.forget(hold);
            if bearer.alone {
                bearer.closing.notify_one();
            }
            return Ok(released);
        }
        // The server is slow, or somebody keeps the row: that is no reason for others to lose what they hold beside it. Whoever tends the
        // session tries it again, for as long as that lives.
        let slow = done.as_ref().is_err_and(B::Fault::is_unanswered) && bearer.is_connected();
        if !bearer.alone && (slow || is_locked(&done)) {
            bearer.due(hold, BootClock.now() + LEAVE);
            return Err(done.err().unwrap_or(B::Fault::LOCKED));
        }
        // The lock may be there still: its session ends, and with it all that is held there, whose holders are told first. It stays
        // known until it is buried.
        bearer.close();
        done.map(|_| false)
    }
    /// Takes an attempt back, by this call.
    pub async fn withdraw(&self, hold: HoldId, call: impl FnOnce(&Borne<B::Key>) -> String) -> Result<(), B::Fault> {
        let Some(bearer) = self.bearer_of(hold) else { return Ok(()) };
        // One that waits bears nothing else: it is ended where it stands in the queue. So is one that cannot be asked any more.
        let waits = bearer.found(hold).is_some_and(|borne| borne.token == 0) && bearer.alone;
        let left = if waits {
            bearer.close();
            Err(B::Fault::UNANSWERED)
        } else {
            self.let_go(&bearer, hold, call).await.map(drop)
        };
        match left {
            Err(fault) if !self.is_buried(&bearer).await => Err(fault),
            _ => Ok(()),
        }
    }
}
/// Somebody's own transaction keeps a row of it (SAFETY E2).
fn is_locked<F: Fault>(done: &Result<Reply, F>) -> bool {
    matches!(done, Ok(Reply::Locked)) || done.as_ref().is_err_and(F::is_locked)
}
/// Somebody hears of sessions.
#[derive(Debug)]
pub struct Reporting(Arc<Mutex<Option<Reports>>>);
impl Drop for Reporting {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What a session engine brings to a claim.
#[async_trait]
pub trait Claims: Sync {
    /// What stops a call.
    type Fault: Fault;

    /// In the library's words.
    fn tell(&self, fault: &Self::Fault) -> Error;
    /// In the session for its ttl, if it is free: its token, and where it is; or why not.
    async fn bear(&self, request: &Request) -> Result<Result<(i64, SessionId), Reply>, Self::Fault>;
    /// It is taken: somebody waits for it.
    fn wait(&self, request: &Request, busy: Busy, reply: oneshot::Sender<Turned<Self::Fault>>);
}
/// Takes it where it is free, and waits where it is not, if the request does.
///
/// # Errors
/// As [`Engine::acquire`](fencelock_core::Engine::acquire).
pub async fn acquire<C: Claims>(claims: &C, request: &Request) -> Result<Outcome> {
    let told = |fault: C::Fault| claims.tell(&fault);
    // Not since it came: before the first look a session may have to be opened.
    let (mut tries, mut locked_since) = (0, None);
    let mut busy = loop {
        let reply = match claims.bear(request).await.map_err(told)? {
            Ok((number, session)) => {
                let token = Token::new(number).ok_or_else(|| told(C::Fault::ANSWER))?;
                return Ok(Outcome::Granted(granted(request, token, session)));
            }
            Err(reply) => reply,
        };
        match reply {
            Reply::Busy(busy) => break busy,
            Reply::OtherKind(kind) => {
                return Err(Error::other_kind("lock", request.name(), request.claim().kind(), kind));
            }
            Reply::Layout(other) => return Err(told(C::Fault::layout(other))),
            Reply::Reserved { .. } => break Busy::default(),
            Reply::Locked => {
                let now = BootClock.now();
                tries += 1;
                match before_answered(tries, locked_since.get_or_insert(now).until(now)) {
                    Some(pause) if !request.is_stopped() => sleep(pause).await,
                    _ => break Busy::default(),
                }
            }
            _ => return Err(told(C::Fault::ANSWER)),
        }
    };
    if !request.wait() || request.is_stopped() {
        return Ok(Outcome::Busy(busy));
    }
    loop {
        let (reply, turned) = oneshot::channel();
        claims.wait(request, busy, reply);
        match turned.await {
            Ok(turned) => return turned.outcome(request, |fault| claims.tell(fault)),
            // `run` was begun anew.
            Err(_) => busy = Busy::default(),
        }
    }
}

/// When it is not held any longer, whatever its holder does.
pub fn ends(request: &Request, since: Moment) -> Option<Moment> {
    request.max_hold().map(|most| since + most + request.ttl())
}
/// What was granted in this session.
pub fn granted(request: &Request, token: Token, session: SessionId) -> Grant {
    let (name, hold, claim, ttl) = (request.name().clone(), request.hold(), request.claim(), request.ttl());
    Grant { name, claim, hold, token, ttl, lease: Lease::Session(session), server_micros: 0, place: None }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: what is looked at before a claim is sent is let go of before that.
    #![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
    use super::*;
    use fencelock_core::blocking::block_on;
    use std::{sync::Barrier, thread};

    impl Excludes for () {
        fn excludes(&self, _: &Self) -> bool {
            true
        }
    }
    /// Somebody takes it back while it is about to be sent: what was sent stands in a line, as for a server.
    #[test]
    fn whoever_takes_a_claim_back_comes_after_it() {
        let (name, hold) = (Name::new("x").unwrap(), format!("{:032x}", 1).parse::<HoldId>().unwrap());
        let session = Session::new(SessionId(1), Duration::from_secs(1), false);
        session.intend(hold, Borne::new(&name, ()));
        let (line, opening) = (Mutex::new(Vec::new()), Barrier::new(2));
        let opens = || {
            opening.wait();
            thread::sleep(Duration::from_millis(50));
            true
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                opening.wait();
                session.leave(hold).unwrap();
                line.lock().unwrap().push("back");
            });
            block_on(session.send(hold, opens, async { line.lock().unwrap().push("claim") })).unwrap();
        });
        assert_eq!(line.into_inner().unwrap(), ["claim", "back"]);
        // From here on nothing is sent.
        assert_eq!(block_on(session.send(hold, || true, async {})), None);
        // And what does not open is not sent.
        let session = Session::new(SessionId(1), Duration::from_secs(1), false);
        session.intend(hold, Borne::new(&name, ()));
        assert_eq!(block_on(session.send(hold, || false, async {})), None);
        assert_eq!(block_on(session.send(hold, || true, async {})), Some(()));
    }
}
