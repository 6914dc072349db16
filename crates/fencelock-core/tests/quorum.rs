//! Story: five stores as one. Any minority may be dead, hang, or be somebody else's; a majority that is not to be had is told, in time,
//! with what each node said, and nothing is left anywhere; those who wait do so in one queue and hold nothing meanwhile; and tokens
//! rise over whatever nodes come and go.
//!
//! Planted to see it red: `nodes / 2` (masks, four nodes); `undo` left out (masks, failures); `patience` of an hour (hanging nodes);
//! `adopt_late` that drops its call (late answers); the write-back left out, the highest told at once (clocks apart); `news` that
//! takes the largest (validity); `mend` always false (re-creation), and re-creation for everybody (opt-in); `look` that always stays
//! (a queue that dies, leftovers); `paid` that is content with the first answer (what comes too late); `undo` that keeps what it has while it waits (waiters hold nothing).
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use fencelock_core::{
    Chaos, Client, Clock, Engine, ErrorKind, Fencing, Guard, LossReason, Operation, Quorum, Trouble,
    memory::{Link, MemoryEngine, MemoryServer},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{runtime::Handle, time::Instant};

const TTL: Duration = Duration::from_secs(6);

/// Some stores on paused time, in the order in which a quorum numbers them.
struct Nodes {
    clock: Arc<dyn Clock>,
    servers: Vec<Arc<MemoryServer>>,
}
/// A client of all of them, and a hand on its way to each.
struct Hand {
    client: Client,
    ways: Vec<Arc<Chaos>>,
}
impl Nodes {
    fn new(n: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(fencelock_core::TokioClock::start());
        let mut servers: Vec<_> = (0..n).map(|_| MemoryServer::new(clock.clone())).collect();
        servers.sort_by_key(|server| MemoryEngine::on(server.clone()).info().id);
        Self { clock, servers }
    }
    fn hand(&self) -> Hand {
        self.hand_with(|quorum| quorum)
    }
    fn hand_with(&self, options: impl FnOnce(Quorum) -> Quorum) -> Hand {
        let way = |server: &Arc<MemoryServer>| {
            Arc::new(Chaos::new(Arc::new(MemoryEngine::on(server.clone()).default_ttl(TTL))))
        };
        let ways: Vec<_> = self.servers.iter().map(way).collect();
        let engines: Vec<_> = ways.iter().rev().map(|way| way.clone() as Arc<dyn Engine>).collect();
        let quorum = options(Quorum::new(engines).unwrap().clock(self.clock.clone()));
        Hand { client: here(Arc::new(quorum), &self.clock), ways }
    }
    /// A client of this node alone, as one whose quorum is another.
    fn alone(&self, node: usize) -> Client {
        here(Arc::new(MemoryEngine::on(self.servers[node].clone()).default_ttl(LONG)), &self.clock)
    }
    fn census(&self) -> Vec<(usize, usize)> {
        self.servers.iter().map(|server| server.census()).collect()
    }
    async fn nothing_is_left(&self) {
        let free = vec![(0, 0); self.servers.len()];
        let mut census = self.census();
        for _ in 0..400 {
            if census == free {
                return;
            }
            tokio::time::sleep(10 * MS).await;
            census = self.census();
        }
        panic!("left: {census:?}");
    }
}
impl Hand {
    /// From now on everything that is sent to this node fails, or hangs.
    fn break_node(&self, node: usize, how: Trouble) {
        use Operation::*;
        for of in [Acquire, Exchange, Inspect, Release, Renew, Withdraw] {
            self.ways[node].next(of, u32::MAX, how);
        }
    }
    fn mend(&self, node: usize) {
        use Operation::*;
        for of in [Acquire, Exchange, Inspect, Release, Renew, Withdraw] {
            self.ways[node].next(of, 0, Trouble::Fail);
        }
    }
    async fn lock(&self) -> Guard {
        within("a lock", LONG, self.client.mutex("x").lock()).await.unwrap()
    }
}

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
        let (last, waits) =
            (Arc::new(std::sync::Mutex::new((None, Instant::now()))), Arc::new(std::sync::Mutex::new(Vec::new())));
        runtime().block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..clients {
                let engines = nodes.iter().map(|node| {
                    let link = Link::new(Handle::current(), MS / 5);
                    Arc::new(MemoryEngine::on(node.clone()).over(link)) as Arc<dyn Engine>
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
        });
        assert_eq!(entered.load(SeqCst), clients * rounds);
        let mut waits = waits.lock().unwrap();
        waits.sort();
        let at = |part: usize| waits[waits.len() * part / 100];
        println!("{clients} clients: hand-off p50 {:?}, p99 {:?}, most {:?}", at(50), at(99), waits[waits.len() - 1]);
        eventually("nothing is left", 10 * SEC, || nodes.iter().all(|node| node.census() == (0, 0)));
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
