//! Who of those in the database still counts.
use super::{scope::Scope, sql};
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
}
fn origin(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Origin>> {
    let Some(boot) = row.get::<_, Option<String>>(at)? else { return Ok(None) };
    let (beat, host, pid) = (row.get(at + 1)?, row.get(at + 2)?, row.get(at + 3)?);
    let (seen_boot, seen_at) = (row.get(at + 4)?, row.get(at + 5)?);
    Ok(Some(Origin { boot, beat, host, pid, seen_boot, seen_at }))
}

/// A holder's row.
#[derive(Clone, Debug)]
pub(crate) struct HolderRow {
    pub(crate) hold: HoldId,
    pub(crate) session: i64,
    pub(crate) token: i64,
    ttl: i64,
    cap: i64,
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

pub(crate) fn holders(scope: &Scope<'_>, lock: i64) -> rusqlite::Result<Vec<HolderRow>> {
    scope.all(sql::HOLDERS, [lock], |row| {
        Ok(HolderRow {
            hold: HoldId::from_bytes(row.get(0)?),
            session: row.get(1)?,
            token: row.get(2)?,
            ttl: row.get(3)?,
            cap: row.get(4)?,
            since: row.get(5)?,
            note: row.get(6)?,
            origin: origin(row, 7)?,
        })
    })
}
pub(crate) fn waiters(scope: &Scope<'_>, lock: i64) -> rusqlite::Result<Vec<WaiterRow>> {
    scope.all(sql::WAITERS, [lock], waiter)
}
pub(crate) fn predecessor(scope: &Scope<'_>, lock: i64, place: i64) -> rusqlite::Result<Option<WaiterRow>> {
    scope.first(sql::PREDECESSOR, (lock, place), waiter)
}
fn waiter(row: &Row<'_>) -> rusqlite::Result<WaiterRow> {
    Ok(WaiterRow {
        place: row.get(0)?,
        hold: HoldId::from_bytes(row.get(1)?),
        session: row.get(2)?,
        ttl: row.get(3)?,
        since: row.get(4)?,
        note: row.get(5)?,
        origin: origin(row, 6)?,
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
    if !scope.shared.is_ours(session)
        && let Pulse::Dead(lock) = test(&scope.shared.folder, session)
    {
        return Standing::Dead(Some(lock));
    }
    let end = lease(origin);
    if scope.now >= end { Standing::Expired } else { Standing::Good(end) }
}

impl HolderRow {
    pub(crate) fn stands(&self, scope: &Scope<'_>) -> Standing {
        let lease = |origin: &Origin| origin.beat.saturating_add(self.ttl).min(self.cap);
        stands(scope, self.session, self.origin.as_ref(), self.ttl, lease)
    }
    /// For people.
    pub(crate) fn public(&self, now: i64, until: i64) -> Holder {
        let origin = self.origin.as_ref();
        Holder {
            hold: self.hold,
            claim: Claim::Mutex,
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
    pub(crate) fn public(&self, now: i64) -> Waiter {
        let origin = self.origin.as_ref();
        Waiter {
            hold: self.hold,
            claim: Claim::Mutex,
            host: origin.map_or("", |o| o.host.as_str()).into(),
            pid: origin.map_or(0, |o| o.pid),
            note: self.note.as_str().into(),
            waiting_for: duration(now - self.since),
        }
    }
}

/// Those who really hold, in a transaction that may write: the others are removed on the way.
pub(crate) fn clear(scope: &Scope<'_>, lock: i64) -> Result<Vec<(HolderRow, i64)>, Fault> {
    let mut live = Vec::new();
    for row in holders(scope, lock)? {
        match row.stands(scope) {
            Standing::Good(until) => live.push((row, until)),
            Standing::Dead(file) => scope.bury(row.session, file)?,
            Standing::Expired => {
                scope.execute(sql::HOLDER_WITHDRAW, (lock, row.hold.to_bytes()))?;
                // From now, not from the lease's end: after a night's sleep of the host the first in the queue has its turn.
                scope.execute(sql::LOCK_FREED_ONCE, (lock, scope.now))?;
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
/// Those who really hold, for a look that writes nothing.
pub(crate) fn holding(scope: &Scope<'_>, lock: i64) -> rusqlite::Result<Vec<Holder>> {
    let live = holders(scope, lock)?.into_iter().filter_map(|row| match row.stands(scope) {
        Standing::Good(until) => Some(row.public(scope.now, until)),
        Standing::Unseen => Some(row.public(scope.now, scope.now.saturating_add(row.ttl))),
        Standing::Dead(_) | Standing::Expired => None,
    });
    Ok(live.collect())
}
