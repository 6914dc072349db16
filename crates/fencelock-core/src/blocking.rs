//! The same without `async`: every future has [`wait`](Wait::wait).
//!
//! ```
//! use fencelock_core::{Client, blocking::Wait, memory::MemoryEngine};
//! # use std::{sync::Arc, time::Duration};
//!
//! # fn main() -> Result<(), fencelock_core::Error> {
//! let client = Client::builder(Arc::new(MemoryEngine::new())).build()?;   // or fencelock::connect(url).wait()?
//! let guard = client.mutex("orders/42").lock().wait()?;
//! for slice in 0..3 {
//!     guard.check()?;      // between the slices of the work: it asks the clock, and nobody else
//! }
//! guard.release().wait()?;
//! client.shutdown(Duration::from_secs(1)).wait()?;
//! # Ok(()) }
//! ```
use std::{
    cell::Cell,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::*},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};
use tokio::runtime::Handle;

thread_local! {
    /// This thread stands still until its future is ready.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// For threads that wait: [`wait`](Self::wait) is there for every future, so there is one API, not two.
pub trait Wait: Future + Sized {
    /// Waits on this thread until it is ready.
    ///
    /// It needs no runtime, and uses none: the client's own thread does what a runtime would do. So it may be called inside of one, also on
    /// its only worker. But that worker's other tasks stand still meanwhile: a lock that one of them has, or waits for, never
    /// comes. There `.await` it, or go to a blocking thread.
    ///
    /// What needs its runtime needs it here, too: a future that was polled there before, and those of `fencelock::sql` over drivers of tokio's.
    /// `lost()`, `suspect()` and `renewed()` do not end with a release, so nobody who may release should wait for the thread that waits for them.
    ///
    /// # Panics
    /// Where the future does.
    fn wait(self) -> Self::Output {
        block_on(self)
    }
}
impl<F: Future> Wait for F {}

/// [`Wait::wait`], as a function.
///
/// ```
/// assert_eq!(fencelock_core::blocking::block_on(async { 42 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    /// What is woken is remembered here: the thread's own mark is taken by whatever else parks it meanwhile, such as a wait within this one.
    struct Unpark(Thread, AtomicBool);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Release);
            self.0.unpark();
        }
    }
    /// As it was before: also when the future panics.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            WAITS.set(self.0);
        }
    }
    let unpark = Arc::new(Unpark(thread::current(), AtomicBool::new(false)));
    let waker = Waker::from(unpark.clone());
    let _before = Before(WAITS.replace(true));
    // A task of tokio's has a budget for each of its polls, and what it is out of wakes it when it yields: it does not, here.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                while !unpark.1.swap(false, Acquire) {
                    thread::park();
                }
            }
        }
    }
}

/// The runtime that may carry a call of this caller. A thread that waits has none: its runtime could have no other thread, and would never
/// look at its timers and sockets.
#[doc(hidden)]
pub fn runtime() -> Option<Handle> {
    if WAITS.get() { None } else { Handle::try_current().ok() }
}
/// This thread stands still until something is ready.
pub(crate) fn waits() -> bool {
    WAITS.get()
}
