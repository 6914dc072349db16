//! The driver's errors and the server's in the library's words.
use fencelock_core::{Error, ErrorKind, NoConnection};
use std::{io, sync::Arc};

/// What stops a call.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The engine was closed.
    Closed,
    /// No connection; nothing was sent.
    Connect(Arc<mysql_async::Error>),
    /// No connection came about while somebody waited for it.
    Unreached,
    /// The server takes no writes.
    ReadOnly,
    /// Sent, and nobody knows what became of it.
    Unanswered,
    /// The server said no, or the connection broke.
    Mysql(Arc<mysql_async::Error>),
    /// Somebody's own transaction keeps the lock's row for longer than there was time (SAFETY E2).
    Locked,
    /// An answer that no procedure of ours gives.
    Answer,
    /// Sessions of the server are not ours alone: why.
    Pooled(&'static str),
    /// Somebody has the lock who minds other rules: which.
    Layout(String),
    /// The tables are not there, and this account may not make them.
    Unmade(Arc<mysql_async::Error>),
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
        self.is_conflict()
    }
    fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unanswered)
    }
    fn is_soon_over(&self) -> bool {
        self.is_soon_over()
    }
    // That there is one, and why it cannot be used, says more than that there is none, and one that is full has some of ours.
    fn weight(&self) -> u8 {
        match self {
            Self::Unreached => 0,
            fault if fault.is_full() => 4,
            Self::Connect(_) => 1,
            Self::ReadOnly => 2,
            _ => 3,
        }
    }
    fn tell(&self, operation: &'static str, endpoint: &str) -> Error {
        self.tell(operation, endpoint)
    }
}

/// The numbers of the server's errors, by what they mean for us. MariaDB's and MySQL's are the same below 1900.
mod codes {
    /// The session ends, or its transaction may still be open, and nobody knows what became of the call.
    pub(super) const ENDING: [u16; 13] = [1038, 1053, 1152, 1158, 1159, 1160, 1161, 1317, 1436, 1927, 1969, 3024, 4031];
    /// Of those: somebody, or a shutdown, ends the session.
    pub(super) const KILLED: [u16; 2] = [1053, 1927];
    /// Wrong words, or what a procedure is not called with: the session is as it was.
    pub(super) const HARMLESS: [u16; 7] = [1054, 1064, 1264, 1318, 1406, 1414, 3948];
    /// Full, for now.
    pub(super) const CONNECTIONS: [u16; 3] = [1040, 1203, 1226];
    /// It takes no writes now: read-only (1290, 1792, 1836), or a node of a cluster that is not ready (1047).
    pub(super) const READ_ONLY: [u16; 4] = [1047, 1290, 1792, 1836];
    /// A row that was locked for too long, two that waited for each other, or a row that another node of a cluster has made in between, as only
    /// there somebody can: nothing of it has happened.
    pub(super) const CONFLICT: [u16; 3] = [1062, 1205, 1213];
    pub(super) const NO_ROOM: [u16; 4] = [1021, 1037, 1041, 1114];
    pub(super) const UNKNOWN_USER: [u16; 3] = [1045, 1698, 1862];
    pub(super) const NO_RIGHT: [u16; 6] = [1044, 1142, 1143, 1227, 1370, 1449];
    /// To end the session of another account.
    pub(super) const KILL_DENIED: [u16; 1] = [1095];
    pub(super) const NO_ACCOUNT: [u16; 3] = [1133, 1410, 1470];
    pub(super) const NO_DATABASE: [u16; 1] = [1049];
    pub(super) const MISSING: [u16; 2] = [1146, 1305];
    pub(super) const TOO_LARGE: [u16; 1] = [1153];
    pub(super) const TOO_LONG: [u16; 1] = [1406];
}

