//! Connections: one for each runtime that sends commands, made when it is needed and made again when it broke.
//!
//! *Invariant (SAFETY E5):* a connection is driven by a task of the runtime that opened it, so one whose runtime is gone is never
//! waited for by another one's tasks. Every command has a limit of ours; one that is over it gives its connection up.
use crate::{
    config::{Config, Tls},
    error::Fault,
    wire::{
        reply::{Reply, number, reply},
        scripts::Script,
    },
};
use fencelock_core::{BootClock, Clock, Error, Moment, Result, ServerTime, soon, within};
use fencelock_tls::{chain, key};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, TlsCertificates, Value, aio::MultiplexedConnection,
};
use std::{
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    runtime::{Handle, Id},
    sync::{mpsc::UnboundedSender, watch},
    time::timeout,
};

/// For so long a connection is tried (SAFETY E8).
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// And for so long an answer is waited for, at least: four times the slowest recent one if that is longer. A server that forks to
/// save, or a busy host, is silent for a second now and then; a caller who is told so can do nothing with it.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);
const MOST_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Link {
    /// For the tasks that connect.
    me: Weak<Self>,
    client: Client,
    pub(crate) endpoint: Arc<str>,
    resp3: bool,
    pub(crate) keep: String,
    least_kept: i64,
    slots: Mutex<Vec<Slot>>,
    /// The runtime of `run`, and where what the server tells of itself goes.
    attending: Mutex<Option<(Id, UnboundedSender<PushInfo>)>>,
    pub(crate) time: ServerTime,
    slowest: AtomicU64,
    last: AtomicU64,
    closed: AtomicBool,
    /// Commands so far.
    #[cfg(feature = "bench")]
    sent: AtomicU64,
}
/// One runtime's connection. A task of that runtime makes it, so nobody who waits for it and is dropped, or not polled any more,
/// keeps the others from it; and that task keeps it, so it is told by this channel when its runtime is gone.
struct Slot {
    runtime: Id,
    conn: watch::Receiver<Option<Result<Conn, Fault>>>,
}
impl Slot {
    fn is(&self, wanted: &Conn) -> bool {
        matches!(&*self.conn.borrow(), Some(Ok(conn)) if conn.number == wanted.number)
    }
}
#[derive(Clone)]
pub(crate) struct Conn {
    inner: MultiplexedConnection,
    number: u64,
    /// The server tells it when a key changes that it has read.
    tracks: bool,
}

