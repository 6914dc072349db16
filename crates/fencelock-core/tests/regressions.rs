//! Story: what once went wrong, each by itself: the smallest history that shows it, step by step on paused time. Nothing here
//! is drawn from a seed, so that a change of the simulator's plan hides none of it.
//!
//! Planted to see it red: a `Keeper::undo` that is over when a withdrawal is answered after the end; in the memory engine
//! `max_hold` without `ago`, a confirm that leaves `since` as it is, the heartbeat that sleeps `ttl / 3` from its answer on, writes
//! that are forgotten but for the last, the kind asked before the nonce; a session's `max_hold` without the drift; `before_beat`
//! left out, and one whose losses are not kept for `look`; a `remaining` that reads the clock first; an `Undo::withdraw` whose error
//! is returned, by all and by the displaced wait alone; a `detach` that asks `entries` and does not `close`; a sign of life once a
//! second whatever the ttl.
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use async_trait::async_trait;
use common::*;
use fencelock_core::{
    Chaos, Client, Clock, Engine, EngineInfo, ErrorKind, Event, Gate, Grant, HoldId, Lease, Listing, LossReason,
    Moment, Name, Operation, Outcome, Page, Released, Renewed, Reports, Request, Result, SessionId, Status, Token,
    TokioClock, Trouble,
    memory::{Link, MemoryEngine, MemoryServer},
};
use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{runtime::Handle, time::sleep};

/// What a test plays of an engine; the rest is the memory engine's.
#[async_trait]
trait Part: Send + Sync + 'static {
    async fn acquire(&self, inner: &MemoryEngine, request: &Request) -> Result<Outcome> {
        inner.acquire(request).await
    }
    async fn withdraw(&self, inner: &MemoryEngine, request: &Request) -> Result<()> {
        inner.withdraw(request).await
    }
    async fn run(&self, inner: &MemoryEngine, reports: &Reports) -> Result<()> {
        inner.run(reports).await
    }
}
struct Played<P> {
    inner: MemoryEngine,
    part: P,
}
impl<P> fmt::Debug for Played<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
#[async_trait]
impl<P: Part> Engine for Played<P> {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        self.part.acquire(&self.inner, request).await
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        self.part.withdraw(&self.inner, request).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        self.inner.renew(grants).await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        self.inner.release(grant).await
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        self.part.run(&self.inner, reports).await
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        self.inner.inspect(name).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.inner.list(prefix, page).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        self.inner.force_release(name, token).await
    }
}

/// A store behind a slow line, with holds that never end by themselves.
struct SlowLine {
    clock: Arc<dyn Clock>,
    held: Arc<Mutex<Vec<HoldId>>>,
    ends: Mutex<Option<Moment>>,
    /// When withdrawals were sent and answered.
    withdrawn: Mutex<Vec<(Moment, Moment)>>,
}
#[async_trait]
impl Part for SlowLine {
    /// Arrives shortly before its end, and is not answered.
    async fn acquire(&self, _: &MemoryEngine, request: &Request) -> Result<Outcome> {
        let ends = request.open(self.clock.now(), SEC / 2).unwrap();
        *self.ends.lock().unwrap() = Some(ends);
        let (held, hold) = (self.held.clone(), request.hold());
        tokio::spawn(async move {
            sleep(450 * MS).await;
            held.lock().unwrap().push(hold);
        });
        std::future::pending().await
    }
    /// Arrives at once, on another connection, and is answered late.
    async fn withdraw(&self, _: &MemoryEngine, request: &Request) -> Result<()> {
        let sent_at = self.clock.now();
        self.held.lock().unwrap().retain(|hold| *hold != request.hold());
        sleep(300 * MS).await;
        self.withdrawn.lock().unwrap().push((sent_at, self.clock.now()));
        Ok(())
    }
}
/// SAFETY A3. The command that was overtaken left a hold that nobody had, for a whole ttl (seed 5860 then).
#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_was_sent_before_the_end_and_answered_after_it_is_not_the_last() {
    let (clock, server) = paused();
    let (held, ends, withdrawn) = (Arc::default(), Mutex::default(), Mutex::default());
    let part = SlowLine { clock: clock.clone(), held, ends, withdrawn };
    let engine = Arc::new(Played { inner: MemoryEngine::on(server), part });
    let (client, part) = (here(engine.clone(), &clock), &engine.part);
    let mut lock = client.mutex("x").lock();
    assert!(once(&mut lock).await.is_none(), "its command is on the way");
    drop(lock);
    sleep(SEC).await;
    let (ends, first) = (part.ends.lock().unwrap().unwrap(), part.withdrawn.lock().unwrap()[0]);
    assert!(first.0 < ends && ends < first.1, "the history: {ends:?}, {first:?}");
    sleep(SEC).await;
    assert_eq!(*part.held.lock().unwrap(), [], "the command came after the last withdrawal");
}

