//! A client: one engine, one keeper, the local queue. Handles are cheap; a bad name or option is told at the first await.
use crate::{
    attempt::adopt,
    blocking::runtime,
    clock::{BootClock, Clock, Moment},
    engine::{Engine, lacks},
    error::{Error, ErrorKind, Result},
    floors::Floors,
    gate::Gate,
    guard::{Guard, Held},
    keeper::{Host, Job, Keeper},
    locks::{Cell, Election, Mutex, Options, Owner, RwLock, Semaphore},
    observe,
    quorum::Quorum,
    shared_guard::SharedGuard,
    ticket::Ticket,
    turns::Turns,
    types::{Busy, EngineInfo, Listing, Minter, Missing, Name, Page, Released, Request, Status, Token, Wish},
};
use std::{
    collections::HashSet,
    fmt,
    future::Future,
    os::fd::OwnedFd,
    pin::pin,
    sync::{
        Arc, LazyLock, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::*},
    },
    time::Duration,
};
use tokio::sync::{Notify, oneshot};

/// What clients, handles and guards share.
pub(crate) struct Core {
    pub(crate) host: Host,
    pub(crate) turns: Turns,
    pub(crate) floors: Floors,
    pub(crate) minter: Minter,
    closed: AtomicBool,
    end: Notify,
}
impl Core {
    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.host.keeper
    }
    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.host.keeper.engine
    }
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }
    /// Resolves when the client is shut down.
    pub(crate) async fn ended(&self) {
        let mut end = pin!(self.end.notified());
        loop {
            end.as_mut().enable();
            if self.is_closed() {
                return;
            }
            end.as_mut().await;
            end.set(self.end.notified());
        }
    }
    /// Before anything is sent.
    pub(crate) fn ready(&self, operation: &'static str) -> Result<()> {
        if self.is_closed() {
            return Err(Error::closed(operation));
        }
        if self.host.is_forked() {
            let forked = Error::closed(operation).with("process", std::process::id());
            return Err(forked.hint("this process was forked from the client's: a child connects by itself"));
        }
        self.host.start()?;
        self.host.may_wait()
    }
    pub(crate) async fn nap(&self, until: Option<Moment>) {
        match until {
            Some(at) => tokio::time::sleep(self.keeper().clock.now().until(at)).await,
            None => std::future::pending().await,
        }
    }
    /// Sleeps, also for callers without a runtime; false: the client is shut down, and there is nobody to wake them.
    pub(crate) fn pause(&self, d: Duration) -> impl Future<Output = bool> + Send + use<> {
        let woken = runtime().is_none().then(|| {
            let (mut tx, rx) = oneshot::channel();
            self.host.job(Job::Run(Box::pin(async move {
                let slept = tokio::time::timeout(d, tx.closed()).await.is_err();
                let _ = slept.then(|| tx.send(()));
            })));
            rx
        });
        async move {
            match woken {
                Some(woken) => return woken.await.is_ok(),
                None => tokio::time::sleep(d).await,
            }
            true
        }
    }
    /// Here when there is a tokio runtime, else on the keeper's: every public async call goes through this.
    pub(crate) async fn on_runtime<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if runtime().is_some() {
            return call.await;
        }
        self.host.may_wait()?;
        let (call, (tx, rx)) = (observe::elsewhere(call), oneshot::channel());
        self.host.job(Job::Run(Box::pin(async move { drop(tx.send(call.await)) })));
        rx.await.unwrap_or_else(|_| Err(Error::closed("call")))
    }
}
impl Drop for Core {
    fn drop(&mut self) {
        self.host.farewell();
        free(self.engine());
    }
}
/// The engines that have a client. A second one would keep another session's time, and its end would close the first one's
/// engine.
fn engines() -> MutexGuard<'static, HashSet<usize>> {
    static TAKEN: LazyLock<std::sync::Mutex<HashSet<usize>>> = LazyLock::new(Default::default);
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}
fn address(engine: &Arc<dyn Engine>) -> usize {
    Arc::as_ptr(engine).cast::<()>().addr()
}
/// It is this client's, or this quorum's, and nobody else's.
pub(crate) fn take(engine: &Arc<dyn Engine>) -> Result<()> {
    if engines().insert(address(engine)) {
        return Ok(());
    }
    let taken = Error::new(ErrorKind::InvalidConfig, "connect", "this engine has a client already");
    Err(taken.hint("clone that client, or open another engine"))
}
pub(crate) fn free(engine: &Arc<dyn Engine>) {
    engines().remove(&address(engine));
}
impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine().fmt(f)
    }
}

