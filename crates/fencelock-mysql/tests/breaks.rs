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
use fencelock_mysql::{Config, MysqlEngine as Engine};
use fencelock_testkit::{
    MariaDb as Server,
    processes::{bar, percentile, tenth},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

const NAME: &str = "MariaDB";
/// Those who hold, and those who wait.
const LEASES: &str = "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE hold IS NOT NULL) \
                      + (SELECT COUNT(*) FROM fencelock_holder) + (SELECT COUNT(*) FROM fencelock_waiter)";
const SESSIONS: &str = "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE IS_USED_LOCK(named) IS NOT NULL) \
                        + (SELECT COUNT(*) FROM fencelock_bearer)";
/// Rows of ShedLock's table that are held.
const ROWS: &str = "SELECT COUNT(*) FROM shedlock WHERE lock_until > UTC_TIMESTAMP(3)";
/// There are no others of sessions.
const SESSION_CLAIMS: [(&str, Claim, Claim); 4] = stories::MUTEXES;
const FEW_CONNECTIONS: &[&str] = &["--max-connections=12"];
const IMPATIENT: &[&str] = &[
    "--max-statement-time=1",
    "--wait-timeout=2",
    "--interactive-timeout=2",
    "--idle-transaction-timeout=1",
    "--lock-wait-timeout=1",
];
const WAYS: [&str; 3] = ["", "?doorbell=on", stories::SESSION];

fn held(server: &Server) -> String {
    let all = "SELECT COALESCE(GROUP_CONCAT(CONCAT('(IS_USED_LOCK(X''', HEX(named), ''') IS NOT NULL)') SEPARATOR ' + '), '0') \
               FROM fencelock_lock";
    format!("SELECT {}", server.ask(all))
}
/// What it said that it has it has when it was killed.
fn durable() -> Server {
    Server::with(&["--innodb-flush-log-at-trx-commit=2"])
}
/// Ends one of our connections, whichever; how many those were.
fn kills(server: &Server) -> &'static str {
    server.ask(
        "DELIMITER //\nCREATE PROCEDURE kills() BEGIN DECLARE one BIGINT; \
           DECLARE CONTINUE HANDLER FOR 1094 SET one = NULL; \
           SELECT id INTO one FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID() \
             ORDER BY RAND() LIMIT 1; \
           IF one IS NOT NULL THEN KILL one; END IF; SELECT one IS NOT NULL; END//",
    );
    "CALL kills()"
}

const DOORBELLS: &str = "?doorbell=on";

/// The same by doorbells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doorbells_over_a_server_that_is_restarted() {
    let server = durable();
    stories::server_restarted("MariaDB, doorbells", &server, &(server.url() + DOORBELLS), LEASES).await;
}
/// (Red: a look that breaks off ends the wait.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doorbells_that_are_killed_at_any_step() {
    let server = Server::start();
    stories::killed_at_any_step("MariaDB, doorbells", &server, &(server.url() + DOORBELLS), CLAIMS, LEASES).await;
}
