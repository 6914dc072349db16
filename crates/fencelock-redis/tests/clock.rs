//! The server's wall clock is stepped by a minute, either way: no lock is stuck for longer than one of its own lengths, and tokens
//! rise (SAFETY H4, T1).
//!
//! Planted to see them go red: an end that is not cut to its own length, or to that and not to what its waiter knows; a token that is
//! the clock.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::{Claim, Client, Held, LossReason, Token};
use fencelock_testkit::{Redis, RedisOptions, WallClock};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const MINUTE: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(4);
const CLAIMS: [Claim; 4] = [Claim::Mutex, Claim::Write, Claim::Read, Claim::Permits { take: 2, of: 3 }];

fn server() -> (Redis, Arc<WallClock>) {
    let clock = Arc::new(WallClock::new());
    (Redis::with(RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() }), clock)
}
async fn hold(client: &Client, claim: Claim) -> Box<dyn std::ops::Deref<Target = Held> + Send> {
    let rw = client.rw_lock("x").ttl(TTL);
    match claim {
        Claim::Write => Box::new(rw.write().await.unwrap()),
        Claim::Read => Box::new(rw.read().await.unwrap()),
        Claim::Permits { take, of } => Box::new(client.semaphore("x", of).ttl(TTL).acquire(take).await.unwrap()),
        _ => Box::new(client.mutex("x").ttl(TTL).lock().await.unwrap()),
    }
}
/// What does not go beside it.
const fn other(claim: Claim) -> Claim {
    match claim {
        Claim::Read => Claim::Write,
        claim => claim,
    }
}

/// Its holder is gone without a word.
#[test]
fn a_lock_of_somebody_who_is_gone_is_stuck_for_no_longer_than_its_length() {
    let (server, clock) = server();
    runtime().block_on(async {
        for forward in [false, true] {
            for claim in CLAIMS {
                for queued_before in [false, true] {
                    let (proxy, url) = proxied(&server);
                    let (a, b) = (client(&url).await, client(&server.url()).await);
                    let held = hold(&a, claim).await;
                    let token = last(&b).await;
                    proxy.silent(true);
                    let next = || {
                        let b = b.clone();
                        tokio::spawn(async move {
                            let held = hold(&b, other(claim)).await;
                            (Instant::now(), held)
                        })
                    };
                    let mut waits = queued_before.then(next);
                    if queued_before {
                        queued(&b, "x", 1).await;
                        // It has looked once more, since it listens, and looks again much later.
                        tokio::time::sleep(100 * MS).await;
                    }
                    clock.step(MINUTE, forward);
                    let stepped = Instant::now();
                    let wait = waits.take().unwrap_or_else(next);
                    let (at, next) = soon(wait).await.unwrap();
                    let took = at.saturating_duration_since(stepped);
                    let limit = TTL + if full() { 250 * MS } else { 5_000 * MS };
                    assert!(took < limit, "{claim:?} forward {forward} queued {queued_before}: {took:?}");
                    assert!(last(&b).await > token, "{claim:?} forward {forward}: tokens rise");
                    drop((next, held));
                    drop(proxy);
                    eventually("free again", || async { !b.inspect("x").await.unwrap().is_held() }).await;
                    eventually("nobody waits", || async { b.inspect("x").await.unwrap().waiters.is_empty() }).await;
                    server.ask(&["DEL", "fl:x"]).unwrap();
                }
            }
        }
    });
}
async fn last(client: &Client) -> Token {
    client.inspect("x").await.unwrap().last_token.unwrap()
}

/// Its holder is alive: set back nothing happens to it; set forward it is over, and told.
#[test]
fn a_lock_that_is_renewed_outlives_a_step_back_and_is_told_of_one_forward() {
    let (server, clock) = server();
    runtime().block_on(async {
        let (a, b) = (client(&server.url()).await, client(&server.url()).await);
        for claim in CLAIMS {
            let held = hold(&a, claim).await;
            clock.step(MINUTE, false);
            for _ in 0..3 {
                soon(held.renewed()).await;
                let status = b.inspect("x").await.unwrap();
                assert_eq!((status.holders.len(), status.holders[0].hold), (1, held.id()), "{claim:?}");
            }
            held.check().unwrap();
            clock.step(MINUTE, true);
            clock.step(MINUTE, true);
            let reason = soon(held.lost()).await;
            assert!(
                matches!(reason, LossReason::TakenOver | LossReason::Expired | LossReason::Unreachable),
                "{reason:?}"
            );
            drop(held);
            let next = soon(hold(&b, other(claim))).await;
            next.check().unwrap();
            drop(next);
            eventually("free again", || async { !b.inspect("x").await.unwrap().is_held() }).await;
            server.ask(&["DEL", "fl:x"]).unwrap();
        }
    });
}

#[test]
fn tokens_rise_over_steps() {
    let (server, clock) = server();
    runtime().block_on(async {
        let (a, b) = (client(&server.url()).await, client(&server.url()).await);
        let mut known = None;
        for round in 0..40 {
            for c in [&a, &b] {
                let guard = soon(c.mutex("t").lock()).await.unwrap();
                assert!(known.is_none_or(|known| guard.token() > known), "round {round}");
                known = Some(guard.token());
                guard.release().await.unwrap();
            }
            clock.step(MINUTE, round % 3 == 0);
        }
    });
}
