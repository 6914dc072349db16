//! Several locks, or none.
use super::{Mutex, Options};
use crate::{
    attempt::Try,
    client::Core,
    clock::Moment,
    error::{Error, ErrorKind, Result},
    guard::Held,
    observe,
    pauses::Pauses,
    together::{Got, together},
    types::{Busy, Claim, EngineId, Kind, LossReason, Name, Token},
};
use std::{collections::HashSet, fmt, future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

/// One lock of a [`MultiLock`]: a mutex, a side of a read-write lock, some permits of a semaphore.
#[derive(Clone, Debug)]
pub struct Member(Options, Claim);
impl Member {
    pub(super) fn new(options: Options, claim: Claim) -> Self {
        Self(options, claim)
    }
    /// *Invariant (SAFETY K3):* an order that all processes share, whatever URL each of them reached the store by.
    fn place(&self) -> Result<(Name, Kind, EngineId, Arc<str>)> {
        let info = self.0.core.engine().info();
        Ok((self.0.name()?, self.1.kind(), info.id, info.namespace.clone()))
    }
}
impl From<Mutex> for Member {
    fn from(mutex: Mutex) -> Self {
        Self(mutex.0, Claim::Mutex)
    }
}
impl From<&Mutex> for Member {
    fn from(mutex: &Mutex) -> Self {
        mutex.clone().into()
    }
}

/// All of several locks, or none of them: of one client or of several, also on different engines.
///
/// Where the engine can (etcd), locks of one client are taken in one step of the store, so nobody holds one while another is
/// taken; after [three attempts](Self::lock) that found somebody in the way, and everywhere else, they are taken one after the
/// other in an order that everybody shares (SAFETY K3), so that no two such locks wait for each other.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::sync::Arc;
/// # use fencelock_core::{Client, MultiLock, memory::MemoryEngine};
/// # let client = Client::builder(Arc::new(MemoryEngine::new())).build()?;
/// # let other = Client::builder(Arc::new(MemoryEngine::new())).build()?;
/// let both = MultiLock::new([client.mutex("account/1"), other.mutex("account/2")]);
/// let guard = both.lock().await?;
/// guard.check()?;                                      // all of them are good
/// assert_eq!(guard.tokens().len(), 2);                 // each write is fenced by its own lock's token
/// assert!(client.mutex("account/1").try_lock().await?.is_err());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock(Vec<Member>);
impl MultiLock {
    /// Of these. Their order does not matter.
    pub fn new<M: Into<Member>>(members: impl IntoIterator<Item = M>) -> Self {
        Self(members.into_iter().map(Into::into).collect())
    }
    /// Waits until it has all of them. All at once is tried three times, within 15 ms; then it queues for one after the other, and
    /// while it waits for one it holds those before it.
    ///
    /// # Errors
    /// `InvalidConfig`: no members, or one twice. Else as each member's own.
    ///
    /// # Cancel safety
    /// Dropping it gives back what it has and withdraws from what it waits for.
    pub async fn lock(&self) -> Result<MultiGuard> {
        Ok(self.all(Patience::Endless).await??)
    }
    /// Takes all of them if they are free; else gives back what it got, and says who is in the way.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Try<MultiGuard>> {
        self.all(Patience::None).await
    }
    /// Waits for at most `patience`, for all of them together; then gives back what it got, and says who is in the way.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock_for(&self, patience: Duration) -> Result<Try<MultiGuard>> {
        let now = self.0.first().map(|member| member.0.core.keeper().clock.now());
        self.all(Patience::Until(now.unwrap_or(Moment::ZERO) + patience)).await
    }
    async fn all(&self, patience: Patience) -> Result<Try<MultiGuard>> {
        let members = self.sorted()?;
        if let Some(answer) = at_once(&members, patience).await? {
            return Ok(answer);
        }
        loop {
            let mut held = Vec::with_capacity(members.len());
            let mut busy = None;
            for member in &members {
                match patience.attempt(member).await {
                    Ok(Ok(one)) => held.push(one),
                    Ok(Err(in_the_way)) => busy = Some(in_the_way),
                    Err(e) => {
                        // What this one says comes first.
                        roll_back(held, member).await;
                        return Err(e);
                    }
                }
                if busy.is_some() {
                    break;
                }
            }
            if let Some(busy) = busy {
                roll_back(held, members[0]).await;
                return Ok(Err(busy));
            }
            // One may have been lost while it waited for the next.
            if held.iter().all(Held::is_valid) {
                let members = held.into_iter().map(Held::hand_out).collect();
                return Ok(Ok(MultiGuard { members }));
            }
            roll_back(held, members[0]).await;
            if patience.is_over(&members) {
                return Ok(Err(Busy::default()));
            }
        }
    }
    fn sorted(&self) -> Result<Vec<&Member>> {
        let refuse =
            |why: &str, way_out: &str| Error::new(ErrorKind::InvalidConfig, "lock", why).hint(way_out.to_owned());
        let mut placed = Vec::with_capacity(self.0.len());
        for member in &self.0 {
            placed.push((member.place()?, member));
        }
        placed.sort_by(|(a, _), (b, _)| a.cmp(b));
        if placed.is_empty() {
            return Err(refuse("there is nothing to lock", "give at least one member"));
        }
        let mut seen = HashSet::new();
        if let Some(((name, ..), _)) =
            placed.iter().find(|((name, _, engine, space), _)| !seen.insert((name, engine, space)))
        {
            let twice = refuse("a lock is there twice, and would wait for itself", "name each lock once");
            return Err(twice.with("name", name));
        }
        Ok(placed.into_iter().map(|(_, member)| member).collect())
    }
}
/// So often all at once is tried.
const TRIES: u32 = 3;

