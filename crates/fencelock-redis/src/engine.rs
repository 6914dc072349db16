//! The engine's door: commands of callers go over their runtime's own connection, whatever waits is given to `run`.
use crate::{
    config::{Config, Layout, MAX_TTL, MIN_TTL, Wait},
    error::Fault,
    keeper::{Order, remember_id, run},
    link::{Apart, CONNECT_TIMEOUT, Conn, Link, Stores, TURNS},
    list::list,
    plain::{Plain, mixed},
    renew::{Answered, Kept},
    shared::{Haunt, Records, Shared, micros},
    spin,
    turns::{Seen, Turned, nap},
    wire::{
        key::Keys,
        record::letter,
        reply::Reply,
        scripts::{ACQUIRE, CELL_LOAD, CELL_SWAP, EXCHANGE, FORCE, RESIZE, Script},
    },
};
use async_trait::async_trait;
use fencelock_core::{
    BootClock, Busy, Capabilities, Cells, Clock, Conflict, Engine, EngineId, EngineInfo, Error, ErrorKind, Fencing,
    Grant, HoldId, Kind, Listing, LossReason, Moment, Name, Ordering, Outcome, Page, Released, Renewed, Reports,
    Request, Result, ServerTime, Status, TakenAway, Token, Version, Versioned, Waiting, on_tokio,
};
use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::{Mutex, Semaphore, mpsc, oneshot},
    time::timeout,
};

/// So often an acquire is sent again under its hold id when nobody knows what became of it.
pub(crate) const AGAIN: usize = 5;
/// So many keys go into one command, and so many commands of renewals are on their way at once: a server works off what one
/// connection has sent before it turns to the next, so hundreds of them would keep everybody else waiting.
const BATCH: usize = 32;
const AT_ONCE: usize = 1;
/// The next one follows so soon at the latest: the server may be far away.
const PACE: Duration = Duration::from_millis(2);

/// Locks in one Redis.
pub struct RedisEngine {
    info: EngineInfo,
    /// What the store calls itself; `None`: it was not asked.
    id: Option<String>,
    retention: Duration,
    shared: Arc<Shared>,
    renewals: Semaphore,
    orders: mpsc::UnboundedSender<Order>,
    inbox: Mutex<mpsc::UnboundedReceiver<Order>>,
}

