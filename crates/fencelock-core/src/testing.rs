//! For tests of your own code: locks in memory, and everything that can happen to them, in milliseconds.
use crate::{
    chaos::{Chaos, Operation},
    client::Client,
    clock::{Clock, TokioClock},
    error::Result,
    guard::Guard,
    memory::{MemoryEngine, MemoryServer},
    types::Kind,
};
use std::{fmt, sync::Arc, time::Duration};

/// A client of a store in memory, and what can be done to both. The clock is tokio's: under
/// `#[tokio::test(start_paused = true)]` an hour passes in no time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), fencelock_core::Error> {
/// use fencelock_core::{LossReason, Operation, testing};
/// use std::time::Duration;
///
/// let (client, control) = testing::memory();
///
/// // Somebody takes the lock away: the holder is told at once, and his token is the older one.
/// let guard = client.mutex("orders/42").lock().await?;
/// let thief = control.take_over("orders/42").await?;
/// assert_eq!(guard.lost().await, LossReason::TakenOver);
/// assert!(guard.check().is_err() && thief.token() > guard.token());
/// drop((guard, thief));
///
/// // The store cannot be reached: the loss is told before anybody else can get the lock.
/// let guard = client.mutex("orders/42").ttl(Duration::from_secs(10)).lock().await?;
/// control.cut();
/// assert_eq!(guard.lost().await, LossReason::Unreachable);
/// control.restore();
/// drop(guard);
///
/// // A reply is lost: the call is repeated, and has one effect.
/// let guard = client.mutex("orders/42").lock().await?;
/// control.lose_reply(Operation::Release);
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub fn memory() -> (Client, Control) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::start());
    let server = MemoryServer::new(clock.clone());
    let chaos = Arc::new(Chaos::new(Arc::new(MemoryEngine::on(server.clone()))));
    let client = build(chaos.clone(), &clock);
    let other = build(Arc::new(MemoryEngine::on(server.clone())), &clock);
    (client, Control { server, chaos, clock, other })
}
fn build(engine: Arc<dyn crate::Engine>, clock: &Arc<dyn Clock>) -> Client {
    let builder = Client::builder(engine).clock(clock.clone()).keeper_here();
    // Without threads and timers of its own there is nothing that it could lack but random numbers.
    builder.build().unwrap_or_else(|e| panic!("{e}"))
}

/// What can be done to a client of [`memory`] and its store.
pub struct Control {
    server: Arc<MemoryServer>,
    chaos: Arc<Chaos>,
    clock: Arc<dyn Clock>,
    other: Client,
}
impl Control {
    /// Another client of the same store, which no trouble of this control touches.
    pub fn another(&self) -> Client {
        build(Arc::new(MemoryEngine::on(self.server.clone())), &self.clock)
    }
    /// Breaks every hold of this name, and takes the mutex, or the write side of the read-write lock, for somebody else.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// If dropped the lock may be free.
    pub async fn take_over(&self, name: &str) -> Result<Guard> {
        // In the queue first: whoever else waits is broken in turn, until it is this one's.
        let mut wait = match self.other.inspect(name).await?.kind {
            Some(Kind::RwLock) => self.other.rw_lock(name).note("taken over").write(),
            _ => self.other.mutex(name).note("taken over").lock(),
        };
        loop {
            if let Ok(guard) = tokio::time::timeout(Duration::from_millis(1), &mut wait).await {
                return guard;
            }
            for holder in self.other.inspect(name).await?.holders {
                if &*holder.note != "taken over" {
                    self.other.force_release(name, holder.token).await?;
                }
            }
        }
    }
    /// From now on nothing of the client arrives, and nothing is answered.
    pub fn cut(&self) {
        self.chaos.cut(true);
    }
    /// Ends [`cut`](Self::cut).
    pub fn restore(&self) {
        self.chaos.cut(false);
    }
    /// The client's next call of this sort has its effect, and its reply is lost.
    pub fn lose_reply(&self, of: Operation) {
        self.chaos.lose_reply(of);
    }
    /// The store forgets everything, as one without persistence does when it restarts.
    pub fn lose_data(&self) {
        self.server.lose_data();
    }
    /// Lets so much time pass: in no time, when tokio's is paused.
    pub async fn advance(&self, d: Duration) {
        tokio::time::sleep(d).await;
    }
    /// How many hold and how many wait, over all names.
    pub fn census(&self) -> (usize, usize) {
        self.server.census()
    }
}
impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&self.chaos).finish()
    }
}
