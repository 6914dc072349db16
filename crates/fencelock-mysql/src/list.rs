//! Names that are held or waited for, page by page. The cursor is the last name.
use crate::{
    error::Fault,
    link::{Conn, after_prefix},
    pool::Lane,
    shared::Shared,
    wire::{call::Call, reply::column},
};
use fencelock_core::{Listing, Name, Page};
use fencelock_database::PATIENCE;

pub(crate) async fn list(shared: &Shared, conn: &Conn, prefix: &str, page: &Page) -> Result<Listing, Fault> {
    let limit = page.limit.max(1);
    let call = Call::new("list").text(&shared.space).text(prefix);
    let call = match after_prefix(prefix) {
        Some(before) => call.bytes(&before),
        None => call.null(),
    };
    let call = match page.after.as_deref() {
        Some(after) => call.text(after),
        None => call.null(),
    };
    let call = call.number(i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX)).end();
    let rows = shared.link.rows(conn, Lane::Calls, 4 * PATIENCE, &call).await?;
    let mut names: Vec<Name> = Vec::with_capacity(rows.len());
    for row in &rows {
        names.push(Name::new(column(row, 0).ok_or(Fault::Answer)?).map_err(|_| Fault::Answer)?);
    }
    let mut listing = Listing::default();
    if names.len() > limit {
        names.truncate(limit);
        listing.next = names.last().map(|name| name.as_str().to_owned());
    }
    for name in names {
        let status = shared.status(conn, &name).await?;
        // It may be free since.
        if status.is_held() || !status.waiters.is_empty() {
            listing.items.push(status);
        }
    }
    Ok(listing)
}