impl Fault {
    pub(crate) fn of(error: mysql_async::Error) -> Self {
        Self::Mysql(Arc::new(error))
    }
    fn code(&self) -> Option<u16> {
        match self {
            Self::Connect(e) | Self::Mysql(e) => match &**e {
                mysql_async::Error::Server(e) => Some(e.code),
                _ => None,
            },
            _ => None,
        }
    }
    fn is(&self, codes: &[u16]) -> bool {
        self.code().is_some_and(|code| codes.contains(&code))
    }
    /// The server said no, to this statement alone.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Mysql(_)) && !self.ends_connection()
    }
    /// The connection is good for nothing any more.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Unanswered => true,
            // A primary that became a replica stays one: another connection may lead to the new one.
            Self::Mysql(_) => {
                self.code().is_none()
                    || self.is(&codes::ENDING)
                    || self.is(&codes::READ_ONLY)
                    || self.is(&codes::TOO_LARGE)
            }
            _ => false,
        }
    }
    /// A session is used again after what is known to leave nothing behind, and after nothing else: a handler that failed, too, may have left
    /// its transaction open.
    pub(crate) fn leaves_nothing(&self) -> bool {
        self.is_conflict()
            || self.is(&codes::HARMLESS)
            || self.is(&codes::NO_RIGHT)
            || self.is(&codes::KILL_DENIED)
            || self.is(&codes::NO_DATABASE)
            || self.is_missing()
    }
    /// Of one who tried to make the tables.
    pub(crate) fn unmade(self) -> Self {
        match self {
            Self::Mysql(e) if Self::Mysql(e.clone()).is(&codes::NO_RIGHT) => Self::Unmade(e),
            other => other,
        }
    }
    /// The tables are not there.
    pub(crate) fn is_missing(&self) -> bool {
        self.is(&codes::MISSING)
    }
    /// Two have changed one thing, and one of them has to begin anew: nothing of it has happened.
    pub(crate) fn is_conflict(&self) -> bool {
        self.is(&codes::CONFLICT)
    }
    /// The server has as many connections as it takes.
    pub(crate) fn is_full(&self) -> bool {
        self.is(&codes::CONNECTIONS)
    }
    /// The server is there and will do it when it is ready, or over another connection: as good as no connection yet (SAFETY E8). A session
    /// that is ended does not always get to say so before its connection is gone.
    pub(crate) fn is_soon_over(&self) -> bool {
        let broke = match self {
            Self::Mysql(_) => self.code().is_none(),
            // Also one that was ended while it was being made: a server that is not there refuses otherwise, unless something stands in
            // between.
            Self::Connect(e) => matches!(&**e, mysql_async::Error::Io(mysql_async::IoError::Io(e)) if is_end(e.kind())),
            _ => false,
        };
        broke || self.is_conflict() || self.is_full() || self.is(&codes::KILLED)
    }
    /// No server now; there may be one soon.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Mysql(_) | Self::Unanswered | Self::Unreached | Self::ReadOnly)
            && self.tell("connect", "").is_temporary()
    }
    pub(crate) fn tell(&self, operation: &'static str, endpoint: &str) -> Error {
        let new = |kind, message: &str| Error::new(kind, operation, message).with("mysql", endpoint);
        match self {
            Self::Closed => Error::new(ErrorKind::Closed, operation, "the engine was closed").hint("connect again"),
            Self::Unreached => new(ErrorKind::Unreachable, "no connection within the time that there was")
                .hint("look whether the server runs and answers"),
            Self::ReadOnly => new(ErrorKind::Unreachable, "the server takes no writes: it is a replica, or read-only")
                .hint("give the primary's address, or all of them: the one that takes writes is found"),
            Self::Unanswered => new(ErrorKind::Ambiguous, "no answer in time"),
            Self::Locked => new(ErrorKind::Unreachable, "somebody's transaction keeps the lock's row")
                .hint("look for it in SHOW ENGINE INNODB STATUS: it may sleep within a transaction"),
            Self::Answer => new(ErrorKind::Protocol, "the server answered what no procedure of this version answers")
                .hint("look whether another version has made the tables"),
            Self::Pooled(what) => new(ErrorKind::Unsupported, what)
                .hint("connect to the one server that takes writes, or take strategy=lease"),
            Self::Layout(other) => new(ErrorKind::LayoutMismatch, "the lock is held by another strategy")
                .with("strategy", other)
                .hint("use one strategy, and the same keys, for a name everywhere"),
            Self::Unmade(e) => new(
                ErrorKind::PermissionDenied,
                "the tables of fencelock are not there for this account, and it may not make them",
            )
            .because(said(e))
            .hint("run `fencelock migrate --role USER@HOST --run` as one that may, with this account's name"),
            Self::Unusable { what, hint } => new(ErrorKind::InvalidConfig, what).hint(*hint),
            Self::Connect(e) => refused(operation, endpoint, self, e).unwrap_or_else(|| {
                new(ErrorKind::Unreachable, "no connection")
                    .because(said(e))
                    .hint("look whether the server runs, and at host, port and certificates")
            }),
            Self::Mysql(e) => refused(operation, endpoint, self, e).unwrap_or_else(|| {
                let kind = if self.ends_connection() { ErrorKind::Ambiguous } else { ErrorKind::Protocol };
                let what = if kind == ErrorKind::Ambiguous { "the connection broke" } else { "the server refused" };
                new(kind, what).because(said(e))
            }),
        }
    }
}

/// What is read where somebody was there, and is not any more.
fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::*;
    matches!(kind, UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}
