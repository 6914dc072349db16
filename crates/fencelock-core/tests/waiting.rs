//! Story: whoever does not get a lock is told who is in the way; a limited wait keeps its limit and leaves no trace; nobody
//! passes those who wait here; and a wait outlives the memory of the server.
//!
//! Planted to see it red: `enter` that asks the engine though somebody waits here (try_lock passes the queue); `nap` without
//! the deadline (patience); `queued` that keeps no report (blocked_by); `Displaced` answered as an error (lost data);
//! `misses` never reset (a long wait over a bad link).
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use fencelock_core::{ErrorKind, Page, memory::MemoryEngine};
use std::time::Instant;

#[test]
fn try_lock_names_the_holder_and_passes_nobody() {
    let server = server();
    let (a, b) = (client(lease(&server)), client(lease(&server)));
    one_thread().block_on(async {
        let guard = a.mutex("m").note("shipping").lock().await.unwrap();
        for client in [&a, &b] {
            let busy = client.mutex("m").try_lock().await.unwrap().unwrap_err();
            let holder = busy.holder.clone().unwrap();
            assert_eq!((&*holder.note, holder.pid, holder.token), ("shipping", std::process::id(), guard.token()));
            let error = fencelock_core::Error::from(busy);
            assert_eq!(error.kind(), ErrorKind::Busy);
            assert!(error.to_string().contains("shipping"), "{error}");
        }
        assert_eq!(server.census(), (1, 0), "who tries does not queue");

        // Three of b wait: one at the engine, two here.
        let mut waits: Vec<_> = (0..3).map(|_| b.mutex("m").lock()).collect();
        for wait in &mut waits {
            assert!(once(wait).await.is_none());
        }
        soon("one waits at the engine", 5 * SEC, || server.census() == (1, 1)).await;
        let told = async {
            while waits[0].blocked_by().is_none() {
                assert!(once(&mut waits[0]).await.is_none());
                tokio::time::sleep(MS).await;
            }
        };
        within("a report", 5 * SEC, told).await;
        let busy = waits[0].blocked_by().unwrap();
        assert_eq!((&*busy.holder.unwrap().note, busy.ahead), ("shipping", Some(0)));
        assert_eq!(waits[2].blocked_by().unwrap().ahead, Some(2));
        let busy = b.mutex("m").try_lock().await.unwrap().unwrap_err();
        assert_eq!((&*busy.holder.unwrap().note, busy.ahead), ("shipping", Some(2)));

        // Free at the engine, but somebody waits here: still busy.
        let status = b.inspect("m").await.unwrap();
        assert_eq!((status.holders.len(), status.waiters.len(), status.kind.is_some()), (1, 1, true));
        guard.release().await.unwrap();
        let first = within("first", 5 * SEC, waits.remove(0)).await.unwrap();
        first.release().await.unwrap();
        assert!(b.mutex("m").try_lock().await.unwrap().is_err(), "it passed those who wait");
        for wait in waits {
            within("the next", 5 * SEC, wait).await.unwrap().release().await.unwrap();
        }
        b.mutex("m").try_lock().await.unwrap().unwrap().release().await.unwrap();
        let status = b.inspect("m").await.unwrap();
        assert!(!status.is_held() && status.kind.is_none() && status.last_token.is_some());
        assert!(b.list("", &Page::default()).await.unwrap().items.is_empty());
    });
}

#[test]
fn a_limited_wait_keeps_its_limit_and_leaves_no_trace() {
    let server = server();
    let (a, b) = (client(lease(&server).with_session(LONG)), client(lease(&server).with_session(LONG)));
    runtime().block_on(async {
        let guard = a.mutex("m").note("shipping").lock().await.unwrap();
        // It has its session: that takes nothing of the time.
        b.mutex("warm").lock().await.unwrap().release().await.unwrap();
        // At the engine, and in the local queue behind it.
        let began = Instant::now();
        let (first, second) = (b.mutex("m"), b.mutex("m"));
        let both = async { tokio::join!(first.try_lock_for(SEC), second.try_lock_for(60 * MS)) };
        let (first, second) = within("the limit", 10 * SEC, both).await;
        assert_eq!(&*first.unwrap().unwrap_err().holder.unwrap().note, "shipping");
        second.unwrap().unwrap_err();
        assert!(began.elapsed() >= SEC && began.elapsed() < 5 * SEC, "{:?}", began.elapsed());
        soon("no trace", 10 * SEC, || server.census() == (1, 0)).await;
        // In time it gets in.
        let wait = tokio::spawn(b.mutex("m").try_lock_for(10 * SEC));
        soon("queued", 5 * SEC, || server.census() == (1, 1)).await;
        guard.release().await.unwrap();
        within("in", 5 * SEC, wait).await.unwrap().unwrap().unwrap().release().await.unwrap();
        let far = b.mutex("m").try_lock_for(std::time::Duration::MAX).await.unwrap().unwrap();
        far.release().await.unwrap();
    });
    eventually("free", 10 * SEC, || server.census() == (0, 0));
}

