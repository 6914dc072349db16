//! A private server, who works on it, and what it says of a lock.
use crate::common::{SEC, client, traces};
use fencelock_core::Client;
use fencelock_testkit::{
    Folder, ZooKeeper,
    processes::{self, Worker},
};
use std::{path::Path, time::Duration};
use tokio::runtime::{Builder, Runtime};

pub(crate) struct Scene {
    pub(crate) zk: ZooKeeper,
    folder: Folder,
    runtime: Runtime,
    client: Client,
}
impl processes::Scene for Scene {
    const ENGINE: &'static str = "zookeeper";
    const WORKERS: &'static str = "two runtimes";
    const TTL: Duration = Duration::from_secs(3);
    const BRIEF: Duration = SEC;
    /// A tick of the server's, by which it counts sessions, and 250 ms.
    const AFTER_TTL: Duration = Duration::from_millis(750);

    fn new() -> Self {
        Self::of(ZooKeeper::start())
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
        Worker::start(&[&[flavour, role, &self.zk.url()], words].concat())
    }
    /// Nodes of contenders.
    fn traces(&self) -> usize {
        traces(&self.zk).len()
    }
}
impl Scene {
    pub(crate) fn of(zk: ZooKeeper) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let client = runtime.block_on(client(&zk, 30 * SEC));
        Self { zk, folder: Folder::new("processes"), runtime, client }
    }
}
