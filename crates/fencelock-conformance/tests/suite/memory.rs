//! The memory engine: the reference for semantics. With leases of its own, and with holds that live with a session.
use async_trait::async_trait;
use fencelock_conformance::{Clocks, Connection, Deletions, Family, Fixture, Server, Sessions as EndSessions, WakeUps};
use fencelock_core::{
    BootClock, Client, Clock, Moment,
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
    /// Its clock is an hour ahead of this machine's, so that there can be clocks behind it.
    elsewhere: Arc<MemoryServer>,
}
const HOUR: u64 = 3600;
impl Store {
    fn new(sessions: bool) -> Self {
        let server = MemoryServer::new(Arc::new(BootClock));
        let elsewhere = MemoryServer::new(Arc::new(Ahead(HOUR)));
        Self { server, sessions, engines: Mutex::default(), silent: Arc::default(), elsewhere }
    }
    fn on(&self, server: &Arc<MemoryServer>, clock: Arc<dyn Clock>, ttl: Duration) -> MemoryEngine {
        let engine = MemoryEngine::on(server.clone()).clock(clock);
        if self.sessions { engine.with_session(ttl) } else { engine.default_ttl(ttl) }
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
        let engine = Arc::new(self.on(&self.server, Arc::new(BootClock), ttl));
        engine.cut(self.silent.load(SeqCst));
        let mut engines = self.engines.lock().unwrap();
        engines.retain(|engine| engine.strong_count() > 0);
        engines.push(Arc::downgrade(&engine));
        let counts = engine.clone();
        Connection::new(engine.clone()).cut_by(move |cut| engine.cut(cut)).counted_by(move || counts.commands())
    }
    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
    fn sessions(&self) -> Option<&dyn EndSessions> {
        self.sessions.then_some(self)
    }
    fn wake_ups(&self) -> Option<&dyn WakeUps> {
        Some(self)
    }
    /// Sessions find out only what they ask for, and a session does not ask for each hold.
    fn deletions(&self) -> Option<&dyn Deletions> {
        (!self.sessions).then_some(self)
    }
    fn clocks(&self) -> Option<&dyn Clocks> {
        Some(self)
    }
    async fn clean(&self) -> Vec<String> {
        let left = [&self.server, &self.elsewhere].map(|server| {
            let (holders, waiters) = server.census();
            [(holders, "holders"), (waiters, "waiters")]
        });
        left.into_iter().flatten().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect()
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
#[async_trait]
impl WakeUps for Store {
    async fn lose(&self) {
        self.server.lose_pushes(1.0, 0);
    }
}
#[async_trait]
impl Deletions for Store {
    async fn delete(&self, _name: &str) {
        self.server.lose_data();
    }
}
#[async_trait]
impl Clocks for Store {
    async fn client(&self, ahead: i64, ttl: Duration) -> Client {
        let clock: Arc<dyn Clock> = Arc::new(Ahead(HOUR.saturating_add_signed(ahead)));
        let engine = self.on(&self.elsewhere, clock.clone(), ttl);
        // The threads of a keeper sleep by the machine's own clock.
        Client::builder(Arc::new(engine)).clock(clock).keeper_here().build().unwrap()
    }
}
/// So many seconds ahead of the machine's clock.
#[derive(Debug)]
struct Ahead(u64);
impl Clock for Ahead {
    fn now(&self) -> Moment {
        BootClock.now() + Duration::from_secs(self.0)
    }
}
