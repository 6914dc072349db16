//! The memory engine: the reference for what an engine does, and the ground of simulations. Reached directly, or over a
//! [`Link`] that is slow and loses replies; with leases of its own, or with sessions.
mod cells;
mod link;
mod pushes;
mod server;
mod together;

pub use link::Link;
pub use server::{MemoryServer, Snapshot};

use crate::{
    clock::{BootClock, Clock, Moment},
    engine::{Cells, Engine},
    error::{Error, ErrorKind, Result},
    keeper::Reports,
    mutants::{Mutant, lives},
    types::{
        Capabilities, Conflict, EngineInfo, Event, Fencing, Grant, HoldId, Identity, Kind, Lease, Listing, LossReason,
        Name, Ordering, Outcome, Page, Released, Renewed, Request, SessionId, Status, TakenAway, Together, Token,
        Version, Versioned, Waiting,
    },
    watched::Watched,
};
use async_trait::async_trait;
use link::Wires;
use server::{Claimant, Entered, Resized, State};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::*},
    },
    time::Duration,
};
use together::All;
use tokio::sync::{Mutex, mpsc, oneshot};

/// A queued attempt gives a sign of life this often; with a short ttl oftener, or the grant that it was handed would be over before it
/// looks (SAFETY H2).
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long the slowest recent reply is remembered for: the window of a command is four times it (SAFETY A2).
const LEAST_WINDOW: Duration = Duration::from_millis(500);

/// Locks in this process's memory.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), fencelock_core::Error> {
/// use fencelock_core::{BootClock, Client, memory::{Link, MemoryEngine, MemoryServer}};
/// use std::{sync::Arc, time::Duration};
///
/// // Two clients of one store; one reaches it over a bad link.
/// let server = MemoryServer::new(Arc::new(BootClock));
/// let link = Link::new(tokio::runtime::Handle::current(), Duration::from_millis(2)).lose_replies(0.1);
/// let near = Client::builder(Arc::new(MemoryEngine::on(server.clone()))).build()?;
/// let far = Client::builder(Arc::new(MemoryEngine::on(server).over(link))).build()?;
/// let guard = near.mutex("x").lock().await?;
/// assert!(far.mutex("x").try_lock().await?.is_err());
/// guard.release().await?;
/// far.mutex("x").lock().await?.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MemoryEngine {
    info: EngineInfo,
    server: Arc<MemoryServer>,
    /// The client's own.
    clock: Arc<dyn Clock>,
    wires: Option<Wires>,
    /// Opened and kept inside `run`; `acquire` waits for it.
    session: Option<(Watched<Option<SessionId>>, Duration)>,
    events: Mutex<mpsc::UnboundedReceiver<Event>>,
    voice: u64,
    slowest: AtomicU64,
    commands: AtomicU64,
    cut: Watched<bool>,
}

impl Default for MemoryEngine {
    fn default() -> Self {
        Self::new()
    }
}
impl MemoryEngine {
    /// An engine with a store of its own.
    pub fn new() -> Self {
        Self::on(MemoryServer::new(Arc::new(BootClock)))
    }
    /// Another client's engine on the same store.
    pub fn on(server: Arc<MemoryServer>) -> Self {
        let (tx, rx) = mpsc::unbounded_channel();
        let voice = server.act(|state, _| state.voice(tx));
        let capabilities = Capabilities {
            read_write: true,
            downgrade: true,
            permits: true,
            cells: true,
            fixed_leases: true,
            tickets: true,
            fencing: Fencing::BestEffort,
            ordering: Ordering::Fifo,
            waiting: Waiting::Push,
            taken_away: TakenAway::Pushed,
            ttl_per_hold: true,
            renew_batch: 64,
            min_ttl: Duration::from_millis(50),
            max_ttl: Duration::from_secs(86_400),
            drift: 0.01,
        };
        let info = EngineInfo {
            id: server.id(),
            namespace: "".into(),
            scheme: "memory",
            endpoint: "memory:".into(),
            url: Some("memory:".into()),
            layout: "native",
            capabilities,
            default_ttl: Duration::from_secs(30),
        };
        let (slowest, commands, cut) = (AtomicU64::new(0), AtomicU64::new(0), Watched::default());
        let clock = server.clock();
        Self { info, server, clock, wires: None, session: None, events: Mutex::new(rx), voice, slowest, commands, cut }
    }
    /// Every call goes over this link.
    #[must_use]
    pub fn over(mut self, link: Link) -> Self {
        self.wires = Some(link.open());
        self
    }
    /// The client's clock, where it is not the store's. Give the client the same one.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
    /// The ttl of holds that do not say their own.
    #[must_use]
    pub fn default_ttl(mut self, ttl: Duration) -> Self {
        self.info.default_ttl = ttl;
        self
    }
    /// Holds live with a session of this ttl, as on ZooKeeper.
    #[must_use]
    pub fn with_session(mut self, ttl: Duration) -> Self {
        self.session = Some((Watched::default(), ttl));
        self.info.default_ttl = ttl;
        let can = &mut self.info.capabilities;
        (can.ttl_per_hold, can.min_ttl, can.max_ttl) = (false, ttl, ttl);
        (can.fixed_leases, can.tickets) = (false, false);
        self
    }
    /// From now on no call arrives, and none is answered, until this is called with `false`: then they fail.
    pub fn cut(&self, cut: bool) {
        self.cut.set(cut);
    }
    /// How many commands were sent.
    pub fn commands(&self) -> u64 {
        self.commands.load(Relaxed)
    }

