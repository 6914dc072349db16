//! The bare driver with the statements of an uncontended pair: what the benchmark measures us against.
use crate::wire::{open, sql, time::wall_micros};
use rusqlite::{Connection, Result};
use std::path::Path;

/// One connection, no queue, no session, no thread.
#[derive(Debug)]
pub struct Raw {
    conn: Connection,
    hold: u128,
}
impl Raw {
    /// On a database that the engine has made.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(path: &Path) -> fencelock_core::Result<Self> {
        let conn = open::connect(path, false, false)?;
        Ok(Self { conn, hold: 0 })
    }
    /// Takes the lock and gives it back: two transactions, the statements that the engine runs.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn pair(&mut self, name: &str) -> Result<()> {
        const SESSION: i64 = 1;
        self.hold += 1;
        let hold = self.hold.to_be_bytes();
        let run = |sql: &str, params: &[&dyn rusqlite::ToSql]| self.conn.prepare_cached(sql)?.execute(params);
        let first = |sql: &str, params: &[&dyn rusqlite::ToSql]| -> Result<Option<i64>> {
            let mut statement = self.conn.prepare_cached(sql)?;
            let mut rows = statement.query(params)?;
            rows.next()?.map(|row| row.get(0)).transpose()
        };
        run("BEGIN IMMEDIATE", &[])?;
        let mut id = first(sql::LOCK, &[&"", &name])?;
        if id.is_none() {
            run(sql::LOCK_INSERT, &[&"", &name, &"mutex", &0])?;
            id = Some(self.conn.last_insert_rowid());
        }
        let id = id.unwrap_or_default();
        let _ = self.conn.prepare_cached(sql::HOLDERS)?.query([id])?.next()?;
        first(sql::PLACE, &[&id, &hold])?;
        first(sql::AHEAD, &[&id, &i64::MAX])?;
        first(sql::BOUNDS, &[])?;
        let token = wall_micros();
        run(sql::LOCK_GRANT, &[&id, &"mutex", &token, &(token / 1_000_000)])?;
        run(sql::HOLDER_INSERT, &[&id, &hold, &SESSION, &token, &30_000_000_000i64, &i64::MAX, &token, &""])?;
        run(sql::SESSION_BEAT, &[&SESSION, &token])?;
        run("COMMIT", &[])?;
        run("BEGIN IMMEDIATE", &[])?;
        run(sql::HOLDER_DELETE, &[&id, &hold, &token])?;
        first(sql::NEXT, &[&id])?;
        run("COMMIT", &[])?;
        Ok(())
    }
}
