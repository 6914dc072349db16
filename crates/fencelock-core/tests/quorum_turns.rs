//! Story: those who wait for a quorum do so in one queue and hold nothing meanwhile; a queue that dies, or in which somebody's leftovers
//! stand, keeps nobody; whoever is dropped, or comes too late, leaves nothing.
//!
//! Planted to see it red: `look` that always stays (a queue that dies, leftovers); `undo` left out before a wait (it holds nothing);
//! `paid` that is content with the first answer (what comes too late); a try to read without the veto (a writer is passed);
//! a veto of the lowest alone (in whichever queue);
//! `patience` of an hour.
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
#[path = "common/nodes.rs"]
mod nodes;
use common::*;
use fencelock_core::{
    Client, Engine, ErrorKind, Operation, Quorum, Trouble,
    memory::{Link, MemoryEngine},
};
use nodes::*;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{runtime::Handle, time::Instant};

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_in_one_queue_and_holds_nothing() {
    let nodes = Nodes::new(5);
    let (hand, other) = (nodes.hand(), nodes.hand());
    let guard = hand.lock().await;
    let waits = tokio::spawn(async move { (other.lock().await, other) });
    tokio::time::sleep(3 * SEC).await;
    assert_eq!(nodes.census(), [(1, 1), (1, 0), (1, 0), (1, 0), (1, 0)]);
    let shown = hand.client.inspect("x").await.unwrap();
    assert_eq!((shown.holders.len(), shown.waiters.len()), (1, 1));
    let began = Instant::now();
    guard.release().await.unwrap();
    let (next, other) = within("the hand-off", SEC, waits).await.unwrap();
    assert!(began.elapsed() <= 3 * MS, "{:?}", began.elapsed());
    assert_eq!(nodes.census(), [(1, 0); 5]);
    // Its queue falls silent, and then the holder goes.
    let again = tokio::spawn(async move { hand.lock().await });
    tokio::time::sleep(SEC).await;
    let silent = nodes.hand();
    let third = tokio::spawn(async move {
        let wait = silent.client.mutex("x").lock();
        let cut = async {
            tokio::time::sleep(SEC).await;
            silent.ways[0].cut(true);
            std::future::pending::<()>().await
        };
        let guard = tokio::select! { guard = wait => guard.unwrap(), () = cut => unreachable!() };
        silent.ways[0].cut(false);
        (guard.token(), guard.release().await)
    });
    tokio::time::sleep(3 * SEC).await;
    next.release().await.unwrap();
    let guard = within("the second", 5 * SEC, again).await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    let (last, released) = within("the third, by another queue", 10 * SEC, third).await.unwrap();
    released.unwrap();
    assert!(last > token);
    drop(other);
    nodes.nothing_is_left().await;
}
/// A majority is free, and somebody's leftovers stand where one would queue.
#[tokio::test(start_paused = true)]
async fn leftovers_on_the_lowest_node_keep_nobody_waiting() {
    let nodes = Nodes::new(5);
    let leftovers = nodes.alone(0);
    let left = leftovers.mutex("x").lock().await.unwrap();
    let hand = nodes.hand();
    let began = Instant::now();
    let guard = hand.lock().await;
    assert!(began.elapsed() <= SEC, "{:?}", began.elapsed());
    // Whoever comes now finds the holder where it is.
    let other = nodes.hand();
    let waits = tokio::spawn(async move { other.lock().await.token() });
    tokio::time::sleep(5 * SEC).await;
    let began = Instant::now();
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(within("the next", SEC, waits).await.unwrap() > token);
    assert!(began.elapsed() <= 100 * MS, "{:?}", began.elapsed());
    drop(left);
}

