//! The program over a real etcd, beside etcd's own client.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "common/server.rs"]
mod server;
use fencelock_testkit::{Etcd, Port};
use server::{done, eventually, status};
use std::process::Stdio;

#[test]
fn a_job_finds_what_etcdctl_would_tell_it() {
    let etcd = Etcd::start();
    let script = "echo $FENCELOCK_TOKEN $ETCD_LOCK_REV $ETCD_LOCK_KEY";
    let (_, told) = done(&etcd.url(), &["run", "job", "--", "sh", "-c", script]);
    let words: Vec<_> = told.split_whitespace().collect();
    let [token, revision, key] = words.as_slice() else { panic!("{told}") };
    assert!(token == revision && key.starts_with("fencelock/job/"), "{told}");
    let theirs = etcd.run(&["lock", "fencelock/job", "--", "sh", "-c", "echo $ETCD_LOCK_REV"]);
    assert!(theirs.trim().parse::<i64>().unwrap() > token.parse().unwrap(), "{theirs} after {token}");
    // Nothing of it is left but the store's identity.
    let keys = etcd.run(&["get", "", "--prefix", "--keys-only"]);
    assert!(keys.lines().all(|key| key.is_empty() || key == "fencelock/%id"), "{keys}");
}

/// Planted: the key in the environment told on, though it is that of the run between.
#[test]
fn a_nested_job_finds_the_key_of_its_own_hold_or_none() {
    let etcd = Etcd::start();
    let f = env!("CARGO_BIN_EXE_fencelock");
    let script = format!("{f} run --reentrant job -- sh -c 'echo $ETCD_LOCK_KEY,$ETCD_LOCK_REV'");
    let (code, told) = done(&etcd.url(), &["run", "job", "--", "sh", "-c", &script]);
    assert!(code == Some(0) && told.starts_with("fencelock/job/") && !told.ends_with(",\n"), "{told}");
    let (code, told) = done(&etcd.url(), &["run", "job", "--", f, "run", "other", "--", "sh", "-c", &script]);
    assert_eq!((code, told.as_str()), (Some(0), ",\n"));
}

#[test]
fn etcdctl_and_operators_meet_a_run() {
    let etcd = Etcd::start();
    let url = etcd.url();
    let (busy, mut theirs) = server::operators_meet_a_run(&url, &[], || {
        let theirs = etcd.etcdctl(&["lock", "fencelock/job", "--", "true"]).stdout(Stdio::null()).spawn().unwrap();
        eventually("etcdctl waits", || status(&url).contains("another program"));
        theirs
    });
    assert!(busy.contains("\"sleep\"") && !busy.contains("lease 0"), "{busy}");
    assert!(theirs.wait().unwrap().success());
}

/// As the guide says it of names with a `/`. (Red: a name that is not escaped.)
#[test]
fn a_name_that_is_divided_is_shared_as_the_guide_says() {
    let etcd = Etcd::start();
    for (theirs, query, ours) in
        [("fencelock/deploy%2Fshop", "", "deploy/shop"), ("deploy/shop", "?prefix=deploy/", "shop")]
    {
        let url = etcd.url() + query;
        let mut theirs = etcd.etcdctl(&["lock", theirs]).stdout(Stdio::null()).spawn().unwrap();
        eventually("etcdctl has it", || done(&url, &["run", "-n", ours, "--", "true"]).0 == Some(75));
        theirs.kill().unwrap();
        theirs.wait().unwrap();
    }
}

/// Its lease ends, and the next one is told by etcd.
#[test]
fn the_next_one_runs_when_the_lease_of_a_killed_one_ends() {
    let etcd = Etcd::start();
    server::a_killed_run_is_replaced("etcd", &etcd.url(), "6s");
}

#[test]
fn a_job_whose_server_goes_is_stopped() {
    let etcd = Etcd::start();
    server::a_job_whose_server_goes_is_stopped(&etcd.url(), || etcd.pause(0, true));
    etcd.pause(0, false);
}

#[test]
fn what_cannot_be() {
    let etcd = Etcd::start();
    let url = etcd.url();
    let cases =
        [(format!("{url}?prefx=x"), 78, "unknown key"), (url.replace("etcd:", "etdc:"), 78, "did you mean etcd:")];
    server::what_cannot_be(&url, &cases);
    server::nobody_is_there(&format!("etcd://ann:hunter2@127.0.0.1:{}", Port::free()));
}

// Planted: FROM and TO exchanged; a version that is not compared.
#[test]
fn values_and_sizes() {
    let server = Etcd::start();
    server::a_value_is_written_by_its_version(&server.url());
    server::a_semaphore_is_resized(&server.url());
}
