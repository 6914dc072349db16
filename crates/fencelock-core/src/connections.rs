//! One connection for each runtime that calls.
use crate::{
    blocking::runtime,
    clock::{BootClock, Clock, Moment},
    error::{Error, ErrorKind},
};
use std::{
    fmt,
    ops::Deref,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    runtime::{Handle, Id},
    sync::{oneshot, watch},
    time::{sleep, timeout},
};

/// An engine's connections: one for each tokio runtime that calls it, made when it is needed and made again when it was given up.
///
/// *Invariant (SAFETY E5):* a connection is made and kept by a task of the runtime that uses it, so nobody who waits for it and is
/// dropped, or not polled any more, keeps the others from it; and one whose runtime is gone is never waited for by another one's tasks.
///
/// *Invariant (SAFETY E8):* whoever has one goes on, also on a server that has no more of them: what a lock was taken by does for its
/// renewals, too ([`here_or_elsewhere`](Self::here_or_elsewhere)).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use fencelock_core::{Connections, NoConnection};
/// use std::time::Duration;
///
/// let all = Connections::<&'static str, NoConnection>::new();
/// let one = all.here(Duration::from_secs(1), || async { Ok("a connection") }).await.unwrap();
/// assert_eq!((*one, all.open().len()), ("a connection", 1));
/// all.give_up(&one);
/// let next = all.here(Duration::from_secs(1), || async { Ok("another one") }).await.unwrap();
/// assert_eq!(*next, "another one");
/// all.close();
/// # }
/// ```
pub struct Connections<C, F> {
    /// For the tasks that connect.
    me: Weak<Self>,
    slots: Mutex<Vec<Slot<C, F>>>,
    last: AtomicU64,
    closed: AtomicBool,
    /// The server had no more of them then.
    full: Mutex<Option<Moment>>,
}
/// So long after a server had no more of them it is asked for one more.
const FULL: Duration = Duration::from_millis(250);
/// The end of the channel tells whoever waits that the runtime is gone.
type Made<C, F> = watch::Receiver<Option<Result<Connection<C>, F>>>;
struct Slot<C, F> {
    runtime: Id,
    connection: Made<C, F>,
}
impl<C: Clone, F> Slot<C, F> {
    fn open(&self) -> Option<Connection<C>> {
        self.connection.borrow().as_ref()?.as_ref().ok().cloned()
    }
}
impl<C, F> Slot<C, F> {
    fn is(&self, wanted: &Connection<C>) -> bool {
        matches!(&*self.connection.borrow(), Some(Ok(connection)) if connection.number == wanted.number)
    }
}
/// One connection; it derefs to what the engine made.
#[derive(Clone, Debug)]
pub struct Connection<C> {
    inner: C,
    number: u64,
}
impl<C> Deref for Connection<C> {
    type Target = C;
    fn deref(&self) -> &C {
        &self.inner
    }
}
/// Why there is no connection, but for what its making says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoConnection {
    /// They were closed.
    Closed,
    /// None came about within the time that there was.
    Late,
}

