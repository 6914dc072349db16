//! `wait=spin`: whoever waits looks by himself, less often as time goes by and not at the same times as the others, and has the lock soon
//! after it is free; alone, behind sentinels and in a cluster, in each layout.
//!
//! Planted to see them go red: naps that do not grow; a spinner that takes a place in the queue.
#![allow(clippy::unwrap_used, clippy::significant_drop_tightening, reason = "a test fails where it unwraps")]
mod common;
use common::{
    failovers::{connect_to, many_threads},
    *,
};
use fencelock_conformance::proxy::Trouble;
use fencelock_core::{Client, Ordering, Waiting};
use fencelock_testkit::{Redis, RedisCluster, Sentinels};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// What makes a URL one of each layout, with the script by which it claims.
const LAYOUTS: [(&str, &str); 3] = [
    ("wait=spin", "acquire"),
    ("wait=spin&layout=plain&template=p:{}", "plain_acquire"),
    ("wait=spin&layout=redisson&template=r:{}", "redisson_acquire"),
];
fn spins(client: &Client) {
    let can = &client.info().capabilities;
    assert_eq!((can.waiting, can.ordering), (Waiting::Poll, Ordering::Any));
    assert!(client.info().url.as_ref().unwrap().contains("wait=spin"));
}

/// Eight waiters of eight clients: when each of them looked.
#[test]
fn each_looks_within_bounds_and_at_times_of_his_own() {
    for (query, script) in LAYOUTS {
        let server = Redis::start();
        let (proxy, url) = proxied(&server);
        let call = call(script);
        runtime().block_on(async {
            let owner = client(&format!("{}?{query}", server.url())).await;
            let held = owner.mutex("x").ttl(60 * SEC).lock().await.unwrap();
            // By its hold id, which each look has and nobody else.
            let looks = Arc::new(Mutex::new(HashMap::<Vec<u8>, Vec<Instant>>::new()));
            let seen = looks.clone();
            proxy.rule(move |command| {
                if command.windows(call.len()).any(|part| part == call.as_bytes()) {
                    let who = hold_in(command);
                    seen.lock().unwrap().entry(who).or_default().push(Instant::now());
                }
                Trouble::None
            });
            let mut waiters = Vec::new();
            for _ in 0..8 {
                let c = client(&format!("{url}?{query}")).await;
                spins(&c);
                waiters.push(tokio::spawn(async move { c.mutex("x").lock().await.unwrap().release().await }));
            }
            tokio::time::sleep(8 * SEC).await;
            let all = looks.lock().unwrap().clone();
            assert_eq!(all.len(), 8, "{query}");
            let (mut gaps, mut early, mut late) = (Vec::new(), 0, 0);
            for times in all.values() {
                let (first, last) = (times[0], *times.last().unwrap());
                let within = |from: u32, to: u32| {
                    let range = from * SEC..to * SEC;
                    times.iter().filter(|at| range.contains(&(**at - first))).count()
                };
                early = early.max(within(0, 2));
                late = late.max(within(6, 8));
                assert!(within(0, 2) <= 100 && within(6, 8) <= 20, "{query}: {} {}", within(0, 2), within(6, 8));
                assert!(within(0, 2) > within(6, 8) && within(6, 8) > 0, "{query}: it looks less often, and goes on");
                assert!(last - first > 5 * SEC);
                gaps.push(times.windows(2).map(|two| (two[1] - two[0]).as_millis()).collect::<Vec<_>>());
            }
            // Each sleeps differently long each time, and no two of them alike.
            for (n, gap) in gaps.iter().enumerate() {
                let later = &gap[gap.len() / 2..];
                assert!(later.iter().max().unwrap() - later.iter().min().unwrap() >= 5, "{query}: {later:?}");
                assert!(gaps.iter().skip(n + 1).all(|other| other != gap), "{query}: in step");
            }
            println!(
                "MEASURED | redis {query}: looks of one waiter in 2 s, at first and after 6 s, most of 8 | {early}, {late} | <= 100, 20 | ok"
            );
            // None is forgotten.
            held.release().await.unwrap();
            for waiter in waiters {
                soon(waiter).await.unwrap().unwrap();
            }
            assert!(!owner.inspect("x").await.unwrap().is_held());
        });
    }
}
/// The hold id of a claim: thirty-two digits, or a UUID of Redisson's.
fn hold_in(command: &[u8]) -> Vec<u8> {
    let digits = |word: &&[u8]| {
        let word = word.strip_suffix(b":0").unwrap_or(word);
        let n = word.iter().filter(|byte| byte.is_ascii_hexdigit()).count();
        n == 32 && word.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
    };
    command.split(|byte| b"\r\n".contains(byte)).find(digits).unwrap().to_vec()
}

