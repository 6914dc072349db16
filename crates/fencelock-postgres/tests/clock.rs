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
    PgBouncer, Postgres as Server, WallClock,
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

const NAME: &str = "PostgreSQL";
/// How long a try may take while somebody keeps the row, and a grant after it goes.
const TRIED: Duration = Duration::from_millis(50);
const GRANTED: Duration = Duration::from_millis(150);
const UNLOCK_TABLE: &str = "COMMIT";
/// How many wait for a lock of the server's.
const BLOCKED: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
/// How many clients have said which process of the server listens for them, and that they are no more.
const HEARD: &str = "SELECT count(*) FROM fencelock_client c JOIN pg_stat_activity a ON a.pid = c.pid \
                     WHERE a.query LIKE '%pg_listening_channels%'";
/// What is sent in the life of a hold, and of a session, which readers have, too.
const COMMANDS: &[Sent] = &[
    (Acquires, "fencelock_acquire("),
    (Looks, "fencelock_refresh("),
    (Renews, "fencelock_renew("),
    (Softens, "fencelock_exchange("),
    (Withdraws, "fencelock_withdraw("),
    (Releases, "fencelock_release("),
];
const SESSION_COMMANDS: &[Sent] = &[
    (Acquires, "fencelock_bear("),
    (Waits, "fencelock_await("),
    (Renews, "'idle_session_timeout"),
    (Softens, "fencelock_soften("),
    (Releases, "fencelock_let_go("),
];
const SESSION_CLAIMS: usize = 3;
/// `idle_session_timeout` is compared with the time of day.
const SESSIONS_END_EARLY: bool = true;
const FORGET: &str = "DELETE FROM fencelock_client";

/// What is left of a lease, in seconds by the server's clock; 0: nobody holds it.
fn left(psql: &mut Session, name: &str) -> f64 {
    let ask = format!(
        "SELECT extract(epoch FROM max(until) - clock_timestamp()) FROM (SELECT until FROM fencelock_lock WHERE name = '{name}' \
         AND hold IS NOT NULL UNION ALL SELECT until FROM fencelock_holder WHERE name = '{name}') AS them"
    );
    psql.ask(&ask).parse().unwrap_or(0.0)
}
fn left_of_row(psql: &mut Session, name: &str) -> f64 {
    let until = "extract(epoch FROM lock_until - timezone('utc', clock_timestamp()))";
    psql.ask(&format!("SELECT {until} FROM shedlock WHERE name = '{name}'")).parse().unwrap()
}
/// Whoever reads does not wait for that.
fn share_table(table: &str) -> String {
    format!("BEGIN; LOCK TABLE {table} IN SHARE MODE")
}
fn lock_table(table: &str) -> String {
    format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
}
/// A try of a row that is shared with ShedLock.
fn claims_row(name: &str, ttl: u32, end: u32) -> String {
    let end = format!("fencelock_us(clock_timestamp()) + {end}");
    format!("SELECT code FROM fencelock_shed_acquire('{name}', gen_random_uuid(), {ttl}, {end}, 0, 'h 1 ')")
}

/// What makes of a try one that waits.
const TRIES: &str = ", 0, false, ";
const WAITS: &str = ", 0, true, ";
/// A try of a lock for so many µs, which may be granted within so many.
fn claims(name: &str, claim: Claim, ttl: u32, end: u32) -> String {
    let (kind, take, size) = (claim.kind(), claim.take().max(1), claim.capacity().unwrap_or(0));
    format!(
        "SELECT code FROM fencelock_acquire('', '{name}', gen_random_uuid(), '{kind}', '{}', {take}, {size}, {ttl}, \
         fencelock_us(clock_timestamp()) + {end}, 0, false, gen_random_uuid(), NULL, 'h 1 ')",
        letter(claim)
    )
}
/// The same in a session.
fn bears(name: &str) -> String {
    format!("SELECT code FROM fencelock_bear('', '{name}', 1, false, gen_random_uuid(), 'mutex', 'm', 1, 0, 0, 'h 1 ')")
}
/// A cell's first value.
fn writes(name: &str) -> String {
    format!("SELECT code FROM fencelock_swap('', '{name}', 0, gen_random_uuid(), '\\x00')")
}
/// Somebody waits for it; his look, which may be granted within so many µs.
fn waits(name: &str, claim: Claim, hold: &str) -> String {
    let (kind, take, size) = (claim.kind(), claim.take().max(1), claim.capacity().unwrap_or(0));
    format!(
        "SELECT code FROM fencelock_acquire('', '{name}', '{hold}', '{kind}', '{}', {take}, {size}, 20000000, \
         fencelock_us(clock_timestamp()) + 20000000, 0, true, gen_random_uuid(), NULL, 'h 1 ')",
        letter(claim)
    )
}
fn looks(name: &str, hold: &str, end: u32, told: bool) -> String {
    format!(
        "SELECT code FROM fencelock_refresh('', '{name}', '{hold}', 20000000, fencelock_us(clock_timestamp()) + {end}, NULL, {told})"
    )
}
fn terminal(server: &Server, sql: &str) -> Command {
    server.psql(sql)
}
fn sleeps(seconds: f64) -> String {
    format!("SELECT pg_sleep({seconds})")
}

