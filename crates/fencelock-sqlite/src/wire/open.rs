//! Opening the database, the session's first and last transactions, and the sweep.
use super::{
    cell::forget,
    judge::observe,
    scope::{Scope, wait_while_busy},
    sql,
    time::wall_micros,
};
use crate::{
    error::{Fault, translate},
    session::liveness::{Pulse, in_folder, test},
};
use fencelock_core::{EngineId, Error, ErrorKind, Identity, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, config::DbConfig};
use std::{
    cell::OnceCell,
    collections::HashMap,
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

/// A connection, ready for our statements.
///
/// Only the first one of an engine may make the file: later it would be another file than the one that was opened.
pub(crate) fn connect(path: &Path, sync_full: bool, may_create: bool) -> Result<Connection> {
    let failed = |e| translate("connect", path, e);
    let create = if may_create { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | create;
    let mut conn = Connection::open_with_flags(path, flags).map_err(failed)?;
    settle(&mut conn).map_err(failed)?;
    // Before anything is changed: what is not ours is left as it is.
    is_made(&conn, path)?;
    tune(&conn, sync_full).map_err(failed)?;
    Ok(conn)
}
fn settle(conn: &mut Connection) -> rusqlite::Result<()> {
    conn.busy_handler(Some(wait_while_busy))?;
    conn.set_prepared_statement_cache_capacity(64);
    // The last one out of a busy minute does not copy the log back: a short command would pay for it.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(drop)
}
/// Whether our tables are there; those of another layout are refused, by the one column that every layout has.
fn is_made(conn: &Connection, path: &Path) -> Result<bool> {
    let number =
        |sql| patiently(|| conn.query_row(sql, [], |row| row.get(0))).map_err(|e| translate("connect", path, e));
    if number(sql::TABLES)? == 0 {
        return Ok(false);
    }
    match number(sql::LAYOUT_THERE)? {
        sql::LAYOUT => Ok(true),
        other => {
            let other = format!("the database has layout {other}, this program writes layout {}", sql::LAYOUT);
            let other = Error::new(ErrorKind::LayoutMismatch, "connect", other).with("database", path.display());
            Err(other.hint("use the version of fencelock that wrote it, or another path"))
        }
    }
}
fn tune(conn: &Connection, sync_full: bool) -> rusqlite::Result<()> {
    // Whoever opens the file when nobody has it open reads the whole log first: a short one keeps short commands short.
    conn.pragma_update(None, "wal_autocheckpoint", 256)?;
    patiently(|| conn.pragma_update(None, "synchronous", if sync_full { "FULL" } else { "NORMAL" }))?;
    let mode: String = patiently(|| conn.pragma_query_value(None, "journal_mode", |row| row.get(0)))?;
    if !mode.eq_ignore_ascii_case("wal") {
        patiently(|| conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())))?;
    }
    Ok(())
}
/// Some locks of SQLite's own ask no busy handler: while the log is recovered or the mode changes.
fn patiently<T>(mut op: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let started = Instant::now();
    loop {
        match op() {
            Err(e)
                if matches!(e.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
                    && started.elapsed() < Duration::from_secs(5) =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

/// Makes the tables when they are not there, and looks whether they are ours. On a new boot tokens start above the mark
/// (SAFETY T2). Answers which store it is.
pub(crate) fn prepare(conn: &Connection, path: &Path, boot: &str, sync_full: bool) -> Result<EngineId> {
    make(conn, path, boot, sync_full)?;
    let store = patiently(|| conn.query_row(sql::STORE, [], |row| row.get(0)));
    store.map(EngineId::from_bytes).map_err(|e| translate("connect", path, e))
}
fn make(conn: &Connection, path: &Path, boot: &str, sync_full: bool) -> Result<()> {
    let failed = |e| translate("connect", path, e);
    let known = || patiently(|| conn.query_row(sql::BOOT, [], |row| row.get::<_, String>(0))).map_err(failed);
    if is_made(conn, path)? && known()? == boot {
        return Ok(());
    }
    let store = EngineId::random()?.to_bytes();
    let make = || -> Result<()> {
        conn.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        conn.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        let body = || {
            // Somebody else may have made them meanwhile.
            if !is_made(conn, path)? {
                conn.execute_batch(sql::SCHEMA).map_err(failed)?;
                conn.execute(sql::META_INSERT, (sql::LAYOUT, store)).map_err(failed)?;
            }
            if known()? != boot {
                conn.execute(sql::META_BOOT, [boot]).map_err(failed)?;
            }
            conn.execute_batch("COMMIT").map_err(failed)
        };
        body().inspect_err(|_| {
            let _ = conn.execute_batch("ROLLBACK");
        })
    };
    let made = make();
    let usual = if sync_full { "FULL" } else { "NORMAL" };
    patiently(|| conn.pragma_update(None, "synchronous", usual)).map_err(failed)?;
    made
}

/// The session's row. Its files are made and locked already.
pub(crate) fn register(scope: &Scope<'_>, session: i64) -> std::result::Result<i64, Fault> {
    let Identity { host, pid } = Identity::here();
    scope.execute(sql::SESSION_INSERT, (session, &scope.shared.time.boot, scope.now, &*host, pid))?;
    Ok(scope.now)
}
/// What a look at somebody's session says.
enum Remains {
    Alive,
    /// Of another boot, and nobody has written down yet since when it does not move.
    Unseen,
    Dead(Option<OwnedFd>),
}
/// As in `judge`, for whole sessions: on this boot the lock on its file tells, of another boot only observation does.
fn remains(scope: &Scope<'_>) -> std::result::Result<Vec<(i64, Remains)>, Fault> {
    const DAY: i64 = 86_400_000_000_000;
    let (shared, boot) = (scope.shared, &scope.shared.time.boot);
    let own = shared.session().unwrap_or(0);
    let mut known = vec![own];
    // Read when somebody's matters, and then of all at once.
    let leases = OnceCell::new();
    let lease = |id: i64| -> rusqlite::Result<(i64, i64)> {
        if leases.get().is_none() {
            let all = scope.all(sql::LEASES, [], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
            let _ = leases.set(all.into_iter().collect::<HashMap<i64, _>>());
        }
        Ok(leases.get().and_then(|all| all.get(&id)).copied().unwrap_or_default())
    };
    let mut found = scope.all(sql::SESSIONS, [own], |row| {
        let (id, beat, seen_at): (i64, i64, i64) = (row.get(0)?, row.get(2)?, row.get(4)?);
        let dead: bool = row.get(5)?;
        known.push(id);
        let remains = if row.get::<_, String>(1)? != *boot {
            let seen = row.get::<_, String>(3)? == *boot && seen_at <= scope.now;
            match seen {
                false => Remains::Unseen,
                true if scope.now >= seen_at.saturating_add(lease(id)?.0) => match test(&shared.folder, id) {
                    Pulse::Dead(file) => Remains::Dead(Some(file)),
                    Pulse::Gone => Remains::Dead(None),
                    Pulse::Alive => Remains::Alive,
                },
                true => Remains::Alive,
            }
        } else if dead {
            // What is left of it may not end before then.
            if scope.now >= lease(id)?.1 { Remains::Dead(None) } else { Remains::Alive }
        } else if let Pulse::Dead(file) = test(&shared.folder, id) {
            Remains::Dead(Some(file))
        } else if !shared.has_file(id) && scope.now > beat.saturating_add(lease(id)?.0.max(DAY)) {
            Remains::Dead(None)
        } else {
            Remains::Alive
        };
        Ok((id, remains))
    })?;
    // Files without a row: their maker died before it was registered, or after it was buried.
    for id in in_folder(&shared.folder).into_iter().filter(|id| !known.contains(id)) {
        if let Pulse::Dead(file) = test(&shared.folder, id) {
            found.push((id, Remains::Dead(Some(file))));
        }
    }
    found.retain(|(_, remains)| !matches!(remains, Remains::Alive));
    // Each one dead has a descriptor open until it is buried.
    found.truncate(64);
    Ok(found)
}
pub(crate) fn needs_sweep(scope: &Scope<'_>) -> std::result::Result<bool, Fault> {
    Ok(!remains(scope)?.is_empty())
}
/// Buries the dead. Everybody is judged anew, inside this transaction.
pub(crate) fn sweep(scope: &Scope<'_>) -> std::result::Result<(), Fault> {
    for (id, remains) in remains(scope)? {
        match remains {
            Remains::Alive => {}
            Remains::Unseen => observe(scope, id)?,
            Remains::Dead(file) => scope.bury(id, file)?,
        }
    }
    Ok(())
}
/// So many records are looked at in one turn.
const AT_ONCE: i64 = 2_000;
/// Records that nobody has used for long.
pub(crate) struct Idle {
    locks: Vec<i64>,
    /// The last record that was looked at; `None`: there are no more.
    pub(crate) last: Option<i64>,
}
impl Idle {
    /// There is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.last.is_some()
    }
}
/// Once an hour somebody looks for them, on a snapshot: those who write do not wait for it. `None`: the hour is not over.
pub(crate) fn idle(scope: &Scope<'_>, after: i64) -> std::result::Result<Option<Idle>, Fault> {
    let now = wall_seconds();
    let swept = scope.first(sql::SWEPT, [], |row| row.get(0))?.unwrap_or(now);
    if (swept..swept.saturating_add(3_600)).contains(&now) {
        return Ok(None);
    }
    let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?));
    let seen = scope.all(sql::IDLE, (after, used_before(scope), AT_ONCE), row)?;
    let last = seen.last().filter(|_| i64::try_from(seen.len()) == Ok(AT_ONCE)).map(|(id, _)| *id);
    Ok(Some(Idle { locks: seen.into_iter().filter(|(_, idle)| *idle).map(|(id, _)| id).collect(), last }))
}
/// Deletes those that are idle still; the floor rises above their tokens in the same transaction, so a name that comes back goes
/// on where it was.
pub(crate) fn retire(scope: &Scope<'_>, idle: &Idle) -> std::result::Result<(), Fault> {
    let before = used_before(scope);
    let mut highest = None;
    for lock in &idle.locks {
        highest = highest.max(scope.first(sql::LOCK_RETIRE, (lock, before), |row| row.get::<_, i64>(0))?);
    }
    if let Some(highest) = highest {
        scope.execute(sql::META_FLOOR, [highest])?;
    }
    if idle.last.is_none() {
        forget(scope, i64::MAX)?;
        scope.execute(sql::META_SWEPT, [wall_seconds()])?;
    }
    Ok(())
}
fn used_before(scope: &Scope<'_>) -> i64 {
    wall_seconds().saturating_sub(i64::try_from(scope.shared.config.retention.as_secs()).unwrap_or(i64::MAX))
}
fn wall_seconds() -> i64 {
    wall_micros() / 1_000_000
}
