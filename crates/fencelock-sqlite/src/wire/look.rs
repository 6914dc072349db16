//! Reading: what people ask for, and what a waiter looks at before it asks for a write transaction.
use super::{
    acquire::{find, waiting},
    claim::Company,
    judge::{Standing, first_waiter, holders, holding, predecessor, queue},
    line::{ahead, sessions_ahead, turn},
    scope::Scope,
    sql,
};
use crate::{
    error::Fault,
    session::liveness::{Pulse, test},
};
use fencelock_core::{Claim, HoldId, Kind, Listing, Name, Page, Status, Token};
use rusqlite::{Row, types::Value};

/// Every waiter looks by itself this often, so that no lost ring costs more.
pub(crate) const LOOK: i64 = 1_000_000_000;
/// And thoroughly this often, should anything go into a look that `Calm` does not know.
const CALM: i64 = 10 * LOOK;
/// Of so many holders the files are watched; a look finds the death of the others.
const WATCHED: usize = 32;

pub(crate) enum Look {
    /// It has no place in the queue any more.
    Gone,
    /// Its turn may have come, or somebody has to be buried: that takes a write transaction.
    Act,
    /// Nothing to do. Watch the files of those sessions, and look again then.
    Rest { watch: Vec<i64>, next: i64, calm: Calm },
}
/// What a look relied on: while all of that is so the next one would find the same.
#[derive(Debug)]
pub(crate) struct Calm {
    /// What was written by others.
    version: i64,
    /// Whose files were found locked.
    alive: Vec<i64>,
    /// When a lease ends, or somebody's turn.
    pub(crate) until: i64,
}
impl Calm {
    /// It is: one number of the database, and the files. *Invariant:* nothing else goes into a look.
    pub(crate) fn holds(&self, scope: &Scope<'_>) -> Result<bool, Fault> {
        let alive = |session: &i64| matches!(test(&scope.shared.folder, *session), Pulse::Alive);
        Ok(scope.now < self.until && data_version(scope)? == self.version && self.alive.iter().all(alive))
    }
}
fn data_version(scope: &Scope<'_>) -> Result<i64, Fault> {
    Ok(scope.first(sql::DATA_VERSION, [], |row| row.get(0))?.unwrap_or_default())
}

/// A waiter's look: the first watches the holders, every other one its predecessor (SAFETY E4). It finds something to do where
/// `Line::read` does it, and nowhere else: or it would look, and act, and look again.
pub(crate) fn look(scope: &Scope<'_>, lock: i64, claim: Claim, hold: HoldId) -> Result<Look, Fault> {
    let version = data_version(scope)?;
    let here = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, u32>(1)?, row.get::<_, i64>(2)?));
    let here = scope.first(sql::PLACE_AND_STATE, (lock, hold.to_bytes()), here)?;
    let Some((place, of, freed)) = here else { return Ok(Look::Gone) };
    let claim = claim.of_capacity(of);
    let (mut room, mut sessions, mut ends) = (Company::default(), Vec::new(), i64::MAX);
    for row in holders(scope, lock, of)? {
        let Standing::Good(until) = row.stands(scope) else { return Ok(Look::Act) };
        room.add(row.claim);
        sessions.push(row.session);
        ends = ends.min(until);
    }
    let fits = |claim: Claim| claim.fits(room.together());
    // A moment after the end of a lease.
    let ends = ends.saturating_add(1_000_000);
    let rest = |watch, next: i64, ends: i64| {
        let until = next.min(ends).min(scope.now + CALM);
        let calm = Calm { version, alive: scope.known_alive(), until };
        Ok(Look::Rest { watch, next: next.min(scope.now + LOOK), calm })
    };
    let Some(before) = predecessor(scope, lock, place)? else {
        return if fits(claim) { Ok(Look::Act) } else { rest(watched(scope, sessions), ends, ends) };
    };
    let Standing::Good(until) = before.stands(scope) else { return Ok(Look::Act) };
    let ends = ends.min(until);
    let watch = watched(scope, vec![before.session]);
    if !fits(claim) {
        return rest(watch, i64::MAX, ends);
    }
    let company = ahead(scope, lock, claim, place)?;
    if claim.fits(room.together().into_iter().chain(company.together())) {
        return Ok(Look::Act);
    }
    if !company.hardest(of).is_none_or(fits) {
        // One who holds up the others and is dead may stand further ahead, before one that sleeps.
        let blocks = first_waiter(scope, lock, of, |claim| !fits(claim))?;
        return match blocks.map(|row| row.stands(scope)) {
            Some(Standing::Good(until)) => rest(watch, i64::MAX, ends.min(until)),
            Some(_) => Ok(Look::Act),
            None => rest(watch, i64::MAX, ends),
        };
    }
    let turn = turn(freed, sessions_ahead(scope, lock, place)?);
    if !(1..=scope.now).contains(&freed) || scope.now >= turn { Ok(Look::Act) } else { rest(watch, turn, ends) }
}
/// Those whose files are worth watching: not our own.
fn watched(scope: &Scope<'_>, mut sessions: Vec<i64>) -> Vec<i64> {
    sessions.retain(|session| !scope.shared.is_ours(*session));
    sessions.sort_unstable();
    sessions.dedup();
    sessions.truncate(WATCHED);
    sessions
}

