//! From `lock()` to a guard: check, turn, engine call, undo. One path: nobody can forget a step.
use crate::{
    blocking::runtime,
    claimed::Claimed,
    client::Core,
    clock::Moment,
    engine::lacks,
    error::{Error, ErrorKind, Result},
    gate::through,
    guard::Held,
    hold::{Hold, Since},
    keeper::Job,
    locks::Owner,
    mutants::{Mutant, lives},
    observe::{self, Acquiring, Within},
    pauses::Pauses,
    turns::{Entry, Turn},
    types::{Busy, Claim, Grant, Lease, LossReason, Missing, Outcome, Renewed, Request},
};
use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    pin::{Pin, pin},
    sync::{Arc, atomic::AtomicU64},
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::oneshot;

/// How long the reply in flight is waited for when nobody wants the attempt any more: an engine that does not answer keeps
/// neither a caller whose patience is over nor those who wait behind him.
pub(crate) const LAST_REPLY: Duration = Duration::from_secs(1);

/// How long an abandoned attempt may take to end by itself (SAFETY A3).
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

/// How long an attempt that does not wait is ready to hear nothing (SAFETY E8).
pub(crate) const ANSWER: Duration = Duration::from_secs(6);

/// Got it, or who is in the way: trouble is the outer `Result`, this is an answer. `.ok()` makes an `Option` of it, `?` an
/// error that names the holder.
pub type Try<G> = std::result::Result<G, Busy>;

pub(crate) type Answer = Result<Try<Held>>;
pub(crate) type Attempt = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The future of a hold. Nothing is sent before it is polled. While its first command is on the way it is polled in place;
/// when it has to queue it becomes a task of the runtime, so that a caller who does not poll stops nobody.
///
/// # Cancel safety
/// Dropping it withdraws: a grant that was on the way is released and a place in the queue is given up, even if this runtime
/// never runs again. One that is neither polled nor dropped keeps its place, and what it was granted: poll it or drop it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::{sync::Arc, time::Duration};
/// # use fencelock_core::{Client, memory::MemoryEngine};
/// # let client = Client::builder(Arc::new(MemoryEngine::new())).build()?;
/// let guard = client.mutex("orders/42").note("shipping").lock().await?;
/// let mut wait = client.mutex("orders/42").lock();
/// let _ = tokio::time::timeout(Duration::from_millis(20), &mut wait).await;
/// println!("still {}", wait.blocked_by().expect("somebody holds it"));
/// drop(wait);     // withdrawn
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<A> {
    core: Arc<Core>,
    stage: Stage,
    /// Where somebody watches.
    seen: Option<Acquiring>,
    answer: PhantomData<fn() -> A>,
}
enum Stage {
    Refused(Error),
    New(Request, Option<Duration>, Option<Owner>),
    Here(Request, Attempt),
    Task(Request, oneshot::Receiver<Answer>),
    Done,
}

impl<A> Acquire<A> {
    pub(crate) fn new(
        core: Arc<Core>,
        request: Result<Request>,
        patience: Option<Duration>,
        owner: Option<Owner>,
    ) -> Self {
        let stage = request.map_or_else(Stage::Refused, |request| Stage::New(request, patience, owner));
        Self { core, stage, seen: None, answer: PhantomData }
    }
    /// Who is in the way and how many are ahead, as far as the engine told; `stale`, while it does not answer (of a quorum only to
    /// those who come again). Ask while it waits.
    pub fn blocked_by(&self) -> Option<Busy> {
        match &self.stage {
            Stage::New(request, ..) | Stage::Here(request, _) | Stage::Task(request, _) => request.last_report(),
            Stage::Refused(_) | Stage::Done => None,
        }
    }
    fn begin(&self, request: Request, patience: Option<Duration>, owner: Option<Owner>) -> Result<Stage> {
        self.core.ready("lock")?;
        check(&self.core, &request)?;
        if let Some(owner) = &owner {
            owner.check(&self.core)?;
        }
        let attempt = attempt(self.core.clone(), request.clone(), patience, owner);
        let attempt: Attempt = if self.seen.is_some() {
            Box::pin(Within::new(observe::span(&request), attempt))
        } else {
            Box::pin(attempt)
        };
        if runtime().is_some() {
            return Ok(Stage::Here(request, attempt));
        }
        let (tx, rx) = oneshot::channel();
        self.core.host.job(Job::Run(Box::pin(deliver(attempt, tx))));
        Ok(Stage::Task(request, rx))
    }
}
/// The guard is sent, not the grant: if the caller is gone it comes back here and drops, and the lock is released.
async fn deliver(attempt: Attempt, tx: oneshot::Sender<Answer>) {
    let _ = tx.send(attempt.await);
}

