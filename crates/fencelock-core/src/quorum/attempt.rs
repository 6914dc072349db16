//! From a request to a majority, or to nothing.
//!
//! Whoever does not wait asks all nodes at once, and gives back what he got if it is no majority. Where several come at once, and each of
//! them gets some, the one goes on who has the lowest, so that one of them gets the lock. Whoever waits, too, but on one of them
//! he queues: on the lowest that he can reach, which all clients number alike. Where others want the name as well he asks that one
//! alone, and the others when it has granted; so those who wait have an order, and none of them holds what another needs.
//!
//! * While he is in a queue he has nothing on any node.
//! * With the grant of his queue in hand he asks the others again, a few times after 1 to 50 ms: who else got some of them gives them
//!   back, since he is behind him in the queue, or holds the lock, and then he goes to queue where that one holds.
//! * Two for whom different nodes are the lowest meet in the majority: both give back what is too little, and come again after 1 to
//!   50 ms, each as chance has it.
//! * Once in a while he looks whether his queue still answers and whether it is the holder's. That it is not he believes at the second
//!   look: while a lock is passed on it is free on some nodes, and the next one's on others.
use super::{
    ballot::{Ballot, Verdict, Vote},
    entry::{Entry, Piece},
    gather::{Call, Gather},
    nodes::{Owed, Shared, silent},
    place::Place,
    say,
};
use crate::{
    clock::Moment,
    error::{Error, ErrorKind, Result},
    types::{Busy, Outcome, Request, Token},
};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, sleep_until, timeout};

/// The lowest has so long to say that somebody waits there before it is compared with the others. So long is between two looks that have
/// to show the same.
pub(super) const FIRST_WORD: Duration = Duration::from_millis(50);
/// With the grant of the queue in hand the others are asked so often.
const TRIES: u32 = 8;
/// Those who have come at once are through with each other by then.
const AT_ONCE: Duration = Duration::from_secs(1);
/// A hold that ends so soon is waited for with the grant of the queue in hand.
const SOON: Duration = Duration::from_millis(100);

pub(super) struct Attempt<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) request: &'a Request,
    pub(super) entry: Arc<Entry>,
    pub(super) busy: Vec<(usize, Busy)>,
    pub(super) failed: Vec<(usize, Error)>,
    /// Who was in the way when it was asked before.
    pub(super) before: Vec<(usize, Busy)>,
    /// Those that had not answered when enough of the others had.
    pub(super) open: Vec<usize>,
    pub(super) began: Moment,
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
/// Where an attempt that waits stands.
pub(super) enum At {
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
    /// It asks this one alone, and queues there.
    Queue(usize),
}
/// How an attempt that waits goes on.
pub(super) enum Next {
    /// All are asked.
    Anew,
    At(At),
    Ends(Outcome),
}