#[test]
fn a_wait_outlives_the_memory_of_the_server() {
    for flavour in [0, 1] {
        let server = server();
        let holder = client(lease(&server));
        let [own, session] = flavours(&server, LONG);
        let waiter = client(if flavour == 0 { own } else { session });
        runtime().block_on(async {
            let old = holder.mutex("m").lock().await.unwrap();
            let wait = tokio::spawn(waiter.mutex("m").lock());
            soon("queued", 5 * SEC, || server.census() == (1, 1)).await;
            server.lose_data();
            // Its next sign of life finds nothing: it begins again under a fresh id, and gets in.
            let guard = within("in", 5 * SEC, wait).await.unwrap().unwrap();
            assert!(guard.token() > old.token());
            guard.check().unwrap();
            let status = holder.inspect("m").await.unwrap();
            assert_eq!((status.holders.len(), status.holders[0].hold), (1, guard.id()));
            // The old one is not there any more.
            assert_eq!(old.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
            guard.release().await.unwrap();
        });
        eventually("free", 10 * SEC, || server.census() == (0, 0));
    }
}

/// (Red: errors that end a wait which has to begin again; an outage of which nobody is told who was in no queue yet.)
#[test]
fn whoever_comes_again_waits_over_an_outage() {
    let server = server();
    let away = || Err(fencelock_core::Error::new(ErrorKind::Unreachable, "lock", "it goes a second time"));
    let outage = |displaced| {
        let engine = Hooked::new(lease(&server), |grant| Box::pin(std::future::ready(grant)));
        *engine.before.lock().unwrap() = vec![away(), away(), away()];
        if displaced {
            engine.before.lock().unwrap().push(Ok(fencelock_core::Outcome::Displaced));
        }
        fencelock_core::Client::builder(std::sync::Arc::new(engine)).build().unwrap()
    };
    runtime().block_on(async {
        let guard = within("in", 5 * SEC, outage(true).mutex("m").lock()).await.unwrap();
        guard.release().await.unwrap();
        // Who has not waited yet is told, and so is who does not wait.
        let told = outage(false).mutex("m").lock().await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Unreachable);
        let told = outage(true).mutex("m").try_lock().await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Unreachable);
        // And a limit is kept.
        let engine = Hooked::new(lease(&server), |grant| Box::pin(std::future::ready(grant)));
        engine.before.lock().unwrap().extend((0..1_000).map(|_| away()));
        engine.before.lock().unwrap().push(Ok(fencelock_core::Outcome::Displaced));
        let client = fencelock_core::Client::builder(std::sync::Arc::new(engine)).build().unwrap();
        let began = Instant::now();
        let told = within("its limit", 5 * SEC, client.mutex("m").try_lock_for(300 * MS)).await.unwrap().unwrap_err();
        assert!(began.elapsed() >= 300 * MS);
        assert!(told.stale, "that it is an outage is told also to whoever has been told nothing before: {told:?}");
    });
    eventually("free", 10 * SEC, || server.census() == (0, 0));
}

/// On paused time: ten minutes in the queue over a link that loses every third reply.
#[tokio::test(start_paused = true)]
async fn a_long_wait_over_a_bad_link_does_not_fail() {
    let clock = std::sync::Arc::new(fencelock_core::TokioClock::start());
    let server = fencelock_core::memory::MemoryServer::new(clock.clone());
    let link = || fencelock_core::memory::Link::new(tokio::runtime::Handle::current(), 5 * MS).seed(7);
    let make = |link| {
        let engine = std::sync::Arc::new(MemoryEngine::on(server.clone()).over(link));
        fencelock_core::Client::builder(engine).clock(clock.clone()).keeper_here().build().unwrap()
    };
    let (a, b) = (make(link()), make(link().lose_replies(0.33)));
    let guard = a.mutex("m").lock().await.unwrap();
    let wait = tokio::spawn(b.mutex("m").lock());
    tokio::time::sleep(600 * SEC).await;
    assert!(!wait.is_finished(), "{:?}", wait.await);
    guard.release().await.unwrap();
    within("in", 10 * SEC, wait).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_is_answered_though_the_engine_is_silent() {
    let (client, control) = fencelock_core::testing::memory();
    let guard = client.mutex("x").lock().await.unwrap();
    control.cut();
    let began = tokio::time::Instant::now();
    let error = client.mutex("y").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), fencelock_core::ErrorKind::Unreachable, "{error}");
    assert!(began.elapsed() < 10 * SEC, "{:?}", began.elapsed());
    control.restore();
    guard.check().unwrap();
    drop(guard);
    control.advance(5 * SEC).await;
    assert_eq!(control.census(), (0, 0));
}
