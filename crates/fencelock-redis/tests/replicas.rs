//! `replicas=n`: who counts, whom it keeps waiting, and who has the grant when the primary is gone.
//!
//! Planted to see them go red: a count that is compared with zero; `WAIT` on the connection that all share; a grant that is waited for by
//! nobody.
#![allow(clippy::unwrap_used, clippy::significant_drop_tightening, reason = "a test fails where it unwraps")]
mod common;
use common::{
    failovers::{FAILOVER, connect_to, many_threads},
    replicated::Replicated,
    *,
};
use fencelock_core::{Error, ErrorKind, Guard, Page};
use fencelock_testkit::{
    RedisCluster, Sentinels,
    processes::{bar, percentile, tenth},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Instant,
};
use tokio::task::JoinSet;

/// All layouts that count replicas, and how a key of theirs begins.
const LAYOUTS: [(&str, &str); 3] =
    [("layout=native", "fl:"), ("layout=plain&template=lock:{}", "lock:"), ("layout=redisson", "")];

/// Somebody waits for replicas there.
fn waits(servers: &dyn Replicated, primary: usize) -> bool {
    let said = servers.say(primary, &["INFO", "clients"]);
    said.lines().any(|line| line.strip_prefix("blocked_clients:").is_some_and(|many| many.trim() != "0"))
}
fn too_few(error: &Error, says: &str) {
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

/// One of two has it: that is told as it is, nothing is left, and the other one is waited for the next time.
#[test]
fn one_of_two_is_not_enough() {
    let servers = Sentinels::start();
    many_threads().block_on(async {
        for (keys, _) in LAYOUTS {
            let a = connect_to(&servers.url(&format!("ttl=5s&replicas=2&{keys}"))).await;
            let one = connect_to(&servers.url(&format!("ttl=5s&replicas=1&{keys}"))).await;
            let b = connect_to(&servers.url(&format!("ttl=5s&{keys}"))).await;
            let primary = servers.settle(FAILOVER);
            let stopped = servers.replicas(primary)[0];
            servers.stop(stopped, true);
            too_few(&soon(a.mutex("x").lock()).await.unwrap_err(), "1 of 2 replicas");
            too_few(&soon(a.mutex("z").try_lock()).await.unwrap_err(), "1 of 2 replicas");
            // Handed over by another one's release.
            let before = b.mutex("y").lock().await.unwrap();
            let next = tokio::spawn(a.mutex("y").lock());
            if keys.ends_with("native") {
                queued(&b, "y", 1).await;
            }
            before.release().await.unwrap();
            too_few(&soon(next).await.unwrap().unwrap_err(), "1 of 2 replicas");
            let free = || async { b.list("", &Page::default()).await.unwrap().items.iter().all(|it| !it.is_held()) };
            eventually("nothing is left of them", free).await;
            // Who asks for one has it.
            soon(one.mutex("x").lock()).await.unwrap().release().await.unwrap();
            servers.stop(stopped, false);
            servers.settle(FAILOVER);
            soon(a.mutex("x").lock()).await.unwrap().release().await.unwrap();
        }
    });
}

/// The replicas are stopped, and a client waits for them all the while: its other locks are renewed and given back as before.
#[test]
fn a_client_that_waits_for_replicas_does_all_else_meanwhile() {
    let servers = Sentinels::start();
    many_threads().block_on(async {
        let a = connect_to(&servers.url("ttl=60s&replicas=2")).await;
        let mut others: Vec<Guard> = Vec::new();
        for n in 0..2 * tenth(1_000) {
            others.push(a.mutex(format!("other {n}")).lock().await.unwrap());
        }
        let kept = a.mutex("kept").ttl(6 * SEC).lock().await.unwrap();
        let released = |guards: Vec<Guard>| async {
            let mut times = Vec::new();
            for guard in guards {
                let began = Instant::now();
                guard.release().await.unwrap();
                times.push(began.elapsed());
            }
            percentile(&mut times, 0.99)
        };
        let later = others.split_off(others.len() / 2);
        let before = soon(released(others)).await;
        let primary = servers.settle(FAILOVER);
        servers.replicas(primary).into_iter().for_each(|replica| servers.stop(replica, true));
        let (stop, mut tries) = (Arc::<AtomicBool>::default(), JoinSet::new());
        for n in 0..16 {
            let (a, stop) = (a.clone(), stop.clone());
            tries.spawn(async move {
                while !stop.load(SeqCst) {
                    too_few(&a.mutex(format!("x{n}")).lock().await.unwrap_err(), "0 of 2 replicas");
                }
            });
        }
        eventually("they wait", || std::future::ready(waits(&servers, primary))).await;
        // One after the other behind a wait of a second each they would take minutes.
        let during = soon(released(later)).await;
        for _ in 0..2 {
            soon(kept.renewed()).await;
        }
        let left = kept.remaining();
        stop.store(true, SeqCst);
        while let Some(tried) = soon(tries.join_next()).await {
            tried.unwrap();
        }
        servers.go_on(&servers.replicas(primary));
        servers.settle(FAILOVER);
        kept.check().unwrap();
        kept.release().await.unwrap();
        let what = "Sentinel: p99 of a release by a client that waits for stopped replicas meanwhile";
        let limit = before * 3 / 2 + 2 * MS;
        bar(what, format!("{during:?}, before {before:?}; {left:?} left of 6 s"), "as before", during <= limit);
    });
}

/// The replicas have nothing that comes from here on, until somebody waits for them: who is granted the lock and sees the primary die at
/// that moment finds it on the promoted one.
fn the_promoted_one_has_it(servers: &dyn Replicated, what: &str, replicas: usize, rounds: usize) {
    many_threads().block_on(async {
        for (keys, begins) in LAYOUTS {
            let a = connect_to(&servers.url(&format!("ttl=60s&replicas={replicas}&{keys}"))).await;
            let b = connect_to(&servers.url(&format!("ttl=60s&{keys}"))).await;
            for round in 0..rounds {
                let (name, mut tries) = (format!("x{round}"), 0);
                let key = format!("{begins}{name}");
                let (guard, primary) = loop {
                    let primary = servers.primary(&key);
                    let all = servers.cut_off(primary);
                    assert_eq!(all.len(), replicas);
                    let lock = tokio::spawn(a.mutex(name.clone()).lock());
                    let so = || std::future::ready(lock.is_finished() || waits(servers, primary));
                    eventually("it waits for replicas", so).await;
                    if !lock.is_finished() {
                        servers.go_on(&all);
                    }
                    match soon(lock).await.unwrap() {
                        Ok(guard) => {
                            servers.kill(primary);
                            servers.go_on(&all);
                            break (guard, primary);
                        }
                        // They are not back within the second.
                        Err(error) => too_few(&error, &format!("of {replicas} replicas")),
                    }
                    tries += 1;
                    assert!(tries < 20, "{keys}: never granted");
                };
                servers.promoted(&key, primary);
                assert!(soon(b.inspect(name.clone())).await.unwrap().is_held(), "{what}, {keys}: it is not there");
                let other = soon(b.mutex(name.clone()).try_lock()).await.unwrap();
                assert!(other.is_err(), "{what}, {keys}: somebody else has it");
                guard.check().unwrap();
                guard.release().await.unwrap();
                servers.restart(primary);
            }
            let what = format!("{what}, {keys}, replicas={replicas} of {replicas}: the promoted one has the grant");
            bar(&what, format!("{rounds} of {rounds}"), "always", true);
        }
    });
}
#[test]
fn whoever_is_promoted_in_a_cluster_has_what_was_granted() {
    the_promoted_one_has_it(&RedisCluster::start(), "Cluster", 1, if full() { 17 } else { 1 });
}
#[test]
fn whoever_the_sentinels_promote_has_what_was_granted_in_every_layout() {
    the_promoted_one_has_it(&Sentinels::start(), "Sentinel", 2, if full() { 5 } else { 1 });
}

/// A replica is silent, and a grant is told of that it has not: the one that asked is told, and does not keep what he was not given.
///
/// Planted to see it go red: an outage is survived where replicas are counted, too.
#[test]
fn what_a_spinner_was_granted_and_too_few_have_is_told_and_given_back() {
    let servers = Sentinels::start();
    many_threads().block_on(async {
        let spins = connect_to(&servers.url("ttl=5s&wait=spin&replicas=1")).await;
        let other = connect_to(&servers.url("ttl=5s")).await;
        let primary = servers.settle(FAILOVER);
        let before = other.mutex("x").lock().await.unwrap();
        let wait = tokio::spawn(spins.mutex("x").lock());
        // It has looked, and somebody was in the way.
        tokio::time::sleep(200 * MS).await;
        assert!(!wait.is_finished());
        servers.replicas(primary).into_iter().for_each(|replica| servers.stop(replica, true));
        before.release().await.unwrap();
        let told = soon(wait).await.unwrap().unwrap_err();
        assert!(told.is_temporary() && told.to_string().contains("0 of 1 replicas"), "{told}");
        soon(other.mutex("x").lock()).await.unwrap().release().await.unwrap();
        servers.go_on(&servers.replicas(primary));
    });
}
