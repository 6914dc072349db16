//! How long a hand-over takes between processes: of leases, and the bare driver's (release, word of it by `NOTIFY`, one call); and of
//! sessions, and the bare `pg_advisory_lock`; one after the other in one run. The server's data lie in memory.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
mod beside;

use beside::Side;
use fencelock_testkit::{
    Postgres,
    bench::{Handed, between, handoff},
};
use std::time::Duration;

fn main() {
    handoff::<Side>(|processes, leases| {
        let told = |how: &str, took: Handed, limit: Duration, beside: &str| {
            let verdict = if took.p50 <= limit { "ok" } else { "MISSED" };
            let figure = format!("{:.2?}, p99 {:.2?}{beside}", took.p50, took.p99);
            let what = format!("hand-over between {processes} processes on PostgreSQL{how}, p50");
            println!("MEASURED | {what} | {figure} | <= {limit:?} | {verdict}");
        };
        let server = Postgres::start();
        let sessions = between::<Side>("ours", processes, Some(&(server.url() + "?strategy=session")));
        let server = Postgres::start();
        let bare = between::<Side>("bare", processes, Some(&(server.url() + "?strategy=session")));
        told("", leases, Duration::from_millis(2), "");
        let beside = format!(" (bare pg_advisory_lock {:.2?})", bare.p50);
        told(", sessions", sessions, Duration::from_micros(600), &beside);
    });
}
