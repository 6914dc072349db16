//! Names that are held or waited for, page by page. The cursor is the last name.
use crate::{error::Fault, link::Conn, shared::Shared, wire::call::literal};
use fencelock_core::{Listing, Name, Page};
use fencelock_database::PATIENCE;

pub(crate) async fn list(shared: &Shared, conn: &Conn, prefix: &str, page: &Page) -> Result<Listing, Fault> {
    let Some(place) = shared.link.place() else { return Err(Fault::Closed) };
    let limit = page.limit.max(1);
    // As a pattern, of which the server makes a part of its index.
    let pattern: String = prefix
        .chars()
        .flat_map(|c| matches!(c, '%' | '_' | '\\').then_some('\\').into_iter().chain([c]))
        .chain(['%'])
        .collect();
    let after = page.after.as_deref().map(|after| format!("AND l.name > {}", literal(after))).unwrap_or_default();
    let (schema, space, pattern) = (&place.schema, literal(&shared.space), literal(&pattern));
    let ask = format!(
        "SELECT l.name FROM {schema}.fencelock_lock l WHERE l.space = {space} AND l.name LIKE {pattern} {after} \
         AND {schema}.fencelock_used(l, clock_timestamp()) ORDER BY l.name LIMIT {}",
        limit.saturating_add(1)
    );
    let rows = shared.link.rows(conn, 4 * PATIENCE, &ask).await?;
    let mut names: Vec<Name> = Vec::with_capacity(rows.len());
    for row in &rows {
        names.push(Name::new(row.get(0).ok_or(Fault::Answer)?).map_err(|_| Fault::Answer)?);
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
