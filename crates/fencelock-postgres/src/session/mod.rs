//! Locks that live with a session of the server: advisory locks, each free at once when its holder's process ends (SAFETY E3).
mod bearer;
mod keeper;

use crate::{
    config::{Config, Keys, Strategy},
    engine::PostgresEngine,
    error::Fault,
    link::{Link, PROOFS},
    shared::Shared,
    shedlock::PostgresShedLockEngine,
    wire::{
        call::Call,
        reply::{Reply, letter},
    },
};
use async_trait::async_trait;
use bearer::{Bearer, Lock};
use fencelock_core::{
    BootClock, Busy, Cells, Claim, Clock, Engine, EngineInfo, Error, ErrorKind, Grant, HoldId, Listing, LossReason,
    Name, Outcome, Page, Released, Renewed, Reports, Request, Result, SessionId, Status, TakenAway, Token, on_tokio,
};
use fencelock_database::{
    CONNECT_TIMEOUT, PATIENCE, Turned, after_locked, micros,
    session::{self, Bears, Borne, ends, granted},
};
use keeper::{Order, run};
use std::{ops::Deref, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// The shortest ttl: the server counts how long a session is silent in ms, and ends it a little later.
const MIN_TTL: Duration = Duration::from_millis(500);
/// So often a claim is made in another session when the one it was sent in has ended.
const AGAIN: u32 = 3;

/// Locks in PostgreSQL that live with a session.
#[derive(Debug)]
pub struct PostgresSessionEngine {
    info: EngineInfo,
    /// What does not differ: looking, values, clean-up.
    lease: PostgresEngine,
    sessions: Arc<Sessions>,
    inbox: tokio::sync::Mutex<mpsc::UnboundedReceiver<Order>>,
}

/// The engine of this configuration's strategy.
///
/// # Errors
/// As [`PostgresEngine::connect`], [`PostgresSessionEngine::connect`] and [`PostgresShedLockEngine::connect`].
///
/// # Cancel safety
/// As there.
///
/// ```no_run
/// # async fn example() -> fencelock_core::Result<()> {
/// let config = fencelock_postgres::Config::from_url("postgres://app@db/shop?strategy=session")?;
/// let client = fencelock_core::Client::builder(fencelock_postgres::connect(config).await?).build()?;
/// # Ok(()) }
/// ```
pub async fn connect(config: Config) -> Result<Arc<dyn Engine>> {
    Ok(match config.strategy {
        Strategy::Lease => Arc::new(PostgresEngine::connect(config).await?),
        Strategy::Session => Arc::new(PostgresSessionEngine::connect(config).await?),
        Strategy::ShedLock => Arc::new(PostgresShedLockEngine::connect(config).await?),
    })
}

/// Which sessions there are, and what is said in them.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) shared: Arc<Shared>,
    keys: Keys,
    all: session::Sessions<Bearer>,
    orders: mpsc::UnboundedSender<Order>,
    /// Those who come together open one session.
    opening: tokio::sync::Mutex<()>,
}
impl Deref for Sessions {
    type Target = session::Sessions<Bearer>;
    fn deref(&self) -> &session::Sessions<Bearer> {
        &self.all
    }
}
impl Sessions {
    /// Who has it, for one that another hold of this very session keeps from it.
    async fn look(&self, request: &Request) -> Result<Reply, Fault> {
        let (key, pair) = self.lock_of(request).words();
        let call = self.begin("look", request.name()).number(key).flag(pair);
        let call = call.text(request.claim().kind().as_str()).null().end();
        let conn = self.shared.link.soon(request.stopped()).await?;
        self.shared.link.run(&conn, PATIENCE, &call).await
    }
    fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }
    /// A session of this ttl.
    async fn session(&self, ttl: Duration) -> Result<Arc<Bearer>, Fault> {
        if let Some(bearer) = self.shared_bearer(ttl) {
            return Ok(bearer);
        }
        let (reply, opened) = oneshot::channel();
        self.order(Order::Open { ttl, reply });
        timeout(CONNECT_TIMEOUT, opened).await.map_err(|_| Fault::Unreached)?.map_err(|_| Fault::Closed)?
    }
    fn lock_of(&self, request: &Request) -> Lock {
        Lock { key: self.keys.of(&self.shared.space, request.name().as_str()), shared: request.claim() == Claim::Read }
    }
    fn begin(&self, function: &str, name: &Name) -> Call {
        self.shared.link.call(function).text(&self.shared.space).text(name.as_str())
    }
    /// `bear`, `await`, `seize`: they take the same words.
    fn call(&self, function: &str, request: &Request) -> String {
        let (key, pair) = self.lock_of(request).words();
        let call = self.begin(function, request.name()).number(key).flag(pair).id(request.hold());
        let call =
            call.text(request.claim().kind().as_str()).text(letter(request.claim())).number(micros(request.ttl()));
        let call = call.number(request.floor().map_or(0, Token::get)).number(micros(request.at_least()));
        call.text(&self.shared.identity(request.note())).end()
    }
    /// This session has not got it, and does not wait for it.
    async fn is_without(&self, bearer: &Bearer, request: &Request) -> bool {
        let (key, pair) = self.lock_of(request).words();
        let schema = self.shared.link.place().map_or("", |place| &place.schema);
        let locks = format!("{schema}.fencelock_locks({key}, {pair})");
        let ask = format!("SELECT NOT EXISTS (SELECT FROM {locks} k WHERE k.pid = pg_backend_pid())");
        bearer.here(PATIENCE, &ask).await.is_ok_and(|row| row.get(0) == Some("t"))
    }
    fn queue_call(&self, request: &Request) -> String {
        let call = self.begin("queue", request.name()).id(request.hold()).text(letter(request.claim()));
        call.number(micros(request.ttl())).text(&self.shared.identity(request.note())).end()
    }
    /// How it stands in the server's queue. `None`: it does not.
    async fn place(&self, request: &Request, pid: i64) -> Result<Option<Busy>, Fault> {
        let (key, pair) = self.lock_of(request).words();
        let call = self.begin("look", request.name()).number(key).flag(pair);
        let call = call.text(request.claim().kind().as_str()).number(pid).end();
        let conn = self.shared.link.here().await?;
        match self.shared.link.run(&conn, PATIENCE, &call).await? {
            Reply::Busy(busy) => Ok(Some(busy)),
            _ => Ok(None),
        }
    }
    fn let_go_call(&self, hold: HoldId, borne: &Borne<Lock>) -> String {
        let (key, pair) = borne.key.words();
        self.begin("let_go", &borne.name).number(key).flag(pair).id(hold).end()
    }
    /// Ends one hold of a session. False: it was not there. `Err`: nobody knows; it is tried again, or the session ends.
    async fn let_go(&self, bearer: &Arc<Bearer>, hold: HoldId) -> Result<bool, Fault> {
        self.all.let_go(bearer, hold, |borne| self.let_go_call(hold, borne)).await
    }
}

