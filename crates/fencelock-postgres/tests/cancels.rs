//! Statements that are cancelled, by us or by an operator: nobody is told what the standby does not have, and nobody's call ends because
//! another one was not answered.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::Claim;
use fencelock_testkit::Postgres;
use std::{process::Command, time::Instant};
use tokio::task::JoinHandle;

/// A primary whose commits wait for its standby.
async fn with_standby() -> (Postgres, Postgres) {
    let primary = Postgres::start();
    let standby = primary.standby();
    primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.ask("SELECT pg_reload_conf()");
    let sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    eventually("it is waited for", || std::future::ready(primary.ask(sync) == "1")).await;
    (primary, standby)
}
/// What waits for a standby that stands still is cancelled by an operator: it is not told before the standby has it.
async fn is_cancelled<T: Send + 'static>(
    (primary, standby): (&Postgres, &Postgres),
    what: &str,
    asked: impl Future<Output = T> + Send + 'static,
) -> T {
    standby.pause(true);
    let (told, mut last) = (tokio::spawn(asked), String::new());
    for _ in 0..2 {
        // A connection on which somebody has cancelled it is not used again.
        last = next_wait(primary, &last, &told, what, CANCELLED).await;
    }
    next_wait(primary, &last, &told, what, SEEN).await;
    standby.pause(false);
    soon(told).await.unwrap()
}
const SEEN: &str = "true";
/// In one statement: a busy machine takes its time for each, and whoever waits does not wait for ever.
const CANCELLED: &str = "pg_cancel_backend(pid)";
/// Another one waits for the standby, and nothing was told until then.
async fn next_wait<T>(primary: &Postgres, last: &str, told: &JoinHandle<T>, what: &str, and: &str) -> String {
    let waits = format!(
        "SELECT pid FROM (SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid::text <> '{last}' \
         LIMIT 1) waits WHERE {and}"
    );
    let mut pid = String::new();
    eventually(&format!("{what} waits for the standby"), || {
        pid = primary.ask(&waits);
        assert!(!told.is_finished(), "{what}: told, and the standby does not have it");
        std::future::ready(!pid.is_empty())
    })
    .await;
    pid
}
/// Whoever has no runtime is served where renewals are sent, by the same connection.
async fn without_runtime<T: Send + 'static>(asked: impl Future<Output = T> + Send + 'static) -> T {
    let (tx, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || drop(tx.send(block_on(asked))));
    told.await.unwrap()
}
/// All that is told as done. (Red: the warning beside the answer is not heeded, or not told; a repeat that finds what it had written, and
/// waits for nothing.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_the_standby_that_somebody_cancels() {
    let servers = with_standby().await;
    let (primary, standby) = (&servers.0, &servers.1);
    let quiet = "ALTER DATABASE postgres SET client_min_messages = 'error'; ALTER DATABASE postgres SET synchronous_commit = 'off'";
    for settings in ["", quiet] {
        primary.ask(settings);
        let url = primary.url();
        for url in [url.clone(), format!("{url}?strategy=shedlock")] {
            let is_lease = !url.ends_with("shedlock");
            let a = client(&url).await;
            for (name, claim, _) in CLAIMS.into_iter().filter(|(_, claim, _)| is_lease || *claim == Claim::Mutex) {
                let one = a.clone();
                let lock = async move { Any::lock(&one, name, claim, 60 * SEC).await };
                let held = is_cancelled((primary, standby), name, lock).await.unwrap();
                held.release().await.unwrap();
            }
        }
        let cell = client(&url).await.cell("c");
        let known = cell.load().await.unwrap().version;
        let written = cell.clone();
        let write = async move { written.compare_exchange(known, "one").await };
        let version = is_cancelled((primary, standby), "a value", write).await.unwrap().unwrap();
        assert_eq!(cell.load().await.unwrap().version, version);
    }
}
/// Two share a connection: one of them waits for a standby that stands still, the other one, a renewal, is not answered in its time. (Red: it
/// cancels what is open there, and the server answers the one that waits as done.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_the_standby_beside_a_renewal() {
    let servers = with_standby().await;
    let (primary, standby) = (&servers.0, &servers.1);
    let a = client(&primary.url()).await;
    let beside = a.mutex("y").ttl(4 * SEC).lock().await.unwrap();
    standby.pause(true);
    let told = tokio::spawn(without_runtime(a.mutex("x").ttl(60 * SEC).lock()));
    let first = next_wait(primary, "", &told, "x", SEEN).await;
    // It is cancelled by us, with its connection.
    next_wait(primary, &first, &told, "x", SEEN).await;
    standby.pause(false);
    soon(told).await.unwrap().unwrap().release().await.unwrap();
    drop(beside);
}
/// What is asked behind a wait that somebody cancels, on the same connection, waits there for nobody, and keeps no row: both are asked again
/// on another one. (Red: the connection is only closed, which a server that waits does not see.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_behind_a_wait_that_somebody_cancels() {
    let servers = with_standby().await;
    let (primary, standby) = (&servers.0, &servers.1);
    let a = client(&primary.url()).await;
    let lock = |name: &'static str| tokio::spawn(a.mutex(name).ttl(60 * SEC).lock());
    a.mutex("x").lock().await.unwrap().release().await.unwrap();
    standby.pause(true);
    let x = lock("x");
    next_wait(primary, "", &x, "x", SEEN).await;
    let y = lock("y");
    eventually("y is asked behind x", || std::future::ready(is_unread(primary.port()))).await;
    let first = next_wait(primary, "", &x, "x", CANCELLED).await;
    let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {first}");
    eventually("nothing waits for nobody", || std::future::ready(primary.ask(&gone) == "0")).await;
    next_wait(primary, &first, &x, "x", SEEN).await;
    assert!(!y.is_finished());
    standby.pause(false);
    for told in [x, y] {
        match soon(told).await.unwrap() {
            Ok(held) => held.release().await.unwrap(),
            // On a very busy machine it all took longer than anybody waits for an answer.
            Err(late) => assert!(late.is_temporary(), "{late}"),
        }
    }
}
/// Something lies at the server that it has not read.
fn is_unread(port: u16) -> bool {
    let there =
        Command::new("ss").args(["-Htn", "state", "established", &format!("sport = :{port}")]).output().unwrap();
    let there = String::from_utf8(there.stdout).unwrap();
    there.lines().any(|line| line.split_whitespace().next().is_some_and(|unread| unread != "0"))
}
/// Whoever needs longer than a renewal beside it may wait is not cancelled for that. (Red: he is.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_call_beside_a_renewal() {
    let server = Postgres::start();
    let a = client(&server.url()).await;
    a.mutex("x").lock().await.unwrap().release().await.unwrap();
    server.ask(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2); RETURN NEW; END $$; \
         CREATE TRIGGER slow BEFORE UPDATE ON fencelock_lock FOR EACH ROW WHEN (NEW.name = 'x' AND NEW.hold IS NOT NULL) \
         EXECUTE FUNCTION slow()",
    );
    let beside = a.mutex("y").ttl(4 * SEC).lock().await.unwrap();
    let began = Instant::now();
    let held = soon(without_runtime(a.mutex("x").ttl(60 * SEC).lock())).await.unwrap();
    println!("{:?}", began.elapsed());
    let log = std::fs::read_to_string(server.folder().path().join("log")).unwrap();
    assert_eq!(log.matches("canceling statement").count(), 0);
    held.release().await.unwrap();
    drop(beside);
}
