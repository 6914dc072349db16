//! Story: a future of a lock may be dropped at any moment: before its first byte, with the command on the way, in the queue,
//! with the grant on the way back. Nothing stays held or queued, not even when the runtime that polled it is blocked or gone,
//! and not on an engine with sessions, where no lease would ever end what was left behind (SAFETY A3).
//!
//! Planted to see it red: `Job::Adopt` dropped by the keeper together with the undo of `Undo::drop` (storms, ended runtimes);
//! the second withdrawal of `undo` left out (storms over the link); `Job::Undo` of `Stage::Task` left out (blocked runtime);
//! `Undo::drop` that posts nothing (runtime gone); "busy" believed after a stop (storms with lost replies); a
//! ticket that the keeper makes.
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use fencelock_core::{
    Client, Engine, Outcome,
    memory::{MemoryEngine, MemoryServer},
};
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

/// Polls until ready, until some microseconds have passed, or for so many polls: drops come between any two steps.
async fn abandoned<F: Future + Unpin>(mut lock: F) -> Option<F::Output> {
    if fastrand::u8(0..3) > 0 {
        let after = Duration::from_micros(fastrand::u64(0..25_000));
        return tokio::time::timeout(after, lock).await.ok();
    }
    for _ in 0..fastrand::u32(0..40) {
        if let Some(out) = once(&mut lock).await {
            return Some(out);
        }
        tokio::task::yield_now().await;
    }
    None
}
/// Got it, got nothing, or dropped. Some wait for as long as it takes, however slow the machine is.
async fn try_one(client: &Client, patient: bool) -> (u32, u32) {
    let mutex = client.mutex(format!("n{}", fastrand::u8(0..8)));
    let got = match fastrand::u8(0..6) {
        _ if patient => Some(mutex.lock().await.is_ok()),
        0 => abandoned(mutex.try_lock()).await.map(|got| matches!(got, Ok(Ok(_)))),
        1 => abandoned(mutex.try_lock_for(Duration::from_micros(fastrand::u64(0..20_000))))
            .await
            .map(|got| matches!(got, Ok(Ok(_)))),
        _ => abandoned(mutex.lock()).await.map(|got| got.is_ok()),
    };
    (u32::from(got == Some(true)), u32::from(got.is_none()))
}
/// Nothing is held or queued, and past the end of every command, which may come late, it is still so. What stays is a ghost: here it
/// lasts for a minute, or for as long as its session. Tells when that began.
fn stays_free(server: &Arc<MemoryServer>) -> Duration {
    let began = Instant::now();
    let mut since = began;
    while since.elapsed() < 600 * MS {
        if server.census() != (0, 0) {
            assert!(began.elapsed() < 10 * SEC, "a command came after its withdrawal: {:?}", server.census());
            since = Instant::now();
        }
        std::thread::sleep(MS / 4);
    }
    since - began
}
fn storm(server: &Arc<MemoryServer>, engine: MemoryEngine) {
    let client = client(engine);
    let (got, dropped) = runtime().block_on(async {
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    let mut sum = (0, 0);
                    for round in 0..200 {
                        let (got, dropped) = try_one(&client, round % 8 == 0).await;
                        sum = (sum.0 + got, sum.1 + dropped);
                    }
                    sum
                })
            })
            .collect();
        let mut sum = (0, 0);
        for task in tasks {
            let (got, dropped) = task.await.unwrap();
            sum = (sum.0 + got, sum.1 + dropped);
        }
        sum
    });
    let took = stays_free(server);
    assert_eq!(client.held(), 0);
    println!(
        "\nMEASURED | cancelled waits over the memory link: left 1 s later | 0 of {dropped} ({got} got; clean after {took:?}) | 0 | {}",
        if took < SEC { "ok" } else { "MISSED" }
    );
    assert!(dropped > 2_000 && got > 300, "the run must bite: {got} got, {dropped} dropped");
}
#[test]
fn ten_thousand_cancels() {
    let server = server();
    storm(&server, lease(&server));
}
#[test]
fn ten_thousand_cancels_with_lost_replies() {
    let server = server();
    storm(&server, lossy(&server, 0.1));
}
#[test]
fn ten_thousand_cancels_on_a_session_engine() {
    let server = server();
    storm(&server, lossy(&server, 0.02).with_session(LONG));
}

