//! On a real PostgreSQL.
#![cfg(feature = "tokio-postgres-0_7")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails where it unwraps")]
mod advisory;
#[path = "../common/bad_rows.rs"]
mod bad_rows;
#[path = "../common/broken.rs"]
mod broken;
mod connection;
mod fence;
mod guard;
#[path = "../common/guarded.rs"]
mod guarded;
mod lock;
mod pooled;
#[path = "../common/storm.rs"]
mod storm;
mod update;

use bad_rows::bad_rows;
use fencelock_sql::Tx;
use fencelock_testkit::Postgres;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, Transaction};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const LONG: Duration = Duration::from_secs(10);

pub(crate) async fn connect(server: &Postgres) -> Client {
    connect_by(&server.url()).await
}
pub(crate) async fn connect_by(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
pub(crate) async fn begin(db: &mut Client) -> Tx<Transaction<'_>> {
    Tx::new(db.transaction().await.unwrap())
}
/// A server with accounts 1 to 9 that have 100 each.
pub(crate) fn accounts() -> Postgres {
    let server = Postgres::start();
    server.ask(
        "CREATE TABLE account (id integer PRIMARY KEY, owner text, balance bigint NOT NULL, version bigint NOT NULL DEFAULT 1); \
         CREATE TABLE entry (account integer REFERENCES account, amount bigint); \
         INSERT INTO account SELECT i, 'owner ' || i, 100 FROM generate_series(1, 9) i",
    );
    server
}
/// Until the server has somebody who waits for a lock.
pub(crate) async fn blocked(server: &Postgres, many: usize) {
    let count = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    eventually("somebody waits", || server.ask(count) == many.to_string()).await;
}
pub(crate) async fn eventually(what: &str, mut yes: impl FnMut() -> bool) {
    let started = Instant::now();
    while !yes() {
        assert!(started.elapsed() < LONG, "{what}: not within {LONG:?}");
        tokio::time::sleep(MS).await;
    }
}
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.unwrap()
}
