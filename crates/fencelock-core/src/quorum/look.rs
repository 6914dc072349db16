//! What those are told who only look.
use super::{
    default_ttl,
    gather::Gather,
    nodes::{Shared, silent},
    say,
};
use crate::{
    error::{Error, ErrorKind, Result},
    types::{Listing, Name, Page, Status},
};
use std::{collections::HashSet, sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// When a majority has answered, who looks waits so long for the others: without them it may be open who holds.
const OTHERS: Duration = Duration::from_millis(100);
/// The longest pause before it is looked whether a token has been written.
const UNWRITTEN: Duration = Duration::from_millis(32);
/// So many locks are looked at together.
const AT_ONCE: usize = 16;

/// How long a majority may take: no lease runs meanwhile, so a busy machine is waited for, however short the default ttl is.
pub(super) fn patience(shared: &Shared) -> Duration {
    Shared::patience(default_ttl(shared)).max(Duration::from_secs(1))
}
/// What each node says of a lock, and why some say nothing.
pub(super) async fn at(
    shared: &Arc<Shared>,
    name: &Name,
    limit: Duration,
) -> (Vec<(usize, Status)>, Vec<(usize, Error)>) {
    let mut gather = Gather::default();
    for (node, of) in shared.nodes.iter().enumerate() {
        let (engine, name) = (of.engine.clone(), name.clone());
        gather.ask(node, async move { engine.inspect(&name).await });
    }
    let (mut seen, mut failed, mut others) = (Vec::new(), Vec::new(), false);
    let mut late = std::pin::pin!(sleep(limit));
    while !gather.is_empty() {
        tokio::select! {
            biased;
            answers = gather.some(|| false) => for (node, answer) in answers {
                match answer {
                    Ok(status) => seen.push((node, status)),
                    Err(error) => failed.push((node, error)),
                }
            },
            () = &mut late => break,
        }
        if !others && seen.len() >= shared.need() && !gather.is_empty() {
            others = true;
            let until = tokio::time::Instant::now() + OTHERS.min(limit);
            late.as_mut().reset(until);
        }
    }
    failed.extend(gather.rest().into_iter().map(|(node, _)| (node, silent("status"))));
    (seen, failed)
}
/// One lock, as a majority has it. Somebody who is about to have it has different tokens, until one is written: it is looked again, a few
/// times, so that nobody is told of one that will not be his.
pub(super) async fn inspect(shared: &Arc<Shared>, name: &Name) -> Result<Status> {
    let mut nap = Duration::from_millis(1);
    loop {
        let (seen, failed) = at(shared, name, patience(shared)).await;
        if seen.len() < shared.need() {
            return Err(say::unreachable("status", shared, &failed).with("name", name));
        }
        if nap > UNWRITTEN || say::is_written(shared, &seen) {
            return Ok(say::status(name, shared, &seen));
        }
        sleep(nap).await;
        nap *= 2;
    }
}

/// The pages of so many nodes that every majority has one of them, one node after the other; of each name what a majority says. The
/// cursor: which node, how many of them have been listed or skipped, and the node's own.
pub(super) async fn list(shared: &Arc<Shared>, prefix: &str, page: &Page) -> Result<Listing> {
    let (of, need) = (shared.nodes.len(), shared.need());
    let (mut node, mut missed, mut after) = match &page.after {
        None => (0, 0, None),
        Some(cursor) => cursor_of(cursor)?,
    };
    let mut failed = Vec::new();
    loop {
        // Every name that a majority has, and every queue where a majority holds, is on one of these.
        if node - missed > of - need {
            return Ok(Listing::default());
        }
        if missed >= need {
            return Err(say::unreachable("list", shared, &failed));
        }
        let limit = patience(shared);
        let wanted = Page { after: after.clone(), limit: page.limit };
        let listed = timeout(limit, shared.nodes[node].engine.list(prefix, &wanted)).await;
        let listed = match listed.unwrap_or_else(|_| Err(silent("list"))) {
            Ok(listed) => listed,
            Err(error) => {
                failed.push((node, error));
                (node, missed, after) = (node + 1, missed + 1, None);
                continue;
            }
        };
        let mut items = Vec::with_capacity(listed.items.len());
        let (mut names, mut known): (Vec<_>, HashSet<_>) = (Vec::new(), HashSet::new());
        for item in listed.items {
            if known.insert(item.name.clone()) {
                names.push(item.name);
            }
        }
        for some in names.chunks(AT_ONCE) {
            let mut gather = Gather::default();
            for (at, name) in some.iter().enumerate() {
                let (shared, name) = (shared.clone(), name.clone());
                gather.ask(at, async move { inspect(&shared, &name).await });
            }
            for (_, status) in gather.all().await {
                let status = status?;
                if status.is_held() || !status.waiters.is_empty() {
                    items.push(status);
                }
            }
        }
        items.sort_by(|a, b| a.name.cmp(&b.name));
        let (next, inner) = match listed.next {
            Some(inner) => ((node, missed), inner),
            None => ((node + 1, missed), String::new()),
        };
        let last = next.0 - next.1 > of - need;
        let next = (!last).then(|| format!("{}:{}:{inner}", next.0, next.1));
        return Ok(Listing { items, next });
    }
}
fn cursor_of(cursor: &str) -> Result<(usize, usize, Option<String>)> {
    let read = || {
        let (node, rest) = cursor.split_once(':')?;
        let (missed, inner) = rest.split_once(':')?;
        let (node, missed): (usize, usize) = (node.parse().ok()?, missed.parse().ok()?);
        (missed <= node).then(|| (node, missed, Some(inner.to_owned()).filter(|inner| !inner.is_empty())))
    };
    read().ok_or_else(|| {
        let wrong = format!("{cursor:?} is no cursor of a quorum");
        Error::new(ErrorKind::InvalidConfig, "list", wrong).hint("give what the page before says")
    })
}
