//! A server that is killed, connections that are ended or not to be had, tables that are gone, odd names.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/breaks.rs"]
mod stories;
use common::*;
use fencelock_conformance::within;
use fencelock_core::{Claim, Client, ErrorKind, LossReason, Version};
use fencelock_postgres::{Config, PostgresEngine as Engine};
use fencelock_testkit::{
    PgBouncer, Postgres as Server,
    processes::{bar, percentile, tenth},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

const NAME: &str = "PostgreSQL";
/// Those who hold, and those who wait.
const LEASES: &str = "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE hold IS NOT NULL) \
                      + (SELECT COUNT(*) FROM fencelock_holder) + (SELECT COUNT(*) FROM fencelock_waiter)";
const SESSIONS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
/// Rows of ShedLock's table that are held.
const ROWS: &str = "SELECT COUNT(*) FROM shedlock WHERE lock_until > timezone('utc', clock_timestamp())";
const SESSION_CLAIMS: [(&str, Claim, Claim); 4] = [("a", Claim::Mutex, Claim::Mutex), CLAIMS[0], CLAIMS[1], CLAIMS[2]];
const FEW_CONNECTIONS: &[&str] = &["max_connections=12"];
const IMPATIENT: &[&str] = &[
    "statement_timeout=1s",
    "idle_session_timeout=2s",
    "idle_in_transaction_session_timeout=1s",
    "lock_timeout=100ms",
];
const WAYS: [&str; 3] = ["", "?listen=off", stories::SESSION];

fn held(_: &Server) -> String {
    SESSIONS.to_owned()
}
/// What it said that it has it has when it was killed.
fn durable() -> Server {
    Server::start()
}
/// Ends one of our connections, whichever; how many those were.
fn kills(_: &Server) -> &'static str {
    "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity \
     WHERE application_name = 'fencelock' ORDER BY random() LIMIT 1) AS one"
}

const POOLED: &str = "PostgreSQL, pgbouncer";

/// Behind a pooler of transactions. (Red: what a pooler tells of its server's end is final.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_behind_a_pooler_is_restarted() {
    let server = durable();
    let pooler = PgBouncer::start(&server, "transaction");
    stories::server_restarted(POOLED, &server, &server.url_through(&pooler), LEASES).await;
}
/// (Red: a connection that broke and is kept.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_is_restarted() {
    let server = Server::start();
    let pooler = PgBouncer::start(&server, "transaction");
    let again = || {
        pooler.kill();
        pooler.restart();
    };
    let what = format!("{POOLED} itself");
    stories::restarted(&what, &server, &server.url_through(&pooler), again, LEASES).await;
}
/// What the pooler has at the server. (Red: what a pooler tells of its server's end is final.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_behind_a_pooler_that_are_killed_at_any_step() {
    let server = Server::start();
    let pooler = PgBouncer::start(&server, "transaction");
    stories::killed_at_any_step(POOLED, &server, &server.url_through(&pooler), CLAIMS, LEASES).await;
}
/// It takes no more clients. (Red: those who renew and wait have a connection of their own, or none.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_to_a_pooler_does_for_all() {
    let server = Server::start();
    let pooler = PgBouncer::with_clients(&server, "transaction", 2);
    let url = server.url_through(&pooler);
    stories::one_connection(&url, || ()).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_behind_a_pooler() {
    let server = Server::start();
    let pooler = PgBouncer::start(&server, "transaction");
    stories::names_by(&server, &server.url_through(&pooler)).await;
}
