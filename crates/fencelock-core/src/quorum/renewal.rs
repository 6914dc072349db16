//! Renewals: on all nodes at once, and answered as soon as a majority has.
use super::{
    ballot::nth_largest,
    entry::{Entry, Piece},
    gather::Gather,
    nodes::{Owed, Shared},
};
use crate::{
    clock::Moment,
    error::{Error, ErrorKind, Result},
    types::{Grant, HoldId, Lease, LossReason, Outcome, Renewed, Request, Token},
};
use std::sync::Arc;
use tokio::time::{sleep, timeout};

/// What one node is asked to renew: whose part, and as what.
struct Ask {
    at: usize,
    entry: Arc<Entry>,
    hold: HoldId,
    grant: Grant,
}
/// What is known of one hold.
struct Known {
    entry: Option<Arc<Entry>>,
    /// Who has answered well, and when that was sent.
    fresh: Vec<(usize, Moment)>,
    /// Nodes that have not answered.
    open: usize,
}

pub(super) async fn renew(shared: &Arc<Shared>, grants: &[Grant]) -> Result<Vec<Renewed>> {
    let mut asks: Vec<Vec<Ask>> = shared.nodes.iter().map(|_| Vec::new()).collect();
    let mut known: Vec<Known> = Vec::with_capacity(grants.len());
    for (at, grant) in grants.iter().enumerate() {
        let entry = shared.table.of(grant).filter(|entry| entry.is_held());
        let pieces = entry.as_ref().map(|entry| entry.pieces()).unwrap_or_default();
        known.push(Known { entry: entry.clone(), fresh: Vec::new(), open: pieces.len() });
        for (node, piece) in pieces {
            let Some(entry) = entry.clone() else { continue };
            let hold = piece.request.hold();
            asks[node].push(Ask { at, entry, hold, grant: Grant { ttl: grant.ttl, ..piece.grant } });
        }
    }
    let shortest = grants.iter().map(|grant| grant.ttl).filter(|ttl| !ttl.is_zero()).min();
    let shortest = shortest.unwrap_or_else(|| super::default_ttl(shared));
    // Less than core waits for all of them.
    let limit = Shared::patience(shortest).min(shortest / 7);
    let mut gather = Gather::default();
    for (node, asks) in asks.into_iter().enumerate().filter(|(_, asks)| !asks.is_empty()) {
        let shared = shared.clone();
        gather.ask(node, async move { one(&shared, node, asks).await });
    }
    let mut late = std::pin::pin!(sleep(limit));
    while !gather.is_empty() && known.iter().any(|known| known.verdict(shared, true).is_none()) {
        tokio::select! {
            biased;
            answers = gather.some(|| false) => for (node, told) in answers {
                for (at, sent_at) in told {
                    known[at].open -= 1;
                    known[at].fresh.extend(sent_at.map(|sent_at| (node, sent_at)));
                }
            },
            () = &mut late => break,
        }
    }
    // Their answers count for the next time.
    for (node, call) in gather.rest() {
        let shared = shared.clone();
        shared.clone().behind(async move {
            if timeout(limit, call).await.is_err() {
                shared.suspect(node);
            }
        });
    }
    let told = |(known, grant): (&Known, &Grant)| {
        let told = known.told(shared, grant);
        if let Some(entry) = &known.entry {
            match told {
                Renewed::Lost(_) => lost(shared, entry),
                Renewed::Extended { .. } if shared.recreates && known.fresh(entry).count() >= shared.need() => {
                    recreate(shared, entry, grant.token);
                }
                _ => {}
            }
        }
        told
    };
    Ok(known.iter().zip(grants).map(told).collect())
}
/// A repeat that finds its own hold: it has its full ttl again, and the same token (SAFETY G1). `None`: it is not held.
pub(super) async fn again(shared: &Arc<Shared>, request: &Request) -> Option<Result<Outcome>> {
    let token = shared.table.get(request.hold()).filter(|entry| entry.is_held())?.token()?;
    let (name, claim, hold, ttl) = (request.name().clone(), request.claim(), request.hold(), request.ttl());
    let lease = Lease::Own { sent_at: Moment::ZERO };
    let grant = Grant { name, claim, hold, token, ttl, lease, server_micros: 0, place: None };
    let renewed = renew(shared, std::slice::from_ref(&grant)).await;
    Some(renewed.and_then(|renewed| match renewed.first() {
        Some(Renewed::Extended { sent_at }) => {
            Ok(Outcome::Granted(Grant { lease: Lease::Own { sent_at: *sent_at }, ..grant }))
        }
        Some(Renewed::Lost(_)) => Ok(Outcome::Displaced),
        Some(Renewed::Unknown) | None => {
            let open = Error::new(ErrorKind::Ambiguous, "lock", "too few nodes have answered");
            Err(open.with("name", request.name()))
        }
    }))
}
/// One node's answers, each noted where it belongs: which were well, and sent when.
async fn one(shared: &Shared, node: usize, asks: Vec<Ask>) -> Vec<(usize, Option<Moment>)> {
    let grants: Vec<Grant> = asks.iter().map(|ask| ask.grant.clone()).collect();
    let answers = shared.nodes[node].engine.renew(&grants).await;
    let answers = answers.unwrap_or_default();
    let mut told = Vec::with_capacity(asks.len());
    for (n, ask) in asks.into_iter().enumerate() {
        let sent_at = match answers.get(n) {
            Some(Renewed::Extended { sent_at }) => {
                ask.entry.extended(node, ask.hold, *sent_at, ask.grant.ttl);
                Some(*sent_at)
            }
            Some(Renewed::Lost(reason)) => {
                shared.gone(&ask.entry, node, ask.hold, *reason);
                None
            }
            Some(Renewed::Unknown) | None => None,
        };
        told.push((ask.at, sent_at));
    }
    told
}
impl Known {
    /// What was taken away since it was extended does not count.
    fn fresh(&self, entry: &Entry) -> impl Iterator<Item = Moment> {
        self.fresh.iter().filter(|(node, _)| entry.has(*node)).map(|(_, sent_at)| *sent_at)
    }
    /// What is settled, while answers may still come, or when none will.
    fn verdict(&self, shared: &Shared, open: bool) -> Option<Result<(), LossReason>> {
        let need = shared.need();
        let Some(entry) = &self.entry else { return Some(Err(LossReason::TakenOver)) };
        if let Some(reason) = gone(shared, entry) {
            Some(Err(reason))
        } else if self.fresh(entry).count() >= need {
            Some(Ok(()))
        } else {
            // Nothing more will come: as it is.
            (open && self.open == 0).then_some(Ok(()))
        }
    }
    fn told(&self, shared: &Shared, grant: &Grant) -> Renewed {
        let Some(entry) = &self.entry else { return Renewed::Lost(LossReason::TakenOver) };
        if let Some(Err(reason)) = self.verdict(shared, false) {
            return Renewed::Lost(reason);
        }
        let need = shared.need();
        // By another length than its own, what counts is said by these answers alone.
        let sent_at = if grant.ttl == entry.whole.ttl() {
            entry.news(need).or_else(|| nth_largest(self.fresh(entry), need))
        } else {
            nth_largest(self.fresh(entry), need)
        };
        let Some(sent_at) = sent_at else { return Renewed::Unknown };
        entry.told(sent_at, grant.ttl);
        // A part of it may have gone meanwhile.
        shared.may_fall(entry);
        Renewed::Extended { sent_at }
    }
}
/// Why there can be no majority any more, if that is so. *Invariant (SAFETY T4):* what was lost and made anew counts from then on; once
/// no majority is left nothing is made anew.
pub(super) fn gone(shared: &Shared, entry: &Entry) -> Option<LossReason> {
    if entry.stands(shared.need()) > shared.now() {
        return None;
    }
    entry.why_gone().filter(|_| entry.may_be_lost())
}
/// It is no hold any more: what is left of it goes.
pub(super) fn lost(shared: &Arc<Shared>, entry: &Entry) {
    entry.lose();
    shared.table.remove(entry.whole.hold());
    for node in 0..shared.nodes.len() {
        let (piece, open) = entry.take(node);
        for request in open.into_iter().chain(piece.map(|piece| piece.request)) {
            shared.owe(node, request);
        }
    }
}
/// Asks those for their part that have none: they had lost it, or were not there (opt-in). It carries the token (SAFETY A2, T4), and a
/// release waits for it.
fn recreate(shared: &Arc<Shared>, entry: &Arc<Entry>, token: Token) {
    let nodes: Vec<usize> = entry.without().into_iter().filter(|node| !shared.is_suspect(*node)).collect();
    for node in nodes {
        if !entry.mend() {
            return;
        }
        let n = entry.next_mended();
        let mending = Mending(entry.clone());
        let (shared, floor) = (shared.clone(), Token::new(token.get() - 1));
        let Some(request) = entry.ask(node, n, false, floor) else { return };
        shared.clone().behind(async move {
            let (entry, engine) = (&mending.0, &shared.nodes[node].engine);
            let owed = Owed { shared: &shared, node, request: Some(request.clone()) };
            let limit = Shared::patience(entry.whole.ttl()).min(entry.whole.ttl() / 7);
            match timeout(limit, engine.acquire(&request)).await {
                Ok(Ok(Outcome::Granted(grant))) => {
                    owed.paid();
                    if !entry.granted(node, &request, &grant) {
                        let piece = Piece { sent_at: shared.now(), request, grant };
                        drop(shared.clone().give_back(node, piece, limit).await);
                    }
                }
                Ok(Ok(Outcome::Busy(_))) => {
                    entry.closed(node, request.hold());
                    owed.paid();
                }
                answer => {
                    if answer.is_err() {
                        shared.suspect(node);
                    }
                    entry.closed(node, request.hold());
                }
            }
        });
    }
}
/// A re-creation under way.
struct Mending(Arc<Entry>);
impl Drop for Mending {
    fn drop(&mut self) {
        self.0.mended();
    }
}
