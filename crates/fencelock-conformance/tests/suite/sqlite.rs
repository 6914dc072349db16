//! SQLite: one file, several processes. Its holds live with a session and have a ttl each; fixed leases end by themselves.
use async_trait::async_trait;
use fencelock_conformance::{
    Connection as Link, Deletions, Family, Fixture, Namespaces, Records, Server, Sessions, WakeUps,
};
use fencelock_core::{Client, Engine, Page, Token};
use fencelock_sqlite::{Config, SqliteEngine};
use rusqlite::Connection;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
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
        Box::new(Folder { path: folder, silent: Mutex::default() })
    }
    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_millis(250)) // SAFETY E4
    }
    async fn reach(&self, address: &str, ttl: Duration) -> Arc<dyn Engine> {
        open(Path::new(address), NAMESPACE, ttl)
    }
}
/// The trials run in one, so that a name that misses it is seen.
const NAMESPACE: &str = "suite";
fn open(database: &Path, namespace: &str, ttl: Duration) -> Arc<dyn Engine> {
    let mut config = Config::new(database);
    (config.namespace, config.ttl) = (namespace.to_owned(), ttl);
    Arc::new(SqliteEngine::open(config).unwrap())
}

/// Gone with all that is in it when it is dropped.
struct Folder {
    path: PathBuf,
    /// Has begun to write, and does not end: nobody else can.
    silent: Mutex<Option<Connection>>,
}
impl Folder {
    fn database(&self) -> PathBuf {
        self.path.join("locks.db")
    }
    /// Where liveness files and doorbells are.
    fn files(&self) -> PathBuf {
        self.path.join("locks.db.d")
    }
    /// As an operator's `sqlite3` has it.
    fn operator(&self) -> Connection {
        if !self.database().exists() {
            drop(open(&self.database(), NAMESPACE, Duration::from_secs(1)));
        }
        let conn = Connection::open(self.database()).unwrap();
        conn.busy_timeout(Duration::from_secs(5)).unwrap();
        conn
    }
    fn silence(&self, silent: bool) {
        let conn = silent.then(|| {
            let conn = self.operator();
            conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            conn
        });
        *self.silent.lock().unwrap() = conn; // whoever had begun rolls back
    }
}
#[async_trait]
impl Fixture for Folder {
    async fn engine(&self, ttl: Duration) -> Link {
        Link::new(open(&self.database(), NAMESPACE, ttl))
    }
    fn address(&self) -> Option<String> {
        self.database().to_str().map(str::to_owned)
    }
    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
    fn wake_ups(&self) -> Option<&dyn WakeUps> {
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
    /// Whoever opens a session buries the dead, so all that there is afterwards is its own.
    async fn clean(&self) -> Vec<String> {
        let client = Client::builder(open(&self.database(), NAMESPACE, Duration::from_secs(1))).build().unwrap();
        client.mutex("clean").lock().await.unwrap().release().await.unwrap();
        let listing = client.list("", &Page::default()).await.unwrap();
        let mut left: Vec<_> = listing.items.iter().map(|status| format!("{status:?}")).collect();
        let conn = self.operator();
        for (table, most) in [("holder", 0), ("waiter", 0), ("watcher", 0), ("session", 1)] {
            let count = format!("SELECT count(*) FROM fencelock_{table}");
            let n: i64 = conn.query_row(&count, [], |row| row.get(0)).unwrap();
            if n > most {
                left.push(format!("{n} rows of fencelock_{table}"));
            }
        }
        let files: Vec<_> = std::fs::read_dir(self.files()).unwrap().flatten().map(|file| file.file_name()).collect();
        if files.len() > 2 {
            left.push(format!("files beside the database: {files:?}"));
        }
        left
    }
}
/// It has no server: somebody else has begun to write and does not end. Whoever reads is answered.
#[async_trait]
impl Server for Folder {
    fn answers_readers(&self) -> bool {
        true
    }
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
/// All doorbells are gone: whoever rings finds none.
#[async_trait]
impl WakeUps for Folder {
    async fn lose(&self) {
        for file in std::fs::read_dir(self.files()).unwrap().flatten() {
            if file.path().extension().is_some_and(|extension| extension == "bell") {
                std::fs::remove_file(file.path()).unwrap();
            }
        }
    }
}
#[async_trait]
impl Records for Folder {
    async fn age(&self) {
        let old = "UPDATE fencelock_lock SET used = 0; UPDATE fencelock_meta SET swept = 0;";
        self.operator().execute_batch(&format!("BEGIN IMMEDIATE; {old} COMMIT;")).unwrap();
    }
    async fn raise(&self, names: &[&str]) -> Token {
        let conn = self.operator();
        let these = format!("name IN ('{}')", names.join("', '"));
        // As high as the stored mark lets it be.
        let high = "UPDATE fencelock_lock SET fence = (SELECT mark FROM fencelock_meta) - 1000";
        conn.execute_batch(&format!("{high} WHERE {these}")).unwrap();
        let most = format!("SELECT max(fence) FROM fencelock_lock WHERE {these}");
        Token::new(conn.query_row(&most, [], |row| row.get(0)).unwrap()).unwrap()
    }
    async fn names(&self) -> Vec<String> {
        let conn = self.operator();
        let mut all = conn.prepare("SELECT name FROM fencelock_lock ORDER BY name").unwrap();
        all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }
}
#[async_trait]
impl Deletions for Folder {
    async fn delete(&self, name: &str) {
        let of = "SELECT id FROM fencelock_lock WHERE space = ?1 AND name = ?2";
        let delete = format!("DELETE FROM fencelock_holder WHERE lock IN ({of})");
        assert_eq!(self.operator().execute(&delete, [NAMESPACE, name]).unwrap(), 1, "{name}");
    }
}
#[async_trait]
impl Namespaces for Folder {
    async fn engine(&self, namespace: &str, ttl: Duration) -> Link {
        Link::new(open(&self.database(), namespace, ttl))
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
/// As an operator with `sqlite3` does: nobody is rung, each session hears of it with its next heartbeat or command.
#[async_trait]
impl Sessions for Folder {
    async fn end(&self) {
        let conn = self.operator();
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
