//! Trouble in front of any engine, by whole calls: they are slow, their replies are lost, they arrive twice, or not at all.
use crate::{
    engine::{Cells, Engine},
    error::{Error, ErrorKind, Result},
    keeper::Reports,
    types::{
        Conflict, EngineInfo, Grant, HoldId, Listing, Missing, Name, Outcome, Page, Released, Renewed, Request, Status,
        Together, Token, Version, Versioned,
    },
    watched::Watched,
};
use async_trait::async_trait;
use fastrand::Rng;
use std::{
    collections::HashMap,
    future::Future,
    os::fd::OwnedFd,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A call of an engine: each is named after its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Somebody wants a lock: [`Engine::acquire`].
    Acquire,
    /// Somebody wants several, in one step of the store: [`Engine::acquire_all`].
    AcquireAll,
    /// Somebody writes a cell, unless it was written since: [`Cells::compare_exchange`].
    CompareExchange,
    /// A hold becomes another one without a moment between, as a writer that becomes a reader: [`Engine::exchange`].
    Exchange,
    /// An operator takes a hold away: [`Engine::force_release`].
    ForceRelease,
    /// Somebody looks who holds a lock: [`Engine::inspect`].
    Inspect,
    /// Somebody looks which locks there are: [`Engine::list`].
    List,
    /// Somebody reads a cell: [`Cells::load`].
    Load,
    /// Somebody wants to hear of the next holder: [`Engine::observe`].
    Observe,
    /// A hold is given back: [`Engine::release`].
    Release,
    /// Holds are kept alive: [`Engine::renew`].
    Renew,
    /// A semaphore gets another size: [`Engine::resize`].
    Resize,
    /// What an attempt may have left is taken back: [`Engine::withdraw`].
    Withdraw,
}

/// An engine behind trouble. What is told of a call's loss is what a client sees of a broken connection: `Ambiguous`, after the
/// call had its effect.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// use fencelock_core::{Chaos, Client, Operation, memory::MemoryEngine};
/// use std::sync::Arc;
///
/// let chaos = Arc::new(Chaos::new(Arc::new(MemoryEngine::new())));
/// let client = Client::builder(chaos.clone()).build()?;
/// let guard = client.mutex("x").lock().await?;
/// chaos.lose_reply(Operation::Release);
/// guard.release().await?;             // asked again, and told that it was done
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Chaos {
    inner: Arc<dyn Engine>,
    plan: Mutex<Plan>,
    cut: Watched<bool>,
}
#[derive(Debug)]
struct Plan {
    rng: Rng,
    delay: Duration,
    lost: f64,
    twice: f64,
    next: HashMap<Operation, Next>,
}
/// What was asked for by name.
#[derive(Clone, Copy, Debug, Default)]
struct Next {
    calls: u64,
    left: u32,
    trouble: Option<Trouble>,
}
/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// It comes so late, and is answered.
    Delay(Duration),
    /// It has its effect at once, and its reply comes so late.
    DelayReply(Duration),
    /// It does not arrive: `Unreachable`.
    Fail,
    /// It has its effect, and its reply is lost: `Ambiguous`.
    LoseReply,
    /// It has its effect twice, one after the other; the second answer is told.
    Twice,
}
/// What happens to one call.
#[derive(Clone, Copy)]
struct Fate {
    there: Duration,
    back: Duration,
    lost: bool,
    twice: bool,
    fails: bool,
}