    async fn call<T: Send + 'static>(&self, op: impl FnOnce(&mut State, Moment) -> T + Send + 'static) -> Result<T> {
        self.commands.fetch_add(1, Relaxed);
        if self.cut.get() {
            self.cut.when(|cut| (!cut).then_some(())).await;
            return Err(Error::new(ErrorKind::Ambiguous, "call", "the connection was broken"));
        }
        let Some(wires) = &self.wires else { return Ok(self.server.act(op)) };
        let (tx, rx) = oneshot::channel();
        let (server, sent_at) = (self.server.clone(), self.clock.now());
        wires.send(move || server.act(op), move |answer| drop(tx.send(answer)));
        let lost = |_| Error::new(ErrorKind::Ambiguous, "call", "the reply was lost");
        let answer = rx.await.map_err(lost)?;
        let took = u64::try_from(sent_at.until(self.clock.now()).as_nanos()).unwrap_or(u64::MAX);
        // Decays by an eighth with each faster reply.
        let slower = |slowest: u64| Some(took.max(slowest - slowest / 8));
        let _ = self.slowest.fetch_update(Relaxed, Relaxed, slower);
        Ok(answer)
    }
    fn window(&self) -> Duration {
        LEAST_WINDOW.max(Duration::from_nanos(self.slowest.load(Relaxed).saturating_mul(4)))
    }
    /// The end of a command by the store's clock, of which the client knows where it stands. By its own it is later, whichever
    /// of the two goes faster (SAFETY A2).
    fn open(&self, request: &Request, sent_at: Moment) -> Option<Moment> {
        let window = self.window();
        request.open(sent_at, window + window / 50).map(|_| self.server.now() + window)
    }
    async fn session(&self) -> Option<SessionId> {
        let (current, _) = self.session.as_ref()?;
        Some(current.when(|session| session).await)
    }
    fn claimant(&self, request: &Request, session: Option<SessionId>) -> Claimant {
        Claimant {
            hold: request.hold(),
            claim: request.claim(),
            ttl: request.ttl(),
            max_hold: request.max_hold(),
            at_least: request.at_least(),
            floor: request.floor(),
            session,
            identity: Identity::here(),
            note: request.note().clone(),
            voice: self.voice,
        }
    }
    fn grant(&self, request: &Request, token: Token, lease: Lease) -> Grant {
        let (name, claim) = (request.name().clone(), request.claim());
        let (hold, ttl, server_micros) = (request.hold(), request.ttl(), self.server.wall_micros());
        Grant { name, claim, hold, token, ttl, lease, server_micros, place: None }
    }
    async fn keep_session(&self, reports: &Reports) -> Result<()> {
        let Some((current, ttl)) = &self.session else { return std::future::pending().await };
        let (mut open, ttl) = (current.get(), *ttl);
        loop {
            let sent_at = self.clock.now();
            let beat = self.call(move |state, now| state.beat(open, ttl, now));
            let Ok(Ok(answer)) = tokio::time::timeout(ttl / 6, beat).await else {
                tokio::time::sleep((ttl / 20).min(Duration::from_millis(100))).await;
                continue; // Nobody knows: it is sent again, and meanwhile its holds run out by themselves.
            };
            if let Some(session) = answer {
                reports.send(Event::SessionAlive { session, sent_at });
            } else if let Some(session) = open {
                reports.send(Event::SessionEnded { session });
            }
            open = answer;
            current.set(open);
            if open.is_some() {
                // From when it was sent: the answer may have waited for a process that was stopped.
                tokio::time::sleep(self.clock.now().until(sent_at + ttl / 3)).await;
            }
        }
    }
}

