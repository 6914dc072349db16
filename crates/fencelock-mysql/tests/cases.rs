//! Cases of the peers' suites, on MariaDB.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/cases.rs"]
mod stories;
use common::*;
use fencelock_conformance::within;
use fencelock_core::{BootClock, Claim, Client, Clock, ErrorKind, LossReason};
use fencelock_testkit::{
    MariaDb as Server,
    processes::{bar, full, tenth},
};
use std::{
    future::ready,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

const NAME: &str = "MariaDB";
const OURS: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()";
const SESSIONS: &str = "SELECT COUNT(*) FROM fencelock_lock WHERE IS_USED_LOCK(named) IS NOT NULL";
/// A transaction that sees what was there when it first looked.
const SNAPSHOT: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION";

fn end_session(server: &Server, name: &str) {
    let pid = server.ask(&format!("SELECT pid FROM fencelock_lock WHERE name = '{name}'"));
    server.ask(&format!("KILL {pid}"));
}
/// Leases that are over: of a mutex, and of a reader, for longer than such an end is kept.
fn dead(server: &Server) {
    let now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    for (name, kind, claim) in [("dead", "mutex", "m"), ("dead reader", "rw_lock", "r")] {
        server.ask(&format!(
            "CALL fencelock_acquire('', '{name}', RANDOM_BYTES(16), '{kind}', '{claim}', 1, 0, 1000, {now} + 1000000, 0, FALSE, \
             RANDOM_BYTES(16), NULL, 'h 1 ')"
        ));
    }
    server.ask("UPDATE fencelock_holder SET ends = ends - 120000000 WHERE name = 'dead reader'");
}
/// Whatever is written to the table is refused.
fn refuse(server: &Server, table: &str) {
    for event in ["INSERT", "UPDATE", "DELETE"] {
        let says = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'out of ink'";
        server.ask(&format!("CREATE TRIGGER refuse_{event} BEFORE {event} ON {table} FOR EACH ROW {says}"));
    }
}
fn refuse_no_more(server: &Server, _table: &str) {
    server.ask("DROP TRIGGER refuse_INSERT; DROP TRIGGER refuse_UPDATE; DROP TRIGGER refuse_DELETE");
}
fn clean(server: &Server) {
    server.ask("DO SLEEP(0.01); CALL fencelock_clean(1000)");
}
fn cleaning(server: &Server) -> Command {
    server.client("CALL fencelock_clean(0)")
}
/// Ten that are idle, which are found first, and very many that are held.
fn many() -> String {
    format!(
        "TRUNCATE fencelock_lock; INSERT INTO fencelock_lock (space, name, kind, fence) \
         SELECT '', CONCAT('#', seq), 'mutex', 1 FROM seq_0_to_9; \
         INSERT INTO fencelock_lock (space, name, kind, fence, hold, ttl, ends, since, who) SELECT '', CONCAT('m', seq), 'mutex', 1, \
         RANDOM_BYTES(16), 3600000000, 4000000000000000, 1, 'h 1 ' FROM seq_1_to_{HELD}"
    )
}
const HELD: u32 = 1_000_000;
const CLEANING: &str =
    "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'CALL fencelock_clean(0)' AND time_ms > 20";
const HELD_UNTIL: &str = "SELECT ends FROM fencelock_holder";
const LATE_SETTLE: &str = "SELECT kind INTO @kind FROM fencelock_lock; \
    CALL fencelock_settle('', 'x', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - 5000000, @kind, NULL, NULL, @ends)";
const SILENT: &str = "UPDATE fencelock_client SET ends = ends - 120000000";
