//! MariaDB: one server, several processes. Leases by its own clock.
use async_trait::async_trait;
use fencelock_conformance::{Connection as Link, Deletions, Family, Fixture, Namespaces, Records, Server};
use fencelock_core::{Client, Engine, Page, Token};
use fencelock_mysql::{Config, MysqlEngine};
use fencelock_testkit::MariaDb;
use std::{sync::Arc, time::Duration};

pub(crate) struct Lease;
#[async_trait]
impl Family for Lease {
    fn name(&self) -> &'static str {
        "mysql"
    }
    fn scopes(&self) -> &'static [&'static str] {
        &["any", "lease", "queue"]
    }
    fn start(&self) -> Box<dyn Fixture> {
        Box::new(Store { server: MariaDb::start() })
    }
    async fn reach(&self, address: &str, ttl: Duration) -> Arc<dyn Engine> {
        open(address, NAMESPACE, ttl).await
    }
}
/// The trials run in one, so that a name that misses it is seen.
const NAMESPACE: &str = "suite";
async fn open(address: &str, namespace: &str, ttl: Duration) -> Arc<dyn Engine> {
    let mut config = Config::from_url(address).unwrap();
    (config.namespace, config.ttl) = (namespace.to_owned(), ttl);
    Arc::new(MysqlEngine::connect(config).await.unwrap())
}

struct Store {
    server: MariaDb,
}
#[async_trait]
impl Fixture for Store {
    async fn engine(&self, ttl: Duration) -> Link {
        Link::cuttable(open(&self.server.url(), NAMESPACE, ttl).await)
    }
    fn address(&self) -> Option<String> {
        Some(self.server.url())
    }
    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
    fn records(&self) -> Option<&dyn Records> {
        Some(self)
    }
    fn deletions(&self) -> Option<&dyn Deletions> {
        Some(self)
    }
    fn namespaces(&self) -> Option<&dyn Namespaces> {
        Some(self)
    }
    async fn clean(&self) -> Vec<String> {
        let client =
            Client::builder(open(&self.server.url(), NAMESPACE, Duration::from_secs(1)).await).build().unwrap();
        let listing = client.list("", &Page::default()).await.unwrap();
        listing.items.iter().map(|status| format!("{status:?}")).collect()
    }
}
#[async_trait]
impl Server for Store {
    fn is_asked_first(&self) -> bool {
        true
    }
    async fn stop(&self) {
        self.server.kill();
    }
    async fn start(&self) {
        assert!(self.server.restart(), "mariadbd did not start again");
    }
    async fn pause(&self, paused: bool) {
        self.server.pause(paused);
    }
}
/// Rows that nobody uses go when they have not been used for as long as they are kept.
#[async_trait]
impl Records for Store {
    async fn age(&self) {
        self.server.ask("CALL fencelock_clean(0)");
    }
    async fn raise(&self) -> Token {
        let now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
        self.server.ask(&format!("UPDATE fencelock_lock SET fence = {now} + 2000000"));
        Token::new(self.server.ask("SELECT MAX(fence) FROM fencelock_lock").parse().unwrap()).unwrap()
    }
    async fn names(&self) -> Vec<String> {
        let said = self.server.ask(&format!("SELECT name FROM fencelock_lock WHERE space = '{NAMESPACE}'"));
        said.lines().map(str::to_owned).collect()
    }
}
#[async_trait]
impl Deletions for Store {
    async fn delete(&self, name: &str) {
        self.server.ask(&format!("UPDATE fencelock_lock SET hold = NULL WHERE name = '{name}'"));
    }
}
#[async_trait]
impl Namespaces for Store {
    async fn engine(&self, namespace: &str, ttl: Duration) -> Link {
        Link::cuttable(open(&self.server.url(), namespace, ttl).await)
    }
}
