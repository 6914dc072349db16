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
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

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
    slots: Mutex<HashMap<Name, Arc<AsyncMutex<Weak<Hold>>>>>,
}

impl Owner {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self(Arc::new(Inner { core: Arc::downgrade(core), slots: Mutex::default() }))
    }
    /// How many guards it has on this name now.
    pub fn entries(&self, name: &str) -> u32 {
        let Ok(name) = Name::new(name) else { return 0 };
        let slot = self.slots().get(&name).cloned();
        let hold = slot.and_then(|slot| slot.try_lock().ok().and_then(|inside| inside.upgrade()));
        hold.map_or(0, |hold| hold.entries())
    }
    pub(crate) fn check(&self, core: &Arc<Core>) -> crate::Result<()> {
        if Weak::ptr_eq(&self.0.core, &Arc::downgrade(core)) {
            return Ok(());
        }
        let other = Error::new(ErrorKind::InvalidConfig, "lock", "the owner belongs to another client");
        Err(other.hint("an owner enters locks of the client that made it: client.owner()"))
    }
    fn slots(&self) -> MutexGuard<'_, HashMap<Name, Arc<AsyncMutex<Weak<Hold>>>>> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Enters the hold that it has, or gets one. One of its tasks at a time: the others find what it got.
    pub(crate) async fn enter(self, core: &Arc<Core>, request: &Request, deadline: Option<Moment>) -> Answer {
        // Dropped after the slot: then it can see that nobody else has it.
        let mut inside = Inside { owner: &self, name: request.name(), slot: None };
        let slot = self.slots().entry(request.name().clone()).or_default().clone();
        inside.slot = slot.clone().try_lock_owned().ok();
        if inside.slot.is_none() {
            let busy = |request: &Request| {
                request.settle();
                Ok(Err(request.last_report().unwrap_or_default()))
            };
            if !request.wait() {
                return busy(request);
            }
            request.queued(Busy::default());
            tokio::select! {
                biased;
                () = request.stopped() => return busy(request),
                got = slot.lock_owned() => inside.slot = Some(got),
                () = core.nap(deadline) => return busy(request),
            }
        } else {
            drop(slot);
        }
        let known = inside.slot.as_ref().and_then(|slot| slot.upgrade());
        if let Some(hold) = known {
            let (has, wants) = (hold.grant.claim.kind(), request.claim().kind());
            if hold.is_valid() && has != wants {
                request.settle();
                return Err(request.other_kind(has));
            }
            match hold.enter(request.claim()) {
                Enter::In => {
                    let held = Held::again(core.clone(), hold, request.claim(), self.clone());
                    // Taken back meanwhile: it drops here, and leaves again.
                    let answer = if request.settle() { Ok(held) } else { Err(Busy::default()) };
                    return Ok(answer);
                }
                Enter::Shared => {
                    request.settle();
                    let upgrade =
                        Error::new(ErrorKind::Unsupported, "lock", "its owner reads, and would wait for itself");
                    return Err(upgrade.with("name", request.name()).hint("release the read guard, then write"));
                }
                Enter::Over => {}
            }
        }
        let mut answer = enter(core, request, deadline).await;
        if let (Ok(Ok(held)), Some(slot)) = (&mut answer, &mut inside.slot) {
            **slot = Arc::downgrade(held.owned_by(self.clone()));
        }
        answer
    }
    /// Forgets a name that it has nothing of any more.
    pub(crate) fn tidy(&self, name: &Name) {
        let mut slots = self.slots();
        let Some(slot) = slots.get(name) else { return };
        let unused = Arc::strong_count(slot) == 1
            && slot.try_lock().is_ok_and(|hold| hold.upgrade().is_none_or(|hold| hold.entries() == 0));
        if unused {
            slots.remove(name);
        }
    }
}
/// The right to look at the hold of a name, and to get one.
struct Inside<'a> {
    owner: &'a Owner,
    name: &'a Name,
    slot: Option<OwnedMutexGuard<Weak<Hold>>>,
}
impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.slot = None;
        self.owner.tidy(self.name);
    }
}
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:p}, {} names)", Arc::as_ptr(&self.0), self.slots().len())
    }
}
