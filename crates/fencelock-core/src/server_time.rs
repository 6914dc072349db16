//! What is known of the server's clock: for the end of a command that may create (SAFETY A2), and never for validity.
use crate::clock::Moment;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The server's clock shows so much more than ours: at least, and at most. In µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    least: i64,
    most: i64,
    taken: i64,
}
impl Sample {
    fn spread(self) -> i64 {
        self.most - self.least
    }
}
/// Where a server's clock stands, as its answers tell it: an engine whose commands have an end by that clock needs to know (SAFETY A2).
/// Never for validity.
///
/// ```
/// use fencelock_core::{Moment, ServerTime};
/// use std::time::Duration;
///
/// let (time, now) = (ServerTime::default(), Moment::from_nanos(1_000_000_000));
/// time.seen(now, now + Duration::from_millis(1), 5_000_000);
/// let (end, _) = time.end(now, Duration::from_millis(500)).unwrap();
/// assert!(end >= 5_500_000);
/// ```
#[derive(Debug, Default)]
pub struct ServerTime(Mutex<Option<Sample>>);

/// A sample is as good as a better one for so long.
const FRESH: i64 = 10_000_000;
/// Two clocks drift apart by less than this part.
const DRIFT: i64 = 1_000;

fn us(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos() / 1_000).unwrap_or(i64::MAX / 4)
}

impl ServerTime {
    /// So often a command whose end was past when it arrived is sent again: its answer tells the time, but where the clock is being set others
    /// that are under way tell the old one.
    pub const AGAIN: u32 = 3;

    fn sample(&self) -> MutexGuard<'_, Option<Sample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The server's clock showed `micros` between these two moments of ours.
    pub fn seen(&self, sent: Moment, received: Moment, micros: i64) {
        let new = Sample { least: micros - us(received), most: micros - us(sent), taken: us(received) };
        let mut best = self.sample();
        let keep = best.is_some_and(|old| {
            let slack = FRESH / DRIFT;
            let agree = new.least <= old.most + slack && old.least <= new.most + slack;
            agree && new.taken - old.taken < FRESH && old.spread() <= new.spread()
        });
        if !keep {
            *best = Some(new);
        }
    }
    /// Its clock shows no more than this `later` than `now`, and at that moment by ours it shows at least that, if it was not
    /// set meanwhile, after another so long. `None`: nothing was seen of it yet.
    pub fn end(&self, now: Moment, later: Duration) -> Option<(i64, Duration)> {
        let best = (*self.sample())?;
        let later = i64::try_from(later.as_micros()).unwrap_or(i64::MAX / 4);
        let slack = (us(now) - best.taken).max(0) / DRIFT;
        let more = u64::try_from(best.spread() + 2 * slack).unwrap_or(0);
        Some((us(now) + best.most + slack + later, Duration::from_micros(more)))
    }
    /// What its clock shows, as far as is known; nothing is added for what two clocks drift apart. `None`: nothing was seen of it yet.
    pub fn shows(&self, now: Moment) -> Option<i64> {
        let best = (*self.sample())?;
        Some(us(now) + best.most)
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: the newest sample always kept; `least` for `most`.
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn an_end_is_never_too_early_and_known_to_be_over_in_time() {
        let time = ServerTime::default();
        assert_eq!(time.end(at(1), Duration::ZERO), None);
        // The server is 5 s ahead; the answer took 10 ms, 4 of them on the way there.
        time.seen(at(1_000), at(1_010), 6_004_000);
        let (end, spread) = time.end(at(1_020), Duration::from_millis(500)).unwrap();
        assert!(end >= 6_520_000, "by the server's clock it is 6.520 s in 500 ms: {end}");
        let known = at(1_020) + Duration::from_millis(500) + spread;
        assert!(us(known) + 5_000_000 >= end, "{known:?}");
        assert!(spread <= Duration::from_millis(11), "{spread:?}");
        let hours = 36_000_000;
        let shown = time.shows(at(1_020 + hours)).unwrap();
        let real = us(at(1_020 + hours)) + 5_000_000;
        assert!((real..real + 10_000).contains(&shown), "ten hours later, and no further ahead: {shown}");
    }
    #[test]
    fn a_quick_answer_is_kept_and_a_clock_that_was_set_is_believed() {
        let time = ServerTime::default();
        time.seen(at(1_000), at(1_001), 6_000_500);
        time.seen(at(2_000), at(2_400), 7_200_000);
        assert!(time.end(at(2_400), Duration::ZERO).unwrap().1 < Duration::from_millis(5));
        time.seen(at(3_000), at(3_400), 68_200_000);
        let (end, spread) = time.end(at(3_400), Duration::ZERO).unwrap();
        assert!(end >= 68_200_000 && spread >= Duration::from_millis(400), "{end} {spread:?}");
        time.seen(at(14_000), at(14_500), 79_200_000);
        assert!(
            time.end(at(14_500), Duration::ZERO).unwrap().1 >= Duration::from_millis(500),
            "the old one is too old"
        );
    }
}
