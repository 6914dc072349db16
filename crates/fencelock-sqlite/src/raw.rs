//! The bare driver with the statements of an uncontended pair: what the benchmark measures us against.
use crate::wire::{claim::stored, open, sql, time::wall_micros};
use fencelock_core::Claim;
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
    /// Takes the lock and gives it back: two transactions, the statements that the engine runs, whatever the claim.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn pair(&mut self, name: &str, claim: Claim) -> Result<()> {
        const SESSION: i64 = 1;
        self.hold += 1;
        let hold = self.hold.to_be_bytes();
        let run = |sql: &str, params: &[&dyn rusqlite::ToSql]| self.conn.prepare_cached(sql)?.execute(params);
        let first = |sql: &str, params: &[&dyn rusqlite::ToSql]| -> Result<Option<i64>> {
            let mut statement = self.conn.prepare_cached(sql)?;
            let mut rows = statement.query(params)?;
            rows.next()?.map(|row| row.get(0)).transpose()
        };
        let (kind, (code, take)) = (claim.kind().as_str(), stored(claim));
        run("BEGIN IMMEDIATE", &[])?;
        let mut id = first(sql::LOCK, &[&"", &name])?;
        if id.is_none() {
            run(sql::LOCK_INSERT, &[&"", &name, &kind, &claim.capacity().unwrap_or(0), &0])?;
            id = Some(self.conn.last_insert_rowid());
        }
        let id = id.unwrap_or_default();
        first(sql::HOLDING_AND_MINE, &[&id, &hold])?;
        first(sql::PLACE, &[&id, &hold])?;
        first(if claim.is_exclusive() { sql::AHEAD_ALONE } else { sql::AHEAD }, &[&id, &i64::MAX])?;
        first(sql::BOUNDS, &[])?;
        let token = wall_micros();
        run(sql::SESSION_BEAT, &[&SESSION, &token])?;
        run(sql::LOCK_GRANT, &[&id, &kind, &token, &(token / 1_000_000)])?;
        let (ttl, none) = (30_000_000_000i64, 0);
        let row: [&dyn rusqlite::ToSql; 13] =
            [&id, &hold, &SESSION, &code, &take, &token, &ttl, &none, &i64::MAX, &none, &token, &"", &none];
        run(sql::HOLDER_INSERT, &row)?;
        run("COMMIT", &[])?;
        run("BEGIN IMMEDIATE", &[])?;
        run(sql::HOLDER_DELETE_UNWATCHED, &[&id, &hold, &token])?;
        first(sql::NEXT, &[&id])?;
        run("COMMIT", &[])?;
        Ok(())
    }
}