/// Behind a pooler of transactions, which keeps what it was sent the half of, and a session of the server for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_is_stopped_inside_behind_a_pooler() {
    let server = Server::start();
    let pooler = PgBouncer::start(&server, "transaction");
    let way = || proxied_pooler(&server, &pooler);
    stories::stopped_inside_by("PostgreSQL, pgbouncer", &server, way, "", &CLAIMS, COMMANDS, 250 * MS).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_somebody_keeps_from_those_behind_a_pooler() {
    let server = Server::start();
    let pooler = PgBouncer::start(&server, "transaction");
    let url = server.url_through(&pooler);
    stories::row_that_somebody_keeps("PostgreSQL, pgbouncer", server, &url, stories::KEPT).await;
}
/// The pooler is told that it is gone, or goes on alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_vanishes_behind_a_pooler() {
    let way = |server: &Server| {
        let pooler = PgBouncer::start(server, "transaction");
        let (proxy, url) = proxied_pooler(server, &pooler);
        (proxy, url, pooler)
    };
    stories::client_that_vanishes_while_it_waits("PostgreSQL, pgbouncer", stories::VANISH, way).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_behind_a_pooler() {
    let clock = WallClock::new();
    let server = Server::by(&clock);
    let pooler = PgBouncer::start(&server, "transaction");
    stories::clock_that_is_set("PostgreSQL, pgbouncer", &clock, &server, &server.url_through(&pooler)).await;
}
/// An attempt is about to be granted a lock that was never there, and its transaction takes long to end (the disk, a standby): whoever takes it back
/// does not take it for gone. (Red: what nobody sees yet is not there.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_nobody_sees_yet() {
    let server = Server::start();
    let _made = client(&(server.url() + "?strategy=shedlock")).await;
    let mut session = Session::new(&server);
    let hold = "'00000000-0000-0000-0000-000000000001'";
    let (ttl, end) = (60_000_000, 20_000_000);
    // One that is there and somebody's, one that was never there, that one, and another one that was never there.
    let withdraw =
        format!("SELECT fencelock_withdraw('', ARRAY['held', 'y', 'x', 'z'], array_fill({hold}::uuid, ARRAY[4]))");
    server.ask(&claims("held", CLAIMS[0].1, ttl, end));
    for (claim, back, before, meanwhile, then) in [
        (claims("x", CLAIMS[0].1, ttl, end), withdraw, "dddd", "ddld", "dddd"),
        (
            claims_row("x", ttl, end),
            format!("SELECT code FROM fencelock_shed_release('x', {hold}, NULL)"),
            "gone",
            "locked",
            "done",
        ),
    ] {
        assert_eq!(server.ask(&back), before);
        // (An answer that is "done" would be taken for the terminal's.)
        let made = format!("BEGIN; SELECT count(*) FROM ({}) AS it", claim.replace("gen_random_uuid()", hold));
        assert_eq!(session.ask(&made), "1");
        for _ in 0..3 {
            assert_eq!(server.ask(&back), meanwhile, "{claim}");
        }
        session.ask("COMMIT");
        assert_eq!(server.ask(&back), then, "{claim}");
        assert_eq!(server.ask(&back), before, "{claim}");
        assert!(server.ask(&claim).starts_with("done"), "{claim}");
    }
    // What is given back waits for the disk as the role has it, beside others of which nothing is.
    let withdraws = |names| format!("SELECT fencelock_withdraw('', ARRAY{names}, array_fill({hold}::uuid, ARRAY[2]))");
    server.ask(&claims("given", CLAIMS[0].1, ttl, end).replace("gen_random_uuid()", hold));
    for (names, commits) in [("['y', 'z']", "off"), ("['given', 'z']", "on")] {
        session.ask("BEGIN");
        assert_eq!(session.ask(&withdraws(names)), "dd");
        assert_eq!(session.ask("SHOW synchronous_commit"), commits, "{names}");
        session.ask("COMMIT");
    }
    // To ask for what was never there has made nothing.
    server.ask(&format!("SELECT code FROM fencelock_shed_release('y', {hold}, NULL)"));
    assert_eq!(server.ask("SELECT count(*) FROM fencelock_lock"), "3");
    assert_eq!(server.ask("SELECT count(*) FROM shedlock"), "1");
}
