//! The engine's door: calls of callers go over their runtime's own connection, whatever waits is given to `run`.
use crate::{
    advice::advice,
    claims::{Confirmed, Entered},
    config::{Config, MAX_TTL, MIN_TTL},
    error::Fault,
    keeper::{Order, revoke, run},
    leases::{Place, Term},
    link::{CONNECT_TIMEOUT, Conn, Link, PATIENCE},
    list::list,
    shared::Shared,
    shelf::Resized,
    together::All,
    turns::Turned,
    watch::{self, Watches},
    wire::{
        key::Keys,
        pb::{KeyValue, LeaseGrant, LeaseGranted},
        txn::{choose, created, get, put},
    },
};
use async_trait::async_trait;
use fencelock_core::{
    BootClock, Busy, Capabilities, Cells, Claim, Clock, Conflict, Engine, EngineId, EngineInfo, Error, ErrorKind,
    Fencing, Grant, HoldId, Kind, Listing, LossReason, Moment, Name, Ordering, Outcome, Page, Released, Renewed,
    Reports, Request, Result, Status, TakenAway, Together, Token, Version, Versioned, Waiting, on_tokio,
};
use std::{fmt, future::pending, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::sleep,
};

/// So often a claim is sent again under its hold id when nobody knows what became of it.
const AGAIN: u32 = 5;
/// For so long the store's identity outlives the last who made it.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// Locks in one etcd.
pub struct EtcdEngine {
    info: EngineInfo,
    shared: Arc<Shared>,
    watches: Arc<Watches>,
    orders: mpsc::UnboundedSender<Order>,
    inbox: Mutex<(mpsc::UnboundedReceiver<Order>, mpsc::UnboundedReceiver<watch::Order>)>,
}

