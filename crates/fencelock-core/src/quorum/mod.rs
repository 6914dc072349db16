//! Several stores as one: a lock is held while a majority of them says so. Redlock is this over Redis.
//!
//! * [`attempt`] asks and queues; its head says why that neither stops nor starves. `place` is where it stands, `token` settles the
//!   token, `told` what is told without it.
//! * [`ballot`] decides, and nothing else: `model`, of the tests, runs through every order of answers with it.
//! * [`entry`] is what this client has on each node, [`nodes`] what is known of the nodes and owed to them.
//! * [`renewal`], [`ending`], [`watch`], [`look`]: the other calls of the door. [`gather`] polls several calls in place.
mod attempt;
mod ballot;
mod ending;
mod entry;
mod gather;
mod look;
#[cfg(test)]
mod model;
mod nodes;
mod place;
mod renewal;
mod say;
mod token;
mod told;
mod watch;

use crate::{
    client::{free, take},
    clock::{BootClock, Clock},
    engine::Engine,
    error::{Error, ErrorKind, Result},
    keeper::Reports,
    types::{
        Capabilities, EngineId, EngineInfo, Fencing, Grant, Listing, Missing, Name, Ordering, Outcome, Page, Released,
        Renewed, Request, Status, TakenAway, Token, Waiting,
    },
};
use async_trait::async_trait;
use attempt::Attempt;
use gather::Gather;
use nodes::Shared;
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::timeout;

/// The shortest ttl: a node has 50 ms to answer, and a renewal has to be in time all the same.
const MIN_TTL: Duration = Duration::from_millis(300);
/// How long the last word to the nodes may take.
const CLOSE: Duration = Duration::from_millis(600);

/// Several independent stores as one engine. A lock is held while a majority of them has it, so that any minority may fail, hang or
/// be out of reach: of five nodes two, of three one. (Two nodes need both, and an even number needs as many as the next odd one.)
///
/// * A grant takes one round trip: all nodes are asked at once, and the answer of a majority is waited for. Each has max(50 ms,
///   5 % of the ttl); a reader, and whoever knows that others want the lock, waits up to 50 ms for the one on which they queue. What
///   it has on the others is renewed and released with it, or undone.
/// * Its validity is that of the weakest node of the best majority.
/// * The token is one that a majority of the nodes has stored beside the hold. It rises while the nodes keep what they have
///   acknowledged: see [`Fencing::BestEffort`].
/// * Readers and writers exclude each other by the same majorities. Semaphores do not: two majorities share one node, and where
///   several may hold at once that refuses nobody. So they are `Unsupported`, as cells and tickets are.
/// * Waiters queue on one node. They are woken by that, and come in about the order in which they came.
///
/// Members have tokens by the rule of memory, Redis, PostgreSQL and MariaDB, and a lease for each hold. ZooKeeper and etcd are
/// quorums themselves.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// use fencelock_core::{Client, Engine, Quorum, memory::MemoryEngine};
/// use std::sync::Arc;
///
/// let nodes: Vec<_> = (0..3).map(|_| Arc::new(MemoryEngine::new())).collect();
/// let engines = nodes.iter().map(|node| node.clone() as Arc<dyn Engine>);
/// let client = Client::builder(Arc::new(Quorum::new(engines)?.recreate(true))).build()?;
/// nodes[1].cut(true);                                         // one of three is out of reach
/// let guard = client.mutex("orders/42").lock().await?;
/// assert!(client.mutex("orders/42").try_lock().await?.is_err());
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub struct Quorum {
    info: EngineInfo,
    shared: Arc<Shared>,
}

