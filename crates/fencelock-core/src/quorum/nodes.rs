//! The nodes, what is known of each, and what is still owed to them: undoing what nobody has.
use super::{
    ballot::{majority, nth_largest},
    entry::{Entry, Piece, Table},
    gather::Gather,
};
use crate::{
    clock::{Clock, Moment},
    engine::Engine,
    error::{Error, ErrorKind, Result},
    pauses::Pauses,
    types::{Grant, HoldId, LossReason, Name, Released, Request},
};
use foldhash::HashMap;
use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::*},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// A node that was silent is not waited on for so long.
const SUSPECT: Duration = Duration::from_secs(2);
/// So long a name is known as one that others want.
const CONTENDED: Duration = Duration::from_secs(2);
const NAMES: usize = 1_024;
/// So much above what the nodes' clocks show: for the way there, and for clocks that do not agree.
const AHEAD: i64 = 50_000;
/// A clock so far from the others is nobody's: what it says is not passed on.
const ASTRAY: i64 = 12 * 3_600_000_000;
/// One call of an undo.
const CALL: Duration = Duration::from_secs(1);
/// So many undos at once to a node that answers.
const AT_ONCE: usize = 32;

/// What the engine and its tasks share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) nodes: Vec<Node>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) table: Table,
    pub(super) recreates: bool,
    /// By how much their clocks may run faster than ours.
    pub(super) drift: f64,
    /// Holds that stand on fewer nodes than before: here, for a background that is begun anew goes on with them.
    thin: Mutex<Vec<Arc<Entry>>>,
    pub(super) thinned: Notify,
    contended: Mutex<HashMap<Name, Moment>>,
}
/// One store.
pub(super) struct Node {
    pub(super) engine: Arc<dyn Engine>,
    /// Its wall clock less ours, in µs; `i64::MIN`: nothing is known.
    offset: AtomicI64,
    suspect: AtomicU64,
    /// When it has last answered; 0: never.
    answered: AtomicU64,
    /// It came after the majority, and later than was waited for: until it is in time again nobody waits for it.
    slow: AtomicBool,
    debts: Mutex<Vec<Debt>>,
    owed: Notify,
}
/// What may be there, or come, and has to go.
#[derive(Clone)]
struct Debt {
    request: Request,
    due: Moment,
    /// By then the lease has ended by itself.
    over: Moment,
}

