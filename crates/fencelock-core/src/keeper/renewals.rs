//! The order in which holds are renewed (those that have a lease of their own).
use crate::{clock::Moment, hold::Hold, types::HoldId};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::*},
    time::Duration,
};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Renewals {
    inner: Mutex<Inner>,
    pub(super) earlier: Notify,
}
#[derive(Debug, Default)]
struct Inner {
    order: BTreeMap<(Moment, HoldId), Arc<Hold>>,
    alarm: Option<Moment>,
}
impl Renewals {
    pub(super) fn put(&self, hold: Arc<Hold>, at: Moment) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.remove(&hold);
        if hold.leaving.load(Relaxed) {
            return;
        }
        hold.renewal.store(at.as_nanos(), Relaxed);
        inner.order.insert((at, hold.grant.hold), hold);
        let earlier = inner.alarm.is_none_or(|alarm| at < alarm);
        if earlier {
            inner.alarm = Some(at);
        }
        drop(inner);
        if earlier {
            self.earlier.notify_one();
        }
    }
    /// For good: `leaving` is set and read under the mutex, so an answer that comes late puts it back no more.
    pub(super) fn remove(&self, hold: &Hold) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        hold.leaving.store(true, Relaxed);
        inner.remove(hold);
    }
    pub(super) fn alarm(&self, now: Moment) -> Option<Moment> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let set = inner.alarm.filter(|at| *at > now);
        let first = inner.order.first_key_value().map(|((at, _), _)| *at);
        inner.alarm = set.into_iter().chain(first).min();
        inner.alarm
    }
    /// Something is due by now: whoever sleeps for it looks.
    pub(super) fn wake_if_due(&self, now: Moment) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let due = inner.alarm.is_some_and(|at| at <= now);
        drop(inner);
        if due {
            self.earlier.notify_one();
        }
    }
    /// Takes out what is due, and what is nearly due, so that it shares the call: `min(ttl/20, 100 ms)` early at most.
    pub(super) fn due(&self, now: Moment) -> Vec<Arc<Hold>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let soon = now + Duration::from_millis(100);
        let ripe = |((at, _), hold): (&(Moment, HoldId), &Arc<Hold>)| {
            (*at <= now + (hold.grant.ttl / 20).min(Duration::from_millis(100))).then(|| hold.clone())
        };
        let due: Vec<_> = inner.order.range(..=(soon, HoldId::MAX)).filter_map(ripe).collect();
        for hold in &due {
            inner.remove(hold);
        }
        due
    }
}
impl Inner {
    fn remove(&mut self, hold: &Hold) {
        let at = hold.renewal.swap(0, Relaxed);
        self.order.remove(&(Moment::from_nanos(at), hold.grant.hold));
    }
}
