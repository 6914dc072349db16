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
use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};
use std::{
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
    tune(&mut conn, sync_full).map_err(failed)?;
    Ok(conn)
}
fn tune(conn: &mut Connection, sync_full: bool) -> rusqlite::Result<()> {
    conn.busy_handler(Some(wait_while_busy))?;
    conn.set_prepared_statement_cache_capacity(64);
    // The last one out of a busy minute does not copy the log back: a short command would pay for it.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
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
    let tables: i64 = patiently(|| conn.query_row(sql::TABLES, [], |row| row.get(0))).map_err(failed)?;
    if tables > 0 {
        let (layout, known): (i64, String) =
            patiently(|| conn.query_row(sql::META, [], |row| Ok((row.get(0)?, row.get(1)?)))).map_err(failed)?;
        if layout != sql::LAYOUT {
            let other = format!("the database has layout {layout}, this program writes layout {}", sql::LAYOUT);
            let other = Error::new(ErrorKind::LayoutMismatch, "connect", other).with("database", path.display());
            return Err(other.hint("use the version of fencelock that wrote it, or another path"));
        }
        if known == boot {
            return Ok(());
        }
    }
    let store = EngineId::random()?.to_bytes();
    let make = || -> rusqlite::Result<()> {
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let body = || {
            if conn.query_row(sql::TABLES, [], |row| row.get::<_, i64>(0))? == 0 {
                conn.execute_batch(sql::SCHEMA)?;
                conn.execute(sql::META_INSERT, (sql::LAYOUT, store))?;
            }
            let known: String = conn.query_row(sql::META, [], |row| row.get(1))?;
            if known != boot {
                conn.execute(sql::META_BOOT, [boot])?;
            }
            conn.execute_batch("COMMIT")
        };
        body().inspect_err(|_| {
            let _ = conn.execute_batch("ROLLBACK");
        })
    };
    let made = make().map_err(failed);
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
    let mut found = scope.all(sql::SESSIONS, [own], |row| {
        let (id, beat, seen_at, ttl): (i64, i64, i64, i64) = (row.get(0)?, row.get(2)?, row.get(4)?, row.get(5)?);
        let (dead, least): (bool, i64) = (row.get(6)?, row.get(7)?);
        known.push(id);
        let remains = if row.get::<_, String>(1)? != *boot {
            let seen = row.get::<_, String>(3)? == *boot && seen_at <= scope.now;
            match seen {
                false => Remains::Unseen,
                true if scope.now >= seen_at.saturating_add(ttl) => match test(&shared.folder, id) {
                    Pulse::Dead(file) => Remains::Dead(Some(file)),
                    Pulse::Alive if !shared.has_file(id) => Remains::Dead(None),
                    Pulse::Alive => Remains::Alive,
                },
                true => Remains::Alive,
            }
        } else if dead {
            // What is left of it may not end before then.
            if scope.now >= least { Remains::Dead(None) } else { Remains::Alive }
        } else if let Pulse::Dead(file) = test(&shared.folder, id) {
            Remains::Dead(Some(file))
        } else if !shared.has_file(id) && scope.now > beat.saturating_add(ttl.max(DAY)) {
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
/// The limit of `sql::IDLE`.
const RETIRED_AT_ONCE: usize = 10_000;
/// Once an hour somebody deletes the records that nobody has used for long; the floor rises above their tokens in the same
/// transaction, so a name that comes back goes on where it was.
pub(crate) fn retire(scope: &Scope<'_>) -> std::result::Result<(), Fault> {
    if !needs_retiring(scope)? {
        return Ok(());
    }
    let now = wall_micros() / 1_000_000;
    let keep = i64::try_from(scope.shared.config.retention.as_secs()).unwrap_or(i64::MAX);
    let fences = scope.all(sql::IDLE, [now.saturating_sub(keep)], |row| row.get::<_, i64>(0))?;
    if let Some(highest) = fences.iter().max() {
        scope.execute(sql::META_FLOOR, [highest])?;
    }
    forget(scope, i64::MAX)?;
    // A full batch: there are more, for the next turn.
    if fences.len() < RETIRED_AT_ONCE {
        scope.execute(sql::META_SWEPT, [now])?;
    }
    Ok(())
}
pub(crate) fn needs_retiring(scope: &Scope<'_>) -> std::result::Result<bool, Fault> {
    let now = wall_micros() / 1_000_000;
    let swept = scope.first(sql::META, [], |row| row.get::<_, i64>(4))?.unwrap_or(now);
    Ok(!(swept..swept.saturating_add(3_600)).contains(&now))
}
