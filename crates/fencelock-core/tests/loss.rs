//! Story: a holder hears that it lost its lock before anybody else can have it, at once when an operator takes it away, and
//! at its time when it may not hold longer; `check` says no from the first moment at which somebody else may have it, and a
//! hold in doubt says so before it is lost (SAFETY G3, G4, G5, G6).
//!
//! Planted to see it red: `told_at` past the validity (a loss told too late); `Losses::lose` that does nothing (force);
//! `lose` without the arm for `Awaited` (forced release before the guard); `lose_session` left out; `judge` without `limit`
//! (max_hold); a release posted at `MaxHold` (freed too early); `look` that wakes only the lost (suspect); `is_valid` without
//! the clock (check); `extend` that wakes nobody (renewed).
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use fencelock_core::{BootClock, Clock, ErrorKind, LossReason, Released, memory::MemoryEngine};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

const TTL: Duration = Duration::from_millis(300);

/// Tells when a drop happens.
struct Flag(Arc<AtomicBool>);
impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_cut_off_is_told_before_the_next_grant() {
    for flavour in [0, 1] {
        let (clock, server) = paused();
        let [own, session] = paused_flavours(&clock, &server, TTL);
        let link = Arc::new(if flavour == 0 { own } else { session });
        let a = here(link.clone(), &clock);
        let b = here(Arc::new(paused_lease(&clock, &server).default_ttl(TTL)), &clock);
        let guard = a.mutex("x").lock().await.unwrap();
        for _ in 0..3 {
            within("a renewal", 5 * SEC, guard.renewed()).await;
        }
        guard.check().unwrap();
        link.cut(true);
        let (lost, now) = (guard.lost(), clock.clone());
        let told = tokio::spawn(async move { (lost.await, now.now()) });
        let (doubt, now) = (guard.suspect(), clock.clone());
        let doubt = tokio::spawn(async move {
            doubt.await;
            now.now()
        });
        let (near, now) = (guard.expires_within(TTL / 10), clock.clone());
        let near = tokio::spawn(async move {
            near.await;
            now.now()
        });
        let next = within("the next grant", 5 * SEC, b.mutex("x").lock()).await.unwrap();
        let taken = clock.now();
        let (reason, at) = within("told", MS, told).await.unwrap();
        assert!(at < taken, "told {:?} late", taken.until(at));
        assert_eq!(reason, LossReason::Unreachable);
        let (doubt, near) = (doubt.await.unwrap(), near.await.unwrap());
        assert!(doubt + TTL / 10 < at, "in doubt only {:?} before the loss", doubt.until(at));
        assert!(near <= at && doubt < near, "near its end {:?} before the loss", near.until(at));
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(guard.run(async {}).await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(next.token() > guard.token());
        assert_eq!(a.held(), 0);
        link.cut(false);
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        next.check().unwrap();
        next.release().await.unwrap();
        soon("free", 10 * SEC, || server.census() == (0, 0)).await;
    }
}

/// The same by the machine's clock and on the keeper's own threads: whenever they run, two never hold it.
#[test]
fn a_holder_that_is_cut_off_does_not_hold_beside_the_next_one() {
    for flavour in [0, 1] {
        let server = server();
        let [own, session] = flavours(&server, TTL);
        let (a, link) = cuttable(if flavour == 0 { own } else { session });
        let b = client(lease(&server));
        runtime().block_on(async {
            let guard = a.mutex("x").lock().await.unwrap();
            link.cut(true);
            let next = within("the next grant", 10 * SEC, b.mutex("x").lock()).await.unwrap();
            assert!(guard.check().is_err(), "two hold it, for {:?}", guard.remaining());
            let reason = within("told", 10 * SEC, guard.lost()).await;
            assert!(matches!(reason, LossReason::Unreachable | LossReason::Expired), "{reason}");
            assert!(next.token() > guard.token());
            next.check().unwrap();
            next.release().await.unwrap();
        });
    }
}

/// In doubt and well again: the doubt goes, nothing is lost.
#[tokio::test(start_paused = true)]
async fn a_short_outage_is_survived() {
    let (clock, server) = paused();
    let link = Arc::new(paused_lease(&clock, &server).default_ttl(SEC));
    let guard = here(link.clone(), &clock).mutex("x").lock().await.unwrap();
    link.cut(true);
    within("doubt", 5 * SEC, guard.suspect()).await;
    link.cut(false);
    within("a renewal", 5 * SEC, guard.renewed()).await;
    guard.check().unwrap();
    assert!(guard.remaining() > SEC / 2);
    assert!(once(&mut Box::pin(guard.suspect())).await.is_none(), "no doubt is left");
    guard.release().await.unwrap();
}

/// `check` is exact: it says yes as long as the hold is good, and never after `valid_until`.
#[test]
fn check_is_exact() {
    let server = server();
    let (a, link) = cuttable(lease(&server).default_ttl(TTL));
    one_thread().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        link.cut(true);
        loop {
            let (before, end) = (BootClock.now(), guard.valid_until());
            match guard.check() {
                // Asked while good: the answer may have come a moment later.
                Ok(()) => assert!(before < end),
                Err(_) => break,
            }
            std::thread::sleep(MS / 10);
        }
        // It is told 10 ms before the end, and from then on it is not good.
        let left = BootClock.now().until(guard.valid_until());
        assert!(left <= 10 * MS, "refused {left:?} before it had to be");
        // Drift and margin: 1 % and 2 ms less than the ttl are claimed.
        let claimed = guard.ttl().mul_f64(0.99) - 2 * MS;
        drop(guard);
        link.cut(false);
        let asked = BootClock.now();
        let fresh = a.mutex("y").lock().await.unwrap();
        assert!(fresh.remaining() <= claimed && fresh.valid_until() + MS > asked + claimed);
    });
}

