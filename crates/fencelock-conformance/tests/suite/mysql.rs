//! MariaDB: one server, several processes. Leases by its own clock, without doorbells and with them; named locks, which live with sessions of
//! the server; and rows of a table that others use, too.
use crate::ways::Ways;
use async_trait::async_trait;
use fencelock_conformance::{
    Connection as Link, Deletions, Family, Fixture, Namespaces, Records, Server, Sessions, proxy::Proxy,
};
use fencelock_core::{Client, Engine, Name, Page, Token};
use fencelock_mysql::{Config, Strategy};
use fencelock_testkit::MariaDb;
use std::{sync::Arc, time::Duration};

pub(crate) enum Lease {
    AsItComes,
    /// Whoever is near his turn hears at once.
    Doorbell,
    /// Named locks.
    Session,
    /// Rows of the table of ShedLock, and no queue.
    ShedLock,
}
impl Lease {
    fn query(&self) -> &'static str {
        match self {
            Self::AsItComes => "",
            Self::Doorbell => "?doorbell=on",
            Self::Session => "?strategy=session",
            Self::ShedLock => "?strategy=shedlock",
        }
    }
}
#[async_trait]
impl Family for Lease {
    fn name(&self) -> &'static str {
        match self {
            Self::AsItComes => "mysql",
            Self::Doorbell => "mysql-doorbell",
            Self::Session => "mysql-session",
            Self::ShedLock => "mysql-shedlock",
        }
    }
    fn scopes(&self) -> &'static [&'static str] {
        match self {
            Self::AsItComes | Self::Doorbell => &["any", "lease", "queue"],
            Self::ShedLock => &["any", "lease"],
            Self::Session => &["any", "session", "queue"],
        }
    }
    fn is_variant(&self) -> bool {
        !matches!(self, Self::AsItComes)
    }
    fn tells_what_is_left(&self) -> bool {
        !matches!(self, Self::Session)
    }
    fn tells_who_waits(&self) -> bool {
        !matches!(self, Self::ShedLock)
    }
    fn rounds_up(&self) -> Duration {
        // To the milliseconds of its columns.
        Duration::from_millis(u64::from(matches!(self, Self::ShedLock)))
    }
    fn longest_name(&self) -> usize {
        if matches!(self, Self::ShedLock) { 64 } else { Name::MAX_BYTES }
    }
    fn compares_bytes(&self) -> bool {
        // Spaces at the end count for nothing.
        !matches!(self, Self::ShedLock)
    }
    fn at_once(&self) -> usize {
        5
    }
    fn start(&self) -> Box<dyn Fixture> {
        // In full a hundred clients of each trial wait, each by connections of its own.
        let server = MariaDb::with(&["--max-connections=4000"]);
        let (session, shared) = (matches!(self, Self::Session), matches!(self, Self::ShedLock));
        Box::new(Store { server, query: self.query(), session, shared, ways: Ways::default() })
    }
    async fn reach(&self, address: &str, ttl: Duration) -> Arc<dyn Engine> {
        open(address, NAMESPACE, ttl).await
    }
}
/// The trials run in one, so that a name that misses it is seen.
const NAMESPACE: &str = "suite";
async fn open(address: &str, namespace: &str, ttl: Duration) -> Arc<dyn Engine> {
    let mut config = Config::from_url(address).unwrap();
    config.ttl = ttl;
    if config.strategy != Strategy::ShedLock {
        namespace.clone_into(&mut config.namespace);
    }
    fencelock_mysql::connect(config).await.unwrap()
}

struct Store {
    server: MariaDb,
    query: &'static str,
    session: bool,
    /// With others: their table has no place for what is ours alone.
    shared: bool,
    ways: Ways,
}
impl Store {
    fn url(&self) -> String {
        self.server.url() + self.query
    }
    /// A client; whose signs of life are its engine's own with a way of its own to the server.
    async fn client(&self, namespace: &str, ttl: Duration) -> Link {
        if !self.session {
            return Link::cuttable(open(&self.url(), namespace, ttl).await);
        }
        let proxy = Proxy::mysql(([127, 0, 0, 1], self.server.port()).into());
        let place = format!("127.0.0.1:{}", self.server.port());
        let engine = open(&self.url().replace(&place, &proxy.address().to_string()), namespace, ttl).await;
        self.ways.link(engine, proxy)
    }
}
#[async_trait]
impl Fixture for Store {
    async fn engine(&self, ttl: Duration) -> Link {
        self.client(NAMESPACE, ttl).await
    }
    fn address(&self) -> Option<String> {
        Some(self.url())
    }
    fn server(&self) -> Option<&dyn Server> {
        // What lives with a session of the server ends with the server.
        if self.session { None } else { Some(self) }
    }
    fn sessions(&self) -> Option<&dyn Sessions> {
        if self.session { Some(self) } else { None }
    }
    fn records(&self) -> Option<&dyn Records> {
        // Rows of that table stay.
        if self.shared { None } else { Some(self) }
    }
    fn deletions(&self) -> Option<&dyn Deletions> {
        // Nobody but its session can give a named lock back.
        if self.session { None } else { Some(self) }
    }
    fn namespaces(&self) -> Option<&dyn Namespaces> {
        if self.shared { None } else { Some(self) }
    }
    async fn clean(&self) -> Vec<String> {
        let client = Client::builder(open(&self.url(), NAMESPACE, Duration::from_secs(1)).await).build().unwrap();
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
    async fn raise(&self, names: &[&str]) -> Token {
        let now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
        let these = format!("name IN ('{}')", names.join("', '"));
        self.server.ask(&format!("UPDATE fencelock_lock SET fence = {now} + 2000000 WHERE {these}"));
        Token::new(self.server.ask(&format!("SELECT MAX(fence) FROM fencelock_lock WHERE {these}")).parse().unwrap())
            .unwrap()
    }
    async fn names(&self) -> Vec<String> {
        let said = self.server.ask(&format!("SELECT name FROM fencelock_lock WHERE space = '{NAMESPACE}'"));
        said.lines().map(str::to_owned).collect()
    }
}
#[async_trait]
impl Deletions for Store {
    async fn delete(&self, name: &str) {
        self.server.ask(&if self.shared {
            format!("DELETE FROM shedlock WHERE name = '{name}'")
        } else {
            format!("UPDATE fencelock_lock SET hold = NULL WHERE name = '{name}'")
        });
    }
}
#[async_trait]
impl Namespaces for Store {
    async fn engine(&self, namespace: &str, ttl: Duration) -> Link {
        self.client(namespace, ttl).await
    }
}
#[async_trait]
impl Sessions for Store {
    async fn end(&self) {
        // Those who wait first, the latest before the others: nobody gets a lock by a session that is ended next.
        let pids = "SELECT id FROM information_schema.processlist WHERE state = 'User lock' \
                    OR id IN (SELECT pid FROM fencelock_lock WHERE IS_USED_LOCK(named) = pid) \
                    ORDER BY state <=> 'User lock' DESC, id DESC";
        for pid in self.server.ask(pids).lines() {
            // It may have ended meanwhile.
            let _ = self.server.client(&format!("KILL {pid}")).output();
        }
    }
}
