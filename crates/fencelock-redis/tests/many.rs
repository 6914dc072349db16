//! Many locks held at once, and many names taken once: a small part of what the benchmark of this name does.
#[path = "../benches/many.rs"]
mod many;
use many::common::MS;

#[test]
fn thousands_are_held() {
    many::held(4_000, 3_000 * MS, 6_000 * MS);
}

#[test]
fn names_that_are_taken_once_leave_nothing() {
    many::names(20_000);
}
