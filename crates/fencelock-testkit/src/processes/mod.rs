//! Tests between processes: workers that are the test's own binary, started again, and judges of what they did. Everything here is
//! the same for every engine; how a client is made is the test's.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod roles;
mod scene;
mod spans;
pub mod stories;
mod worker;

pub use roles::{added, play, work};
pub use scene::{Cuts, Scene};
pub use spans::{Span, judge, longest, longest_beyond_the_holds, parse, run, tokens_rise};
pub use worker::{Worker, first_in, now, say};

use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    fmt::Display,
    thread,
    time::{Duration, Instant},
};

/// Runs these, one after the other: they load the machine as they need it, and side by side they would only measure each other.
pub fn trials(trials: &[(&str, fn())]) -> ! {
    let trial = |&(name, run): &(&str, fn())| {
        Trial::test(name, move || {
            run();
            Ok::<(), Failed>(())
        })
    };
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.iter().map(trial).collect()).exit()
}
/// In full and with times judged, or at a tenth.
pub fn full() -> bool {
    std::env::var_os("FENCELOCK_PROVE").is_some_and(|v| v == "1")
}
/// In full, or at a tenth.
pub fn tenth(n: usize) -> usize {
    if full() { n } else { (n / 10).max(1) }
}
/// A bar: printed always, judged in full runs.
///
/// # Panics
/// It was missed in a full run.
pub fn bar(what: &str, figure: impl Display, limit: &str, ok: bool) {
    println!("\nMEASURED | {what} | {figure} | {limit} | {}", if ok { "ok" } else { "MISSED" });
    assert!(ok || !full(), "{what}: {figure}, the bar is {limit}");
}
/// The p-th percentile.
pub fn percentile(values: &mut [Duration], p: f64) -> Duration {
    values.sort_unstable();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an index")]
    let at = ((values.len() as f64 * p).ceil() as usize).clamp(1, values.len()) - 1;
    values[at]
}
/// Waits for a condition, with a deadline.
///
/// # Panics
/// It is over.
pub fn eventually(what: &str, within: Duration, mut yes: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !yes() {
        assert!(started.elapsed() < within, "{what}: not within {within:?}");
        thread::sleep(Duration::from_millis(1));
    }
    started.elapsed()
}
