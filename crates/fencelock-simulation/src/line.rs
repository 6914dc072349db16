//! What lies between the core and its engine in this world: a connection that can be cut, or be deaf.
use async_trait::async_trait;
use fencelock_core::{
    Cells, Conflict, Engine, EngineInfo, Error, ErrorKind, Gate, Grant, HoldId, Listing, Missing, Name, Outcome, Page,
    Released, Renewed, Reports, Request, Result, Status, Together, Token, Version, Versioned,
};
use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// After so long without an answer a connection is given up.
const SILENCE: Duration = Duration::from_millis(300);

/// While it is cut nothing is sent and nothing is answered; afterwards it goes on, or is told that it broke. While it is deaf
/// calls have their effect, and nobody hears the answer.
#[derive(Debug)]
pub(crate) struct Line {
    inner: Arc<dyn Engine>,
    open: Gate,
    deaf: AtomicBool,
    /// How often it was cut, and whether the calls that were under way then fail.
    cuts: AtomicU64,
    breaks: bool,
    /// Nothing is pushed to this client: what happens to its holds it hears with their renewals.
    quiet: bool,
}
impl Line {
    pub(crate) fn new(inner: Arc<dyn Engine>, breaks: bool, quiet: bool) -> Self {
        let (open, deaf, cuts) = (Gate::default(), AtomicBool::new(false), AtomicU64::new(0));
        Self { inner, open, deaf, cuts, breaks, quiet }
    }
    pub(crate) fn cut(&self) {
        self.cuts.fetch_add(1, Relaxed);
        self.open.shut();
    }
    pub(crate) fn heal(&self) {
        self.open.open();
    }
    pub(crate) fn deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Relaxed);
    }
    async fn call<T>(&self, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let before = self.cuts.load(Relaxed);
        let answer = self.open.clone().through(call).await;
        let broke = self.breaks && self.cuts.load(Relaxed) != before;
        let deaf = self.deaf.load(Relaxed);
        if deaf {
            tokio::time::sleep(SILENCE).await;
        }
        if broke || deaf {
            return Err(Error::new(ErrorKind::Ambiguous, "call", "the connection broke"));
        }
        answer
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)] // a wrapper that forgets one changes what the engine is
impl Engine for Line {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }
    fn why_not(&self, missing: Missing) -> Option<&'static str> {
        self.inner.why_not(missing)
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        self.call(self.inner.acquire(request)).await
    }
    async fn acquire_all(&self, requests: &[Request]) -> Result<Together> {
        self.call(self.inner.acquire_all(requests)).await
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        self.call(self.inner.withdraw(request)).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        self.call(self.inner.renew(grants)).await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        self.call(self.inner.release(grant)).await
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        self.call(self.inner.exchange(grant, next)).await
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        if self.quiet {
            return std::future::pending().await;
        }
        self.open.clone().through(self.inner.run(reports)).await
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        self.call(self.inner.inspect(name)).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.call(self.inner.list(prefix, page)).await
    }
    async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status> {
        self.call(self.inner.observe(name, seen)).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        self.call(self.inner.force_release(name, token)).await
    }
    async fn resize(&self, name: &Name, from: u32, to: u32) -> Result<()> {
        self.call(self.inner.resize(name, from, to)).await
    }
    fn cells(&self) -> Option<&dyn Cells> {
        self.inner.cells().map(|_| self as &dyn Cells)
    }
    fn lifeline(&self) -> Result<OwnedFd> {
        self.inner.lifeline()
    }
    async fn close(&self) -> Result<()> {
        self.call(self.inner.close()).await
    }
}
#[async_trait]
impl Cells for Line {
    async fn load(&self, name: &Name) -> Result<Versioned> {
        let cells = self.inner.cells().ok_or_else(none)?;
        self.call(cells.load(name)).await
    }
    async fn compare_exchange(
        &self,
        name: &Name,
        expected: Version,
        value: Option<Arc<[u8]>>,
        nonce: HoldId,
    ) -> Result<Result<Version, Conflict>> {
        let cells = self.inner.cells().ok_or_else(none)?;
        self.call(cells.compare_exchange(name, expected, value, nonce)).await
    }
}
fn none() -> Error {
    Error::new(ErrorKind::Unsupported, "cell", "this engine has no cells")
}
