//! What stops a call.
use fencelock_core::Error;
use std::fmt;

/// What stops a call, in the words of one database.
pub trait Fault: fmt::Debug + Send + Sync + 'static {
    /// An answer that no function of ours gives.
    const ANSWER: Self;
    /// Somebody's own transaction keeps the lock's row for longer than there was time (SAFETY E2).
    const LOCKED: Self;
    /// Sent, and nobody knows what became of it.
    const UNANSWERED: Self;
    /// Nothing was sent: there is no connection.
    const UNREACHED: Self;

    /// The lock is held by this other strategy.
    fn layout(other: String) -> Self;
    /// Somebody's own transaction keeps a row of it (SAFETY E2).
    fn is_locked(&self) -> bool;
    /// Nobody knows what became of it.
    fn is_unanswered(&self) -> bool;
    /// The server is there and will do it when it is ready: as good as no connection yet (SAFETY E8).
    fn is_soon_over(&self) -> bool;
    /// How much it tells, of several servers'.
    fn weight(&self) -> u8;
    /// In the library's words.
    fn tell(&self, operation: &'static str, endpoint: &str) -> Error;
}
