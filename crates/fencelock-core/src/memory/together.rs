//! Several claims in one step of the store.
use super::server::{Claimant, Entered, Record, State};
use crate::{
    clock::Moment,
    types::{Busy, Name, SessionId, Token},
};
use std::{collections::HashMap, time::Duration};

/// What became of them.
#[derive(Debug)]
pub(super) enum All {
    Granted(Vec<Token>),
    /// Somebody is in the way of the n-th.
    Busy(usize, Busy),
    /// Another kind, another size, a session that is over: whoever asks for one of them is told which.
    Apart,
}

impl State {
    /// All of them, or none. A repeat finds what it was granted; if a part of that was taken away meanwhile the rest goes, too.
    pub(super) fn enter_all(&mut self, claims: Vec<(Name, Claimant)>, ends: Moment, now: Moment) -> All {
        for (n, (name, who)) in claims.iter().enumerate() {
            let (record, sessions) = self.settled(name, now);
            if let Some(no) = record.refuses(n, who, ends, now, sessions) {
                for (name, who) in &claims {
                    self.leave(name, who.hold, None, now);
                }
                return no;
            }
        }
        let enter = |(name, who): (Name, Claimant)| match self.enter(&name, who, false, ends, now) {
            Entered::Granted(token, _) => token,
            other => unreachable!("it fitted in: {other:?}"),
        };
        All::Granted(claims.into_iter().map(enter).collect())
    }
}
impl Record {
    /// Why it cannot be granted now.
    fn refuses(
        &self,
        n: usize,
        who: &Claimant,
        ends: Moment,
        now: Moment,
        sessions: &HashMap<SessionId, Moment>,
    ) -> Option<All> {
        if self.holders.iter().any(|holding| holding.who.hold == who.hold) {
            return None;
        }
        let over = |session: SessionId, ttl: Duration| sessions.get(&session).is_none_or(|beat| *beat + ttl <= now);
        if now > ends
            || who.session.is_some_and(|session| over(session, who.ttl))
            || self.kind.is_some_and(|kind| kind != who.claim.kind())
            || self.capacity.zip(who.claim.capacity()).is_some_and(|(size, wanted)| size != wanted)
        {
            return Some(All::Apart);
        }
        let free = self.queue.is_empty() && self.fits(who.claim);
        (!free).then(|| All::Busy(n, self.busy(now, sessions, Some(self.queue.len()))))
    }
}
