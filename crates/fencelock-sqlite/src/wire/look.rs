//! Reading: what people ask for, and what a waiter looks at before it asks for a write transaction.
use super::{
    acquire::{find, turn, waiting},
    judge::{Standing, WaiterRow, holders, holding, predecessor, waiters},
    scope::Scope,
    sql,
};
use crate::error::Fault;
use fencelock_core::{HoldId, Kind, Listing, Name, Page, Status, Token};

/// Every waiter looks by itself this often, so that no lost ring costs more.
pub(crate) const LOOK: i64 = 1_000_000_000;

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
    let place = scope.first(sql::PLACE, (lock, hold.to_bytes()), |row| row.get::<_, i64>(0))?;
    let Some(place) = place else { return Ok(Look::Gone) };
    let mut first = None;
    for row in holders(scope, lock)? {
        match row.stands(scope) {
            Standing::Good(until) => first = Some((row.session, until)),
            Standing::Unseen | Standing::Dead(_) | Standing::Expired => return Ok(Look::Act),
        }
    }
    let predecessor = predecessor(scope, lock, place)?;
    let (session, next) = match (first, predecessor) {
        // A moment after the end of its lease.
        (Some((holder, until)), None) => (holder, until.saturating_add(1_000_000)),
        (Some(_), Some(row)) => match row.stands(scope) {
            Standing::Good(_) => (row.session, i64::MAX),
            _ => return Ok(Look::Act),
        },
        (None, None) => return Ok(Look::Act),
        (None, Some(row)) => {
            let freed = scope.first(sql::FREED, [lock], |row| row.get::<_, i64>(0))?.unwrap_or(0);
            let ahead = scope.first(sql::AHEAD, (lock, place), |row| row.get::<_, i64>(0))?.unwrap_or(0);
            let turn = turn(freed, ahead);
            if freed == 0 || scope.now >= turn || !matches!(row.stands(scope), Standing::Good(_)) {
                return Ok(Look::Act);
            }
            (row.session, turn)
        }
    };
    let watch = Some(session).filter(|session| !scope.shared.is_ours(*session));
    Ok(Look::Rest { watch, next: next.min(scope.now + LOOK) })
}

pub(crate) fn inspect(scope: &Scope<'_>, name: &Name) -> Result<Status, Fault> {
    let mut status = Status::free(name.clone());
    let Some(lock) = find(scope, name.as_str())? else { return Ok(status) };
    status.last_token = Token::new(lock.fence);
    status.holders = holding(scope, lock.id)?;
    if waiting(scope, lock.id)? > 0 {
        let alive = |row: &WaiterRow| !matches!(row.stands(scope), Standing::Dead(_) | Standing::Expired);
        let rows = waiters(scope, lock.id)?;
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
