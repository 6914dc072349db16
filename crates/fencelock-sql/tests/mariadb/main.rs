//! On a real MariaDB.
#![cfg(feature = "mysql_async-0_37")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails where it unwraps")]
#[path = "../common/bad_rows.rs"]
mod bad_rows;
#[path = "../common/broken.rs"]
mod broken;
mod connection;
mod fence;
mod lock;
#[path = "../common/storm.rs"]
mod storm;
mod update;

use bad_rows::bad_rows;
use fencelock_sql::Tx;
use fencelock_testkit::MariaDb;
use mysql_async::{
    Conn, IsolationLevel, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, Transaction, TxOpts, prelude::Queryable,
};
use std::time::{Duration, Instant};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const LONG: Duration = Duration::from_secs(10);
pub(crate) const LEVELS: [IsolationLevel; 2] = [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead];

pub(crate) async fn connect(server: &MariaDb) -> Conn {
    Conn::new(Opts::from_url(&server.url()).unwrap()).await.unwrap()
}
/// Rows that match count as affected, too: as other drivers do.
pub(crate) async fn found_rows(server: &MariaDb) -> Conn {
    let opts = OptsBuilder::from_opts(Opts::from_url(&server.url()).unwrap()).client_found_rows(true);
    Conn::new(opts).await.unwrap()
}
pub(crate) async fn begin(db: &mut Conn) -> Tx<Transaction<'_>> {
    Tx::new(db.start_transaction(TxOpts::default()).await.unwrap())
}
pub(crate) async fn at(db: &mut Conn, level: IsolationLevel) -> Tx<Transaction<'_>> {
    let mut options = TxOpts::default();
    options.with_isolation_level(level);
    Tx::new(db.start_transaction(options).await.unwrap())
}
/// Accounts 1 to 9 that have 100 each.
pub(crate) fn accounts(settings: &[&str]) -> MariaDb {
    let server = MariaDb::with(settings);
    server.ask(
        "CREATE TABLE account (id int PRIMARY KEY, owner varchar(99), balance bigint NOT NULL, version bigint NOT NULL DEFAULT 1) ENGINE=InnoDB; \
         INSERT INTO account SELECT seq, concat('owner ', seq), 100, 1 FROM seq_1_to_9",
    );
    server
}
/// Until somebody waits for a row.
pub(crate) async fn blocked(server: &MariaDb) {
    let count = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    let started = Instant::now();
    while server.ask(count) == "0" {
        assert!(started.elapsed() < LONG, "nobody waits");
        // The server makes that table anew only when nobody has read it for 100 ms.
        tokio::time::sleep(150 * MS).await;
    }
}
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.unwrap()
}