impl RedisEngine {
    /// Connects, and looks at what this user may do.
    ///
    /// # Errors
    /// `Unreachable` within 5 s, `PermissionDenied`, `InvalidConfig`, `LayoutMismatch`.
    ///
    /// # Cancel safety
    /// If dropped nothing is left but, perhaps, the store's identity, which goes by itself.
    pub async fn connect(config: Config) -> Result<Self> {
        if config.layout != Layout::Native {
            let plain = Error::new(ErrorKind::InvalidConfig, "connect", "this is not the layout of this engine");
            return Err(plain.hint("take the engine of that layout, or fencelock_redis::connect, which looks at it"));
        }
        on_tokio(Self::open(config, None)).await
    }
    /// `among`: one of several that have to be different ones.
    pub(crate) async fn open(config: Config, among: Option<(Arc<Stores>, usize)>) -> Result<Self> {
        let (link, keys, told) =
            (linked(&config, among)?, keys(&config), |fault: Fault| fault.tell("connect", &config.endpoint()));
        let conn = link.at(&keys.id()).await.map_err(told)?;
        let pushed = config.resp3 && may_track(&link, &conn).await.map_err(told)?;
        let mine = EngineId::random()?.to_string();
        let shared = shared(&config, keys, link, pushed)?;
        let id = remember_id(&shared, &mine).await.map_err(told)?;
        let known = u128::from_str_radix(&id, 16).map_err(|_| told(Fault::Answer))?;
        Ok(Self::of(&config, shared, Some(id), known))
    }
    /// Of a server that nothing is known of yet. It is connected to when it is needed.
    pub(crate) fn unmet(config: &Config, among: (Arc<Stores>, usize)) -> Result<Self> {
        let shared = shared(config, keys(config), linked(config, Some(among))?, config.resp3)?;
        Ok(Self::of(config, shared, None, 0))
    }
    fn of(config: &Config, shared: Arc<Shared>, id: Option<String>, mut known: u128) -> Self {
        let pushed = shared.pushed;
        let mut capabilities = Capabilities {
            read_write: true,
            downgrade: true,
            permits: true,
            cells: true,
            fixed_leases: true,
            tickets: true,
            fencing: Fencing::BestEffort,
            ordering: Ordering::Fifo,
            waiting: Waiting::Push,
            taken_away: if pushed { TakenAway::Pushed } else { TakenAway::AtRenewal },
            ttl_per_hold: true,
            renew_batch: BATCH,
            min_ttl: MIN_TTL,
            max_ttl: MAX_TTL,
            drift: 0.01,
        };
        // The same name is another lock there than in another layout, or by another template.
        let layout = match &config.layout {
            Layout::Native => "native",
            Layout::Plain(templates) => {
                known = mixed(known, &templates.key);
                (capabilities.read_write, capabilities.downgrade) = (false, false);
                "plain"
            }
            Layout::Redisson(template) => {
                known = mixed(known, &format!("redisson {template}"));
                // Where nobody tells of it a reader's lease may be cut short by others (`redisson`).
                capabilities.downgrade = pushed;
                "redisson"
            }
        };
        if shared.are_shared() {
            let can = &mut capabilities;
            (can.permits, can.cells, can.tickets) = (false, false, false);
            (can.fencing, can.ordering) = (Fencing::OursOnly, Ordering::Any);
            can.waiting = if pushed { Waiting::Push } else { Waiting::Poll };
        }
        if shared.spins {
            (capabilities.ordering, capabilities.waiting) = (Ordering::Any, Waiting::Poll);
        }
        let info = EngineInfo {
            id: EngineId::from_bytes(known.to_be_bytes()),
            namespace: config.namespace.as_str().into(),
            scheme: config.scheme(),
            endpoint: config.endpoint().into(),
            url: config.url().map(Into::into),
            layout,
            capabilities,
            default_ttl: config.ttl,
        };
        let (orders, inbox) = mpsc::unbounded_channel();
        let (retention, renewals, inbox) = (config.retention, Semaphore::new(AT_ONCE), Mutex::new(inbox));
        Self { info, id, retention, shared, renewals, orders, inbox }
    }
    /// Known by another name than the store's own: as a node of those who number their nodes alike, also where one is not there.
    pub(crate) fn called(mut self, id: EngineId) -> Self {
        self.info.id = id;
        self
    }
    /// What the store calls itself, if it was asked.
    fn store(&self) -> Option<&str> {
        self.id.as_deref()
    }
    /// As [`connect`](Self::connect), by a `redis:` URL.
    ///
    /// # Errors
    /// As there, and `InvalidConfig` for the URL.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn from_url(url: &str) -> Result<Self> {
        Self::connect(Config::from_url(url)?).await
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
    pub(crate) fn orders(&self) -> &mpsc::UnboundedSender<Order> {
        &self.orders
    }
    fn link(&self) -> &Link {
        &self.shared.link
    }
    #[cfg(feature = "bench")]
    pub(crate) fn commands(&self) -> u64 {
        self.link().sent()
    }
    pub(crate) fn told(&self, operation: &'static str) -> impl Fn(Fault) -> Error + '_ {
        move |fault| self.link().tell(operation, &fault)
    }
    pub(crate) fn counts_replicas(&self) -> bool {
        self.link().replicas.is_some()
    }
    /// `queue`: where it is not granted it has a place in the queue.
    async fn claim(
        &self,
        conn: &Conn,
        request: &Request,
        key: &str,
        not_after: i64,
        queue: bool,
    ) -> Result<Reply, Fault> {
        let claim = request.claim();
        let (hold, ttl) = (request.hold().to_string(), micros(request.ttl()).to_string());
        let (take, size) = (claim.take().max(1).to_string(), claim.capacity().unwrap_or(0).to_string());
        let floor = self.link().floor(request.floor());
        let (ends, who) = (not_after.to_string(), self.shared.identity(request.note()));
        let wait = if queue { "1" } else { "0" };
        let channel = self.shared.told_channel();
        let args = [
            hold.as_bytes(),
            claim.kind().as_str().as_bytes(),
            letter(claim).as_bytes(),
            take.as_bytes(),
            size.as_bytes(),
            ttl.as_bytes(),
            ends.as_bytes(),
            floor.as_bytes(),
            wait.as_bytes(),
            channel.as_bytes(),
            who.as_bytes(),
        ];
        self.link().run(conn, &ACQUIRE, key, &args).await
    }
    fn granted(
        &self,
        operation: &'static str,
        request: &Request,
        number: i64,
        sent_at: Moment,
        now: i64,
    ) -> Result<Outcome> {
        let token = Token::new(number).ok_or_else(|| self.link().tell(operation, &Fault::Answer))?;
        Ok(Outcome::Granted(self.shared.granted(request, token, sent_at, now)))
    }
    /// Asks for it, and stands in the queue if it `waits`.
    pub(crate) async fn attempt(&self, request: &Request, waits: bool) -> Result<Outcome> {
        let key = self.shared.keys.key(request.name());
        let expected = waits.then(|| self.shared.expect(request.hold(), &key));
        let (mut misses, mut late, limit) = (0, 0, BootClock.now() + CONNECT_TIMEOUT);
        let (mut turned, mut turns) = (None, 0);
        // *Invariant (SAFETY H1):* whoever has a place in the queue listens: a release that finds him deaf passes him. A lock that is free
        // needs nobody who listens, so that is found out first.
        let mut queue = expected.as_ref().is_some_and(|expected| self.shared.hears(&expected.place.channel));
        let (lock, known, next, seen) = loop {
            // Why there is none is told also to those who gave up waiting for it.
            let conn = match turned.take() {
                Some(conn) => conn,
                None => self.link().soon(&key, request.stopped()).await.map_err(self.told("lock"))?,
            };
            let sent_at = BootClock.now();
            let Some((not_after, ends)) = conn.open_window(request, sent_at) else {
                return Ok(Outcome::Busy(Busy::default()));
            };
            match self.claim(&conn, request, &key, not_after, queue).await {
                Ok(Reply::Done { number, now, ago }) => {
                    // An answer that was lost had told of a place in the queue.
                    if !ago.is_zero() && expected.is_some() {
                        self.shared.granted_before_its_push(request.hold());
                    }
                    let sent_at = self.shared.acknowledged(request, sent_at).await.map_err(self.told("lock"))?;
                    return self.granted("lock", request, number, sent_at, now);
                }
                Ok(Reply::Queued { busy, left, end }) => {
                    let next = nap(busy.ahead, left, request.ttl());
                    request.queued(busy.clone());
                    break (expected, busy, next, Seen::now(end, left));
                }
                Ok(Reply::Busy(busy)) => {
                    let Some(expected) = expected.as_ref().filter(|_| !queue) else {
                        // Core takes this for nothing left behind. Not where it is asked again under this hold id (`spin`).
                        if waits || !request.wait() {
                            drop(self.drop_hold(request.name(), request.hold()));
                        }
                        return Ok(Outcome::Busy(busy));
                    };
                    let (reply, hears) = oneshot::channel();
                    let order = Order::Listen { place: expected.place.clone(), reply };
                    if self.orders.send(order).is_err() {
                        return Err(self.link().tell("lock", &Fault::Closed));
                    }
                    tokio::select! {
                        biased;
                        () = request.stopped() => return Ok(Outcome::Busy(busy)),
                        _ = hears => queue = true,
                    }
                }
                Ok(Reply::OtherKind(kind)) => {
                    return Err(Error::other_kind("lock", request.name(), request.claim().kind(), kind));
                }
                Ok(Reply::OtherSize(size)) => return Err(request.other_capacity(size)),
                Ok(Reply::Past) if late < ServerTime::AGAIN => late += 1,
                Ok(Reply::Past) => {
                    let error = Error::new(ErrorKind::Unreachable, "lock", "commands take too long to arrive");
                    return Err(error.with("redis", &self.info.endpoint));
                }
                Ok(_) => return Err(self.link().tell("lock", &Fault::Answer)),
                // It had no effect there.
                Err(fault) if fault.redirect().is_some() && turns < TURNS => {
                    turned = Box::pin(self.link().redirected(&conn, &fault)).await.ok();
                    turns += 1;
                }
                Err(fault) => {
                    let error = self.link().tell("lock", &fault);
                    misses += 1;
                    self.shared.haunt(request.hold(), Haunt { until: ends, over: ends + request.ttl() });
                    let passes = fault.is_soon_over() && BootClock.now() < limit;
                    if !error.is_temporary() || !(misses <= AGAIN || passes) || request.is_stopped() {
                        return Err(error);
                    }
                    tokio::select! {
                        biased;
                        () = request.stopped() => return Err(error),
                        () = tokio::time::sleep(Duration::from_millis(10 << misses.min(5))) => {}
                    }
                }
            }
        };
        let Some(mut expected) = lock else { return Err(self.link().tell("lock", &Fault::Answer)) };
        loop {
            let (reply, rx) = oneshot::channel();
            let (attempt, busy) = (request.clone(), known.clone());
            if self.orders.send(Order::Wait { request: attempt, expected, busy, next, seen, reply }).is_err() {
                return Err(self.link().tell("lock", &Fault::Closed));
            }
            match rx.await {
                Ok(Turned::Granted(grant)) => return Ok(Outcome::Granted(grant)),
                Ok(Turned::Stopped(busy)) => return Ok(Outcome::Busy(busy)),
                Ok(Turned::Displaced) => return Ok(Outcome::Displaced),
                Ok(Turned::Failed(fault)) => return Err(self.link().tell("lock", &fault)),
                // `run` was begun anew: its place in the queue is still there.
                Err(_) => expected = self.shared.expect(request.hold(), &key),
            }
        }
    }
    /// Nobody has it from here on. A command of its attempt that broke off may still arrive, and grant it: that is swept up, when this
    /// goes. *Invariant:* not before a release of it is answered, which would find nothing.
    pub(crate) fn drop_hold(&self, name: &Name, hold: HoldId) -> Option<Sweep<'_>> {
        let haunt = self.shared.drop_hold(hold).filter(|haunt| haunt.until > BootClock.now())?;
        Some(Sweep { orders: &self.orders, key: self.shared.keys.key(name), hold, haunt })
    }
    /// A command on one record that may be sent twice with one effect: so it is, when its connection breaks.
    async fn plain(&self, script: &Script, name: &Name, args: &[&[u8]]) -> Result<Reply, Fault> {
        let key = &*self.shared.keys.key(name);
        let ask = |conn: Conn| async move { self.link().run(&conn, script, key, args).await };
        self.link().again(key, ask).await
    }
}
fn linked(config: &Config, among: Option<(Arc<Stores>, usize)>) -> Result<Arc<Link>> {
    let apart = |(stores, node)| Apart { stores, node, key: keys(config).id() };
    Link::new(config, among.map(apart))
}
fn keys(config: &Config) -> Keys {
    match &config.layout {
        Layout::Native => Keys::new(&config.namespace),
        Layout::Plain(templates) => Keys::plain(&templates.key),
        Layout::Redisson(template) => Keys::plain(template),
    }
}
fn shared(config: &Config, keys: Keys, link: Arc<Link>, pushed: bool) -> Result<Arc<Shared>> {
    let records = match &config.layout {
        Layout::Native => Records::Native,
        Layout::Plain(templates) => Records::Plain(Plain::new(templates.clone())),
        Layout::Redisson(_) => Records::Redisson,
    };
    let client = u128::from_be_bytes(EngineId::random()?.to_bytes());
    let spins = config.wait == Wait::Spin;
    Ok(Arc::new(Shared::new(keys, records, link, client, pushed, spins)))
}
/// Has a hold swept up, when it goes.
pub(crate) struct Sweep<'a> {
    orders: &'a mpsc::UnboundedSender<Order>,
    key: String,
    hold: HoldId,
    haunt: Haunt,
}
impl Drop for Sweep<'_> {
    fn drop(&mut self) {
        let (key, hold, haunt) = (std::mem::take(&mut self.key), self.hold, self.haunt);
        let _ = self.orders.send(Order::Sweep { key, hold, haunt });
    }
}
/// The server tells this user when a key changes; where it is asked to for each, also that.
async fn may_track(link: &Link, conn: &Conn) -> Result<bool, Fault> {
    for words in link.tracking().into_iter().chain([vec!["TRACKING", "OFF"]]) {
        match link.command(conn, redis::cmd("CLIENT").arg(words)).await {
            Ok(_) => {}
            Err(fault) if fault.ends_connection() => return Err(fault),
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}
impl fmt::Debug for RedisEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.info.endpoint)
    }
}

