//! How often is looked for what nothing tells.
use crate::Moment;
use std::time::Duration;

/// So often the first of all looks, in ms, and when that has been in vain for a while; and at the very beginning, since those in front
/// of it may have been quick.
const FIRST: u64 = 40;
const FIRST_LATER: u64 = 150;
const EAGER: Duration = Duration::from_secs(5);
const FIRST_AT_ONCE: u64 = 20;
const QUICK: Duration = Duration::from_millis(200);
/// Everybody else looks when his turn may be near, but at least and at most this often.
const SOON: Duration = Duration::from_millis(20);
const LOOK: u64 = 1_400;
/// Nobody has it: whoever is in front may be gone.
const FREE: Duration = Duration::from_millis(250);
/// With so many in front it may be his turn next.
const NEAR: u32 = 3;
/// Those who wait for a lease to end look one after the other.
const APART: Duration = Duration::from_millis(60);

/// When a waiter looks whether his turn has come, where nothing tells him: the first of all every 20 ms, then every 40 ms for a
/// while, everybody else when his turn may be near by how fast the queue has moved so far, and every 1.4 to 1.75 s at least.
///
/// # Examples
///
/// ```
/// use fencelock_core::{BootClock, Clock, Pace};
/// use std::time::Duration;
///
/// let mut pace = Pace::new(BootClock.now());
/// let first = Some(0);
/// assert!(pace.nap(BootClock.now(), first, None) < Duration::from_millis(50));
/// // A lease that ends is looked at soon after it; those behind the first one after the other.
/// let ends = Some(Duration::from_millis(10));
/// assert_eq!(pace.nap(BootClock.now(), first, ends), Duration::from_millis(12));
/// ```
#[derive(Debug)]
pub struct Pace {
    /// The first since then.
    first: Option<Moment>,
    /// So many were in front when that changed the last time, and how long one of them took.
    ahead: u32,
    changed: Moment,
    each: Option<Duration>,
}
impl Pace {
    /// Of one who begins to wait now.
    #[must_use]
    pub fn new(now: Moment) -> Self {
        Self { first: None, ahead: u32::MAX, changed: now, each: None }
    }
    /// Until the next look: when something ends by itself, those in front first; when it may be this one's turn to be the first, as those
    /// in front have gone so far; and now and then.
    pub fn nap(&mut self, now: Moment, ahead: Option<u32>, rest: Option<Duration>) -> Duration {
        let ahead = ahead.unwrap_or(0);
        let look = if ahead == 0 {
            let been = self.first.get_or_insert(now).until(now);
            let most = if been < QUICK {
                FIRST_AT_ONCE
            } else if been < EAGER {
                FIRST
            } else {
                FIRST_LATER
            };
            Duration::from_millis(fastrand::u64(most * 4 / 5..most * 6 / 5))
        } else {
            self.first = None;
            let gone = self.changed.until(now);
            if ahead < self.ahead {
                if self.ahead < u32::MAX {
                    self.each = Some(gone / (self.ahead - ahead));
                }
                (self.ahead, self.changed) = (ahead, now);
            }
            let most = Duration::from_millis(fastrand::u64(LOOK..LOOK * 5 / 4));
            match self.each {
                // Nobody has gone yet: they may be quick, and whoever overslept would hold up all behind him.
                None => (gone * 2).clamp(SOON, most),
                // Nobody has gone for longer than that: they take longer. A quarter of what it may take: those who overslept would be
                // what the others see as slow, and would sleep longer still.
                Some(each) => {
                    let each = each.max(self.changed.until(now));
                    (each * ahead.saturating_sub(NEAR).clamp(1, 100) / 4).clamp(SOON, most)
                }
            }
        };
        rest.map_or(look.min(FREE), |rest| (rest + APART * ahead + Duration::from_millis(2)).min(look))
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: everybody as often as the first, or once a second; the first for ever.
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// How many looks in the first seconds.
    fn looks(seconds: u64, ahead: impl Fn(Duration) -> u32) -> u32 {
        let began = Moment::from_nanos(1);
        let (mut pace, mut now, mut many) = (Pace::new(began), began, 0);
        while began.until(now) < Duration::from_secs(seconds) {
            now = now + pace.nap(now, Some(ahead(began.until(now))), Some(Duration::from_secs(60)));
            many += 1;
        }
        many
    }
    #[test]
    fn the_first_looks_often_for_a_while_and_the_others_seldom() {
        let first = looks(5, |_| 0);
        assert!((115..=140).contains(&first), "{first}");
        let later = looks(25, |_| 0) - first;
        assert!((120..=150).contains(&later), "{later}");
        let other = looks(20, |_| 9);
        assert!(other <= 20, "{other}");
    }
    #[test]
    fn whoever_comes_nearer_looks_when_it_may_be_his_turn() {
        // Each of the ten in front takes a fifth of a second.
        let gone = |d: Duration| 10_u32.saturating_sub(u32::try_from(d.as_millis() / 200).unwrap_or(10));
        let began = Moment::from_nanos(1);
        let (mut pace, mut now, mut many) = (Pace::new(began), began, 0);
        while gone(began.until(now)) > 0 {
            now = now + pace.nap(now, Some(gone(began.until(now))), None);
            many += 1;
        }
        assert!(began.until(now) < 2_200 * MS && many < 32, "{many} looks, {:?}", began.until(now));
    }
    #[test]
    fn a_lease_that_ends_is_looked_for() {
        let now = Moment::from_nanos(1);
        assert_eq!(Pace::new(now).nap(now, Some(0), Some(5 * MS)), 7 * MS);
    }
}
