//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock_conformance::proxy::Proxy;
use fencelock_core::Client;
use fencelock_testkit::ZooKeeper;
use fencelock_zookeeper::{Config, Dialect, ZooKeeperEngine};
use std::{sync::Arc, time::Duration};

pub const SEC: Duration = Duration::from_secs(1);

pub const DIALECTS: [Dialect; 2] = [Dialect::Curator, Dialect::Kazoo];

pub async fn client(zk: &ZooKeeper, ttl: Duration) -> Client {
    speaks(zk, Dialect::Curator, ttl).await
}
/// As [`client`], in these words.
pub async fn speaks(zk: &ZooKeeper, dialect: Dialect, ttl: Duration) -> Client {
    let mut config = Config::from_url(&zk.url()).unwrap();
    (config.ttl, config.dialect) = (ttl, dialect);
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
    // A permit of kazoo's has 32 letters, and a nonce, which lies below what is no name.
    let contender =
        |node: &String| node.rsplit('/').next().is_some_and(|name| name.len() >= 32) && !node.contains("/%");
    let mut shell = zk.shell();
    // Whoever the tests log in as.
    for login in ["ann:s@cret", "ann:secret"] {
        shell.log_in(login).unwrap();
    }
    shell.below("/fencelock").unwrap().into_iter().filter(contender).collect()
}
/// A message of ZooKeeper's: its length comes first.
pub fn framing(buffer: &[u8]) -> Option<usize> {
    let len = 4 + usize::try_from(u32::from_be_bytes(*buffer.first_chunk()?)).ok()?;
    (buffer.len() >= len).then_some(len)
}
/// A greeting begins with a version of 0; a command with its number and what it is.
pub fn writes(command: &[u8]) -> bool {
    let int = |at: usize| command.get(at..at + 4).and_then(|int| int.try_into().ok()).map(i32::from_be_bytes);
    // A transaction that only checks changes nothing.
    int(4) != Some(0)
        && match int(8) {
            Some(14) => int(12) != Some(13),
            command => matches!(command, Some(2 | 15)),
        }
}
pub fn in_front_of(zk: &ZooKeeper, member: usize) -> Proxy {
    Proxy::start(([127, 0, 0, 1], zk.client_port(member)).into(), framing)
}
