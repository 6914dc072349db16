//! The way to the server: one connection for each runtime that calls, and one more that listens.
//!
//! *Invariant (SAFETY E8):* every call has a limit of ours; one that is over it gives its connection up.
use crate::{
    config::{Config, Listen},
    error::Fault,
    tls,
    wire::{
        call::{Call, identifier, literal},
        reply::{Reply, clock, reply},
        schema,
    },
};
use fencelock_core::{BootClock, Clock, Connection, Connections, Error, Result, ServerTime};
use futures_util::{StreamExt, stream};
use std::{
    future::{Future, pending},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    time::{sleep, timeout},
};
use tokio_postgres::{
    AsyncMessage, CancelToken, Client, NoTls, SimpleQueryMessage, SimpleQueryRow,
    config::{SslMode, TargetSessionAttrs},
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// For so long a connection is tried (SAFETY E8).
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For no longer one host is tried: it may take a connection and say nothing.
const ONE_HOST: Duration = Duration::from_secs(2);
/// A connection of which nothing has come for a while is asked whether it is there, and has so long to answer.
const STILL_THERE: Duration = Duration::from_millis(500);
/// For so long an answer is waited for: a server that writes a checkpoint is silent for a second now and then.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// A pooler in between forgets what is said to begin with, so each transaction says it, where the database's own way is another one.
const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;";

pub(crate) type Conn = Connection<Arc<Wire>>;
/// One connection, and when it was last heard.
pub(crate) struct Wire {
    client: Client,
    /// Since when something is asked and nothing is answered, in ns; 0: it is not so.
    silent: AtomicU64,
}
impl Wire {
    /// *Invariant:* a server that is slow is not silent, and a caller with little patience is not the server's: a connection is given up
    /// when nothing at all has come of it for [`PATIENCE`], whoever asks.
    fn is_mute(&self) -> bool {
        let since = self.silent.load(Relaxed);
        since > 0 && now() > since + u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX / 2)
    }
    fn asked(&self) {
        let _ = self.silent.compare_exchange(0, now(), Relaxed, Relaxed);
    }
    fn heard(&self) {
        self.silent.store(0, Relaxed);
    }
}
fn now() -> u64 {
    BootClock.now().as_nanos()
}

pub(crate) struct Link {
    driver: Arc<Driver>,
    /// Where it is listened; `None`: nowhere.
    ears: Option<Arc<Driver>>,
    /// A connection was given up: what became of the holds is not known (SAFETY G6).
    pub(crate) broke: Notify,
    all: Arc<Connections<Arc<Wire>, Fault>>,
    pub(crate) endpoint: Arc<str>,
    place: OnceLock<Place>,
    pub(crate) time: ServerTime,
}
/// Where the functions are, and how they are called.
pub(crate) struct Place {
    /// With quotes.
    pub(crate) schema: String,
    prefix: &'static str,
}
/// Makes connections.
struct Driver {
    /// One for each host.
    hosts: Vec<tokio_postgres::Config>,
    /// Which of them is tried first: the one that served last.
    first: AtomicUsize,
    tls: Option<MakeRustlsConnect>,
}
impl Driver {
    fn new(config: &Config) -> Result<Self> {
        let host = |(host, port): &(String, u16)| {
            let mut driver = tokio_postgres::Config::new();
            driver.host(host).port(*port).user(&config.user).dbname(&config.database).application_name("fencelock");
            if let Some(password) = &config.password {
                driver.password(password);
            }
            driver.target_session_attrs(TargetSessionAttrs::ReadWrite);
            driver.ssl_mode(if config.tls.is_some() { SslMode::Require } else { SslMode::Disable });
            // Whoever is silent for so long is gone: an idle listener has nothing else to know it by.
            driver
                .keepalives_idle(Duration::from_secs(10))
                .keepalives_interval(Duration::from_secs(3))
                .keepalives_retries(3);
            driver
        };
        let (hosts, tls) =
            (config.hosts.iter().map(host).collect(), config.tls.as_ref().map(tls::connector).transpose()?);
        Ok(Self { hosts, first: AtomicUsize::new(0), tls })
    }
    /// To the first host that takes writes. *Invariant (SAFETY E8):* each has its part of the time, so one that takes connections and
    /// says nothing keeps nobody from the others. `told`: where what the server says by itself goes.
    async fn connect(&self, told: Option<UnboundedSender<String>>) -> Result<Client, Fault> {
        let (many, first) = (self.hosts.len().max(1), self.first.load(Relaxed));
        let each = ONE_HOST.min(CONNECT_TIMEOUT.mul_f32(0.9) / u32::try_from(many).unwrap_or(u32::MAX));
        let mut why = Fault::Unreached;
        for n in 0..many {
            let host = (first + n) % many;
            let Some(config) = self.hosts.get(host) else { break };
            match timeout(each, self.reach(config, told.clone())).await.unwrap_or(Err(Fault::Unreached)) {
                Ok(client) => {
                    self.first.store(host, Relaxed);
                    return Ok(client);
                }
                // What a server says by itself tells more than that another one is silent.
                Err(fault) if fault.weight() >= why.weight() => why = fault,
                Err(_) => {}
            }
        }
        Err(why)
    }
    async fn reach(
        &self,
        config: &tokio_postgres::Config,
        told: Option<UnboundedSender<String>>,
    ) -> Result<Client, Fault> {
        let fault = |e| Fault::Connect(Arc::new(e));
        match &self.tls {
            None => {
                let (client, connection) = config.connect(NoTls).await.map_err(fault)?;
                tokio::spawn(drive(connection, told));
                Ok(client)
            }
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await.map_err(fault)?;
                tokio::spawn(drive(connection, told));
                Ok(client)
            }
        }
    }
    /// What nobody waits for any more does not go on at the server: it would keep a process there busy for as long as it is blocked.
    fn cancel(&self, token: CancelToken) {
        let tls = self.tls.clone();
        tokio::spawn(timeout(ONE_HOST, async move {
            match tls {
                None => token.cancel_query(NoTls).await,
                Some(tls) => token.cancel_query(tls).await,
            }
        }));
    }
}
/// Until it breaks, or nobody has its client any more.
async fn drive<S, T>(mut connection: tokio_postgres::Connection<S, T>, told: Option<UnboundedSender<String>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut messages = stream::poll_fn(|cx| connection.poll_message(cx));
    while let Some(Ok(message)) = messages.next().await {
        if let (AsyncMessage::Notification(note), Some(told)) = (message, &told) {
            let _ = told.send(note.payload().to_owned());
        }
    }
}

