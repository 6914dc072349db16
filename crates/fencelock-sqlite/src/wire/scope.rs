//! One transaction: what it is made with, what it leaves to do after its commit, and how it is begun and ended.
use super::{
    claim::{Company, claim},
    sql,
    time::wall_micros,
};
use crate::{
    error::Fault,
    session::{
        Own, Shared,
        doorbell::{self, CHECK_HOLDS},
        liveness,
    },
};
use fencelock_core::{BootClock, Clock, HoldId, Moment};
use rusqlite::{CachedStatement, Connection, Params, Row};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashSet},
    ops::Range,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

/// A transaction under way.
pub(crate) struct Scope<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) shared: &'a Shared,
    /// Read after the transaction began. What this one writes comes no later than it seems to; what others wrote may be newer, where it only reads.
    pub(crate) now: i64,
    beaten: Cell<Option<i64>>,
    /// Whose file's lock was found held: a transaction is short, and some locks have many holders.
    alive: RefCell<HashSet<i64>>,
    /// Somebody who was judged has no file.
    gone: Cell<bool>,
    buried: RefCell<HashSet<i64>>,
    effects: RefCell<Effects>,
}
/// What happens after the commit, and only then.
#[derive(Default)]
struct Effects {
    granted: Vec<HoldId>,
    lost: Vec<HoldId>,
    rings: Vec<Ring>,
    corpses: Vec<(i64, Option<OwnedFd>)>,
}
/// Whom to ring about a lock: everybody in `all`; if nobody of them lives, the first of `others` who does.
struct Ring {
    lock: i64,
    all: Vec<i64>,
    others: Vec<i64>,
}
/// So many are rung at once, when they all fit in. They ring the next ones.
pub(crate) const RUN: usize = 64;

