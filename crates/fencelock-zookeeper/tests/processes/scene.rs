//! A private server, who works on it, and what it says of a lock.
use crate::common::{SEC, in_front_of, speaks, traces};
use fencelock_conformance::proxy::Proxy;
use fencelock_core::Client;
use fencelock_testkit::{
    Folder, ZooKeeper,
    processes::{self, Cuts, Worker},
};
use fencelock_zookeeper::Dialect;
use std::{path::Path, time::Duration};
use tokio::runtime::{Builder, Runtime};

pub(crate) type Scene = Speaks<false>;
pub(crate) type Kazoo = Speaks<true>;
/// In the words of Curator, or in those of kazoo.
pub(crate) struct Speaks<const KAZOO: bool> {
    pub(crate) zk: ZooKeeper,
    /// In front of it, where workers are to be cut off.
    proxy: Option<Proxy>,
    folder: Folder,
    runtime: Runtime,
    client: Client,
}
impl<const KAZOO: bool> processes::Scene for Speaks<KAZOO> {
    const ENGINE: &'static str = if KAZOO { "zookeeper, kazoo" } else { "zookeeper" };
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
        let server = || self.zk.url();
        let url = self.proxy.as_ref().map_or_else(server, |proxy| format!("zookeeper://{}", proxy.address()));
        Worker::start(&[&[flavour, role, &(url + Self::WORDS)], words].concat())
    }
    /// Nodes of contenders.
    fn traces(&self) -> usize {
        traces(&self.zk).len()
    }
}
impl<const KAZOO: bool> Cuts for Speaks<KAZOO> {
    const CUT: &'static str = "connections";

    fn to_be_cut() -> Self {
        let mut scene = Self::of(ZooKeeper::start());
        scene.proxy = Some(in_front_of(&scene.zk, 0));
        scene
    }
    fn cut(&self) -> usize {
        self.proxy.as_ref().unwrap().cut()
    }
}
impl<const KAZOO: bool> Speaks<KAZOO> {
    /// What their addresses say of it.
    const WORDS: &'static str = if KAZOO { "?dialect=kazoo" } else { "" };

    pub(crate) fn of(zk: ZooKeeper) -> Self {
        let dialect = if KAZOO { Dialect::Kazoo } else { Dialect::Curator };
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let client = runtime.block_on(speaks(&zk, dialect, 30 * SEC));
        Self { zk, proxy: None, folder: Folder::new("processes"), runtime, client }
    }
}
