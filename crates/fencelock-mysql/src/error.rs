//! The driver's errors and the server's in the library's words.
use fencelock_core::{Error, ErrorKind, NoConnection};
use std::sync::Arc;

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

/// The numbers of the server's errors, by what they mean for us. MariaDB's and MySQL's are the same below 1900.
mod codes {
    /// The session ends, or its transaction may still be open: another connection is better.
    pub(super) const ENDING: [u16; 10] = [1053, 1152, 1158, 1159, 1160, 1161, 1317, 1927, 1969, 3024];
    /// Full, for now.
    pub(super) const CONNECTIONS: [u16; 3] = [1040, 1203, 1226];
    /// It takes no writes now: read-only (1290, 1792, 1836), or a node of a cluster that is not ready (1047).
    pub(super) const READ_ONLY: [u16; 4] = [1047, 1290, 1792, 1836];
    /// A row that was locked for too long, or two that waited for each other: nothing of it has happened.
    pub(super) const CONFLICT: [u16; 2] = [1205, 1213];
    pub(super) const NO_ROOM: [u16; 4] = [1021, 1037, 1041, 1114];
    pub(super) const UNKNOWN_USER: [u16; 3] = [1045, 1698, 1862];
    pub(super) const NO_RIGHT: [u16; 6] = [1044, 1142, 1143, 1227, 1370, 1449];
    pub(super) const NO_DATABASE: [u16; 1] = [1049];
    pub(super) const MISSING: [u16; 2] = [1146, 1305];
    pub(super) const TOO_LARGE: [u16; 1] = [1153];
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
    /// The tables are not there.
    pub(crate) fn is_missing(&self) -> bool {
        self.is(&codes::MISSING)
    }
    /// Two have changed one thing, and one of them has to begin anew: nothing of it has happened.
    pub(crate) fn is_conflict(&self) -> bool {
        self.is(&codes::CONFLICT)
    }
    /// The server is there and will do it when it is ready: as good as no connection yet (SAFETY E8).
    pub(crate) fn is_soon_over(&self) -> bool {
        self.is_conflict() || self.is(&codes::CONNECTIONS)
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
            Self::Unusable { what, hint } => new(ErrorKind::InvalidConfig, what).hint(*hint),
            Self::Connect(e) => refused(operation, endpoint, self, e).unwrap_or_else(|| {
                new(ErrorKind::Unreachable, "no connection")
                    .because(Said(said(e)))
                    .hint("look whether the server runs, and at host, port and certificates")
            }),
            Self::Mysql(e) => refused(operation, endpoint, self, e).unwrap_or_else(|| {
                let kind = if self.ends_connection() { ErrorKind::Ambiguous } else { ErrorKind::Protocol };
                let what = if kind == ErrorKind::Ambiguous { "the connection broke" } else { "the server refused" };
                new(kind, what).because(Said(said(e)))
            }),
        }
    }
}

/// The server's own refusals: the call had no effect.
fn refused(operation: &'static str, endpoint: &str, fault: &Fault, error: &mysql_async::Error) -> Option<Error> {
    let new =
        |kind, message: &str| Error::new(kind, operation, message).with("mysql", endpoint).because(Said(said(error)));
    fault.code()?;
    Some(match () {
        () if fault.is(&codes::UNKNOWN_USER) => {
            new(ErrorKind::PermissionDenied, "the server does not accept user or password").hint("look at the URL")
        }
        () if fault.is(&codes::NO_RIGHT) => new(ErrorKind::PermissionDenied, "the account may not do that")
            .hint("give it SELECT, INSERT, UPDATE, DELETE and EXECUTE on the database"),
        () if fault.is(&codes::NO_DATABASE) => {
            new(ErrorKind::InvalidConfig, "there is no such database").hint("look at the URL")
        }
        () if fault.is_missing() => new(ErrorKind::InvalidConfig, "the tables of fencelock are not there")
            .hint("connect once as an account that may create tables and routines in this database"),
        () if fault.is(&codes::TOO_LARGE) => {
            new(ErrorKind::InvalidConfig, "that is more than the server takes at once")
                .hint("write less, or raise max_allowed_packet")
        }
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
#[derive(Debug)]
struct Said(String);
impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Said {}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: an interrupted call that leaves its connection in use.
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
        for (code, kind, ends) in [
            (1045, ErrorKind::PermissionDenied, false),
            (1370, ErrorKind::PermissionDenied, false),
            (1305, ErrorKind::InvalidConfig, false),
            (1153, ErrorKind::InvalidConfig, true),
            (1205, ErrorKind::Unreachable, false),
            (1290, ErrorKind::Unreachable, true),
            // Its transaction may be open: a row would stay locked for as long as the connection is.
            (1317, ErrorKind::Ambiguous, true),
            (1064, ErrorKind::Protocol, false),
        ] {
            let fault = server(code);
            let error = fault.tell("lock", "mysql://h");
            assert_eq!((error.kind(), fault.ends_connection()), (kind, ends), "{code}: {error}");
            assert!(error.to_string().contains("m"), "{error}");
        }
        assert!(server(1213).is_conflict() && server(1040).is_soon_over());
    }
}
