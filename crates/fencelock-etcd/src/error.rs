//! The server's errors in the library's words.
use fencelock_core::{Error, ErrorKind};
use tonic::{Code, Status};

/// What stops a call.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The engine was closed.
    Closed,
    /// No connection; nothing was sent.
    Connect(String),
    /// Sent, and nobody knows what became of it.
    Unanswered,
    /// The server said no, or the connection broke.
    Status(Box<Status>),
    /// An answer that no server of this API gives.
    Answer,
}
impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl Fault {
    fn says(&self, words: &str) -> bool {
        matches!(self, Self::Status(status) if status.message().contains(words))
    }
    /// Another endpoint may do better.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Unanswered => true,
            Self::Status(status) => {
                matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded)
                    || (status.code() == Code::Unknown && !status.message().starts_with("etcdserver:"))
            }
            Self::Answer | Self::Closed | Self::Connect(_) => false,
        }
    }
    /// The token of our login is not known any more: the call had no effect.
    pub(crate) fn is_stale_login(&self) -> bool {
        self.says("invalid auth token") || self.says("revision of auth store is old")
    }
    /// There is no lease of this number.
    pub(crate) fn is_no_lease(&self) -> bool {
        self.says("requested lease not found")
    }
    /// This user may not.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Status(status) if status.code() == Code::PermissionDenied)
    }
    /// More comparisons or steps than this member takes in one transaction: it had no effect.
    pub(crate) fn is_too_many(&self) -> bool {
        self.says("too many operations")
    }
    /// A lease of this number is there.
    pub(crate) fn is_there_already(&self) -> bool {
        self.says("lease already exists")
    }
    /// The server there can do nothing now: what was asked had no effect.
    fn is_refused(&self) -> bool {
        self.says("no leader") || self.says("too many requests") || self.says("server stopped")
    }
    pub(crate) fn may_pass(&self) -> bool {
        self.tell("connect", "").is_temporary()
    }
    pub(crate) fn tell(&self, operation: &'static str, endpoint: &str) -> Error {
        let new = |kind, message: &str| Error::new(kind, operation, message).with("etcd", endpoint);
        let status = match self {
            Self::Closed => {
                return Error::new(ErrorKind::Closed, operation, "the engine was closed").hint("connect again");
            }
            Self::Unanswered => return new(ErrorKind::Ambiguous, "no answer in time"),
            Self::Answer => {
                return new(ErrorKind::Protocol, "the server answered what etcd does not answer")
                    .hint("look whether a proxy or another program stands in between");
            }
            Self::Connect(why) => {
                return new(ErrorKind::Unreachable, "no connection")
                    .because(why.clone())
                    .hint("look whether the members run, and at hosts, ports and certificates");
            }
            Self::Status(status) => status,
        };
        let said = status.message().to_owned();
        if self.is_stale_login() || self.says("authentication failed") || self.says("user name is empty") {
            return new(ErrorKind::PermissionDenied, "the server does not accept user or password")
                .because(said)
                .hint("look at the URL: etcd://USER:PASSWORD@HOST");
        }
        match status.code() {
            Code::PermissionDenied | Code::Unauthenticated => {
                new(ErrorKind::PermissionDenied, "the server does not allow it")
                    .because(said)
                    .hint("give the user's role read and write of the prefix")
            }
            _ if self.says("database space exceeded") => new(ErrorKind::Unreachable, "the server has no space left")
                .hint("compact, defragment, and disarm the alarm"),
            _ if self.is_refused() => new(ErrorKind::Unreachable, "the members cannot do it now").because(said),
            _ if self.ends_connection() => {
                new(ErrorKind::Ambiguous, "the connection broke, or the members changed").because(said)
            }
            _ => new(ErrorKind::Protocol, "the server refused").because(said),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: every refusal a `Protocol` error.
    use super::*;

    #[test]
    fn what_the_server_says_is_told_as_what_it_is() {
        for (code, says, kind) in [
            (Code::Unavailable, "etcdserver: no leader", ErrorKind::Unreachable),
            (Code::Unavailable, "etcdserver: request timed out", ErrorKind::Ambiguous),
            (Code::Unavailable, "etcdserver: leader changed", ErrorKind::Ambiguous),
            (Code::Unknown, "transport error", ErrorKind::Ambiguous),
            (Code::Unauthenticated, "etcdserver: invalid auth token", ErrorKind::PermissionDenied),
            (Code::PermissionDenied, "etcdserver: permission denied", ErrorKind::PermissionDenied),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", ErrorKind::Unreachable),
            (Code::InvalidArgument, "etcdserver: too many operations in txn request", ErrorKind::Protocol),
        ] {
            let told = Fault::from(Status::new(code, says)).tell("lock", "etcd://h");
            assert_eq!(told.kind(), kind, "{told}");
        }
    }
}
