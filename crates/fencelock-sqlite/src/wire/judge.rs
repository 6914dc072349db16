//! Who of those in the database still counts.
use super::{claim::claim, scope::Scope, sql};
use crate::{
    error::Fault,
    session::{
        duration,
        liveness::{Pulse, test},
    },
};
use fencelock_core::{Claim, HoldId, Holder, Token, Waiter};
use rusqlite::Row;
use std::os::fd::OwnedFd;

/// What the database says of a session; `None`: it is not there.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    boot: String,
    beat: i64,
    host: String,
    pid: u32,
    seen_boot: String,
    seen_at: i64,
    /// It was buried, and only what must not end yet is left of it.
    dead: bool,
}
fn origin(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Origin>> {
    let Some(boot) = row.get::<_, Option<String>>(at)? else { return Ok(None) };
    let (beat, host, pid) = (row.get(at + 1)?, row.get(at + 2)?, row.get(at + 3)?);
    let (seen_boot, seen_at, dead) = (row.get(at + 4)?, row.get(at + 5)?, row.get(at + 6)?);
    Ok(Some(Origin { boot, beat, host, pid, seen_boot, seen_at, dead }))
}

/// A holder's row.
#[derive(Clone, Debug)]
pub(crate) struct HolderRow {
    pub(crate) hold: HoldId,
    pub(crate) session: i64,
    pub(crate) claim: Claim,
    pub(crate) token: i64,
    ttl: i64,
    /// The end of a lease that no heartbeat renews; 0: heartbeats do.
    pub(crate) fixed: i64,
    cap: i64,
    least: i64,
    pub(crate) since: i64,
    note: String,
    origin: Option<Origin>,
}
/// A waiter's row.
#[derive(Clone, Debug)]
pub(crate) struct WaiterRow {
    pub(crate) place: i64,
    pub(crate) hold: HoldId,
    pub(crate) session: i64,
    pub(crate) claim: Claim,
    ttl: i64,
    since: i64,
    note: String,
    origin: Option<Origin>,
}

/// How somebody stands.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It counts until then, at least.
    Good(i64),
    /// Its lease has run out.
    Expired,
    /// Its session is dead; its file's lock is ours meanwhile, where there is a file.
    Dead(Option<OwnedFd>),
    /// It is of another boot and was not observed yet: somebody has to write down since when it does not move.
    Unseen,
}

pub(crate) fn holders(scope: &Scope<'_>, lock: i64, of: u32) -> rusqlite::Result<Vec<HolderRow>> {
    scope.all(sql::HOLDERS, [lock], |row| holder(row, of))
}
fn holder(row: &Row<'_>, of: u32) -> rusqlite::Result<HolderRow> {
    Ok(HolderRow {
        hold: HoldId::from_bytes(row.get(0)?),
        session: row.get(1)?,
        claim: claim(row.get(2)?, row.get(3)?, of),
        token: row.get(4)?,
        ttl: row.get(5)?,
        fixed: row.get(6)?,
        cap: row.get(7)?,
        least: row.get(8)?,
        since: row.get(9)?,
        note: row.get(10)?,
        origin: origin(row, 11)?,
    })
}
pub(crate) fn waiters(scope: &Scope<'_>, lock: i64, of: u32) -> rusqlite::Result<Vec<WaiterRow>> {
    scope.all(sql::WAITERS, [lock], |row| waiter(row, of))
}
pub(crate) fn predecessor(scope: &Scope<'_>, lock: i64, place: i64) -> rusqlite::Result<Option<WaiterRow>> {
    scope.first(sql::PREDECESSOR, (lock, place), |row| waiter(row, 0))
}
/// The first one in the queue whose claim is like that.
pub(crate) fn first_waiter(
    scope: &Scope<'_>,
    lock: i64,
    of: u32,
    wanted: impl Fn(Claim) -> bool,
) -> rusqlite::Result<Option<WaiterRow>> {
    let mut statement = scope.statement(sql::WAITERS)?;
    let mut rows = statement.query([lock])?;
    while let Some(row) = rows.next()? {
        if wanted(claim(row.get(3)?, row.get(4)?, of)) {
            return waiter(row, of).map(Some);
        }
    }
    Ok(None)
}
fn waiter(row: &Row<'_>, of: u32) -> rusqlite::Result<WaiterRow> {
    Ok(WaiterRow {
        place: row.get(0)?,
        hold: HoldId::from_bytes(row.get(1)?),
        session: row.get(2)?,
        claim: claim(row.get(3)?, row.get(4)?, of),
        ttl: row.get(5)?,
        since: row.get(6)?,
        note: row.get(7)?,
        origin: origin(row, 8)?,
    })
}

/// *Invariant (SAFETY E4):* on this boot a session is dead only when nobody holds the lock on its file, tested inside the
/// transaction that acts on it; a hung one counts until its lease has run out. Of another boot nothing but observation tells:
/// a heartbeat that has not moved for its ttl on our clock.
fn stands(
    scope: &Scope<'_>,
    session: i64,
    origin: Option<&Origin>,
    ttl: i64,
    lease: impl Fn(&Origin) -> i64,
) -> Standing {
    let Some(origin) = origin else { return Standing::Dead(None) };
    let time = &scope.shared.time;
    if origin.boot != time.boot {
        if origin.seen_boot != time.boot || origin.seen_at > scope.now {
            return Standing::Unseen;
        }
        let end = origin.seen_at.saturating_add(ttl);
        return if scope.now >= end { Standing::Expired } else { Standing::Good(end) };
    }
    if origin.dead {
        return Standing::Dead(None);
    }
    if !scope.is_known_alive(session) {
        match test(&scope.shared.folder, session) {
            Pulse::Dead(lock) => return Standing::Dead(Some(lock)),
            Pulse::Alive => scope.found_alive(session),
            Pulse::Gone => scope.found_gone(session),
        }
    }
    let end = lease(origin);
    if scope.now >= end { Standing::Expired } else { Standing::Good(end) }
}

