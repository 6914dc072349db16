//! sql.md 12.3 and, in part, redis.md 6.8: Spring JDBC and Redis; and an engine that notes what passes through it.
use super::prelude::*;
use async_trait::async_trait;
use fencelock_core::{Cells, EngineInfo, Listing, Outcome, Reports, Request, Result};
use std::os::fd::OwnedFd;

cases! {
    "spring/acquire-same-lock-twice" => acquire_twice, needs: [FixedLeases];
    "spring/early-wake-up" => early_wake_up, needs: [Alone];
    "spring/cache-limit" => many_names_beside_a_hold;
    "spring/reentrant-lock-after-expiration" => reentrant_after_expiration, needs: [FixedLeases];
}
roles! {}

/// An engine that notes what was asked of it; it can ask an acquire again after a pause, and keep back answers to renewals.
#[derive(Debug)]
pub(super) struct Tap {
    inner: Arc<dyn Engine>,
    notes: Mutex<Vec<(Operation, Name, Moment)>>,
    again: Mutex<Option<Duration>>,
    late: Mutex<Duration>,
    granted_late: Mutex<Duration>,
}
impl Tap {
    pub(super) fn new(inner: Arc<dyn Engine>) -> Arc<Self> {
        let (notes, again, late, granted_late) = Default::default();
        Arc::new(Self { inner, notes, again, late, granted_late })
    }
    /// The next acquire is asked again after so long.
    pub(super) fn repeat_after(&self, pause: Duration) {
        *self.again.lock().unwrap() = Some(pause);
    }
    /// Answers to renewals come so late, from now on.
    pub(super) fn answer_late(&self, late: Duration) {
        *self.late.lock().unwrap() = late;
    }
    /// Answers to acquires do, from now on.
    pub(super) fn grant_late(&self, late: Duration) {
        *self.granted_late.lock().unwrap() = late;
    }
    pub(super) fn forget(&self) {
        self.notes.lock().unwrap().clear();
    }
    pub(super) fn names(&self, of: Operation) -> Vec<String> {
        let notes = self.notes.lock().unwrap();
        notes.iter().filter(|(what, ..)| *what == of).map(|(_, name, _)| name.to_string()).collect()
    }
    pub(super) fn times(&self, of: Operation, of_name: &str) -> Vec<Moment> {
        let notes = self.notes.lock().unwrap();
        notes.iter().filter(|(what, name, _)| *what == of && name.as_str() == of_name).map(|(.., at)| *at).collect()
    }
    fn note(&self, what: Operation, name: &Name) {
        self.notes.lock().unwrap().push((what, name.clone(), BootClock.now()));
    }
}
#[async_trait]
impl Engine for Tap {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        self.note(Operation::Acquire, request.name());
        let answer = self.inner.acquire(request).await;
        let late = *self.granted_late.lock().unwrap();
        if !late.is_zero() {
            tokio::time::sleep(late).await;
        }
        let again = self.again.lock().unwrap().take();
        let Some(pause) = again else { return answer };
        tokio::time::sleep(pause).await;
        self.note(Operation::Acquire, request.name());
        self.inner.acquire(request).await
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        self.inner.withdraw(request).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        let answers = self.inner.renew(grants).await;
        grants.iter().for_each(|grant| self.note(Operation::Renew, &grant.name));
        let late = *self.late.lock().unwrap();
        if !late.is_zero() {
            tokio::time::sleep(late).await;
        }
        answers
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        self.note(Operation::Release, &grant.name);
        self.inner.release(grant).await
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        self.inner.exchange(grant, next).await
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        self.inner.run(reports).await
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        self.inner.inspect(name).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.inner.list(prefix, page).await
    }
    async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status> {
        self.inner.observe(name, seen).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        self.inner.force_release(name, token).await
    }
    async fn resize(&self, name: &Name, from: u32, to: u32) -> Result<()> {
        self.inner.resize(name, from, to).await
    }
    fn cells(&self) -> Option<&dyn Cells> {
        self.inner.cells()
    }
    fn lifeline(&self) -> Result<OwnedFd> {
        self.inner.lifeline()
    }
    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

