//! The engine, its server, and the bare driver.
use fencelock_core::Engine;
use fencelock_postgres::{
    PostgresEngine,
    raw::{Raw, RawHold},
};
use fencelock_testkit::{
    Postgres,
    bench::{Bench, Rival},
};
use std::sync::Arc;

pub(crate) struct Side;
impl Bench for Side {
    const ENGINE: &'static str = "PostgreSQL";
    type Server = Postgres;
    type Raw = Bare;
    fn start() -> Postgres {
        Postgres::start()
    }
    fn url(server: &Postgres) -> String {
        server.url()
    }
    async fn engine(url: &str) -> Arc<dyn Engine> {
        Arc::new(PostgresEngine::from_url(url).await.unwrap())
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
    /// Release, word of it, one call.
    async fn lock(&self, name: &str, hold: u128) -> RawHold {
        self.0.lock(name, hold).await.unwrap()
    }
    async fn release(&self, hold: RawHold) {
        self.0.release(hold).await.unwrap();
    }
}
