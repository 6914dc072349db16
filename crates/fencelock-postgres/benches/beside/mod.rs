//! The engine, its server, and the bare driver.
use fencelock_core::Engine;
use fencelock_postgres::{
    Config,
    raw::{Raw, RawHold},
};
use fencelock_testkit::{
    Postgres,
    bench::{Bench, Rival},
};
use std::sync::Arc;
use tokio_postgres::{Client, NoTls};

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
    /// Of the strategy that the URL names.
    async fn engine(url: &str) -> Arc<dyn Engine> {
        fencelock_postgres::connect(Config::from_url(url).unwrap()).await.unwrap()
    }
}
/// Of leases, our calls; of sessions, the server's own lock.
#[derive(Clone)]
pub(crate) enum Bare {
    Calls(Raw),
    Advisory(Arc<Client>),
}
pub(crate) enum BareHold {
    Calls(RawHold),
    Advisory,
}
impl Rival for Bare {
    type Hold = BareHold;
    async fn connect(url: &str) -> Self {
        let Some((plain, _)) = url.split_once("?strategy=session") else {
            return Self::Calls(Raw::connect(url).await.unwrap());
        };
        let (client, connection) = tokio_postgres::connect(plain, NoTls).await.unwrap();
        tokio::spawn(connection);
        Self::Advisory(Arc::new(client))
    }
    async fn pair(&self, name: &str, hold: u128) {
        match self {
            Self::Calls(raw) => raw.pair(name, hold).await.unwrap(),
            Self::Advisory(_) => {
                let held = self.lock(name, hold).await;
                self.release(held).await;
            }
        }
    }
    /// Release, word of it, one call; or the server's own queue.
    async fn lock(&self, name: &str, hold: u128) -> BareHold {
        match self {
            Self::Calls(raw) => BareHold::Calls(raw.lock(name, hold).await.unwrap()),
            Self::Advisory(client) => {
                client.simple_query("SELECT pg_advisory_lock(7)").await.unwrap();
                BareHold::Advisory
            }
        }
    }
    async fn release(&self, hold: BareHold) {
        match (self, hold) {
            (Self::Calls(raw), BareHold::Calls(hold)) => raw.release(hold).await.unwrap(),
            (Self::Advisory(client), BareHold::Advisory) => {
                drop(client.simple_query("SELECT pg_advisory_unlock(7)").await.unwrap());
            }
            _ => unreachable!("one that was taken otherwise"),
        }
    }
}
