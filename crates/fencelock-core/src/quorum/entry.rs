//! What this client has on the nodes: of each attempt and of the hold that came of it.
use super::ballot::nth_largest;
use crate::{
    clock::Moment,
    hold::counted,
    types::{Claim, Grant, HoldId, Lease, LossReason, Request, Spread, Token},
};
use std::{
    collections::HashMap,
    hash::BuildHasherDefault,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// All of them, by the hold id that core minted.
#[derive(Debug, Default)]
pub(super) struct Table(Mutex<HashMap<HoldId, Arc<Entry>, BuildHasherDefault<Spread>>>);
impl Table {
    fn map(&self) -> MutexGuard<'_, HashMap<HoldId, Arc<Entry>, BuildHasherDefault<Spread>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(super) fn open(&self, whole: &Request, nodes: usize, drift: f64) -> Arc<Entry> {
        // A call that is repeated goes on where the one before was.
        self.map().entry(whole.hold()).or_insert_with(|| Arc::new(Entry::new(whole.clone(), nodes, drift))).clone()
    }
    /// The hold of this grant, by its id and its token (SAFETY A1).
    pub(super) fn of(&self, grant: &Grant) -> Option<Arc<Entry>> {
        self.get(grant.hold).filter(|entry| entry.whole.hold() == grant.hold && entry.token() == Some(grant.token))
    }
    pub(super) fn get(&self, hold: HoldId) -> Option<Arc<Entry>> {
        self.map().get(&hold.whole()).cloned()
    }
    pub(super) fn remove(&self, hold: HoldId) -> Option<Arc<Entry>> {
        self.map().remove(&hold.whole())
    }
    /// Forgets those whose leases ended long ago: of a hold that was lost by the clock nobody says so here.
    pub(super) fn prune(&self, now: Moment) {
        self.map().retain(|_, entry| entry.may_be_there(now));
    }
}

/// Questions below, re-creations from here on.
const MENDED: u8 = 128;

/// One attempt, and the hold that came of it.
#[derive(Debug)]
pub(super) struct Entry {
    /// As core asked.
    pub(super) whole: Request,
    /// Of the nodes' clocks.
    drift: f64,
    state: Mutex<State>,
    rested: Notify,
}
#[derive(Debug)]
struct State {
    stage: Stage,
    parts: Vec<Part>,
    /// How often the nodes have been asked: each time under a hold id of its own.
    asked: u8,
    mended: u8,
    /// Re-creations under way.
    mending: usize,
    /// Its claim has become another one, or may have.
    changed: bool,
    /// As it was granted.
    token: Option<Token>,
    /// The last answer to core: its validity counts from there.
    reported: Moment,
    /// Until then core counts on it, if it is told of no loss.
    counts: Moment,
    /// The latest end of a lease of ours.
    until: Moment,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asking,
    Held,
    /// It is given back: what comes now is not kept.
    Over,
    /// Neither is it here: no majority had it any more while it was held.
    Lost,
}
impl Stage {
    fn is_over(self) -> bool {
        matches!(self, Self::Over | Self::Lost)
    }
}
/// What one node has of it.
#[derive(Debug, Default)]
struct Part {
    piece: Option<Piece>,
    /// Until then its lease counts, which begins anew with each renewal.
    counts: Option<Moment>,
    /// What may be there, or may come, and nobody has heard of it.
    open: Vec<Request>,
    /// What was there is not any more.
    end: Option<Ended>,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Gone(LossReason),
    Released,
}
/// A grant of one node.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) request: Request,
    pub(super) grant: Grant,
    pub(super) sent_at: Moment,
}
/// What a majority has granted.
pub(super) struct Standing {
    pub(super) token: Token,
    pub(super) sent_at: Moment,
    pub(super) server_micros: i64,
}

