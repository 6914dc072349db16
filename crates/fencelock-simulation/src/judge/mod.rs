//! Right or wrong. Each checker has the id of its invariant, and a planted history that it must refuse.
mod exclusion;
mod loss;
mod order;
#[cfg(test)]
mod planted;
mod progress;
mod record;
mod rest;
mod tokens;

use crate::{clock::Nanos, history::Event, plan::Plan};
pub(crate) use record::{Answer, NEVER, Record, Trouble};
use std::fmt;

/// An invariant that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Its id: see VERIFY.
    pub checker: &'static str,
    /// When, in nanoseconds of the simulated time.
    pub at: Nanos,
    /// What was wrong.
    pub what: String,
}
impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: at {}.{:06} s: {}",
            self.checker,
            self.at / 1_000_000_000,
            self.at % 1_000_000_000 / 1_000,
            self.what
        )
    }
}
pub(crate) type Breaches = Vec<Breach>;
pub(crate) fn breach(all: &mut Breaches, checker: &'static str, at: Nanos, what: String) {
    all.push(Breach { checker, at, what });
}

/// The first breach of each checker, the earliest first.
pub(crate) fn judge(plan: &Plan, events: &[Event]) -> Breaches {
    let record = Record::new(plan, events);
    let mut all = Vec::new();
    for check in [exclusion::check, tokens::check, loss::check, order::check, progress::check, rest::check] {
        check(&record, &mut all);
    }
    all.sort_by_key(|breach| breach.at);
    all
}
