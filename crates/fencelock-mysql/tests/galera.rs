//! Galera: several nodes, all of which take writes, and of which none knows what another one is just writing.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::within;
use fencelock_core::{ErrorKind, Token};
use fencelock_mysql::{MysqlEngine, MysqlSessionEngine};
use fencelock_testkit::MariaDb;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicI64, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

/// Each with clients of its own: what is counted by no atomic is exact, tokens rise in the order of the grants, and nobody hears of what the nodes
/// refused each other. Sessions are new in each round: one that reads a procedure within its transaction lets its node stand still. (Red: a row
/// that the other node had made told as an error; procedures read when they are called, in one of three runs.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_several_nodes_exclude_each_other() {
    let nodes = two().await;
    let (count, tokens) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::<Token>::new())));
    let (rounds, began) = (8, Instant::now());
    for _ in 0..rounds {
        let mut all = tokio::task::JoinSet::new();
        for n in 0..6 {
            let (client, count, tokens) = (client(&nodes[n % 2].url()).await, count.clone(), tokens.clone());
            all.spawn(async move {
                for _ in 0..10 {
                    let guard = client.mutex("x").ttl(60 * SEC).lock().await.unwrap();
                    let seen = count.load(Relaxed);
                    tokens.lock().unwrap().push(guard.token());
                    tokio::task::yield_now().await;
                    count.store(seen + 1, Relaxed);
                    guard.release().await.unwrap();
                }
            });
        }
        done(all).await;
    }
    assert_eq!(count.load(Relaxed), 60 * rounds);
    let tokens = tokens.lock().unwrap();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    println!("{} holds over two nodes in {:?}", tokens.len(), began.elapsed());
}
/// Whoever has permits, or reads, has a row of his own, which no other node's meets: it is the lock's own row that lets one of two grants be
/// refused. (Not seen red: with a grant that leaves that row
/// as it is, two runs met nothing.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_and_readers_of_several_nodes() {
    let nodes = two().await;
    let (permits, readers, writers) =
        (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let mut all = tokio::task::JoinSet::new();
    for n in 0..8 {
        let client = client(&nodes[n % 2].url()).await;
        let (permits, readers, writers) = (permits.clone(), readers.clone(), writers.clone());
        all.spawn(async move {
            for round in 0..12 {
                let guard = client.semaphore("s", 2).ttl(60 * SEC).acquire(1).await.unwrap();
                assert!(permits.fetch_add(1, SeqCst) < 2, "a third permit");
                tokio::task::yield_now().await;
                permits.fetch_sub(1, SeqCst);
                guard.release().await.unwrap();
                let lock = client.rw_lock("rw");
                if (n + round) % 3 == 0 {
                    let guard = lock.write().await.unwrap();
                    assert_eq!((writers.fetch_add(1, SeqCst), readers.load(SeqCst)), (0, 0), "a writer beside anybody");
                    tokio::task::yield_now().await;
                    writers.fetch_sub(1, SeqCst);
                    guard.release().await.unwrap();
                } else {
                    let guard = lock.read().await.unwrap();
                    readers.fetch_add(1, SeqCst);
                    assert_eq!(writers.load(SeqCst), 0, "a reader beside a writer");
                    tokio::task::yield_now().await;
                    readers.fetch_sub(1, SeqCst);
                    guard.release().await.unwrap();
                }
            }
        });
    }
    done(all).await;
}
/// What is renewed, or given back, by a node that has not heard of its grant yet, since it has much else to hear of first. (Red: a transaction that
/// begins with what is there.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_its_node_has_not_heard_of() {
    let nodes = two().await;
    let [mut a, mut b] = [&nodes[0], &nodes[1]].map(Session::new);
    a.ask("CREATE TABLE noise (n int PRIMARY KEY AUTO_INCREMENT, t varchar(200)) ENGINE=InnoDB");
    let now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    for n in 0..6 {
        a.ask("INSERT INTO noise (t) SELECT REPEAT('x', 200) FROM seq_1_to_30000");
        let granted = a.ask(&format!(
            "CALL fencelock_acquire('', 'x', UNHEX(LPAD('{n}', 32, '7')), 'mutex', 'm', 1, 0, 60000000, {now} + 1000000, 0, FALSE, \
             RANDOM_BYTES(16), NULL, 'h 1 ')"
        ));
        assert!(granted.starts_with("done"), "{granted}");
        let left = b.ask(&format!("CALL fencelock_release('', 'x', UNHEX(LPAD('{n}', 32, '7')), NULL)"));
        assert!(left.starts_with("done"), "{n}: {left}");
    }
}
/// Many start at several nodes where nothing is there yet, and go on at once: nobody hears of what the other node has just made. (Red: that it is
/// there told as an error.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_make_it_at_several_nodes() {
    let nodes = MariaDb::galera(2);
    for round in 0..6 {
        let mut all = tokio::task::JoinSet::new();
        nodes[0].ask(&format!("CREATE DATABASE d{round}"));
        let there = format!("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'd{round}'");
        eventually("it is there", || std::future::ready(nodes[1].ask(&there) == "1")).await;
        for n in 0..8_u32 {
            let url = nodes[n as usize % 2].url().replace("/test", &format!("/d{round}"));
            all.spawn(async move {
                // They come while others make.
                tokio::time::sleep(n / 2 * 100 * MS).await;
                let client = client(&url).await;
                for _ in 0..20 {
                    match client.mutex("x").lock().await {
                        Ok(held) => held.release().await.unwrap(),
                        // A machine that is too busy for an answer in time.
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Ambiguous, "{error}"),
                    }
                }
            });
        }
        done(all).await;
    }
}
/// Two nodes. What one has made the other one's first client waits for, and does not make once more. (Not seen red:
/// what one makes has mostly come before the other looks.)
async fn two() -> Vec<MariaDb> {
    let nodes = MariaDb::galera(2);
    for node in &nodes {
        client(&node.url()).await;
    }
    let sent = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_replicated'";
    assert_eq!(nodes[1].ask(sent), "0");
    nodes
}
async fn done(mut all: tokio::task::JoinSet<()>) {
    while let Some(one) = within("all of them", all.join_next()).await {
        one.unwrap();
    }
}
fn tables(node: &MariaDb) -> usize {
    // The last that is made.
    let made = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'fencelock_meta'";
    if node.ask(made) == "0" { 0 } else { node.ask("SELECT COUNT(*) FROM test.fencelock_meta").parse().unwrap() }
}