impl Quorum {
    /// Of these stores. All clients of a quorum name the same ones, in whatever order.
    ///
    /// # Errors
    /// `InvalidConfig`: there are fewer than two, one is there twice, or has a client already. `Unsupported`: one cannot be a
    /// member.
    pub fn new(engines: impl IntoIterator<Item = Arc<dyn Engine>>) -> Result<Self> {
        let mut engines: Vec<_> = engines.into_iter().collect();
        // All clients number them alike: those who wait meet on the lowest.
        engines.sort_by_key(|engine| engine.info().id);
        let refuse = |kind, why: String, way_out: &str| Err(Error::new(kind, "connect", why).hint(way_out));
        if engines.len() < 2 {
            let few = format!("a quorum of {} cannot be made", engines.len());
            return refuse(ErrorKind::InvalidConfig, few, "name three or five independent stores");
        }
        if let Some(two) = engines.windows(2).find(|two| two[0].info().id == two[1].info().id) {
            let twice = format!("{} and {} are one store", two[0].info().endpoint, two[1].info().endpoint);
            return refuse(ErrorKind::InvalidConfig, twice, "each node of a quorum fails by itself: name each once");
        }
        for info in engines.iter().map(|engine| engine.info()) {
            let can = &info.capabilities;
            if !can.ttl_per_hold || !can.tickets || can.fencing == Fencing::OursOnly {
                let unfit = format!("{} cannot be a node of a quorum", info.endpoint);
                let way_out = match info.scheme {
                    "etcd" | "zookeeper" => "an ensemble is a quorum itself, with tokens of its own: use it directly",
                    _ => "its holds have to have leases of their own, and tokens that a floor raises",
                };
                return refuse(ErrorKind::Unsupported, unfit, way_out);
            }
        }
        for (n, engine) in engines.iter().enumerate() {
            if let Err(taken) = take(engine) {
                engines[..n].iter().for_each(free);
                return Err(taken);
            }
        }
        let info = info(&engines);
        Ok(Self { info, shared: Arc::new(Shared::new(engines, Arc::new(BootClock))) })
    }
    /// A renewal asks nodes that have no part of a hold for one, as long as a majority has: those that have lost it, or were not
    /// there when it was granted. Without it the next loss may be one too many; with it, a node that came back without its data
    /// takes part again.
    #[must_use]
    pub fn recreate(self, recreate: bool) -> Self {
        self.with(|shared| shared.recreates = recreate)
    }
    /// Known by another scheme than `quorum`, with an endpoint for people, and the URL that leads to the same locks and shows no secret.
    ///
    /// ```
    /// use fencelock_core::{Engine, Quorum, memory::MemoryEngine};
    /// use std::sync::Arc;
    ///
    /// let nodes = (0..3).map(|_| Arc::new(MemoryEngine::new()) as Arc<dyn Engine>);
    /// let quorum = Quorum::new(nodes).unwrap().called("trio", "trio:///", None);
    /// assert_eq!((quorum.info().scheme, &*quorum.info().endpoint), ("trio", "trio:///"));
    /// ```
    #[must_use]
    pub fn called(mut self, scheme: &'static str, endpoint: impl Into<Arc<str>>, url: Option<String>) -> Self {
        let info = &mut self.info;
        (info.scheme, info.endpoint, info.url) = (scheme, endpoint.into(), url.map(Into::into));
        self
    }
    /// Another clock than CLOCK_BOOTTIME: for tests. Give the client the same one.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        self.with(|shared| shared.clock = clock)
    }
    fn with(mut self, change: impl FnOnce(&mut Shared)) -> Self {
        // Nothing runs before there is a client: nobody else has it.
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            change(shared);
        }
        self
    }
}
impl Drop for Quorum {
    fn drop(&mut self) {
        self.shared.nodes.iter().for_each(|node| free(&node.engine));
    }
}
impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quorum({})", self.info.endpoint)
    }
}