/// A connection to an engine, and all that keeps holds alive and honest. Cheap to clone: clones are the same client.
///
/// The last of its clones, handles and guards to go waits up to 250 ms for dropped guards to be released. A process that exits
/// in another way has released nothing but what was awaited.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::{sync::Arc, time::Duration};
/// # use fencelock_core::{Client, memory::MemoryEngine};
/// let client = Client::builder(Arc::new(MemoryEngine::new())).build()?;
/// let guard = client.mutex("orders/42").lock().await?;
/// assert!(client.inspect("orders/42").await?.is_held());
/// for lock in client.list("orders/", &Default::default()).await?.items {
///     println!("{}: {} holders", lock.name, lock.holders.len());
/// }
///
/// // An operator breaks exactly this hold; its holder is told at once.
/// let lost = guard.lost();
/// client.force_release("orders/42", guard.token()).await?;
/// assert_eq!(lost.await, fencelock_core::LossReason::TakenOver);
/// client.shutdown(Duration::from_secs(1)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    core: Arc<Core>,
}

/// How a client is made of an engine in hand. For tests with paused time it takes another clock and another keeper:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), fencelock_core::Error> {
/// use fencelock_core::{Client, TokioClock, memory::{MemoryEngine, MemoryServer}};
/// use std::{sync::Arc, time::Duration};
///
/// let clock = Arc::new(TokioClock::start());
/// let engine = Arc::new(MemoryEngine::on(MemoryServer::new(clock.clone())));
/// let client = Client::builder(engine.clone()).clock(clock).keeper_here().build()?;
/// let guard = client.mutex("orders/42").lock().await?;
/// engine.cut(true);
/// guard.suspect().await;      // twenty seconds later, in no time
/// guard.lost().await;         // and ten more
/// assert!(guard.check().is_err());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ClientBuilder {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    here: bool,
    seed: Option<u64>,
    gate: Option<Gate>,
}
impl ClientBuilder {
    /// Everything that the client does by itself goes through this gate: for tests of paused processes. Goes with
    /// [`keeper_here`](Self::keeper_here); what you do with the client goes through it by your own hand.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = Some(gate);
        self
    }
    /// Hold ids follow from this number, so that a simulation can be repeated. Each client of a store needs one of its own.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
    /// Another clock than CLOCK_BOOTTIME: for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
    /// The keeper is a task of the caller's runtime and not two threads: for tests with paused time. A runtime that is blocked
    /// or gone then renews and releases nothing.
    #[must_use]
    pub fn keeper_here(mut self) -> Self {
        self.here = true;
        self
    }
    /// The client.
    ///
    /// # Errors
    /// `Unreachable` when the system has no timer or no random numbers for it; `InvalidConfig` when the engine has a client
    /// already.
    pub fn build(self) -> Result<Client> {
        let engine = self.engine.clone();
        observe::describe(engine.info().scheme);
        take(&engine)?;
        let made = self.core();
        if made.is_err() {
            free(&engine);
        }
        Ok(Client { core: Arc::new(made?) })
    }
    fn core(self) -> Result<Core> {
        let host = Host::new(self.engine, self.clock, self.here, self.gate)?;
        let (turns, floors, minter) = (Turns::default(), Floors::default(), Minter::new(self.seed)?);
        Ok(Core { host, turns, floors, minter, closed: AtomicBool::new(false), end: Notify::new() })
    }
}