impl HolderRow {
    pub(crate) fn stands(&self, scope: &Scope<'_>) -> Standing {
        let lease = |origin: &Origin| match self.fixed {
            0 => origin.beat.saturating_add(self.ttl).min(self.cap),
            end => end.min(self.cap),
        };
        match stands(scope, self.session, self.origin.as_ref(), self.ttl, lease) {
            Standing::Dead(_) if self.outlives(scope) => Standing::Good(self.least),
            standing => standing,
        }
    }
    /// It counts, and until then.
    fn holds(self, scope: &Scope<'_>) -> Option<(Self, i64)> {
        match self.stands(scope) {
            Standing::Good(until) => Some((self, until)),
            Standing::Unseen => {
                let until = scope.now.saturating_add(self.ttl);
                Some((self, until))
            }
            Standing::Dead(_) | Standing::Expired => None,
        }
    }
    /// It may not end yet, even though its session has. On another boot's clock nobody can tell.
    fn outlives(&self, scope: &Scope<'_>) -> bool {
        self.least > scope.now && self.origin.as_ref().is_some_and(|origin| origin.boot == scope.shared.time.boot)
    }
    /// For people. They are told by the clock after the snapshot: what was written between the scope's clock and the snapshot
    /// would end later than its whole TTL from now.
    pub(crate) fn public(&self, scope: &Scope<'_>, until: i64) -> Holder {
        let (now, origin) = (scope.shared.time.now(), self.origin.as_ref());
        Holder {
            hold: self.hold,
            claim: self.claim,
            // A stored token is positive; a damaged one is shown as the smallest.
            token: Token::new(self.token.max(1)).unwrap_or_else(|| unreachable!("it is at least 1")),
            host: origin.map_or("", |o| o.host.as_str()).into(),
            pid: origin.map_or(0, |o| o.pid),
            note: self.note.as_str().into(),
            held_for: duration(now - self.since),
            left: duration(until - now),
        }
    }
}
impl WaiterRow {
    /// A waiter has no lease: its session's life is its own.
    pub(crate) fn stands(&self, scope: &Scope<'_>) -> Standing {
        stands(scope, self.session, self.origin.as_ref(), self.ttl, |_| i64::MAX)
    }
    pub(crate) fn public(&self, scope: &Scope<'_>) -> Waiter {
        let (now, origin) = (scope.shared.time.now(), self.origin.as_ref());
        Waiter {
            hold: self.hold,
            claim: self.claim,
            host: origin.map_or("", |o| o.host.as_str()).into(),
            pid: origin.map_or(0, |o| o.pid),
            note: self.note.as_str().into(),
            waiting_for: duration(now - self.since),
        }
    }
}

/// Those who really hold, in a transaction that may write: the others are removed on the way.
pub(crate) fn clear(scope: &Scope<'_>, lock: i64, of: u32) -> Result<Vec<(HolderRow, i64)>, Fault> {
    let mut live = Vec::new();
    for row in holders(scope, lock, of)? {
        match row.stands(scope) {
            Standing::Good(until) => live.push((row, until)),
            Standing::Dead(file) => scope.bury(row.session, file)?,
            Standing::Expired => {
                scope.execute(sql::HOLDER_WITHDRAW, (lock, row.hold.to_bytes()))?;
                // From now, not from the lease's end: after a night's sleep of the host the first in the queue has its turn.
                scope.freed(lock)?;
                scope.tell_watchers(lock)?;
            }
            Standing::Unseen => {
                let until = scope.now.saturating_add(row.ttl);
                observe(scope, row.session)?;
                live.push((row, until));
            }
        }
    }
    Ok(live)
}
pub(crate) fn observe(scope: &Scope<'_>, session: i64) -> Result<(), Fault> {
    scope.execute(sql::SESSION_SEEN, (session, &scope.shared.time.boot, scope.now))?;
    Ok(())
}
/// Those who really hold and until when, for a look that writes nothing.
pub(crate) fn holding(scope: &Scope<'_>, lock: i64, of: u32) -> rusqlite::Result<Vec<(HolderRow, i64)>> {
    Ok(holders(scope, lock, of)?.into_iter().filter_map(|row| row.holds(scope)).collect())
}
/// One of them.
pub(crate) fn first_holding(scope: &Scope<'_>, lock: i64, of: u32) -> rusqlite::Result<Option<(HolderRow, i64)>> {
    let mut statement = scope.statement(sql::HOLDERS)?;
    let mut rows = statement.query([lock])?;
    while let Some(row) = rows.next()? {
        if let Some(holds) = holder(row, of)?.holds(scope) {
            return Ok(Some(holds));
        }
    }
    Ok(None)
}
/// And those who really wait.
pub(crate) fn queue(scope: &Scope<'_>, lock: i64, of: u32) -> rusqlite::Result<Vec<WaiterRow>> {
    let alive = |row: &WaiterRow| !matches!(row.stands(scope), Standing::Dead(_) | Standing::Expired);
    Ok(waiters(scope, lock, of)?.into_iter().filter(alive).collect())
}
