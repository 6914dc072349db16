//! Five stores in memory as one engine. What falls silent is a majority of them: a minority would be no trouble.
use async_trait::async_trait;
use fencelock_conformance::{Clocks, Connection, Deletions, Family, Fixture, Server, WakeUps};
use fencelock_core::{
    BootClock, Client, Clock, Engine, Moment, Quorum,
    memory::{MemoryEngine, MemoryServer},
};
use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

/// Of five.
pub(crate) struct Five;
impl Family for Five {
    fn name(&self) -> &'static str {
        "quorum"
    }
    fn scopes(&self) -> &'static [&'static str] {
        &["any", "lease"]
    }
    fn shows_grants_alone(&self) -> bool {
        false
    }
    fn start(&self) -> Box<dyn Fixture> {
        Box::new(Store::new())
    }
}

const NODES: usize = 5;
struct Store {
    servers: Vec<Arc<MemoryServer>>,
    nodes: Mutex<Vec<Weak<MemoryEngine>>>,
    silent: Arc<AtomicBool>,
    /// Their clock is an hour ahead of this machine's, so that there can be clocks behind it.
    elsewhere: Vec<Arc<MemoryServer>>,
}
const HOUR: u64 = 3600;
impl Store {
    fn new() -> Self {
        let five = |clock: Arc<dyn Clock>| (0..NODES).map(|_| MemoryServer::new(clock.clone())).collect();
        let (servers, elsewhere) = (five(Arc::new(BootClock)), five(Arc::new(Ahead(HOUR))));
        Self { servers, nodes: Mutex::default(), silent: Arc::default(), elsewhere }
    }
    fn silence(&self, silent: bool) {
        self.silent.store(silent, SeqCst);
        let nodes = self.nodes.lock().unwrap();
        nodes.iter().filter_map(Weak::upgrade).for_each(|node| node.cut(silent));
    }
}
fn quorum(servers: &[Arc<MemoryServer>], clock: &Arc<dyn Clock>, ttl: Duration) -> (Quorum, Vec<Arc<MemoryEngine>>) {
    let node =
        |server: &Arc<MemoryServer>| Arc::new(MemoryEngine::on(server.clone()).clock(clock.clone()).default_ttl(ttl));
    let nodes: Vec<_> = servers.iter().map(node).collect();
    let engines = nodes.iter().map(|node| node.clone() as Arc<dyn Engine>);
    (Quorum::new(engines).unwrap().clock(clock.clone()), nodes)
}
#[async_trait]
impl Fixture for Store {
    async fn engine(&self, ttl: Duration) -> Connection {
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        let (quorum, nodes) = quorum(&self.servers, &clock, ttl);
        nodes.iter().for_each(|node| node.cut(self.silent.load(SeqCst)));
        let mut all = self.nodes.lock().unwrap();
        all.retain(|node| node.strong_count() > 0);
        all.extend(nodes.iter().map(Arc::downgrade));
        let counts = nodes.clone();
        let cut = move |cut| nodes.iter().take(NODES / 2 + 1).for_each(|node| node.cut(cut));
        Connection::new(Arc::new(quorum))
            .cut_by(cut)
            .counted_by(move || counts.iter().map(|node| node.commands()).sum())
    }
    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
    fn wake_ups(&self) -> Option<&dyn WakeUps> {
        Some(self)
    }
    fn deletions(&self) -> Option<&dyn Deletions> {
        Some(self)
    }
    fn clocks(&self) -> Option<&dyn Clocks> {
        Some(self)
    }
    async fn clean(&self) -> Vec<String> {
        let left = self.servers.iter().chain(&self.elsewhere).map(|server| {
            let (holders, waiters) = server.census();
            [(holders, "holders"), (waiters, "waiters")]
        });
        left.flatten().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect()
    }
}
/// They have no process to stop: they fall silent.
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
impl WakeUps for Store {
    async fn lose(&self) {
        self.servers.iter().for_each(|server| server.lose_pushes(1.0, 0));
    }
}
#[async_trait]
impl Deletions for Store {
    async fn delete(&self, _name: &str) {
        self.servers.iter().take(NODES / 2 + 1).for_each(|server| server.lose_data());
    }
}
#[async_trait]
impl Clocks for Store {
    async fn client(&self, ahead: i64, ttl: Duration) -> Client {
        let clock: Arc<dyn Clock> = Arc::new(Ahead(HOUR.saturating_add_signed(ahead)));
        let (quorum, _) = quorum(&self.elsewhere, &clock, ttl);
        // The threads of a keeper sleep by the machine's own clock.
        Client::builder(Arc::new(quorum)).clock(clock).keeper_here().build().unwrap()
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
