//! The engine, its server, and the bare driver.
use fencelock_core::Engine;
use fencelock_mysql::{
    Config,
    raw::{Raw, RawHold},
};
use fencelock_testkit::{
    MariaDb,
    bench::{Bench, Rival},
};
use std::sync::Arc;

/// Its server writes each commit to the disk, or none.
pub(crate) struct Side<const FLUSHED: bool = false>;
impl<const FLUSHED: bool> Bench for Side<FLUSHED> {
    const ENGINE: &'static str = "MariaDB";
    const CONNECTIONS: &'static str = "a connection for each";
    type Server = MariaDb;
    type Raw = Bare;
    fn start() -> MariaDb {
        MariaDb::with(if FLUSHED { &["--innodb-flush-log-at-trx-commit=1"] } else { &[] })
    }
    fn url(server: &MariaDb) -> String {
        server.url()
    }
    /// Of the strategy that the URL names.
    async fn engine(url: &str) -> Arc<dyn Engine> {
        fencelock_mysql::connect(Config::from_url(url).unwrap()).await.unwrap()
    }
}
#[derive(Clone)]
pub(crate) struct Bare(Raw);
impl Rival for Bare {
    type Hold = RawHold;
    async fn connect(url: &str) -> Self {
        Self(Raw::connect(url).await.unwrap())
    }
    async fn pair(&self, name: &str, hold: u128) {
        self.0.pair(name, hold).await.unwrap();
    }
    /// `GET_LOCK` between two connections.
    async fn lock(&self, name: &str, _: u128) -> RawHold {
        self.0.lock(name).await.unwrap()
    }
    async fn release(&self, hold: RawHold) {
        self.0.release(hold).await.unwrap();
    }
}
