//! What a contender says of itself.
use fencelock_core::{Claim, HoldId, Identity};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

const MARK: &str = "fl1";

/// The value of the key that says who a contender is. Those of other programs have none.
///
/// It begins with the hold id, by which a transaction tells one attempt from another. When a waiter's turn has come it is written once
/// more, and the revision of that is its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) hold: HoldId,
    /// It has been granted what it asked for.
    pub(crate) holds: bool,
    /// Since when, by the wall clock of whoever wrote it, in µs: for people.
    pub(crate) since: u64,
    /// Its ttl: so much is left of it at most.
    pub(crate) ttl: Duration,
    pub(crate) claim: Claim,
    pub(crate) pid: u32,
    pub(crate) host: Arc<str>,
}
impl Record {
    pub(crate) fn new(hold: HoldId, claim: Claim, ttl: Duration) -> Self {
        let Identity { host, pid } = Identity::here();
        Self { hold, holds: false, since: wall_micros(), ttl, claim, pid, host }
    }
    pub(crate) fn write(&self) -> Vec<u8> {
        let Self { hold, holds, since, ttl, claim, pid, host } = self;
        let state = if *holds { "holds" } else { "waits" };
        let claim = match claim {
            Claim::Permits { take, of } => format!("{take}/{of}"),
            claim => claim.to_string(),
        };
        format!("{hold} {MARK} {state} {since} {} {claim} {pid} {host}", ttl.as_millis()).into_bytes()
    }
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let mut words = text.splitn(8, ' ');
        let mut next = || words.next();
        let hold = next()?.parse().ok()?;
        if next()? != MARK {
            return None;
        }
        let holds = match next()? {
            "holds" => true,
            "waits" => false,
            _ => return None,
        };
        let since = next()?.parse().ok()?;
        let ttl = Duration::from_millis(next()?.parse().ok()?);
        let claim = match next()? {
            "mutex" => Claim::Mutex,
            "read" => Claim::Read,
            "write" => Claim::Write,
            permits => {
                let (take, of) = permits.split_once('/')?;
                Claim::Permits { take: take.parse().ok()?, of: of.parse().ok()? }
            }
        };
        let pid = next()?.parse().ok()?;
        Some(Self { hold, holds, since, ttl, claim, pid, host: next()?.into() })
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
        for claim in [Claim::Mutex, Claim::Read, Claim::Write, Claim::Permits { take: 2, of: 3 }] {
            let waits = Record::new(HoldId::from_bytes([7; 16]), claim, Duration::from_millis(1_500));
            let record = Record { holds: true, host: "a host".into(), ..waits.clone() };
            for record in [waits, record] {
                assert_eq!(Record::read(&record.write()), Some(record));
            }
        }
        let id = "07070707070707070707070707070707";
        for no in ["", "fl1", id, &format!("{id} fl2 holds 1 9 mutex 1 h"), &format!("{id} fl1 holds 1 9 2/x 1 h")] {
            assert_eq!(Record::read(no.as_bytes()), None, "{no}");
        }
        assert_eq!(Record::read(&[0xFF]), None);
    }
}
