//! The same without `async`: every future of this library has [`wait`](Wait::wait).
//!
//! ```
//! use fencelock_core::{Client, blocking::Wait, memory::MemoryEngine};
//! # use std::{sync::Arc, thread, time::Duration};
//!
//! # fn main() -> Result<(), fencelock_core::Error> {
//! let client = Client::builder(Arc::new(MemoryEngine::new())).build()?;   // or fencelock::connect(url).wait()?
//! let guard = client.mutex("orders/42").lock().wait()?;
//! // Who works in slices asks between them; another thread may wait for the loss meanwhile.
//! for slice in 0..3 {
//!     guard.check()?;
//! }
//! # let client_of_another = client.clone();
//! let lost = guard.lost();
//! let watch = thread::spawn(move || println!("lost: {:?}", lost.wait()));
//! # client_of_another.force_release("orders/42", guard.token()).wait()?;
//! # watch.join().unwrap();
//! # let guard = client.mutex("orders/42").lock().wait()?;
//! guard.release().wait()?;
//! client.shutdown(Duration::from_secs(1)).wait()?;
//! # Ok(()) }
//! ```
use std::{
    cell::Cell,
    pin::pin,
    sync::Arc,
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
    /// It needs no runtime, and uses none: the client's own thread does what a runtime would do, so it cannot wait for itself when it
    /// is called from a task, not even on the only worker. It keeps that worker from all its other tasks, though: there
    /// `.await` it, or go to a blocking thread. Futures that are not of this library still need
    /// their runtime, and so does one that was polled there before.
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
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
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
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let _before = Before(WAITS.replace(true));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// The runtime that may carry a call of this caller. A thread that waits has none: its runtime could have no other thread, and would never
/// look at its timers and sockets.
#[doc(hidden)]
pub fn runtime() -> Option<Handle> {
    if WAITS.get() { None } else { Handle::try_current().ok() }
}
/// Whose thread this is, its tasks stand still.
pub(crate) fn waits_on_a_runtime() -> bool {
    WAITS.get() && Handle::try_current().is_ok()
}