/// How long all members together may take.
#[derive(Clone, Copy)]
enum Patience {
    Endless,
    None,
    Until(Moment),
}
impl Patience {
    async fn attempt(self, Member(options, claim): &Member) -> Result<Try<Held>> {
        match self {
            Self::Endless => options.wait(*claim).await.map(Ok),
            Self::None => options.attempt(*claim, None).await,
            Self::Until(end) => {
                let left = options.core.keeper().clock.now().until(end);
                options.attempt(*claim, Some(left)).await
            }
        }
    }
    fn left(self, core: &Core) -> Duration {
        match self {
            Self::Endless | Self::None => Duration::MAX,
            Self::Until(end) => core.keeper().clock.now().until(end),
        }
    }
    fn is_over(self, members: &[&Member]) -> bool {
        let now = || members.first().map_or(Moment::FAR, |member| member.0.core.keeper().clock.now());
        match self {
            Self::Endless => false,
            Self::None => true,
            Self::Until(end) => now() >= end,
        }
    }
}
/// All in one step of their engine (SAFETY E1). `None`: they are to be taken one after the other, by the way that says what is
/// wrong with one of them, and that queues.
async fn at_once(members: &[&Member], patience: Patience) -> Result<Option<Try<MultiGuard>>> {
    let core = &members[0].0.core;
    let of_one = members.iter().all(|Member(options, _)| Arc::ptr_eq(&options.core, core) && options.owner.is_none());
    if members.len() == 1 || !of_one {
        return Ok(None);
    }
    let (mut pauses, began) = (Pauses::short(), core.keeper().clock.now());
    let seen = |outcome| observe::at_once(core, members.iter().map(|Member(_, claim)| *claim), began, outcome);
    for _ in 0..TRIES {
        let requests = members.iter().map(|Member(options, claim)| options.request(*claim, false));
        let (requests, here) = (requests.collect::<Result<Vec<_>>>()?, core.clone());
        let left = patience.left(core);
        match core.on_runtime(async move { together(&here, &requests, left).await }).await {
            Ok(Got::All(all)) => {
                seen("granted");
                let members = all.into_iter().map(Held::hand_out).collect();
                return Ok(Some(Ok(MultiGuard { members })));
            }
            Ok(Got::Apart) => return Ok(None),
            Ok(Got::Busy(busy)) if patience.is_over(members) => {
                seen("busy");
                return Ok(Some(Err(busy)));
            }
            Ok(Got::Busy(_)) => {}
            // The keeper takes them back. Who waits survives what is lost on the way.
            Err(e) if e.is_temporary() && !patience.is_over(members) => return Ok(None),
            Err(e) => {
                seen("error");
                return Err(e);
            }
        }
        core.pause(pauses.next()).await;
    }
    Ok(None)
}
/// Gives back what nobody had, for a moment; the keepers go on with the rest.
async fn roll_back(members: Vec<Held>, any: &Member) {
    tokio::select! {
        biased;
        _ = give_back(members) => {}
        _ = any.0.core.pause(Duration::from_secs(1)) => {}
    }
}
/// In the other order than they were taken in. One that fails does not keep the others; the first error is told.
async fn give_back(members: Vec<Held>) -> Result<()> {
    let mut first = Ok(());
    for member in members.into_iter().rev() {
        let answer = member.release().await;
        if first.is_ok() {
            first = answer;
        }
    }
    first
}

