//! The examples that take an engine: the shop is oversold without a lock, and saved by the fence, wherever the locks are.

mod common;

use std::process::{Command, Stdio};

use common::{binary, finish_within};
use fencelock_testkit::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};

/// As `cargo test --examples` has built it: a test by itself builds no example.
fn example(name: &str, url: &str) -> Command {
    let program = binary().parent().map(|folder| folder.join("examples").join(name));
    let mut command = Command::new(program.expect("a folder"));
    command.arg(url).stdin(Stdio::null());
    command
}

fn shop(url: &str) {
    let (code, out, err) = finish_within(&mut example("oversell", url), std::time::Duration::from_secs(60));
    assert_eq!(code, 0, "{url}: {out} {err}");
    assert_eq!(out.matches("refused: ").count(), 1, "{url}: {out}");
    for other in ["leader", "fenced_store"] {
        let (code, out, err) = finish_within(&mut example(other, url), std::time::Duration::from_secs(60));
        assert_eq!(code, 0, "{other} {url}: {out} {err}");
    }
}

// Planted: the check of the fence left out.
#[test]
fn the_shop_over_redis() {
    let server = Redis::start();
    shop(&(server.url() + "?ttl=2s"));
}

// Planted: the same.
#[test]
fn the_shop_over_postgres() {
    let server = Postgres::start();
    shop(&(server.url() + "?ttl=2s"));
    shop(&(server.url() + "?ttl=2s&strategy=session"));
}

// Planted: the same.
#[test]
fn the_shop_over_mariadb() {
    let server = MariaDb::start();
    shop(&(server.url() + "?ttl=2s"));
    shop(&(server.url() + "?ttl=2s&strategy=session"));
}

// Planted: the same.
#[test]
fn the_shop_over_etcd() {
    let server = Etcd::start();
    shop(&(server.url() + "?ttl=2s"));
}

// Planted: the same.
#[test]
fn the_shop_over_zookeeper() {
    let server = ZooKeeper::start();
    // Its sessions take no less.
    shop(&(server.url() + "?ttl=4s"));
}
