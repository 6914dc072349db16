//! Story: the watchdog, on paused time: it renews for an hour over a link that loses replies, with a third of a ttl between two
//! commands and no more; and what a late renewal has extended for nobody is given back (SAFETY G4). Whole histories are the
//! simulator's: `fencelock-simulation`.
//!
//! Planted to see it red: renewals at seven tenths of the ttl, and at a sixteenth; `lapsed` left out (a late renewal); a
//! look that leaves whoever naps asleep (a host that slept).
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use fencelock_core::{
    Client, Clock, LossReason, Moment, TokioClock,
    memory::{Link, MemoryEngine, MemoryServer},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Handle;

#[tokio::test(start_paused = true)]
async fn a_simulated_hour_with_lost_replies() {
    let clock = Arc::new(TokioClock::start());
    let server = MemoryServer::new(clock.clone());
    let link = || Link::new(Handle::current(), 5 * MS).lose_replies(0.1).seed(3);
    let began = Instant::now();
    for session in [false, true] {
        let engine = MemoryEngine::on(server.clone()).over(link());
        let engine = Arc::new(if session { engine.with_session(30 * SEC) } else { engine });
        let client = Client::builder(engine.clone()).clock(clock.clone()).keeper_here().build().unwrap();
        let guard = client.mutex("x").lock().await.unwrap();
        let mut shortest = guard.remaining();
        for _ in 0..3_600 {
            tokio::time::sleep(SEC).await;
            guard.check().unwrap();
            shortest = shortest.min(guard.remaining());
        }
        assert!(shortest > 15 * SEC, "{shortest:?}");
        let sent = engine.commands();
        assert!((300..1_000).contains(&sent), "{sent} commands in an hour of thirds of 30 s");
        engine.cut(true);
        let near = guard.expires_within(10 * SEC);
        tokio::select! {
            biased;
            reason = guard.lost() => panic!("lost first: {reason:?}"),
            () = near => assert!(guard.is_valid() && guard.remaining() > 9 * SEC),
        }
        assert_eq!(guard.lost().await, LossReason::Unreachable);
        engine.cut(false);
        drop(guard);
        tokio::time::sleep(40 * SEC).await;
        assert_eq!(server.census(), (0, 0));
    }
    println!("two simulated hours in {:?}", began.elapsed());
}

/// Renewals that arrive when their hold is lost extend what nobody has: the keeper releases it at the end of the lease, else
/// everybody is locked out for one ttl more (SAFETY G4). Not before: the old holder may still be winding up.
#[tokio::test(start_paused = true)]
async fn a_late_renewal_locks_nobody_out() {
    let clock = Arc::new(TokioClock::start());
    let server = MemoryServer::new(clock.clone());
    let ttl = 10 * SEC;
    let memory = || MemoryEngine::on(server.clone()).default_ttl(ttl);
    let mut late = Hooked::new(memory(), |grant| Box::pin(async move { grant }));
    late.late_renew = Some(ttl * 6 / 10);
    let make = |engine| Client::builder(engine).clock(clock.clone()).keeper_here().build().unwrap();
    let (a, b) = (make(Arc::new(late)), make(Arc::new(memory())));
    let guard = a.mutex("x").lock().await.unwrap();
    let began = clock.now();
    let next = b.mutex("x").lock().await.unwrap();
    let took = began.until(clock.now());
    assert!(guard.check().is_err());
    assert!(took > ttl && took < ttl * 5 / 4, "{took:?}");
    next.release().await.unwrap();
}

/// While a host sleeps its boot-time clock goes on, and the clock of naps does not.
#[derive(Debug)]
struct Slept(TokioClock, AtomicU64);
impl Clock for Slept {
    fn now(&self) -> Moment {
        self.0.now() + Duration::from_secs(self.1.load(SeqCst))
    }
}
#[tokio::test(start_paused = true)]
async fn what_was_due_while_the_host_slept_is_renewed_when_it_is_seen() {
    let clock = Arc::new(Slept(TokioClock::start(), AtomicU64::new(0)));
    let engine = MemoryEngine::on(MemoryServer::new(clock.clone())).clock(clock.clone()).default_ttl(60 * SEC);
    let client = Client::builder(Arc::new(engine)).clock(clock.clone()).keeper_here().build().unwrap();
    let guard = client.mutex("x").lock().await.unwrap();
    tokio::time::sleep(SEC).await;
    clock.1.store(30, SeqCst);
    // Now the loss timers are looked at, which do not miss it.
    let lease = client.mutex("y").lease(2 * SEC).lock().await.unwrap();
    within("the renewal", SEC, guard.renewed()).await;
    assert!(guard.remaining() > 55 * SEC, "{:?}", guard.remaining());
    lease.release().await.unwrap();
}
