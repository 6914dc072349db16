//! What only the operating system can do: the boot-time clock, and an alarm on it that wakes a sleeping thread.
#[cfg(target_os = "linux")]
pub(crate) use linux::{Alarm, boot_nanos};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{Alarm, boot_nanos};

#[cfg(target_os = "linux")]
mod linux {
    use crate::clock::Moment;
    use rustix::{
        event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
        fd::OwnedFd,
        io::{Errno, read, write},
        time::{
            ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
            timerfd_create, timerfd_settime,
        },
    };

    pub(crate) fn boot_nanos() -> u64 {
        let t = clock_gettime(ClockId::Boottime);
        // Boot time is never negative, and 584 years fit.
        u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
    }

    /// Sleeps until a moment of CLOCK_BOOTTIME, or until somebody rings. After a suspended night it goes off at once.
    #[derive(Debug)]
    pub(crate) struct Alarm {
        timer: OwnedFd,
        bell: OwnedFd,
    }
    impl Alarm {
        pub(crate) fn new() -> std::io::Result<Self> {
            let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Self { timer, bell })
        }
        pub(crate) fn ring(&self) {
            // Full means that it has been rung four billion times and nobody has looked yet: as good as rung.
            let _ = write(&self.bell, &1u64.to_ne_bytes());
        }
        pub(crate) fn sleep(&self, until: Option<Moment>) {
            // All zeros would disarm it: one nanosecond is as good as now.
            let nanos = until.map_or(0, |at| at.as_nanos().max(1));
            let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
            let subsec = i64::try_from(nanos % 1_000_000_000).unwrap_or(0);
            let value = Timespec { tv_sec: seconds, tv_nsec: subsec };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            let set = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once);
            debug_assert!(set.is_ok(), "an absolute time on our own descriptor is always accepted");
            let mut fds = [PollFd::new(&self.timer, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
            while poll(&mut fds, None) == Err(Errno::INTR) {}
            let mut count = [0u8; 8];
            let _ = read(&self.bell, &mut count);
            let _ = read(&self.timer, &mut count);
        }
    }
}

/// Untested: Linux is the supported platform. Sleeping time of the host is not counted here.
#[cfg(not(target_os = "linux"))]
mod other {
    use crate::clock::Moment;
    use std::{
        sync::{Condvar, Mutex, OnceLock, PoisonError},
        time::{Duration, Instant},
    };

    pub(crate) fn boot_nanos() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        1_000_000_000 + u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
    #[derive(Debug)]
    pub(crate) struct Alarm {
        rung: Mutex<bool>,
        bell: Condvar,
    }
    impl Alarm {
        pub(crate) fn new() -> std::io::Result<Self> {
            Ok(Self { rung: Mutex::new(false), bell: Condvar::new() })
        }
        pub(crate) fn ring(&self) {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.bell.notify_one();
        }
        pub(crate) fn sleep(&self, until: Option<Moment>) {
            let nap = until.map_or(Duration::from_secs(3600), |at| Moment::from_nanos(boot_nanos()).until(at));
            let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            let woken = self.bell.wait_timeout_while(rung, nap, |rung| !*rung);
            *woken.unwrap_or_else(PoisonError::into_inner).0 = false;
        }
    }
}