impl<'a> Scope<'a> {
    fn new(conn: &'a Connection, shared: &'a Shared) -> Self {
        let now = shared.time.now();
        let (beaten, alive, gone, buried, effects) = Default::default();
        Self { conn, shared, now, beaten, alive, gone, buried, effects }
    }
    pub(crate) fn is_known_alive(&self, session: i64) -> bool {
        self.alive.borrow().contains(&session) || self.shared.is_ours(session)
    }
    pub(crate) fn found_alive(&self, session: i64) {
        self.alive.borrow_mut().insert(session);
    }
    /// All of them, but for ourselves.
    pub(crate) fn known_alive(&self) -> Vec<i64> {
        self.alive.borrow().iter().copied().collect()
    }
    /// Nobody can tell that it is dead, so its lease judges.
    pub(crate) fn found_gone(&self, session: i64) {
        self.gone.set(true);
        self.found_alive(session);
    }
    pub(crate) fn statement(&self, sql: &str) -> rusqlite::Result<CachedStatement<'a>> {
        self.conn.prepare_cached(sql)
    }
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.statement(sql)?.execute(params)
    }
    /// The first row, if there is one.
    pub(crate) fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(map).transpose()
    }
    pub(crate) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.statement(sql)?.query_map(params, map)?.collect()
    }

    /// The session's heartbeat, once a transaction. *Invariant (SAFETY G1):* it revives nothing. When time enough has passed
    /// for any hold of ours to have run out, those that have are ended first, and those that somebody took are found missing.
    pub(crate) fn beat(&self, session: i64) -> Result<(), Fault> {
        if self.beaten.get().is_some() {
            return Ok(());
        }
        if self.shared.may_have_lapsed(self.now) {
            self.verify(session, &self.shared.held())?;
        }
        if self.execute(sql::SESSION_BEAT, (session, self.now))? == 0 {
            return Err(Fault::SessionGone);
        }
        self.beaten.set(Some(session));
        Ok(())
    }
    /// What we hold and is not written on a snapshot, each with its lock. Hold by hold: what others hold costs us nothing. Our other
    /// thread may be granting it just now: `verify` knows, in a transaction that comes after its own.
    pub(crate) fn missing(&self, session: i64) -> Result<Vec<(HoldId, i64)>, Fault> {
        self.first(sql::SESSION_LAST, [session], |_| Ok(()))?.ok_or(Fault::SessionGone)?;
        let mut missing = Vec::new();
        for (hold, lock) in self.shared.held() {
            if self.first(sql::HOLDER_THERE, (lock, hold.to_bytes(), session), |_| Ok(()))?.is_none() {
                missing.push((hold, lock));
            }
        }
        Ok(missing)
    }
    /// Compares these holds of ours, each with its lock, with what is written, and ends what has run out. *Invariant (SAFETY G1):*
    /// before the beat, by the beat from before; and no hold is extended that was not asked for here in the same transaction.
    pub(crate) fn verify(&self, session: i64, holds: &[(HoldId, i64)]) -> Result<(), Fault> {
        let beat = self.first(sql::SESSION_LAST, [session], |row| row.get::<_, i64>(0))?;
        let beat = beat.ok_or(Fault::SessionGone)?;
        for &(hold, lock) in holds {
            let id = hold.to_bytes();
            match self.first(sql::HOLDER_LAPSED, (lock, id, session, beat, self.now), |row| row.get(0))? {
                Some(false) => continue,
                Some(true) => {
                    self.execute(sql::HOLDER_WITHDRAW, (lock, id))?;
                    self.freed(lock)?;
                    self.tell_watchers(lock)?;
                }
                // A release forgets it before it deletes it.
                None if self.shared.own(hold).is_none() => continue,
                None => {}
            }
            self.effects.borrow_mut().lost.push(hold);
        }
        Ok(())
    }
    /// Who has no session in it has nothing else that would notice: the file may be one that nobody else can see.
    pub(crate) fn must_be_there(&self) -> Result<(), Fault> {
        if self.shared.is_replaced() { Err(Fault::Replaced) } else { Ok(()) }
    }
    pub(crate) fn granted(&self, session: i64, hold: HoldId, own: Own) -> Result<(), Fault> {
        // One stat: a client of short holds beats seldom, and must not go on in a file that nobody else can see.
        if self.shared.is_replaced() || !self.shared.grant(session, hold, own, self.now) {
            return Err(Fault::SessionGone);
        }
        self.effects.borrow_mut().granted.push(hold);
        Ok(())
    }
    /// Somebody has left this lock, or shares it now. *Invariant (SAFETY E4):* when the first of those who wait fits in, it is
    /// written since when, and it is rung, with all behind it that fit in beside it.
    pub(crate) fn freed(&self, lock: i64) -> Result<(), Fault> {
        self.next(lock, RUN)
    }
    /// As `freed`, ringing at most so many of those who fit in.
    pub(crate) fn next(&self, lock: i64, run: usize) -> Result<(), Fault> {
        let mut statement = self.statement(sql::NEXT)?;
        let mut rows = statement.query([lock])?;
        let Some(mut row) = rows.next()? else { return Ok(()) };
        let state = |row: &Row<'_>| Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?));
        let (of, since) = self.first(sql::LOCK_STATE, [lock], state)?.unwrap_or_default();
        let mut room = self.first(sql::HOLDING, [lock], Company::of)?.unwrap_or_default();
        let mut ring = Ring { lock, all: Vec::new(), others: Vec::new() };
        loop {
            let (session, claim) = (row.get(0)?, claim(row.get(1)?, row.get(2)?, of));
            if ring.others.is_empty() && ring.all.len() < run && claim.fits(room.together()) {
                room.add(claim);
                if !ring.all.contains(&session) {
                    ring.all.push(session);
                }
            } else if ring.all.is_empty() || ring.others.len() == 3 {
                break;
            } else {
                ring.others.push(session);
            }
            match rows.next()? {
                Some(next) => row = next,
                None => break,
            }
        }
        let fits = !ring.all.is_empty();
        let known = (1..=self.now).contains(&since);
        if fits != known {
            self.execute(sql::LOCK_FREED, (lock, if fits { self.now } else { 0 }))?;
        }
        if fits {
            self.effects.borrow_mut().rings.push(ring);
        }
        Ok(())
    }
    /// Tells a session to look at its place in this lock's queue.
    pub(crate) fn ring(&self, lock: i64, session: i64) {
        self.effects.borrow_mut().rings.push(Ring { lock, all: vec![session], others: Vec::new() });
    }
    /// Tells a session to look whether its holds are still there.
    pub(crate) fn alert(&self, session: i64) {
        self.ring(CHECK_HOLDS, session);
    }
    /// Who holds it has changed: tells those who want to know.
    pub(crate) fn tell_watchers(&self, lock: i64) -> Result<(), Fault> {
        let all: Vec<i64> = self.all(sql::WATCHERS, [lock], |row| row.get(0))?;
        self.effects.borrow_mut().rings.push(Ring { lock, all, others: Vec::new() });
        Ok(())
    }
    /// Removes a dead session with all that it held and waited for, but for what must not end yet. `lock` keeps anybody from
    /// taking its file meanwhile.
    pub(crate) fn bury(&self, session: i64, lock: Option<OwnedFd>) -> Result<(), Fault> {
        if !self.buried.borrow_mut().insert(session) {
            return Ok(());
        }
        let lock_of = |row: &Row<'_>| row.get::<_, i64>(0);
        let held = self.all(sql::HOLDERS_BURY, (session, self.now, &self.shared.time.boot), lock_of)?;
        let queued: BTreeSet<i64> = self.all(sql::WAITERS_BURY, [session], lock_of)?.into_iter().collect();
        for lock in self.all(sql::WATCHERS_BURY, [session], lock_of)? {
            self.execute(sql::LOCK_WATCHED, [lock])?;
        }
        if self.execute(sql::SESSION_DELETE, [session])? == 0 {
            self.execute(sql::SESSION_DEAD, [session])?;
        }
        for lock in &queued {
            // It may have been the first: the next one's time begins now.
            self.execute(sql::LOCK_FREED, (lock, 0))?;
        }
        for lock in held.into_iter().chain(queued).collect::<BTreeSet<_>>() {
            self.freed(lock)?;
            self.tell_watchers(lock)?;
        }
        self.effects.borrow_mut().corpses.push((session, lock));
        Ok(())
    }

    fn committed(self, sent_at: Moment) {
        let Effects { lost, rings, corpses, .. } = self.effects.into_inner();
        match self.beaten.get() {
            Some(session) => self.shared.beaten(session, self.now, &lost, sent_at),
            None => self.shared.lost(&lost),
        }
        let folder = &self.shared.folder;
        for (session, lock) in corpses {
            liveness::remove(folder, session);
            drop(lock);
        }
        for Ring { lock, all, others } in rings {
            let ring = |session: &i64| doorbell::ring(folder, *session, lock);
            if all.iter().filter(|session| ring(session)).count() == 0 {
                let _ = others.iter().find(|session| ring(session));
            }
        }
    }
    /// *Invariant:* forgotten while the write lock is still ours, or another heartbeat would miss what was never written.
    fn roll_back(self) {
        for hold in self.effects.into_inner().granted {
            self.shared.drop_hold(hold);
        }
        roll_back(self.conn);
    }
}

