//! Several readers, or one writer.
use super::{Member, Options, options::options};
use crate::{
    attempt::{Acquire, Try},
    guard::Guard,
    shared_guard::SharedGuard,
    types::Claim,
};
use std::time::Duration;

/// A read-write lock of a name. First come, first served: a reader that comes after a waiting writer waits too, so writers are
/// not starved (after the phase-fair queue of Brandenburg and Anderson). A reader cannot become a writer; a writer becomes a
/// reader with [`Guard::downgrade`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::{sync::Arc, time::Duration};
/// # let engine = fencelock_core::memory::MemoryEngine::new();
/// # let client = fencelock_core::Client::builder(Arc::new(engine)).build()?;
/// let config = client.rw_lock("config");
/// let writer = config.write().await?;
/// assert!(config.try_read().await?.is_err());
///
/// let reader = writer.downgrade().await?;      // no other writer in between
/// let beside = config.try_read().await??;
/// assert!(config.try_write().await?.is_err());
/// # drop((reader, beside));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock(Options);
impl RwLock {
    pub(crate) fn new(options: Options) -> Self {
        Self(options)
    }
    options!();
    options!(note);
    options!(owner);

    /// Waits until it may read, beside other readers.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); `Unsupported` where the engine has no such locks.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn read(&self) -> Acquire<SharedGuard> {
        self.0.wait(Claim::Read)
    }
    /// Reads if nobody writes and nobody waits; else says who is in the way.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_read(&self) -> Acquire<Try<SharedGuard>> {
        self.0.attempt(Claim::Read, None)
    }
    /// Waits for at most `patience`; then says who is in the way.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_read_for(&self, patience: Duration) -> Acquire<Try<SharedGuard>> {
        self.0.attempt(Claim::Read, Some(patience))
    }
    /// Waits until it may write, beside nobody.
    ///
    /// # Errors
    /// As [`read`](Self::read). `Unsupported` also for an [`Owner`](crate::Owner) that reads: it would wait for itself.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn write(&self) -> Acquire<Guard> {
        self.0.wait(Claim::Write)
    }
    /// Writes if nobody holds it and nobody waits; else says who is in the way.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_write(&self) -> Acquire<Try<Guard>> {
        self.0.attempt(Claim::Write, None)
    }
    /// Waits for at most `patience`; then says who is in the way.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_write_for(&self, patience: Duration) -> Acquire<Try<Guard>> {
        self.0.attempt(Claim::Write, Some(patience))
    }
    /// Its read side, as part of a [`MultiLock`](crate::MultiLock).
    pub fn reading(&self) -> Member {
        Member::new(self.0.clone(), Claim::Read)
    }
    /// Its write side, as part of a [`MultiLock`](crate::MultiLock).
    pub fn writing(&self) -> Member {
        Member::new(self.0.clone(), Claim::Write)
    }
}
