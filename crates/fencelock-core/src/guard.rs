//! What a holder has in hand.
use crate::{
    adjust::{downgrade, extend, lost_error, renew_once},
    blocking::runtime,
    client::Core,
    clock::Moment,
    engine::lacks,
    error::{Error, ErrorKind, Result},
    hold::{Hold, Leave, Life, Way},
    keeper::Job,
    locks::Owner,
    observe,
    pauses::Pauses,
    shared_guard::SharedGuard,
    ticket::Ticket,
    types::{Claim, HoldId, LossReason, Missing, Name, Released, Token},
};
use std::{
    fmt,
    ops::Deref,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

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
    way: Way,
    duty: Duty,
    owner: Option<Owner>,
}
/// What a guard still has to do before it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// It is one of those who have the hold.
    Leave,
    /// It was the last of them.
    Release,
    /// It was the last one that wrote, and others read.
    Downgrade,
    Nothing,
}

impl Held {
    pub(crate) fn new(core: Arc<Core>, hold: Arc<Hold>) -> Self {
        let way = Way::of(hold.grant.claim);
        Self { core, hold, way, duty: Duty::Leave, owner: None }
    }
    /// One more guard on a hold that was entered again.
    pub(crate) fn again(core: Arc<Core>, hold: Arc<Hold>, claim: Claim, owner: Owner) -> Self {
        Self { core, hold, way: Way::of(claim), duty: Duty::Leave, owner: Some(owner) }
    }
    /// Its caller has it in hand.
    pub(crate) fn hand_out(self) -> Self {
        self.hold.taken.store(true, Ordering::Release);
        self
    }
    pub(crate) fn owned_by(&mut self, owner: Owner) -> &Arc<Hold> {
        self.owner = Some(owner);
        &self.hold
    }
    /// What is locked.
    pub fn name(&self) -> &Name {
        &self.hold.grant.name
    }
    /// The id of this hold.
    pub fn id(&self) -> HoldId {
        self.hold.grant.hold
    }
    /// What is claimed.
    pub fn claim(&self) -> Claim {
        if self.way == Way::Shared && self.hold.claim() == Claim::Write { Claim::Read } else { self.hold.claim() }
    }
    pub(crate) fn token_of_grant(&self) -> Token {
        self.hold.grant.token
    }
    /// How many guards are on this hold: more than one when its [`Owner`] has entered it again.
    pub fn entries(&self) -> u32 {
        self.hold.entries()
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
    /// Whether it is good at this moment. Never in a child after fork: the hold is its parent's.
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid() && !self.core.host.is_forked()
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
    /// Resolves when less than `d` is left, because renewals fail or it is not renewed any more: time to stop cleanly *before* the loss. Never
    /// after a release.
    ///
    /// # Cancel safety
    /// Drop it and ask again as often as you like.
    pub fn expires_within(&self, d: Duration) -> impl Future<Output = ()> + Send + use<> {
        // Weak: a future that somebody keeps does not keep the client.
        let (hold, core) = (self.hold.clone(), Arc::downgrade(&self.core));
        async move {
            loop {
                let left = hold.remaining();
                if hold.life() == Life::Released {
                    return std::future::pending().await;
                }
                if left <= d {
                    return;
                }
                // Again and again: timers stand still while the host sleeps, the lease does not.
                let nap = (left - d).min(Duration::from_secs(1));
                let nap = core.upgrade().map(|core| core.pause(nap));
                tokio::select! {
                    biased;
                    () = hold.until(|life| life.is_over().then_some(())) => {}
                    // Nobody renews it any more.
                    Some(woken) = async { Some(nap?.await) } => if !woken { return },
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
    /// `NotHeld` or `Lost`: it was lost before. `Unreachable`, `Ambiguous`: nobody knows; the keeper goes on trying until the lease ends.
    ///
    /// # Cancel safety
    /// If dropped the keeper goes on with it.
    pub async fn release(mut self) -> Result<()> {
        if runtime().is_some() {
            return self.give_back().await;
        }
        let core = self.core.clone();
        core.on_runtime(async move { self.give_back().await }).await
    }
    /// A lease that is not renewed ([`lease`](crate::Mutex::lease)) lasts for at least `d` from now on. It never gets shorter.
    ///
    /// # Errors
    /// `Lost`: it was over, or it could not be extended before its end. `InvalidConfig`: the hold is renewed by itself, or the
    /// engine has no leases of this length.
    ///
    /// # Cancel safety
    /// If dropped it may or may not have been extended.
    pub async fn extend(&self, d: Duration) -> Result<()> {
        self.core.ready("extend")?;
        let (core, hold) = (self.core.clone(), self.hold.clone());
        self.core.on_runtime(async move { extend(&core, &hold, d).await }).await
    }
    /// Lets go of the hold without releasing it: whoever has the ticket, in this process or another, adopts it with
    /// [`Client::adopt`](crate::Client::adopt) within its ttl, which begins anew now. Nobody else gets the lock meanwhile.
    ///
    /// # Errors
    /// `Unsupported`: on this engine a hold lives with its process; `InvalidConfig`: it was entered again; `Lost`. The hold is
    /// released then.
    ///
    /// # Cancel safety
    /// If dropped the hold is released.
    pub async fn into_ticket(mut self) -> Result<Ticket> {
        let core = self.core.clone();
        let detached = async move {
            self.detach().await?;
            Ok(self)
        };
        // Made on the caller's own task: whoever has gone has dropped the guard, and that releases it.
        core.on_runtime(detached).await?.make_ticket()
    }
    /// A child after fork has the memory of a guard, and no hold.
    fn not_forked(&mut self, operation: &'static str) -> Result<()> {
        if !self.core.host.is_forked() {
            return Ok(());
        }
        self.duty = Duty::Nothing;
        Err(Error::closed(operation).hint("this process was forked from the holder's: the hold is the parent's"))
    }
    /// Nobody else has it in hand then, or enters it, and all of its ttl is left.
    async fn detach(&mut self) -> Result<()> {
        self.not_forked("ticket")?;
        let info = self.core.engine().info();
        if !info.capabilities.tickets {
            let why = self.core.engine().why_not(Missing::Tickets).unwrap_or("a hold lives with its process");
            let bound = Error::new(ErrorKind::Unsupported, "ticket", format!("{} has no tickets: {why}", info.scheme));
            return Err(bound.hint("hand the work over and lock anew"));
        }
        let refuse = |why: &str, way_out: &str| {
            let refused = Error::new(ErrorKind::InvalidConfig, "ticket", why).with("name", self.name());
            Err(refused.hint(way_out.to_owned()))
        };
        if self.hold.is_limited() {
            return refuse(
                "a ticket carries no lease, max_hold or at_least",
                "lock it without these, or lock anew there",
            );
        }
        // From here on nobody enters it: who did would hold what somebody else adopts. *Invariant:* whoever is refused has
        // changed nothing, for another guard may write.
        if self.duty != Duty::Leave || !self.hold.close(self.way) {
            return refuse("its owner has entered it more than once", "release the other guards first");
        }
        self.duty = Duty::Release;
        if let Some(owner) = self.owner.take() {
            owner.tidy(self.name());
        }
        if self.way == Way::Shared && self.hold.claim() == Claim::Write {
            downgrade(self.core.keeper(), &self.hold).await?;
        }
        // After this one nobody need renew it: the ticket is good for all of its ttl.
        renew_once(&self.core, &self.hold, self.ttl(), "ticket").await
    }
    fn make_ticket(mut self) -> Result<Ticket> {
        let keeper = self.core.keeper();
        keeper.rest(&self.hold);
        if !self.hold.finish(Life::Released) {
            return Err(self.lost_error("ticket"));
        }
        keeper.losses.forget(self.id());
        self.duty = Duty::Nothing;
        observe::ended(keeper, &self.hold);
        Ok(Ticket::new(self.core.engine().info().id, &self.hold.grant_now()))
    }
    async fn give_back(&mut self) -> Result<()> {
        self.not_forked("release")?;
        if self.duty == Duty::Leave {
            self.leave();
        }
        match self.duty {
            // Boxed: every release would carry the room for it.
            Duty::Downgrade => Box::pin(self.pass_down()).await,
            Duty::Release if self.stays_taken() => {
                // It stays taken until then, and nobody has to wait for that.
                self.let_go();
                Ok(())
            }
            Duty::Release => {
                let span = observe::releasing(self.core.keeper(), &self.hold);
                if span.is_none() { self.give_up().await } else { observe::Within::new(span, self.give_up()).await }
            }
            Duty::Leave | Duty::Nothing => match self.hold.life() {
                Life::Lost(_) => Err(self.lost_error("release")),
                _ => Ok(()),
            },
        }
    }
    fn stays_taken(&self) -> bool {
        // Asked for by few: the others do not look at the clock.
        let not_before = self.hold.not_before();
        not_before > Moment::ZERO && self.core.keeper().clock.now() < not_before && self.hold.is_valid()
    }
    fn leave(&mut self) {
        self.duty = match self.hold.leave(self.way) {
            Leave::Last => Duty::Release,
            Leave::Others => Duty::Nothing,
            Leave::Readers => Duty::Downgrade,
        };
        if let Some(owner) = self.owner.take().filter(|_| self.duty == Duty::Release) {
            owner.tidy(self.name());
        }
    }
    /// The writer's hold becomes a reader's: those who wait to read get in, with no writer in between.
    async fn pass_down(&mut self) -> Result<()> {
        let info = self.core.engine().info();
        if !info.capabilities.downgrade {
            self.duty = Duty::Nothing; // it stays a writer's until the readers are gone: nobody gets in who should not
            return Ok(());
        }
        let done = downgrade(self.core.keeper(), &self.hold).await;
        // Those who read may have gone meanwhile: then it is given back.
        let given_back = self.hold.entries() == 0 && !matches!(self.hold.life(), Life::Lost(_));
        if !given_back {
            done?;
        }
        self.duty = Duty::Nothing;
        Ok(())
    }
    async fn give_up(&mut self) -> Result<()> {
        self.core.keeper().rest(&self.hold);
        if let Life::Lost(_) = self.hold.life() {
            return Err(self.lost_error("release"));
        }
        let (mut refused, mut pauses) = (None, Pauses::short());
        loop {
            let grant = self.hold.grant_now();
            let release = observe::timed(self.core.keeper(), "release", self.core.engine().release(&grant));
            let answer = tokio::select! {
                biased;
                answer = release => answer,
                () = self.hold.until(|life| life.is_over().then_some(())) => break,
            };
            match answer {
                Err(e) if e.is_temporary() && self.hold.is_valid() => {
                    refused = Some(e);
                    tokio::time::sleep(pauses.next()).await;
                }
                Err(e) => {
                    observe::released(self.core.keeper(), &self.hold, Err(Some(&e)));
                    return Err(e);
                }
                // In answer to a repeat, and while the hold is good: the first one did it, and its reply was lost (SAFETY G4).
                Ok(Released::NotHeld { holder }) if refused.is_none() || !self.hold.is_valid() => {
                    self.over(Life::Lost(LossReason::TakenOver));
                    observe::released(self.core.keeper(), &self.hold, Ok(&Released::NotHeld { holder: None }));
                    let e =
                        Error::new(ErrorKind::NotHeld, "release", "the lock was lost before").with("name", self.name());
                    return Err(match holder {
                        Some(now) => e.with("held now by", format!("{} pid {} {:?}", now.host, now.pid, now.note)),
                        None => e,
                    });
                }
                Ok(_) => {
                    self.over(Life::Released);
                    observe::released(self.core.keeper(), &self.hold, Ok(&Released::Released));
                    return Ok(());
                }
            }
        }
        Err(self.lost_error("release").after(refused))
    }
    fn over(&mut self, end: Life) {
        self.core.keeper().losses.forget(self.id());
        self.hold.finish(end);
        self.duty = Duty::Nothing;
        observe::ended(self.core.keeper(), &self.hold);
    }
    /// The keeper does the rest.
    fn let_go(&mut self) {
        let keeper = self.core.keeper();
        keeper.rest(&self.hold);
        keeper.losses.forget(self.id());
        self.hold.finish(Life::Released);
        let span = observe::releasing(keeper, &self.hold);
        self.core.host.job(Job::Release(self.hold.clone(), span));
        self.duty = Duty::Nothing;
        observe::ended(keeper, &self.hold);
    }
    fn lost_error(&self, operation: &'static str) -> Error {
        lost_error(&self.hold, operation)
    }
}
impl Drop for Held {
    fn drop(&mut self) {
        if self.duty == Duty::Nothing || self.core.host.is_forked() {
            return;
        }
        if self.duty == Duty::Leave {
            self.leave();
        }
        match self.duty {
            Duty::Release => self.let_go(),
            Duty::Downgrade if self.core.engine().info().capabilities.downgrade => {
                self.core.host.job(Job::Downgrade(self.hold.clone()));
            }
            Duty::Leave | Duty::Downgrade | Duty::Nothing => {}
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
        Self(held.hand_out())
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
    /// A writer goes on as a reader: those who wait to read get in, and no writer in between. The token stays.
    ///
    /// # Errors
    /// `Unsupported`: a mutex has no readers, or the engine cannot do it. `Lost`, `Unreachable`. The lock is released then.
    ///
    /// # Cancel safety
    /// If dropped the lock is released.
    pub async fn downgrade(self) -> Result<SharedGuard> {
        let Self(mut held) = self;
        held.not_forked("downgrade")?;
        let engine = &**held.core.engine();
        if held.hold.grant.claim != Claim::Write {
            let mutex = Error::new(ErrorKind::Unsupported, "downgrade", "a mutex has no readers");
            return Err(mutex.with("name", held.name()).hint("use client.rw_lock(name).write()"));
        }
        if !engine.info().capabilities.downgrade {
            let unable = lacks(engine, Missing::Downgrade, "downgrade", "way from a writer to a reader");
            return Err(unable.with("name", held.name()).hint("release it and read anew"));
        }
        held.way = Way::Shared;
        if held.hold.share() {
            let (core, hold) = (held.core.clone(), held.hold.clone());
            held.core.on_runtime(async move { downgrade(core.keeper(), &hold).await }).await?;
        }
        Ok(SharedGuard::new(held))
    }
    /// See [`Held::into_ticket`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// If dropped the hold is released.
    pub async fn into_ticket(self) -> Result<Ticket> {
        self.0.into_ticket().await
    }
}
impl Deref for Guard {
    type Target = Held;
    fn deref(&self) -> &Held {
        &self.0
    }
}
