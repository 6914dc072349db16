//! A cluster at work: what a shard that is silent costs the others, slots that move with locks of others' layouts, and how many commands
//! there are.
//!
//! Planted to see it go red: connections that are waited for one after the other, for each key anew (a sixth of the ttl left).
#![allow(clippy::unwrap_used, clippy::significant_drop_tightening, reason = "a test fails where it unwraps")]
mod common;
use common::{
    failovers::{FAILOVER, connect_to, many_threads},
    replicated::Replicated,
    *,
};
use fencelock_core::{Client, Guard, LossReason};
use fencelock_testkit::{
    RedisCluster, RedisClusterOptions,
    processes::{bar, full, percentile, tenth},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

async fn taken(c: &Client, many: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for n in 0..many {
        guards.push(c.mutex(format!("x{n}")).lock().await.unwrap());
    }
    guards
}

/// One shard answers nothing, the others have not noticed, and its connections stay open or are accepted: the others' locks are
/// renewed in time all the while.
#[test]
fn a_shard_that_is_silent() {
    let settings = vec!["cluster-require-full-coverage no".to_owned()];
    let servers =
        RedisCluster::with(RedisClusterOptions { settings, node_timeout: 15 * SEC, ..RedisClusterOptions::default() });
    many_threads().block_on(async {
        let ttl = 6 * SEC;
        let c = connect_to(&servers.url("ttl=6s")).await;
        let guards = taken(&c, tenth(10_000)).await;
        let primary = servers.primary_of(servers.slot("fl:x0")).unwrap();
        let slots: Vec<_> = guards.iter().map(|guard| servers.slot(&format!("fl:{}", guard.name()))).collect();
        let mut of = std::collections::BTreeMap::new();
        for slot in &slots {
            of.entry(*slot).or_insert_with(|| servers.primary_of(*slot).unwrap());
        }
        let (there, here): (Vec<_>, Vec<_>) =
            guards.into_iter().zip(&slots).partition(|(_, slot)| of[*slot] == primary);
        assert!(there.len() > 100 && here.len() > 100);
        let silent: Vec<_> = servers.replicas_of(primary).into_iter().chain([primary]).collect();
        silent.iter().for_each(|node| servers.pause(*node, true));
        let (began, mut least) = (Instant::now(), ttl);
        while began.elapsed() < 3 * ttl {
            tokio::time::sleep(20 * MS).await;
            let lost = here.iter().filter(|(guard, _)| guard.check().is_err()).count();
            assert_eq!(lost, 0, "{lost} of {} that lie elsewhere, after {:?}", here.len(), began.elapsed());
            least = least.min(here.iter().map(|(guard, _)| guard.remaining()).min().unwrap());
        }
        for (guard, _) in &there {
            assert_eq!(soon(guard.lost()).await, LossReason::Unreachable);
        }
        let figure = format!("{least:?} of {ttl:?} for {} of them", here.len());
        let what = "Cluster: the least that a lock of the other shards had left while one was silent";
        bar(what, figure, ">= half", least >= ttl / 2);
        for (guard, _) in here {
            guard.release().await.unwrap();
        }
        silent.iter().for_each(|node| servers.pause(*node, false));
    });
}

/// How often the nodes have said this.
fn said(servers: &RedisCluster, error: &str) -> u64 {
    let count = |node| {
        let stats = servers.ask(node, &["INFO", "errorstats"]).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{error}:count=")));
        line.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    (0..3).map(count).sum()
}
/// What has several keys meets `TRYAGAIN` while some of them are here and some are there: what is held is asked for again, and who wants
/// the lock waits.
#[test]
fn keys_that_lie_apart_while_a_slot_moves() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let url = servers.url("ttl=6s&layout=redisson");
        let (a, b) = (connect_to(&url).await, connect_to(&url).await);
        let slot = servers.slot("{t}");
        let to = (servers.primary_of(slot).unwrap() + 1) % 3;
        // Its last token stays.
        a.mutex("{t}free").lock().await.unwrap().release().await.unwrap();
        let held = a.mutex("{t}held").lock().await.unwrap();
        let lost = held.lost();
        assert_eq!(said(&servers, "TRYAGAIN"), 0);
        let moving = servers.move_slot(slot, to);
        let next = tokio::spawn(b.mutex("{t}free").lock());
        eventually("it has met it", || std::future::ready(said(&servers, "TRYAGAIN") > 0)).await;
        assert!(!next.is_finished());
        moving.finish(FAILOVER);
        soon(next).await.unwrap().unwrap().release().await.unwrap();
        // Back again. The lock goes first, and what stands beside it stays for a while: for a renewal, or two.
        let back = servers.move_slot(slot, (to + 2) % 3);
        back.move_these(&["{t}held"]);
        let before = said(&servers, "TRYAGAIN");
        eventually("a renewal has met it", || std::future::ready(said(&servers, "TRYAGAIN") > before)).await;
        held.check().unwrap();
        back.finish(FAILOVER);
        for _ in 0..2 {
            soon(held.renewed()).await;
        }
        held.check().unwrap();
        assert!(b.mutex("{t}held").try_lock().await.unwrap().is_err());
        held.release().await.unwrap();
        assert!(tokio::time::timeout(MS, lost).await.is_err(), "released, not lost");
    });
}
/// In the layouts of others: slots move with what is held, what is waited for and what is taken meanwhile. Nothing is lost, and nobody
/// meets an error.
fn locks_of_others(keys: &str, key: impl Fn(&str) -> String) {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let (many, url) = (tenth(100), servers.url(&format!("ttl=4s&{keys}")));
        let (a, b) = (connect_to(&url).await, connect_to(&url).await);
        let (guards, stop) = (taken(&a, many).await, Arc::<AtomicBool>::default());
        let waits: Vec<_> = (0..many).map(|n| tokio::spawn(b.mutex(format!("x{n}")).lock())).collect();
        let mut workers = JoinSet::new();
        for worker in 0..2 {
            let (b, stop) = (b.clone(), stop.clone());
            workers.spawn(async move {
                let mut pairs = 0;
                while !stop.load(SeqCst) {
                    let guard = b.mutex(format!("free{}/{worker}", pairs % 10)).lock().await.unwrap();
                    guard.release().await.unwrap();
                    pairs += 1;
                }
                pairs
            });
        }
        let mut slots: Vec<u16> = (0..many).map(|n| servers.slot(&key(&format!("x{n}")))).collect();
        slots.extend((0..10).map(|n| servers.slot(&key(&format!("free{n}/0")))));
        let (began, mut moves) = (Instant::now(), 0);
        for slot in slots.iter().cycle() {
            if moves >= slots.len() && began.elapsed() >= 8 * SEC {
                break;
            }
            moves += 1;
            let from = servers.primary_of(*slot).unwrap();
            servers.move_slot(*slot, (from + 1) % 3).finish(FAILOVER);
        }
        stop.store(true, SeqCst);
        let mut pairs = 0;
        while let Some(worker) = soon(workers.join_next()).await {
            pairs += worker.unwrap();
        }
        let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
        assert!(waits.iter().all(|wait| !wait.is_finished()), "beside who holds it, or told an error");
        for (guard, wait) in guards.into_iter().zip(waits) {
            guard.release().await.unwrap();
            soon(wait).await.unwrap().unwrap().release().await.unwrap();
        }
        let figure = format!("{lost} of {many} lost over {moves} moves, {pairs} other pairs without an error");
        bar(&format!("Cluster, {keys}: held locks while their slots move"), figure, "none, no error", lost == 0);
        assert!(lost == 0 && pairs > 10);
    });
}
#[test]
fn plain_locks_whose_slots_move() {
    locks_of_others("layout=plain&template=lock:{}", |name| format!("lock:{name}"));
}
#[test]
fn redisson_locks_whose_slots_move() {
    locks_of_others("layout=redisson", str::to_owned);
}

