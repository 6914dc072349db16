//! A primary, its replicas and their sentinels: failovers are followed, and what they lose is told.
//!
//! Planted to see them go red: a failover that is not followed; holds that are not asked for after one; one floor for nobody; tokens that
//! are made of no clock; the clock of a server that was left forgotten; a loss that is told late; a grant beside whoever has it; a resource
//! that takes all; `WAIT` on the connection that all share; a count of replicas that is not looked at.
#![allow(clippy::unwrap_used, clippy::significant_drop_tightening, reason = "a test fails where it unwraps")]
mod common;
use common::{
    failovers::{self, FAILOVER, Rise, connect_to, many_threads},
    replicated::Replicated,
    *,
};
use fencelock_core::{Client, ErrorKind};
use fencelock_redis::RedisEngine;
use fencelock_testkit::{
    Sentinels, SentinelsOptions, WallClock,
    processes::{bar, percentile, tenth},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

async fn connect(servers: &Sentinels, keys: &str) -> Client {
    connect_to(&servers.url(keys)).await
}
/// Every server's clock but the first one's is so much behind.
fn behind(by: Duration) -> Sentinels {
    let behind = Arc::new(WallClock::new());
    behind.step(by, false);
    let clocks = vec![None, Some(behind.clone()), Some(behind)];
    Sentinels::with(SentinelsOptions { clocks, ..SentinelsOptions::default() })
}
#[test]
fn the_primary_is_killed_again_and_again() {
    failovers::killed(&Sentinels::start(), "", "Sentinel, clocks alike", tenth(20), Rise::ForEverybody);
}
/// Whose tokens are made of clocks alone, and of what clients have seen.
#[test]
fn the_same_in_the_layout_plain() {
    let keys = "&layout=plain&template=fl:{}";
    failovers::killed(&Sentinels::start(), keys, "Sentinel, plain", tenth(10).max(2), Rise::ForEverybody);
}
/// And beside Redisson's, where a failover may lose the counter of tokens, too.
#[test]
fn the_same_in_the_layout_redisson() {
    let keys = "&layout=redisson&template=fl:{}";
    failovers::killed(&Sentinels::start(), keys, "Sentinel, redisson", tenth(10).max(2), Rise::ForEverybody);
}
/// A failover takes longer.
#[test]
fn replicas_whose_clocks_are_a_little_behind() {
    let what = "Sentinel, replicas 0.5 s behind";
    failovers::killed(&behind(500 * MS), "", what, tenth(20), Rise::ForEverybody);
}
#[test]
fn replicas_whose_clocks_are_far_behind() {
    (0..tenth(10)).for_each(|_| failovers::far_behind(&behind(60 * SEC)));
}
#[test]
fn the_primary_is_killed_and_clocks_are_far_behind() {
    let what = "Sentinel, replicas 60 s behind";
    failovers::killed(&behind(60 * SEC), "", what, tenth(20), Rise::ForWhoWasThere);
}
#[test]
fn what_a_failover_loses_is_told_at_once() {
    failovers::lost(&Sentinels::start(), "Sentinel");
}

/// The primary becomes a replica while it is used: nobody meets an error, also where it refuses writes for a while (READONLY).
#[test]
fn a_primary_that_is_demoted() {
    let servers = Sentinels::start();
    many_threads().block_on(async {
        let stop = Arc::<AtomicBool>::default();
        let mut workers = JoinSet::new();
        for n in 0..8 {
            let (client, stop) =
                (connect(&servers, if n % 2 == 0 { "ttl=5s" } else { "ttl=5s&protocol=resp2" }).await, stop.clone());
            workers.spawn(async move {
                let mut many = 0;
                while !stop.load(SeqCst) {
                    let guard = client.mutex("x").lock().await.unwrap();
                    drop(guard.release().await);
                    many += 1;
                }
                many
            });
        }
        for _ in 0..tenth(10).max(2) {
            tokio::time::sleep(200 * MS).await;
            servers.failover(FAILOVER);
            servers.settle(FAILOVER);
        }
        stop.store(true, SeqCst);
        while let Some(worker) = soon(workers.join_next()).await {
            assert!(worker.unwrap() > 0);
        }
    });
}

/// It stops, and is not gone: its clients are led to the new one, and not back when it goes on.
#[test]
fn a_primary_that_is_silent() {
    let servers = Sentinels::start();
    many_threads().block_on(async {
        let (a, b) = (connect(&servers, "ttl=3s").await, connect(&servers, "ttl=3s").await);
        let guard = a.mutex("x").lock().await.unwrap();
        let old_token = guard.token();
        let lock = b.mutex("x");
        let next = tokio::spawn(async move { lock.lock().await.unwrap() });
        queued(&a, "x", 1).await;
        let old = servers.settle(FAILOVER);
        servers.pause(old, true);
        servers.promoted(old, FAILOVER);
        // The hold is there, or was lost with the primary and told.
        let valid = guard.check().is_ok();
        drop(guard.release().await);
        let next = soon(next).await.unwrap();
        assert!(next.token() > old_token, "{valid}");
        servers.pause(old, false);
        servers.settle(FAILOVER);
        next.check().unwrap();
        next.release().await.unwrap();
        let third = soon(a.mutex("x").lock()).await.unwrap();
        third.release().await.unwrap();
    });
}

/// So many replicas have it before it counts: whoever is promoted has it.
#[test]
fn grants_that_replicas_have() {
    for (many, options) in
        [(2, SentinelsOptions::default()), (1, SentinelsOptions { servers: 2, ..SentinelsOptions::default() })]
    {
        let servers = Sentinels::with(options);
        many_threads().block_on(async {
            let rounds = tenth(50).max(3);
            let mut there = 0;
            for round in 0..rounds {
                let keys = format!("ttl=60s&replicas={many}");
                let (a, b) = (connect(&servers, &keys).await, connect(&servers, "ttl=60s").await);
                let name = format!("x{round}");
                let waits = if round % 2 == 1 {
                    // Handed over by another one's release.
                    let before = b.mutex(name.clone()).lock().await.unwrap();
                    let lock = a.mutex(name.clone());
                    let next = tokio::spawn(async move { lock.lock().await.unwrap() });
                    queued(&b, &name, 1).await;
                    before.release().await.unwrap();
                    Some(next)
                } else {
                    None
                };
                let guard = match waits {
                    Some(next) => soon(next).await.unwrap(),
                    None => a.mutex(name.clone()).lock().await.unwrap(),
                };
                let primary = servers.primary().unwrap();
                servers.kill(primary);
                servers.promoted(primary, FAILOVER);
                let found = |status: fencelock_core::Status| {
                    status.exclusive().is_some_and(|holder| holder.token == guard.token())
                };
                there += usize::from(found(b.inspect(name.clone()).await.unwrap()));
                guard.check().unwrap();
                guard.release().await.unwrap();
                servers.restart(primary);
                servers.settle(FAILOVER);
            }
            let what = format!(
                "Sentinel, replicas={many} of {many}: the primary is killed after the grant: the promoted one has it"
            );
            bar(&what, format!("{there} of {rounds}"), "always", there == rounds);
            assert_eq!(there, rounds);
        });
    }
}

/// No replica answers: nothing is granted and nothing left behind, and those who ask for no replica do not notice.
#[test]
fn replicas_that_are_stopped() {
    let servers = Sentinels::start();
    many_threads().block_on(async {
        let (a, b) = (connect(&servers, "ttl=5s&replicas=2").await, connect(&servers, "ttl=5s").await);
        let pairs = || async {
            let mut times = Vec::new();
            for n in 0..tenth(1_000) {
                let began = Instant::now();
                let guard = b.mutex(format!("other {n}")).lock().await.unwrap();
                guard.release().await.unwrap();
                times.push(began.elapsed());
            }
            percentile(&mut times, 0.99)
        };
        let kept = a.mutex("kept").lock().await.unwrap();
        let before = pairs().await;
        let primary = servers.settle(FAILOVER);
        let stopped = servers.replicas(primary);
        stopped.iter().for_each(|n| servers.stop(*n, true));
        let mut tries = JoinSet::new();
        for n in 0..20 {
            let lock = a.mutex(format!("x{n}"));
            tries.spawn(async move {
                if n % 2 == 0 { lock.lock().await.map(drop) } else { lock.try_lock().await.map(drop) }
            });
        }
        let during = pairs().await;
        while let Some(tried) = soon(tries.join_next()).await {
            let error = tried.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
            assert!(error.to_string().contains("0 of 2 replicas"), "{error}");
        }
        let free = || async {
            let names: Vec<_> = b.list("x", &fencelock_core::Page::default()).await.unwrap().items;
            names.is_empty()
        };
        eventually("nothing is left of them", free).await;
        kept.check().unwrap();
        servers.go_on(&stopped);
        servers.settle(FAILOVER);
        kept.release().await.unwrap();
        let again = soon(a.mutex("x0").lock()).await.unwrap();
        again.release().await.unwrap();
        let figure = format!("{during:?}, before {before:?}");
        let limit = before * 3 / 2 + 2 * MS;
        bar(
            "Sentinel: p99 of a pair of others while 20 wait for replicas that are stopped",
            figure,
            "as before",
            during <= limit,
        );
    });
}

/// What somebody may get wrong, and what the sentinels themselves may have.
#[test]
fn sentinels_that_are_gone_or_know_nothing() {
    let options = SentinelsOptions {
        password: Some("of@servers".to_owned()),
        sentinel_password: Some("of@sentinels".to_owned()),
        ..SentinelsOptions::default()
    };
    let servers = Sentinels::with(options);
    many_threads().block_on(async {
        let (ports, name) = (servers.endpoints(), servers.name());
        let whole = format!("redis+sentinel://:of%40servers@{ports}/{name}?sentinel_password=of%40sentinels");
        for (url, kind, says) in [
            (whole.replace(&format!("/{name}"), "/other"), ErrorKind::InvalidConfig, "no servers of this name"),
            (whole.replace(":of%40servers@", ""), ErrorKind::PermissionDenied, "user or password"),
            (whole.replace("?sentinel_password=of%40sentinels", ""), ErrorKind::PermissionDenied, "user or password"),
            (whole.replace("=of%40sentinels", "=wrong"), ErrorKind::PermissionDenied, "user or password"),
        ] {
            let error = RedisEngine::from_url(&url).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{url}: {error}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(
                !error.to_string().contains("of@sentinels") && !format!("{error:?}").contains("of@servers"),
                "{error:?}"
            );
        }
        let c = client(&whole).await;
        let guard = c.mutex("x").lock().await.unwrap();
        // One is gone, and one is silent: the third one is enough to find the way.
        servers.kill_sentinel(0);
        servers.pause_sentinel(1, true);
        let d = soon(client(&whole)).await;
        assert!(d.mutex("x").try_lock().await.unwrap().is_err());
        servers.pause_sentinel(1, false);
        servers.restart_sentinel(0);
        servers.settle(FAILOVER);
        servers.failover(FAILOVER);
        guard.check().unwrap();
        guard.release().await.unwrap();
        soon(d.mutex("x").lock()).await.unwrap().release().await.unwrap();
    });
}
