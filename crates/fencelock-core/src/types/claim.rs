//! What is claimed.
use std::{fmt, time::Duration};

/// What is claimed of a name. It says the kind of lock too: an engine must know (SAFETY K1).
///
/// ```
/// use fencelock_core::{Claim, Kind};
/// assert!(Claim::Mutex.is_exclusive());
/// assert_eq!(Claim::Mutex.kind(), Kind::Mutex);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// All of a mutex.
    Mutex,
}
impl Claim {
    /// The kind of lock that this claim is for.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Mutex => Kind::Mutex,
        }
    }
    /// Nobody else may hold beside it, so its token orders writes.
    pub const fn is_exclusive(self) -> bool {
        match self {
            Self::Mutex => true,
        }
    }
}
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex => f.write_str("mutex"),
        }
    }
}

/// The kind of a lock. A name has one (SAFETY K1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One holder at a time.
    Mutex,
}
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex => f.write_str("mutex"),
        }
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
