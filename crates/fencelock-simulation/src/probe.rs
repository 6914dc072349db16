//! What no history of one thread shows, or one in a million, is asked directly.
use crate::line::Line;
use async_trait::async_trait;
use fencelock_core::{
    Client, Clock, Engine, EngineInfo, Grant, Listing, Name, Outcome, Page, Released, Renewed, Request, Result, Status,
    Token, TokioClock, memory::MemoryEngine,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Keeps the request of each attempt.
#[derive(Debug)]
struct Witness(Line, Mutex<Option<Request>>);
#[async_trait]
impl Engine for Witness {
    fn info(&self) -> &EngineInfo {
        self.0.info()
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.clone());
        self.0.acquire(request).await
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        self.0.withdraw(request).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        self.0.renew(grants).await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        self.0.release(grant).await
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        self.0.inspect(name).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.0.list(prefix, page).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        self.0.force_release(name, token).await
    }
}

/// After a stop no window opens (SAFETY A2, A3): an engine that is just about to send learns that it may not.
pub fn stop_is_ordered() -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::start());
        let line = Line::new(Arc::new(MemoryEngine::new().clock(clock.clone())), false, false);
        line.cut();
        let witness = Arc::new(Witness(line, Mutex::default()));
        let client = Client::builder(witness.clone()).clock(clock.clone()).keeper_here().build();
        let client = client.unwrap_or_else(|error| panic!("{error}"));
        let _ = tokio::time::timeout(Duration::from_millis(1), client.mutex("x").lock()).await;
        let request = witness.1.lock().unwrap_or_else(PoisonError::into_inner).take();
        request
            .is_some_and(|request| request.is_stopped() && request.open(clock.now(), Duration::from_secs(1)).is_none())
    })
}

/// A heartbeat that finds no place makes none (SAFETY A2): who was withdrawn begins anew, under a hold id of its own. In a
/// history it would take a message that is slower than a second and than every withdrawal that follows it.
pub fn heartbeat_creates_nothing() -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::start());
        let line = Line::new(Arc::new(MemoryEngine::new().clock(clock.clone())), false, false);
        let witness = Arc::new(Witness(line, Mutex::default()));
        let client = Client::builder(witness.clone()).clock(clock.clone()).keeper_here().build();
        let client = client.unwrap_or_else(|error| panic!("{error}"));
        let _holder = client.mutex("x").ttl(Duration::from_secs(60)).lock().await;
        let mut wait = client.mutex("x").lock();
        let _ = tokio::time::timeout(Duration::from_millis(10), &mut wait).await;
        let request = witness.1.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(request) = request else { return false };
        if witness.withdraw(&request).await.is_err() {
            return false;
        }
        let _ = tokio::time::timeout(Duration::from_secs(3), &mut wait).await;
        let waiters = client.inspect("x").await.map(|status| status.waiters).unwrap_or_default();
        waiters.len() == 1 && waiters.iter().all(|waiter| waiter.hold != request.hold())
    })
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: the mutants `StopNotOrdered` and `HeartbeatThatCreates`.
    #[test]
    fn a_heartbeat_creates_nothing() {
        assert!(super::heartbeat_creates_nothing());
    }
    #[test]
    fn no_window_opens_after_a_stop() {
        assert!(super::stop_is_ordered());
    }
}
