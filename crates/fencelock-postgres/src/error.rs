//! The driver's errors and the server's in the library's words.
use crate::wire::schema::UNUSABLE;
use fencelock_core::{Error, ErrorKind, NoConnection};
use std::sync::Arc;
use tokio_postgres::error::{DbError, SqlState};

/// What stops a call.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The engine was closed.
    Closed,
    /// No connection; nothing was sent.
    Connect(Arc<tokio_postgres::Error>),
    /// No connection came about while somebody waited for it.
    Unreached,
    /// Sent, and nobody knows what became of it.
    Unanswered,
    /// The server said no, or the connection broke.
    Postgres(Arc<tokio_postgres::Error>),
    /// Somebody's own transaction keeps the lock's row for longer than there was time (SAFETY E2).
    Locked,
    /// An answer that no function of ours gives.
    Answer,
    /// The same, and what it was.
    Odd(String),
    /// Sessions of the server are not ours alone.
    Pooled,
    /// Somebody has the lock who minds other rules: which.
    Layout(String),
    /// The tables are not there, and this role may not make them.
    Unmade(Arc<tokio_postgres::Error>),
    /// What is there cannot be used.
    Unusable { what: String, hint: &'static str },
}
impl From<NoConnection> for Fault {
    fn from(it: NoConnection) -> Self {
        match it {
            NoConnection::Closed => Self::Closed,
            NoConnection::Late => Self::Unreached,
        }
    }
}
impl fencelock_database::Fault for Fault {
    const ANSWER: Self = Self::Answer;
    const LOCKED: Self = Self::Locked;
    const UNANSWERED: Self = Self::Unanswered;
    const UNREACHED: Self = Self::Unreached;

    fn layout(other: String) -> Self {
        Self::Layout(other)
    }
    fn is_locked(&self) -> bool {
        self.is_locked()
    }
    fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unanswered)
    }
    fn is_soon_over(&self) -> bool {
        self.is_soon_over()
    }
    fn weight(&self) -> u8 {
        match self {
            Self::Connect(_) if self.code().is_some() => 3,
            Self::Connect(e) if said(e).contains(READ_ONLY) => 2,
            Self::Connect(_) => 1,
            _ => 0,
        }
    }
    fn tell(&self, operation: &'static str, endpoint: &str) -> Error {
        self.tell(operation, endpoint)
    }
}
impl Fault {
    pub(crate) fn of(error: tokio_postgres::Error) -> Self {
        Self::Postgres(Arc::new(error))
    }
    fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Connect(e) | Self::Postgres(e) => e.code(),
            _ => None,
        }
    }
    fn is(&self, codes: &[SqlState]) -> bool {
        self.code().is_some_and(|code| codes.contains(code))
    }
    /// The server said no, to this statement alone.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Postgres(_)) && !self.ends_connection()
    }
    /// The connection is good for nothing any more.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Unanswered => true,
            // A primary that became a standby stays one: another connection may lead to the new one.
            Self::Postgres(e) => {
                e.as_db_error().is_none() || self.is_ending() || self.is(&[SqlState::READ_ONLY_SQL_TRANSACTION])
            }
            _ => false,
        }
    }
    /// The server ends this session.
    fn is_ending(&self) -> bool {
        self.is(&[
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::IDLE_SESSION_TIMEOUT,
            SqlState::DATABASE_DROPPED,
        ]) || self.code().is_some_and(|code| code.code().starts_with("08"))
    }
    /// Of one who tried to make the tables.
    pub(crate) fn unmade(self) -> Self {
        match self {
            Self::Postgres(e) if e.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Self::Unmade(e),
            other => other,
        }
    }
    /// The tables are not there.
    pub(crate) fn is_missing(&self) -> bool {
        self.is(&[SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME])
    }
    /// Of a function that takes an advisory lock, and gives it back where it fails: mostly this comes from within it, and seldom of the end of its
    /// transaction, when that was done.
    pub(crate) fn may_be_refused_whole(&self) -> bool {
        self.is_locked() || self.is_missing() || self.is(&[SqlState::INSUFFICIENT_PRIVILEGE, SqlState::OUT_OF_MEMORY])
    }
    /// Somebody keeps what this would have waited for.
    pub(crate) fn is_locked(&self) -> bool {
        self.is(&[SqlState::LOCK_NOT_AVAILABLE])
    }
    /// Two have changed one thing, and one of them has to begin anew: nothing of it has happened.
    pub(crate) fn is_conflict(&self) -> bool {
        self.is(&[SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED])
    }
    /// The server is there and will do it when it is ready, or over another connection: as good as no connection yet (SAFETY E8). A session
    /// that is ended does not always get to say so before its connection is gone.
    pub(crate) fn is_soon_over(&self) -> bool {
        let broke = match self {
            Self::Postgres(e) => e.as_db_error().is_none(),
            // Also one that was ended while it was being made: a server that is not there refuses otherwise, unless something stands in
            // between.
            Self::Connect(e) => e.is_closed(),
            _ => false,
        };
        broke || self.is_conflict() || self.is_ending() || self.is_full()
    }
    /// The server has as many connections as it takes; or the pooler in front of it, whose number for that was that of any mistake once.
    pub(crate) fn is_full(&self) -> bool {
        let said = match self {
            Self::Connect(e) | Self::Postgres(e) => e.as_db_error().map(DbError::message),
            _ => None,
        };
        self.is(&[SqlState::TOO_MANY_CONNECTIONS])
            || said.is_some_and(|said| said.starts_with("no more connections allowed"))
    }
    /// No server now; there may be one soon.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Postgres(_) | Self::Unanswered | Self::Unreached)
            && self.tell("connect", "").is_temporary()
    }
    pub(crate) fn tell(&self, operation: &'static str, endpoint: &str) -> Error {
        let new = |kind, message: &str| Error::new(kind, operation, message).with("postgres", endpoint);
        match self {
            Self::Closed => Error::new(ErrorKind::Closed, operation, "the engine was closed").hint("connect again"),
            Self::Unreached => new(ErrorKind::Unreachable, "no connection within the time that there was")
                .hint("look whether the server runs and answers"),
            Self::Unanswered => new(ErrorKind::Ambiguous, "no answer in time"),
            Self::Locked => new(ErrorKind::Unreachable, "somebody's transaction keeps the lock's row")
                .hint("look for it in pg_stat_activity: it may be idle in transaction"),
            Self::Answer => new(ErrorKind::Protocol, "the server answered what no function of this version answers")
                .hint("look whether another version has made the tables"),
            Self::Pooled => Error::new(
                ErrorKind::Unsupported,
                operation,
                "a pooler of transactions is in between: sessions are not ours",
            )
            .with("postgres", endpoint)
            .hint("connect past it, or take strategy=lease"),
            Self::Layout(other) => new(ErrorKind::LayoutMismatch, "the lock is held by another strategy")
                .with("strategy", other)
                .hint("use one strategy, and the same keys, for a name everywhere"),
            Self::Odd(what) => Self::Answer.tell(operation, endpoint).with("answer", what),
            Self::Unmade(e) => new(
                ErrorKind::PermissionDenied,
                "the tables of fencelock are not there, and this role may not make them",
            )
            .because(said(e))
            .hint("run `fencelock migrate --role ROLE --run` as one that may, with this role's name"),
            Self::Unusable { what, hint } => new(ErrorKind::InvalidConfig, what).hint(*hint),
            Self::Connect(e) => refused(operation, endpoint, self, e).unwrap_or_else(|| {
                let read_only = said(e).contains(READ_ONLY);
                let what = if read_only { "the server takes no writes: it is a standby" } else { "no connection" };
                let hint = if read_only {
                    "give the primary's address, or all of them: the one that takes writes is found"
                } else {
                    "look whether the server runs, and at host, port and certificates"
                };
                new(ErrorKind::Unreachable, what).because(said(e)).hint(hint)
            }),
            Self::Postgres(e) => refused(operation, endpoint, self, e).unwrap_or_else(|| {
                let kind = if self.ends_connection() { ErrorKind::Ambiguous } else { ErrorKind::Protocol };
                let what = if kind == ErrorKind::Ambiguous { "the connection broke" } else { "the server refused" };
                new(kind, what).because(said(e))
            }),
        }
    }
}

