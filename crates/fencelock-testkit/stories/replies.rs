//! Replies that are lost, come late or twice, whatever is called: one hold, the same token, one release frees it (SAFETY A, G1). The same
//! on every engine with a queue, for the tests that bring `Server`, `SWAP`, `WITHDRAW` and `OVER`, and the ways to a server: `WAYS`, what is behind its URL
//! to take one, and `by`.
//! Planted to see them go red: no sweep of what arrives late; a sweep that does not wait for the release.
use super::*;
use fencelock_conformance::proxy::{Proxy, Trouble};
use fencelock_core::{Claim, Client, ErrorKind, Released, Token, Version};
use fencelock_testkit::processes::{added, tenth};
use std::{str::from_utf8, sync::atomic::Ordering::SeqCst};
use tokio::task::JoinSet;

const TROUBLES: [Trouble; 2] = [Trouble::LoseReply, Trouble::Twice];

/// By each way to a server: what is in front of it, one who goes through that, and one who goes past it.
fn by_each_way(story: impl AsyncFn(&Proxy, &Client, &Client)) {
    let server = Server::start();
    for way in WAYS {
        println!("by {way:?}");
        let (proxy, url, _more) = by(&server, way);
        runtime().block_on(async {
            let (through, past) = (client(&(url + way)).await, client(&(server.url() + way)).await);
            story(&proxy, &through, &past).await;
        });
    }
}
/// Nobody holds and nobody waits, and the next one gets a greater token.
async fn is_free(other: &Client, name: &str, after: Token) {
    let status = other.inspect(name).await.unwrap();
    assert!(!status.is_held() && status.waiters.is_empty(), "{status:?}");
    let next = other.mutex(name).try_lock().await.unwrap().unwrap();
    assert!(next.token() > after);
    next.release().await.unwrap();
}

#[test]
fn acquire() {
    by_each_way(async |proxy, c, other| {
        for trouble in TROUBLES {
            let met = first(proxy, "acquire", 1, trouble);
            let guard = soon(c.mutex("x").lock()).await.unwrap();
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            let status = other.inspect("x").await.unwrap();
            assert_eq!(status.holders.len(), 1);
            assert_eq!(
                (status.holders[0].token, status.last_token),
                (guard.token(), Some(guard.token())),
                "{trouble:?}"
            );
            let token = guard.token();
            guard.release().await.unwrap();
            is_free(other, "x", token).await;
        }
    });
}

/// Whatever is claimed: it is held once, and is free when it was given back.
#[test]
fn every_claim_and_its_release() {
    by_each_way(async |proxy, c, other| {
        for (name, claim, beside) in CLAIMS {
            for (function, trouble) in
                ["acquire", "release"].iter().flat_map(|it| TROUBLES.map(|trouble| (it, trouble)))
            {
                let what = format!("{function} of {claim:?}, {trouble:?}");
                let met = first(proxy, function, 1, trouble);
                let held = soon(Any::lock(c, name, claim, 30 * SEC)).await.unwrap();
                let holders = other.inspect(name).await.unwrap().holders;
                assert_eq!(holders.iter().map(|holder| holder.claim).collect::<Vec<_>>(), [claim], "{what}");
                assert!(Any::is_busy(other, name, beside).await, "{what}");
                held.release().await.unwrap();
                assert_eq!(met.load(SeqCst), 1, "{what}");
                let status = other.inspect(name).await.unwrap();
                assert!(!status.is_held() && status.waiters.is_empty(), "{what}: {status:?}");
                Any::attempt(other, name, beside).await.unwrap().expect("it is free").release().await.unwrap();
            }
        }
    });
}
/// A hold that somebody breaks is broken once: whoever comes next has nothing to do with it.
#[test]
fn a_hold_that_is_broken() {
    by_each_way(async |proxy, c, other| {
        for trouble in TROUBLES {
            let held = other.mutex("x").ttl(6 * SEC).lock().await.unwrap();
            let next = tokio::spawn(other.mutex("x").lock());
            queued(other, "x", 1).await;
            let met = first(proxy, "force", 1, trouble);
            let answer = soon(c.force_release("x", held.token())).await;
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            let next = soon(next).await.unwrap().unwrap();
            // Who asks again finds it broken, or somebody else's.
            match answer {
                Ok(Released::Released) => {}
                Ok(Released::NotHeld { holder }) => {
                    assert!(holder.is_none_or(|holder| holder.token == next.token()), "{trouble:?}");
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Ambiguous, "{trouble:?}: {error}"),
            }
            soon(held.lost()).await;
            let status = other.inspect("x").await.unwrap();
            assert_eq!((status.holders.len(), status.holders[0].token), (1, next.token()), "{trouble:?}");
            let token = next.token();
            next.release().await.unwrap();
            is_free(other, "x", token).await;
        }
    });
}

