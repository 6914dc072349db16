//! The engine's door: calls of callers go over their runtime's own connection, whatever waits is given to `run`.
use crate::{
    config::{Config, MAX_TTL, MIN_TTL, Strategy},
    error::Fault,
    keeper::{Order, run},
    link::{Conn, Link},
    list::list,
    shared::{STUBBORN, Shared},
    wire::{
        call::{Call, literal},
        reply::{Reply, Value, letter, value},
    },
};
use async_trait::async_trait;
use fencelock_core::{
    BootClock, Busy, Capabilities, Cells, Clock, Conflict, Engine, EngineId, EngineInfo, Error, ErrorKind, Fencing,
    Grant, HoldId, Kind, Listing, LossReason, Moment, Name, Ordering, Outcome, Page, Released, Renewed, Reports,
    Request, Result, ServerTime, Status, TakenAway, Token, Version, Versioned, Waiting, on_tokio,
};
use fencelock_database::{
    AGAIN, CONNECT_TIMEOUT, PATIENCE, WINDOW, after_locked, before_answered, granted, micros, open_window,
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::sleep,
};

/// So long a session has to let go of what is asked back.
const ASKED: Duration = Duration::from_secs(1);
/// The most holds of one renewal.
const BATCH: usize = 256;

/// Locks in PostgreSQL.
pub struct PostgresEngine {
    info: EngineInfo,
    retention: Duration,
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
    inbox: Mutex<mpsc::UnboundedReceiver<Order>>,
}

