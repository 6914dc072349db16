//! The program over a real etcd, beside etcd's own client.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock_testkit::Etcd;
use std::{
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

fn fencelock(etcd: &Etcd, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencelock"));
    command.args(words).env("FENCELOCK_URL", etcd.url()).stdin(Stdio::null());
    command
}
fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_job_finds_what_etcdctl_would_tell_it() {
    let etcd = Etcd::start();
    let script = "echo $FENCELOCK_TOKEN $ETCD_LOCK_REV $ETCD_LOCK_KEY";
    let out = fencelock(&etcd, &["run", "job", "--", "sh", "-c", script]).output().unwrap();
    let told = said(&out);
    let words: Vec<_> = told.split_whitespace().collect();
    let [token, revision, key] = words.as_slice() else { panic!("{told}") };
    assert!(token == revision && key.starts_with("fencelock/job/"), "{told}");
    let theirs = etcd.run(&["lock", "fencelock/job", "--", "sh", "-c", "echo $ETCD_LOCK_REV"]);
    assert!(theirs.trim().parse::<i64>().unwrap() > token.parse().unwrap(), "{theirs} after {token}");
    // Nothing of it is left but the store's identity.
    let keys = etcd.run(&["get", "", "--prefix", "--keys-only"]);
    assert!(keys.lines().all(|key| key.is_empty() || key == "fencelock/%id"), "{keys}");
}

#[test]
fn etcdctl_and_operators_meet_a_run() {
    let etcd = Etcd::start();
    let mut job = fencelock(&etcd, &["run", "job", "--", "sleep", "60"]).stderr(Stdio::piped()).spawn().unwrap();
    let status = || {
        String::from_utf8_lossy(&fencelock(&etcd, &["status", "job", "--json"]).output().unwrap().stdout).into_owned()
    };
    eventually("it runs", || status().contains("\"token\":"));
    let mut theirs = etcd.etcdctl(&["lock", "fencelock/job", "--", "true"]).stdout(Stdio::null()).spawn().unwrap();
    eventually("etcdctl waits", || status().contains("another program"));
    let busy = fencelock(&etcd, &["run", "-n", "job", "--", "true"]).output().unwrap();
    assert_eq!(busy.status.code(), Some(75), "{}", said(&busy));
    assert!(said(&busy).contains("\"sleep\"") && !said(&busy).contains("lease 0"), "{}", said(&busy));
    let kind = fencelock(&etcd, &["run", "-s", "job", "--", "true"]).output().unwrap();
    assert_eq!(kind.status.code(), Some(78), "{}", said(&kind));
    let list = fencelock(&etcd, &["list"]).output().unwrap();
    assert!(said(&list).starts_with("job: held"), "{}", said(&list));
    let text = status();
    let (_, token) = text.split_once("\"token\":").unwrap();
    let token: String = token.chars().take_while(char::is_ascii_digit).collect();
    let out = fencelock(&etcd, &["release", "job", "--force", "--token", &token]).output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(job.wait().unwrap().code(), Some(76));
    assert!(theirs.wait().unwrap().success());
}

/// Nobody gives back what a killed process held: its lease ends, and the next one is told by etcd.
#[test]
fn the_next_one_runs_when_the_lease_of_a_killed_one_ends() {
    let etcd = Etcd::start();
    let mut job = fencelock(&etcd, &["run", "--ttl", "3s", "job", "--", "sleep", "60"]).spawn().unwrap();
    let status = || {
        String::from_utf8_lossy(&fencelock(&etcd, &["status", "job", "--json"]).output().unwrap().stdout).into_owned()
    };
    eventually("it runs", || status().contains("\"token\":"));
    let next = fencelock(&etcd, &["run", "-w", "60s", "job", "--", "true"]).spawn().unwrap();
    eventually("the next one waits", || !status().contains("\"waiters\":[]"));
    job.kill().unwrap();
    job.wait().unwrap();
    let began = Instant::now();
    assert!(next.wait_with_output().unwrap().status.success());
    println!("MEASURED | etcd: next grant after kill -9 with a ttl of 3 s | {:?} | reported | ok", began.elapsed());
}