impl<A: Claimed> Future for Acquire<A> {
    type Output = Result<A>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match std::mem::replace(&mut this.stage, Stage::Done) {
                Stage::Refused(error) => return Poll::Ready(Err(error)),
                Stage::New(request, patience, owner) => {
                    this.seen = observe::acquiring(&this.core, &request);
                    match this.begin(request, patience, owner) {
                        Ok(stage) => this.stage = stage,
                        Err(error) => return Poll::Ready(this.answered(Err(error))),
                    }
                }
                Stage::Here(request, mut attempt) => {
                    if let Poll::Ready(answer) = attempt.as_mut().poll(cx) {
                        return Poll::Ready(this.answered(answer));
                    }
                    if !request.is_queued() {
                        this.stage = Stage::Here(request, attempt);
                        return Poll::Pending;
                    }
                    let (tx, rx) = oneshot::channel();
                    let task = deliver(attempt, tx);
                    match runtime() {
                        Some(runtime) => drop(runtime.spawn(through(this.core.keeper().gate.clone(), task))),
                        None => this.core.host.job(Job::Run(Box::pin(task))),
                    }
                    this.stage = Stage::Task(request, rx);
                }
                Stage::Task(request, mut rx) => {
                    let Poll::Ready(answer) = Pin::new(&mut rx).poll(cx) else {
                        this.stage = Stage::Task(request, rx);
                        this.seen.iter_mut().for_each(Acquiring::queued);
                        return Poll::Pending;
                    };
                    return Poll::Ready(this.answered(answer.unwrap_or_else(|_| Err(Error::closed("lock")))));
                }
                Stage::Done => panic!("an Acquire was polled after it was ready"),
            }
        }
    }
}
impl<A: Claimed> Acquire<A> {
    fn answered(&mut self, answer: Answer) -> Result<A> {
        if let Some(seen) = self.seen.take() {
            seen.answered(&answer);
        }
        A::from_held(answer)
    }
}
impl<A> Drop for Acquire<A> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Refused(_) | Stage::New(..) | Stage::Done => {}
            Stage::Here(request, attempt) => {
                request.stop();
                // It takes the reply that is on its way: here, where its timers and sockets live. Without a runtime, or when that
                // ends, dropping the attempt posts its undo.
                if let Some(runtime) = runtime() {
                    let ends = async move { drop(tokio::time::timeout(PATIENCE, attempt).await) };
                    runtime.spawn(through(self.core.keeper().gate.clone(), ends));
                }
                self.abandon(request);
            }
            Stage::Task(request, _) => {
                request.stop();
                self.abandon(request);
            }
        }
    }
}
impl<A> Acquire<A> {
    /// A task ends it, or the keeper does.
    fn abandon(&self, request: Request) {
        if !request.is_settled() {
            self.core.host.job(Job::undo(request, true));
        }
    }
}
impl<A> Unpin for Acquire<A> {}
impl<A> fmt::Debug for Acquire<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stage {
            Stage::New(request, ..) | Stage::Here(request, _) | Stage::Task(request, _) => {
                write!(f, "Acquire({request:?})")
            }
            Stage::Refused(error) => write!(f, "Acquire({error:?})"),
            Stage::Done => f.write_str("Acquire(done)"),
        }
    }
}

/// What the engine cannot do is refused before any byte is sent.
pub(crate) fn check(core: &Core, request: &Request) -> Result<()> {
    let info = core.engine().info();
    let can = &info.capabilities;
    let refuse = |what: String, way_out: String| {
        Err(Error::new(ErrorKind::InvalidConfig, "lock", what).with("name", request.name()).hint(way_out))
    };
    let ttl = request.ttl();
    if ttl < can.min_ttl || ttl > can.max_ttl {
        let range = format!("{} takes {:?} to {:?}", info.scheme, can.min_ttl, can.max_ttl);
        return refuse(format!("a ttl of {ttl:?} cannot be used"), range);
    }
    if request.max_hold().is_some_and(|d| d.is_zero()) {
        return refuse("a max_hold of zero cannot be used".into(), "leave it out, or give more than zero".into());
    }
    let at_least = request.at_least();
    if at_least > ttl || request.max_hold().is_some_and(|most| at_least > most) {
        let less = format!("at_least of {at_least:?} is longer than its ttl of {ttl:?} or its max_hold");
        return refuse(less, "a crash leaves the lease to run out: it has to be as long".into());
    }
    if let Claim::Permits { take, of } = request.claim()
        && (take == 0 || take > of)
    {
        let range = if of == 0 { "a semaphore has at least one".into() } else { format!("take 1 to {of}") };
        return refuse(format!("{take} of {of} permits cannot be taken"), range);
    }
    let missing = match request.claim() {
        Claim::Mutex => None,
        Claim::Read | Claim::Write => Some(Missing::ReadWrite).filter(|_| !can.read_write),
        Claim::Permits { .. } => Some(Missing::Permits).filter(|_| !can.permits),
    };
    if let Some(missing) = missing {
        let what = format!("locks of the kind {}", request.claim().kind());
        let unable = lacks(&**core.engine(), missing, "lock", &what);
        return Err(unable.with("name", request.name()).hint("use a mutex, or another engine"));
    }
    if request.is_fixed() && !can.fixed_leases {
        let unable = format!("{} has no leases of a fixed length", info.scheme);
        let unable = Error::new(ErrorKind::Unsupported, "lock", unable).with("name", request.name());
        return Err(unable.hint("use max_hold, or another engine"));
    }
    Ok(())
}

