//! One flat kind for code, a message, a place and a way out for people.
use crate::types::{Busy, Kind, Name};
use rustix::io::Errno;
use std::{error::Error as StdError, fmt};

/// Result of the library's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, for code that has to decide what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The outcome is not known: the call may or may not have had its effect.
    Ambiguous,
    /// Somebody else has the lock.
    Busy,
    /// A semaphore of this name has another size.
    CapacityMismatch,
    /// The client was shut down, or what it was connected to is gone for good: connect again.
    Closed,
    /// Somebody else has written in between.
    Conflict,
    /// An option or URL that cannot be used.
    InvalidConfig,
    /// A name that no lock can have.
    InvalidName,
    /// A live lock of this name is of another kind.
    KindMismatch,
    /// A record of another layout lies under our name.
    LayoutMismatch,
    /// The hold is over.
    Lost,
    /// The hold was not there any more when it was released.
    NotHeld,
    /// The engine refuses for want of rights.
    PermissionDenied,
    /// The engine answered something that it cannot have meant.
    Protocol,
    /// The engine cannot be reached, or not in time.
    Unreachable,
    /// The engine, or this build, cannot do it.
    Unsupported,
}

impl ErrorKind {
    /// Trying the same call again, with the same ids, may succeed and does no harm.
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::Ambiguous | Self::Unreachable)
    }
}

/// What failed, why, with which values, and what to do about it.
///
/// ```
/// use fencelock_core::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::InvalidConfig, "connect", "unknown key \"tll\"").hint("did you mean \"ttl\"?");
/// assert_eq!(error.to_string(), "connect: unknown key \"tll\"; did you mean \"ttl\"?");
/// assert!(!error.is_temporary());
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    message: String,
    context: Vec<(&'static str, String)>,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

const MORE_DESCRIPTORS: &str = "raise the limit of open files (ulimit -n)";
fn no_descriptors(error: &std::io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| code == Some(errno.raw_os_error()))
}

impl Error {
    /// An error of `operation`; `message` says what happened, in one clause and without a secret.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Inner { kind, operation, message, context: Vec::new(), hint: None, source: None }))
    }
    /// Of a call that only reads: whatever broke off, nothing is open.
    pub(crate) fn of_a_read(mut self) -> Self {
        if self.0.kind == ErrorKind::Ambiguous {
            self.0.kind = ErrorKind::Unreachable;
        }
        self
    }
    /// Adds a value that helps to find the place.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((key, value.to_string()));
        self
    }
    /// Adds the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }
    /// Adds the cause. One that has the same way out whatever was tried brings it along: a process without descriptors.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = source.into();
        if self.0.hint.is_none() && source.downcast_ref().is_some_and(no_descriptors) {
            self.0.hint = Some(MORE_DESCRIPTORS.into());
        }
        self.0.source = Some(source);
        self
    }
    /// What broke off at last, and the answer to the try before.
    pub(crate) fn after(self, last: Option<Self>) -> Self {
        match last {
            Some(last) => self.because(last),
            None => self,
        }
    }
    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    /// The operation that failed.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }
    /// The values that were added with [`Error::with`].
    pub fn context(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.context.iter().map(|(key, value)| (*key, value.as_str()))
    }
    /// Trying the same call again may succeed and does no harm.
    pub fn is_temporary(&self) -> bool {
        self.0.kind.is_temporary()
    }

    /// A name that is another kind of lock, alive (SAFETY K1): the same words on every engine.
    pub fn other_kind(operation: &'static str, name: &Name, wanted: Kind, now: impl fmt::Display) -> Self {
        let other = Self::new(ErrorKind::KindMismatch, operation, format!("it is a {now} now, not a {wanted}"));
        other.with("name", name).hint("use another name: a name has one kind of lock")
    }
    /// A semaphore that has another size (SAFETY K4): the same words on every engine.
    pub fn other_capacity(operation: &'static str, name: &Name, wanted: u32, now: u32) -> Self {
        let other = format!("the semaphore has {now} permits, not {wanted}");
        let way_out = format!("all its users name the same number; a resize from {now} changes it for all");
        Self::new(ErrorKind::CapacityMismatch, operation, other).with("name", name).hint(way_out)
    }

    pub(crate) fn closed(operation: &'static str) -> Self {
        Self::new(ErrorKind::Closed, operation, "the client was shut down").hint("connect again")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { operation, message, context, hint, source, .. } = &*self.0;
        write!(f, "{operation}: {message}")?;
        for (i, (key, value)) in context.iter().enumerate() {
            write!(f, "{}{key} {value}", if i == 0 { " (" } else { ", " })?;
        }
        if !context.is_empty() {
            f.write_str(")")?;
        }
        if let Some(source) = source {
            write!(f, ": {source}")?;
        }
        match hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}
impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}
impl From<Busy> for Error {
    fn from(busy: Busy) -> Self {
        let error = Self::new(ErrorKind::Busy, "lock", busy.to_string());
        match busy.name {
            Some(name) => error.with("name", name),
            None => error,
        }
    }
}
