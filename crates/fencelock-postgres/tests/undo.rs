//! Attempts that are given up: what is left of one ends with it, whatever becomes of what it had sent.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/undo.rs"]
mod stories;
use common::*;
use fencelock_conformance::proxy::{Proxy, Trouble};
use fencelock_core::{Claim, Client};
use fencelock_testkit::{
    Postgres as Server, abandon, panics,
    processes::{bar, full},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    task::Poll,
    time::{Duration, Instant},
};
use tokio::task::block_in_place;

const NAME: &str = "PostgreSQL";
const SESSION_CLAIMS: usize = 3;
/// Those who hold, and those who wait.
const LEASES: &str = "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE hold IS NOT NULL) \
                      + (SELECT COUNT(*) FROM fencelock_holder) + (SELECT COUNT(*) FROM fencelock_waiter)";
const SHARED: &str = "SELECT count(*) FROM shedlock WHERE lock_until > timezone('utc', clock_timestamp())";
const SESSIONS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";

/// Behind a pooler of transactions. (Red: a withdrawal that does nothing.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_orphan_behind_a_pooler() {
    let server = Server::start();
    let (_pooler, proxy, url) = pooled(&server);
    stories::no_orphan_by("PostgreSQL, pgbouncer", (server, proxy), &url, &CLAIMS, LEASES).await;
}
/// Who reads and who writes, in sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_orphan_of_readers_and_writers_in_a_session() {
    let what = "PostgreSQL, sessions, readers and writers";
    stories::no_orphan_outlives_its_attempt(what, "?strategy=session", &CLAIMS[1..3], SESSIONS).await;
}
