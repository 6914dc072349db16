//! How long a hand-over takes between processes: of leases, which are looked for, or told by doorbells; of sessions; and of the bare
//! `GET_LOCK`, one after the other in one run. The server's data lie in memory.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
mod beside;

use beside::Side;
use fencelock_testkit::{
    MariaDb,
    bench::{between, is_worker},
};
use std::time::Duration;

const LIMITS: [Duration; 2] = [Duration::from_millis(30), Duration::from_millis(1)];

fn main() {
    if is_worker::<Side>() {
        return;
    }
    for processes in [2, 16] {
        let ways = [("ours", ""), ("ours", "?doorbell=on"), ("ours", "?strategy=session"), ("bare", "")];
        let [leases, doorbells, sessions, bare] = ways.map(|(kind, way)| {
            let server = MariaDb::start();
            between::<Side>(kind, processes, Some(&(server.url() + way)))
        });
        let what = format!("hand-over between {processes} processes on MariaDB");
        for (how, took, limit) in [("polling", leases, LIMITS[0]), ("by doorbell", doorbells, LIMITS[1])] {
            let verdict = if took.p50 <= limit { "ok" } else { "MISSED" };
            let figure = format!("{:.2?}, p99 {:.2?} (bare GET_LOCK {:.2?})", took.p50, took.p99, bare.p50);
            println!("MEASURED | {what}, {how}, p50 | {figure} | <= {limit:?} | {verdict}");
        }
        sessions.compare(&format!("{what}, sessions, p50, to the bare GET_LOCK"), bare, 1.5);
    }
}
