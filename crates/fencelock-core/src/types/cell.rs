//! Values with a version.
use crate::error::{Error, ErrorKind};
use std::{fmt, sync::Arc};

/// The version of a cell's value: rises with every write, and never repeats, not even after the value was removed.
///
/// ```
/// use fencelock_core::Version;
/// assert!(Version::NONE < Version::new(1));
/// assert_eq!(Version::new(7).get(), 7);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(i64);
impl Version {
    /// Of a cell that was never written.
    pub const NONE: Self = Self(0);

    /// From the number that an engine stored.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }
    /// The number.
    pub const fn get(self) -> i64 {
        self.0
    }
}
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value, and the version that a write has to name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versioned {
    /// Of this value, or of its removal.
    pub version: Version,
    /// `None`: there is none, or none any more.
    pub value: Option<Arc<[u8]>>,
}

/// Somebody else has written in between. Prints itself for people, and `?` makes an error of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// What stands there now.
    pub now: Versioned,
}
impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "somebody else has written it: its version is {} now", self.now.version)
    }
}
impl std::error::Error for Conflict {}
impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Self {
        Self::new(ErrorKind::Conflict, "cell", conflict.to_string()).hint("load it, and write again")
    }
}
