//! The memory engine: the reference for semantics. With leases of its own, and with holds that live with a session.
use async_trait::async_trait;
use fencelock_conformance::{Connection, Family, Fixture, Server, Sessions as EndSessions};
use fencelock_core::{
    BootClock,
    memory::{MemoryEngine, MemoryServer},
};
use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

/// Leases of their own. The cases that need no engine run here.
pub(crate) struct Leases;
impl Family for Leases {
    fn name(&self) -> &'static str {
        "memory"
    }
    fn scopes(&self) -> &'static [&'static str] {
        &["any", "core", "lease", "queue"]
    }
    fn start(&self) -> Box<dyn Fixture> {
        Box::new(Store::new(false))
    }
}

/// Holds that live with a session.
pub(crate) struct Sessions;
impl Family for Sessions {
    fn name(&self) -> &'static str {
        "memory-session"
    }
    fn scopes(&self) -> &'static [&'static str] {
        &["any", "session", "queue"]
    }
    fn start(&self) -> Box<dyn Fixture> {
        Box::new(Store::new(true))
    }
}

struct Store {
    server: Arc<MemoryServer>,
    sessions: bool,
    engines: Mutex<Vec<Weak<MemoryEngine>>>,
    silent: Arc<AtomicBool>,
}
impl Store {
    fn new(sessions: bool) -> Self {
        let server = MemoryServer::new(Arc::new(BootClock));
        Self { server, sessions, engines: Mutex::default(), silent: Arc::default() }
    }
    fn silence(&self, silent: bool) {
        self.silent.store(silent, SeqCst);
        let engines = self.engines.lock().unwrap();
        engines.iter().filter_map(Weak::upgrade).for_each(|engine| engine.cut(silent));
    }
}
#[async_trait]
impl Fixture for Store {
    async fn engine(&self, ttl: Duration) -> Connection {
        let engine = MemoryEngine::on(self.server.clone());
        let engine = Arc::new(if self.sessions { engine.with_session(ttl) } else { engine.default_ttl(ttl) });
        engine.cut(self.silent.load(SeqCst));
        let mut engines = self.engines.lock().unwrap();
        engines.retain(|engine| engine.strong_count() > 0);
        engines.push(Arc::downgrade(&engine));
        Connection::new(engine.clone()).cut_by(move |cut| engine.cut(cut))
    }
    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
    fn sessions(&self) -> Option<&dyn EndSessions> {
        self.sessions.then_some(self)
    }
    async fn clean(&self) -> Vec<String> {
        let (holders, waiters) = self.server.census();
        let left = [(holders, "holders"), (waiters, "waiters")];
        left.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect()
    }
}
/// It has no process to stop: it falls silent.
#[async_trait]
impl Server for Store {
    async fn stop(&self) {
        self.silence(true);
    }
    async fn start(&self) {
        self.silence(false);
    }
    async fn pause(&self, paused: bool) {
        self.silence(paused);
    }
}
#[async_trait]
impl EndSessions for Store {
    async fn end(&self) {
        self.server.end_sessions();
    }
}