#[async_trait]
impl Engine for RedisEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        if request.wait() && self.shared.spins {
            return spin::acquire(self, request).await;
        }
        self.attempt(request, request.wait()).await
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        // Nobody has it, whatever is answered. What may still arrive core knows of, and comes again.
        self.shared.drop_hold(request.hold());
        let left = self.shared.leave(&self.shared.keys.key(request.name()), request.hold(), None).await;
        left.map(drop).map_err(self.told("withdraw"))
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        let told = self.told("renew");
        let kept = grants.iter().map(|Grant { name, hold, token, claim, ttl, .. }| Kept {
            name,
            hold: *hold,
            token: *token,
            claim: *claim,
            ttl: *ttl,
        });
        let kept: Vec<_> = kept.collect();
        // Less than core waits: a connection on which nothing is answered is given up, and the next renewal has another one.
        let shortest = grants.iter().map(|grant| grant.ttl).filter(|ttl| !ttl.is_zero()).min();
        let limit = shortest.unwrap_or(MAX_TTL) / 8;
        let turn = self.renewals.acquire().await;
        let sent_at = BootClock.now();
        let mut asked = pin!(self.shared.renew(limit, &kept));
        let soon = timeout(PACE, &mut asked).await;
        drop(turn);
        let answers = match soon {
            Ok(answers) => answers,
            Err(_) => asked.await,
        };
        let renewed = |answer: &Answered| match answer {
            Answered::Extended => Renewed::Extended { sent_at },
            Answered::Gone => Renewed::Lost(LossReason::TakenOver),
            Answered::Unknown => Renewed::Unknown,
        };
        let renewed: Vec<_> = answers.map_err(&told)?.iter().map(renewed).collect();
        let extended = |answer: &Renewed| matches!(answer, Renewed::Extended { .. });
        let extended = grants.iter().zip(&renewed).filter(|(_, answer)| extended(answer)).map(|(grant, _)| grant);
        self.shared.renewed(extended, sent_at);
        Ok(renewed)
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        let _after = self.drop_hold(&grant.name, grant.hold);
        let key = self.shared.keys.key(&grant.name);
        match self.shared.leave(&key, grant.hold, Some(grant.token)).await {
            Ok(Reply::Done { .. }) => Ok(Released::Released),
            Ok(Reply::Unknown { holder }) => Ok(Released::NotHeld { holder: holder.map(|holder| *holder) }),
            Ok(_) => Err(self.link().tell("release", &Fault::Answer)),
            Err(fault) => Err(self.link().tell("release", &fault)),
        }
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        let told = self.told("exchange");
        // A downgrade creates nothing.
        let creates = next.hold() != grant.hold;
        let key = &*self.shared.keys.key(&grant.name);
        let (old, token, new) = (&*grant.hold.to_string(), &*grant.token.to_string(), &*next.hold().to_string());
        let ttl = &*micros(next.ttl()).to_string();
        let (who, take) = (&*self.shared.identity(next.note()), &*next.claim().take().max(1).to_string());
        let conn = self.link().soon(key, next.stopped()).await.map_err(&told)?;
        let ask = |conn: Conn| async move {
            let sent_at = BootClock.now();
            let not_after = if creates { conn.open_window(next, sent_at) } else { Some((0, sent_at)) };
            let Some((not_after, _)) = not_after else { return Ok((Reply::Busy(Busy::default()), sent_at)) };
            let (ends, floor) = (not_after.to_string(), self.link().floor(next.floor()));
            let args = [old, token, new, letter(next.claim()), ttl, &ends, &floor, who, take].map(str::as_bytes);
            Ok((self.link().run(&conn, &EXCHANGE, key, &args).await?, sent_at))
        };
        let (answer, sent_at) = self.link().turned(conn, ask).await.map_err(&told)?;
        match answer {
            Reply::Done { number, now, .. } => {
                let mut sent_at = sent_at;
                if creates {
                    drop(self.drop_hold(&grant.name, grant.hold));
                    sent_at = self.shared.acknowledged(next, sent_at).await.map_err(&told)?;
                }
                self.granted("exchange", next, number, sent_at, now)
            }
            Reply::Busy(busy) => Ok(Outcome::Busy(busy)),
            Reply::Past => Err(Error::new(ErrorKind::Unreachable, "exchange", "the command took too long to arrive")),
            Reply::Never => {
                let refuse =
                    Error::new(ErrorKind::Unsupported, "downgrade", "only a writer's hold can become a reader's");
                Err(refuse.with("name", &grant.name))
            }
            _ => Err(told(Fault::Answer)),
        }
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        let mut inbox = self.inbox.lock().await;
        run(&self.shared, &mut inbox, reports, self.store(), self.retention).await;
        Ok(())
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        self.shared.look(name).await.map_err(self.told("status"))
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        list(&self.shared, prefix, page).await.map_err(self.told("list"))
    }
    async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status> {
        let (reply, rx) = oneshot::channel();
        let sent = self.orders.send(Order::Observe { name: name.clone(), seen, reply }).is_ok();
        let answer = if sent { rx.await.unwrap_or(Err(Fault::Closed)) } else { Err(Fault::Closed) };
        answer.map_err(self.told("observe"))
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        let (key, token, asked) = (&*self.shared.keys.key(name), &*token.to_string(), &AtomicU32::new(0));
        let ask = |conn: Conn| async move {
            asked.fetch_add(1, Relaxed);
            let floor = self.link().floor(None);
            self.link().run(&conn, &FORCE, key, &[token.as_bytes(), floor.as_bytes()]).await
        };
        match self.link().again(key, ask).await {
            Ok(Reply::Done { .. }) => Ok(Released::Released),
            // The first one may have done it.
            Ok(Reply::Unknown { .. }) if asked.load(Relaxed) > 1 => {
                Err(self.link().tell("release", &Fault::Unanswered))
            }
            Ok(Reply::Unknown { holder }) => Ok(Released::NotHeld { holder: holder.map(|holder| *holder) }),
            Ok(_) => Err(self.link().tell("release", &Fault::Answer)),
            Err(fault) => Err(self.link().tell("release", &fault)),
        }
    }
    async fn resize(&self, name: &Name, from: u32, to: u32) -> Result<()> {
        let (key, kind) = (&*self.shared.keys.key(name), Kind::Semaphore.to_string());
        let (before, after) = (&*from.to_string(), &*to.to_string());
        let ask = |conn: Conn| {
            let link = self.link();
            let ends =
                conn.server.time.end(BootClock.now(), conn.server.patience()).map_or(0, |(ends, _)| ends).to_string();
            let (kind, floor) = (&*kind, link.floor(None));
            async move {
                let args = [before, after, kind, &ends, &floor].map(str::as_bytes);
                link.run(&conn, &RESIZE, key, &args).await
            }
        };
        match self.link().again(key, ask).await {
            Ok(Reply::Past) => {
                let error = Error::new(ErrorKind::Unreachable, "resize", "the command took too long to arrive");
                Err(error.with("redis", &self.info.endpoint).hint("try again"))
            }
            Ok(Reply::Done { .. }) => Ok(()),
            Ok(Reply::OtherKind(kind)) => Err(Error::other_kind("resize", name, Kind::Semaphore, kind)),
            Ok(Reply::OtherSize(size)) => Err(Error::other_capacity("resize", name, from, size)),
            Ok(_) => Err(self.link().tell("resize", &Fault::Answer)),
            Err(fault) => Err(self.link().tell("resize", &fault)),
        }
    }
    fn cells(&self) -> Option<&dyn Cells> {
        Some(self)
    }
    async fn close(&self) -> Result<()> {
        self.link().close();
        Ok(())
    }
}

