//! Story: a silence is told as what it is. Whoever comes while a majority says nothing waits a second for it; whoever is stopped is told
//! who was in the way, if a majority has said so, and that nobody answered only if nobody did. And a hold that has become another one
//! does not come back as what it was.
//!
//! Planted to see it red: an `OUTAGE` of nothing (those that are waited over), and of an hour (a long one); `stopped` that knows the place in a
//! queue alone (both of those who are stopped), that does not look, that takes its own hold for somebody's, or looks as long as a node
//! may take (the first of those); `change` left out (downgrades); a look that does not mind how many have answered (those in a queue); a
//! grant in hand that is kept whoever is silent (in hand); answers of withdrawals that count for nothing (one who has just queued).
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
#[path = "common/nodes.rs"]
mod nodes;
use common::*;
use fencelock_core::{ErrorKind, Operation, Trouble};
use nodes::*;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_short_silence_of_a_majority_is_waited_over() {
    for hang in [false, true] {
        let nodes = Nodes::new(5);
        let hand = nodes.hand();
        for node in [0, 2, 4] {
            if hang { hand.ways[node].cut(true) } else { hand.break_node(node, Trouble::Fail) }
        }
        let lock = hand.client.mutex("x").lock();
        let comes_back = async {
            tokio::time::sleep(600 * MS).await;
            for node in [0, 2, 4] {
                if hang { hand.ways[node].cut(false) } else { hand.mend(node) }
            }
            std::future::pending::<()>().await
        };
        let guard = tokio::select! { guard = lock => guard.unwrap(), () = comes_back => unreachable!() };
        guard.release().await.unwrap();
        nodes.nothing_is_left().await;
    }
}
#[tokio::test(start_paused = true)]
async fn a_long_silence_of_a_majority_is_told_to_who_has_come_into_it() {
    for hang in [false, true] {
        let nodes = Nodes::new(5);
        let (hand, holds) = (nodes.hand(), nodes.alone(1));
        // There is a queue on one that answers: it is no reason to wait.
        let held = holds.mutex("x").lock().await.unwrap();
        for node in [0, 2, 4] {
            if hang { hand.ways[node].cut(true) } else { hand.break_node(node, Trouble::Fail) }
        }
        let began = Instant::now();
        let error = within("what is told", LONG, hand.client.mutex("x").lock()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(error.context().filter(|(key, _)| *key == "node").count() >= 3, "{error}");
        assert!(began.elapsed() >= SEC && began.elapsed() <= 3 * SEC, "{:?}", began.elapsed());
        (0..5).for_each(|node| if hang { hand.ways[node].cut(false) } else { hand.mend(node) });
        drop(held);
        nodes.nothing_is_left().await;
    }
}
/// Also where it is known that others want the name: a place in the one queue that answers is no reason to wait.
#[tokio::test(start_paused = true)]
async fn a_long_silence_is_told_to_who_has_come_into_it_and_stands_in_a_queue() {
    let nodes = Nodes::new(5);
    let (early, late) = (nodes.hand(), nodes.hand());
    let held = nodes.held_by_others(0..3).await;
    // One stands in a queue while all is well: whoever has waited waits over an outage.
    let mut first = Box::pin(early.client.mutex("x").lock());
    assert!(tokio::time::timeout(600 * MS, &mut first).await.is_err());
    late.client.mutex("x").try_lock_for(100 * MS).await.unwrap().unwrap_err();
    let cut = |cut: bool| [&early, &late].into_iter().for_each(|hand| (2..5).for_each(|node| hand.ways[node].cut(cut)));
    cut(true);
    let began = Instant::now();
    let error = within("what is told", LONG, late.client.mutex("x").lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(began.elapsed() >= SEC && began.elapsed() <= 3 * SEC, "{:?}", began.elapsed());
    assert!(tokio::time::timeout(5 * SEC, &mut first).await.is_err());
    cut(false);
    drop(held);
    within("the first", LONG, first).await.unwrap().release().await.unwrap();
    nodes.nothing_is_left().await;
}

/// And to one who has a grant in hand.
#[tokio::test(start_paused = true)]
async fn a_long_silence_is_told_to_who_has_come_into_it_and_has_one_in_hand() {
    let nodes = Nodes::new(5);
    let hand = nodes.hand();
    let held = nodes.held_by_others(0..3).await;
    // It is known that others want it.
    hand.client.mutex("x").try_lock_for(100 * MS).await.unwrap().unwrap_err();
    drop(held);
    nodes.nothing_is_left().await;
    (2..5).for_each(|node| hand.ways[node].cut(true));
    let began = Instant::now();
    let error = within("what is told", LONG, hand.client.mutex("x").ttl(30 * SEC).lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(began.elapsed() >= SEC && began.elapsed() <= 4 * SEC, "{:?}", began.elapsed());
    (2..5).for_each(|node| hand.ways[node].cut(false));
    nodes.nothing_is_left().await;
}
/// Whoever has come while all was well waits over what begins a moment later (SAFETY E8).
#[tokio::test(start_paused = true)]
async fn an_outage_that_begins_when_one_has_just_queued_is_waited_over() {
    let nodes = Nodes::new(5);
    let hand = nodes.hand();
    let held = nodes.held_by_others(0..3).await;
    // He has a place before the others have answered.
    hand.ways[1..].iter().for_each(|way| way.next(Operation::Acquire, u32::MAX, Trouble::Delay(10 * MS)));
    let mut wait = Box::pin(hand.client.mutex("x").lock());
    assert!(tokio::time::timeout(20 * MS, &mut wait).await.is_err());
    (2..5).for_each(|node| hand.ways[node].cut(true));
    assert!(tokio::time::timeout(10 * SEC, &mut wait).await.is_err());
    (2..5).for_each(|node| hand.ways[node].cut(false));
    drop(held);
    within("he gets it", LONG, wait).await.unwrap().release().await.unwrap();
    nodes.nothing_is_left().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_is_stopped_hears_what_a_majority_has_said() {
    let nodes = Nodes::new(5);
    let hand = nodes.hand();
    let held = nodes.held_by_others(1..4).await;
    hand.ways.iter().for_each(|way| way.next(Operation::Acquire, u32::MAX, Trouble::Delay(100 * MS)));
    // Once they have answered; he has a place in no queue.
    let busy = hand.client.mutex("x").try_lock_for(150 * MS).await.unwrap().unwrap_err();
    assert!(busy.to_string().contains("another") && busy.nodes.len() == 3, "{busy}");
    // Nobody has said anything yet, whether it is known that others want it or not: he looks, which is no delayed claim.
    for name in ["x", "y"] {
        let soon = Instant::now();
        let busy = hand.client.mutex(name).try_lock_for(MS).await.unwrap().unwrap_err();
        assert_eq!(
            (busy.to_string().contains("another"), busy.nodes.len()),
            if name == "x" { (true, 3) } else { (false, 0) }
        );
        assert!(soon.elapsed() < 100 * MS, "{:?}", soon.elapsed());
    }
    drop(held);
    nodes.nothing_is_left().await;
    // What he has himself on the nodes is not in his way, and goes.
    hand.ways.iter().for_each(|way| way.next(Operation::Acquire, u32::MAX, Trouble::DelayReply(100 * MS)));
    let busy = hand.client.mutex("z").try_lock_for(MS).await.unwrap().unwrap_err();
    assert!(busy.holder.is_none() && busy.nodes.is_empty(), "{busy:?}");
    nodes.nothing_is_left().await;
    // No majority answers to that either: which do not, in time, also where a long ttl gives each node longer.
    (2..5).for_each(|node| hand.ways[node].cut(true));
    let soon = Instant::now();
    let error = hand.client.mutex("x").ttl(30 * SEC).try_lock_for(MS).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert_eq!(error.context().filter(|(key, _)| *key == "node").count(), 3, "{error}");
    assert!(soon.elapsed() < SEC, "{:?}", soon.elapsed());
    (2..5).for_each(|node| hand.ways[node].cut(false));
    nodes.nothing_is_left().await;
}
#[tokio::test(start_paused = true)]
async fn whoever_is_stopped_while_his_token_is_written_was_answered() {
    let nodes = Nodes::new(5);
    for (node, server) in nodes.servers.iter().enumerate() {
        server.set_wall(1_790_000_000_000_000 - i64::try_from(node).unwrap() * 700_000);
    }
    let hand = nodes.hand();
    hand.ways.iter().for_each(|way| way.next(Operation::Exchange, u32::MAX, Trouble::Delay(200 * MS)));
    let busy = hand.client.mutex("x").try_lock_for(100 * MS).await.unwrap();
    assert!(busy.is_err());
    assert!(hand.ways.iter().any(|way| way.calls(Operation::Exchange) > 0), "nothing was written");
    nodes.nothing_is_left().await;
}

/// Whoever only looks has a second for it, however short leases are. (Red: a twentieth of the default ttl.)
#[tokio::test(start_paused = true)]
async fn whoever_looks_at_nodes_that_are_slow_is_answered() {
    let nodes = Nodes::new(5);
    let hand = nodes.hand();
    let held = hand.lock().await;
    for of in [Operation::Inspect, Operation::List, Operation::ForceRelease] {
        hand.ways.iter().for_each(|way| way.next(of, u32::MAX, Trouble::Delay(450 * MS)));
    }
    let status = hand.client.inspect("x").await.unwrap();
    assert_eq!(status.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [held.token()]);
    let listing = hand.client.list("", &Default::default()).await.unwrap();
    assert_eq!(listing.items.len(), 1);
    hand.client.force_release("x", held.token()).await.unwrap();
    within("it is told", LONG, held.lost()).await;
    nodes.nothing_is_left().await;
}
#[tokio::test(start_paused = true)]
async fn what_a_writer_gave_up_is_not_made_anew() {
    // Lost after the downgrade, and being made anew when it comes.
    for under_way in [false, true] {
        let nodes = Nodes::new(5);
        let (hand, other) = (nodes.hand_with(|quorum| quorum.recreate(true)), nodes.hand());
        let writer = hand.client.rw_lock("x").write().await.unwrap();
        if under_way {
            nodes.servers[1].lose_data();
            hand.ways[1].next(Operation::Acquire, 1, Trouble::Delay(100 * MS));
            while hand.ways[1].calls(Operation::Acquire) < 2 {
                tokio::time::sleep(10 * MS).await;
            }
        }
        let reader = writer.downgrade().await.unwrap();
        if !under_way {
            nodes.servers[1].lose_data();
        }
        tokio::time::sleep(2 * TTL).await;
        reader.check().unwrap();
        for node in 0..5 {
            let status = nodes.alone(node).inspect("x").await.unwrap();
            assert!(status.holders.iter().all(|holder| !holder.claim.is_exclusive()), "{node}: {status:?}");
        }
        let beside = other.client.rw_lock("x").try_read().await.unwrap().unwrap();
        assert!(nodes.census().iter().all(|(held, _)| *held >= 1), "{:?}", nodes.census());
        drop((reader, beside));
        nodes.nothing_is_left().await;
    }
}
