//! The engine on real servers, beside etcd's own client.
//!
//! Planted to see them go red: holds that nobody watches.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::{eventually, within};
use fencelock_core::{ErrorKind, LossReason, Status};
use fencelock_etcd::{Config, EtcdEngine};
use fencelock_testkit::{
    Etcd, Folder,
    processes::{bar, tenth},
};
use std::{
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

/// What `etcdctl lock` tells a command: its own token.
fn revision(etcd: &Etcd, name: &str) -> i64 {
    let said = etcd.run(&["lock", &format!("fencelock/{name}"), "--", "sh", "-c", "echo $ETCD_LOCK_REV"]);
    said.trim().parse().unwrap_or_else(|e| panic!("{said:?}: {e}"))
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_when_ours_and_etcdctl_alternate() {
    let etcd = Etcd::start();
    let client = client(&etcd, 10 * SEC).await;
    let mut last = 0;
    for _ in 0..5 {
        let guard = client.mutex("m").lock().await.unwrap();
        assert!(guard.token().get() > last);
        assert_eq!(client.inspect("m").await.unwrap().holders[0].token, guard.token());
        last = guard.token().get();
        guard.release().await.unwrap();
        let theirs = revision(&etcd, "m");
        assert!(theirs > last, "{theirs} after {last}");
        last = theirs;
    }
}

/// Each waits for the other, and hears of him. A waiter's token is greater than that of who came after it and had it before: none did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_and_etcdctl_wait_for_each_other() {
    let (etcd, folder) = (Etcd::start(), Folder::new("interop"));
    let (a, b) = (client(&etcd, 10 * SEC).await, client(&etcd, 10 * SEC).await);
    let (got, leave) = (folder.path().join("got"), folder.path().join("leave"));
    let script = format!(
        "echo $ETCD_LOCK_REV > {0}.new; mv {0}.new {0}; while [ ! -e {1} ]; do sleep 0.01; done",
        got.display(),
        leave.display()
    );
    let first = a.mutex("m").lock().await.unwrap();
    let mut theirs =
        etcd.etcdctl(&["lock", "fencelock/m", "--", "sh", "-c", &script]).stdout(Stdio::null()).spawn().unwrap();
    eventually("it waits", || async { a.inspect("m").await.unwrap().waiters.len() == 1 }).await;
    let last = tokio::spawn(b.mutex("m").lock());
    eventually("ours waits behind it", || async { a.inspect("m").await.unwrap().waiters.len() == 2 }).await;
    assert!(!got.exists());
    let busy = b.mutex("m").try_lock().await.unwrap().unwrap_err();
    assert_eq!(busy.holder.unwrap().hold, first.id());
    let one = first.token().get();
    first.release().await.unwrap();
    eventually("its turn", || async { got.exists() }).await;
    let two: i64 = std::fs::read_to_string(&got).unwrap().trim().parse().unwrap();
    assert!(!last.is_finished());
    std::fs::write(&leave, "").unwrap();
    let last = within("our turn", last).await.unwrap().unwrap();
    assert!(one < two && two < last.token().get(), "{one} {two} {}", last.token());
    assert!(theirs.wait().unwrap().success());
    last.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_that_is_not_atomic_counts_them_all() {
    let rounds = tenth(500);
    let (etcd, folder) = (Etcd::start(), Folder::new("counter"));
    let counter = folder.path().join("n");
    std::fs::write(&counter, "0").unwrap();
    let script = format!("n=$(cat {0}); sleep 0.002; echo $((n+1)) > {0}", counter.display());
    let clients = [client(&etcd, 10 * SEC).await, client(&etcd, 10 * SEC).await];
    let ours = clients.map(|client| {
        let counter = counter.clone();
        tokio::spawn(async move {
            for _ in 0..rounds {
                let guard = client.mutex("m").lock().await.unwrap();
                let n: u32 = std::fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
                std::fs::write(&counter, (n + 1).to_string()).unwrap();
                guard.release().await.unwrap();
            }
        })
    });
    tokio::task::block_in_place(|| {
        for _ in 0..rounds {
            etcd.run(&["lock", "fencelock/m", "--", "sh", "-c", &script]);
        }
    });
    for ours in ours {
        ours.await.unwrap();
    }
    assert_eq!(std::fs::read_to_string(&counter).unwrap().trim(), (3 * rounds).to_string());
    bar(&format!("etcd: two of ours beside etcdctl lock, {rounds} rounds each"), "exact", "exact", true);
}

/// One call to take a free lock, one to give it back; a second client's wait is one more of each, and one that finds its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_counted() {
    let etcd = Etcd::start();
    let [a, b] = counted(&etcd).await;
    let (txns, ranges) = (calls(&etcd, "Txn"), calls(&etcd, "Range"));
    for _ in 0..50 {
        a.mutex("m").lock().await.unwrap().release().await.unwrap();
    }
    assert_eq!((calls(&etcd, "Txn") - txns, calls(&etcd, "Range") - ranges), (100.0, 0.0));
    let guard = a.mutex("m").lock().await.unwrap();
    let wait = tokio::spawn(b.mutex("m").lock());
    eventually("it waits", || async { a.inspect("m").await.unwrap().waiters.len() == 1 }).await;
    // It hears of its own key and of the one before it; the hold, so old, of its own.
    watched(&etcd, 3.0).await;
    let txns = calls(&etcd, "Txn");
    guard.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
    assert!(calls(&etcd, "Txn") - txns <= 3.0, "{}", calls(&etcd, "Txn") - txns);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_taken_away_is_told() {
    let etcd = Etcd::start();
    let client = client(&etcd, 30 * SEC).await;
    let guard = client.mutex("m").lock().await.unwrap();
    // So old a hold is watched.
    tokio::time::sleep_until((Instant::now() + 1_200 * SEC / 1_000).into()).await;
    let began = Instant::now();
    etcd.run(&["del", "--prefix", "fencelock/m/"]);
    assert_eq!(within("told", guard.lost()).await, LossReason::TakenOver);
    let took = began.elapsed();
    // With the time that `etcdctl` takes.
    bar("etcd: a hold whose key is deleted is told after", format!("{took:?}"), "<= 250 ms", took <= SEC / 4);
    let next = client.mutex("m").lock().await.unwrap();
    assert!(next.token() > guard.token() && guard.release().await.is_err());
    let lease = etcd.run(&["lease", "list"]);
    for lease in lease.lines().skip(1) {
        etcd.run(&["lease", "revoke", lease.trim()]);
    }
    assert_eq!(within("told", next.lost()).await, LossReason::SessionEnded);
    client.mutex("m").lock().await.unwrap().release().await.unwrap();
}

/// Attempts that are dropped at any moment leave nothing while their client lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_attempts_leave_nothing() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    for round in 0..300 {
        let guard = if round % 2 == 0 { Some(b.mutex("m").lock().await.unwrap()) } else { None };
        let patience = Duration::from_micros(u64::from(fastrand_of(round)) % 4_000);
        let dropped = tokio::time::timeout(patience, a.mutex("m").lock()).await;
        drop(dropped);
        if let Some(guard) = guard {
            guard.release().await.unwrap();
        }
    }
    eventually("nothing is left", || async {
        let keys = etcd.run(&["get", "fencelock/", "--prefix", "--keys-only"]);
        keys.lines().all(|key| key.is_empty() || key.contains("/%live/") || key.ends_with("%id"))
    })
    .await;
    a.mutex("m").try_lock().await.unwrap().expect("free").release().await.unwrap();
}
/// Connections that break at any moment cost no hold, and what was on its way leaves nothing while its client lives (SAFETY A2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_leave_nothing() {
    let etcd = Etcd::start();
    let proxy = Arc::new(in_front_of(&etcd));
    let mut config = Config::from_url(&format!("etcd://{}", proxy.address())).unwrap();
    config.ttl = 30 * SEC;
    let (a, b) = (built(EtcdEngine::connect(config).await.unwrap()), client(&etcd, 30 * SEC).await);
    let kept = a.mutex("kept").lock().await.unwrap();
    for round in 0..150 {
        let guard = if round % 2 == 0 { Some(b.mutex("m").lock().await.unwrap()) } else { None };
        let (cut, delay) = (proxy.clone(), Duration::from_micros(u64::from(fastrand_of(round)) % 3_000));
        let cut = tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            cut.cut();
        });
        let patience = Duration::from_micros(u64::from(fastrand_of(round + 1_000)) % 8_000);
        let mutex = a.mutex("m");
        let attempt = async {
            // Whoever gets it gives it back, over what is left of the connection.
            if let Ok(Ok(guard)) = tokio::time::timeout(patience, mutex.lock()).await {
                let _ = guard.release().await;
            }
        };
        attempt.await;
        cut.await.unwrap();
        if let Some(guard) = guard {
            guard.release().await.unwrap();
        }
    }
    eventually("nothing is left", || async {
        b.inspect("m").await.is_ok_and(|status| status == Status::free(status.name.clone()))
    })
    .await;
    within("free", b.mutex("m").lock()).await.unwrap().release().await.unwrap();
    kept.check().unwrap();
    within("free", a.mutex("m").lock()).await.unwrap().release().await.unwrap();
    kept.release().await.unwrap();
}
/// Numbers without a pattern.
fn fastrand_of(seed: u32) -> u32 {
    seed.wrapping_mul(2_654_435_761).rotate_left(13) ^ 0x9E37_79B9
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_and_a_wait_survive_the_leader() {
    let etcd = Etcd::cluster();
    let (a, b) = (client(&etcd, 20 * SEC).await, client(&etcd, 20 * SEC).await);
    let guard = a.mutex("m").lock().await.unwrap();
    let wait = tokio::spawn(b.mutex("m").lock());
    eventually("it waits", || async { a.inspect("m").await.unwrap().waiters.len() == 1 }).await;
    for _ in 0..3 {
        let mut leader = None;
        eventually("somebody leads", || {
            leader = tokio::task::block_in_place(|| etcd.leader());
            std::future::ready(leader.is_some())
        })
        .await;
        let leader = leader.unwrap();
        etcd.kill(leader);
        eventually("somebody else leads", || async {
            tokio::task::block_in_place(|| (0..3).any(|n| n != leader && leads(&etcd, n)))
        })
        .await;
        guard.check().unwrap();
        assert!(!wait.is_finished());
        tokio::task::block_in_place(|| etcd.restart(leader));
    }
    // By whichever of them leads now.
    within("renewed", guard.renewed()).await;
    guard.check().unwrap();
    let token = guard.token();
    within("released", guard.release()).await.unwrap();
    let next = within("its turn", wait).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}
fn leads(etcd: &Etcd, member: usize) -> bool {
    etcd.metric(member, "etcd_server_is_leader") > 0.5
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_do_not_meet() {
    let etcd = Etcd::start();
    let client = client(&etcd, 10 * SEC).await;
    let long = "x".repeat(512);
    let names = ["a", "a/b", "a/", "..", "%live/1", "a%2Fb", "a b", "f\u{1F512}", &long];
    let mut guards = Vec::new();
    for name in names {
        guards.push(client.mutex(name).try_lock().await.unwrap().unwrap_or_else(|busy| panic!("{name}: {busy}")));
    }
    let listed = client.list("", &fencelock_core::Page::default()).await.unwrap();
    let mut known: Vec<_> = listed.items.iter().map(|status| status.name.as_str()).collect();
    let mut all = names.to_vec();
    known.sort_unstable();
    all.sort_unstable();
    assert_eq!(known, all);
    let page = fencelock_core::Page { limit: 2, ..Default::default() };
    let (mut page, mut seen) = (page, 0);
    loop {
        let part = client.list("", &page).await.unwrap();
        seen += part.items.len();
        page.after = part.next;
        if page.after.is_none() {
            break;
        }
    }
    assert_eq!(seen, names.len());
    for guard in guards {
        guard.release().await.unwrap();
    }
    // Without a prefix the names are the keys.
    let bare = built(EtcdEngine::from_url(&format!("{}?prefix=", etcd.url())).await.unwrap());
    let guard = bare.mutex("raw").lock().await.unwrap();
    assert!(guard.place().unwrap().starts_with("raw/"));
    let listed = bare.list("", &fencelock_core::Page::default()).await.unwrap();
    assert!(listed.items.iter().any(|status| status.name.as_str() == "raw"), "{listed:?}");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trouble_is_told() {
    let port = fencelock_testkit::Port::free();
    let nobody = EtcdEngine::from_url(&format!("etcd://127.0.0.1:{port}")).await.unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::Unreachable, "{nobody}");
    let etcd = Etcd::start();
    // One dead member of two is passed.
    let url = format!("etcd://127.0.0.1:{port},127.0.0.1:{}", etcd.client_port(0));
    for _ in 0..4 {
        let client = built(EtcdEngine::from_url(&url).await.unwrap());
        client.mutex("m").lock().await.unwrap().release().await.unwrap();
    }
    ask_for_passwords(&etcd);
    let at = format!("127.0.0.1:{}", etcd.client_port(0));
    for wrong in [format!("etcd://{at}"), format!("etcd://app:wrong@{at}")] {
        let error = EtcdEngine::from_url(&wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(!error.to_string().contains("wrong@"), "{error}");
    }
    let app = built(EtcdEngine::from_url(&format!("etcd://app:pass@{at}")).await.unwrap());
    let guard = app.mutex("m").lock().await.unwrap();
    // The tokens of logins are gone with the server; the lease is not.
    etcd.kill(0);
    tokio::task::block_in_place(|| etcd.restart(0));
    eventually("it answers again", || async { app.inspect("m").await.is_ok_and(|status| status.is_held()) }).await;
    within("released", guard.release()).await.unwrap();
    let elsewhere = format!("etcd://app:pass@{at}?prefix=other/");
    let error = EtcdEngine::from_url(&elsewhere).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}
