//! Stopping a client as SIGSTOP, a debugger or a paused virtual machine stops its process: for simulations.
use fastrand::Rng;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    order: Option<Rng>,
}
impl Gate {
    /// Who is ready now and then lets the others go first, as the seed says: an executor runs what is ready in the order in which
    /// it was woken, and code must not rely on that.
    #[must_use]
    pub fn shuffled(self, seed: u64) -> Self {
        self.state().order = Some(Rng::with_seed(seed));
        self
    }
    /// Stops what goes through it.
    pub fn shut(&self) {
        self.state().shut = true;
    }
    /// Lets it go on.
    pub fn open(&self) {
        let mut state = self.state();
        state.shut = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
    /// If not it is woken when its time has come.
    fn may_go(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        if state.shut {
            state.waiting.push(waker.clone());
            return false;
        }
        let waits = state.order.as_mut().is_some_and(|order| order.u8(0..4) == 0);
        drop(state);
        if waits {
            waker.wake_by_ref();
        }
        !waits
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// `future`, polled only while the gate is open.
    pub async fn through<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| if self.may_go(cx.waker()) { future.as_mut().poll(cx) } else { Poll::Pending }).await
    }
}

/// Through the gate, where there is one.
pub(crate) async fn through<F: Future>(gate: Option<Gate>, future: F) -> F::Output {
    match gate {
        None => future.await,
        Some(gate) => gate.through(future).await,
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: an order that lets nobody wait.
    use super::*;

    /// The order in which ten that are ready at once come through.
    async fn order(seed: Option<u64>) -> Vec<u8> {
        let gate = seed.map_or_else(Gate::default, |seed| Gate::default().shuffled(seed));
        let passed = Arc::new(Mutex::new(Vec::new()));
        let pass = |n: u8| {
            let passed = passed.clone();
            tokio::spawn(gate.clone().through(async move { passed.lock().unwrap().push(n) }))
        };
        for one in (0..10).map(pass).collect::<Vec<_>>() {
            one.await.unwrap();
        }
        let order = passed.lock().unwrap();
        order.clone()
    }
    #[tokio::test]
    async fn what_is_ready_runs_in_the_order_of_the_seed() {
        let woken: Vec<u8> = (0..10).collect();
        assert_eq!(order(None).await, woken);
        let mut orders = std::collections::BTreeSet::new();
        for seed in 0..8 {
            let first = order(Some(seed)).await;
            assert_eq!(first, order(Some(seed)).await, "seed {seed} again");
            orders.insert(first);
        }
        assert!(orders.len() > 4, "{orders:?}");
    }
}