impl<C: Clone + Send + Sync + 'static, F: Clone + From<NoConnection> + Send + Sync + 'static> Connections<C, F> {
    /// None yet.
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            slots: Mutex::default(),
            last: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            full: Mutex::default(),
        })
    }
    fn slots(&self) -> MutexGuard<'_, Vec<Slot<C, F>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn check_open(&self) -> Result<(), F> {
        if self.closed.load(Relaxed) { Err(NoConnection::Closed.into()) } else { Ok(()) }
    }
    /// This runtime's connection, if there is one.
    pub fn known(&self) -> Option<Connection<C>> {
        let here = Handle::current().id();
        self.slots().iter().find(|slot| slot.runtime == here).and_then(Slot::open)
    }
    /// This runtime's connection; `make` makes one where there is none, and nobody waits for it for longer than `limit`.
    ///
    /// # Errors
    /// What `make` says; [`NoConnection`].
    ///
    /// # Cancel safety
    /// If dropped the connection is made all the same, for whoever comes next.
    pub async fn here<A>(&self, limit: Duration, make: impl FnOnce() -> A) -> Result<Connection<C>, F>
    where
        A: Future<Output = Result<C, F>> + Send + 'static,
    {
        if let Some(connection) = self.known() {
            return Ok(connection);
        }
        let here = Handle::current().id();
        let mut connection = self.slot(here, limit, make)?;
        // Whoever waits has a limit of his own. The channel ends with a runtime that is going.
        let end = timeout(limit, connection.wait_for(Option::is_some)).await;
        let end = end.ok().and_then(Result::ok).and_then(|end| end.clone());
        end.unwrap_or_else(|| Err(NoConnection::Late.into()))
    }
    /// The same, and where the server has no more of them, which `is_full` knows by why there is none, another runtime's that is good for
    /// something: it does for both, whichever, and the server is asked again a quarter of a second later.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use fencelock_core::{Connections, NoConnection};
    /// use std::time::Duration;
    ///
    /// let all = Connections::<&'static str, NoConnection>::new();
    /// let (limit, is_full) = (Duration::from_secs(1), |why: &NoConnection| *why == NoConnection::Late);
    /// let one = all.here_or_elsewhere(limit, || async { Ok("a connection") }, is_full, |_| true).await;
    /// assert_eq!(*one.unwrap(), "a connection");
    /// # }
    /// ```
    ///
    /// # Errors
    /// As those of [`here`](Self::here).
    ///
    /// # Cancel safety
    /// As that of [`here`](Self::here).
    pub async fn here_or_elsewhere<A>(
        &self,
        limit: Duration,
        make: impl FnOnce() -> A,
        is_full: impl Fn(&F) -> bool,
        is_good: impl Fn(&C) -> bool,
    ) -> Result<Connection<C>, F>
    where
        A: Future<Output = Result<C, F>> + Send + 'static,
    {
        let full = || self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let elsewhere = || {
            let good: Vec<_> = self.open().into_iter().filter(|other| is_good(other)).collect();
            fastrand::choice(good)
        };
        let was_full = full().is_some_and(|then| then.until(BootClock.now()) < FULL);
        if was_full
            && self.known().is_none()
            && let Some(other) = elsewhere()
        {
            return Ok(other);
        }
        let made = self.here(limit, make).await;
        if !made.as_ref().is_err_and(&is_full) {
            return made;
        }
        *full() = Some(BootClock.now());
        elsewhere().map_or(made, Ok)
    }
    /// Where this runtime's connection is, or will be.
    fn slot<A>(&self, here: Id, limit: Duration, make: impl FnOnce() -> A) -> Result<Made<C, F>, F>
    where
        A: Future<Output = Result<C, F>> + Send + 'static,
    {
        let mut slots = self.slots();
        // Under the mutex: `close` finds the slot, or has told us.
        self.check_open()?;
        // Also where a driver has panicked while it connected.
        slots.retain(|slot| slot.connection.has_changed().is_ok());
        if let Some(slot) = slots.iter().find(|slot| slot.runtime == here) {
            return Ok(slot.connection.clone());
        }
        let (told, connection) = watch::channel(None);
        slots.push(Slot { runtime: here, connection: connection.clone() });
        drop(slots);
        let (me, made) = (self.me.clone(), make());
        tokio::spawn(async move {
            let end = timeout(limit, made).await.unwrap_or_else(|_| Err(NoConnection::Late.into()));
            let Some(all) = me.upgrade() else { return };
            let number = all.last.fetch_add(1, Relaxed);
            let end = end.and_then(|inner| all.check_open().map(|()| Connection { inner, number }));
            if end.is_err() {
                // Those who wait are told; whoever comes next tries anew.
                all.slots().retain(|slot| !slot.connection.same_channel(&told.subscribe()));
            }
            told.send_replace(Some(end));
            drop(all);
            // For as long as it is wanted.
            told.closed().await;
        });
        Ok(connection)
    }
    /// Those that are in use, of every runtime that runs.
    pub fn open(&self) -> Vec<Connection<C>> {
        self.slots().iter().filter(|slot| slot.connection.has_changed().is_ok()).filter_map(Slot::open).collect()
    }
    /// It is good for nothing any more: the next call makes another one. Whether it was in use until now.
    pub fn give_up(&self, connection: &Connection<C>) -> bool {
        let mut slots = self.slots();
        let many = slots.len();
        slots.retain(|slot| !slot.is(connection));
        slots.len() < many
    }
    /// This runtime's, if it has one.
    pub fn give_up_here(&self) {
        let here = Handle::current().id();
        self.slots().retain(|slot| slot.runtime != here);
    }
    /// All of them.
    pub fn give_up_all(&self) {
        self.slots().clear();
    }
    /// All of them, for good.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        self.slots().clear();
    }
}
impl<C, F> fmt::Debug for Connections<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connections")
    }
}