/// A number that nobody increases in one step; nobody sleeps on when it is free, and nobody stands in a queue.
async fn no_wake_up_is_lost(url: &str) {
    let (count, rounds) = (Arc::new(AtomicU32::new(0)), if full() { 100 } else { 15 });
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (c, count) = (connect_to(url).await, count.clone());
        spins(&c);
        tasks.push(tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            for _ in 0..rounds {
                let began = Instant::now();
                let guard = c.mutex("counter").ttl(60 * SEC).lock().await.unwrap();
                longest = longest.max(began.elapsed());
                let before = count.load(SeqCst);
                tokio::time::sleep(MS).await;
                count.store(before + 1, SeqCst);
                assert!(c.inspect("counter").await.unwrap().waiters.is_empty());
                guard.release().await.unwrap();
            }
            longest
        }));
    }
    for task in tasks {
        // Nobody waited for a lease of a minute to end.
        assert!(tokio::time::timeout(60 * SEC, task).await.unwrap().unwrap() < 30 * SEC, "{url}");
    }
    assert_eq!(count.load(SeqCst), 4 * rounds, "{url}");
    // A short wait is not made longer by the time between two looks.
    let (a, b) = (connect_to(url).await, connect_to(url).await);
    let held = a.mutex("counter").lock().await.unwrap();
    let began = Instant::now();
    assert!(b.mutex("counter").try_lock_for(100 * MS).await.unwrap().is_err());
    assert!(began.elapsed() >= 100 * MS && began.elapsed() < 10 * SEC);
    held.release().await.unwrap();
    // Each kind that the layout has.
    if a.info().capabilities.read_write {
        let writer = a.rw_lock("rw").write().await.unwrap();
        let lock = b.rw_lock("rw");
        let reader = tokio::spawn(async move { lock.read().await.unwrap() });
        tokio::time::sleep(100 * MS).await;
        writer.release().await.unwrap();
        soon(reader).await.unwrap().release().await.unwrap();
    }
}
#[test]
fn no_wake_up_is_lost_alone() {
    let server = Redis::start();
    many_threads().block_on(async {
        for (query, _) in LAYOUTS {
            no_wake_up_is_lost(&format!("{}?{query}", server.url())).await;
        }
    });
}
#[test]
fn no_wake_up_is_lost_behind_sentinels() {
    let servers = Sentinels::start();
    many_threads().block_on(async {
        for (query, _) in LAYOUTS {
            no_wake_up_is_lost(&format!("redis+sentinel://{}/{}?{query}", servers.endpoints(), servers.name())).await;
        }
    });
}
#[test]
fn no_wake_up_is_lost_in_a_cluster() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        for (query, _) in LAYOUTS {
            no_wake_up_is_lost(&format!("redis+cluster://{}?{query}", servers.endpoints())).await;
        }
    });
}

/// Its looks break off, come late and come twice, and the server goes away: what a look was granted stays its own, until it is given back.
#[test]
fn looks_that_break_off_end_no_hold() {
    for (query, script) in LAYOUTS {
        let server = Redis::start();
        let (proxy, url) = proxied(&server);
        runtime().block_on(async {
            let (c, other) =
                (client(&format!("{url}?{query}")).await, client(&format!("{}?{query}", server.url())).await);
            for trouble in [Trouble::LoseReply, Trouble::Twice, Trouble::Lose, Trouble::Late(200 * MS)] {
                let held = other.mutex("x").ttl(60 * SEC).lock().await.unwrap();
                let met = first(&proxy, script, 4, trouble);
                // A look that came through found it busy, after those that broke off.
                let mut next = c.mutex("x").ttl(60 * SEC).lock();
                soon(async {
                    while met.load(SeqCst) < 4 || next.blocked_by().is_none() {
                        assert!(tokio::time::timeout(5 * MS, &mut next).await.is_err(), "{query} {trouble:?}");
                    }
                })
                .await;
                held.release().await.unwrap();
                let guard = soon(next).await.unwrap();
                proxy.calm();
                // Longer than anything of its earlier looks may come, or is swept up.
                tokio::time::sleep(2_500 * MS).await;
                guard.check().unwrap();
                let status = other.inspect("x").await.unwrap();
                assert_eq!((status.holders.len(), status.holders[0].hold), (1, guard.id()), "{query} {trouble:?}");
                guard.release().await.unwrap();
                eventually("nothing is left", || async { !other.inspect("x").await.unwrap().is_held() }).await;
            }
            // Once he waits an outage is survived.
            let held = other.mutex("y").ttl(60 * SEC).lock().await.unwrap();
            let next = tokio::spawn(c.mutex("y").lock());
            tokio::time::sleep(300 * MS).await;
            server.kill();
            tokio::time::sleep(SEC).await;
            assert!(!next.is_finished(), "{query}");
            assert!(server.restart());
            soon(next).await.unwrap().unwrap().release().await.unwrap();
            drop(held.release().await);
        });
    }
}
