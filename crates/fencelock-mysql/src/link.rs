//! The way to the server: for each runtime that calls a few connections, as many as it has calls at once.
//!
//! *Invariant (SAFETY E8):* every call has a limit of ours. *Invariant:* an exchange that has begun goes on to its end, whoever asked is
//! gone or not, or its connection is given up: nobody meets the second half of somebody else's answer.
use crate::{
    config::{Config, Strategy},
    error::Fault,
    pool::{FULL, Lane, Pool},
    tls,
    wire::{
        reply::{Reply, clock, column, reply},
        schema,
    },
};
use fencelock_core::{BootClock, Clock, Connection, Connections, Error, HoldId, Result, ServerTime, soon, within};
use fencelock_database::{CONNECT_TIMEOUT, ONE_HOST, PATIENCE, after_locked, one_of};
use mysql_async::{Conn as Session, Opts, OptsBuilder, Row, prelude::Queryable};
use std::{
    future::{Future, pending},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot},
    time::{sleep, timeout},
};

/// So many calls of one runtime at once; a server has some 150 connections by default. Where it has no more, those that there are do.
const CALLS: usize = 16;
/// So many renewals beside them: the engine sends what is due together, and whoever extends a hold himself sends it alone.
const RENEWALS: usize = 4;
/// So many of one runtime have a doorbell: each is a connection for as long as somebody waits or holds by it.
const BELLS: usize = 8;
/// So many watches of one runtime: each has a connection for as long as it lasts. Whoever finds no room looks by himself.
const WATCHES: usize = 8;
/// What is not worth waiting for.
const MOMENT: Duration = Duration::from_millis(20);
/// What each session begins with. A pooler may give us one that began otherwise: what matters is said again in each procedure.
/// MariaDB ends a session whose transaction does nothing for a while; what is behind `M!` only MariaDB reads.
const BEGIN: &str = "SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', \
                     autocommit = 1, completion_type = 0, innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, wait_timeout = 28800 \
                     /*M!100300 , idle_transaction_timeout = 2, max_statement_time = 0, use_stat_tables = NEVER */";
const LOOK: &str = "SELECT SLEEP(0.001), SYSDATE(6) > NOW(6), CONCAT(@@global.read_only) NOT IN ('0', 'OFF') OR @@global.innodb_read_only, VERSION(), \
                    @@global.log_bin, @@session.binlog_format /*M! , @@global.wsrep_on */";

pub(crate) type Conn = Connection<Arc<Wire>>;
pub(crate) type Answer = std::result::Result<Vec<Row>, mysql_async::Error>;

