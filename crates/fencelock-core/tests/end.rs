//! Story: whoever goes last leaves nothing. A shutdown ends every wait with one clear error and waits for what was dropped;
//! a program that ends right after its guard has released it; callers without tokio are served like the others; what a
//! shutdown leaves held is told when it ends (SAFETY E5).
//!
//! Planted to see it red: `farewell` that does not wait (end of main); `Close` that stops the inbox at once (dropped in the
//! same moment); `let_go` left out, and no look at `is_closed` in `claim` (a wait behind others gets in after the shutdown);
//! the word to session holds left out of `serve` (lost is never told); `watch` that ends with `serve` (a lease runs out
//! unheard); `on_runtime` and `Held::release` that call at
//! once (no reactor); `settle` that does not look at `TAKEN`.
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use fencelock_core::{ErrorKind, LossReason};

/// For so long the last one out waits. Where that was not enough the promise was kept, and it is released behind him.
const FAREWELL: std::time::Duration = std::time::Duration::from_millis(250);

#[test]
fn a_program_that_ends_after_its_guard_leaves_nothing() {
    let mut slowest = std::time::Duration::ZERO;
    for round in 0..1_000 {
        let server = server();
        let rt = one_thread();
        let client = client(if round % 2 == 0 { lease(&server) } else { lease(&server).with_session(LONG) });
        let guard = rt.block_on(client.mutex("x").lock()).unwrap();
        drop(client);
        let began = std::time::Instant::now();
        drop(guard);
        let took = began.elapsed();
        slowest = slowest.max(took);
        if took >= FAREWELL {
            eventually("released", 10 * SEC, || server.census() == (0, 0));
        }
        assert_eq!(server.census(), (0, 0), "round {round}");
    }
    println!(
        "\nMEASURED | end of main on memory: released | 1000 of 1000, the last guard waited {slowest:?} at most | 1000 of 1000 | ok"
    );
    assert!(slowest < 10 * SEC);
}

/// The client goes last, on its own runtime's thread, with a thousand guards just dropped.
#[test]
fn the_last_client_waits_for_what_was_dropped() {
    let server = server();
    runtime().block_on(async {
        let client = client(fencelock_core::memory::MemoryEngine::on(server.clone()));
        let mut guards = Vec::new();
        for i in 0..1_000 {
            guards.push(client.mutex(format!("m{i}")).lock().await.unwrap());
        }
        drop(guards);
        let began = std::time::Instant::now();
        drop(client);
        if began.elapsed() >= FAREWELL {
            eventually("released", 10 * SEC, || server.census() == (0, 0));
        }
        assert_eq!(server.census(), (0, 0));
    });
}

#[test]
fn a_shutdown_ends_waits_and_waits_for_what_was_dropped() {
    for flavour in [0, 1] {
        let server = server();
        let holder = client(lease(&server));
        let [own, session] = flavours(&server, LONG);
        let client = client(if flavour == 0 { own } else { session });
        runtime().block_on(async {
            let guard = holder.mutex("m").lock().await.unwrap();
            // One waits at the engine, the others behind it; one with a limit, one of another name.
            let mut waits: Vec<_> = (0..5).map(|_| tokio::spawn(client.mutex("m").lock())).collect();
            waits.push(tokio::spawn(client.mutex("n").lock()));
            let free = waits.pop().unwrap().await.unwrap().unwrap();
            waits.push(tokio::spawn(client.mutex("n").lock()));
            let limited = tokio::spawn(client.mutex("m").ttl(LONG).try_lock_for(LONG));
            soon("queued", 5 * SEC, || server.census() == (2, 2)).await;
            drop(free);
            client.shutdown(5 * SEC).await.unwrap();
            for wait in waits {
                match within("its end", 5 * SEC, wait).await.unwrap() {
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
                    Ok(guard) => assert_eq!(guard.name().as_str(), "n", "it was free in time"),
                }
            }
            let end = within("its end", 5 * SEC, limited).await.unwrap();
            assert_eq!(end.unwrap_err().kind(), ErrorKind::Closed);
            soon("only the holder is left", 10 * SEC, || server.census() == (1, 0)).await;
            let error = client.mutex("m").lock().await.unwrap_err();
            assert!(error.kind() == ErrorKind::Closed && error.to_string().contains("connect again"), "{error}");
            assert_eq!(client.inspect("m").await.unwrap_err().kind(), ErrorKind::Closed);
            client.shutdown(SEC).await.unwrap();
            guard.release().await.unwrap();
        });
        eventually("free", 10 * SEC, || server.census() == (0, 0));
    }
}

