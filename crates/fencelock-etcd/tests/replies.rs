//! Commands and replies that are lost on the wire: one hold, the same token, one release frees it (SAFETY A, G1).
//!
//! Planted to see them go red: a waiter whose confirm was not answered, and who takes the token of his coming; a broken
//! connection that is not made again for a ttl.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::replies::Wire;
use fencelock_etcd::{Config, EtcdEngine};
use fencelock_testkit::Etcd;
use std::{sync::Arc, time::Duration};

async fn wire(etcd: &Arc<Etcd>, ttl: Duration) -> Wire {
    let proxy = in_front_of(etcd);
    let mut config = Config::from_url(&format!("etcd://{}", proxy.address())).unwrap();
    config.ttl = ttl;
    let asked = etcd.clone();
    // That is what `etcdctl lock` would tell of a hold of its own, too.
    let token = move |name: &str| {
        let said = asked.run(&["get", "--prefix", &format!("fencelock/%who/{name}/"), "-w", "fields"]);
        let revision = said.lines().find_map(|line| line.strip_prefix("\"ModRevision\" : "));
        revision.unwrap_or_else(|| panic!("{name}: {said}")).parse().unwrap()
    };
    let (client, other) = (built(EtcdEngine::connect(config).await.unwrap()), client(etcd, 30 * SEC).await);
    Wire { words: "wire".to_owned(), proxy, client, other, token: Box::new(token) }
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_lost_once() {
    wire(&Arc::new(Etcd::start()), 30 * SEC).await.prove().await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signs_of_life_are_lost() {
    // A frame of data: nothing else is said meanwhile.
    let beats = |message: &[u8]| message.get(3) == Some(&0);
    wire(&Arc::new(Etcd::start()), 6 * SEC).await.signs_of_life(6 * SEC, beats).await;
}
