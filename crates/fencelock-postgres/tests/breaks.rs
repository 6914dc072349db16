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
    Postgres as Server,
    processes::{bar, percentile, tenth},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

const NAME: &str = "PostgreSQL";
/// Those who hold, and those who wait.
const LEASES: &str = "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE hold IS NOT NULL) \
                      + (SELECT COUNT(*) FROM fencelock_holder) + (SELECT COUNT(*) FROM fencelock_waiter)";
const SESSIONS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
const FEW_CONNECTIONS: &[&str] = &["max_connections=12"];

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
