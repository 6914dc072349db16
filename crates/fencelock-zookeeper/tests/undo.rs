//! Attempts that are given up while what they sent is lost, answered to nobody, or late: nothing of one is left while its client lives
//! (SAFETY A2, A3), though the session that it is written by goes on; and nothing when its client is gone and its session over.
//!
//! Planted to see them go red: a node that does not go with its session; an undo that deletes what it knows of, and does not look for what it does not.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::proxy::{Proxy, Trouble};
use fencelock_core::Client;
use fencelock_testkit::{
    Port, ZooKeeper, ZooKeeperOptions, abandon, panics,
    processes::{bar, full},
};
use fencelock_zookeeper::{Config, Dialect, ZooKeeperEngine};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// As if by dice, from a counter: the same in each run as far as the order of commands is.
fn dice(seed: &AtomicU64) -> u64 {
    let mut x = seed.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
async fn through(proxies: &[&Proxy], dialect: Dialect, ttl: Duration) -> Client {
    let members: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let mut config = Config::from_url(&format!("zookeeper://{}", members.join(","))).unwrap();
    (config.ttl, config.dialect) = (ttl, dialect);
    built(ZooKeeperEngine::connect(config).await.unwrap())
}
/// How long it takes until nothing is left.
async fn clean(zk: &ZooKeeper) -> Duration {
    let began = Instant::now();
    loop {
        let left = tokio::task::block_in_place(|| traces(zk));
        if left.is_empty() {
            return began.elapsed();
        }
        assert!(began.elapsed() < 15 * SEC, "{} nodes are left: {:?}", left.len(), left[0]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_orphan_outlives_its_attempt() {
    const BATCH: usize = 50;
    let (zk, batches) = (ZooKeeper::start(), if full() { 40 } else { 4 });
    let (seed, lost) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicUsize::new(0)));
    let proxy = in_front_of(&zk, 0);
    let clients = [through(&[&proxy], DIALECTS[0], 60 * SEC).await, through(&[&proxy], DIALECTS[1], 60 * SEC).await];
    let (mut longest, mut granted, mut batch) = (Duration::ZERO, 0, 0);
    // However slow the machine is, the run bites.
    while batch < batches || granted == 0 || lost.load(SeqCst) <= batches {
        assert!(batch < 20 * batches, "{granted} granted, {} lost", lost.load(SeqCst));
        // In the words of one and of the other.
        let (client, words) = (&clients[batch % 2], DIALECTS[batch % 2]);
        let (dices, met) = (seed.clone(), lost.clone());
        proxy.rule(move |command| {
            // What asks for a lock or gives it back, and no sign of life.
            if !writes(command) {
                return Trouble::None;
            }
            let trouble = match dice(&dices) % 100 {
                0..3 => Trouble::LoseReply,
                3..5 => Trouble::Lose,
                _ => return Trouble::None,
            };
            met.fetch_add(1, SeqCst);
            trouble
        });
        let tasks: Vec<_> = (0..BATCH)
            .map(|i| {
                let name = format!("{words}{}", i % (BATCH / 5));
                let (client, patience) = (client.clone(), Duration::from_micros(dice(&seed) % 60_000));
                let (kind, gives_back) = ((batch / 2 + i) % 5, dice(&seed).is_multiple_of(2));
                tokio::spawn(async move {
                    let attempt = async {
                        Ok::<_, fencelock_core::Error>(match kind {
                            0 | 1 => Some(client.mutex(name).lock().await?),
                            2 => Some(client.rw_lock(format!("{name}-rw")).write().await?),
                            3 => {
                                drop(client.rw_lock(format!("{name}-rw")).read().await?);
                                None
                            }
                            _ => {
                                drop(client.semaphore(format!("{name}-s"), 2).acquire(1).await?);
                                None
                            }
                        })
                    };
                    // Dropped in the middle of it, if it is not granted in time.
                    match tokio::time::timeout(patience, attempt).await {
                        Ok(Ok(Some(guard))) if gives_back => drop(guard.release().await),
                        Ok(Ok(_)) => {}
                        _ => return 0,
                    }
                    1
                })
            })
            .collect();
        for task in tasks {
            granted += task.await.unwrap();
        }
        proxy.calm();
        longest = longest.max(clean(&zk).await);
        assert_eq!(client.held(), 0);
        batch += 1;
    }
    let (attempts, lost) = (batch * BATCH, lost.load(SeqCst));
    let figure =
        format!("{longest:?} of {attempts} ({granted} granted, {lost} connections lost with what was on them)");
    let what = "zookeeper: attempts given up amid lost commands and replies: what is left ends after";
    bar(what, figure, "<= 6 s", longest <= 6 * SEC);
}

/// The connection to one server stands still with the claims on it; they are taken back by another server of the ensemble, and arrive
/// then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_arrives_after_its_undo_makes_nothing() {
    let (zk, rounds, each) = (ZooKeeper::cluster(), if full() { 10 } else { 2 }, 100);
    let (one, other) = (in_front_of(&zk, 0), in_front_of(&zk, 1));
    for round in 0..rounds {
        let client = through(&[&one, &other], DIALECTS[round % 2], 10 * SEC).await;
        // One of the two is in use.
        client.mutex("first").lock().await.unwrap().release().await.unwrap();
        drop((one.commands(), other.commands()));
        client.mutex("first").lock().await.unwrap().release().await.unwrap();
        let stalled = if one.commands().is_empty() { &other } else { &one };
        stalled.silent(true);
        let tasks: Vec<_> = (0..each)
            .map(|i| {
                let lock = client.mutex(format!("late-{round}-{i}"));
                tokio::spawn(async move { tokio::time::timeout(SEC / 10, lock.lock()).await.is_ok() })
            })
            .collect();
        for task in tasks {
            assert!(!task.await.unwrap(), "nothing is answered");
        }
        // It is given up for the other one; what takes them back goes there.
        fencelock_conformance::eventually("the other one is used", || async {
            let lock = client.mutex("first").try_lock_for(SEC).await;
            matches!(lock, Ok(Ok(_)))
        })
        .await;
        tokio::time::sleep(SEC).await;
        stalled.silent(false);
        // They arrive now, if they do: none of them stays.
        tokio::time::sleep(SEC).await;
        clean(&zk).await;
        client.mutex("last").lock().await.unwrap().release().await.unwrap();
    }
    bar("zookeeper: claims that arrive after they were taken back: left", format!("0 of {}", rounds * each), "0", true);
}

/// The runtime of those who ask is gone while their commands are on the way. What becomes of them is seen to elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_runtime_is_gone_leaves_nothing() {
    let (zk, panics) = (ZooKeeper::start(), panics());
    let proxy = in_front_of(&zk, 0);
    let clients = [through(&[&proxy], DIALECTS[0], 60 * SEC).await, through(&[&proxy], DIALECTS[1], 60 * SEC).await];
    for round in 0_u64..if full() { 50 } else { 6 } {
        let client = &clients[usize::from(round % 2 == 1)];
        client.mutex(format!("first {}", round % 2)).lock().await.unwrap().release().await.unwrap();
        proxy.delay(Duration::from_millis(fastrand::u64(0..40)));
        tokio::task::block_in_place(|| abandon(client, Duration::from_millis(10 * (round % 6))));
        proxy.delay(Duration::ZERO);
        clean(&zk).await;
    }
    assert_eq!(panics(), 0);
}

