//! The sessions that an engine has told of.

use crate::{
    hold::Session,
    types::{SessionId, Spread},
};
use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasherDefault,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Of so many that have ended it is known that they have. One that is forgotten is as one that has never had a heartbeat:
/// a grant of it that comes late counts for nothing (SAFETY G1). What is kept for is a heartbeat that is reported beside the end.
const REMEMBERED: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Known>);
#[derive(Debug, Default)]
struct Known {
    all: HashMap<SessionId, Arc<Session>, BuildHasherDefault<Spread>>,
    /// Those that have ended, the latest last.
    ended: VecDeque<SessionId>,
}
impl Sessions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(super) fn get(&self, id: SessionId) -> Arc<Session> {
        self.known().all.entry(id).or_default().clone()
    }
    pub(super) fn any_lives(&self) -> bool {
        self.known().all.values().any(|session| session.sent_at().is_some())
    }
    /// A grant of it that is still on the way finds it ended.
    pub(super) fn end(&self, id: SessionId) {
        let mut known = self.known();
        if !known.all.entry(id).or_default().end() {
            return;
        }
        known.ended.push_back(id);
        if known.ended.len() > REMEMBERED
            && let Some(oldest) = known.ended.pop_front()
        {
            known.all.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;

    /// Planted to see it go red: an end that leaves the session on the list.
    #[test]
    fn what_has_ended_is_not_kept_for_ever() {
        let sessions = Sessions::default();
        let at = Moment::from_nanos(1);
        let lives = SessionId(u64::MAX);
        sessions.get(lives).alive(at);
        for n in 0..10_000 {
            let id = SessionId(n);
            sessions.get(id).alive(at);
            sessions.end(id);
            sessions.end(id);
            // Neither the one that has just ended nor a late grant of it is alive.
            sessions.get(id).alive(at);
            assert_eq!(sessions.get(id).sent_at(), None);
        }
        assert_eq!(sessions.known().all.len(), REMEMBERED + 1);
        assert!(sessions.any_lives() && sessions.get(lives).sent_at() == Some(at));
        sessions.end(lives);
        assert!(!sessions.any_lives());
    }
}
