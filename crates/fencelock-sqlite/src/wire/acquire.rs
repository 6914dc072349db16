//! Claim, or queue: one transaction, asked again by everybody whose turn may have come.
use super::{
    claim::{Company, stored},
    judge::{HolderRow, Standing, clear, first_waiter, holders, waiters},
    line::{Line, ahead},
    release::in_the_way,
    scope::{RUN, Scope, next_token},
    sql,
    time::wall_micros,
};
use crate::{
    error::Fault,
    session::{Own, nanos},
};
use fencelock_core::{Busy, Claim, HoldId, Kind, Request};

pub(crate) enum Entered {
    Granted(Won),
    Queued {
        lock: i64,
        busy: Busy,
    },
    Busy(Busy),
    OtherKind(String),
    OtherCapacity(u32),
    /// Nobody wants it any more.
    Stopped,
}
/// What a grant's record says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Won {
    pub(crate) lock: i64,
    pub(crate) token: i64,
    /// When it was granted.
    pub(crate) since: i64,
    /// From when the ttl of a lease that no heartbeat renews counts.
    pub(crate) from: i64,
}

/// The lock's row.
pub(crate) struct LockRow {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) capacity: u32,
    pub(crate) fence: i64,
    pub(crate) watched: bool,
}
pub(crate) fn find(scope: &Scope<'_>, name: &str) -> rusqlite::Result<Option<LockRow>> {
    scope.first(sql::LOCK, (&scope.shared.config.namespace, name), |row| {
        let (id, kind, capacity) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(LockRow { id, kind, capacity, fence: row.get(3)?, watched: row.get(4)? })
    })
}
impl LockRow {
    /// A new record.
    pub(crate) fn make(scope: &Scope<'_>, name: &str, kind: &str, capacity: u32) -> rusqlite::Result<Self> {
        let params = (&scope.shared.config.namespace, name, kind, capacity, wall_micros() / 1_000_000);
        scope.execute(sql::LOCK_INSERT, params)?;
        let (id, kind) = (scope.conn.last_insert_rowid(), kind.to_owned());
        Ok(Self { id, kind, capacity, fence: 0, watched: false })
    }
    /// It becomes another kind, or another size.
    pub(crate) fn turn_into(&mut self, scope: &Scope<'_>, kind: Kind, capacity: u32) -> rusqlite::Result<()> {
        scope.execute(sql::LOCK_KIND, (self.id, kind.as_str(), capacity))?;
        (self.kind, self.capacity) = (kind.as_str().to_owned(), capacity);
        Ok(())
    }
    /// The claim, on this lock as large as it is now.
    pub(crate) fn sized(&self, claim: Claim) -> Claim {
        claim.of_capacity(self.capacity)
    }
    /// Somebody has it or wants it as what it is, so it cannot become anything else (SAFETY K1).
    pub(crate) fn is_live(&self, scope: &Scope<'_>) -> Result<bool, Fault> {
        if self.kind == Kind::Cell.as_str() || !clear(scope, self.id, self.capacity)?.is_empty() {
            return Ok(true);
        }
        for row in waiters(scope, self.id, self.capacity)? {
            if !row.bury_if_dead(scope, self.id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// *Invariant (SAFETY A2, A3):* the stop is looked at inside the write transaction. Core fires it before it withdraws, and
/// SQLite puts write transactions in one order: either this one comes first, and the withdrawal finds what it wrote; or it
/// comes after, and sees the stop. So no window of time is needed, and no second withdrawal.
pub(crate) fn enter(scope: &Scope<'_>, request: &Request, session: i64) -> Result<Entered, Fault> {
    if request.is_stopped() {
        return Ok(Entered::Stopped);
    }
    let (name, kind, size) = (request.name().as_str(), request.claim().kind(), request.claim().capacity());
    let Some(mut lock) = find(scope, name)? else {
        let lock = LockRow::make(scope, name, kind.as_str(), size.unwrap_or(0))?;
        return grant(scope, request, session, &lock, false);
    };
    let (mut room, mine) = holding_and_mine(scope, lock.id, request.hold())?;
    let mut holder = None;
    // Beside all that are written it fits in, whoever of them still counts: many share some locks, and nobody is judged then.
    if mine || lock.kind != kind.as_str() || !lock.sized(request.claim()).fits(room.together()) {
        let live = clear(scope, lock.id, lock.capacity)?;
        let is_mine = |row: &HolderRow| row.hold == request.hold() && row.session == session;
        if let Some((mine, _)) = live.iter().find(|(row, _)| is_mine(row)) {
            // A repeat: its lease starts anew, in this transaction (SAFETY G1).
            scope.beat(session)?;
            extend(scope, lock.id, request.hold(), nanos(request.ttl()))?;
            let (token, since) = (mine.token, mine.since);
            return Ok(Entered::Granted(Won { lock: lock.id, token, since, from: scope.now }));
        }
        room = live.iter().map(|(row, _)| &row.claim).collect();
        holder = live.first().map(|(row, until)| row.public(scope, *until));
    }
    if lock.kind != kind.as_str() {
        if lock.is_live(scope)? {
            return Ok(Entered::OtherKind(lock.kind));
        }
        lock.turn_into(scope, kind, size.unwrap_or(0))?;
    }
    if size.is_some_and(|size| size != lock.capacity) {
        if lock.capacity == 0 {
            lock.turn_into(scope, kind, size.unwrap_or(0))?;
        } else if place(scope, lock.id, request.hold())?.is_none() {
            return Ok(Entered::OtherCapacity(lock.capacity));
        }
    }
    let line = Line::read(scope, &lock, request, room)?;
    if line.my_turn {
        line.pass(scope, lock.id)?;
        let won = grant(scope, request, session, &lock, line.queued)?;
        if !request.claim().is_exclusive() && (line.queued || line.ahead > 0) {
            // The next one may fit in beside it. Those behind were rung with it, unless they come after one that slept.
            scope.next(lock.id, if line.has_passed() { RUN } else { 1 })?;
        }
        return Ok(won);
    }
    let holder = if holder.is_none() { in_the_way(scope, lock.id)? } else { holder };
    let busy = Busy::new(holder, Some(line.ahead));
    if !request.wait() {
        return Ok(Entered::Busy(busy));
    }
    if !line.queued {
        let ((claim, take), hold) = (stored(request.claim()), request.hold().to_bytes());
        let row = (lock.id, hold, session, claim, take, nanos(request.ttl()), scope.now, request.note());
        scope.execute(sql::WAITER_INSERT, row)?;
        // Without its session's row it would be nobody's.
        if scope.first(sql::SESSION_LAST, [session], |_| Ok(()))?.is_none() {
            return Err(Fault::SessionGone);
        }
    }
    Ok(Entered::Queued { lock: lock.id, busy })
}
/// What a snapshot tells somebody who does not wait: those who certainly count leave no room for it, or for the first in the
/// queue. *Invariant:* they are judged as in a write transaction, and whatever is in doubt is left to one (`None`): so the dead
/// are buried and the unseen are observed there, and those who only ask again and again keep nobody from writing.
pub(crate) fn refuse(scope: &Scope<'_>, request: &Request) -> Result<Option<Busy>, Fault> {
    let claim = request.claim();
    let Some(lock) = find(scope, request.name().as_str())? else { return Ok(None) };
    if lock.kind != claim.kind().as_str() || claim.capacity().is_some_and(|size| size != lock.capacity) {
        return Ok(None);
    }
    let (all, mine) = holding_and_mine(scope, lock.id, request.hold())?;
    let first = first_waiter(scope, lock.id, lock.capacity, |_| true)?;
    let first = first.filter(|row| matches!(row.stands(scope), Standing::Good(_))).map(|row| row.claim);
    let is_full = |room: Company| [Some(claim), first].into_iter().flatten().any(|claim| !claim.fits(room.together()));
    if mine || !is_full(all) {
        return Ok(None);
    }
    let (mut room, mut holder) = (Company::default(), None);
    for row in holders(scope, lock.id, lock.capacity)? {
        let Standing::Good(until) = row.stands(scope) else { continue };
        room.add(row.claim);
        holder.get_or_insert_with(|| row.public(scope, until));
        if is_full(room) {
            let ahead = ahead(scope, lock.id, claim, i64::MAX)?.count;
            return Ok(Some(Busy::new(holder, u32::try_from(ahead).ok())));
        }
    }
    Ok(None)
}
fn holding_and_mine(scope: &Scope<'_>, lock: i64, hold: HoldId) -> rusqlite::Result<(Company, bool)> {
    let all =
        scope.first(sql::HOLDING_AND_MINE, (lock, hold.to_bytes()), |row| Ok((Company::of(row)?, row.get(4)?)))?;
    Ok(all.unwrap_or_default())
}
pub(crate) fn waiting(scope: &Scope<'_>, lock: i64) -> rusqlite::Result<i64> {
    Ok(scope.first(sql::WAITING, [lock], |row| row.get(0))?.unwrap_or(0))
}
pub(crate) fn place(scope: &Scope<'_>, lock: i64, hold: HoldId) -> rusqlite::Result<Option<i64>> {
    scope.first(sql::PLACE, (lock, hold.to_bytes()), |row| row.get(0))
}
/// It ends no sooner than so long from now, and never sooner than before. What lives with its session is kept by the beat.
pub(crate) fn extend(scope: &Scope<'_>, lock: i64, hold: HoldId, ttl: i64) -> rusqlite::Result<usize> {
    scope.execute(sql::HOLDER_EXTEND, (lock, hold.to_bytes(), scope.now, ttl))
}

fn grant(scope: &Scope<'_>, request: &Request, session: i64, lock: &LockRow, queued: bool) -> Result<Entered, Fault> {
    let floor = request.floor().map_or(0, |token| token.get());
    let token = next_token(scope, lock.fence, floor)?;
    // First: what it finds missing or run out are the holds from before, by the heartbeat from before.
    scope.beat(session)?;
    let after = |d| scope.now.saturating_add(nanos(d));
    let (hold, ttl) = (request.hold().to_bytes(), nanos(request.ttl()));
    let cap = request.max_hold().map_or(i64::MAX, |d| after(d).saturating_add(ttl));
    let fixed = if request.is_fixed() { after(request.ttl()) } else { 0 };
    let least = if request.at_least().is_zero() { 0 } else { after(request.at_least()) };
    let kind = request.claim().kind();
    scope.execute(sql::LOCK_GRANT, (lock.id, kind.as_str(), token, wall_micros() / 1_000_000))?;
    let (claim, take) = stored(request.claim());
    let (now, note) = (scope.now, request.note());
    let row = (lock.id, hold, session, claim, take, token, ttl, fixed, cap, least, now, note, lock.watched);
    scope.execute(sql::HOLDER_INSERT, row)?;
    if queued {
        scope.execute(sql::WAITER_DELETE, (lock.id, hold))?;
    }
    if lock.watched {
        scope.tell_watchers(lock.id)?;
    }
    scope.granted(session, request.hold(), Own { lock: lock.id, token, ttl, fixed: request.is_fixed() })?;
    Ok(Entered::Granted(Won { lock: lock.id, token, since: scope.now, from: scope.now }))
}
