//! Connections: one for each runtime that sends commands, made when it is needed and made again when it broke.
//!
//! *Invariant (SAFETY E5):* a connection is driven by a task of the runtime that opened it, so one whose runtime is gone is never
//! waited for by another one's tasks. Every command has a limit of ours; one that is over it gives its connection up.
mod apart;
mod cluster;
mod conn;
mod left;
mod replicas;
mod scattered;
mod sentinel;
mod server;

use crate::{
    config::{Config, Layout, Topology},
    error::{Fault, Redirect},
    wire::{
        reply::{Reply, number, reply, text},
        scripts::Script,
    },
};
pub(crate) use apart::{Apart, Stores};
use cluster::Cluster;
pub(crate) use cluster::slot;
pub(crate) use conn::{Conn, Wire};
use fencelock_core::{BootClock, Clock, Connections, Error, ErrorKind, NoConnection, Result, Token, soon, within};
use left::Left;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, PushInfo, PushKind, Value};
use replicas::Replicas;
pub(crate) use scattered::next_is_watched;
use sentinel::Sentinels;
pub(crate) use sentinel::follow;
use server::{Login, Server};
#[cfg(feature = "bench")]
use std::sync::atomic::AtomicU64;
use std::{
    collections::HashMap,
    future::pending,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    runtime::{Handle, Id},
    sync::{Notify, mpsc::UnboundedSender},
    time::timeout,
};

/// For so long a connection is tried (SAFETY E8).
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// And one to the server that sentinels name: while it does not answer they may choose another one.
const PRIMARY_TIMEOUT: Duration = Duration::from_secs(2);
/// A key is followed so often, from one server to the next.
pub(crate) const TURNS: usize = 8;

/// Name or address, and port.
pub(crate) type Address = (String, u16);

