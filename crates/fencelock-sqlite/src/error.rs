//! SQLite's errors in the library's words.
use fencelock_core::{Error, ErrorKind};
use rusqlite::ErrorCode;
use rustix::{
    fs::{Access, access},
    io::Errno,
};
use std::{path::Path, sync::Arc};

/// What stops a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The engine was closed.
    Closed,
    /// Another process has been inside a transaction for longer than we wait.
    Busy,
    /// SQLite said so.
    Sql(Arc<rusqlite::Error>),
    /// There is no token above the last one.
    Spent,
    /// The next token would be above the mark (SAFETY T2): raise it first.
    Mark(i64),
    /// Our session is not in the database any more.
    SessionGone,
    /// The file was removed, or another one stands in its place.
    Replaced,
}
impl From<rusqlite::Error> for Fault {
    fn from(e: rusqlite::Error) -> Self {
        match e.sqlite_error_code() {
            // The last one: too many readers came and went in the log while it looked.
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
                Self::Busy
            }
            _ => Self::Sql(Arc::new(e)),
        }
    }
}

impl Fault {
    /// It may go away by itself: worth another try while somebody waits.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Busy | Self::Mark(_) | Self::SessionGone => true,
            Self::Sql(e) => {
                let code = e.sqlite_error_code();
                matches!(code, Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen))
            }
            Self::Closed | Self::Replaced | Self::Spent => false,
        }
    }
    pub(crate) fn tell(self, operation: &'static str, path: &Path) -> Error {
        let new = |kind, message: &str| Error::new(kind, operation, message).with("database", path.display());
        match self {
            Self::Busy => busy(operation, path),
            Self::Closed => Error::new(ErrorKind::Closed, operation, "the engine was closed").hint("connect again"),
            Self::Mark(_) => new(ErrorKind::Protocol, "the mark of tokens could not be raised"),
            Self::Replaced => new(ErrorKind::Closed, "the database file was removed or replaced").hint("connect again"),
            Self::SessionGone => new(ErrorKind::Unreachable, "the session was ended by somebody else")
                .hint("try again: a new one is being opened"),
            Self::Spent => new(ErrorKind::Protocol, "the lock's last token is the highest number there is")
                .hint("somebody wrote it into fencelock_lock.fence: use another name"),
            Self::Sql(e) => translate(operation, path, e),
        }
    }
}
fn busy(operation: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::Unreachable, operation, "another process has been inside its transaction for seconds")
        .with("database", path.display())
        .hint("look for a stopped process that has the database open")
}

pub(crate) fn translate(operation: &'static str, path: &Path, error: impl Into<Arc<rusqlite::Error>>) -> Error {
    let error = error.into();
    let code = error.sqlite_error_code();
    let new = |kind, message: &str| Error::new(kind, operation, message).with("database", path.display());
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => busy(operation, path),
        Some(ErrorCode::NotADatabase) => new(ErrorKind::InvalidConfig, "the file is no SQLite database")
            .hint("give another path, or move the file away"),
        Some(ErrorCode::DatabaseCorrupt) => new(ErrorKind::Protocol, "the database is damaged")
            .hint("stop everything that uses it, move it away, and start anew; tokens go on rising by the clock"),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            new(ErrorKind::PermissionDenied, "this user may not write to it").hint("give another path, or the rights")
        }
        Some(ErrorCode::CannotOpen) => {
            let (kind, message, way_out) = cannot_open(may_open(path));
            new(kind, message).because(error).hint(way_out)
        }
        Some(ErrorCode::DiskFull) => new(ErrorKind::Unreachable, "the disk is full").hint("make room"),
        Some(ErrorCode::SystemIoFailure) => new(ErrorKind::Unreachable, "reading or writing failed").because(error),
        _ => new(ErrorKind::Protocol, "SQLite refused").because(error),
    }
}

/// SQLite has one word for all that keeps a file from being opened; the path tells which it was, asked by name (SAFETY E4a).
fn may_open(path: &Path) -> Result<(), Errno> {
    match access(path, Access::READ_OK | Access::WRITE_OK) {
        // It is to be made.
        Err(Errno::NOENT) => access(path.parent().unwrap_or(path), Access::WRITE_OK | Access::EXEC_OK),
        answer => answer,
    }
}
fn cannot_open(may_open: Result<(), Errno>) -> (ErrorKind, &'static str, &'static str) {
    match may_open {
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            (ErrorKind::PermissionDenied, "this user may not open it", "give another path, or the rights")
        }
        Err(Errno::NOENT | Errno::NOTDIR) => {
            (ErrorKind::Unreachable, "its folder is not there", "connect again: it is made then; or give another path")
        }
        _ => (ErrorKind::Unreachable, "it cannot be opened", "try again; perhaps too many files are open (ulimit -n)"),
    }
}

#[cfg(test)]
mod tests {
    //! Red on the code before: every file that cannot be opened was called one without the rights.
    use super::*;
    use rusqlite::{Connection, OpenFlags};

    #[test]
    fn what_keeps_a_file_from_being_opened_is_told_apart() {
        let kind = |answer| cannot_open(answer).0;
        assert_eq!(kind(Err(Errno::ACCESS)), ErrorKind::PermissionDenied);
        assert_eq!(kind(Err(Errno::ROFS)), ErrorKind::PermissionDenied);
        assert_eq!(kind(Ok(())), ErrorKind::Unreachable);
        let here = std::env::current_exe().unwrap();
        for path in [Path::new("/nowhere/locks.db"), &here.join("x")] {
            let error = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap_err();
            assert_eq!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen));
            let error = translate("connect", path, error);
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
            assert!(error.to_string().contains("its folder is not there"), "{error}");
        }
    }
}
