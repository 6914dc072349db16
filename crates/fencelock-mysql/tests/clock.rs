//! A lease begins when it is granted, by the server's clock, whatever was waited for before; and a client that is stopped or gone, wherever
//! it was, is in nobody's way for longer than its lease.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/clock.rs"]
mod stories;
#[path = "../../fencelock-testkit/stories/tables.rs"]
mod tables;
use common::*;
use fencelock_conformance::{proxy::Trouble, within};
use fencelock_core::{Claim, LossReason};
use fencelock_database::letter;
use fencelock_testkit::{
    MariaDb as Server, WallClock,
    processes::{bar, percentile, tenth},
};
use std::{
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use stories::{Does::*, Sent};
use tokio::task::{JoinSet, block_in_place};

const NAME: &str = "MariaDB";
/// How long a try may take while somebody keeps the row, and a grant after it goes.
const TRIED: Duration = Duration::from_millis(1_100);
const GRANTED: Duration = Duration::from_millis(1_100);
const UNLOCK_TABLE: &str = "UNLOCK TABLES";
/// How many wait for a lock of the server's.
const BLOCKED: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'";
/// In the server's own zone, as `SHOW` has it, and so it is read.
const UNTIL: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until)";
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
/// How many clients have a pulse, and that they are no more.
const HEARD: &str = "SELECT COUNT(*) FROM fencelock_client WHERE pulse > 0";
/// What is sent in the life of a hold, and of a session, which has no readers.
const COMMANDS: &[Sent] = &[
    (Acquires, "fencelock_acquire("),
    (Waits, "fencelock_watch("),
    (Looks, "fencelock_refresh("),
    (Renews, "fencelock_renew("),
    (Softens, "fencelock_exchange("),
    (Withdraws, "fencelock_release("),
    (Releases, "fencelock_release("),
];
const SESSION_COMMANDS: &[Sent] = &[
    (Acquires, "fencelock_bear("),
    (Waits, "fencelock_await("),
    (Renews, "fencelock_live("),
    (Releases, "fencelock_let_go("),
];
const SESSION_CLAIMS: usize = 1;
/// How long a session has been silent is counted by a clock that nobody sets.
const SESSIONS_END_EARLY: bool = false;
const FORGET: &str = "DELETE FROM fencelock_client";

/// Where each who waits has a doorbell.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_is_stopped_beside_its_doorbell() {
    stories::stopped_inside("MariaDB, doorbells", "?doorbell=on", &CLAIMS, COMMANDS, 250 * MS).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_somebody_keeps_beside_doorbells() {
    let server = Server::start();
    let url = server.url() + "?doorbell=on";
    stories::row_that_somebody_keeps("MariaDB, doorbells", server, &url, stories::KEPT).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_vanishes_beside_its_doorbell() {
    let way = |server: &Server| {
        let (proxy, url) = proxied(server);
        (proxy, url + "?doorbell=on", ())
    };
    stories::client_that_vanishes_while_it_waits("MariaDB, doorbells", stories::VANISH, way).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_beside_doorbells() {
    let clock = WallClock::new();
    let server = Server::by(&clock);
    stories::clock_that_is_set("MariaDB, doorbells", &clock, &server, &(server.url() + "?doorbell=on")).await;
}

/// What is left of a lease, in seconds by the server's clock; 0: nobody holds it.
fn left(session: &mut Session, name: &str) -> f64 {
    let ask = format!(
        "SELECT (MAX(ends) - {NOW}) / 1e6 FROM (SELECT ends FROM \
         fencelock_lock WHERE name = '{name}' AND hold IS NOT NULL UNION ALL SELECT ends FROM fencelock_holder WHERE \
         name = '{name}') AS them"
    );
    session.ask(&ask).parse().unwrap_or(0.0)
}
fn left_of_row(session: &mut Session, name: &str) -> f64 {
    let left = format!("SELECT ({UNTIL} - {NOW}) / 1e6 FROM shedlock WHERE name = '{name}'");
    session.ask(&left).parse().unwrap()
}
/// Whoever reads does not wait for that.
fn share_table(table: &str) -> String {
    format!("LOCK TABLES {table} READ")
}
fn lock_table(table: &str) -> String {
    format!("LOCK TABLES {table} WRITE")
}
/// A try of a row that is shared with ShedLock.
fn claims_row(name: &str, ttl: u32, end: u32) -> String {
    format!("CALL fencelock_shed_acquire('{name}', RANDOM_BYTES(16), {ttl}, {NOW} + {end}, 0, 'h 1 ')")
}

/// What makes of a try one that waits.
const TRIES: &str = ", 0, FALSE, ";
const WAITS: &str = ", 0, TRUE, ";
/// A try of a lock for so many µs, which may be granted within so many.
fn claims(name: &str, claim: Claim, ttl: u32, end: u32) -> String {
    let (kind, take, size) = (claim.kind(), claim.take().max(1), claim.capacity().unwrap_or(0));
    format!(
        "CALL fencelock_acquire('', '{name}', RANDOM_BYTES(16), '{kind}', '{}', {take}, {size}, {ttl}, \
         {NOW} + {end}, 0, FALSE, RANDOM_BYTES(16), NULL, 'h 1 ')",
        letter(claim)
    )
}
/// The same in a session.
fn bears(name: &str) -> String {
    format!("CALL fencelock_bear('', '{name}', 'named', RANDOM_BYTES(16), RANDOM_BYTES(16), 1, 0, 0, 'h 1 ')")
}
/// A cell's first value.
fn writes(name: &str) -> String {
    format!("CALL fencelock_swap('', '{name}', 0, RANDOM_BYTES(16), '0')")
}
/// Somebody waits for it; his look, which may be granted within so many µs.
fn waits(name: &str, claim: Claim, hold: &str) -> String {
    let (kind, take, size) = (claim.kind(), claim.take().max(1), claim.capacity().unwrap_or(0));
    format!(
        "CALL fencelock_acquire('', '{name}', X'{hold}', '{kind}', '{}', {take}, {size}, 20000000, {NOW} + 20000000, 0, TRUE, \
         RANDOM_BYTES(16), NULL, 'h 1 ')",
        letter(claim)
    )
}
fn looks(name: &str, hold: &str, end: u32, told: bool) -> String {
    format!("CALL fencelock_refresh('', '{name}', X'{hold}', 20000000, {NOW} + {end}, RANDOM_BYTES(16), NULL, {told})")
}
fn terminal(server: &Server, sql: &str) -> Command {
    server.client(sql)
}
fn sleeps(seconds: f64) -> String {
    format!("SELECT SLEEP({seconds})")
}
