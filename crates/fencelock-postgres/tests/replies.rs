//! Replies that are lost, come late or twice, for every function.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/session_replies.rs"]
mod sessions;
#[path = "../../fencelock-testkit/stories/replies.rs"]
mod stories;
use common::*;
use fencelock_conformance::proxy::Proxy;
use fencelock_testkit::{PgBouncer, Postgres as Server};
use std::time::Duration;

/// What writes a cell.
const SWAP: &str = "swap";
/// What a sign of life of a session has in it.
const LIVE: &str = "SET idle_session_timeout";
/// After so long nothing of an attempt comes any more.
const OVER: Duration = Duration::from_secs(4);
/// Directly, and through a pooler of transactions, which has a namespace for itself.
const WAYS: [&str; 2] = ["", "?namespace=pooled"];
fn by(server: &Server, way: &str) -> (Proxy, String, impl Sized) {
    let pooler = (!way.is_empty()).then(|| PgBouncer::start(server, "transaction"));
    let (proxy, url) = pooler.as_ref().map_or_else(|| proxied(server), |pooler| proxied_pooler(server, pooler));
    (proxy, url, pooler)
}
