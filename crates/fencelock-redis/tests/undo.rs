//! Attempts that are given up while their commands are lost, late or doubled, their connections cut and the server stalled: what is
//! left of one ends with the attempt, long before its lease would (SAFETY A2, A3).
//!
//! Planted to see it go red: a withdrawal that is not repeated after the attempt's end.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::proxy::Trouble;
use fencelock_core::{Client, Page};
use fencelock_testkit::{Redis, abandon, panics};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// So long a lease would last.
const TTL: Duration = Duration::from_secs(60);
/// Attempts at a time, on a fifth as many names.
const BATCH: usize = 250;

/// As if by dice, from a counter: the same in each run as far as the order of commands is.
fn dice(seed: &AtomicU64) -> u64 {
    let mut x = seed.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// How long it takes until nothing is left.
async fn clean(operator: &Client) -> Duration {
    let began = Instant::now();
    loop {
        let left = operator.list("undo", &Page::default()).await.unwrap().items;
        if left.is_empty() {
            return began.elapsed();
        }
        let name = &left[0].name;
        assert!(began.elapsed() < TTL / 4, "{name} and {} more are left: {:?}", left.len() - 1, left[0]);
        tokio::time::sleep(10 * MS).await;
    }
}

#[test]
fn no_orphan_outlives_its_attempt() {
    orphans("native", "");
}
#[test]
fn nor_in_the_layout_plain() {
    orphans("plain", &format!("?{PLAIN}"));
}
#[test]
fn nor_in_the_layout_redisson() {
    orphans("redisson", "?layout=redisson");
}
fn orphans(layout: &str, query: &str) {
    let batches = if full() { 40 } else { 4 };
    let server = Arc::new(Redis::start());
    let seed = Arc::new(AtomicU64::new(1));
    runtime().block_on(async {
        let (proxy, url) = proxied(&server);
        let (c, operator) = (client(&(url + query)).await, client(&(server.url() + query)).await);
        let (mut longest, mut granted) = (Duration::ZERO, 0);
        for batch in 0..batches {
            let dices = seed.clone();
            proxy.rule(move |_| match dice(&dices) % 100 {
                0..3 => Trouble::LoseReply,
                3 => Trouble::Lose,
                4 => Trouble::Twice,
                n @ 5..8 => Trouble::Late(Duration::from_millis(60 * (n - 4))),
                _ => Trouble::None,
            });
            let done = Arc::new(AtomicBool::new(false));
            let (stalls, ended, dices) = (server.clone(), done.clone(), seed.clone());
            let stalls = std::thread::spawn(move || {
                while !ended.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(20 + dice(&dices) % 100));
                    stalls.pause(true);
                    std::thread::sleep(Duration::from_millis(dice(&dices) % 120));
                    stalls.pause(false);
                }
            });
            let tasks: Vec<_> = (0..BATCH)
                .map(|i| {
                    let lock = c.mutex(format!("undo/{batch}/{}", i % (BATCH / 5))).ttl(TTL);
                    let (patience, ways) = (Duration::from_micros(dice(&seed) % 150_000), dice(&seed));
                    tokio::spawn(async move {
                        // Dropped in the middle of it, if it is not granted in time.
                        let Ok(Ok(guard)) = tokio::time::timeout(patience, lock.lock()).await else { return false };
                        if ways.is_multiple_of(2) {
                            let _ = guard.release().await;
                        }
                        true
                    })
                })
                .collect();
            for (i, task) in tasks.into_iter().enumerate() {
                if i % 50 == 49 {
                    proxy.cut();
                }
                granted += usize::from(task.await.unwrap());
            }
            done.store(true, SeqCst);
            stalls.join().unwrap();
            proxy.calm();
            longest = longest.max(clean(&operator).await);
            assert_eq!(c.held(), 0);
        }
        assert!(granted > 0);
        let attempts = batches * BATCH;
        // The end of an attempt is four times the slowest recent answer after its last command, half a second at least.
        println!(
            "\nMEASURED | {layout}: attempts given up amid lost, late and doubled commands, cuts and stalls: what is left ends after | {longest:?} of {attempts} ({granted} granted) | <= 6 s | {}",
            if longest <= Duration::from_secs(6) { "ok" } else { "MISSED" }
        );
    });
}

/// The runtime of those who ask is gone while their commands are on the way. What becomes of them is seen to elsewhere.
#[test]
fn an_attempt_whose_runtime_is_gone_leaves_nothing() {
    let (server, panics) = (Redis::start(), panics());
    runtime().block_on(async {
        let (proxy, url) = proxied(&server);
        let (c, operator) = (client(&url).await, client(&server.url()).await);
        for round in 0..if full() { 50 } else { 5 } {
            proxy.delay(fastrand::u32(0..40) * MS);
            tokio::task::block_in_place(|| abandon(&c, 10 * MS * (round % 6)));
            proxy.delay(Duration::ZERO);
            clean(&operator).await;
        }
    });
    assert_eq!(panics(), 0);
}
