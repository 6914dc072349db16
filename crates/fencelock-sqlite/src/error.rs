//! SQLite's errors in the library's words.
use fencelock_core::{Error, ErrorKind};
use rusqlite::ErrorCode;
use std::path::Path;

/// What stops a transaction.
#[derive(Debug)]
pub(crate) enum Fault {
    /// SQLite said so.
    Sql(rusqlite::Error),
    /// The next token would be above the mark (SAFETY T2): raise it first.
    Mark(i64),
    /// Our session is not in the database any more.
    SessionGone,
}
impl From<rusqlite::Error> for Fault {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sql(e)
    }
}

pub(crate) fn translate(operation: &'static str, path: &Path, error: rusqlite::Error) -> Error {
    let code = error.sqlite_error_code();
    let new = |kind, message: &str| Error::new(kind, operation, message).with("database", path.display());
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            new(ErrorKind::Unreachable, "another process has been inside its transaction for seconds")
                .hint("look for a stopped process that has the database open")
        }
        Some(ErrorCode::NotADatabase) => new(ErrorKind::InvalidConfig, "the file is no SQLite database")
            .hint("give another path, or move the file away"),
        Some(ErrorCode::DatabaseCorrupt) => new(ErrorKind::Protocol, "the database is damaged")
            .hint("stop everything that uses it, move it away, and start anew; tokens go on rising by the clock"),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            new(ErrorKind::PermissionDenied, "this user may not write to it").hint("give another path, or the rights")
        }
        Some(ErrorCode::CannotOpen) => new(ErrorKind::PermissionDenied, "it cannot be opened")
            .because(error)
            .hint("its folder must be there and writable for this user; or give another path"),
        Some(ErrorCode::DiskFull) => new(ErrorKind::Unreachable, "the disk is full").hint("make room"),
        Some(ErrorCode::SystemIoFailure) => new(ErrorKind::Unreachable, "reading or writing failed").because(error),
        _ => new(ErrorKind::Protocol, "SQLite refused").because(error),
    }
}

/// For those whose transaction found the session gone.
pub(crate) fn session_gone(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unreachable, operation, "the session was ended by somebody else")
        .hint("try again: a new one is being opened")
}
