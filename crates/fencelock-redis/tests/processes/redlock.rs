//! Five servers, of which a lock needs three.
//! Planted to see it go red: two nodes enough (overlaps).
use crate::{
    common::{client, runtime},
    scene::COUNT,
};
use fencelock_core::Client;
use fencelock_testkit::{
    Folder, Redis, RedisOptions, WallClock,
    processes::{self, Worker},
};
use std::{path::Path, time::Duration};
use tokio::runtime::Runtime;

pub(crate) struct Redlock {
    nodes: Vec<Redis>,
    folder: Folder,
    runtime: Runtime,
    client: Client,
    clocks: Vec<WallClock>,
}
fn url(nodes: &[Redis]) -> String {
    let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redlock://{}", hosts.join(","))
}
impl processes::Scene for Redlock {
    const ENGINE: &'static str = "Redlock";
    const WORKERS: &'static str = "two runtimes, three clocks";
    const TTL: Duration = Duration::from_millis(2_500);
    const BRIEF: Duration = Duration::from_millis(600);
    const AFTER_TTL: Duration = Duration::from_millis(250);

    fn new() -> Self {
        let (nodes, runtime) = (Redis::several(5, &RedisOptions::default()), runtime());
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
        Worker::start_by(self.clocks.get(n % 3), &[&[flavour, role, &url(&self.nodes)], words].concat())
    }
    fn traces(&self) -> usize {
        let there = |node: &Redis| node.ask(&["EVAL", COUNT, "0"]).unwrap().trim_start_matches(':').parse::<usize>();
        self.nodes.iter().map(|node| there(node).unwrap()).sum()
    }
}
