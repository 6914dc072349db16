//! Story: five servers that know nothing of each other are one. Two may be dead, hang, or be somebody else's, from the beginning or later;
//! three may not, and that is told in time, with which and why; and tokens rise over their restarts.
//!
//! Planted to see it go red: a store that counts under each of its names (two names of one, and the late one); one that was met once and stays
//! what it was (names that change places); connections that are open and not asked anew (the late one). To be planted, each by itself: a
//! Redlock that connects to all of them first (dead from the beginning); the deadline of `meet` left out (one that hangs); ids of nodes by
//! their stores (two clients meet); `nodes / 2` in the core (masks).
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::{five::*, *};
use fencelock_conformance::proxy::{Proxy, Trouble, resp};
use fencelock_core::{Client, ErrorKind, Page};
use fencelock_redis::{Config, RedisEngine, redlock};
use fencelock_testkit::processes::{bar, percentile, tenth};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

async fn works(client: &Client, name: &str) {
    soon(client.mutex(name).lock()).await.unwrap().release().await.unwrap();
}
async fn refused(url: &str) -> fencelock_core::Error {
    redlock(Config::from_url(url).unwrap()).await.map(drop).unwrap_err()
}

#[test]
fn two_of_five_may_be_dead_and_three_may_not() {
    let five = Five::start();
    let port = |node: usize| five.0[node].port().to_string();
    runtime().block_on(async {
        let before = five.client().await;
        five.0[0].kill();
        five.0[3].kill();
        // Those who were there, and who comes now, exclude each other, and hand over.
        let after = five.client().await;
        let guard = soon(before.mutex("x").lock()).await.unwrap();
        assert_eq!(five.parts("x", guard.id()), [1, 2, 4]);
        assert!(after.mutex("x").try_lock().await.unwrap().is_err());
        let wait = tokio::spawn(after.mutex("x").lock());
        queued(&before, "x", 1).await;
        guard.release().await.unwrap();
        let next = soon(wait).await.unwrap().unwrap();
        assert_eq!(before.info().id, after.info().id);
        assert_eq!(before.inspect("x").await.unwrap().holders[0].token, next.token());
        let listing = before.list("", &Page::default()).await.unwrap();
        assert_eq!(listing.items.len(), 1, "{listing:?}");
        // The third one.
        five.0[2].kill();
        let error = after.mutex("y").try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        for dead in [0, 2, 3] {
            assert!(error.context().any(|(key, why)| key == "node" && why.contains(&port(dead))), "{dead}: {error}");
        }
        let began = Instant::now();
        let error = refused(&five.url()).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(began.elapsed() <= 10 * SEC, "{:?}", began.elapsed());
        let said = error.to_string();
        assert!(said.contains("3 of 5 nodes") && [0, 2, 3].iter().all(|dead| said.contains(&port(*dead))), "{said}");
        assert!(said.contains("refused"), "why: {said}");
        // All are there again, also for whoever came without them.
        [0, 2, 3].iter().for_each(|node| assert!(five.0[*node].restart()));
        next.release().await.unwrap();
        eventually("all take part", || async {
            let guard = soon(after.mutex("z").lock()).await.unwrap();
            let all = five.parts("z", guard.id()).len();
            guard.release().await.unwrap();
            all == NODES
        })
        .await;
        for name in ["x", "y", "z"] {
            five.nothing_is_left(name).await;
        }
    });
}

#[test]
fn one_that_hangs_from_the_beginning_is_not_waited_for_and_three_that_do_are_told() {
    let five = Five::start();
    runtime().block_on(async {
        five.0[1].pause(true);
        let began = Instant::now();
        let c = five.client().await;
        assert!(began.elapsed() < 4 * SEC, "{:?}", began.elapsed());
        works(&c, "x").await;
        five.0[2].pause(true);
        five.0[4].pause(true);
        let began = Instant::now();
        let error = refused(&five.url()).await;
        assert!(began.elapsed() <= 10 * SEC, "{:?}", began.elapsed());
        let nodes: Vec<_> = error.context().filter(|(key, _)| *key == "node").collect();
        assert!(nodes.len() == 3 && nodes[0].1.contains(&five.0[1].port().to_string()), "{error}");
        [1, 2, 4].iter().for_each(|node| five.0[*node].pause(false));
        works(&c, "x").await;
        five.nothing_is_left("x").await;
    });
}

