//! The engine, its server, and the bare driver.
use fencelock_core::Engine;
use fencelock_testkit::{
    ZooKeeper,
    bench::{Bench, Rival},
};
use fencelock_zookeeper::{
    ZooKeeperEngine,
    raw::{Raw, RawHold},
};
use std::sync::Arc;

pub(crate) struct Side;
impl Bench for Side {
    const ENGINE: &'static str = "zookeeper";
    type Server = ZooKeeper;
    type Raw = Bare;
    fn start() -> ZooKeeper {
        ZooKeeper::start()
    }
    fn url(server: &ZooKeeper) -> String {
        server.url()
    }
    async fn engine(url: &str) -> Arc<dyn Engine> {
        Arc::new(ZooKeeperEngine::from_url(url).await.unwrap())
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
    /// Release, one word of a watch, one read.
    async fn lock(&self, name: &str, hold: u128) -> RawHold {
        self.0.lock(name, hold).await.unwrap()
    }
    async fn release(&self, hold: RawHold) {
        self.0.release(&hold).await.unwrap();
    }
}
