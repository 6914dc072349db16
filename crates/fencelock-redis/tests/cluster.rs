//! A cluster: keys are found, also while their slots move, and a shard that goes takes nothing along but its own.
//!
//! Planted to see them go red: redirects not followed; braces that are not looked at; `ASK` followed without `ASKING`; a channel that all locks of a client share; a
//! view of the cluster that is never asked anew; a batch that fails as a whole; a key that is not here yet taken for one that is over, by a
//! release and by a renewal; replicas counted by another connection than the one that wrote; one idle connection of many broken ones forgotten; failovers: as behind
//! sentinels.
#![allow(clippy::unwrap_used, clippy::significant_drop_tightening, reason = "a test fails where it unwraps")]
mod common;
use common::{
    failovers::{self, FAILOVER, Rise, connect_to, many_threads},
    replicated::Replicated,
    *,
};
use fencelock_core::{ErrorKind, LossReason, Released};
use fencelock_redis::RedisEngine;
use fencelock_testkit::{
    RedisCluster, RedisClusterOptions, WallClock,
    processes::{bar, full, tenth},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// The replicas' clocks are so much behind.
fn behind(by: Duration) -> RedisCluster {
    let behind = Arc::new(WallClock::new());
    behind.step(by, false);
    let clocks = (0..6).map(|n| (n > 2).then(|| behind.clone())).collect();
    RedisCluster::with(RedisClusterOptions { clocks, ..RedisClusterOptions::default() })
}

#[test]
fn the_primary_is_killed_again_and_again() {
    failovers::killed(&RedisCluster::start(), "", "Cluster, clocks alike", tenth(20), Rise::ForEverybody);
}
#[test]
fn the_same_in_the_layout_plain() {
    let keys = "&layout=plain&template=fl:{}";
    failovers::killed(&RedisCluster::start(), keys, "Cluster, plain", tenth(10).max(2), Rise::ForEverybody);
}
#[test]
fn the_same_in_the_layout_redisson() {
    let keys = "&layout=redisson&template=fl:{}";
    failovers::killed(&RedisCluster::start(), keys, "Cluster, redisson", tenth(10).max(2), Rise::ForEverybody);
}
/// A failover takes longer.
#[test]
fn replicas_whose_clocks_are_a_little_behind() {
    let what = "Cluster, replicas 0.5 s behind";
    failovers::killed(&behind(500 * MS), "", what, tenth(20), Rise::ForEverybody);
}
#[test]
fn replicas_whose_clocks_are_far_behind() {
    (0..tenth(10)).for_each(|_| failovers::far_behind(&behind(60 * SEC)));
}
#[test]
fn the_primary_is_killed_and_clocks_are_far_behind() {
    let what = "Cluster, replicas 60 s behind";
    failovers::killed(&behind(60 * SEC), "", what, tenth(20), Rise::ForWhoWasThere);
}
#[test]
fn what_a_failover_loses_is_told_at_once() {
    failovers::lost(&RedisCluster::start(), "Cluster");
}
/// Keys of others, with whatever braces: each where it belongs, its waiters and its holder told, and a signal that lies beside it.
#[test]
fn keys_of_others_lie_where_they_do() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let keys = "ttl=5s&layout=plain&template=lock:{}";
        let (a, b) = (connect_to(&servers.url(keys)).await, connect_to(&servers.url(keys)).await);
        let ask = |key: &str, words: &[&str]| {
            let node = servers.primary_of(servers.slot(key)).unwrap();
            servers.ask(node, words).unwrap()
        };
        let odd = ["{", "}", "{}x", "{a}b", "a{b", "a b", "{a}{b}", "%7B", "\u{1F512}"];
        let names: Vec<_> = odd.iter().map(|name| (*name).to_owned()).chain((0..50).map(|n| format!("x{n}"))).collect();
        let mut guards = Vec::new();
        for name in &names {
            let guard = a.mutex(name.clone()).lock().await.unwrap();
            let value = ask(&format!("lock:{name}"), &["GET", &format!("lock:{name}")]);
            assert!(value.starts_with(&guard.id().to_string()), "{name}: {value}");
            assert!(b.mutex(name.clone()).try_lock().await.unwrap().is_err());
            guards.push(guard);
        }
        let mut page = fencelock_core::Page { limit: 7, ..fencelock_core::Page::default() };
        let mut seen = std::collections::BTreeSet::new();
        loop {
            let listing = b.list("", &page).await.unwrap();
            seen.extend(listing.items.into_iter().map(|status| status.name.as_str().to_owned()));
            match listing.next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, names.iter().cloned().collect());
        // Each is renewed where it is.
        let ends: Vec<_> = guards.iter().map(|guard| guard.valid_until()).collect();
        eventually("renewed", || async { guards.iter().zip(&ends).all(|(guard, end)| guard.valid_until() > *end) })
            .await;
        for (n, guard) in guards.into_iter().enumerate() {
            let name = names[n].clone();
            if n % 3 == 0 {
                let (lost, key) = (guard.lost(), format!("lock:{name}"));
                let began = Instant::now();
                assert_eq!(ask(&key, &["DEL", &key]), "1");
                assert_eq!(soon(lost).await, LossReason::TakenOver, "{name}");
                assert!(!full() || began.elapsed() <= 250 * MS, "{name}: told after {:?}", began.elapsed());
                continue;
            }
            let lock = b.mutex(name);
            let next = tokio::spawn(async move { lock.lock().await.unwrap() });
            tokio::time::sleep(20 * MS).await;
            guard.release().await.unwrap();
            soon(next).await.unwrap().release().await.unwrap();
        }
        let keys = "ttl=5s&layout=plain&template=lock:{{}}&signal=lock-signal:{{}}";
        let c = connect_to(&servers.url(keys)).await;
        for n in 0..20 {
            c.mutex(format!("s{n}")).lock().await.unwrap().release().await.unwrap();
            let signal = format!("lock-signal:{{s{n}}}");
            assert_eq!(ask(&signal, &["LLEN", &signal]), "1");
        }
    });
}
/// Redisson's: what stands beside a lock lies with it, and a name that would tear them apart is refused.
#[test]
fn what_redisson_keeps_beside_a_lock_lies_with_it() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let keys = "ttl=5s&layout=redisson";
        let (a, b) = (connect_to(&servers.url(keys)).await, connect_to(&servers.url(keys)).await);
        for name in ["a{b", "{", "}", "{}x", "a}b"] {
            let error = a.mutex(name).try_lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{name}: {error}");
        }
        let odd = ["a b", "{a}b", "order:{42}", "%7B", "\u{1F512}"];
        let names: Vec<_> = odd.iter().map(|name| (*name).to_owned()).chain((0..30).map(|n| format!("x{n}"))).collect();
        let mut guards = Vec::new();
        for name in &names {
            guards.push(a.mutex(name.clone()).lock().await.unwrap());
        }
        let items = b.list("", &fencelock_core::Page::default()).await.unwrap().items;
        assert_eq!(items.len(), names.len());
        let ends: Vec<_> = guards.iter().map(|guard| guard.valid_until()).collect();
        eventually("renewed", || async { guards.iter().zip(&ends).all(|(guard, end)| guard.valid_until() > *end) })
            .await;
        for (name, guard) in names.iter().zip(guards) {
            if name.ends_with('3') {
                let lost = guard.lost();
                let node = servers.primary_of(servers.slot(name)).unwrap();
                assert_eq!(servers.ask(node, &["DEL", name]).unwrap(), "1");
                assert_eq!(soon(lost).await, LossReason::TakenOver, "{name}");
                continue;
            }
            let next = tokio::spawn(b.mutex(name.clone()).lock());
            tokio::time::sleep(20 * MS).await;
            guard.release().await.unwrap();
            let next = soon(next).await.unwrap().unwrap();
            assert!(next.token().get() > 0);
            next.release().await.unwrap();
            let writer = a.rw_lock(name.clone()).write().await.unwrap();
            let waits = tokio::spawn(b.rw_lock(name.clone()).read());
            tokio::time::sleep(20 * MS).await;
            let reader = writer.downgrade().await.unwrap();
            soon(waits).await.unwrap().unwrap().release().await.unwrap();
            reader.release().await.unwrap();
        }
    });
}
/// Locks of every kind of name, each where its key belongs, seen through whichever node.
#[test]
fn names_lie_where_their_keys_do() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let (a, b) = (
            connect_to(&servers.url("ttl=5s")).await,
            connect_to(&format!("redis+cluster://127.0.0.1:{}", servers.port(4))).await,
        );
        let long = "n".repeat(512);
        let odd = ["{", "}", "{}x", "{a}b", "a{b", "a b", "%7B", "\u{1F512}", &long];
        let mut guards = Vec::new();
        for name in odd.iter().map(|name| (*name).to_owned()).chain((0..100).map(|n| format!("x{n}"))) {
            let guard = a.mutex(name.clone()).lock().await.unwrap();
            assert!(b.mutex(name).try_lock().await.unwrap().is_err());
            guards.push(guard);
        }
        let mut page = fencelock_core::Page { limit: 7, ..fencelock_core::Page::default() };
        let mut seen = std::collections::BTreeSet::new();
        loop {
            let listing = b.list("", &page).await.unwrap();
            assert!(listing.items.len() <= 7);
            seen.extend(listing.items.into_iter().map(|status| status.name.as_str().to_owned()));
            match listing.next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen.len(), guards.len(), "{seen:?}");
        for guard in guards {
            guard.release().await.unwrap();
        }
        // The wake-up goes to one shard alone.
        let guard = a.mutex("x").lock().await.unwrap();
        let lock = b.mutex("x");
        let next = tokio::spawn(async move { lock.lock().await.unwrap() });
        queued(&a, "x", 1).await;
        let listens = |n: &usize| !servers.ask(*n, &["PUBSUB", "SHARDCHANNELS"]).unwrap().trim().is_empty();
        eventually("it listens", || std::future::ready((0..6).any(|n| listens(&n)))).await;
        guard.release().await.unwrap();
        soon(next).await.unwrap().release().await.unwrap();
        let calls =
            |word: &str| (0..6).filter(|n| servers.ask(*n, &["INFO", "commandstats"]).unwrap().contains(word)).count();
        assert_eq!((calls("cmdstat_publish:"), calls("cmdstat_spublish:")), (0, 1));
    });
}
/// In slots of different servers, and each where its key is.
#[test]
fn every_kind_of_lock() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let (a, b) = (connect_to(&servers.url("ttl=5s")).await, connect_to(&servers.url("ttl=5s")).await);
        for round in 0..12 {
            let name = |what: &str| format!("{what}{round}");
            let rw = (a.rw_lock(name("rw")), b.rw_lock(name("rw")));
            let (one, two) = (rw.0.read().await.unwrap(), rw.1.read().await.unwrap());
            assert!(rw.0.try_write().await.unwrap().is_err());
            one.release().await.unwrap();
            two.release().await.unwrap();
            let write = rw.0.write().await.unwrap();
            assert!(rw.1.try_read().await.unwrap().is_err());
            let read = write.downgrade().await.unwrap();
            rw.1.read().await.unwrap().release().await.unwrap();
            read.release().await.unwrap();
            let permits = (a.semaphore(name("s"), 3), b.semaphore(name("s"), 3));
            let two = permits.0.acquire(2).await.unwrap();
            assert!(permits.1.try_acquire(2).await.unwrap().is_err());
            permits.1.acquire(1).await.unwrap().release().await.unwrap();
            two.release().await.unwrap();
            let both = fencelock_core::MultiLock::new([a.mutex(name("x")), a.mutex(name("y")), a.mutex(name("z"))]);
            let all = both.lock().await.unwrap();
            assert!(b.mutex(name("y")).try_lock().await.unwrap().is_err());
            all.release().await.unwrap();
        }
    });
}
#[test]
fn seeds_that_lead_nowhere() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let nowhere = fencelock_testkit::Port::free();
        let error = RedisEngine::from_url(&format!("redis+cluster://127.0.0.1:{nowhere}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        let c = connect_to(&format!("redis+cluster://127.0.0.1:{nowhere},127.0.0.1:{}", servers.port(5))).await;
        c.mutex("x").lock().await.unwrap().release().await.unwrap();
        // One that stands alone, and is told as what it is; and the other way round.
        let alone = fencelock_testkit::Redis::start();
        let error = RedisEngine::from_url(&alone.url().replace("redis:", "redis+cluster:")).await.unwrap_err();
        assert!(!error.is_temporary() && error.to_string().contains("cluster"), "{error}");
        let error = RedisEngine::from_url(&format!("redis://127.0.0.1:{}", servers.port(0))).await.unwrap_err();
        assert!(error.to_string().contains("redis+cluster://"), "{error}");
    });
}

