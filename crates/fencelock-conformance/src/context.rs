//! What a case has in hand.
use crate::{
    case::Case,
    fixture::{Connection, Cut, Family, Fixture},
    judge::Judge,
    peer::Peer,
    puppet::Puppet,
    suite::full,
};
use fencelock_core::{BootClock, Chaos, Client, Clock, Held, HoldId, Moment, Name, Page, Status};
use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::resume_unwind,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
    time::{Duration, Instant},
};

/// What has not happened by then is stuck.
pub const STUCK: Duration = Duration::from_secs(20);
/// Longer than any case: what is free before that has been released, not run out.
const LONG: Duration = Duration::from_secs(60);

/// What a case panics with when its run proves nothing.
pub(crate) struct Void(pub(crate) String);
/// This run proves nothing: it is made again.
pub(crate) fn void(why: String) -> ! {
    resume_unwind(Box::new(Void(why)))
}
/// Waits until a hold in doubt is renewed, now that its engine answers again. On a machine that has left it no time it may be lost.
pub(crate) async fn renewed_in_time(held: &Held) {
    let left = held.remaining();
    let renewed = async {
        tokio::select! {
            () = held.renewed() => true,
            _ = held.lost() => false,
        }
    };
    if !within("renewed", renewed).await {
        assert!(left < held.ttl() / 8, "lost, though the engine answered {left:?} before its end");
        void(format!("only {left:?} of {:?} were left to renew it", held.ttl()));
    }
}