/// The server's own refusals: the call had no effect.
fn refused(operation: &'static str, endpoint: &str, fault: &Fault, error: &mysql_async::Error) -> Option<Error> {
    let new = |kind, message: &str| Error::new(kind, operation, message).with("mysql", endpoint).because(said(error));
    fault.code()?;
    Some(match () {
        () if fault.is(&codes::UNKNOWN_USER) => {
            new(ErrorKind::PermissionDenied, "the server does not accept user or password").hint("look at the URL")
        }
        () if fault.is(&codes::NO_RIGHT) => new(ErrorKind::PermissionDenied, "the account may not do that")
            .hint("`fencelock migrate --role USER@HOST` prints the rights that it needs on tables and procedures"),
        () if fault.is(&codes::KILL_DENIED) => {
            new(ErrorKind::PermissionDenied, "the account may not end the session of another account")
                .hint("give it CONNECTION ADMIN (MariaDB) or CONNECTION_ADMIN (MySQL), or take the holder's account")
        }
        () if fault.is(&codes::NO_DATABASE) => {
            new(ErrorKind::InvalidConfig, "there is no such database").hint("look at the URL")
        }
        () if fault.is(&codes::NO_ACCOUNT) => {
            new(ErrorKind::InvalidConfig, "there is no such account").hint("create it first, or say USER@HOST as it is")
        }
        () if fault.is_missing() => new(ErrorKind::InvalidConfig, "the tables of fencelock are not there")
            .hint("run `fencelock migrate --run` as an account that may create tables and routines in this database"),
        () if fault.is(&codes::TOO_LARGE) => {
            new(ErrorKind::InvalidConfig, "that is more than the server takes at once")
                .hint("write less, or raise max_allowed_packet")
        }
        () if fault.is(&codes::TOO_LONG) => new(ErrorKind::InvalidConfig, "that is longer than a field of the tables")
            .hint("write less than 64 KiB in a note"),
        () if fault.is(&codes::CONNECTIONS) => {
            new(ErrorKind::Unreachable, "the server has as many connections as it takes").hint("raise max_connections")
        }
        () if fault.is(&codes::NO_ROOM) => new(ErrorKind::Unreachable, "the server has no room left"),
        () if fault.is(&codes::READ_ONLY) => {
            new(ErrorKind::Unreachable, "the server takes no writes: it is a replica, or read-only")
                .hint("give the primary's address, or all of them: the one that takes writes is found")
        }
        () if fault.is_conflict() => new(ErrorKind::Unreachable, "the server cannot do it now").hint("try again"),
        () => return None,
    })
}
/// What the server said, or what went wrong below the driver. The text of a statement is never in it.
fn said(error: &mysql_async::Error) -> String {
    if let mysql_async::Error::Server(e) = error {
        return format!("{}: {}", e.code, e.message);
    }
    let (mut words, mut below) = (error.to_string(), std::error::Error::source(error));
    while let Some(error) = below {
        // Some say what is below them themselves.
        let more = error.to_string();
        if !words.contains(&more) {
            words.push_str(&format!(": {more}"));
        }
        below = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: an interrupted call, or one that failed in an unknown way, whose session is used again.
    use super::*;

    fn server(code: u16) -> Fault {
        Fault::of(mysql_async::Error::Server(mysql_async::ServerError {
            code,
            message: "m".into(),
            state: "HY000".into(),
        }))
    }
    #[test]
    fn what_the_server_says_has_a_kind_and_a_way_out() {
        for (code, kind, ends, again) in [
            (1045, ErrorKind::PermissionDenied, false, false),
            (1370, ErrorKind::PermissionDenied, false, true),
            (1095, ErrorKind::PermissionDenied, false, true),
            (1305, ErrorKind::InvalidConfig, false, true),
            (1153, ErrorKind::InvalidConfig, true, false),
            (1205, ErrorKind::Unreachable, false, true),
            (1290, ErrorKind::Unreachable, true, false),
            // Its transaction may be open: a row would stay locked for as long as the session is.
            (1317, ErrorKind::Ambiguous, true, false),
            (1436, ErrorKind::Ambiguous, true, false),
            (4031, ErrorKind::Ambiguous, true, false),
            (1037, ErrorKind::Unreachable, false, false),
            (1064, ErrorKind::Protocol, false, true),
            // Nobody knows what it leaves behind.
            (1105, ErrorKind::Protocol, false, false),
        ] {
            let fault = server(code);
            let (error, is) = (fault.tell("lock", "mysql://h"), (fault.ends_connection(), fault.leaves_nothing()));
            assert_eq!((error.kind(), is), (kind, (ends, again)), "{code}: {error}");
            assert!(error.to_string().contains("m"), "{error}");
        }
        assert!(server(1213).is_conflict() && server(1040).is_soon_over() && server(1927).is_soon_over());
        let connecting = |kind| Fault::Connect(Arc::new(mysql_async::Error::Io(io::Error::from(kind).into())));
        let ended = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
        assert!(ended.into_iter().all(|kind| connecting(kind).is_soon_over()), "ended while it was being made");
        assert!(!connecting(io::ErrorKind::ConnectionRefused).is_soon_over(), "there is no server");
    }
}
