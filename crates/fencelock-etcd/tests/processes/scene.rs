//! A private server, who works on it, and what it says of a lock.
use crate::common::{SEC, client};
use fencelock_core::Client;
use fencelock_testkit::{
    Etcd, Folder,
    processes::{self, Worker},
};
use std::{path::Path, time::Duration};
use tokio::runtime::{Builder, Runtime};

pub(crate) struct Scene {
    pub(crate) etcd: Etcd,
    folder: Folder,
    runtime: Runtime,
    client: Client,
}
impl processes::Scene for Scene {
    const ENGINE: &'static str = "etcd";
    const WORKERS: &'static str = "two runtimes";
    const TTL: Duration = Duration::from_secs(3);
    const BRIEF: Duration = SEC;
    const AFTER_TTL: Duration = Duration::from_millis(750);

    fn new() -> Self {
        Self::of(Etcd::start())
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
        Worker::start(&[&[flavour, role, &self.etcd.url()], words].concat())
    }
    /// Keys of contenders, and those that say who they are.
    fn traces(&self) -> usize {
        let keys = self.etcd.run(&["get", "fencelock/", "--prefix", "--keys-only"]);
        let known = ["/%id", "/%live/", "/%size/"];
        keys.lines().filter(|key| !key.is_empty() && !known.iter().any(|part| key.contains(part))).count()
    }
}
impl Scene {
    pub(crate) fn of(etcd: Etcd) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let client = runtime.block_on(client(&etcd, 30 * SEC));
        Self { etcd, folder: Folder::new("processes"), runtime, client }
    }
}