/// Commands of clients since the last call: scripts, and all. What a script calls is none of these.
fn commands(servers: &RedisCluster) -> (u64, u64) {
    const SCRIPTS: [&str; 2] = ["evalsha", "eval"];
    const OTHERS: [&str; 5] = ["ssubscribe", "sunsubscribe", "ping", "asking", "script|load"];
    let (mut scripts, mut all) = (0, 0);
    for node in 0..3 {
        let stats = servers.ask(node, &["INFO", "commandstats"]).unwrap();
        let calls = |word: &&str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{word}:calls=")));
            line.map_or(0, |calls| calls.split(',').next().unwrap().parse::<u64>().unwrap())
        };
        let of_scripts: u64 = SCRIPTS.iter().map(calls).sum();
        (scripts, all) = (scripts + of_scripts, all + of_scripts + OTHERS.iter().map(calls).sum::<u64>());
        servers.ask(node, &["CONFIG", "RESETSTAT"]).unwrap();
    }
    (scripts, all)
}
/// As on one server: the claim, the confirm of the hand-over, the release; signs of life come apart, once a second and more.
#[test]
fn no_more_commands_for_each_grant_than_on_one_server() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        for waiters in [2_u64, 16, 32] {
            let (holds, mut clients) = (6, Vec::new());
            for n in 0..waiters {
                let c = connect_to(&servers.url("ttl=30s")).await;
                c.mutex(format!("warm{n}")).lock().await.unwrap().release().await.unwrap();
                clients.push(c);
            }
            commands(&servers);
            let (began, mut tasks) = (Instant::now(), JoinSet::new());
            for c in &clients {
                let lock = c.mutex(format!("x{waiters}"));
                tasks.spawn(async move {
                    for _ in 0..holds {
                        let guard = lock.lock().await.unwrap();
                        tokio::time::sleep(MS).await;
                        guard.release().await.unwrap();
                    }
                });
            }
            while let Some(task) = tasks.join_next().await {
                task.unwrap();
            }
            let took = began.elapsed();
            let (scripts, all) = commands(&servers);
            let (grants, signs) = (waiters * holds, waiters * (took.as_secs() + 1));
            assert!(scripts >= 2 * grants, "{scripts} scripts for {grants} grants: they are not counted");
            assert!(scripts <= 4 * grants + signs, "{scripts} scripts for {grants} grants in {took:?}");
            // A subscription for each who waits, with its end, and a connection for it.
            assert!(all <= 4 * grants + signs + 6 * waiters, "{all} commands for {grants} grants in {took:?}");
            #[allow(clippy::cast_precision_loss, reason = "a figure")]
            let figure = format!("{:.2} scripts", (scripts - signs.min(scripts)) as f64 / grants as f64);
            bar(&format!("Cluster: commands for each contended grant, {waiters} clients"), figure, "<= 4", true);
        }
    });
}
#[test]
fn who_waits_idle_in_a_cluster_says_no_more_than_a_word_a_second() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let holder = connect_to(&servers.url("ttl=60s")).await;
        let guard = holder.mutex("x").lock().await.unwrap();
        let mut waits = Vec::new();
        for _ in 0..16 {
            let c = connect_to(&servers.url("ttl=3s")).await;
            waits.push(tokio::spawn(async move { c.mutex("x").lock().await.unwrap().release().await }));
        }
        queued(&holder, "x", 16).await;
        // Who listens has asked for the last time that it had to.
        let slot = servers.slot("fl:x");
        let node = servers.primary_of(slot).unwrap();
        let listen = || servers.ask(node, &["PUBSUB", "SHARDCHANNELS"]).unwrap().lines().count() >= 16;
        eventually("they listen", || std::future::ready(listen())).await;
        tokio::time::sleep(500 * MS).await;
        commands(&servers);
        let (began, span) = (Instant::now(), Duration::from_secs(if full() { 20 } else { 5 }));
        tokio::time::sleep(span).await;
        let (_, seen) = commands(&servers);
        let most = 16 * (began.elapsed().as_secs() + 1);
        assert!(seen >= 16 && seen <= most, "{seen} commands of 16 waiters in {span:?}, at most {most}");
        guard.release().await.unwrap();
        for wait in waits {
            soon(wait).await.unwrap().unwrap();
        }
    });
}