#[test]
fn what_is_wrong_with_one_is_told_at_once() {
    const SECRET: &str = "hunter2";
    let five = Five::start();
    let port = |node: usize| five.0[node].port();
    runtime().block_on(async {
        // Two names of one server: it would count twice.
        let twice = redlock_url(
            [format!("127.0.0.1:{}", port(0)), format!("localhost:{}", port(0)), format!("127.0.0.1:{}", port(1))]
                .into_iter(),
        );
        let error = refused(&twice).await;
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains("are one store"), "{error}");
        assert_eq!(five.0[3].ask(&["CONFIG", "SET", "requirepass", SECRET]).unwrap(), "+OK");
        let error = refused(&five.url()).await;
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains(&port(3).to_string()), "{error}");
        let error = RedisEngine::from_url(&five.url()).await.map(drop).unwrap_err();
        assert!(error.to_string().contains("fencelock_redis::connect"), "{error}");
        // All have it, and nobody shows it.
        for node in [0, 1, 2, 4] {
            assert_eq!(five.0[node].ask(&["CONFIG", "SET", "requirepass", SECRET]).unwrap(), "+OK");
        }
        let c = client(&five.url().replace("redlock://", &format!("redlock://:{SECRET}@"))).await;
        works(&c, "x").await;
        assert!(c.info().url.is_none() && c.info().scheme == "redlock");
        assert!(!format!("{c:?} {:?}", c.info()).contains(SECRET));
    });
}

/// One that was not there in the beginning turns out to be another one of them: it does not count, or two servers would be a majority of three.
#[test]
fn a_second_name_that_is_met_later_does_not_count() {
    let five = Five::start();
    let (dead, three) = (five.0[4].port(), &five.0[..2]);
    five.0[4].kill();
    let proxy = Proxy::start(([127, 0, 0, 1], dead).into(), resp);
    let hosts = three.iter().map(|node| format!("127.0.0.1:{}", node.port())).chain([proxy.address().to_string()]);
    let url = redlock_url(hosts) + "?ttl=3s";
    runtime().block_on(async {
        let c = client(&url).await;
        works(&c, "x").await;
        proxy.lead_to(([127, 0, 0, 1], five.0[1].port()).into());
        // Renewals have connections of their own, which stay as well.
        let held = c.mutex("x").ttl(10 * SEC).lock().await.unwrap();
        soon(held.renewed()).await;
        held.release().await.unwrap();
        five.0[0].kill();
        let name = proxy.address().port().to_string();
        let twice = |error: &fencelock_core::Error| {
            error.context().any(|(key, why)| key == "node" && why.contains(&name) && why.contains("are one store"))
        };
        eventually("it is told why", || async { c.mutex("x").try_lock().await.is_err_and(|error| twice(&error)) })
            .await;
        five.nothing_is_left("x").await;
        // A store that has lost its name, or its data: the connections that are open are asked anew, before it may count under another name.
        for lost in [&["DEL", "fl:%id"][..], &["FLUSHALL"]] {
            five.0[1].ask(lost).unwrap();
            for _ in 0..50 {
                assert!(c.mutex("x").try_lock().await.is_err());
            }
            assert_eq!(five.0[1].ask(&["EXISTS", "fl:%id"]).unwrap(), ":1", "nobody has asked");
        }
        // As itself it is welcome.
        proxy.lead_to(([127, 0, 0, 1], five.0[2].port()).into());
        proxy.cut();
        eventually("it counts", || async { c.mutex("x").try_lock().await.is_ok_and(|held| held.is_ok()) }).await;
    });
}
/// Two names change places: each store still counts once.
#[test]
fn names_that_change_places() {
    let five = Five::start();
    let to = |node: usize| ([127, 0, 0, 1], five.0[node].port()).into();
    let ways = [Proxy::start(to(0), resp), Proxy::start(to(1), resp)];
    let hosts = ways.iter().map(|way| way.address().to_string()).chain([format!("127.0.0.1:{}", five.0[2].port())]);
    runtime().block_on(async {
        let c = client(&(redlock_url(hosts) + "?ttl=3s")).await;
        works(&c, "x").await;
        for turn in 1..4 {
            ways[0].lead_to(to(turn % 2));
            ways[1].lead_to(to((turn + 1) % 2));
            for way in &ways {
                way.cut();
            }
            // Both are needed.
            five.0[2].pause(true);
            eventually("both count", || async { c.mutex("x").try_lock().await.is_ok_and(|held| held.is_ok()) }).await;
            five.0[2].pause(false);
        }
    });
}

