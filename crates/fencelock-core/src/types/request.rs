//! One attempt: what is wanted, and what caller, engine and keeper must agree on while it is under way.
use super::{Busy, Claim, HoldId, Kind, Name, Token};
use crate::{
    clock::Moment,
    error::Error,
    mutants::{Mutant, lives},
    observe::Spans,
};
use std::{
    fmt,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering::*},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// What an attempt wants. Cheap to clone: clones are the same attempt.
#[derive(Clone)]
pub struct Request(Arc<Inner>);

struct Inner {
    wish: Wish,
    hold: HoldId,
    floor: Option<Token>,
    /// The latest end of all commands sent under this hold id.
    ends: AtomicU64,
    /// The first attempt of the same wait: what they have in common is kept there. `None`: this is it.
    root: Option<Request>,
    /// Of a part of an attempt, on one node of a quorum: the attempt. Whoever stops that stops this.
    whole: Option<Request>,
    flags: AtomicU8,
    changed: Notify,
    course: Mutex<Course>,
    /// Where somebody listens.
    spans: Mutex<Option<Arc<Spans>>>,
}
/// What all attempts of one wait share, under one mutex, so that "stopped" and "sent" have an order (SAFETY A3).
#[derive(Default)]
struct Course {
    busy: Option<Busy>,
    /// The attempt under way, when that is not the first. Cleared when the wait is settled: it points back here.
    current: Option<Request>,
}
const STOPPED: u8 = 1;
const SETTLED: u8 = 2;
const QUEUED: u8 = 4;
const TAKEN: u8 = 8;
const IN_STORE: u8 = 16;

/// What a new request says; the hold id is minted with it.
#[derive(Clone)]
pub(crate) struct Wish {
    pub name: Name,
    pub claim: Claim,
    pub ttl: Duration,
    pub fixed: bool,
    pub max_hold: Option<Duration>,
    pub at_least: Duration,
    pub wait: bool,
    pub note: Arc<str>,
}

