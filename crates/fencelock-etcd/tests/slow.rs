//! Members that are slow, or say nothing, beside others that serve.
//!
//! Planted to see them go red: no patience beyond that of the shortest ttl; the first member that takes a connection being the only one
//! that is asked; a connection that is used after somebody has given it up.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::{eventually, within};
use fencelock_core::Client;
use fencelock_etcd::{Config, EtcdEngine};
use fencelock_testkit::Etcd;
use std::time::Duration;
use tokio::{task::block_in_place, time::Instant};

/// A ttl that is too short for the way to the server costs its own hold, and nobody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_ttl_ends_no_other_hold() {
    let etcd = Etcd::start();
    let proxy = in_front_of(&etcd);
    let mut config = Config::from_url(&format!("etcd://{}", proxy.address())).unwrap();
    config.ttl = 8 * SEC;
    let client = built(EtcdEngine::connect(config).await.unwrap());
    let long = client.mutex("long").lock().await.unwrap();
    // There and back takes 200 ms.
    proxy.delay(SEC / 10);
    let short = client.mutex("short").ttl(SEC / 2);
    let end = Instant::now() + 12 * SEC;
    while Instant::now() < end {
        long.check().unwrap();
        // It is told that it comes too late, or not at all.
        let _ = short.try_lock_for(SEC).await;
    }
    proxy.delay(Duration::ZERO);
    within("free", long.release()).await.unwrap();
}

/// Whoever knows of all members gets his lock of those that serve, though one takes his connection and his calls, and answers none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_says_nothing_stops_nobody() {
    let etcd = Etcd::cluster();
    let url = etcd.url();
    let client = |n: usize| {
        let url = url.clone();
        async move {
            let connected = EtcdEngine::from_url(&url).await;
            connected.map(built).unwrap_or_else(|e| panic!("client {n}: {e}"))
        }
    };
    let lock = |n: usize, client: Client| async move {
        let mutex = client.mutex(format!("m{n}"));
        let guard = mutex.try_lock().await.unwrap_or_else(|e| panic!("client {n}: {e}")).expect("free");
        guard.release().await.unwrap_or_else(|e| panic!("client {n}: {e}"));
    };
    let mut before = Vec::new();
    for n in 0..12 {
        before.push(client(n).await);
    }
    let mut leader = None;
    eventually("somebody leads", || {
        leader = block_in_place(|| etcd.leader());
        std::future::ready(leader.is_some())
    })
    .await;
    let mute = (leader.unwrap() + 1) % 3;
    etcd.pause(mute, true);
    // Those who were connected before, a third of them to this one; and those who connect now.
    let known = before.into_iter().enumerate().map(|(n, client)| tokio::spawn(lock(n, client)));
    let new = (12..24).map(|n| {
        let client = client(n);
        tokio::spawn(async move { lock(n, client.await).await })
    });
    let all: Vec<_> = known.chain(new).collect();
    for one in all {
        within("it has locked", one).await.unwrap();
    }
    etcd.pause(mute, false);
}
