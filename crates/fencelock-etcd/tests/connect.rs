//! Encrypted connections, and what many holds cost a server that has nothing else to do.
//!
//! Planted to see them go red: a waiter who gives up when the members cannot do it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::{eventually, within};
use fencelock_core::ErrorKind;
use fencelock_etcd::{Config, EtcdEngine, Tls};
use fencelock_testkit::{
    Etcd, EtcdOptions, EtcdTls, Pki,
    processes::{bar, full},
};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_with_certificates_of_both_sides() {
    let pki = Pki::new(&["127.0.0.1"]);
    let (cert, key, ca) = (pki.file("ours.server.crt"), pki.file("ours.server.key"), pki.file("ours.ca"));
    let tls = EtcdTls { cert, key, ca, client_auth: true };
    let etcd = Etcd::with(EtcdOptions { tls: Some(tls), ..EtcdOptions::default() });
    let config = |ca: Option<&str>, client: Option<&str>| {
        let mut config = Config::from_url(&etcd.url()).unwrap();
        let pair = |who: &str| (pki.file(&format!("{who}.client.crt")), pki.file(&format!("{who}.client.key")));
        config.tls = Some(Tls { ca: ca.map(|name| pki.file(name)), client: client.map(pair) });
        config
    };
    let good = config(Some("ours.ca"), Some("ours"));
    let a = built(EtcdEngine::connect(good.clone()).await.unwrap());
    let word = |name: &str| pki.file(name).display().to_string();
    let (ca, cert, key) = (word("ours.ca"), word("ours.client.crt"), word("ours.client.key"));
    let url = format!("{}?ca={ca}&cert={cert}&key={key}", etcd.url());
    let b = built(EtcdEngine::from_url(&url).await.unwrap());
    let guard = a.mutex("x").lock().await.unwrap();
    let next = tokio::spawn(b.mutex("x").lock());
    eventually("it waits", || async { a.inspect("x").await.unwrap().waiters.len() == 1 }).await;
    guard.release().await.unwrap();
    within("its turn", next).await.unwrap().unwrap().release().await.unwrap();
    // Signed by nobody whom we trust; a client that shows none, or one that the server does not trust; and no encryption at all.
    let mut plain = Config::from_url(&etcd.url()).unwrap();
    plain.tls = None;
    for wrong in [
        config(Some("others.ca"), Some("ours")),
        config(None, Some("ours")),
        config(Some("ours.ca"), None),
        config(Some("ours.ca"), Some("others")),
        plain,
    ] {
        let error = EtcdEngine::connect(wrong.clone()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Ambiguous), "{wrong:?}: {error}");
    }
    // Files that are none.
    for (ca, cert, key) in [
        ("missing", "ours.client.crt", "ours.client.key"),
        ("nothing", "ours.client.crt", "ours.client.key"),
        ("ours.ca", "nothing", "ours.client.key"),
        ("ours.ca", "ours.client.crt", "nothing"),
    ] {
        let mut wrong = good.clone();
        wrong.tls = Some(Tls { ca: Some(pki.file(ca)), client: Some((pki.file(cert), pki.file(key))) });
        let error = EtcdEngine::connect(wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{ca} {cert} {key}: {error}");
    }
}

/// A majority that is missing costs nobody his hold, and nobody his place; who is new is told (SAFETY E8).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_survived() {
    let etcd = Etcd::cluster();
    let (a, b) = (client(&etcd, 60 * SEC).await, client(&etcd, 60 * SEC).await);
    let guard = a.mutex("x").lock().await.unwrap();
    let mut wait = b.mutex("x").lock();
    within("it waits", async {
        while wait.blocked_by().is_none() {
            assert!(tokio::time::timeout(SEC / 50, &mut wait).await.is_err());
        }
    })
    .await;
    eventually("it waits", || async { a.inspect("x").await.unwrap().waiters.len() == 1 }).await;
    let hold = a.inspect("x").await.unwrap().waiters[0].hold;
    etcd.kill(0);
    etcd.kill(1);
    let began = Instant::now();
    let error = a.mutex("y").lock().await.unwrap_err();
    // Whether the last try was refused or not answered is the member's affair.
    assert!(error.is_temporary(), "{error}");
    assert!(began.elapsed() < 20 * SEC, "{:?}", began.elapsed());
    // What is known of the holder is from before (SAFETY E8).
    eventually("it is told", || std::future::ready(wait.blocked_by().is_some_and(|busy| busy.stale))).await;
    guard.check().unwrap();
    tokio::task::block_in_place(|| {
        etcd.begin(0);
        etcd.restart(1);
    });
    eventually("it is answered", || async { a.inspect("x").await.is_ok() }).await;
    guard.check().unwrap();
    let status = a.inspect("x").await.unwrap();
    assert_eq!(status.waiters.iter().map(|waiter| waiter.hold).collect::<Vec<_>>(), [hold], "{status:?}");
    eventually("it is known", || std::future::ready(wait.blocked_by().is_some_and(|busy| !busy.stale))).await;
    guard.release().await.unwrap();
    let next = within("its turn", wait).await.unwrap();
    assert_eq!(next.id(), hold);
    next.release().await.unwrap();
    // What nobody had answered has left nothing.
    eventually("it is free", || async { a.inspect("y").await.unwrap().holders.is_empty() }).await;
    a.mutex("y").lock().await.unwrap().release().await.unwrap();
}

/// Of many holds a client keeps one lease alive, over one stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holds_cost_a_word_now_and_then() {
    let holds = if full() { 10_000 } else { 1_000 };
    let etcd = Etcd::start();
    let client = client(&etcd, 6 * SEC).await;
    let mut held = Vec::new();
    for batch in 0..holds / 100 {
        let tasks = (0..100).map(|n| {
            let mutex = client.mutex(format!("held{}", 100 * batch + n));
            tokio::spawn(async move { mutex.lock().await.unwrap() })
        });
        for task in tasks.collect::<Vec<_>>() {
            held.push(task.await.unwrap());
        }
    }
    // Everybody is watched by now.
    tokio::time::sleep(2 * SEC).await;
    let words = || calls(&etcd, "Txn") + calls(&etcd, "Range") + calls(&etcd, "LeaseKeepAlive");
    let streams = || etcd.metric(0, "grpc_server_started_total{grpc_method=\"LeaseKeepAlive\"");
    let mut measured = (f64::MAX, 0.0, 0.0);
    // Where a machine stands still a word is said twice, and all is looked at when a stream breaks: not three times on end.
    for _ in 0..3 {
        quiet(words, SEC, 3.5).await;
        let (before, first) = (words(), streams());
        tokio::time::sleep(6 * SEC).await;
        measured = (words() - before, first, streams());
        if measured.0 <= 12.0 && measured.2 < first + 0.5 {
            break;
        }
    }
    let (words, first, streams) = measured;
    held.iter().for_each(|guard| guard.check().unwrap());
    let figure = format!("{words} words in 6 s, {streams} stream");
    bar(&format!("etcd: {holds} holds with a ttl of 6 s"), figure, "1 stream, <= 2 words a second", words <= 12.0);
    // One that broke on the way here was opened anew.
    assert!(
        words <= 12.0 && streams > first - 0.5 && streams < first + 0.5 && streams < 10.0,
        "{words} {first} {streams}"
    );
    for guard in held {
        guard.release().await.unwrap();
    }
}