/// The first command breaks off, its repeat is granted, given back, and then the first one arrives after all.
#[test]
fn an_acquire_that_arrives_after_the_release_of_its_repeat() {
    by_each_way(async |proxy, c, other| {
        let met = first(proxy, "acquire", 1, Trouble::Late(1_000 * MS));
        c.mutex("x").ttl(30_000 * MS).lock().await.unwrap().release().await.unwrap();
        assert_eq!(met.load(SeqCst), 1);
        eventually("it arrives", || async { other.inspect("x").await.unwrap().is_held() }).await;
        eventually("and is swept away", || async { !other.inspect("x").await.unwrap().is_held() }).await;
    });
}

/// A claim that broke off and cannot arrive any more: what sweeps it up does not overtake the release of its repeat.
#[test]
fn a_release_long_after_a_broken_acquire_finds_its_hold() {
    by_each_way(async |proxy, c, _| {
        let mut guards = Vec::new();
        for i in 0..50 {
            let met = first(proxy, "acquire", 1, Trouble::LoseReply);
            guards.push(soon(c.mutex(format!("x{i}")).lock()).await.unwrap());
            assert_eq!(met.load(SeqCst), 1);
        }
        proxy.calm();
        tokio::time::sleep(OVER).await;
        for guard in guards {
            guard.release().await.unwrap();
        }
    });
}

/// The same for one who does not wait, and whose repeat was refused.
#[test]
fn a_try_that_arrives_after_the_refusal_of_its_repeat() {
    by_each_way(async |proxy, c, other| {
        let held = other.mutex("x").ttl(30_000 * MS).lock().await.unwrap();
        let met = first(proxy, "acquire", 1, Trouble::Late(1_000 * MS));
        assert!(c.mutex("x").ttl(30_000 * MS).try_lock().await.unwrap().is_err());
        assert_eq!(met.load(SeqCst), 1);
        held.release().await.unwrap();
        eventually("it arrives", || async { other.inspect("x").await.unwrap().is_held() }).await;
        eventually("and is swept away", || async { !other.inspect("x").await.unwrap().is_held() }).await;
    });
}

#[test]
fn a_queued_acquire_its_confirm_and_a_refresh() {
    by_each_way(async |proxy, c, other| {
        for script in ["acquire", "refresh"] {
            for trouble in TROUBLES {
                let held = other.mutex("x").lock().await.unwrap();
                let met = first(proxy, script, 1, trouble);
                let lock = c.mutex("x");
                let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
                queued(other, "x", 1).await;
                held.release().await.unwrap();
                let guard = soon(waiting).await.unwrap();
                assert_eq!(met.load(SeqCst), 1, "{script} {trouble:?}");
                let status = other.inspect("x").await.unwrap();
                assert_eq!((status.holders.len(), status.waiters.len()), (1, 0), "{script} {trouble:?} {status:?}");
                assert_eq!(status.holders[0].token, guard.token());
                let token = guard.token();
                guard.release().await.unwrap();
                is_free(other, "x", token).await;
            }
        }
    });
}

