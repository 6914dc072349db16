//! As many holders as there are permits.
use super::{Member, Options, options::options};
use crate::{
    attempt::{Acquire, Try},
    engine::lacks,
    error::{Error, ErrorKind, Result},
    observe,
    shared_guard::SharedGuard,
    types::{Claim, Missing},
};
use std::time::Duration;

/// A semaphore of a name: it limits how many hold at once, not how often (with `at_least(1 s)` it does that too: so many starts
/// a second). First come, first served: a small request does not pass a large one that waits.
///
/// Its size is stored with the first use; who names another one is told (SAFETY K4), until [`resize`](Self::resize) has changed
/// it for all.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::{sync::Arc, time::Duration};
/// # let engine = fencelock_core::memory::MemoryEngine::new();
/// # let client = fencelock_core::Client::builder(Arc::new(engine)).build()?;
/// let partner = client.semaphore("partner-api", 3);
/// let two = partner.acquire(2).await?;
/// let one = partner.acquire(1).await?;
/// assert!(partner.try_acquire(1).await?.is_err());
///
/// partner.resize(3, 5).await?;
/// assert!(partner.try_acquire(1).await.is_err());      // this handle still says 3
/// let more = client.semaphore("partner-api", 5).acquire(2).await?;
/// # drop((one, two, more));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore(Options, u32);
impl Semaphore {
    pub(crate) fn new(options: Options, permits: u32) -> Self {
        Self(options, permits)
    }
    options!();
    options!(note);

    fn claim(&self, take: u32) -> Claim {
        Claim::Permits { take, of: self.1 }
    }
    /// Waits until it has `n` permits.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); `CapacityMismatch`: it has another size; `InvalidConfig`: no permits, or more
    /// than there are; `Unsupported` where the engine has no semaphores.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn acquire(&self, n: u32) -> Acquire<SharedGuard> {
        self.0.wait(self.claim(n))
    }
    /// Takes `n` permits if they are free and nobody waits; else says who is in the way.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_acquire(&self, n: u32) -> Acquire<Try<SharedGuard>> {
        self.0.attempt(self.claim(n), None)
    }
    /// Waits for at most `patience`; then says who is in the way.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_acquire_for(&self, n: u32, patience: Duration) -> Acquire<Try<SharedGuard>> {
        self.0.attempt(self.claim(n), Some(patience))
    }
    /// Some of its permits, as part of a [`MultiLock`](crate::MultiLock).
    pub fn permits(&self, n: u32) -> Member {
        Member::new(self.0.clone(), self.claim(n))
    }
    /// Changes the stored size for everybody, if it is `from`: one step of a fleet that goes from 10 to 20. It may be repeated.
    /// Nothing is taken from those who hold; those who wait for more than there is then are told.
    ///
    /// # Errors
    /// `CapacityMismatch`: it is neither `from` nor `to`. `KindMismatch`, `InvalidName`, `InvalidConfig` (no permits),
    /// `Unsupported`; or what the engine says.
    ///
    /// # Cancel safety
    /// If dropped it may or may not have been done.
    pub async fn resize(&self, from: u32, to: u32) -> Result<()> {
        let core = &self.0.core;
        core.ready("resize")?;
        let name = self.0.name()?;
        if from == 0 || to == 0 {
            let none = Error::new(ErrorKind::InvalidConfig, "resize", "a semaphore has at least one permit");
            return Err(none.with("name", name).with("from", from).with("to", to));
        }
        let keeper = core.keeper().clone();
        let engine = &*keeper.engine;
        if !engine.info().capabilities.permits {
            let unable = lacks(engine, Missing::Permits, "resize", "semaphores");
            return Err(unable.with("name", name).hint("use another engine"));
        }
        let resize = async move { observe::timed(&keeper, "resize", keeper.engine.resize(&name, from, to)).await };
        core.on_runtime(resize).await
    }
}