/// Success exactly where a majority is free; what is another's is left as it is, and of ours nothing stays.
#[test]
fn granted_exactly_when_a_majority_is_free() {
    let five = Five::start();
    runtime().block_on(async {
        let (c, others) = (five.client().await, five.alone().await);
        for mask in 0..1_u32 << NODES {
            let name = format!("m{mask:05b}");
            let mut theirs = Vec::new();
            for (node, other) in others.iter().enumerate() {
                theirs.push(match mask >> node & 1 {
                    1 => Some(other.mutex(&name).note("another").lock().await.unwrap()),
                    _ => None,
                });
            }
            let stays: Vec<_> = theirs.iter().map(|guard| guard.as_ref().map(|guard| guard.id())).collect();
            for waits in [false, true] {
                let wanted = c.mutex(&name);
                // It is in at once, unless the machine stands still; or waits in vain.
                let patience = if mask.count_ones() <= 2 { 5_000 * MS } else { 1_000 * MS };
                let got = if waits { wanted.try_lock_for(patience).await } else { wanted.try_lock().await };
                match got {
                    // Where the machine stands still it is told that nobody answers.
                    Err(error) => assert!(mask.count_ones() > 2 && error.is_temporary(), "{name}: {error}"),
                    Ok(Ok(guard)) => {
                        assert!(mask.count_ones() <= 2, "{name}");
                        let ours = five.parts(&name, guard.id());
                        assert!(ours.len() >= 3 && ours.iter().all(|node| stays[*node].is_none()), "{name}: {ours:?}");
                        guard.release().await.unwrap();
                    }
                    Ok(Err(busy)) => {
                        assert!(mask.count_ones() > 2, "{name}: {busy}");
                        assert!(busy.to_string().contains("another"), "{busy}");
                        let taken = |node: &Arc<str>| {
                            let of = |n: usize| stays[n].is_some() && node.contains(&five.0[n].port().to_string());
                            (0..NODES).any(of)
                        };
                        // One that does not answer in time is not named.
                        assert!(busy.nodes.iter().all(taken) && (waits || !busy.nodes.is_empty()), "{busy}");
                    }
                }
                five.only(&name, &stays).await;
            }
        }
    });
}

/// The answer comes with the settled majority, whoever is missing.
#[test]
fn one_that_hangs_delays_nobody() {
    let five = Five::start();
    runtime().block_on(async {
        let c = five.client().await;
        let pairs = async |n: usize| {
            let mut took = Vec::new();
            for _ in 0..n {
                let began = Instant::now();
                soon(c.mutex("x").lock()).await.unwrap().release().await.unwrap();
                took.push(began.elapsed());
            }
            percentile(&mut took, 0.5)
        };
        pairs(50).await;
        let (mut healthy, mut hanging): (Vec<Duration>, Vec<Duration>) = Default::default();
        for turn in 0..tenth(10) {
            healthy.push(pairs(100).await);
            five.0[turn % NODES].pause(true);
            // Until it is known as one that is late.
            pairs(5).await;
            hanging.push(pairs(100).await);
            five.0[turn % NODES].pause(false);
            pairs(5).await;
        }
        let (well, late) = (percentile(&mut healthy, 0.5), percentile(&mut hanging, 0.5));
        let ratio = late.as_secs_f64() / well.as_secs_f64();
        let figure = format!("{ratio:.2} ({late:.2?} to {well:.2?})");
        bar("Redlock: a pair with one of five stopped, p50, to all well", figure, "<= 1.2", ratio <= 1.2);
        five.nothing_is_left("x").await;
    });
}

