//! What the clocks of servers show that we were led away from: tokens rise over what these take along (SAFETY T1).
//!
//! *Invariant:* what a server made before we were led away from it is no greater than what its clock shows by then, or than what the clock
//! shows that those have seen who made it there. Each client lets that clock go on by its own, for not all are led away at once; a little
//! slower than clocks go, so that one that was ahead of all others is forgotten in the end. Nothing is added for drift: a client that was
//! idle for hours would be ahead of servers whose clocks agree, and its tokens with it.
use super::server::Server;
use fencelock_core::{BootClock, Clock, Moment, ServerTime};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// In so many times of what it was ahead.
const FORGOTTEN: i64 = 16;

#[derive(Debug, Default)]
pub(super) struct Left(Mutex<Inner>);
#[derive(Debug, Default)]
struct Inner {
    /// Of those that one server after the other is.
    last: Option<Arc<Server>>,
    clock: Option<(i64, Moment)>,
}
impl Left {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The primary is this one. *Invariant:* before the first command is sent there.
    pub(super) fn led_to(&self, server: &Arc<Server>) {
        let mut inner = self.inner();
        let before = inner.last.replace(server.clone()).filter(|before| !Arc::ptr_eq(before, server));
        if let Some(before) = before {
            inner.leave(&before.time, BootClock.now());
        }
    }
    pub(super) fn leave(&self, server: &Server) {
        self.inner().leave(&server.time, BootClock.now());
    }
    /// What it shows now; 0: no server was left yet, and no clock is asked.
    pub(super) fn floor(&self) -> i64 {
        let clock = self.inner().clock;
        clock.map_or(0, |clock| shows(clock, BootClock.now()))
    }
}
impl Inner {
    fn leave(&mut self, time: &ServerTime, now: Moment) {
        let Some(shown) = time.shows(now) else { return };
        if self.clock.is_none_or(|clock| shows(clock, now) < shown) {
            self.clock = Some((shown, now));
        }
    }
}
fn shows((showed, at): (i64, Moment), now: Moment) -> i64 {
    let since = i64::try_from(at.until(now).as_micros()).unwrap_or(0);
    showed + since - since / FORGOTTEN
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: the clock of whichever was left last; one that stands still; one that is never forgotten; one to which
    //! drift is added.
    use super::*;

    const SEC: i64 = 1_000_000;
    fn at(seconds: i64) -> Moment {
        Moment::from_nanos(u64::try_from(seconds).unwrap() * 1_000_000_000)
    }
    /// It is so many seconds ahead of ours.
    fn clock(ahead: i64) -> ServerTime {
        let time = ServerTime::default();
        time.seen(at(100), at(100), (100 + ahead) * SEC);
        time
    }

    #[test]
    fn the_clock_that_is_ahead_goes_on_and_is_forgotten() {
        let mut left = Inner::default();
        left.leave(&ServerTime::default(), at(100));
        assert!(left.clock.is_none(), "nothing was seen of it");
        left.leave(&clock(0), at(101));
        let now = |left: &Inner, seconds| shows(left.clock.unwrap(), at(seconds));
        assert!(now(&left, 101) >= 101 * SEC);
        left.leave(&clock(0), at(36_000));
        assert!(
            now(&left, 36_000) <= 36_000 * SEC + SEC / 100,
            "idle for hours, and no further ahead than the clock is"
        );
        let mut left = Inner::default();
        left.leave(&clock(0), at(101));
        left.leave(&clock(60), at(102));
        let first = now(&left, 102);
        assert!(first >= 162 * SEC);
        left.leave(&clock(0), at(103));
        assert!(now(&left, 103) >= first + SEC * 9 / 10, "what is made there meanwhile is above it, too");
        assert!(now(&left, 102 + 60 * 17) < (102 + 60 * 17) * SEC, "by now it is behind the others");
    }
}