/// An acquire whose answer is lost, and whose client vanishes then: what it has made goes with its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_leaves_nothing_when_its_session_is_over() {
    // What the names lie in stays.
    let zk = ZooKeeper::with(ZooKeeperOptions { reap: 3_600 * SEC, ..ZooKeeperOptions::default() });
    let (clients, each) = (if full() { 20 } else { 2 }, 50);
    for dialect in DIALECTS {
        let client = speaks(&zk, dialect, 60 * SEC).await;
        for i in 0..each {
            client.mutex(format!("{dialect}{i}")).lock().await.unwrap().release().await.unwrap();
        }
    }
    let mut all = Vec::new();
    for n in 0..clients {
        let proxy = in_front_of(&zk, 0);
        let client = through(&[&proxy], DIALECTS[n % 2], 5 * SEC).await;
        client.mutex(format!("first{n}")).lock().await.unwrap().release().await.unwrap();
        all.push((proxy, client));
    }
    let (mut waits, nowhere) = (Vec::new(), Port::free());
    for (n, (proxy, client)) in all.iter().enumerate() {
        // Its words arrive, and nothing comes back.
        proxy.mute_all();
        // A connection that it makes meanwhile is none.
        proxy.lead_to(([127, 0, 0, 1], nowhere.number()).into());
        waits.extend((0..each).map(|i| {
            let lock = client.mutex(format!("{}{i}", DIALECTS[n % 2]));
            tokio::spawn(async move { lock.lock().await })
        }));
    }
    let there = || tokio::task::block_in_place(|| traces(&zk)).len();
    fencelock_conformance::eventually("they arrive", || async { there() == clients * each }).await;
    all.iter().for_each(|(proxy, _)| proxy.silent(true));
    let began = Instant::now();
    clean(&zk).await;
    let took = began.elapsed();
    bar(
        &format!(
            "zookeeper: {} acquires whose answers are lost, of clients that vanish: what they made is gone after",
            clients * each
        ),
        format!("{took:?}"),
        "<= session timeout (5 s) + a tick + 250 ms",
        took <= 5 * SEC + Duration::from_millis(750),
    );
    for wait in waits {
        wait.abort();
        assert!(!matches!(wait.await, Ok(Ok(_))), "nobody was told that he has it");
    }
}
