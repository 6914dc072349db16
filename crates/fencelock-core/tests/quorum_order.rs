//! Story: whoever is behind others for a quorum stays behind them, however slow a node is to tell him so, and whenever he looks; of those
//! who come at once and do not wait one gets it; and nobody is told of a token that will not be the holder's.
//!
//! Planted to see it red: a node that is left when it has said nothing for 50 ms, or when the others have answered, and `in_the_way` that
//! knows of those alone; a place that is left though it was told meanwhile (told late); a place that is left at the first look (passed
//! on); a majority that does not wait for the lowest (a reader); a try that gives back what it has, does not wait for the lowest, or takes
//! those for holders who are slow to go (at once); one that goes on while the holder stays (one node only); a look that believes the first
//! token (written), and one that waits for those of readers (once); a question that is open again, without a deadline (a moment); a holder
//! that is left whoever it is, and `said` without what was said before (of himself); what those say believed who differ (refused).
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
#[path = "common/nodes.rs"]
mod nodes;
use common::*;
use fencelock_core::{Operation, Trouble};
use nodes::*;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// His question is long on its way to the lowest, and answers to whoever looks are from some of them.
#[tokio::test(start_paused = true)]
async fn whoever_is_told_late_that_he_waits_waits_where_the_others_do() {
    for (late, look, slow, queue) in [
        (30 * MS, MS, 0..0, 0),       // the others have said no, and it has said nothing
        (200 * MS, MS, 0..0, 0),      // it has said nothing for long, but answers to other things
        (200 * MS, 90 * MS, 0..5, 0), // nobody is quicker
        (80 * MS, 80 * MS, 0..1, 0),  // it says so while it is looked at
        (LONG, LONG, 0..1, 1),        // it is silent
    ] {
        let nodes = Nodes::new(5);
        let (hand, other) = (nodes.hand(), nodes.hand());
        let guard = hand.lock().await;
        other.ways[0].next(Operation::Acquire, u32::MAX, Trouble::Delay(late));
        for way in &other.ways[slow] {
            way.next(Operation::Inspect, u32::MAX, Trouble::Delay(look));
        }
        let waits = tokio::spawn(async move { other.lock().await });
        tokio::time::sleep(late.min(SEC)).await;
        tokio::time::sleep(200 * MS).await;
        let queues: Vec<_> = nodes.census().iter().map(|(_, waiters)| *waiters).collect();
        let all: Vec<_> = (0..5).map(|node| usize::from(node == queue)).collect();
        assert_eq!(queues, all, "{late:?}, {look:?}");
        guard.release().await.unwrap();
        within("his turn", SEC, waits).await.unwrap().release().await.unwrap();
        nodes.nothing_is_left().await;
    }
}
/// The lock is free on most nodes, and not yet on the lowest, or already held by the next: some of those who wait look just then.
#[tokio::test(start_paused = true)]
async fn a_queue_is_not_left_while_a_lock_is_passed_on() {
    const WAITERS: u32 = 12;
    for late in 0..5 {
        let nodes = Nodes::new(5);
        let hand = nodes.hand();
        let guard = hand.lock().await;
        let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
        for i in 0..WAITERS {
            let (other, order) = (nodes.hand(), order.clone());
            tasks.push(tokio::spawn(async move {
                let guard = other.lock().await;
                order.lock().unwrap().push(i);
                // The next one looks in the middle of this, too.
                other.ways[late].next(Operation::Release, u32::MAX, Trouble::Delay(30 * MS));
                guard.release().await.unwrap();
            }));
            tokio::time::sleep(MS).await;
        }
        tokio::time::sleep((235 - WAITERS) * MS).await;
        hand.ways[late].next(Operation::Release, u32::MAX, Trouble::Delay(30 * MS));
        guard.release().await.unwrap();
        for task in tasks {
            within("a turn", LONG, task).await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>(), "{late}");
        nodes.nothing_is_left().await;
    }
}
/// A writer waits on one node alone, and that one is the last to answer.
#[tokio::test(start_paused = true)]
async fn a_reader_hears_the_lowest_before_he_passes_anybody() {
    for waits in [false, true] {
        let nodes = Nodes::new(5);
        let (a, b, c) = (nodes.hand(), nodes.hand(), nodes.hand());
        let one = a.client.rw_lock("x").read().await.unwrap();
        let writes = tokio::spawn(async move { b.client.rw_lock("x").write().await.unwrap() });
        tokio::time::sleep(100 * MS).await;
        c.ways[0].next(Operation::Acquire, u32::MAX, Trouble::Delay(30 * MS));
        let lock = c.client.rw_lock("x");
        let reads = if waits {
            let reads = tokio::spawn(lock.read());
            tokio::time::sleep(SEC).await;
            assert!(!reads.is_finished(), "a reader passed the writer");
            Some(reads)
        } else {
            assert!(lock.try_read().await.unwrap().is_err(), "a reader passed the writer");
            None
        };
        drop(one);
        within("the writer", SEC, writes).await.unwrap().release().await.unwrap();
        if let Some(reads) = reads {
            within("the reader", SEC, reads).await.unwrap().unwrap().release().await.unwrap();
        }
        nodes.nothing_is_left().await;
    }
}
/// A hundred machines at the same second: one of them does it.
#[tokio::test(start_paused = true)]
async fn of_those_who_try_at_once_one_gets_it() {
    for seed in 0..40 {
        let (mut rng, of) = (fastrand::Rng::with_seed(seed), if seed % 2 == 0 { 3 } else { 5 });
        let (mut tries, nodes, each_its_own) = (Vec::new(), Nodes::new(of), seed < 8);
        for i in 0..if each_its_own { of } else { [3, 5, 20, 100][usize::try_from(seed).unwrap() % 4] } {
            let hand = nodes.hand();
            for (node, way) in hand.ways.iter().enumerate() {
                let late = if each_its_own { u64::from(node != i) * 3_000 } else { rng.u64(..3_000) };
                way.next(Operation::Acquire, u32::MAX, Trouble::Delay(Duration::from_micros(late)));
                way.next(Operation::Release, u32::MAX, Trouble::Delay(if each_its_own { 6 * MS } else { MS }));
                // The lowest is the last to answer to the one who has it.
                if each_its_own && seed >= 4 && i + node == 0 {
                    way.next(Operation::Acquire, 1, Trouble::DelayReply(4 * MS));
                }
            }
            tries.push(tokio::spawn(async move { (hand.client.mutex("x").try_lock().await.unwrap().ok(), hand) }));
        }
        let mut got = Vec::new();
        for task in tries {
            let (guard, hand) = within("an answer", SEC, task).await.unwrap();
            got.extend(guard.map(|guard| (guard, hand)));
        }
        assert_eq!(got.len(), 1, "seed {seed}");
        got.pop().unwrap().0.release().await.unwrap();
        nodes.nothing_is_left().await;
    }
}
/// Their clocks differ, so that a token has to be written on most of them first.
#[tokio::test(start_paused = true)]
async fn whoever_looks_is_told_of_no_token_before_it_is_written() {
    let nodes = Nodes::new(5);
    for (node, server) in nodes.servers.iter().enumerate() {
        server.set_wall(1_790_000_000_000_000 + i64::try_from(node).unwrap() * 900);
    }
    let (hand, other) = (nodes.hand(), nodes.hand());
    for way in &hand.ways {
        way.next(Operation::Exchange, u32::MAX, Trouble::Delay(20 * MS));
    }
    let takes = tokio::spawn(async move { (hand.lock().await, hand) });
    let mut told = Vec::new();
    while !takes.is_finished() {
        told.extend(other.client.inspect("x").await.unwrap().holders.iter().map(|holder| holder.token));
        tokio::time::sleep(MS).await;
    }
    let (guard, _hand) = takes.await.unwrap();
    told.extend(other.client.inspect("x").await.unwrap().holders.iter().map(|holder| holder.token));
    assert!(
        !told.is_empty() && told.iter().all(|token| *token == guard.token()),
        "{told:?}, and it is {}",
        guard.token()
    );
}
/// One whose clock is ahead has answered him late, with a token of its own, which is not his.
#[tokio::test(start_paused = true)]
async fn whoever_is_refused_is_told_of_the_token_that_most_nodes_have() {
    let nodes = Nodes::new(3);
    for (node, server) in nodes.servers.iter().enumerate() {
        server.set_wall(1_790_000_000_000_000 + if node == 2 { 5_000_000 } else { 0 });
    }
    let (hand, other) = (nodes.hand(), nodes.hand());
    hand.ways[2].next(Operation::Acquire, 1, Trouble::DelayReply(100 * MS));
    let guard = hand.lock().await;
    tokio::time::sleep(SEC).await;
    let on = nodes.alone(2).inspect("x").await.unwrap().holders[0].token;
    assert!(on > guard.token(), "{on}, and it is {}", guard.token());
    for slow in 0..3 {
        other.ways[slow].next(Operation::Acquire, u32::MAX, Trouble::Delay(200 * MS));
        for waits in [false, true] {
            let lock = other.client.mutex("x");
            let busy = if waits { lock.try_lock_for(SEC).await } else { lock.try_lock().await };
            let holder = busy.unwrap().unwrap_err().holder.unwrap();
            assert_eq!((holder.hold, holder.token), (guard.id(), guard.token()), "{slow} is slow, waits: {waits}");
        }
        other.mend(slow);
    }
}
/// He holds it on a bare majority, and one of those nodes hangs: whoever tries is told of him, and soon.
#[tokio::test(start_paused = true)]
async fn a_holder_who_is_seen_on_one_node_only_is_told() {
    let nodes = Nodes::new(3);
    let (hand, other) = (nodes.hand(), nodes.hand());
    hand.break_node(0, Trouble::Fail);
    let guard = hand.lock().await;
    other.break_node(2, Trouble::Delay(LONG));
    let began = Instant::now();
    let busy = other.client.mutex("x").try_lock().await.unwrap().unwrap_err();
    let (took, limit) = (began.elapsed(), (TTL / 20).max(50 * MS));
    assert_eq!(busy.holder.unwrap().hold, guard.id());
    assert!(took <= 2 * limit + 20 * MS, "{took:?}, and a node has {limit:?}");
}
/// What he has got himself, and is slow to give back, is in nobody's way that he is told of.
#[tokio::test(start_paused = true)]
async fn nobody_is_told_of_himself() {
    let nodes = Nodes::new(5);
    let theirs = nodes.held_by_others(1..4).await;
    for waits in [false, true] {
        let hand = nodes.hand();
        for back in [Operation::Release, Operation::Withdraw] {
            hand.ways[4].next(back, 1, Trouble::Delay(2 * SEC));
        }
        // What says no comes before those who are behind it are heard.
        for node in 1..4 {
            let late = Trouble::Delay(u32::try_from(node).unwrap() * MS);
            hand.ways[node].next(Operation::Acquire, u32::MAX, late);
        }
        let lock = hand.client.mutex("x");
        let busy = if waits { lock.try_lock_for(SEC).await } else { lock.try_lock().await };
        let busy = busy.unwrap().unwrap_err();
        assert_eq!(&*busy.holder.unwrap().note, "another", "{waits}");
        assert!(waits || busy.nodes.len() == 3, "{:?}", busy.nodes);
        tokio::time::sleep(3 * SEC).await;
        assert_eq!(nodes.census(), [(0, 0), (1, 0), (1, 0), (1, 0), (0, 0)]);
    }
    drop(theirs);
}
/// Readers have a token each, and from each node its own: nobody looks for one that is written.
#[tokio::test(start_paused = true)]
async fn a_reader_is_looked_at_once() {
    let nodes = Nodes::new(5);
    for (node, server) in nodes.servers.iter().enumerate() {
        server.set_wall(1_790_000_000_000_000 + i64::try_from(node).unwrap() * 900);
    }
    let (hand, other) = (nodes.hand(), nodes.hand());
    let _guard = hand.client.rw_lock("x").read().await.unwrap();
    let began = Instant::now();
    assert_eq!(other.client.inspect("x").await.unwrap().holders.len(), 1);
    assert!(began.elapsed() <= MS, "{:?}", began.elapsed());
}
/// A reader's place is a no until it is a grant, and then it is open again what comes of the question: one node that hangs keeps nobody.
#[tokio::test(start_paused = true)]
async fn a_place_that_is_granted_within_a_moment_leaves_nobody_without_a_deadline() {
    for held_for in 1..8 {
        let nodes = Nodes::new(3);
        let (hand, other) = (nodes.hand(), nodes.hand());
        let guard = hand.client.rw_lock("x").write().await.unwrap();
        hand.ways[1].next(Operation::Release, u32::MAX, Trouble::Delay(100 * MS));
        other.ways[1].next(Operation::Acquire, u32::MAX, Trouble::Delay(6 * MS));
        other.break_node(2, Trouble::Delay(LONG));
        let reads = tokio::spawn(async move { (other.client.rw_lock("x").read().await.unwrap(), other) });
        tokio::time::sleep(held_for * MS).await;
        guard.release().await.unwrap();
        let began = Instant::now();
        let (guard, other) = within("a reader", LONG, reads).await.unwrap();
        assert!(began.elapsed() <= 3 * SEC, "{held_for} ms: {:?}", began.elapsed());
        drop(guard);
        (0..3).for_each(|node| other.mend(node));
        nodes.nothing_is_left().await;
    }
}
