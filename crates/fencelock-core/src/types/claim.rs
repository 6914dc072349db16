//! What is claimed.
use crate::mutants::{Mutant, lives};
use std::{fmt, str::FromStr, time::Duration};

/// What is claimed of a name. It says the kind of lock too: an engine must know (SAFETY K1).
///
/// ```
/// use fencelock_core::{Claim, Kind};
/// assert!(Claim::Write.is_exclusive() && !Claim::Read.is_exclusive());
/// assert_eq!(Claim::Read.kind(), Kind::RwLock);
///
/// let two = Claim::Permits { take: 2, of: 3 };
/// assert!(two.fits([Claim::Permits { take: 1, of: 3 }]));
/// assert!(!two.fits([two]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// All of a mutex.
    Mutex,
    /// Some permits of a semaphore.
    Permits {
        /// How many.
        take: u32,
        /// Of how many.
        of: u32,
    },
    /// To read, beside other readers.
    Read,
    /// To write, beside nobody.
    Write,
}
impl Claim {
    /// The kind of lock that this claim is for.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Mutex => Kind::Mutex,
            Self::Permits { .. } => Kind::Semaphore,
            Self::Read | Self::Write => Kind::RwLock,
        }
    }
    /// Nobody else may hold beside it, so its token orders writes.
    pub const fn is_exclusive(self) -> bool {
        matches!(self, Self::Mutex | Self::Write)
    }
    /// The permits that it takes.
    pub const fn take(self) -> u32 {
        match self {
            Self::Permits { take, .. } => take,
            Self::Mutex | Self::Read | Self::Write => 0,
        }
    }
    /// The size of the semaphore that it is for.
    pub const fn capacity(self) -> Option<u32> {
        match self {
            Self::Permits { of, .. } => Some(of),
            Self::Mutex | Self::Read | Self::Write => None,
        }
    }
    /// The same claim on a semaphore that has another size now.
    #[must_use]
    pub const fn of_capacity(self, now: u32) -> Self {
        match self {
            Self::Permits { take, .. } => Self::Permits { take, of: now },
            other => other,
        }
    }
    /// Whether it can be granted beside those who hold already. Order is another matter: whoever came first goes first.
    pub fn fits(self, holders: impl IntoIterator<Item = Self>) -> bool {
        let mut holders = holders.into_iter();
        match self {
            Self::Mutex | Self::Write => holders.next().is_none(),
            Self::Permits { take, of } => {
                let taken: u64 = holders.map(|holder| u64::from(holder.take())).sum();
                taken + u64::from(take) <= u64::from(of) + u64::from(lives(Mutant::PermitsOffByOne))
            }
            Self::Read => holders.all(|holder| holder == Self::Read),
        }
    }
}
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex => f.write_str("mutex"),
            Self::Permits { take, of } => write!(f, "{take} of {of} permits"),
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
        }
    }
}

/// The kind of a lock. A name has one (SAFETY K1).
///
/// ```
/// use fencelock_core::Kind;
/// assert_eq!("rw_lock".parse(), Ok(Kind::RwLock));
/// assert_eq!(Kind::RwLock.to_string(), "rw_lock");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A value with a version.
    Cell,
    /// One holder at a time.
    Mutex,
    /// One writer, or several readers.
    RwLock,
    /// As many holders as there are permits.
    Semaphore,
}
impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cell, Self::Mutex, Self::RwLock, Self::Semaphore];

    /// What engines write for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cell => "cell",
            Self::Mutex => "mutex",
            Self::RwLock => "rw_lock",
            Self::Semaphore => "semaphore",
        }
    }
}
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
/// The text of a stored kind is not one that this version knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind(String);
impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no kind of lock that this version knows", self.0)
    }
}
impl std::error::Error for UnknownKind {}
impl FromStr for Kind {
    type Err = UnknownKind;
    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

/// Prints a duration as people say it: `350ms`, `8s`, `4m12s`, `2h05m`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Human(pub Duration);
impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.as_secs(), self.0.subsec_millis()) {
            (0, ms) => write!(f, "{ms}ms"),
            (s @ 1..60, _) => write!(f, "{s}s"),
            (s @ 60..3600, _) => write!(f, "{}m{:02}s", s / 60, s % 60),
            (s, _) => write!(f, "{}h{:02}m", s / 3600, s % 3600 / 60),
        }
    }
}
