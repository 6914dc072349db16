//! What a contender says of itself: a line for people, as Curator's have it, and a line for us.
use fencelock_core::{Claim, Identity};
use serde::{Deserialize, Serialize};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The data of a contender's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) host: Arc<str>,
    pub(crate) pid: u32,
    pub(crate) note: Arc<str>,
    /// Since when, by its own wall clock, in ms: for people.
    pub(crate) since: u64,
    pub(crate) ttl: Duration,
    /// How many permits it takes.
    pub(crate) take: u32,
    /// It had this token before it became a reader.
    pub(crate) token: Option<i64>,
}
#[derive(Serialize, Deserialize)]
struct Line {
    v: u32,
    host: String,
    pid: u32,
    since: u64,
    ttl_ms: u64,
    #[serde(default)]
    note: String,
    #[serde(default, skip_serializing_if = "is_none")]
    take: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<i64>,
}
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's way")]
fn is_none(take: &u32) -> bool {
    *take == 0
}

impl Record {
    pub(crate) fn new(claim: Claim, note: &Arc<str>, ttl: Duration) -> Self {
        let Identity { host, pid } = Identity::here();
        let take = if let Claim::Permits { take, .. } = claim { take } else { 0 };
        Self { host, pid, note: note.clone(), since: wall_millis(), ttl, take, token: None }
    }
    /// *Invariant:* the first line is never `__REVOKE__` or `unlock` alone, which are others' words.
    pub(crate) fn write(&self) -> Vec<u8> {
        let Self { host, pid, note, since, ttl, take, token } = self;
        let first = note.lines().next().filter(|line| !line.is_empty());
        let first = first.map_or_else(|| format!("{host}:{pid}"), str::to_owned);
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let (host, note) = (host.to_string(), note.to_string());
        let line = Line { v: 1, host, pid: *pid, since: *since, ttl_ms, note, take: *take, token: *token };
        // Numbers and text: there is nothing that JSON cannot say.
        let line = serde_json::to_string(&line).unwrap_or_default();
        format!("{first}\n{line}").into_bytes()
    }
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let (_, line) = std::str::from_utf8(data).ok()?.split_once('\n')?;
        let Line { v: 1, host, pid, since, ttl_ms, note, take, token } = serde_json::from_str(line).ok()? else {
            return None;
        };
        let (host, note) = (host.into(), note.into());
        Some(Self { host, pid, note, since, ttl: Duration::from_millis(ttl_ms), take, token })
    }
}
pub(crate) fn wall_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
/// How long ago that was, as far as two hosts' clocks can tell.
pub(crate) fn ago(millis: u64) -> Duration {
    Duration::from_millis(wall_millis().saturating_sub(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for note in ["", "deploy", "two\nlines", "\"quoted\" \u{1F512}", "__REVOKE__", "unlock"] {
            let one = Record::new(Claim::Permits { take: 2, of: 3 }, &note.into(), Duration::from_millis(1_500));
            for record in [Record { token: Some(7), ..one.clone() }, one] {
                let data = record.write();
                assert_eq!(Record::read(&data), Some(record));
                assert!(data != b"__REVOKE__" && data != b"unlock");
            }
        }
        for no in ["", "127.0.0.1", "a\n{}", "a\n{\"v\":2,\"host\":\"h\",\"pid\":1,\"since\":1,\"ttl_ms\":1}"] {
            assert_eq!(Record::read(no.as_bytes()), None, "{no}");
        }
        assert_eq!(Record::read(&[0xFF]), None);
    }
}