/// Two connections of ours are two processes of the server, and stay what they are: no pooler of transactions is in between.
async fn prove(link: &Link) -> Result<(), Fault> {
    let version = "SELECT current_setting('server_version_num')::int >= 140000";
    let conn = link.aside().await?;
    if link.rows(&conn, PATIENCE, version).await?.first().and_then(|row| row.get(0)) != Some("t") {
        let what = "the server does not end sessions that are silent".to_owned();
        return Err(Fault::Unusable { what, hint: "take PostgreSQL 14 or newer, or strategy=lease" });
    }
    // What is set in a session of somebody else's stays there: two that are none are compared first.
    let other = link.aside().await?;
    let first = link.process(&conn).await?;
    for _ in 0..PROOFS {
        if link.process(&other).await? == first || link.process(&conn).await? != first {
            return Err(Fault::Pooled);
        }
    }
    let (bearer, _heard) = Bearer::open(link, SessionId(0), PATIENCE, true).await?;
    bearer.beat().await.map(drop)
}

impl PostgresSessionEngine {
    /// Connects, and makes the tables where they are missing.
    ///
    /// # Errors
    /// As [`PostgresEngine::connect`], and `Unsupported` where sessions of the server are not ours: behind a pooler of transactions, on a
    /// server older than 14.
    ///
    /// # Cancel safety
    /// If dropped nothing is left but, perhaps, the tables.
    pub async fn connect(config: Config) -> Result<Self> {
        let keys = config.keys;
        let lease = on_tokio(async move {
            let lease = PostgresEngine::open(config).await?;
            let link = &lease.shared().link;
            prove(link).await.map_err(|fault| link.tell("connect", &fault))?;
            Ok(lease)
        })
        .await?;
        let shared = lease.shared().clone();
        let mut info = lease.info().clone();
        info.layout = "session";
        let can = &mut info.capabilities;
        (can.permits, can.fixed_leases, can.tickets) = (false, false, false);
        (can.taken_away, can.min_ttl) = (TakenAway::Pushed, MIN_TTL);
        if info.default_ttl < MIN_TTL {
            let error = Error::new(ErrorKind::InvalidConfig, "connect", "a session lives for half a second at least");
            return Err(error.with("ttl", format!("{:?}", info.default_ttl)));
        }
        let (orders, inbox) = mpsc::unbounded_channel();
        let (all, opening) = (session::Sessions::default(), tokio::sync::Mutex::default());
        let sessions = Arc::new(Sessions { shared, keys, all, orders, opening });
        Ok(Self { info, lease, sessions, inbox: tokio::sync::Mutex::new(inbox) })
    }
    /// As [`connect`](Self::connect), by a `postgres:` URL with `strategy=session`.
    ///
    /// # Errors
    /// As there, and `InvalidConfig` for the URL.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn from_url(url: &str) -> Result<Self> {
        Self::connect(Config::from_url(url)?).await
    }
    fn told(&self, operation: &'static str) -> impl Fn(Fault) -> Error + '_ {
        move |fault| self.sessions.shared.link.tell(operation, &fault)
    }
}

