//! What everybody has of the one connection: commands in order, their answers, words of what is watched, and how it stands with the
//! session.
use crate::{
    config::Config,
    error::Fault,
    pipe::{Command, Pipe},
    session::Wire,
    wire::op::{Answer, Happened, Op, Stat},
};
use fencelock_core::{BootClock, Clock, Event, Reports, SessionId};
use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};
use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout},
};

/// So long somebody waits for a session, or for an answer to what may be asked again.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// *Invariant:* a message that no server takes would break the connection, and with it everybody's.
const LARGEST_ASK: usize = 1_000_000;
/// An answer has so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A session that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session(pub(crate) i64);
impl Session {
    pub(crate) const fn id(self) -> SessionId {
        SessionId(self.0.cast_unsigned())
    }
}
/// How it stands with the session.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) session: Option<Session>,
    /// Why there is none, or no connection.
    pub(crate) trouble: Option<Fault>,
}

/// What everybody has of the connection.
pub(crate) struct Link {
    pub(crate) pipe: Pipe,
    pub(crate) state: watch::Sender<State>,
    endpoint: String,
    closed: AtomicBool,
    reports: Mutex<Option<Reports>>,
    /// How many attempts are written, or may be.
    places: AtomicUsize,
}
/// What happens to what is watched is told once: `None` then.
#[derive(Debug)]
pub(crate) struct Word(Option<oneshot::Receiver<Happened>>);
impl Word {
    pub(crate) const fn is_told(&self) -> bool {
        self.0.is_none()
    }
}
/// The first of them. `None`: nobody will say it any more, look.
pub(crate) async fn heard(words: &mut [&mut Word]) -> Option<Happened> {
    poll_fn(|cx| {
        let told = words.iter_mut().find_map(|Word(word)| match word.as_mut().map(|word| Pin::new(word).poll(cx)) {
            Some(Poll::Ready(told)) => {
                *word = None;
                Some(told.ok())
            }
            Some(Poll::Pending) => None,
            None => Some(None),
        });
        told.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

impl Link {
    pub(crate) fn new(config: &Config) -> fencelock_core::Result<(Self, Wire)> {
        let pipe = Pipe::new();
        let (state, reports, closed) = (watch::Sender::default(), Mutex::default(), AtomicBool::new(false));
        let places = AtomicUsize::new(0);
        let link = Self { pipe, state, endpoint: config.endpoint(), closed, reports, places };
        Ok((link, Wire::new(config)?))
    }
    pub(crate) fn tell(&self, operation: &'static str, fault: &Fault) -> fencelock_core::Error {
        fault.tell(operation, &self.endpoint)
    }
    pub(crate) fn attend(&self, reports: &Reports) {
        *self.reports.lock().unwrap_or_else(PoisonError::into_inner) = Some(reports.clone());
    }
    pub(crate) fn report(&self, event: Event) {
        if let Some(reports) = &*self.reports.lock().unwrap_or_else(PoisonError::into_inner) {
            reports.send(event);
        }
    }
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
    }
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// The session, when there is one; waited for until `stopped`, and no longer than [`CONNECT_TIMEOUT`].
    pub(crate) async fn session(&self, stopped: impl Future<Output = ()>) -> Result<Session, Fault> {
        let mut state = self.state.subscribe();
        let trouble = |state: &watch::Sender<State>| {
            let none = || Fault::Connect("none within the time that there was".to_owned());
            state.borrow().trouble.clone().unwrap_or_else(none)
        };
        let opened = async {
            loop {
                if self.is_closed() {
                    return Err(Fault::Closed);
                }
                let (session, trouble) = {
                    let state = state.borrow_and_update();
                    (state.session, state.trouble.clone())
                };
                match (session, trouble) {
                    (Some(session), _) => return Ok(session),
                    // That does not pass.
                    (None, Some(fault)) if !fault.may_pass() => return Err(fault),
                    _ => {}
                }
                if state.changed().await.is_err() {
                    return Err(Fault::Closed);
                }
            }
        };
        tokio::select! {
            biased;
            end = timeout(CONNECT_TIMEOUT, opened) => end.unwrap_or_else(|_| Err(trouble(&self.state))),
            () = stopped => Err(trouble(&self.state)),
        }
    }
    /// The next one after this, however long that takes.
    pub(crate) async fn after(&self, old: Session) {
        let mut state = self.state.subscribe();
        let other = |state: &State| state.session.is_some_and(|session| session != old);
        let _ = state.wait_for(other).await;
    }
    pub(crate) fn set_places(&self, places: usize) {
        self.places.store(places, Relaxed);
    }
    /// The session's life is of interest to somebody.
    pub(crate) fn holds(&self) -> bool {
        self.places.load(Relaxed) > 0
    }
    /// The session, if there is one now.
    pub(crate) fn now(&self) -> Option<Session> {
        self.state.borrow().session
    }
    /// Why there is no connection.
    pub(crate) fn trouble(&self) -> Option<Fault> {
        self.state.borrow().trouble.clone()
    }
    pub(crate) fn is_open(&self, session: Session) -> bool {
        self.state.borrow().session == Some(session)
    }

    /// Sends these, one after the other.
    fn submit<const N: usize>(
        &self,
        session: Option<Session>,
        ops: [(Op, Option<oneshot::Sender<Happened>>); N],
    ) -> [Asked; N] {
        let mut commands = Vec::with_capacity(N);
        let asked = ops.map(|(op, watch)| {
            let (reply, rx) = oneshot::channel();
            if self.is_closed() && !matches!(op, Op::Close) {
                let _ = reply.send(Err(Fault::Closed));
            } else if op.size() > LARGEST_ASK {
                let _ = reply.send(Err(Fault::TooLarge(op.size())));
            } else {
                commands.push(Command { op, session, reply, watch });
            }
            Asked(rx)
        });
        self.pipe.put(commands);
        asked
    }
    /// Asks at once, in the order of the calls; what is returned waits for the answer.
    pub(crate) fn ask(&self, session: Session, op: Op) -> Asked {
        let [asked] = self.ask_all(session, [op]);
        asked
    }
    /// Asks these, and nobody anything in between.
    pub(crate) fn ask_all<const N: usize>(&self, session: Session, ops: [Op; N]) -> [Asked; N] {
        self.submit(Some(session), ops.map(|op| (op, None)))
    }
    /// As [`ask`](Self::ask), in whatever session there is.
    pub(crate) fn look(&self, op: Op) -> Asked {
        let [asked] = self.submit(None, [(op, None)]);
        asked
    }
    /// And hears of what happens then.
    pub(crate) fn watch(&self, session: Option<Session>, op: Op) -> (Asked, Word) {
        let (tx, rx) = oneshot::channel();
        let [asked] = self.submit(session, [(op, Some(tx))]);
        (asked, Word(Some(rx)))
    }
    /// What may be asked again with one effect: it is, for a while, when the servers cannot do it now.
    pub(crate) async fn again<T, A>(&self, ask: impl Fn() -> A) -> Result<T, Fault>
    where
        A: Future<Output = Result<T, Fault>>,
    {
        let (limit, mut pause) = (BootClock.now() + CONNECT_TIMEOUT, Duration::from_millis(10));
        loop {
            match ask().await {
                Err(fault) if fault.may_pass() && BootClock.now() + pause < limit => {}
                Err(Fault::Unanswered) => {
                    let trouble = self.state.borrow().trouble.clone();
                    return Err(trouble.unwrap_or(Fault::Unanswered));
                }
                end => return end,
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }
}
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.endpoint)
    }
}

/// An answer that is waited for. Whoever drops it takes nothing back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Asked(oneshot::Receiver<Result<Answer, Fault>>);
impl Asked {
    /// *Invariant:* it comes to an end without a timer of its own: a connection that does not answer is given up by its own side, and so
    /// is what waits for one. An attempt that was dropped with its caller's runtime goes on elsewhere, and its timers could not.
    pub(crate) async fn answer(self) -> Result<Answer, Fault> {
        // Whoever had it has dropped it: it may have been sent.
        self.0.await.unwrap_or(Err(Fault::Unanswered))
    }
    pub(crate) async fn done(self) -> Result<(), Fault> {
        self.answer().await.map(drop)
    }
    pub(crate) async fn created(self) -> Result<(String, Stat), Fault> {
        match self.answer().await? {
            Answer::Created { path, stat } => Ok((path, stat)),
            _ => Err(Fault::Answer),
        }
    }
    pub(crate) async fn stat(self) -> Result<Stat, Fault> {
        match self.answer().await? {
            Answer::Stat(stat) => Ok(stat),
            _ => Err(Fault::Answer),
        }
    }
    pub(crate) async fn data(self) -> Result<(Vec<u8>, Stat), Fault> {
        match self.answer().await? {
            Answer::Data { data, stat } => Ok((data, stat)),
            _ => Err(Fault::Answer),
        }
    }
    pub(crate) async fn children(self) -> Result<(Vec<String>, Stat), Fault> {
        match self.answer().await? {
            Answer::Children { names, stat } => Ok((names, stat)),
            _ => Err(Fault::Answer),
        }
    }
    /// The transaction, and what it made; or which operation was refused, and why.
    pub(crate) async fn all(self) -> Result<Result<(i64, Vec<String>), (usize, i32)>, Fault> {
        match self.answer().await? {
            Answer::All { zxid, made } => Ok(Ok((zxid, made))),
            Answer::Refused { which, error } => Ok(Err((which, error))),
            _ => Err(Fault::Answer),
        }
    }
}
/// No such node, or what was answered.
pub(crate) fn found<T>(answer: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match answer {
        Err(fault) if fault.is_no_node() => Ok(None),
        answer => answer.map(Some),
    }
}
