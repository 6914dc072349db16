//! One leader, and those who want to know who it is.
use super::{Options, options::options};
use crate::{
    attempt::{Acquire, Try},
    claimed::Claimed,
    error::{Error, Result},
    guard::{Guard, Held},
    observe,
    types::{Claim, Fencing, Status, Token},
};
use std::{fmt, ops::Deref, sync::Arc, time::Duration};

/// An election of a name: a mutex whose note is the candidate. Who has it leads, and its token numbers the term.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::{sync::Arc, time::Duration};
/// # let engine = fencelock_core::memory::MemoryEngine::new();
/// # let client = fencelock_core::Client::builder(Arc::new(engine)).build()?;
/// let election = client.election("scheduler");
/// let mut observer = election.observe();
/// assert!(observer.changed().await?.is_none());        // nobody leads yet
///
/// let term = election.campaign("node-1").await?;
/// let leader = observer.changed().await?.expect("node-1 leads");
/// assert_eq!((&*leader.candidate, leader.term), ("node-1", term.token()));
/// term.run(async { /* schedule, and write with the term's token */ }).await?;
/// term.resign().await?;
/// assert!(election.leader().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election(Options);
impl Election {
    pub(crate) fn new(options: Options) -> Self {
        Self(options)
    }
    options!();
    options!(owner);

    fn of(&self, candidate: impl Into<Arc<str>>) -> Options {
        let mut options = self.0.clone();
        options.note = candidate.into();
        options
    }
    /// Waits until it leads. Candidates lead in the order they came.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn campaign(&self, candidate: impl Into<Arc<str>>) -> Acquire<Term> {
        self.of(candidate).wait(Claim::Mutex)
    }
    /// Leads if nobody does and nobody waits; else says who is in the way.
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_campaign(&self, candidate: impl Into<Arc<str>>) -> Acquire<Try<Term>> {
        self.of(candidate).attempt(Claim::Mutex, None)
    }
    /// Waits for at most `patience`; then says who is in the way.
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_campaign_for(&self, candidate: impl Into<Arc<str>>, patience: Duration) -> Acquire<Try<Term>> {
        self.of(candidate).attempt(Claim::Mutex, Some(patience))
    }
    /// Who leads now.
    ///
    /// # Errors
    /// `InvalidName`, or what the engine says.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let core = &self.0.core;
        core.ready("leader")?;
        let (name, keeper) = (self.0.name()?, core.keeper().clone());
        let look = async move { observe::timed(&keeper, "inspect", keeper.engine.inspect(&name)).await };
        let status = core.on_runtime(look).await.map_err(Error::of_a_read)?;
        Ok(Leader::of(&status))
    }
    /// Watches who leads.
    pub fn observe(&self) -> Observer {
        Observer { options: self.0.clone(), seen: None, newest: None }
    }
}

/// Somebody who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// What it calls itself. Text of another machine: strip control characters before a terminal sees it.
    pub candidate: Arc<str>,
    /// The fencing token of its term: rises from term to term.
    pub term: Token,
    /// On which host.
    pub host: Arc<str>,
    /// Which process.
    pub pid: u32,
    /// For how long.
    pub leads_for: Duration,
}
impl Leader {
    fn of(status: &Status) -> Option<Self> {
        let holder = status.exclusive()?.clone();
        let (candidate, term, leads_for) = (holder.note, holder.token, holder.held_for);
        Some(Self { candidate, term, host: holder.host, pid: holder.pid, leads_for })
    }
}

/// A term: as long as it is held, this candidate leads. Dropping it resigns.
#[derive(Debug)]
#[must_use = "if unused it resigns at once"]
pub struct Term(Guard);
impl Term {
    /// Lets the next candidate lead.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// If dropped the keeper goes on with it.
    pub async fn resign(self) -> Result<()> {
        self.0.release().await
    }
}
impl Deref for Term {
    type Target = Guard;
    fn deref(&self) -> &Guard {
        &self.0
    }
}
impl crate::claimed::sealed::Sealed for Term {}
impl Claimed for Term {
    fn from_held(held: Result<Try<Held>>) -> Result<Self> {
        Guard::from_held(held).map(Self)
    }
}
impl Claimed for Try<Term> {
    fn from_held(held: Result<Try<Held>>) -> Result<Self> {
        Ok(Try::<Guard>::from_held(held)?.map(Term))
    }
}

/// Watches an election. What it tells never goes back; terms may be skipped.
pub struct Observer {
    options: Options,
    /// What was told last; `None` before the first time.
    seen: Option<Option<Token>>,
    /// The newest term that was told, also when nobody leads any more.
    newest: Option<Token>,
}
impl Observer {
    /// Who leads, at once; then, each time, when that has changed. `None`: nobody.
    ///
    /// # Errors
    /// `InvalidName`, or what the engine says: ask again.
    ///
    /// # Cancel safety
    /// Drop it and ask again: nothing is missed but what has passed.
    pub async fn changed(&mut self) -> Result<Option<Leader>> {
        loop {
            let core = &self.options.core;
            core.ready("observe")?;
            let (name, keeper, seen) = (self.options.name()?, core.keeper().clone(), self.seen);
            let look = async move {
                match seen {
                    None => observe::timed(&keeper, "inspect", keeper.engine.inspect(&name)).await,
                    // A wait, which says nothing of the store.
                    Some(seen) => keeper.engine.observe(&name, seen).await,
                }
            };
            let status = tokio::select! {
                biased;
                () = core.ended() => return Err(Error::closed("observe")),
                status = core.on_runtime(look) => status.map_err(Error::of_a_read)?,
            };
            let leader = Leader::of(&status);
            // What stands for the token of another program is older and newer than nothing, where tokens are ours alone.
            let ours = core.engine().info().capabilities.fencing == Fencing::OursOnly;
            let counts = |leader: &&Leader| !ours || leader.pid != 0;
            // A replica that lags may tell of a term that is over, or know nothing yet of the newest one (SAFETY E9).
            let stale = self.newest.is_some_and(|newest| match (&leader, status.last_token) {
                (Some(leader), _) if !counts(&leader) => false,
                (Some(leader), _) => {
                    leader.term < newest || leader.term == newest && self.seen.is_some_and(|seen| seen != Some(newest))
                }
                (None, last) => !ours && last.is_some_and(|last| last < newest),
            });
            if stale {
                core.pause(Duration::from_millis(50)).await;
                continue;
            }
            self.newest = leader.as_ref().filter(counts).map(|leader| leader.term).or(self.newest);
            let now = leader.as_ref().map(|leader| leader.term);
            if self.seen.replace(now) != Some(now) {
                return Ok(leader);
            }
        }
    }
}
impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observer({:?}, {:?})", self.options.name(), self.newest)
    }
}