/// The reply of the first acquire is lost, and it is sent again so late.
struct LateRepeat(Duration, AtomicBool);
#[async_trait]
impl Part for LateRepeat {
    async fn acquire(&self, inner: &MemoryEngine, request: &Request) -> Result<Outcome> {
        let outcome = inner.acquire(request).await?;
        if self.1.swap(true, SeqCst) {
            return Ok(outcome);
        }
        sleep(self.0).await;
        inner.acquire(request).await
    }
}
/// A hold of a session with a `max_hold`, and another client that waits for it: the loss is told before the next grant.
async fn told_before_the_next_grant(
    clock: Arc<dyn Clock>,
    server: Arc<MemoryServer>,
    max_hold: Duration,
    repeated: Duration,
) {
    let part = LateRepeat(repeated, AtomicBool::new(repeated.is_zero()));
    let inner = MemoryEngine::on(server.clone()).clock(clock.clone()).with_session(3 * SEC);
    let a = here(Arc::new(Played { inner, part }), &clock);
    let b = here(Arc::new(MemoryEngine::on(server).clock(clock.clone())), &clock);
    let guard = a.mutex("x").max_hold(max_hold).lock().await.unwrap();
    let (lost, now) = (guard.lost(), clock.clone());
    let told = tokio::spawn(async move { (lost.await, now.now()) });
    let next = within("the next grant", 2 * max_hold + LONG, b.mutex("x").lock()).await.unwrap();
    let taken = clock.now();
    assert!(!guard.is_valid(), "two hold it, for {:?}", guard.remaining());
    let (reason, told) = within("told", MS, told).await.unwrap();
    assert!(reason == LossReason::MaxHold && told < taken, "{reason:?} {:?} late", taken.until(told));
    assert!(next.token() > guard.token());
}
/// SAFETY G5. Where a session keeps it alive, the record ends `max_hold` and a ttl after the grant. Core counted from the
/// repeat that was answered, more than a ttl later: two held for 59 ms (seed 89605 then).
#[tokio::test(start_paused = true)]
async fn max_hold_in_a_session_does_not_count_from_a_late_repeat() {
    let (clock, server) = paused();
    told_before_the_next_grant(clock, server, 5 * SEC, 6 * SEC).await;
}
/// SAFETY G3, G5. The same by a store whose clock goes as much faster as it may: a ttl is less than the drift of a long `max_hold`.
#[tokio::test(start_paused = true)]
async fn max_hold_in_a_session_is_told_by_the_slower_clock() {
    #[derive(Debug)]
    struct Fast(Arc<dyn Clock>);
    impl Clock for Fast {
        fn now(&self) -> Moment {
            let now = self.0.now().as_nanos();
            Moment::from_nanos(now + now / 100)
        }
    }
    let (clock, _) = paused();
    let server = MemoryServer::new(Arc::new(Fast(clock.clone())));
    told_before_the_next_grant(clock, server, 600 * SEC, Duration::ZERO).await;
}

/// A session whose heartbeats are answered when the test says so. The records of its holds last longer than they have to.
struct Heart {
    clock: Arc<dyn Clock>,
    reports: Mutex<Option<Reports>>,
    /// An attempt says nothing of its session, and is answered when others have.
    late: AtomicBool,
}
impl Heart {
    const SESSION: SessionId = SessionId(1);
    const TTL: Duration = Duration::from_secs(30);

