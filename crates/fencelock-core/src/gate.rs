//! Stopping a client as SIGSTOP, a debugger or a paused virtual machine stops its process: for simulations.
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker},
};

/// While it is shut nothing runs that goes through it. The clock goes on.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// use fencelock_core::Gate;
/// use std::time::Duration;
///
/// let gate = Gate::default();
/// let work = tokio::spawn(gate.clone().through(async { 42 }));
/// gate.shut();
/// tokio::time::sleep(Duration::from_secs(60)).await;
/// assert!(!work.is_finished());
/// gate.open();
/// assert_eq!(work.await.unwrap(), 42);
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<State>>);
#[derive(Debug, Default)]
struct State {
    shut: bool,
    waiting: Vec<Waker>,
}
impl Gate {
    /// Stops what goes through it.
    pub fn shut(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).shut = true;
    }
    /// Lets it go on.
    pub fn open(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.shut = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
    fn is_open(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.shut {
            state.waiting.push(waker.clone());
        }
        !state.shut
    }
    /// `future`, polled only while the gate is open.
    pub async fn through<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| if self.is_open(cx.waker()) { future.as_mut().poll(cx) } else { Poll::Pending }).await
    }
}

/// Through the gate, where there is one.
pub(crate) async fn through<F: Future>(gate: Option<Gate>, future: F) -> F::Output {
    match gate {
        None => future.await,
        Some(gate) => gate.through(future).await,
    }
}