impl Request {
    pub(crate) fn new(wish: Wish, hold: HoldId, floor: Option<Token>) -> Self {
        Self::make(wish, hold, floor, None, None)
    }
    /// The n-th question to the nodes of a quorum about this attempt, which may be stopped by itself.
    pub(crate) fn part(&self, n: u8, wait: bool, floor: Option<Token>) -> Self {
        let wish = Wish { wait, ..self.0.wish.clone() };
        Self::make(wish, self.hold().part(n), floor, None, Some(self.clone()))
    }
    fn make(wish: Wish, hold: HoldId, floor: Option<Token>, root: Option<Self>, whole: Option<Self>) -> Self {
        let (flags, changed, ends) = (AtomicU8::new(0), Notify::new(), AtomicU64::new(0));
        let (course, spans) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { wish, hold, floor, ends, root, whole, flags, changed, course, spans }))
    }
    fn root(&self) -> &Inner {
        self.0.root.as_ref().map_or(&self.0, |root| &root.0)
    }
    /// What to lock.
    pub fn name(&self) -> &Name {
        &self.0.wish.name
    }
    /// How.
    pub fn claim(&self) -> Claim {
        self.0.wish.claim
    }
    /// How long the hold is good without a renewal.
    pub fn ttl(&self) -> Duration {
        self.0.wish.ttl
    }
    /// The lease is never renewed, only extended by its holder's own wish: it ends `ttl` after the grant. Where holds live with
    /// a session, whose heartbeats go on, the engine ends it then, and answers `Lease::Own`.
    pub fn is_fixed(&self) -> bool {
        self.0.wish.fixed
    }
    /// So long after its grant it is not free, even if its holder's process or session ends before. Core delays the release by
    /// itself and `ttl` is no less: only an engine that frees the holds of dead sessions at once has to do anything.
    pub fn at_least(&self) -> Duration {
        self.0.wish.at_least
    }
    /// For how long it may be held at all. A session's engine stores an end of `grant + max_hold + ttl`, since there the
    /// session's heartbeats for other holds would keep it alive (SAFETY G5).
    pub fn max_hold(&self) -> Option<Duration> {
        self.0.wish.max_hold
    }
    /// Queue when it is taken, until stopped; else answer `Busy` at once.
    pub fn wait(&self) -> bool {
        self.0.wish.wait
    }
    /// What the holder says of itself.
    pub fn note(&self) -> &Arc<str> {
        &self.0.wish.note
    }
    /// Under which id (SAFETY A1).
    pub fn hold(&self) -> HoldId {
        self.0.hold
    }
    /// The token must be greater than this (SAFETY T1).
    pub fn floor(&self) -> Option<Token> {
        self.0.floor
    }

    /// The error for a name that is another kind of lock, alive (SAFETY K1): the same words on every engine.
    pub fn other_kind(&self, now: Kind) -> Error {
        Error::other_kind("lock", self.name(), self.claim().kind(), now)
    }
    /// The error for a semaphore that has another size (SAFETY K4).
    pub fn other_capacity(&self, now: u32) -> Error {
        Error::other_capacity("lock", self.name(), self.claim().capacity().unwrap_or(0), now)
    }

    /// Opens the window of one command that may create a record: `now + window` is its end, after which it must not take
    /// effect. `None`: the attempt was stopped, nothing may be sent.
    ///
    /// *Invariant (SAFETY A2, A3):* stop and open exclude each other under one mutex. After a stop no window opens, so the
    /// keeper, which withdraws once more after the latest end it finds, comes after every command that could create.
    pub fn open(&self, now: Moment, window: Duration) -> Option<Moment> {
        let _course = self.course();
        // Always in this order: a part knows its whole, and not the other way round.
        let _whole = self.0.whole.as_ref().map(Self::course);
        if self.is(STOPPED) && !lives(Mutant::StopNotOrdered) {
            return None;
        }
        let ends = now + window;
        self.0.ends.fetch_max(ends.as_nanos(), AcqRel);
        Some(ends)
    }
    /// Nobody wants this attempt any more.
    pub fn is_stopped(&self) -> bool {
        self.is(STOPPED)
    }
    /// Resolves when nobody wants this attempt any more. The engine then starts nothing new, takes the reply in flight, and
    /// returns; core withdraws.
    pub async fn stopped(&self) {
        self.reached(STOPPED).await;
    }
    /// The engine queued this attempt and tells what it knows, for waiting messages and errors. From here on it runs as a
    /// task, so that a caller who does not poll stops nobody.
    pub fn queued(&self, busy: Busy) {
        if let Some(whole) = &self.0.whole {
            whole.queued(busy.clone().in_whole(whole.hold()));
        }
        self.queue(busy, QUEUED | IN_STORE);
    }
    /// The engine does not answer whoever waits: what is known is from before, until [`queued`](Self::queued) tells more (SAFETY E8).
    /// Whoever has been told nothing yet, since he was on his way into the queue, is told this.
    pub fn cut_off(&self) {
        self.course().busy.get_or_insert_default().stale = true;
    }
    /// It answers again, and what is known is as it was.
    pub fn in_touch(&self) {
        self.course().busy.iter_mut().for_each(|busy| busy.stale = false);
    }
    /// It waits for others of this process: nothing is sent.
    pub(crate) fn queued_here(&self, busy: Busy) {
        self.queue(busy, QUEUED);
    }
    fn queue(&self, busy: Busy, flags: u8) {
        self.course().busy = Some(busy);
        self.root().flags.fetch_or(flags, AcqRel);
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.is(QUEUED)
    }
    #[cfg(feature = "metrics")]
    pub(crate) fn waits_in_store(&self) -> bool {
        self.is(IN_STORE)
    }
    pub(crate) fn seen_by(&self, spans: Option<Arc<Spans>>) {
        let before = std::mem::replace(&mut *self.spans_mut(), spans);
        // Not under the mutex: its end is foreign code.
        drop(before);
    }
    pub(crate) fn spans(&self) -> Option<Arc<Spans>> {
        self.spans_mut().clone()
    }
    fn spans_mut(&self) -> MutexGuard<'_, Option<Arc<Spans>>> {
        self.root().spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn last_report(&self) -> Option<Busy> {
        self.course().busy.clone()
    }
    /// True if it was not stopped before.
    pub(crate) fn stop(&self) -> bool {
        let course = self.course();
        let before = self.root().flags.fetch_or(STOPPED, AcqRel);
        drop(course);
        self.root().changed.notify_waiters();
        before & STOPPED == 0
    }
    /// The next attempt of the same wait. `None`: it was stopped meanwhile.
    ///
    /// The attempt before may have left nothing and be settled; the wait is not any more. Whoever stops it later sees that.
    pub(crate) fn again(&self, hold: HoldId, floor: Option<Token>) -> Option<Self> {
        let mut course = self.course();
        if self.is(STOPPED) {
            return None;
        }
        let root = self.0.root.clone().unwrap_or_else(|| self.clone());
        let next = Self::make(self.0.wish.clone(), hold, floor, Some(root), None);
        course.current = Some(next.clone());
        self.root().flags.fetch_and(!SETTLED, AcqRel);
        Some(next)
    }
    pub(crate) fn ends(&self) -> Moment {
        Moment::from_nanos(self.0.ends.load(Acquire))
    }
    /// The wait is over and has left nothing that a guard does not own. Of an attempt that another one has followed it says
    /// nothing. False: the keeper has taken it back before, and a grant of it is good for nothing.
    pub(crate) fn settle(&self) -> bool {
        let mut course = self.course();
        let followed = course.current.as_ref().map_or(self.0.root.is_some(), |next| next.0.hold != self.0.hold);
        if followed {
            return true;
        }
        course.current = None;
        let before = self.root().flags.fetch_or(SETTLED, AcqRel);
        drop(course);
        self.root().changed.notify_waiters();
        before & TAKEN == 0
    }
    /// The keeper takes it back: the attempt under way, whose hold is not handed out any more. `None`: it has settled.
    pub(crate) fn take_back(&self) -> Option<Self> {
        let course = self.course();
        if self.is(SETTLED) {
            return None;
        }
        self.root().flags.fetch_or(TAKEN, AcqRel);
        Some(course.current.clone().unwrap_or_else(|| self.0.root.clone().unwrap_or_else(|| self.clone())))
    }
    pub(crate) fn is_settled(&self) -> bool {
        self.is(SETTLED)
    }
    pub(crate) async fn settled(&self) {
        self.reached(SETTLED).await;
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        // Nothing under this mutex can panic half-way.
        self.root().course.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn is(&self, flag: u8) -> bool {
        self.root().flags.load(Acquire) & flag != 0
            || flag == STOPPED && self.0.whole.as_ref().is_some_and(|whole| whole.is(STOPPED))
    }
    async fn reached(&self, flag: u8) {
        let mut changed = pin!(self.root().changed.notified());
        let Some(whole) = &self.0.whole else {
            loop {
                changed.as_mut().enable();
                if self.is(flag) {
                    return;
                }
                changed.as_mut().await;
                changed.set(self.root().changed.notified());
            }
        };
        let mut above = pin!(whole.root().changed.notified());
        loop {
            changed.as_mut().enable();
            above.as_mut().enable();
            if self.is(flag) {
                return;
            }
            tokio::select! {
                biased;
                () = changed.as_mut() => changed.set(self.root().changed.notified()),
                () = above.as_mut() => above.set(whole.root().changed.notified()),
            }
        }
    }
}
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({} {:?} {})", self.claim(), self.name().as_str(), self.hold())
    }
}
