//! From a request to a majority, or to nothing.
//!
//! Whoever does not wait asks all nodes at once, and gives back what he got if it is no majority. Whoever waits, too, but on one of them
//! he queues: on the lowest that he can reach, which all clients number alike. Where others want the name as well he asks that one
//! alone, and the others when it has granted; so those who wait have an order, and none of them holds what another needs.
//!
//! * While he is in a queue he has nothing on any node.
//! * With the grant of his queue in hand he asks the others again, a few times after 1 to 50 ms: who else got some of them gives them
//!   back, since he is behind him in the queue, or holds the lock, and then he goes to queue where that one holds.
//! * Two for whom different nodes are the lowest meet in the majority: both give back what is too little, and come again after 1 to
//!   50 ms, each as chance has it.
//! * Once in a while he looks whether his queue still answers and whether it is the holder's.
use super::{
    ballot::{Ballot, Verdict, Vote},
    entry::{Entry, Piece},
    gather::{Call, Gather},
    nodes::{Owed, Shared, silent},
    say,
};
use crate::{
    clock::Moment,
    error::{Error, ErrorKind, Result},
    types::{Busy, Outcome, Request, Status, Token},
};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// Whoever would queue on a node gives it so long to say that he does.
const FIRST_WORD: Duration = Duration::from_millis(50);
/// With the grant of the queue in hand the others are asked so often.
const TRIES: u32 = 8;
/// A hold that ends so soon is waited for with the grant of the queue in hand.
const SOON: Duration = Duration::from_millis(100);
/// When a waiter looks around for the first time, and how often later.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_LATER: Duration = Duration::from_millis(1_000);
/// For so long no majority has answered before whoever has not waited yet is told so: many a silence is shorter.
const OUTAGE: Duration = Duration::from_secs(1);

pub(super) struct Attempt<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) request: &'a Request,
    pub(super) entry: Arc<Entry>,
    busy: Vec<(usize, Busy)>,
    failed: Vec<(usize, Error)>,
    /// Who was in the way when it was asked before.
    before: Vec<(usize, Busy)>,
    began: Moment,
    /// When a majority has last answered.
    heard: Option<Moment>,
}
/// How one question to the nodes ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Won,
    Lost,
    /// There are no ids left, or somebody has ended the entry: core comes again.
    Over,
    Stopped,
}
/// A place in the queue of a node.
struct Place {
    node: usize,
    request: Request,
    call: Call<Result<Outcome>>,
}
/// Where an attempt that waits stands.
enum At {
    /// It asks all nodes; a place in the queue counts as a no of everybody's, if it is `humble`.
    All {
        humble: bool,
    },
    /// It has the grant of this one.
    Hand {
        node: usize,
        tries: u32,
        since: Moment,
    },
    Place(Place),
    /// It asks this one alone.
    Queue(usize),
}
/// How an attempt that waits goes on.
enum Next {
    /// All are asked.
    Anew,
    At(At),
    Ends(Outcome),
}
/// What a look around says.
enum Look {
    Stay,
    /// A majority is free: somebody's leftovers are in the way here.
    Free,
    /// The queue does not answer.
    Silent,
    /// No majority has ever answered: nobody is served here.
    Alone,
    /// Who holds the lock holds it there.
    Move(usize),
}

