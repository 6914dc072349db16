//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock_core::Client;
use fencelock_testkit::ZooKeeper;
use fencelock_zookeeper::{Config, ZooKeeperEngine};
use std::{sync::Arc, time::Duration};

pub const SEC: Duration = Duration::from_secs(1);

pub async fn client(zk: &ZooKeeper, ttl: Duration) -> Client {
    let mut config = Config::from_url(&zk.url()).unwrap();
    config.ttl = ttl;
    built(ZooKeeperEngine::connect(config).await.unwrap())
}
pub fn built(engine: ZooKeeperEngine) -> Client {
    Client::builder(Arc::new(engine)).build().unwrap()
}
/// How many messages the server has got.
pub fn messages(zk: &ZooKeeper) -> f64 {
    zk.metric(0, "zk_packets_received").unwrap()
}
/// What lies there of those who contend. Nodes that nobody uses any more go by themselves.
pub fn traces(zk: &ZooKeeper) -> Vec<String> {
    let contender =
        |node: &String| node.rsplit('/').next().is_some_and(|name| name.len() > 40 && !name.starts_with('%'));
    let mut shell = zk.shell();
    // Whoever the tests log in as.
    for login in ["ann:s@cret", "ann:secret"] {
        shell.log_in(login).unwrap();
    }
    shell.below("/fencelock").unwrap().into_iter().filter(contender).collect()
}