#[async_trait]
impl Engine for MemoryEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        let session = tokio::select! {
            biased;
            session = self.session() => session,
            () = request.stopped() => return Ok(Outcome::Busy(request_busy(request))),
        };
        let (mut queued, mut misses, mut late) = (false, 0, 0);
        loop {
            let (name, sent_at) = (request.name().clone(), self.clock.now());
            let answer = if queued {
                let hold = request.hold();
                let (who, creates) = (self.claimant(request, session), lives(Mutant::HeartbeatThatCreates));
                self.call(move |state, now| match state.refresh(&name, hold, now) {
                    Entered::Unknown if creates => state.enter(&name, who, true, Moment::FAR, now),
                    known => known,
                })
                .await
            } else {
                let Some(ends) = self.open(request, sent_at) else {
                    return Ok(Outcome::Busy(request_busy(request)));
                };
                let (who, wait) = (self.claimant(request, session), request.wait());
                self.call(move |state, now| state.enter(&name, who, wait, ends, now)).await
            };
            match answer {
                // Core counts `max_hold` from here, the record from its grant: a caller who polls this late begins anew.
                Ok(Entered::Granted(_, ago))
                    if request.max_hold().is_some() && ago + sent_at.until(self.clock.now()) >= request.ttl() / 2 =>
                {
                    return Ok(Outcome::Displaced);
                }
                Ok(Entered::Granted(token, _)) => {
                    let sent_at = if lives(Mutant::TtlFromReply) { self.clock.now() } else { sent_at };
                    let lease = session.map_or(Lease::Own { sent_at }, Lease::Session);
                    return Ok(Outcome::Granted(self.grant(request, token, lease)));
                }
                Ok(Entered::Busy(busy)) => return Ok(Outcome::Busy(busy)),
                Ok(Entered::OtherKind(kind)) => return Err(request.other_kind(kind)),
                Ok(Entered::OtherCapacity(size)) => return Err(request.other_capacity(size)),
                Ok(Entered::Queued(busy, wake, ends)) => {
                    (queued, misses) = (true, 0);
                    request.queued(busy.clone());
                    let heartbeat = match () {
                        () if lives(Mutant::NoWakeUp) => Duration::from_secs(60),
                        () if lives(Mutant::HeartbeatTooSeldom) => Duration::from_millis(2_500),
                        () => HEARTBEAT.min(request.ttl() / 2),
                    };
                    let nap = self.server.now().until(ends).clamp(Duration::from_millis(1), heartbeat);
                    tokio::select! {
                        biased;
                        () = request.stopped() => return Ok(Outcome::Busy(busy)),
                        () = wake.notified() => {}
                        () = tokio::time::sleep(nap) => {}
                    }
                }
                Ok(Entered::PastEnd) if late == 0 => late = 1,
                Ok(Entered::PastEnd) => {
                    return Err(Error::new(ErrorKind::Unreachable, "lock", "commands take too long to arrive"));
                }
                Ok(Entered::Unknown) => return Ok(Outcome::Displaced),
                Ok(Entered::NoSession) => {
                    // Our next heartbeat finds that out too, and opens another one.
                    if let Some((current, _)) = &self.session {
                        tokio::select! {
                            biased;
                            () = request.stopped() => {}
                            () = current.when(|now| (now != session).then_some(())) => {}
                        }
                    }
                    return Ok(Outcome::Displaced);
                }
                // A wait survives what is lost on the way, until its caller's limit (SAFETY E8).
                Err(e) if e.is_temporary() && queued && !request.is_stopped() => {
                    tokio::select! {
                        biased;
                        () = request.stopped() => {}
                        () = tokio::time::sleep(Duration::from_millis(10)) => {}
                    }
                }
                Err(e) if e.is_temporary() && misses < 5 && !request.is_stopped() => misses += 1,
                Err(e) => return Err(e),
            }
        }
    }
    async fn acquire_all(&self, requests: &[Request]) -> Result<Together> {
        let sent_at = self.clock.now();
        let session = tokio::select! {
            biased;
            session = self.session() => session,
            () = requests[0].stopped() => return Ok(Together::Apart),
        };
        let mut ends = Moment::FAR;
        let mut claims = Vec::with_capacity(requests.len());
        for request in requests {
            let Some(end) = self.open(request, sent_at) else { return Ok(Together::Apart) };
            ends = ends.min(end);
            claims.push((request.name().clone(), self.claimant(request, session)));
        }
        Ok(match self.call(move |state, now| state.enter_all(claims, ends, now)).await? {
            All::Granted(tokens) => {
                let lease = session.map_or(Lease::Own { sent_at }, Lease::Session);
                let grants = requests.iter().zip(tokens).map(|(request, token)| self.grant(request, token, lease));
                Together::Granted(grants.collect())
            }
            All::Busy(n, busy) => Together::Busy(n, busy),
            All::Apart => Together::Apart,
        })
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        let (name, hold) = (request.name().clone(), request.hold());
        self.call(move |state, now| state.leave(&name, hold, None, now)).await.map(drop)
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        let sent_at = self.clock.now();
        let wanted: Vec<_> =
            grants.iter().map(|grant| (grant.name.clone(), grant.hold, grant.token, grant.ttl)).collect();
        self.call(move |state, now| {
            let renew = |(name, hold, token, ttl)| match state.renew(&name, hold, token, ttl, now) {
                true => Renewed::Extended { sent_at },
                false => Renewed::Lost(LossReason::TakenOver),
            };
            wanted.into_iter().map(renew).collect()
        })
        .await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        let (name, hold, token) = (grant.name.clone(), grant.hold, grant.token);
        self.call(move |state, now| state.leave(&name, hold, Some(token), now)).await
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        if let Lease::Session(_) = grant.lease
            && next.hold() != grant.hold
        {
            return Err(Error::new(ErrorKind::Unsupported, "adopt", "a hold of a session cannot leave it"));
        }
        let sent_at = self.clock.now();
        let ends = if next.hold() == grant.hold {
            Moment::ZERO // it creates nothing
        } else {
            match self.open(next, sent_at) {
                Some(ends) => ends,
                None => return Ok(Outcome::Busy(request_busy(next))),
            }
        };
        let session = match grant.lease {
            Lease::Session(session) => Some(session),
            Lease::Own { .. } => None,
        };
        let (name, old, who) = (grant.name.clone(), (grant.hold, grant.token), self.claimant(next, session));
        match self.call(move |state, now| state.exchange(&name, old, who, ends, now)).await? {
            Entered::Granted(token, _) => {
                let lease = session.map_or(Lease::Own { sent_at }, Lease::Session);
                Ok(Outcome::Granted(self.grant(next, token, lease)))
            }
            Entered::Busy(busy) => Ok(Outcome::Busy(busy)),
            _ => Err(Error::new(ErrorKind::Unreachable, "exchange", "the command took too long to arrive")),
        }
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        let mut events = self.events.lock().await;
        let pushes = async {
            while let Some(event) = events.recv().await {
                if !self.cut.get() {
                    reports.send(event);
                }
            }
            Ok(())
        };
        tokio::select! {
            biased;
            out = pushes => out,
            out = self.keep_session(reports) => out,
        }
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        let name = name.clone();
        self.call(move |state, now| state.inspect(&name, now)).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        let (prefix, page) = (prefix.to_owned(), page.clone());
        self.call(move |state, now| state.list(&prefix, &page, now)).await
    }
    async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status> {
        loop {
            let (wanted, sent_at) = (name.clone(), self.server.now());
            let (status, changed, ends) = self
                .call(move |state, now| {
                    let (status, changed, ends) = state.watch(&wanted, now);
                    // Made in the same step: no change in between is missed.
                    (status, Box::pin(changed.notified_owned()), ends)
                })
                .await?;
            if status.exclusive().map(|holder| holder.token) != seen {
                return Ok(status);
            }
            let nap = sent_at.until(ends).clamp(Duration::from_millis(1), HEARTBEAT);
            let _ = tokio::time::timeout(nap, changed).await;
        }
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        let name = name.clone();
        self.call(move |state, now| state.force(&name, token, now)).await
    }
    async fn resize(&self, name: &Name, from: u32, to: u32) -> Result<()> {
        let wanted = name.clone();
        match self.call(move |state, now| state.resize(&wanted, from, to, now)).await? {
            Resized::OtherKind(kind) => Err(Error::other_kind("resize", name, Kind::Semaphore, kind)),
            Resized::OtherCapacity(size) => Err(Error::other_capacity("resize", name, from, size)),
            Resized::Done => Ok(()),
        }
    }
    fn cells(&self) -> Option<&dyn Cells> {
        Some(self)
    }
    async fn close(&self) -> Result<()> {
        let open = self.session.as_ref().and_then(|(current, _)| current.set(None));
        if let Some(session) = open {
            self.call(move |state, now| state.end_session(session, now)).await?;
        }
        Ok(())
    }
}
#[async_trait]
impl Cells for MemoryEngine {
    async fn load(&self, name: &Name) -> Result<Versioned> {
        let wanted = name.clone();
        let answer = self.call(move |state, now| state.load(&wanted, now)).await?;
        answer.map_err(|kind| Error::other_kind("cell", name, Kind::Cell, kind))
    }
    async fn compare_exchange(
        &self,
        name: &Name,
        expected: Version,
        value: Option<Arc<[u8]>>,
        nonce: HoldId,
    ) -> Result<Result<Version, Conflict>> {
        let wanted = name.clone();
        let answer = self.call(move |state, now| state.swap(&wanted, expected, value, nonce, now)).await?;
        answer.map_err(|kind| Error::other_kind("cell", name, Kind::Cell, kind))
    }
}
fn request_busy(request: &Request) -> crate::types::Busy {
    request.last_report().unwrap_or_default()
}
