//! Thousands of one client's: what they cost together is what each costs, and no more.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::{Client, Guard, Result};
use fencelock_testkit::{
    Postgres, on_a_steady_machine,
    processes::{bar, full},
};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// So many wait for one lock, and are abandoned at once; how long until nothing is left, and how many withdrawals that took.
async fn abandoned(server: &Postgres, many: u32) -> (Duration, u32) {
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let places = || server.ask(PLACES);
    let waits = crowd(server, &b, many).await;
    let began = Instant::now();
    waits.iter().for_each(tokio::task::JoinHandle::abort);
    within_a_minute(|| places() == "0").await;
    let took = began.elapsed();
    let calls = "SELECT calls FROM pg_stat_user_functions WHERE funcname = 'fencelock_release'";
    let mut asked = 0;
    eventually("it is counted", || {
        asked = server.ask(calls).parse().unwrap_or(0);
        std::future::ready(asked >= many)
    })
    .await;
    held.release().await.unwrap();
    (took, asked)
}
const PLACES: &str = "SELECT count(*) FROM fencelock_waiter";
/// So many of this client wait for x.
async fn crowd(server: &Postgres, client: &Client, many: u32) -> Vec<JoinHandle<Result<Guard>>> {
    // A hold of its own for each: what waits with the same ttl in one process is one.
    let waits = (0..many).map(|n| tokio::spawn(client.mutex("x").ttl(60 * SEC + MS * n).lock())).collect();
    within_a_minute(|| server.ask(PLACES) == many.to_string()).await;
    waits
}
async fn within_a_minute(yes: impl Fn() -> bool) {
    let began = Instant::now();
    while !yes() {
        assert!(began.elapsed() < 60 * SEC, "not within a minute");
        tokio::time::sleep(20 * MS).await;
    }
}

/// (Red: each is withdrawn six times, and cancels what runs for the others: 14 s.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_is_abandoned() {
    let (server, many) = (Postgres::with(&["track_functions=pl"]), if full() { 3_500 } else { 1_000 });
    let (took, asked) = abandoned(&server, many).await;
    let what = format!("PostgreSQL: {many} waiters of one client are abandoned: nothing is left after");
    bar(&what, format!("{took:?}, {asked} withdrawals"), "<= 5 s", took <= 5 * SEC);
}
/// The server needs longer for all of them than anybody waits for his answer: who is behind does not ask again for that, and does not cancel
/// what is done for another one. (Red: all are asked for at once.)
#[test]
fn a_crowd_at_a_slow_server() {
    on_a_steady_machine(500 * MS, || runtime().block_on(a_slow_server()));
}
async fn a_slow_server() {
    let (server, many) = (Postgres::with(&["track_functions=pl"]), 500);
    client(&server.url()).await;
    server.ask(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.004); RETURN OLD; END $$; \
         CREATE TRIGGER slow BEFORE DELETE ON fencelock_waiter FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let (took, asked) = abandoned(&server, many).await;
    println!("{took:?}, {asked} withdrawals of {many}");
    assert!(took > 2 * SEC, "the run must bite: {took:?}");
    assert!(asked <= 6 * many, "{asked} withdrawals of {many}");
    let log = std::fs::read_to_string(server.folder().path().join("log")).unwrap();
    assert_eq!(log.matches("canceling statement").count(), 0);
}
/// One of those who are abandoned was granted its lock, and never knew: that is free before the others have lost their places. (Red: all stand
/// in one line.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_held_is_not_behind_a_crowd() {
    let server = Postgres::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    a.mutex("y").lock().await.unwrap().release().await.unwrap();
    let before = server.ask("SELECT fence FROM fencelock_lock WHERE name = 'y'");
    server.ask(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.012); RETURN OLD; END $$; \
         CREATE TRIGGER slow BEFORE DELETE ON fencelock_waiter FOR EACH ROW EXECUTE FUNCTION slow(); \
         CREATE FUNCTION slower() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1.5); RETURN NEW; END $$; \
         CREATE TRIGGER slower BEFORE UPDATE ON fencelock_lock FOR EACH ROW \
         WHEN (NEW.name = 'y' AND NEW.hold IS NOT NULL) EXECUTE FUNCTION slower(); \
         CREATE TABLE witness (places bigint); \
         CREATE FUNCTION sees() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO public.witness SELECT count(*) FROM public.fencelock_waiter; RETURN NULL; END $$; \
         CREATE TRIGGER sees AFTER UPDATE ON fencelock_lock FOR EACH ROW \
         WHEN (NEW.name = 'y' AND OLD.hold IS NOT NULL AND NEW.hold IS NULL) EXECUTE FUNCTION sees()",
    );
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let mut waits = crowd(&server, &b, 500).await;
    waits.push(tokio::spawn(b.mutex("y").ttl(60 * SEC).lock()));
    let granting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    within_a_minute(|| server.ask(granting) == "1").await;
    let began = Instant::now();
    waits.iter().for_each(JoinHandle::abort);
    let was_held = format!("SELECT fence > {before} AND hold IS NULL FROM fencelock_lock WHERE name = 'y'");
    within_a_minute(|| server.ask(&was_held) == "t").await;
    println!("free after {:?}", began.elapsed());
    // How many of the crowd had their places when it became free.
    let left: usize = server.ask("SELECT max(places) FROM witness").parse().unwrap();
    println!("{left} places were left");
    assert!(left > 100, "only {left} places were left");
    held.release().await.unwrap();
}