/// One shard is gone with its replica: what lies on the others goes on for leases on end, and what lay there is told when its lease ends.
#[test]
fn a_shard_that_is_gone() {
    let settings = vec!["cluster-require-full-coverage no".to_owned()];
    let servers = RedisCluster::with(RedisClusterOptions { settings, ..RedisClusterOptions::default() });
    many_threads().block_on(async {
        let (many, ttl) = if full() { (100_000, 30) } else { (2_000, 4) };
        let c = connect_to(&servers.url(&format!("ttl={ttl}s"))).await;
        let slot = servers.slot("fl:x");
        let primary = servers.primary_of(slot).unwrap();
        let mut taken = JoinSet::new();
        for part in 0..16 {
            let c = c.clone();
            taken.spawn(async move {
                let mut guards = Vec::new();
                for n in (part..many).step_by(16) {
                    guards.push(c.mutex(format!("x{n}")).lock().await.unwrap());
                }
                guards
            });
        }
        let mut guards = Vec::new();
        while let Some(some) = taken.join_next().await {
            guards.extend(some.unwrap());
        }
        let (there, here): (Vec<_>, Vec<_>) = guards.into_iter().partition(|guard| {
            servers_slot(guard.name().as_str()).is_some_and(|slot| servers.primary_of(slot) == Some(primary))
        });
        servers.replicas_of(primary).into_iter().for_each(|replica| servers.kill(replica));
        servers.kill(primary);
        let began = Instant::now();
        let leases = if full() { 10 } else { 3 };
        let mut lost = JoinSet::new();
        for guard in &there {
            let lost_at = guard.lost();
            lost.spawn(async move { (lost_at.await, Instant::now()) });
        }
        let mut slowest = Duration::ZERO;
        let mut least = ttl * SEC;
        let left = || here.iter().map(|guard| guard.remaining()).min().unwrap();
        while !lost.is_empty() {
            while let Ok(Some(told)) = tokio::time::timeout(100 * MS, lost.join_next()).await {
                let (reason, at) = told.unwrap();
                assert_eq!(reason, LossReason::Unreachable);
                slowest = slowest.max(at - began);
            }
            least = least.min(left());
        }
        // Judged in full; else a machine that stands still tells it later.
        let late = if full() { 0 } else { 5 };
        assert!(slowest <= (ttl + late) * SEC, "{slowest:?}");
        while began.elapsed() < ttl * SEC * leases {
            tokio::time::sleep(200 * MS).await;
            least = least.min(left());
            let lost = here.iter().filter(|guard| guard.check().is_err()).count();
            assert_eq!(lost, 0, "{lost} of {} that lie elsewhere", here.len());
        }
        let mut times = Vec::new();
        for guard in here {
            let began = Instant::now();
            guard.release().await.unwrap();
            times.push(began.elapsed());
        }
        let figure =
            format!("0 of {} lost in {leases} leases; {} of it told within {slowest:?}", times.len(), there.len());
        bar("Cluster: locks of the other shards while one is gone", figure, "none", true);
        let what = "Cluster: the least that a lock of the other shards had left while one is gone";
        bar(what, format!("{least:?} of {ttl} s"), ">= half", least >= ttl * SEC / 2);
        println!("released, p99: {:?}", percentile(&mut times, 0.99));
        // A new one there: told in time.
        let began = Instant::now();
        let error = c.mutex("x").lock().await.unwrap_err();
        assert!(error.is_temporary() && began.elapsed() < 9 * SEC, "{error} after {:?}", began.elapsed());
    });
}
fn servers_slot(name: &str) -> Option<u16> {
    let key = format!("fl:{name}");
    Some(crc::Crc::<u16>::new(&crc::CRC_16_XMODEM).checksum(key.as_bytes()) % 16_384)
}
