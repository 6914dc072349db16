//! Story: five stores as one. Any minority may be dead, hang, or be somebody else's; a majority that is not to be had is told, in time,
//! with what each node said, and nothing is left anywhere; and tokens rise over whatever nodes come and go.
//!
//! Planted to see it red: `nodes / 2` (masks, four nodes); `undo` left out (masks, failures); `patience` of an hour (hanging nodes);
//! `adopt_late` that drops its call (late answers); the highest token told at once (late answers, masks); `news` that takes the
//! largest (validity); `mend` always false (re-creation), and re-creation for everybody (opt-in); `rests` left out (a release);
//! `gone` that counts while it is given back (a release beside renewals); a loss that is none once it is known (a renewal beside a loss);
//! a part that counts for ever (a silent node); `fall` that never looks (what is left); both at once: answers
//! that count though their part has gone, and `may_fall` left out of a renewal (a renewal on its way).
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
#[path = "common/nodes.rs"]
mod nodes;
use common::*;
use fencelock_core::{
    Chaos, Client, Clock, Engine, ErrorKind, Fencing, Grant, Guard, Lease, LossReason, Operation, Quorum, Released,
    Renewed, Trouble,
    memory::{MemoryEngine, MemoryServer},
};
use nodes::*;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn granted_exactly_when_a_majority_is_free() {
    for mask in 0..1_u32 << 5 {
        let nodes = Nodes::new(5);
        let taken: Vec<usize> = (0..5).filter(|node| mask >> node & 1 == 1).collect();
        let mut others = Vec::new();
        for node in &taken {
            let other = nodes.alone(*node);
            others.push((other.mutex("x").note("another").lock().await.unwrap(), other));
        }
        let expected = |ours: usize| -> Vec<_> {
            (0..5).map(|node| if taken.contains(&node) { (1, 0) } else { (ours, 0) }).collect()
        };
        let hand = nodes.hand();
        for waits in [false, true] {
            let began = Instant::now();
            let wanted = hand.client.mutex("x");
            let got = if waits { wanted.try_lock_for(5 * SEC).await } else { wanted.try_lock().await };
            match got.unwrap() {
                Ok(guard) => {
                    assert!(taken.len() <= 2, "{mask:05b}");
                    assert!(began.elapsed() <= SEC, "{mask:05b}: {:?}", began.elapsed());
                    let held = hand.client.inspect("x").await.unwrap().holders;
                    assert_eq!((held.len(), held[0].token, held[0].hold), (1, guard.token(), guard.id()));
                    assert_eq!(nodes.census(), expected(1), "{mask:05b}: the minority is untouched");
                    guard.release().await.unwrap();
                }
                Err(busy) => {
                    assert!(taken.len() > 2, "{mask:05b}");
                    assert!(waits || busy.nodes.len() == taken.len(), "{mask:05b}: {busy}");
                    assert!(busy.to_string().contains("another"), "{busy}");
                }
            }
            tokio::time::sleep(if waits { SEC } else { Duration::ZERO }).await;
            assert_eq!(nodes.census(), expected(0), "{mask:05b}: nothing is left, waits: {waits}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_of_five_may_be_dead_and_three_may_not() {
    for (dead, hang) in [(2, false), (2, true), (3, false), (3, true)] {
        let nodes = Nodes::new(5);
        for first in 0..5 {
            let hand = nodes.hand();
            for node in (0..dead).map(|n| (first + n) % 5) {
                if hang { hand.ways[node].cut(true) } else { hand.break_node(node, Trouble::Fail) }
            }
            let began = Instant::now();
            let got = hand.client.mutex("x").try_lock().await;
            let took = began.elapsed();
            if dead == 2 {
                let guard = got.unwrap().unwrap();
                assert!(took <= 10 * MS, "{took:?}");
                // It lives, and is renewed.
                tokio::time::sleep(3 * TTL).await;
                guard.check().unwrap();
                guard.release().await.unwrap();
            } else {
                let error = got.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unreachable);
                assert_eq!(error.context().filter(|(key, _)| *key == "node").count(), 3, "{error}");
                assert!(took <= TTL / 20 + 100 * MS, "{took:?}");
                let waits = hand.client.mutex("x").try_lock_for(SEC).await;
                assert!(waits.is_err() || waits.unwrap().is_err());
            }
            (0..5).for_each(|node| if hang { hand.ways[node].cut(false) } else { hand.mend(node) });
            nodes.nothing_is_left().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn half_of_four_is_no_majority() {
    let nodes = Nodes::new(4);
    let hand = nodes.hand();
    (0..2).for_each(|node| hand.break_node(node, Trouble::Fail));
    let error = hand.client.mutex("x").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert_eq!(nodes.census()[2..], [(0, 0), (0, 0)], "what was had is given back before it is told");
    hand.mend(0);
    hand.lock().await.release().await.unwrap();
    let two = Nodes::new(2).hand();
    two.lock().await.release().await.unwrap();
    two.break_node(1, Trouble::Fail);
    assert!(two.client.mutex("x").try_lock().await.is_err(), "two nodes need two");
}

/// The answer comes with the majority; what comes later belongs to the hold, or goes.
#[tokio::test(start_paused = true)]
async fn one_that_hangs_delays_nobody_and_leaves_nothing() {
    let nodes = Nodes::new(5);
    let mut medians = Vec::new();
    for hanging in [None, Some(0), Some(2), Some(4)] {
        let hand = nodes.hand();
        hand.lock().await.release().await.unwrap();
        for way in &hand.ways {
            way.next(Operation::Acquire, u32::MAX, Trouble::Delay(10 * MS));
            way.next(Operation::Release, u32::MAX, Trouble::Delay(10 * MS));
        }
        if let Some(node) = hanging {
            hand.ways[node].cut(true);
        }
        let mut took = Vec::new();
        for _ in 0..30 {
            let began = Instant::now();
            hand.lock().await.release().await.unwrap();
            took.push(began.elapsed());
        }
        took.sort();
        medians.push(took[15]);
        if let Some(node) = hanging {
            hand.ways[node].cut(false);
        }
        nodes.nothing_is_left().await;
    }
    println!("p50 of a pair: {medians:?}");
    assert!(medians[1..].iter().all(|p50| *p50 <= medians[0].mul_f64(1.2)), "{medians:?}");
}
#[tokio::test(start_paused = true)]
async fn a_late_grant_belongs_to_the_hold_and_goes_with_it() {
    let nodes = Nodes::new(5);
    let hand = nodes.hand();
    // Slow, and held when it comes; slower, and given back before.
    hand.ways[1].next(Operation::Acquire, 1, Trouble::Delay(50 * MS));
    hand.ways[3].next(Operation::Acquire, 1, Trouble::Delay(200 * MS));
    let guard = hand.lock().await;
    assert_eq!(nodes.census().iter().map(|(held, _)| held).sum::<usize>(), 3);
    tokio::time::sleep(100 * MS).await;
    assert_eq!(nodes.census()[1], (1, 0));
    guard.release().await.unwrap();
    assert_eq!(nodes.census(), [(0, 0); 5]);
    tokio::time::sleep(150 * MS).await;
    assert_eq!(nodes.census(), [(0, 0); 5], "it came, and went");
    // Still there at the next renewal, and renewed with the others.
    hand.ways[1].next(Operation::Acquire, 1, Trouble::Delay(50 * MS));
    let guard = hand.lock().await;
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(nodes.census(), [(1, 0); 5]);
    guard.release().await.unwrap();
}

/// The q-th largest of the nodes' deadlines: two that answered late do not make it shorter, and three that did, do.
#[tokio::test(start_paused = true)]
async fn validity_is_that_of_the_weakest_of_the_best_majority() {
    let nodes = Nodes::new(5);
    let hand = nodes.hand();
    let guard = hand.client.mutex("x").ttl(TTL).lock().await.unwrap();
    let first = guard.remaining();
    assert!(first > TTL.mul_f64(0.98) && first <= TTL, "{first:?}");
    // From now on only two nodes renew: that is no majority, and the validity runs.
    (0..3).for_each(|node| hand.ways[node].next(Operation::Renew, u32::MAX, Trouble::Fail));
    let began = Instant::now();
    within("doubt", TTL, guard.suspect()).await;
    assert_eq!(within("the loss", TTL, guard.lost()).await, LossReason::Unreachable);
    assert!(began.elapsed() < TTL, "{:?}", began.elapsed());
    drop(guard);
    (0..3).for_each(|node| hand.mend(node));
    // Three renew: it lives.
    let guard = hand.lock().await;
    (0..2).for_each(|node| hand.ways[node].next(Operation::Renew, u32::MAX, Trouble::Fail));
    tokio::time::sleep(3 * TTL).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    nodes.nothing_is_left().await;
}

/// Busy is not out of reach, lost is not unknown, and not held is not unanswered.
#[tokio::test(start_paused = true)]
async fn no_majority_now_is_not_no_majority_at_all() {
    let nodes = Nodes::new(3);
    let hand = nodes.hand();
    let others: Vec<_> = [0, 1].map(|node| nodes.alone(node)).into();
    let held = [others[0].mutex("x").lock().await.unwrap(), others[1].mutex("x").lock().await.unwrap()];
    let busy = hand.client.mutex("x").try_lock().await.unwrap().unwrap_err();
    assert_eq!(busy.nodes.len(), 2);
    drop(held);
    tokio::time::sleep(10 * MS).await;
    // Lost on two of three is lost, and told at once; on one it is not.
    let guard = hand.lock().await;
    for node in [0, 1] {
        guard.check().unwrap();
        let token = others[node].inspect("x").await.unwrap().holders[0].token;
        others[node].force_release("x", token).await.unwrap();
        tokio::time::sleep(MS).await;
    }
    assert_eq!(guard.lost().await, LossReason::TakenOver);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    nodes.nothing_is_left().await;
    // A release that two of three do not answer is unknown; with one it is done.
    let guard = hand.lock().await;
    hand.break_node(0, Trouble::Fail);
    guard.release().await.unwrap();
    hand.mend(0);
    let guard = hand.lock().await;
    (0..2).for_each(|node| hand.ways[node].next(Operation::Release, 1_000, Trouble::Fail));
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Lost), "{error}");
    (0..2).for_each(|node| hand.mend(node));
    nodes.nothing_is_left().await;
}

/// One of three is silent, its lease there is over, and another one takes the hold away: what is left is no majority, whatever the silent
/// one had.
#[tokio::test(start_paused = true)]
async fn what_a_silent_node_had_does_not_count_when_its_lease_is_over() {
    let nodes = Nodes::new(3);
    let (hand, others) = (nodes.hand(), [1, 2].map(|node| nodes.alone(node)));
    let guard = hand.lock().await;
    hand.ways[2].cut(true);
    tokio::time::sleep(TTL + SEC).await;
    guard.check().unwrap();
    let _silent = others[1].mutex("x").try_lock().await.unwrap().unwrap();
    others[0].force_release("x", others[0].inspect("x").await.unwrap().holders[0].token).await.unwrap();
    let began = Instant::now();
    assert_eq!(within("the loss", TTL, guard.lost()).await, LossReason::TakenOver);
    println!("told after {:?}", began.elapsed());
}
/// The same, with some of its lease left: its end is the hold's, and nobody who has both nodes then meets one who counts on it.
#[tokio::test(start_paused = true)]
async fn what_is_left_is_a_majority_while_its_leases_last() {
    for n in 0..10 {
        let nodes = Nodes::new(3);
        let (hand, others) = (nodes.hand(), [1, 2].map(|node| nodes.alone(node)));
        let guard = hand.lock().await;
        hand.ways[2].cut(true);
        let next = tokio::spawn(others[1].mutex("x").lock());
        tokio::time::sleep(TTL / 2 + n * 200 * MS).await;
        hand.ways[0].cut(true);
        others[0].force_release("x", others[0].inspect("x").await.unwrap().holders[0].token).await.unwrap();
        let _taken = others[0].mutex("x").lock().await.unwrap();
        guard.check().unwrap();
        let _next = within("the silent one's", TTL, next).await.unwrap().unwrap();
        assert!(guard.check().is_err(), "{n}: two have it");
    }
}
/// The same, while a renewal is on its way: what it was answered by the node where the hold was taken away then counts no more.
#[tokio::test(start_paused = true)]
async fn what_is_taken_away_during_a_renewal_does_not_count() {
    for n in 0..10 {
        let nodes = Nodes::new(3);
        let (hand, others) = (nodes.hand(), [1, 2].map(|node| nodes.alone(node)));
        let guard = hand.lock().await;
        // All of them were asked at the same moment; now one is silent, and one is slow.
        within("a renewal", TTL, guard.renewed()).await;
        tokio::time::sleep(100 * MS).await;
        hand.ways[2].cut(true);
        let next = tokio::spawn(others[1].mutex("x").lock());
        hand.ways[0].next(Operation::Renew, 1, Trouble::DelayReply(200 * MS));
        let asked = hand.ways[1].calls(Operation::Renew);
        soon("the next one", TTL, || hand.ways[1].calls(Operation::Renew) > asked).await;
        tokio::time::sleep(n * 15 * MS).await;
        others[0].force_release("x", others[0].inspect("x").await.unwrap().holders[0].token).await.unwrap();
        let _taken = others[0].mutex("x").lock().await.unwrap();
        guard.check().unwrap();
        let _next = within("the silent one's", 2 * TTL, next).await.unwrap().unwrap();
        assert!(guard.check().is_err(), "{n}: two have it");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_s_release_is_of_all_nodes() {
    let nodes = Nodes::new(5);
    let (hand, other) = (nodes.hand(), nodes.hand());
    let guard = hand.lock().await;
    other.client.force_release("x", guard.token()).await.unwrap();
    assert_eq!(guard.lost().await, LossReason::TakenOver);
    assert_eq!(nodes.census(), [(0, 0); 5]);
    let next = other.lock().await;
    assert!(next.token() > guard.token());
}

/// Two clients, nodes that come and go with what they have, and clocks that do not agree.
#[tokio::test(start_paused = true)]
async fn tokens_rise_over_nodes_that_come_and_go() {
    let nodes = Nodes::new(5);
    for (node, server) in nodes.servers.iter().enumerate() {
        let apart = i64::try_from(node).unwrap() * 700_000;
        server.set_wall(1_790_000_000_000_000 - apart);
    }
    let hands = [nodes.hand(), nodes.hand(), nodes.hand()];
    let mut rng = fastrand::Rng::with_seed(7);
    let mut last = None;
    for round in 0..300 {
        let hand = &hands[rng.usize(..3)];
        let down = [rng.usize(..5), rng.usize(..5)];
        for hand in &hands {
            for node in down {
                if rng.bool() { hand.ways[node].cut(true) } else { hand.break_node(node, Trouble::Fail) }
            }
        }
        let guard = hand.lock().await;
        assert!(Some(guard.token()) > last, "round {round}");
        last = Some(guard.token());
        if rng.bool() {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        for hand in &hands {
            for node in down {
                hand.ways[node].cut(false);
                hand.mend(node);
            }
        }
        if rng.u8(..4) == 0 {
            tokio::time::sleep(Duration::from_millis(rng.u64(..300))).await;
        }
    }
    nodes.nothing_is_left().await;
}
/// A client that has not seen the clocks yet writes its token to a majority; whoever comes later is above it, whatever he has seen.
#[tokio::test(start_paused = true)]
async fn a_token_stands_on_a_majority() {
    for round in 0..20 {
        let nodes = Nodes::new(5);
        for (node, server) in nodes.servers.iter().enumerate() {
            server.set_wall(1_790_000_000_000_000 + i64::try_from((node * 7 + round) % 5).unwrap() * 900);
        }
        let hand = nodes.hand();
        let guard = hand.lock().await;
        let mut stands = 0;
        for node in 0..5 {
            let status = nodes.alone(node).inspect("x").await.unwrap();
            stands += usize::from(status.holders.first().is_some_and(|holder| holder.token == guard.token()));
        }
        assert!(stands >= 3, "it stands on {stands}");
        let shown = hand.client.inspect("x").await.unwrap();
        assert_eq!((shown.holders[0].token, shown.holders[0].hold), (guard.token(), guard.id()));
        assert!(shown.last_token >= Some(guard.token()));
        guard.release().await.unwrap();
        assert_eq!(nodes.census(), [(0, 0); 5]);
        assert!(nodes.hand().lock().await.token() > shown.holders[0].token);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lost_its_part_gets_another_one_if_that_is_wished() {
    for recreates in [false, true] {
        let nodes = Nodes::new(5);
        let hand = nodes.hand_with(|quorum| quorum.recreate(recreates));
        let guard = hand.lock().await;
        let token = guard.token();
        nodes.servers[1].lose_data();
        nodes.servers[2].lose_data();
        // Somebody else has it there meanwhile.
        let other = nodes.alone(2);
        let others = other.mutex("x").lock().await.unwrap();
        tokio::time::sleep(TTL).await;
        guard.check().unwrap();
        assert_eq!(guard.token(), token);
        assert_eq!(nodes.census()[1], (usize::from(recreates), 0));
        assert_eq!(other.inspect("x").await.unwrap().holders[0].hold, others.id(), "what is another's stays so");
        if recreates {
            let status = nodes.alone(1).inspect("x").await.unwrap();
            assert!(status.last_token >= Some(token), "it carries the token");
            // It counts: two more may lose theirs now.
            drop(others);
            tokio::time::sleep(TTL).await;
            assert_eq!(nodes.census(), [(1, 0); 5]);
            nodes.servers[3].lose_data();
            nodes.servers[4].lose_data();
            tokio::time::sleep(TTL).await;
            guard.check().unwrap();
            guard.release().await.unwrap();
            assert_eq!(nodes.census(), [(0, 0); 5]);
        } else {
            nodes.servers[3].lose_data();
            assert_eq!(guard.lost().await, LossReason::TakenOver);
            drop((guard, others));
            nodes.nothing_is_left().await;
        }
    }
}
#[tokio::test(start_paused = true)]
async fn a_release_waits_for_a_re_creation() {
    let nodes = Nodes::new(3);
    let hand = nodes.hand_with(|quorum| quorum.recreate(true));
    let guard = hand.lock().await;
    nodes.servers[0].lose_data();
    hand.ways[0].next(Operation::Acquire, 1, Trouble::Delay(100 * MS));
    // Until the re-creation is on its way.
    while hand.ways[0].calls(Operation::Acquire) < 2 {
        tokio::time::sleep(10 * MS).await;
    }
    let began = Instant::now();
    guard.release().await.unwrap();
    assert!(began.elapsed() >= 80 * MS, "{:?}", began.elapsed());
    assert_eq!(nodes.census(), [(0, 0); 3]);
    tokio::time::sleep(SEC).await;
    assert_eq!(nodes.census(), [(0, 0); 3], "nothing comes after the release");
}
/// A hold of a quorum whose ways are slow as this number has it.
async fn delayed(nodes: &Nodes, seed: u64) -> (Arc<dyn Engine>, Guard, Grant) {
    let way = |server: &Arc<MemoryServer>| {
        let engine = Arc::new(MemoryEngine::on(server.clone()).default_ttl(TTL));
        Arc::new(Chaos::new(engine).seed(seed).delay(10 * MS)) as Arc<dyn Engine>
    };
    let quorum = Quorum::new(nodes.servers.iter().map(way)).unwrap().clock(nodes.clock.clone());
    let engine = Arc::new(quorum) as Arc<dyn Engine>;
    let guard = here(engine.clone(), &nodes.clock).mutex("x").lock().await.unwrap();
    let grant = Grant {
        name: guard.name().clone(),
        claim: guard.claim(),
        hold: guard.id(),
        token: guard.token(),
        ttl: guard.ttl(),
        lease: Lease::Own { sent_at: Clock::now(&*nodes.clock) },
        server_micros: 0,
        place: None,
    };
    (engine, guard, grant)
}
/// Some of it, one 3 ms after the other.
fn renewals(engine: &Arc<dyn Engine>, grant: &Grant) -> Vec<tokio::task::JoinHandle<Renewed>> {
    let renewal = |n: u32| {
        let (engine, grant) = (engine.clone(), grant.clone());
        tokio::spawn(async move {
            tokio::time::sleep(n * 3 * MS).await;
            engine.renew(&[grant]).await.unwrap()[0]
        })
    };
    (0..6).map(renewal).collect()
}
/// A renewal that is on its way finds what the release takes away, node by node, and may be heard first.
#[tokio::test(start_paused = true)]
async fn a_release_beside_renewals_is_one_of_a_hold() {
    for seed in 0..40 {
        let nodes = Nodes::new(5);
        let (engine, guard, grant) = delayed(&nodes, seed).await;
        let renewals = renewals(&engine, &grant);
        tokio::time::sleep(8 * MS).await;
        guard.release().await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        for renewal in renewals {
            renewal.await.unwrap();
        }
        nodes.nothing_is_left().await;
    }
}
/// What takes the lock away may be heard of while a renewal is on its way: then that is told what it was, too.
#[tokio::test(start_paused = true)]
async fn a_renewal_beside_a_loss_is_told_of_it() {
    let mut lost = 0;
    for seed in 0..40 {
        let nodes = Nodes::new(5);
        let other = nodes.hand();
        let (engine, guard, grant) = delayed(&nodes, seed).await;
        let renewals = renewals(&engine, &grant);
        tokio::time::sleep(8 * MS).await;
        assert_eq!(other.client.force_release("x", guard.token()).await.unwrap(), Released::Released);
        for renewal in renewals {
            let answer = renewal.await.unwrap();
            assert!(!matches!(answer, Renewed::Unknown), "seed {seed}: all have answered");
            lost += u32::from(matches!(answer, Renewed::Lost(_)));
        }
        drop(guard);
        nodes.nothing_is_left().await;
    }
    assert!(lost > 40, "{lost}");
}

#[test]
fn not_every_engine_can_be_a_node() {
    let engine = || Arc::new(MemoryEngine::new()) as Arc<dyn Engine>;
    let refused = |engines: Vec<Arc<dyn Engine>>| Quorum::new(engines).map(drop).unwrap_err();
    assert_eq!(refused(vec![engine()]).kind(), ErrorKind::InvalidConfig);
    let store = server();
    let twice = [MemoryEngine::on(store.clone()), MemoryEngine::on(store)].map(|e| Arc::new(e) as Arc<dyn Engine>);
    assert!(refused(twice.into()).to_string().contains("one store"));
    let session = Arc::new(MemoryEngine::new().with_session(SEC));
    assert_eq!(refused(vec![engine(), session, engine()]).kind(), ErrorKind::Unsupported);
    // Nodes are a quorum's own, until it goes.
    let nodes = [engine(), engine(), engine()];
    let quorum = Quorum::new(nodes.clone()).unwrap();
    assert!(Client::builder(nodes[0].clone()).build().is_err());
    assert!(Quorum::new(nodes.clone()).is_err());
    let id = quorum.info().id;
    assert_eq!((quorum.info().scheme, quorum.info().capabilities.fencing), ("quorum", Fencing::BestEffort));
    drop(quorum);
    let mut turned = nodes.clone();
    turned.reverse();
    assert_eq!(Quorum::new(turned).unwrap().info().id, id, "whatever the order");
    Client::builder(nodes[0].clone()).build().unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_name_is_listed_also_with_nodes_missing() {
    let nodes = Nodes::new(5);
    let hand = nodes.hand();
    let mut guards = Vec::new();
    for n in 0..25 {
        hand.ways[n % 5].next(Operation::Acquire, 1, Trouble::Fail);
        guards.push(hand.client.mutex(format!("l/{n:02}")).lock().await.unwrap());
    }
    for down in [0, 1, 2] {
        (0..down).for_each(|node| hand.ways[node].next(Operation::List, u32::MAX, Trouble::Fail));
        let (mut found, mut page) = (std::collections::BTreeSet::new(), fencelock_core::Page { after: None, limit: 7 });
        loop {
            let listing = hand.client.list("l/", &page).await.unwrap();
            found.extend(listing.items.iter().map(|item| item.name.to_string()));
            match listing.next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        assert_eq!(found.len(), 25, "with {down} down");
    }
    hand.ways[2].next(Operation::List, u32::MAX, Trouble::Fail);
    assert_eq!(hand.client.list("l/", &Default::default()).await.unwrap_err().kind(), ErrorKind::Unreachable);
}
