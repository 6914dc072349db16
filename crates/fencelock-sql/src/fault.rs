//! What a database's errors mean for a transaction.
use crate::Dialect;
use fencelock_core::{Error, ErrorKind};
use std::error::Error as StdError;

/// What the driver said, without its types.
#[derive(Debug)]
pub struct Fault {
    /// Whose codes these are.
    pub dialect: Dialect,
    /// SQLSTATE, the number of MySQL, the extended code of SQLite; empty: the connection itself failed.
    pub code: String,
    /// The driver's own error.
    pub source: Box<dyn StdError + Send + Sync>,
}

/// What it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Somebody was in the way: the whole transaction has to be run again.
    Conflict,
    /// A lock was not free in time.
    Busy,
    /// Somebody stopped the statement.
    Stopped,
    Denied,
    /// No such table or column, or no SQL.
    Wrong,
    /// A trigger of [`fence::triggers`](crate::fence::triggers) has refused a token.
    Stale,
    /// The connection.
    Gone,
    /// The server may have undone the whole transaction by itself.
    Undone,
    Other,
}

/// What a trigger of ours says, and with which codes: of PostgreSQL, MySQL and SQLite.
pub(crate) const STALE: &str = "fencelock: a newer holder has written";
const REFUSES: [&str; 3] = ["23514", "1644", "1811"];

impl Fault {
    pub(crate) fn meaning(&self) -> Meaning {
        let code = self.code.as_str();
        if code.is_empty() {
            return Meaning::Gone;
        }
        if REFUSES.contains(&code) && self.source.to_string().contains(STALE) {
            return Meaning::Stale;
        }
        match self.dialect {
            Dialect::Postgres => match code {
                "40001" | "40P01" => Meaning::Conflict,
                "55P03" => Meaning::Busy,
                "57014" => Meaning::Stopped,
                "42501" => Meaning::Denied,
                "57P01" | "57P02" | "57P03" => Meaning::Gone,
                _ if code.starts_with("08") => Meaning::Gone,
                _ if code.starts_with("42") || code == "3F000" || code.starts_with("22") => Meaning::Wrong,
                _ => Meaning::Other,
            },
            Dialect::MySql | Dialect::MariaDb => match code {
                // The record was changed since the snapshot; deadlock; certification; a savepoint went with the transaction.
                "1020" | "1213" | "3101" => Meaning::Conflict,
                "1305" if self.source.to_string().contains("SAVEPOINT") => Meaning::Conflict,
                "1205" | "3572" => Meaning::Busy,
                "1317" | "1969" | "3024" => Meaning::Stopped,
                "1044" | "1142" | "1143" | "1370" => Meaning::Denied,
                "1049" | "1054" | "1064" | "1146" | "1264" | "1265" | "1292" | "1305" | "1366" | "1406" => {
                    Meaning::Wrong
                }
                "1053" | "1927" => Meaning::Gone,
                // The engine's own error; one of the commit; no room for more locks; the same of XA.
                "1030" | "1180" | "1206" | "1613" | "1614" => Meaning::Undone,
                _ => Meaning::Other,
            },
            Dialect::Sqlite => match code.parse::<i32>().map(|code| code & 0xff) {
                // SQLITE_BUSY and SQLITE_LOCKED: the transaction cannot become a writer's where it stands.
                Ok(5 | 6) => Meaning::Conflict,
                Ok(1) => Meaning::Wrong,
                Ok(3 | 8 | 23) => Meaning::Denied,
                Ok(9) => Meaning::Stopped,
                _ => Meaning::Other,
            },
        }
    }
    /// As everybody is told it.
    pub(crate) fn told(self, operation: &'static str) -> Error {
        let again = "roll back, and run the whole transaction again, from BEGIN";
        let (kind, what, hint) = match self.meaning() {
            Meaning::Conflict => (ErrorKind::Conflict, "another transaction was in the way", again),
            Meaning::Busy => (ErrorKind::Busy, "a lock was not free within the server's own limit of time", again),
            Meaning::Stopped => {
                (ErrorKind::Busy, "the statement was stopped by its limit of time or by somebody", again)
            }
            Meaning::Denied => (ErrorKind::PermissionDenied, "the database refuses", "grant this role what it needs"),
            Meaning::Wrong => (
                ErrorKind::InvalidConfig,
                "the database does not understand it",
                "check the names, and that the columns take what is written",
            ),
            Meaning::Stale => (ErrorKind::Lost, "a newer holder has written", "stop: another holder has the lock"),
            Meaning::Gone => (ErrorKind::Unreachable, "the connection is gone", again),
            Meaning::Undone => (ErrorKind::Protocol, "the database may have undone the whole transaction", again),
            Meaning::Other => (ErrorKind::Protocol, "the database answered with an error", again),
        };
        let error = Error::new(kind, operation, what);
        let error = if self.code.is_empty() { error } else { error.with("code", &self.code) };
        error.hint(hint).because(self.source)
    }
}