impl Entry {
    fn new(whole: Request, nodes: usize, drift: f64) -> Self {
        let parts = (0..nodes).map(|_| Part::default()).collect();
        let (stage, token, zero) = (Stage::Asking, None, Moment::ZERO);
        let (asked, mended, mending, changed) = (0, MENDED, 0, false);
        let (reported, counts, until) = (zero, zero, zero);
        let state = State { stage, parts, asked, mended, mending, changed, token, reported, counts, until };
        Self { whole, drift, state: Mutex::new(state), rested: Notify::new() }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The number of the next question. `None`: there are no more ids.
    pub(super) fn next(&self) -> Option<u8> {
        let mut state = self.state();
        let n = state.asked;
        state.asked = (n + 1).min(MENDED);
        (n < MENDED).then_some(n)
    }
    /// The number of the next re-creation. They go round: the one before has long been answered, or undone.
    pub(super) fn next_mended(&self) -> u8 {
        let mut state = self.state();
        let n = state.mended;
        state.mended = n.checked_add(1).unwrap_or(MENDED);
        n
    }
    /// A node is about to be asked. `None`: it is over.
    pub(super) fn ask(&self, node: usize, n: u8, wait: bool, floor: Option<Token>) -> Option<Request> {
        let mut state = self.state();
        if state.stage.is_over() {
            return None;
        }
        let request = self.whole.part(n, wait, floor);
        state.parts[node].open.push(request.clone());
        Some(request)
    }
    /// A node has granted. False: it is over, or has changed, or this part of it is lost already, and the grant is to be given back.
    pub(super) fn granted(&self, node: usize, request: &Request, grant: &Grant) -> bool {
        let mut state = self.state();
        let Lease::Own { sent_at } = grant.lease else { return false };
        let over = state.stage.is_over() || state.changed;
        let part = &mut state.parts[node];
        let open = part.close(request.hold());
        if over || !open {
            return false;
        }
        part.end = None;
        part.piece = Some(Piece { request: request.clone(), grant: grant.clone(), sent_at });
        part.counts = Some(sent_at + counted(grant.ttl, self.drift));
        state.until = state.until.max(sent_at + grant.ttl);
        true
    }
    /// A node has answered that nothing of this question is there.
    pub(super) fn closed(&self, node: usize, hold: HoldId) {
        self.state().parts[node].close(hold);
    }
    /// What is there is about to be put under another id: until that is answered it may be there under either.
    pub(super) fn moving(&self, node: usize) -> Option<Piece> {
        let mut state = self.state();
        let part = &mut state.parts[node];
        let piece = part.piece.take()?;
        part.open.push(piece.request.clone());
        Some(piece)
    }
    pub(super) fn pieces(&self) -> Vec<(usize, Piece)> {
        let state = self.state();
        let piece = |(node, part): (usize, &Part)| part.piece.clone().map(|piece| (node, piece));
        state.parts.iter().enumerate().filter_map(piece).collect()
    }
    pub(super) fn tokens(&self) -> Vec<i64> {
        let state = self.state();
        state.parts.iter().filter_map(|part| part.piece.as_ref()).map(|piece| piece.grant.token.get()).collect()
    }
    /// Takes out what a node has of it, to be given back.
    pub(super) fn take(&self, node: usize) -> (Option<Piece>, Vec<Request>) {
        let mut state = self.state();
        let part = &mut state.parts[node];
        (part.piece.take(), std::mem::take(&mut part.open))
    }
    /// A node says that it does not have this any more. While it is being given back that says nothing: a renewal beside a release finds
    /// what the release has taken away, and whether it was held is for the release to say.
    pub(super) fn gone(&self, node: usize, hold: HoldId, reason: LossReason) -> bool {
        let mut state = self.state();
        let over = state.stage.is_over();
        let part = &mut state.parts[node];
        part.close(hold);
        let ours = !over && part.piece.as_ref().is_some_and(|piece| piece.request.hold() == hold);
        if ours {
            (part.piece, part.end) = (None, Some(Ended::Gone(reason)));
        }
        ours
    }
    /// A node has answered to a release of this.
    pub(super) fn ended(&self, node: usize, hold: HoldId, end: Ended) {
        let mut state = self.state();
        let part = &mut state.parts[node];
        if part.piece.as_ref().is_some_and(|piece| piece.request.hold() == hold) {
            (part.piece, part.end) = (None, Some(end));
        }
    }
    /// How many nodes have a part of it, and how many have given it back.
    pub(super) fn count(&self) -> (usize, usize) {
        let state = self.state();
        let count = |which: fn(&Part) -> bool| state.parts.iter().filter(|part| which(part)).count();
        (count(|part| part.piece.is_some()), count(|part| part.end == Some(Ended::Released)))
    }
    /// Until when so many nodes have it, if none is heard of any more. *Invariant (Q):* a part counts while its lease does: of a node that is
    /// silent nobody knows who has it after that.
    pub(super) fn stands(&self, need: usize) -> Moment {
        self.state().stands(need)
    }
    /// The same, if it is before what core knows of, and so a loss to be told then.
    pub(super) fn falls(&self, need: usize) -> Option<Moment> {
        let state = self.state();
        let stands = state.stands(need);
        (state.stage == Stage::Held && stands < state.counts).then_some(stands)
    }
    /// Core is told that it was sent then, by this length.
    pub(super) fn told(&self, sent_at: Moment, ttl: Duration) {
        let mut state = self.state();
        state.counts = state.counts.max(sent_at + counted(ttl, self.drift));
    }
    pub(super) fn has(&self, node: usize) -> bool {
        self.state().parts[node].piece.is_some()
    }
    /// Why a node does not have its part any more.
    pub(super) fn why_gone(&self) -> Option<LossReason> {
        self.state().parts.iter().find_map(|part| match part.end {
            Some(Ended::Gone(reason)) => Some(reason),
            Some(Ended::Released) | None => None,
        })
    }
    /// A node has extended this.
    pub(super) fn extended(&self, node: usize, hold: HoldId, sent_at: Moment, ttl: Duration) {
        let mut state = self.state();
        let (least, part) = (self.whole.ttl(), &mut state.parts[node]);
        if let Some(piece) = part.piece.as_mut().filter(|piece| piece.request.hold() == hold) {
            if ttl >= least {
                piece.sent_at = piece.sent_at.max(sent_at);
            }
            part.counts = part.counts.max(Some(sent_at + counted(ttl, self.drift)));
            state.until = state.until.max(sent_at + ttl);
        }
    }
    /// It is held from now on, if so many nodes have it; where tokens order, with this one (SAFETY T4). *Invariant (Q):* its
    /// time counts from what so many of them say at least.
    pub(super) fn hold(&self, need: usize, token: Token) -> Option<Standing> {
        let mut state = self.state();
        if state.stage.is_over() {
            return None;
        }
        let exclusive = self.whole.claim().is_exclusive();
        let pieces = state.parts.iter().filter_map(|part| part.piece.as_ref());
        let counts: Vec<_> = pieces.filter(|piece| !exclusive || piece.grant.token == token).collect();
        let sent_at = nth_largest(counts.iter().map(|piece| piece.sent_at), need)?;
        // One clock that is far ahead is not followed.
        let server_micros = nth_largest(counts.iter().map(|piece| piece.grant.server_micros), need).unwrap_or(0);
        (state.stage, state.token, state.reported) = (Stage::Held, Some(token), sent_at);
        state.counts = sent_at + counted(self.whole.ttl(), self.drift);
        Some(Standing { token, sent_at, server_micros })
    }
    /// From when its time counts by all that is known, if that is later than core knows.
    pub(super) fn news(&self, need: usize) -> Option<Moment> {
        let mut state = self.state();
        let known = state.parts.iter().filter_map(|part| part.piece.as_ref()).map(|piece| piece.sent_at);
        let sent_at = nth_largest(known, need).filter(|sent_at| *sent_at > state.reported)?;
        state.reported = sent_at;
        Some(sent_at)
    }
    /// The claim of a hold has become another one on this node.
    pub(super) fn claims(&self, node: usize, hold: HoldId, claim: Claim) {
        if let Some(piece) = self.state().parts[node].piece.as_mut().filter(|piece| piece.request.hold() == hold) {
            piece.grant.claim = claim;
        }
    }
    /// Nothing that comes from now on is kept.
    pub(super) fn end(&self) {
        let mut state = self.state();
        if !state.stage.is_over() {
            state.stage = Stage::Over;
        }
    }
    /// It ends since no majority has it. Who was on his way meanwhile is told so, too.
    pub(super) fn lose(&self) {
        let mut state = self.state();
        state.stage = match state.stage {
            Stage::Asking | Stage::Over => Stage::Over,
            Stage::Held | Stage::Lost => Stage::Lost,
        };
    }
    /// No majority having it is a loss, and was not the end of a release.
    pub(super) fn may_be_lost(&self) -> bool {
        matches!(self.state().stage, Stage::Held | Stage::Lost)
    }
    pub(super) fn is_held(&self) -> bool {
        self.state().stage == Stage::Held
    }
    /// Its token, once it was held.
    pub(super) fn token(&self) -> Option<Token> {
        self.state().token
    }
    /// What may still stand in a queue somewhere.
    pub(super) fn queued(&self) -> Vec<(usize, Request)> {
        let mut state = self.state();
        let mut queued = Vec::new();
        for (node, part) in state.parts.iter_mut().enumerate() {
            let (wait, open) = std::mem::take(&mut part.open).into_iter().partition(Request::wait);
            part.open = open;
            let wait: Vec<Request> = wait;
            queued.extend(wait.into_iter().map(|request| (node, request)));
        }
        queued
    }
    /// Which nodes have nothing of it, and are not being asked.
    pub(super) fn without(&self) -> Vec<usize> {
        let state = self.state();
        let bare = |part: &Part| part.piece.is_none() && part.open.is_empty();
        state.parts.iter().enumerate().filter(|(_, part)| bare(part)).map(|(node, _)| node).collect()
    }
    /// From now on nothing of it is made anew: it would be made as what it was. *Invariant (SAFETY E1):* a part that a writer has given up
    /// does not come back, nor does one of a reader beside nodes where it may be a writer's still.
    pub(super) fn change(&self) {
        self.state().changed = true;
    }
    /// A re-creation begins. False: it is over, or may not be.
    pub(super) fn mend(&self) -> bool {
        let mut state = self.state();
        let held = state.stage == Stage::Held && !state.changed;
        state.mending += usize::from(held);
        held
    }
    pub(super) fn mended(&self) {
        self.state().mending -= 1;
        self.rested.notify_waiters();
    }
    /// Resolves when no re-creation is under way.
    pub(super) async fn rests(&self) {
        let mut rested = pin!(self.rested.notified());
        loop {
            rested.as_mut().enable();
            if self.state().mending == 0 {
                return;
            }
            rested.as_mut().await;
            rested.set(self.rested.notified());
        }
    }
    fn may_be_there(&self, now: Moment) -> bool {
        let state = self.state();
        state.stage == Stage::Asking || now < state.until + self.whole.ttl() + Duration::from_secs(1)
    }
}
impl State {
    fn stands(&self, need: usize) -> Moment {
        let each = self.parts.iter().filter_map(|part| part.piece.as_ref().and(part.counts));
        nth_largest(each, need).unwrap_or(Moment::ZERO)
    }
}
impl Part {
    /// Nothing of this question is open any more. False: it was not.
    fn close(&mut self, hold: HoldId) -> bool {
        let before = self.open.len();
        self.open.retain(|request| request.hold() != hold);
        self.open.len() < before
    }
}
