//! Locks that live with a session of the server: named locks (`GET_LOCK`), each free at once when its holder's process ends (SAFETY E3).
mod bearer;
mod keeper;

use crate::{
    config::{Config, Keys},
    engine::MysqlEngine,
    error::Fault,
    link::Link,
    pool::Lane,
    shared::Shared,
    wire::{
        call::Call,
        reply::{Reply, asked, reply},
    },
};
use async_trait::async_trait;
use bearer::{Bearer, Beat, Lock};
use fencelock_core::{
    BootClock, Busy, Cells, Clock, Engine, EngineId, EngineInfo, Error, ErrorKind, Grant, HoldId, Listing, LossReason,
    Name, Outcome, Page, Released, Renewed, Reports, Request, Result, SessionId, Status, TakenAway, Token, Waiting,
    on_tokio,
};
use fencelock_database::{
    CONNECT_TIMEOUT, PATIENCE, Turned, micros,
    session::{self, Bears, Borne, ends},
};
use keeper::{Order, run};
use std::{ops::Deref, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// The shortest ttl. The server counts how long a session is silent in whole seconds, so it is free a second after one that is stopped.
const MIN_TTL: Duration = Duration::from_millis(500);
/// So long a session has to let go of what is asked back.
const ASKED: Duration = Duration::from_secs(1);
/// So often a claim is made in another session when the one it was sent in has ended.
const AGAIN: u32 = 3;

/// Locks in MariaDB or MySQL that live with a session.
#[derive(Debug)]
pub struct MysqlSessionEngine {
    info: EngineInfo,
    /// What does not differ: looking, values, clean-up.
    lease: MysqlEngine,
    sessions: Arc<Sessions>,
    inbox: tokio::sync::Mutex<mpsc::UnboundedReceiver<Order>>,
}

/// Which sessions there are, and what is said in them.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) shared: Arc<Shared>,
    keys: Keys,
    store: EngineId,
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
        let call = self.begin("look", request.name()).expression(&self.key_of(request.name())).null().end();
        let conn = self.shared.link.soon(request.stopped()).await?;
        self.shared.link.run(&conn, Lane::Calls, PATIENCE, &call).await
    }
    fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }
    /// Another connection says that it is not at the server any more.
    pub(crate) async fn has_vanished(&self, bearer: &Bearer) -> bool {
        matches!(bearer.is_felt(&self.shared.link).await, Ok(false))
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
    fn borne(&self, request: &Request) -> Borne<Lock> {
        Borne::new(request.name(), Lock(self.key_of(request.name())))
    }
    fn key_of(&self, name: &Name) -> String {
        self.keys.of(self.store, &self.shared.space, name.as_str())
    }
    fn begin(&self, procedure: &str, name: &Name) -> Call {
        Call::new(procedure).text(&self.shared.space).text(name.as_str())
    }
    /// `bear`, and the most of `await`.
    fn call(&self, procedure: &str, bearer: &Bearer, request: &Request) -> Call {
        let call = self.begin(procedure, request.name()).expression(&self.key_of(request.name()));
        let call = call.id(bearer.id).id(request.hold()).number(micros(request.ttl()));
        let call = call.number(request.floor().map_or(0, Token::get)).number(micros(request.at_least()));
        call.text(&self.shared.identity(request.note()))
    }
    /// How it stands in the server's queue. `None`: it does not.
    async fn place(&self, request: &Request, bearer: &Bearer) -> Result<Option<Busy>, Fault> {
        let call = self.begin("look", request.name()).expression(&self.key_of(request.name())).id(bearer.id).end();
        let conn = self.shared.link.here().await?;
        match self.shared.link.run(&conn, Lane::Calls, PATIENCE, &call).await? {
            Reply::Busy(busy) => Ok(Some(busy)),
            _ => Ok(None),
        }
    }
    fn let_go_call(&self, hold: HoldId, borne: &Borne<Lock>) -> String {
        self.begin("let_go", &borne.name).expression(&borne.key.0).id(hold).end()
    }
    /// Ends one hold of a session. False: it was not there. `Err`: nobody knows; it is tried again, or the session ends.
    async fn let_go(&self, bearer: &Arc<Bearer>, hold: HoldId) -> Result<bool, Fault> {
        self.all.let_go(bearer, hold, |borne| self.let_go_call(hold, borne)).await
    }
}