impl<'a> Attempt<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, request: &'a Request) -> Self {
        let entry = shared.table.open(request, shared.nodes.len(), shared.drift);
        let (busy, failed, before, open) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { shared, request, entry, busy, failed, before, open, began: shared.now() }
    }
    pub(super) fn limit(&self) -> Duration {
        Shared::patience(self.request.ttl())
    }
    /// So many no's, and there is no majority.
    pub(super) fn blocks(&self) -> usize {
        self.shared.nodes.len() - self.shared.need() + 1
    }
    /// Above all that the nodes' clocks show, so that all of them give the same (SAFETY T4).
    pub(super) fn floor(&self) -> Option<Token> {
        let above = self.shared.proposal().and_then(|token| Token::new(token - 1));
        above.max(self.request.floor())
    }

    /// *Cancel safety:* whoever drops this has core withdraw the attempt, and the entry knows of all that was asked.
    pub(super) async fn run(&mut self) -> Result<Outcome> {
        if self.request.wait() {
            return self.wait().await;
        }
        let (mut hand, mut tries) = (None, 0);
        loop {
            let asked = self.shared.now();
            match self.ask(hand, None, self.reads()).await.0 {
                End::Won => match self.win().await {
                    Ok(Some(outcome)) => return Ok(outcome),
                    Ok(None) => break,
                    Err(error) => {
                        self.shared.undo(&self.entry, None, false).await;
                        return Err(error);
                    }
                },
                End::Lost => {}
                End::Over => return Ok(Outcome::Displaced),
                // Core says so itself.
                End::Stopped => return Ok(Outcome::Busy(Busy::default())),
            }
            let long_ago = tries > 1 || asked.until(self.shared.now()) >= FIRST_WORD;
            hand = self.split(long_ago).filter(|_| tries < TRIES);
            if hand.is_none() {
                break;
            }
            self.shared.undo(&self.entry, hand, false).await;
            self.pause(tries).await;
            tries += 1;
        }
        self.shared.undo(&self.entry, None, false).await;
        self.refusal().await
    }
    /// Several have come at once, and each of them has too few: of them the one goes on who has this node. Whoever was there `long_ago` and
    /// still is, is none of them, since they give back what they have: he holds the lock, on nodes that do not all answer.
    fn split(&self, long_ago: bool) -> Option<usize> {
        let holds = |busy: &[(usize, Busy)], hold| {
            busy.iter().filter_map(|(_, busy)| busy.holder.as_ref()).any(|holder| Some(holder.hold.whole()) == hold)
        };
        let stays = |(_, busy): &(usize, Busy)| {
            let hold = busy.holder.as_ref().map(|holder| holder.hold.whole());
            hold.is_some() && holds(&self.before, hold)
        };
        let goes_on = self.request.claim().is_exclusive()
            && !self.unreached()
            && self.blocker().is_none()
            && !(long_ago && self.busy.iter().any(stays))
            && self.began.until(self.shared.now()) <= AT_ONCE.min(self.request.ttl() / 4);
        Some(self.lowest()).filter(|node| goes_on && self.entry.has(*node))
    }
    async fn wait(&mut self) -> Result<Outcome> {
        let (mut misses, mut lacks) = (0, false);
        let name = self.request.name();
        let mut at = if self.shared.is_contended(name) { At::Queue(self.lowest()) } else { At::All { humble: true } };
        loop {
            if self.request.is_stopped() {
                return self.stopped().await;
            }
            let next = match at {
                At::All { humble } => {
                    // While it is not known that a majority answers a place would be one in which nobody is served.
                    let queue = (!lacks).then(|| self.lowest());
                    let (end, place) = self.ask(None, queue, humble).await;
                    match self.ended(end).await? {
                        Some(next) => next,
                        None => {
                            self.shared.contend(name);
                            // An outage is waited over by those who have waited before it (SAFETY E8). Whoever comes into one has
                            // nothing to wait for: he comes again, until it is one.
                            lacks = self.unreached() && self.heard().is_none();
                            let hand = queue.filter(|queue| self.entry.has(*queue) && !lacks);
                            // A place is not given up with what the others gave.
                            let keep = hand.or(queue.filter(|_| place.is_some() && !lacks));
                            self.shared.undo(&self.entry, keep, false).await;
                            if let Some(error) = self.definite() {
                                return Err(error);
                            }
                            match (place, hand) {
                                (Some(place), _) if !lacks => Next::At(At::Place(place)),
                                _ if self.is_outage() => return self.refusal().await,
                                (_, Some(queue)) => Next::At(self.in_hand(queue, 0, self.shared.now()).await),
                                _ => match self.in_the_way() {
                                    Some(node) if !self.unreached() => Next::At(At::Queue(node)),
                                    _ => Next::Anew,
                                },
                            }
                        }
                    }
                }
                At::Queue(node) => match self.queue(node) {
                    Some(place) => Next::At(At::Place(place)),
                    None => Next::Ends(Outcome::Displaced),
                },
                At::Place(place) => self.stand(place).await?,
                At::Hand { node, tries, since } => {
                    let end = self.ask(Some(node), None, true).await.0;
                    match self.ended(end).await? {
                        Some(next) => next,
                        None => {
                            let keep = Some(node).filter(|_| !self.is_outage());
                            self.shared.undo(&self.entry, keep, false).await;
                            if let Some(error) = self.definite() {
                                return Err(error);
                            }
                            if keep.is_none() {
                                return self.refusal().await;
                            }
                            Next::At(self.in_hand(node, tries, since).await)
                        }
                    }
                }
            };
            at = match next {
                Next::At(at) => at,
                Next::Ends(outcome) => return Ok(outcome),
                Next::Anew => self.start_over(&mut misses).await,
            };
        }
    }
    /// What a question that is not lost leads to.
    async fn ended(&mut self, end: End) -> Result<Option<Next>> {
        Ok(Some(match end {
            End::Won => self.win().await?.map_or(Next::Anew, Next::Ends),
            End::Over => Next::Ends(Outcome::Displaced),
            End::Stopped => Next::Ends(self.stopped().await?),
            End::Lost => return Ok(None),
        }))
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
            self.before = self.said();
            self.busy.clear();
        }
        self.failed.clear();
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
        let (until, mut in_queue) = (tokio::time::Instant::now() + self.limit(), false);
        let mut late = std::pin::pin!(sleep_until(until));
        let (began, mut settled, mut heeds) = (self.shared.now(), None, false);
        let tries = !self.request.wait() && hand.is_none();
        let known = self.shared.is_contended(self.request.name());
        let end = loop {
            if !in_queue && queued() {
                in_queue = true;
                if let (Some(node), Some(busy)) = (queue, queue.and_then(part).and_then(Request::last_report)) {
                    self.shared.answers(node);
                    ballot.cast(node, if humble { Vote::Veto } else { Vote::No });
                    self.busy.push((node, busy.in_whole(self.request.hold())));
                }
            }
            // A reader who heeds a writer is refused by one, and what the others are about to give him goes with the answer.
            let end = match ballot.verdict() {
                Verdict::Won => Some(End::Won),
                // Of those who come at once it matters who has the lowest.
                Verdict::Lost if tries && self.blocker().is_none() && self.shared.awaits(&gather, self.lowest()) => {
                    Some(End::Lost)
                }
                Verdict::Lost if !reads => break End::Lost,
                Verdict::Lost => Some(End::Lost),
                Verdict::Open => None,
            };
            if let Some(end) = end {
                // Those who wait may be where nobody has spoken yet: they are passed only if that one is silent.
                let silent = |node: &usize| self.shared.is_suspect(*node) || !gather.asks(*node);
                heeds = end == End::Won && !in_queue && (reads || known) && veto.is_some_and(|node| !silent(&node));
                if !heeds && !self.shared.worth(&gather, queue.filter(|_| in_queue)) {
                    break end;
                }
                let (since, took) =
                    *settled.get_or_insert_with(|| (tokio::time::Instant::now(), began.until(self.shared.now())));
                let moment = Shared::moment(took);
                late.as_mut().reset(since + if heeds { moment.max(FIRST_WORD) } else { moment });
            } else if settled.take().is_some() {
                // The place that was a no has become a grant, or nothing.
                heeds = false;
                late.as_mut().reset(until);
            }
            tokio::select! {
                biased;
                () = self.request.stopped() => return (End::Stopped, None),
                answers = gather.some(|| !in_queue && queued()) => for (node, answer) in answers {
                    if let Some(request) = part(node) {
                        self.shared.in_time(node, true);
                        let failed = answer.is_err();
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
                        if heeds && veto == Some(*node) {
                            self.shared.suspect(*node);
                        }
                        if settled.is_none() {
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
        let mut place = None;
        self.open.clear();
        for (node, call) in gather.rest() {
            let Some(request) = part(node).cloned() else { continue };
            self.open.push(node);
            match end {
                // Also one that has not been told yet: elsewhere he would be in another queue than those before and behind him.
                End::Lost if queue == Some(node) => place = Some(Place { node, request, call }),
                End::Won if in_queue && queue == Some(node) => self.leave(node, &request),
                End::Won => self.adopt_late(node, request, call),
                _ => self.leave(node, &request),
            }
        }
        (end, place)
    }
    /// An answer; true: it has granted.
    pub(super) fn hear(&mut self, node: usize, request: &Request, answer: Result<Outcome>) -> bool {
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
                self.busy.push((node, busy.in_whole(self.request.hold())));
                return false;
            }
            Ok(Outcome::Busy(_) | Outcome::Displaced) => self.shared.answers(node),
            Err(error) => {
                if error.is_temporary()
                    || matches!(error.kind(), ErrorKind::InvalidConfig | ErrorKind::PermissionDenied)
                {
                    self.shared.suspect(node);
                }
                // It may have been silent before.
                self.failed.retain(|(of, _)| *of != node);
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
                // In its queue there is no answer.
                Err(_) if request.is_queued() => shared.answers(node),
                Err(_) => shared.suspect(node),
            }
            entry.closed(node, request.hold());
        });
    }
    pub(super) fn leave(&self, node: usize, request: &Request) {
        self.entry.closed(node, request.hold());
        self.shared.owe(node, request.clone());
    }

    /// The lowest that is not known to be silent.
    pub(super) fn lowest(&self) -> usize {
        (0..self.shared.nodes.len()).find(|node| !self.shared.is_suspect(*node)).unwrap_or(0)
    }
    /// Who keeps us from a majority by himself: the lowest of his nodes, and how long his lease runs.
    fn blocker(&self) -> Option<(usize, Duration)> {
        let held = self.busy.iter().filter_map(|(node, busy)| Some((*node, busy.holder.as_deref()?)));
        let (nodes, holder) = say::strongest(held.collect())?;
        (nodes.len() >= self.blocks()).then(|| (nodes[0], holder.left))
    }
    /// Where to wait: for him, or else for whoever has the lowest; there, too, where nobody has said who it is.
    fn in_the_way(&self) -> Option<usize> {
        let lowest = || self.busy.iter().map(|(node, _)| *node).min();
        let open = self.open.iter().copied().find(|node| !self.shared.is_suspect(*node));
        let known = self.blocker().map(|(node, _)| node).or_else(lowest)?;
        Some(open.map_or(known, |open| open.min(known)))
    }
}
