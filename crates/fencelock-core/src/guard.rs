//! What a holder has in hand.
use crate::{
    client::Core,
    clock::Moment,
    error::{Error, ErrorKind, Result},
    hold::{Hold, Life},
    keeper::Job,
    types::{HoldId, LossReason, Name, Released, Token},
};
use std::{fmt, future::Future, ops::Deref, sync::Arc, time::Duration};

/// A hold, whatever was claimed. Dropping it releases, without blocking and without a runtime.
///
/// What it promises: while [`check`](Self::check) says yes, nobody else can have been granted the lock; when the hold is lost,
/// [`lost`](Self::lost) resolves before anybody else can get it. What no lock can promise: that the process is not paused
/// between the check and a write. For that a write carries the [`Guard::token`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::{sync::Arc, time::Duration};
/// # use fencelock_core::{Client, memory::MemoryEngine};
/// # let client = Client::builder(Arc::new(MemoryEngine::new())).build()?;
/// let guard = client.mutex("orders/42").ttl(Duration::from_secs(10)).lock().await?;
/// let answer = guard.run(async { 6 * 7 }).await?;      // stopped where it stands if the lock is lost
/// tokio::select! {
///     reason = guard.lost() => eprintln!("stop: {reason}"),
///     () = guard.expires_within(Duration::from_secs(3)) => eprintln!("renewals fail: time to wind up"),
///     () = std::future::ready(()) => println!("{answer}, with {:?} in hand", guard.remaining()),
/// }
/// guard.check()?;                                       // right before what cannot be fenced
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused the lock is released at once"]
pub struct Held {
    core: Arc<Core>,
    hold: Arc<Hold>,
    armed: bool,
}

