//! What the stories need of an engine.
use super::{Worker, eventually, tenth};
use fencelock_core::{Client, Status};
use std::{path::Path, time::Duration};
use tokio::runtime::Runtime;

/// A private store, who works on it, and what it says of a lock. The same stories run on each of them: [`stories`](super::stories).
pub trait Scene: Sized {
    /// As figures name it.
    const ENGINE: &'static str;
    /// In what the workers differ, as figures say it.
    const WORKERS: &'static str;
    /// Of holders that are killed: no stall of a second costs a hold, and who is handed a lock has time to confirm.
    const TTL: Duration;
    /// Of holders that are stopped for longer.
    const BRIEF: Duration;
    /// How much longer than its ttl a dead client's hold may last by its engine's bar.
    const AFTER_TTL: Duration;
    /// How long a waiter that is dead may be in the way of those behind it by its engine's bar.
    const DEAD_WAITER: Duration = Duration::from_millis(100);

    /// A store of its own.
    fn new() -> Self;
    /// The same; where it is of interest, the workers' wall clocks are minutes apart.
    fn with_wrong_clocks() -> Self {
        Self::new()
    }
    /// What the others work by is no error of the shim: of three workers one is ahead, and one behind.
    #[must_use]
    fn proved_apart(self) -> Self {
        let walls: Vec<i64> = (0..3).map(|n| self.start(n, "wall", &[]).hear("").1.parse().unwrap()).collect();
        assert!(walls[0] - walls[2] > 600 && walls[2] - walls[1] > 600, "{walls:?}");
        self
    }
    /// Of so many rounds in full, those of this run: a tenth if it is not in full. Where each takes long they are fewer still.
    fn rounds(n: usize) -> usize {
        tenth(n)
    }
    /// For what the workers write.
    fn folder(&self) -> &Path;
    /// Of the test itself.
    fn runtime(&self) -> &Runtime;
    /// Of the test itself.
    fn client(&self) -> &Client;
    /// The n-th worker, on this store.
    fn start(&self, n: usize, role: &str, words: &[&str]) -> Worker;
    /// How many traces of holders and waiters there are in the whole store.
    fn traces(&self) -> usize;
    /// When the lease of who holds it alone ends, where tokens are the times of their grants by the same clock. Whoever may have
    /// prolonged it is dead or stopped.
    fn lease_end(&self, _name: &str) -> Option<i64> {
        None
    }

    /// It waits, or holds already, until it is told otherwise.
    fn claim(&self, n: usize, name: &str, claim: &str, ttl: Duration) -> Worker {
        let mut worker = self.start(n, "hold", &[name, &ttl.as_millis().to_string(), claim, "0"]);
        worker.hear("waiting");
        worker
    }
    /// The same, of a mutex.
    fn hold(&self, n: usize, name: &str, ttl: Duration) -> Worker {
        self.claim(n, name, "mutex", ttl)
    }
    /// What the store says.
    fn status(&self, name: &str) -> Status {
        self.runtime().block_on(self.client().inspect(name)).unwrap()
    }
    /// Until so many wait for it.
    fn queued(&self, name: &str, n: usize) {
        eventually("queued", Duration::from_secs(30), || self.status(name).waiters.len() == n);
    }
}

/// Where the connections by which workers are told can be broken.
pub trait Cuts: Scene {
    /// What is cut, as figures name it.
    const CUT: &'static str;

    /// Whether it may meet one who has just been granted the lock: he loses it, and the next one has it before he is told.
    const MAY_MEET_A_HOLDER: bool = false;

    /// A store of its own; its workers are where they can be cut off.
    fn to_be_cut() -> Self {
        Self::new()
    }
    /// Breaks all of them; how many there were.
    fn cut(&self) -> usize;
}
