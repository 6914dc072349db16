//! What the nodes have said, as one answer.
use super::{ballot::nth_largest, nodes::Shared};
use crate::{
    error::{Error, ErrorKind},
    types::{Busy, Claim, Holder, Kind, Name, Status, Token, Waiter},
};
use std::{collections::BTreeMap, sync::Arc};

/// What most of them are; of several the largest.
pub(super) fn commonest<T: Ord + Copy>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut times: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *times.entry(value).or_default() += 1;
    }
    times.into_iter().max_by_key(|(_, times)| *times).map(|(value, _)| value)
}
/// Who is in the way, and where somebody holds it.
pub(super) fn busy(shared: &Shared, busy: &[(usize, Busy)]) -> Busy {
    let held: Vec<(usize, &Holder)> =
        busy.iter().filter_map(|(node, busy)| Some((*node, busy.holder.as_deref()?))).collect();
    let holder = strongest(held.clone()).map(|(_, most)| one(held.iter().map(|(_, holder)| *holder), most));
    let mut answer = Busy::new(holder, busy.iter().filter_map(|(_, busy)| busy.ahead).max());
    let mut nodes: Vec<usize> = held.iter().map(|(node, _)| *node).collect();
    nodes.sort_unstable();
    answer.nodes = nodes.into_iter().map(|node| shared.label(node).into()).collect();
    answer
}
/// One holder, of what several nodes say of him.
fn one<'a>(all: impl Iterator<Item = &'a Holder> + Clone, most: &Holder) -> Holder {
    let same = all.filter(|holder| holder.hold.whole() == most.hold.whole());
    let token = commonest(same.clone().map(|holder| holder.token)).unwrap_or(most.token);
    let left = same.clone().map(|holder| holder.left).max().unwrap_or(most.left);
    let held_for = same.clone().map(|holder| holder.held_for).max().unwrap_or(most.held_for);
    // What was a writer's on a node that is late, or silent, is a reader's where most have heard of it.
    let of = |claim: Claim| same.clone().filter(|holder| holder.claim == claim).count();
    let claim = same.clone().map(|holder| holder.claim).max_by_key(|claim| of(*claim)).unwrap_or(most.claim);
    Holder { hold: most.hold.whole(), claim, token, left, held_for, ..most.clone() }
}
/// Too few have answered; each says why.
pub(super) fn unreachable(operation: &'static str, shared: &Shared, failed: &[(usize, Error)]) -> Error {
    let (of, need) = (shared.nodes.len(), shared.need());
    let few = format!("{} of {of} nodes cannot be used, and {need} have to agree", failed.len());
    let mut failed: Vec<_> = failed.iter().collect();
    failed.sort_unstable_by_key(|(node, _)| *node);
    let each =
        |error: Error, (node, why): &(usize, Error)| error.with("node", format!("{}: {why}", shared.label(*node)));
    failed.into_iter().fold(Error::new(ErrorKind::Unreachable, operation, few), each)
}
/// One lock, of what the nodes say of it that have answered. Of the others it is not known who holds there: whoever may have a majority
/// with them is shown. Part of a hold that can be none is not.
pub(super) fn status(name: &Name, shared: &Shared, seen: &[(usize, Status)]) -> Status {
    let unknown = shared.nodes.len() - seen.len();
    let all = || seen.iter().flat_map(|(node, at)| at.holders.iter().map(move |holder| (*node, holder)));
    let mut holders: Vec<Holder> = Vec::new();
    for (_, holder) in all() {
        let nodes = all().filter(|(_, other)| other.hold.whole() == holder.hold.whole()).count();
        if nodes + unknown >= shared.need() && !holders.iter().any(|known| known.hold == holder.hold.whole()) {
            holders.push(one(all().map(|(_, holder)| holder), holder));
        }
    }
    holders.sort_by(|a, b| b.held_for.cmp(&a.held_for).then(a.hold.cmp(&b.hold)));
    let mut waiters: Vec<Waiter> = Vec::new();
    for waiter in seen.iter().flat_map(|(_, at)| &at.waiters) {
        let hold = waiter.hold.whole();
        if !waiters.iter().any(|known| known.hold == hold) && !holders.iter().any(|holder| holder.hold == hold) {
            waiters.push(Waiter { hold, ..waiter.clone() });
        }
    }
    waiters.sort_by(|a, b| b.waiting_for.cmp(&a.waiting_for).then(a.hold.cmp(&b.hold)));
    let kind = |kind: Option<Kind>| kind.filter(|_| !holders.is_empty() || !waiters.is_empty());
    Status {
        name: name.clone(),
        kind: kind(holders.first().map(|h| h.claim.kind()).or_else(|| waiters.first().map(|w| w.claim.kind()))),
        capacity: None,
        // A majority has at least this one.
        last_token: last_token(seen, shared.need()),
        holders,
        waiters,
    }
}
/// Whether whoever is on a majority has one token there. Those of readers are not made one.
pub(super) fn is_written(shared: &Shared, seen: &[(usize, Status)]) -> bool {
    let all = || seen.iter().flat_map(|(_, at)| &at.holders);
    all().filter(|holder| holder.claim.is_exclusive()).all(|holder| {
        let same = || all().filter(|other| other.hold.whole() == holder.hold.whole());
        let alike = |token| same().filter(|other| other.token == token).count();
        same().count() < shared.need() || same().any(|other| alike(other.token) >= shared.need())
    })
}
fn last_token(seen: &[(usize, Status)], need: usize) -> Option<Token> {
    let tokens: Vec<Option<Token>> = seen.iter().map(|(_, at)| at.last_token).collect();
    nth_largest(tokens, need).flatten()
}
/// What is said of several stores that are one.
pub(super) fn together<'a>(words: impl Iterator<Item = &'a str>) -> Arc<str> {
    words.collect::<Vec<_>>().join(",").into()
}
/// Who is named by most nodes: which, the lowest first, and as whom.
pub(super) fn strongest(held: Vec<(usize, &Holder)>) -> Option<(Vec<usize>, &Holder)> {
    let nodes = |of: &Holder| -> Vec<usize> {
        held.iter().filter(|(_, holder)| holder.hold.whole() == of.hold.whole()).map(|(node, _)| *node).collect()
    };
    let (_, most) = held.iter().max_by_key(|(node, holder)| (nodes(holder).len(), std::cmp::Reverse(*node)))?;
    let mut of = nodes(most);
    of.sort_unstable();
    Some((of, *most))
}
/// What is told to a reader while nobody writes, and somebody waits to. Of nobody who waits: it is something else, a row that is locked, say.
pub(super) fn is_of_a_writer(busy: &Busy) -> bool {
    busy.ahead.is_some_and(|ahead| ahead > 0) && busy.holder.as_ref().is_none_or(|holder| !holder.claim.is_exclusive())
}