impl PostgresEngine {
    /// Connects, and makes the tables where they are missing.
    ///
    /// # Errors
    /// `Unreachable` within 5 s, `PermissionDenied`, `InvalidConfig`.
    ///
    /// # Cancel safety
    /// If dropped nothing is left but, perhaps, the tables.
    pub async fn connect(config: Config) -> Result<Self> {
        if config.strategy != Strategy::Lease {
            let error = Error::new(ErrorKind::InvalidConfig, "connect", "this is the engine of strategy=lease");
            return Err(error.hint("take PostgresSessionEngine, or fencelock::connect, which takes the right one"));
        }
        on_tokio(Self::open(config)).await
    }
    /// Whatever the strategy: this part is the same.
    pub(crate) async fn open(config: Config) -> Result<Self> {
        config.check()?;
        let link = Link::new(&config)?;
        let store = link.set_up(&config).await.map_err(|fault| link.tell("connect", &fault))?;
        let told = |_| Error::new(ErrorKind::Closed, "connect", "no number could be made");
        let client = EngineId::random()?.to_string().parse::<HoldId>().map_err(told)?;
        let capabilities = Capabilities {
            read_write: true,
            downgrade: true,
            permits: true,
            cells: true,
            fixed_leases: true,
            tickets: true,
            fencing: Fencing::BestEffort,
            ordering: Ordering::Fifo,
            waiting: Waiting::Push,
            taken_away: TakenAway::AtRenewal,
            ttl_per_hold: true,
            renew_batch: BATCH,
            min_ttl: MIN_TTL,
            max_ttl: MAX_TTL,
            drift: 0.01,
        };
        let info = EngineInfo {
            id: EngineId::from_bytes(store.to_be_bytes()),
            namespace: config.namespace.as_str().into(),
            scheme: "postgres",
            endpoint: config.endpoint().into(),
            url: config.url().map(Into::into),
            layout: "lease",
            capabilities,
            default_ttl: config.ttl,
        };
        let (orders, inbox) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(link, config.namespace.clone(), client));
        Ok(Self { info, retention: config.retention, shared, orders, inbox: Mutex::new(inbox) })
    }
    /// As [`connect`](Self::connect), by a `postgres:` URL.
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
    fn link(&self) -> &Link {
        &self.shared.link
    }
    fn told(&self, operation: &'static str) -> impl Fn(Fault) -> Error + '_ {
        move |fault| self.link().tell(operation, &fault)
    }
    /// Nobody has it from here on. A command of its attempt that broke off may still arrive, and grant it: that is swept up.
    /// *Invariant:* not before a release of it is answered, which would find nothing.
    fn drop_hold(&self, name: &Name, hold: HoldId) {
        if let Some(until) = self.shared.haunted.haunts(hold) {
            let _ = self.orders.send(Order::Sweep { name: name.clone(), hold, until });
        }
    }
    async fn claim(&self, conn: &Conn, request: &Request, not_after: i64, locked: u32) -> Result<Reply, Fault> {
        let claim = request.claim();
        let call = self.link().call("acquire").text(&self.shared.space).text(request.name().as_str());
        let call = call.id(request.hold()).text(claim.kind().as_str()).text(letter(claim));
        let call = call.number(claim.take().max(1)).number(claim.capacity().unwrap_or(0));
        let call = call.number(micros(request.ttl())).number(not_after).number(request.floor().map_or(0, Token::get));
        let call = call
            .flag(request.wait())
            .id(self.shared.client)
            .or_null(self.shared.ears())
            .text(&self.shared.identity(request.note()))
            .flag(locked > STUBBORN);
        self.link().run(conn, PATIENCE, &call.end()).await
    }
    fn granted(&self, request: &Request, number: i64, sent_at: Moment, now: i64) -> Result<Outcome> {
        let token = Token::new(number).ok_or_else(|| self.link().tell("lock", &Fault::Answer))?;
        Ok(Outcome::Granted(granted(request, token, sent_at, now)))
    }
    /// Who holds it in a session was asked to let go: he tells his holder first. Whoever does not is ended, and all that he holds.
    async fn see_it_go(&self, name: &Name, token: Token, pid: i64) -> Result<Released, Fault> {
        let (asked, mut ended) = (BootClock.now(), false);
        loop {
            let conn = self.link().here().await?;
            let status = self.shared.status(&conn, name).await?;
            if !status.holders.iter().any(|holder| holder.token == token) {
                return Ok(Released::Released);
            }
            let since = asked.until(BootClock.now());
            if since > PATIENCE {
                return Err(Fault::Unanswered);
            }
            if since > ASKED && !ended {
                self.link().rows(&conn, PATIENCE, &format!("SELECT pg_terminate_backend({pid})")).await?;
                ended = true;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
    /// A function that answers at once but for a locked row, asked until that is free.
    pub(crate) async fn unlocked(&self, call: &str) -> Result<Reply, Fault> {
        let (limit, mut tries) = (BootClock.now() + PATIENCE, 0);
        loop {
            let rows = self.link().again(call).await?;
            let row = rows.first().ok_or(Fault::Answer)?;
            match crate::wire::reply::reply(row).ok_or(Fault::Answer)? {
                Reply::Locked if BootClock.now() < limit => tries += 1,
                Reply::Locked => return Err(Fault::Locked),
                end => return Ok(end),
            }
            sleep(after_locked(tries)).await;
        }
    }
    /// What breaks a hold, asked until the row is free. One whose answer was lost may have done it: then nobody knows.
    pub(crate) async fn forced(&self, call: &str) -> Result<Reply, Fault> {
        let (limit, mut lost, mut tries) = (BootClock.now() + PATIENCE, false, 0);
        loop {
            let conn = self.link().soon(std::future::pending()).await?;
            match self.link().run(&conn, PATIENCE, call).await {
                Ok(Reply::Gone { .. }) if lost => return Err(Fault::Unanswered),
                Ok(Reply::Locked) if BootClock.now() < limit => {}
                Ok(Reply::Locked) => return Err(Fault::Locked),
                Err(fault) if fault.ends_connection() && !lost => lost = true,
                end => return end,
            }
            sleep(after_locked(tries)).await;
            tries += 1;
        }
    }
    /// By this function, which is given names, holds, tokens and ttls.
    pub(crate) async fn renew_by(&self, call: Call, grants: &[Grant]) -> Result<Vec<Renewed>> {
        let told = self.told("renew");
        // One of nothing is a look at a fixed lease, and has time.
        let shortest = grants.iter().map(|grant| grant.ttl).filter(|ttl| !ttl.is_zero()).min().unwrap_or(MAX_TTL);
        let call = call.array("text", grants.iter().map(|grant| literal(grant.name.as_str())));
        let call = call.array("uuid", grants.iter().map(|grant| format!("'{}'", grant.hold)));
        let call = call.array("bigint", grants.iter().map(|grant| grant.token.get()));
        let call = call.array("bigint", grants.iter().map(|grant| micros(grant.ttl))).end();
        let conn = self.link().here().await.map_err(&told)?;
        let sent_at = BootClock.now();
        // Less than core waits: a connection on which nothing is answered is given up, and the next renewal has another one.
        let rows = self.link().rows(&conn, PATIENCE.min(shortest / 8), &call).await.map_err(&told)?;
        let answers = rows.first().and_then(|row| row.get(0)).unwrap_or_default();
        if answers.len() != grants.len() {
            return Err(told(Fault::Answer));
        }
        let renewed = |letter: char| match letter {
            'e' => Renewed::Extended { sent_at },
            'g' => Renewed::Lost(LossReason::TakenOver),
            _ => Renewed::Unknown,
        };
        Ok(answers.chars().map(renewed).collect())
    }
}
impl fmt::Debug for PostgresEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.info.endpoint)
    }
}

