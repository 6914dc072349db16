//! What the keeper's runtime does: renewals that are due, and the jobs that others leave to it.
use super::{Heeds, Keeper, Reports};
use crate::{
    adjust::downgrade,
    attempt::PATIENCE,
    clock::Moment,
    error::ErrorKind,
    gate::through,
    hold::{Hold, Life},
    mutants::{Mutant, lives},
    observe::{self, News, Told, Within},
    pauses::Pauses,
    types::{LossReason, Request},
};
use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering::*},
    task::Poll,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};

/// How long one call of ours may take before it is sent again.
const CALL: Duration = Duration::from_secs(1);

type Call<'a, T> = Pin<Box<dyn Future<Output = crate::Result<T>> + Send + 'a>>;

pub(crate) enum Job {
    /// The last writer of a hold is gone, and others of its owner read.
    Downgrade(Arc<Hold>),
    /// A guard was dropped. The span is the release's.
    Release(Arc<Hold>, Told),
    /// Nobody wants this attempt any more. `running`: a task may still end it by itself.
    Undo { request: Request, running: bool, span: Told },
    /// Somebody's future: callers without a runtime.
    Run(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// Closes the engine once everything above is done, says so, and ends the keeper.
    Close(Box<dyn FnOnce() + Send>),
}

impl Job {
    /// Its span is the attempt's, which may be told as over before this is done.
    pub(crate) fn undo(request: Request, running: bool) -> Self {
        let span = observe::span(&request);
        Self::Undo { request, running, span }
    }
}
impl Keeper {
    /// Until `Close`, or until nobody can send a job any more.
    pub(super) async fn serve(self: Arc<Self>, mut inbox: mpsc::UnboundedReceiver<Job>) {
        let attend = tokio::spawn(through(self.gate.clone(), self.clone().attend()));
        let mut mending = JoinSet::new();
        let mut others = JoinSet::new();
        // Those that stay taken for a while (`at_least`). When the client ends, their leases run out by themselves.
        let mut late = JoinSet::new();
        let mut closing = Vec::new();
        let mut news = self.losses.news().unwrap_or_else(|| mpsc::unbounded_channel().1);
        let mut open = true;
        loop {
            if mending.is_empty() && !closing.is_empty() {
                // What was dropped meanwhile is in the inbox; nothing comes after this.
                inbox.close();
            }
            if mending.is_empty() && !open {
                break;
            }
            let alarm = self.renewals.alarm(self.clock.now());
            tokio::select! {
                biased;
                () = self.nap(alarm) => self.renew_due(&mut others),
                () = self.renewals.earlier.notified() => {}
                _ = mending.join_next(), if !mending.is_empty() => {}
                _ = others.join_next(), if !others.is_empty() => {}
                _ = late.join_next(), if !late.is_empty() => {}
                Some(word) = news.recv() => self.tell(&mut others, word),
                job = inbox.recv(), if open => match job {
                    Some(Job::Downgrade(hold)) => {
                        let keeper = self.clone();
                        // Not done, it stays a writer's: that lets in fewer, not more.
                        self.run_in(&mut others, async move { drop(downgrade(&keeper, &hold).await) });
                    },
                    Some(Job::Release(hold, span)) => {
                        let until = if hold.not_before() > self.clock.now() { &mut late } else { &mut mending };
                        self.run_in(until, Within::new(span, self.clone().release(hold)));
                    }
                    Some(Job::Undo { request, running, span }) => {
                        self.run_in(&mut mending, Within::new(span, self.clone().undo(request, running)));
                    }
                    Some(Job::Run(future)) => self.run_in(&mut others, future),
                    Some(Job::Close(done)) => {
                        closing.push(done);
                        self.closing.store(true, Release);
                    }
                    None => open = false,
                },
            }
        }
        attend.abort();
        // The engine ends its sessions now: that is told first. A lease runs out by itself.
        for hold in self.losses.holds(|hold| !hold.is_own()) {
            self.losses.lose(hold.grant.hold, LossReason::SessionEnded);
        }
        let mut last = JoinSet::new();
        while let Ok(word) = news.try_recv() {
            self.tell(&mut last, word);
        }
        while last.join_next().await.is_some() {}
        let _ = timeout(CALL, self.engine.close()).await;
        closing.into_iter().for_each(|done| done());
    }
    pub(super) async fn nap(&self, alarm: Option<Moment>) {
        match alarm {
            Some(at) => sleep(self.clock.now().until(at)).await,
            None => std::future::pending().await,
        }
    }
    /// In a task: what listens is foreign code, and may panic.
    fn tell(self: &Arc<Self>, tasks: &mut JoinSet<()>, word: News) {
        let keeper = self.clone();
        // Beside the gate: who watches changes nothing of the order of our own work.
        tasks.spawn(async move { observe::tell(&keeper, &word) });
    }
    fn renew_due(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let due = self.renewals.due(self.clock.now());
        for chunk in due.chunks(self.engine.info().capabilities.renew_batch.max(1)) {
            self.run_in(tasks, self.clone().renew(chunk.to_vec()));
        }
    }
    fn run_in(&self, tasks: &mut JoinSet<()>, task: impl Future<Output = ()> + Send + 'static) {
        tasks.spawn(through(self.gate.clone(), task));
    }
    async fn attend(self: Arc<Self>) {
        let reports = Reports(Heeds::Keeper(self.clone()));
        let mut pauses = Pauses::long();
        loop {
            let started = self.clock.now();
            let mut run = pin!(self.engine.run(&reports));
            // An engine is foreign code: one that panics is begun anew, or nobody would hear of what is taken away, nor get his turn.
            let ended = poll_fn(|cx| {
                let polled = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx)));
                polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
            });
            if ended.await.is_some_and(|ended| ended.is_err_and(|e| e.kind() == ErrorKind::Closed)) {
                return;
            }
            if started.until(self.clock.now()) > Duration::from_secs(10) {
                pauses = Pauses::long();
            }
            sleep(pauses.next()).await;
            reports.send(crate::Event::Recheck);
        }
    }

    /// Until it is answered, or the engine has ended the lease by itself; with a session it does not while that lives.
    async fn release(self: Arc<Self>, hold: Arc<Hold>) {
        if hold.not_before() > Moment::ZERO {
            sleep(self.clock.now().until(hold.not_before())).await;
        }
        let deadline = (self.clock.now() + hold.grant.ttl).max(hold.ends_by());
        let enough = || self.clock.now() >= deadline && (!hold.in_session() || self.closing.load(Acquire));
        let grant = hold.grant_now();
        let answer =
            self.insist(enough, || Box::pin(observe::timed(&self, "release", self.engine.release(&grant)))).await;
        observe::released(&self, &hold, answer.as_ref().ok_or(None));
    }
    /// After a loss by the clock: a renewal that was on its way may have extended what nobody holds any more, and would lock
    /// everybody out (SAFETY G4). Not before the end of the lease that its holder knew of: until then he may still be winding up.
    pub(super) fn lapsed(self: Arc<Self>, hold: Arc<Hold>) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let lapsed = matches!(hold.life(), Life::Lost(LossReason::Expired | LossReason::Unreachable));
        (lapsed && !lives(Mutant::NoReleaseAfterLapse)).then(|| {
            Box::pin(async move {
                sleep(self.clock.now().until(hold.known_end())).await;
                let span = observe::releasing(&self, &hold);
                Within::new(span, self.release(hold)).await;
            }) as _
        })
    }
    /// *Invariant (SAFETY A3):* it ends only when the attempt has settled by itself, or when a withdrawal was answered that was
    /// sent after the end of the attempt's last command.
    async fn undo(self: Arc<Self>, request: Request, running: bool) {
        if running && timeout(PATIENCE, request.settled()).await.is_ok() {
            return;
        }
        // It does not change any more after a stop.
        let request = if running { request.take_back() } else { Some(request) };
        let Some(request) = request else { return };
        observe::left_to_keeper(&request);
        loop {
            // What counts is when it was sent: one that was answered after the end may have overtaken a command all the same.
            let sent_at = self.clock.now();
            self.withdraw(&request).await;
            if sent_at > request.ends() || lives(Mutant::UndoBeforeAttempt) {
                break;
            }
            sleep(self.clock.now().until(request.ends()) + Duration::from_millis(1)).await;
        }
        self.losses.forget(request.hold());
        request.settle();
    }
    async fn withdraw(&self, request: &Request) {
        let deadline = self.clock.now() + request.ttl().max(CALL);
        let enough = || self.clock.now() >= deadline && (!self.in_session() || self.closing.load(Acquire));
        let call = || Box::pin(observe::timed(self, "withdraw", self.engine.withdraw(request))) as Call<'_, ()>;
        self.insist(enough, call).await;
    }
    /// `None`: it was not answered.
    async fn insist<'a, T>(&self, enough: impl Fn() -> bool, call: impl Fn() -> Call<'a, T>) -> Option<T> {
        let mut pauses = Pauses::long();
        loop {
            match timeout(CALL, call()).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(e)) if e.kind() == ErrorKind::Closed => return None,
                _ if enough() => return None,
                _ => {}
            }
            sleep(pauses.next()).await;
        }
    }
}