/// Waits whose runtime is blocked cannot end by themselves: they are withdrawn all the same.
#[test]
fn a_shutdown_withdraws_the_waits_of_a_blocked_runtime() {
    let server = server();
    let (holder, client) = (client(lease(&server)), client(lease(&server)));
    let other = runtime();
    let guard = other.block_on(holder.mutex("m").lock()).unwrap();
    one_thread().block_on(async {
        let mut wait = client.mutex("m").lock();
        tokio::select! {
            _ = &mut wait => panic!("somebody else has it"),
            _ = soon("in the queue", 5 * SEC, || server.census() == (1, 1)) => {}
        }
        assert!(tokio::time::timeout(50 * MS, &mut wait).await.is_err());
        let shut = client.clone();
        let done = std::thread::spawn(move || block_on(shut.shutdown(5 * SEC)));
        done.join().unwrap().unwrap(); // this blocks the runtime
        assert_eq!(server.census(), (1, 0));
        assert_eq!(wait.await.unwrap_err().kind(), ErrorKind::Closed);
    });
    other.block_on(guard.release()).unwrap();
}

#[test]
fn what_a_shutdown_leaves_held_is_told_when_it_ends() {
    for flavour in [0, 1] {
        let server = server();
        let [own, session] = flavours(&server, 4 * SEC);
        let a = client(if flavour == 0 { own } else { session });
        let b = client(lease(&server));
        runtime().block_on(async {
            let guard = a.mutex("m").lock().await.unwrap();
            let lost = guard.lost();
            a.shutdown(5 * SEC).await.unwrap();
            let next = within("the next grant", 10 * SEC, b.mutex("m").lock()).await.unwrap();
            assert!(guard.check().is_err(), "two hold it");
            let reason = within("told", 10 * SEC, lost).await;
            assert!(flavour == 0 || reason == LossReason::SessionEnded, "{reason}");
            next.release().await.unwrap();
        });
    }
}

#[test]
fn a_shutdown_says_when_it_was_not_done_in_time() {
    let server = server();
    let (client, link) = cuttable(lease(&server));
    runtime().block_on(async {
        let guard = client.mutex("m").lock().await.unwrap();
        let other = client.mutex("n").lock().await.unwrap();
        link.cut(true);
        drop(guard);
        let error = client.shutdown(50 * MS).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("50ms"), "{error}");
        drop(other); // the keeper is still there, and takes it along
        link.cut(false);
        soon("it went on behind", 5 * SEC, || server.census() == (0, 0)).await;
    });
}

#[test]
fn callers_without_tokio_are_served() {
    let server = server();
    let client = client(lease(&server));
    let guard = block_on(client.mutex("x").lock()).unwrap();
    assert!(block_on(client.mutex("x").try_lock()).unwrap().is_err());
    assert!(block_on(client.mutex("x").try_lock_for(20 * MS)).unwrap().is_err());
    assert!(block_on(client.inspect("x")).unwrap().is_held());
    assert_eq!(block_on(client.list("", &fencelock_core::Page::default())).unwrap().items.len(), 1);
    let wait = std::thread::spawn({
        let client = client.clone();
        move || block_on(client.mutex("x").lock()).map(drop)
    });
    eventually("queued", 5 * SEC, || server.census() == (1, 1));
    block_on(guard.release()).unwrap();
    wait.join().unwrap().unwrap();
    drop(client.mutex("x").lock());
    block_on(async { assert!(once(&mut client.mutex("x").lock()).await.is_none()) });
    eventually("nothing left", 10 * SEC, || server.census() == (0, 0));
    block_on(client.shutdown(SEC)).unwrap();
    assert_eq!(block_on(client.mutex("x").lock()).unwrap_err().kind(), ErrorKind::Closed);
}

/// Engines and repeats need tokio's reactor and time: they have them, on the keeper.
#[test]
fn callers_without_tokio_need_none_of_it() {
    let server = server();
    let hooked = Hooked::new(lossy(&server, 0.5), |grant| Box::pin(async move { grant }));
    let client = fencelock_core::Client::builder(std::sync::Arc::new(hooked)).build().unwrap();
    for _ in 0..20 {
        match block_on(client.mutex("x").lock()) {
            Ok(guard) => block_on(guard.release()).unwrap(),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Ambiguous),
        }
        let _ = block_on(client.inspect("x"));
    }
    eventually("nothing left", 10 * SEC, || server.census() == (0, 0));
}

/// A grant came late and is renewed first; a shutdown comes in between, and the keeper takes the hold back before the answer
/// is there. What is gone on the server is not handed out.
#[tokio::test(start_paused = true)]
async fn what_the_keeper_took_back_is_not_handed_out() {
    let (clock, server) = paused();
    let ttl = 2 * SEC;
    let mut late = Hooked::new(paused_lease(&clock, &server).default_ttl(ttl), move |grant| {
        Box::pin(async move {
            tokio::time::sleep(ttl * 6 / 10).await;
            grant
        })
    });
    late.slow_renew = 600 * MS;
    let client = here(std::sync::Arc::new(late), &clock);
    let wait = tokio::spawn(client.mutex("m").lock());
    soon("granted by the server", 10 * SEC, || server.census() == (1, 0)).await;
    tokio::time::sleep(ttl * 6 / 10 + 100 * MS).await; // it is being renewed
    assert!(!wait.is_finished());
    client.shutdown(5 * SEC).await.unwrap();
    assert_eq!(server.census(), (0, 0));
    let end = within("its end", 5 * SEC, wait).await.unwrap();
    assert_eq!(end.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(client.held(), 0);
}
