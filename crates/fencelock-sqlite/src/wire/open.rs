//! Opening the database, the session's first and last transactions, and the sweep.
use super::{
    scope::{Scope, wait_while_busy},
    sql,
    time::wall_micros,
};
use crate::{
    error::{Fault, translate},
    session::liveness::{Pulse, in_folder, test},
};
use fencelock_core::{Error, ErrorKind, Identity, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// A connection, ready for our statements.
pub(crate) fn connect(path: &Path, sync_full: bool) -> Result<Connection> {
    let failed = |e| translate("connect", path, e);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(failed)?;
    let mut prepare = || -> rusqlite::Result<()> {
        conn.busy_handler(Some(wait_while_busy))?;
        conn.set_prepared_statement_cache_capacity(64);
        // The last one out of a busy minute does not copy the log back: a short command would pay for it.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        patiently(|| conn.pragma_update(None, "synchronous", if sync_full { "FULL" } else { "NORMAL" }))?;
        let mode: String = patiently(|| conn.pragma_query_value(None, "journal_mode", |row| row.get(0)))?;
        if !mode.eq_ignore_ascii_case("wal") {
            patiently(|| conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())))?;
        }
        Ok(())
    };
    prepare().map_err(failed)?;
    Ok(conn)
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
/// (SAFETY T2).
pub(crate) fn prepare(conn: &Connection, path: &Path, boot: &str) -> Result<()> {
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
    let make = || -> rusqlite::Result<()> {
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let body = || {
            if conn.query_row(sql::TABLES, [], |row| row.get::<_, i64>(0))? == 0 {
                conn.execute_batch(sql::SCHEMA)?;
                conn.execute(sql::META_INSERT, [sql::LAYOUT])?;
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
    make().map_err(failed)
}

/// The session's row. Its files are made and locked already.
pub(crate) fn register(scope: &Scope<'_>, session: i64) -> std::result::Result<i64, Fault> {
    let Identity { host, pid } = Identity::here();
    scope.execute(sql::SESSION_INSERT, (session, &scope.shared.time.boot, scope.now, &*host, pid))?;
    Ok(scope.now)
}
/// Whose file is locked by nobody.
pub(crate) fn dead_ones(scope: &Scope<'_>, own: i64) -> std::result::Result<Vec<i64>, Fault> {
    let day = 86_400_000_000_000;
    let boot = &scope.shared.time.boot;
    let mut dead = Vec::new();
    let mut known = vec![own];
    let all = scope.all(sql::SESSIONS, [own], |row| {
        let (id, beat, seen_at, ttl): (i64, i64, i64, i64) = (row.get(0)?, row.get(2)?, row.get(4)?, row.get(5)?);
        Ok((id, row.get::<_, String>(1)?, beat, row.get::<_, String>(3)?, seen_at, ttl))
    })?;
    for (id, its_boot, beat, seen_boot, seen_at, ttl) in all {
        known.push(id);
        let gone = if its_boot == *boot {
            let file = crate::session::liveness::liveness(&scope.shared.folder, id);
            let no_file = !file.exists() && scope.now > beat.saturating_add(ttl.max(day));
            no_file || matches!(test(&scope.shared.folder, id), Pulse::Dead(_))
        } else {
            seen_boot != *boot || scope.now >= seen_at.saturating_add(ttl)
        };
        if gone {
            dead.push(id);
        }
    }
    // Files without a row: their maker died before it was registered, or after it was buried.
    dead.extend(in_folder(&scope.shared.folder).into_iter().filter(|id| !known.contains(id)));
    Ok(dead)
}
/// Buries them, each after another look inside this transaction.
pub(crate) fn sweep(scope: &Scope<'_>, dead: &[i64]) -> std::result::Result<(), Fault> {
    let boot = &scope.shared.time.boot;
    for id in dead {
        let row = scope.first("SELECT boot, seen_boot FROM fencelock_session WHERE id = ?1", [id], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        match (row, test(&scope.shared.folder, *id)) {
            // Of another boot: observed from now on, buried once it has not moved for its ttl.
            (Some((its_boot, seen)), _) if its_boot != *boot && seen != *boot => super::judge::observe(scope, *id)?,
            (Some((its_boot, _)), Pulse::Alive) if its_boot != *boot => scope.bury(*id, None)?,
            (_, Pulse::Dead(file)) => scope.bury(*id, Some(file))?,
            (Some(_), Pulse::Alive) if !crate::session::liveness::liveness(&scope.shared.folder, *id).exists() => {
                scope.bury(*id, None)?;
            }
            (_, Pulse::Alive) => {}
        }
    }
    Ok(())
}
/// Once an hour somebody deletes the records that nobody has used for long; the floor rises above their tokens in the same
/// transaction, so a name that comes back goes on where it was.
pub(crate) fn retire(scope: &Scope<'_>) -> std::result::Result<(), Fault> {
    let now = wall_micros() / 1_000_000;
    let swept = scope.first(sql::META, [], |row| row.get::<_, i64>(4))?.unwrap_or(now);
    if (swept..swept.saturating_add(3_600)).contains(&now) {
        return Ok(());
    }
    let keep = i64::try_from(scope.shared.config.retention.as_secs()).unwrap_or(i64::MAX);
    let fences = scope.all(sql::IDLE, [now.saturating_sub(keep)], |row| row.get::<_, i64>(0))?;
    if let Some(highest) = fences.into_iter().max() {
        scope.execute(sql::META_FLOOR, [highest])?;
    }
    scope.execute(sql::META_SWEPT, [now])?;
    Ok(())
}
pub(crate) fn needs_retiring(scope: &Scope<'_>) -> std::result::Result<bool, Fault> {
    let now = wall_micros() / 1_000_000;
    let swept = scope.first(sql::META, [], |row| row.get::<_, i64>(4))?.unwrap_or(now);
    Ok(!(swept..swept.saturating_add(3_600)).contains(&now))
}