/// As the driver says it of a server that takes no writes.
const READ_ONLY: &str = "does not allow writes";

/// The server's own refusals: the call had no effect.
fn refused(operation: &'static str, endpoint: &str, fault: &Fault, error: &tokio_postgres::Error) -> Option<Error> {
    let new =
        |kind, message: &str| Error::new(kind, operation, message).with("postgres", endpoint).because(said(error));
    let is = |codes: &[SqlState]| fault.is(codes);
    if fault.code()?.code() == UNUSABLE {
        let said = error.as_db_error()?;
        let error = Error::new(ErrorKind::InvalidConfig, operation, said.message()).with("postgres", endpoint);
        return Some(error.hint(said.hint().unwrap_or_default()));
    }
    Some(match () {
        () if is(&[SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION]) => {
            new(ErrorKind::PermissionDenied, "the server does not accept user or password").hint("look at the URL")
        }
        () if is(&[SqlState::INSUFFICIENT_PRIVILEGE]) => new(ErrorKind::PermissionDenied, "the role may not do that")
            .hint("`fencelock migrate --role ROLE` prints the rights that it needs on tables and functions"),
        () if is(&[SqlState::INVALID_CATALOG_NAME]) => {
            new(ErrorKind::InvalidConfig, "there is no such database").hint("look at the URL")
        }
        // Nobody else names a role; what else is no object is a row of a table of ours, which a function speaks of.
        () if operation == "migrate" && is(&[SqlState::UNDEFINED_OBJECT]) => {
            new(ErrorKind::InvalidConfig, "there is no such role").hint("create it first")
        }
        () if fault.is_missing() || is(&[SqlState::UNDEFINED_OBJECT]) => {
            new(ErrorKind::InvalidConfig, "the tables of fencelock are not there")
                .hint("run `fencelock migrate --run` as a role that may create them in this schema")
        }
        () if fault.is_full() => new(ErrorKind::Unreachable, "the server has as many connections as it takes")
            .hint("raise max_connections, or, of a pooler, max_client_conn"),
        () if is(&[SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY]) => {
            new(ErrorKind::Unreachable, "the server has no room left")
        }
        () if is(&[SqlState::READ_ONLY_SQL_TRANSACTION]) => {
            new(ErrorKind::Unreachable, "the server takes no writes: it is a standby, or read-only")
                .hint("give the primary's address, or all of them: the one that takes writes is found")
        }
        () if fault.is_ending()
            || fault.is_conflict()
            || is(&[SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE]) =>
        {
            new(ErrorKind::Unreachable, "the server cannot do it now").hint("try again")
        }
        () => return None,
    })
}
/// What the server said, or what went wrong below the driver. The text of a statement is never in it.
fn said(error: &tokio_postgres::Error) -> String {
    if let Some(e) = error.as_db_error() {
        return format!("{}: {}", e.code().code(), e.message());
    }
    let (mut words, mut below) = (error.to_string(), std::error::Error::source(error));
    while let Some(error) = below {
        words.push_str(&format!(": {error}"));
        below = error.source();
    }
    words
}
