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
    MariaDb as Server, abandon, panics,
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

const NAME: &str = "MariaDB";
const SESSION_CLAIMS: usize = 1;
/// Those who hold, and those who wait.
const LEASES: &str = "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE hold IS NOT NULL) \
                      + (SELECT COUNT(*) FROM fencelock_holder) + (SELECT COUNT(*) FROM fencelock_waiter)";
const SHARED: &str = "SELECT COUNT(*) FROM shedlock WHERE lock_until > UTC_TIMESTAMP(6)";
const SESSIONS: &str = "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE IS_USED_LOCK(named) IS NOT NULL) \
                        + (SELECT COUNT(*) FROM fencelock_bearer)";

/// (Red: a withdrawal that does nothing.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_orphan_by_a_doorbell() {
    stories::no_orphan_outlives_its_attempt("MariaDB, doorbells", "?doorbell=on", &CLAIMS, LEASES).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_by_a_doorbell_that_is_dropped_at_every_point() {
    stories::dropped_at_every_point("MariaDB, doorbells", "?doorbell=on", &CLAIMS[..1], LEASES).await;
}
