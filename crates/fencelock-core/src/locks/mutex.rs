//! One holder at a time.
use crate::{
    attempt::{Acquire, Try},
    client::Core,
    guard::Guard,
    types::{Claim, Name, Request},
};
use std::{sync::Arc, time::Duration};

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
pub struct Mutex {
    core: Arc<Core>,
    /// What is no name is kept as it was given: the first await says what is wrong with it.
    name: Result<Name, String>,
    ttl: Duration,
    max_hold: Option<Duration>,
    note: Arc<str>,
}
impl Mutex {
    pub(crate) fn new(core: Arc<Core>, name: &str) -> Self {
        let ttl = core.engine().info().default_ttl;
        let name = Name::new(name).map_err(|_| name.to_owned());
        Self { core, name, ttl, max_hold: None, note: "".into() }
    }
    /// How long a hold is good without a renewal; it is renewed for as long as the guard lives. Short: a hung holder is
    /// replaced sooner. Long: longer pauses are survived.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }
    /// The longest time it may be held. After it the loss is told and renewals stop; the lock is free when the guard is
    /// dropped, or when its lease has run out: never while the hung holder may still write (SAFETY G5).
    #[must_use]
    pub fn max_hold(mut self, d: Duration) -> Self {
        self.max_hold = Some(d);
        self
    }
    /// What those who wait, and operators, read about this holder. No secrets.
    #[must_use]
    pub fn note(mut self, note: impl Into<Arc<str>>) -> Self {
        self.note = note.into();
        self
    }
    /// Waits until it is held.
    ///
    /// # Errors
    /// `InvalidName`, `InvalidConfig`: the first await says what is wrong with the handle. `KindMismatch`: the name is
    /// another kind of lock. `Unreachable`, `Ambiguous`, `PermissionDenied`: the engine. `Closed`: the client was shut down.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn lock(&self) -> Acquire<Guard> {
        Acquire::new(self.core.clone(), self.request(true), None)
    }
    /// Takes it if it is free and nobody waits for it; else says who is in the way.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_lock(&self) -> Acquire<Try<Guard>> {
        Acquire::new(self.core.clone(), self.request(false), None)
    }
    /// Waits for at most `patience`; then says who is in the way.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping it leaves nothing behind.
    pub fn try_lock_for(&self, patience: Duration) -> Acquire<Try<Guard>> {
        Acquire::new(self.core.clone(), self.request(true), Some(patience))
    }
    fn request(&self, wait: bool) -> crate::Result<Request> {
        let name = self.name.clone().or_else(Name::new)?;
        let floor = self.core.floors.of(&name);
        let (claim, ttl, max_hold, note) = (Claim::Mutex, self.ttl, self.max_hold, self.note.clone());
        let wish = crate::types::Wish { name, claim, ttl, max_hold, wait, note };
        Ok(Request::new(wish, self.core.minter.mint(), floor))
    }
}