impl EtcdEngine {
    /// Connects to the first member that answers.
    ///
    /// # Errors
    /// `Unreachable` within 5 s, `PermissionDenied`, `InvalidConfig`.
    ///
    /// # Cancel safety
    /// If dropped nothing is left but, perhaps, the store's identity, which goes by itself.
    pub async fn connect(config: Config) -> Result<Self> {
        on_tokio(Self::open(config)).await
    }
    async fn open(config: Config) -> Result<Self> {
        config.check()?;
        let link = Link::new(&config)?;
        let shared = Arc::new(Shared::new(Keys::new(&config.prefix, &config.namespace), link));
        let told = |fault: Fault| fault.tell("connect", &config.endpoint());
        let mine = &shared;
        let id = shared.link.again(|conn| async move { identity(mine, &conn).await }).await.map_err(told)?;
        let capabilities = Capabilities {
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
            ttl_per_hold: true,
            renew_batch: 64,
            min_ttl: MIN_TTL,
            max_ttl: MAX_TTL,
            drift: 0.01,
        };
        let info = EngineInfo {
            id,
            namespace: config.namespace.as_str().into(),
            scheme: config.scheme(),
            endpoint: config.endpoint().into(),
            url: config.url().map(Into::into),
            layout: "native",
            capabilities,
            default_ttl: config.ttl,
        };
        let ((orders, inbox), (watches, watched)) = (mpsc::unbounded_channel(), Watches::new());
        Ok(Self { info, shared, watches: Arc::new(watches), orders, inbox: Mutex::new((inbox, watched)) })
    }
    /// As [`connect`](Self::connect), by an `etcd:` URL.
    ///
    /// # Errors
    /// As there, and `InvalidConfig` for the URL.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn from_url(url: &str) -> Result<Self> {
        Self::connect(Config::from_url(url)?).await
    }

    /// What is known to be wrong with a server of this version, and what to do about it: a line for each.
    ///
    /// ```no_run
    /// # async fn example() -> fencelock_core::Result<()> {
    /// let engine = fencelock_etcd::EtcdEngine::from_url("etcd://localhost").await?;
    /// engine.advice().await?.iter().for_each(|line| eprintln!("{line}"));
    /// # Ok(()) }
    /// ```
    /// # Errors
    /// What the server says.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn advice(&self) -> Result<Vec<String>> {
        let shared = self.shared.clone();
        on_tokio(async move { advice(&shared.link).await.map_err(|fault| shared.link.tell("advice", &fault)) }).await
    }

    fn link(&self) -> &Link {
        &self.shared.link
    }
    fn told(&self, operation: &'static str) -> impl Fn(Fault) -> Error + '_ {
        move |fault| self.link().tell(operation, &fault)
    }
    /// Where the attempt is written: where it was, or by a lease of its term by which nobody contends for this name.
    /// `None`: it was stopped.
    async fn place(&self, request: &Request) -> std::result::Result<Option<Place>, Fault> {
        loop {
            if let Some(place) = self.shared.found(request.hold()) {
                return Ok(Some(place));
            }
            let lease = self.shared.leases().take(Term::of(request), request.name(), request.claim());
            if let Some(lease) = lease {
                return Ok(Some(self.shared.place(request, lease)));
            }
            let (reply, rx) = oneshot::channel();
            self.orders.send(Order::Lease { term: Term::of(request), reply }).map_err(|_| Fault::Closed)?;
            tokio::select! {
                biased;
                end = rx => match end {
                    Ok(end) => end?,
                    // `run` was begun anew.
                    Err(_) => self.pause(request, Duration::from_millis(5)).await,
                },
                () = request.stopped() => return self.shared.trouble().map_or(Ok(None), Err),
            }
        }
    }
    /// *Invariant (SAFETY E5):* after a stop no timer is polled: its runtime may be gone.
    async fn pause(&self, request: &Request, time: Duration) {
        tokio::select! {
            biased;
            () = request.stopped() => {}
            () = sleep(time) => {}
        }
    }
    /// Core takes a refusal for nothing left behind. `queued`: something is.
    async fn nothing_of(&self, conn: &Conn, place: &Place, queued: bool) -> std::result::Result<(), Fault> {
        if queued || self.shared.is_haunted(place) {
            self.shared.undo(conn, place).await?;
        }
        self.shared.forget(place);
        Ok(())
    }
    /// A claim was not answered: after a pause it is sent again, or that is told.
    async fn missed(
        &self,
        request: &Request,
        place: &Place,
        misses: &mut u32,
        limit: Moment,
        fault: Fault,
    ) -> std::result::Result<(), Fault> {
        *misses += 1;
        self.shared.haunt(place);
        let passes = *misses <= AGAIN || BootClock.now() < limit;
        if !(fault.may_pass() || fault.is_no_lease() && *misses <= AGAIN) || !passes || request.is_stopped() {
            return Err(fault);
        }
        tokio::select! {
            biased;
            () = request.stopped() => Err(fault),
            () = sleep(Duration::from_millis(10 << (*misses).min(5))) => Ok(()),
        }
    }
    fn granted(&self, request: &Request, place: &Place, token: i64) -> Result<Outcome> {
        let grant = self.shared.granted(request, place, token);
        grant.map(Outcome::Granted).ok_or_else(|| self.link().tell("lock", &Fault::Answer))
    }
}
/// Which store this is. It is kept by a lease of its own, and goes when nobody has come for an hour.
async fn identity(shared: &Shared, conn: &Conn) -> std::result::Result<EngineId, Fault> {
    let key = shared.keys.id();
    let read = |value: &[u8]| {
        let id = std::str::from_utf8(value).ok().and_then(|id| u128::from_str_radix(id, 16).ok());
        id.map(|id| EngineId::from_bytes(id.to_be_bytes())).ok_or(Fault::Answer)
    };
    let known_as = |known: &KeyValue| {
        if known.lease != 0 {
            shared.leases().remember(known.lease, REMEMBERED);
        }
        read(&known.value)
    };
    let known = shared.link.txn(conn, choose(Vec::new(), vec![get(&key)], Vec::new())).await?;
    if let Some(known) = known.one(0).ok_or(Fault::Answer)? {
        return known_as(known);
    }
    let ask = LeaseGrant { ttl: i64::try_from(REMEMBERED.as_secs()).unwrap_or(i64::MAX), id: 0 };
    let lease: LeaseGranted = shared.link.call(conn, "/etcdserverpb.Lease/LeaseGrant", ask).await?;
    let mine = EngineId::random().map_err(|_| Fault::Closed)?;
    let value = mine.to_string().into_bytes();
    let claim = choose(vec![created(&key, 0)], vec![put(&key, value, lease.id)], vec![get(&key)]);
    let answer = shared.link.txn(conn, claim).await?;
    if answer.succeeded {
        shared.leases().remember(lease.id, REMEMBERED);
        return Ok(mine);
    }
    revoke(shared, conn, lease.id).await?;
    known_as(answer.one(0).ok_or(Fault::Answer)?.ok_or(Fault::Answer)?)
}
impl fmt::Debug for EtcdEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etcd({})", self.info.endpoint)
    }
}