/// Named locks are one server's, each session of ours is one of its own, and stays what it is.
pub(crate) async fn prove(link: &Link) -> Result<(), Fault> {
    if link.is_cluster().await? {
        return Err(Fault::Pooled("this is one node of a cluster, and each gives named locks of its own"));
    }
    Bearer::open(link, SessionId(0), PATIENCE, true).await.map(drop)
}
/// Who holds it in a session is asked to let go: he tells his holder first. Whoever has not within a second is ended, and all that he holds,
/// but for one who has let go since.
/// `None`: it is no session's.
pub(crate) async fn take_back(shared: &Shared, name: &Name, token: Token) -> Result<Option<Released>, Fault> {
    let begin = |procedure| Call::new(procedure).text(&shared.space).text(name.as_str()).number(token.get());
    let began = BootClock.now();
    let rows = shared.link.again(&begin("ask").end()).await?;
    let Some(session) = rows.first().and_then(asked) else {
        return Ok(match rows.first().and_then(reply) {
            Some(Reply::Gone { holder }) => Some(Released::NotHeld { holder: holder.map(|holder| *holder) }),
            _ => None,
        });
    };
    loop {
        let conn = shared.link.here().await?;
        let status = shared.status(&conn, name).await?;
        if !status.holders.iter().any(|holder| holder.token == token) {
            return Ok(Some(Released::Released));
        }
        let since = began.until(BootClock.now());
        if since > PATIENCE {
            return Err(Fault::Unanswered);
        }
        if since > ASKED {
            shared.link.again(&begin("bury_holder").id(session).end()).await?;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl MysqlSessionEngine {
    /// Connects, and makes the tables where they are missing.
    ///
    /// # Errors
    /// As [`MysqlEngine::connect`], and `Unsupported` where named locks do not exclude: behind a proxy that gives sessions to many, and on a
    /// node of a cluster.
    ///
    /// # Cancel safety
    /// If dropped nothing is left but, perhaps, the tables.
    pub async fn connect(config: Config) -> Result<Self> {
        let keys = config.keys;
        let lease = on_tokio(async move {
            let lease = MysqlEngine::open(config).await?;
            let link = &lease.shared().link;
            prove(link).await.map_err(|fault| link.tell("connect", &fault))?;
            Ok(lease)
        })
        .await?;
        let shared = lease.shared().clone();
        let mut info = lease.info().clone();
        info.layout = "session";
        let can = &mut info.capabilities;
        // GET_LOCK has one holder, whom it does not change.
        (can.read_write, can.downgrade, can.permits, can.fixed_leases, can.tickets) =
            (false, false, false, false, false);
        (can.waiting, can.taken_away, can.min_ttl) = (Waiting::Push, TakenAway::Pushed, MIN_TTL);
        if info.default_ttl < MIN_TTL {
            let error = Error::new(ErrorKind::InvalidConfig, "connect", "a session lives for half a second at least");
            return Err(error.with("ttl", format!("{:?}", info.default_ttl)));
        }
        let (orders, inbox) = mpsc::unbounded_channel();
        let (store, all, opening) = (info.id, session::Sessions::default(), tokio::sync::Mutex::default());
        let sessions = Arc::new(Sessions { shared, keys, store, all, orders, opening });
        Ok(Self { info, lease, sessions, inbox: tokio::sync::Mutex::new(inbox) })
    }
    /// As [`connect`](Self::connect), by a `mysql:` or `mariadb:` URL with `strategy=session`.
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
            let Beat { sent_at, .. } = bearer.beat().await?;
            bearer.alive(self.reports().as_ref(), sent_at);
            return Ok(Ok((token, bearer.session)));
        }
        loop {
            let bearer = tokio::select! {
                biased;
                bearer = self.session(request.ttl()) => bearer?,
                () = request.stopped() => return Ok(Err(Reply::Busy(Busy::default()))),
            };
            if !bearer.intend(request.hold(), self.borne(request)) {
                return self.look(request).await.map(Err);
            }
            // It was not needed any more, up to now.
            if !bearer.is_open() {
                bearer.forget(request.hold());
                tokio::task::yield_now().await;
                continue;
            }
            self.hold(request.hold(), &bearer);
            let sent_at = BootClock.now();
            let call = self.call("bear", &bearer, request).end();
            let opens = || request.open(sent_at, PATIENCE).is_some();
            let answer = bearer.send(request.hold(), opens, bearer.run(PATIENCE.min(bearer.ttl), &call)).await;
            match answer.unwrap_or_else(|| Ok(Reply::Busy(Busy::default()))) {
                Ok(Reply::Done { number, .. }) => {
                    bearer.granted(request.hold(), number, ends(request, sent_at));
                    bearer.alive(self.reports().as_ref(), sent_at);
                    return Ok(Ok((number, bearer.session)));
                }
                // It is slow: its own signs of life tell. Nothing new is taken there; core takes this one back.
                Err(Fault::Unanswered) if bearer.is_connected() && !self.has_vanished(&bearer).await => {
                    bearer.end();
                    return Err(Fault::Unanswered);
                }
                // Nothing was taken: the tables were locked by somebody, or did not take what they were given.
                Err(fault) if fault.leaves_nothing() => {
                    bearer.forget(request.hold());
                    self.forget(request.hold());
                    return if fault.is_conflict() { Ok(Err(Reply::Locked)) } else { Err(fault) };
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
impl Engine for MysqlSessionEngine {
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
                    bearer.beat().await.map_or(Renewed::Unknown, |beat| Renewed::Extended { sent_at: beat.sent_at })
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
