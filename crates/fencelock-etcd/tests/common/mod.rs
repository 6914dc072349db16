//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock_conformance::{
    eventually,
    proxy::{Proxy, bytes},
};
use fencelock_core::Client;
use fencelock_etcd::{Config, EtcdEngine};
use fencelock_testkit::Etcd;
use std::{sync::Arc, time::Duration};

pub const SEC: Duration = Duration::from_secs(1);

pub async fn client(etcd: &Etcd, ttl: Duration) -> Client {
    let mut config = Config::from_url(&etcd.url()).unwrap();
    config.ttl = ttl;
    built(EtcdEngine::connect(config).await.unwrap())
}
pub fn built(engine: EtcdEngine) -> Client {
    Client::builder(Arc::new(engine)).build().unwrap()
}
/// How many calls of this method the server has got.
pub fn calls(etcd: &Etcd, method: &str) -> f64 {
    etcd.metric(0, &format!("grpc_server_msg_received_total{{grpc_method=\"{method}\""))
}
/// Two clients whose calls can be counted: each has a lease, and signs of life come minutes later.
pub async fn counted(etcd: &Etcd) -> [Client; 2] {
    let clients = [client(etcd, 600 * SEC).await, client(etcd, 600 * SEC).await];
    for client in &clients {
        client.mutex("first").lock().await.unwrap().release().await.unwrap();
    }
    quiet(|| calls(etcd, "Txn"), SEC / 2, 0.5).await;
    clients
}
/// Until fewer than so many are said within that time.
pub async fn quiet(words: impl Fn() -> f64, within: Duration, most: f64) {
    eventually("it is quiet", || async {
        let before = words();
        tokio::time::sleep(within).await;
        words() - before < most
    })
    .await;
}
/// So many keys are watched. What happens before a waiter's watches are there costs it one look more.
pub async fn watched(etcd: &Etcd, keys: f64) {
    eventually("its watches", || async { etcd.metric(0, "etcd_debugging_mvcc_watcher_total") > keys - 0.5 }).await;
}
pub fn in_front_of(etcd: &Etcd) -> Proxy {
    Proxy::start(([127, 0, 0, 1], etcd.client_port(0)).into(), bytes)
}
/// From now on they ask for a password. What `app` may do there is what the page says, to the letter.
pub fn ask_for_passwords(etcd: &Etcd) {
    etcd.run(&["user", "add", "root:s3cret"]);
    etcd.run(&["user", "grant-role", "root", "root"]);
    etcd.run(&["user", "add", "app:pass"]);
    let lines: Vec<&str> =
        include_str!("../../src/docs.md").lines().filter_map(|line| line.strip_prefix("etcdctl ")).collect();
    assert_eq!(lines.len(), 3, "a role, its right, and whose it is: {lines:?}");
    for line in lines {
        etcd.run(&line.split(' ').collect::<Vec<_>>());
    }
    etcd.run(&["auth", "enable"]);
}