/// Armed from before the first byte until nothing is left that a guard does not own.
pub(crate) struct Undo<'a> {
    core: &'a Core,
    request: &'a Request,
    armed: bool,
}
impl<'a> Undo<'a> {
    pub(crate) fn arm(core: &'a Core, request: &'a Request) -> Self {
        core.keeper().losses.expect(request);
        Self { core, request, armed: true }
    }
    /// A guard owns the hold now.
    pub(crate) fn hand_over(mut self) {
        self.armed = false;
    }
    /// The engine has answered that nothing is left.
    pub(crate) fn nothing_left(mut self) {
        self.core.keeper().losses.forget(self.request.hold());
        self.request.settle();
        self.armed = false;
    }
    /// Takes back what there is. Commands that may still have been on their way when this one was sent are left to the
    /// keeper, which comes after them; so is a withdrawal that fails: what the caller is told is why it was withdrawn.
    async fn withdraw(self) {
        let sent_at = self.core.keeper().clock.now();
        let withdraw = observe::timed(self.core.keeper(), "withdraw", self.core.engine().withdraw(self.request));
        let answer = patiently(self.request, withdraw).await;
        if matches!(answer, Some(Ok(()))) && sent_at > self.request.ends() {
            self.nothing_left();
        } else {
            self.leave_to_keeper();
        }
    }
    /// The wait may go on under another hold id: it is not stopped.
    fn leave_to_keeper(mut self) {
        self.core.host.job(Job::undo(self.request.clone(), false));
        self.armed = false;
    }
}
/// *Invariant (SAFETY A3):* stopped before it is withdrawn. Its runtime may be gone with a command still under way, and an engine
/// that asks for the stop as it grants must find it.
impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.request.stop();
            self.core.host.job(Job::undo(self.request.clone(), false));
        }
    }
}

/// The answer of a call about this attempt; `None` if it has not come some time after a stop. The timer is made after the stop
/// only: before it this future may be adopted by the keeper, and its first runtime be gone.
async fn patiently<T>(request: &Request, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    tokio::select! {
        biased;
        answer = &mut call => Some(answer),
        () = request.stopped() => tokio::time::timeout(LAST_REPLY, call).await.ok(),
    }
}

