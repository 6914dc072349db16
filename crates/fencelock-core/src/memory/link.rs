//! What lies between a client and the store: slow, and it loses things. A command that was sent is carried on when its caller
//! is gone, as by a network.
use fastrand::Rng;
use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::mpsc,
    time::{Instant, sleep_until},
};

/// A link of two connections. Each keeps its order in both directions; between them there is none, so a command may overtake
/// one that was sent before it on the other connection.
#[derive(Debug)]
pub struct Link {
    runtime: Handle,
    max_delay: Duration,
    loss: f64,
    seed: u64,
}
impl Link {
    /// Each message takes up to `max_delay`, carried by `runtime`.
    pub fn new(runtime: Handle, max_delay: Duration) -> Self {
        Self { runtime, max_delay, loss: 0.0, seed: fastrand::u64(..) }
    }
    /// This part of the replies is lost after the command had its effect.
    #[must_use]
    pub fn lose_replies(mut self, part: f64) -> Self {
        self.loss = part;
        self
    }
    /// Delays, losses and the choice of a connection follow from this number.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
    pub(super) fn open(self) -> Wires {
        let wire = || Wire::open(&self.runtime);
        let both = [wire(), wire()];
        Wires { both, max_delay: self.max_delay, loss: self.loss, rng: Mutex::new(Rng::with_seed(self.seed)) }
    }
}

type Parcel = (Instant, Box<dyn FnOnce() + Send>);

/// One direction: parcels arrive in the order they were sent, each at its time or when the one before has arrived.
struct Lane(mpsc::UnboundedSender<Parcel>);
impl Lane {
    fn open(runtime: &Handle) -> Self {
        let (tx, mut rx) = mpsc::unbounded_channel::<Parcel>();
        runtime.spawn(async move {
            while let Some((arrival, deliver)) = rx.recv().await {
                sleep_until(arrival).await;
                deliver();
            }
        });
        Self(tx)
    }
    fn send(&self, after: Duration, deliver: impl FnOnce() + Send + 'static) {
        let _ = self.0.send((Instant::now() + after, Box::new(deliver)));
    }
}
struct Wire {
    there: Lane,
    back: std::sync::Arc<Lane>,
}
impl Wire {
    fn open(runtime: &Handle) -> Self {
        Self { there: Lane::open(runtime), back: std::sync::Arc::new(Lane::open(runtime)) }
    }
}

pub(super) struct Wires {
    both: [Wire; 2],
    max_delay: Duration,
    loss: f64,
    rng: Mutex<Rng>,
}
impl Wires {
    /// Sends a command on one of the two connections. `reply` is called with the answer, or never.
    pub(super) fn send<T: Send + 'static>(
        &self,
        command: impl FnOnce() -> T + Send + 'static,
        reply: impl FnOnce(T) + Send + 'static,
    ) {
        let (wire, there, back, lost) = {
            let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
            let mut delay = || self.max_delay.mul_f64(rng.f64());
            let (there, back) = (delay(), delay());
            (&self.both[usize::from(rng.bool())], there, back, rng.f64() < self.loss)
        };
        let home = wire.back.clone();
        wire.there.send(there, move || {
            let answer = command();
            if !lost {
                home.send(back, move || reply(answer));
            }
        });
    }
}
impl fmt::Debug for Wires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wires(up to {:?}, {} lost)", self.max_delay, self.loss)
    }
}
