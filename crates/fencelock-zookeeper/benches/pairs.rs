//! Uncontended pairs a second, ours beside the bare driver sending the same operations.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
mod beside;

fn main() {
    fencelock_testkit::bench::pairs::<beside::Side>();
}
