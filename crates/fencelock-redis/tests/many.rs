//! Many locks held at once, and many names taken once: a small part of what the benchmark of this name does.
#[path = "../benches/many.rs"]
mod many;
use many::common::MS;

#[test]
fn thousands_are_held() {
    // A lease that a machine of an eighth of a core keeps as well, and longer than the renewals of all: each is renewed here once.
    many::held(2_000, 15_000 * MS, 8_000 * MS);
}

#[test]
fn names_that_are_taken_once_leave_nothing() {
    many::names(20_000);
}
