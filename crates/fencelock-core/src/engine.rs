//! The only wide door: what an engine does for core.
use crate::{
    error::{Error, ErrorKind, Result},
    keeper::Reports,
    types::{
        Conflict, EngineInfo, Grant, HoldId, Listing, Missing, Name, Outcome, Page, Released, Renewed, Request, Status,
        Together, Token, Version, Versioned,
    },
};
use async_trait::async_trait;
use std::{fmt, os::fd::OwnedFd, sync::Arc, time::Duration};

/// Stores claims and wakes waiters. It never judges validity, never cleans up in `Drop`, never tries past what it can still
/// take back, and never talks to a user.
///
/// Every call about one attempt carries its hold id; repeating a call with the same id has one effect.
#[async_trait]
pub trait Engine: fmt::Debug + Send + Sync + 'static {
    /// What and where it is, and what it can do.
    fn info(&self) -> &EngineInfo;
    /// Why there is none of this here, as half a sentence for people: what refuses it says so. The capabilities alone decide whether it is
    /// refused.
    fn why_not(&self, _missing: Missing) -> Option<&'static str> {
        None
    }

    /// Claims, and waits with the engine's own means if the request says so. A repeat that finds its own live grant extends
    /// it to the full ttl and returns the same token. Errors leave the outcome open: core withdraws.
    ///
    /// First come, first served: what does not fit waits, and nobody who comes later passes it, so writers and large requests
    /// are not starved. A name that is another kind, alive, is [`Request::other_kind`]; a stored size of a semaphore that is not
    /// the request's is [`Request::other_capacity`]. The first request for permits of a name stores the size.
    async fn acquire(&self, request: &Request) -> Result<Outcome>;
    /// Claims all of these, of which none waits and no two have the same name, in one step of the store: all or none, with nobody
    /// who sees a part of them (SAFETY E1). Errors leave the outcome open: core withdraws each.
    ///
    /// This one cannot: then core takes one after the other.
    async fn acquire_all(&self, _requests: &[Request]) -> Result<Together> {
        Ok(Together::Apart)
    }
    /// Afterwards neither a grant nor a queue place of `request.hold()` exists. Idempotent. Core alone calls it.
    async fn withdraw(&self, request: &Request) -> Result<()>;
    /// One answer per grant, same order. Each ends no sooner than its own `ttl` from now; none ends sooner than before.
    /// `Err`: nothing is known about any of them.
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>>;
    /// Ends the hold of this id and token, and no other.
    async fn release(&self, grant: &Grant) -> Result<Released>;
    /// Puts the claim of `next` in the place of `grant`, with nobody in between; a repeat has one effect.
    ///
    /// The same hold id: a downgrade. The claim becomes `next.claim()`, the token stays. Another hold id: the hold passes to
    /// `next`, with a fresh token, and `grant` is no more (SAFETY A5): its claim stays what it is, another one is `Busy`. This may
    /// create a record, so it has a window (SAFETY A2).
    /// `Busy`: `grant` is not there.
    ///
    /// # Errors
    /// `Unsupported` unless the capabilities say `downgrade` or `tickets`.
    async fn exchange(&self, _grant: &Grant, _next: &Request) -> Result<Outcome> {
        Err(Error::new(ErrorKind::Unsupported, "exchange", "this engine cannot pass a hold on"))
    }
    /// The engine's own background: opens and keeps sessions, listens to pushes, follows failovers, and reports. The keeper
    /// polls it from before the first `acquire` until `close`; when it fails it is started again and every hold is rechecked.
    async fn run(&self, _reports: &Reports) -> Result<()> {
        std::future::pending().await
    }

    /// One lock. It makes no record.
    async fn inspect(&self, name: &Name) -> Result<Status>;
    /// Every name that is held or waited for, at least once over all pages; the cursor is the engine's.
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing>;
    /// Resolves when the token of the one who holds exclusively ([`Status::exclusive`]) is not `seen`; at once if that is so
    /// already. It has no clean-up in `Drop`: what it watched with is ended within a second by `run` (SAFETY E9).
    ///
    /// This one looks five times a second: an engine that can push does.
    async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status> {
        loop {
            let status = self.inspect(name).await?;
            if status.exclusive().map(|holder| holder.token) != seen {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    /// Breaks the hold with this token, and no other.
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released>;
    /// Changes the stored size of a semaphore from `from` to `to` (SAFETY K4). One that is `to` already is success; none is
    /// stored as `to`. Nothing is taken away: when more is held than there is, nobody gets in until enough is given back.
    /// Waiters that want more than there is then are sent away: [`Outcome::Displaced`].
    ///
    /// # Errors
    /// `CapacityMismatch` when it is neither; `KindMismatch`; `Unsupported` unless the capabilities say `permits`.
    async fn resize(&self, _name: &Name, _from: u32, _to: u32) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "resize", "this engine has no semaphores"))
    }
    /// Values with a version, where the engine has them.
    fn cells(&self) -> Option<&dyn Cells> {
        None
    }

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

/// There is no such thing here, and why, where the engine says so.
pub(crate) fn lacks(engine: &dyn Engine, missing: Missing, operation: &'static str, what: &str) -> Error {
    let why = engine.why_not(missing).map(|why| format!(": {why}")).unwrap_or_default();
    Error::new(ErrorKind::Unsupported, operation, format!("{} has no {what}{why}", engine.info().scheme))
}

/// Values with a version: optimistic, nobody waits for anybody.
#[async_trait]
pub trait Cells: Send + Sync {
    /// The value; [`Version::NONE`] when it was never written. It makes no record.
    async fn load(&self, name: &Name) -> Result<Versioned>;
    /// Writes `value` (or removes it) if the version is `expected`. The new version is greater than every one before, also over
    /// removal and clean-up.
    ///
    /// *Invariant (SAFETY A6):* a repeat under the same `nonce` within a minute answers what the first one did, whatever was
    /// written since.
    async fn compare_exchange(
        &self,
        name: &Name,
        expected: Version,
        value: Option<Arc<[u8]>>,
        nonce: HoldId,
    ) -> Result<Result<Version, Conflict>>;
}
