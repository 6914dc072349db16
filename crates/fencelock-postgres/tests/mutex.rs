//! What PostgreSQL's own ways bring with them: what each operation costs there, rows that somebody else keeps, rights, names.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::within;
use fencelock_core::{Client, ErrorKind};
use fencelock_postgres::{Config, PostgresEngine};
use fencelock_testkit::Postgres;
use std::time::Instant;

/// So many bytes of the log, and transactions with a number, until now.
fn written(server: &Postgres) -> (i64, i64) {
    let said = server.ask("SELECT pg_current_wal_insert_lsn() - '0/0', txid_snapshot_xmax(txid_current_snapshot())");
    let (log, number) = said.split_once('\t').unwrap();
    (log.parse().unwrap(), number.parse().unwrap())
}

/// A try that fails writes nothing, and neither does a look of somebody who waits. (Red: the row locked before it was looked at.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_try_writes_nothing() {
    // Nothing else writes: no clean-up, no statistics.
    let server = Postgres::with(&["autovacuum=off"]);
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_err());
    server.ask("CHECKPOINT");
    let before = written(&server);
    for _ in 0..100 {
        assert!(b.mutex("x").try_lock().await.unwrap().is_err());
    }
    assert_eq!(written(&server), before);
    held.release().await.unwrap();
}
/// A renewal touches no index, and stays within its page. (Red: an index on the end.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_touch_no_index() {
    let server = Postgres::start();
    let a = client(&server.url()).await;
    let (one, all) = (a.mutex("x").ttl(SEC).lock().await.unwrap(), a.rw_lock("y").ttl(SEC).read().await.unwrap());
    let count = "SELECT sum(n_tup_upd), sum(n_tup_hot_upd) FROM pg_stat_user_tables \
                 WHERE relname IN ('fencelock_lock', 'fencelock_holder')";
    // The grants themselves change a token.
    eventually("it is told", || async { server.ask(count).split('\t').next() >= Some("2") }).await;
    let first = server.ask(count);
    let numbers = |said: &str| said.split('\t').map(|n| n.parse::<i64>().unwrap()).collect::<Vec<_>>();
    let first = numbers(&first);
    eventually("20 renewals", || async { numbers(&server.ask(count))[0] >= first[0] + 20 }).await;
    let last = numbers(&server.ask(count));
    assert_eq!(last[0] - first[0], last[1] - first[1], "each of them within its page");
    one.release().await.unwrap();
    all.release().await.unwrap();
}
/// Somebody's own transaction keeps the row: a try is answered in time, whoever waits gets it soon after, with all of its ttl (SAFETY E2).
/// (Red: `FOR UPDATE` that waits.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_keeps() {
    let server = Postgres::start();
    let a = client(&server.url()).await;
    a.mutex("x").lock().await.unwrap().release().await.unwrap();
    let mut session = Session::new(&server);
    session.ask("BEGIN");
    session.ask("SELECT FROM fencelock_lock WHERE name = 'x' FOR UPDATE");
    let began = Instant::now();
    assert!(a.mutex("x").try_lock().await.unwrap().is_err());
    println!("answered after {:?}", began.elapsed());
    assert!(began.elapsed() < SEC);
    let wait = tokio::spawn(a.mutex("x").ttl(5 * SEC).lock());
    tokio::time::sleep(SEC).await;
    assert!(!wait.is_finished());
    let free = Instant::now();
    session.ask("COMMIT");
    let guard = within("it is free", wait).await.unwrap().unwrap();
    println!("granted after {:?}", free.elapsed());
    let left = "SELECT extract(epoch FROM until - clock_timestamp()) FROM fencelock_lock WHERE name = 'x'";
    let left: f64 = server.ask(left).parse().unwrap();
    assert!(left > 4.0, "{left} s of 5 are left");
    guard.release().await.unwrap();
}
/// A release that nobody waits for tells nobody: a word costs all who commit at that moment. (Red: a word with each release.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_of_a_release_that_nobody_waits_for() {
    let server = Postgres::start();
    let a = client(&server.url()).await;
    // Somebody who listens, and does not read on: whatever is told stays in the server's queue.
    let mut session = Session::new(&server);
    session.ask("LISTEN something");
    session.ask("BEGIN");
    for _ in 0..400 {
        a.mutex("x").lock().await.unwrap().release().await.unwrap();
    }
    assert_eq!(server.ask("SELECT pg_notification_queue_usage()"), "0");
    assert_eq!(server.ask("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%pid()'"), "0", "nor listens");
}
/// Whatever the database begins its transactions with. (Red: without saying so.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_ways_to_isolate() {
    for level in ["serializable", "repeatable read"] {
        let server = Postgres::start();
        server.ask(&format!("ALTER SYSTEM SET default_transaction_isolation = '{level}'"));
        server.ask("SELECT pg_reload_conf()");
        let url = server.url();
        let (a, b) = (client(&url).await, client(&url).await);
        let work = |client: Client| async move {
            for _ in 0..100 {
                client.mutex("x").lock().await.unwrap().release().await.unwrap();
                client.semaphore("s", 1).acquire(1).await.unwrap().release().await.unwrap();
            }
        };
        let both = (tokio::spawn(work(a.clone())), tokio::spawn(work(b)));
        within("both", async { (both.0.await.unwrap(), both.1.await.unwrap()) }).await;
        let logged = std::fs::read_to_string(server.folder().path().join("log")).unwrap();
        let errors: Vec<&str> = logged.lines().filter(|line| line.contains("ERROR")).collect();
        assert!(errors.is_empty(), "{level}: {errors:?}");
    }
}
/// The tables are made by whoever may; the others need rights on them and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights() {
    let server = Postgres::start();
    server.ask("CREATE ROLE app LOGIN");
    let url = server.url().replace("postgres@", "app@");
    let open = || async { PostgresEngine::from_url(&url).await };
    let error = open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    client(&server.url()).await;
    server.ask("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app");
    let app = client(&url).await;
    let held = app.mutex("x").lock().await.unwrap();
    let wait = tokio::spawn(app.semaphore("s", 2).acquire(2));
    within("two", wait).await.unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
    server.ask("REVOKE INSERT ON fencelock_lock FROM app");
    let error = app.mutex("new").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}
