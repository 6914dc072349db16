//! The engine's door. There is one session, and it lives on the keeper: what callers ask goes there.
use crate::{
    config::Config,
    error::Fault,
    keeper::{Job, run},
    link::{Link, PATIENCE},
    list::list,
    permits::Resized,
    session::Wire,
    shared::Shared,
    turns::{begin, ended, go_on, gone},
    wire::{node::Dialect, op::Op},
};
use async_trait::async_trait;
use fencelock_core::{
    Busy, Capabilities, Cells, Claim, Conflict, Engine, EngineInfo, Error, ErrorKind, Fencing, Grant, HoldId, Kind,
    Listing, LossReason, Name, Ordering, Outcome, Page, Released, Renewed, Reports, Request, Result, Status, TakenAway,
    Token, Version, Versioned, Waiting, on_tokio,
};
use std::{fmt, future::pending, pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, mpsc, oneshot, watch},
    time::{sleep, timeout},
};

/// What a server takes in one message, with room for what goes around it.
const LARGEST_VALUE: usize = 1_000_000;
/// So many permits are taken in one transaction.
const MOST_PERMITS: u32 = 4_096;
/// A write of a cell is remembered for so long.
const REMEMBERED: Duration = Duration::from_secs(90);

/// Locks in one ZooKeeper.
pub struct ZooKeeperEngine {
    info: EngineInfo,
    shared: Arc<Shared>,
    jobs: mpsc::UnboundedSender<Job>,
    home: Mutex<(Wire, mpsc::UnboundedReceiver<Job>)>,
    /// `run` is at work, or wants to be.
    runs: watch::Sender<bool>,
}

impl ZooKeeperEngine {
    /// Connects to the first server that greets us, and opens a session.
    ///
    /// # Errors
    /// `Unreachable` within 5 s, `PermissionDenied`, `InvalidConfig`.
    ///
    /// # Cancel safety
    /// If dropped nothing is left but a session that ends by itself.
    pub async fn connect(config: Config) -> Result<Self> {
        on_tokio(Self::open(config)).await
    }
    async fn open(config: Config) -> Result<Self> {
        config.check()?;
        let (link, mut wire) = Link::new(&config)?;
        let shared = Arc::new(Shared::new(&config, Arc::new(link))?);
        let told = |fault: Fault| fault.tell("connect", &config.endpoint());
        // The session is carried on by `run`.
        let id = tokio::select! {
            id = shared.link.again(|| shared.identity()) => id.map_err(told)?,
            () = wire.serve(&shared.link) => return Err(told(Fault::Closed)),
        };
        let ttl = wire.ttl().ok_or_else(|| told(Fault::Answer))?;
        let info = EngineInfo {
            id,
            namespace: config.namespace.as_str().into(),
            scheme: config.scheme(),
            endpoint: config.endpoint().into(),
            url: config.url().map(Into::into),
            layout: match config.dialect {
                Dialect::Curator => "curator",
                Dialect::Kazoo => "kazoo",
            },
            capabilities: capabilities(ttl),
            default_ttl: ttl,
        };
        let (jobs, inbox) = mpsc::unbounded_channel();
        Ok(Self { info, shared, jobs, home: Mutex::new((wire, inbox)), runs: watch::Sender::new(false) })
    }
    /// As [`connect`](Self::connect), by a `zookeeper:` URL.
    ///
    /// # Errors
    /// As there, and `InvalidConfig` for the URL.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn from_url(url: &str) -> Result<Self> {
        Self::connect(Config::from_url(url)?).await
    }

    fn link(&self) -> &Link {
        &self.shared.link
    }
    fn told(&self, operation: &'static str) -> impl Fn(Fault) -> Error + '_ {
        move |fault| self.link().tell(operation, &fault)
    }
    /// Done where the session is, whatever becomes of the caller's runtime meanwhile. `None`: what worked there was begun anew.
    async fn at_home<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (mut tx, rx) = oneshot::channel();
        let job = async move {
            tokio::select! {
                biased;
                done = work => drop(tx.send(done)),
                () = tx.closed() => {}
            }
        };
        self.jobs.send(Box::pin(job)).ok()?;
        rx.await.ok()
    }
    /// Where nobody runs the engine, whoever looks carries the session himself meanwhile, until somebody does.
    async fn served<T>(&self, work: impl Future<Output = T>) -> T {
        let (mut work, mut runs) = (pin!(work), self.runs.subscribe());
        loop {
            if *runs.borrow_and_update() {
                return work.await;
            }
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = runs.changed() => {}
                mut home = self.home.lock() => {
                    let (wire, _) = &mut *home;
                    tokio::select! {
                        biased;
                        done = &mut work => return done,
                        _ = runs.changed() => {}
                        () = wire.serve(self.link()) => {}
                    }
                }
            }
        }
    }
    /// *Invariant:* a message that no server takes would break the connection, and with it everybody's.
    fn fits(&self, operation: &'static str, len: usize) -> Result<()> {
        if len <= LARGEST_VALUE {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, operation, format!("{len} bytes do not go into one node"))
            .hint(format!("ZooKeeper takes {LARGEST_VALUE} at most")))
    }
}
/// For as long as it is there.
struct Running<'a>(&'a watch::Sender<bool>);
impl<'a> Running<'a> {
    fn new(runs: &'a watch::Sender<bool>) -> Self {
        runs.send_replace(true);
        Self(runs)
    }
}
impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}
fn capabilities(ttl: Duration) -> Capabilities {
    Capabilities {
        read_write: true,
        downgrade: true,
        permits: true,
        cells: true,
        fixed_leases: false,
        tickets: false,
        fencing: Fencing::Durable,
        ordering: Ordering::Fifo,
        waiting: Waiting::Push,
        taken_away: TakenAway::Pushed,
        ttl_per_hold: false,
        renew_batch: 64,
        min_ttl: ttl,
        max_ttl: ttl,
        drift: 0.01,
    }
}
impl fmt::Debug for ZooKeeperEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZooKeeper({})", self.info.endpoint)
    }
}

