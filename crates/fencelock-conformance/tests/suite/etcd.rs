//! etcd: one member, several processes. Holds live by leases of their client.
use crate::ways::Ways;
use async_trait::async_trait;
use fencelock_conformance::{
    Connection as Link, Deletions, Family, Fixture, Namespaces, Server, Sessions,
    proxy::{Proxy, bytes},
};
use fencelock_core::{Client, Engine, Page};
use fencelock_etcd::{Config, EtcdEngine};
use fencelock_testkit::Etcd;
use std::{sync::Arc, time::Duration};

pub(crate) struct One;
#[async_trait]
impl Family for One {
    fn name(&self) -> &'static str {
        "etcd"
    }
    fn scopes(&self) -> &'static [&'static str] {
        &["any", "session", "queue"]
    }
    fn tells_last_token(&self) -> bool {
        false
    }
    fn start(&self) -> Box<dyn Fixture> {
        Box::new(Store(Etcd::start(), Ways::default()))
    }
    async fn reach(&self, address: &str, ttl: Duration) -> Arc<dyn Engine> {
        open(address, SPACE, ttl).await
    }
}
/// The trials run in one, so that a key that misses it is seen.
const SPACE: &str = "suite";
async fn open(address: &str, namespace: &str, ttl: Duration) -> Arc<dyn Engine> {
    let mut config = Config::from_url(address).unwrap();
    (config.namespace, config.ttl) = (namespace.to_owned(), ttl);
    Arc::new(EtcdEngine::connect(config).await.unwrap())
}

/// And the ways of its clients.
struct Store(Etcd, Ways);
impl Store {
    /// A client with a way of its own to the server.
    async fn client(&self, namespace: &str, ttl: Duration) -> Link {
        let proxy = Proxy::start(([127, 0, 0, 1], self.0.client_port(0)).into(), bytes);
        let engine = open(&format!("etcd://{}", proxy.address()), namespace, ttl).await;
        self.1.link(engine, proxy)
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
        let client = Client::builder(open(&self.0.url(), SPACE, Duration::from_secs(1)).await).build().unwrap();
        let listing = client.list("", &Page::default()).await.unwrap();
        let mut left: Vec<_> = listing.items.iter().map(|status| format!("{status:?}")).collect();
        // Which store it is is remembered for a while, and an epoch goes with its lease; nothing else is left.
        let keys = self.0.run(&["get", "", "--prefix", "--keys-only"]);
        let kept = ["/%live/", "/%size/", "/%gone/", "/%did/", "/%cell/"];
        let known =
            |key: &&str| !key.trim().is_empty() && !key.ends_with("%id") && !kept.iter().any(|part| key.contains(part));
        left.extend(keys.lines().filter(known).map(|key| format!("key {key}")));
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
        // The latest first: nobody who waits gets a lock by a lease that is ended next.
        let list = self.0.run(&["lease", "list"]);
        let mut all: Vec<_> = list.lines().skip(1).collect();
        all.sort_unstable();
        for line in all.into_iter().rev() {
            // One that has ended meanwhile is not there any more.
            let _ = self.0.etcdctl(&["lease", "revoke", line.trim()]).output().unwrap();
        }
    }
}
#[async_trait]
impl Deletions for Store {
    async fn delete(&self, name: &str) {
        let key = format!("fencelock.{SPACE}/{}/", name.replace('%', "%25").replace('/', "%2F"));
        assert_ne!(self.0.run(&["del", "--prefix", &key]).trim(), "0", "{key}");
    }
}
#[async_trait]
impl Namespaces for Store {
    async fn engine(&self, namespace: &str, ttl: Duration) -> Link {
        self.client(namespace, ttl).await
    }
}
