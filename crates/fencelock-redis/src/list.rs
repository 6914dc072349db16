//! Names that are held or waited for, page by page. The cursor is the server's own: `CURSOR`, or `CURSOR NAME…` when the last step
//! of the walk had more than the page; then it is taken again without those names.
use crate::{
    error::Fault,
    link::{Conn, clock},
    shared::{Records, Shared},
    wire::{
        record::status,
        reply::{bytes, number, text},
    },
};
use fencelock_core::{Listing, Name, Page, Status};
use redis::Value;

pub(crate) async fn list(shared: &Shared, prefix: &str, page: &Page) -> Result<Listing, Fault> {
    let (limit, after) = (page.limit.max(1), page.after.as_deref().unwrap_or("0"));
    if !shared.link.is_cluster() {
        return shared.link.again("", |conn| async move { part(shared, &conn, prefix, limit, after).await }).await;
    }
    let (number, after) = after.split_once('@').unwrap_or(("0", after));
    let (mut number, mut after) = (number.parse().unwrap_or(0), after.to_owned());
    let servers = shared.link.everywhere().await?;
    let mut listing = Listing::default();
    while let Some(conn) = servers.get(number)
        && listing.items.len() < limit
    {
        let part = part(shared, conn, prefix, limit - listing.items.len(), &after).await?;
        listing.items.extend(part.items);
        (number, after) = match part.next {
            Some(next) => (number, next),
            None => (number + 1, "0".to_owned()),
        };
    }
    listing.next = (number < servers.len()).then(|| format!("{number}@{after}"));
    Ok(listing)
}
async fn part(shared: &Shared, conn: &Conn, prefix: &str, limit: usize, after: &str) -> Result<Listing, Fault> {
    let (cursor, told) = after.split_once(' ').unwrap_or((after, ""));
    let mut cursor = cursor.to_owned();
    let mut told: Vec<String> = told.split(' ').filter(|key| !key.is_empty()).map(str::to_owned).collect();
    let mut listing = Listing::default();
    loop {
        // A small one walks the server for ever, a large one stops it for all others.
        let mut step = limit.clamp(256, 1_000);
        let (next, mut found) = loop {
            let (next, keys) = scan(shared, conn, prefix, &cursor, step).await?;
            let found = live(shared, conn, keys, &told).await?;
            // A smaller step has fewer, as far as the server's table allows it.
            if listing.items.len() + found.len() <= limit || step == 1 {
                break (next, found);
            }
            if !listing.items.is_empty() {
                listing.next = Some(cursor);
                return Ok(listing);
            }
            step = (step / 2).max(1);
        };
        let room = limit - listing.items.len();
        if found.len() > room {
            found.truncate(room);
            told.extend(found.iter().map(|(key, _)| key.clone()));
            listing.items.extend(found.into_iter().map(|(_, status)| status));
            listing.next = Some(format!("{cursor} {}", told.join(" ")));
            return Ok(listing);
        }
        listing.items.extend(found.into_iter().map(|(_, status)| status));
        told.clear();
        if next == "0" {
            return Ok(listing);
        }
        cursor = next;
        if listing.items.len() == limit {
            listing.next = Some(cursor);
            return Ok(listing);
        }
    }
}
async fn scan(
    shared: &Shared,
    conn: &Conn,
    prefix: &str,
    cursor: &str,
    step: usize,
) -> Result<(String, Vec<(String, Name)>), Fault> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(shared.keys.pattern(prefix)).arg("COUNT").arg(step);
    if matches!(shared.records, Records::Redisson) {
        scan.arg("TYPE").arg("hash");
    }
    let answer = shared.link.command(conn, &scan).await?;
    let Value::Array(parts) = &answer else { return Err(Fault::Answer) };
    let [next, Value::Array(found)] = parts.as_slice() else { return Err(Fault::Answer) };
    let mut keys: Vec<_> = found
        .iter()
        .filter_map(|key| {
            let name = shared.keys.name(bytes(key)?)?;
            // A name may hold blanks, a cursor's words not.
            Some((text(key)?.replace(' ', "%20"), name))
        })
        .collect();
    keys.sort();
    keys.dedup();
    Ok((text(next).ok_or(Fault::Answer)?.to_owned(), keys))
}
/// Of these, who is held or waited for; the values of cells are not read.
async fn live(
    shared: &Shared,
    conn: &Conn,
    mut keys: Vec<(String, Name)>,
    told: &[String],
) -> Result<Vec<(String, Status)>, Fault> {
    keys.retain(|(key, _)| !told.contains(key));
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    match shared.records {
        Records::Native => {}
        Records::Plain(_) => return shared.sights(conn, keys).await,
        Records::Redisson => return shared.held_hashes(conn, keys).await,
    }
    let mut ask = redis::pipe();
    for (_, name) in &keys {
        ask.cmd("HMGET").arg(shared.keys.key(name)).arg("o").arg("n").arg("q");
    }
    let answers = shared.link.commands(conn, &ask).await?;
    let some = |value: &Value| number(value).is_some_and(|n| n > 0);
    let may_live = |answer: &Value| match answer {
        Value::Array(fields) => matches!(fields.as_slice(), [o, n, q] if *o != Value::Nil || some(n) || some(q)),
        _ => false,
    };
    let keys: Vec<_> =
        keys.into_iter().zip(&answers).filter(|(_, answer)| may_live(answer)).map(|(key, _)| key).collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut ask = redis::pipe();
    for (_, name) in &keys {
        ask.cmd("HGETALL").arg(shared.keys.key(name));
    }
    ask.cmd("TIME");
    let mut answers = shared.link.commands(conn, &ask).await?;
    let now = answers.pop().as_ref().and_then(clock).ok_or(Fault::Answer)?;
    let all =
        keys.into_iter().zip(answers).filter_map(|((key, name), fields)| Some((key, status(&name, &fields, now)?)));
    Ok(all.filter(|(_, status)| status.is_held() || !status.waiters.is_empty()).collect())
}
