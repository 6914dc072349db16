//! Story: ten thousand small histories on paused time, over links that are slow, reorder and lose replies. A holder is cut
//! off, for a while or for good, while another one waits: whenever that one is granted the lock the first has given it back or
//! has been told of its loss *before* (SAFETY G3). A failing history prints its seed; `FENCELOCK_SEED=n` runs it alone, and
//! `FENCELOCK_PROVE=1` runs them all and not a tenth.
//!
//! Planted to see it red: `told_at` a third of a ttl later; `valid_until` from the reply and not from `sent_at`; `extend`
//! without the look at the validity, with the reply's time; a heartbeat reported with the time of its reply; `lapsed` left out (a late renewal).
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
use tokio::runtime::{Builder, Handle};

fn between(rng: &mut fastrand::Rng, from: Duration, to: Duration) -> Duration {
    from + (to - from).mul_f64(rng.f64())
}

/// What a history did: to see that two of one seed are the same, and that the runs bite.
#[derive(Clone, Debug, Default, PartialEq)]
struct History {
    grants: Vec<(u8, Duration)>,
    losses: Vec<(LossReason, Duration)>,
}

/// One history. `Err` says what was wrong.
async fn history(seed: u64) -> Result<History, String> {
    fastrand::seed(seed); // jitter of renewals
    let mut rng = fastrand::Rng::with_seed(seed);
    let clock = Arc::new(TokioClock::start());
    let start = clock.now();
    let server = MemoryServer::new(clock.clone());
    let ttl = between(&mut rng, 200 * MS, 3 * SEC);
    let session = rng.bool();
    let (slow, loss) = (between(&mut rng, MS, ttl / 12), 0.3 * rng.f64());
    let make = |rng: &mut fastrand::Rng| {
        let link = Link::new(Handle::current(), slow).lose_replies(loss).seed(rng.u64(..));
        let engine = MemoryEngine::on(server.clone()).default_ttl(ttl).over(link);
        let engine = Arc::new(if session { engine.with_session(ttl) } else { engine });
        (Client::builder(engine.clone()).clock(clock.clone()).keeper_here().build().unwrap(), engine)
    };
    let ((a, cut), (b, _)) = (make(&mut rng), make(&mut rng));
    let admin = MemoryEngine::on(server.clone());
    let admin = Client::builder(Arc::new(admin)).clock(clock.clone()).keeper_here().build().unwrap();
    let mut seen = History::default();

    for _ in 0..2 {
        let Ok(guard) = a.mutex("x").lock().await else { continue };
        seen.grants.push((0, start.until(clock.now())));
        // When a gave it back, or was told. Not yet: never.
        let over = Arc::new(AtomicU64::new(u64::MAX));
        let (told, lost, at) = (over.clone(), guard.lost(), clock.clone());
        let told = tokio::spawn(async move {
            let reason = lost.await;
            let now = at.now();
            told.fetch_min(now.as_nanos(), SeqCst);
            (reason, now)
        });
        let wait = tokio::spawn(b.mutex("x").lock());
        // Some short outages, then a long one, or a release.
        for _ in 0..rng.u8(0..4) {
            tokio::time::sleep(between(&mut rng, Duration::ZERO, ttl)).await;
            cut.cut(true);
            tokio::time::sleep(between(&mut rng, Duration::ZERO, ttl * 6 / 5)).await;
            cut.cut(false);
        }
        let held = if rng.u8(0..4) == 0 {
            if !told.is_finished() {
                over.fetch_min(clock.now().as_nanos(), SeqCst);
            }
            drop(guard);
            None
        } else {
            cut.cut(true);
            Some(guard)
        };
        let next = match tokio::time::timeout(60 * SEC, wait).await {
            Err(_) => return Err("the next grant never came".into()),
            Ok(next) => next.unwrap(),
        };
        let now = clock.now();
        // Granted when the server says so, not when the reply came.
        let holders = admin.inspect("x").await.unwrap().holders;
        if let (Ok(next), Some(holder)) = (&next, holders.first()) {
            let since = now - holder.held_for;
            let over = Moment::from_nanos(over.load(SeqCst));
            if holder.hold == next.id() && over > since {
                let late = since.until(over.min(now));
                return Err(format!("granted to the next, and the first had not heard of it {late:?} later"));
            }
            if held.as_ref().is_some_and(|guard| guard.is_valid()) {
                return Err("two holders".into());
            }
            seen.grants.push((1, start.until(since)));
        }
        if held.is_some() {
            let (reason, at) = told.await.unwrap();
            seen.losses.push((reason, start.until(at)));
        } else {
            told.abort();
        }
        drop(next);
        cut.cut(false);
        drop(held);
    }
    // Nothing of it stays.
    for _ in 0..100 {
        if server.census() == (0, 0) && a.held() + b.held() == 0 {
            return Ok(seen);
        }
        tokio::time::sleep(ttl / 10).await;
    }
    Err(format!("something stays: {:?}, {} held", server.census(), a.held() + b.held()))
}
fn run(seed: u64) -> Result<History, String> {
    let rt = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    rt.block_on(async { tokio::time::timeout(3600 * SEC, history(seed)).await.unwrap_or(Err("it hangs".into())) })
}

#[test]
fn a_loss_is_told_before_the_next_grant_in_every_history() {
    let seeds = match std::env::var("FENCELOCK_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None if std::env::var_os("FENCELOCK_PROVE").is_some_and(|v| v == "1") => 0..10_000,
        None => 0..1_000,
    };
    let (began, runs) = (Instant::now(), seeds.end - seeds.start);
    let (mut grants, mut losses, mut failed) = (0, 0, Vec::new());
    for seed in seeds {
        match run(seed) {
            Ok(seen) => {
                grants += seen.grants.len();
                losses += seen.losses.len();
            }
            Err(what) => {
                println!("FENCELOCK_SEED={seed}: {what}");
                failed.push(seed);
            }
        }
    }
    println!(
        "\nMEASURED | lost() before the next grant, seeded histories | {} exceptions in {runs} ({grants} grants, {losses} losses, {:?}) | 0 | {}",
        failed.len(),
        began.elapsed(),
        if failed.is_empty() { "ok" } else { "MISSED" }
    );
    assert!(failed.is_empty(), "{} of {runs} histories, replay with FENCELOCK_SEED={}", failed.len(), failed[0]);
    assert!(runs == 1 || losses as u64 > runs / 2, "the runs must bite: {losses} losses");
}

#[test]
fn a_seed_is_the_same_history_each_time() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

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
