//! Reading: what people ask for, and what a waiter looks at before it asks for a write transaction.
use super::{
    acquire::{TURN, find, waiting},
    judge::{Standing, WaiterRow, holders, holding, waiters},
    scope::Scope,
    sql,
};
use crate::error::Fault;
use fencelock_core::{HoldId, Kind, Listing, Name, Page, Status, Token};

/// Every waiter looks by itself this often, so that no lost ring costs more.
const LOOK: i64 = 1_000_000_000;

pub(crate) enum Look {
    /// It has no place in the queue any more.
    Gone,
    /// Its turn may have come, or somebody has to be buried: that takes a write transaction.
    Act,
    /// Nothing to do. Watch that session's file, where it says one, and look again then.
    Rest { watch: Option<i64>, next: i64 },
}

/// A waiter's look: the first watches the holder, every other one its predecessor (SAFETY E4).
pub(crate) fn look(scope: &Scope<'_>, lock: i64, hold: HoldId) -> Result<Look, Fault> {
    let line = waiters(scope, lock, -1)?;
    let Some(mine) = line.iter().position(|row| row.hold == hold) else { return Ok(Look::Gone) };
    let soon = scope.now + LOOK;
    let before = |row: &WaiterRow| match row.stands(scope) {
        Standing::Good(_) => Some(row.session),
        _ => None,
    };
    let predecessor = mine.checked_sub(1).map(|at| &line[at]);
    let mut end = i64::MAX;
    let mut holder = None;
    for row in holders(scope, lock)? {
        match row.stands(scope) {
            Standing::Good(until) => {
                end = end.min(until);
                holder = Some(row.session);
            }
            Standing::Unseen | Standing::Dead(_) | Standing::Expired(_) => return Ok(Look::Act),
        }
    }
    let (watch, next) = match (holder, predecessor) {
        (Some(session), None) => (Some(session), end.saturating_add(1_000_000)),
        (Some(_), Some(row)) => (before(row), i64::MAX),
        (None, None) => return Ok(Look::Act),
        (None, Some(row)) => {
            let freed = scope.first("SELECT freed FROM fencelock_lock WHERE id = ?1", [lock], |row| row.get(0))?;
            let turns = i64::try_from(mine).unwrap_or(i64::MAX);
            let mine = freed.unwrap_or(0i64).saturating_add(TURN.saturating_mul(turns));
            if freed.unwrap_or(0) == 0 || scope.now >= mine {
                return Ok(Look::Act);
            }
            (before(row), mine)
        }
    };
    match watch {
        // A predecessor that is dead, or of another boot.
        None => Ok(Look::Act),
        Some(session) => {
            let watch = Some(session).filter(|session| !scope.shared.is_ours(*session));
            Ok(Look::Rest { watch, next: next.min(soon) })
        }
    }
}

pub(crate) fn inspect(scope: &Scope<'_>, name: &Name) -> Result<Status, Fault> {
    let mut status = Status::free(name.clone());
    let Some(lock) = find(scope, name.as_str())? else { return Ok(status) };
    status.last_token = Token::new(lock.fence);
    status.holders = holding(scope, lock.id)?;
    if waiting(scope, lock.id)? > 0 {
        let alive = |row: &WaiterRow| !matches!(row.stands(scope), Standing::Dead(_) | Standing::Expired(_));
        let rows = waiters(scope, lock.id, -1)?;
        status.waiters = rows.into_iter().filter(alive).map(|row| row.public(scope.now)).collect();
    }
    if !status.holders.is_empty() || !status.waiters.is_empty() {
        status.kind = Some(Kind::Mutex);
    }
    Ok(status)
}

/// By name; the cursor is the last name of the page before.
pub(crate) fn list(scope: &Scope<'_>, prefix: &str, page: &Page) -> Result<Listing, Fault> {
    let limit = i64::try_from(page.limit.clamp(1, 10_000)).unwrap_or(10_000);
    let after = page.after.as_deref().unwrap_or("");
    let params = (&scope.shared.config.namespace, after, prefix, limit);
    let names: Vec<String> = scope.all(sql::LIST, params, |row| row.get(0))?;
    let mut listing = Listing::default();
    if i64::try_from(names.len()).is_ok_and(|n| n == limit) {
        listing.next = names.last().cloned();
    }
    for name in names.iter().filter_map(|name| Name::new(name).ok()) {
        let status = inspect(scope, &name)?;
        if status.kind.is_some() {
            listing.items.push(status);
        }
    }
    Ok(listing)
}