/// All members of a [`MultiLock`], held. One lost is all lost. Dropping it releases them.
#[must_use = "if unused the locks are released at once"]
pub struct MultiGuard {
    members: Vec<Held>,
}
impl MultiGuard {
    /// The holds, in the order they were taken in: by name.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Held> {
        self.members.iter()
    }
    /// The fencing token of each member that is exclusive.
    pub fn tokens(&self) -> Vec<(Name, Token)> {
        let exclusive = self.members.iter().filter(|held| held.claim().is_exclusive());
        exclusive.map(|held| (held.name().clone(), held.token_of_grant())).collect()
    }
    /// How long all of them are certainly good: the minimum.
    pub fn remaining(&self) -> Duration {
        self.members.iter().map(Held::remaining).min().unwrap_or_default()
    }
    /// Whether all of them are good at this moment.
    pub fn is_valid(&self) -> bool {
        self.members.iter().all(Held::is_valid)
    }
    /// `Err(Lost)` unless all of them are good at this moment.
    ///
    /// # Errors
    /// `Lost`, with the reason and the member's name.
    pub fn check(&self) -> Result<()> {
        self.members.iter().try_for_each(Held::check)
    }
    /// Resolves with the first member that is lost.
    ///
    /// # Cancel safety
    /// Drop it and ask again as often as you like.
    pub async fn lost(&self) -> (Name, LossReason) {
        let mut all: Vec<_> = self.members.iter().map(|held| (held.name(), Box::pin(held.lost()))).collect();
        poll_fn(|cx| {
            for (name, lost) in &mut all {
                if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                    return Poll::Ready(((*name).clone(), reason));
                }
            }
            Poll::Pending
        })
        .await
    }
    /// Runs `work` for as long as all of them are good, and drops it where it stands when one is lost.
    ///
    /// # Errors
    /// `Lost`, also when `work` ended after the loss.
    ///
    /// # Cancel safety
    /// Dropping it drops `work`; the holds are untouched.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let mut lost = pin!(self.lost());
        tokio::select! {
            biased;
            (name, reason) = &mut lost => {
                let lost = Error::new(ErrorKind::Lost, "run", format!("one of the locks is lost: {reason}"));
                Err(lost.with("name", name).hint("stop what they protected"))
            }
            out = work => self.check().map(|()| out),
        }
    }
    /// Releases all, in the other order than they were taken in; one that fails does not keep the others.
    ///
    /// # Errors
    /// The first: `NotHeld` or `Lost`, `Unreachable`, `Ambiguous`.
    ///
    /// # Cancel safety
    /// If dropped the keeper goes on with it.
    pub async fn release(self) -> Result<()> {
        give_back(self.members).await
    }
}
impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.members).finish()
    }
}
