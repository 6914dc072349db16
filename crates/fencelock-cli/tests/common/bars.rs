//! Bars: figures with a limit. In full with FENCELOCK_PROVE=1, at a tenth without; times are judged only in full.

use std::fmt::Display;
use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) fn full() -> bool {
    std::env::var_os("FENCELOCK_PROVE").is_some_and(|v| v == "1")
}

/// In full, or at a tenth.
pub(crate) fn tenth(n: usize) -> usize {
    if full() { n } else { (n / 10).max(1) }
}

/// A bar: printed always, judged in full runs.
pub(crate) fn bar(what: &str, figure: impl Display, limit: &str, ok: bool) {
    println!("\nMEASURED | {what} | {figure} | {limit} | {}", if ok { "ok" } else { "MISSED" });
    assert!(ok || !full(), "{what}: {figure}, the bar is {limit}");
}

/// A bar for the 99th percentile, beside what the machine itself takes in the same minute.
pub(crate) fn p99(what: &str, mut times: Vec<Duration>, limit: Duration) {
    let (p50, p99) = (percentile(&mut times, 0.5), percentile(&mut times, 0.99));
    let figure = format!("{p99:.1?} of {}, p50 {p50:.1?} ({})", times.len(), machine());
    bar(&format!("{what}, p99"), figure, &format!("≤ {limit:?}"), p99 <= limit);
}

/// The p-th percentile.
pub(crate) fn percentile(values: &mut [Duration], p: f64) -> Duration {
    values.sort_unstable();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an index")]
    let at = ((values.len() as f64 * p).ceil() as usize).clamp(1, values.len()) - 1;
    values[at]
}

/// A bare fork+exec and a bare fsync.
fn machine() -> String {
    let start = Instant::now();
    Command::new("true").status().expect("true");
    let exec = start.elapsed();
    let path = std::env::temp_dir().join(format!("fencelock-fsync-{}", std::process::id()));
    let file = File::create(&path).expect("a file");
    let start = Instant::now();
    let _ = file.set_len(4096).and_then(|()| file.sync_all());
    let fsync = start.elapsed();
    let _ = std::fs::remove_file(path);
    format!("fork+exec {exec:.1?}, fsync {fsync:.1?}")
}
