//! What `run` and `hold` hold, in whatever mode, and how they wait for it.

use std::future::{Future, pending};
use std::ops::Deref;
use std::pin::Pin;
use std::time::Duration;

use fencelock::{
    Acquire, Busy, Client, ErrorKind, Guard, Held, Identity, Kind, LossReason, SharedGuard, Status, Token, Try,
};
use signal_hook::consts::signal::{SIGCONT, SIGINT, SIGWINCH};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use super::Finish;
use super::join::Outer;
use crate::args::Wanted;
use crate::exit::{self, Failure};
use crate::mode::{self, Mode, Permits};
use crate::render::{self, Before, complain, plain, tell};
use crate::supervise::signals::Caught;

/// A hold of our own.
pub(crate) enum Own {
    Alone(Guard),
    Beside(SharedGuard),
}

impl Own {
    /// For fenced writes: a hold that has others beside it has none.
    pub(crate) fn token(&self) -> Option<Token> {
        match self {
            Self::Alone(guard) => Some(guard.token()),
            Self::Beside(_) => None,
        }
    }

    pub(crate) async fn release(self) -> fencelock::Result<()> {
        match self {
            Self::Alone(guard) => guard.release().await,
            Self::Beside(guard) => guard.release().await,
        }
    }
}

impl Deref for Own {
    type Target = Held;
    fn deref(&self) -> &Held {
        match self {
            Self::Alone(guard) => guard,
            Self::Beside(guard) => guard,
        }
    }
}

impl From<Guard> for Own {
    fn from(guard: Guard) -> Self {
        Self::Alone(guard)
    }
}

impl From<SharedGuard> for Own {
    fn from(guard: SharedGuard) -> Self {
        Self::Beside(guard)
    }
}

/// A wait that a signal has ended, or what became of it.
pub(crate) type Answer = Result<fencelock::Result<Try<Own>>, Caught>;

/// What a wait needs beside the lock.
pub(crate) struct Waiting<'a> {
    pub(crate) wanted: &'a Wanted,
    pub(crate) outer: &'a Outer,
    pub(crate) signals: &'a mut UnboundedReceiver<Caught>,
    pub(crate) ttl: Duration,
    pub(crate) note: String,
    /// `--reentrant` is an option of it.
    pub(crate) may_join: bool,
}

impl Waiting<'_> {
    /// Asks for the hold that the options say.
    pub(crate) async fn acquire(&mut self, client: &Client) -> Answer {
        let (name, at_least) = (&self.wanted.name, self.wanted.at_least.unwrap_or_default());
        let (ttl, note) = (self.ttl, self.note.clone());
        match self.wanted.mode() {
            Mode::Mutex => {
                let lock = client.mutex(name).ttl(ttl).note(note).at_least(at_least);
                self.ask(client, || lock.try_lock(), |d| lock.try_lock_for(d), || lock.lock()).await
            }
            Mode::Permits(Permits { take, of }) => {
                let lock = client.semaphore(name, of).ttl(ttl).note(note).at_least(at_least);
                self.ask(client, || lock.try_acquire(take), |d| lock.try_acquire_for(take, d), || lock.acquire(take))
                    .await
            }
            Mode::Read => {
                let lock = client.rw_lock(name).ttl(ttl).note(note).at_least(at_least);
                self.ask(client, || lock.try_read(), |d| lock.try_read_for(d), || lock.read()).await
            }
            Mode::Write => {
                let lock = client.rw_lock(name).ttl(ttl).note(note).at_least(at_least);
                self.ask(client, || lock.try_write(), |d| lock.try_write_for(d), || lock.write()).await
            }
        }
    }

    async fn ask<G>(
        &mut self,
        client: &Client,
        now: impl FnOnce() -> Acquire<Try<G>>,
        within: impl FnOnce(Duration) -> Acquire<Try<G>>,
        some_day: impl FnOnce() -> Acquire<G>,
    ) -> Answer
    where
        Own: From<G>,
        Acquire<G>: Future<Output = fencelock::Result<G>> + Unpin,
        Acquire<Try<G>>: Future<Output = fencelock::Result<Try<G>>> + Unpin,
    {
        let got = if self.wanted.no_wait {
            self.watched(client, now()).await?
        } else if let Some(patience) = self.wanted.wait {
            self.watched(client, within(patience)).await?
        } else {
            self.watched(client, some_day()).await?.map(Ok)
        };
        Ok(got.map(|answer| answer.map(Own::from)))
    }

    /// Waits for the lock, says on a terminal who is in the way, and gives up on a signal.
    async fn watched<A>(&mut self, client: &Client, mut acquire: Acquire<A>) -> Result<fencelock::Result<A>, Caught>
    where
        Acquire<A>: Future<Output = fencelock::Result<A>> + Unpin,
    {
        let second = Duration::from_secs(1);
        let mut next_look = Instant::now() + second;
        let mut hinted = false;
        // What was said when it queued is old soon: how long the lease has left tells whether its holder lives.
        let name = &self.wanted.name;
        let look = || async { client.inspect(name).await };
        let mut looking: Option<Pin<Box<dyn Future<Output = fencelock::Result<Status>> + '_>>> = None;
        let _line = Line;
        loop {
            tokio::select! {
                biased;
                got = &mut acquire => return Ok(got),
                caught = fatal(self.signals) => return Err(caught),
                status = some(&mut looking) => {
                    looking = None;
                    let now = match status {
                        Ok(status) => Some(now(status)),
                        Err(e) => acquire.blocked_by().map(|mut before| {
                            before.stale |= e.is_temporary();
                            before
                        }),
                    };
                    now.iter().for_each(|busy| render::show(&render::waiting(name, busy)));
                }
                () = sleep_until(next_look) => {
                    next_look = Instant::now() + second;
                    let Some(busy) = acquire.blocked_by() else { continue };
                    // Whoever waits for itself is told without a terminal too: nobody else will end that wait.
                    let hint = self.for_itself(&busy).filter(|_| !hinted);
                    let before = render::before();
                    if hint.is_some() || before == Before::Behind && !hinted {
                        tell(&render::waiting(name, &busy));
                        hint.map(tell);
                        hinted = true;
                    }
                    if before == Before::InFront && busy.stale {
                        render::show(&render::waiting(name, &busy));
                    }
                    if before == Before::InFront && looking.is_none() {
                        looking = Some(Box::pin(look()));
                    }
                }
            }
        }
    }

    /// What to say when the holder is a run above this one, which waits for it.
    pub(crate) fn for_itself(&self, busy: &Busy) -> Option<&'static str> {
        let holder = busy.holder.as_deref()?;
        let above = self.outer.holds(holder)?;
        Some(match self.wanted.mode().within(holder.claim) {
            Ok(()) if self.may_join && !above.warns => {
                "hint: it is held by the run that this one is part of: --reentrant joins it"
            }
            _ => "hint: it is held by the run that this one is part of, which waits for this one",
        })
    }
}

