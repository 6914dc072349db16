//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, missing_docs, missing_debug_implementations, reason = "a test fails where it unwraps")]
use fencelock_core::Client;
use fencelock_sqlite::{Config, SqliteEngine};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

pub use fencelock_testkit::{
    on_a_steady_machine,
    processes::{eventually, full},
};

pub const MS: Duration = Duration::from_millis(1);
/// For so long the last one out waits for what was dropped (SAFETY E5).
pub const FAREWELL: Duration = Duration::from_millis(250);

/// A folder of its own, gone afterwards.
pub struct Folder(PathBuf);
impl Folder {
    pub fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let name = format!("fencelock-test-{}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
        let path = base.join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
    pub fn database(&self) -> PathBuf {
        self.0.join("locks.db")
    }
    /// Files of sessions.
    pub fn files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.0.join("locks.db.d")) else { return Vec::new() };
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    }
    pub fn client(&self) -> Client {
        client(&self.database())
    }
    /// One number, asked of the database itself.
    pub fn count(&self, sql: &str) -> i64 {
        let conn = rusqlite::Connection::open(self.database()).unwrap();
        conn.busy_timeout(Duration::from_secs(5)).unwrap();
        conn.query_row(sql, [], |row| row.get(0)).unwrap()
    }
    pub fn execute(&self, sql: &str) {
        let conn = rusqlite::Connection::open(self.database()).unwrap();
        conn.busy_timeout(Duration::from_secs(5)).unwrap();
        conn.execute_batch(sql).unwrap();
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
pub fn client(database: &Path) -> Client {
    let engine = SqliteEngine::open(Config::new(database)).unwrap();
    Client::builder(Arc::new(engine)).build().unwrap()
}
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