#[async_trait]
impl Engine for EtcdEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        let told = self.told("lock");
        let (mut misses, limit, mut queue, mut passed) = (0, BootClock.now() + CONNECT_TIMEOUT, false, 0);
        let (mut place, front) = loop {
            let Some(place) = self.place(request).await.map_err(&told)? else {
                return Ok(Outcome::Busy(Busy::default()));
            };
            // After the lease: whoever has waited for that in vain has given up the connection that there was.
            let conn = self.link().soon(request.stopped()).await;
            // What ends it is the epoch; core wants to know when to look for the last time.
            let open = conn.is_ok() && request.open(BootClock.now(), PATIENCE).is_some();
            // It may have been taken back before: then nobody comes for this place any more.
            if !open && place.created == 0 && !place.haunted {
                self.shared.forget(&place);
            }
            let conn = conn.map_err(&told)?;
            if !open {
                return Ok(Outcome::Busy(Busy::default()));
            }
            match self.shared.enter(&conn, &place, request.wait() || queue).await {
                Ok(Entered::Granted { token, .. }) => return self.granted(request, &place, token),
                Ok(Entered::Queued(front)) if request.wait() => break (place, front),
                // It fits in, or did a moment ago.
                Ok(Entered::Queued(front)) => match self.shared.confirm(&conn, &place, &front).await {
                    Ok(Confirmed::Granted { token }) => return self.granted(request, &place, token),
                    Ok(Confirmed::Gone) => self.nothing_of(&conn, &place, true).await.map_err(&told)?,
                    Ok(Confirmed::Waits(_) | Confirmed::TooLarge) => {
                        self.nothing_of(&conn, &place, true).await.map_err(&told)?;
                        return Ok(Outcome::Busy(*front.busy));
                    }
                    Err(fault) => {
                        self.missed(request, &place, &mut misses, limit, fault).await.map_err(&told)?;
                    }
                },
                Ok(Entered::Fits) => queue = true,
                Ok(Entered::Busy(busy)) => {
                    self.nothing_of(&conn, &place, false).await.map_err(&told)?;
                    return Ok(Outcome::Busy(busy));
                }
                Ok(Entered::OtherKind(kind)) => {
                    self.nothing_of(&conn, &place, false).await.map_err(&told)?;
                    return Err(request.other_kind(kind));
                }
                Ok(Entered::OtherCapacity(size)) => {
                    self.nothing_of(&conn, &place, false).await.map_err(&told)?;
                    return Err(request.other_capacity(size));
                }
                Ok(Entered::Forgotten(size)) => {
                    if request.claim().capacity() != Some(size) {
                        self.nothing_of(&conn, &place, false).await.map_err(&told)?;
                        return Err(request.other_capacity(size));
                    }
                    self.shared.store_size(&conn, request.name(), size).await.map_err(&told)?;
                }
                Ok(Entered::NoLease) => self.shared.over(place.lease.id),
                // At once: another attempt was taken back, which is over.
                Ok(Entered::Epoch(epoch)) => {
                    self.shared.epoch(&place, epoch);
                    passed += 1;
                    if passed > 2 {
                        self.pause(request, Duration::from_micros(fastrand::u64(0..5_000))).await;
                    }
                }
                // Until that one is gone the lease is not used for this name.
                Ok(Entered::Occupied) => {
                    if self.shared.is_haunted(&place) {
                        self.shared.undo(&conn, &place).await.map_err(&told)?;
                    }
                    self.shared.elsewhere(&place);
                    self.pause(request, Duration::from_millis(10)).await;
                }
                Err(fault) => {
                    // Its own lease is there, or its epoch would not have been.
                    if fault.is_no_lease() {
                        self.shared.shelf_is_gone();
                    }
                    self.missed(request, &place, &mut misses, limit, fault).await.map_err(&told)?;
                }
            }
        };
        request.queued((*front.busy).clone());
        loop {
            let (reply, rx) = oneshot::channel();
            let order = Order::Wait { request: request.clone(), place: Box::new(place), front: front.clone(), reply };
            if self.orders.send(order).is_err() {
                return Err(told(Fault::Closed));
            }
            match rx.await {
                Ok(Turned::Granted(grant)) => return Ok(Outcome::Granted(grant)),
                Ok(Turned::Stopped(busy)) => return Ok(Outcome::Busy(busy)),
                Ok(Turned::Displaced) => return Ok(Outcome::Displaced),
                Ok(Turned::Failed(fault)) => return Err(told(fault)),
                // `run` was begun anew: its place in the queue is still there.
                Err(_) => match self.shared.found(request.hold()) {
                    Some(found) => place = found,
                    None => return Ok(Outcome::Displaced),
                },
            }
        }
    }
    async fn acquire_all(&self, requests: &[Request]) -> Result<Together> {
        let told = self.told("lock");
        let mut places = Vec::with_capacity(requests.len());
        let placed = async {
            for request in requests {
                places.extend(self.place(request).await?);
            }
            self.link().soon(requests[0].stopped()).await
        };
        let conn = match placed.await {
            Ok(conn) => conn,
            Err(fault) => {
                places.iter().for_each(|place| self.shared.forget(place));
                return Err(told(fault));
            }
        };
        let all = places.len() == requests.len()
            && requests.iter().all(|request| request.open(BootClock.now(), PATIENCE).is_some());
        let got = if all { self.shared.enter_all(&conn, &places).await } else { Ok(All::Apart) };
        let got = match got {
            Ok(All::Granted { token }) => {
                let each =
                    requests.iter().zip(&places).map(|(request, place)| self.shared.granted(request, place, token));
                let grants = each.collect::<Option<_>>().ok_or_else(|| told(Fault::Answer))?;
                return Ok(Together::Granted(grants));
            }
            Ok(All::Busy(n, busy)) => Together::Busy(n, busy),
            Ok(All::Apart) => Together::Apart,
            Err(fault) => {
                places.iter().for_each(|place| self.shared.haunt(place));
                return Err(told(fault));
            }
        };
        places.iter().for_each(|place| self.shared.forget(place));
        Ok(got)
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        let Some(place) = self.shared.found(request.hold()) else { return Ok(()) };
        let told = self.told("withdraw");
        self.shared.leaves(&place);
        let conn = self.link().here().await.map_err(&told)?;
        self.shared.undo(&conn, &place).await.map_err(&told)?;
        self.shared.forget(&place);
        Ok(())
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        // Leases are kept alive by `run`; nothing is a hold's own, so nothing is extended here.
        let renewed = |grant: &Grant| match self.shared.held(grant) {
            Some(_) => Renewed::Unknown,
            None => Renewed::Lost(LossReason::TakenOver),
        };
        Ok(grants.iter().map(renewed).collect())
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        let told = self.told("release");
        let Some(place) = self.shared.held(grant) else {
            let status = self.inspect(&grant.name).await?;
            return Ok(Released::NotHeld { holder: status.holders.into_iter().next() });
        };
        self.shared.leaves(&place);
        let conn = self.link().here().await.map_err(&told)?;
        let left = match self.shared.leave(&conn, &place).await {
            Err(fault) if fault.is_no_lease() => Err(None),
            left => left.map_err(&told)?,
        };
        match left {
            Ok(()) => self.shared.forget(&place),
            // Somebody has taken a part of it away: the rest goes, too.
            Err(_) => self.nothing_of(&conn, &place, true).await.map_err(&told)?,
        }
        Ok(match left {
            Ok(()) => Released::Released,
            Err(holder) => Released::NotHeld { holder },
        })
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::Unsupported, "exchange", what).with("name", &grant.name));
        if next.hold() != grant.hold {
            return refuse("this engine cannot pass a hold on");
        }
        if (grant.claim, next.claim()) != (Claim::Write, Claim::Read) {
            return refuse("only a writer's hold can become a reader's");
        }
        let told = self.told("downgrade");
        let Some(place) = self.shared.held(grant) else { return Ok(Outcome::Busy(Busy::default())) };
        let conn = self.link().soon(next.stopped()).await.map_err(&told)?;
        // Before the writer's key goes, or its watch would tell a loss.
        self.shared.reads(grant.hold);
        match self.shared.downgrade(&conn, &place).await.map_err(&told)? {
            Ok(()) => Ok(Outcome::Granted(Grant { claim: next.claim(), ..grant.clone() })),
            Err(holder) => Ok(Outcome::Busy(Busy::new(holder, None))),
        }
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        let mut inbox = self.inbox.lock().await;
        let (orders, watched) = &mut *inbox;
        run(&self.shared, &self.watches, orders, watched, reports).await;
        Ok(())
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        let status = self.link().again(|conn| async move { self.shared.status(&conn, name).await }).await;
        status.map(|(status, _)| status).map_err(self.told("status"))
    }
    async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status> {
        self.shared.observe(&self.watches, name, seen).await.map_err(self.told("observe"))
    }
    async fn resize(&self, name: &Name, from: u32, to: u32) -> Result<()> {
        let resized = self.link().again(|conn| async move { self.shared.resize(&conn, name, from, to).await }).await;
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
        let page = self.link().again(|conn| async move { list(&self.shared, &conn, prefix, page).await }).await;
        page.map_err(self.told("list"))
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        let told = self.told("release");
        let conn = self.link().soon(pending()).await.map_err(&told)?;
        Ok(match self.shared.force(&conn, name, token).await.map_err(&told)? {
            Ok(()) => Released::Released,
            Err(holder) => Released::NotHeld { holder },
        })
    }
    async fn close(&self) -> Result<()> {
        let leases = self.shared.leases().drain();
        // They end by themselves where nobody can be reached.
        if let (false, Ok(conn)) = (leases.is_empty(), self.link().here().await) {
            for lease in leases {
                let _ = revoke(&self.shared, &conn, lease).await;
            }
        }
        self.link().close();
        Ok(())
    }
}

#[async_trait]
impl Cells for EtcdEngine {
    async fn load(&self, name: &Name) -> Result<Versioned> {
        let loaded = self.link().again(|conn| async move { self.shared.load(&conn, name).await }).await;
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
        let swap = |conn| async move { self.shared.swap(&conn, name, expected, value, nonce).await };
        let swapped = self.link().again(swap).await.map_err(self.told("cell"))?;
        swapped.map_err(|kind| Error::other_kind("cell", name, Kind::Cell, kind))
    }
}
