//! What can go wrong on one server goes wrong behind sentinels, in a cluster and in a Redlock, too: one clear error each, or survived; nothing stays held.
//!
//! Planted to see them go red: scripts that a server has forgotten are not sent again (all of them, at the first command).
#![allow(clippy::unwrap_used, clippy::significant_drop_tightening, reason = "a test fails where it unwraps")]
mod common;
use common::{
    failovers::{FAILOVER, connect_to, many_threads},
    five::Five,
    *,
};
use fencelock_core::{Client, ErrorKind, LossReason, Page};
use fencelock_testkit::{RedisCluster, Sentinels};
use std::{io, time::Instant};

/// Several servers, of which some take writes.
trait Servers {
    /// Where clients go; `login`: nothing, or `user:password@`.
    fn url(&self, login: &str) -> String;
    /// Who has this key.
    fn owner(&self, key: &str) -> usize;
    fn say(&self, server: usize, words: &[&str]) -> io::Result<String>;
    fn many(&self) -> usize;
    /// To each of them.
    fn all(&self, words: &[&str]) {
        (0..self.many()).for_each(|n| drop(self.say(n, words).unwrap()));
    }
}
impl Servers for Sentinels {
    fn url(&self, login: &str) -> String {
        format!("redis+sentinel://{login}{}/{}", self.endpoints(), self.name())
    }
    fn owner(&self, _: &str) -> usize {
        self.settle(FAILOVER)
    }
    fn say(&self, server: usize, words: &[&str]) -> io::Result<String> {
        self.ask(server, words)
    }
    fn many(&self) -> usize {
        3
    }
}
impl Servers for RedisCluster {
    fn url(&self, login: &str) -> String {
        format!("redis+cluster://{login}{}", self.endpoints())
    }
    fn owner(&self, key: &str) -> usize {
        self.primary_of(self.slot(key)).unwrap()
    }
    fn say(&self, server: usize, words: &[&str]) -> io::Result<String> {
        self.ask(server, words)
    }
    fn many(&self) -> usize {
        6
    }
}

/// Locks and gives back.
async fn works(client: &Client, name: &str) {
    soon(client.mutex(name).lock()).await.unwrap().release().await.unwrap();
}

async fn scripts_and_connections(servers: &impl Servers) {
    let c = connect_to(&servers.url("")).await;
    let guard = c.mutex("held").ttl(6_000 * MS).lock().await.unwrap();
    for _ in 0..3 {
        servers.all(&["SCRIPT", "FLUSH"]);
        works(&c, "x").await;
        for kind in ["normal", "pubsub"] {
            servers.all(&["CLIENT", "KILL", "TYPE", kind]);
            works(&c, "x").await;
        }
        soon(guard.renewed()).await;
    }
    guard.check().unwrap();
    guard.release().await.unwrap();
}
async fn another_type(servers: &impl Servers) {
    let c = connect_to(&servers.url("")).await;
    let (x, y) = (servers.owner("fl:typed"), servers.owner("fl:y"));
    assert_eq!(servers.say(x, &["SET", "fl:typed", "theirs"]).unwrap(), "OK");
    for error in [
        c.mutex("typed").lock().await.map(drop).unwrap_err(),
        c.mutex("typed").try_lock().await.map(drop).unwrap_err(),
        c.inspect("typed").await.map(drop).unwrap_err(),
        c.cell("typed").load().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
    }
    assert_eq!(servers.say(x, &["GET", "fl:typed"]).unwrap(), "theirs");
    // Overwritten while it is held, and old enough to be watched.
    let guard = c.mutex("y").ttl(30_000 * MS).lock().await.unwrap();
    tokio::time::sleep(300 * MS).await;
    assert_eq!(servers.say(y, &["SET", "fl:y", "theirs"]).unwrap(), "OK");
    assert_eq!(soon(guard.lost()).await, LossReason::TakenOver);
}
async fn no_memory(servers: &impl Servers) {
    let c = connect_to(&servers.url("")).await;
    let guard = c.mutex("held").lock().await.unwrap();
    servers.all(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = c.mutex("full").lock().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("memory"), "{error}");
    // What frees memory is allowed.
    guard.release().await.unwrap();
    servers.all(&["CONFIG", "SET", "maxmemory", "0"]);
    works(&c, "full").await;
    works(&c, "held").await;
}
async fn rights(servers: &impl Servers) {
    servers.all(&["ACL", "SETUSER", "few", "reset", "on", ">hunter2", "+@all", "-hset", "&*", "~fl:*"]);
    let few = connect_to(&servers.url("few:hunter2@")).await;
    let error = soon(few.mutex("right").lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("`fencelock acl redis` prints the rights"), "{error}");
    assert!(!format!("{error} {error:?} {few:?}").contains("hunter2"), "{error}");
    let all = connect_to(&servers.url("")).await;
    assert!(!all.inspect("right").await.unwrap().is_held());
    works(&all, "right").await;
}
async fn odd_names(servers: &impl Servers) {
    let (a, b) = (connect_to(&servers.url("")).await, connect_to(&servers.url("")).await);
    let long = "x".repeat(512);
    for name in ["{", "}", "{}", "{}x", "{a}b", "}{", "a b", "%7B", "*", "[a]", "\\", "\u{1F512}", &long] {
        let guard = a.mutex(name).lock().await.unwrap();
        let lock = b.mutex(name);
        let next = tokio::spawn(async move { lock.lock().await.unwrap() });
        queued(&a, name, 1).await;
        let found = a.list(name, &Page::default()).await.unwrap();
        assert!(found.items.iter().any(|status| status.name.as_str() == name), "{name:?}");
        guard.release().await.unwrap();
        soon(next).await.unwrap().release().await.unwrap();
    }
    let listing = a.list("", &Page::default()).await.unwrap();
    assert!(listing.items.is_empty(), "{listing:?}");
}
fn everything(servers: &impl Servers) {
    many_threads().block_on(async {
        odd_names(servers).await;
        scripts_and_connections(servers).await;
        rights(servers).await;
        no_memory(servers).await;
        another_type(servers).await;
    });
}

