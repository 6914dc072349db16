//! Every name that somebody contends for, a page at a time.
use crate::{error::Fault, link::found, shared::Shared, wire::op::Op};
use fencelock_core::{Listing, Name, Page};

pub(crate) async fn list(shared: &Shared, prefix: &str, page: &Page) -> Result<Listing, Fault> {
    let listed = shared.link.look(Op::Children { path: shared.paths.base().to_owned(), watch: false });
    let Some((children, _)) = found(listed.children().await)? else { return Ok(Listing::default()) };
    let after = page.after.as_deref();
    let mut names: Vec<Name> = children.iter().filter_map(|child| shared.paths.name(child)).collect();
    names.retain(|name| name.as_str().starts_with(prefix) && after.is_none_or(|after| name.as_str() > after));
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    let mut listing = Listing::default();
    for name in names {
        // The next page begins after the last name of this one.
        if listing.items.len() == page.limit.max(1) {
            listing.next = listing.items.last().map(|status| status.name.as_str().to_owned());
            break;
        }
        let status = shared.see(&name).await?.status;
        if !status.holders.is_empty() || !status.waiters.is_empty() {
            listing.items.push(status);
        }
    }
    Ok(listing)
}