async fn acquire_twice(cx: Context) {
    let tap = Tap::new(cx.connect(60 * SEC).await.1.engine);
    let (client, other, name) = (Client::builder(tap.clone()).build().unwrap(), cx.client().await, cx.name("m"));
    let lease = 2000 * MS;
    tap.repeat_after(600 * MS);
    let guard = within("granted", client.mutex(&name).lease(lease).lock()).await.unwrap();
    let asked = tap.times(Operation::Acquire, &name);
    let [.., again] = asked[..] else { panic!("not asked at all") };
    assert_eq!(asked.len(), 2);
    let status = other.inspect(&name).await.unwrap();
    assert_eq!(status.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [guard.token()], "one hold");
    let next = within("the lease has ended", other.mutex(&name).lock()).await.unwrap();
    assert!(BootClock.now() >= again + lease, "its full length counts from the second time");
    assert!(!guard.is_valid() && next.token() > guard.token());
    next.release().await.unwrap();
}

async fn reentrant_after_expiration(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let me = client.owner();
    let mine = client.mutex(&name).reentrant(&me);
    let old = mine.clone().lease(cx.short() / 2).lock().await.unwrap();
    within("it ends", old.lost()).await;
    let new = within("acquired anew", mine.lock()).await.unwrap();
    assert!(new.token() > old.token() && new.id() != old.id());
    assert_eq!((new.entries(), me.entries(&name)), (1, 1));
    new.check().unwrap();
    assert!(old.check().is_err() && old.release().await.is_err());
    // What is left of the old one frees nothing of the new one.
    assert!(new.is_valid() && other.mutex(&name).try_lock().await.unwrap().is_err());
    assert_eq!(other.inspect(&name).await.unwrap().holders[0].hold, new.id());
    new.release().await.unwrap();
}

/// In full, whoever is woken by a clock alone, every 70 ms, does not get through this before it is stuck; else whoever is every 0.8 s.
/// (Red in full: what PostgreSQL's listener hears wakes nobody, and the first looks every 0.7 s.)
async fn early_wake_up(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let (mut guard, mut woken) = (a.mutex(&name).lock().await.unwrap(), Duration::ZERO);
    for i in 1..=if full() { 300 } else { 30 } {
        let wait = tokio::spawn(if i % 2 == 1 { &b } else { &a }.mutex(&name).lock());
        cx.queued(&a, &name, 1).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        guard = within("woken by the release", wait).await.unwrap().unwrap();
        woken += released.elapsed();
        assert!(woken < STUCK, "{i} wake-ups took {woken:?}");
    }
    guard.release().await.unwrap();
}

/// More names than a client keeps anything of: what is held or waited for is not pushed out by them.
async fn many_names_beside_a_hold(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("kept"));
    let me = client.owner();
    let mine = client.mutex(&name).reentrant(&me);
    let guard = mine.lock().await.unwrap();
    let behind = tokio::spawn(client.mutex(&name).lock());
    cx.queued(&other, &name, 1).await;
    for i in 0..5_000 {
        let one = client.mutex(cx.name(&i.to_string())).lock().await.unwrap();
        if i % 2 == 0 { one.release().await.unwrap() } else { drop(one) }
    }
    eventually("only that one is held", || async { client.held() == 1 }).await;
    guard.check().unwrap();
    let again = mine.try_lock().await.unwrap().expect("it is still its owner's");
    assert_eq!((again.id(), again.entries(), me.entries(&name)), (guard.id(), 2, 2));
    assert!(other.mutex(&name).try_lock().await.unwrap().is_err());
    let token = guard.token();
    again.release().await.unwrap();
    guard.release().await.unwrap();
    let next = within("its turn", behind).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}
