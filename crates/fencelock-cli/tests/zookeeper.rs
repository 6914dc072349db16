//! The program over a real ZooKeeper, beside Curator.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock_testkit::{Peer, ZooKeeper};
use std::{
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

fn fencelock(zk: &ZooKeeper, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencelock"));
    command.args(words).env("FENCELOCK_URL", zk.url()).stdin(Stdio::null());
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
fn curator_and_operators_meet_a_run() {
    let (zk, mut job);
    zk = ZooKeeper::start();
    job = fencelock(&zk, &["run", "job", "--", "sleep", "60"]).stderr(Stdio::piped()).spawn().unwrap();
    let status =
        || String::from_utf8_lossy(&fencelock(&zk, &["status", "job", "--json"]).output().unwrap().stdout).into_owned();
    eventually("it runs", || status().contains("\"token\":"));
    let mut curator = Peer::curator(&zk, None);
    curator.say("acquire mutex /fencelock/job 60000");
    eventually("Curator waits", || status().contains("127.0.0.1"));
    let busy = fencelock(&zk, &["run", "-n", "job", "--", "true"]).output().unwrap();
    assert_eq!(busy.status.code(), Some(75), "{}", said(&busy));
    let kind = fencelock(&zk, &["run", "-s", "job", "--", "true"]).output().unwrap();
    assert_eq!(kind.status.code(), Some(78), "{}", said(&kind));
    let list = fencelock(&zk, &["list"]).output().unwrap();
    assert!(said(&list).starts_with("job: held"), "{}", said(&list));
    let text = status();
    let (_, token) = text.split_once("\"token\":").unwrap();
    let token: String = token.chars().take_while(char::is_ascii_digit).collect();
    let out = fencelock(&zk, &["release", "job", "--force", "--token", &token]).output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(job.wait().unwrap().code(), Some(76));
    assert!(curator.hear().starts_with("ok "));
    let out = fencelock(&zk, &["run", "-n", "job", "--", "true"]).output().unwrap();
    assert!(said(&out).contains("127.0.0.1"), "what Curator says of itself: {}", said(&out));
}

/// A ttl is the session's: the one that is asked for, or none.
#[test]
fn a_ttl_is_asked_of_the_server() {
    let zk = ZooKeeper::start();
    let out =
        fencelock(&zk, &["run", "--ttl", "3s", "job", "--", "sh", "-c", "echo $FENCELOCK_TTL_MS"]).output().unwrap();
    assert_eq!(said(&out).trim(), "3000");
    // A day is more than it grants.
    let out = fencelock(&zk, &["run", "--ttl", "24h", "job", "--", "true"]).output().unwrap();
    assert_eq!(out.status.code(), Some(78), "{}", said(&out));
}

/// Nobody gives back what a killed process held: its session ends.
#[test]
fn a_killed_run_is_replaced() {
    let zk = ZooKeeper::start();
    let mut job = fencelock(&zk, &["run", "--ttl", "2s", "job", "--", "sleep", "60"]).spawn().unwrap();
    let status =
        || String::from_utf8_lossy(&fencelock(&zk, &["status", "job", "--json"]).output().unwrap().stdout).into_owned();
    eventually("it runs", || status().contains("\"token\":"));
    let next = fencelock(&zk, &["run", "-w", "60s", "job", "--", "true"]).spawn().unwrap();
    eventually("the next one waits", || status().contains("\"waiters\":[{"));
    job.kill().unwrap();
    job.wait().unwrap();
    let began = Instant::now();
    assert!(next.wait_with_output().unwrap().status.success());
    println!(
        "MEASURED | zookeeper: next grant after kill -9 with a session of 2 s | {:?} | reported | ok",
        began.elapsed()
    );
}
