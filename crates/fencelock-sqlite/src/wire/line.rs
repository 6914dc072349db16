//! The queue: who stands before whom, and who may pass.
use super::{
    acquire::{LockRow, place},
    claim::Company,
    judge::{Standing, WaiterRow, observe, waiters},
    look::LOOK,
    scope::Scope,
    sql,
};
use crate::error::Fault;
use fencelock_core::{Claim, HoldId, Request};

/// When somebody who has so many sessions ahead, alive, may take a lock whose first waiter fits in since `freed` (SAFETY E4). The first is
/// rung; when it has not taken it after 250 ms, the second may, whose own look comes within a second; then the third. A process
/// sleeps as a whole, however many of it wait.
pub(crate) fn turn(freed: i64, ahead: i64) -> i64 {
    const PATIENCE: i64 = 250_000_000;
    match ahead {
        0 => freed,
        n => freed.saturating_add(PATIENCE).saturating_add((PATIENCE + LOOK).saturating_mul(n - 1)),
    }
}

/// The queue, as far as it matters to one request.
pub(crate) struct Line {
    /// It has a place already.
    pub(crate) queued: bool,
    pub(crate) ahead: u32,
    pub(crate) my_turn: bool,
    /// Places of those who are alive and let their turn go by.
    passed: Vec<i64>,
    /// Those of them whose file is not there, so that nobody can tell their death: one that lives queues anew.
    doubtful: Vec<HoldId>,
}
impl Line {
    /// Those ahead are judged by somebody who has a place, or who fits in: the dead are buried, and those who sleep are passed
    /// when they fit in as well. Who does not fit in yet holds up everybody behind: so nobody starves.
    pub(crate) fn read(scope: &Scope<'_>, lock: &LockRow, request: &Request, room: Company) -> Result<Self, Fault> {
        let (hold, claim) = (request.hold(), lock.sized(request.claim()));
        let place = place(scope, lock.id, hold)?;
        let company = ahead(scope, lock.id, claim, place.unwrap_or(i64::MAX))?;
        let (queued, count) = (place.is_some(), u32::try_from(company.count).unwrap_or(u32::MAX));
        let mut line = Self { queued, ahead: count, my_turn: false, passed: Vec::new(), doubtful: Vec::new() };
        let fits = claim.fits(room.together());
        // Beside all who came before: it takes nothing from them, even if it comes in before them.
        let beside = |company: Company| claim.fits(room.together().into_iter().chain(company.together()));
        line.my_turn = beside(company);
        if line.my_turn || company.count == 0 || !(fits || queued) {
            return Ok(line);
        }
        let rows = line.judge(scope, lock, hold)?;
        line.my_turn = beside(rows.iter().map(|row| &row.claim).collect());
        let fit = |row: &WaiterRow| row.claim.fits(room.together());
        let Some(first) = rows.first().filter(|_| !line.my_turn) else { return Ok(line) };
        if !fit(first) {
            return Ok(line);
        }
        let ahead = sessions_ahead(scope, lock.id, place.unwrap_or(i64::MAX))?;
        let turn = turn(line.freed(scope, lock.id)?, ahead);
        line.my_turn = fits && rows.iter().all(fit) && scope.now >= turn;
        if line.my_turn {
            line.passed_by(scope, &rows);
        }
        Ok(line)
    }
    /// Those ahead who count.
    fn judge(&mut self, scope: &Scope<'_>, lock: &LockRow, hold: HoldId) -> Result<Vec<WaiterRow>, Fault> {
        let mut rows = Vec::new();
        for row in waiters(scope, lock.id, lock.capacity)?.into_iter().take_while(|row| row.hold != hold) {
            if row.bury_if_dead(scope, lock.id)? {
                self.ahead = self.ahead.saturating_sub(1);
            } else {
                rows.push(row);
            }
        }
        Ok(rows)
    }
    /// Since when the first one fits in.
    fn freed(&self, scope: &Scope<'_>, lock: i64) -> Result<i64, Fault> {
        let since = scope.first(sql::LOCK_STATE, [lock], |row| row.get::<_, i64>(1))?.unwrap_or(0);
        if (1..=scope.now).contains(&since) {
            return Ok(since);
        }
        // Since this transaction.
        scope.freed(lock)?;
        Ok(scope.now)
    }
    fn passed_by(&mut self, scope: &Scope<'_>, rows: &[WaiterRow]) {
        for row in rows {
            if scope.shared.has_file(row.session) {
                self.passed.push(row.place);
            } else {
                self.doubtful.push(row.hold);
            }
        }
    }
    pub(crate) fn has_passed(&self) -> bool {
        !(self.passed.is_empty() && self.doubtful.is_empty())
    }
    /// Moves those who are passed to the end.
    pub(crate) fn pass(&self, scope: &Scope<'_>, lock: i64) -> Result<(), Fault> {
        for place in &self.passed {
            scope.execute(sql::WAITER_TAIL, (lock, place))?;
        }
        for hold in &self.doubtful {
            scope.execute(sql::WAITER_DELETE, (lock, hold.to_bytes()))?;
        }
        Ok(())
    }
}
/// All who stand before this place, as far as it matters to this claim.
pub(crate) fn ahead(scope: &Scope<'_>, lock: i64, claim: Claim, place: i64) -> rusqlite::Result<Company> {
    let sql = if claim.is_exclusive() { sql::AHEAD_ALONE } else { sql::AHEAD };
    Ok(scope.first(sql, (lock, place), Company::of)?.unwrap_or_default())
}
pub(crate) fn sessions_ahead(scope: &Scope<'_>, lock: i64, place: i64) -> rusqlite::Result<i64> {
    Ok(scope.first(sql::SESSIONS_AHEAD, (lock, place), |row| row.get(0))?.unwrap_or(0))
}

impl WaiterRow {
    /// True: it does not count any more, and is gone.
    pub(crate) fn bury_if_dead(&self, scope: &Scope<'_>, lock: i64) -> Result<bool, Fault> {
        match self.stands(scope) {
            Standing::Dead(file) => scope.bury(self.session, file)?,
            Standing::Expired => {
                scope.execute(sql::WAITER_DELETE, (lock, self.hold.to_bytes()))?;
                // It may have been the first: the next one's time begins now.
                scope.execute(sql::LOCK_FREED, (lock, 0))?;
                scope.freed(lock)?;
            }
            Standing::Unseen => {
                observe(scope, self.session)?;
                return Ok(false);
            }
            Standing::Good(_) => return Ok(false),
        }
        Ok(true)
    }
}