/// One thing to do inside a write transaction. It may be asked again, in another one, when the first was rolled back.
pub(crate) trait Task: Send {
    fn attempt(&mut self, scope: &Scope<'_>) -> Result<(), Fault>;
    fn finish(self: Box<Self>, end: Result<(), Fault>);
}

/// Runs `op` in a write transaction of its own, raising the mark of tokens when that is needed.
pub(crate) fn write<T>(
    conn: &Connection,
    shared: &Shared,
    mut op: impl FnMut(&Scope<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    loop {
        let sent_at = BootClock.now();
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let scope = Scope::new(conn, shared);
        match op(&scope).and_then(|value| commit(conn).map(|()| value)) {
            Ok(value) => {
                scope.committed(sent_at);
                return Ok(value);
            }
            Err(fault) => {
                scope.roll_back();
                match fault {
                    Fault::Mark(token) => raise_mark(conn, shared, token)?,
                    fault => return Err(fault),
                }
            }
        }
    }
}
/// Runs several tasks in one transaction; when one of them cannot, each in its own.
pub(crate) fn write_all(conn: &Connection, shared: &Shared, mut tasks: Vec<Box<dyn Task>>) {
    if tasks.len() > 1 {
        let together = |scope: &Scope<'_>| tasks.iter_mut().try_for_each(|task| task.attempt(scope));
        match once(conn, shared, together) {
            Ok(()) => return tasks.into_iter().for_each(|task| task.finish(Ok(()))),
            // They have all waited long enough together.
            Err(Fault::Busy) => return tasks.into_iter().for_each(|task| task.finish(Err(Fault::Busy))),
            Err(_) => {}
        }
    }
    for mut task in tasks {
        let end = write(conn, shared, |scope| task.attempt(scope));
        task.finish(end);
    }
}
fn once(conn: &Connection, shared: &Shared, op: impl FnOnce(&Scope<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
    let sent_at = BootClock.now();
    conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let scope = Scope::new(conn, shared);
    match op(&scope).and_then(|()| commit(conn)) {
        Ok(()) => scope.committed(sent_at),
        Err(fault) => {
            scope.roll_back();
            return Err(fault);
        }
    }
    Ok(())
}
/// Runs `op` on one snapshot; it writes nothing. A session that is buried meanwhile is in the snapshot and has no file any more:
/// it would seem to live. So whoever meets one without a file looks once more: a newer snapshot does not have the buried.
pub(crate) fn read<T>(
    conn: &Connection,
    shared: &Shared,
    mut op: impl FnMut(&Scope<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut look = || {
        conn.prepare_cached("BEGIN")?.execute([])?;
        let scope = Scope::new(conn, shared);
        let value = op(&scope);
        roll_back(conn);
        value.map(|value| (value, scope.gone.get()))
    };
    match look()? {
        (_, true) => look(),
        seen => Ok(seen),
    }
    .map(|(value, _)| value)
}
fn commit(conn: &Connection) -> Result<(), Fault> {
    conn.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}
fn roll_back(conn: &Connection) {
    if !conn.is_autocommit() {
        // It fails only where there is nothing to roll back.
        let _ = conn.prepare_cached("ROLLBACK").and_then(|mut rollback| rollback.execute([]));
    }
}
/// *Invariant (SAFETY T2):* a token above the mark is never handed out, and a mark is on the disk before a token under it is:
/// after a power cut the next boot starts above it, whatever the wall clock says.
fn raise_mark(conn: &Connection, shared: &Shared, token: i64) -> Result<(), Fault> {
    const AHEAD: i64 = 1 << 32;
    conn.pragma_update(None, "synchronous", "FULL")?;
    let raised = once(conn, shared, |scope| {
        scope.execute(sql::META_MARK, [token.saturating_add(AHEAD)])?;
        Ok(())
    });
    let usual = if shared.config.sync_full { "FULL" } else { "NORMAL" };
    conn.pragma_update(None, "synchronous", usual)?;
    raised
}

/// The next token of a lock whose last one is `fence` (SAFETY T1).
pub(crate) fn next_token(scope: &Scope<'_>, fence: i64, floor: i64) -> Result<i64, Fault> {
    let bounds = scope.first(sql::BOUNDS, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
    let (mark, lowest) = bounds.unwrap_or((0, 0));
    let clock = wall_micros();
    // A floor that no clock of ours can have led to is somebody's mistake.
    let floor = if floor > fence && floor > clock.saturating_add(86_400_000_000) { 0 } else { floor };
    let above = |n: i64| n.checked_add(1).ok_or(Fault::Spent);
    let token = clock.max(above(fence)?).max(above(lowest)?).max(above(floor)?);
    if token > mark { Err(Fault::Mark(token)) } else { Ok(token) }
}

/// How long whoever finds the database locked sleeps until the next look.
pub(crate) const POLL: Range<Duration> = Duration::from_micros(50)..Duration::from_millis(1);
/// SQLite's own back-off gave single operations of more than a second under contention; this one is short and jittered.
pub(crate) fn wait_while_busy(calls: i32) -> bool {
    thread_local!(static SINCE: Cell<Option<Instant>> = const { Cell::new(None) });
    const PATIENCE: Duration = Duration::from_secs(5);
    let started = SINCE.with(|since| {
        if calls == 0 {
            since.set(Some(Instant::now()));
        }
        since.get()
    });
    if started.is_some_and(|at| at.elapsed() > PATIENCE) {
        return false;
    }
    std::thread::sleep(POLL.start + (POLL.end - POLL.start).mul_f64(fastrand::f64()));
    true
}