    fn engine(clock: &Arc<dyn Clock>, server: Arc<MemoryServer>) -> Arc<Played<Self>> {
        let part = Self { clock: clock.clone(), reports: Mutex::default(), late: AtomicBool::new(false) };
        Arc::new(Played { inner: MemoryEngine::on(server).default_ttl(LONG), part })
    }
    fn answer(&self, sent_at: Moment) {
        if let Some(reports) = &*self.reports.lock().unwrap() {
            reports.send(Event::SessionAlive { session: Self::SESSION, sent_at });
        }
    }
}
#[async_trait]
impl Part for Heart {
    async fn acquire(&self, inner: &MemoryEngine, request: &Request) -> Result<Outcome> {
        soon("it runs", 10 * SEC, || self.reports.lock().unwrap().is_some()).await;
        if self.late.load(SeqCst) {
            sleep(Self::TTL).await;
        } else {
            self.answer(self.clock.now());
        }
        match inner.acquire(request).await? {
            Outcome::Granted(grant) => {
                let lease = Lease::Session(Self::SESSION);
                Ok(Outcome::Granted(Grant { lease, ttl: Self::TTL, ..grant }))
            }
            other => Ok(other),
        }
    }
    async fn run(&self, _: &MemoryEngine, reports: &Reports) -> Result<()> {
        *self.reports.lock().unwrap() = Some(reports.clone());
        std::future::pending().await
    }
}
/// SAFETY G4. The first thing that a process hears after a pause is the answer of a heartbeat that it had sent before: it made a
/// hold good again that had said it was lost (seed 2527 then).
#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_is_answered_after_a_pause_revives_nothing() {
    let (clock, server) = paused();
    let (engine, gate) = (Heart::engine(&clock, server.clone()), Gate::default());
    let builder = Client::builder(engine.clone()).clock(clock.clone()).keeper_here().gate(gate.clone());
    let client = builder.build().unwrap();
    let guard = client.mutex("x").lock().await.unwrap();
    sleep(10 * SEC).await;
    gate.shut();
    let sent_at = clock.now();
    sleep(25 * SEC).await;
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    engine.part.answer(sent_at);
    assert!(!guard.is_valid(), "revived, with {:?} left", guard.remaining());
    assert_eq!(once(&mut Box::pin(guard.lost())).await, Some(LossReason::Expired));
    gate.open();
    sleep(SEC).await;
    assert!(!guard.is_valid() && guard.remaining().is_zero() && client.held() == 0);
    // It is looked after like every loss by the clock: the record would be there for a minute.
    assert_eq!(server.census(), (1, 0), "before the end of its ttl the old holder may still be winding up");
    sleep(8 * SEC).await;
    assert_eq!(server.census(), (0, 0));
}

/// What it does by itself panics twice.
struct Panics(AtomicU64);
#[async_trait]
impl Part for Panics {
    async fn run(&self, inner: &MemoryEngine, reports: &Reports) -> Result<()> {
        let before = self.0.fetch_add(1, SeqCst);
        assert!(before >= 2, "a panic of the engine's, on purpose");
        inner.run(reports).await
    }
}
/// An engine that panics in the background is begun anew: whoever waits gets his turn, and what is taken away is told. (Red: it ends for good.)
#[tokio::test(start_paused = true)]
async fn an_engine_that_panics_is_begun_anew() {
    let (clock, server) = paused();
    let engine = Arc::new(Played { inner: MemoryEngine::on(server), part: Panics(AtomicU64::new(0)) });
    let client = here(engine.clone(), &clock);
    let held = client.mutex("x").lock().await.unwrap();
    let next = tokio::spawn(client.mutex("x").ttl(9 * SEC).lock());
    sleep(SEC).await;
    held.release().await.unwrap();
    let held = tokio::time::timeout(20 * SEC, next).await.unwrap().unwrap().unwrap();
    client.force_release("x", held.token()).await.unwrap();
    assert_eq!(tokio::time::timeout(20 * SEC, held.lost()).await.unwrap(), LossReason::TakenOver);
    assert_eq!(engine.part.0.load(SeqCst), 3);
}

