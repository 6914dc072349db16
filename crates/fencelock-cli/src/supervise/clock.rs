//! The boot-time clock: the one that goes on while the machine sleeps (SAFETY G3).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};

/// A moment or a span in nanoseconds of CLOCK_BOOTTIME.
pub(super) type Nanos = u64;

/// The time now.
pub(super) fn now() -> Nanos {
    let t = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// A duration as [`Nanos`], the longest one for what does not fit.
pub(super) fn nanos(d: Duration) -> Nanos {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A timespec of this many nanoseconds.
pub(super) fn timespec(n: Nanos) -> Timespec {
    // 2^64 ns are 584 years: both parts always fit.
    let part = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
    Timespec { tv_sec: part(n / 1_000_000_000), tv_nsec: part(n % 1_000_000_000) }
}

/// A timer on the boot-time clock. Its end is a moment, not a span, so a suspended machine wakes to an expired timer.
pub(super) struct Alarm {
    fd: OwnedFd,
    set: Option<Nanos>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self { fd, set: None })
    }

    /// Rings at this moment, at once when it has passed, never for `None`.
    pub(super) fn set(&mut self, at: Option<Nanos>) -> io::Result<()> {
        // The same end again would only cost the call: an expired timer stays readable.
        if self.set == at {
            return Ok(());
        }
        // Zero disarms a timer, so the moment zero is told as one nanosecond later.
        let value = timespec(at.map_or(0, |n| n.max(1)));
        let spec = Itimerspec { it_interval: timespec(0), it_value: value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &spec)?;
        self.set = at;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
