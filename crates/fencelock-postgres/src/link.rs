//! The way to the server: one connection for each runtime that calls, and one more that listens.
//!
//! *Invariant (SAFETY E8):* every call has a limit of ours; one that is over it gives its connection up.
use crate::{
    config::{Config, Listen, Strategy},
    error::Fault,
    wire::{
        call::{Call, READ_COMMITTED, identifier, literal, tag},
        reply::{Reply, clock, reply},
        schema::{self, Part},
    },
};
use fencelock_core::{BootClock, Clock, Connection, Connections, Error, Moment, Result, ServerTime, soon, within};
use fencelock_database::{CONNECT_TIMEOUT, ONE_HOST, PATIENCE, one_of};
use fencelock_tls::client_config;
use futures_util::{StreamExt, stream};
use std::{
    future::{Future, pending},
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::Handle,
    select,
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    task::AbortHandle,
    time::{sleep, timeout},
};
use tokio_postgres::{
    AsyncMessage, CancelToken, Client, NoTls, SimpleQueryMessage, SimpleQueryRow,
    config::{SslMode, TargetSessionAttrs},
    error::DbError,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connection of which nothing has come for a while is asked whether it is there, and has so long to answer.
const STILL_THERE: Duration = Duration::from_millis(500);
/// So often it is looked whether a process of the server is this client's alone.
pub(crate) const PROOFS: u32 = 8;
/// So often one more of those that hang on a connection is cancelled.
const NEXT: Duration = Duration::from_millis(50);

pub(crate) type Conn = Connection<Arc<Wire>>;
/// One connection, and when it was last heard.
pub(crate) struct Wire {
    driver: Arc<Driver>,
    client: Client,
    silence: Mutex<Silence>,
    /// It was given up, and what is open there is cancelled.
    over: AtomicBool,
    /// Then whoever waits there hears it at once.
    given_up: Notify,
    /// Without who reads it is closed, and what is open there ends unanswered.
    reader: AbortHandle,
    /// Who is told when it is of no use any more; `None`: it is one caller's own.
    broke: Option<Arc<Notify>>,
}
/// So many wait for an answer, and since when nothing has come; `None`: nothing is asked.
#[derive(Default)]
struct Silence {
    open: u32,
    since: Option<Moment>,
    /// Somebody did not wait until it was answered: it is looked after.
    watched: bool,
}
/// Somebody who waits, for as long as he does.
struct Open<'a> {
    wire: &'a Arc<Wire>,
    answered: bool,
}
impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut silence = self.wire.silence();
        silence.open -= 1;
        if self.answered || silence.watched || self.wire.is_over() {
            return;
        }
        if let Ok(here) = Handle::try_current() {
            silence.watched = true;
            here.spawn(self.wire.clone().watch());
        }
    }
}
impl Wire {
    fn silence(&self) -> MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// *Invariant:* a server that is slow is not silent, and a caller with little patience is not the server's: a connection is given up
    /// when nothing at all has come of it for [`PATIENCE`], whoever asks.
    fn is_mute(&self) -> bool {
        self.silence().since.is_some_and(|since| since.until(BootClock.now()) > PATIENCE)
    }
    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
    fn tell_broken(&self) {
        self.broke.iter().for_each(|broke| broke.notify_one());
    }
    fn open(self: &Arc<Self>) -> Open<'_> {
        let mut silence = self.silence();
        silence.open += 1;
        silence.since.get_or_insert_with(|| BootClock.now());
        Open { wire: self, answered: false }
    }
    /// What is answered in time, by a connection that was not given up until then.
    async fn ask(self: &Arc<Self>, limit: Duration, call: &str) -> Option<Result<Vec<SimpleQueryMessage>, Fault>> {
        let given_up = self.given_up.notified();
        if self.is_over() {
            return None;
        }
        let mut open = self.open();
        let answer = select! {
            biased;
            () = given_up => return None,
            answer = within(limit, self.client.simple_query(call)) => answer?,
        };
        open.answered = true;
        let mut silence = self.silence();
        // Others wait still.
        silence.since = (silence.open > 1).then(|| BootClock.now());
        (!self.is_over()).then(|| answer.map_err(Fault::of))
    }
    /// Whoever asked last may have gone before the answer came, which nobody noticed then.
    async fn is_still_there(self: &Arc<Self>) -> bool {
        !self.is_mute() || matches!(self.ask(STILL_THERE, "").await, Some(Ok(_)))
    }
    /// What nobody waits for any more does not go on at the server for long, also if nobody asks there again.
    async fn watch(self: Arc<Self>) {
        sleep(PATIENCE).await;
        let is_there = self.is_still_there().await;
        self.silence().watched = false;
        if !is_there {
            self.hang_up();
        }
    }
    /// It is given up as it is, and nothing that is answered there from now on is believed.
    fn cut(&self) {
        self.over.store(true, Relaxed);
        self.reader.abort();
    }
    /// It is given up, and what hangs there is cancelled. *Invariant:* nothing is cancelled but with its connection, since nobody knows which
    /// statement a cancel meets: nothing is asked there any more, and nothing that is answered there from now on is believed. Whoever
    /// waits there is told at once, and asks elsewhere.
    fn hang_up(self: &Arc<Self>) {
        if self.over.swap(true, Relaxed) {
            return;
        }
        self.given_up.notify_waiters();
        self.tell_broken();
        let wire = self.clone();
        tokio::spawn(async move {
            // One after the other, until this is answered. (A pooler passes a cancel on for as long as there is whom it belongs to.)
            let (ends, mut last) = (BootClock.now() + PATIENCE, pin!(wire.client.simple_query("")));
            while BootClock.now() < ends {
                wire.driver.cancel(wire.client.cancel_token()).await;
                if timeout(NEXT, &mut last).await.is_ok() {
                    break;
                }
            }
            wire.reader.abort();
        });
    }
}