/// SAFETY G3. A session each of whose heartbeats is answered late, and the next one in time before it ends: nothing of it is ever fresh
/// enough to be handed out, and it never ends. Whoever asked waited for ever, with the lock in his hand that nobody else could get.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_always_late_is_told_and_nothing_stays_behind() {
    let (clock, server) = paused();
    let engine = Heart::engine(&clock, server.clone());
    let client = Client::builder(engine.clone()).clock(clock.clone()).keeper_here().build().unwrap();
    engine.part.late.store(true, SeqCst);
    let beats = async {
        loop {
            let sent_at = clock.now();
            let engine = engine.clone();
            tokio::spawn(async move {
                sleep(Heart::TTL * 2 / 3).await;
                engine.part.answer(sent_at);
            });
            sleep(Heart::TTL / 10).await;
        }
    };
    let lock = async { client.mutex("x").lock().await };
    let error = tokio::select! {
        error = lock => error.unwrap_err(),
        () = beats => unreachable!("they go on"),
        () = sleep(10 * Heart::TTL) => panic!("nobody tells it"),
    };
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("slowly"), "{error}");
    sleep(SEC).await;
    assert_eq!((client.held(), server.census()), (0, (0, 0)), "nothing stays behind");
}

/// SAFETY G2, G5. A waiter whose wake-up is lost finds out by itself that it was handed the lock. Counted from the hand-over its
/// hold was half over by then, and it went to the back of the queue.
#[tokio::test(start_paused = true)]
async fn what_was_handed_over_is_held_from_its_confirm_on() {
    let (clock, server) = paused();
    server.lose_pushes(1.0, 0);
    let client = || here(Arc::new(MemoryEngine::on(server.clone())), &clock);
    let (a, b, c) = (client(), client(), client());
    let wait = |client: &Client| tokio::spawn(client.mutex("x").ttl(3 * SEC / 2).max_hold(LONG).lock());
    let guard = a.mutex("x").lock().await.unwrap();
    // They look once a second, half a second apart.
    let first = wait(&b);
    sleep(SEC / 2).await;
    let second = wait(&c);
    sleep(550 * MS).await;
    assert_eq!(server.census(), (1, 2));
    guard.release().await.unwrap();
    assert_eq!(server.census(), (1, 1), "handed over, and nobody knows");
    let next = tokio::select! {
        biased;
        next = first => next.unwrap().unwrap(),
        _ = second => panic!("who came later has passed"),
    };
    let status = a.inspect("x").await.unwrap();
    let [holder] = &status.holders[..] else { panic!("{status:?}") };
    assert!(holder.hold == next.id() && holder.held_for < 10 * MS, "{holder:?}");
    next.check().unwrap();
}

/// Its process is stopped in the moment in which its next command is sent.
struct Stopped {
    gate: Gate,
    armed: AtomicBool,
}
#[async_trait]
impl Part for Stopped {
    async fn run(&self, inner: &MemoryEngine, reports: &Reports) -> Result<()> {
        let mut run = pin!(inner.run(reports));
        poll_fn(|cx| {
            let before = inner.commands();
            let out = run.as_mut().poll(cx);
            if inner.commands() > before && self.armed.swap(false, SeqCst) {
                self.gate.shut();
            }
            out
        })
        .await
    }
}
/// SAFETY G1. A process was stopped with a heartbeat on its way. The next one is due a third of the ttl after that was sent, not
/// after its answer was read: the hold would be nearly over by then.
#[tokio::test(start_paused = true)]
async fn the_heartbeat_after_a_late_answer_is_sent_at_once() {
    let (clock, server) = paused();
    let (ttl, gate) = (30 * SEC, Gate::default());
    let inner = MemoryEngine::on(server).over(Link::new(Handle::current(), MS)).with_session(ttl);
    let engine = Arc::new(Played { inner, part: Stopped { gate: gate.clone(), armed: AtomicBool::new(false) } });
    let builder = Client::builder(engine.clone()).clock(clock.clone()).keeper_here().gate(gate.clone());
    let client = builder.build().unwrap();
    let guard = client.mutex("x").lock().await.unwrap();
    let until = guard.valid_until();
    engine.part.armed.store(true, SeqCst);
    sleep(ttl * 5 / 6).await;
    assert!(!engine.part.armed.load(SeqCst) && guard.valid_until() == until, "stopped, the answer is not read");
    gate.open();
    within("the late answer", 10 * MS, guard.renewed()).await;
    let late = guard.valid_until();
    assert!(until < late && clock.now().until(late) < ttl / 2, "{:?} left", guard.remaining());
    within("the next heartbeat", 10 * MS, guard.renewed()).await;
    assert!(guard.remaining() > ttl - SEC);
}

