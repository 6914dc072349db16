//! Those who want to know who holds a lock alone (SAFETY E9): part of the keeper's thread.
use crate::{
    error::Fault,
    keeper::{AGAIN, ECHOES},
    session::{Shared, watches::Watches},
    wire::{
        look::{LOOK, View, view},
        observe::{unwatch, watch},
        scope::{read, write},
    },
};
use fencelock_core::{Name, Status, Token};
use rusqlite::Connection;
use std::collections::HashMap;
use tokio::sync::oneshot;

/// A watch that nobody uses is kept for so long: whoever was answered asks again.
const LINGER: i64 = 500_000_000;

pub(crate) type Reply = oneshot::Sender<Result<Status, Fault>>;

#[derive(Default)]
pub(crate) struct Observers(HashMap<Name, Observed>);
#[derive(Default)]
struct Observed {
    /// The lock's number and the session that is told of its changes.
    told: Option<(i64, i64)>,
    /// Each has seen this token.
    waiting: Vec<(Option<Token>, Reply)>,
    /// Whose files are watched.
    watching: Vec<i64>,
    /// Since when nobody is waiting.
    unused: i64,
    next: i64,
    echoes: usize,
}

impl Observers {
    pub(crate) fn add(&mut self, name: Name, seen: Option<Token>, reply: Reply) {
        let observed = self.0.entry(name).or_default();
        observed.waiting.push((seen, reply));
        observed.next = 0;
    }
    /// When somebody has to look.
    pub(crate) fn next(&self) -> i64 {
        self.0.values().map(|observed| observed.next).min().unwrap_or(i64::MAX)
    }
    pub(crate) fn due(&self, now: i64) -> Vec<Name> {
        self.0.iter().filter(|(_, observed)| observed.next <= now).map(|(name, _)| name.clone()).collect()
    }
    /// The doorbell rang for those locks, those files were closed, or everybody has to look.
    pub(crate) fn wake(&mut self, now: i64, rung: &[i64], closed: &[i64], all: bool) {
        for observed in self.0.values_mut() {
            let hit = observed.watching.iter().any(|session| closed.contains(session));
            if all || hit || observed.told.is_some_and(|(lock, _)| rung.contains(&lock)) {
                (observed.next, observed.echoes) = (now, 0);
            }
        }
    }
    /// Asked first and then watched, nothing in between would be seen: so it is the other way round.
    pub(crate) fn look(
        &mut self,
        name: &Name,
        conn: Result<&Connection, Fault>,
        shared: &Shared,
        watches: &mut Watches,
    ) {
        let Some(mut observed) = self.0.remove(name) else { return };
        let now = shared.time.now();
        let asked = observed.waiting.len();
        observed.waiting.retain(|(_, reply)| !reply.is_closed());
        if observed.waiting.is_empty() {
            observed.next = observed.unused.saturating_add(LINGER);
            if asked > 0 || now >= observed.next {
                // Its row stays until it is certainly gone, or each grant of the lock rings for nobody.
                observed.watch(Vec::new(), shared, watches);
                observed.next = match conn.and_then(|conn| observed.end(conn, shared)) {
                    Ok(()) | Err(Fault::Replaced) => return,
                    Err(_) => now + LOOK,
                };
            }
            self.0.insert(name.clone(), observed);
            return;
        }
        observed.next = match conn.and_then(|conn| observed.answer(name, conn, shared, watches)) {
            Ok(next) => next,
            Err(fault) if fault.is_temporary() => now + AGAIN,
            Err(fault) => {
                for (_, reply) in observed.waiting.drain(..) {
                    let _ = reply.send(Err(fault.clone()));
                }
                now
            }
        };
        self.0.insert(name.clone(), observed);
    }
}
impl Observed {
    fn answer(&mut self, name: &Name, conn: &Connection, shared: &Shared, watches: &mut Watches) -> Result<i64, Fault> {
        let session = shared.session();
        if let Some(session) = session.filter(|session| self.told.is_none_or(|(_, told)| told != *session)) {
            // Without its row nobody rings, and it looks by itself.
            match write(conn, shared, |scope| watch(scope, name.as_str(), session)) {
                Ok(lock) => self.told = Some((lock, session)),
                Err(Fault::SessionGone) => {}
                Err(fault) => return Err(fault),
            }
        }
        let mut seen = read(conn, shared, |scope| view(scope, name))?;
        if seen.watch != self.watching {
            self.watch(seen.watch, shared, watches);
            seen = read(conn, shared, |scope| view(scope, name))?;
        }
        // Who holds it goes on changing: looked at again after the next echo.
        if seen.watch != self.watching {
            self.echoes = 0;
        }
        let View { status, ends, .. } = seen;
        let token = status.exclusive().map(|holder| holder.token);
        let (told, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|(seen, _)| *seen != token);
        self.waiting = waiting;
        let told: Vec<(Option<Token>, Reply)> = told;
        for (_, reply) in told {
            let _ = reply.send(Ok(status.clone()));
        }
        let now = shared.time.now();
        if self.waiting.is_empty() {
            self.unused = now;
            return Ok(now + LINGER);
        }
        let echo = ECHOES.get(self.echoes).map_or(i64::MAX, |after| now + after);
        self.echoes = self.echoes.saturating_add(1);
        // Without a session nobody rings.
        let look = if self.told.is_some_and(|(_, told)| session == Some(told)) { LOOK } else { AGAIN };
        Ok(ends.min(echo).min(now + look).max(now + 1))
    }
    fn watch(&mut self, sessions: Vec<i64>, shared: &Shared, watches: &mut Watches) {
        sessions.iter().for_each(|session| watches.add(&shared.folder, *session));
        let before = std::mem::replace(&mut self.watching, sessions);
        before.into_iter().for_each(|session| watches.remove(session));
        self.echoes = ECHOES.len();
    }
    fn end(&self, conn: &Connection, shared: &Shared) -> Result<(), Fault> {
        // A session's end takes its rows along.
        match self.told.filter(|(_, session)| shared.is_ours(*session)) {
            Some((lock, session)) => write(conn, shared, |scope| unwatch(scope, lock, session)),
            None => Ok(()),
        }
    }
}