#[test]
fn what_an_operator_takes_away_is_told_at_once() {
    let server = server();
    let (a, admin) = (client(lease(&server)), client(MemoryEngine::on(server.clone())));
    runtime().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        let near = tokio::spawn(guard.expires_within(SEC));
        let token = admin.inspect("x").await.unwrap().holders[0].token;
        assert_eq!(token, guard.token());
        assert_eq!(admin.force_release("x", token).await.unwrap(), Released::Released);
        let began = Instant::now();
        assert_eq!(within("told", 10 * SEC, guard.lost()).await, LossReason::TakenOver);
        println!("told after {:?}, the ttl is a minute", began.elapsed());
        within("its end is near", 10 * SEC, near).await.unwrap();
        assert!(guard.check().is_err());
        // Another one of that name is not touched by the token of this one.
        let next = admin.mutex("x").lock().await.unwrap();
        assert!(matches!(admin.force_release("x", token).await.unwrap(), Released::NotHeld { holder: Some(_) }));
        next.check().unwrap();
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        next.release().await.unwrap();
    });
    eventually("free", 10 * SEC, || server.census() == (0, 0));
}

/// The word that it was taken away overtakes the grant: no guard of that hold is handed out, the wait goes on.
#[tokio::test(start_paused = true)]
async fn a_forced_release_before_the_guard_is_built_is_not_missed() {
    let (clock, server) = paused();
    let admin = here(Arc::new(MemoryEngine::on(server.clone()).clock(clock.clone())), &clock);
    let first = Arc::new(AtomicBool::new(true));
    let hooked = Hooked::new(paused_lease(&clock, &server), {
        let admin = admin.clone();
        move |grant| {
            let (admin, first) = (admin.clone(), first.clone());
            Box::pin(async move {
                if first.swap(false, SeqCst) {
                    assert_eq!(admin.force_release("x", grant.token).await.unwrap(), Released::Released);
                    tokio::time::sleep(50 * MS).await; // for the report to come
                }
                grant
            })
        }
    });
    let a = here(Arc::new(hooked), &clock);
    let guard = within("a lock", 5 * SEC, a.mutex("x").lock()).await.unwrap();
    guard.check().unwrap();
    let holders = admin.inspect("x").await.unwrap().holders;
    assert_eq!((holders.len(), holders[0].hold, holders[0].token), (1, guard.id(), guard.token()));
    guard.release().await.unwrap();
    soon("free", 10 * SEC, || server.census() == (0, 0)).await;
}

