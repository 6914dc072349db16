//! Story: a hold is given back once, by the guard that has it, whatever became of the runtime that it was taken on and of the
//! replies on the way. A release that had its effect and whose reply was lost is no error (SAFETY G4, E5).
//!
//! Planted to see it red: `give_back` without `repeated` (a lost reply makes NotHeld); `enter` that does not `find` its own
//! grant (a second hold of one attempt); `Held::drop` that posts nothing (runtime gone, blocked); `finish(Released)` left out
//! of `Held::drop` (a wait for `lost` of a dropped guard must not see a loss).
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use fencelock_core::ErrorKind;

#[test]
fn a_dropped_guard_is_released_though_the_runtime_is_blocked_or_gone() {
    for session in [false, true] {
        let server = server();
        let engine = lease(&server);
        let client = client(if session { engine.with_session(LONG) } else { engine });
        let rt = one_thread();
        rt.block_on(async {
            let guard = client.mutex("a").lock().await.unwrap();
            assert_eq!((server.census(), client.held()), ((1, 0), 1));
            drop(guard);
            eventually("released by the keeper", 10 * SEC, || server.census() == (0, 0)); // this blocks the runtime
        });
        let guard = rt.block_on(client.mutex("a").lock()).unwrap();
        let lost = guard.lost();
        drop(rt);
        guard.check().unwrap();
        drop(guard);
        eventually("released", 10 * SEC, || server.census() == (0, 0));
        let told = one_thread().block_on(async { tokio::time::timeout(20 * MS, lost).await });
        assert!(told.is_err(), "a release is no loss");
        assert_eq!(client.held(), 0);
    }
}

#[test]
fn half_of_all_replies_lost_is_one_hold_and_one_release_each() {
    let server = server();
    let client = client(lossy(&server, 0.5));
    let mut failed = 0;
    runtime().block_on(async {
        let mut before = 0;
        for _ in 0..200 {
            // Six replies in a row may be lost: then it is withdrawn, and told.
            let guard = match within("a lock", 20 * SEC, client.mutex("x").lock()).await {
                Ok(guard) => guard,
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Ambiguous);
                    failed += 1;
                    continue;
                }
            };
            assert!(guard.token().get() > before);
            before = guard.token().get();
            assert_eq!(server.census(), (1, 0), "a second hold, or a place in the queue beside its own grant");
            // While the hold is good its release knows no error.
            guard.release().await.unwrap();
        }
    });
    assert!(failed < 40, "{failed}");
    eventually("free", 10 * SEC, || server.census() == (0, 0));
}

/// Dropped in the middle, never polled, or with the link cut: the keeper ends it.
#[test]
fn a_release_that_is_not_awaited_to_its_end_is_done_all_the_same() {
    let server = server();
    let (client, link) = cuttable(lease(&server).with_session(LONG));
    runtime().block_on(async {
        let guard = client.mutex("x").lock().await.unwrap();
        drop(guard.release());
        soon("never polled", 10 * SEC, || server.census() == (0, 0)).await;
        let guard = client.mutex("x").lock().await.unwrap();
        let mut release = Box::pin(guard.release());
        assert!(once(&mut release).await.is_none());
        drop(release);
        soon("on the way", 10 * SEC, || server.census() == (0, 0)).await;
        let guard = client.mutex("x").lock().await.unwrap();
        link.cut(true);
        drop(guard);
        tokio::time::sleep(20 * MS).await;
        link.cut(false);
        soon("after the outage", 5 * SEC, || server.census() == (0, 0)).await;
    });
}