pub(crate) struct Link {
    /// For the tasks that connect.
    me: Weak<Self>,
    pub(crate) way: Way,
    pub(crate) replicas: Option<Replicas>,
    /// It is one of several that have to be different ones.
    apart: Option<Apart>,
    login: Login,
    pub(crate) endpoint: Arc<str>,
    resp3: bool,
    /// The server tells of those keys alone that it is asked to.
    picks: bool,
    pub(crate) keep: String,
    least_kept: i64,
    /// All that were met, so that what is known of a server's clock outlives its connections.
    servers: Mutex<HashMap<Address, Arc<Server>>>,
    left: Left,
    /// The runtime of `run`, and where what the server tells of itself goes.
    attending: Mutex<Option<(Id, UnboundedSender<PushInfo>)>>,
    /// Another server is the primary.
    pub(crate) moved: Notify,
    closed: AtomicBool,
    /// Commands so far.
    #[cfg(feature = "bench")]
    sent: AtomicU64,
}
/// Where commands go.
pub(crate) enum Way {
    /// To one server: the connections that lead to the one that it is now.
    One(Find, Arc<Connections<Arc<Wire>, Fault>>),
    /// To whoever has the key's slot.
    Cluster(Cluster),
}
pub(crate) enum Find {
    Alone(Address),
    Sentinels(Box<Sentinels>),
}
impl Link {
    pub(crate) fn new(config: &Config, apart: Option<Apart>) -> Result<Arc<Self>> {
        config.check()?;
        let login = Login::new(config)?;
        let way = match &config.topology {
            Topology::Alone => {
                Way::One(Find::Alone(config.hosts.first().cloned().unwrap_or_default()), Connections::new())
            }
            Topology::Sentinel { master, user, password } => {
                let login = login.of_sentinels(user.as_deref(), password.as_deref());
                Way::One(
                    Find::Sentinels(Box::new(Sentinels::new(config.hosts.clone(), login, master))),
                    Connections::new(),
                )
            }
            Topology::Cluster => Way::Cluster(Cluster::new(config.hosts.clone())),
            Topology::Redlock => {
                let several = Error::new(ErrorKind::InvalidConfig, "connect", "a Redlock is an engine for each server");
                return Err(several.hint("take fencelock_redis::connect, which makes one of them"));
            }
        };
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            way,
            replicas: (config.replicas > 0).then(|| Replicas::new(config.replicas)),
            apart,
            login,
            endpoint: config.endpoint().into(),
            resp3: config.resp3,
            picks: matches!(config.layout, Layout::Redisson(_)),
            keep: config.retention.as_millis().to_string(),
            least_kept: i64::try_from(config.retention.as_millis() / 2).unwrap_or(i64::MAX),
            servers: Mutex::default(),
            left: Left::default(),
            attending: Mutex::default(),
            moved: Notify::new(),
            closed: AtomicBool::new(false),
            #[cfg(feature = "bench")]
            sent: AtomicU64::new(0),
        }))
    }
    /// No record that we wrote ends earlier than this, in ms: half of what an idle one is kept for is always left.
    pub(crate) fn least_kept(&self) -> i64 {
        self.least_kept
    }
    #[cfg(feature = "bench")]
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }
    fn attending(&self) -> MutexGuard<'_, Option<(Id, UnboundedSender<PushInfo>)>> {
        self.attending.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// From now on the server's own words of this runtime's connection go there. One that was open is opened anew.
    pub(crate) fn attend(&self, pushes: UnboundedSender<PushInfo>) {
        *self.attending() = Some((Handle::current().id(), pushes));
        self.each(Connections::give_up_here);
    }
    pub(crate) fn close(&self) {
        if let Way::Cluster(cluster) = &self.way {
            cluster.close();
        }
        self.closed.store(true, Relaxed);
        self.each(Connections::close);
        self.replicas.iter().for_each(Replicas::forget);
    }
    /// All connections, whatever server they lead to.
    fn each(&self, work: impl Fn(&Connections<Arc<Wire>, Fault>)) {
        match &self.way {
            Way::One(_, all) => work(all),
            Way::Cluster(_) => self.servers().values().for_each(|server| work(&server.connections)),
        }
    }
    /// Those that are open now, of every runtime: of those that one server after the other is.
    fn open_ones(&self) -> Vec<Conn> {
        match &self.way {
            Way::One(_, all) => all.open().into_iter().map(Conn::from).collect(),
            Way::Cluster(_) => Vec::new(),
        }
    }
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.way, Way::Cluster(_))
    }
    /// This runtime's connection to the server that has this key, if it is open.
    fn known(&self, key: &str) -> Option<Conn> {
        let known = match &self.way {
            Way::One(_, all) => all.known(),
            Way::Cluster(cluster) => cluster.known(self, slot(key))?.connections.known(),
        };
        known.map(Conn::from)
    }
    /// The same, opened where it is not.
    ///
    /// What is seldom done on the way to a command and its answer is boxed, here and below: each call carries the room for all else.
    pub(crate) async fn at(&self, key: &str) -> Result<Conn, Fault> {
        match self.known(key) {
            Some(conn) => Ok(conn),
            None => Box::pin(self.reach(key)).await,
        }
    }
    async fn reach(&self, key: &str) -> Result<Conn, Fault> {
        let cluster = match &self.way {
            Way::One(_, all) => {
                let me = self.me.clone();
                let make = move || async move { me.upgrade().ok_or(Fault::Closed)?.connect().await };
                let is_good = |_: &Arc<Wire>| true;
                return all.here_or_elsewhere(CONNECT_TIMEOUT, make, Fault::is_full, is_good).await.map(Conn::from);
            }
            Way::Cluster(cluster) => cluster,
        };
        let owner = cluster.owner(self, slot(key)).await?;
        let conn = self.to(&owner).await;
        if conn.as_ref().is_err_and(Fault::may_pass) {
            cluster.doubt();
        }
        conn
    }
    /// The same, tried again for a while when there is no server, until `stopped`: then why there was none is told, too.
    pub(crate) async fn soon(&self, key: &str, stopped: impl Future<Output = ()>) -> Result<Conn, Fault> {
        match self.known(key) {
            Some(conn) => Ok(conn),
            None => {
                Box::pin(soon(CONNECT_TIMEOUT, || self.reach(key), Fault::may_pass, Fault::Unreached, stopped)).await
            }
        }
    }
    /// What may be asked again with one effect, when the connection breaks meanwhile or leads to another server now.
    pub(crate) async fn again<T, A>(&self, key: &str, ask: impl Fn(Conn) -> A) -> Result<T, Fault>
    where
        A: Future<Output = Result<T, Fault>>,
    {
        match self.turned(self.soon(key, pending()).await?, &ask).await {
            Err(fault @ Fault::Redis(_)) if fault.ends_connection() => {
                Box::pin(self.turned(self.soon(key, pending()).await?, &ask)).await
            }
            answer => answer,
        }
    }
    /// A command, and again wherever it is told to go. What it says of a server's clock it makes anew for each.
    pub(crate) async fn turned<T, A>(&self, mut conn: Conn, ask: impl Fn(Conn) -> A) -> Result<T, Fault>
    where
        A: Future<Output = Result<T, Fault>>,
    {
        let mut turns = 0;
        loop {
            match ask(conn.clone()).await {
                Err(fault) if fault.redirect().is_some() && turns < TURNS => {
                    conn = Box::pin(self.redirected(&conn, &fault)).await?;
                    turns += 1;
                }
                answer => return answer,
            }
        }
    }
    /// Where a server that refused says that the key lies.
    pub(crate) async fn redirected(&self, conn: &Conn, fault: &Fault) -> Result<Conn, Fault> {
        let (Way::Cluster(cluster), Some(Redirect { slot, address, asks })) = (&self.way, fault.redirect()) else {
            return Err(fault.clone());
        };
        let address = cluster::address_of(&address, &conn.server.address.0).ok_or(Fault::Answer)?;
        if asks {
            // What is made there next comes after what this one has made.
            self.left.leave(&conn.server);
        } else {
            cluster.moved(slot, &address, |before| self.leave(before));
        }
        let conn = self.to(&self.server_at(&address)?).await;
        if conn.as_ref().is_err_and(Fault::may_pass) {
            cluster.doubt();
        }
        conn.map(|conn| Conn { asking: asks, ..conn })
    }
    fn servers(&self) -> MutexGuard<'_, HashMap<Address, Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn server_at(&self, address: &Address) -> Result<Arc<Server>, Fault> {
        let mut servers = self.servers();
        // Under the mutex: `close` finds it, or has told us.
        if self.closed.load(Relaxed) {
            return Err(Fault::Closed);
        }
        if let Some(server) = servers.get(address) {
            return Ok(server.clone());
        }
        let server = Server::new(address.clone(), &self.login)?;
        servers.insert(address.clone(), server.clone());
        Ok(server)
    }
    /// This runtime's connection to this server of a cluster.
    pub(crate) async fn to(&self, server: &Arc<Server>) -> Result<Conn, Fault> {
        let (me, to) = (self.me.clone(), server.clone());
        let make = move || async move {
            let link = me.upgrade().ok_or(Fault::Closed)?;
            link.open(to, link.attending_here()).await
        };
        let is_good = |_: &Arc<Wire>| true;
        server.connections.here_or_elsewhere(PRIMARY_TIMEOUT, make, Fault::is_full, is_good).await.map(Conn::from)
    }
    /// This one does not have any more what it had.
    fn leave(&self, address: &Address) {
        let server = self.servers().get(address).cloned();
        server.iter().for_each(|server| self.left.leave(server));
    }
    /// The floor of tokens that a request is sent with: above what a server made that we were led away from (SAFETY T1).
    pub(crate) fn floor(&self, of: Option<Token>) -> String {
        self.left.floor().max(of.map_or(0, Token::get)).to_string()
    }
    /// All servers that have keys.
    pub(crate) async fn everywhere(&self) -> Result<Vec<Conn>, Fault> {
        let Way::Cluster(cluster) = &self.way else { return self.at("").await.map(|conn| vec![conn]) };
        let mut all = Vec::new();
        for server in cluster.owners(self).await? {
            let conn = self.to(&server).await;
            if conn.as_ref().is_err_and(Fault::may_pass) {
                cluster.doubt();
            }
            all.push(conn?);
        }
        Ok(all)
    }
    /// Of those that one server after the other is: the one that it is now.
    async fn connect(&self) -> Result<Arc<Wire>, Fault> {
        let sentinels = match &self.way {
            Way::One(Find::Alone(address), _) => {
                let Some(apart) = &self.apart else {
                    return self.open(self.server_at(address)?, self.attending_here()).await;
                };
                apart.refused()?;
                let wire = self.open(self.server_at(address)?, self.attending_here()).await?;
                return apart.check(self, &wire).await.map(|()| wire);
            }
            Way::One(Find::Sentinels(sentinels), _) => sentinels,
            Way::Cluster(_) => return Err(Fault::NoPrimary),
        };
        // From here on no word of another primary is missed.
        let mut moved = pin!(self.moved.notified());
        moved.as_mut().enable();
        let open = async {
            let server = self.server_at(&sentinels.primary().await?)?;
            let wire = self.open(server, self.attending_here()).await?;
            match wire.send(&redis::cmd("ROLE")).await.map_err(Fault::Connect) {
                // It has the address, and is not one any more or not yet.
                Ok(Value::Array(role)) if role.first().and_then(text) != Some("master") => Err(Fault::NoPrimary),
                Ok(_) => Ok(wire),
                // Then it says so when it is written to.
                Err(fault) if fault.is_no_right() => Ok(wire),
                Err(fault) => Err(fault),
            }
        };
        tokio::select! {
            biased;
            () = moved => Err(Fault::NoPrimary),
            // A host that is gone answers nothing: meanwhile there may be another one.
            wire = timeout(PRIMARY_TIMEOUT, open) => wire.unwrap_or(Err(Fault::NoPrimary)),
        }
        .inspect(|wire| self.left.led_to(&wire.server))
    }
    /// That of `run`, if this is its runtime.
    fn attending_here(&self) -> Option<UnboundedSender<PushInfo>> {
        let here = Handle::current().id();
        self.attending().clone().filter(|(runtime, _)| *runtime == here).map(|(_, pushes)| pushes)
    }
    async fn open(
        &self,
        server: Arc<Server>,
        attending: Option<UnboundedSender<PushInfo>>,
    ) -> Result<Arc<Wire>, Fault> {
        let attends = attending.is_some();
        let pushes = attending.filter(|_| self.resp3);
        // Limits are ours: the driver's default is half a second.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1_024);
        let config = match &pushes {
            Some(pushes) => config.set_push_sender(pushes.clone()),
            None => config,
        };
        let inner =
            server.client.get_multiplexed_async_connection_with_config(&config).await.map_err(Fault::Connect)?;
        let mut wire = Wire { inner, server, attends, tracks: false };
        // Where the server's clock stands, before the first command that needs to know.
        let sent = BootClock.now();
        let time = wire.send(&redis::cmd("TIME")).await.map_err(Fault::Connect)?;
        let received = BootClock.now();
        wire.server.time.seen(sent, received, clock(&time).ok_or(Fault::Answer)?);
        if pushes.is_some() {
            // Without the right to it holds are looked at with each renewal; `info` has said so.
            wire.tracks = true;
            for words in self.tracking() {
                wire.tracks &= wire.send(redis::cmd("CLIENT").arg(words)).await.is_ok();
            }
            if self.picks {
                // What was said last is of the next command: of none that reads a key.
                wire.send(&redis::cmd("PING")).await.map_err(Fault::Connect)?;
            }
        }
        Ok(Arc::new(wire))
    }
    /// How a connection is told of changes, after `CLIENT`.
    pub(crate) fn tracking(&self) -> Vec<Vec<&'static str>> {
        match self.picks {
            false => vec![vec!["TRACKING", "ON", "NOLOOP"]],
            true => vec![vec!["TRACKING", "ON", "OPTIN", "NOLOOP"], vec!["CACHING", "YES"]],
        }
    }
    /// The next command opens another one. What its server would have told is not told any more.
    fn give_up(&self, conn: &Conn) {
        let Some(shared) = &conn.shared else { return };
        match &self.way {
            Way::One(_, all) => {
                all.give_up(shared);
            }
            Way::Cluster(cluster) => {
                conn.server.connections.give_up(shared);
                cluster.doubt();
            }
        }
        if conn.attends {
            self.push(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
        }
    }
    /// Another server is the primary: nobody goes on with the one before, and whether it has what is held is asked at once.
    fn move_on(&self) {
        self.each(Connections::give_up_all);
        self.replicas.iter().for_each(Replicas::forget);
        self.moved.notify_waiters();
        self.push(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
    }
    /// The server does not tell a connection of its own writes, and forgets that it wanted to know: `run` is told by us.
    pub(crate) fn touched(&self, conn: &Conn, key: &str) {
        if conn.tracks {
            let keys = Value::Array(vec![Value::BulkString(key.as_bytes().to_vec())]);
            self.push(PushInfo { kind: PushKind::Invalidate, data: vec![keys] });
        }
    }
    fn push(&self, push: PushInfo) {
        if let Some((_, pushes)) = &*self.attending() {
            let _ = pushes.send(push);
        }
    }

    /// `send` is pinned by the caller: what is passed on by value is there twice, each time.
    async fn limited<T>(
        &self,
        conn: &Conn,
        limit: Duration,
        send: Pin<&mut impl Future<Output = redis::RedisResult<T>>>,
    ) -> Result<T, Fault> {
        #[cfg(feature = "bench")]
        self.sent.fetch_add(1, Relaxed);
        let sent = BootClock.now();
        let answer = match within(limit, send).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(e)) => Err(Fault::Redis(e)),
            None => Err(Fault::Unanswered),
        };
        match &answer {
            Err(fault) if fault.ends_connection() => {
                if matches!(fault, Fault::Unanswered) {
                    conn.server.was_silent(limit);
                }
                self.give_up(conn);
            }
            Ok(_) | Err(_) => conn.server.answered(sent, BootClock.now()),
        }
        if let (Way::Cluster(cluster), Err(fault)) = (&self.way, &answer)
            && fault.is_cluster_down()
        {
            cluster.doubt();
        }
        answer
    }
    /// One command.
    pub(crate) async fn command(&self, conn: &Conn, cmd: &Cmd) -> Result<Value, Fault> {
        self.command_within(conn, conn.server.patience(), cmd).await
    }
    pub(crate) async fn command_within(&self, conn: &Conn, limit: Duration, cmd: &Cmd) -> Result<Value, Fault> {
        self.limited(conn, limit, pin!(conn.send(cmd))).await
    }
    /// Several at once; each has its own answer, also when another one failed.
    pub(crate) async fn commands(&self, conn: &Conn, all: &Pipeline) -> Result<Vec<Value>, Fault> {
        #[cfg(feature = "bench")]
        self.sent.fetch_add(all.len() as u64 - 1, Relaxed);
        self.limited(conn, conn.server.patience(), pin!(conn.send_all(all))).await
    }
    /// Several at once that stand or fall together.
    pub(crate) async fn all(&self, conn: &Conn, limit: Duration, all: &Pipeline) -> Result<Vec<Value>, Fault> {
        #[cfg(feature = "bench")]
        self.sent.fetch_add(all.len() as u64 - 1, Relaxed);
        let answers = async { conn.send_all(all).await?.into_iter().map(Value::extract_error).collect() };
        self.limited(conn, limit, pin!(answers)).await
    }
    /// Begins to hear a channel that lies with a key, on this connection, or ends it.
    ///
    /// *Invariant (SAFETY H1):* nobody counts as one who hears by a connection that tells `run` nothing, as another runtime's.
    pub(crate) async fn hear(&self, conn: &Conn, verb: &str, channel: &str) -> Result<(), Fault> {
        if !conn.attends {
            return Err(Fault::Unreached);
        }
        let mut cmd = Pipeline::with_capacity(1);
        cmd.cmd(verb).arg(channel);
        match self.commands(conn, &cmd).await?.pop() {
            Some(Value::ServerError(e)) => Err(Fault::Redis(e.into())),
            _ => Ok(()),
        }
    }
    /// A script; one that the server has forgotten is sent along.
    pub(crate) async fn eval<'a>(
        &self,
        conn: &Conn,
        limit: Duration,
        script: &Script,
        keys: &[&str],
        args: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<Value, Fault> {
        let cmd = |first: &str, body: &str| {
            let mut cmd = redis::cmd(first);
            cmd.arg(body).arg(keys.len()).arg(keys).arg(&*self.keep);
            args.clone().for_each(|arg| {
                cmd.arg(arg);
            });
            cmd
        };
        match self.command_within(conn, limit, &cmd("EVALSHA", &script.sha)).await {
            Err(fault) if fault.is_no_script() => {
                Box::pin(self.command_within(conn, limit, &cmd("EVAL", script.text))).await
            }
            answer => answer,
        }
    }
    /// A script on one record, its answer taken apart; what it tells of the server's clock is kept.
    pub(crate) async fn run(&self, conn: &Conn, script: &Script, key: &str, args: &[&[u8]]) -> Result<Reply, Fault> {
        self.run_within(conn, conn.server.patience(), script, key, args).await
    }
    pub(crate) async fn run_within(
        &self,
        conn: &Conn,
        limit: Duration,
        script: &Script,
        key: &str,
        args: &[&[u8]],
    ) -> Result<Reply, Fault> {
        let answer = self.timed(conn, limit, script, &[key], args).await?;
        self.touched(conn, key);
        reply(&answer).ok_or(Fault::Answer)
    }
    /// The answer as it comes. Its third part is the server's time.
    pub(crate) async fn timed(
        &self,
        conn: &Conn,
        limit: Duration,
        script: &Script,
        keys: &[&str],
        args: &[&[u8]],
    ) -> Result<Value, Fault> {
        let sent = BootClock.now();
        let answer = self.eval(conn, limit, script, keys, args.iter().copied()).await?;
        if let Value::Array(parts) = &answer
            && let Some(now) = parts.get(2).and_then(number)
        {
            conn.server.time.seen(sent, BootClock.now(), now);
        }
        Ok(answer)
    }
    pub(crate) fn tell(&self, operation: &'static str, fault: &Fault) -> Error {
        fault.tell(operation, &self.endpoint)
    }
}
impl From<NoConnection> for Fault {
    fn from(no: NoConnection) -> Self {
        match no {
            NoConnection::Closed => Self::Closed,
            NoConnection::Late => Self::Unreached,
        }
    }
}
impl Fault {
    /// No server now; there may be one soon.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Redis(_) | Self::Unanswered | Self::Unreached | Self::NoPrimary)
            && self.tell("connect", "").is_temporary()
    }
}
impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({})", self.endpoint)
    }
}

fn whole_micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}
/// The answer to `TIME`, in µs.
pub(crate) fn clock(value: &Value) -> Option<i64> {
    let Value::Array(parts) = value else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}