/// What all of them can do, and which they are.
fn info(engines: &[Arc<dyn Engine>]) -> EngineInfo {
    let all = || engines.iter().map(|engine| engine.info());
    let can = || all().map(|info| &info.capabilities);
    let every = |which: fn(&Capabilities) -> bool| can().all(which);
    let capabilities = Capabilities {
        read_write: every(|can| can.read_write),
        downgrade: every(|can| can.downgrade),
        permits: false,
        cells: false,
        fixed_leases: every(|can| can.fixed_leases),
        tickets: false,
        fencing: if every(|can| can.fencing == Fencing::Durable) { Fencing::Durable } else { Fencing::BestEffort },
        ordering: Ordering::Any,
        waiting: if every(|can| can.waiting == Waiting::Push) { Waiting::Push } else { Waiting::Poll },
        taken_away: if every(|can| can.taken_away == TakenAway::Pushed) {
            TakenAway::Pushed
        } else {
            TakenAway::AtRenewal
        },
        ttl_per_hold: true,
        renew_batch: can().map(|can| can.renew_batch).min().unwrap_or(1),
        min_ttl: can().map(|can| can.min_ttl).max().unwrap_or(MIN_TTL).max(MIN_TTL),
        max_ttl: can().map(|can| can.max_ttl).min().unwrap_or(MIN_TTL),
        drift: can().map(|can| can.drift).fold(0.0, f64::max),
    };
    let layout = engines[0].info().layout;
    EngineInfo {
        id: id(all().map(|info| info.id)),
        namespace: say::together(all().map(|info| &*info.namespace)),
        scheme: "quorum",
        endpoint: say::together(all().map(|info| &*info.endpoint)),
        url: None,
        layout: if all().all(|info| info.layout == layout) { layout } else { "mixed" },
        capabilities,
        default_ttl: all().map(|info| info.default_ttl).min().unwrap_or(MIN_TTL),
    }
}
/// The same for the same stores, whoever names them (SAFETY K3): FNV-1a over their ids in order.
fn id(ids: impl Iterator<Item = EngineId>) -> EngineId {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in ids.flat_map(EngineId::to_bytes) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    EngineId::from_bytes(hash.to_be_bytes())
}
/// The ttl of those who do not say one.
fn default_ttl(shared: &Shared) -> Duration {
    shared.nodes.iter().map(|node| node.engine.info().default_ttl).min().unwrap_or(MIN_TTL)
}

#[async_trait]
impl Engine for Quorum {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    fn why_not(&self, missing: Missing) -> Option<&'static str> {
        match missing {
            Missing::Permits => Some("majorities exclude two, not one more than there are permits"),
            Missing::Cells => Some("a quorum decides who holds, and keeps no values"),
            Missing::Tickets => Some("a hold of a quorum is its client's"),
            Missing::Downgrade | Missing::ReadWrite => Some("not every node has it"),
        }
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        if let Some(again) = renewal::again(&self.shared, request).await {
            return again;
        }
        let mut attempt = Attempt::new(&self.shared, request);
        let outcome = attempt.run().await;
        if matches!(outcome, Ok(Outcome::Busy(_))) && !request.wait() && !request.is_stopped() {
            // Nothing is left: what may still come is owed.
            attempt.entry.end();
            self.shared.table.remove(request.hold());
        }
        outcome
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        ending::withdraw(&self.shared, request).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        renewal::renew(&self.shared, grants).await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        ending::release(&self.shared, grant).await
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        if grant.hold != next.hold() {
            let bound = Error::new(ErrorKind::Unsupported, "exchange", "a hold of a quorum is its client's");
            return Err(bound.hint("release it and lock anew"));
        }
        ending::downgrade(&self.shared, grant, next).await
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        watch::run(&self.shared, reports).await;
        Ok(())
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        look::inspect(&self.shared, name).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        look::list(&self.shared, prefix, page).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        ending::force_release(&self.shared, name, token).await
    }
    async fn close(&self) -> Result<()> {
        self.shared.pay_all(CLOSE).await;
        let mut gather = Gather::default();
        for (node, of) in self.shared.nodes.iter().enumerate() {
            let engine = of.engine.clone();
            gather.ask(node, async move { timeout(CLOSE / 2, engine.close()).await });
        }
        gather.all().await;
        Ok(())
    }
}