impl Chaos {
    /// In front of this engine, with no trouble yet.
    pub fn new(inner: Arc<dyn Engine>) -> Self {
        let (rng, next) = (Rng::new(), HashMap::new());
        let plan = Plan { rng, delay: Duration::ZERO, lost: 0.0, twice: 0.0, next };
        Self { inner, plan: Mutex::new(plan), cut: Watched::default() }
    }
    /// What happens follows from this number.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.plan().rng = Rng::with_seed(seed);
        self
    }
    /// Every call takes up to so long on its way there, and again on its way back.
    #[must_use]
    pub fn delay(self, most: Duration) -> Self {
        self.plan().delay = most;
        self
    }
    /// This part of the replies is lost.
    #[must_use]
    pub fn lose_replies(self, part: f64) -> Self {
        self.plan().lost = part;
        self
    }
    /// This part of the calls arrives twice.
    #[must_use]
    pub fn repeat(self, part: f64) -> Self {
        self.plan().twice = part;
        self
    }
    /// This becomes of the next `n` calls of this sort.
    pub fn next(&self, of: Operation, n: u32, trouble: Trouble) {
        let mut plan = self.plan();
        let next = plan.next.entry(of).or_default();
        (next.left, next.trouble) = (n, Some(trouble));
    }
    /// The reply of the next call of this sort is lost.
    pub fn lose_reply(&self, of: Operation) {
        self.next(of, 1, Trouble::LoseReply);
    }
    /// How many calls of this sort there were.
    pub fn calls(&self, of: Operation) -> u64 {
        self.plan().next.get(&of).map_or(0, |next| next.calls)
    }
    /// From now on nothing arrives and nothing is answered, and the engine's background stands still, until this is called with
    /// `false`: then the calls that were made meanwhile fail.
    pub fn cut(&self, cut: bool) {
        self.cut.set(cut);
    }
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn fate(&self, of: Operation) -> Fate {
        let mut plan = self.plan();
        let (most, lost, twice) = (plan.delay, plan.lost, plan.twice);
        let next = plan.next.entry(of).or_default();
        next.calls += 1;
        let certain = next.trouble.filter(|_| next.left > 0);
        next.left = next.left.saturating_sub(1);
        let mut some = |part: f64| part > 0.0 && plan.rng.f64() < part;
        let (lost, twice) = (some(lost), some(twice));
        let mut way = || if most.is_zero() { most } else { most.mul_f64(plan.rng.f64()) };
        let mut fate = Fate { there: way(), back: way(), lost, twice, fails: false };
        match certain {
            Some(Trouble::Delay(d)) => fate.there = d,
            Some(Trouble::DelayReply(d)) => fate.back = d,
            Some(Trouble::Fail) => fate.fails = true,
            Some(Trouble::LoseReply) => fate.lost = true,
            Some(Trouble::Twice) => fate.twice = true,
            None => {}
        }
        fate
    }
    /// A call that meets the cut fails when it is over.
    async fn unbroken(&self) -> Result<()> {
        if !self.cut.get() {
            return Ok(());
        }
        self.connected().await;
        Err(Error::new(ErrorKind::Ambiguous, "call", "the connection was broken"))
    }
    async fn connected(&self) {
        self.cut.when(|cut| (!cut).then_some(())).await;
    }
    async fn pass<T, F: Future<Output = Result<T>> + Send>(
        &self,
        of: Operation,
        call: impl Fn() -> F + Send,
    ) -> Result<T> {
        let fate = self.fate(of);
        self.unbroken().await?;
        if fate.fails {
            return Err(Error::new(ErrorKind::Unreachable, "call", "it did not arrive"));
        }
        if !fate.there.is_zero() {
            tokio::time::sleep(fate.there).await;
        }
        let mut answer = call().await;
        if fate.twice {
            answer = call().await;
        }
        if !fate.back.is_zero() {
            tokio::time::sleep(fate.back).await;
        }
        self.unbroken().await?;
        if fate.lost {
            return Err(Error::new(ErrorKind::Ambiguous, "call", "the reply was lost"));
        }
        answer
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)] // a wrapper that forgets one changes what the engine is
impl Engine for Chaos {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }
    fn why_not(&self, missing: Missing) -> Option<&'static str> {
        self.inner.why_not(missing)
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        self.pass(Operation::Acquire, || self.inner.acquire(request)).await
    }
    async fn acquire_all(&self, requests: &[Request]) -> Result<Together> {
        self.pass(Operation::AcquireAll, || self.inner.acquire_all(requests)).await
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        self.pass(Operation::Withdraw, || self.inner.withdraw(request)).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        self.pass(Operation::Renew, || self.inner.renew(grants)).await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        self.pass(Operation::Release, || self.inner.release(grant)).await
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        self.pass(Operation::Exchange, || self.inner.exchange(grant, next)).await
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        let mut run = pin!(self.inner.run(reports));
        loop {
            self.connected().await;
            tokio::select! {
                biased;
                () = self.cut.when(|cut| cut.then_some(())) => {}
                out = &mut run => return out,
            }
        }
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        self.pass(Operation::Inspect, || self.inner.inspect(name)).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.pass(Operation::List, || self.inner.list(prefix, page)).await
    }
    async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status> {
        self.pass(Operation::Observe, || self.inner.observe(name, seen)).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        self.pass(Operation::ForceRelease, || self.inner.force_release(name, token)).await
    }
    async fn resize(&self, name: &Name, from: u32, to: u32) -> Result<()> {
        self.pass(Operation::Resize, || self.inner.resize(name, from, to)).await
    }
    fn cells(&self) -> Option<&dyn Cells> {
        self.inner.cells().map(|_| self as &dyn Cells)
    }
    fn lifeline(&self) -> Result<OwnedFd> {
        self.inner.lifeline()
    }
    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
#[async_trait]
impl Cells for Chaos {
    async fn load(&self, name: &Name) -> Result<Versioned> {
        let cells = self.inner.cells().ok_or_else(gone)?;
        self.pass(Operation::Load, || cells.load(name)).await
    }
    async fn compare_exchange(
        &self,
        name: &Name,
        expected: Version,
        value: Option<Arc<[u8]>>,
        nonce: HoldId,
    ) -> Result<Result<Version, Conflict>> {
        let cells = self.inner.cells().ok_or_else(gone)?;
        self.pass(Operation::CompareExchange, || cells.compare_exchange(name, expected, value.clone(), nonce)).await
    }
}
fn gone() -> Error {
    Error::new(ErrorKind::Unsupported, "cell", "this engine has no cells")
}
