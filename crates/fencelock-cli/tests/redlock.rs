//! The program over five Redis, of which a lock needs three.
//!
//! To be planted: a Redlock without a URL of its own (what a job finds).
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "common/server.rs"]
mod server;
use fencelock_testkit::{Redis, RedisOptions};
use server::{done, next};

fn five() -> (Vec<Redis>, String) {
    let nodes = Redis::several(5, &RedisOptions::default());
    let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    (nodes, format!("redlock://{}", hosts.join(",")))
}

#[test]
fn operators_meet_a_run_also_with_two_nodes_dead() {
    let (nodes, url) = five();
    let (code, told) = done(&url, &["run", "job", "--", "sh", "-c", "echo $FENCELOCK_TOKEN $FENCELOCK_URL"]);
    assert_eq!(code, Some(0), "{told}");
    let (token, known) = told.trim().split_once(' ').unwrap();
    assert!(token.parse::<i64>().unwrap() > 1_600_000_000_000_000, "{told}");
    // What leads the job there, too.
    assert!(known.starts_with("redlock://") && nodes.iter().all(|node| known.contains(&node.port().to_string())));
    for dead in [false, true] {
        if dead {
            nodes[0].kill();
            nodes[3].kill();
        }
        let (_, waiter) = server::operators_meet_a_run(&url, &[], || next(&url));
        assert!(waiter.wait_with_output().unwrap().status.success());
        let (_, list) = done(&url, &["list"]);
        assert!(!list.contains("job"), "{list}");
    }
    nodes[1].kill();
    let (code, told) = done(&url, &["run", "job", "--", "true"]);
    assert_eq!(code, Some(69), "{told}");
    for node in [0, 1, 3] {
        assert!(told.contains(&nodes[node].port().to_string()), "{told}");
    }
}

/// It is listed once, whatever the number of its nodes.
#[test]
fn a_held_lock_is_listed_once() {
    let (_nodes, url) = five();
    let list = ["run", "job", "--", env!("CARGO_BIN_EXE_fencelock"), "--url", url.as_str(), "list"];
    let (code, listed) = done(&url, &list);
    assert!(code == Some(0) && listed.matches("job").count() == 1, "{listed}");
}

#[test]
fn a_killed_run_is_replaced() {
    let (_nodes, url) = five();
    server::a_killed_run_is_replaced("redlock", &url, "6s");
}

#[test]
fn what_cannot_be_is_told() {
    let cases = [
        ("redlock://:hunter2@h1", 78, "redis://HOST"),
        ("redlock://:hunter2@h1,h2,h1", 78, "there twice"),
        ("redlock://:hunter2@h1,h2,h3?layout=plain", 78, "no layout but native"),
        ("redlocks://:hunter2@h1,h2,h3?replicas=2", 78, "is for one primary"),
        ("redlok://h1,h2,h3", 78, "did you mean redlock:"),
    ];
    let cases = cases.map(|(url, code, says)| (url.to_owned(), code, says));
    server::what_cannot_be("memory:", &cases);
}
