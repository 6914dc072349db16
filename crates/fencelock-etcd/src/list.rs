//! Every name that somebody contends for, a page at a time: first the mutexes, then the other kinds.
use crate::{
    error::Fault,
    link::Conn,
    shared::Shared,
    wire::{
        key::after,
        pb::{KeyValue, Range, Ranged},
    },
};
use fencelock_core::{Kind, Listing, Name, Page};

/// So many keys are read at once.
const PART: i64 = 512;
const KINDS: [Kind; 3] = [Kind::Mutex, Kind::RwLock, Kind::Semaphore];

pub(crate) async fn list(shared: &Shared, conn: &Conn, prefix: &str, page: &Page) -> Result<Listing, Fault> {
    let mut listing = Listing::default();
    // `KIND NAME`: the last one of the page before.
    let cursor = page.after.as_deref().and_then(|after| after.split_once(' '));
    let (begun, mut last) = cursor.map_or((0, None), |(kind, name)| {
        let known = KINDS.iter().position(|known| known.as_str() == kind);
        known.map_or((0, None), |known| (known, Name::new(name).ok()))
    });
    for kind in KINDS.into_iter().skip(begun) {
        kind_of(shared, conn, prefix, kind, last.take(), page.limit.max(1), &mut listing).await?;
        if listing.next.is_some() {
            break;
        }
    }
    Ok(listing)
}
async fn kind_of(
    shared: &Shared,
    conn: &Conn,
    prefix: &str,
    kind: Kind,
    last: Option<Name>,
    limit: usize,
    listing: &mut Listing,
) -> Result<(), Fault> {
    let beginning = shared.keys.beginning(kind, prefix);
    let (mut from, end) = (beginning.as_bytes().to_vec(), after(&beginning));
    if let Some(name) = last {
        from = from.max(after(&shared.keys.room(kind, &name)));
    }
    // No key is empty, and none may be asked for.
    if from.is_empty() {
        from.push(0);
    }
    // Among the mutexes lie the others.
    let (others, rest) = shared.keys.others();
    let skips = kind == Kind::Mutex;
    loop {
        if skips && (&others..&rest).contains(&&from) {
            from.clone_from(&rest);
        }
        let until = if skips && from < others { end.clone().min(others.clone()) } else { end.clone() };
        if from >= until && until != [0] {
            return Ok(());
        }
        let ask = Range { key: from.clone(), end: until.clone(), limit: PART, keys_only: true, ..Range::default() };
        let part: Ranged = shared.link.call(conn, "/etcdserverpb.KV/Range", ask).await?;
        let name = |KeyValue { key, .. }: &KeyValue| shared.keys.name(kind, key);
        let mut names: Vec<Name> = part.keys.iter().filter_map(name).collect();
        names.dedup();
        for name in names {
            // The next page begins after the last name of this one.
            if listing.items.len() == limit {
                let last = listing.items.last().filter(|status| status.kind == Some(kind));
                listing.next = Some(format!("{kind} {}", last.map_or("", |status| status.name.as_str())));
                return Ok(());
            }
            from = after(&shared.keys.room(kind, &name));
            let (status, _) = shared.status(conn, &name).await?;
            // By another program it may be of two kinds.
            if status.kind == Some(kind) && (!status.holders.is_empty() || !status.waiters.is_empty()) {
                listing.items.push(status);
            }
        }
        if part.more {
            // Somebody else's keys only: on from the last of them.
            if let Some(last) = part.keys.last().filter(|last| last.key >= from) {
                from = last.key.iter().copied().chain([0]).collect();
            }
        } else {
            from.clone_from(&until);
            if until == end {
                return Ok(());
            }
        }
    }
}
