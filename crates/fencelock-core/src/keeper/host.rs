//! Where the keeper lives: on two threads of its own, or on the caller's runtime (tests with paused time).
use super::{Bell, Job, Keeper};
use crate::{
    blocking::waits,
    clock::Clock,
    engine::Engine,
    error::{Error, ErrorKind, Result},
    gate::{Gate, through},
    os::Alarm,
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::*},
    },
    thread::{self, ThreadId},
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::{Notify, mpsc},
};

/// How long the last one out waits for what was dropped to be released (SAFETY E5).
const FAREWELL: Duration = Duration::from_millis(250);

type Inbox = Option<mpsc::UnboundedReceiver<Job>>;

pub(crate) struct Host {
    pub(crate) keeper: Arc<Keeper>,
    jobs: mpsc::UnboundedSender<Job>,
    /// Until the keeper has it.
    inbox: Mutex<Inbox>,
    started: AtomicBool,
    thread: Arc<OnceLock<ThreadId>>,
    here: bool,
    /// A child after fork has our memory, not our threads.
    pid: u32,
}
impl Host {
    pub(crate) fn new(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, here: bool, gate: Option<Gate>) -> Result<Self> {
        let bell = if here {
            Bell::Task(Notify::new())
        } else {
            let no_alarm = |e| Error::new(ErrorKind::Unreachable, "connect", "no timer to be had").because(e);
            Bell::Thread(Alarm::new().map_err(no_alarm)?)
        };
        let keeper = Keeper::new(engine, clock, bell, gate);
        let (jobs, inbox) = mpsc::unbounded_channel();
        let (started, thread) = (AtomicBool::new(false), Arc::default());
        let (inbox, pid) = (Mutex::new(Some(inbox)), std::process::id());
        Ok(Self { keeper, jobs, inbox, started, thread, here, pid })
    }
    /// *Invariant (SAFETY A3):* it runs before the first byte of the first attempt. Where there are no threads to be had it is
    /// tried again with the next one.
    pub(crate) fn start(&self) -> Result<()> {
        if self.started.load(Acquire) {
            return Ok(());
        }
        if self.here && Handle::try_current().is_err() {
            let nowhere = Error::new(ErrorKind::InvalidConfig, "connect", "keeper_here needs a runtime");
            return Err(nowhere.hint("use the client inside a tokio runtime first, or leave keeper_here out"));
        }
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.is_some() {
            let none =
                |e| Error::new(ErrorKind::Unreachable, "connect", "the keeper's threads cannot start").because(e);
            self.spawn(&mut inbox).map_err(none)?;
            self.started.store(true, Release);
        }
        Ok(())
    }
    /// A keeper on the thread that waits for it would never come to it.
    pub(crate) fn may_wait(&self) -> Result<()> {
        let is_here = || self.thread.get() == Some(&thread::current().id());
        if waits() && if self.here { Handle::try_current().is_ok() } else { is_here() } {
            let itself = Error::new(ErrorKind::InvalidConfig, "wait", "the client's keeper is on this very thread");
            return Err(itself.hint(
                "await it, or wait on another thread; keeper_here, as testing::memory() has it, is for async tests",
            ));
        }
        Ok(())
    }
    /// Takes what is in the inbox if it succeeds.
    fn spawn(&self, inbox: &mut Inbox) -> std::io::Result<()> {
        let (keeper, late) = (self.keeper.clone(), self.jobs.downgrade());
        let open = Arc::new(AtomicBool::new(true));
        let gate = keeper.gate.clone();
        let (watched, still) = (keeper.clone(), open.clone());
        let serve = move |inbox: &mut Inbox| {
            let inbox = inbox.take();
            async move {
                if let Some(inbox) = inbox {
                    keeper.clone().serve(inbox).await;
                }
                open.store(false, Release);
                keeper.losses.bell.ring();
            }
        };
        if self.here {
            tokio::spawn(through(watched.gate.clone(), watch_here(watched, late, still)));
            tokio::spawn(through(gate, serve(inbox)));
            return Ok(());
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (begin, begins) = std::sync::mpsc::channel::<(Runtime, _)>();
        let id = self.thread.clone();
        let keep = thread::Builder::new().name("fencelock-keep".into()).spawn(move || {
            // Where there is no other one this one ends.
            let Ok((runtime, serve)) = begins.recv() else { return };
            let _ = id.set(thread::current().id());
            runtime.block_on(serve);
        });
        let both = keep.and_then(|_| {
            thread::Builder::new().name("fencelock-loss".into()).spawn(move || watch(&watched, &late, &still))
        });
        if let Err(none) = both {
            // Its caller may be on a runtime of his own, where none is waited for.
            runtime.shutdown_background();
            return Err(none);
        }
        let _ = begin.send((runtime, serve(inbox)));
        Ok(())
    }
    /// Never blocks. After a fork there is nobody to do it, and it is not ours to do.
    pub(crate) fn job(&self, job: Job) {
        if !self.is_forked() && self.start().is_ok() {
            let _ = self.jobs.send(job);
        }
    }
    pub(crate) fn is_forked(&self) -> bool {
        self.pid != std::process::id()
    }
    /// The last client, handle or guard is gone: waits for the releases in the queue, a moment.
    pub(crate) fn farewell(&self) {
        if !self.started.load(Acquire) || self.is_forked() {
            return;
        }
        let (done, closed) = std::sync::mpsc::channel();
        let sent = self.jobs.send(Job::Close(Box::new(move || {
            let _ = done.send(());
        })));
        let ours = self.here || self.thread.get() == Some(&thread::current().id());
        if sent.is_ok() && !ours {
            let _ = closed.recv_timeout(FAREWELL);
        }
    }
}
impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keeper.engine.fmt(f)
    }
}

/// The thread of the loss timers. It outlives a shutdown for as long as there are holds whose end is to be told.
fn watch(keeper: &Arc<Keeper>, jobs: &mpsc::WeakUnboundedSender<Job>, open: &AtomicBool) {
    let Bell::Thread(alarm) = &keeper.losses.bell else { return };
    while open.load(Acquire) || keeper.losses.len() > 0 {
        alarm.sleep(keeper.losses.alarm(keeper.clock.now()));
        look(keeper, jobs);
    }
}
async fn watch_here(keeper: Arc<Keeper>, jobs: mpsc::WeakUnboundedSender<Job>, open: Arc<AtomicBool>) {
    let Bell::Task(bell) = &keeper.losses.bell else { return };
    while open.load(Acquire) || keeper.losses.len() > 0 {
        let alarm = keeper.losses.alarm(keeper.clock.now());
        tokio::select! {
            biased;
            () = bell.notified() => {}
            () = keeper.nap(alarm) => {}
        }
        look(&keeper, &jobs);
    }
}
fn look(keeper: &Arc<Keeper>, jobs: &mpsc::WeakUnboundedSender<Job>) {
    let now = keeper.clock.now();
    for hold in keeper.losses.look(now) {
        if let (Some(jobs), Some(job)) = (jobs.upgrade(), keeper.clone().lapsed(hold)) {
            let _ = jobs.send(Job::Run(job));
        }
    }
    // The other one naps by a clock that stands still while the host sleeps.
    keeper.renewals.wake_if_due(now);
}
