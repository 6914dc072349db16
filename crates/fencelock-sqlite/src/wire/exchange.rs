//! A writer's hold that becomes a reader's, leases that are extended, and semaphores that change their size.
use super::{
    acquire::{LockRow, Won, extend, find},
    claim::{claim, stored},
    release::in_the_way,
    scope::Scope,
    sql,
};
use crate::{
    error::Fault,
    session::{Own, nanos},
};
use fencelock_core::{Claim, Grant, Holder, Kind, Request};

pub(crate) enum Exchanged {
    Granted(Won),
    /// The hold is not there.
    Gone(Option<Holder>),
    /// It is a hold that has no reader's side.
    Never,
}

/// The hold goes on as a reader's, under its token. A repeat finds it as it is, and gives its lease anew (SAFETY G1).
pub(crate) fn downgrade(scope: &Scope<'_>, grant: &Grant, next: &Request, session: i64) -> Result<Exchanged, Fault> {
    let Some(lock) = find(scope, grant.name.as_str())? else { return Ok(Exchanged::Gone(None)) };
    // A downgrade revives nothing.
    scope.verify(session, &[(grant.hold, lock.id)])?;
    scope.beat(session)?;
    let (hold, token) = (grant.hold.to_bytes(), grant.token.get());
    let now = scope.first(sql::HOLDER_CLAIM, (lock.id, hold, token, session), |row| Ok(claim(row.get(0)?, 0, 0)))?;
    match now {
        None => return Ok(Exchanged::Gone(in_the_way(scope, lock.id)?)),
        Some(Claim::Write) => {
            scope.execute(sql::HOLDER_DOWNGRADE, (lock.id, hold, stored(Claim::Read).0))?;
            scope.freed(lock.id)?;
            if lock.watched {
                scope.tell_watchers(lock.id)?;
            }
        }
        Some(Claim::Read) => {}
        Some(_) => return Ok(Exchanged::Never),
    }
    extend(scope, lock.id, grant.hold, nanos(next.ttl()))?;
    Ok(Exchanged::Granted(Won { lock: lock.id, token, since: scope.now, from: scope.now }))
}

/// The session beats, and leases that it does not renew are extended. Which of these are not there any more is told lost.
pub(crate) fn renew(scope: &Scope<'_>, session: i64, grants: &[(Grant, Option<Own>)]) -> Result<(), Fault> {
    let holds: Vec<_> = grants.iter().filter_map(|(grant, own)| Some((grant.hold, (*own)?.lock))).collect();
    scope.verify(session, &holds)?;
    scope.beat(session)?;
    for (grant, own) in grants {
        let ttl = nanos(grant.ttl);
        // The beat is all that a hold needs which lives with its session.
        if let Some(own) = own.filter(|own| own.fixed || ttl > own.ttl) {
            extend(scope, own.lock, grant.hold, ttl)?;
        }
    }
    Ok(())
}

pub(crate) enum Resized {
    Done,
    OtherKind(String),
    OtherCapacity(u32),
}
/// Compare and set (SAFETY K4). Those who want more than there is then have no place any more, and are rung to see it.
pub(crate) fn resize(scope: &Scope<'_>, name: &str, from: u32, to: u32) -> Result<Resized, Fault> {
    scope.must_be_there()?;
    let Some(mut lock) = find(scope, name)? else {
        LockRow::make(scope, name, Kind::Semaphore.as_str(), to)?;
        return Ok(Resized::Done);
    };
    if lock.kind != Kind::Semaphore.as_str() {
        if lock.is_live(scope)? {
            return Ok(Resized::OtherKind(lock.kind));
        }
        lock.capacity = 0;
    }
    if lock.capacity == to {
        return Ok(Resized::Done);
    }
    if lock.capacity != 0 && lock.capacity != from {
        return Ok(Resized::OtherCapacity(lock.capacity));
    }
    lock.turn_into(scope, Kind::Semaphore, to)?;
    let away: Vec<i64> = scope.all(sql::WAITERS_TOO_LARGE, (lock.id, to), |row| row.get(0))?;
    for session in &away {
        scope.ring(lock.id, *session);
    }
    if !away.is_empty() {
        // The first may be one of them: the next one's time begins now.
        scope.execute(sql::LOCK_FREED, (lock.id, 0))?;
    }
    scope.freed(lock.id)?;
    Ok(Resized::Done)
}
