//! The program over a real ZooKeeper, beside Curator.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "common/server.rs"]
mod server;
use fencelock_testkit::{Peer, Port, ZooKeeper};
use server::{done, eventually, status};

#[test]
fn curator_and_operators_meet_a_run() {
    let zk = ZooKeeper::start();
    let url = zk.url();
    let (_, curator) = server::operators_meet_a_run(&url, &[], || {
        let mut curator = Peer::curator(&zk, None);
        curator.say("acquire mutex /fencelock/job 60000");
        eventually("Curator waits", || status(&url).contains("127.0.0.1"));
        curator
    });
    assert!(curator.hear().starts_with("ok "));
    let (_, busy) = done(&url, &["run", "-n", "job", "--", "true"]);
    assert!(busy.contains("127.0.0.1"), "what Curator says of itself: {busy}");
}

/// A ttl is the session's: the one that is asked for, or none.
#[test]
fn a_ttl_is_asked_of_the_server() {
    let zk = ZooKeeper::start();
    let (_, ttl) = done(&zk.url(), &["run", "--ttl", "9s", "job", "--", "sh", "-c", "echo $FENCELOCK_TTL_MS"]);
    assert_eq!(ttl.trim(), "9000");
    // A day is more than it grants.
    let (code, told) = done(&zk.url(), &["run", "--ttl", "24h", "job", "--", "true"]);
    assert_eq!(code, Some(78), "{told}");
}

/// Its session ends.
#[test]
fn a_killed_run_is_replaced() {
    let zk = ZooKeeper::start();
    server::a_killed_run_is_replaced("zookeeper", &zk.url(), "6s");
}

#[test]
fn a_job_whose_server_goes_is_stopped() {
    let zk = ZooKeeper::start();
    server::a_job_whose_server_goes_is_stopped(&zk.url(), || zk.pause(0, true));
    zk.pause(0, false);
}

#[test]
fn what_cannot_be() {
    let zk = ZooKeeper::start();
    let url = zk.url();
    let cases = [
        (format!("{url}?rot=/x"), 78, "unknown key"),
        (url.replace("zookeeper:", "zookeper:"), 78, "did you mean zookeeper:"),
    ];
    server::what_cannot_be(&url, &cases);
    server::nobody_is_there(&format!("zookeeper://ann:hunter2@127.0.0.1:{}", Port::free()));
}

// Planted: FROM and TO exchanged; a version that is not compared.
#[test]
fn values_and_sizes() {
    let server = ZooKeeper::start();
    server::a_value_is_written_by_its_version(&server.url());
    server::a_semaphore_is_resized(&server.url());
}