pub(crate) fn inspect(scope: &Scope<'_>, name: &Name) -> Result<Status, Fault> {
    Ok(view(scope, name)?.status)
}
/// A lock as somebody sees it who wants to know when that changes.
pub(crate) struct View {
    pub(crate) status: Status,
    /// The holders' files.
    pub(crate) watch: Vec<i64>,
    /// When it changes by itself.
    pub(crate) ends: i64,
}
pub(crate) fn view(scope: &Scope<'_>, name: &Name) -> Result<View, Fault> {
    let mut view = View { status: Status::free(name.clone()), watch: Vec::new(), ends: i64::MAX };
    let Some(lock) = find(scope, name.as_str())? else { return Ok(view) };
    let status = &mut view.status;
    status.last_token = Token::new(lock.fence);
    status.capacity = Some(lock.capacity).filter(|size| *size > 0);
    let mut live = holding(scope, lock.id, lock.capacity)?;
    live.sort_unstable_by_key(|(row, _)| row.token);
    status.holders = live.iter().map(|(row, until)| row.public(scope, *until)).collect();
    if waiting(scope, lock.id)? > 0 {
        let rows = queue(scope, lock.id, lock.capacity)?;
        status.waiters = rows.into_iter().map(|row| row.public(scope)).collect();
    }
    let first = status.holders.first().map(|holder| holder.claim);
    let claim = first.or_else(|| status.waiters.first().map(|waiter| waiter.claim));
    let is_cell = lock.kind == Kind::Cell.as_str();
    status.kind = claim.map(Claim::kind).or(is_cell.then_some(Kind::Cell));
    view.ends = live.iter().map(|(_, until)| *until).min().unwrap_or(i64::MAX).saturating_add(1_000_000);
    view.watch = watched(scope, live.iter().map(|(row, _)| row.session).collect());
    Ok(view)
}

/// Above all names that begin like this. A blob is above every text.
fn end_of(prefix: &str) -> Value {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Value::Text(end);
        }
    }
    Value::Blob(Vec::new())
}
/// By name; the cursor is the last name of the page before.
pub(crate) fn list(scope: &Scope<'_>, prefix: &str, page: &Page) -> Result<Listing, Fault> {
    let limit = i64::try_from(page.limit.clamp(1, 10_000)).unwrap_or(10_000);
    let after = page.after.as_deref().unwrap_or("");
    let params = (&scope.shared.config.namespace, after, prefix, limit, end_of(prefix));
    let names: Vec<String> = scope.all(sql::LIST, params, |row| row.get(0))?;
    let mut listing = Listing::default();
    if i64::try_from(names.len()).is_ok_and(|n| n == limit) {
        listing.next = names.last().cloned();
    }
    for name in names.iter().filter_map(|name| Name::new(name).ok()) {
        let status = inspect(scope, &name)?;
        if status.is_held() || !status.waiters.is_empty() {
            listing.items.push(status);
        }
    }
    Ok(listing)
}

#[cfg(test)]
mod tests {
    //! The number behind U+D7FF is no character, and there is none behind U+10FFFF.
    use super::*;

    #[test]
    fn a_prefix_ends_where_other_names_begin() {
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(end_of("ab"), text("ac"));
        assert_eq!(end_of("a\u{d7ff}"), text("a\u{e000}"));
        assert_eq!(end_of("a\u{10ffff}\u{10ffff}"), text("b"));
        assert_eq!(end_of("\u{10ffff}"), Value::Blob(Vec::new()));
        assert_eq!(end_of(""), Value::Blob(Vec::new()));
    }
}