/// A store that is shared with other trials, names of one's own, and clients. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);
struct Inner {
    family: &'static dyn Family,
    fixture: Arc<dyn Fixture>,
    prefix: String,
    folder: PathBuf,
    measures: bool,
    /// Somebody has died, or was silent: what he had may run out.
    runs_out: Arc<AtomicBool>,
}
impl Context {
    pub(crate) fn new(family: &'static dyn Family, fixture: Arc<dyn Fixture>, case: &Case) -> Self {
        let prefix = format!("{}-{:08x}", case.id.replace('/', "-"), fastrand::u32(..));
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() { base.to_owned() } else { std::env::temp_dir() };
        let folder = base.join(format!("fencelock-conformance-{}-{prefix}", std::process::id()));
        let (measures, runs_out) = (case.measures(), Arc::default());
        Self(Arc::new(Inner { family, fixture, prefix, folder, measures, runs_out }))
    }
    /// A name that no other trial uses: this one's prefix, `/`, `what`.
    pub fn name(&self, what: &str) -> String {
        format!("{}/{what}", self.0.prefix)
    }
    /// What the names of this trial begin with.
    pub fn prefix(&self) -> &str {
        &self.0.prefix
    }
    /// The family that is proved: its name is for messages, not for a case to behave otherwise.
    pub fn family(&self) -> &'static dyn Family {
        self.0.family
    }
    /// The store.
    pub fn fixture(&self) -> &dyn Fixture {
        &*self.0.fixture
    }

    /// Another client, whose holds last for a minute without a renewal: what is free before was released, not run out. (Where
    /// holds live with a session, that is the session's ttl.)
    pub async fn client(&self) -> Client {
        self.client_with(LONG).await
    }
    /// Another client; its holds, or its session, are good for `ttl` without a renewal.
    pub async fn client_with(&self, ttl: Duration) -> Client {
        self.connect(ttl).await.0
    }
    /// Another client and what is below it: its engine, for calls that core would never send, and the cut of its link. Never
    /// give this engine to a second client.
    ///
    /// # Panics
    /// The engine is of no use.
    pub async fn connect(&self, ttl: Duration) -> (Client, Connection) {
        let connection = self.0.fixture.engine(ttl).await;
        let client = Client::builder(connection.engine.clone()).build();
        (client.unwrap_or_else(|e| panic!("no client: {e}")), connection)
    }
    /// A client with trouble on its way to the engine, as the case plans it.
    ///
    /// # Panics
    /// The engine is of no use.
    pub async fn chaos(&self, ttl: Duration) -> (Client, Arc<Chaos>) {
        let chaos = Arc::new(Chaos::new(self.0.fixture.engine(ttl).await.engine));
        let client = Client::builder(chaos.clone()).build();
        (client.unwrap_or_else(|e| panic!("no client: {e}")), chaos)
    }
    /// A client, and how the engine falls silent for him. The case needs `Silence`.
    ///
    /// # Panics
    /// It cannot.
    pub async fn silenceable(&self, ttl: Duration) -> (Client, Silence) {
        let (client, connection) = self.connect(ttl).await;
        assert!(connection.cut.is_some() || self.0.fixture.server().is_some(), "the case needs Silence");
        (client, Silence { cx: self.clone(), cut: connection.cut, in_front: connection.cut_in_front })
    }
    /// A ttl that every engine takes, as short as a trial should wait for. Give it to `client_with`, and to handles.
    pub fn short(&self) -> Duration {
        self.0.family.short_ttl()
    }
    /// [`Family::rounds_up`].
    pub(crate) fn rounds_up(&self) -> Duration {
        self.0.family.rounds_up()
    }
    /// [`Family::longest_name`].
    pub(crate) fn longest_name(&self) -> usize {
        self.0.family.longest_name()
    }
    /// [`Family::tells_since_the_grant`].
    pub(crate) fn tells_since_the_grant(&self) -> bool {
        self.0.family.tells_since_the_grant()
    }
    /// [`Family::tells_last_token`].
    pub(crate) fn tells_last_token(&self) -> bool {
        self.0.family.tells_last_token()
    }

    /// For holds that are kept while their client is closed: long where they end with its session, at once; short where each
    /// has a lease, which runs out.
    pub fn closing_ttl(&self) -> Duration {
        if self.0.family.scopes().contains(&"session") { LONG } else { self.short() * 3 / 2 }
    }

    /// Somebody who does what a role says: in a process of his own where the engine has them, else with a client of his own
    /// here. His holds are good for [`short`](Self::short) without a renewal.
    pub async fn peer(&self, role: &str, words: &[&str]) -> Peer {
        self.peer_with(self.short(), role, words).await
    }
    /// As [`peer`](Self::peer), with another ttl.
    pub async fn peer_with(&self, ttl: Duration, role: &str, words: &[&str]) -> Peer {
        Peer::start(self.0.family, &self.0.fixture, self.0.runs_out.clone(), ttl, role, words).await
    }
    /// A peer who locks and releases as he is told.
    pub async fn puppet(&self) -> Puppet {
        Puppet::new(self.peer("puppet", &[]).await)
    }
    /// As [`puppet`](Self::puppet), with another ttl.
    pub async fn puppet_with(&self, ttl: Duration) -> Puppet {
        Puppet::new(self.peer_with(ttl, "puppet", &[]).await)
    }

    /// A counter and a history of this trial, which peers find by its [`place`](Judge::place).
    pub fn judge(&self, what: &str) -> Judge {
        Judge::at(&self.0.folder.join(what))
    }
    /// As [`Family::shows_grants_alone`].
    pub fn shows_grants_alone(&self) -> bool {
        self.0.family.shows_grants_alone()
    }
    /// Waits until `n` wait for `name`, as the engine tells, and says who.
    ///
    /// Where it does not tell ([`Family::tells_who_waits`]) they have had time to come.
    pub async fn queued(&self, client: &Client, name: &str, n: usize) -> Status {
        if !self.0.family.tells_who_waits() {
            tokio::time::sleep(Duration::from_millis(150)).await;
            return client.inspect(name).await.unwrap_or_else(|e| panic!("inspect: {e}"));
        }
        let began = Instant::now();
        loop {
            let status = client.inspect(name).await.unwrap_or_else(|e| panic!("inspect: {e}"));
            if status.waiters.len() == n {
                return status;
            }
            assert!(began.elapsed() < STUCK, "{n} should wait: {status:?}");
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }
    /// FIFO: waits until the first of these holds, which were seen in the queue in this order, has the lock that was free since
    /// `freed`.
    ///
    /// # Panics
    /// One of those behind has it. If he may, because the first one was late ([`Family::patience`]), the run is void and made
    /// again.
    pub async fn turn_of(&self, client: &Client, name: &str, queue: &[HoldId], freed: Moment) {
        let (began, [hold, behind @ ..]) = (Instant::now(), queue) else { panic!("nobody is in the queue") };
        loop {
            let status = client.inspect(name).await.unwrap_or_else(|e| panic!("inspect: {e}"));
            match status.holders.first() {
                Some(holder) if holder.hold == *hold => return,
                Some(holder) if behind.contains(&holder.hold) => {
                    let late = freed.until(BootClock.now()).saturating_sub(holder.held_for);
                    let what = format!("{name}: {holder:?} passed {hold}, {late:?} after the lock was free");
                    match self.0.family.patience() {
                        Some(patience) if late + patience / 10 >= patience => void(what),
                        _ => panic!("{what}"),
                    }
                }
                _ => {}
            }
            assert!(began.elapsed() < STUCK, "{hold} should have had its turn: {status:?}");
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }
    /// [`Peer::silence`] of one who holds up nobody but himself: a process that is stopped inside a write stops some stores for
    /// all, and what follows would be another case. It is let go then, and stopped again. The case needs `Crash`.
    ///
    /// # Panics
    /// Nobody gets anything from the store while he is silent.
    pub async fn silence(&self, peer: &Peer) {
        let probe = self.client().await.mutex(self.name("probe"));
        for _ in 0..20 {
            peer.silence(true);
            if let Ok(Ok(Ok(guard))) = tokio::time::timeout(Duration::from_millis(300), probe.try_lock()).await {
                guard.release().await.unwrap_or_else(|e| panic!("{peer:?} is silent: {e}"));
                return;
            }
            peer.silence(false);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{peer:?} stops the store whenever he is silent");
    }
    /// Waits until nobody holds it and nobody waits for it.
    pub async fn free(&self, client: &Client, name: &str) {
        eventually(&format!("{name} is free"), || async {
            let status = client.inspect(name).await.unwrap_or_else(|e| panic!("inspect: {e}"));
            !status.is_held() && status.waiters.is_empty()
        })
        .await;
    }
    /// A time that is judged in full, where the case runs alone. (Beside others only what is stuck is seen.)
    ///
    /// # Panics
    /// It took longer; or the case does not say that it needs to be `Alone`.
    #[track_caller]
    pub fn in_time(&self, what: &str, took: Duration, limit: Duration) {
        assert!(self.0.measures, "{what}: a case that judges times needs Alone");
        assert!(!full() || took <= limit, "{what}: {took:?}, and {limit:?} is the limit");
    }
    /// What a part of this case has ends by itself, and is not released.
    pub fn runs_out(&self) {
        self.0.runs_out.store(true, SeqCst);
    }
    /// LEAK: waits until nothing of this trial is held or waited for. The suite calls it after every case. What is left is to be
    /// released, not to run out, unless somebody of the case has died or was silent.
    ///
    /// # Panics
    /// Something is left, and what.
    pub async fn nothing_left(&self) {
        let client = self.client().await;
        let (began, mut last) = (Instant::now(), BTreeMap::<(Name, HoldId), Moment>::new());
        loop {
            let listing = client.list(&self.0.prefix, &Page::default()).await;
            let (left, now) = (listing.unwrap_or_else(|e| panic!("list: {e}")).items, BootClock.now());
            let ends = left.iter().flat_map(|status| {
                status.holders.iter().map(|holder| ((status.name.clone(), holder.hold), now + holder.left))
            });
            let ends: BTreeMap<_, _> = ends.collect();
            let gone = last.iter().filter(|(hold, _)| !ends.contains_key(*hold));
            let lapsed: Vec<_> = gone.filter(|(_, end)| **end <= now).map(|((name, _), _)| name).collect();
            let may = self.0.runs_out.load(SeqCst);
            assert!(may || lapsed.is_empty(), "left behind by the case, and gone only when it ran out: {lapsed:?}");
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < STUCK, "left behind by the case: {left:?}");
            last = ends;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({} {})", self.0.family.name(), self.0.prefix)
    }
}
impl Drop for Inner {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// How the engine falls silent for a client: he is cut off where that can be done, else the store is silent for all.
#[derive(Clone)]
pub struct Silence {
    cx: Context,
    cut: Option<Cut>,
    in_front: bool,
}
impl Silence {
    /// Whether it is in front of the engine, which knows nothing of it.
    pub fn is_in_front(&self) -> bool {
        self.in_front
    }
    /// From now on nothing that is sent has an effect, and nothing is answered.
    pub async fn begin(&self) {
        self.set(true).await;
    }
    /// It is over.
    pub async fn end(&self) {
        self.set(false).await;
    }
    /// Where it is for all: over, so that others can go on.
    pub async fn let_others(&self) {
        if self.is_for_all() {
            self.end().await;
        }
    }
    /// Whether all clients of the store are in it.
    pub fn is_for_all(&self) -> bool {
        self.cut.is_none()
    }
    async fn set(&self, silent: bool) {
        self.cx.runs_out();
        match (&self.cut, self.cx.fixture().server()) {
            (Some(cut), _) => cut(silent),
            (None, Some(server)) => server.pause(silent).await,
            (None, None) => panic!("the case needs Silence"),
        }
    }
}
impl fmt::Debug for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Silence({})", if self.is_for_all() { "for all" } else { "for one" })
    }
}

/// Waits until it is so, and says how long that took. Never sleep for a fixed time instead.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use fencelock_conformance::eventually;
/// let began = std::time::Instant::now();
/// eventually("a moment has passed", || async { began.elapsed().as_millis() > 5 }).await;
/// # }
/// ```
///
/// # Panics
/// It is not so within [`STUCK`].
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut so: impl FnMut() -> F) -> Duration {
    let began = Instant::now();
    while !so().await {
        assert!(began.elapsed() < STUCK, "{what}: not within {STUCK:?}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    began.elapsed()
}
/// The result of a future that should not take long.
///
/// # Panics
/// It has none within [`STUCK`].
pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(STUCK, future).await.unwrap_or_else(|_| panic!("{what}: not within {STUCK:?}"))
}
/// All locks whose names begin so, from all pages, by name.
///
/// # Panics
/// They cannot be listed.
pub async fn listed(client: &Client, prefix: &str) -> Vec<Status> {
    let (mut all, mut page) = (BTreeMap::new(), Page::default());
    loop {
        let listing = client.list(prefix, &page).await.unwrap_or_else(|e| panic!("list: {e}"));
        // In whatever order, and perhaps more than once.
        all.extend(listing.items.into_iter().map(|status| (status.name.to_string(), status)));
        page.after = listing.next;
        if page.after.is_none() {
            return all.into_values().collect();
        }
    }
}
/// Polls it once: `None` while it is not ready. Until an attempt has queued it runs only when it is polled: for a place in a queue
/// `tokio::spawn` it, then wait with [`Context::queued`]; to break it off, abort the task.
pub async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut future = Pin::new(future);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(out) => Poll::Ready(Some(out)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
