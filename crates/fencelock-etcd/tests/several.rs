//! Several locks in one transaction (SAFETY E1): all or none, one call, told apart when something is wrong with one of them.
//!
//! Planted to see them go red: the comparison with those who are there left out; the one with other kinds left out.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::within;
use fencelock_core::{ErrorKind, Kind, Member, MultiLock};
use fencelock_testkit::{Etcd, Folder};
use std::{fs, time::Duration};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_them_are_one_call() {
    let etcd = Etcd::start();
    let [a, b] = counted(&etcd).await;
    let members = || -> [Member; 4] {
        [a.mutex("m/1").into(), a.mutex("m/2").into(), a.rw_lock("rw/1").reading(), a.rw_lock("rw/2").writing()]
    };
    let txns = calls(&etcd, "Txn");
    let all = MultiLock::new(members()).lock().await.unwrap();
    assert_eq!(calls(&etcd, "Txn") - txns, 1.0);
    let tokens: Vec<_> = all.tokens().into_iter().map(|(_, token)| token).collect();
    assert!(tokens.len() == 3 && tokens.iter().all(|token| *token == tokens[0]), "one revision: {tokens:?}");
    // What others see of them is what they see of each alone.
    let who = a.inspect("m/2").await.unwrap();
    assert_eq!((who.holders.len(), who.holders[0].token), (1, tokens[0]));
    b.rw_lock("rw/1").read().await.unwrap().release().await.unwrap();
    for name in ["m/1", "m/2"] {
        assert!(b.mutex(name).try_lock().await.unwrap().is_err());
    }
    assert!(b.rw_lock("rw/2").try_read().await.unwrap().is_err());
    // Who comes second is told who is in the way, by one call, and nothing of him is there.
    let txns = calls(&etcd, "Txn");
    let two = MultiLock::new([b.mutex("free"), b.mutex("m/2")]);
    let busy = two.try_lock().await.unwrap().unwrap_err();
    assert_eq!(calls(&etcd, "Txn") - txns, 1.0);
    assert_eq!((busy.name.unwrap().as_str(), busy.holder.unwrap().token), ("m/2", tokens[0]));
    assert_eq!(etcd.run(&["get", "--prefix", "fencelock/free/", "--keys-only"]).trim(), "");
    // Who waits gets them, though they come free one by one.
    let wait = tokio::spawn(async move { two.lock().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!wait.is_finished());
    all.release().await.unwrap();
    let two = within("they are free", wait).await.unwrap().unwrap();
    assert!(two.tokens().iter().all(|(_, token)| *token > tokens[0]));
    two.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_one_of_them_is_told() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    let reader = b.rw_lock("rw").read().await.unwrap();
    let error = MultiLock::new([a.mutex("m"), a.mutex("rw")]).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KindMismatch, "{error}");
    let three = b.semaphore("s", 3).acquire(1).await.unwrap();
    let with_permits: [Member; 2] = [a.mutex("m").into(), a.semaphore("s", 2).permits(1)];
    let error = MultiLock::new(with_permits).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CapacityMismatch, "{error}");
    assert_eq!(a.inspect("m").await.unwrap().kind, None::<Kind>, "nothing of it is left");
    let with_permits: [Member; 2] = [a.mutex("m").into(), a.semaphore("s", 3).permits(2)];
    let two = within("beside the other", MultiLock::new(with_permits).lock()).await.unwrap();
    two.release().await.unwrap();
    reader.release().await.unwrap();
    three.release().await.unwrap();
    // More than a transaction takes.
    let many: Vec<_> = (0..40).map(|n| a.mutex(format!("many/{n}"))).collect();
    let all = within("they are free", MultiLock::new(many).lock()).await.unwrap();
    assert_eq!(all.members().len(), 40);
    all.release().await.unwrap();
}

/// Whoever takes pairs, and whoever takes one of them, exclude each other: each name has a counter that is not atomic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_and_single_ones_exclude_each_other() {
    const NAMES: usize = 4;
    const ROUNDS: usize = 60;
    let (etcd, folder) = (Etcd::start(), Folder::new("counters"));
    let counter = |n: usize| folder.path().join(n.to_string());
    (0..NAMES).for_each(|n| fs::write(counter(n), "0").unwrap());
    let mut tasks = Vec::new();
    for task in 0..6 {
        let (client, files) = (client(&etcd, 30 * SEC).await, (0..NAMES).map(counter).collect::<Vec<_>>());
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let first = fastrand::usize(..NAMES);
                let second = (first + fastrand::usize(1..NAMES)) % NAMES;
                let which = if task % 3 == 0 { vec![first] } else { vec![first, second] };
                let lock = MultiLock::new(which.iter().map(|n| client.mutex(format!("pairs/{n}"))));
                let guard = lock.lock().await.unwrap();
                let before: Vec<u64> =
                    which.iter().map(|n| fs::read_to_string(&files[*n]).unwrap().parse().unwrap()).collect();
                tokio::task::yield_now().await;
                for (n, before) in which.iter().zip(before) {
                    fs::write(&files[*n], (before + 1).to_string()).unwrap();
                }
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(60 * SEC, task).await.expect("nobody waits for ever").unwrap();
    }
    let total: u64 = (0..NAMES).map(|n| fs::read_to_string(counter(n)).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(total, (ROUNDS * (2 + 4 * 2)) as u64);
    assert_eq!(etcd.run(&["get", "--prefix", "fencelock/pairs", "--keys-only"]).trim(), "");
}