impl<'a> Attempt<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, request: &'a Request) -> Self {
        let entry = shared.table.open(request, shared.nodes.len());
        let (busy, failed, before) = (Vec::new(), Vec::new(), Vec::new());
        Self { shared, request, entry, busy, failed, before, began: shared.now(), heard: None }
    }
    pub(super) fn limit(&self) -> Duration {
        Shared::patience(self.request.ttl())
    }
    /// So many no's, and there is no majority.
    fn blocks(&self) -> usize {
        self.shared.nodes.len() - self.shared.need() + 1
    }
    /// Above all that the nodes' clocks show, so that all of them give the same (SAFETY T4).
    fn floor(&self) -> Option<Token> {
        let above = self.shared.proposal().and_then(|token| Token::new(token - 1));
        above.max(self.request.floor())
    }

    /// *Cancel safety:* whoever drops this has core withdraw the attempt, and the entry knows of all that was asked.
    pub(super) async fn run(&mut self) -> Result<Outcome> {
        if self.request.wait() {
            return self.wait().await;
        }
        match self.ask(None, None, self.reads()).await {
            (End::Won, _) => match self.win().await {
                Ok(Some(outcome)) => return Ok(outcome),
                Ok(None) => {}
                Err(error) => {
                    self.shared.undo(&self.entry, None, false).await;
                    return Err(error);
                }
            },
            (End::Lost, _) => {}
            (End::Over, _) => return Ok(Outcome::Displaced),
            (End::Stopped, _) => return self.stopped().await,
        }
        self.shared.undo(&self.entry, None, false).await;
        self.refusal()
    }
    async fn wait(&mut self) -> Result<Outcome> {
        let (mut misses, mut lacks) = (0, false);
        let name = self.request.name();
        let mut at = if self.shared.is_contended(name) { At::Queue(self.lowest()) } else { At::All { humble: true } };
        loop {
            if self.request.is_stopped() {
                return self.stopped().await;
            }
            at = match at {
                At::All { humble } => {
                    // While it is not known that a majority answers a place would be one in which nobody is served.
                    let queue = (!lacks).then(|| self.lowest());
                    let (end, place) = self.ask(None, queue, humble).await;
                    match end {
                        End::Won => match self.win().await? {
                            Some(outcome) => return Ok(outcome),
                            None => self.start_over(&mut misses).await,
                        },
                        End::Over => return Ok(Outcome::Displaced),
                        End::Stopped => return self.stopped().await,
                        End::Lost => {
                            self.shared.contend(name);
                            // An outage is waited over by those who have waited before it (SAFETY E8). Whoever comes into one has
                            // nothing to wait for: he comes again, until it is one.
                            lacks = self.unreached() && self.heard.is_none();
                            let hand = queue.filter(|queue| self.entry.has(*queue) && !lacks);
                            // A place is not given up with what the others gave.
                            let keep = hand.or(queue.filter(|_| place.is_some() && !lacks));
                            self.shared.undo(&self.entry, keep, false).await;
                            if let Some(error) = self.definite() {
                                return Err(error);
                            }
                            match (place, hand) {
                                (Some(place), _) if !lacks => At::Place(place),
                                _ if lacks && self.silent_for() >= OUTAGE => return self.refusal(),
                                (_, Some(queue)) => self.in_hand(queue, 0, self.shared.now()).await,
                                _ => match self.in_the_way() {
                                    Some(node) if !self.unreached() => At::Queue(node),
                                    _ => self.start_over(&mut misses).await,
                                },
                            }
                        }
                    }
                }
                At::Queue(node) => match self.queue(node).await? {
                    Next::At(at) => at,
                    Next::Ends(outcome) => return Ok(outcome),
                    Next::Anew => At::All { humble: true },
                },
                At::Place(place) => {
                    self.shared.contend(name);
                    match self.stand(place).await? {
                        Next::At(at) => at,
                        Next::Ends(outcome) => return Ok(outcome),
                        Next::Anew => self.start_over(&mut misses).await,
                    }
                }
                At::Hand { node, tries, since } => match self.ask(Some(node), None, true).await.0 {
                    End::Won => match self.win().await? {
                        Some(outcome) => return Ok(outcome),
                        None => self.start_over(&mut misses).await,
                    },
                    End::Over => return Ok(Outcome::Displaced),
                    End::Stopped => return self.stopped().await,
                    End::Lost => {
                        self.shared.undo(&self.entry, Some(node), false).await;
                        if let Some(error) = self.definite() {
                            return Err(error);
                        }
                        self.in_hand(node, tries, since).await
                    }
                },
            };
        }
    }
    /// The others were not to be had: again soon, or to the queue of whoever has them.
    async fn in_hand(&mut self, node: usize, tries: u32, since: Moment) -> At {
        // Not at first sight: it may be somebody who is about to see that he has too little.
        let held = self.blocker().filter(|(_, left)| *left > SOON && tries > 1);
        let long = since.until(self.shared.now()) > self.request.ttl() / 4;
        if held.is_none() && tries < TRIES && !long && self.entry.has(node) {
            self.pause(tries).await;
            return At::Hand { node, tries: tries + 1, since };
        }
        self.shared.undo(&self.entry, None, false).await;
        self.pause(if held.is_some() { 0 } else { TRIES }).await;
        self.in_the_way().map_or(At::All { humble: true }, At::Queue)
    }
    async fn start_over(&mut self, misses: &mut u32) -> At {
        self.shared.undo(&self.entry, None, false).await;
        self.pause(*misses).await;
        if self.unreached() {
            let outage = Duration::from_millis(50 << (*misses).min(4));
            tokio::select! {
                biased;
                () = self.request.stopped() => {}
                () = sleep(outage) => {}
            }
        }
        *misses += 1;
        At::All { humble: true }
    }
    /// 1 to 50 ms, less in the beginning, as chance has it: of those who meet one comes first.
    async fn pause(&self, tries: u32) {
        let most = (4_u64 << tries.min(5)).min(50);
        let nap = Duration::from_micros(fastrand::u64(1_000..=most * 1_000));
        tokio::select! {
            biased;
            () = self.request.stopped() => {}
            () = sleep(nap) => {}
        }
    }

    fn reads(&self) -> bool {
        !self.request.claim().is_exclusive()
    }
    /// Asks all nodes but the one in hand, each at once, until there is a majority or there can be none. On `queue` it waits: the
    /// place that came of that is told, too. Whoever is humble passes nobody who stands in a queue: a place in that queue is a no of everybody's, and
    /// a reader heeds each who waits to write, in whichever queue.
    async fn ask(&mut self, hand: Option<usize>, queue: Option<usize>, humble: bool) -> (End, Option<Place>) {
        if !self.busy.is_empty() {
            self.before = std::mem::take(&mut self.busy);
        }
        self.failed.clear();
        let mut heard = usize::from(hand.is_some());
        let nodes = self.shared.nodes.len();
        let Some(n) = self.entry.next() else { return (End::Over, None) };
        let reads = humble && self.reads();
        let lowest = || Some(self.lowest()).filter(|_| reads && hand.is_none());
        let veto = queue.filter(|_| humble).or_else(lowest);
        let (mut ballot, mut gather, floor) = (Ballot::of(nodes), Gather::default(), self.floor());
        let mut asked = Vec::with_capacity(nodes);
        for node in 0..nodes {
            if hand == Some(node) {
                ballot.cast(node, Vote::Yes);
                continue;
            }
            let Some(request) = self.entry.ask(node, n, queue == Some(node), floor) else { return (End::Over, None) };
            let (engine, part) = (self.shared.nodes[node].engine.clone(), request.clone());
            gather.ask(node, async move { engine.acquire(&part).await });
            asked.push((node, request));
        }
        let part = |node: usize| asked.iter().find(|(of, _)| *of == node).map(|(_, request)| request);
        let queued = || queue.and_then(part).is_some_and(Request::is_queued);
        let (mut late, mut in_queue) = (std::pin::pin!(sleep(self.limit())), false);
        let (began, mut settled) = (self.shared.now(), false);
        let end = loop {
            if !in_queue && queued() {
                in_queue = true;
                if let (Some(node), Some(busy)) = (queue, queue.and_then(part).and_then(Request::last_report)) {
                    ballot.cast(node, if humble { Vote::Veto } else { Vote::No });
                    self.busy.push((node, busy));
                }
            }
            // A reader who heeds a writer is refused by one, and what the others are about to give him goes with the answer.
            let end = match ballot.verdict() {
                Verdict::Won => Some(End::Won),
                Verdict::Lost if !reads => break End::Lost,
                Verdict::Lost => Some(End::Lost),
                Verdict::Open => None,
            };
            match end {
                Some(end) if !self.shared.worth(&gather, queue.filter(|_| in_queue)) => break end,
                Some(_) if !settled => {
                    settled = true;
                    let took = began.until(self.shared.now());
                    late.as_mut().reset(tokio::time::Instant::now() + Shared::moment(took));
                }
                _ => {}
            }
            tokio::select! {
                biased;
                () = self.request.stopped() => {
                    self.heard_by(heard + usize::from(in_queue));
                    return (End::Stopped, None);
                }
                answers = gather.some(|| !in_queue && queued()) => for (node, answer) in answers {
                    if let Some(request) = part(node) {
                        self.shared.in_time(node, true);
                        let failed = answer.is_err();
                        heard += usize::from(!failed);
                        let yes = self.hear(node, request, answer);
                        let turn = || self.busy.last().is_some_and(|(of, busy)| *of == node && say::is_of_a_writer(busy));
                        ballot.cast(
                            node,
                            match (yes, failed) {
                                (true, _) => Vote::Yes,
                                (_, true) => Vote::Silent,
                                _ if veto == Some(node) || reads && turn() => Vote::Veto,
                                _ => Vote::No,
                            },
                        );
                    }
                },
                () = &mut late => {
                    for (node, _) in asked.iter().filter(|(node, _)| gather.asks(*node)) {
                        if in_queue && queue == Some(*node) {
                            continue;
                        }
                        self.shared.in_time(*node, false);
                        if !settled {
                            self.shared.suspect(*node);
                            self.failed.push((*node, silent("lock")));
                            ballot.cast(*node, Vote::Silent);
                        }
                    }
                    // Everybody has a vote now, or is not waited for: this does not go on.
                    late.as_mut().reset(tokio::time::Instant::now() + Duration::from_secs(86_400));
                }
            }
        };
        self.heard_by(heard + usize::from(in_queue));
        let mut place = None;
        for (node, call) in gather.rest() {
            let Some(request) = part(node).cloned() else { continue };
            match end {
                End::Lost if in_queue && queue == Some(node) => place = Some(Place { node, request, call }),
                End::Won if in_queue && queue == Some(node) => self.leave(node, &request),
                End::Won => self.adopt_late(node, request, call),
                _ => self.leave(node, &request),
            }
        }
        (end, place)
    }
    /// So many have answered to a question.
    fn heard_by(&mut self, nodes: usize) {
        if nodes >= self.shared.need() {
            self.heard = Some(self.shared.now());
        }
    }
    /// For so long no majority has answered.
    fn silent_for(&self) -> Duration {
        self.heard.unwrap_or(self.began).until(self.shared.now())
    }
    /// An answer; true: it has granted.
    fn hear(&mut self, node: usize, request: &Request, answer: Result<Outcome>) -> bool {
        match answer {
            Ok(Outcome::Granted(grant)) => {
                self.shared.answers(node);
                self.shared.saw(node, &grant);
                if self.entry.granted(node, request, &grant) {
                    return true;
                }
            }
            // After a stop it has not looked.
            Ok(Outcome::Busy(busy)) if !request.is_stopped() => {
                self.shared.answers(node);
                self.entry.closed(node, request.hold());
                self.busy.push((node, busy.in_whole()));
                return false;
            }
            Ok(Outcome::Busy(_) | Outcome::Displaced) => {}
            Err(error) => {
                if error.is_temporary()
                    || matches!(error.kind(), ErrorKind::InvalidConfig | ErrorKind::PermissionDenied)
                {
                    self.shared.suspect(node);
                }
                self.failed.push((node, error));
            }
        }
        self.leave(node, request);
        false
    }
    /// The lock is won without this one: what it answers belongs to the hold, and goes with it; silence is undone.
    fn adopt_late(&self, node: usize, request: Request, call: Call<Result<Outcome>>) {
        let (shared, entry, limit) = (self.shared.clone(), self.entry.clone(), self.limit());
        self.shared.behind(async move {
            // Also when this is dropped with its runtime.
            let owed = Owed { shared: &shared, node, request: Some(request.clone()) };
            match timeout(limit, call).await {
                Ok(Ok(Outcome::Granted(grant))) => {
                    shared.answers(node);
                    shared.saw(node, &grant);
                    owed.paid();
                    if !entry.granted(node, &request, &grant) {
                        // It was given back meanwhile.
                        let piece = Piece { sent_at: shared.now(), request, grant };
                        drop(shared.clone().give_back(node, piece, limit).await);
                    }
                    return;
                }
                Ok(Ok(Outcome::Busy(_))) if !request.is_stopped() => {
                    shared.answers(node);
                    owed.paid();
                }
                Ok(_) => {}
                Err(_) => shared.suspect(node),
            }
            entry.closed(node, request.hold());
        });
    }
    pub(super) fn leave(&self, node: usize, request: &Request) {
        self.entry.closed(node, request.hold());
        self.shared.owe(node, request.clone());
    }

    /// Asks one node alone, and queues there.
    async fn queue(&mut self, node: usize) -> Result<Next> {
        let Some(n) = self.entry.next() else { return Ok(Next::Ends(Outcome::Displaced)) };
        let Some(request) = self.entry.ask(node, n, true, self.floor()) else {
            return Ok(Next::Ends(Outcome::Displaced));
        };
        let (engine, part) = (self.shared.nodes[node].engine.clone(), request.clone());
        let mut call: Call<Result<Outcome>> = Box::pin(async move { engine.acquire(&part).await });
        tokio::select! {
            biased;
            () = self.request.stopped() => return Ok(Next::Ends(self.stopped().await?)),
            answer = &mut call => return Ok(self.entered(node, &request, answer)),
            () = sleep(FIRST_WORD) => {}
        }
        if request.is_queued() {
            return Ok(Next::At(At::Place(Place { node, request, call })));
        }
        self.shared.suspect(node);
        self.leave(node, &request);
        Ok(Next::Anew)
    }
    fn entered(&mut self, node: usize, request: &Request, answer: Result<Outcome>) -> Next {
        if self.hear(node, request, answer) {
            return Next::At(At::Hand { node, tries: 0, since: self.shared.now() });
        }
        Next::Anew
    }
    /// Waits in a queue.
    async fn stand(&mut self, mut place: Place) -> Result<Next> {
        let mut look = LOOK;
        loop {
            tokio::select! {
                biased;
                () = self.request.stopped() => return Ok(Next::Ends(self.stopped().await?)),
                answer = &mut place.call => return Ok(self.entered(place.node, &place.request, answer)),
                () = sleep(look.mul_f64(0.9 + 0.2 * fastrand::f64())) => {}
            }
            look = LOOK_LATER;
            let seen = tokio::select! {
                biased;
                () = self.request.stopped() => return Ok(Next::Ends(self.stopped().await?)),
                answer = &mut place.call => return Ok(self.entered(place.node, &place.request, answer)),
                seen = self.look(place.node) => seen,
            };
            let next = match seen {
                Look::Stay => continue,
                Look::Free => At::All { humble: false },
                // He comes again, until it is an outage.
                Look::Alone if self.silent_for() < OUTAGE => {
                    look = LOOK;
                    continue;
                }
                Look::Alone => {
                    self.leave(place.node, &place.request);
                    return Ok(Next::Ends(self.refusal()?));
                }
                Look::Silent => {
                    self.shared.suspect(place.node);
                    At::All { humble: true }
                }
                Look::Move(node) => At::Queue(node),
            };
            self.leave(place.node, &place.request);
            return Ok(Next::At(next));
        }
    }
    /// Looks whether this is still where to wait.
    async fn look(&mut self, here: usize) -> Look {
        let (mut gather, name) = (Gather::default(), self.request.name());
        for (node, of) in self.shared.nodes.iter().enumerate() {
            let (engine, name, limit) = (of.engine.clone(), name.clone(), self.limit());
            gather.ask(node, async move { timeout(limit, engine.inspect(&name)).await });
        }
        let mut seen: Vec<(usize, Status)> = Vec::new();
        self.failed.clear();
        for (node, answer) in gather.all().await {
            match answer.unwrap_or_else(|_| Err(silent("lock"))) {
                Ok(status) => seen.push((node, status)),
                Err(error) => self.failed.push((node, error)),
            }
        }
        self.heard_by(seen.len());
        let held: Vec<_> = seen.iter().flat_map(|(node, at)| at.holders.iter().map(|holder| (*node, holder))).collect();
        let free = seen.iter().filter(|(node, at)| *node != here && !at.is_held()).count();
        if !seen.iter().any(|(node, _)| *node == here) {
            Look::Silent
        } else if self.heard.is_none() {
            Look::Alone
        } else if free >= self.shared.need() {
            Look::Free
        } else {
            match say::strongest(held) {
                Some((nodes, _)) if nodes.len() >= self.blocks() && !nodes.contains(&here) => Look::Move(nodes[0]),
                _ => Look::Stay,
            }
        }
    }

    /// The lowest that is not known to be silent.
    fn lowest(&self) -> usize {
        (0..self.shared.nodes.len()).find(|node| !self.shared.is_suspect(*node)).unwrap_or(0)
    }
    /// So few have answered that there can be no majority, whoever holds what.
    fn unreached(&self) -> bool {
        self.failed.len() >= self.blocks()
    }
    /// Who keeps us from a majority by himself: the lowest of his nodes, and how long his lease runs.
    fn blocker(&self) -> Option<(usize, Duration)> {
        let held = self.busy.iter().filter_map(|(node, busy)| Some((*node, busy.holder.as_deref()?)));
        let (nodes, holder) = say::strongest(held.collect())?;
        (nodes.len() >= self.blocks()).then(|| (nodes[0], holder.left))
    }
    /// Where to wait: for him, or else for whoever has the lowest.
    fn in_the_way(&self) -> Option<usize> {
        let lowest = || self.busy.iter().map(|(node, _)| *node).min();
        self.blocker().map(|(node, _)| node).or_else(lowest)
    }
    /// What no repetition changes.
    fn definite(&mut self) -> Option<Error> {
        let definite = |(_, error): &(usize, Error)| !error.is_temporary();
        if self.failed.iter().filter(|failed| definite(failed)).count() < self.blocks() {
            return None;
        }
        let first = self.failed.iter().position(definite)?;
        Some(self.failed.swap_remove(first).1)
    }
    /// Who has waited long enough is told for whom, also where that was too short for an answer: a look changes nothing, and may be had after a
    /// stop. That nobody knows is told only where no majority answers.
    pub(super) async fn stopped(&self) -> Result<Outcome> {
        if let Some(busy) = self.request.last_report() {
            return Ok(Outcome::Busy(busy));
        }
        if self.heard.is_some() && self.silent_for() < OUTAGE {
            let last = if self.busy.is_empty() { &self.before } else { &self.busy };
            return Ok(Outcome::Busy(say::busy(self.shared, last)));
        }
        let (seen, failed) = super::look::at(self.shared, self.request.name()).await;
        if seen.len() < self.shared.need() {
            return Err(say::unreachable("lock", self.shared, &failed).with("name", self.request.name()));
        }
        let busy = |(node, at): (usize, Status)| (node, Busy::new(at.holders.into_iter().next(), None).in_whole());
        let busy: Vec<_> = seen.into_iter().map(busy).collect();
        Ok(Outcome::Busy(say::busy(self.shared, &busy)))
    }
    /// Why there is no majority.
    fn refusal(&mut self) -> Result<Outcome> {
        if let Some(error) = self.definite() {
            return Err(error);
        }
        if !self.unreached() {
            return Ok(Outcome::Busy(say::busy(self.shared, &self.busy)));
        }
        let mut error = say::unreachable("lock", self.shared, &self.failed).with("name", self.request.name());
        for (node, busy) in &self.busy {
            error = error.with("node", format!("{}: {busy}", self.shared.label(*node)));
        }
        Err(error)
    }
}
