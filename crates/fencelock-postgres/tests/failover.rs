//! Tokens rise whatever becomes of the server, and those who hold or wait are told the truth over a promotion, with several hosts.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/failover.rs"]
mod stories;
use common::*;
use fencelock_conformance::within;
use fencelock_core::{Claim, Client, LossReason, Token};
use fencelock_testkit::{
    Postgres as Server,
    processes::{bar, percentile, tenth},
};
use std::time::Instant;
use tokio::task::block_in_place;

const NAME: &str = "PostgreSQL";
/// So many kinds of locks live with sessions, too.
const SESSION_CLAIMS: usize = 3;
/// All that nobody uses, also what seems to be of the next hour.
const CLEAN: &str = "SELECT fencelock_clean(-7200000000)";
/// What is written of leases is of yesterday.
const AGE: &str = "UPDATE fencelock_lock SET until = clock_timestamp() - interval '1 day'";
const AGE_ROWS: &str =
    "UPDATE shedlock SET lock_until = lock_until - interval '1 day', locked_at = locked_at - interval '1 day'";

fn primary(_round: usize) -> Server {
    Server::start()
}
fn replica(primary: &Server) -> Server {
    primary.standby()
}
/// Until the replica has what the primary wrote.
fn catch_up(replica: &Server, primary: &Server) {
    let end = primary.ask("SELECT pg_current_wal_flush_lsn()");
    let (has, began) = (format!("SELECT pg_last_wal_replay_lsn() >= '{end}'"), Instant::now());
    while replica.ask(&has) != "t" {
        assert!(began.elapsed() < LONG, "it does not follow");
    }
}
/// Of several hosts, by the URL that users write.
async fn client_of(hosts: [&Server; 2], query: &str) -> Client {
    let [a, b] = hosts.map(Server::port);
    client(&format!("postgres://postgres@127.0.0.1:{a},127.0.0.1:{b}/postgres{query}")).await
}
