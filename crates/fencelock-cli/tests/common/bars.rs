//! A bar beside what the machine itself takes.

use fencelock_testkit::processes::{bar, percentile};
use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

/// A bar for the 99th percentile, beside what the machine itself takes in the same minute.
pub(crate) fn p99(what: &str, mut times: Vec<Duration>, limit: Duration) {
    let (p50, p99) = (percentile(&mut times, 0.5), percentile(&mut times, 0.99));
    let figure = format!("{p99:.1?} of {}, p50 {p50:.1?} ({})", times.len(), machine());
    bar(&format!("{what}, p99"), figure, &format!("≤ {limit:?}"), p99 <= limit);
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
