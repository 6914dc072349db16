//! What the suites of redsync, node-redlock, pottery and distributed-lock-rs ask of a Redlock (the conformance suite's catalogue names them).
//!
//! Planted to see it go red, in the core: `undo` left out (of many at once); `leave` that owes nothing (a majority that others have);
//! `recreate` that always does, and never (a renewal makes anew); `adopt_late` that drops its call (what comes after the majority).
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::{five::*, *};
use fencelock_conformance::proxy::Trouble;
use fencelock_core::{Client, Guard};
use fencelock_redis::{Config, redlock};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

/// Makes parts anew with a renewal.
async fn recreating(url: &str) -> Client {
    let quorum = redlock(Config::from_url(url).unwrap()).await.unwrap().recreate(true);
    Client::builder(Arc::new(quorum)).build().unwrap()
}
/// A hold of which every node has a part. The first ones of a client may be of a majority alone, which its token was written on.
async fn on_all(five: &Five, c: &Client, ttl: Duration) -> Guard {
    for round in 0..50 {
        let guard = soon(c.mutex("x").ttl(ttl).lock()).await.unwrap();
        // What was written too late for the majority is there for a moment, and goes.
        let all = || five.parts("x", guard.id()).len() == NODES;
        if round > 1 && all() {
            tokio::time::sleep(100 * MS).await;
            if all() {
                return guard;
            }
        }
        guard.release().await.unwrap();
    }
    panic!("never on all");
}
/// How long what is held alone has left on each node, in µs: nothing where nobody holds it.
fn left(five: &Five, name: &str) -> Vec<i64> {
    let script = "local o=redis.call('HGET',KEYS[1],'o') if not o then return '0' end \
                  local now=redis.call('TIME') local left=string.match(o,'^%S+ %S+ (%d+)')-(now[1]*1000000+now[2]) \
                  return string.format('%.0f',left)";
    let key = format!("fl:{name}");
    five.0.iter().map(|node| node.ask(&["EVAL", script, "1", &key]).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_hold_is_on_a_majority_of_the_nodes() {
    let five = Five::start();
    runtime().block_on(async {
        let clients = [five.client().await, five.client().await];
        let locks = (0..8).map(|n| clients[n % 2].mutex(format!("n{n}")).lock());
        let guards: Vec<_> = futures_util::future::join_all(locks).await.into_iter().map(Result::unwrap).collect();
        for (n, guard) in guards.iter().enumerate() {
            assert!(five.parts(&format!("n{n}"), guard.id()).len() >= 3);
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
        for n in 0..8 {
            five.nothing_is_left(&format!("n{n}")).await;
        }
    });
}

#[test]
fn a_renewal_prolongs_the_lease_on_every_node() {
    let five = Five::start();
    runtime().block_on(async {
        let c = five.client().await;
        let guard = on_all(&five, &c, 6 * SEC).await;
        // What is not renewed has four seconds by then, or less.
        for _ in 0..2 {
            soon(guard.renewed()).await;
            eventually("all are prolonged", || async { left(&five, "x").iter().all(|left| *left > 4_400_000) }).await;
        }
        guard.release().await.unwrap();
    });
}

#[test]
fn a_renewal_makes_anew_what_a_node_has_lost() {
    let five = Five::start();
    runtime().block_on(async {
        let c = recreating(&five.url()).await;
        let guard = on_all(&five, &c, 6 * SEC).await;
        five.0[2].ask(&["DEL", "fl:x"]).unwrap();
        five.0[4].ask(&["FLUSHALL"]).unwrap();
        eventually("made anew", || async { five.parts("x", guard.id()).len() == NODES }).await;
        guard.check().unwrap();
        // It counts: two others may lose theirs now.
        soon(guard.renewed()).await;
        eventually("made anew", || async { five.parts("x", guard.id()).len() == NODES }).await;
        five.0[0].ask(&["DEL", "fl:x"]).unwrap();
        five.0[1].ask(&["DEL", "fl:x"]).unwrap();
        eventually("made anew", || async { five.parts("x", guard.id()).len() == NODES }).await;
        guard.check().unwrap();
        guard.release().await.unwrap();
        five.nothing_is_left("x").await;
        // Not without being asked for it.
        let c = five.client().await;
        let guard = on_all(&five, &c, 4 * SEC).await;
        five.0[2].ask(&["DEL", "fl:x"]).unwrap();
        soon(guard.renewed()).await;
        soon(guard.renewed()).await;
        assert_eq!(five.parts("x", guard.id()), [0, 1, 3, 4]);
        guard.release().await.unwrap();
        five.nothing_is_left("x").await;
    });
}

#[test]
fn a_renewal_leaves_alone_what_is_another_s() {
    let five = Five::start();
    runtime().block_on(async {
        let (c, others) = (recreating(&five.url()).await, five.alone().await);
        let guard = on_all(&five, &c, 4 * SEC).await;
        let mut theirs = Vec::new();
        for node in [1, 3] {
            five.0[node].ask(&["DEL", "fl:x"]).unwrap();
            theirs.push(others[node].mutex("x").try_lock().await.unwrap());
        }
        soon(guard.renewed()).await;
        soon(guard.renewed()).await;
        guard.check().unwrap();
        let holders = five.holders("x");
        for (node, theirs) in [1, 3].into_iter().zip(&theirs) {
            // It may have been made anew before the other one came.
            if let Ok(theirs) = theirs {
                assert_eq!(holders[node], Some(theirs.id()), "on {node}");
                theirs.check().unwrap();
            }
        }
        assert_eq!(five.waiting("x"), 0);
        guard.release().await.unwrap();
    });
}

#[test]
fn a_minority_that_others_have_stays_theirs() {
    let five = Five::start();
    runtime().block_on(async {
        let (c, others) = (five.client().await, five.alone().await);
        let theirs = [others[0].mutex("x").lock().await.unwrap(), others[4].mutex("x").lock().await.unwrap()];
        let guard = soon(c.mutex("x").lock()).await.unwrap();
        assert_eq!(five.parts("x", guard.id()), [1, 2, 3]);
        guard.release().await.unwrap();
        five.only("x", &[Some(theirs[0].id()), None, None, None, Some(theirs[1].id())]).await;
        theirs.iter().for_each(|theirs| theirs.check().unwrap());
    });
}

#[test]
fn a_majority_that_others_have_refuses_and_nothing_of_ours_stays() {
    let five = Five::start();
    runtime().block_on(async {
        let (c, others) = (five.client().await, five.alone().await);
        let mut theirs = Vec::new();
        for node in [0, 2, 4] {
            theirs.push(others[node].mutex("x").lock().await.unwrap());
        }
        let busy = c.mutex("x").try_lock().await.unwrap().unwrap_err();
        // One that does not answer in time is not named.
        let taken = |node: &Arc<str>| [0, 2, 4].iter().any(|n| node.contains(&five.0[*n].port().to_string()));
        assert!(!busy.nodes.is_empty() && busy.nodes.iter().all(taken), "{busy}");
        let stays = [Some(theirs[0].id()), None, Some(theirs[1].id()), None, Some(theirs[2].id())];
        five.only("x", &stays).await;
        // Where the machine stands still it is told that nobody answers.
        let refused = c.mutex("x").try_lock_for(500 * MS).await;
        assert!(refused.as_ref().is_ok_and(Result::is_err) || refused.is_err_and(|error| error.is_temporary()));
        five.only("x", &stays).await;
    });
}

#[test]
fn two_over_the_same_nodes_exclude_each_other() {
    let five = Five::start();
    // In another order it is the same Redlock.
    let mut hosts: Vec<_> = five.0.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    hosts.reverse();
    runtime().block_on(async {
        let (a, b) = (five.client().await, client(&redlock_url(hosts.into_iter())).await);
        assert_eq!(a.info().id, b.info().id);
        let (inside, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Mutex::new(None)));
        let tasks = [a, b].map(|c| {
            let (inside, last) = (inside.clone(), last.clone());
            tokio::spawn(async move {
                for _ in 0..40 {
                    let guard = soon(c.mutex("x").lock()).await.unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at once");
                    assert!(last.lock().unwrap().replace(guard.token()) < Some(guard.token()));
                    tokio::time::sleep(MS).await;
                    inside.fetch_sub(1, SeqCst);
                    guard.release().await.unwrap();
                }
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
        five.nothing_is_left("x").await;
    });
}

#[test]
fn of_many_at_once_at_most_one_wins() {
    let five = Five::start();
    runtime().block_on(async {
        let mut clients = Vec::new();
        for _ in 0..10 {
            clients.push(five.client().await);
        }
        for many in 1..=10 {
            let name = format!("x{many}");
            let tries = clients[..many].iter().map(|c| c.mutex(&name).try_lock());
            let got = futures_util::future::join_all(tries).await;
            let won: Vec<_> = got.into_iter().filter_map(|got| got.unwrap().ok()).collect();
            assert!(won.len() <= 1, "{} of {many}", won.len());
            assert!(many > 1 || won.len() == 1, "alone it wins");
            for guard in won {
                guard.release().await.unwrap();
            }
            five.nothing_is_left(&name).await;
        }
    });
}

/// A majority is there, and the others are on their way: what they grant belongs to the hold, and goes with it.
#[test]
fn what_comes_after_the_majority_goes_with_the_release() {
    let five = Five::start();
    let proxies: Vec<_> = five.0.iter().map(proxied).collect();
    let url = redlock_url(proxies.iter().map(|(proxy, _)| proxy.address().to_string()));
    runtime().block_on(async {
        let c = client(&url).await;
        on_all(&five, &c, 30 * SEC).await.release().await.unwrap();
        for late in [Some(60 * MS), Some(300 * MS), None] {
            for node in [1, 3] {
                match late {
                    Some(late) => proxies[node].0.delay(late),
                    // Its connection is gone, and it arrives all the same.
                    None => drop(first(&proxies[node].0, "acquire", 1, Trouble::Late(200 * MS))),
                }
            }
            let guard = soon(c.mutex("x").lock()).await.unwrap();
            assert!(five.parts("x", guard.id()).len() >= 3);
            guard.release().await.unwrap();
            for node in [1, 3] {
                proxies[node].0.delay(Duration::ZERO);
            }
            five.nothing_is_left("x").await;
            // Nor does it come later.
            tokio::time::sleep(400 * MS).await;
            five.nothing_is_left("x").await;
        }
    });
}
