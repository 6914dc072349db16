//! The driver's errors and the server's in the library's words.
use fencelock_core::{Error, ErrorKind};
use redis::{ErrorKind as Driver, RedisError};
use std::{fmt, sync::Arc};

/// What stops a command.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The engine was closed.
    Closed,
    /// No connection; nothing was sent.
    Connect(RedisError),
    /// No connection came about while somebody waited for it.
    Unreached,
    /// The sentinels name none, or one that is none.
    NoPrimary,
    /// Sent, and nobody knows what became of it.
    Unanswered,
    /// The server said no, or the connection broke.
    Redis(RedisError),
    /// Granted, and not enough replicas have it.
    TooFew { had: i64, wanted: u32 },
    /// It is a second name of a store that counts already: that of which; and where that is written.
    Twice { other: Arc<str>, key: String },
    /// That node's open connection does not say to which store it leads, so that nobody knows whether this one is another.
    Doubted(Arc<str>),
    /// An answer that no script of ours gives.
    Answer,
}
/// The key lies on another server.
pub(crate) struct Redirect {
    pub(crate) slot: u16,
    pub(crate) address: String,
    /// It is on its way there: this time only.
    pub(crate) asks: bool,
}
impl From<RedisError> for Fault {
    fn from(e: RedisError) -> Self {
        Self::Redis(e)
    }
}

impl Fault {
    /// The connection is good for nothing any more.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Unanswered => true,
            // A primary that became a replica stays one: another connection may lead to the new one.
            Self::Redis(e) => {
                e.is_unrecoverable_error()
                    || e.is_io_error()
                    || e.is_connection_dropped()
                    || Said::from(e).is("READONLY")
            }
            Self::Answer
            | Self::Closed
            | Self::TooFew { .. }
            | Self::Twice { .. }
            | Self::Doubted(_)
            | Self::Connect(_)
            | Self::Unreached
            | Self::NoPrimary => false,
        }
    }
    /// The server is there and will do it when it is ready: as good as no connection yet (SAFETY E8).
    pub(crate) fn is_soon_over(&self) -> bool {
        const WORDS: [&str; 6] = ["LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS"];
        matches!(self, Self::Redis(e) if WORDS.iter().any(|word| Said::from(e).is(word)))
    }
    /// A server of a cluster says that another one has the key.
    pub(crate) fn redirect(&self) -> Option<Redirect> {
        let Self::Redis(e) = self else { return None };
        let (address, slot) = e.redirect_node()?;
        Some(Redirect { slot, address: address.to_owned(), asks: e.code() == Some("ASK") })
    }
    /// Nobody has the slot now, or it does not know who.
    pub(crate) fn is_cluster_down(&self) -> bool {
        matches!(self, Self::Redis(e) if Said::from(e).is("CLUSTERDOWN"))
    }
    /// The access list does not allow it.
    pub(crate) fn is_no_right(&self) -> bool {
        matches!(self, Self::Redis(e) | Self::Connect(e) if Said::from(e).is("NOPERM"))
    }
    /// The server does not know this command, or not with these words, or this user may not use it.
    pub(crate) fn is_no_command(&self) -> bool {
        const SAYS: [&str; 3] = ["unknown command", "syntax error", "wrong number of arguments"];
        let unknown = |e: &RedisError| SAYS.iter().any(|words| Said::from(e).text.to_ascii_lowercase().contains(words));
        self.is_no_right() || matches!(self, Self::Redis(e) if unknown(e))
    }
    /// There is something else in the key.
    pub(crate) fn is_wrong_type(&self) -> bool {
        matches!(self, Self::Redis(e) if Said::from(e).is("WRONGTYPE"))
    }
    /// The server has as many clients as it takes.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Connect(e) | Self::Redis(e) if has_no_room(&Said::from(e).text))
    }
    /// The scripts are not there any more.
    pub(crate) fn is_no_script(&self) -> bool {
        matches!(self, Self::Redis(e) if e.code() == Some("NOSCRIPT"))
    }
    pub(crate) fn tell(&self, operation: &'static str, endpoint: &str) -> Error {
        let new = |kind, message: &str| Error::new(kind, operation, message).with("redis", endpoint);
        match self {
            Self::Closed => Error::new(ErrorKind::Closed, operation, "the engine was closed").hint("connect again"),
            Self::Unreached => new(ErrorKind::Unreachable, "no connection within the time that there was")
                .hint("look whether the server runs and answers"),
            Self::NoPrimary => new(ErrorKind::Unreachable, "no server is the primary now")
                .hint("look at the sentinels: they choose another one when they agree"),
            Self::Unanswered => new(ErrorKind::Ambiguous, "no answer in time"),
            Self::TooFew { had, wanted } => {
                let few = format!("it was granted, but {had} of {wanted} replicas have it: it is given back");
                new(ErrorKind::Unreachable, &few).hint("look at the replicas, or ask for fewer in the URL")
            }
            Self::Twice { other, key } => {
                let copied =
                    format!("name each once, or, if one began with a copy of another's data: delete {key} on the copy");
                new(ErrorKind::InvalidConfig, &format!("it and {other} are one store")).hint(copied)
            }
            Self::Doubted(other) => new(
                ErrorKind::Unreachable,
                &format!("{other} does not say which store it is: this one may be the same"),
            )
            .hint("try again: its connection was given up"),
            Self::Answer => new(ErrorKind::Protocol, "the server answered what no script of this version answers")
                .hint("look whether a proxy or another program stands in between"),
            Self::Connect(e) => refused(operation, endpoint, e).unwrap_or_else(|| {
                new(ErrorKind::Unreachable, "no connection").because(Said::from(e)).hint(match e.kind() {
                    Driver::RESP3NotSupported => "the server is older than 6.0: add ?protocol=resp2",
                    Driver::InvalidClientConfig => "look at the URL",
                    _ => "look whether the server runs, and at host, port and certificates",
                })
            }),
            Self::Redis(e) => refused(operation, endpoint, e).unwrap_or_else(|| {
                let kind = if self.ends_connection() { ErrorKind::Ambiguous } else { ErrorKind::Protocol };
                let what = if kind == ErrorKind::Ambiguous { "the connection broke" } else { "the server refused" };
                new(kind, what).because(Said::from(e))
            }),
        }
    }
}

