//! Giving back, taking back, taking away.
use super::{
    acquire::{find, in_the_way},
    judge::{holders, holding},
    scope::Scope,
    sql,
};
use crate::error::Fault;
use fencelock_core::{HoldId, Released};

/// The hold of this id and this token, and no other (SAFETY A1).
pub(crate) fn release(
    scope: &Scope<'_>,
    lock: Option<i64>,
    name: &str,
    hold: HoldId,
    token: i64,
) -> Result<Released, Fault> {
    let lock = match lock {
        Some(lock) => lock,
        None => match find(scope, name)? {
            Some(row) => row.id,
            None => return Ok(Released::NotHeld { holder: None }),
        },
    };
    if scope.execute(sql::HOLDER_DELETE, (lock, hold.to_bytes(), token))? == 0 {
        return Ok(Released::NotHeld { holder: in_the_way(holding(scope, lock)?) });
    }
    scope.freed(lock, scope.now)?;
    Ok(Released::Released)
}

/// Neither a grant nor a place of this hold is left.
pub(crate) fn withdraw(scope: &Scope<'_>, name: &str, hold: HoldId) -> Result<(), Fault> {
    let Some(lock) = find(scope, name)? else { return Ok(()) };
    let held = scope.execute(sql::HOLDER_WITHDRAW, (lock.id, hold.to_bytes()))?;
    let place = scope.first(sql::PLACE, (lock.id, hold.to_bytes()), |row| row.get::<_, i64>(0))?;
    if let Some(place) = place {
        scope.execute(sql::WAITER_DELETE, (lock.id, hold.to_bytes()))?;
        // Who stood behind it watches it: it has somebody else to watch now.
        if let Some(next) = scope.first(sql::SUCCESSOR, (lock.id, place), |row| row.get(0))? {
            scope.ring(lock.id, next);
        }
    }
    if held > 0 || (place.is_some() && holders(scope, lock.id)?.is_empty()) {
        // It was perhaps this one's turn: it is the next one's now, from now on.
        scope.freed(lock.id, scope.now)?;
    }
    Ok(())
}

/// Breaks the hold with this token. Its holder is rung, so that it is told at once.
pub(crate) fn force(scope: &Scope<'_>, name: &str, token: i64) -> Result<Released, Fault> {
    let Some(lock) = find(scope, name)? else { return Ok(Released::NotHeld { holder: None }) };
    let all = holders(scope, lock.id)?;
    let Some(row) = all.iter().find(|row| row.token == token) else {
        return Ok(Released::NotHeld { holder: in_the_way(holding(scope, lock.id)?) });
    };
    scope.execute(sql::HOLDER_DELETE, (lock.id, row.hold.to_bytes(), token))?;
    scope.alert(row.session);
    scope.freed(lock.id, scope.now)?;
    Ok(Released::Released)
}
