//! What the suite must know about an engine that it proves.
use async_trait::async_trait;
use fencelock_core::{Chaos, Engine};
use std::{fmt, sync::Arc, time::Duration};

/// An engine under test, in one of its topologies, layouts or strategies.
#[async_trait]
pub trait Family: Send + Sync {
    /// The first word of its trials' names.
    fn name(&self) -> &'static str;
    /// Which cases apply: the scopes of `cases.txt`. `any`, and what the engine has of `lease`, `session`, `queue`; its own
    /// name where there are cases for it alone; `core` where the cases that need no engine are to run.
    fn scopes(&self) -> &'static [&'static str];
    /// A store with nothing in it. It ends when it is dropped.
    fn start(&self) -> Box<dyn Fixture>;
    /// A ttl as short as trials should wait for, and as long as a busy machine needs to renew in time.
    fn short_ttl(&self) -> Duration {
        Duration::from_secs(2)
    }
    /// How long a first waiter who is alive may leave a free lock alone before the next may pass him; `None`: for ever. A busy
    /// machine makes him late, and then a trial of the order in the queue proves nothing.
    fn patience(&self) -> Option<Duration> {
        None
    }
    /// In a worker process: an engine on the store of [`Fixture::address`].
    async fn reach(&self, address: &str, ttl: Duration) -> Arc<dyn Engine> {
        let _ = ttl;
        panic!("{}: no process can reach {address:?}", self.name())
    }
}

/// A store that has been started: trials share it, each under a prefix of its own.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// A fresh engine: another client of the same store. `ttl` is that of holds which do not say their own, and of its session
    /// where it has one.
    async fn engine(&self, ttl: Duration) -> Connection;
    /// What leads a worker process to this store; `None`: it lives in this process alone.
    fn address(&self) -> Option<String> {
        None
    }
    /// The server, where there is one to be stopped. A trial that does so has a store of its own.
    fn server(&self) -> Option<&dyn Server> {
        None
    }
    /// The operator's hand on sessions, where it reaches them. A trial that uses it has a store of its own.
    fn sessions(&self) -> Option<&dyn Sessions> {
        None
    }
    /// What is left over in the store when all clients are gone: holders, waiters, sessions, files. Asked at the end, until it
    /// says nothing, for at most ten seconds.
    async fn clean(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A server that can be stopped.
#[async_trait]
pub trait Server: Send + Sync {
    /// Nothing listens any more.
    async fn stop(&self);
    /// It listens again.
    async fn start(&self);
    /// It takes what is sent, and answers nothing, until `false`.
    async fn pause(&self, paused: bool);
}

/// Sessions that can be ended from outside.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Ends all that are open now, as an operator does: what they hold and wait for is over.
    async fn end(&self);
}

/// Cuts one client off: with `true` nothing that it sends arrives and nothing is answered, until `false`.
pub type Cut = Arc<dyn Fn(bool) + Send + Sync>;

/// A fresh engine, and how to cut it off.
#[derive(Clone)]
#[non_exhaustive]
pub struct Connection {
    /// For one client.
    pub engine: Arc<dyn Engine>,
    /// How it is cut off, where that can be done.
    pub cut: Option<Cut>,
}
impl Connection {
    /// One that cannot be cut off.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine, cut: None }
    }
    /// One that can, because its calls go through [`Chaos`]. For engines that do nothing but what they are called for: a session's
    /// own heartbeats do not go that way.
    pub fn cuttable(engine: Arc<dyn Engine>) -> Self {
        let chaos = Arc::new(Chaos::new(engine));
        Self::new(chaos.clone()).cut_by(move |cut| chaos.cut(cut))
    }
    /// One that can, by its own means.
    #[must_use]
    pub fn cut_by(mut self, cut: impl Fn(bool) + Send + Sync + 'static) -> Self {
        self.cut = Some(Arc::new(cut));
        self
    }
}
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}
