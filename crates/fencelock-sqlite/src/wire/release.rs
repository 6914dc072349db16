//! Giving back, taking back, taking away.
use super::{
    acquire::{find, place},
    judge::{first_holding, holders},
    scope::Scope,
    sql,
};
use crate::{error::Fault, session::Own};
use fencelock_core::{HoldId, Holder, Released};

/// The hold of this id and this token, and no other (SAFETY A1).
pub(crate) fn release(
    scope: &Scope<'_>,
    own: Option<Own>,
    name: &str,
    hold: HoldId,
    token: i64,
) -> Result<Released, Fault> {
    let lock = match own {
        Some(own) => own.lock,
        None => match find(scope, name)? {
            Some(row) => row.id,
            None => return Ok(Released::NotHeld { holder: None }),
        },
    };
    // A lease that no heartbeat renews may be over, and its row still be there.
    let over = own.is_none_or(|own| own.fixed)
        && scope.first(sql::HOLDER_OVER, (lock, hold.to_bytes(), token, scope.now), |_| Ok(()))?.is_some();
    if scope.execute(sql::HOLDER_DELETE_UNWATCHED, (lock, hold.to_bytes(), token))? == 0 {
        if scope.execute(sql::HOLDER_DELETE, (lock, hold.to_bytes(), token))? == 0 {
            return Ok(Released::NotHeld { holder: in_the_way(scope, lock)? });
        }
        scope.tell_watchers(lock)?;
    }
    scope.freed(lock)?;
    Ok(if over { Released::NotHeld { holder: None } } else { Released::Released })
}

/// Neither a grant nor a place of this hold is left.
pub(crate) fn withdraw(scope: &Scope<'_>, name: &str, hold: HoldId) -> Result<(), Fault> {
    let Some(lock) = find(scope, name)? else { return Ok(()) };
    let held = scope.execute(sql::HOLDER_WITHDRAW, (lock.id, hold.to_bytes()))?;
    let place = place(scope, lock.id, hold)?;
    if let Some(place) = place {
        scope.execute(sql::WAITER_DELETE, (lock.id, hold.to_bytes()))?;
        // Who stood behind it watches it: it has somebody else to watch now.
        if let Some(next) = scope.first(sql::SUCCESSOR, (lock.id, place), |row| row.get(0))? {
            scope.ring(lock.id, next);
        }
        if scope.first(sql::AHEAD, (lock.id, place), |row| row.get::<_, i64>(0))? == Some(0) {
            // It was perhaps this one's turn: it is the next one's now, from now on.
            scope.execute(sql::LOCK_FREED, (lock.id, 0))?;
        }
    }
    if held > 0 || place.is_some() {
        scope.freed(lock.id)?;
    }
    if held > 0 && lock.watched {
        scope.tell_watchers(lock.id)?;
    }
    Ok(())
}

/// Breaks the hold with this token. Its holder is rung, so that it is told at once.
pub(crate) fn force(scope: &Scope<'_>, name: &str, token: i64) -> Result<Released, Fault> {
    scope.must_be_there()?;
    let Some(lock) = find(scope, name)? else { return Ok(Released::NotHeld { holder: None }) };
    let all = holders(scope, lock.id, lock.capacity)?;
    let Some(row) = all.iter().find(|row| row.token == token) else {
        return Ok(Released::NotHeld { holder: in_the_way(scope, lock.id)? });
    };
    scope.execute(sql::HOLDER_DELETE, (lock.id, row.hold.to_bytes(), token))?;
    scope.alert(row.session);
    scope.freed(lock.id)?;
    if lock.watched {
        scope.tell_watchers(lock.id)?;
    }
    Ok(Released::Released)
}

/// Somebody who is in the way, for those who only ask.
pub(crate) fn in_the_way(scope: &Scope<'_>, lock: i64) -> Result<Option<Holder>, Fault> {
    let of = scope.first(sql::LOCK_STATE, [lock], |row| row.get(0))?.unwrap_or(0);
    let first = first_holding(scope, lock, of)?;
    Ok(first.map(|(row, until)| row.public(scope, until)))
}
