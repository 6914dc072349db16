//! A private server, who works on it, and what it says of a lock.
use crate::common::client;
use fencelock_core::Client;
use fencelock_testkit::{
    Folder, Postgres,
    processes::{self, Worker},
};
use std::{path::Path, time::Duration};
use tokio::runtime::{Builder, Runtime};

/// Of sessions, or of leases.
pub(crate) struct Scene<const SESSIONS: bool> {
    pub(crate) server: Postgres,
    folder: Folder,
    runtime: Runtime,
    client: Client,
}
impl<const SESSIONS: bool> processes::Scene for Scene<SESSIONS> {
    const ENGINE: &'static str = if SESSIONS { "PostgreSQL, sessions" } else { "PostgreSQL" };
    const WORKERS: &'static str = "two runtimes";
    const TTL: Duration = Duration::from_millis(2_500);
    const BRIEF: Duration = Duration::from_millis(600);
    const AFTER_TTL: Duration = Duration::from_millis(250);

    fn new() -> Self {
        let (server, runtime) =
            (Postgres::start(), Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());
        let client = runtime.block_on(client(&url::<SESSIONS>(&server)));
        Self { server, folder: Folder::new("processes"), runtime, client }
    }
    fn folder(&self) -> &Path {
        self.folder.path()
    }
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    fn client(&self) -> &Client {
        &self.client
    }
    /// Every other one on a runtime with two threads.
    fn start(&self, n: usize, role: &str, words: &[&str]) -> Worker {
        let flavour = if n.is_multiple_of(2) { "two" } else { "one" };
        Worker::start(&[&[flavour, role, &url::<SESSIONS>(&self.server)], words].concat())
    }
    /// In µs of the server's clock. What had been sent to prolong it was on the server's side of the connection already: it is done when
    /// nothing works any more.
    fn lease_end(&self, name: &str) -> Option<i64> {
        if SESSIONS {
            return None;
        }
        let idle = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock' AND state = 'active'";
        processes::eventually("nothing works", Duration::from_secs(10), || self.server.ask(idle) == "0");
        let end = format!("SELECT fencelock_us(until) FROM fencelock_lock WHERE name = '{name}' AND hold IS NOT NULL");
        Some(self.server.ask(&end).parse().unwrap_or_else(|_| panic!("nobody holds {name}")))
    }
    fn traces(&self) -> usize {
        let all = "SELECT (SELECT count(*) FROM fencelock_lock WHERE hold IS NOT NULL) \
                   + (SELECT count(*) FROM fencelock_holder) + (SELECT count(*) FROM fencelock_waiter)";
        let all = if SESSIONS { "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'" } else { all };
        self.server.ask(all).parse().unwrap()
    }
}
fn url<const SESSIONS: bool>(server: &Postgres) -> String {
    server.url() + if SESSIONS { "?strategy=session" } else { "" }
}
