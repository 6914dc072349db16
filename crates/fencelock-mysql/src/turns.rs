//! Waiting: every queued attempt is a task of `run`.
use crate::{
    error::Fault,
    shared::{Expected, Shared},
    wire::reply::Reply,
};
use fencelock_core::{BootClock, Busy, Claim, Clock, Grant, Lease, Moment, Request, Token};
use std::{
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use tokio::{sync::oneshot, time::sleep};

/// Nothing tells that a turn has come. Those who are near it have the server look for them, in one call of so long ...
const WATCH: Duration = Duration::from_millis(900);
/// ... with so much in between, at least and at most; those behind the first not so often.
const BETWEEN: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(25)];
const NEAR: u32 = 7;
/// Where there is no room for that the first looks so often by himself; everybody else looks when his turn may be near, but at least and
/// at most this often.
const FIRST: u64 = 40;
const FIRST_LATER: u64 = 250;
const EAGER: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_millis(20);
const LOOK: u64 = 1_000;
/// So often it is looked whether our pulse can be felt.
const PULSE: Duration = Duration::from_secs(3);
/// Those who wait for a lease to end look one after the other.
const APART: Duration = Duration::from_millis(60);

/// A look that the server does.
type Watch = Pin<Box<dyn Future<Output = Result<Option<Reply>, Fault>> + Send>>;

/// How a wait ended.
pub(crate) enum Turned {
    Granted(Grant),
    /// What was known of those in the way.
    Stopped(Busy),
    Displaced,
    Failed(Fault),
}

/// Waits in the queue until it is granted, stopped, or has no place any more. An outage is survived, until the caller's limit
/// (SAFETY E8).
pub(crate) async fn wait(
    shared: Arc<Shared>,
    request: Request,
    expected: Expected,
    mut busy: Busy,
    rest: Option<Duration>,
    mut reply: oneshot::Sender<Turned>,
) {
    let (mut pause, mut locked, mut pace) = (Duration::from_millis(10), 1, Pace::new(BootClock.now()));
    let mut next = pace.nap(BootClock.now(), busy.ahead, rest);
    // It goes on while this one looks by himself.
    let (mut watch, mut may_watch) = (None::<Watch>, true);
    let end = loop {
        if watch.is_none() && may_watch && busy.ahead.unwrap_or(0) <= NEAR {
            let (shared, request) = (shared.clone(), request.clone());
            watch = Some(Box::pin(async move { shared.watch(&request, WATCH, BETWEEN).await }));
        }
        let alone = watch.is_none();
        let watching = async {
            match watch.as_mut() {
                Some(watch) => watch.await,
                None => pending().await,
            }
        };
        let seen = tokio::select! {
            biased;
            () = request.stopped() => break Turned::Stopped(busy),
            () = reply.closed() => return,
            () = expected.wake.notified() => None,
            seen = watching => Some(seen),
            () = sleep(next), if alone => None,
        };
        if let Some(seen) = seen {
            watch = None;
            match seen {
                Ok(Some(Reply::Turn)) => {}
                Ok(Some(Reply::Queued { busy: now, rest })) => {
                    next = pace.nap(BootClock.now(), now.ahead, rest);
                    request.queued(now.clone());
                    busy = now;
                    continue;
                }
                // Until the next look of his own.
                _ => {
                    may_watch = false;
                    continue;
                }
            }
        }
        let answer = tokio::select! {
            biased;
            answer = shared.refresh(&request) => answer,
            // Whoever stops takes back what it may have been granted.
            () = request.stopped() => break Turned::Stopped(busy),
        };
        if !matches!(answer, Ok((Reply::Locked, _))) {
            locked = 1;
        }
        match answer {
            Ok((Reply::Done { number, now }, sent_at)) => {
                let Some(token) = Token::new(number) else { break Turned::Failed(Fault::Answer) };
                if matches!(request.claim(), Claim::Read | Claim::Permits { .. }) {
                    // Whoever comes next may fit in beside it.
                    shared.freed(request.name());
                }
                break Turned::Granted(granted(&request, token, sent_at, now));
            }
            Ok((Reply::Queued { busy: now, rest }, _)) => {
                next = pace.nap(BootClock.now(), now.ahead, rest);
                pause = Duration::from_millis(10);
                may_watch = true;
                request.queued(now.clone());
                busy = now;
            }
            Ok((Reply::Locked, _)) => {
                may_watch = false;
                next = after_locked(locked);
                locked += 1;
            }
            Ok((Reply::Gone { .. }, _)) => break Turned::Displaced,
            Ok(_) => break Turned::Failed(Fault::Answer),
            Err(fault) if shared.link.tell("lock", &fault).is_temporary() => {
                may_watch = false;
                next = pause + Duration::from_millis(fastrand::u64(0..10));
                pause = (pause * 2).min(Duration::from_millis(250));
            }
            Err(fault) => break Turned::Failed(fault),
        }
    };
    let _ = reply.send(end);
    drop(expected);
}
pub(crate) fn granted(request: &Request, token: Token, sent_at: Moment, now: i64) -> Grant {
    let (name, hold, claim, ttl) = (request.name().clone(), request.hold(), request.claim(), request.ttl());
    Grant { name, claim, hold, token, ttl, lease: Lease::Own { sent_at }, server_micros: now, place: None }
}