pub(crate) struct Link {
    driver: Arc<Driver>,
    /// Where it is listened; `None`: nowhere.
    ears: Option<Arc<Driver>>,
    /// A connection broke, or was given up: what became of the holds is not known (SAFETY G6).
    pub(crate) broke: Arc<Notify>,
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
        let (hosts, tls) = (
            config.hosts.iter().map(host).collect(),
            config.tls.as_ref().map(client_config).transpose()?.map(MakeRustlsConnect::new),
        );
        Ok(Self { hosts, first: AtomicUsize::new(0), tls })
    }
    /// To the first host that takes writes.
    async fn connect(&self, tells: Tells) -> Result<(Client, AbortHandle), Fault> {
        let reach = |at| self.reach(at, tells.clone());
        let (at, connected) = one_of(self.hosts.len(), self.first.load(Relaxed), ONE_HOST, reach).await?;
        self.first.store(at, Relaxed);
        Ok(connected)
    }
    async fn reach(&self, at: usize, tells: Tells) -> Result<(Client, AbortHandle), Fault> {
        let fault = |e| Fault::Connect(Arc::new(e));
        let config = self.hosts.get(at).ok_or(Fault::Closed)?;
        match &self.tls {
            None => {
                let (client, connection) = config.connect(NoTls).await.map_err(fault)?;
                Ok((client, tokio::spawn(drive(connection, tells)).abort_handle()))
            }
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await.map_err(fault)?;
                Ok((client, tokio::spawn(drive(connection, tells)).abort_handle()))
            }
        }
    }
    /// For calls.
    async fn wire(self: &Arc<Self>, broke: Option<Arc<Notify>>) -> Result<Arc<Wire>, Fault> {
        let asked = Arc::<OnceLock<_>>::default();
        let (client, reader) = self.connect(Tells::Wire(asked.clone())).await?;
        let (driver, silence, over) = (self.clone(), Mutex::default(), AtomicBool::new(false));
        let wire = Arc::new(Wire { driver, client, silence, over, given_up: Notify::new(), reader, broke });
        let _ = asked.set(Arc::downgrade(&wire));
        Ok(wire)
    }
    /// What nobody waits for any more does not go on at the server: it would keep a process there busy for as long as it is blocked.
    async fn cancel(&self, token: CancelToken) {
        let cancelled = async {
            match self.tls.clone() {
                None => token.cancel_query(NoTls).await,
                Some(tls) => token.cancel_query(tls).await,
            }
        };
        let _ = timeout(ONE_HOST, cancelled).await;
    }
}
/// What becomes known of a connection by itself.
#[derive(Clone)]
enum Tells {
    /// That it broke, or may not be believed any more: who asks there is made when it is.
    Wire(Arc<OnceLock<Weak<Wire>>>),
    /// What is notified there; the end of that is the connection's.
    Words(UnboundedSender<String>),
}
/// Until it breaks, or nobody has its client any more.
async fn drive<S, T>(mut connection: tokio_postgres::Connection<S, T>, tells: Tells)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let asked = |wire: &OnceLock<Weak<Wire>>| wire.get().and_then(Weak::upgrade);
    let mut messages = stream::poll_fn(|cx| connection.poll_message(cx));
    while let Some(message) = messages.next().await {
        match (message, &tells) {
            (Ok(AsyncMessage::Notification(note)), Tells::Words(told)) => drop(told.send(note.payload().to_owned())),
            // (What a session holds no standby has, whatever is written beside it.)
            (Ok(AsyncMessage::Notice(notice)), Tells::Wire(wire)) if is_on_this_server_alone(&notice) => {
                asked(wire).iter().for_each(Wire::hang_up);
            }
            (Ok(_), _) => {}
            (Err(_), Tells::Wire(wire)) => return asked(wire).iter().for_each(|wire| wire.tell_broken()),
            (Err(_), _) => return,
        }
    }
}
/// *Invariant:* nobody is told that it is done what the standby may not have. Somebody has cancelled a statement that waited for it, so the
/// server answers that it is done; this comes before that answer, and is the only sign. Its words are in the server's language. From here on
/// nothing that is answered there is believed, and what was asked behind it does not wait there in its turn: nobody would be told.
fn is_on_this_server_alone(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
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
            broke: Arc::default(),
            all: Connections::new(),
            endpoint: config.endpoint().into(),
            place: OnceLock::new(),
            time: ServerTime::default(),
        })
    }
    pub(crate) fn close(&self) {
        self.all.close();
    }
    /// This runtime's connection, or what there is.
    pub(crate) async fn here(&self) -> Result<Conn, Fault> {
        let make = || {
            let (driver, broke) = (self.driver.clone(), self.broke.clone());
            async move { driver.wire(Some(broke)).await }
        };
        let is_good = |wire: &Arc<Wire>| !wire.client.is_closed() && !wire.is_over() && !wire.is_mute();
        let one = || self.all.here_or_elsewhere(CONNECT_TIMEOUT, make, Fault::is_full, is_good);
        let conn = one().await?;
        if !conn.client.is_closed() && !conn.is_over() {
            if conn.is_still_there().await {
                return Ok(conn);
            }
            conn.hang_up();
        }
        self.give_up(&conn);
        one().await
    }
    fn give_up(&self, conn: &Conn) {
        if let Some(broke) = &conn.broke {
            self.all.give_up(conn);
            broke.notify_one();
        }
    }
    /// A connection of the caller's own, for what takes long: nobody's renewal waits behind it.
    pub(crate) async fn aside(&self) -> Result<Conn, Fault> {
        let own = Connections::new();
        let driver = self.driver.clone();
        own.here(CONNECT_TIMEOUT, || async move { driver.wire(None).await }).await
    }
    /// The same, tried again for a while when there is no server, until `stopped`: then why there was none is told, too.
    pub(crate) async fn soon(&self, stopped: impl Future<Output = ()>) -> Result<Conn, Fault> {
        soon(CONNECT_TIMEOUT, || self.here(), Fault::may_pass, Fault::Unreached, stopped).await
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
        Ok((self.driver.connect(Tells::Words(told)).await?.0, heard))
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
        let answer = conn.ask(limit, call).await.unwrap_or(Err(Fault::Unanswered)).map(rows);
        if answer.as_ref().is_ok_and(|rows| !is_of(call, rows)) {
            // What became of this one is told to somebody else, and whoever asks here is told what is not his.
            conn.cut();
            self.give_up(conn);
            return Err(Fault::Unanswered);
        }
        match &answer {
            Err(Fault::Unanswered) if conn.is_over() || conn.is_mute() => {
                conn.hang_up();
                self.give_up(conn);
            }
            Err(Fault::Unanswered) => {}
            Err(fault) if fault.ends_connection() => self.give_up(conn),
            _ => {}
        }
        answer
    }
    /// A function on one lock, its answer taken apart; what it tells of the server's clock is kept.
    pub(crate) async fn run(&self, conn: &Conn, limit: Duration, call: &str) -> Result<Reply, Fault> {
        let sent = BootClock.now();
        let rows = self.rows(conn, limit, call).await?;
        let Some(row) = rows.first() else {
            conn.cut();
            self.give_up(conn);
            return Err(Fault::Unanswered);
        };
        if let Some(now) = clock(row) {
            self.time.seen(sent, BootClock.now(), now);
        }
        reply(row).ok_or(Fault::Answer)
    }
    pub(crate) fn tell(&self, operation: &'static str, fault: &Fault) -> Error {
        fault.tell(operation, &self.endpoint)
    }

    /// Finds the tables, or makes them; the store's identity.
    pub(crate) async fn set_up(&self, config: &Config) -> Result<u128, Fault> {
        let schema = self.find(config).await?;
        self.make(&schema::common(&schema)).await?;
        if config.strategy == Strategy::ShedLock {
            self.make(&schema::shedlock(&schema)).await?;
        }
        let known = self.again(&format!("SELECT store FROM {schema}.fencelock_meta")).await?;
        let store =
            known.first().and_then(|row| row.get(0)).map(|store| store.replace('-', "")).ok_or(Fault::Answer)?;
        u128::from_str_radix(&store, 16).map_err(|_| Fault::Answer)
    }
    /// In which schema they are, or would be; how they are called.
    pub(crate) async fn find(&self, config: &Config) -> Result<String, Fault> {
        // Each of these may be asked again: the server may go away, and come back, while we look.
        let sent = BootClock.now();
        let look = "SELECT current_schema(), current_setting('server_encoding'), \
                    current_setting('default_transaction_isolation'), \
                    (extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint";
        let rows = self.again(look).await?;
        let row = rows.first().ok_or(Fault::Answer)?;
        let now = row.get(3).and_then(|now| now.parse().ok()).ok_or(Fault::Answer)?;
        self.time.seen(sent, BootClock.now(), now);
        if row.get(1) != Some("UTF8") {
            let what = format!("the database's encoding is {}, and names are UTF-8", row.get(1).unwrap_or("?"));
            return Err(Fault::Unusable { what, hint: "take one that was made with ENCODING 'UTF8'" });
        }
        let Some(schema) = config.schema.as_deref().or(row.get(0)) else {
            let what = "no schema of this role's search path is there".to_owned();
            return Err(Fault::Unusable { what, hint: "name one in the URL: ?schema=NAME" });
        };
        let schema = schema_name(schema)?;
        let prefix = if row.get(2) == Some("read committed") { "" } else { READ_COMMITTED };
        let _ = self.place.set(Place { schema: schema.clone(), prefix });
        Ok(schema)
    }
    /// Makes this part where it is missing: all of it, or nothing. Two that come together do so one after the other, and neither waits for
    /// its client meanwhile: it is one message (SAFETY E7). It is of this version then, or refused.
    async fn make(&self, part: &Part) -> Result<(), Fault> {
        // By a catalog, so that nothing fails where it is not there.
        let missing = self.again(&format!("SELECT {}", part.is_missing)).await?;
        if missing.first().and_then(|row| row.get(0)) == Some("t") {
            let conn = self.aside().await?;
            let make = format!("{READ_COMMITTED}{}", part.script());
            self.rows(&conn, CONNECT_TIMEOUT, &make).await.map_err(Fault::unmade)?;
        }
        let known = self.again(&format!("SELECT {}", part.version)).await?;
        let version = known.first().and_then(|row| row.get(0)?.parse().ok()).ok_or(Fault::Answer)?;
        match part.refuses(version) {
            Some((what, hint)) => Err(Fault::Unusable { what, hint }),
            None => Ok(()),
        }
    }
    /// Which process of the server answers there now.
    pub(crate) async fn process(&self, conn: &Conn) -> Result<i64, Fault> {
        let said = self.rows(conn, PATIENCE, "SELECT pg_backend_pid()").await?;
        said.first().and_then(|row| row.get(0)?.parse().ok()).ok_or(Fault::Answer)
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
            let (client, _) = driver.connect(Tells::Words(told)).await?;
            let ask = format!("LISTEN {}; SELECT pg_backend_pid()", identifier(channel));
            let said = rows(client.simple_query(&ask).await.map_err(Fault::of)?);
            let pid = said.first().and_then(|row| row.get(0)).and_then(|pid| pid.parse().ok()).ok_or(Fault::Answer)?;
            Ok(Ears { client, heard, pid })
        };
        let ears = timeout(CONNECT_TIMEOUT, listening).await.unwrap_or(Err(Fault::Unreached))?;
        // Another connection of ours that is carried by the same process of the server: a pooler of transactions. It hands out the one that was
        // given back last; where many come between these two it may be another one by chance, and not each time.
        for _ in 0..PROOFS {
            let conn = self.here().await?;
            if self.process(&conn).await? == ears.pid || ears.are_ours(PATIENCE, channel, "").await?.is_none() {
                let unlisten = format!("UNLISTEN {}", identifier(channel));
                let _ = within(STILL_THERE, ears.client.simple_query(&unlisten)).await;
                return Ok(None);
            }
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
    pub(crate) async fn are_ours(
        &self,
        limit: Duration,
        channel: &str,
        first: &str,
    ) -> Result<Option<Vec<SimpleQueryRow>>, Fault> {
        let ask = format!(
            "{first}SELECT pg_backend_pid() AS pid, EXISTS (SELECT FROM pg_listening_channels() c WHERE c = {}) \
             AND NOT pg_is_in_recovery() AS listens",
            literal(channel)
        );
        let answer = within(limit, self.client.simple_query(&ask)).await.ok_or(Fault::Unanswered)?;
        let mut said = rows(answer.map_err(Fault::of)?);
        let row = said.pop().ok_or(Fault::Answer)?;
        let is = |name, value: &str| row.try_get(name).ok().flatten() == Some(value);
        Ok((is("pid", &self.pid.to_string()) && is("listens", "t")).then_some(said))
    }
}
/// Whether these rows answer this call. Which have none may.
fn is_of(call: &str, rows: &[SimpleQueryRow]) -> bool {
    tag(call).is_none_or(|tag| rows.iter().all(|row| row.try_get("call").ok().flatten() == Some(tag)))
}
/// How a schema is named in statements: bodies of functions, too, which are between dollars.
pub(crate) fn schema_name(schema: &str) -> Result<String, Fault> {
    if schema.contains('$') {
        let what = format!("the schema {} has a dollar sign in its name", identifier(schema));
        return Err(Fault::Unusable { what, hint: "name another one in the URL: ?schema=NAME" });
    }
    Ok(identifier(schema))
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
