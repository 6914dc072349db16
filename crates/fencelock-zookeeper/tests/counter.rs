//! A name whose nodes have been counted to the end: a server gives its last number again and again, and two who have it would both be
//! the first.
//!
//! Planted to see it go red: the last number is a place like any other.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::{eventually, within};
use fencelock_core::{Client, ErrorKind};
use fencelock_testkit::{ZooKeeper, ZooKeeperOptions};
use fencelock_zookeeper::Dialect;
use std::time::Duration;
use tokio::task::block_in_place;

fn parent(zk: &ZooKeeper, ends: &str) -> String {
    let nodes = zk.nodes("/fencelock");
    nodes.iter().find(|node| node.ends_with(ends)).unwrap_or_else(|| panic!("{ends} in {nodes:?}")).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_holds_by_the_last_number() {
    for dialect in DIALECTS {
        let zk = ZooKeeper::with(ZooKeeperOptions { reap: Duration::from_secs(3_600), ..ZooKeeperOptions::default() });
        let client = speaks(&zk, dialect, 30 * SEC).await;
        let first = client.mutex("x").lock().await.unwrap();
        let before = first.token();
        first.release().await.unwrap();
        block_in_place(|| zk.count_from(&parent(&zk, "/x"), i32::MAX - 2));

        let (a, b) = (speaks(&zk, dialect, 30 * SEC).await, speaks(&zk, dialect, 30 * SEC).await);
        let first = a.mutex("x").lock().await.unwrap();
        assert!(first.token() > before);
        let second = tokio::spawn(b.mutex("x").lock());
        eventually("it waits", || async { a.inspect("x").await.unwrap().waiters.len() == 1 }).await;
        let refused = |error: fencelock_core::Error| {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{dialect:?}: {error}");
            assert!(error.to_string().contains("counted to the end"), "{error}");
        };
        // Those who come now have the last number, all of them.
        for _ in 0..3 {
            refused(within("an answer", client.mutex("x").lock()).await.unwrap_err());
        }
        first.check().unwrap();
        first.release().await.unwrap();
        let second = within("its turn", second).await.unwrap().unwrap();
        let waits = client.mutex("x").try_lock_for(SEC).await;
        refused(waits.unwrap_err());
        second.release().await.unwrap();
        refused(client.mutex("x").lock().await.unwrap_err());
        // Whoever takes it for free is told when he wants it.
        refused(client.mutex("x").try_lock().await.unwrap_err());
        eventually("nothing is left", || async { block_in_place(|| traces(&zk)).is_empty() }).await;

        // What the error says.
        let token = second_life(&zk, &client, "/x", "x").await;
        assert!(token > before);

        let sems = client.semaphore("s", 2);
        sems.acquire(1).await.unwrap().release().await.unwrap();
        let queue = if dialect == Dialect::Kazoo { "/s-__lock__" } else { "/s/locks" };
        block_in_place(|| zk.count_from(&parent(&zk, queue), i32::MAX - 1));
        let (a, b) = (speaks(&zk, dialect, 30 * SEC).await, speaks(&zk, dialect, 30 * SEC).await);
        let permit = within("a permit", a.semaphore("s", 2).acquire(1)).await.unwrap();
        refused(within("an answer", b.semaphore("s", 2).acquire(1)).await.unwrap_err());
        permit.check().unwrap();
        permit.release().await.unwrap();
        eventually("nothing is left", || async { block_in_place(|| traces(&zk)).is_empty() }).await;
    }
}
async fn second_life(zk: &ZooKeeper, client: &Client, ends: &str, name: &str) -> fencelock_core::Token {
    block_in_place(|| {
        let node = parent(zk, ends);
        zk.shell().delete(&node).unwrap();
    });
    let guard = within("it begins anew", client.mutex(name).lock()).await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    token
}
