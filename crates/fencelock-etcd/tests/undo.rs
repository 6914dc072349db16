//! Attempts that are given up while what they sent is lost, answered to nobody, or late: nothing of one is left while its client lives
//! (SAFETY A2, A3), though the lease that they are written by is kept alive; and nothing when its client is gone and its lease over.
//!
//! Planted to see them go red: a place that is written by no lease; an undo that does not change the epoch; one of several that does not know that its claim was sent.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::proxy::{Proxy, Trouble};
use fencelock_core::{Client, MultiLock};
use fencelock_etcd::{Config, EtcdEngine};
use fencelock_testkit::{
    Etcd, Port, abandon, panics,
    processes::{bar, full},
};
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
async fn through(proxies: &[&Proxy]) -> Client {
    lasting(proxies, 60 * SEC).await
}
async fn lasting(proxies: &[&Proxy], ttl: Duration) -> Client {
    let members: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let mut config = Config::from_url(&format!("etcd://{}", members.join(","))).unwrap();
    config.ttl = ttl;
    built(EtcdEngine::connect(config).await.unwrap())
}
/// What the server knows of contenders.
fn traces(etcd: &Etcd) -> Vec<String> {
    let keys = etcd.run(&["get", "fencelock/", "--prefix", "--keys-only"]);
    let known = ["/%id", "/%live/", "/%size/"];
    let traces = keys.lines().filter(|key| !key.is_empty() && !known.iter().any(|part| key.contains(part)));
    traces.map(str::to_owned).collect()
}
/// How long it takes until nothing is left.
async fn clean(etcd: &Etcd) -> Duration {
    let began = Instant::now();
    loop {
        let left = tokio::task::block_in_place(|| traces(etcd));
        if left.is_empty() {
            return began.elapsed();
        }
        assert!(began.elapsed() < 15 * SEC, "{} keys are left: {:?}", left.len(), left[0]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_orphan_outlives_its_attempt() {
    const BATCH: usize = 50;
    let (etcd, batches) = (Etcd::start(), if full() { 40 } else { 4 });
    let (seed, lost) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicUsize::new(0)));
    let proxy = in_front_of(&etcd);
    let client = through(&[&proxy]).await;
    let (mut longest, mut granted) = (Duration::ZERO, 0);
    let mut batch = 0;
    // And until it has bitten: on a slow machine little of an attempt is said before it is given up.
    let bites = |granted: i32| granted > 0 && lost.load(SeqCst) > batches;
    while batch < batches || batch < 20 * batches && !bites(granted) {
        let (dices, met) = (seed.clone(), lost.clone());
        proxy.rule(move |command| {
            // What asks for a lock or gives it back, and no sign of life.
            if !command.windows(4).any(|part| part == b"undo") {
                return Trouble::None;
            }
            let trouble = match dice(&dices) % 100 {
                0..6 => Trouble::LoseReply,
                6..9 => Trouble::Lose,
                _ => return Trouble::None,
            };
            met.fetch_add(1, SeqCst);
            trouble
        });
        let tasks: Vec<_> = (0..BATCH)
            .map(|i| {
                let name = format!("undo{}", i % (BATCH / 5));
                let (client, patience) = (client.clone(), Duration::from_micros(dice(&seed) % 60_000));
                let (kind, gives_back) = ((batch + i) % 6, dice(&seed).is_multiple_of(2));
                tokio::spawn(async move {
                    let attempt = async {
                        Ok::<_, fencelock_core::Error>(match kind {
                            0 | 1 => Some(client.mutex(name).lock().await?),
                            2 => Some(client.rw_lock(format!("{name}-rw")).write().await?),
                            3 => {
                                drop(client.rw_lock(format!("{name}-rw")).read().await?);
                                None
                            }
                            4 => {
                                let both = [client.mutex(&name), client.mutex(format!("{name}-too"))];
                                drop(MultiLock::new(both).lock().await?);
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
        longest = longest.max(clean(&etcd).await);
        assert_eq!(client.held(), 0);
        batch += 1;
    }
    let (bites, attempts, lost) = (bites(granted), batch * BATCH, lost.load(SeqCst));
    assert!(bites, "the run must bite: {granted} granted, {lost} lost in {batch} batches");
    let figure =
        format!("{longest:?} of {attempts} ({granted} granted, {lost} connections lost with what was on them)");
    let what = "etcd: attempts given up amid lost commands and replies: what is left ends after";
    bar(what, figure, "<= 6 s", longest <= 6 * SEC);
}

/// The connection stands still with the claims on it; they are taken back over another one, and arrive then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_arrives_after_its_undo_writes_nothing() {
    let (etcd, rounds, each) = (Etcd::start(), if full() { 10 } else { 2 }, 100);
    let (one, other) = (in_front_of(&etcd), in_front_of(&etcd));
    let client = through(&[&one, &other]).await;
    for round in 0..rounds {
        // The leases are there, and one of the two is in use.
        client.mutex("second").ttl(50 * SEC).lock().await.unwrap().release().await.unwrap();
        client.mutex("first").lock().await.unwrap().release().await.unwrap();
        drop((one.commands(), other.commands()));
        client.mutex("first").lock().await.unwrap().release().await.unwrap();
        let stalled = if one.commands().is_empty() { &other } else { &one };
        stalled.silent(true);
        let tasks: Vec<_> = (0..each)
            .map(|i| {
                // By a lease of their own: what changes another one's epoch does not help them.
                let name = |part: &str| client.mutex(format!("late-{round}-{i}{part}")).ttl(50 * SEC);
                let (lock, both) = (name(""), (round % 2 == 1).then(|| MultiLock::new([name(""), name("-too")])));
                tokio::spawn(async move {
                    let attempt = async {
                        match both {
                            Some(both) => drop(both.lock().await),
                            None => drop(lock.lock().await),
                        }
                    };
                    tokio::time::timeout(SEC / 10, attempt).await.is_ok()
                })
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
        let began = Instant::now();
        // They arrive now, if they do: whoever looks meanwhile sees none that stays.
        while began.elapsed() < SEC {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        clean(&etcd).await;
    }
    client.mutex("last").lock().await.unwrap().release().await.unwrap();
    bar("etcd: claims that arrive after they were taken back: left", format!("0 of {}", rounds * each), "0", true);
}

/// The runtime of those who ask is gone while their commands are on the way. What becomes of them is seen to elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_runtime_is_gone_leaves_nothing() {
    let (etcd, panics) = (Etcd::start(), panics());
    let proxy = in_front_of(&etcd);
    let client = through(&[&proxy]).await;
    client.mutex("first").lock().await.unwrap().release().await.unwrap();
    for round in 0..if full() { 50 } else { 5 } {
        proxy.delay(Duration::from_millis(fastrand::u64(0..40)));
        tokio::task::block_in_place(|| abandon(&client, Duration::from_millis(10 * (round % 6))));
        proxy.delay(Duration::ZERO);
        clean(&etcd).await;
    }
    assert_eq!(panics(), 0);
}

/// An acquire whose answer is lost, and whose client vanishes then: what it has written goes with its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_leaves_nothing_when_its_lease_is_over() {
    let (etcd, clients, each) = (Etcd::start(), if full() { 25 } else { 2 }, 40);
    let mut all = Vec::new();
    for n in 0..clients {
        let proxy = in_front_of(&etcd);
        let client = lasting(&[&proxy], 5 * SEC).await;
        client.mutex(format!("first{n}")).lock().await.unwrap().release().await.unwrap();
        all.push((proxy, client));
    }
    let (mut waits, nowhere) = (Vec::new(), Port::free());
    for (proxy, client) in &all {
        // Its words arrive, and nothing comes back: as many as a server takes that has not said that it takes more.
        proxy.mute_all();
        // A connection that it makes meanwhile is none.
        proxy.lead_to(([127, 0, 0, 1], nowhere.number()).into());
        waits.extend((0..each).map(|i| {
            let lock = client.mutex(format!("vanished{i}"));
            tokio::spawn(async move { lock.lock().await })
        }));
    }
    // Two keys each: its place, and who it is.
    let there = || tokio::task::block_in_place(|| traces(&etcd)).len();
    fencelock_conformance::eventually("they arrive", || async { there() == 2 * clients * each }).await;
    all.iter().for_each(|(proxy, _)| proxy.silent(true));
    let began = Instant::now();
    clean(&etcd).await;
    let took = began.elapsed();
    bar(
        &format!(
            "etcd: {} acquires whose answers are lost, of clients that vanish: what they wrote is gone after",
            clients * each
        ),
        format!("{took:?}"),
        "<= ttl (5 s) + 750 ms",
        took <= 5 * SEC + Duration::from_millis(750),
    );
    for wait in waits {
        wait.abort();
        assert!(!matches!(wait.await, Ok(Ok(_))), "nobody was told that he has it");
    }
}