/// The machine has run for less than half of the ttl, and the session ends while its grant is on the way: no guard of that hold is handed out. (Red: what
/// was never heard of counts from when the machine began to count.)
#[tokio::test(start_paused = true)]
async fn a_session_that_ends_before_the_guard_is_built_soon_after_boot() {
    let (clock, server) = paused();
    let first = Arc::new(AtomicBool::new(true));
    let hooked = Hooked::new(paused_lease(&clock, &server).with_session(LONG), {
        let server = server.clone();
        move |grant| {
            let (server, first) = (server.clone(), first.clone());
            Box::pin(async move {
                if first.swap(false, SeqCst) {
                    server.end_sessions();
                    tokio::time::sleep(LONG * 7 / 20).await; // for the report to come
                }
                grant
            })
        }
    });
    let a = here(Arc::new(hooked), &clock);
    let b = here(Arc::new(paused_lease(&clock, &server)), &clock);
    let late = within("an answer", LONG, a.mutex("x").lock()).await;
    assert!(clock.now() < fencelock_core::Moment::ZERO + LONG / 2, "the run must bite");
    let held = b.inspect("x").await.unwrap().holders.first().map(|holder| holder.token);
    assert_eq!(late.as_ref().ok().filter(|guard| guard.is_valid()).map(|guard| guard.token()), held);
}

/// Whoever is to be woken is foreign code.
struct Panics(AtomicBool);
impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
        panic!("a waker's panic, on purpose");
    }
}
/// A waker that panics costs nobody else his word, by whichever way the loss is known. (Red: wakers called as ours.)
#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_costs_nobody_else_his_word() {
    for way in ["the clock", "the engine"] {
        let (clock, server) = paused();
        let link = Arc::new(paused_lease(&clock, &server).with_session(LONG));
        let a = here(link.clone(), &clock);
        let mut guards = Vec::new();
        for n in 0..3 {
            guards.push(a.mutex(format!("x{n}")).lock().await.unwrap());
        }
        let panics: Vec<_> = guards.iter().map(|_| Arc::new(Panics(AtomicBool::new(false)))).collect();
        let mut lost: Vec<_> = guards.iter().map(|guard| Box::pin(guard.lost())).collect();
        for (lost, panics) in lost.iter_mut().zip(&panics) {
            assert!(lost.as_mut().poll(&mut Context::from_waker(&Waker::from(panics.clone()))).is_pending());
        }
        if way == "the engine" {
            server.end_sessions()
        } else {
            link.cut(true)
        };
        let woken = || panics.iter().filter(|panics| panics.0.load(SeqCst)).count();
        soon(way, 10 * LONG, || woken() == 3).await;
        for guard in &guards {
            within(way, LONG, guard.lost()).await;
        }
        link.cut(false);
        within("the keeper lives", LONG, a.mutex("y").lock()).await.unwrap().release().await.unwrap();
    }
}
#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_ends_its_holds_and_no_wait() {
    let (clock, server) = paused();
    let [a, b] = [(); 2].map(|()| here(Arc::new(paused_lease(&clock, &server).with_session(LONG)), &clock));
    let (x, y) = (a.mutex("x").lock().await.unwrap(), a.mutex("y").lock().await.unwrap());
    let mut wait = b.mutex("x").lock();
    assert!(tokio::time::timeout(50 * MS, &mut wait).await.is_err());
    server.end_sessions();
    for guard in [&x, &y] {
        assert_eq!(within("told", LONG, guard.lost()).await, LossReason::SessionEnded);
        assert!(guard.check().is_err() && guard.remaining().is_zero());
    }
    // The place in the queue went with b's session: the wait goes on in a new one.
    let next = within("the wait", LONG, wait).await.unwrap();
    assert!(next.token() > x.token());
    let again = within("a new session", LONG, a.mutex("y").lock()).await.unwrap();
    again.check().unwrap();
    assert_eq!(a.held(), 1);
    // Nothing is granted to a session that has ended, though its client has not heard of it yet.
    server.end_sessions();
    let z = within("a new session", LONG, a.mutex("z").lock()).await.unwrap();
    let holders = b.inspect("z").await.unwrap().holders;
    assert!(z.is_valid() && holders.len() == 1 && holders[0].hold == z.id(), "{holders:?}");
    drop((x, y, next, again, z));
    soon("free", 10 * SEC, || server.census() == (0, 0)).await;
}

