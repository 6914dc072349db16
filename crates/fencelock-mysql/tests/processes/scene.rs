//! A private server, who works on it, and what it says of a lock.
use crate::common::client;
use fencelock_core::Client;
use fencelock_testkit::{
    Folder, MariaDb,
    processes::{self, Worker},
};
use std::{path::Path, time::Duration};
use tokio::runtime::{Builder, Runtime};

pub(crate) struct Scene {
    pub(crate) server: MariaDb,
    folder: Folder,
    runtime: Runtime,
    client: Client,
}
impl processes::Scene for Scene {
    const ENGINE: &'static str = "MariaDB";
    const WORKERS: &'static str = "two runtimes";
    const TTL: Duration = Duration::from_millis(2_500);
    const BRIEF: Duration = Duration::from_millis(600);
    const AFTER_TTL: Duration = Duration::from_millis(250);

    fn new() -> Self {
        let (server, runtime) =
            (MariaDb::start(), Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());
        let client = runtime.block_on(client(&server.url()));
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
        Worker::start(&[&[flavour, role, &self.server.url()], words].concat())
    }
    /// In µs of the server's clock. What had been sent to prolong it was on the server's side of the connection already: it is done when
    /// nothing works any more.
    fn lease_end(&self, name: &str) -> Option<i64> {
        let idle = "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Query' AND info LIKE 'CALL %'";
        processes::eventually("nothing works", Duration::from_secs(10), || self.server.ask(idle) == "0");
        let end = format!("SELECT ends FROM fencelock_lock WHERE name = '{name}' AND hold IS NOT NULL");
        Some(self.server.ask(&end).parse().unwrap_or_else(|_| panic!("nobody holds {name}")))
    }
    fn traces(&self) -> usize {
        let all = "SELECT (SELECT count(*) FROM fencelock_lock WHERE hold IS NOT NULL) \
                   + (SELECT count(*) FROM fencelock_holder) + (SELECT count(*) FROM fencelock_waiter)";
        self.server.ask(all).parse().unwrap()
    }
}
