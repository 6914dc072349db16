//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock_conformance::proxy::{Proxy, bytes};
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
pub fn in_front_of(etcd: &Etcd) -> Proxy {
    Proxy::start(([127, 0, 0, 1], etcd.client_port(0)).into(), bytes)
}
