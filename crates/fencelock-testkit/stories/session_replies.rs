//! Replies that are lost, or come twice, in sessions of the server's, for the tests that bring `Server`.
use super::*;
use fencelock_conformance::proxy::Trouble;
use std::sync::atomic::Ordering::SeqCst;

/// In a session of the server's a claim, or its release, whose reply is lost ends the session: what it had is free, and a claim is made again
/// in another one. A copy over another connection is of another session, which ends with that.
/// (Red: a claim whose connection broke is not made again.)
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
            (true, "await", Trouble::LoseReply),
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
