//! The real core, its keeper and its guards over the memory engine on paused time: everything follows from a seed, and is
//! judged by the invariants of VERIFY. A seed that fails is replayed by its number.
mod clock;
mod coverage;
mod history;
mod judge;
mod line;
mod nemesis;
mod plan;
mod probe;
mod work;
mod world;

pub use judge::Breach;
pub use probe::{heartbeat_creates_nothing, stop_is_ordered};
use std::collections::BTreeMap;

/// What a seed came to.
#[derive(Debug)]
pub struct Verdict {
    /// Which.
    pub seed: u64,
    /// What was wrong, the earliest first.
    pub breaches: Vec<Breach>,
    /// The same for the same history.
    pub fingerprint: u64,
    /// How long it was, in nanoseconds of its clock.
    pub simulated: u64,
    /// What happened how often.
    pub coverage: BTreeMap<&'static str, u64>,
}

/// What must happen at least once in a run of many seeds.
pub const MUST_HAPPEN: &[&str] = coverage::MUST;

/// Runs the history of a seed, and judges it.
pub fn run(seed: u64) -> Verdict {
    told(seed, false).0
}
/// The same, with the history as people read it.
pub fn tell(seed: u64) -> (Verdict, String) {
    told(seed, true)
}
fn told(seed: u64, text: bool) -> (Verdict, String) {
    let (plan, events) = world::history(seed);
    let mut verdict = Verdict {
        seed,
        breaches: judge::judge(&plan, &events),
        fingerprint: history::fingerprint(&events),
        simulated: events.last().map_or(0, |event| event.at),
        coverage: BTreeMap::new(),
    };
    coverage::count(&judge::Record::new(&plan, &events), &mut verdict.coverage);
    let mut story = String::new();
    if text {
        story = format!("{plan:#?}\n");
        for event in &events {
            story.push_str(&format!("{event}\n"));
        }
    }
    (verdict, story)
}