/// The contrary. An engine's future is dropped and its undo sent at once, as engines were first meant to do: over this link
/// the undo overtakes its attempt. If this ever leaves nothing, the link does not reorder and the storms prove nothing.
#[test]
fn an_undo_sent_at_once_leaks() {
    let server = server();
    let engine = Arc::new(lease(&server));
    let requests = Capture::requests((0..2_000).map(|i| format!("k{i}")));
    runtime().block_on(async {
        let tasks: Vec<_> = requests
            .chunks(40)
            .map(|requests| {
                let (engine, requests) = (engine.clone(), requests.to_vec());
                tokio::spawn(async move {
                    for request in requests {
                        let after = Duration::from_micros(fastrand::u64(0..2_000));
                        match tokio::time::timeout(after, engine.acquire(&request)).await {
                            Ok(Ok(Outcome::Granted(grant))) => drop(engine.release(&grant).await),
                            _ => engine.withdraw(&request).await.unwrap(),
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    let (ghosts, _) = server.census();
    println!("{ghosts} ghosts of 2000 attempts");
    assert!(ghosts > 0);
}

#[test]
fn a_dropped_wait_is_withdrawn_though_the_runtime_is_blocked_or_gone() {
    for gone in [false, true] {
        let server = server();
        let (holder, waiter) = (client(lease(&server).with_session(LONG)), client(lease(&server).with_session(LONG)));
        let other = runtime();
        let guard = other.block_on(holder.mutex("a").lock()).unwrap();
        let rt = one_thread();
        rt.block_on(async {
            let mut wait = waiter.mutex("a").lock();
            tokio::select! {
                _ = &mut wait => panic!("somebody else has it"),
                _ = soon("in the queue", 5 * SEC, || server.census() == (1, 1)) => {}
            }
            assert!(tokio::time::timeout(50 * MS, &mut wait).await.is_err());
            if !gone {
                drop(wait);
                eventually("withdrawn by the keeper", 10 * SEC, || server.census() == (1, 0)); // this blocks the runtime
                return;
            }
            tokio::spawn(wait); // it goes with the runtime
        });
        drop(rt);
        eventually("withdrawn", 10 * SEC, || server.census() == (1, 0));
        other.block_on(guard.release()).unwrap();
        eventually("free", 10 * SEC, || server.census() == (0, 0));
    }
}

/// The wait whose place went with the server's memory began again: dropped with its runtime blocked, it leaves nothing either.
#[test]
fn a_displaced_wait_is_withdrawn_too() {
    let server = server();
    let (holder, waiter) = (client(lease(&server).with_session(LONG)), client(lease(&server).with_session(LONG)));
    let other = runtime();
    let first = other.block_on(holder.mutex("a").lock()).unwrap();
    one_thread().block_on(async {
        let mut wait = waiter.mutex("a").lock();
        assert!(tokio::time::timeout(700 * MS, &mut wait).await.is_err(), "longer than the window of its command");
        server.lose_data();
        // This blocks the runtime: the wait does not come first.
        let take = || other.block_on(within("taken", 10 * SEC, holder.mutex("a").lock()));
        let second = std::thread::scope(|scope| scope.spawn(take).join().unwrap()).unwrap();
        tokio::select! {
            _ = &mut wait => panic!("it is held"),
            _ = soon("it queues again", 5 * SEC, || server.census() == (1, 1)) => {}
        }
        drop(wait);
        eventually("withdrawn by the keeper", 10 * SEC, || server.census() == (1, 0));
        drop((first, second));
    });
    eventually("free", 10 * SEC, || server.census() == (0, 0));
}

#[test]
fn runtimes_that_end_in_the_middle_of_attempts() {
    let server = server();
    let client = client(lossy(&server, 0.02).with_session(LONG));
    for round in 0..200 {
        let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        for i in 0..20 {
            let client = client.clone();
            rt.spawn(async move { client.mutex(format!("n{}", (round * 20 + i) % 50)).lock().await.map(drop) });
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..3_000)));
        rt.shutdown_background();
    }
    stays_free(&server);
    assert_eq!((server.census(), client.held()), ((0, 0), 0));
}

/// A caller's patience and a shutdown hold for an engine that does not answer at all, too; and an abandoned attempt that
/// hangs does not keep its turn from those behind it.
#[test]
fn an_engine_that_hangs_holds_nobody_up() {
    let server = server();
    let (client, engine) = cuttable(lease(&server));
    runtime().block_on(async {
        client.mutex("warm").lock().await.unwrap().release().await.unwrap();
        engine.cut(true);
        let answer = within("patience", 5 * SEC, client.mutex("a").try_lock_for(20 * MS)).await;
        assert!(!matches!(answer, Ok(Ok(_))), "{answer:?}");
        // One hangs in the queue of the engine, and is dropped; the next one gets the turn.
        engine.cut(false);
        let other = common::client(lease(&server));
        let guard = other.mutex("b").lock().await.unwrap();
        let mut wait = client.mutex("b").lock();
        let told = async {
            while wait.blocked_by().is_none() {
                assert!(once(&mut wait).await.is_none());
                tokio::time::sleep(MS).await;
            }
        };
        within("it is in the queue", 10 * SEC, told).await;
        engine.cut(true);
        let before = engine.commands();
        soon("its refresh hangs", 5 * SEC, || engine.commands() > before).await;
        drop(wait);
        engine.cut(false);
        drop(guard);
        within("the turn", 5 * SEC, client.mutex("b").lock()).await.unwrap().release().await.unwrap();
    });
    eventually("free", 10 * SEC, || server.census() == (0, 0));
}

/// After a stop "busy" means only that the engine does not look any more: what it was granted before is withdrawn.
#[test]
fn busy_after_a_stop_is_not_believed() {
    let server = server();
    let mut idle = Hooked::new(lease(&server), |grant| Box::pin(async move { grant }));
    idle.idle = true;
    let client = Client::builder(Arc::new(idle)).build().unwrap();
    runtime().block_on(async {
        let mut lock = client.mutex("m").try_lock();
        assert!(once(&mut lock).await.is_none());
        soon("granted by the server", 5 * SEC, || server.census() == (1, 0)).await;
        assert!(once(&mut lock).await.is_none());
        drop(lock);
        soon("withdrawn", 10 * SEC, || server.census() == (0, 0)).await;
    });
}

#[test]
fn a_ticket_whose_caller_has_gone_is_given_back() {
    let server = server();
    let a = client(lease(&server));
    let mut gone = 0;
    for _ in 0..100 {
        // A caller without a runtime: the keeper works for him.
        let mut ticket = Box::pin(block_on(a.mutex("x").lock()).unwrap().into_ticket());
        if let Some(ticket) = block_on(once(&mut ticket)) {
            // He was slower than the keeper.
            block_on(block_on(a.adopt(&ticket.unwrap())).unwrap().release()).unwrap();
            continue;
        }
        gone += 1;
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..4_000)));
        drop(ticket);
        eventually("it is released", 10 * SEC, || server.census() == (0, 0));
    }
    assert!(gone > 0, "it is on its way");
}