#[async_trait]
impl Engine for ZooKeeperEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        self.fits("lock", 2 * request.note().len())?;
        if let Claim::Permits { take, .. } = request.claim()
            && take > MOST_PERMITS
        {
            return Err(Error::new(ErrorKind::Unsupported, "lock", format!("{take} permits cannot be taken at once"))
                .hint(format!("take {MOST_PERMITS} at most")));
        }
        let begun = begin(&self.shared, request).await;
        match ended(&self.shared, request, begun).await {
            Ok(outcome) => outcome,
            Err(begun) => {
                let rest = go_on(self.shared.clone(), request.clone(), begun);
                self.at_home(rest).await.unwrap_or_else(|| Err(gone()))
            }
        }
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        let Some(place) = self.shared.leaving(request.hold()) else { return Ok(()) };
        self.served(self.shared.withdraw(place)).await.map_err(self.told("withdraw"))
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        // The session is kept by `run`; nothing is a hold's own, so nothing is extended here.
        let renewed = |grant: &Grant| match self.shared.held(grant) {
            Some(_) => Renewed::Unknown,
            None => Renewed::Lost(LossReason::TakenOver),
        };
        Ok(grants.iter().map(renewed).collect())
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        let told = self.told("release");
        let not_held = async || {
            // That it is not held is certain, who holds it is not.
            let status = self.inspect(&grant.name).await.ok();
            Ok(Released::NotHeld { holder: status.and_then(|status| status.holders.into_iter().next()) })
        };
        // Said before the command that does it, or its watch would tell a loss.
        let held = self.shared.held(grant).and_then(|place| self.shared.leaving(place.hold));
        let Some(mut place) = held else { return not_held().await };
        // It was sent before, and nobody knows what became of it: nodes that are gone are what it left.
        let again = std::mem::replace(&mut place.unsure, false);
        match self.served(self.shared.leave(&mut place)).await {
            Ok(there) => {
                self.shared.forget(place.hold);
                if there || again { Ok(Released::Released) } else { not_held().await }
            }
            Err(fault) => {
                self.shared.change(place.hold, |place| place.unsure |= fault.may_pass());
                Err(told(fault))
            }
        }
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::Unsupported, "exchange", what).with("name", &grant.name));
        if next.hold() != grant.hold {
            return refuse("this engine cannot pass a hold on");
        }
        if (grant.claim, next.claim()) != (Claim::Write, Claim::Read) {
            return refuse("only a writer's hold can become a reader's");
        }
        let Some(mut place) = self.shared.held(grant) else { return Ok(Outcome::Busy(Busy::default())) };
        if self.served(self.shared.downgrade(&mut place)).await.map_err(self.told("downgrade"))? {
            return Ok(Outcome::Granted(Grant { claim: next.claim(), ..grant.clone() }));
        }
        let status = self.inspect(&grant.name).await?;
        Ok(Outcome::Busy(Busy::new(status.holders.into_iter().next(), None)))
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        let _running = Running::new(&self.runs);
        let mut home = self.home.lock().await;
        let (wire, jobs) = &mut *home;
        self.link().attend(reports);
        run(&self.shared, wire, jobs).await;
        Ok(())
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        let seen = self.served(self.link().again(|| self.shared.see(name))).await;
        seen.map(|seen| seen.status).map_err(self.told("status"))
    }
    async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status> {
        loop {
            match self.served(self.shared.observe(name, seen)).await {
                Err(fault) if fault.may_pass() => {
                    // It goes on when there is an answer.
                    self.served(self.link().session(pending())).await.map_err(self.told("observe"))?;
                    sleep(Duration::from_millis(50)).await;
                }
                status => return status.map_err(self.told("observe")),
            }
        }
    }
    async fn resize(&self, name: &Name, from: u32, to: u32) -> Result<()> {
        let resized = self.served(self.link().again(|| self.shared.resize(name, from, to))).await;
        match resized.map_err(self.told("resize"))? {
            Resized::Done => Ok(()),
            Resized::OtherKind(kind) => Err(Error::other_kind("resize", name, Kind::Semaphore, kind)),
            Resized::OtherSize(size) => Err(Error::other_capacity("resize", name, from, size)),
        }
    }
    fn cells(&self) -> Option<&dyn Cells> {
        Some(self)
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.served(self.link().again(|| list(&self.shared, prefix, page))).await.map_err(self.told("list"))
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        let forced =
            self.served(self.link().again(|| self.shared.force(name, token))).await.map_err(self.told("release"))?;
        Ok(match forced {
            Ok(()) => Released::Released,
            Err(holder) => Released::NotHeld { holder },
        })
    }
    async fn close(&self) -> Result<()> {
        // It ends by itself where somebody has said that his lock is not free before its time, or nobody can be reached.
        if !self.shared.holds_on() {
            let closed = self.link().look(Op::Close);
            self.link().close();
            let serve = async {
                tokio::select! {
                    _ = closed.done() => {}
                    () = async { self.home.lock().await.0.serve(self.link()).await } => {}
                }
            };
            let _ = timeout(PATIENCE, serve).await;
        }
        self.link().close();
        Ok(())
    }
}

#[async_trait]
impl Cells for ZooKeeperEngine {
    async fn load(&self, name: &Name) -> Result<Versioned> {
        let loaded = self.served(self.link().again(|| self.shared.load(name))).await;
        loaded.map_err(self.told("cell"))?.map_err(|kind| Error::other_kind("cell", name, Kind::Cell, kind))
    }
    async fn compare_exchange(
        &self,
        name: &Name,
        expected: Version,
        value: Option<Arc<[u8]>>,
        nonce: HoldId,
    ) -> Result<std::result::Result<Version, Conflict>> {
        let value = value.as_deref();
        self.fits("cell", value.map_or(0, <[u8]>::len))?;
        let swapped = self.served(self.link().again(|| self.shared.swap(name, expected, value, nonce))).await;
        let shared = self.shared.clone();
        let unwrite = async move {
            sleep(REMEMBERED).await;
            shared.unwrite(nonce).await;
        };
        let _ = self.jobs.send(Box::pin(unwrite));
        swapped.map_err(self.told("cell"))?.map_err(|kind| Error::other_kind("cell", name, Kind::Cell, kind))
    }
}
