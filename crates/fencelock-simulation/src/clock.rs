//! Clocks that disagree. True time is tokio's, paused; the server's clock shows it, a client's wanders around it.
use fencelock_core::{Clock, Moment};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Nanoseconds of true time since the world began.
pub(crate) type Nanos = u64;

pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const SEC: Nanos = 1_000_000_000;
/// What every clock shows when the world begins: later than every wander.
const START: Nanos = 100 * SEC;

/// How one clock goes: ahead at its rate until it is `wander` ahead, then behind at its rate until it is as much behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Drift {
    /// Parts in a million. The core allows for a hundredth.
    pub(crate) ppm: u64,
    pub(crate) wander: Nanos,
    pub(crate) phase: Nanos,
}
impl Drift {
    /// What it shows at `at`.
    pub(crate) fn read(self, at: Nanos) -> Nanos {
        let straight = START + at;
        if self.ppm == 0 || self.wander == 0 {
            return straight;
        }
        let half = 2 * self.wander * 1_000_000 / self.ppm;
        let place = (at + self.phase) % (2 * half);
        let gone = |for_so_long: Nanos| for_so_long * self.ppm / 1_000_000;
        let above = if place < half { gone(place) } else { 2 * self.wander - gone(place - half) };
        straight + above - self.wander
    }
    /// The true time at which it shows `moment`.
    pub(crate) fn when(self, moment: Moment) -> Nanos {
        let shown = moment.as_nanos();
        let (mut low, mut high) =
            (shown.saturating_sub(START + self.wander), shown.saturating_add(self.wander).saturating_sub(START));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.read(middle) < shown {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// True time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(Instant);
impl Time {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
    pub(crate) fn now(self) -> Nanos {
        nanos(self.0.elapsed())
    }
    pub(crate) fn server(self) -> Arc<dyn Clock> {
        self.client(Drift::default())
    }
    pub(crate) fn client(self, drift: Drift) -> Arc<dyn Clock> {
        Arc::new(ClientClock(self, drift))
    }
}
pub(crate) fn nanos(d: Duration) -> Nanos {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug)]
struct ClientClock(Time, Drift);
impl Clock for ClientClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.1.read(self.0.now()))
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: `half` without the 2, the rate taken twice.
    use super::*;

    #[test]
    fn a_clock_wanders_no_farther_and_no_faster_than_it_says() {
        let drift = Drift { ppm: 9_900, wander: 200 * MS, phase: 17 * SEC };
        let mut before = drift.read(0);
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        for step in 1..20_000u64 {
            let at = step * 10 * MS;
            let shown = drift.read(at);
            let went = shown - before;
            assert!(went.abs_diff(10 * MS) <= 99_001, "{went}");
            let off = i64::try_from(shown).unwrap() - i64::try_from(START + at).unwrap();
            (least, most) = (least.min(off), most.max(off));
            before = shown;
        }
        assert!(least < -199_000_000 && most > 199_000_000, "{least} {most}");
        assert!(least >= -200_000_001 && most <= 200_000_001, "{least} {most}");
    }

    #[test]
    fn when_is_the_first_moment_that_it_shows() {
        let drift = Drift { ppm: 9_900, wander: 250 * MS, phase: 3 * SEC };
        for step in 0..5_000u64 {
            let shown = drift.read(step * 7_777_777);
            let when = drift.when(Moment::from_nanos(shown));
            assert_eq!(drift.read(when), shown);
            assert!(when == 0 || drift.read(when - 1) < shown);
        }
    }
}
