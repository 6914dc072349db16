//! Replies that are lost, come late or twice, for every script.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/replies.rs"]
mod stories;
use common::*;
use fencelock_conformance::proxy::Proxy;
use fencelock_testkit::Redis as Server;
use std::time::Duration;

/// What gives up a place in the queue.
const WITHDRAW: &str = "release";
/// What writes a cell.
const SWAP: &str = "cell_swap";
/// After so long nothing of an attempt comes any more.
const OVER: Duration = Duration::from_secs(2);
const WAYS: [&str; 1] = [""];
fn by(server: &Server, _: &str) -> (Proxy, String, impl Sized) {
    let (proxy, url) = proxied(server);
    (proxy, url, ())
}