/// A lock that is free costs one command to take and one to give back, as on one server.
#[test]
fn a_pair_is_two_commands() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let c = connect_to(&servers.url("ttl=30s")).await;
        let pair = |name: String| async { c.mutex(name).lock().await.unwrap().release().await.unwrap() };
        // Connections are made, scripts are loaded.
        for n in 0..100 {
            pair(format!("warm{n}")).await;
        }
        (0..3).for_each(|node| drop(servers.ask(node, &["CONFIG", "RESETSTAT"]).unwrap()));
        for n in 0..100 {
            pair(format!("x{n}")).await;
        }
        let scripts = |node: usize| -> u64 {
            let said = servers.ask(node, &["INFO", "commandstats"]).unwrap();
            let evalsha = said.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
            evalsha.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
        };
        assert_eq!((0..3).map(scripts).sum::<u64>(), 200);
    });
}
/// Two renewals on end: the second one was sent later than this was called.
async fn renewed(held: &fencelock_core::Held) {
    for _ in 0..2 {
        soon(held.renewed()).await;
    }
    held.check().unwrap();
}
/// A slot is on its way: held locks are renewed, waiters get in, free ones are taken, whichever side has them.
#[test]
fn a_slot_that_moves() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let (a, b) = (connect_to(&servers.url("ttl=4s")).await, connect_to(&servers.url("ttl=4s")).await);
        // Its slot has this one name.
        let (name, slot) = ("moves", servers.slot("fl:moves"));
        let from = servers.primary_of(slot).unwrap();
        let to = (0..3).find(|n| *n != from).unwrap();
        let held = a.mutex(name).lock().await.unwrap();
        let lost = held.lost();
        let wait = |client: &fencelock_core::Client| {
            let lock = client.mutex(name);
            tokio::spawn(async move { lock.lock().await.unwrap() })
        };
        let next = wait(&b);
        queued(&a, name, 1).await;
        let moving = servers.move_slot(slot, to);
        // Still here, while what is not here is asked for there.
        renewed(&held).await;
        assert_eq!(moving.move_keys(1_000), 1);
        // There now, and the slot is not: ASK.
        renewed(&held).await;
        assert_eq!(b.inspect(name).await.unwrap().waiters.len(), 1);
        let began = Instant::now();
        held.release().await.unwrap();
        let second = soon(next).await.unwrap();
        let on_its_way = began.elapsed();
        let third = wait(&a);
        queued(&b, name, 1).await;
        moving.finish(FAILOVER);
        renewed(&second).await;
        let began = Instant::now();
        second.release().await.unwrap();
        let third = soon(third).await.unwrap();
        println!("handed over on its way after {on_its_way:?}, there after {:?}", began.elapsed());
        assert_eq!(servers.primary_of(slot), Some(to));
        third.release().await.unwrap();
        assert!(tokio::time::timeout(MS, lost).await.is_err(), "released, not lost");
    });
}
/// Redisson's: while a slot is on its way what is held there is renewed and given back, whatever else is not there.
#[test]
fn what_redisson_holds_while_its_slot_moves() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let a = connect_to(&servers.url("ttl=4s&layout=redisson")).await;
        let (name, slot) = ("{t}a", servers.slot("{t}a"));
        let from = servers.primary_of(slot).unwrap();
        let to = (0..3).find(|n| *n != from).unwrap();
        let held = a.mutex(name).lock().await.unwrap();
        assert_eq!(servers.ask(from, &["HSET", "{t}b", "u:7", "1"]).unwrap(), "1");
        let theirs = a.inspect("{t}b").await.unwrap().holders[0].token;
        let moving = servers.move_slot(slot, to);
        renewed(&held).await;
        soon(held.release()).await.unwrap();
        assert_eq!(soon(a.force_release("{t}b", theirs)).await.unwrap(), Released::Released);
        for name in [name, "{t}b"] {
            let gone = servers.ask(from, &["EXISTS", name]).unwrap_err().to_string();
            assert!(gone.contains("ASK"), "{name}: {gone}");
        }
        moving.finish(FAILOVER);
        assert!(!a.inspect("{t}b").await.unwrap().is_held());
        soon(a.mutex(name).lock()).await.unwrap().release().await.unwrap();
    });
}
/// The same, where it lies apart: what is not here may be there still, so a reader who leaves cuts nothing of the others', and a renewal
/// makes nothing that would be in the way of what comes.
#[test]
fn what_redisson_has_beside_a_lock_comes_later() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let url = servers.url("ttl=6s&layout=redisson");
        let (a, b) = (connect_to(&url).await, connect_to(&url).await);
        let slot = servers.slot("{t}r");
        let from = servers.primary_of(slot).unwrap();
        let to = (from + 1) % 3;
        let one = a.rw_lock("{t}r").ttl(20 * SEC).read().await.unwrap();
        let (other, lone) =
            (b.rw_lock("{t}r").ttl(20 * SEC).read().await.unwrap(), a.mutex("{t}m").lock().await.unwrap());
        let keys = servers.ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]).unwrap();
        let stays = other.id().to_string();
        let comes = |key: &&str| key.starts_with("{t}") && !key.contains(&stays[..8]);
        let moving = servers.move_slot(slot, to);
        moving.move_these(&keys.lines().filter(comes).collect::<Vec<_>>());
        // What stands beside the other reader, and two tokens.
        assert_eq!(moving.keys_left(), 3);
        renewed(&lone).await;
        let lost = other.lost();
        one.release().await.unwrap();
        moving.finish(FAILOVER);
        assert!(servers.ask(to, &["PTTL", "{t}r"]).unwrap().parse::<i64>().unwrap() > 0);
        assert!(a.rw_lock("{t}r").try_write().await.unwrap().is_err());
        assert!(tokio::time::timeout(500 * MS, lost).await.is_err());
        other.release().await.unwrap();
        lone.release().await.unwrap();
        a.rw_lock("{t}r").write().await.unwrap().release().await.unwrap();
    });
}
/// Of a lock that is made where its slot goes the replicas of that server count, also when the connections are new ones.
#[test]
fn replicas_are_counted_where_the_grant_was_written() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let a = connect_to(&servers.url("ttl=20s&replicas=1")).await;
        let slot = servers.slot("fl:moves");
        let from = servers.primary_of(slot).unwrap();
        let to = (from + 1) % 3;
        let all = || async {
            let names = (0..40)
                .map(|n| format!("m{n}"))
                .filter(|name| servers.primary_of(servers.slot(&format!("fl:{name}"))) == Some(from));
            let locks: Vec<_> = names.map(|name| tokio::spawn(a.mutex(name).lock())).collect();
            assert!(locks.len() > 3);
            for lock in locks {
                soon(lock).await.unwrap().unwrap().release().await.unwrap();
            }
        };
        all().await;
        servers.ask(from, &["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        all().await;
        // What is not here is asked for there.
        let _on_its_way = servers.move_slot(slot, to);
        a.mutex("moves").lock().await.unwrap().release().await.unwrap();
        servers.replicas_of(to).into_iter().for_each(|replica| servers.kill(replica));
        let error = soon(a.mutex("moves").lock()).await.unwrap_err();
        assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    });
}
/// A thousand locks while their slots move: none is lost, and nobody meets an error.
#[test]
fn a_thousand_locks_whose_slots_move() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let many = tenth(1_000);
        let (a, b) = (connect_to(&servers.url("ttl=6s")).await, connect_to(&servers.url("ttl=6s")).await);
        let mut guards = Vec::new();
        for n in 0..many {
            guards.push(a.mutex(format!("m{n}")).lock().await.unwrap());
        }
        let stop = Arc::<AtomicBool>::default();
        let mut workers = JoinSet::new();
        for worker in 0..4 {
            let (b, stop) = (b.clone(), stop.clone());
            workers.spawn(async move {
                let (mut pairs, mut slowest) = (0, Duration::ZERO);
                while !stop.load(SeqCst) {
                    let name = format!("m{}/{}", pairs % 200, worker % 2);
                    let began = Instant::now();
                    let guard = b.mutex(name).lock().await.unwrap();
                    guard.release().await.unwrap();
                    slowest = slowest.max(began.elapsed());
                    pairs += 1;
                }
                (pairs, slowest)
            });
        }
        let mut slots: Vec<u16> = (0..many).map(|n| servers.slot(&format!("fl:m{n}"))).collect();
        slots.extend((0..tenth(200)).map(|n| servers.slot(&format!("fl:m{n}/0"))));
        slots.sort_unstable();
        slots.dedup();
        // Each of them, and again until two leases are over: all are renewed while some move.
        let (began, mut moves) = (Instant::now(), 0);
        for slot in slots.iter().cycle() {
            if moves >= slots.len() && began.elapsed() >= 12 * SEC {
                break;
            }
            moves += 1;
            let from = servers.primary_of(*slot).unwrap();
            servers.move_slot(*slot, (from + 1) % 3).finish(FAILOVER);
        }
        stop.store(true, SeqCst);
        let (mut pairs, mut slowest) = (0, Duration::ZERO);
        while let Some(worker) = soon(workers.join_next()).await {
            let (some, slow) = worker.unwrap();
            (pairs, slowest) = (pairs + some, slowest.max(slow));
        }
        let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
        for guard in guards {
            guard.release().await.unwrap();
        }
        let figure = format!(
            "{lost} of {many} lost over {} slots and {moves} moves, {pairs} other pairs without an error, slowest {slowest:?}",
            slots.len()
        );
        bar("Cluster: held locks while their slots move", figure, "none, no error", lost == 0);
        assert_eq!(lost, 0);
    });
}