/// A place that is given up, whatever becomes of the word that says so: it goes, whoever stands behind it is next, and the same client keeps the
/// place that it has taken meanwhile. (Red: no withdrawal; one that takes all places in its queue.)
#[test]
fn withdraw() {
    by_each_way(async |proxy, c, other| {
        for trouble in [Trouble::LoseReply, Trouble::Twice, Trouble::Lose, Trouble::Late(500 * MS)] {
            let held = other.mutex("x").lock().await.unwrap();
            let gives_up = tokio::spawn(c.mutex("x").lock());
            queued(other, "x", 1).await;
            let place = other.inspect("x").await.unwrap().waiters[0].hold;
            let behind = tokio::spawn(other.mutex("x").lock());
            queued(other, "x", 2).await;
            let met = first(proxy, WITHDRAW, 1, trouble);
            gives_up.abort();
            let again = tokio::spawn(c.mutex("x").ttl(31 * SEC).lock());
            let stands = async || {
                let waiters = other.inspect("x").await.unwrap().waiters;
                waiters.len() == 2 && waiters.iter().all(|waiter| waiter.hold != place)
            };
            eventually("its place goes", async || met.load(SeqCst) == 1 && stands().await).await;
            if matches!(trouble, Trouble::Late(_)) {
                tokio::time::sleep(SEC).await;
            }
            assert!(stands().await, "{trouble:?}");
            held.release().await.unwrap();
            let next = soon(behind).await.unwrap().unwrap();
            assert!(!again.is_finished(), "{trouble:?}");
            next.release().await.unwrap();
            let last = soon(again).await.unwrap().unwrap();
            let token = last.token();
            last.release().await.unwrap();
            is_free(other, "x", token).await;
        }
    });
}

#[test]
fn release() {
    by_each_way(async |proxy, c, other| {
        for trouble in TROUBLES {
            let guard = c.mutex("x").lock().await.unwrap();
            let token = guard.token();
            let met = first(proxy, "release", 1, trouble);
            guard.release().await.unwrap();
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            is_free(other, "x", token).await;
        }
        // One that comes after somebody else has the lock harms nobody.
        let guard = c.mutex("x").lock().await.unwrap();
        let met = first(proxy, "release", 1, Trouble::Late(300 * MS));
        guard.release().await.unwrap();
        assert_eq!(met.load(SeqCst), 1);
        let next = soon(other.mutex("x").lock()).await.unwrap();
        tokio::time::sleep(500 * MS).await;
        assert!(other.inspect("x").await.unwrap().holders.iter().any(|holder| holder.token == next.token()));
        next.release().await.unwrap();
    });
}

#[test]
fn renew() {
    by_each_way(async |proxy, c, other| {
        for trouble in TROUBLES {
            let guard = c.mutex("x").ttl(5 * SEC).lock().await.unwrap();
            let met = first(proxy, "renew", 1, trouble);
            for _ in 0..2 {
                soon(guard.renewed()).await;
            }
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            assert_eq!(other.inspect("x").await.unwrap().holders[0].token, guard.token());
            guard.release().await.unwrap();
        }
        // One that arrives when its hold is over revives nothing.
        let lease = c.mutex("y").ttl(3 * SEC).lock().await.unwrap();
        let met = first(proxy, "renew", u32::MAX, Trouble::Late(3 * SEC));
        soon(lease.lost()).await;
        assert!(met.load(SeqCst) >= 1);
        let next = soon(other.mutex("y").lock()).await.unwrap();
        tokio::time::sleep(3 * SEC).await;
        let status = other.inspect("y").await.unwrap();
        assert_eq!((status.holders.len(), status.holders[0].token), (1, next.token()));
        next.release().await.unwrap();
    });
}

#[test]
fn exchange() {
    by_each_way(async |proxy, c, other| {
        for trouble in TROUBLES {
            let writer = c.rw_lock("x").write().await.unwrap();
            let token = writer.token();
            let met = first(proxy, "exchange", 1, trouble);
            let reader = soon(writer.downgrade()).await.unwrap();
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            let status = other.inspect("x").await.unwrap();
            assert_eq!(status.holders[0].token, token, "{trouble:?}");
            assert_eq!((status.holders.len(), status.holders[0].claim), (1, Claim::Read), "{trouble:?}");
            reader.release().await.unwrap();
            assert!(!other.inspect("x").await.unwrap().is_held(), "{trouble:?}");
        }
        for trouble in TROUBLES {
            let guard = other.mutex("t").lock().await.unwrap();
            let old = guard.token();
            let ticket = guard.into_ticket().await.unwrap();
            let met = first(proxy, "exchange", 1, trouble);
            let adopted = soon(c.adopt(&ticket)).await.unwrap();
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            assert!(adopted.token() > old);
            let status = other.inspect("t").await.unwrap();
            assert_eq!((status.holders.len(), status.holders[0].token), (1, adopted.token()), "{trouble:?}");
            adopted.release().await.unwrap();
            is_free(other, "t", old).await;
        }
    });
}

