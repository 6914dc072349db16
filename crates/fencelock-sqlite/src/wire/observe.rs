//! Who wants to know who holds a lock (SAFETY E9).
use super::{
    acquire::{LockRow, find},
    scope::Scope,
    sql,
};
use crate::error::Fault;

/// From here on whoever changes the holder of this lock rings our doorbell. Answers the lock's number.
pub(crate) fn watch(scope: &Scope<'_>, name: &str, session: i64) -> Result<i64, Fault> {
    if scope.first(sql::SESSION_LAST, [session], |_| Ok(()))?.is_none() {
        return Err(Fault::SessionGone);
    }
    let lock = match find(scope, name)? {
        Some(lock) => lock,
        None => LockRow::make(scope, name, "", 0)?,
    };
    scope.execute(sql::WATCHER_INSERT, (lock.id, session))?;
    scope.execute(sql::LOCK_WATCHED, [lock.id])?;
    scope.execute(sql::HOLDERS_WATCHED, [lock.id])?;
    Ok(lock.id)
}
pub(crate) fn unwatch(scope: &Scope<'_>, lock: i64, session: i64) -> Result<(), Fault> {
    scope.execute(sql::WATCHER_DELETE, (lock, session))?;
    scope.execute(sql::LOCK_WATCHED, [lock])?;
    Ok(())
}
