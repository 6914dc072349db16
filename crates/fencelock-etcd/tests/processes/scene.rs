//! A private server, who works on it, and what it says of a lock.
use crate::common::{SEC, client, in_front_of};
use fencelock_conformance::proxy::Proxy;
use fencelock_core::Client;
use fencelock_testkit::{
    Etcd, Folder,
    processes::{self, Cuts, Worker},
};
use std::{path::Path, time::Duration};
use tokio::runtime::{Builder, Runtime};

pub(crate) struct Scene {
    pub(crate) etcd: Etcd,
    /// In front of it, where workers are to be cut off.
    proxy: Option<Proxy>,
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
        let server = || self.etcd.url();
        let url = self.proxy.as_ref().map_or_else(server, |proxy| format!("etcd://{}", proxy.address()));
        Worker::start(&[&[flavour, role, &url], words].concat())
    }
    /// Keys of contenders, and those that say who they are.
    fn traces(&self) -> usize {
        let keys = self.etcd.run(&["get", "fencelock/", "--prefix", "--keys-only"]);
        let known = ["/%id", "/%live/", "/%size/"];
        keys.lines().filter(|key| !key.is_empty() && !known.iter().any(|part| key.contains(part))).count()
    }
}
impl Cuts for Scene {
    const CUT: &'static str = "connections";

    fn to_be_cut() -> Self {
        let mut scene = Self::of(Etcd::start());
        scene.proxy = Some(in_front_of(&scene.etcd));
        scene
    }
    fn cut(&self) -> usize {
        self.proxy.as_ref().unwrap().cut()
    }
}
impl Scene {
    pub(crate) fn of(etcd: Etcd) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let client = runtime.block_on(client(&etcd, 30 * SEC));
        Self { etcd, proxy: None, folder: Folder::new("processes"), runtime, client }
    }
}
