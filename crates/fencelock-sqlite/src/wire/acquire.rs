//! Claim, or queue: one transaction, asked again by everybody whose turn may have come.
use super::{
    judge::{Standing, clear, observe, waiters},
    look::LOOK,
    scope::{Scope, next_token},
    sql,
    time::wall_micros,
};
use crate::{
    error::Fault,
    session::{Own, nanos},
};
use fencelock_core::{Busy, HoldId, Holder, Request};

/// When somebody who has so many alive ahead may take a lock that has been free since `freed` (SAFETY E4). The first is rung;
/// when it has not taken it after 250 ms, the second may, whose own look comes within a second; then the third.
pub(crate) fn turn(freed: i64, ahead: i64) -> i64 {
    const PATIENCE: i64 = 250_000_000;
    match ahead {
        0 => freed,
        n => freed.saturating_add(PATIENCE).saturating_add((PATIENCE + LOOK).saturating_mul(n - 1)),
    }
}

pub(crate) enum Entered {
    /// At this time.
    Granted {
        lock: i64,
        token: i64,
        at: i64,
    },
    Queued {
        lock: i64,
        busy: Busy,
    },
    Busy(Busy),
    OtherKind(String),
    /// Nobody wants it any more.
    Stopped,
}

/// The lock's row.
pub(crate) struct LockRow {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) fence: i64,
    pub(crate) freed: i64,
}
pub(crate) fn find(scope: &Scope<'_>, name: &str) -> rusqlite::Result<Option<LockRow>> {
    scope.first(sql::LOCK, (&scope.shared.config.namespace, name), |row| {
        Ok(LockRow { id: row.get(0)?, kind: row.get(1)?, fence: row.get(2)?, freed: row.get(3)? })
    })
}

/// *Invariant (SAFETY A2, A3):* the stop is looked at inside the write transaction. Core fires it before it withdraws, and
/// SQLite puts write transactions in one order: either this one comes first, and the withdrawal finds what it wrote; or it
/// comes after, and sees the stop. So no window of time is needed, and no second withdrawal.
pub(crate) fn enter(scope: &Scope<'_>, request: &Request, session: i64) -> Result<Entered, Fault> {
    if request.is_stopped() {
        return Ok(Entered::Stopped);
    }
    let kind = request.claim().kind().to_string();
    let Some(lock) = find(scope, request.name().as_str())? else {
        let params = (&scope.shared.config.namespace, request.name().as_str(), &kind, wall_micros() / 1_000_000);
        scope.execute(sql::LOCK_INSERT, params)?;
        let lock = LockRow { id: scope.conn.last_insert_rowid(), kind, fence: 0, freed: 0 };
        return grant(scope, request, session, &lock, false);
    };
    let live = clear(scope, lock.id)?;
    if let Some((mine, _)) = live.iter().find(|(row, _)| row.hold == request.hold()) {
        // A repeat: its lease starts anew, in this transaction (SAFETY G1).
        scope.beat(session)?;
        return Ok(Entered::Granted { lock: lock.id, token: mine.token, at: mine.since });
    }
    if lock.kind != kind {
        if !live.is_empty() || waiting(scope, lock.id)? > 0 {
            return Ok(Entered::OtherKind(lock.kind));
        }
        scope.execute(sql::LOCK_KIND, (lock.id, &kind))?;
    }
    let holder = live.first().map(|(row, until)| row.public(scope.now, *until));
    let line = Line::read(scope, &lock, request, holder.is_none())?;
    if holder.is_none() && line.my_turn {
        for place in &line.passed {
            scope.execute(sql::WAITER_TAIL, (lock.id, place))?;
        }
        for hold in &line.doubtful {
            scope.execute(sql::WAITER_DELETE, (lock.id, hold.to_bytes()))?;
        }
        return grant(scope, request, session, &lock, line.queued);
    }
    let busy = Busy { holder, ahead: Some(line.ahead) };
    if !request.wait() {
        return Ok(Entered::Busy(busy));
    }
    if !line.queued {
        let (hold, ttl) = (request.hold().to_bytes(), nanos(request.ttl()));
        scope.execute(sql::WAITER_INSERT, (lock.id, hold, session, ttl, scope.now, request.note()))?;
        // Without its session's row it would be nobody's.
        if scope.first(sql::SESSION_LAST, [session], |_| Ok(()))?.is_none() {
            return Err(Fault::SessionGone);
        }
    }
    Ok(Entered::Queued { lock: lock.id, busy })
}