#[test]
fn behind_sentinels() {
    everything(&Sentinels::start());
}
#[test]
fn in_a_cluster() {
    everything(&RedisCluster::start());
}
/// Each node of a Redlock forgets what it knew of scripts, and drops whoever is connected.
#[test]
fn in_a_redlock() {
    let five = Five::start();
    many_threads().block_on(async {
        let c = connect_to(&five.url()).await;
        let guard = c.mutex("held").ttl(6_000 * MS).lock().await.unwrap();
        let all = |words: &[&str]| five.0.iter().for_each(|node| drop(node.ask(words).unwrap()));
        for _ in 0..3 {
            all(&["SCRIPT", "FLUSH"]);
            works(&c, "x").await;
            all(&["SCRIPT", "FLUSH"]);
            soon(guard.renewed()).await;
            for kind in ["normal", "pubsub"] {
                all(&["CLIENT", "KILL", "TYPE", kind]);
                works(&c, "x").await;
            }
        }
        guard.check().unwrap();
        all(&["SCRIPT", "FLUSH"]);
        guard.release().await.unwrap();
        five.nothing_is_left("held").await;
    });
}
/// One shard is gone, and the servers are told to serve nothing then.
#[test]
fn a_cluster_that_is_down() {
    let servers = RedisCluster::start();
    many_threads().block_on(async {
        let c = connect_to(&format!("{}?ttl=4s", servers.url(""))).await;
        let gone = servers.owner("fl:x");
        let there = (0..).map(|n| format!("y{n}")).find(|name| servers.owner(&format!("fl:{name}")) != gone).unwrap();
        works(&c, &there).await;
        let guard = c.mutex(&there).lock().await.unwrap();
        servers.replicas_of(gone).into_iter().for_each(|replica| servers.kill(replica));
        servers.kill(gone);
        // It cannot be renewed anywhere.
        let began = Instant::now();
        assert_eq!(soon(guard.lost()).await, LossReason::Unreachable);
        assert!(began.elapsed() < LONG);
        let began = Instant::now();
        let error = soon(c.mutex(&there).lock()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("CLUSTERDOWN"), "{error}");
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
        servers.restart(gone);
        eventually("it is up again", || async { c.mutex(&there).lock().await.is_ok() }).await;
    });
}
