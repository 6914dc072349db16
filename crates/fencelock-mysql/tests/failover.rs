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
    MariaDb as Server,
    processes::{bar, percentile, tenth},
};
use std::time::Instant;
use tokio::task::block_in_place;

const NAME: &str = "MariaDB";
/// So many kinds of locks live with sessions, too.
const SESSION_CLAIMS: usize = 1;
/// All that nobody uses, also what seems to be of the next hour.
const CLEAN: &str = "CALL fencelock_clean(-7200000000)";
/// What is written of leases is of yesterday.
const AGE: &str =
    "UPDATE fencelock_lock SET ends = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - 86400000000";
const AGE_ROWS: &str =
    "UPDATE shedlock SET lock_until = lock_until - INTERVAL 1 DAY, locked_at = locked_at - INTERVAL 1 DAY";

/// With either of the binary logs that we take.
fn primary(round: usize) -> Server {
    Server::primary(&[["--binlog-format=ROW", "--binlog-format=MIXED"][round % 2]])
}
fn replica(primary: &Server) -> Server {
    primary.replica()
}
/// Until the replica has what the primary wrote.
fn catch_up(replica: &Server, primary: &Server) {
    replica.catch_up(primary);
}
/// Of several hosts, by the URL that users write.
async fn client_of(hosts: [&Server; 2], query: &str) -> Client {
    client(&(url_of(hosts) + query)).await
}
fn url_of(hosts: [&Server; 2]) -> String {
    let [a, b] = hosts.map(Server::port);
    format!("mysql://root@127.0.0.1:{a},127.0.0.1:{b}/test")
}

/// A primary is taken out of service and lives on, and so do the connections to it; a replica that missed the last grant takes its place: who
/// holds that is told so, though he asks for nothing. (Red: the server is asked whether it is there, and not whether it takes writes; a new
/// connection is taken for one that has been there.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_becomes_a_replica() {
    // Whoever has held it for so long has been looked after.
    for (strategy, held) in [("lease", 2_500 * MS), ("shedlock", 100 * MS)] {
        let primary = primary(0);
        client(&format!("{}?strategy={strategy}", primary.url())).await;
        let replica = replica(&primary);
        let a = client(&format!("{}?strategy={strategy}", url_of([&primary, &replica]))).await;
        let kept = a.mutex("kept").ttl(60 * SEC).lock().await.unwrap();
        a.mutex("missed").ttl(60 * SEC).lock().await.unwrap().release().await.unwrap();
        block_in_place(|| catch_up(&replica, &primary));
        replica.follow_nobody();
        let missed = a.mutex("missed").ttl(60 * SEC).lock().await.unwrap();
        tokio::time::sleep(held).await;
        primary.ask("SET GLOBAL read_only = 1");
        block_in_place(|| replica.promote());
        let began = Instant::now();
        assert_eq!(soon(missed.lost()).await, LossReason::TakenOver);
        println!("{strategy}: told after {:?}", began.elapsed());
        kept.check().unwrap();
        let next = a.mutex("missed").try_lock().await.unwrap().unwrap();
        assert!(next.token() > missed.token());
        next.release().await.unwrap();
        kept.release().await.unwrap();
    }
}
