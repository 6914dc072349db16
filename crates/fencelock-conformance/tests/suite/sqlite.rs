//! SQLite: one file, several processes. Its holds live with a session and have a ttl each; fixed leases end by themselves.
use async_trait::async_trait;
use fencelock_conformance::{Connection, Family, Fixture, Sessions};
use fencelock_core::{Client, Engine, Page};
use fencelock_sqlite::{Config, SqliteEngine};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub(crate) struct Sqlite;
#[async_trait]
impl Family for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }
    fn scopes(&self) -> &'static [&'static str] {
        &["any", "lease", "session", "queue", "sqlite"]
    }
    fn start(&self) -> Box<dyn Fixture> {
        let base = if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
        let folder = base.join(format!("fencelock-suite-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        std::fs::create_dir_all(&folder).unwrap();
        Box::new(Folder(folder))
    }
    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_millis(250)) // SAFETY E4
    }
    async fn reach(&self, address: &str, ttl: Duration) -> Arc<dyn Engine> {
        open(Path::new(address), ttl)
    }
}
fn open(database: &Path, ttl: Duration) -> Arc<dyn Engine> {
    let mut config = Config::new(database);
    config.ttl = ttl;
    Arc::new(SqliteEngine::open(config).unwrap())
}

/// Gone with all that is in it when it is dropped.
struct Folder(PathBuf);
impl Folder {
    fn database(&self) -> PathBuf {
        self.0.join("locks.db")
    }
}
#[async_trait]
impl Fixture for Folder {
    async fn engine(&self, ttl: Duration) -> Connection {
        Connection::new(open(&self.database(), ttl))
    }
    fn address(&self) -> Option<String> {
        self.database().to_str().map(str::to_owned)
    }
    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
    async fn clean(&self) -> Vec<String> {
        let client = Client::builder(open(&self.database(), Duration::from_secs(1))).build().unwrap();
        let listing = client.list("", &Page::default()).await.unwrap();
        listing.items.iter().map(|status| format!("{status:?}")).collect()
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
/// As an operator with `sqlite3` does: nobody is rung, each session hears of it with its next heartbeat or command.
#[async_trait]
impl Sessions for Folder {
    async fn end(&self) {
        let conn = rusqlite::Connection::open(self.database()).unwrap();
        conn.busy_timeout(Duration::from_secs(5)).unwrap();
        conn.execute_batch(
            "BEGIN IMMEDIATE;
             DELETE FROM fencelock_holder;
             DELETE FROM fencelock_waiter;
             DELETE FROM fencelock_session;
             COMMIT;",
        )
        .unwrap();
    }
}