/// Each with a client of its own, over links: nobody starves, nobody gives up, no two are in at once.
#[test]
fn sixteen_clients_take_turns() {
    for (clients, rounds) in [(2, 100), (16, 25)] {
        let nodes: Vec<_> = (0..5).map(|_| server()).collect();
        let (inside, entered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (last, waits) = (Arc::new(Mutex::new((None, Instant::now()))), Arc::new(Mutex::new(Vec::new())));
        runtime().block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..clients {
                // Long: no node is out before it has been silent for seconds.
                let engines = nodes.iter().map(|node| {
                    let link = Link::new(Handle::current(), MS / 5);
                    Arc::new(MemoryEngine::on(node.clone()).default_ttl(4 * LONG).over(link)) as Arc<dyn Engine>
                });
                let client = Client::quorum(engines).unwrap().build().unwrap();
                let (inside, entered, last, waits) = (inside.clone(), entered.clone(), last.clone(), waits.clone());
                tasks.push(tokio::spawn(async move {
                    for _ in 0..rounds {
                        let guard = within("a turn", LONG, client.mutex("x").lock()).await.unwrap();
                        assert!(!inside.swap(true, SeqCst), "two at once");
                        {
                            let mut last = last.lock().unwrap();
                            assert!(Some(guard.token()) > last.0, "tokens rise");
                            last.0 = Some(guard.token());
                            waits.lock().unwrap().push(last.1.elapsed());
                        }
                        tokio::time::sleep(MS).await;
                        entered.fetch_add(1, SeqCst);
                        inside.store(false, SeqCst);
                        last.lock().unwrap().1 = Instant::now();
                        guard.release().await.unwrap();
                    }
                    drop(client);
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            // The links are this runtime's.
            soon("nothing is left", 10 * SEC, || nodes.iter().all(|node| node.census() == (0, 0))).await;
        });
        assert_eq!(entered.load(SeqCst), clients * rounds);
        let mut waits = waits.lock().unwrap();
        waits.sort();
        let at = |part: usize| waits[waits.len() * part / 100];
        println!("{clients} clients: hand-off p50 {:?}, p99 {:?}, most {:?}", at(50), at(99), waits[waits.len() - 1]);
    }
}

/// Dropped after any number of polls: nothing stays.
#[tokio::test(start_paused = true)]
async fn whoever_is_dropped_half_way_leaves_nothing() {
    let nodes = Nodes::new(5);
    let hand = nodes.hand();
    for way in &hand.ways {
        way.next(Operation::Acquire, u32::MAX, Trouble::Delay(3 * MS));
        way.next(Operation::Exchange, u32::MAX, Trouble::Delay(3 * MS));
    }
    for taken in [false, true] {
        let other = nodes.hand();
        for polls in 0..25 {
            let guard = if taken { Some(other.lock().await) } else { None };
            let mut lock = hand.client.mutex("x").lock();
            for _ in 0..polls {
                if once(&mut lock).await.is_some() {
                    break;
                }
                tokio::time::sleep(MS).await;
            }
            drop(lock);
            drop(guard);
            nodes.nothing_is_left().await;
        }
    }
}

/// What was sent arrives all the same, and may overtake or be overtaken by what undoes it: it is undone after its end, and not by the end
/// of a lease.
#[tokio::test(start_paused = true)]
async fn what_comes_too_late_is_undone_after_its_end() {
    let nodes = Nodes::new(5);
    let ttl = 10 * SEC;
    let engines = nodes.servers.iter().enumerate().map(|(node, server)| {
        // Some of it takes longer than a node is waited for.
        let link = Link::new(Handle::current(), 700 * MS).lose_replies(0.05).seed(node as u64);
        Arc::new(MemoryEngine::on(server.clone()).default_ttl(ttl).over(link)) as Arc<dyn Engine>
    });
    let client = here(Arc::new(Quorum::new(engines).unwrap().clock(nodes.clock.clone())), &nodes.clock);
    let mut rng = fastrand::Rng::with_seed(3);
    for round in 0..100 {
        let lock = client.mutex(format!("x{round}"));
        if rng.bool() {
            drop(lock.try_lock().await);
        } else {
            drop(tokio::time::timeout(Duration::from_millis(rng.u64(..900)), lock.lock()).await);
        }
        tokio::time::sleep(ttl.mul_f64(0.8)).await;
        assert_eq!(nodes.census(), [(0, 0); 5], "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn readers_share_and_a_writer_that_waits_is_not_passed() {
    let nodes = Nodes::new(5);
    let (a, b, c) = (nodes.hand(), nodes.hand(), nodes.hand());
    let (one, two) = (a.client.rw_lock("x").read().await.unwrap(), b.client.rw_lock("x").read().await.unwrap());
    let writer = c.client.clone();
    let writes = tokio::spawn(async move { writer.rw_lock("x").write().await.unwrap() });
    tokio::time::sleep(SEC).await;
    assert!(a.client.rw_lock("x").try_read().await.unwrap().is_err(), "a reader passed the writer");
    drop((one, two));
    let writer = within("the writer", SEC, writes).await.unwrap();
    assert!(a.client.rw_lock("x").try_read().await.unwrap().is_err());
    let reader = writer.downgrade().await.unwrap();
    let beside = a.client.rw_lock("x").try_read().await.unwrap().unwrap();
    assert!(b.client.rw_lock("x").try_write().await.unwrap().is_err());
    drop((reader, beside));
    nodes.nothing_is_left().await;
    assert!(a.client.semaphore("s", 3).acquire(1).await.is_err_and(|e| e.kind() == ErrorKind::Unsupported));
}
/// Two clients may take different nodes for the lowest that answers, so those who wait are not all in one queue.
#[tokio::test(start_paused = true)]
async fn readers_heed_a_writer_in_whichever_queue() {
    let nodes = Nodes::new(5);
    let (a, b, c) = (nodes.hand(), nodes.hand(), nodes.hand());
    let one = a.client.rw_lock("x").read().await.unwrap();
    // For him the two lowest are silent when he comes.
    (0..2).for_each(|node| c.break_node(node, Trouble::Fail));
    let writer = c.client.clone();
    let writes = tokio::spawn(async move { writer.rw_lock("x").write().await.unwrap() });
    tokio::time::sleep(100 * MS).await;
    (0..2).for_each(|node| c.mend(node));
    let queues: Vec<_> = nodes.census().iter().map(|(_, waiters)| *waiters).collect();
    assert_eq!(queues, [0, 0, 1, 0, 0], "in the queue of the lowest that answered");
    assert!(b.client.rw_lock("x").try_read().await.unwrap().is_err(), "a reader passed the writer");
    // One who waits does not pass him either.
    let (reader, first) = (b.client.clone(), Arc::new(AtomicBool::new(true)));
    let late = tokio::spawn({
        let first = first.clone();
        async move { (reader.rw_lock("x").read().await.unwrap(), first.swap(false, SeqCst)) }
    });
    tokio::time::sleep(SEC).await;
    assert!(!late.is_finished());
    drop(one);
    let writer = within("the writer", SEC, writes).await.unwrap();
    assert!(first.swap(false, SeqCst), "the reader came first");
    writer.release().await.unwrap();
    let (reader, was_first) = within("the reader", SEC, late).await.unwrap();
    assert!(!was_first);
    drop(reader);
    nodes.nothing_is_left().await;
}