/// A node dies: whoever was its client goes on at another one, with what he holds; who waits elsewhere gets it afterwards. (Red: one host of the
/// URL.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_dies() {
    let nodes = MariaDb::galera(3);
    let hosts = |first: usize| {
        let ports = [0, 1, 2].map(|n| format!("127.0.0.1:{}", nodes[(first + n) % 3].port()));
        nodes[0].url().replace(&format!("127.0.0.1:{}", nodes[0].port()), &ports.join(","))
    };
    let (a, b) = (client(&hosts(0)).await, client(&hosts(1)).await);
    eventually("the tables are everywhere", || std::future::ready(nodes.iter().all(|node| tables(node) > 0))).await;
    let guard = a.mutex("x").ttl(30 * SEC).lock().await.unwrap();
    let lock = b.mutex("x");
    let next = tokio::spawn(async move { lock.lock().await });
    queued(&b, "x", 1).await;
    nodes[0].kill();
    // The others agree that it is gone within some seconds, and take no writes until then.
    let renewed = tokio::time::timeout(30 * SEC, guard.renewed());
    renewed.await.expect("renewed at another node");
    guard.check().unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    let next = within("its turn", next).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// What each node has for itself alone excludes nobody at another one: refused, with the reason. (Red: sessions as on one server.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_refused() {
    let nodes = MariaDb::galera(2);
    let url = nodes[1].url();
    let session = MysqlSessionEngine::from_url(&format!("{url}?strategy=session")).await.map(drop).unwrap_err();
    let bell = MysqlEngine::from_url(&format!("{url}?doorbell=on")).await.map(drop).unwrap_err();
    for error in [session, bell] {
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("cluster"), "{error}");
    }
}

/// A node that has lost the others takes no writes: told, and waited over by whoever has time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_the_others() {
    let nodes = MariaDb::galera(2);
    let a = client(&nodes[0].url()).await;
    let guard = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    nodes[1].kill();
    let ready = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_ready'";
    let alone = || std::future::ready(nodes[0].ask(ready) == "OFF");
    eventually("it knows that it is alone", alone).await;
    let error = a.mutex("y").try_lock_for(Duration::from_secs(2)).await.unwrap_err();
    assert!(error.is_temporary(), "{error:?}");
    // The operator says that it is to go on.
    nodes[0].ask("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=true'");
    within("its turn", a.mutex("y").lock()).await.unwrap().release().await.unwrap();
    guard.check().unwrap();
    guard.release().await.unwrap();
}