/// The queue, as far as it matters to one request.
struct Line {
    /// It has a place already.
    queued: bool,
    ahead: u32,
    my_turn: bool,
    /// Places of those who are alive and let their turn go by.
    passed: Vec<i64>,
    /// Those of them whose file is not there, so that nobody can tell their death: one that lives queues anew.
    doubtful: Vec<HoldId>,
}
impl Line {
    /// Those ahead are judged by somebody who has a place, or when the lock is free: the dead are buried, and when it is free
    /// those who sleep are passed.
    fn read(scope: &Scope<'_>, lock: &LockRow, request: &Request, free: bool) -> Result<Self, Fault> {
        let hold = request.hold();
        let place = scope.first(sql::PLACE, (lock.id, hold.to_bytes()), |row| row.get::<_, i64>(0))?;
        let ahead = scope.first(sql::AHEAD, (lock.id, place.unwrap_or(i64::MAX)), |row| row.get(0))?.unwrap_or(0);
        let mut line = Self { queued: place.is_some(), ahead, my_turn: free, passed: Vec::new(), doubtful: Vec::new() };
        if ahead == 0 || (!free && place.is_none()) {
            return Ok(line);
        }
        let mut freed = lock.freed;
        if free && (freed == 0 || freed > scope.now) {
            // It fell free in this transaction.
            let since = scope.first(sql::FREED, [lock.id], |row| row.get(0))?;
            freed = since.filter(|at: &i64| *at > 0 && *at <= scope.now).unwrap_or(scope.now);
            scope.execute(sql::LOCK_FREED, (lock.id, freed))?;
        }
        for row in waiters(scope, lock.id)?.into_iter().take_while(|row| row.hold != hold) {
            match row.stands(scope) {
                Standing::Dead(file) => {
                    scope.bury(row.session, file)?;
                    line.ahead -= 1;
                    continue;
                }
                Standing::Expired => {
                    scope.execute(sql::WAITER_DELETE, (lock.id, row.hold.to_bytes()))?;
                    line.ahead -= 1;
                    continue;
                }
                Standing::Unseen => observe(scope, row.session)?,
                Standing::Good(_) => {}
            }
            let ahead = i64::try_from(line.passed.len() + line.doubtful.len() + 1).unwrap_or(i64::MAX);
            // Those behind it are judged all the same: whoever found one of them dead came for that.
            line.my_turn &= scope.now >= turn(freed, ahead);
            if scope.shared.has_file(row.session) {
                line.passed.push(row.place);
            } else {
                line.doubtful.push(row.hold);
            }
        }
        Ok(line)
    }
}
pub(crate) fn waiting(scope: &Scope<'_>, lock: i64) -> rusqlite::Result<i64> {
    Ok(scope.first(sql::WAITING, [lock], |row| row.get(0))?.unwrap_or(0))
}

fn grant(scope: &Scope<'_>, request: &Request, session: i64, lock: &LockRow, queued: bool) -> Result<Entered, Fault> {
    let floor = request.floor().map_or(0, |token| token.get());
    let token = next_token(scope, lock.fence, floor)?;
    // First: what it finds missing or run out are the holds from before, by the heartbeat from before.
    scope.beat(session)?;
    let (hold, ttl) = (request.hold().to_bytes(), nanos(request.ttl()));
    let cap = request.max_hold().map_or(i64::MAX, |d| scope.now.saturating_add(nanos(d)).saturating_add(ttl));
    let kind = request.claim().kind().to_string();
    scope.execute(sql::LOCK_GRANT, (lock.id, &kind, token, wall_micros() / 1_000_000))?;
    let row = (lock.id, hold, session, token, ttl, cap, scope.now, request.note());
    scope.execute(sql::HOLDER_INSERT, row)?;
    if queued {
        scope.execute(sql::WAITER_DELETE, (lock.id, hold))?;
    }
    scope.granted(session, request.hold(), Own { lock: lock.id, ttl })?;
    Ok(Entered::Granted { lock: lock.id, token, at: scope.now })
}

/// Somebody who is in the way, for those who only ask.
pub(crate) fn in_the_way(live: Vec<Holder>) -> Option<Holder> {
    live.into_iter().next()
}
