//! What a holder beside others has in hand.
use crate::{error::Result, guard::Held, ticket::Ticket};
use std::ops::Deref;

/// A hold beside others: a reader's, or some permits. It has no token to fence with, for a number does not order those who
/// hold at the same time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::{sync::Arc, time::Duration};
/// # use fencelock_core::{Client, memory::MemoryEngine};
/// # let client = Client::builder(Arc::new(MemoryEngine::new())).build()?;
/// let one = client.rw_lock("config").read().await?;
/// let other = client.rw_lock("config").read().await?;
/// assert!(one.is_valid() && other.is_valid());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "if unused the lock is released at once"]
pub struct SharedGuard(Held);
impl SharedGuard {
    pub(crate) fn new(held: Held) -> Self {
        Self(held.hand_out())
    }
    /// See [`Held::release`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// If dropped the keeper goes on with it.
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }
    /// See [`Held::into_ticket`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// If dropped the hold is released.
    pub async fn into_ticket(self) -> Result<Ticket> {
        self.0.into_ticket().await
    }
}
impl Deref for SharedGuard {
    type Target = Held;
    fn deref(&self) -> &Held {
        &self.0
    }
}