/// A clock whose reader is interrupted, right after it has read.
struct Interrupted {
    clock: TokioClock,
    ahead: AtomicU64,
    next: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}
impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.clock.fmt(f)
    }
}
impl Clock for Interrupted {
    fn now(&self) -> Moment {
        let now = self.clock.now() + Duration::from_nanos(self.ahead.load(SeqCst));
        let next = self.next.lock().unwrap().take();
        if let Some(interrupt) = next {
            interrupt();
        }
        now
    }
}
/// SAFETY G3. `remaining` read the clock, and then a validity that was renewed in between: so it told more than there ever is.
#[tokio::test(start_paused = true)]
async fn a_renewal_in_between_shows_no_more_time_than_there_is() {
    let clock = Interrupted { clock: TokioClock::start(), ahead: AtomicU64::new(0), next: Mutex::default() };
    let clock = Arc::new(clock);
    let same: Arc<dyn Clock> = clock.clone();
    let engine = Heart::engine(&same, MemoryServer::new(same.clone()));
    let client = here(engine.clone(), &same);
    let guard = client.mutex("x").lock().await.unwrap();
    let (validity, until) = (guard.remaining(), guard.valid_until());
    assert!(validity < Heart::TTL);
    let (later, part) = (clock.clone(), engine.clone());
    *clock.next.lock().unwrap() = Some(Box::new(move || {
        later.ahead.store(10_000_000_000, SeqCst);
        part.part.answer(later.now());
    }));
    let left = guard.remaining();
    assert_eq!(guard.valid_until(), until + 10 * SEC, "it was renewed in between");
    assert!(left <= validity, "{left:?} left of {validity:?}");
    assert_eq!(guard.remaining(), validity);
}

/// What a caller is told is why the attempt was withdrawn, and not that the withdrawal failed; a wait that has to begin anew
/// begins anew. The keeper withdraws until it is done.
#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_fails_hides_no_answer() {
    let (clock, server) = paused();
    let a = here(Arc::new(MemoryEngine::on(server.clone())), &clock);
    let chaos = Arc::new(Chaos::new(Arc::new(MemoryEngine::on(server.clone()))));
    let b = here(chaos.clone(), &clock);
    let held = a.mutex("x").lock().await.unwrap();
    chaos.next(Operation::Withdraw, 1, Trouble::Fail);
    let busy = b.mutex("x").try_lock_for(SEC).await.unwrap().unwrap_err();
    assert_eq!(busy.holder.map(|holder| holder.hold), Some(held.id()));
    sleep(SEC).await;
    assert_eq!((server.census(), chaos.calls(Operation::Withdraw)), ((1, 0), 2), "it is sent again");
    // Its place is gone with the store's memory.
    let wait = tokio::spawn(b.mutex("x").lock());
    sleep(SEC / 2).await;
    assert_eq!(server.census(), (1, 1));
    chaos.next(Operation::Withdraw, 1, Trouble::Fail);
    server.lose_data();
    let next = within("the lock", 5 * SEC, wait).await.unwrap().unwrap();
    next.release().await.unwrap();
    sleep(SEC).await;
    assert_eq!(server.census(), (0, 0));
}

