//! Replies that are lost, come late or twice, for every function.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/session_replies.rs"]
mod sessions;
#[path = "../../fencelock-testkit/stories/replies.rs"]
mod stories;
use common::*;
use fencelock_conformance::proxy::{Proxy, Trouble};
use fencelock_testkit::{PgBouncer, Postgres as Server};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

/// What gives up a place in the queue.
const WITHDRAW: &str = "withdraw";
/// What writes a cell.
const SWAP: &str = "swap";
/// What a sign of life of a session has in it.
const LIVE: &str = "'idle_session_timeout";
/// After so long nothing of an attempt comes any more.
const OVER: Duration = Duration::from_secs(4);
/// Directly, and through a pooler of transactions, which has a namespace for itself.
const WAYS: [&str; 2] = ["", "?namespace=pooled"];
fn by(server: &Server, way: &str) -> (Proxy, String, impl Sized) {
    let pooler = (!way.is_empty()).then(|| PgBouncer::start(server, "transaction"));
    let (proxy, url) = pooler.as_ref().map_or_else(|| proxied(server), |pooler| proxied_pooler(server, pooler));
    (proxy, url, pooler)
}
/// A writer in a session becomes a reader whatever becomes of the answer, or loses it and is told: nobody is left behind, and no writer is in
/// beside him. (Red: an answer that was lost taken for done.)
#[test]
fn softening_in_a_session() {
    let server = Server::start();
    let (proxy, url) = proxied(&server);
    runtime().block_on(async {
        let [url, past] = [url, server.url()].map(|url| url + "?strategy=session");
        let (c, other) = (client(&url).await, client(&past).await);
        for trouble in [Trouble::LoseReply, Trouble::Lose, Trouble::Twice] {
            let writer = c.rw_lock("x").write().await.unwrap();
            let met = first(&proxy, "soften", 1, trouble);
            let reader = soon(writer.downgrade()).await;
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            if let Ok(reader) = &reader {
                reader.check().unwrap();
                assert!(other.rw_lock("x").try_write().await.unwrap().is_err(), "{trouble:?}");
                let beside = other.rw_lock("x").try_read().await.unwrap().expect("a reader fits in");
                beside.release().await.unwrap();
            }
            println!("{trouble:?}: {:?}", reader.as_ref().map(drop));
            drop(reader);
            soon(other.rw_lock("x").write()).await.unwrap().release().await.unwrap();
        }
    });
}
