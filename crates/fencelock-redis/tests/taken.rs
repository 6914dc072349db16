//! A hold that somebody takes away is told at once, long before its next renewal (SAFETY G6); and what changes beside it is no loss.
//! Planted to see them go red: no tracking; every change a loss; an end that is not looked at; a renewal that does not read what it
//! wrote.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::LossReason;
use fencelock_testkit::Redis;
use std::time::{Duration, Instant};

/// The limit in full; else that it was not the renewal, ten seconds later.
fn in_time(took: Duration, what: &str) {
    let limit = if full() { 250 * MS } else { 5_000 * MS };
    assert!(took <= limit, "{what}: told after {took:?}");
}

#[test]
fn by_whatever_hand() {
    let server = Redis::start();
    runtime().block_on(async {
        let (c, operator) = (client(&server.url()).await, client(&server.url()).await);
        let hands: [&[&str]; 6] = [
            &["DEL", "fl:x"],
            &["UNLINK", "fl:x"],
            &["SET", "fl:x", "theirs"],
            &["HDEL", "fl:x", "o"],
            &["FLUSHALL"],
            &["FLUSHDB"],
        ];
        for hand in hands {
            let guard = c.mutex("x").lock().await.unwrap();
            let (lost, old) = (guard.lost(), guard.token());
            tokio::time::sleep(250 * MS).await;
            let began = Instant::now();
            server.ask(hand).unwrap();
            assert_eq!(soon(lost).await, LossReason::TakenOver, "{hand:?}");
            in_time(began.elapsed(), hand[0]);
            server.ask(&["DEL", "fl:x"]).unwrap();
            let next = operator.mutex("x").lock().await.unwrap();
            assert!(next.token() > old, "tokens rise over {hand:?}");
            next.release().await.unwrap();
        }
        let guard = c.rw_lock("x").read().await.unwrap();
        let lost = guard.lost();
        tokio::time::sleep(250 * MS).await;
        let token = operator.inspect("x").await.unwrap().holders[0].token;
        let began = Instant::now();
        operator.force_release("x", token).await.unwrap();
        assert_eq!(soon(lost).await, LossReason::TakenOver);
        in_time(began.elapsed(), "a forced release");
    });
}

/// A renewal writes each record, and the server forgets who read it before: in whichever part of one a hold was.
#[test]
fn also_after_a_renewal() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let mut guards = Vec::new();
        for i in 0..20 {
            guards.push(c.mutex(format!("x{i}")).lock().await.unwrap());
        }
        let readers = [c.rw_lock("r").read().await.unwrap(), c.rw_lock("r").read().await.unwrap()];
        tokio::time::sleep(250 * MS).await;
        let ends =
            || guards.iter().map(|guard| guard.valid_until()).chain(readers.iter().map(|guard| guard.valid_until()));
        let before: Vec<_> = ends().collect();
        // All of them are renewed, long before their time.
        server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        eventually("renewed", || async { ends().zip(&before).all(|(end, before)| end > *before) }).await;
        for i in [0, 7, 8, 19] {
            let (lost, began) = (guards[i].lost(), Instant::now());
            server.ask(&["HDEL", &format!("fl:x{i}"), "o"]).unwrap();
            assert_eq!(soon(lost).await, LossReason::TakenOver, "x{i}");
            in_time(began.elapsed(), "after a renewal");
        }
        let (lost, began) = (readers[1].lost(), Instant::now());
        server.ask(&["DEL", "fl:r"]).unwrap();
        assert_eq!(soon(lost).await, LossReason::TakenOver);
        in_time(began.elapsed(), "after a renewal, shared");
        assert_eq!(guards.iter().filter(|guard| guard.is_valid()).count(), 16);
    });
}

/// Somebody lets its record end early, or for ever less than a value may: it is put right before it ends.
#[test]
fn a_record_that_is_to_end_too_early_is_kept() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let (alone, shared) = (c.mutex("x").lock().await.unwrap(), c.rw_lock("r").read().await.unwrap());
        tokio::time::sleep(250 * MS).await;
        for _ in 0..3 {
            // Long before the next renewal by itself.
            for key in ["fl:x", "fl:r"] {
                assert_eq!(server.ask(&["PEXPIRE", key, "4000"]).unwrap(), ":1");
            }
            eventually("put right", || async {
                let long = |key| server.ask(&["PTTL", key]).unwrap()[1..].parse::<i64>().unwrap() > 1_000_000;
                long("fl:x") && long("fl:r")
            })
            .await;
        }
        alone.check().unwrap();
        shared.check().unwrap();
        assert_eq!(c.inspect("x").await.unwrap().holders[0].token, alone.token());
        alone.release().await.unwrap();
        shared.release().await.unwrap();
    });
}

#[test]
fn with_the_older_protocol_at_the_next_renewal() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&format!("{}?protocol=resp2", server.url())).await;
        assert_eq!(c.info().capabilities.taken_away, fencelock_core::TakenAway::AtRenewal);
        let guard = c.mutex("x").ttl(6 * SEC).lock().await.unwrap();
        soon(guard.renewed()).await;
        server.ask(&["DEL", "fl:x"]).unwrap();
        assert_eq!(soon(guard.lost()).await, LossReason::TakenOver);
        // Waiting works as ever.
        let other = client(&server.url()).await;
        let held = other.mutex("y").lock().await.unwrap();
        let lock = c.mutex("y");
        let next = tokio::spawn(async move { lock.lock().await.unwrap() });
        queued(&other, "y", 1).await;
        held.release().await.unwrap();
        soon(next).await.unwrap().release().await.unwrap();
    });
}

#[test]
fn what_happens_beside_it_is_no_loss() {
    let server = Redis::start();
    runtime().block_on(async {
        let (c, other) = (client(&server.url()).await, client(&server.url()).await);
        let guard = c.mutex("x").lock().await.unwrap();
        let reader = c.rw_lock("r").read().await.unwrap();
        tokio::time::sleep(250 * MS).await;
        for _ in 0..5 {
            let lock = other.mutex("x");
            assert!(tokio::time::timeout(30 * MS, lock.lock()).await.is_err());
            assert!(lock.try_lock().await.unwrap().is_err());
            other.rw_lock("r").read().await.unwrap().release().await.unwrap();
            assert!(other.rw_lock("r").try_write().await.unwrap().is_err());
            server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        }
        queued(&other, "x", 0).await;
        tokio::time::sleep(500 * MS).await;
        guard.check().unwrap();
        reader.check().unwrap();
        guard.release().await.unwrap();
        reader.release().await.unwrap();
    });
}
