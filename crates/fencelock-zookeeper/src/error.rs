//! The server's errors in the library's words.
use crate::wire::op::code;
use fencelock_core::{Error, ErrorKind};

/// What stops an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The engine was closed.
    Closed,
    /// No connection; nothing was sent.
    Connect(String),
    /// Sent, and nobody knows what became of it.
    Unanswered,
    /// The session is over, and with it all that it had; the operation had no effect that lasts.
    SessionOver,
    /// The server said no.
    Refused(i32),
    /// It does not accept who we say we are.
    Login,
    /// An answer that no ZooKeeper gives.
    Answer,
    /// It grants sessions that are shorter than those before.
    Shorter {
        /// In ms.
        now: i32,
    },
    /// Somebody contends there in other words.
    Layout(String),
    /// What is written there is nothing of ours.
    Data(String),
    /// The last number that a server gives, which it gives again.
    Counted(String),
    /// So many bytes do not go into one message.
    TooLarge(usize),
}

impl Fault {
    pub(crate) fn is(&self, code: i32) -> bool {
        *self == Self::Refused(code)
    }
    pub(crate) fn is_no_node(&self) -> bool {
        self.is(code::NO_NODE)
    }
    /// Nobody knows whether it had an effect.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Unanswered) || self.is(code::SESSION_MOVED)
    }
    /// Asked again it may be answered.
    pub(crate) fn may_pass(&self) -> bool {
        let later = self.is(code::THROTTLED) || self.is(code::TIMED_OUT);
        matches!(self, Self::Connect(_) | Self::SessionOver) || self.is_open() || later
    }
    pub(crate) fn tell(&self, operation: &'static str, endpoint: &str) -> Error {
        let new = |kind, message: &str| Error::new(kind, operation, message).with("zookeeper", endpoint);
        match self {
            Self::Closed => Error::new(ErrorKind::Closed, operation, "the engine was closed").hint("connect again"),
            Self::Connect(why) => new(ErrorKind::Unreachable, "no session")
                .because(why.clone())
                .hint("look whether the servers run and are the majority, at hosts and ports, and at their maxClientCnxns"),
            Self::Unanswered => new(ErrorKind::Ambiguous, "no answer in time"),
            Self::SessionOver => new(ErrorKind::Ambiguous, "the session ended meanwhile"),
            Self::Login => new(ErrorKind::PermissionDenied, "the server does not accept user or password")
                .hint("look at the URL: zookeeper://USER:PASSWORD@HOST"),
            Self::Refused(code::NO_AUTH) => new(ErrorKind::PermissionDenied, "the server does not allow it")
                .hint("the nodes belong to somebody else: look at user and password, and at acl= in the URL"),
            Self::Refused(code::INVALID_ACL) => new(ErrorKind::InvalidConfig, "the server refuses the ACL")
                .hint("look at acl= in the URL: it takes world, or digest:USER:HASH"),
            Self::Refused(code::THROTTLED | code::TIMED_OUT) => {
                new(ErrorKind::Unreachable, "the server has too much to do").hint("try again")
            }
            Self::TooLarge(len) => {
                new(ErrorKind::Unsupported, format!("{len} bytes do not go into one message").as_str())
                    .hint("a server takes a megabyte: shorten the note or the value, or take fewer permits at once")
            }
            Self::Refused(code) => new(ErrorKind::Protocol, "the server refused").because(format!("error {code}")),
            Self::Answer => new(ErrorKind::Protocol, "the server answered what ZooKeeper does not answer")
                .hint("look whether a proxy or another program stands in between"),
            Self::Shorter { now } => new(ErrorKind::InvalidConfig, "the servers grant shorter sessions than before")
                .with("session", format!("{now} ms"))
                .hint("connect again"),
            Self::Data(node) => new(ErrorKind::LayoutMismatch, "what is written there is somebody else's")
                .with("node", node)
                .hint("a semaphore's node holds its size, a cell's is marked as one: take another name, or empty the node"),
            Self::Counted(node) => new(ErrorKind::Unsupported, "the server has counted to the end for this name")
                .with("node", node)
                .hint("while nobody uses it, delete the node above with all below it: the count begins anew, tokens go on"),
            Self::Layout(node) => new(ErrorKind::LayoutMismatch, "somebody contends there by another layout")
                .with("node", node)
                .hint("use one layout for all: curator, or kazoo by dialect=kazoo in the URL"),
        }
    }
}
