//! Replies that are lost, come late or twice, for every procedure.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/session_replies.rs"]
mod sessions;
#[path = "../../fencelock-testkit/stories/replies.rs"]
mod stories;
use common::*;
use fencelock_conformance::proxy::Proxy;
use fencelock_testkit::MariaDb as Server;
use std::time::Duration;

/// What gives up a place in the queue.
const WITHDRAW: &str = "release";
/// What writes a cell.
const SWAP: &str = "swap";
/// What a sign of life of a session has in it.
const LIVE: &str = "fencelock_live(";
/// After so long nothing of an attempt comes any more.
const OVER: Duration = Duration::from_secs(4);
/// Who waits asks when it may be his turn, or hears it.
const WAYS: [&str; 2] = ["", "?doorbell=on&namespace=heard"];
fn by(server: &Server, _: &str) -> (Proxy, String, impl Sized) {
    let (proxy, url) = proxied(server);
    (proxy, url, ())
}
