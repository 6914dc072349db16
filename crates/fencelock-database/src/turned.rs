//! How a wait ended.
use fencelock_core::{Busy, Error, Grant, Kind, Outcome, Request, Result};

/// How a wait ended.
#[derive(Debug)]
pub enum Turned<F> {
    /// Its turn has come.
    Granted(Grant),
    /// It was stopped, and what was known of those in the way.
    Stopped(Busy),
    /// It has no place any more.
    Displaced,
    /// It is another kind of lock by now.
    OtherKind(Kind),
    /// Nobody can wait.
    Failed(F),
}
impl<F> Turned<F> {
    /// In core's words.
    ///
    /// # Errors
    /// What keeps anybody from waiting.
    pub fn outcome(self, request: &Request, tell: impl FnOnce(&F) -> Error) -> Result<Outcome> {
        match self {
            Self::Granted(grant) => Ok(Outcome::Granted(grant)),
            Self::Stopped(busy) => Ok(Outcome::Busy(busy)),
            Self::Displaced => Ok(Outcome::Displaced),
            Self::OtherKind(kind) => Err(Error::other_kind("lock", request.name(), request.claim().kind(), kind)),
            Self::Failed(fault) => Err(tell(&fault)),
        }
    }
}