/// Two that come first make one set of tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_come_first() {
    let server = Postgres::start();
    let all: Vec<_> = (0..8)
        .map(|_| {
            let url = server.url();
            tokio::spawn(async move { PostgresEngine::from_url(&url).await.map(|engine| format!("{engine:?}")) })
        })
        .collect();
    for one in all {
        one.await.unwrap().unwrap();
    }
    assert_eq!(server.ask("SELECT count(*) FROM fencelock_meta"), "1");
}
/// A schema of its own, with an odd name; and a store of another one is another store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas() {
    let server = Postgres::start();
    server.ask("CREATE SCHEMA \"My \"\"locks\"");
    let mut config = Config::from_url(&server.url()).unwrap();
    config.schema = Some("My \"locks".to_owned());
    let (a, b) = (client_with(config).await, client(&server.url()).await);
    let held = a.mutex("x").lock().await.unwrap();
    b.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
    let mut config = Config::from_url(&server.url()).unwrap();
    config.schema = Some("nowhere".to_owned());
    let error = PostgresEngine::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
}
/// What cannot be used is told at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used() {
    let server = Postgres::start();
    server.ask("CREATE DATABASE old ENCODING 'LATIN1' TEMPLATE template0");
    let error = PostgresEngine::from_url(&server.url().replace("/postgres", "/old").replace("/old@", "/postgres@"))
        .await
        .unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidConfig && error.to_string().contains("LATIN1"), "{error}");
    let error = PostgresEngine::from_url(&(server.url() + "x")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidConfig && error.to_string().contains("no such database"), "{error}");
    server.kill();
    let error = PostgresEngine::from_url(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}
/// Who waits is told of the release; who waits behind a dead client is not held up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_is_told() {
    let server = Postgres::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let mut held = a.mutex("x").lock().await.unwrap();
    for round in 0..20 {
        let other = if round % 2 == 0 { &b } else { &a };
        let wait = tokio::spawn(other.mutex("x").lock());
        eventually("it waits", || async { a.inspect("x").await.unwrap().waiters.len() == 1 }).await;
        // Somebody listens by then.
        tokio::time::sleep(50 * MS).await;
        let began = Instant::now();
        held.release().await.unwrap();
        held = within("its turn", wait).await.unwrap().unwrap();
        println!("handed over in {:?}", began.elapsed());
    }
}
