//! What is no trouble, but an answer.
use fencelock_core::{Error, ErrorKind};
use std::fmt;

/// Why a lock was not taken, a write not made. Trouble is the outer error, this is the inner one: `.await??` makes an
/// [`Error`] of either.
///
/// ```
/// use fencelock_core::{Error, ErrorKind};
/// use fencelock_sql::Refused;
/// assert_eq!(Error::from(Refused::Busy).kind(), ErrorKind::Busy);
/// assert_eq!(Error::from(Refused::Changed).kind(), ErrorKind::Conflict);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such row, so nothing is locked, and another transaction may insert one.
    Absent,
    /// Another transaction has the lock, and this one was told not to wait, or has waited as long as it was told. The transaction
    /// goes on.
    Busy,
    /// The row has another version: somebody has written in between. Read it again, best in a new transaction.
    Changed,
    /// A newer holder of the lock has written, or another one with the same token. The transaction cannot be committed.
    Stale {
        /// The token that is there.
        token: i64,
        /// Whose it is, if it is told.
        owner: Option<String>,
    },
    /// The lock is not held any more. The transaction cannot be committed.
    Lost,
}
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("there is no such row"),
            Self::Busy => f.write_str("another transaction has the lock"),
            Self::Changed => f.write_str("somebody has written in between"),
            Self::Stale { token, owner: None } => write!(f, "token {token} has written, a newer one"),
            Self::Stale { token, owner: Some(owner) } => write!(f, "token {token} of {owner} has written"),
            Self::Lost => f.write_str("the lock is not held any more"),
        }
    }
}
impl std::error::Error for Refused {}
/// `NotHeld`, `Busy`, `Conflict`, `Lost`, `Lost`, in their order.
impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        let (kind, hint) = match refused {
            Refused::Absent => (
                ErrorKind::NotHeld,
                "nothing is locked: insert it first (a fence that may have been deleted with its row belongs to a name)",
            ),
            Refused::Busy => (ErrorKind::Busy, "try again later"),
            Refused::Changed => (ErrorKind::Conflict, "run the whole transaction again, from BEGIN"),
            Refused::Stale { .. } | Refused::Lost => (ErrorKind::Lost, "stop: another holder has the lock"),
        };
        Self::new(kind, "sql", refused.to_string()).hint(hint)
    }
}