#[async_trait]
impl session::Claims for Sessions {
    type Fault = Fault;

    fn tell(&self, fault: &Fault) -> Error {
        self.shared.link.tell("lock", fault)
    }
    async fn bear(&self, request: &Request) -> Result<Result<(i64, SessionId), Reply>, Fault> {
        let mut tries = 0;
        // A repeat: the session is heard once more, and it counts from then (SAFETY G1).
        if let Some((bearer, token)) = self.granted(request.hold()) {
            let sent_at = bearer.beat().await?;
            bearer.alive(self.reports().as_ref(), sent_at);
            return Ok(Ok((token, bearer.session)));
        }
        loop {
            let bearer = tokio::select! {
                biased;
                bearer = self.session(request.ttl()) => bearer?,
                () = request.stopped() => return Ok(Err(Reply::Busy(Busy::default()))),
            };
            if !bearer.intend(request.hold(), Borne::new(request.name(), self.lock_of(request))) {
                return self.look(request).await.map(Err);
            }
            // It has ended since: whoever is entered there now is never taken back.
            if !bearer.is_open() {
                bearer.forget(request.hold());
                tokio::task::yield_now().await;
                continue;
            }
            self.hold(request.hold(), &bearer);
            let sent_at = BootClock.now();
            let (call, opens) = (self.call("bear", request), || request.open(sent_at, PATIENCE).is_some());
            let answer = bearer.send(request.hold(), opens, bearer.run(PATIENCE.min(bearer.ttl), &call)).await;
            match answer.unwrap_or_else(|| Ok(Reply::Busy(Busy::default()))) {
                Ok(Reply::Done { number, .. }) => {
                    bearer.granted(request.hold(), number, ends(request, sent_at));
                    bearer.alive(self.reports().as_ref(), sent_at);
                    return Ok(Ok((number, bearer.session)));
                }
                // It is slow, or gone: its own signs of life tell. Nothing new is taken there; core takes this one back.
                Err(Fault::Unanswered) => {
                    bearer.end();
                    return Err(Fault::Unanswered);
                }
                // Nothing is there of it: no reason for others to lose what they hold beside it.
                Err(fault) if fault.may_be_refused_whole() && self.is_without(&bearer, request).await => {
                    bearer.forget(request.hold());
                    self.forget(request.hold());
                    return if fault.is_locked() { Ok(Err(Reply::Locked)) } else { Err(fault) };
                }
                // The session ends, since the lock may be there: its other holders are told first. When it is buried this attempt has
                // nothing there, and is made again in another one.
                Err(fault) => {
                    bearer.close();
                    let temporary = self.shared.link.tell("lock", &fault).is_temporary();
                    if tries == AGAIN || request.is_stopped() || !temporary || !self.is_buried(&bearer).await {
                        return Err(fault);
                    }
                    tries += 1;
                }
                Ok(reply) => {
                    bearer.forget(request.hold());
                    self.forget(request.hold());
                    return Ok(Err(reply));
                }
            }
        }
    }
    fn wait(&self, request: &Request, busy: Busy, reply: oneshot::Sender<Turned<Fault>>) {
        self.order(Order::Wait { request: request.clone(), busy, reply });
    }
}