#[tokio::test(start_paused = true)]
async fn max_hold_is_told_at_its_time_and_frees_nothing_before_the_lease_ends() {
    for flavour in [0, 1] {
        let (clock, server) = paused();
        let [own, session] = paused_flavours(&clock, &server, TTL);
        let a = here(Arc::new(if flavour == 0 { own } else { session }), &clock);
        let b = here(Arc::new(paused_lease(&clock, &server).default_ttl(TTL)), &clock);
        let long = a.mutex("other").lock().await.unwrap(); // keeps the session alive
        let asked = clock.now();
        let guard = a.mutex("x").max_hold(2 * TTL).lock().await.unwrap();
        let began = clock.now();
        assert!(guard.remaining() <= 2 * TTL);
        assert_eq!(within("told", 5 * SEC, guard.lost()).await, LossReason::MaxHold);
        let told = clock.now();
        // In a session by the slower of two clocks: 1 % before its time.
        assert!(asked.until(told) >= (2 * TTL).mul_f64(0.98), "told early: {:?}", asked.until(told));
        assert!(began.until(told) < 2 * TTL + SEC, "told late: {:?}", began.until(told));
        assert!(guard.check().is_err());
        // Until its lease ends it is not given to others: the hung holder may still write.
        let next = within("the lease's end", 5 * SEC, b.mutex("x").lock()).await.unwrap();
        let free = clock.now();
        // The last renewal may have been answered a third of a ttl before the end.
        assert!(told.until(free) > TTL / 2, "freed {:?} after the loss", told.until(free));
        assert!(told.until(free) < 2 * TTL + SEC, "it was renewed after the loss: {:?}", told.until(free));
        assert!(next.token() > guard.token());
        long.check().unwrap();
        next.release().await.unwrap();

        // A guard that is dropped frees it at once.
        let guard = a.mutex("x").max_hold(TTL / 2).lock().await.unwrap();
        within("told", 5 * SEC, guard.lost()).await;
        drop(guard);
        let next = within("free", 5 * SEC, b.mutex("x").lock()).await.unwrap();
        next.release().await.unwrap();
        drop(long);
        soon("free", 10 * SEC, || server.census() == (0, 0)).await;
    }
}

/// After it nothing is renewed.
#[tokio::test(start_paused = true)]
async fn max_hold_ends_renewals() {
    let (clock, server) = paused();
    let link = Arc::new(paused_lease(&clock, &server).default_ttl(SEC));
    let guard = here(link.clone(), &clock).mutex("x").max_hold(SEC).lock().await.unwrap();
    assert_eq!(within("told", 5 * SEC, guard.lost()).await, LossReason::MaxHold);
    tokio::time::sleep(20 * MS).await; // a renewal that was on its way
    let sent = link.commands();
    soon("the lease's end", 10 * SEC, || server.census() == (0, 0)).await;
    assert_eq!(link.commands(), sent);
}

#[test]
fn work_is_dropped_where_it_stands_when_the_hold_is_lost() {
    let server = server();
    let (a, admin) = (client(lease(&server)), client(MemoryEngine::on(server.clone())));
    runtime().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
        let gone = Arc::new(AtomicBool::new(false));
        let flag = Flag(gone.clone());
        let work = guard.run(async move {
            let _flag = flag;
            std::future::pending::<()>().await
        });
        let force = async {
            admin.force_release("x", guard.token()).await.unwrap();
        };
        let (out, ()) = within("the end of the work", 5 * SEC, async { tokio::join!(work, force) }).await;
        assert_eq!(out.unwrap_err().kind(), ErrorKind::Lost);
        assert!(gone.load(SeqCst));
    });
}

/// A grant whose reply took longer than half of the ttl is renewed before anybody has it in hand (SAFETY G3).
#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_late_is_renewed_first() {
    for flavour in [0, 1] {
        let (clock, server) = paused();
        let [own, session] = paused_flavours(&clock, &server, TTL);
        let late = Hooked::new(if flavour == 0 { own } else { session }, |grant| {
            Box::pin(async move {
                tokio::time::sleep(TTL * 7 / 10).await;
                grant
            })
        });
        let a = here(Arc::new(late), &clock);
        let guard = within("a lock", 10 * SEC, a.mutex("x").lock()).await.unwrap();
        assert!(guard.remaining() > TTL / 3, "{:?}", guard.remaining());
        guard.release().await.unwrap();
        soon("free", 10 * SEC, || server.census() == (0, 0)).await;
    }
}