#[async_trait]
impl Cells for RedisEngine {
    async fn load(&self, name: &Name) -> Result<Versioned> {
        match self.plain(&CELL_LOAD, name, &[]).await {
            Ok(Reply::Conflict(now)) => Ok(now),
            Ok(Reply::OtherKind(kind)) => Err(Error::other_kind("cell", name, Kind::Cell, kind)),
            Ok(_) => Err(self.link().tell("cell", &Fault::Answer)),
            Err(fault) => Err(self.link().tell("cell", &fault)),
        }
    }
    async fn compare_exchange(
        &self,
        name: &Name,
        expected: Version,
        value: Option<Arc<[u8]>>,
        nonce: HoldId,
    ) -> Result<Result<Version, Conflict>> {
        let (version, nonce) = (expected.get().to_string(), nonce.to_string());
        let there = if value.is_some() { "1" } else { "0" };
        let value = value.as_deref().unwrap_or_default();
        match self.plain(&CELL_SWAP, name, &[version.as_bytes(), nonce.as_bytes(), there.as_bytes(), value]).await {
            Ok(Reply::Done { number, .. }) => Ok(Ok(Version::new(number))),
            Ok(Reply::Conflict(now)) => Ok(Err(Conflict { now })),
            Ok(Reply::OtherKind(kind)) => Err(Error::other_kind("cell", name, Kind::Cell, kind)),
            Ok(_) => Err(self.link().tell("cell", &Fault::Answer)),
            Err(fault) => Err(self.link().tell("cell", &fault)),
        }
    }
}