/// The connections of one runtime.
pub(crate) struct Wire {
    driver: Arc<Driver>,
    /// *Invariant (SAFETY E5):* all of them are made there, also when another runtime's calls want one more: what is kept here goes with this
    /// runtime, and with no other.
    runtime: Handle,
    pool: Pool<Session>,
    calls: Arc<Semaphore>,
    /// Renewals do not stand in line behind calls that meet locked rows.
    renewals: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    bells: Arc<Semaphore>,
    /// Connections that are being made, by lanes. *Invariant:* where that is slow so many are tried at once and no more, and those that calls have
    /// asked for are in no renewal's way.
    makings: [Arc<Semaphore>; 3],
}
impl Wire {
    /// One that is free, or a new one, or where the server has no more one that somebody else had.
    async fn session(self: &Arc<Self>, lane: Lane, limit: Duration) -> Result<(Session, OwnedSemaphorePermit), Fault> {
        let until = BootClock.now() + limit;
        let line = match lane {
            Lane::Calls => &self.calls,
            Lane::Renewals => &self.renewals,
            Lane::Watches => &self.watches,
        };
        let place = timeout(limit, line.clone().acquire_owned()).await;
        let place = place.map_err(|_| Fault::Unreached)?.map_err(|_| Fault::Closed)?;
        let mut turn = match self.pool.line(lane) {
            Ok(session) => return Ok((session, place)),
            Err(turn) => turn,
        };
        let mut why = Fault::Unreached;
        loop {
            if self.pool.is_broken() {
                return Err(Fault::Unreached);
            }
            let asked = match self.pool.may_ask(lane) {
                Ok(()) => match self.one_more(lane) {
                    None if lane == Lane::Watches => return Err(why),
                    asked => asked,
                },
                Err(full) if lane == Lane::Watches => return Err(full),
                Err(full) => {
                    // One that is doubted, where there is no other.
                    if let Some(session) = self.pool.take(Lane::Calls) {
                        return Ok((session, place));
                    }
                    why = full;
                    None
                }
            };
            let failed = async {
                if let Some(asked) = asked
                    && let Ok(fault) = asked.await
                {
                    return Some(fault);
                }
                // It is somebody else's, or none was asked for.
                sleep(FULL).await;
                None
            };
            let failed = tokio::select! {
                biased;
                session = &mut turn.told => return session.map(|session| (session, place)).map_err(|_| Fault::Unreached),
                failed = failed => failed,
                () = sleep(BootClock.now().until(until)) => return Err(why),
            };
            match failed {
                Some(full) if full.is_full() && lane != Lane::Watches => why = full,
                Some(fault) => return Err(fault),
                None => {}
            }
        }
    }
    /// It goes to whoever is next in line by then; why there is none, to whoever asked. `None`: enough are being made.
    fn one_more(self: &Arc<Self>, lane: Lane) -> Option<oneshot::Receiver<Fault>> {
        let making = self.makings[lane as usize].clone().try_acquire_owned().ok()?;
        let (wire, (tell, failed)) = (self.clone(), oneshot::channel());
        self.runtime.spawn(async move {
            match wire.connect().await {
                Ok(session) => wire.pool.put(lane, session),
                Err(fault) => drop(tell.send(fault)),
            }
            drop(making);
        });
        Some(failed)
    }
    async fn connect(&self) -> Result<Session, Fault> {
        let made = timeout(CONNECT_TIMEOUT, self.driver.connect()).await.unwrap_or(Err(Fault::Unreached));
        self.pool.asked(made.as_ref().err());
        made
    }
    /// One question and its answer, whoever waits for it, and is polled or not. *Invariant (SAFETY E5):* what has begun goes on to its end without
    /// them, and its connection is somebody else's then. A renewal does so in the other line if there is room: the next one does not stand behind
    /// it.
    async fn exchange(self: Arc<Self>, lane: Lane, limit: Duration, call: String, mut tell: oneshot::Sender<Reported>) {
        let began = BootClock.now();
        let got = tokio::select! {
            biased;
            // Nothing was sent.
            () = tell.closed() => return,
            got = self.session(lane, limit) => got,
        };
        let (mut session, mut place) = match got {
            Ok(got) => got,
            Err(fault) => return drop(tell.send(Err(fault))),
        };
        let since = BootClock.now();
        let left = limit.saturating_sub(began.until(since));
        if left.is_zero() {
            self.pool.put(lane, session);
            return drop(tell.send(Err(Fault::Unreached)));
        }
        let answer = {
            let mut asked = pin!(ask(&mut session, call));
            let answer = tokio::select! {
                biased;
                answer = within(left.max(Duration::from_millis(10)), &mut asked) => answer,
                () = tell.closed() => None,
            };
            match answer {
                Some(answer) => Some((answer, Some(tell))),
                None => {
                    let left = PATIENCE.saturating_sub(since.until(BootClock.now()));
                    if left < MOMENT {
                        // Whoever asks anew finds it given up.
                        self.pool.broke();
                        return drop(tell.send(Err(Fault::Unanswered)));
                    }
                    if lane == Lane::Renewals {
                        self.pool.doubt(since);
                        place = self.calls.clone().try_acquire_owned().unwrap_or(place);
                    }
                    let _ = tell.send(Err(Fault::Unanswered));
                    within(left, asked).await.map(|answer| (answer, None))
                }
            }
        };
        let Some((answer, tell)) = answer else { return self.pool.broke() };
        // What is asked is answered, or the connection is gone. After what nobody knows the end of its session goes alone.
        let answer = answer.map_err(Fault::of);
        match &answer {
            Err(fault) if fault.ends_connection() => self.pool.broke(),
            Err(fault) if !fault.leaves_nothing() => {}
            _ => self.pool.put(lane, session),
        }
        drop(place);
        drop(tell.map(|tell| tell.send(answer)));
    }
}
type Reported = Result<Vec<Row>, Fault>;
/// Makes connections.
struct Driver {
    hosts: Vec<Opts>,
    /// The one that took writes the last time.
    good: AtomicUsize,
}
impl Driver {
    fn new(config: &Config) -> Result<Self> {
        let tls = config.tls.as_ref().map(tls::options).transpose()?;
        let opts = |(host, port): &(String, u16)| {
            let opts = OptsBuilder::default().ip_or_hostname(host.clone()).tcp_port(*port);
            let opts = opts.user(Some(&config.user)).pass(config.password.clone()).db_name(Some(&config.database));
            // What it would ask the server for is known, or said by us.
            let opts = opts.prefer_socket(false).stmt_cache_size(0).max_allowed_packet(Some(1 << 30));
            let opts = opts.wait_timeout(Some(28_800)).tcp_keepalive(Some(Duration::from_secs(10)));
            Opts::from(opts.ssl_opts(tls.clone()))
        };
        Ok(Self { hosts: config.hosts.iter().map(opts).collect(), good: AtomicUsize::new(0) })
    }
    /// To the first of the servers that takes writes: one that is silent keeps nobody from the others (SAFETY E8).
    async fn connect(&self) -> Result<Session, Fault> {
        let first = if self.hosts.len() > 1 { ONE_HOST } else { CONNECT_TIMEOUT };
        let (at, session) = one_of(self.hosts.len(), self.good.load(Relaxed), first, |at| self.reach(at)).await?;
        self.good.store(at, Relaxed);
        Ok(session)
    }
    async fn reach(&self, at: usize) -> Result<Session, Fault> {
        let fault = |e| Fault::Connect(Arc::new(e));
        let opts = self.hosts.get(at).ok_or(Fault::Closed)?;
        let mut session = Session::new(opts.clone()).await.map_err(fault)?;
        session.query_drop(BEGIN).await.map_err(fault)?;
        let row: Row = session.query_first(LOOK).await.map_err(fault)?.ok_or(Fault::Answer)?;
        if column(&row, 2) != Some("0") {
            return Err(Fault::ReadOnly);
        }
        usable(&row)?;
        if column(&row, 6) == Some("1") {
            prepare(&mut session).await?;
        }
        Ok(session)
    }
}
/// Galera: what another node has written is written here by a thread that ends whoever has locked a row of it. It finds nobody to be ended in a
/// session that is just reading a procedure for the first time, or how a table's values are spread: MariaDB does that in a transaction of its
/// own, put in place of the one that has the lock. It does not look again: that one waits at its COMMIT for what was written before it, and this
/// for the lock, and with them whatever comes to the node (seen with 10.11.19, for half a minute). So a session has read before all that it calls
/// within a transaction, and never reads how values are spread (`use_stat_tables`).
async fn prepare(session: &mut Session) -> Result<(), Fault> {
    for packet in schema::READING.iter() {
        match session.query_drop(packet.as_str()).await.map_err(Fault::of) {
            // There are none yet: whoever makes them lets this session go.
            Err(fault) if !fault.is_missing() => return Err(fault),
            _ => {}
        }
    }
    Ok(())
}
/// What would make a lock no lock (SAFETY E2).
fn usable(row: &Row) -> Result<(), Fault> {
    if column(row, 1) != Some("1") {
        let what = "SYSDATE stands still within a statement: the server runs with sysdate-is-now".to_owned();
        return Err(Fault::Unusable { what, hint: "start it without: leases would begin before their row was taken" });
    }
    let version = column(row, 3).unwrap_or_default();
    let is_maria = version.contains("MariaDB");
    let least = if is_maria { (10, 6) } else { (8, 0) };
    if numbers(version) < least {
        let what = format!("the server is {version}, and rows that are locked cannot be passed there");
        return Err(Fault::Unusable { what, hint: "take MariaDB 10.6, MySQL 8.0, or a later one" });
    }
    if column(row, 4) == Some("1") && column(row, 5).is_some_and(|format| format.eq_ignore_ascii_case("STATEMENT")) {
        let what = "the server's binary log has statements, which another clock would read".to_owned();
        return Err(Fault::Unusable { what, hint: "set binlog_format to ROW or MIXED" });
    }
    Ok(())
}
/// Of a version. Some say 5.5.5 in front of what they are.
fn numbers(version: &str) -> (u32, u32) {
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut parts = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

pub(crate) struct Link {
    driver: Arc<Driver>,
    all: Arc<Connections<Arc<Wire>, Fault>>,
    /// A connection was given up: what became of the holds is not known (SAFETY G6).
    pub(crate) broke: Notify,
    pub(crate) endpoint: Arc<str>,
    pub(crate) time: ServerTime,
}
impl Link {
    pub(crate) fn new(config: &Config) -> Result<Self> {
        Ok(Self {
            driver: Arc::new(Driver::new(config)?),
            all: Connections::new(),
            broke: Notify::new(),
            endpoint: config.endpoint().into(),
            time: ServerTime::default(),
        })
    }
    pub(crate) fn close(&self) {
        self.all.close();
    }
    /// This runtime's connections, or what there is.
    pub(crate) async fn here(&self) -> Result<Conn, Fault> {
        let make = || {
            let driver = self.driver.clone();
            async move {
                let session = driver.connect().await?;
                // A connection may be in the making for longer than its renewal waits.
                let makings = [2 * RENEWALS, CALLS, WATCHES].map(|many| Arc::new(Semaphore::new(many)));
                let [calls, renewals, watches, bells] =
                    [CALLS, RENEWALS, WATCHES, BELLS].map(|many| Arc::new(Semaphore::new(many)));
                let (runtime, pool) = (Handle::current(), Pool::new(session));
                Ok(Arc::new(Wire { driver, runtime, pool, calls, renewals, watches, bells, makings }))
            }
        };
        let is_good = |wire: &Arc<Wire>| !wire.pool.is_broken();
        let one = || self.all.here_or_elsewhere(CONNECT_TIMEOUT, make, Fault::is_full, is_good);
        let conn = one().await?;
        if !conn.pool.is_broken() {
            return Ok(conn);
        }
        self.give_up(&conn);
        one().await
    }
    pub(crate) fn give_up(&self, conn: &Conn) {
        conn.pool.broke();
        // One that many had is told of once: what is looked for then goes to the next one.
        if self.all.give_up(conn) {
            self.broke.notify_one();
        }
    }
    /// The same, tried again for a while when there is no server, until `stopped`: then why there was none is told, too.
    pub(crate) async fn soon(&self, stopped: impl Future<Output = ()>) -> Result<Conn, Fault> {
        soon(CONNECT_TIMEOUT, || self.here(), Fault::may_pass, Fault::Unreached, stopped).await
    }
    /// What may be asked again with one effect: it is, when the connection breaks meanwhile, a row is locked, or there is none to be had.
    pub(crate) async fn again(&self, call: &str) -> Result<Vec<Row>, Fault> {
        let (mut tries, mut conflicts, limit) = (0, 0, BootClock.now() + PATIENCE);
        loop {
            let conn = self.soon(pending()).await?;
            match self.rows(&conn, Lane::Calls, PATIENCE, call).await {
                Err(fault) if fault.is_conflict() && BootClock.now() < limit => {
                    sleep(after_locked(conflicts)).await;
                    conflicts += 1;
                }
                Err(fault) if tries < 2 && (fault.ends_connection() || fault.is_full()) => tries += 1,
                end => return end,
            }
        }
    }

    /// One packet, and what it answers, all of its results in one.
    pub(crate) async fn rows(&self, conn: &Conn, lane: Lane, limit: Duration, call: &str) -> Result<Vec<Row>, Fault> {
        let until = BootClock.now() + limit;
        let mut other = None;
        loop {
            let conn = other.as_ref().unwrap_or(conn);
            let (tell, told) = oneshot::channel();
            let left = BootClock.now().until(until);
            tokio::spawn(Arc::clone(conn).exchange(lane, left, call.to_owned(), tell));
            let answer = told.await.unwrap_or(Err(Fault::Unanswered));
            let ends = |fault: &Fault| fault.ends_connection() || matches!(fault, Fault::Unreached);
            if !answer.as_ref().is_err_and(ends) || !conn.pool.is_broken() {
                return answer;
            }
            self.give_up(conn);
            // It was not sent.
            if !matches!(answer, Err(Fault::Unreached)) || BootClock.now() >= until {
                return answer;
            }
            other = Some(timeout(BootClock.now().until(until), self.here()).await.unwrap_or(Err(Fault::Unreached))?);
        }
    }
    /// A procedure on one lock, its answer taken apart; what it tells of the server's clock is kept.
    pub(crate) async fn run(&self, conn: &Conn, lane: Lane, limit: Duration, call: &str) -> Result<Reply, Fault> {
        let sent = BootClock.now();
        let rows = self.rows(conn, lane, limit, call).await?;
        let row = rows.first().ok_or(Fault::Answer)?;
        if let Some(now) = clock(row).filter(|_| lane == Lane::Calls) {
            self.time.seen(sent, BootClock.now(), now);
        }
        reply(row).ok_or(Fault::Answer)
    }
    /// There is room for one more watch now.
    pub(crate) fn may_watch(&self, conn: &Conn) -> bool {
        conn.watches.available_permits() > 0 && !conn.pool.is_full()
    }
    /// A doorbell for one who waits; `None`: there is no room for one more.
    pub(crate) async fn bell(&self) -> Result<Option<Bell>, Fault> {
        let conn = self.here().await?;
        if conn.runtime.id() != Handle::current().id() {
            return Ok(None);
        }
        let Ok(place) = conn.bells.clone().try_acquire_owned() else { return Ok(None) };
        let session = match conn.pool.take(Lane::Watches) {
            Some(session) => session,
            None if conn.pool.may_ask(Lane::Watches).is_err() => return Ok(None),
            None => conn.connect().await?,
        };
        Ok(Some(Bell { session: Some(session), wire: Arc::clone(&conn), _place: place }))
    }
    pub(crate) fn tell(&self, operation: &'static str, fault: &Fault) -> Error {
        fault.tell(operation, &self.endpoint)
    }

    /// A connection that is nobody else's.
    pub(crate) async fn dedicated(&self) -> Result<Session, Fault> {
        timeout(CONNECT_TIMEOUT, self.driver.connect()).await.unwrap_or(Err(Fault::Unreached))
    }

    /// A session that has the named lock of this client for as long as it lives, and its number. `None`: none can show that here, since
    /// named locks belong to one node of a cluster, or something between us and the server gives our sessions other numbers.
    pub(crate) async fn pulse(&self, client: HoldId) -> Result<Option<(Pulse, i64)>, Fault> {
        if self.is_cluster().await? {
            return Ok(None);
        }
        let look = format!("SELECT GET_LOCK({}, 1), CONNECTION_ID()", pulse_of(client));
        let mut session = timeout(CONNECT_TIMEOUT, self.driver.connect()).await.unwrap_or(Err(Fault::Unreached))?;
        let row: Option<Row> =
            within(PATIENCE, session.query_first(look)).await.ok_or(Fault::Unanswered)?.map_err(Fault::of)?;
        let row = row.filter(|row| column(row, 0) == Some("1"));
        let Some(id) = row.and_then(|row| column(&row, 1)?.parse::<i64>().ok()) else { return Ok(None) };
        Ok((self.feels(client).await? == Some(id)).then_some((Pulse(session), id)))
    }
    /// Several servers take writes, and each gives named locks of its own: Galera, or a group with several primaries.
    pub(crate) async fn is_cluster(&self) -> Result<bool, Fault> {
        let settings = "'wsrep_on', 'group_replication_single_primary_mode'";
        let rows = self.again(&format!("SHOW GLOBAL VARIABLES WHERE variable_name IN ({settings})")).await?;
        let is = |name, value| rows.iter().any(|row| (column(row, 0), column(row, 1)) == (Some(name), Some(value)));
        Ok(is("wsrep_on", "ON") || is("group_replication_single_primary_mode", "OFF"))
    }
    /// The session that has this client's named lock, as the others see it.
    pub(crate) async fn feels(&self, client: HoldId) -> Result<Option<i64>, Fault> {
        let conn = self.here().await?;
        let look = format!("SELECT IS_USED_LOCK({})", pulse_of(client));
        let seen = self.rows(&conn, Lane::Calls, PATIENCE, &look).await?;
        Ok(seen.first().and_then(|row| column(row, 0)?.parse().ok()))
    }
    /// Finds the tables, or makes them; the store's identity.
    pub(crate) async fn set_up(&self, config: &Config) -> Result<u128, Fault> {
        let sent = BootClock.now();
        let now = self.again(&format!("SELECT {}", schema::NOW)).await?;
        let now = now.first().and_then(|row| column(row, 0)).and_then(|now| now.parse().ok()).ok_or(Fault::Answer)?;
        self.time.seen(sent, BootClock.now(), now);
        let known = match self.known().await? {
            Some(known) => known,
            None => {
                self.make("SELECT version FROM fencelock_meta WHERE one = 1", schema::script()).await?;
                self.known().await?.ok_or(Fault::Answer)?
            }
        };
        let (version, store) = known;
        if version != schema::VERSION {
            let what = format!("the tables are of version {version}, and this is version {}", schema::VERSION);
            return Err(Fault::Unusable {
                what,
                hint: "use the same version of fencelock everywhere: another database is another set of locks",
            });
        }
        if config.strategy == Strategy::ShedLock {
            self.set_up_shedlock().await?;
        }
        Ok(store)
    }
    /// Version and store of the tables that are there, whole.
    async fn known(&self) -> Result<Option<(i64, u128)>, Fault> {
        // By a catalog, so that nothing fails where it is not there. On a node of Galera, after all that the others had written by now: whoever
        // makes it once more takes from under them what they call.
        let there = "/*M! SET STATEMENT wsrep_sync_wait = 1 FOR */ SELECT COUNT(*) FROM information_schema.tables \
                     WHERE table_schema = DATABASE() AND table_name = 'fencelock_meta'";
        let rows = self.again(there).await?;
        if rows.first().and_then(|row| column(row, 0)) != Some("1") {
            return Ok(None);
        }
        let rows = self.again("SELECT version, HEX(store) FROM fencelock_meta WHERE one = 1").await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let version = column(row, 0).and_then(|version| version.parse().ok()).ok_or(Fault::Answer)?;
        let store = column(row, 1).and_then(|store| u128::from_str_radix(store, 16).ok()).ok_or(Fault::Answer)?;
        Ok(Some((version, store)))
    }
}
/// A session that has the named lock of one hold, from when it waits near its turn until it is released: whoever is behind it waits for that
/// lock. *Invariant:* whatever becomes of it rings: one that is not given back in order is closed, and its lock goes with it. A ring grants
/// nothing, and one that is lost costs a look.
pub(crate) struct Bell {
    session: Option<Session>,
    wire: Arc<Wire>,
    _place: OwnedSemaphorePermit,
}
impl Bell {
    /// By this very session, whosever runtime reads for it. Where it is not answered there is none any more.
    pub(crate) async fn run(&mut self, limit: Duration, call: String) -> Result<Reply, Fault> {
        let mut session = self.session.take().ok_or(Fault::Closed)?;
        let rows = within(limit, ask(&mut session, call)).await.ok_or(Fault::Unanswered)?.map_err(Fault::of)?;
        self.session = Some(session);
        reply(rows.first().ok_or(Fault::Answer)?).ok_or(Fault::Answer)
    }
    /// As far as is known.
    pub(crate) fn is_there(&self) -> bool {
        self.session.is_some() && !self.wire.pool.is_broken()
    }
    /// It was rung, and is no doorbell any more: the session is anybody's.
    pub(crate) fn rest(mut self) {
        if let Some(session) = self.session.take() {
            self.wire.pool.put(Lane::Watches, session);
        }
    }
}
/// The named lock of a client that lives.
fn pulse_of(client: HoldId) -> String {
    format!("CONCAT('fencelock.', HEX(X'{client}'))")
}
/// Shows that its client lives.
pub(crate) struct Pulse(Session);
impl Pulse {
    pub(crate) async fn is_there(&mut self) -> bool {
        matches!(within(PATIENCE, self.0.ping()).await, Some(Ok(())))
    }
}
pub(crate) async fn ask(session: &mut Session, call: String) -> Answer {
    let mut results = session.query_iter(call).await?;
    let mut rows = Vec::new();
    while !results.is_empty() {
        rows.extend(results.collect::<Row>().await?);
    }
    results.drop_result().await?;
    Ok(rows)
}
impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({})", self.endpoint)
    }
}
/// The smallest of the bytes that come after all names that begin so; `None`: there is none.
pub(crate) fn after_prefix(prefix: &str) -> Option<Vec<u8>> {
    let mut bytes = prefix.as_bytes().to_vec();
    // No byte of UTF-8 is the highest of all.
    let last = bytes.last_mut()?;
    *last = last.saturating_add(1);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_prefixes() {
        for (version, is) in [
            ("10.11.19-MariaDB-0+deb12u1", (10, 11)),
            ("5.5.5-10.6.2-MariaDB", (10, 6)),
            ("8.0.36", (8, 0)),
            ("", (0, 0)),
        ] {
            assert_eq!(numbers(version), is, "{version}");
        }
        assert_eq!(after_prefix("ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(after_prefix(""), None);
    }
}
