//! What ends a hold, or an attempt: by its holder, by core, or by an operator.
use super::{
    entry::{Ended, Entry},
    gather::Gather,
    look,
    nodes::Shared,
    say,
};
use crate::{
    error::Result,
    types::{Grant, Holder, LossReason, Name, Outcome, Released, Request, Status, Token},
};
use std::sync::Arc;
use tokio::time::{sleep, timeout};

/// Gives a hold back on all nodes, and is done when so many have answered that it is known what it was. The lowest node goes last: whoever
/// waits is in its queue, and finds the others free.
///
/// *Invariant (Q):* a re-creation that is under way ends first, or what it makes would be nobody's.
pub(super) async fn release(shared: &Arc<Shared>, grant: &Grant) -> Result<Released> {
    let Some(entry) = shared.table.of(grant) else {
        let holder = look::inspect(shared, &grant.name).await.ok().and_then(|at| at.holders.into_iter().next());
        return Ok(Released::NotHeld { holder });
    };
    entry.end();
    let limit = Shared::patience(entry.whole.ttl());
    let _ = timeout(limit, entry.rests()).await;
    for (node, request) in entry.queued() {
        shared.owe(node, request);
    }
    let mut gather = Gather::default();
    for (node, piece) in entry.pieces().into_iter().rev() {
        let engine = shared.nodes[node].engine.clone();
        gather.ask(node, async move {
            let answer = engine.release(&piece.grant).await;
            (piece, answer)
        });
    }
    let (mut failed, mut holder, mut late) = (Vec::new(), None, std::pin::pin!(sleep(limit)));
    let (began, mut decided) = (shared.now(), false);
    loop {
        if known(shared, &entry).is_some() && !decided {
            decided = true;
            let took = began.until(shared.now());
            late.as_mut().reset(tokio::time::Instant::now() + Shared::moment(took));
        }
        if gather.is_empty() || decided && !shared.worth(&gather, None) {
            break;
        }
        tokio::select! {
            biased;
            answers = gather.some(|| false) => for (node, (piece, answer)) in answers {
                match answer {
                    Ok(Released::Released) => entry.ended(node, piece.request.hold(), Ended::Released),
                    Ok(Released::NotHeld { holder: now }) => {
                        holder = now.or(holder);
                        entry.ended(node, piece.request.hold(), Ended::Gone(LossReason::TakenOver));
                    }
                    Err(error) => failed.push((node, error)),
                }
            },
            () = &mut late => {
                shared.too_late(&gather);
                break;
            }
        }
    }
    let Some(was_held) = known(shared, &entry) else {
        failed.extend(gather.rest().into_iter().map(|(node, _)| (node, super::nodes::silent("release"))));
        return Err(say::unreachable("release", shared, &failed).with("name", &grant.name));
    };
    shared.table.remove(grant.hold);
    // Those who are late give it back from behind, and who did not answer is asked until its lease has ended.
    let sent: Vec<usize> = failed.iter().map(|(node, _)| *node).collect();
    let pieces: Vec<_> = entry.pieces();
    for (node, call) in gather.rest() {
        if let Some((_, piece)) = pieces.iter().find(|(of, _)| *of == node) {
            let (shared, request) = (shared.clone(), piece.request.clone());
            shared.clone().behind(async move {
                let owed = super::nodes::Owed { shared: &shared, node, request: Some(request) };
                if let Ok((_, Ok(_))) = timeout(limit, call).await {
                    owed.paid();
                }
            });
        }
    }
    for (node, piece) in pieces.into_iter().filter(|(node, _)| sent.contains(node)) {
        shared.owe(node, piece.request);
    }
    let holder = holder.map(|holder| Holder { hold: holder.hold.whole(), ..holder });
    Ok(if was_held { Released::Released } else { Released::NotHeld { holder } })
}
/// Whether a majority had it until it was given back, as soon as that is known.
fn known(shared: &Shared, entry: &Entry) -> Option<bool> {
    let (pieces, released) = entry.count();
    if released >= shared.need() {
        Some(true)
    } else if released + pieces < shared.need() {
        Some(false)
    } else {
        None
    }
}