/// Each server keeps what it has acknowledged (`appendfsync always`), and is not there now and then.
#[test]
fn tokens_rise_over_restarts() {
    let five = Five::start();
    runtime().block_on(async {
        let hands = [five.client().await, five.client().await];
        let mut last = None;
        for round in 0..tenth(100).max(12) {
            let down = [round % NODES, (round * 2 + 1) % NODES];
            down.iter().for_each(|node| five.0[*node].kill());
            let guard = soon(hands[round % 2].mutex("x").lock()).await.unwrap();
            assert!(Some(guard.token()) > last, "round {round}");
            last = Some(guard.token());
            if round % 3 == 0 {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
            down.iter().for_each(|node| assert!(five.0[*node].restart()));
        }
        five.nothing_is_left("x").await;
    });
}

/// Every script comes to every node twice, before anybody hears: the same is said, and the same is there.
#[test]
fn every_script_may_come_twice() {
    let five = Five::start();
    let proxies: Vec<_> = five.0.iter().map(proxied).collect();
    let url = redlock_url(proxies.iter().map(|(proxy, _)| proxy.address().to_string()));
    let seen: Arc<Mutex<std::collections::BTreeSet<&'static str>>> = Arc::default();
    for (proxy, _) in &proxies {
        let seen = seen.clone();
        let scripts: Vec<_> = fencelock_redis::raw::scripts().into_iter().map(|(name, sha, _)| (name, sha)).collect();
        proxy.rule(move |command| {
            let is = |sha: &String| command.windows(sha.len()).any(|part| part == sha.as_bytes());
            let Some((name, _)) = scripts.iter().find(|(_, sha)| is(sha)) else { return Trouble::None };
            seen.lock().unwrap().insert(*name);
            Trouble::Twice
        });
    }
    runtime().block_on(async {
        for (_, _, text) in fencelock_redis::raw::scripts() {
            five.0.iter().for_each(|node| drop(node.ask(&["SCRIPT", "LOAD", text])));
        }
        let (a, b) = (client(&url).await, client(&url).await);
        let mut last = None;
        for _ in 0..5 {
            let guard = soon(a.mutex("x").ttl(5 * SEC).lock()).await.unwrap();
            assert!(last.replace(guard.token()) < Some(guard.token()));
            assert!(five.parts("x", guard.id()).len() >= 3);
            assert!(b.mutex("x").try_lock().await.unwrap().is_err());
            // What is left of it where its end did not arrive lasts for as long as that.
            let wait = tokio::spawn(b.mutex("x").ttl(9 * SEC).lock());
            queued(&a, "x", 1).await;
            soon(guard.renewed()).await;
            guard.release().await.unwrap();
            let next = soon(wait).await.unwrap().unwrap();
            assert!(last.replace(next.token()) < Some(next.token()));
            b.force_release("x", next.token()).await.unwrap();
            soon(next.lost()).await;
            five.nothing_is_left("x").await;
        }
        let writer = soon(a.rw_lock("y").write()).await.unwrap();
        let reader = writer.downgrade().await.unwrap();
        let beside = soon(b.rw_lock("y").read()).await.unwrap();
        drop((reader, beside));
        eventually("free", || async { !a.inspect("y").await.unwrap().is_held() }).await;
        works(&b, "y").await;
    });
    let seen = seen.lock().unwrap().clone();
    for script in ["acquire", "exchange", "release", "renew", "force"] {
        assert!(seen.contains(script), "{script} was not met: {seen:?}");
    }
}
