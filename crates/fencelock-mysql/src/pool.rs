//! Connections that nobody uses, and those who wait for one where the server has no more.
use crate::error::Fault;
use fencelock_core::{BootClock, Clock, Moment};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{sync::oneshot, time::timeout};

/// A connection that was not needed for so long goes, but for the last one.
const IDLE: Duration = Duration::from_secs(30);
/// So long after a server had no more it is asked for one more.
const FULL: Duration = Duration::from_secs(1);

/// Which calls stand in line together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Calls,
    Renewals,
    Watches,
}

/// *Invariant (SAFETY E8):* whoever watches has a connection that was made for that, so that those of the calls are not fewer because somebody
/// waits; and where a server is full one that comes back goes to renewals first, then to whoever has waited the longest. So no renewal waits
/// for longer than one call takes.
#[derive(Debug)]
pub(crate) struct Pool<S> {
    state: Mutex<State<S>>,
    /// One of them broke, or gave no answer: the others lead to the same place.
    broken: AtomicBool,
}
#[derive(Debug)]
struct State<S> {
    idle: Vec<(S, Moment)>,
    /// Of those that watched.
    watched: Vec<(S, Moment)>,
    /// Nothing is idle while somebody waits.
    waiting: VecDeque<(Lane, oneshot::Sender<S>)>,
    /// A renewal that was sent then was not answered in time.
    doubted: Moment,
    /// The server had as many as it takes when it was asked for one more for the last time: what it said, and when.
    full: Option<(Fault, Moment)>,
}
impl<S> Pool<S> {
    /// With its first one.
    pub(crate) fn new(first: S) -> Arc<Self> {
        let state = State {
            idle: vec![(first, BootClock.now())],
            watched: Vec::new(),
            waiting: VecDeque::new(),
            doubted: Moment::ZERO,
            full: None,
        };
        Arc::new(Self { state: Mutex::new(state), broken: AtomicBool::new(false) })
    }
    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }
    pub(crate) fn broke(&self) {
        self.broken.store(true, Relaxed);
    }
    /// One that is idle.
    pub(crate) fn take(&self, lane: Lane) -> Option<S> {
        self.state().take(lane)
    }
    /// A renewal that was sent then was not answered in time: they may all be as silent as its connection.
    pub(crate) fn doubt(&self, since: Moment) {
        self.state().doubted = since;
    }
    pub(crate) fn put(&self, lane: Lane, mut session: S) {
        if self.is_broken() {
            return;
        }
        let mut state = self.state();
        while let Some((_, next)) = state.waiting.pop_front() {
            match next.send(session) {
                Ok(()) => return,
                Err(back) => session = back,
            }
        }
        let pool = if lane == Lane::Watches { &mut state.watched } else { &mut state.idle };
        pool.push((session, BootClock.now()));
    }
    /// One that comes back, if it does so within that time.
    pub(crate) async fn turn(&self, lane: Lane, limit: Duration) -> Option<S> {
        let mut turn = {
            let mut state = self.state();
            if let Some(session) = state.take(lane) {
                return Some(session);
            }
            let (tell, told) = oneshot::channel();
            let front = |(other, _): &(Lane, _)| *other == Lane::Renewals;
            let at = if lane == Lane::Renewals { state.waiting.partition_point(front) } else { state.waiting.len() };
            state.waiting.insert(at, (lane, tell));
            Turn { pool: self, told }
        };
        timeout(limit.min(FULL), &mut turn.told).await.ok()?.ok()
    }
    /// Whether the server is asked for one more now, by whoever asks this; otherwise, what it said the last time.
    pub(crate) fn may_ask(&self) -> Result<(), Fault> {
        match &mut self.state().full {
            Some((said, when)) if when.until(BootClock.now()) < FULL => Err(said.clone()),
            Some((_, when)) => {
                *when = BootClock.now();
                Ok(())
            }
            None => Ok(()),
        }
    }
    /// What came of it.
    pub(crate) fn asked(&self, made: &Result<S, Fault>) {
        match made {
            Ok(_) => self.state().full = None,
            Err(fault) if fault.is_full() => self.state().full = Some((fault.clone(), BootClock.now())),
            Err(_) => {}
        }
    }
    pub(crate) fn is_full(&self) -> bool {
        self.state().full.as_ref().is_some_and(|(_, when)| when.until(BootClock.now()) < FULL)
    }
}
impl<S> State<S> {
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
/// A place in that line. *Invariant:* whoever leaves it when it was served already gives back what came: a server that is full makes no other.
struct Turn<'a, S> {
    pool: &'a Pool<S>,
    told: oneshot::Receiver<S>,
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
    //! Planted to see them go red: a watch takes what is idle; a renewal stands behind the calls; whoever leaves the line closes what came.
    use super::*;
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    fn poll<F: Future>(it: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        it.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn renewals_first_then_whoever_came_first_and_nothing_is_lost() {
        let pool = Pool::new('a');
        assert_eq!(pool.take(Lane::Watches), None);
        assert_eq!(pool.take(Lane::Calls), Some('a'));
        let limit = Duration::from_secs(60);
        let (mut first, mut second) = (pin!(pool.turn(Lane::Calls, limit)), pin!(pool.turn(Lane::Calls, limit)));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        {
            let mut renewal = pin!(pool.turn(Lane::Renewals, limit));
            assert!(poll(renewal.as_mut()).is_pending());
            pool.put(Lane::Watches, 'a');
            // It was given one, and goes without it.
            assert!(poll(first.as_mut()).is_pending());
        }
        assert_eq!(poll(first.as_mut()), Poll::Ready(Some('a')));
        pool.put(Lane::Calls, 'a');
        assert_eq!(poll(second.as_mut()), Poll::Ready(Some('a')));
        pool.put(Lane::Watches, 'a');
        assert_eq!(pool.take(Lane::Watches), Some('a'));
        pool.put(Lane::Watches, 'a');
        assert_eq!(pool.take(Lane::Calls), Some('a'));
        // Nothing comes.
        assert_eq!(pool.turn(Lane::Calls, Duration::from_millis(1)).await, None);
        pool.put(Lane::Calls, 'a');
        assert_eq!(pool.take(Lane::Renewals), Some('a'));
        pool.broke();
        pool.put(Lane::Calls, 'a');
        assert_eq!(pool.take(Lane::Calls), None);
    }
}
