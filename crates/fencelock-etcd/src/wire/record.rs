//! What a contender's key says of it.
use fencelock_core::{HoldId, Identity};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

const MARK: &str = "fl1";

/// The value of a key of ours. Those of others say nothing that we can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) hold: HoldId,
    /// Somebody was there when it came: it holds when it has written its grant, and not before.
    pub(crate) waited: bool,
    /// By the wall clock of whoever wrote it, in µs: for people.
    pub(crate) since: u64,
    /// Its ttl: so much is left of it at most.
    pub(crate) ttl: Duration,
    pub(crate) host: Arc<str>,
    pub(crate) pid: u32,
    pub(crate) note: Arc<str>,
}
impl Record {
    pub(crate) fn new(hold: HoldId, ttl: Duration, note: &Arc<str>) -> Self {
        let Identity { host, pid } = Identity::here();
        Self { hold, waited: false, since: wall_micros(), ttl, host, pid, note: note.clone() }
    }
    pub(crate) fn write(&self, waited: bool) -> Vec<u8> {
        let Self { hold, since, ttl, host, pid, note, .. } = self;
        let host: String = host.chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect();
        let host = if host.is_empty() { "-" } else { &host };
        let place = if waited { "waits" } else { "first" };
        format!("{MARK} {place} {hold} {since} {} {host} {pid} {note}", ttl.as_millis()).into_bytes()
    }
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let mut words = text.splitn(8, ' ');
        let mut next = || words.next();
        if next()? != MARK {
            return None;
        }
        let waited = match next()? {
            "waits" => true,
            "first" => false,
            _ => return None,
        };
        let (hold, since) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let ttl = Duration::from_millis(next()?.parse().ok()?);
        let (host, pid) = (next()?.into(), next()?.parse().ok()?);
        Some(Self { hold, waited, since, ttl, host, pid, note: next()?.into() })
    }
}
pub(crate) fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
/// How long ago that was, as far as two hosts' clocks can tell.
pub(crate) fn ago(micros: u64) -> Duration {
    Duration::from_micros(wall_micros().saturating_sub(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let record = Record::new(HoldId::from_bytes([7; 16]), Duration::from_millis(1_500), &"a job, of Ann".into());
        for waited in [false, true] {
            let read = Record::read(&record.write(waited)).unwrap();
            assert_eq!(read, Record { waited, ..record.clone() });
        }
        for no in ["", "fl1", "fl1 first", "fl2 first 00 1 9 h 1 ", "fl1 x 07070707070707070707070707070707 1 9 h 1 "] {
            assert_eq!(Record::read(no.as_bytes()), None, "{no}");
        }
        assert_eq!(Record::read(&[0xFF]), None);
    }
}
