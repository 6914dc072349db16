//! The only clock that decides whether a hold is still good (SAFETY G3).
use std::{
    fmt,
    ops::{Add, Sub},
    time::Duration,
};

/// Nanoseconds on a clock that counts suspended time too. It means nothing outside this process and this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Later than everything.
    pub const FAR: Self = Self(u64::MAX);
    /// Earlier than everything.
    pub const ZERO: Self = Self(0);

    /// From nanoseconds since the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
    /// Nanoseconds since the clock's start: CLOCK_BOOTTIME for [`BootClock`].
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// The time from here to `later`; zero when that is not later.
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}
impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }
}
impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(d)))
    }
}
fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Tells the moment. The whole library asks one of these and never the wall clock.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Never goes back.
    fn now(&self) -> Moment;
}

/// CLOCK_BOOTTIME. (std's `Instant` stands still while a Linux host sleeps: rust-lang/rust#87906.)
///
/// ```
/// use fencelock_core::{BootClock, Clock};
/// assert!(BootClock.now() <= BootClock.now());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;
impl Clock for BootClock {
    fn now(&self) -> Moment {
        Moment(crate::os::boot_nanos())
    }
}

/// Follows tokio's clock, which tests may pause. Goes with [`ClientBuilder::keeper_here`](crate::ClientBuilder::keeper_here).
#[derive(Clone, Copy, Debug)]
pub struct TokioClock(tokio::time::Instant);
impl TokioClock {
    /// A clock that starts a second after zero, now.
    pub fn start() -> Self {
        Self(tokio::time::Instant::now())
    }
}
impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment(1_000_000_000) + self.0.elapsed()
    }
}
