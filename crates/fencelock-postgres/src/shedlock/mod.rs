//! Locks that are shared with ShedLock: a row of its table, by the server's clock (`docs/design/0013-shedlock.md`).
mod rows;
mod table;

use crate::{
    config::{Config, Strategy},
    engine::PostgresEngine,
};
use async_trait::async_trait;
use fencelock_core::{
    Engine, EngineInfo, Grant, Listing, Name, Outcome, Page, Released, Renewed, Reports, Request, Result, Status,
    Token, on_tokio,
};
use fencelock_database::ShedLock;
use rows::Rows;

/// Locks in PostgreSQL, in the table of ShedLock.
#[derive(Debug)]
pub struct PostgresShedLockEngine(ShedLock<Rows>);

impl PostgresShedLockEngine {
    /// Connects, and makes the tables where they are missing: also that of ShedLock.
    ///
    /// # Errors
    /// As [`PostgresEngine::connect`], and `InvalidConfig` for a table whose columns cannot bear it.
    ///
    /// # Cancel safety
    /// If dropped nothing is left but, perhaps, the tables.
    ///
    /// ```no_run
    /// # async fn example() -> fencelock_core::Result<()> {
    /// use fencelock_postgres::PostgresShedLockEngine;
    /// let engine = PostgresShedLockEngine::from_url("postgres://app@db/shop?strategy=shedlock").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(mut config: Config) -> Result<Self> {
        config.strategy = Strategy::ShedLock;
        let (lease, longest) = on_tokio(async move {
            let lease = PostgresEngine::open(config).await?;
            let link = &lease.shared().link;
            let longest = link.columns().await.map_err(|fault| link.tell("connect", &fault))?;
            Ok((lease, longest))
        })
        .await?;
        Ok(Self(ShedLock::new(Rows(lease), longest)))
    }
    /// As [`connect`](Self::connect), by a `postgres:` URL.
    ///
    /// # Errors
    /// As there, and `InvalidConfig` for the URL.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn from_url(url: &str) -> Result<Self> {
        Self::connect(Config::from_url(url)?).await
    }
}

#[async_trait]
impl Engine for PostgresShedLockEngine {
    fn info(&self) -> &EngineInfo {
        self.0.info()
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        self.0.acquire(request).await
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        self.0.withdraw(request).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        self.0.renew(grants).await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        self.0.release(grant).await
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        self.0.run(reports).await
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        self.0.inspect(name).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.0.list(prefix, page).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        self.0.force_release(name, token).await
    }
    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}
