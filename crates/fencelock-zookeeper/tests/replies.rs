//! Commands and replies that are lost on the wire: one hold, the same token, one release frees it (SAFETY A, G1).
//!
//! Planted to see them go red: what became of a command that was not answered, not looked for (stuck); a downgrade that
//! finds itself done, told as taken away; a broken connection that is not made again for a ttl.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::replies::Wire;
use fencelock_testkit::ZooKeeper;
use fencelock_zookeeper::{Config, Dialect, ZooKeeperEngine};
use std::{sync::Arc, time::Duration};

async fn wire(zk: &Arc<ZooKeeper>, dialect: Dialect, ttl: Duration) -> Wire {
    let proxy = in_front_of(zk, 0);
    let mut config = Config::from_url(&format!("zookeeper://{}", proxy.address())).unwrap();
    (config.ttl, config.dialect) = (ttl, dialect);
    let asked = zk.clone();
    let token = move |name: &str| {
        let own = traces(&asked).into_iter().find(|node| node.starts_with(&format!("/fencelock/{name}/")));
        asked.shell().created(&own.unwrap()).unwrap().unwrap()
    };
    let client = built(ZooKeeperEngine::connect(config).await.unwrap());
    let other = speaks(zk, dialect, 30 * SEC).await;
    Wire { words: dialect.to_string(), proxy, client, other, token: Box::new(token) }
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_lost_once() {
    let zk = Arc::new(ZooKeeper::start());
    for dialect in DIALECTS {
        wire(&zk, dialect, 30 * SEC).await.prove().await;
    }
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signs_of_life_are_lost() {
    // A transaction that only checks.
    let beats = |message: &[u8]| message.get(8..12) == Some(&[0, 0, 0, 14][..]) && !writes(message);
    wire(&Arc::new(ZooKeeper::start()), Dialect::Curator, 6 * SEC).await.signs_of_life(6 * SEC, beats).await;
}
