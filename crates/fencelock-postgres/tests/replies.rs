//! Replies that are lost, come late or twice, for every function.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/session_replies.rs"]
mod sessions;
#[path = "../../fencelock-testkit/stories/replies.rs"]
mod stories;
use common::*;
use fencelock_testkit::Postgres as Server;
use std::time::Duration;

/// What writes a cell.
const SWAP: &str = "swap";
/// What a sign of life of a session has in it.
const LIVE: &str = "SET idle_session_timeout";
/// After so long nothing of an attempt comes any more.
const OVER: Duration = Duration::from_secs(4);

/// The same behind a pooler of transactions.
#[test]
fn every_claim_and_its_release_behind_a_pooler() {
    let server = Server::start();
    let (_pooler, proxy, url) = pooled(&server);
    stories::every_claim_and_its_release_by(&server, &proxy, &url);
}