impl Shared {
    pub(super) fn new(engines: Vec<Arc<dyn Engine>>, clock: Arc<dyn Clock>) -> Self {
        let drift = engines.iter().map(|engine| engine.info().capabilities.drift).fold(0.0, f64::max);
        let node = |engine| Node {
            engine,
            offset: AtomicI64::new(i64::MIN),
            suspect: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            slow: AtomicBool::new(false),
            debts: Mutex::default(),
            owed: Notify::new(),
        };
        let nodes = engines.into_iter().map(node).collect();
        let (table, thin, thinned) = (Table::default(), Mutex::default(), Notify::new());
        Self { nodes, clock, table, recreates: false, drift, thin, thinned, contended: Mutex::default() }
    }
    pub(super) fn need(&self) -> usize {
        majority(self.nodes.len())
    }
    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }
    /// How long one node may take: what is waited for longer is of no use to the others.
    pub(super) fn patience(ttl: Duration) -> Duration {
        (ttl / 20).max(Duration::from_millis(50))
    }
    pub(super) fn label(&self, node: usize) -> &str {
        &self.nodes[node].engine.info().endpoint
    }
    /// Whose majority has ended by now, and when the next one does.
    pub(super) fn fallen(&self) -> (Vec<Arc<Entry>>, Option<Moment>) {
        let (need, now) = (self.need(), self.now());
        let mut thin = self.thin.lock().unwrap_or_else(PoisonError::into_inner);
        thin.retain(|entry| entry.falls(need).is_some());
        let fallen = thin.iter().filter(|entry| entry.falls(need).is_some_and(|at| at <= now)).cloned().collect();
        (fallen, thin.iter().filter_map(|entry| entry.falls(need)).min())
    }
    /// Core may count on it for longer than it stands: its end is told.
    pub(super) fn may_fall(&self, entry: &Arc<Entry>) {
        if entry.falls(self.need()).is_some() {
            let mut thin = self.thin.lock().unwrap_or_else(PoisonError::into_inner);
            if !thin.iter().any(|known| Arc::ptr_eq(known, entry)) {
                thin.push(entry.clone());
            }
            drop(thin);
            self.thinned.notify_one();
        }
    }
    /// A node does not have this part any more. True: it did until now.
    pub(super) fn gone(&self, entry: &Arc<Entry>, node: usize, hold: HoldId, reason: LossReason) -> bool {
        let had = entry.gone(node, hold, reason);
        if had {
            self.may_fall(entry);
        }
        had
    }
    /// What was sent to a node goes on when whoever sent it has his answer: here, where its timers and sockets live.
    pub(super) fn behind(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(task));
        }
    }

    /// What the clocks of the nodes show now at most, and some more: a token that all of them give alike (SAFETY T4). In µs.
    pub(super) fn proposal(&self) -> Option<i64> {
        let mut offsets: Vec<i64> = self.nodes.iter().map(|node| node.offset.load(Relaxed)).collect();
        offsets.retain(|offset| *offset != i64::MIN);
        offsets.sort_unstable();
        let middle = *offsets.get(offsets.len() / 2)?;
        let most = offsets.into_iter().rfind(|offset| *offset <= middle.saturating_add(ASTRAY))?;
        Some(most.saturating_add(micros(self.now())).saturating_add(AHEAD))
    }
    /// Its clock showed so much before now.
    pub(super) fn saw(&self, node: usize, grant: &Grant) {
        if grant.server_micros > 0 {
            self.nodes[node].offset.store(grant.server_micros - micros(self.now()), Relaxed);
        }
    }
    /// Others want it, too.
    pub(super) fn contend(&self, name: &Name) {
        let mut contended = self.contended.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        if contended.len() >= NAMES {
            contended.retain(|_, until| *until > now);
        }
        if contended.len() < NAMES {
            contended.insert(name.clone(), now + CONTENDED);
        }
    }
    pub(super) fn is_contended(&self, name: &Name) -> bool {
        let contended = self.contended.lock().unwrap_or_else(PoisonError::into_inner);
        contended.get(name).is_some_and(|until| *until > self.now())
    }
    /// It did not answer.
    pub(super) fn suspect(&self, node: usize) {
        self.nodes[node].suspect.store((self.now() + SUSPECT).as_nanos(), Relaxed);
    }
    pub(super) fn is_suspect(&self, node: usize) -> bool {
        self.nodes[node].suspect.load(Relaxed) > self.now().as_nanos()
    }
    pub(super) fn answers(&self, node: usize) {
        self.nodes[node].suspect.store(0, Relaxed);
        self.nodes[node].answered.store(self.now().as_nanos().max(1), Relaxed);
    }
    /// Since when a majority has answered: each of it then, or later.
    pub(super) fn heard(&self) -> Option<Moment> {
        let answered = self.nodes.iter().map(|node| node.answered.load(Relaxed));
        nth_largest(answered, self.need()).filter(|at| *at > 0).map(Moment::from_nanos)
    }
    /// In time, or not.
    pub(super) fn in_time(&self, node: usize, in_time: bool) {
        self.nodes[node].slow.store(!in_time, Relaxed);
    }
    /// Whether one of these is still to be waited for when a majority has answered: what comes a moment later costs less here than
    /// from behind.
    pub(super) fn worth<T>(&self, gather: &Gather<T>, but: Option<usize>) -> bool {
        (0..self.nodes.len()).any(|node| Some(node) != but && self.awaits(gather, node))
    }
    /// Whether this one has not answered, and is one that does in time.
    pub(super) fn awaits<T>(&self, gather: &Gather<T>, node: usize) -> bool {
        gather.asks(node) && !self.nodes[node].slow.load(Relaxed)
    }
    /// Those who have not answered are not waited for any more.
    pub(super) fn too_late<T>(&self, gather: &Gather<T>) {
        (0..self.nodes.len()).filter(|node| gather.asks(*node)).for_each(|node| self.in_time(node, false));
    }
    /// So long after a majority has answered, at the most, if the majority took that long.
    pub(super) fn moment(majority: Duration) -> Duration {
        (majority / 4).max(Duration::from_millis(5))
    }

    /// Has a node forget what may be there of this, now and after the end of its last command (SAFETY A3).
    pub(super) fn owe(&self, node: usize, request: Request) {
        request.stop();
        let now = self.now();
        let over = now.max(request.ends()) + request.ttl().mul_f64(1.02);
        self.nodes[node].owe(Debt { request, due: now, over });
    }
    /// As [`owe`](Self::owe), when it has been asked for once.
    fn owe_the_rest(&self, node: usize, request: Request, sent_at: Moment) {
        if sent_at > request.ends() {
            return;
        }
        let due = request.ends() + Duration::from_millis(1);
        let over = due + request.ttl().mul_f64(1.02);
        self.nodes[node].owe(Debt { request, due, over });
    }
    /// Gives one piece back; who is silent is asked again from behind.
    pub(super) async fn give_back(self: Arc<Self>, node: usize, piece: Piece, limit: Duration) -> Result<Released> {
        let owed = Owed { shared: &self, node, request: Some(piece.request.clone()) };
        let engine = &self.nodes[node].engine;
        let answer = match tokio::time::timeout(limit, engine.release(&piece.grant)).await {
            Ok(answer) => answer,
            Err(_) => Err(silent("release")),
        };
        if answer.is_ok() {
            owed.paid();
        }
        answer
    }
    async fn withdraw(self: Arc<Self>, node: usize, request: Request, limit: Duration) {
        let mut owed = Owed { shared: &self, node, request: Some(request.clone()) };
        request.stop();
        let sent_at = self.now();
        let answer = tokio::time::timeout(limit, self.nodes[node].engine.withdraw(&request)).await;
        if matches!(answer, Ok(Ok(()))) {
            owed.request = None;
            self.owe_the_rest(node, request, sent_at);
        }
    }
    /// Takes back what every node has of this, except `keep`. It waits for those who answer; what is open is withdrawn at once if
    /// `open`, else from behind, since whoever has not answered yet would not answer to that.
    pub(super) async fn undo(self: &Arc<Self>, entry: &Entry, keep: Option<usize>, open: bool) {
        let limit = Self::patience(entry.whole.ttl());
        let mut gather = Gather::default();
        for node in (0..self.nodes.len()).rev().filter(|node| Some(*node) != keep) {
            let (piece, requests) = entry.take(node);
            if let Some(piece) = piece {
                let back = self.clone().give_back(node, piece, limit);
                gather.ask(node, async move { drop(back.await) });
            }
            for request in requests {
                if open {
                    gather.ask(node, self.clone().withdraw(node, request, limit));
                } else {
                    self.owe(node, request);
                }
            }
        }
        while !gather.is_empty() {
            gather.some(|| false).await;
        }
    }

    /// Pays what is owed to a node, for as long as it is polled.
    pub(super) async fn pay(&self, node: usize) {
        let (of, mut pauses, mut well) = (&self.nodes[node], Pauses::long(), true);
        loop {
            let now = self.now();
            let batch = of.due(now, if well { AT_ONCE } else { 1 });
            if batch.is_empty() {
                let nap = of.next().map_or(Duration::from_secs(3600), |due| now.until(due));
                tokio::select! {
                    biased;
                    () = of.owed.notified() => {}
                    () = tokio::time::sleep(nap) => {}
                }
                continue;
            }
            well = self.pay_some(node, batch, CALL).await;
            if well {
                pauses = Pauses::long();
            } else {
                tokio::time::sleep(pauses.next()).await;
            }
        }
    }
    /// True: the node has answered to all of them.
    async fn pay_some(&self, node: usize, batch: Vec<Request>, limit: Duration) -> bool {
        let (of, mut gather) = (&self.nodes[node], Gather::default());
        for (at, request) in batch.iter().enumerate() {
            let (engine, request) = (of.engine.clone(), request.clone());
            gather.ask(at, async move {
                matches!(tokio::time::timeout(limit, engine.withdraw(&request)).await, Ok(Ok(())))
            });
        }
        let (sent_at, mut well) = (self.now(), true);
        while !gather.is_empty() {
            for (at, done) in gather.some(|| false).await {
                well &= done;
                if done {
                    self.answers(node);
                }
                of.paid(&batch[at], done, sent_at, self.now());
            }
        }
        well
    }
    /// The last chance: what may still come is asked for when it has, if that is not too far off.
    pub(super) async fn pay_all(self: &Arc<Self>, limit: Duration) {
        let until = self.now() + limit;
        let mut gather = Gather::default();
        for node in 0..self.nodes.len() {
            let shared = self.clone();
            gather.ask(node, async move {
                while let Some(due) = shared.nodes[node].next().filter(|due| *due <= until) {
                    tokio::time::sleep(shared.now().until(due)).await;
                    let batch = shared.nodes[node].due(shared.now(), AT_ONCE);
                    let left = shared.now().until(until).max(Duration::from_millis(1));
                    if !batch.is_empty() && !shared.pay_some(node, batch, left).await {
                        return;
                    }
                }
            });
        }
        while !gather.is_empty() {
            gather.some(|| false).await;
        }
    }
}
impl Node {
    fn debts(&self) -> MutexGuard<'_, Vec<Debt>> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn owe(&self, debt: Debt) {
        let mut debts = self.debts();
        match debts.iter_mut().find(|known| known.request.hold() == debt.request.hold()) {
            Some(known) => *known = debt,
            None => debts.push(debt),
        }
        drop(debts);
        self.owed.notify_one();
    }
    /// They stay on the list until they are paid: whoever pays may be dropped half-way.
    fn due(&self, now: Moment, most: usize) -> Vec<Request> {
        let mut debts = self.debts();
        debts.retain(|debt| now < debt.over);
        debts.iter().filter(|debt| debt.due <= now).take(most).map(|debt| debt.request.clone()).collect()
    }
    fn next(&self) -> Option<Moment> {
        self.debts().iter().map(|debt| debt.due).min()
    }
    /// *Invariant (SAFETY A3):* it is over when an answer has come to a withdrawal that was sent after the end of its last command.
    fn paid(&self, request: &Request, done: bool, sent_at: Moment, now: Moment) {
        let hold = |debt: &Debt| debt.request.hold() == request.hold();
        let mut debts = self.debts();
        if done && sent_at > request.ends() {
            debts.retain(|debt| !hold(debt));
        } else if let Some(debt) = debts.iter_mut().find(|debt| hold(debt)) {
            debt.due = if done { request.ends() + Duration::from_millis(1) } else { now };
        }
    }
}
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}

/// It is owed when this goes unpaid: with the runtime that it ran on, for one.
pub(super) struct Owed<'a> {
    pub(super) shared: &'a Shared,
    pub(super) node: usize,
    pub(super) request: Option<Request>,
}
impl Owed<'_> {
    pub(super) fn paid(mut self) {
        self.request = None;
    }
}
impl Drop for Owed<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.shared.owe(self.node, request);
        }
    }
}

pub(super) fn silent(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unreachable, operation, "no answer in time")
}
fn micros(now: Moment) -> i64 {
    i64::try_from(now.as_nanos() / 1_000).unwrap_or(i64::MAX / 4)
}
