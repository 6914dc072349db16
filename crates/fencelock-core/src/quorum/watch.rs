//! What `run` does: the nodes' own backgrounds, what they report, and what is owed to them.
use super::{
    entry::Entry,
    gather::Gather,
    nodes::Shared,
    renewal::{gone, lost},
};
use crate::{error::ErrorKind, keeper::Reports, pauses::Pauses, types::Event};
use std::{future::pending, sync::Arc, time::Duration};
use tokio::time::sleep;

/// How often what has ended by itself is forgotten.
const PRUNE: Duration = Duration::from_secs(5);
/// So often it is looked whether what is left still counts: a nap is longer where the host sleeps meanwhile.
const LOOK: Duration = Duration::from_millis(100);
/// Nothing falls.
const IDLE: Duration = Duration::from_secs(3600);
/// A background that has run for so long was well.
const WELL: Duration = Duration::from_secs(10);

pub(super) async fn run(shared: &Arc<Shared>, reports: &Reports) {
    let mut gather: Gather<()> = Gather::default();
    for node in 0..shared.nodes.len() {
        let (attending, paying, reports) = (shared.clone(), shared.clone(), reports.clone());
        gather.ask(node, async move { attend(&attending, node, reports).await });
        gather.ask(node, async move { paying.pay(node).await });
    }
    let (falling, to) = (shared.clone(), reports.clone());
    gather.ask(0, async move { fall(&falling, &to).await });
    let pruning = shared.clone();
    gather.ask(0, async move {
        loop {
            sleep(PRUNE).await;
            pruning.table.prune(pruning.now());
        }
    });
    gather.all().await;
}
/// One that fails is begun anew, and disturbs no other. What it may have missed is looked for.
async fn attend(shared: &Arc<Shared>, node: usize, reports: Reports) {
    let (of, to) = (shared.clone(), reports.clone());
    let relay = Reports::to(move |event| heed(&of, node, event, &to));
    let mut pauses = Pauses::long();
    loop {
        let began = shared.now();
        if let Err(error) = shared.nodes[node].engine.run(&relay).await
            && error.kind() == ErrorKind::Closed
        {
            return pending().await;
        }
        if began.until(shared.now()) > WELL {
            pauses = Pauses::long();
            reports.send(Event::Recheck);
        }
        sleep(pauses.next()).await;
    }
}
/// One node's word: a hold is lost when there is no majority for it any more.
fn heed(shared: &Arc<Shared>, node: usize, event: Event, reports: &Reports) {
    match event {
        Event::Lost { hold, reason } => {
            let Some(entry) = shared.table.get(hold) else { return };
            if shared.gone(&entry, node, hold, reason) {
                tell(shared, &entry, reports);
            }
        }
        Event::Recheck => reports.send(Event::Recheck),
        // No member lives by sessions.
        Event::SessionAlive { .. } | Event::SessionEnded { .. } => {}
    }
}
/// What the nodes have that are left is a majority while their leases last, which may be less than core counts on: it was told of a better one.
///
/// *Invariant (Q, SAFETY G3):* that end is told as a loss before anybody else may have the lock.
async fn fall(shared: &Arc<Shared>, reports: &Reports) {
    loop {
        let (fallen, next) = shared.fallen();
        for entry in fallen {
            tell(shared, &entry, reports);
        }
        let nap = next.map_or(IDLE, |at| shared.now().until(at).clamp(Duration::from_millis(1), LOOK));
        tokio::select! {
            biased;
            () = shared.thinned.notified() => {}
            () = sleep(nap) => {}
        }
    }
}
/// Tells core of a loss, if it is one.
fn tell(shared: &Arc<Shared>, entry: &Entry, reports: &Reports) -> bool {
    let Some(reason) = gone(shared, entry) else { return false };
    reports.send(Event::Lost { hold: entry.whole.hold(), reason });
    lost(shared, entry);
    true
}
