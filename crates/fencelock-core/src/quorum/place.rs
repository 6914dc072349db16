//! Standing in the queue of one node.
use super::{
    attempt::{At, Attempt, FIRST_WORD, Next},
    gather::{Call, Gather},
    nodes::silent,
    say,
};
use crate::{
    error::Result,
    types::{HoldId, Outcome, Request, Status},
};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A place of which a node does not speak for so long, though it answers, is none.
const NO_WORD: Duration = Duration::from_secs(1);
/// When a waiter looks around for the first time, and how often later.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_LATER: Duration = Duration::from_millis(1_000);

/// A place in the queue of a node, or what was sent for one.
pub(super) struct Place {
    pub(super) node: usize,
    pub(super) request: Request,
    pub(super) call: Call<Result<Outcome>>,
}
/// What a look around says.
enum Look {
    Stay,
    /// A majority is free: what this one has left here is in the way.
    Free(HoldId),
    /// The queue does not answer.
    Silent,
    /// No majority has answered since this one came: nobody is served here.
    Alone,
    /// This one holds the lock, and not here, but there.
    Move(HoldId, usize),
}

impl Attempt<'_> {
    /// Asks one node alone, and queues there.
    pub(super) fn queue(&mut self, node: usize) -> Option<Place> {
        let n = self.entry.next()?;
        let request = self.entry.ask(node, n, true, self.floor())?;
        let (engine, part) = (self.shared.nodes[node].engine.clone(), request.clone());
        Some(Place { node, request, call: Box::pin(async move { engine.acquire(&part).await }) })
    }
    fn entered(&mut self, node: usize, request: &Request, answer: Result<Outcome>) -> Next {
        if request.is_queued() {
            self.shared.contend(request.name());
        }
        if self.hear(node, request, answer) {
            return Next::At(At::Hand { node, tries: 0, since: self.shared.now() });
        }
        Next::Anew
    }
    /// Waits in a queue. A node that does not say whether one is there is silent if the others are quicker to be looked at: where all are
    /// slow, whoever left it would be in another queue than those before and behind him.
    pub(super) async fn stand(&mut self, mut place: Place) -> Result<Next> {
        let is_queued = |place: &Place| place.request.is_queued();
        let (mut look, mut limit) = (if is_queued(&place) { LOOK } else { FIRST_WORD }, FIRST_WORD);
        let (mut before, came) = (None, self.shared.now());
        if is_queued(&place) {
            self.shared.contend(self.request.name());
        }
        loop {
            tokio::select! {
                biased;
                () = self.request.stopped() => return Ok(Next::Ends(self.stopped().await?)),
                answer = &mut place.call => return Ok(self.entered(place.node, &place.request, answer)),
                () = sleep(look.mul_f64(0.9 + 0.2 * fastrand::f64())) => {}
            }
            let queued = is_queued(&place);
            if queued {
                self.shared.contend(self.request.name());
            }
            (look, limit) = if queued { (LOOK_LATER, self.limit()) } else { (LOOK, limit) };
            let seen = tokio::select! {
                biased;
                () = self.request.stopped() => return Ok(Next::Ends(self.stopped().await?)),
                answer = &mut place.call => return Ok(self.entered(place.node, &place.request, answer)),
                seen = self.look(place.node, limit) => seen,
            };
            let no_word = || came.until(self.shared.now()) > NO_WORD.max(self.limit());
            let next = match seen {
                // It has said so meanwhile.
                Look::Silent if !queued && is_queued(&place) => continue,
                Look::Stay if !is_queued(&place) && no_word() => {
                    self.shared.suspect(place.node);
                    At::All { humble: true }
                }
                Look::Free(hold) | Look::Move(hold, _) if before != Some(hold) => {
                    before = Some(hold);
                    look = FIRST_WORD;
                    continue;
                }
                Look::Stay => {
                    (before, limit) = (None, self.limit());
                    continue;
                }
                Look::Free(_) => At::All { humble: false },
                Look::Move(_, node) => At::Queue(node),
                Look::Alone if !self.is_outage() || limit < self.limit() => {
                    (look, limit) = (LOOK, self.limit());
                    continue;
                }
                Look::Alone => {
                    self.leave(place.node, &place.request);
                    return Ok(Next::Ends(self.refusal().await?));
                }
                Look::Silent => {
                    self.shared.suspect(place.node);
                    At::All { humble: true }
                }
            };
            self.leave(place.node, &place.request);
            return Ok(Next::At(next));
        }
    }
    /// Looks whether this is still where to wait.
    async fn look(&mut self, here: usize, limit: Duration) -> Look {
        let (mut gather, name) = (Gather::default(), self.request.name());
        for (node, of) in self.shared.nodes.iter().enumerate() {
            let (engine, name) = (of.engine.clone(), name.clone());
            gather.ask(node, async move { timeout(limit, engine.inspect(&name)).await });
        }
        let mut seen: Vec<(usize, Status)> = Vec::new();
        self.failed.clear();
        for (node, answer) in gather.all().await {
            match answer.unwrap_or_else(|_| Err(silent("lock"))) {
                Ok(status) => {
                    self.shared.answers(node);
                    seen.push((node, status));
                }
                Err(error) => self.failed.push((node, error)),
            }
        }
        let held: Vec<_> = seen.iter().flat_map(|(node, at)| at.holders.iter().map(|holder| (*node, holder))).collect();
        let free = seen.iter().filter(|(node, at)| *node != here && !at.is_held()).count();
        // His own is a grant that he has not heard of.
        let other = |hold: &HoldId| *hold != self.request.hold().whole();
        let left = held.iter().find(|(node, _)| *node == here).map(|(_, holder)| holder.hold.whole()).filter(other);
        if !seen.iter().any(|(node, _)| *node == here) {
            // Where all are slow, it is the shorter of two limits that was too short.
            if seen.len() >= self.shared.need() || limit >= self.limit() { Look::Silent } else { Look::Stay }
        } else if self.heard().is_none() {
            Look::Alone
        } else if free >= self.shared.need() {
            left.map_or(Look::Stay, Look::Free)
        } else {
            match say::strongest(held) {
                Some((nodes, holder))
                    if nodes.len() >= self.blocks() && !nodes.contains(&here) && other(&holder.hold.whole()) =>
                {
                    Look::Move(holder.hold.whole(), nodes[0])
                }
                _ => Look::Stay,
            }
        }
    }
}