/// *Invariant (SAFETY A3):* from the first byte on either this future runs, or its `Undo` has been posted to the keeper. A
/// request is settled only when neither a record nor a command of it is left that no guard owns.
async fn attempt(core: Arc<Core>, request: Request, patience: Option<Duration>, owner: Option<Owner>) -> Answer {
    // Who does not wait wants an answer: an engine that is silent must not keep it.
    let patience = patience.or((!request.wait()).then_some(ANSWER));
    let deadline = patience.map(|d| core.keeper().clock.now() + d);
    let answer = match owner {
        None => enter(&core, &request, deadline).await,
        // Boxed: every attempt would carry the room for it.
        Some(owner) => Box::pin(owner.enter(&core, &request, deadline)).await,
    };
    told(&core, &request, answer)
}
pub(crate) fn told(core: &Core, request: &Request, answer: Answer) -> Answer {
    match answer {
        Ok(Err(_)) | Err(_) if core.is_closed() => Err(Error::closed("lock")),
        Ok(Err(busy)) => Ok(Err(busy.of(request.name()))),
        answer => answer,
    }
}
/// A hold of its own.
pub(crate) async fn enter(core: &Arc<Core>, request: &Request, deadline: Option<Moment>) -> Answer {
    match turn(core, request, deadline).await {
        Ok(turn) => {
            let answer = claim(core, request, deadline, None).await;
            drop(turn);
            answer
        }
        Err(busy) => {
            request.settle();
            Ok(Err(busy))
        }
    }
}
/// Takes over the hold of `ticket` (SAFETY A5).
pub(crate) async fn adopt(core: &Arc<Core>, request: &Request, ticket: &Grant) -> Answer {
    core.ready("adopt")?;
    check(core, request)?;
    let seen = observe::acquiring(core, request);
    let deadline = core.keeper().clock.now() + ANSWER;
    let answer = Within::new(observe::span(request), claim(core, request, Some(deadline), Some(ticket))).await;
    if let Some(seen) = seen {
        seen.answered(&answer);
    }
    told(core, request, answer)
}
/// The local queue. `try_lock` does not pass those who wait here (SAFETY K2). Those who can hold beside each other do not queue.
async fn turn(core: &Arc<Core>, request: &Request, deadline: Option<Moment>) -> Result<Option<Turn>, Busy> {
    if !request.claim().is_exclusive() {
        return Ok(None);
    }
    let key = (request.name().clone(), request.claim(), request.ttl());
    if !request.wait() {
        let ahead = core.turns.waiting(&key);
        if ahead == 0 {
            return Ok(None);
        }
        let look = observe::timed(core.keeper(), "inspect", core.engine().inspect(request.name()));
        let status = tokio::select! {
            biased;
            () = request.stopped() => None,
            status = look => status.ok(),
            () = tokio::time::sleep(LAST_REPLY) => None,
        };
        let holder = status.and_then(|status| status.holders.into_iter().next());
        return Err(Busy::new(holder, u32::try_from(ahead).ok()));
    }
    match core.turns.enter(key) {
        Entry::Turn(turn) => Ok(Some(turn)),
        Entry::Behind(ahead, rx) => {
            request.queued_here(Busy::new(None, Some(ahead)));
            tokio::select! {
                biased;
                () = request.stopped() => Err(request.last_report().unwrap_or_default()),
                turn = rx => Ok(turn.ok()),
                () = core.nap(deadline) => Err(request.last_report().unwrap_or_default()),
            }
        }
    }
}
/// The engine's answer, to a claim or to the adoption of a ticket. The latter is asked again when a reply is lost, under the
/// same hold id: withdrawn it would be gone for good.
async fn ask(core: &Core, request: &Request, ticket: Option<&Grant>) -> Result<Outcome> {
    let keeper = core.keeper();
    let Some(ticket) = ticket else {
        return observe::asked(keeper, request, core.engine().acquire(request)).await;
    };
    let mut pauses = Pauses::short();
    loop {
        match observe::timed(keeper, "exchange", core.engine().exchange(ticket, request)).await {
            Err(e) if e.is_temporary() && !request.is_stopped() => {}
            answer => return answer,
        }
        tokio::select! {
            biased;
            () = request.stopped() => {}
            () = tokio::time::sleep(pauses.next()) => {}
        }
    }
}
async fn claim(core: &Arc<Core>, request: &Request, deadline: Option<Moment>, ticket: Option<&Grant>) -> Answer {
    let (mut request, mut came_again, mut pauses) = (request.clone(), false, Pauses::short());
    loop {
        let undo = Undo::arm(core, &request);
        // Armed first: a shutdown either finds it among those it stops, or is seen here.
        if core.is_closed() {
            undo.nothing_left();
            return Err(Error::closed("lock"));
        }
        // After a stop the deadline is not polled any more: its runtime may be gone, with this future adopted by the keeper.
        let outcome = {
            let mut acquire = pin!(patiently(&request, ask(core, &request, ticket)));
            tokio::select! {
                biased;
                outcome = &mut acquire => outcome,
                () = request.stopped() => acquire.await,
                () = core.nap(deadline) => { request.stop(); acquire.await }
            }
        };
        let Some(outcome) = outcome else {
            return request.last_report().map_or_else(|| Err(mute(core, &request)), |busy| Ok(Err(busy)));
        };
        match outcome {
            Ok(Outcome::Granted(grant)) => {
                core.floors.saw(&grant);
                // A closed client renews nothing. Lost on its way here: as if it had never been.
                if core.is_closed() {
                    undo.withdraw().await;
                    return Err(Error::closed("lock"));
                }
                match admit(core, &request, grant).await? {
                    Ok(held) => {
                        undo.hand_over();
                        if request.settle() {
                            return Ok(Ok(held));
                        }
                        return Ok(Err(request.last_report().unwrap_or_default()));
                    }
                    // The next one would fare no better.
                    Err(LossReason::MaxHold) => {
                        undo.withdraw().await;
                        let d = request.max_hold().unwrap_or_default();
                        let over = format!("a max_hold of {d:?} was over before the lock was in hand");
                        let over = Error::new(ErrorKind::InvalidConfig, "lock", over).with("name", request.name());
                        return Err(over.hint("give more"));
                    }
                    Err(_) => undo.withdraw().await,
                }
            }
            // After a stop the engine has not looked, and an earlier command of it may have had its effect.
            Ok(Outcome::Busy(busy)) if request.wait() || request.is_stopped() => {
                undo.withdraw().await;
                // Who was in the way when it looked for the last time.
                let told = request.last_report().unwrap_or_default();
                let busy = if busy.holder.is_some() { Busy { stale: told.stale, ..busy } } else { told };
                return if request.wait() { Ok(Err(busy)) } else { Err(mute(core, &request)) };
            }
            Ok(Outcome::Busy(busy)) => {
                undo.nothing_left();
                return Ok(Err(busy));
            }
            Ok(Outcome::Displaced) => undo.withdraw().await,
            // Whoever has waited waits over an outage (SAFETY E8), also where it meets him as he comes again.
            Err(error) if came_again && request.wait() && error.is_temporary() && !request.is_stopped() => {
                request.cut_off();
                undo.leave_to_keeper();
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            biased;
            () = request.stopped() => {}
            () = core.nap(deadline) => {
                request.stop();
            }
            () = tokio::time::sleep(pauses.next()) => {}
        }
        came_again = true;
        match request.again(core.minter.mint(), core.floors.of(request.name())) {
            Some(next) => request = next,
            None => {
                request.settle();
                return Ok(Err(request.last_report().unwrap_or_default()));
            }
        }
    }
}
pub(crate) fn mute(core: &Core, request: &Request) -> Error {
    let mute = Error::new(ErrorKind::Unreachable, "lock", "the engine does not answer");
    mute.with("name", request.name()).with("engine", &core.engine().info().endpoint)
}
/// From a grant to a hold with its timers set.
pub(crate) async fn admit(core: &Arc<Core>, request: &Request, grant: Grant) -> Result<Result<Held, LossReason>> {
    let (keeper, info) = (core.keeper(), core.engine().info());
    let since = match grant.lease {
        Lease::Own { sent_at } => Since::Own(AtomicU64::new(sent_at.as_nanos())),
        Lease::Session(id) => {
            let session = keeper.session(id);
            if lives(Mutant::SessionFromAcquire) {
                session.alive(keeper.clock.now());
            }
            Since::Session(session)
        }
    };
    let clock = keeper.clock.clone();
    let hold = Arc::new(Hold::new(grant, since, request, &info.capabilities, clock));
    // What has less than half of its ttl left is renewed before it is handed out (SAFETY G3).
    let (mut tries, mut now) = (0, keeper.clock.now());
    while now.until(hold.sent_and(hold.grant.ttl)) < hold.grant.ttl / 2 {
        if tries == 3 {
            let slow = Error::new(ErrorKind::Unreachable, "lock", "the engine answers more slowly than half the ttl");
            return Err(slow
                .with("name", &hold.grant.name)
                .with("ttl", format!("{:?}", hold.grant.ttl))
                .hint("use a longer ttl"));
        }
        tries += 1;
        if !hold.is_own() {
            // It is renewed by its session's next heartbeat, or ends with it.
            tokio::select! {
                biased;
                () = request.stopped() => return Ok(Err(LossReason::Unreachable)),
                () = hold.renewed() => {}
                () = core.nap(Some(hold.valid_until())) => return Ok(Err(LossReason::SessionEnded)),
            }
            now = keeper.clock.now();
            continue;
        }
        let renew = core.engine().renew(std::slice::from_ref(&hold.grant));
        let Some(answers) = patiently(request, observe::timed(keeper, "renew", renew)).await else {
            return Ok(Err(LossReason::Unreachable));
        };
        let answer = answers?.first().copied().unwrap_or(Renewed::Unknown);
        observe::renewed(keeper, None, answer);
        match answer {
            Renewed::Extended { sent_at } => hold.rebase(sent_at),
            Renewed::Lost(reason) => return Ok(Err(reason)),
            Renewed::Unknown => {}
        }
        now = keeper.clock.now();
    }
    if let Err(reason) = keeper.losses.admit(&hold, now) {
        return Ok(Err(reason));
    }
    keeper.tend(&hold);
    let held = Held::new(core.clone(), hold.clone());
    observe::granted(keeper, request, &hold, now);
    Ok(Ok(held))
}