#[test]
fn a_cell_s_write() {
    by_each_way(async |proxy, c, other| {
        let mut version = Version::NONE;
        for (n, trouble) in TROUBLES.into_iter().enumerate() {
            let met = first(proxy, SWAP, 1, trouble);
            let value = format!("{n}");
            version = soon(c.cell("v").compare_exchange(version, value.as_bytes())).await.unwrap().unwrap();
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            let now = other.cell("v").load().await.unwrap();
            assert_eq!((now.version, now.value.as_deref()), (version, Some(value.as_bytes())), "{trouble:?}");
        }
        let conflict = c.cell("v").compare_exchange(Version::NONE, b"x".as_slice()).await.unwrap().unwrap_err();
        assert_eq!(conflict.now.version, version);
    });
}

/// Many add to it, and of some writes the answer is lost, or they come twice: by then others have written, too. Whoever asks again is told what
/// became of his own write, so nothing is added twice. (Red: a repeat that is judged by the version that is there now.)
#[test]
fn a_cell_that_many_add_to() {
    by_each_way(async |proxy, c, other| {
        let met = each(proxy, SWAP, |n| match n % 8 {
            3 => Trouble::LoseReply,
            6 => Trouble::Twice,
            _ => Trouble::None,
        });
        let (mut tasks, rounds) = (JoinSet::new(), tenth(100));
        for client in [c, other] {
            for _ in 0..4 {
                let cell = client.cell("sum");
                tasks.spawn(async move {
                    for _ in 0..rounds {
                        // A look that breaks off has written nothing.
                        while let Err(error) = soon(cell.update(added)).await {
                            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
                        }
                    }
                });
            }
        }
        while let Some(one) = tasks.join_next().await {
            one.unwrap();
        }
        proxy.calm();
        let sum = other.cell("sum").load().await.unwrap().value.unwrap();
        assert_eq!(from_utf8(&sum).unwrap(), (8 * rounds).to_string());
        assert!(met.load(SeqCst) >= 8, "the run must bite: {met:?}");
    });
}
/// What was resized and is resized again is as large as it was wished. (Red: whoever asks again is told that it has another size.)
#[test]
fn resize() {
    by_each_way(async |proxy, c, other| {
        other.semaphore("x", 2).acquire(1).await.unwrap().release().await.unwrap();
        for (trouble, (from, to)) in TROUBLES.into_iter().zip([(2, 3), (3, 1)]) {
            let met = first(proxy, "resize", 1, trouble);
            soon(c.semaphore("x", from).resize(from, to)).await.unwrap();
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            let resized = other.semaphore("x", to).try_acquire(to).await.unwrap().expect("it is free");
            resized.release().await.unwrap();
        }
    });
}

#[test]
fn what_was_abandoned_is_taken_back_whatever_arrives_when() {
    by_each_way(async |proxy, c, other| {
        let troubles = [Trouble::LoseReply, Trouble::Lose, Trouble::Late(100 * MS), Trouble::Late(700 * MS)];
        for (n, trouble) in troubles.into_iter().enumerate() {
            let name = format!("x{n}");
            // Every try meets it.
            let met = first(proxy, "acquire", 100, trouble);
            let lock = c.mutex(&name);
            let sent = async {
                eventually("sent", || async { met.load(SeqCst) > 0 }).await;
                tokio::time::sleep(50 * MS).await;
            };
            tokio::select! {
                got = lock.lock() => drop(got),
                () = sent => {}
            }
            proxy.calm();
            eventually("taken back", || async {
                let status = other.inspect(&name).await.unwrap();
                !status.is_held() && status.waiters.is_empty()
            })
            .await;
            // And nothing comes after the end of the attempt.
            tokio::time::sleep(OVER).await;
            let status = other.inspect(&name).await.unwrap();
            assert!(!status.is_held() && status.waiters.is_empty(), "{trouble:?} {status:?}");
        }
    });
}