fn has_no_room(words: &str) -> bool {
    words.to_ascii_lowercase().contains("max number of clients")
}
/// The server's own refusals: the command had no effect.
fn refused(operation: &'static str, endpoint: &str, error: &RedisError) -> Option<Error> {
    let said = Said::from(error);
    let is = |code: &str| said.is(code);
    let new = |kind, message: &str| Error::new(kind, operation, message).with("redis", endpoint);
    let words = said.text.to_ascii_lowercase();
    Some(match () {
        () if error.kind() == Driver::AuthenticationFailed || is("WRONGPASS") || is("NOAUTH") => {
            new(ErrorKind::PermissionDenied, "the server does not accept user or password").hint("look at the URL")
        }
        () if is("NOPERM") || ["can't run", "can't access", "can't publish"].iter().any(|no| words.contains(no)) => {
            new(ErrorKind::PermissionDenied, "the server's access list does not allow it")
                .because(said)
                .hint("`fencelock acl redis` prints the rights that it needs")
        }
        () if is("WRONGTYPE") => new(ErrorKind::LayoutMismatch, "the key of this name is no lock of this layout")
            .hint("use another name or namespace, or remove the key"),
        () if is("OOM") => new(ErrorKind::Unreachable, "the server has no memory left").hint("raise maxmemory"),
        () if is("LOADING") => new(ErrorKind::Unreachable, "the server is loading its data").hint("try again"),
        () if is("READONLY") => new(ErrorKind::Unreachable, "the server is a replica: it takes no writes")
            .hint("give the primary's address"),
        () if is("MISCONF") => new(ErrorKind::Unreachable, "the server cannot save, and takes no writes").because(said),
        () if is("NOREPLICAS") || is("MASTERDOWN") || is("CLUSTERDOWN") || is("TRYAGAIN") || is("BUSY") => {
            new(ErrorKind::Unreachable, "the server cannot do it now").because(said).hint("try again")
        }
        () if has_no_room(&said.text) => {
            new(ErrorKind::Unreachable, "the server has as many clients as it takes").hint("raise maxclients")
        }
        () if words.contains("db index is out of range") => {
            new(ErrorKind::InvalidConfig, "the server has no database of this number")
                .hint("give a smaller one in the URL, or raise `databases` in the server's configuration")
        }
        () if words.contains("no such master") => {
            new(ErrorKind::InvalidConfig, "the sentinels know no servers of this name")
                .hint("write redis+sentinel://HOST/NAME with the name of their `sentinel monitor` line")
        }
        () if words.contains("32 bits") => {
            new(ErrorKind::Unsupported, "the server is one of 32 bits, which cuts times and tokens")
                .hint("give one that is built for 64 bits")
        }
        () if is("MOVED") || is("CROSSSLOT") => {
            new(ErrorKind::Unsupported, "the server is a node of a cluster").hint("write redis+cluster://HOST:6379")
        }
        () => return None,
    })
}

/// What the server or the driver said. The driver's own text may repeat what a command held; a server's error never does.
#[derive(Debug)]
struct Said {
    code: String,
    text: String,
}
impl From<&RedisError> for Said {
    fn from(e: &RedisError) -> Self {
        let code = e.code().unwrap_or("").to_owned();
        let text = match (e.code(), e.detail()) {
            (Some(code), detail) => format!("{code} {}", detail.unwrap_or("")),
            (None, _) => e.to_string(),
        };
        Self { code, text }
    }
}
impl Said {
    /// Servers before 7 wrap what a command of a script was told into words of their own.
    fn is(&self, code: &str) -> bool {
        self.code == code || self.text.split(|c: char| !c.is_ascii_uppercase()).any(|word| word == code)
    }
}
impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim())
    }
}
impl std::error::Error for Said {}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: "32 bits" looked for as a code.
    use super::*;

    #[test]
    fn what_the_server_says_is_told_as_what_it_is() {
        for (code, detail, kind) in [
            ("ERR", "a server of 32 bits cannot keep locks", ErrorKind::Unsupported),
            ("ERR", "DB index is out of range", ErrorKind::InvalidConfig),
            ("ERR", "No such master with that name", ErrorKind::InvalidConfig),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", ErrorKind::Unreachable),
            ("BUSY", "Redis is busy running a script.", ErrorKind::Unreachable),
            // As a server before 7 has it.
            (
                "ERR",
                "Error running script: -READONLY You can't write against a read only replica.",
                ErrorKind::Unreachable,
            ),
            ("ERR", "The user executing the script can't publish to the channel", ErrorKind::PermissionDenied),
        ] {
            let error = redis::make_extension_error(code.to_owned(), Some(detail.to_owned()));
            let told = Fault::Redis(error).tell("lock", "redis://h");
            assert_eq!(told.kind(), kind, "{told}");
        }
    }
}
