//! Uncontended pairs a second, ours beside the bare driver sending the same calls.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
mod beside;

use fencelock_testkit::bench::{compare, is_pinned, pairs};

fn main() {
    pairs::<beside::Side>();
    if !is_pinned() {
        compare::<beside::Side<true>>(16, "flushed at each commit", ">= 0.9");
    }
}