impl Held {
    pub(crate) fn new(core: Arc<Core>, hold: Arc<Hold>) -> Self {
        Self { core, hold, armed: true }
    }
    /// What is locked.
    pub fn name(&self) -> &Name {
        &self.hold.grant.name
    }
    /// The id of this hold.
    pub fn id(&self) -> HoldId {
        self.hold.grant.hold
    }
    /// How long it is good without a renewal.
    pub fn ttl(&self) -> Duration {
        self.hold.grant.ttl
    }
    /// The engine's own name of the record.
    pub fn place(&self) -> Option<&str> {
        self.hold.grant.place.as_deref()
    }
    /// How long it is certainly good, if no renewal is answered from now on. Zero when it is lost.
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }
    /// The end of that, on the client's clock.
    pub fn valid_until(&self) -> Moment {
        self.hold.valid_until()
    }
    /// Whether it is good at this moment.
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }
    /// `Err(Lost)` unless it is good at this moment: call it right before a side effect that cannot be fenced.
    ///
    /// # Errors
    /// `Lost`, with the reason.
    pub fn check(&self) -> Result<()> {
        if self.is_valid() { Ok(()) } else { Err(self.lost_error("check")) }
    }
    /// Resolves when the hold is lost: before anybody else can get the lock, or, when it was taken away, as soon as the engine
    /// says so. Never after a release.
    ///
    /// # Cancel safety
    /// Drop it and ask again as often as you like.
    pub fn lost(&self) -> impl Future<Output = LossReason> + Send + use<> {
        let hold = self.hold.clone();
        async move {
            let reason = hold.until(|life| match life {
                Life::Lost(reason) => Some(Some(reason)),
                Life::Released => Some(None),
                Life::Held | Life::Suspect => None,
            });
            match reason.await {
                Some(reason) => reason,
                None => std::future::pending().await,
            }
        }
    }
    /// Resolves when renewals have not been answered for longer than they should take, or the hold is lost: time to stop
    /// what cannot be stopped quickly. It may recover.
    ///
    /// # Cancel safety
    /// Drop it and ask again as often as you like.
    pub fn suspect(&self) -> impl Future<Output = ()> + Send + use<> {
        let hold = self.hold.clone();
        async move {
            let doubt = hold.until(|life| match life {
                Life::Suspect | Life::Lost(_) => Some(true),
                Life::Released => Some(false),
                Life::Held => None,
            });
            if !doubt.await {
                std::future::pending().await
            }
        }
    }
    /// Resolves when less than `d` is left, that is when renewals fail: time to stop cleanly *before* the loss. Needs tokio's
    /// time.
    ///
    /// # Cancel safety
    /// Drop it and ask again as often as you like.
    pub fn expires_within(&self, d: Duration) -> impl Future<Output = ()> + Send + use<> {
        let hold = self.hold.clone();
        async move {
            loop {
                let left = hold.remaining();
                if left <= d {
                    return;
                }
                tokio::select! {
                    biased;
                    () = hold.until(|life| life.is_over().then_some(())) => {}
                    () = tokio::time::sleep(left - d) => {}
                }
            }
        }
    }
    /// Resolves when the next renewal is answered: [`valid_until`](Self::valid_until) is later then.
    ///
    /// # Cancel safety
    /// Drop it and ask again as often as you like.
    pub fn renewed(&self) -> impl Future<Output = ()> + Send + use<> {
        let hold = self.hold.clone();
        async move { hold.renewed().await }
    }
    /// Runs `work` for as long as the hold is good, and drops it where it stands when the hold is lost.
    ///
    /// # Errors
    /// `Lost`, also when `work` ended after the loss.
    ///
    /// # Cancel safety
    /// Dropping it drops `work`; the hold is untouched.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            _ = self.lost() => Err(self.lost_error("run")),
            out = work => self.check().map(|()| out),
        }
    }
    /// Releases, and says whether it was still held.
    ///
    /// # Errors
    /// `NotHeld` or `Lost`: it was lost before. `Unreachable`, `Ambiguous`: nobody knows; the keeper goes on trying until the
    /// lease ends.
    ///
    /// # Cancel safety
    /// If dropped the keeper goes on with it.
    pub async fn release(mut self) -> Result<()> {
        if tokio::runtime::Handle::try_current().is_ok() {
            return self.give_back().await;
        }
        let core = self.core.clone();
        core.on_runtime(async move { self.give_back().await }).await
    }
    async fn give_back(&mut self) -> Result<()> {
        let keeper = self.core.keeper();
        keeper.rest(&self.hold);
        if let Life::Lost(_) = self.hold.life() {
            return Err(self.lost_error("release"));
        }
        let mut repeated = false;
        loop {
            // "Not held" in answer to a repeat that was sent while the hold was good: the first one did it, and its reply was
            // lost (SAFETY G4).
            let good = self.hold.is_valid();
            let answer = tokio::select! {
                biased;
                answer = self.core.engine().release(&self.hold.grant) => answer,
                () = self.hold.until(|life| life.is_over().then_some(())) => return Err(self.lost_error("release")),
            };
            match answer {
                Err(e) if e.is_temporary() && good => {
                    repeated = true;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(e) => return Err(e),
                Ok(Released::NotHeld { holder }) if !(repeated && good) => {
                    self.over(Life::Lost(LossReason::TakenOver));
                    let gone = Error::new(ErrorKind::NotHeld, "release", "the lock was lost before");
                    let gone = gone.with("name", self.name());
                    return Err(match holder {
                        Some(now) => gone.with("held now by", format!("{} pid {} {:?}", now.host, now.pid, now.note)),
                        None => gone,
                    });
                }
                Ok(_) => {
                    self.over(Life::Released);
                    return Ok(());
                }
            }
        }
    }
    fn over(&mut self, end: Life) {
        self.core.keeper().losses.forget(self.id());
        self.hold.finish(end);
        self.armed = false;
    }
    fn lost_error(&self, operation: &'static str) -> Error {
        let why = match self.hold.life() {
            Life::Lost(reason) => reason,
            // The clock says so, and the timer has not run yet.
            _ => LossReason::Expired,
        };
        Error::new(ErrorKind::Lost, operation, format!("the lock is lost: {why}"))
            .with("name", self.name())
            .hint("stop what it protected; writes that carry the token are refused where they are fenced")
    }
}
impl Drop for Held {
    fn drop(&mut self) {
        if self.armed && !self.core.host.is_forked() {
            let keeper = self.core.keeper();
            keeper.rest(&self.hold);
            keeper.losses.forget(self.id());
            self.hold.finish(Life::Released);
            self.core.host.job(Job::Release(self.hold.clone()));
        }
    }
}
impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({:?} {} {:?})", self.name().as_str(), self.id(), self.hold.life())
    }
}

/// An exclusive hold: it alone has a token that orders writes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::{sync::Arc, time::Duration};
/// # use fencelock_core::{Client, memory::MemoryEngine};
/// # let client = Client::builder(Arc::new(MemoryEngine::new())).build()?;
/// let first = client.mutex("orders/42").lock().await?;
/// let token = first.token();
/// drop(first);
/// assert!(client.mutex("orders/42").lock().await?.token() > token);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "if unused the lock is released at once"]
pub struct Guard(Held);
impl Guard {
    pub(crate) fn new(held: Held) -> Self {
        Self(held)
    }
    /// The fencing token: greater than that of every holder before.
    pub fn token(&self) -> Token {
        self.0.hold.grant.token
    }
    /// See [`Held::release`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// If dropped the keeper goes on with it.
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }
}
impl Deref for Guard {
    type Target = Held;
    fn deref(&self) -> &Held {
        &self.0
    }
}
