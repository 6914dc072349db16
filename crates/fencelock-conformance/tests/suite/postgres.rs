//! PostgreSQL: one server, several processes. Leases by its own clock. As it comes; where transactions are serializable unless they say
//! otherwise; through a pooler of transactions, where nobody can listen; and in the rows of a table that others use, too.
use crate::ways::Ways;
use async_trait::async_trait;
use fencelock_conformance::{
    Connection as Link, Deletions, Family, Fixture, Namespaces, Records, Server, Sessions, WakeUps, eventually,
    proxy::Proxy,
};
use fencelock_core::{Client, Engine, Name, Page, Token};
use fencelock_postgres::{Config, Strategy};
use fencelock_testkit::{PgBouncer, Postgres};
use std::{sync::Arc, time::Duration};

pub(crate) enum Lease {
    AsItComes,
    Serializable,
    Pooled,
    /// Advisory locks, which live with sessions of the server.
    Session,
    /// Rows of the table of ShedLock, and no queue.
    ShedLock,
}
#[async_trait]
impl Family for Lease {
    fn name(&self) -> &'static str {
        match self {
            Self::AsItComes => "postgres",
            Self::Serializable => "postgres-serializable",
            Self::Pooled => "postgres-pooled",
            Self::Session => "postgres-session",
            Self::ShedLock => "postgres-shedlock",
        }
    }
    fn scopes(&self) -> &'static [&'static str] {
        match self {
            Self::Session => &["any", "session", "queue"],
            Self::ShedLock => &["any", "lease"],
            _ => &["any", "lease", "queue"],
        }
    }
    fn is_variant(&self) -> bool {
        !matches!(self, Self::AsItComes)
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
    fn at_once(&self) -> usize {
        5
    }
    fn start(&self) -> Box<dyn Fixture> {
        let server = match self {
            Self::Serializable => Postgres::with(&["default_transaction_isolation=serializable"]),
            // Whoever waits there has a connection of his own, beside those of his client: in full that is a hundred clients of each trial.
            Self::Session => Postgres::with(&["max_connections=4000"]),
            _ => Postgres::start(),
        };
        let pooler = matches!(self, Self::Pooled).then(|| PgBouncer::start(&server, "transaction"));
        let (session, shared) = (matches!(self, Self::Session), matches!(self, Self::ShedLock));
        Box::new(Store { server, pooler, session, shared, ways: Ways::default() })
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
    fencelock_postgres::connect(config).await.unwrap()
}

struct Store {
    server: Postgres,
    pooler: Option<PgBouncer>,
    session: bool,
    /// With others: their table has no place for what is ours alone.
    shared: bool,
    ways: Ways,
}
impl Store {
    fn url(&self) -> String {
        let url = self.pooler.as_ref().map_or_else(|| self.server.url(), |pooler| self.server.url_through(pooler));
        match (self.session, self.shared) {
            (true, _) => url + "?strategy=session",
            (_, true) => url + "?strategy=shedlock",
            _ => url,
        }
    }
    /// A client; whose signs of life are its engine's own with a way of its own to the server.
    async fn client(&self, namespace: &str, ttl: Duration) -> Link {
        if !self.session {
            return Link::cuttable(open(&self.url(), namespace, ttl).await);
        }
        let proxy = Proxy::postgres(([127, 0, 0, 1], self.server.port()).into());
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
    fn wake_ups(&self) -> Option<&dyn WakeUps> {
        // Through a pooler there are none that could be lost, nor in the server's own queue.
        if self.pooler.is_none() && !self.session && !self.shared { Some(self) } else { None }
    }
    fn records(&self) -> Option<&dyn Records> {
        // Rows of that table stay.
        if self.shared { None } else { Some(self) }
    }
    fn deletions(&self) -> Option<&dyn Deletions> {
        // Nobody but its session can give an advisory lock back.
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
        assert!(self.server.restart(), "postgres did not start again");
    }
    async fn pause(&self, paused: bool) {
        self.server.pause(paused);
    }
}
/// The server's processes that listen for them are stopped: the server tells, and nobody hears.
#[async_trait]
impl WakeUps for Store {
    async fn lose(&self) {
        // Whoever waits may only be about to listen.
        let deaf = "SELECT 1 FROM fencelock_waiter JOIN fencelock_client USING (client) WHERE pid IS NULL LIMIT 1";
        eventually("they listen", || async { self.server.ask(deaf).is_empty() }).await;
        let ears = self.server.ask("SELECT pid FROM fencelock_client WHERE pid IS NOT NULL");
        ears.lines().for_each(|pid| self.server.stop_session(pid.parse().unwrap()));
    }
}
/// Rows that nobody uses go when they have not been used for as long as they are kept.
#[async_trait]
impl Records for Store {
    async fn age(&self) {
        self.server.ask("SELECT fencelock_reap(); SELECT fencelock_clean(0)");
    }
    async fn raise(&self, names: &[&str]) -> Token {
        let high = "UPDATE fencelock_lock SET fence = fencelock_us(clock_timestamp()) + 2000000";
        let high = format!("{high} WHERE name IN ('{}') RETURNING fence", names.join("', '"));
        let said = self.server.ask(&format!("WITH h AS ({high}) SELECT max(fence) FROM h"));
        Token::new(said.parse().unwrap()).unwrap()
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
        // The latest first: nobody who waits gets a lock by a session that is ended next.
        let bearers = "SELECT pid FROM pg_stat_activity WHERE application_name = 'fencelock' \
                       AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory') ORDER BY backend_start DESC";
        self.server.ask(&format!("SELECT pg_terminate_backend(pid) FROM ({bearers}) AS them"));
    }
}
