//! Six nodes, three of which have the locks.
//! Planted to see it go red: one channel for all locks of a client, wherever their keys lie (a dead waiter counts as one who hears).
use crate::{
    common::{client, runtime},
    scene::COUNT,
};
use fencelock_core::Client;
use fencelock_testkit::{
    Folder, RedisCluster, WallClock,
    processes::{self, Worker},
};
use std::{path::Path, time::Duration};
use tokio::runtime::Runtime;

pub(crate) struct Cluster {
    nodes: RedisCluster,
    folder: Folder,
    runtime: Runtime,
    client: Client,
    clocks: Vec<WallClock>,
}
impl Cluster {
    fn url(&self) -> String {
        url(&self.nodes)
    }
}
fn url(nodes: &RedisCluster) -> String {
    format!("redis+cluster://{}", nodes.endpoints())
}
impl processes::Scene for Cluster {
    const ENGINE: &'static str = "Redis Cluster";
    const WORKERS: &'static str = "two runtimes, three clocks";
    const TTL: Duration = Duration::from_millis(2_500);
    const BRIEF: Duration = Duration::from_millis(600);
    const AFTER_TTL: Duration = Duration::from_millis(250);

    fn new() -> Self {
        let (nodes, runtime) = (RedisCluster::start(), runtime());
        let client = runtime.block_on(client(&url(&nodes)));
        Self { nodes, folder: Folder::new("processes"), runtime, client, clocks: Vec::new() }
    }
    /// Of three workers one has a clock that is 11 minutes ahead, and one that is as much behind.
    fn with_wrong_clocks() -> Self {
        Self { clocks: WallClock::apart(), ..Self::new() }.proved_apart()
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
    fn start(&self, n: usize, role: &str, words: &[&str]) -> Worker {
        let flavour = if n.is_multiple_of(2) { "two" } else { "one" };
        Worker::start_by(self.clocks.get(n % 3), &[&[flavour, role, &self.url()], words].concat())
    }
    fn traces(&self) -> usize {
        // The first three have slots.
        let there = |node| self.nodes.ask(node, &["EVAL", COUNT, "0"]).unwrap().parse::<usize>().unwrap();
        (0..3).map(there).sum()
    }
}