impl Client {
    /// For an engine in hand; `fencelock::connect` makes one from a URL.
    pub fn builder(engine: Arc<dyn Engine>) -> ClientBuilder {
        ClientBuilder { engine, clock: Arc::new(BootClock), here: false, seed: None, gate: None }
    }
    /// For several independent stores as one: a lock is held while a majority of them says so, and any minority may fail. See
    /// [`Quorum`], which has the options.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
    /// # use std::sync::Arc;
    /// use fencelock_core::{Client, Engine, memory::MemoryEngine};
    ///
    /// let stores = (0..5).map(|_| Arc::new(MemoryEngine::new()) as Arc<dyn Engine>);
    /// let client = Client::quorum(stores)?.build()?;
    /// client.mutex("orders/42").lock().await?.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `InvalidConfig` or `Unsupported`, as [`Quorum::new`] says.
    pub fn quorum(engines: impl IntoIterator<Item = Arc<dyn Engine>>) -> Result<ClientBuilder> {
        Ok(Self::builder(Arc::new(Quorum::new(engines)?)))
    }
    /// A mutex of this name. Nothing is sent, and nothing is checked, before the first await.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.options(name))
    }
    /// A read-write lock of this name. Nothing is sent, and nothing is checked, before the first await.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.options(name))
    }
    /// A semaphore of this name with so many permits. Nothing is sent, and nothing is checked, before the first await.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self.options(name), permits)
    }
    /// An election of this name. Nothing is sent, and nothing is checked, before the first await.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.options(name))
    }
    /// A value of this name. Nothing is sent, and nothing is checked, before the first await.
    pub fn cell(&self, name: impl AsRef<str>) -> Cell {
        Cell::new(self.options(name))
    }
    fn options(&self, name: impl AsRef<str>) -> Options {
        Options::new(self.core.clone(), name.as_ref())
    }
    /// A new owner, whose holds enter each other.
    pub fn owner(&self) -> Owner {
        Owner::new(&self.core)
    }
    /// Takes over a hold that somebody let go of with [`Held::into_ticket`], under a fresh token. Of several who try, one has it.
    ///
    /// # Errors
    /// `NotHeld`: it was adopted by somebody else, or has run out. `InvalidConfig`: the ticket is of another engine, or of a
    /// hold that is shared ([`adopt_shared`](Self::adopt_shared)). `Unsupported`; or what the engine says.
    ///
    /// # Cancel safety
    /// If dropped, what was adopted is released.
    pub async fn adopt(&self, ticket: &Ticket) -> Result<Guard> {
        self.take_over(ticket, true).await.map(Guard::new)
    }
    /// As [`adopt`](Self::adopt), for a reader's hold or permits.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn adopt_shared(&self, ticket: &Ticket) -> Result<SharedGuard> {
        self.take_over(ticket, false).await.map(SharedGuard::new)
    }
    async fn take_over(&self, ticket: &Ticket, exclusive: bool) -> Result<Held> {
        self.core.ready("adopt")?;
        let info = self.info();
        let refuse = |kind, why: &str, way_out: &str| {
            Err(Error::new(kind, "adopt", why).with("name", ticket.name()).hint(way_out))
        };
        if ticket.engine() != info.id {
            let way_out = "adopt it with a client of the store that it was made on";
            return refuse(ErrorKind::InvalidConfig, "the ticket is of another engine", way_out);
        }
        if ticket.claim().is_exclusive() != exclusive {
            let way_out = "adopt is for exclusive holds, adopt_shared for the others";
            return refuse(ErrorKind::InvalidConfig, "the ticket is of the other sort", way_out);
        }
        if !info.capabilities.tickets {
            let none = lacks(&**self.core.engine(), Missing::Tickets, "adopt", "tickets");
            return Err(none.with("name", ticket.name()).hint("lock anew"));
        }
        let (name, floor) = (ticket.name().clone(), self.core.floors.of(ticket.name()));
        let wish = Wish {
            name,
            claim: ticket.claim(),
            ttl: ticket.ttl(),
            fixed: false,
            max_hold: None,
            at_least: Duration::ZERO,
            wait: false,
            note: "".into(),
        };
        let request = Request::new(wish, self.core.minter.mint(), floor);
        let (core, grant) = (self.core.clone(), ticket.grant());
        match self.core.on_runtime(async move { adopt(&core, &request, &grant).await }).await? {
            Ok(held) => Ok(held),
            Err(Busy { holder, .. }) => {
                let gone = Error::new(ErrorKind::NotHeld, "adopt", "the ticket is not good any more");
                let gone = gone.with("name", ticket.name()).hint("it was adopted by somebody else, or its ttl is over");
                Err(match holder {
                    Some(now) => gone.with("held now by", format!("{} pid {} {:?}", now.host, now.pid, now.note)),
                    None => gone,
                })
            }
        }
    }
    /// What the engine is, where, and what it can do.
    pub fn info(&self) -> &EngineInfo {
        self.core.engine().info()
    }
    /// The ttl of holds that do not say their own.
    pub fn ttl(&self) -> Duration {
        self.info().default_ttl
    }
    /// How many holds this client has.
    pub fn held(&self) -> usize {
        self.core.keeper().losses.len()
    }
    /// See [`Engine::lifeline`].
    ///
    /// # Errors
    /// As there.
    pub fn lifeline(&self) -> Result<OwnedFd> {
        self.core.engine().lifeline()
    }
    /// One lock, as it is now.
    ///
    /// # Errors
    /// `InvalidName`, or what the engine says.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Status> {
        self.core.ready("status")?;
        let (name, keeper) = (Name::new(name)?, self.core.keeper().clone());
        let look = async move { observe::timed(&keeper, "inspect", keeper.engine.inspect(&name)).await };
        self.core.on_runtime(look).await.map_err(Error::of_a_read)
    }
    /// The locks that are held or waited for and whose names begin with `prefix`, a page at a time.
    ///
    /// # Errors
    /// What the engine says.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.core.ready("list")?;
        let (prefix, page, keeper) = (prefix.to_owned(), page.clone(), self.core.keeper().clone());
        let look = async move { observe::timed(&keeper, "list", keeper.engine.list(&prefix, &page)).await };
        self.core.on_runtime(look).await.map_err(Error::of_a_read)
    }
    /// Takes the lock away from the hold with this token, and from no other. Its holder is told at once; what it does in that
    /// moment only the fence keeps out.
    ///
    /// # Errors
    /// `InvalidName`, or what the engine says.
    ///
    /// # Cancel safety
    /// If dropped it may or may not have been done.
    pub async fn force_release(&self, name: impl AsRef<str>, token: Token) -> Result<Released> {
        self.core.ready("release")?;
        let (name, keeper) = (Name::new(name)?, self.core.keeper().clone());
        let call =
            async move { observe::timed(&keeper, "force_release", keeper.engine.force_release(&name, token)).await };
        self.core.on_runtime(call).await
    }
    /// Ends all waits with `Closed`, waits until what was dropped is released and what was abandoned is withdrawn, at most
    /// `grace`, and closes the engine. Holds that are still there are told that they are lost, or run out.
    ///
    /// # Errors
    /// `Unreachable` when it was not done within `grace`; it goes on behind.
    ///
    /// # Cancel safety
    /// If dropped it goes on behind.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        if self.core.host.is_forked() {
            return Ok(());
        }
        self.core.host.may_wait()?;
        self.core.closed.store(true, Release);
        self.core.end.notify_waiters();
        self.core.turns.let_go();
        for request in self.core.keeper().losses.awaited() {
            request.stop();
            // What cannot end by itself, on a runtime that is blocked, is withdrawn before the engine is closed.
            self.core.host.job(Job::undo(request, true));
        }
        let ((late, mut timer), (tx, mut rx)) = (oneshot::channel(), oneshot::channel());
        self.core.host.job(Job::Run(Box::pin(async move {
            tokio::time::sleep(grace).await;
            let _ = late.send(());
        })));
        self.core.host.job(Job::Close(Box::new(move || {
            let _ = tx.send(());
        })));
        // The timer runs on the keeper, so that callers without tokio are served too. An error: the keeper has closed.
        let in_time = tokio::select! {
            biased;
            _ = &mut rx => true,
            late = &mut timer => late.is_err(),
        };
        if in_time {
            return Ok(());
        }
        let late = Error::new(ErrorKind::Unreachable, "shutdown", "not everything was released in time");
        Err(late.with("grace", format!("{grace:?}")).hint("leases end by themselves"))
    }
}
