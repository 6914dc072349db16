//! The clock that leases in the database run by: CLOCK_BOOTTIME of the host, the same number in every process on it.
use fencelock_core::{BootClock, Clock, Error, ErrorKind, Moment, Result};
use std::{fs, time::SystemTime};

/// Which boot of which host, and how this process sees its clock.
#[derive(Clone, Debug)]
pub(crate) struct HostTime {
    /// The kernel's id of this boot.
    pub(crate) boot: String,
    /// What a time namespace adds to the host's boot time, in ns.
    offset: i64,
}
impl HostTime {
    pub(crate) fn read() -> Result<Self> {
        let refuse = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(ErrorKind::Unsupported, "connect", "this system does not tell its boot id")
                    .because(e)
                    .hint("leases need the boot id; mount /proc")
            }
            _ => Error::new(ErrorKind::Unreachable, "connect", "the boot id cannot be read").because(e),
        };
        // A `/proc` of other processes says nothing of this one's namespace: it has no `self` here.
        fs::read_link("/proc/self").map_err(refuse)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(refuse)?.trim().to_owned();
        let offsets = match fs::read_to_string("/proc/self/timens_offsets") {
            Ok(offsets) => offsets,
            // A kernel without time namespaces.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            // One that cannot be read, for want of a descriptor, may be any.
            Err(e) => {
                return Err(
                    Error::new(ErrorKind::Unreachable, "connect", "the time namespace cannot be read").because(e)
                );
            }
        };
        // *Invariant (SAFETY E4):* what it tells is the namespace of our children, which is ours but for a process that has made
        // one and is not in it. By a clock that is off by that much leases of the living would be over.
        let namespace = |of: &str| fs::read_link(format!("/proc/self/ns/{of}")).ok();
        if namespace("time") != namespace("time_for_children") {
            let between = Error::new(ErrorKind::Unsupported, "connect", "this process is between two time namespaces");
            return Err(between.hint("connect in a child: a process is in the new one from its start on"));
        }
        Ok(Self { boot, offset: boottime_offset(&offsets) })
    }
    /// Nanoseconds since the host's boot. SQLite's integers are signed; 292 years fit.
    pub(crate) fn now(&self) -> i64 {
        i64::try_from(BootClock.now().as_nanos()).unwrap_or(i64::MAX) - self.offset
    }
    /// That moment on the clock that this process sees.
    pub(crate) fn moment(&self, at: i64) -> Moment {
        Moment::from_nanos(u64::try_from(at.saturating_add(self.offset)).unwrap_or(0))
    }
}
fn boottime_offset(offsets: &str) -> i64 {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = line.unwrap_or("").split_whitespace().map(|n| n.parse::<i64>().unwrap_or(0));
    let (seconds, nanos) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
/// The wall clock in µs. Tokens are made of it, and nothing trusts it (SAFETY T2).
pub(crate) fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: the monotonic line taken for the boottime line.
    use fencelock_core::{BootClock, Clock};

    #[test]
    fn a_time_namespace_is_seen_through() {
        let offsets = "monotonic           0         0\nboottime        86400       500\n";
        assert_eq!(super::boottime_offset(offsets), 86_400_000_000_500);
        assert_eq!(super::boottime_offset(""), 0);
        let time = super::HostTime { boot: String::new(), offset: -5_000_000_000 };
        let (here, host) = (BootClock.now(), time.now());
        assert!(time.moment(host) >= here && time.moment(host) <= BootClock.now(), "and back");
    }
}
