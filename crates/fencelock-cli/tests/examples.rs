//! The examples that take an engine: the shop is oversold without a lock, and saved by the fence, wherever the locks are.

mod common;

use std::process::{Command, Stdio};

use common::{binary, finish_within};
use fencelock_testkit::{Etcd, MariaDb, Postgres, Redis, RedisOptions, ZooKeeper};

/// As `cargo test --examples` has built it: a test by itself builds no example.
fn example(name: &str, url: &str) -> Command {
    let program = binary().parent().map(|folder| folder.join("examples").join(name));
    let mut command = Command::new(program.expect("a folder"));
    command.arg(url).stdin(Stdio::null());
    command
}

/// What the shop has told.
fn shop(url: &str) -> String {
    let (code, story, err) = finish_within(&mut example("oversell", url), std::time::Duration::from_secs(60));
    assert_eq!(code, 0, "{url}: {story} {err}");
    assert_eq!(story.matches("refused: ").count(), 1, "{url}: {story}");
    assert_eq!(story.matches("not sold, for somebody else has written since").count(), 1, "{url}: {story}");
    for other in ["leader", "fenced_store"] {
        let (code, out, err) = finish_within(&mut example(other, url), std::time::Duration::from_secs(60));
        assert_eq!(code, 0, "{other} {url}: {out} {err}");
    }
    story
}

// Planted: the check of the fence left out.
#[test]
fn the_shop_over_redis() {
    let server = Redis::start();
    let story = shop(&(server.url() + "?ttl=3s"));
    // What goes wrong by hand, and what ours does at the same place.
    for part in [
        "it is locked for ever: its key has no end, and to whoever comes it is busy",
        "the third has it, beside the second",
        "the first goes on, and is told: ",
        "to the third it is busy",
        "and works; the second has it meanwhile",
        "to the second it is busy",
    ] {
        assert_eq!(story.matches(part).count(), 1, "{part}: {story}");
    }
}

// Planted: the same.
#[test]
fn the_shop_over_five_redis() {
    let nodes = Redis::several(5, &RedisOptions::default());
    let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    shop(&format!("redlock://{}?ttl=3s", hosts.join(",")));
}

// Planted: the same.
#[test]
fn the_shop_over_postgres() {
    let server = Postgres::start();
    shop(&(server.url() + "?ttl=3s"));
    shop(&(server.url() + "?ttl=3s&strategy=session"));
    shop(&(server.url() + "?ttl=3s&strategy=shedlock"));
}

// Planted: the same.
#[test]
fn the_shop_over_mariadb() {
    let server = MariaDb::start();
    shop(&(server.url() + "?ttl=3s"));
    shop(&(server.url() + "?ttl=3s&strategy=session"));
    shop(&(server.url() + "?ttl=3s&strategy=shedlock"));
}

// Planted: the same.
#[test]
fn the_shop_over_etcd() {
    let server = Etcd::start();
    shop(&(server.url() + "?ttl=3s"));
}

// Planted: the same.
#[test]
fn the_shop_over_zookeeper() {
    let server = ZooKeeper::start();
    // Its sessions take no less.
    let story = shop(&(server.url() + "?ttl=4s"));
    let messages = |before: &str, after: &str| -> u64 {
        let (_, rest) = story.split_once(before).unwrap_or_else(|| panic!("{before}: {story}"));
        let (number, _) = rest.split_once(after).unwrap_or_else(|| panic!("{after}: {story}"));
        number.parse().unwrap_or_else(|e| panic!("{number}: {e}"))
    };
    let herd = messages("8 are woken, and ask again, one for something; ", " messages");
    let ours = messages("has given it back, the next has it: ", " messages");
    // The word of the watch and two answers, to each; beside one of each, and signs of life.
    assert!(herd >= 3 * 8 && ours < herd, "{ours} of {herd}");
}
