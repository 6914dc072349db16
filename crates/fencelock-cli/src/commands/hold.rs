//! What `run` holds, in whatever mode, and how it waits for it.

use std::future::{Future, pending};
use std::io::IsTerminal;
use std::ops::Deref;
use std::time::Duration;

use fencelock::{Acquire, Busy, Client, Guard, Held, SharedGuard, Token, Try};
use signal_hook::consts::signal::{SIGCONT, SIGWINCH};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use super::join::Outer;
use crate::args::Run;
use crate::mode::{Mode, Permits};
use crate::render::{self, tell};
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
    pub(crate) args: &'a Run,
    pub(crate) outer: &'a Outer,
    pub(crate) signals: &'a mut UnboundedReceiver<Caught>,
}

impl Waiting<'_> {
    /// Asks for the hold that the options say.
    pub(crate) async fn acquire(&mut self, client: &Client, ttl: Duration, note: String) -> Answer {
        let name = &self.args.name;
        match self.args.mode() {
            Mode::Mutex => {
                let lock = client.mutex(name).ttl(ttl).note(note);
                self.ask(|| lock.try_lock(), |d| lock.try_lock_for(d), || lock.lock()).await
            }
            Mode::Permits(Permits { take, of }) => {
                let lock = client.semaphore(name, of).ttl(ttl).note(note);
                self.ask(|| lock.try_acquire(take), |d| lock.try_acquire_for(take, d), || lock.acquire(take)).await
            }
            Mode::Read => {
                let lock = client.rw_lock(name).ttl(ttl).note(note);
                self.ask(|| lock.try_read(), |d| lock.try_read_for(d), || lock.read()).await
            }
            Mode::Write => {
                let lock = client.rw_lock(name).ttl(ttl).note(note);
                self.ask(|| lock.try_write(), |d| lock.try_write_for(d), || lock.write()).await
            }
        }
    }

    async fn ask<G>(
        &mut self,
        now: impl FnOnce() -> Acquire<Try<G>>,
        within: impl FnOnce(Duration) -> Acquire<Try<G>>,
        some_day: impl FnOnce() -> Acquire<G>,
    ) -> Answer
    where
        Own: From<G>,
        Acquire<G>: Future<Output = fencelock::Result<G>> + Unpin,
        Acquire<Try<G>>: Future<Output = fencelock::Result<Try<G>>> + Unpin,
    {
        let got = if self.args.no_wait {
            self.watched(now()).await?
        } else if let Some(patience) = self.args.wait {
            self.watched(within(patience)).await?
        } else {
            self.watched(some_day()).await?.map(Ok)
        };
        Ok(got.map(|answer| answer.map(Own::from)))
    }

    /// Waits for the lock, says on a terminal who is in the way, and gives up on a signal.
    async fn watched<A>(&mut self, mut acquire: Acquire<A>) -> Result<fencelock::Result<A>, Caught>
    where
        Acquire<A>: Future<Output = fencelock::Result<A>> + Unpin,
    {
        let second = Duration::from_secs(1);
        let mut next_look = Some(Instant::now() + second);
        loop {
            tokio::select! {
                biased;
                got = &mut acquire => return Ok(got),
                caught = fatal(self.signals) => return Err(caught),
                () = at(next_look) => {
                    next_look = match acquire.blocked_by() {
                        Some(busy) => {
                            self.say_who(&busy);
                            None
                        }
                        None => Some(Instant::now() + second),
                    };
                }
            }
        }
    }

    fn say_who(&self, busy: &Busy) {
        let for_itself = self.for_itself(busy);
        // Whoever waits for itself is told without a terminal too: nobody else will end that wait.
        if std::io::stderr().is_terminal() || for_itself.is_some() {
            tell(&render::waiting(&self.args.name, busy));
        }
        if let Some(hint) = for_itself {
            tell(hint);
        }
    }

    /// What to say when the holder is a run above this one, which waits for it.
    pub(crate) fn for_itself(&self, busy: &Busy) -> Option<&'static str> {
        let holder = busy.holder.as_deref()?;
        let above = self.outer.holds(holder)?;
        Some(match self.args.mode().within(holder.claim) {
            Ok(()) if !above.warns => "hint: it is held by the run that this one is part of: --reentrant joins it",
            _ => "hint: it is held by the run that this one is part of, which waits for this one",
        })
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
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