/// When to look.
pub(crate) struct Pace {
    /// The first since then.
    first: Option<Moment>,
    /// So many were in front when that changed the last time, and how long one of them took.
    ahead: u32,
    changed: Moment,
    each: Duration,
}
impl Pace {
    pub(crate) fn new(now: Moment) -> Self {
        Self { first: None, ahead: u32::MAX, changed: now, each: Duration::ZERO }
    }
    /// Until the next look: when something ends by itself, those in front first; when it may be this one's turn to be the first, as those
    /// in front have gone so far; and now and then.
    pub(crate) fn nap(&mut self, now: Moment, ahead: Option<u32>, rest: Option<Duration>) -> Duration {
        let ahead = ahead.unwrap_or(0);
        let look = if ahead == 0 {
            let eager = self.first.get_or_insert(now).until(now) < EAGER;
            let most = if eager { FIRST } else { FIRST_LATER };
            Duration::from_millis(fastrand::u64(most * 4 / 5..most * 6 / 5))
        } else {
            self.first = None;
            let gone = self.changed.until(now);
            if ahead < self.ahead {
                if self.ahead < u32::MAX {
                    self.each = gone / (self.ahead - ahead);
                }
                (self.ahead, self.changed) = (ahead, now);
            }
            // Nobody has gone for longer than that: they take longer. A quarter of what it may take: those who overslept would be
            // what the others see as slow, and would sleep longer still.
            let each = self.each.max(self.changed.until(now));
            let most = Duration::from_millis(fastrand::u64(LOOK..LOOK * 5 / 4));
            (each * ahead.saturating_sub(NEAR / 2).clamp(1, 100) / 4).clamp(SOON, most)
        };
        rest.map_or(look, |rest| (rest + APART * ahead + Duration::from_millis(2)).min(look))
    }
}
/// Until the next try, after a row was locked so many times (SAFETY E2): mostly by another one's short statement.
pub(crate) fn after_locked(times: u32) -> Duration {
    let most = 2_000_u64 << times.min(6);
    Duration::from_micros(fastrand::u64(most / 2..most).min(100_000))
}

/// Shows that this client lives while anybody of it waits: one whose process is gone is passed at once. Without it those who wait for it to
/// speak again wait for three seconds.
pub(crate) async fn pulse(shared: Arc<Shared>) {
    if let Ok(Some((mut pulse, id))) = shared.link.pulse(shared.client).await {
        shared.set_pulse(Some(id));
        let mut idle = 0;
        while idle < 3 && pulse.is_there().await {
            sleep(PULSE).await;
            idle = if shared.somebody_waits() { 0 } else { idle + 1 };
        }
        shared.set_pulse(None);
    }
    sleep(PULSE).await;
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: everybody as often as the first; the first for ever.
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// How many looks in the first seconds.
    fn looks(seconds: u64, ahead: impl Fn(Duration) -> u32) -> u32 {
        let began = Moment::from_nanos(1);
        let (mut pace, mut now, mut many) = (Pace::new(began), began, 0);
        while began.until(now) < Duration::from_secs(seconds) {
            now = now + pace.nap(now, Some(ahead(began.until(now))), Some(Duration::from_secs(60)));
            many += 1;
        }
        many
    }
    #[test]
    fn the_first_looks_often_for_a_while_and_the_others_seldom() {
        let first = looks(5, |_| 0);
        assert!((110..=135).contains(&first), "{first}");
        let later = looks(25, |_| 0) - first;
        assert!((70..=110).contains(&later), "{later}");
        let other = looks(20, |_| 9);
        assert!(other <= 32, "{other}");
    }
    #[test]
    fn whoever_comes_nearer_looks_when_it_may_be_his_turn() {
        // Each of the ten in front takes a fifth of a second.
        let gone = |d: Duration| 10_u32.saturating_sub(u32::try_from(d.as_millis() / 200).unwrap_or(10));
        let began = Moment::from_nanos(1);
        let (mut pace, mut now, mut many) = (Pace::new(began), began, 0);
        while gone(began.until(now)) > 0 {
            now = now + pace.nap(now, Some(gone(began.until(now))), None);
            many += 1;
        }
        assert!(began.until(now) < 2_200 * MS && many < 32, "{many} looks, {:?}", began.until(now));
    }
    #[test]
    fn a_lease_that_ends_is_looked_for() {
        let now = Moment::from_nanos(1);
        assert_eq!(Pace::new(now).nap(now, Some(0), Some(5 * MS)), 7 * MS);
    }
}
