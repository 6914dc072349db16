//! What the tests of this crate share.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, missing_docs, missing_debug_implementations, reason = "a test fails where it unwraps")]
#[path = "../../../fencelock-testkit/stories/common.rs"]
mod stories;
use fencelock_conformance::proxy::Proxy;
use fencelock_core::Client;
pub use fencelock_core::blocking::block_on;
use fencelock_postgres::Config;
pub use fencelock_testkit::Session;
use fencelock_testkit::{PgBouncer, Postgres};
pub use stories::*;

/// In front of the server, and the URL that leads through it.
pub fn proxied(server: &Postgres) -> (Proxy, String) {
    let proxy = Proxy::postgres(([127, 0, 0, 1], server.port()).into());
    let url = server.url().replace(&format!("127.0.0.1:{}", server.port()), &proxy.address().to_string());
    (proxy, url)
}
/// In front of a pooler of transactions in front of the server.
pub fn pooled(server: &Postgres) -> (PgBouncer, Proxy, String) {
    let pooler = PgBouncer::start(server, "transaction");
    let (proxy, url) = proxied_pooler(server, &pooler);
    (pooler, proxy, url)
}
/// In front of this pooler in front of the server.
pub fn proxied_pooler(server: &Postgres, pooler: &PgBouncer) -> (Proxy, String) {
    let proxy = Proxy::postgres(([127, 0, 0, 1], pooler.port()).into());
    let url = server.url_through(pooler).replace(&format!("127.0.0.1:{}", pooler.port()), &proxy.address().to_string());
    (proxy, url)
}
fn call(function: &str) -> String {
    format!(".fencelock_{function}(")
}
pub async fn client(url: &str) -> Client {
    client_with(Config::from_url(url).unwrap()).await
}
pub async fn client_with(config: Config) -> Client {
    patient_client(|| fencelock_postgres::connect(config.clone())).await
}
