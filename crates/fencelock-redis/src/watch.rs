//! Holds that are watched: the server tells when their keys change (SAFETY G6).
use crate::{
    keeper::sweep,
    shared::{Own, Shared},
};
use fencelock_core::{BootClock, Clock, Event, HoldId, LossReason, Moment, Reports};
use redis::{PushInfo, PushKind, Value};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::task::JoinSet;

/// A key that has changed is looked at so soon; one that changes all the time, by those who wait for it or share it, later and
/// later, and never later than that.
const AGAIN: Duration = Duration::from_millis(20);
const AT_LAST: Duration = Duration::from_millis(80);
/// After a connection broke all that is held is asked for so soon; and later each time it breaks again within `CALM`.
const SOON: Duration = Duration::from_millis(5);
const CALM: Duration = Duration::from_secs(1);
/// So many in one look.
const BATCH: usize = 256;

/// What `run` watches.
#[derive(Default)]
pub(crate) struct Watches {
    keys: HashMap<String, Watched>,
    /// Keys that have changed, to be looked at then.
    again: VecDeque<(Moment, String)>,
    /// The connection broke: everything is asked anew then.
    recheck: Option<Moment>,
    broke: Option<Moment>,
    pause: Duration,
}
#[derive(Default)]
struct Watched {
    holds: Vec<HoldId>,
    /// When it was last to be looked at, and how long after its change.
    last: Option<(Moment, Duration)>,
    waits: bool,
}
impl Watches {
    /// When there is something to look at.
    pub(crate) fn next(&self, shared: &Shared) -> Option<Moment> {
        let again = self.again.front().map(|(at, _)| *at);
        [shared.next_new(), again, self.recheck].into_iter().flatten().min()
    }
    /// Looks at what is due, in tasks of its own.
    pub(crate) fn look(&mut self, shared: &Arc<Shared>, reports: &Reports, tasks: &mut JoinSet<()>) {
        let now = BootClock.now();
        if self.recheck.is_some_and(|at| at <= now) {
            self.recheck = None;
            // A renewal of each opens the connection again, and finds what was taken away meanwhile.
            if shared.holds_any() {
                reports.send(Event::Recheck);
            }
        }
        let mut due = shared.settled(now, BATCH);
        for (hold, own) in &due {
            let holds = &mut self.keys.entry(shared.keys.key(&own.name)).or_default().holds;
            holds.retain(|known| shared.own(*known).is_some());
            if !holds.contains(hold) {
                holds.push(*hold);
            }
        }
        while due.len() < 2 * BATCH && self.again.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.again.pop_front() else { break };
            let Some(watched) = self.keys.get_mut(&key) else { continue };
            watched.waits = false;
            watched.holds.retain(|hold| match shared.own(*hold) {
                Some(own) => {
                    due.push((*hold, own));
                    true
                }
                None => false,
            });
            if watched.holds.is_empty() {
                self.keys.remove(&key);
            }
        }
        if !due.is_empty() {
            let (shared, reports) = (shared.clone(), reports.clone());
            tasks.spawn(async move { look(&shared, &reports, &due).await });
        }
    }
    /// The server's own words.
    pub(crate) fn told(&mut self, push: &PushInfo, shared: &Shared) {
        match push.kind {
            PushKind::Invalidate => match push.data.first() {
                Some(Value::Array(keys)) => {
                    for key in keys.iter().filter_map(crate::wire::reply::text) {
                        shared.changed(Some(key));
                        self.changed(key);
                    }
                }
                // All of them, by FLUSHALL.
                _ => {
                    shared.changed(None);
                    let keys: Vec<String> = self.keys.keys().cloned().collect();
                    keys.iter().for_each(|key| self.changed(key));
                }
            },
            PushKind::Disconnection => {
                shared.changed(None);
                if shared.link.is_cluster() {
                    shared.all_deaf();
                }
                // Nobody tells now. Where connections break as soon as they are made, not all the time.
                let now = BootClock.now();
                let again = self.broke.is_some_and(|broke| broke.until(now) < CALM);
                self.pause = if again { (self.pause * 2).min(CALM / 2) } else { SOON };
                self.broke = Some(now);
                self.recheck = self.recheck.or(Some(now + self.pause));
            }
            _ => {}
        }
    }
    fn changed(&mut self, key: &str) {
        let Some(watched) = self.keys.get_mut(key) else { return };
        if std::mem::replace(&mut watched.waits, true) {
            return;
        }
        let now = BootClock.now();
        let pause = match watched.last {
            Some((last, pause)) if last.until(now) < 4 * AT_LAST => (pause * 2).min(AT_LAST),
            _ => AGAIN,
        };
        watched.last = Some((now + pause, pause));
        // Behind those that are due before it.
        let at = self.again.partition_point(|(due, _)| *due <= now + pause);
        self.again.insert(at, (now + pause, key.to_owned()));
    }
}
async fn look(shared: &Shared, reports: &Reports, due: &[(HoldId, Own)]) {
    let (missing, unknown) = shared.missing(due).await;
    if !unknown.is_empty() {
        // A server that loads its data, a right that was taken away, no connection: nobody tells of them until they are read again.
        shared.unsettle(&unknown);
    }
    let mut haunted = Vec::new();
    for hold in missing {
        // It may have been given back meanwhile.
        if let Some(own) = shared.own(hold) {
            let haunt = shared.drop_hold(hold);
            haunted.extend(haunt.map(|haunt| (shared.keys.key(&own.name), hold, haunt)));
            reports.send(Event::Lost { hold, reason: LossReason::TakenOver });
        }
    }
    for (key, hold, haunt) in haunted {
        sweep(shared, &key, hold, haunt).await;
    }
}
