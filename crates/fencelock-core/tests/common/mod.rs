//! What the tests of the core share: stores, links, clients, runtimes, and a condition with a deadline.
#![allow(dead_code)] // each file uses its part
use async_trait::async_trait;
use fencelock_core::{
    BootClock, Busy, Client, Clock, Engine, EngineInfo, Error, ErrorKind, Grant, Listing, Name, Outcome, Page,
    Released, Renewed, Reports, Request, Result, Status, Token, TokioClock,
    memory::{Link, MemoryEngine, MemoryServer},
};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Handle, Runtime};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SEC: Duration = Duration::from_secs(1);
/// Longer than any test: what is free before it has been released, not run out.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The runtime that carries messages: no test can block it.
pub(crate) fn net() -> Handle {
    static NET: OnceLock<Runtime> = OnceLock::new();
    NET.get_or_init(|| Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()).handle().clone()
}
pub(crate) fn server() -> Arc<MemoryServer> {
    MemoryServer::new(Arc::new(BootClock))
}
/// An engine whose link takes up to a millisecond each way.
pub(crate) fn lease(server: &Arc<MemoryServer>) -> MemoryEngine {
    MemoryEngine::on(server.clone()).over(Link::new(net(), MS)).default_ttl(LONG)
}
pub(crate) fn lossy(server: &Arc<MemoryServer>, part: f64) -> MemoryEngine {
    MemoryEngine::on(server.clone()).over(Link::new(net(), MS).lose_replies(part)).default_ttl(LONG)
}
/// On paused time order is exact, whatever the machine does.
pub(crate) fn paused() -> (Arc<dyn Clock>, Arc<MemoryServer>) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::start());
    (clock.clone(), MemoryServer::new(clock))
}
/// As [`lease`], on paused time.
pub(crate) fn paused_lease(clock: &Arc<dyn Clock>, server: &Arc<MemoryServer>) -> MemoryEngine {
    let link = Link::new(Handle::current(), MS);
    MemoryEngine::on(server.clone()).clock(clock.clone()).over(link).default_ttl(LONG)
}
/// As [`flavours`], on paused time.
pub(crate) fn paused_flavours(clock: &Arc<dyn Clock>, server: &Arc<MemoryServer>, ttl: Duration) -> [MemoryEngine; 2] {
    [paused_lease(clock, server).default_ttl(ttl), paused_lease(clock, server).with_session(ttl)]
}
/// A client on paused time.
pub(crate) fn here(engine: Arc<dyn Engine>, clock: &Arc<dyn Clock>) -> Client {
    Client::builder(engine).clock(clock.clone()).keeper_here().build().unwrap()
}
/// Both flavours: a lease of its own for every hold, and one session for all.
pub(crate) fn flavours(server: &Arc<MemoryServer>, ttl: Duration) -> [MemoryEngine; 2] {
    [lease(server).default_ttl(ttl), lease(server).with_session(ttl)]
}
pub(crate) fn client(engine: MemoryEngine) -> Client {
    Client::builder(Arc::new(engine)).build().unwrap()
}
/// A client, and its engine to cut the link of.
pub(crate) fn cuttable(engine: MemoryEngine) -> (Client, Arc<MemoryEngine>) {
    let engine = Arc::new(engine);
    (Client::builder(engine.clone()).build().unwrap(), engine)
}
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
pub(crate) fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}
/// Blocks until it is so: where a test needs a blocked runtime, or has none.
#[track_caller]
pub(crate) fn eventually(what: &str, within: Duration, mut so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(MS / 4);
    }
    began.elapsed()
}
/// Waits until it is so and lets the runtime run.
pub(crate) async fn soon(what: &str, within: Duration, mut so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < within, "{what}: not within {within:?}");
        tokio::time::sleep(MS / 4).await;
    }
    began.elapsed()
}
/// Ends a future that should have been ready, with a word.
pub(crate) async fn within<F: Future>(what: &str, limit: Duration, future: F) -> F::Output {
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}
/// Polls it once.
pub(crate) async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut future = Pin::new(future);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(out) => std::task::Poll::Ready(Some(out)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
/// An executor that is not tokio's.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(out) = future.as_mut().poll(&mut cx) {
            return out;
        }
        std::thread::park();
    }
}

pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type OnGrant = Box<dyn Fn(Grant) -> Later<Grant> + Send + Sync>;

/// An engine that lets a test in between a grant and the core.
pub(crate) struct Hooked {
    inner: Arc<MemoryEngine>,
    on_grant: OnGrant,
    /// Answers of `renew` are kept back for so long.
    pub(crate) slow_renew: Duration,
    /// Renewals arrive so late, and nobody hears of it.
    pub(crate) late_renew: Option<Duration>,
    /// A grant is kept back until the stop, and then answered with "busy": after a stop nothing is promised.
    pub(crate) idle: bool,
    /// What is answered before anybody is asked, the last one first.
    pub(crate) before: Mutex<Vec<Result<Outcome>>>,
}
impl Hooked {
    pub(crate) fn new(inner: MemoryEngine, on_grant: impl Fn(Grant) -> Later<Grant> + Send + Sync + 'static) -> Self {
        let (inner, on_grant) = (Arc::new(inner), Box::new(on_grant));
        Self { inner, on_grant, slow_renew: Duration::ZERO, late_renew: None, idle: false, before: Mutex::default() }
    }
}
impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}
#[async_trait]
impl Engine for Hooked {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        let before = self.before.lock().unwrap().pop();
        let outcome = match before {
            Some(answer) => answer,
            None => self.inner.acquire(request).await,
        };
        match outcome? {
            Outcome::Granted(_) if self.idle => {
                request.stopped().await;
                Ok(Outcome::Busy(Busy::default()))
            }
            Outcome::Granted(grant) => Ok(Outcome::Granted((self.on_grant)(grant).await)),
            other => Ok(other),
        }
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        self.inner.withdraw(request).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        if let Some(late) = self.late_renew {
            let (inner, late_grants) = (self.inner.clone(), grants.to_vec());
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                inner.renew(&late_grants).await
            });
            return Ok(vec![Renewed::Unknown; grants.len()]);
        }
        let answers = self.inner.renew(grants).await;
        tokio::time::sleep(self.slow_renew).await;
        answers
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        self.inner.release(grant).await
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        self.inner.run(reports).await
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        let _ = Handle::current(); // as an engine with a socket
        self.inner.inspect(name).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.inner.list(prefix, page).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        self.inner.force_release(name, token).await
    }
    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

/// An engine that grants nothing and keeps the requests: for tests that play the core's part against an engine.
#[derive(Debug)]
pub(crate) struct Capture(EngineInfo, Mutex<Vec<Request>>);
impl Capture {
    /// Requests of these names that wait, each with its own hold id, as core makes them.
    pub(crate) fn requests(names: impl IntoIterator<Item = String>) -> Vec<Request> {
        let capture = Arc::new(Self(MemoryEngine::new().info().clone(), Mutex::default()));
        let client = Client::builder(capture.clone()).build().unwrap();
        one_thread().block_on(async {
            for name in names {
                let answer = client.mutex(name).ttl(LONG).try_lock_for(LONG).await.unwrap();
                assert!(answer.is_err());
            }
        });
        std::mem::take(&mut *capture.1.lock().unwrap())
    }
}
#[async_trait]
impl Engine for Capture {
    fn info(&self) -> &EngineInfo {
        &self.0
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        self.1.lock().unwrap().push(request.clone());
        Ok(Outcome::Busy(Busy::default()))
    }
    async fn withdraw(&self, _: &Request) -> Result<()> {
        Ok(())
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        Ok(vec![Renewed::Unknown; grants.len()])
    }
    async fn release(&self, _: &Grant) -> Result<Released> {
        Ok(Released::Released)
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        Ok(Status::free(name.clone()))
    }
    async fn list(&self, _: &str, _: &Page) -> Result<Listing> {
        Err(Error::new(ErrorKind::Unsupported, "list", "not here"))
    }
    async fn force_release(&self, _: &Name, _: Token) -> Result<Released> {
        Ok(Released::NotHeld { holder: None })
    }
}