#[async_trait]
impl Engine for PostgresSessionEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        self.sessions.keys.check(request.name().as_str())?;
        session::acquire(&*self.sessions, request).await
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        let (sessions, hold) = (&self.sessions, request.hold());
        sessions.withdraw(hold, |borne| sessions.let_go_call(hold, borne)).await.map_err(self.told("withdraw"))
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        // They live with their sessions: core does not ask.
        let mut answers = Vec::with_capacity(grants.len());
        for grant in grants {
            let held = self.sessions.granted(grant.hold).filter(|(_, token)| *token == grant.token.get());
            answers.push(match held {
                Some((bearer, _)) => {
                    bearer.beat().await.map_or(Renewed::Unknown, |sent_at| Renewed::Extended { sent_at })
                }
                None => Renewed::Lost(LossReason::TakenOver),
            });
        }
        Ok(answers)
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        let held = self.sessions.granted(grant.hold).filter(|(_, token)| *token == grant.token.get());
        if let Some((bearer, _)) = held
            && self.sessions.let_go(&bearer, grant.hold).await.map_err(self.told("release"))?
        {
            return Ok(Released::Released);
        }
        let holder = self.inspect(&grant.name).await.ok().and_then(|status| status.holders.into_iter().next());
        Ok(Released::NotHeld { holder })
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        let told = self.told("exchange");
        if grant.hold != next.hold() || grant.claim != Claim::Write || next.claim() != Claim::Read {
            let error = Error::new(ErrorKind::Unsupported, "exchange", "only a writer's hold can become a reader's");
            return Err(error.with("name", next.name().as_str()));
        }
        let Some(bearer) = self.sessions.bearer_of(grant.hold) else { return Ok(Outcome::Busy(Busy::default())) };
        let Some(borne) = bearer.found(grant.hold) else { return Ok(Outcome::Busy(Busy::default())) };
        let (key, pair) = borne.key.words();
        let call = self.sessions.begin("soften", &grant.name).number(key).flag(pair).id(grant.hold);
        let (call, limit, mut tries) = (call.number(micros(grant.ttl)).end(), BootClock.now() + PATIENCE, 1);
        loop {
            let sent_at = BootClock.now();
            let answer = bearer.run(PATIENCE.min(bearer.ttl), &call).await;
            // Which of the two locks is left nobody knows.
            if answer.as_ref().is_err_and(|fault| fault.is_refusal() && !fault.is_locked()) {
                bearer.close();
            }
            match answer.map_err(&told)? {
                Reply::Done { number, .. } => {
                    bearer.change(grant.hold, |borne| borne.key.shared = true);
                    bearer.alive(self.sessions.reports().as_ref(), sent_at);
                    let token = Token::new(number).ok_or_else(|| told(Fault::Answer))?;
                    return Ok(Outcome::Granted(granted(next, token, bearer.session)));
                }
                Reply::Gone { .. } => return Ok(Outcome::Busy(Busy::default())),
                Reply::Locked if BootClock.now() < limit => tries += 1,
                Reply::Locked => return Err(told(Fault::Locked)),
                _ => return Err(told(Fault::Answer)),
            }
            tokio::time::sleep(after_locked(tries)).await;
        }
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        let mut inbox = self.inbox.lock().await;
        tokio::select! {
            () = run(&self.sessions, &mut inbox, reports) => Ok(()),
            end = self.lease.run(reports) => end,
        }
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        self.lease.inspect(name).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.lease.list(prefix, page).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        self.lease.force_release(name, token).await
    }
    fn cells(&self) -> Option<&dyn Cells> {
        self.lease.cells()
    }
    async fn close(&self) -> Result<()> {
        self.sessions.end();
        self.lease.close().await
    }
}
