//! Who may enter a hold again.
use crate::{
    attempt::{Answer, enter},
    client::Core,
    clock::Moment,
    error::{Error, ErrorKind},
    guard::Held,
    hold::{Enter, Hold},
    types::{Busy, Name, Request},
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::sync::Mutex as AsyncMutex;

/// Somebody who may lock again what he has locked: a handle that is passed along, since tasks move between threads and a thread's
/// id means nothing. Clones are the same owner. It belongs to its client: see [`Client::owner`](crate::Client::owner).
///
/// The count of entries is kept here, in the process: entering again asks the engine nothing, and leaves when its guard goes
/// (SAFETY A4).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::sync::Arc;
/// # let engine = fencelock_core::memory::MemoryEngine::new();
/// # let client = fencelock_core::Client::builder(Arc::new(engine)).build()?;
/// let me = client.owner();
/// let orders = client.mutex("orders");
/// let outer = orders.clone().reentrant(&me).lock().await?;
/// let inner = orders.clone().reentrant(&me).lock().await?;
/// assert_eq!((outer.token(), me.entries("orders")), (inner.token(), 2));
/// drop(outer);
/// assert!(orders.try_lock().await?.is_err());          // the inner one still has it
/// # drop(inner);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Owner(Arc<Inner>);
struct Inner {
    core: Weak<Core>,
    slots: Mutex<HashMap<Name, Arc<Slot>>>,
}
/// What an owner has of one name.
#[derive(Debug, Default)]
struct Slot {
    hold: Mutex<Weak<Hold>>,
    /// One of its tasks at a time gets a hold: the others find what it got.
    turn: AsyncMutex<()>,
}
impl Slot {
    fn hold(&self) -> Option<Arc<Hold>> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
    fn set(&self, hold: &Arc<Hold>) {
        *self.hold.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(hold);
    }
}

impl Owner {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self(Arc::new(Inner { core: Arc::downgrade(core), slots: Mutex::default() }))
    }
    /// How many guards it has on this name now. One that was granted as its caller went away counts until it has left, a moment
    /// later.
    pub fn entries(&self, name: &str) -> u32 {
        let Ok(name) = Name::new(name) else { return 0 };
        let hold = self.slots().get(&name).and_then(|slot| slot.hold());
        hold.map_or(0, |hold| hold.entries())
    }
    pub(crate) fn check(&self, core: &Arc<Core>) -> crate::Result<()> {
        if Weak::ptr_eq(&self.0.core, &Arc::downgrade(core)) {
            return Ok(());
        }
        let other = Error::new(ErrorKind::InvalidConfig, "lock", "the owner belongs to another client");
        Err(other.hint("an owner enters locks of the client that made it: client.owner()"))
    }
    fn slots(&self) -> MutexGuard<'_, HashMap<Name, Arc<Slot>>> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Enters the hold that it has, or gets one.
    pub(crate) async fn enter(self, core: &Arc<Core>, request: &Request, deadline: Option<Moment>) -> Answer {
        let inside = Inside::new(&self, request.name());
        if let Some(answer) = self.enter_again(core, request, &inside.slot) {
            return answer;
        }
        let busy = || {
            request.settle();
            Ok(Err(request.last_report().unwrap_or_default()))
        };
        // Dropped before `inside`, which then can see that nobody else has the slot.
        let _turn = match inside.slot.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) if !request.wait() => return busy(),
            Err(_) => {
                request.queued_here(Busy::default());
                tokio::select! {
                    biased;
                    () = request.stopped() => return busy(),
                    turn = inside.slot.turn.lock() => turn,
                    () = core.nap(deadline) => return busy(),
                }
            }
        };
        // The one before may have got it.
        if let Some(answer) = self.enter_again(core, request, &inside.slot) {
            return answer;
        }
        let mut answer = enter(core, request, deadline).await;
        if let Ok(Ok(held)) = &mut answer {
            inside.slot.set(held.owned_by(self.clone()));
        }
        answer
    }
    /// `None`: there is nothing to enter, it is acquired.
    fn enter_again(&self, core: &Arc<Core>, request: &Request, slot: &Slot) -> Option<Answer> {
        let hold = slot.hold()?;
        let (has, wants) = (hold.grant.claim.kind(), request.claim().kind());
        if hold.is_valid() && has != wants {
            request.settle();
            return Some(Err(request.other_kind(has)));
        }
        match hold.enter(request.claim()) {
            Enter::In => {
                let held = Held::again(core.clone(), hold, request.claim(), self.clone());
                // Taken back meanwhile: it drops here, and leaves again.
                Some(if request.settle() { Ok(Ok(held)) } else { Ok(Err(Busy::default())) })
            }
            Enter::Shared => {
                request.settle();
                let upgrade = Error::new(ErrorKind::Unsupported, "lock", "its owner reads, and would wait for itself");
                Some(Err(upgrade.with("name", request.name()).hint("release the read guard, then write")))
            }
            Enter::Over => None,
        }
    }
    /// Forgets a name that it has nothing of any more.
    pub(crate) fn tidy(&self, name: &Name) {
        let mut slots = self.slots();
        // Under this mutex nobody new gets hold of it.
        let unused =
            |slot: &Arc<Slot>| Arc::strong_count(slot) == 1 && slot.hold().is_none_or(|hold| hold.entries() == 0);
        if slots.get(name).is_some_and(unused) {
            slots.remove(name);
        }
    }
}
/// One who is at the slot of a name.
struct Inside<'a> {
    owner: &'a Owner,
    name: &'a Name,
    slot: Arc<Slot>,
}
impl<'a> Inside<'a> {
    fn new(owner: &'a Owner, name: &'a Name) -> Self {
        let slot = owner.slots().entry(name.clone()).or_default().clone();
        Self { owner, name, slot }
    }
}
impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Gone from it before anybody counts.
        self.slot = Arc::default();
        self.owner.tidy(self.name);
    }
}
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:p}, {} names)", Arc::as_ptr(&self.0), self.slots().len())
    }
}