impl Link {
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>> {
        let refuse = |e: redis::RedisError| Fault::Connect(e).tell("connect", &config.endpoint());
        let (host, port) = (config.host.clone(), config.port);
        let addr = match config.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        };
        let protocol = if config.resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        let mut login = RedisConnectionInfo::default()
            .set_db(i64::from(config.database))
            .set_protocol(protocol)
            .set_skip_set_lib_name();
        if let Some(user) = &config.user {
            login = login.set_username(user);
        }
        if let Some(password) = &config.password {
            login = login.set_password(password);
        }
        let info: ConnectionInfo = addr.into_connection_info().map_err(refuse)?.set_redis_settings(login);
        let client = match &config.tls {
            None => Client::open(info).map_err(refuse)?,
            Some(tls) => {
                // The first one wins; one that the program chose stays.
                let _ = rustls::crypto::ring::default_provider().install_default();
                Client::build_with_tls(info, certificates(tls)?).map_err(refuse)?
            }
        };
        let keep = config.retention.as_millis().to_string();
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            client,
            endpoint: config.endpoint().into(),
            resp3: config.resp3,
            keep,
            least_kept: i64::try_from(config.retention.as_millis() / 2).unwrap_or(i64::MAX),
            slots: Mutex::default(),
            attending: Mutex::default(),
            time: ServerTime::default(),
            slowest: AtomicU64::new(0),
            last: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            #[cfg(feature = "bench")]
            sent: AtomicU64::new(0),
        }))
    }
    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// No record that we wrote ends earlier than this, in ms: half of what an idle one is kept for is always left.
    pub(crate) fn least_kept(&self) -> i64 {
        self.least_kept
    }
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
    #[cfg(feature = "bench")]
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }
    /// From now on the server's own words of this runtime's connection go there. One that was open is opened anew.
    pub(crate) fn attend(&self, pushes: UnboundedSender<PushInfo>) {
        let here = Handle::current().id();
        *self.attending.lock().unwrap_or_else(PoisonError::into_inner) = Some((here, pushes));
        self.slots().retain(|slot| slot.runtime != here);
    }
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        self.slots().clear();
    }
    fn check_open(&self) -> Result<(), Fault> {
        if self.closed.load(Relaxed) { Err(Fault::Closed) } else { Ok(()) }
    }
    /// This runtime's connection.
    pub(crate) async fn here(&self) -> Result<Conn, Fault> {
        let here = Handle::current().id();
        let open = |slot: &Slot| slot.conn.borrow().as_ref().and_then(|end| end.as_ref().ok().cloned());
        if let Some(conn) = self.slots().iter().find(|slot| slot.runtime == here).and_then(open) {
            return Ok(conn);
        }
        let mut conn = self.slot(here)?;
        // Whoever waits has a limit of his own. The channel ends with a runtime that is going.
        let end = timeout(CONNECT_TIMEOUT, conn.wait_for(Option::is_some)).await;
        let end = end.ok().and_then(Result::ok).and_then(|end| end.clone());
        end.unwrap_or(Err(Fault::Unreached))
    }
    /// The same, tried again for a while when there is no server, until `stopped`: then why there was none is told, too.
    pub(crate) async fn soon(&self, stopped: impl Future<Output = ()>) -> Result<Conn, Fault> {
        soon(CONNECT_TIMEOUT, || self.here(), Fault::may_pass, Fault::Unreached, stopped).await
    }
    /// What may be asked again with one effect, when the connection breaks meanwhile.
    pub(crate) async fn again<T, A>(&self, ask: impl Fn(Conn) -> A) -> Result<T, Fault>
    where
        A: Future<Output = Result<T, Fault>>,
    {
        match ask(self.soon(pending()).await?).await {
            Err(fault @ Fault::Redis(_)) if fault.ends_connection() => ask(self.soon(pending()).await?).await,
            answer => answer,
        }
    }
    /// Where this runtime's connection is, or will be.
    fn slot(&self, here: Id) -> Result<watch::Receiver<Option<Result<Conn, Fault>>>, Fault> {
        let mut slots = self.slots();
        // Under the mutex: `close` finds the slot, or has told us.
        self.check_open()?;
        if let Some(slot) = slots.iter().find(|slot| slot.runtime == here) {
            return Ok(slot.conn.clone());
        }
        let (told, conn) = watch::channel(None);
        slots.retain(|slot| slot.conn.has_changed().is_ok());
        slots.push(Slot { runtime: here, conn: conn.clone() });
        drop(slots);
        let me = self.me.clone();
        tokio::spawn(async move {
            let Some(link) = me.upgrade() else { return };
            let end = timeout(CONNECT_TIMEOUT, link.connect(here)).await.unwrap_or(Err(Fault::Unreached));
            let end = end.and_then(|conn| link.check_open().map(|()| conn));
            if end.is_err() {
                // Those who wait are told; whoever comes next tries anew.
                link.slots().retain(|slot| !slot.conn.same_channel(&told.subscribe()));
            }
            told.send_replace(Some(end));
            drop(link);
            // For as long as it is wanted.
            told.closed().await;
        });
        Ok(conn)
    }
    async fn connect(&self, here: Id) -> Result<Conn, Fault> {
        let attending = self.attending.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let pushes = attending.filter(|(runtime, _)| *runtime == here && self.resp3).map(|(_, pushes)| pushes);
        // Limits are ours: the driver's default is half a second.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1_024);
        let config = match &pushes {
            Some(pushes) => config.set_push_sender(pushes.clone()),
            None => config,
        };
        let inner = self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(Fault::Connect)?;
        let mut conn = Conn { inner, number: self.last.fetch_add(1, Relaxed), tracks: false };
        // Where the server's clock stands, before the first command that needs to know.
        let sent = BootClock.now();
        let time = conn.send(&redis::cmd("TIME")).await.map_err(Fault::Connect)?;
        let received = BootClock.now();
        self.time.seen(sent, received, clock(&time).ok_or(Fault::Answer)?);
        if pushes.is_some() {
            // Without the right to it holds are looked at with each renewal; `info` has said so.
            conn.tracks = conn.send(redis::cmd("CLIENT").arg("TRACKING").arg("ON").arg("NOLOOP")).await.is_ok();
        }
        Ok(conn)
    }
    /// The next command opens another one. What its server would have told is not told any more.
    fn give_up(&self, conn: &Conn) {
        self.slots().retain(|slot| !slot.is(conn));
        if conn.tracks {
            self.push(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
        }
    }
    /// The server does not tell a connection of its own writes, and forgets that it wanted to know: `run` is told by us.
    fn touched(&self, conn: &Conn, key: &str) {
        if conn.tracks {
            let keys = Value::Array(vec![Value::BulkString(key.as_bytes().to_vec())]);
            self.push(PushInfo { kind: PushKind::Invalidate, data: vec![keys] });
        }
    }
    fn push(&self, push: PushInfo) {
        let attending = self.attending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pushes)) = &*attending {
            let _ = pushes.send(push);
        }
    }

    /// How long an answer may take.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_micros(self.slowest.load(Relaxed).saturating_mul(4)).clamp(LEAST_PATIENCE, MOST_PATIENCE)
    }
    fn answered(&self, sent: Moment, received: Moment) {
        let took = whole_micros(sent.until(received));
        // Decays by an eighth with each faster one.
        let _ = self.slowest.fetch_update(Relaxed, Relaxed, |slowest| Some(took.max(slowest - slowest / 8)));
    }
    async fn limited<T>(
        &self,
        conn: &Conn,
        limit: Duration,
        send: impl Future<Output = redis::RedisResult<T>>,
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
                // A server that is only slow gets more time from the next one.
                if matches!(fault, Fault::Unanswered) {
                    self.slowest.fetch_max(whole_micros(limit), Relaxed);
                }
                self.give_up(conn);
            }
            Ok(_) | Err(_) => self.answered(sent, BootClock.now()),
        }
        answer
    }
    /// One command.
    pub(crate) async fn command(&self, conn: &Conn, cmd: &Cmd) -> Result<Value, Fault> {
        self.limited(conn, self.patience(), conn.send(cmd)).await
    }
    /// Several at once; each has its own answer, also when another one failed.
    pub(crate) async fn commands(&self, conn: &Conn, all: &Pipeline) -> Result<Vec<Value>, Fault> {
        let (mut inner, many) = (conn.inner.clone(), all.len());
        #[cfg(feature = "bench")]
        self.sent.fetch_add(many as u64 - 1, Relaxed);
        self.limited(conn, self.patience(), async move { inner.send_packed_commands(all, 0, many).await }).await
    }
    /// Several at once that stand or fall together.
    pub(crate) async fn all(&self, conn: &Conn, limit: Duration, all: &Pipeline) -> Result<Vec<Value>, Fault> {
        let (mut inner, many) = (conn.inner.clone(), all.len());
        #[cfg(feature = "bench")]
        self.sent.fetch_add(many as u64 - 1, Relaxed);
        let answers = async move {
            inner.send_packed_commands(all, 0, many).await?.into_iter().map(Value::extract_error).collect()
        };
        self.limited(conn, limit, answers).await
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
        match self.limited(conn, limit, conn.send(&cmd("EVALSHA", &script.sha))).await {
            Err(fault) if fault.is_no_script() => self.limited(conn, limit, conn.send(&cmd("EVAL", script.text))).await,
            answer => answer,
        }
    }
    /// A script on one record, its answer taken apart; what it tells of the server's clock is kept.
    pub(crate) async fn run(&self, conn: &Conn, script: &Script, key: &str, args: &[&[u8]]) -> Result<Reply, Fault> {
        self.run_within(conn, self.patience(), script, key, args).await
    }
    pub(crate) async fn run_within(
        &self,
        conn: &Conn,
        limit: Duration,
        script: &Script,
        key: &str,
        args: &[&[u8]],
    ) -> Result<Reply, Fault> {
        let sent = BootClock.now();
        let answer = self.eval(conn, limit, script, &[key], args.iter().copied()).await?;
        self.touched(conn, key);
        if let Value::Array(parts) = &answer
            && let Some(now) = parts.get(2).and_then(number)
        {
            self.time.seen(sent, BootClock.now(), now);
        }
        reply(&answer).ok_or(Fault::Answer)
    }
    pub(crate) fn tell(&self, operation: &'static str, fault: &Fault) -> Error {
        fault.tell(operation, &self.endpoint)
    }
}
impl Fault {
    /// No server now; there may be one soon.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Redis(_) | Self::Unanswered | Self::Unreached)
            && self.tell("connect", "").is_temporary()
    }
}
impl Conn {
    async fn send(&self, cmd: &Cmd) -> redis::RedisResult<Value> {
        match self.inner.clone().send_packed_command(cmd).await? {
            Value::ServerError(e) => Err(e.into()),
            answer => Ok(answer),
        }
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
fn certificates(tls: &Tls) -> Result<TlsCertificates> {
    let client_tls = match &tls.client {
        None => None,
        Some((cert, file)) => Some(redis::ClientTlsConfig { client_cert: chain(cert)?, client_key: key(file)? }),
    };
    Ok(TlsCertificates { client_tls, root_cert: tls.ca.as_deref().map(chain).transpose()? })
}
