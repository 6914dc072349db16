//! An attempt, from its first command to its grant, or to its last trace.
use crate::PATIENCE;
use fencelock_core::{BootClock, Clock, Grant, HoldId, Lease, Moment, Request, ServerTime, Token};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A command that creates takes effect within so long, or never (SAFETY A2).
pub const WINDOW: Duration = PATIENCE;
/// So often an acquire is sent again under its hold id when nobody knows what became of it.
pub const AGAIN: u32 = 5;
/// Whoever only tries is answered in time, also while somebody's transaction keeps the row (SAFETY E2): he begins no look later than that.
const TRY: Duration = Duration::from_millis(25);

/// The end of a command by the server's clock, and by ours; `None`: the attempt was stopped (SAFETY A2).
pub fn open_window(time: &ServerTime, request: &Request, sent_at: Moment) -> Option<(i64, Moment)> {
    let (not_after, more) = time.end(sent_at, WINDOW)?;
    request.open(sent_at, WINDOW + WINDOW / 50 + more).map(|ends| (not_after, ends))
}
/// The end of a waiter's look, by the server's clock: what it is granted later nobody may be there to have (SAFETY A2). Where nothing is
/// known of that clock it is past, and its answer tells.
///
/// *Invariant:* whoever goes takes back his place, which a look needs, so nobody waits for its end.
pub fn end_of_look(time: &ServerTime, sent_at: Moment) -> i64 {
    time.end(sent_at, WINDOW).map_or(0, |(end, _)| end)
}
/// What was granted by a command that was sent then, and when the server says that it was.
pub fn granted(request: &Request, token: Token, sent_at: Moment, now: i64) -> Grant {
    let (name, hold, claim, ttl) = (request.name().clone(), request.hold(), request.claim(), request.ttl());
    Grant { name, claim, hold, token, ttl, lease: Lease::Own { sent_at }, server_micros: now, place: None }
}
/// Until the next try, after a row was locked so many times (SAFETY E2): mostly by another one's short statement.
pub fn after_locked(times: u32) -> Duration {
    let most = 2_000_u64 << times.min(6);
    Duration::from_micros(fastrand::u64(most / 2..most).min(100_000))
}
/// The same for whoever only tries, since the row was found locked for so long. `None`: he is answered.
pub fn before_answered(times: u32, tried: Duration) -> Option<Duration> {
    (tried < TRY).then(|| after_locked(times).min(TRY - tried))
}
/// As the server counts.
pub fn micros(d: Duration) -> i64 {
    i64::try_from(d.as_micros()).unwrap_or(i64::MAX / 4)
}

/// Attempts of which a command broke off: it may arrive late, and grant what nobody has any more.
#[derive(Debug, Default)]
pub struct Haunted(Mutex<HashMap<HoldId, Moment>>);
impl Haunted {
    fn all(&self) -> MutexGuard<'_, HashMap<HoldId, Moment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A command of this attempt broke off, and may take effect until then.
    pub fn haunt(&self, hold: HoldId, until: Moment) {
        let (mut all, now) = (self.all(), BootClock.now());
        all.retain(|_, until| *until > now);
        let known = all.entry(hold).or_insert(until);
        *known = until.max(*known);
    }
    /// Nobody has it any more: until when something of it may still come.
    pub fn haunts(&self, hold: HoldId) -> Option<Moment> {
        let mut all = self.all();
        if all.is_empty() { None } else { all.remove(&hold) }.filter(|until| *until > BootClock.now())
    }
}