/// A connection that `here` makes or has, tried again for `limit` when there is no server and that `may_pass`, until `stopped`: then why there
/// was none is told, too; `why` it is before anything is known.
///
/// # Errors
/// What `here` said the last time.
///
/// # Cancel safety
/// As that of `here`.
pub async fn soon<C, F, A: Future<Output = Result<C, F>>>(
    limit: Duration,
    here: impl Fn() -> A,
    may_pass: impl Fn(&F) -> bool,
    mut why: F,
    stopped: impl Future<Output = ()>,
) -> Result<C, F> {
    let (limit, mut pause, mut stopped) = (BootClock.now() + limit, Duration::from_millis(10), pin!(stopped));
    loop {
        tokio::select! {
            biased;
            conn = here() => match conn {
                Err(fault) if may_pass(&fault) && BootClock.now() + pause < limit => why = fault,
                end => return end,
            },
            () = sleep(BootClock.now().until(limit)) => return Err(why),
            () = &mut stopped => return Err(why),
        }
        tokio::select! {
            biased;
            () = &mut stopped => return Err(why),
            () = sleep(pause) => {}
        }
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}
/// An engine that is connected by a driver of tokio's: where the caller has an executor of another kind it has a runtime of its own
/// while it looks.
///
/// # Errors
/// What `work` says; `Unreachable` or `Closed` where there is no thread for it.
///
/// # Cancel safety
/// If dropped it is dropped with it, or goes on by itself to its end.
pub async fn on_tokio<T: Send + 'static>(
    work: impl Future<Output = crate::Result<T>> + Send + 'static,
) -> crate::Result<T> {
    if runtime().is_some() {
        return work.await;
    }
    let (tx, rx) = oneshot::channel();
    let refuse =
        |e: std::io::Error| Error::new(ErrorKind::Unreachable, "connect", "no thread can be started").because(e);
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let _ = tx.send(runtime.map_err(refuse).and_then(|runtime| runtime.block_on(work)));
    };
    std::thread::Builder::new().name("fencelock-connect".into()).spawn(work).map_err(refuse)?;
    rx.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "connect", "the thread that connects has ended")))
}
/// What comes within `limit` of the time in which this process ran: one that was stopped, or a machine that stood still, has not
/// waited meanwhile, and reads what has come before it gives up.
///
/// # Cancel safety
/// As that of `answer`.
pub async fn within<T>(limit: Duration, answer: impl Future<Output = T>) -> Option<T> {
    const NAPS: u32 = 8;
    let mut answer = pin!(answer);
    for _ in 0..NAPS {
        if let Ok(answer) = timeout(limit / NAPS, &mut answer).await {
            return Some(answer);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: one connection for all runtimes; giving one up gives up all; no limit for its making; one nap
    //! of the whole limit; a server that is full and is asked each time.
    #![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use tokio::{runtime::Builder, sync::Notify};

    const SEC: Duration = Duration::from_secs(1);
    type All = Connections<usize, NoConnection>;

    #[test]
    fn each_runtime_has_its_own_and_another_one_after_it_was_given_up() {
        let (all, made) = (All::new(), AtomicUsize::new(0));
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let next = || {
            let n = made.fetch_add(1, Relaxed);
            async move { Ok(n) }
        };
        let (one, two) = (runtime(), runtime());
        let first = one.block_on(all.here(SEC, next)).unwrap();
        assert_eq!((*first, *two.block_on(all.here(SEC, next)).unwrap()), (0, 1));
        assert_eq!(*one.block_on(all.here(SEC, next)).unwrap(), 0);
        assert!(all.give_up(&first));
        assert_eq!(*one.block_on(all.here(SEC, next)).unwrap(), 2);
        // Twice: the one that came after it stays.
        assert!(!all.give_up(&first));
        assert_eq!((*one.block_on(all.here(SEC, next)).unwrap(), *two.block_on(all.here(SEC, next)).unwrap()), (2, 1));
        one.block_on(async { all.give_up_here() });
        assert_eq!((*one.block_on(all.here(SEC, next)).unwrap(), *two.block_on(all.here(SEC, next)).unwrap()), (3, 1));
        all.give_up_all();
        assert_eq!((*one.block_on(all.here(SEC, next)).unwrap(), *two.block_on(all.here(SEC, next)).unwrap()), (4, 5));
        all.close();
        assert_eq!(two.block_on(all.here(SEC, next)).unwrap_err(), NoConnection::Closed);
    }
    #[test]
    fn where_there_are_no_more_another_ones_does() {
        let (all, made) = (All::new(), AtomicUsize::new(0));
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        // Who comes second gets none.
        let next = || {
            let n = made.fetch_add(1, Relaxed);
            async move { if n == 0 || n > 2 { Ok(n) } else { Err(NoConnection::Late) } }
        };
        let is_full = |why: &NoConnection| *why == NoConnection::Late;
        let (one, two) = (runtime(), runtime());
        let get = |on: &tokio::runtime::Runtime| on.block_on(all.here_or_elsewhere(SEC, next, is_full, |_| true));
        let first = get(&one).unwrap();
        assert_eq!((*first, *get(&two).unwrap(), made.load(Relaxed)), (0, 0, 2));
        // It was asked just now.
        assert_eq!((*get(&two).unwrap(), *get(&one).unwrap(), made.load(Relaxed)), (0, 0, 2));
        *all.full.lock().unwrap() = Some(BootClock.now() - FULL);
        assert_eq!((*get(&two).unwrap(), made.load(Relaxed)), (0, 3));
        // One that is good for nothing is none.
        let refused =
            two.block_on(all.here_or_elsewhere(SEC, || async { Err(NoConnection::Late) }, is_full, |_| false));
        assert_eq!(refused.unwrap_err(), NoConnection::Late);
        // Another reason is told.
        *all.full.lock().unwrap() = None;
        let closed =
            two.block_on(all.here_or_elsewhere(SEC, || async { Err(NoConnection::Closed) }, is_full, |_| true));
        assert_eq!(closed.unwrap_err(), NoConnection::Closed);
        assert_eq!(*get(&two).unwrap(), 3);
        // Its runtime is gone, and its connection with it.
        let three = runtime();
        drop(one);
        drop(two);
        let refused =
            three.block_on(all.here_or_elsewhere(SEC, || async { Err(NoConnection::Late) }, is_full, |_| true));
        assert_eq!(refused.unwrap_err(), NoConnection::Late);
    }
    #[tokio::test]
    async fn whoever_waits_and_is_gone_keeps_nobody_from_it() {
        let (all, go) = (All::new(), Arc::new(Notify::new()));
        let slow = || {
            let go = go.clone();
            async move {
                go.notified().await;
                Ok(7)
            }
        };
        {
            let mut first = Box::pin(all.here(SEC, slow));
            tokio::select! {
                _ = &mut first => unreachable!("nobody has said go"),
                () = sleep(Duration::from_millis(10)) => {}
            }
            go.notify_one();
            // It is not polled any more, and then dropped.
            assert_eq!(*all.here(SEC, || async { Ok(8) }).await.unwrap(), 7);
        }
        assert_eq!(*all.here(SEC, || async { Ok(9) }).await.unwrap(), 7);
    }
    #[tokio::test]
    async fn what_fails_or_takes_too_long_is_told_and_tried_anew() {
        let all = All::new();
        let never = || async { std::future::pending().await };
        assert_eq!(all.here(Duration::from_millis(20), never).await.unwrap_err(), NoConnection::Late);
        sleep(Duration::from_millis(20)).await;
        assert_eq!(all.here(SEC, || async { Err(NoConnection::Late) }).await.unwrap_err(), NoConnection::Late);
        assert_eq!(*all.here(SEC, || async { Ok(1) }).await.unwrap(), 1);
    }
    #[tokio::test]
    async fn a_process_that_stood_still_has_not_waited() {
        let (limit, still) = (Duration::from_millis(400), Duration::from_millis(600));
        let answer = async {
            std::thread::sleep(still);
            sleep(Duration::from_millis(5)).await;
        };
        assert!(within(limit, answer).await.is_some());
        let began = BootClock.now();
        assert!(within(limit, std::future::pending::<()>()).await.is_none());
        assert!(began.until(BootClock.now()) >= limit);
    }
}
