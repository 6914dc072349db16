//! Cases of the peers' suites that are PostgreSQL's own: connections, other people's transactions and settings, rows that somebody else
//! makes, removes or spoils.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/cases.rs"]
mod stories;
use common::*;
use fencelock_conformance::within;
use fencelock_core::{BootClock, Claim, Client, Clock, ErrorKind, LossReason};
use fencelock_postgres::{Config, Listen, Strategy};
use fencelock_testkit::{
    PgBouncer, Postgres, Postgres as Server,
    processes::{bar, full, tenth},
};
use std::{
    future::ready,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

const NAME: &str = "PostgreSQL";
const OURS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock'";
const SESSIONS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";

async fn sessions(server: &Postgres) -> Client {
    let mut config = Config::from_url(&server.url()).unwrap();
    config.strategy = Strategy::Session;
    client_with(config).await
}
/// A transaction that sees what was there when it first looked.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
fn end_session(server: &Postgres, name: &str) {
    server.ask(&format!("SELECT pg_terminate_backend(pid) FROM fencelock_lock WHERE name = '{name}'"));
}
/// Leases that are over: of a mutex, and of a reader, for longer than such an end is kept.
fn dead(server: &Postgres) {
    for (name, kind, claim) in [("dead", "mutex", "m"), ("dead reader", "rw_lock", "r")] {
        server.ask(&format!(
            "SELECT fencelock_acquire('', '{name}', gen_random_uuid(), '{kind}', '{claim}', 1, 0, 1000, \
             fencelock_us(clock_timestamp()) + 1000000, 0, false, gen_random_uuid(), NULL, 'h 1 ')"
        ));
    }
    server.ask("UPDATE fencelock_holder SET until = until - interval '2 minutes' WHERE name = 'dead reader'");
}
/// Whatever is written to the table is refused.
fn refuse(server: &Server, table: &str) {
    server.ask(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'out of ink'; END $$",
    );
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON";
    server.ask(&format!("{trigger} {table} FOR EACH ROW EXECUTE FUNCTION refuse()"));
}
fn refuse_no_more(server: &Server, table: &str) {
    server.ask(&format!("DROP TRIGGER refuse ON {table}"));
}
fn clean(server: &Postgres) {
    server.ask("SELECT fencelock_reap(); SELECT pg_sleep(0.01), fencelock_clean(1000)");
}
/// As the engine does it.
fn cleaning(server: &Server) -> Command {
    let mut both = server.psql("SELECT fencelock_reap()");
    both.args(["-c", "SELECT fencelock_clean(0)"]);
    both
}
/// Ten that are idle, which are found first, in the table and by name, and very many that are held.
fn many() -> String {
    format!(
        "TRUNCATE fencelock_lock; INSERT INTO fencelock_lock (space, name, kind, fence) \
         SELECT '', '#' || n, 'mutex', 1 FROM generate_series(0, 9) n; \
         INSERT INTO fencelock_lock (space, name, kind, fence, hold, ttl, until, since, who) SELECT '', 'm' || n, 'mutex', 1, \
         gen_random_uuid(), 3600000000, now() + interval '1 hour', now(), 'h 1 ' FROM generate_series(1, {HELD}) n"
    )
}
const HELD: u32 = 200_000;
const CLEANING: &str = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT fencelock_clean(0)' AND state = 'active' \
    AND clock_timestamp() > query_start + interval '20 ms'";
const HELD_UNTIL: &str = "SELECT until FROM fencelock_holder";
const LATE_SETTLE: &str = "SELECT fencelock_settle(l, clock_timestamp() - interval '5 seconds') FROM fencelock_lock l";
const SILENT: &str = "UPDATE fencelock_client SET until = now() - interval '2 minutes'";
/// What the server has logged of errors.
fn errors(server: &Postgres) -> Vec<String> {
    let log = std::fs::read_to_string(server.folder().path().join("log")).unwrap();
    log.lines().filter(|line| line.contains("ERROR")).map(str::to_owned).collect()
}
/// The server ends sessions that are idle: a lease needs none, and a session is never idle for so long. Twenty-five times, with all that a
/// session is asked beside its signs of life. (Red: no sign of life.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_idle_sessions() {
    let server = Postgres::with(&["idle_session_timeout=2s"]);
    let (leases, sessions) = (client(&server.url()).await, sessions(&server).await);
    let ttl = 6 * SEC;
    let (one, other) =
        (leases.mutex("l").ttl(ttl).lock().await.unwrap(), sessions.mutex("s").ttl(ttl).lock().await.unwrap());
    for n in 0..25 {
        let all = [&leases, &sessions].map(|client| client.mutex(format!("x{n}")).ttl(ttl).lock());
        for lock in all {
            let guard = soon(lock).await.unwrap();
            tokio::time::sleep(MS * fastrand::u32(0..120)).await;
            guard.release().await.unwrap();
        }
    }
    // And nothing at all is asked.
    tokio::time::sleep(2 * ttl).await;
    one.check().unwrap();
    other.check().unwrap();
    one.release().await.unwrap();
    other.release().await.unwrap();
}
/// A thousand calls on twenty names, all over one session of a pooler; and what is set for them is nobody else's. (Red: a setting of the
/// session.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_one() {
    let server = Postgres::with(&["default_transaction_isolation=serializable", "synchronous_commit=local"]);
    let pooler = PgBouncer::with_pool(&server, "transaction", 1);
    let url = server.url_through(&pooler);
    let mut all = Vec::new();
    for n in 0..10 {
        let client = client(&url).await;
        all.push(tokio::spawn(async move {
            for _ in 0..if full() { 100 } else { 30 } {
                let (kind, claim, _) = CLAIMS[n % 2 * 3];
                let name = format!("{kind}{}", fastrand::u32(0..10));
                Any::lock(&client, &name, claim, 30 * SEC).await.unwrap().release().await.unwrap();
            }
        }));
    }
    for one in all {
        tokio::time::timeout(60 * SEC, one).await.unwrap().unwrap();
    }
    assert_eq!(server.ask(OURS), "1");
    let mut psql = std::process::Command::new("psql");
    psql.args(["-X", "-q", "-A", "-t", "-c", "SHOW transaction_isolation", "-c", "SHOW synchronous_commit", &url]);
    assert_eq!(String::from_utf8(psql.output().unwrap().stdout).unwrap(), "serializable\nlocal\n");
}
/// Others have all that a pooler lends: whoever tries is told, whoever holds loses it before anybody else has it, and when it is lent again
/// everything goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_others_have() {
    let server = Postgres::start();
    let pooler = PgBouncer::with_pool(&server, "transaction", 1);
    let url = server.url_through(&pooler);
    let (a, direct) = (client(&url).await, client(&server.url()).await);
    let held = a.mutex("x").ttl(4 * SEC).lock().await.unwrap();
    let next = tokio::spawn(direct.mutex("x").lock());
    queued(&direct, "x", 1).await;
    let mut psql = std::process::Command::new("psql");
    let mut others = psql
        .args(["-X", "-q", "-c", "SELECT pg_sleep(60)", &url])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'";
    eventually("they have it", || std::future::ready(server.ask(sleeps) == "1")).await;
    let (refused, lost, (next, granted)) = tokio::join!(
        async { soon(a.mutex("y").try_lock()).await.map(drop).unwrap_err() },
        async { (soon(held.lost()).await, Instant::now()).1 },
        async { (soon(next).await.unwrap().unwrap(), Instant::now()) },
    );
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
    assert!(lost <= granted, "told {:?} after somebody else had it", lost - granted);
    assert_eq!(server.ask(sleeps), "1", "the run must bite");
    server.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'");
    others.wait().unwrap();
    soon(a.mutex("y").lock()).await.unwrap().release().await.unwrap();
    next.release().await.unwrap();
}
/// Behind a pooler of transactions nobody listens: what was told there would be somebody else's, and whoever is taken to be alive by a process of
/// the server that is not his is passed when that one ends. Also where many come between two looks. (Red: a look that is made once.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_pooler() {
    let server = Postgres::start();
    let pooler = PgBouncer::with_pool(&server, "transaction", 8);
    let (url, direct) = (server.url_through(&pooler), client(&server.url()).await);
    let held = direct.mutex("x").lock().await.unwrap();
    let mut busy = tokio::task::JoinSet::new();
    for n in 0..12 {
        let client = client(&url).await;
        busy.spawn(async move {
            loop {
                client.mutex(format!("y{n}")).lock().await.unwrap().release().await.unwrap();
            }
        });
    }
    let listens = "SELECT count(*) FROM fencelock_client WHERE pid IS NOT NULL";
    let mut waits = tokio::task::JoinSet::new();
    for n in 0..24 {
        let waiter = client(&url).await;
        waits.spawn(waiter.mutex("x").lock());
        queued(&direct, "x", n + 1).await;
    }
    // Until his first sign of life the process by which he came speaks for him.
    eventually("nobody is taken to listen", || std::future::ready(server.ask(listens) == "0")).await;
    let began = Instant::now();
    while began.elapsed() < 2 * SEC {
        assert_eq!(server.ask(listens), "0", "{:?} later", began.elapsed());
    }
    busy.abort_all();
    held.release().await.unwrap();
    within("one of them has it", waits.join_next()).await.unwrap().unwrap().unwrap().release().await.unwrap();
}
/// A record that somebody else has made is one like any other; a try that fails changes neither it nor another one. (Red: a try that writes.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_there() {
    let server = Postgres::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    server.ask("INSERT INTO fencelock_lock (space, name, fence) VALUES ('', 'made', 7)");
    let (made, other) = (a.mutex("made").lock().await.unwrap(), a.mutex("other").lock().await.unwrap());
    let records = || server.ask("SELECT ctid, l.* FROM fencelock_lock l ORDER BY name");
    let before = records();
    for _ in 0..10 {
        assert!(b.mutex("made").try_lock().await.unwrap().is_err());
    }
    assert_eq!(records(), before);
    other.release().await.unwrap();
    let of_made = |all: &str| all.lines().next().map(str::to_owned);
    assert_eq!(of_made(&records()), of_made(&before));
    made.release().await.unwrap();
}
/// A thousand at once on one name, where transactions are serializable; and those who come first on many names: no caller hears of rows that
/// met, and neither does the server's log. (Red: an insert without `ON CONFLICT`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_conflict_is_told_or_logged() {
    let server = Postgres::with(&["default_transaction_isolation=serializable"]);
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(client(&server.url()).await);
    }
    let mut all = Vec::new();
    for n in 0..if full() { 1_024 } else { 256 } {
        let client = clients[n % 16].clone();
        all.push(tokio::spawn(async move { client.mutex("one").lock().await.unwrap().release().await.unwrap() }));
    }
    for one in clients.into_iter().enumerate() {
        all.push(tokio::spawn(async move {
            for n in 0..tenth(500) {
                let (kind, claim, _) = CLAIMS[n % 4];
                let (client, name) = (&one.1, format!("{kind}{n}"));
                Any::lock(client, &name, claim, 30 * SEC).await.unwrap().release().await.unwrap();
            }
        }));
    }
    for one in all {
        tokio::time::timeout(120 * SEC, one).await.unwrap().unwrap();
    }
    assert!(errors(&server).is_empty(), "{:?}", errors(&server));
}
/// Nobody listens: whoever waits looks, and is in soon. (Red: a look once in a minute.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_listens() {
    let server = Postgres::start();
    let mut config = Config::from_url(&server.url()).unwrap();
    config.listen = Listen::Off;
    let (a, b) = (client_with(config.clone()).await, client_with(config).await);
    for (name, claim, other) in CLAIMS {
        let held = Any::lock(&a, name, claim, 60 * SEC).await.unwrap();
        let b = b.clone();
        let wait = tokio::spawn(async move { Any::lock(&b, name, other, 60 * SEC).await });
        queued(&a, name, 1).await;
        held.release().await.unwrap();
        let free = Instant::now();
        within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
        println!("in after {:?}", free.elapsed());
    }
    let listeners = "SELECT count(*) FROM pg_stat_activity \
                     WHERE query LIKE '%pg_listening_channels()%' AND pid <> pg_backend_pid()";
    assert_eq!(server.ask(listeners), "0");
}
/// Whoever calls has no tokio: it connects, locks and releases all the same, by each strategy. (Red: what is looked at after the tables are
/// made is looked at on the caller's executor.)
#[test]
fn without_tokio() {
    let server = Postgres::start();
    for strategy in ["lease", "session", "shedlock"] {
        let client = block_on(client(&format!("{}?strategy={strategy}", server.url())));
        let held = block_on(client.mutex("x").lock()).unwrap();
        assert!(block_on(client.mutex("x").try_lock()).unwrap().is_err());
        block_on(held.release()).unwrap();
    }
}
