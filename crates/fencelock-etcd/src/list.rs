//! Every name that somebody contends for, a page at a time.
use crate::{
    error::Fault,
    link::Conn,
    shared::Shared,
    wire::{
        key::after,
        pb::{KeyValue, Range, Ranged},
    },
};
use fencelock_core::{Listing, Name, Page};

/// So many keys are read at once.
const PART: i64 = 512;

pub(crate) async fn list(shared: &Shared, conn: &Conn, prefix: &str, page: &Page) -> Result<Listing, Fault> {
    let beginning = shared.keys.beginning(prefix);
    let (mut from, end) = (beginning.as_bytes().to_vec(), after(&beginning));
    if let Some(name) = page.after.as_deref().and_then(|name| Name::new(name).ok()) {
        from = from.max(after(&shared.keys.lock(&name)));
    }
    // What is not a lock's lies between these: an escaped `%` or `/` is `%25` or `%2F`.
    let (others, rest) = (format!("{}%i", shared.keys.all()), format!("{}&", shared.keys.all()));
    let mut listing = Listing::default();
    let limit = page.limit.max(1);
    'pages: loop {
        if (others.as_bytes()..rest.as_bytes()).contains(&&*from) {
            from = rest.clone().into_bytes();
        }
        let until = if *from < *others.as_bytes() { end.clone().min(others.clone().into_bytes()) } else { end.clone() };
        if from >= until && until != [0] {
            break;
        }
        let ask = Range { key: from.clone(), end: until.clone(), limit: PART, keys_only: true, ..Range::default() };
        let part: Ranged = shared.link.call(conn, "/etcdserverpb.KV/Range", ask).await?;
        let mut names: Vec<Name> = part.keys.iter().filter_map(|KeyValue { key, .. }| shared.keys.name(key)).collect();
        names.dedup();
        for name in names {
            // The next page begins after the last name of this one.
            if listing.items.len() == limit {
                listing.next = listing.items.last().map(|status| status.name.as_str().to_owned());
                break 'pages;
            }
            from = after(&shared.keys.lock(&name));
            let status = shared.status(conn, &name).await?;
            if !status.holders.is_empty() || !status.waiters.is_empty() {
                listing.items.push(status);
            }
        }
        if part.more {
            // Somebody else's keys only: on from the last of them.
            if let Some(last) = part.keys.last().filter(|last| last.key >= from) {
                from = last.key.iter().copied().chain([0]).collect();
            }
        } else {
            from = until.clone();
            if until == end {
                break;
            }
        }
    }
    Ok(listing)
}
