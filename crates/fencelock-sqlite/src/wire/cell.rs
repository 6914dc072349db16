//! Values with a version: on the same row as a lock of the name, under the same tokens.
use super::{
    acquire::{LockRow, find},
    judge::{holding, queue},
    scope::{Scope, next_token},
    sql,
    time::wall_micros,
};
use crate::error::Fault;
use fencelock_core::{HoldId, Kind, Version, Versioned};

/// How long a write is remembered for its repeats, in ns (SAFETY A6).
const REMEMBERED: i64 = 60_000_000_000;
/// So many old ones are forgotten with each write; the rest within the hour.
const FORGOTTEN: i64 = 4;

/// `Err`: the name is a lock that is alive.
pub(crate) type OrKind<T> = Result<T, String>;

pub(crate) fn load(scope: &Scope<'_>, name: &str) -> Result<OrKind<Versioned>, Fault> {
    let Some(lock) = find(scope, name)? else { return Ok(Ok(Versioned::default())) };
    let is_lock = !lock.kind.is_empty() && lock.kind != Kind::Cell.as_str();
    if is_lock && !(holding(scope, lock.id, 0)?.is_empty() && queue(scope, lock.id, 0)?.is_empty()) {
        return Ok(Err(lock.kind));
    }
    Ok(Ok(stands(scope, lock.id)?))
}
fn stands(scope: &Scope<'_>, lock: i64) -> rusqlite::Result<Versioned> {
    let now = scope.first(sql::CELL, [lock], |row| {
        let value = row.get_ref(1)?.as_blob_or_null()?.map(Into::into);
        Ok(Versioned { version: Version::new(row.get(0)?), value })
    })?;
    Ok(now.unwrap_or_default())
}

/// *Invariant (SAFETY A6):* what was written under this nonce is asked first, whatever stands there now.
/// `Err` inside: what stands there instead of `expected`.
pub(crate) fn swap(
    scope: &Scope<'_>,
    name: &str,
    expected: Version,
    value: Option<&[u8]>,
    nonce: HoldId,
) -> Result<OrKind<Result<Version, Versioned>>, Fault> {
    scope.must_be_there()?;
    let nonce = nonce.to_bytes();
    if let Some(version) = scope.first(sql::WRITE, [nonce], |row| row.get(0))? {
        return Ok(Ok(Ok(Version::new(version))));
    }
    let lock = match find(scope, name)? {
        Some(lock) => lock,
        None if expected != Version::NONE => return Ok(Ok(Err(Versioned::default()))),
        None => LockRow::make(scope, name, "", 0)?,
    };
    if !lock.kind.is_empty() && lock.kind != Kind::Cell.as_str() && lock.is_live(scope)? {
        return Ok(Err(lock.kind));
    }
    let now = stands(scope, lock.id)?;
    if now.version != expected {
        return Ok(Ok(Err(now)));
    }
    let version = next_token(scope, lock.fence, 0)?;
    // Without a value it is of no kind, and any lock may take the name.
    let kind = if value.is_some() { Kind::Cell.as_str() } else { "" };
    scope.execute(sql::CELL_WRITE, (lock.id, kind, version, value, wall_micros() / 1_000_000))?;
    scope.execute(sql::WRITE_INSERT, (nonce, version, scope.now))?;
    forget(scope, FORGOTTEN)?;
    Ok(Ok(Ok(Version::new(version))))
}
/// Forgets old writes, at most so many. Those of another boot are old when its clock was ahead, and soon when it was not.
pub(crate) fn forget(scope: &Scope<'_>, most: i64) -> rusqlite::Result<usize> {
    scope.execute(sql::WRITES_FORGET, (scope.now.saturating_sub(REMEMBERED), scope.now, most))
}
