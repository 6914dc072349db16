//! The only wide door: what an engine does for core.
use crate::{
    error::{Error, ErrorKind, Result},
    keeper::Reports,
    types::{EngineInfo, Grant, Listing, Name, Outcome, Page, Released, Renewed, Request, Status, Token},
};
use async_trait::async_trait;
use std::{fmt, os::fd::OwnedFd};

/// Stores claims and wakes waiters. It never judges validity, never cleans up in `Drop`, never tries past what it can still
/// take back, and never talks to a user.
///
/// Every call about one attempt carries its hold id; repeating a call with the same id has one effect.
#[async_trait]
pub trait Engine: fmt::Debug + Send + Sync + 'static {
    /// What and where it is, and what it can do.
    fn info(&self) -> &EngineInfo;

    /// Claims, and waits with the engine's own means if the request says so. A repeat that finds its own live grant extends
    /// it to the full ttl and returns the same token. Errors leave the outcome open: core withdraws.
    async fn acquire(&self, request: &Request) -> Result<Outcome>;
    /// Afterwards neither a grant nor a queue place of `request.hold()` exists. Idempotent. Core alone calls it.
    async fn withdraw(&self, request: &Request) -> Result<()>;
    /// One answer per grant, same order, each extended by its own ttl. `Err`: nothing is known about any of them.
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>>;
    /// Ends the hold of this id and token, and no other.
    async fn release(&self, grant: &Grant) -> Result<Released>;
    /// The engine's own background: opens and keeps sessions, listens to pushes, follows failovers, and reports. The keeper
    /// polls it from before the first `acquire` until `close`; when it fails it is started again and every hold is rechecked.
    async fn run(&self, _reports: &Reports) -> Result<()> {
        std::future::pending().await
    }

    /// One lock.
    async fn inspect(&self, name: &Name) -> Result<Status>;
    /// Every live name at least once over all pages; the cursor is the engine's.
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing>;
    /// Breaks the hold with this token, and no other.
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released>;

    /// A descriptor that keeps the holds of this client from being taken over as a crashed process's for as long as any
    /// process has it open, where the engine lives by such a thing. For the processes of a job (SAFETY R1).
    ///
    /// # Errors
    /// `Unsupported` where crashes are noticed by leases alone.
    fn lifeline(&self) -> Result<OwnedFd> {
        Err(Error::new(ErrorKind::Unsupported, "lifeline", "this engine notices crashes by leases alone"))
    }
    /// Ends sessions and connections. Nothing is called afterwards.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
