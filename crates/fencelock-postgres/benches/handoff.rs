//! How long a hand-over takes between processes: ours, and the bare driver's (release, word of it by `NOTIFY`, one call), one after the other
//! in one run. The server's data lie in memory.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
mod beside;

use std::time::Duration;

const LIMIT: Duration = Duration::from_millis(2);

fn main() {
    fencelock_testkit::bench::handoff::<beside::Side>(|processes, ours| {
        let verdict = if ours.p50 <= LIMIT { "ok" } else { "MISSED" };
        let figure = format!("{:.2?}, p99 {:.2?}", ours.p50, ours.p99);
        println!(
            "MEASURED | hand-over between {processes} processes on PostgreSQL, p50 | {figure} | <= {LIMIT:?} | {verdict}"
        );
    });
}
