//! One holder at a time.
use super::{Options, options::options};
use crate::{
    attempt::{Acquire, Try},
    guard::Guard,
    types::Claim,
};
use std::time::Duration;

/// A mutex of a name. Cheap and owned: it holds nothing, and it is not checked, before a call is awaited.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::{sync::Arc, time::Duration};
/// # let engine = fencelock_core::memory::MemoryEngine::new();
/// # let client = fencelock_core::Client::builder(Arc::new(engine)).build()?;
/// let guard = client.mutex("orders/42").ttl(Duration::from_secs(10)).note("shipping").lock().await?;
/// assert!(guard.token().get() > 0);
///
/// // Somebody else is told who is in the way.
/// let busy = client.mutex("orders/42").try_lock().await?.unwrap_err();
/// assert_eq!(&*busy.holder.unwrap().note, "shipping");
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex(pub(super) Options);
impl Mutex {
    pub(crate) fn new(options: Options) -> Self {
        Self(options)
    }
    options!();
    options!(note);
    options!(owner);

    /// Waits until it is held.
    ///
    /// # Errors
    /// `InvalidName`, `InvalidConfig`: the first await says what is wrong with the handle. `KindMismatch`: the name is
    /// another kind of lock. `Unreachable`, `Ambiguous`, `PermissionDenied`: the engine. `Closed`: the client was shut down.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn lock(&self) -> Acquire<Guard> {
        self.0.wait(Claim::Mutex)
    }
    /// Takes it if it is free and nobody waits for it; else says who is in the way.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_lock(&self) -> Acquire<Try<Guard>> {
        self.0.attempt(Claim::Mutex, None)
    }
    /// Waits for at most `patience`; then says who is in the way.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_lock_for(&self, patience: Duration) -> Acquire<Try<Guard>> {
        self.0.attempt(Claim::Mutex, Some(patience))
    }
}
