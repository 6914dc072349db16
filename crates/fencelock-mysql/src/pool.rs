//! Connections that nobody uses, and those who wait for one.
use crate::error::Fault;
use fencelock_core::{BootClock, Clock, Moment};
use std::{
    collections::VecDeque,
    mem::take,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// A connection that was not needed for so long goes, when one is asked for.
const IDLE: Duration = Duration::from_secs(30);
/// So long after a server had no more it is asked for one more, by one of those who wait.
pub(crate) const FULL: Duration = Duration::from_secs(1);
/// What it said longer ago is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// Which calls stand in line together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Renewals,
    Calls,
    Watches,
}

/// *Invariant (SAFETY E8):* whoever watches, and keeps a connection for long, has none of those that calls have made, but for one of his own that
/// a call was given. One that is made or comes back goes to renewals first, then to calls, each in the order in which they came: where a server
/// is full, and there is one, a renewal waits for no more than what is under way, and those who came before it.
#[derive(Debug)]
pub(crate) struct Pool<S>(Mutex<State<S>>);
#[derive(Debug)]
struct State<S> {
    idle: Vec<(S, Moment)>,
    /// Of those that watched.
    watched: Vec<(S, Moment)>,
    /// In the order of lanes.
    waiting: [VecDeque<oneshot::Sender<S>>; 3],
    /// So many that were made for watches went to calls, while a watch waits.
    owed: usize,
    /// A renewal that was sent then was not answered in time.
    doubted: Moment,
    /// The server had as many as it takes when it was asked for one more for the last time: what it said, and when.
    full: Option<(Fault, Moment)>,
    /// One of them broke, or gave no answer for longer than anybody waits: the others lead to the same place.
    is_broken: bool,
}
impl<S> Pool<S> {
    /// With its first one.
    pub(crate) fn new(first: S) -> Self {
        Self(Mutex::new(State {
            idle: vec![(first, BootClock.now())],
            watched: Vec::new(),
            waiting: [VecDeque::new(), VecDeque::new(), VecDeque::new()],
            owed: 0,
            doubted: Moment::ZERO,
            full: None,
            is_broken: false,
        }))
    }
    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn is_broken(&self) -> bool {
        self.state().is_broken
    }
    /// Whoever stands in line is told so at once.
    pub(crate) fn broke(&self) {
        let mut state = self.state();
        state.is_broken = true;
        let gone = (take(&mut state.idle), take(&mut state.watched), take(&mut state.waiting));
        drop(state);
        drop(gone);
    }
    /// One that is idle.
    pub(crate) fn take(&self, lane: Lane) -> Option<S> {
        self.state().take(lane)
    }
    /// One that is idle, or a place in the line.
    pub(crate) fn line(&self, lane: Lane) -> Result<S, Turn<'_, S>> {
        let mut state = self.state();
        // Where the server gives no other one that is doubted is better than none.
        let doubts = if state.is_full() && lane == Lane::Renewals { Lane::Calls } else { lane };
        if let Some(session) = state.take(doubts) {
            return Ok(session);
        }
        let (tell, told) = oneshot::channel();
        if !state.is_broken {
            let line = &mut state.waiting[lane as usize];
            line.retain(|other| !other.is_closed());
            line.push_back(tell);
        }
        Err(Turn { pool: self, told })
    }
    /// A renewal that was sent then was not answered in time: they may all be as silent as its connection.
    pub(crate) fn doubt(&self, since: Moment) {
        let mut state = self.state();
        state.doubted = state.doubted.max(since);
    }
    /// One that was used in this lane, or made for it.
    pub(crate) fn put(&self, lane: Lane, mut session: S) {
        let mut state = self.state();
        let is_a_watchs = lane == Lane::Watches;
        state.waiting[Lane::Watches as usize].retain(|watch| !watch.is_closed());
        state.owed = state.waiting[Lane::Watches as usize].len().min(state.owed + usize::from(is_a_watchs));
        let lanes = if is_a_watchs || state.owed > 0 && !state.is_full() { 3 } else { 2 };
        while let Some((to, next)) = state.next(lanes) {
            match next.send(session) {
                Ok(()) => return state.owed = state.owed.saturating_sub(usize::from(to == Lane::Watches as usize)),
                Err(back) => session = back,
            }
        }
        if state.is_broken {
            drop(state);
            return drop(session);
        }
        let pool = if lane == Lane::Watches { &mut state.watched } else { &mut state.idle };
        pool.push((session, BootClock.now()));
    }
    /// Whether the server is asked for one more now, by whoever asks this; otherwise, what it said the last time.
    pub(crate) fn may_ask(&self, lane: Lane) -> Result<(), Fault> {
        let (mut state, now) = (self.state(), BootClock.now());
        let somebody_waits = state.waiting[..2].iter().flatten().any(|other| !other.is_closed());
        match &mut state.full {
            Some((_, when)) if when.until(now) > FORGOTTEN => state.full = None,
            Some((said, when)) if when.until(now) < FULL || lane == Lane::Watches && somebody_waits => {
                return Err(said.clone());
            }
            Some((_, when)) => *when = now,
            None => {}
        }
        Ok(())
    }
    /// What came of it.
    pub(crate) fn asked(&self, fault: Option<&Fault>) {
        self.state().full = fault.filter(|fault| fault.is_full()).map(|full| (full.clone(), BootClock.now()));
    }
    /// A moment ago it was.
    pub(crate) fn is_full(&self) -> bool {
        self.state().is_full()
    }
}
impl<S> State<S> {
    fn next(&mut self, lanes: usize) -> Option<(usize, oneshot::Sender<S>)> {
        self.waiting[..lanes].iter_mut().enumerate().find_map(|(lane, line)| Some((lane, line.pop_front()?)))
    }
    fn is_full(&self) -> bool {
        self.full.as_ref().is_some_and(|(_, when)| when.until(BootClock.now()) < FULL)
    }
    /// The latest first, so that those that are not needed grow old. A renewal takes none that has not been heard of since one before it
    /// was not answered: they may all be as silent.
    fn take(&mut self, lane: Lane) -> Option<S> {
        let since = if lane == Lane::Renewals { self.doubted } else { Moment::ZERO };
        let latest = |pool: &mut Vec<(S, Moment)>| pool.pop_if(|(_, heard)| *heard >= since);
        let session = match lane {
            Lane::Watches => latest(&mut self.watched),
            _ => latest(&mut self.idle).or_else(|| latest(&mut self.watched)),
        };
        let now = BootClock.now();
        self.idle.retain(|(_, heard)| heard.until(now) < IDLE);
        self.watched.retain(|(_, heard)| heard.until(now) < IDLE);
        session.map(|(session, _)| session)
    }
}
/// A place in that line: `told` is an error where the pool broke. *Invariant:* whoever leaves it when it was served already gives back what came:
/// a server that is full makes no other.
#[derive(Debug)]
pub(crate) struct Turn<'a, S> {
    pool: &'a Pool<S>,
    pub(crate) told: oneshot::Receiver<S>,
}
impl<S> Drop for Turn<'_, S> {
    fn drop(&mut self) {
        self.told.close();
        if let Ok(session) = self.told.try_recv() {
            self.pool.put(Lane::Calls, session);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: a watch takes what is idle; a renewal stands behind the calls; whoever leaves the line closes what came; those
    //! in line are not told that the pool broke; a watch asks for one more while others wait; what is owed to a watch is forgotten, paid
    //! twice, owed where none waits, or paid where the server is full.
    #![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
    use super::*;
    use mysql_async::{Error, ServerError};
    use std::sync::Arc;
    use tokio::sync::oneshot::error::TryRecvError::{Closed, Empty};

    fn full() -> Fault {
        let (code, state) = (1040, "08004".to_owned());
        Fault::Connect(Arc::new(Error::Server(ServerError { code, message: "Too many connections".to_owned(), state })))
    }
    fn waits(pool: &Pool<char>, lane: Lane) -> Turn<'_, char> {
        pool.line(lane).unwrap_err()
    }
    #[test]
    fn renewals_first_then_whoever_came_first_and_nothing_is_lost() {
        let pool = Pool::new('a');
        assert_eq!(pool.take(Lane::Watches), None);
        assert_eq!(pool.line(Lane::Calls).unwrap(), 'a');
        let [mut watch, mut first, mut second] =
            [Lane::Watches, Lane::Calls, Lane::Calls].map(|lane| waits(&pool, lane));
        {
            let _renewal = waits(&pool, Lane::Renewals);
            pool.put(Lane::Watches, 'a');
            // It was given one, and goes without it.
            assert_eq!(first.told.try_recv(), Err(Empty));
        }
        assert_eq!(first.told.try_recv(), Ok('a'));
        pool.put(Lane::Watches, 'a');
        assert_eq!(second.told.try_recv(), Ok('a'));
        assert_eq!(watch.told.try_recv(), Err(Empty));
        pool.put(Lane::Watches, 'b');
        assert_eq!(watch.told.try_recv(), Ok('b'));
        pool.put(Lane::Calls, 'a');
        pool.put(Lane::Watches, 'b');
        assert_eq!((pool.take(Lane::Calls), pool.take(Lane::Calls)), (Some('a'), Some('b')));
    }
    #[test]
    fn a_watch_whose_connection_went_to_a_call_has_the_next_one() {
        let pool = Pool::new('a');
        let mut call = waits_when_empty(&pool);
        let [mut first, mut second] = [Lane::Watches; 2].map(|lane| waits(&pool, lane));
        pool.put(Lane::Watches, 'a');
        assert_eq!((call.told.try_recv(), first.told.try_recv()), (Ok('a'), Err(Empty)));
        // What was being made for that call, or comes back from it; and the calls' own stay theirs.
        pool.put(Lane::Calls, 'b');
        pool.put(Lane::Calls, 'c');
        assert_eq!((first.told.try_recv(), second.told.try_recv()), (Ok('b'), Err(Empty)));
        assert_eq!(pool.take(Lane::Calls), Some('c'));
        // Where no watch waits none is owed anything.
        drop(second);
        let mut call = waits(&pool, Lane::Calls);
        pool.put(Lane::Watches, 'd');
        let mut third = waits(&pool, Lane::Watches);
        pool.put(Lane::Calls, 'e');
        assert_eq!((call.told.try_recv(), third.told.try_recv()), (Ok('d'), Err(Empty)));
        assert_eq!(pool.take(Lane::Calls), Some('e'));
        // Where a server has no more the calls keep what they have.
        let _call = waits(&pool, Lane::Calls);
        pool.put(Lane::Watches, 'f');
        pool.asked(Some(&full()));
        pool.put(Lane::Calls, 'g');
        assert_eq!((third.told.try_recv(), pool.take(Lane::Calls)), (Err(Empty), Some('g')));
    }
    #[test]
    fn a_server_that_is_full_is_asked_now_and_then() {
        let pool = Pool::new('a');
        assert!(pool.may_ask(Lane::Watches).is_ok() && pool.may_ask(Lane::Calls).is_ok() && !pool.is_full());
        pool.asked(Some(&full()));
        assert!(pool.is_full() && pool.may_ask(Lane::Calls).unwrap_err().is_full());
        let ago = |since: Duration| pool.state().full = Some((full(), BootClock.now() - since));
        ago(2 * FULL);
        let call = waits_when_empty(&pool);
        assert!(pool.may_ask(Lane::Watches).is_err(), "a watch, while a call waits");
        assert!(pool.may_ask(Lane::Calls).is_ok(), "one of them");
        assert!(pool.may_ask(Lane::Calls).is_err(), "and no other");
        drop(call);
        ago(2 * FULL);
        assert!(pool.may_ask(Lane::Watches).is_ok());
        ago(2 * FORGOTTEN);
        assert!(pool.may_ask(Lane::Calls).is_ok() && pool.may_ask(Lane::Calls).is_ok());
        // It said something else meanwhile.
        pool.asked(Some(&full()));
        pool.asked(Some(&Fault::Unreached));
        assert!(pool.may_ask(Lane::Calls).is_ok() && !pool.is_full());
    }
    fn waits_when_empty(pool: &Pool<char>) -> Turn<'_, char> {
        pool.take(Lane::Calls);
        waits(pool, Lane::Calls)
    }
    #[test]
    fn a_renewal_minds_a_doubt_where_there_may_be_others() {
        let pool = Pool::new('a');
        pool.doubt(BootClock.now() + Duration::from_secs(1));
        pool.doubt(Moment::ZERO);
        drop(waits(&pool, Lane::Renewals));
        pool.asked(Some(&full()));
        pool.state().full = Some((full(), BootClock.now() - 2 * FULL));
        drop(waits(&pool, Lane::Renewals));
        pool.asked(Some(&full()));
        assert_eq!(pool.line(Lane::Renewals).unwrap(), 'a');
    }
    #[test]
    fn a_pool_that_broke_says_so() {
        let pool = Pool::new('a');
        let mut call = waits_when_empty(&pool);
        pool.put(Lane::Watches, 'a');
        assert_eq!(call.told.try_recv(), Ok('a'));
        let mut call = waits(&pool, Lane::Calls);
        pool.broke();
        assert_eq!(call.told.try_recv(), Err(Closed));
        pool.put(Lane::Calls, 'a');
        assert_eq!(pool.take(Lane::Calls), None);
        assert_eq!(waits(&pool, Lane::Calls).told.try_recv(), Err(Closed));
    }
}