/// SAFETY A4, A5. While a hold becomes a ticket its owner does not enter it any more: two would have what one adopts.
#[tokio::test(start_paused = true)]
async fn what_is_let_go_is_entered_by_nobody() {
    let (clock, server) = paused();
    let chaos = Arc::new(Chaos::new(Arc::new(MemoryEngine::on(server.clone()))));
    let (a, b) = (here(chaos.clone(), &clock), here(Arc::new(MemoryEngine::on(server)), &clock));
    let me = a.owner();
    let mutex = a.mutex("x").reentrant(&me);
    let guard = mutex.lock().await.unwrap();
    // Its last renewal is on the way.
    chaos.next(Operation::Renew, 1, Trouble::Delay(SEC));
    let ticket = tokio::spawn(guard.into_ticket());
    sleep(MS).await;
    assert!(!ticket.is_finished());
    assert!(mutex.try_lock().await.unwrap().is_err(), "entered");
    let ticket = within("the ticket", 5 * SEC, ticket).await.unwrap().unwrap();
    let adopted = b.adopt(&ticket).await.unwrap();
    assert_eq!((me.entries("x"), a.held()), (0, 0));
    adopted.check().unwrap();
}

/// SAFETY A6. The reply of a write is lost, somebody else writes, and the write is sent again: a store that remembers only the
/// last write says `Conflict`, and `update` does it twice. The same when the name has become another kind meanwhile.
#[tokio::test(start_paused = true)]
async fn a_write_that_is_sent_again_is_told_what_the_first_one_did() {
    let (clock, server) = paused();
    let chaos = Arc::new(Chaos::new(Arc::new(MemoryEngine::on(server.clone()))));
    let (a, b) = (here(chaos.clone(), &clock), here(Arc::new(MemoryEngine::on(server)), &clock));
    let one_more = |value: Option<&[u8]>| [value.unwrap_or_default(), b"+"].concat();
    let (mine, theirs) = (a.cell("x"), b.cell("x"));
    chaos.lose_reply(Operation::CompareExchange);
    let update = tokio::spawn(async move { mine.update(one_more).await });
    sleep(MS).await;
    let between = theirs.update(one_more).await.unwrap();
    assert!(!update.is_finished() && between.value.as_deref() == Some(b"++"), "{between:?}");
    let told = within("an answer", SEC, update).await.unwrap().unwrap();
    assert!(told.version < between.version && told.value.as_deref() == Some(b"+"), "{told:?}");
    assert_eq!(theirs.load().await.unwrap(), between, "it was done once");

    let mine = a.cell("x");
    chaos.lose_reply(Operation::CompareExchange);
    let write = tokio::spawn(async move { mine.compare_exchange(between.version, "mine").await });
    sleep(MS).await;
    let written = theirs.load().await.unwrap().version;
    theirs.remove(written).await.unwrap().unwrap();
    let guard = b.mutex("x").lock().await.unwrap();
    assert!(!write.is_finished());
    assert_eq!(within("an answer", SEC, write).await.unwrap().unwrap().unwrap(), written);
    guard.release().await.unwrap();
}

/// Seed 322335: a waiter with a ttl of a second was handed the lock for that second, did not hear of it, looked when it was over, and
/// had to queue anew.
#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_short_ttl_keeps_its_turn_when_the_push_is_lost() {
    // So that the release comes right after a look, too.
    for offset in 0..1_020 {
        let (clock, server) = paused();
        server.lose_pushes(1.0, 7);
        let over = |seed| Link::new(Handle::current(), Duration::from_millis(5)).seed(seed);
        let client = |seed| here(Arc::new(MemoryEngine::on(server.clone()).over(over(seed))), &clock);
        let (a, b, c) = (client(1), client(2), client(3));
        let held = a.mutex("x").lock().await.unwrap();
        let (first, second) = (b.mutex("x").ttl(Duration::from_secs(1)), c.mutex("x"));
        let first = tokio::spawn(async move { first.lock().await.unwrap() });
        sleep(Duration::from_millis(50)).await;
        let second = tokio::spawn(async move { second.lock().await.unwrap() });
        sleep(Duration::from_millis(1_500 + offset)).await;
        held.release().await.unwrap();
        let first = tokio::time::timeout(Duration::from_secs(5), first).await;
        let first =
            first.unwrap_or_else(|_| panic!("overtaken when it was released after 1.5 s and {offset} ms")).unwrap();
        let token = first.token();
        first.release().await.unwrap();
        assert!(second.await.unwrap().token() > token, "{offset}");
    }
}