impl Link {
    pub(crate) fn new(config: &Config) -> Result<Self> {
        let driver = Arc::new(Driver::new(config)?);
        let ears = match &config.listen {
            Listen::Here => Some(driver.clone()),
            Listen::Off => None,
            Listen::At(url) => Some(Arc::new(Driver::new(&Config::from_url(url)?)?)),
        };
        Ok(Self {
            driver,
            ears,
            broke: Notify::new(),
            all: Connections::new(),
            endpoint: config.endpoint().into(),
            place: OnceLock::new(),
            time: ServerTime::default(),
        })
    }
    pub(crate) fn close(&self) {
        self.all.close();
    }
    /// This runtime's connection.
    pub(crate) async fn here(&self) -> Result<Conn, Fault> {
        let make = || {
            let driver = self.driver.clone();
            async move { driver.connect(None).await.map(|client| Arc::new(Wire { client, silent: AtomicU64::new(0) })) }
        };
        let conn = self.all.here(CONNECT_TIMEOUT, make).await?;
        if !conn.client.is_closed() && (!conn.is_mute() || self.is_still_there(&conn).await) {
            return Ok(conn);
        }
        self.give_up(&conn);
        self.all.here(CONNECT_TIMEOUT, make).await
    }
    fn give_up(&self, conn: &Conn) {
        self.all.give_up(conn);
        self.broke.notify_one();
    }
    /// Whoever asked last may have gone before the answer came, which nobody noticed then.
    async fn is_still_there(&self, conn: &Conn) -> bool {
        let answer = within(STILL_THERE, conn.client.simple_query("")).await;
        if answer.is_some() {
            conn.heard();
        }
        answer.is_some_and(|answer| answer.is_ok())
    }
    /// A connection of the caller's own, for what takes long: nobody's renewal waits behind it.
    pub(crate) async fn aside(&self) -> Result<Conn, Fault> {
        let own = Connections::new();
        let driver = self.driver.clone();
        let make = || async move {
            driver.connect(None).await.map(|client| Arc::new(Wire { client, silent: AtomicU64::new(0) }))
        };
        own.here(CONNECT_TIMEOUT, make).await
    }
    /// The same, tried again for a while when there is no server, until `stopped`: then why there was none is told, too.
    pub(crate) async fn soon(&self, stopped: impl Future<Output = ()>) -> Result<Conn, Fault> {
        let (limit, mut pause, mut why) =
            (BootClock.now() + CONNECT_TIMEOUT, Duration::from_millis(10), Fault::Unreached);
        let mut stopped = pin!(stopped);
        loop {
            tokio::select! {
                biased;
                conn = self.here() => match conn {
                    Err(fault) if fault.may_pass() && BootClock.now() + pause < limit => why = fault,
                    end => return end,
                },
                () = sleep(BootClock.now().until(limit)) => return Err(why),
                () = &mut stopped => return Err(why),
            }
            tokio::select! {
                biased;
                () = &mut stopped => return Err(why),
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }
    /// What may be asked again with one effect: it is, when the connection breaks meanwhile, or the row is locked.
    pub(crate) async fn again(&self, call: &str) -> Result<Vec<SimpleQueryRow>, Fault> {
        let mut tries = 0;
        loop {
            let conn = self.soon(pending()).await?;
            match self.rows(&conn, PATIENCE, call).await {
                Err(fault) if tries < 2 && (fault.ends_connection() || fault.is_conflict()) => tries += 1,
                end => return end,
            }
        }
    }

    /// A connection that is nobody else's, and what it hears by itself: the end of that is the connection's.
    pub(crate) async fn dedicated(&self) -> Result<(Client, UnboundedReceiver<String>), Fault> {
        let (told, heard) = unbounded_channel();
        Ok((self.driver.connect(Some(told)).await?, heard))
    }

    pub(crate) fn call(&self, function: &str) -> Call {
        let (prefix, schema) = self.place.get().map_or(("", ""), |place| (place.prefix, place.schema.as_str()));
        Call::new(prefix, schema, function)
    }
    pub(crate) fn place(&self) -> Option<&Place> {
        self.place.get()
    }
    /// One message, and what it answers.
    pub(crate) async fn rows(&self, conn: &Conn, limit: Duration, call: &str) -> Result<Vec<SimpleQueryRow>, Fault> {
        conn.asked();
        let answer = match within(limit, conn.client.simple_query(call)).await {
            Some(answer) => {
                conn.heard();
                answer.map(rows).map_err(Fault::of)
            }
            None => {
                self.driver.cancel(conn.client.cancel_token());
                Err(Fault::Unanswered)
            }
        };
        match &answer {
            Err(Fault::Unanswered) if !conn.is_mute() => {}
            Err(fault) if fault.ends_connection() => self.give_up(conn),
            _ => {}
        }
        answer
    }
    /// A function on one lock, its answer taken apart; what it tells of the server's clock is kept.
    pub(crate) async fn run(&self, conn: &Conn, limit: Duration, call: &str) -> Result<Reply, Fault> {
        let sent = BootClock.now();
        let rows = self.rows(conn, limit, call).await?;
        let row = rows.first().ok_or(Fault::Answer)?;
        if let Some(now) = clock(row) {
            self.time.seen(sent, BootClock.now(), now);
        }
        reply(row).ok_or(Fault::Answer)
    }
    pub(crate) fn tell(&self, operation: &'static str, fault: &Fault) -> Error {
        fault.tell(operation, &self.endpoint)
    }

    /// Finds the tables, or makes them; what they are called, and the store's identity.
    pub(crate) async fn set_up(&self, config: &Config) -> Result<u128, Fault> {
        let conn = self.soon(pending()).await?;
        let sent = BootClock.now();
        let look = "SELECT current_schema(), current_setting('server_encoding'), \
                    current_setting('default_transaction_isolation'), \
                    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let rows = self.rows(&conn, PATIENCE, look).await?;
        let row = rows.first().ok_or(Fault::Answer)?;
        let now = row.get(3).and_then(|now| now.parse().ok()).ok_or(Fault::Answer)?;
        self.time.seen(sent, BootClock.now(), now);
        if row.get(1) != Some("UTF8") {
            let what = format!("the database's encoding is {}, and names are UTF-8", row.get(1).unwrap_or("?"));
            return Err(Fault::Unusable { what, hint: "take one that was made with ENCODING 'UTF8'" });
        }
        let Some(schema) = config.schema.as_deref().or(row.get(0)).map(identifier) else {
            let what = "no schema of this role's search path is there".to_owned();
            return Err(Fault::Unusable { what, hint: "name one in the URL: ?schema=NAME" });
        };
        let prefix = if row.get(2) == Some("read committed") { "" } else { READ_COMMITTED };
        let _ = self.place.set(Place { schema: schema.clone(), prefix });
        // By a catalog, so that nothing fails where it is not there.
        let there = format!("SELECT to_regclass({})", literal(&format!("{schema}.fencelock_meta")));
        if self.rows(&conn, PATIENCE, &there).await?.first().is_none_or(|row| row.get(0).is_none()) {
            self.make(&schema, &there).await?;
        }
        let known = self.rows(&conn, PATIENCE, &format!("SELECT version, store FROM {schema}.fencelock_meta")).await?;
        let row = known.first().ok_or(Fault::Answer)?;
        let version: i64 = row.get(0).and_then(|version| version.parse().ok()).ok_or(Fault::Answer)?;
        if version != schema::VERSION {
            let what = format!("the tables are of version {version}, and this is version {}", schema::VERSION);
            return Err(Fault::Unusable {
                what,
                hint: "use the same version of fencelock everywhere, or another schema",
            });
        }
        let store = row.get(1).map(|store| store.replace('-', "")).ok_or(Fault::Answer)?;
        u128::from_str_radix(&store, 16).map_err(|_| Fault::Answer)
    }
    /// Makes the tables: all of them, or none. Two that come together do so one after the other, and neither waits for its client
    /// meanwhile: it is one message (SAFETY E7).
    async fn make(&self, schema: &str, there: &str) -> Result<(), Fault> {
        let turn = format!("SELECT pg_advisory_xact_lock({})", schema::TURN);
        let (there, script) = (there.trim_start_matches("SELECT "), literal(&schema::script(schema)));
        let make = format!("DO {}", literal(&format!("BEGIN IF {there} IS NULL THEN EXECUTE {script}; END IF; END")));
        let conn = self.aside().await?;
        self.rows(&conn, CONNECT_TIMEOUT, &format!("{READ_COMMITTED}{turn};{make}")).await.map(drop)
    }
    /// Whether it is listened at all.
    pub(crate) fn may_listen(&self) -> bool {
        self.ears.is_some()
    }
    /// A connection that hears what is told to this client, until it breaks. `None`: it is not this client's alone.
    pub(crate) async fn listen(&self, channel: &str) -> Result<Option<Ears>, Fault> {
        let Some(driver) = &self.ears else { return Ok(None) };
        let (told, heard) = unbounded_channel();
        let listening = async {
            let client = driver.connect(Some(told)).await?;
            let ask = format!("LISTEN {}; SELECT pg_backend_pid()", identifier(channel));
            let said = rows(client.simple_query(&ask).await.map_err(Fault::of)?);
            let pid = said.first().and_then(|row| row.get(0)).and_then(|pid| pid.parse().ok()).ok_or(Fault::Answer)?;
            Ok(Ears { client, heard, pid })
        };
        let ears = timeout(CONNECT_TIMEOUT, listening).await.unwrap_or(Err(Fault::Unreached))?;
        // Another connection of ours that is carried by the same process of the server: a pooler of transactions.
        let conn = self.here().await?;
        let other = self.rows(&conn, PATIENCE, "SELECT pg_backend_pid()").await?;
        let other: Option<i64> = other.first().and_then(|row| row.get(0)).and_then(|pid| pid.parse().ok());
        if other == Some(ears.pid) || ears.are_ours(channel, "").await?.is_none() {
            let _ = within(STILL_THERE, ears.client.simple_query(&format!("UNLISTEN {}", identifier(channel)))).await;
            return Ok(None);
        }
        Ok(Some(ears))
    }
}
/// A connection that listens.
pub(crate) struct Ears {
    client: Client,
    /// What it hears; the end of it is the connection's.
    pub(crate) heard: UnboundedReceiver<String>,
    /// The server's process.
    pub(crate) pid: i64,
}
impl Ears {
    /// The server is there, takes writes, and it is the same process of it that listens: a connection on which nothing is ever asked may
    /// lead nowhere any more. `first`: what is asked with it, and answered.
    pub(crate) async fn are_ours(&self, channel: &str, first: &str) -> Result<Option<Vec<SimpleQueryRow>>, Fault> {
        let ask = format!(
            "{first}SELECT pg_backend_pid() AS pid, EXISTS (SELECT FROM pg_listening_channels() c WHERE c = {}) \
             AND NOT pg_is_in_recovery() AS listens",
            literal(channel)
        );
        let answer = within(PATIENCE, self.client.simple_query(&ask)).await.ok_or(Fault::Unanswered)?;
        let mut said = rows(answer.map_err(Fault::of)?);
        let row = said.pop().ok_or(Fault::Answer)?;
        let is = |name, value: &str| row.try_get(name).ok().flatten() == Some(value);
        Ok((is("pid", &self.pid.to_string()) && is("listens", "t")).then_some(said))
    }
}
pub(crate) fn rows(messages: Vec<SimpleQueryMessage>) -> Vec<SimpleQueryRow> {
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}
impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({})", self.endpoint)
    }
}

/// What comes within `limit` of the time in which this process ran: one that was stopped, or a machine that stood still, has not
/// waited meanwhile, and reads what has come before it gives up.
pub(crate) async fn within<T>(limit: Duration, answer: impl Future<Output = T>) -> Option<T> {
    const NAPS: u32 = 8;
    let mut answer = pin!(answer);
    for _ in 0..NAPS {
        if let Ok(answer) = timeout(limit / NAPS, &mut answer).await {
            return Some(answer);
        }
    }
    None
}
