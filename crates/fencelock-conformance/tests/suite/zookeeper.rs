//! ZooKeeper: one server, several processes, Curator's layout and kazoo's. Holds live with the session of their client.
use crate::ways::Ways;
use async_trait::async_trait;
use fencelock_conformance::{
    Connection as Link, Deletions, Family, Fixture, Namespaces, Server, Sessions,
    proxy::{Proxy, bytes},
};
use fencelock_core::{Client, Engine, Page};
use fencelock_testkit::{ZooKeeper, ZooKeeperOptions};
use fencelock_zookeeper::{Config, Dialect, ZooKeeperEngine};
use std::{sync::Arc, time::Duration};

/// In this layout.
pub(crate) struct One(pub(crate) Dialect);
#[async_trait]
impl Family for One {
    fn name(&self) -> &'static str {
        match self.0 {
            Dialect::Curator => "zookeeper",
            Dialect::Kazoo => "zookeeper-kazoo",
        }
    }
    fn scopes(&self) -> &'static [&'static str] {
        &["any", "session", "queue"]
    }
    fn tells_last_token(&self) -> bool {
        false
    }
    fn tells_since_the_grant(&self) -> bool {
        false
    }
    fn tells_what_is_left(&self) -> bool {
        false
    }
    fn takes_any_number(&self) -> bool {
        false
    }
    fn start(&self) -> Box<dyn Fixture> {
        // Sessions as short as trials ask for, and as long.
        let options =
            ZooKeeperOptions { tick: Duration::from_millis(200), max_session: DAY, ..ZooKeeperOptions::default() };
        Box::new(Store(ZooKeeper::with(options), self.0, Ways::default()))
    }
    async fn reach(&self, address: &str, ttl: Duration) -> Arc<dyn Engine> {
        open(address, self.0, SPACE, ttl).await
    }
}
const DAY: Duration = Duration::from_secs(86_400);
/// The trials run in one, so that a node that misses it is seen.
const SPACE: &str = "suite";
async fn open(address: &str, dialect: Dialect, namespace: &str, ttl: Duration) -> Arc<dyn Engine> {
    let mut config = Config::from_url(address).unwrap();
    config.dialect = dialect;
    (config.namespace, config.ttl) = (namespace.to_owned(), ttl);
    Arc::new(ZooKeeperEngine::connect(config).await.unwrap())
}

/// And the ways of its clients.
struct Store(ZooKeeper, Dialect, Ways);
impl Store {
    /// A client with a way of its own to the server.
    async fn client(&self, namespace: &str, ttl: Duration) -> Link {
        let proxy = Proxy::start(([127, 0, 0, 1], self.0.client_port(0)).into(), bytes);
        let engine = open(&format!("zookeeper://{}", proxy.address()), self.1, namespace, ttl).await;
        self.2.link(engine, proxy)
    }
}
#[async_trait]
impl Fixture for Store {
    async fn engine(&self, ttl: Duration) -> Link {
        self.client(SPACE, ttl).await
    }
    fn address(&self) -> Option<String> {
        Some(self.0.url())
    }
    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
    fn deletions(&self) -> Option<&dyn Deletions> {
        Some(self)
    }
    fn namespaces(&self) -> Option<&dyn Namespaces> {
        Some(self)
    }
    async fn clean(&self) -> Vec<String> {
        let client = Client::builder(open(&self.0.url(), self.1, SPACE, Duration::from_secs(1)).await).build().unwrap();
        let listing = client.list("", &Page::default()).await.unwrap();
        let mut left: Vec<_> = listing.items.iter().map(|status| format!("{status:?}")).collect();
        // Nodes that nobody uses go by themselves, a moment later; cells are kept.
        let nodes = self.0.nodes("/");
        let kept = |node: &&String| {
            let own = node.strip_prefix("/fencelock").is_none_or(|rest| rest.split('/').count() <= 2);
            !own && !node.contains("/%id") && !node.contains("/%did") && !node.contains("/%cell-")
        };
        left.extend(nodes.iter().filter(kept).map(|node| format!("node {node}")));
        left
    }
}
#[async_trait]
impl Server for Store {
    fn is_asked_first(&self) -> bool {
        true
    }
    async fn stop(&self) {
        self.0.kill(0);
    }
    async fn start(&self) {
        self.0.restart(0);
    }
    async fn pause(&self, paused: bool) {
        self.0.pause(0, paused);
    }
}
#[async_trait]
impl Sessions for Store {
    async fn end(&self) {
        // The latest first: nobody who waits gets a lock by a session that is ended next.
        self.0.end_sessions();
    }
}
#[async_trait]
impl Deletions for Store {
    async fn delete(&self, name: &str) {
        let node = format!("/fencelock.{SPACE}/{}", name.replace('%', "%25").replace('/', "%2F"));
        assert_ne!(self.0.delete_below(&node), 0, "{node}");
    }
}
#[async_trait]
impl Namespaces for Store {
    async fn engine(&self, namespace: &str, ttl: Duration) -> Link {
        self.client(namespace, ttl).await
    }
}