#[async_trait]
impl Engine for PostgresEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        // Word may overtake the answer.
        let expected = request.wait().then(|| self.shared.expect(request.name(), request.hold()));
        let limit = BootClock.now() + CONNECT_TIMEOUT;
        let (mut misses, mut late, mut locked, mut locked_since) = (0, 0, 0, None);
        let (busy, rest) = loop {
            // Why there is none is told also to those who gave up waiting for it.
            let conn = self.link().soon(request.stopped()).await.map_err(self.told("lock"))?;
            let sent_at = BootClock.now();
            let Some((not_after, ends)) = open_window(&self.link().time, request, sent_at) else {
                return Ok(Outcome::Busy(Busy::default()));
            };
            let pause = match self.claim(&conn, request, not_after, locked).await {
                Ok(Reply::Done { number, now }) => return self.granted(request, number, sent_at, now),
                Ok(Reply::Queued { busy, rest }) => {
                    request.queued(busy.clone());
                    break (busy, rest);
                }
                Ok(Reply::Busy(busy)) => {
                    // Core takes this for nothing left behind.
                    self.drop_hold(request.name(), request.hold());
                    return Ok(Outcome::Busy(busy));
                }
                Ok(Reply::OtherKind(kind)) => {
                    return Err(Error::other_kind("lock", request.name(), request.claim().kind(), kind));
                }
                Ok(Reply::OtherSize(size)) => return Err(request.other_capacity(size)),
                Ok(Reply::Layout(other)) => return Err(self.link().tell("lock", &Fault::Layout(other))),
                Ok(Reply::Locked) => {
                    // A transaction of the user's own may keep the row for long, or another one's statement for a moment.
                    let tried = locked_since.get_or_insert(sent_at).until(BootClock.now());
                    locked += 1;
                    if request.wait() {
                        if locked == 4 {
                            request.queued(Busy::default());
                        }
                        after_locked(locked)
                    } else if let Some(pause) = before_answered(locked, tried) {
                        pause
                    } else if misses > 0 {
                        // One of these may have been granted: core takes it back.
                        return Err(self.link().tell("lock", &Fault::Unanswered));
                    } else {
                        return Ok(Outcome::Busy(Busy::default()));
                    }
                }
                Ok(Reply::Past) if late < ServerTime::AGAIN => {
                    late += 1;
                    Duration::ZERO
                }
                Ok(Reply::Past) => {
                    let error = Error::new(ErrorKind::Unreachable, "lock", "commands take too long to arrive");
                    return Err(error.with("postgres", &self.info.endpoint));
                }
                Ok(_) => return Err(self.link().tell("lock", &Fault::Answer)),
                Err(fault) => {
                    let error = self.link().tell("lock", &fault);
                    misses += 1;
                    self.shared.haunted.haunt(request.hold(), ends);
                    let passes = fault.is_soon_over() && BootClock.now() < limit;
                    if !error.is_temporary() || !(misses <= AGAIN || passes) || request.is_stopped() {
                        return Err(error);
                    }
                    Duration::from_millis(10 << misses.min(5))
                }
            };
            tokio::select! {
                biased;
                () = request.stopped() => {}
                () = sleep(pause) => {}
            }
        };
        let Some(mut expected) = expected else { return Err(self.link().tell("lock", &Fault::Answer)) };
        loop {
            let (reply, rx) = oneshot::channel();
            let order = Order::Wait { request: request.clone(), expected, busy: busy.clone(), rest, reply };
            if self.orders.send(order).is_err() {
                return Err(self.link().tell("lock", &Fault::Closed));
            }
            match rx.await {
                Ok(turned) => return turned.outcome(request, |fault| self.link().tell("lock", fault)),
                // `run` was begun anew: its place in the queue is still there.
                Err(_) => expected = self.shared.expect(request.name(), request.hold()),
            }
        }
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        self.shared.withdraw(request.name(), request.hold()).await.map_err(self.told("withdraw"))
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        self.renew_by(self.link().call("renew").text(&self.shared.space), grants).await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        let left = self.shared.release(&grant.name, grant.hold, grant.token).await;
        if left.is_ok() {
            self.drop_hold(&grant.name, grant.hold);
            self.shared.freed(&grant.name);
        }
        match left {
            Ok(Reply::Done { .. }) => Ok(Released::Released),
            Ok(Reply::Gone { holder }) => Ok(Released::NotHeld { holder: holder.map(|holder| *holder) }),
            Ok(_) => Err(self.link().tell("release", &Fault::Answer)),
            Err(fault) => Err(self.link().tell("release", &fault)),
        }
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        let told = self.told("exchange");
        let claim = next.claim();
        let (limit, mut tries) = (BootClock.now() + PATIENCE, 0);
        loop {
            let conn = self.link().soon(next.stopped()).await.map_err(&told)?;
            let sent_at = BootClock.now();
            let Some((not_after, ends)) = open_window(&self.link().time, next, sent_at) else {
                return Ok(Outcome::Busy(Busy::default()));
            };
            let call = self.link().call("exchange").text(&self.shared.space).text(next.name().as_str());
            let call = call.id(grant.hold).number(grant.token.get()).id(next.hold()).text(letter(claim));
            let call = call.number(claim.take().max(1)).number(micros(next.ttl())).number(not_after);
            let call = call.number(next.floor().map_or(0, Token::get)).text(&self.shared.identity(next.note()));
            match self.link().run(&conn, PATIENCE, &call.end()).await {
                Ok(Reply::Done { number, now }) => return self.granted(next, number, sent_at, now),
                Ok(Reply::Busy(busy)) => return Ok(Outcome::Busy(busy)),
                Ok(Reply::Never) => {
                    let error =
                        Error::new(ErrorKind::Unsupported, "exchange", "only a writer's hold can become a reader's");
                    return Err(error.with("name", next.name().as_str()));
                }
                Ok(Reply::Locked) if BootClock.now() < limit && !next.is_stopped() => tries += 1,
                Ok(Reply::Locked) => return Err(told(Fault::Locked)),
                Ok(Reply::Past) if BootClock.now() < limit => {}
                Ok(_) => return Err(told(Fault::Answer)),
                Err(fault) if fault.is_conflict() && BootClock.now() < limit => tries += 1,
                Err(fault) => {
                    self.shared.haunted.haunt(next.hold(), ends);
                    tries += 1;
                    let again = tries <= AGAIN && BootClock.now() < limit && !next.is_stopped();
                    if !again || !self.link().tell("exchange", &fault).is_temporary() {
                        return Err(told(fault));
                    }
                }
            }
            sleep(after_locked(tries)).await;
        }
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        let mut inbox = self.inbox.lock().await;
        run(&self.shared, &mut inbox, reports, self.retention).await;
        Ok(())
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        let told = self.told("inspect");
        let conn = self.link().soon(std::future::pending()).await.map_err(&told)?;
        match self.shared.status(&conn, name).await {
            Err(fault) if fault.ends_connection() => {
                let conn = self.link().soon(std::future::pending()).await.map_err(&told)?;
                self.shared.status(&conn, name).await.map_err(told)
            }
            end => end.map_err(told),
        }
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        let told = self.told("list");
        let conn = self.link().aside().await.map_err(&told)?;
        list(&self.shared, &conn, prefix, page).await.map_err(told)
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        let call = self.link().call("force").text(&self.shared.space).text(name.as_str()).number(token.get()).end();
        match self.forced(&call).await.map_err(self.told("release"))? {
            Reply::Done { .. } => Ok(Released::Released),
            Reply::Gone { holder } => Ok(Released::NotHeld { holder: holder.map(|holder| *holder) }),
            Reply::Asked { pid } => self.see_it_go(name, token, pid).await.map_err(self.told("release")),
            _ => Err(self.link().tell("release", &Fault::Answer)),
        }
    }
    async fn resize(&self, name: &Name, from: u32, to: u32) -> Result<()> {
        let ends = self.link().time.end(BootClock.now(), WINDOW).map_or(0, |(ends, _)| ends);
        let call = self.link().call("resize").text(&self.shared.space).text(name.as_str()).number(from).number(to);
        match self.unlocked(&call.number(ends).end()).await {
            Ok(Reply::Past) => {
                let error = Error::new(ErrorKind::Unreachable, "resize", "the command took too long to arrive");
                Err(error.with("postgres", &self.info.endpoint).hint("try again"))
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
impl Cells for PostgresEngine {
    async fn load(&self, name: &Name) -> Result<Versioned> {
        let call = self.link().call("load").text(&self.shared.space).text(name.as_str()).end();
        let rows = self.link().again(&call).await.map_err(self.told("cell"))?;
        match rows.first().and_then(value) {
            Some(Value::Now(Conflict { now })) => Ok(now),
            Some(Value::OtherKind(kind)) => Err(Error::other_kind("cell", name, Kind::Cell, kind)),
            _ => Err(self.link().tell("cell", &Fault::Answer)),
        }
    }
    async fn compare_exchange(
        &self,
        name: &Name,
        expected: Version,
        written: Option<Arc<[u8]>>,
        nonce: HoldId,
    ) -> Result<Result<Version, Conflict>> {
        let call =
            self.link().call("swap").text(&self.shared.space).text(name.as_str()).number(expected.get()).id(nonce);
        let call = match written {
            Some(value) => call.bytes(&value),
            None => call.null(),
        };
        let (call, limit, mut tries) = (call.end(), BootClock.now() + PATIENCE, 0);
        loop {
            let rows = self.link().again(&call).await.map_err(self.told("cell"))?;
            match rows.first().and_then(value) {
                Some(Value::Written(version)) => return Ok(Ok(version)),
                Some(Value::Now(now)) => return Ok(Err(now)),
                Some(Value::OtherKind(kind)) => return Err(Error::other_kind("cell", name, Kind::Cell, kind)),
                Some(Value::Locked) if BootClock.now() < limit => tries += 1,
                Some(Value::Locked) => return Err(self.link().tell("cell", &Fault::Locked)),
                None => return Err(self.link().tell("cell", &Fault::Answer)),
            }
            sleep(after_locked(tries)).await;
        }
    }
}
