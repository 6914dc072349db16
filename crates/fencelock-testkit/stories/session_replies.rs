//! Replies that are lost, or come twice, in sessions of the server's, for the tests that bring `Server` and `LIVE`, what a sign of
//! life has in it.
use super::*;
use fencelock_conformance::proxy::Trouble;
use fencelock_core::LossReason;
use std::sync::atomic::Ordering::SeqCst;

/// In a session of the server's a claim, or its release, whose reply is lost ends the session: what it had is free, and a claim is made again
/// in another one. A copy over another connection is of another session, which ends with that; so is one that comes when its sender has begun
/// anew: a wait of nobody, which has its turn and is gone. (Red: a claim whose connection broke is not made again.)
#[test]
fn in_sessions() {
    let server = Server::start();
    runtime().block_on(async {
        let (proxy, url) = proxied(&server);
        let (c, other) =
            (client(&(url + "?strategy=session")).await, client(&(server.url() + "?strategy=session")).await);
        let mut last = other.mutex("x").lock().await.unwrap();
        for (waits, function, trouble) in [
            (false, "bear", Trouble::LoseReply),
            (false, "bear", Trouble::Twice),
            (false, "let_go", Trouble::LoseReply),
            (false, "let_go", Trouble::Twice),
            (false, "bear", Trouble::Late(20 * MS)),
            (false, "let_go", Trouble::Late(20 * MS)),
            (true, "await", Trouble::LoseReply),
            (true, "await", Trouble::Late(MS)),
            (true, "await", Trouble::Late(200 * MS)),
            (true, "let_go", Trouble::LoseReply),
            (true, "let_go", Trouble::Twice),
        ] {
            let what = format!("{function}, {trouble:?}, {waits}");
            let token = last.token();
            let met = first(&proxy, function, 1, trouble);
            let held = if waits {
                let wait = tokio::spawn(c.mutex("x").lock());
                queued(&other, "x", 1).await;
                last.release().await.unwrap();
                soon(wait).await.unwrap().unwrap()
            } else {
                last.release().await.unwrap();
                soon(c.mutex("x").lock()).await.unwrap()
            };
            assert!(held.token() > token, "{what}");
            assert!(other.mutex("x").try_lock().await.unwrap().is_err(), "{what}");
            held.check().unwrap();
            let token = held.token();
            let left = soon(held.release()).await;
            assert!(left.is_ok() || function == "let_go", "{what}: {left:?}");
            assert_eq!(met.load(SeqCst), 1, "{what}");
            last = soon(other.mutex("x").lock()).await.unwrap();
            assert!(last.token() > token, "{what}");
        }
    });
}
/// A sign of life that is not answered, or does not arrive, is the end of its session and is told; one that comes twice is one. (Red: the end of
/// a session that is not told.)
#[test]
fn signs_of_life() {
    let server = Server::start();
    runtime().block_on(async {
        let (proxy, url) = proxied(&server);
        let (c, other) =
            (client(&(url + "?strategy=session")).await, client(&(server.url() + "?strategy=session")).await);
        for trouble in [Trouble::Twice, Trouble::LoseReply, Trouble::Lose, Trouble::Late(20 * MS)] {
            let held = soon(c.mutex("x").ttl(6 * SEC).lock()).await.unwrap();
            let (token, until) = (held.token(), held.valid_until());
            let met = first_of(&proxy, LIVE.to_owned(), 1, trouble);
            eventually("it meets it", || std::future::ready(met.load(SeqCst) == 1)).await;
            if trouble == Trouble::Twice {
                eventually("it goes on", || std::future::ready(held.valid_until() > until + SEC)).await;
                held.check().unwrap();
                assert!(other.mutex("x").try_lock().await.unwrap().is_err());
                held.release().await.unwrap();
                continue;
            }
            assert_eq!(soon(held.lost()).await, LossReason::SessionEnded, "{trouble:?}");
            let next = soon(other.mutex("x").lock()).await.unwrap();
            assert!(next.token() > token, "{trouble:?}");
            next.release().await.unwrap();
        }
    });
}