/// Afterwards neither a grant nor a place of this attempt is on any node; what is silent is asked from behind, until its end.
pub(super) async fn withdraw(shared: &Arc<Shared>, request: &Request) -> Result<()> {
    if let Some(entry) = shared.table.remove(request.hold()) {
        entry.end();
        shared.undo(&entry, None, true).await;
    }
    Ok(())
}

/// The claim of a hold becomes another one under its id: a writer's a reader's. What one node does not know of lets in fewer.
pub(super) async fn downgrade(shared: &Arc<Shared>, grant: &Grant, next: &Request) -> Result<Outcome> {
    let Some(entry) = shared.table.of(grant).filter(|entry| entry.is_held()) else {
        return Ok(Outcome::Busy(say::busy(shared, &[])));
    };
    let (limit, mut gather) = (Shared::patience(entry.whole.ttl()), Gather::default());
    entry.change();
    let _ = timeout(limit, entry.rests()).await;
    for (node, piece) in entry.pieces() {
        let (engine, part) = (shared.nodes[node].engine.clone(), next.part(piece.request.hold().number(), false, None));
        gather.ask(node, async move {
            let answer = timeout(limit, engine.exchange(&piece.grant, &part)).await;
            (piece, answer.unwrap_or_else(|_| Err(super::nodes::silent("downgrade"))))
        });
    }
    let (mut done, mut busy, mut failed) = (0, Vec::new(), Vec::new());
    for (node, (piece, answer)) in gather.all().await {
        match answer {
            Ok(Outcome::Granted(_)) => {
                done += 1;
                entry.claims(node, piece.request.hold(), next.claim());
            }
            Ok(Outcome::Busy(other)) => {
                shared.gone(&entry, node, piece.request.hold(), LossReason::TakenOver);
                busy.push((node, other.in_whole(grant.hold)));
            }
            Ok(Outcome::Displaced) => {}
            Err(error) => failed.push((node, error)),
        }
    }
    if done >= shared.need() {
        let grant = Grant { claim: next.claim(), ..grant.clone() };
        return Ok(Outcome::Granted(grant));
    }
    if entry.count().0 < shared.need() {
        return Ok(Outcome::Busy(say::busy(shared, &busy)));
    }
    Err(say::unreachable("downgrade", shared, &failed).with("name", &grant.name))
}

/// Breaks the hold that is shown with this token, on every node that has a part of it.
pub(super) async fn force_release(shared: &Arc<Shared>, name: &Name, token: Token) -> Result<Released> {
    let (seen, mut failed) = look::at(shared, name, look::patience(shared)).await;
    if seen.len() < shared.need() {
        return Err(say::unreachable("release", shared, &failed).with("name", name));
    }
    let shown: Status = say::status(name, shared, &seen);
    let Some(of) = shown.holders.iter().find(|holder| holder.token == token) else {
        return Ok(Released::NotHeld { holder: shown.holders.into_iter().next() });
    };
    let (limit, mut gather) = (look::patience(shared), Gather::default());
    for (node, at) in &seen {
        for part in at.holders.iter().filter(|holder| holder.hold.whole() == of.hold) {
            let (engine, name, token) = (shared.nodes[*node].engine.clone(), name.clone(), part.token);
            gather.ask(*node, async move { timeout(limit, engine.force_release(&name, token)).await });
        }
    }
    let (mut left, mut broken) = (failed.len(), 0);
    for (node, answer) in gather.all().await {
        match answer.unwrap_or_else(|_| Err(super::nodes::silent("release"))) {
            Ok(Released::Released) => broken += 1,
            Ok(Released::NotHeld { .. }) => {}
            Err(error) => {
                left += 1;
                failed.push((node, error));
            }
        }
    }
    if left >= shared.need() {
        return Err(say::unreachable("release", shared, &failed).with("name", name));
    }
    Ok(if broken > 0 { Released::Released } else { Released::NotHeld { holder: None } })
}