impl Wanted {
    /// The library's words, and which options would fit.
    pub(crate) async fn refused(&self, client: &Client, e: fencelock::Error) -> Failure {
        let mismatch = matches!(e.kind(), ErrorKind::KindMismatch | ErrorKind::CapacityMismatch);
        let failure = Failure::from(e);
        if !mismatch {
            return failure;
        }
        let Ok(status) = client.inspect(&self.name).await else { return failure };
        let fitting = match (status.kind, status.capacity) {
            (Some(Kind::Mutex), _) => "without -s, --write and --permits",
            (Some(Kind::RwLock), _) => "with -s to read, with --write to write",
            (Some(Kind::Semaphore), Some(of)) => &format!("with --permits K/{of}"),
            (Some(Kind::Semaphore), None) => "with --permits",
            _ => return failure,
        };
        let kind = status.kind.map_or("", mode::kind);
        failure.hint(format!("{} is {kind} now: take it {fitting}", plain(&self.name)))
    }

    pub(crate) fn not_got(&self, busy: &Busy, hint: Option<&str>, verbose: bool) -> Finish {
        self.went_without(&render::in_the_way(busy), hint, verbose)
    }

    pub(crate) fn went_without(&self, why: &str, hint: Option<&str>, verbose: bool) -> Finish {
        if !self.skip_ok || verbose {
            complain(&format!("{} was not got: {why}", plain(&self.name)));
            hint.map(tell);
        }
        Finish::Code(if self.skip_ok { exit::OK } else { self.busy_exit_code })
    }

    /// Until when a hold that was granted now is kept (`--at-least`).
    pub(crate) fn kept_until(&self) -> Option<Instant> {
        self.at_least.map(|d| Instant::now() + d)
    }
}

/// Waits for the end of `--at-least`. `Err`: a signal has asked to end. What is dropped then stays taken all the same, where
/// it lives with its lease.
pub(crate) async fn kept(
    lost: impl Future<Output = LossReason>,
    until: Option<Instant>,
    signals: &mut UnboundedReceiver<Caught>,
) -> Result<(), Caught> {
    let Some(until) = until else { return Ok(()) };
    tokio::select! {
        biased;
        // There is nothing to be kept any more.
        _ = lost => Ok(()),
        caught = asked_to_end(signals) => Err(caught),
        () = sleep_until(until) => Ok(()),
    }
}

/// Who is in the way, and how many, of this process.
fn now(status: Status) -> Busy {
    let Identity { host, pid } = Identity::here();
    let ahead = status.waiters.iter().position(|waiter| waiter.pid == pid && *waiter.host == *host);
    let holder = status.holders.into_iter().next();
    Busy::new(holder, ahead.and_then(|n| u32::try_from(n).ok()))
}

/// The line that says who is in the way is gone when the wait is over, however it ends: what a job prints comes after it.
struct Line;
impl Drop for Line {
    fn drop(&mut self) {
        render::show_no_more();
    }
}

async fn some<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// The next signal that ends a program which has no job yet.
pub(crate) async fn fatal(signals: &mut UnboundedReceiver<Caught>) -> Caught {
    loop {
        match signals.recv().await {
            Some(caught) if matches!(caught.signal, SIGCONT | SIGWINCH) => {}
            Some(caught) => return caught,
            None => pending().await,
        }
    }
}

pub(crate) async fn unless_ended<T>(
    work: impl Future<Output = T>,
    signals: &mut UnboundedReceiver<Caught>,
) -> Result<T, Caught> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        caught = fatal(signals) => Err(caught),
    }
}

/// The next signal that ends a program which has only to release.
pub(crate) async fn asked_to_end(signals: &mut UnboundedReceiver<Caught>) -> Caught {
    loop {
        let caught = fatal(signals).await;
        if caught.asks_to_end() {
            return caught;
        }
    }
}

/// Whoever sent it waits for no reader of standard error.
pub(crate) fn ended_by(caught: Caught) -> Finish {
    render::hurry();
    // A loop in a script goes on when a command of it only *exits* with 130.
    if caught.signal == SIGINT && caught.from_terminal {
        Finish::Signal(SIGINT)
    } else {
        Finish::Code(exit::by_signal(caught.signal))
    }
}
