//! Waiting: every queued attempt is a task of `run`.
use crate::{
    error::Fault,
    link::Bell,
    shared::{Expected, Shared},
    wire::reply::Reply,
};
use fencelock_core::{BootClock, Busy, Claim, Clock, Pace, Request, Token};
use fencelock_database::{Turned, after_locked, granted};
use std::{
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

/// Nothing tells that a turn has come. Those who are near it have the server look for them, in one call of so long ...
const WATCH: Duration = Duration::from_millis(1_600);
/// ... with so much in between, at least and at most; those behind the first not so often.
const BETWEEN: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(25)];
const NEAR: u32 = 7;
/// Where there is no room for another one: it said when it began that its client lives.
const AFTER_WATCH: Duration = Duration::from_millis(500);
/// So often it is looked for places that were left behind ...
const PLACES: Duration = Duration::from_secs(5);
/// ... and whether the session is there that shows that we live: something in between may end one that says nothing.
const PULSE: Duration = Duration::from_secs(15);
/// Whoever is not felt by one server, and is by another one, does not ask them all the time.
const DOUBT: Duration = Duration::from_millis(100);

/// A look that the server does.
type Watch = Pin<Box<dyn Future<Output = (Option<Bell>, Result<Option<Reply>, Fault>)> + Send>>;

/// Waits in the queue until it is granted, stopped, or has no place any more. An outage is survived, until the caller's limit
/// (SAFETY E8).
pub(crate) async fn wait(
    shared: Arc<Shared>,
    request: Request,
    expected: Expected,
    mut busy: Busy,
    rest: Option<Duration>,
    mut reply: oneshot::Sender<Turned<Fault>>,
) {
    let (mut pause, mut locked, mut pace) = (Duration::from_millis(10), 1, Pace::new(BootClock.now()));
    let mut next = pace.nap(BootClock.now(), busy.ahead, rest);
    // It goes on while this one looks by himself.
    let (mut watch, mut may_watch, mut bell) = (None::<Watch>, true, None::<Bell>);
    // Its turn was seen, and the lock's row was another one's when it came for it.
    let mut told = false;
    let end = loop {
        // *Invariant:* before it has a pulse it is alive to others while the session is there by which it came, and that goes at once with its
        // process only where nothing works in it: it is not lent to a watch.
        if watch.is_none() && may_watch && shared.pulse().is_some() && busy.ahead.unwrap_or(0) <= NEAR {
            let (shared, request, mut bell) = (shared.clone(), request.clone(), bell.take());
            watch = Some(Box::pin(async move {
                let seen = shared.watch(&request, WATCH, BETWEEN, &mut bell).await;
                (bell, seen)
            }));
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
        if let Some((own, seen)) = seen {
            (watch, bell) = (None, own);
            match seen {
                Ok(Some(Reply::Turn)) => told = true,
                // Its next look is its sign of life.
                Ok(Some(Reply::Unheard)) => shared.doubt_pulse(),
                Ok(Some(Reply::Queued { busy: now, rest })) => {
                    next = pace.nap(BootClock.now(), now.ahead, rest).min(AFTER_WATCH);
                    request.queued(now.clone());
                    busy = now;
                    continue;
                }
                // No room for one more: until the next look of his own.
                Ok(_) => {
                    may_watch = false;
                    continue;
                }
                // His place stays, and he is near his turn: nobody tells him of it, so he looks at once.
                Err(_) => {
                    (may_watch, next) = (false, next.min(pause + behind(&busy)));
                    pace = Pace::new(BootClock.now());
                    pause = (pause * 2).min(Duration::from_millis(250));
                    continue;
                }
            }
        }
        let answer = tokio::select! {
            biased;
            answer = shared.refresh(&request, told) => answer,
            // Whoever stops takes back what it may have been granted.
            () = request.stopped() => break Turned::Stopped(busy),
        };
        let (was_told, is_locked) = (told, matches!(answer, Ok((Reply::Locked, _))));
        told &= is_locked;
        if !is_locked {
            locked = 1;
        }
        // Also where a row is locked.
        if answer.is_ok() {
            request.in_touch();
        }
        match answer {
            Ok((Reply::Done { number, now }, sent_at)) => {
                let Some(token) = Token::new(number) else { break Turned::Failed(Fault::Answer) };
                if matches!(request.claim(), Claim::Read | Claim::Permits { .. }) {
                    // Whoever comes next may fit in beside it.
                    shared.freed(request.name());
                }
                shared.keep(request.hold(), sent_at + request.ttl(), bell);
                if let Some(watch) = watch {
                    // It sees soon that it is granted.
                    let (shared, hold) = (shared.clone(), request.hold());
                    tokio::spawn(async move { shared.keep_late(hold, watch.await.0) });
                }
                break Turned::Granted(granted(&request, token, sent_at, now));
            }
            Ok((Reply::Queued { busy: now, rest }, _)) => {
                next = pace.nap(BootClock.now(), now.ahead, rest);
                pause = Duration::from_millis(10);
                // What keeps a turn that was seen from coming true may last: a row beside the lock's that somebody keeps.
                may_watch = !was_told;
                request.queued(now.clone());
                busy = now;
            }
            Ok((Reply::Locked, _)) => {
                may_watch = false;
                next = after_locked(locked);
                locked += 1;
            }
            // It was on its way for too long, or the server's clock was set; or our pulse cannot be felt, as when its session was ended.
            Ok((late @ (Reply::Past | Reply::Unheard), _)) => {
                if matches!(late, Reply::Unheard) {
                    shared.doubt_pulse();
                }
                may_watch = false;
                next = pause + Duration::from_millis(fastrand::u64(0..10));
                pause = (pause * 2).min(Duration::from_millis(250));
            }
            Ok((Reply::Gone { .. }, _)) => break Turned::Displaced,
            Ok(_) => break Turned::Failed(Fault::Answer),
            Err(fault) if shared.link.tell("lock", &fault).is_temporary() => {
                request.cut_off();
                may_watch = false;
                // How fast those in front have gone says nothing of how fast they go when it is over.
                pace = Pace::new(BootClock.now());
                next = pause + behind(&busy);
                pause = (pause * 2).min(Duration::from_millis(250));
            }
            Err(fault) => break Turned::Failed(fault),
        }
    };
    let _ = reply.send(end);
    drop(expected);
}

/// When connections have broken, for everybody at once maybe: those in front come first. A new session reads all that it calls, which keeps the
/// server busy for longer than a hand-over.
fn behind(busy: &Busy) -> Duration {
    Duration::from_millis(10) * busy.ahead.unwrap_or(0).min(25) + Duration::from_millis(fastrand::u64(0..10))
}

/// Shows that this client lives while anybody of it waits: one whose process is gone is passed at once. Without it those who wait for it to
/// speak again wait for some seconds. Whether it can be felt is asked by each look; who finds that it cannot doubts it.
pub(crate) async fn pulse(shared: Arc<Shared>) {
    let Ok(Some((mut pulse, id))) = shared.link.pulse(shared.client).await else {
        // Our sign of life counts alone.
        shared.set_pulse(None);
        let _ = timeout(PLACES, shared.doubted.notified()).await;
        return;
    };
    shared.set_pulse(Some(id));
    let (mut felt_at, mut idle) = (BootClock.now(), 0);
    while idle < 2 {
        let doubted = timeout(PLACES, shared.doubted.notified()).await.is_ok();
        if shared.pulse() != Some(id) {
            sleep(DOUBT).await;
            // What its own session answers says nothing of the server that the others ask.
            match shared.link.feels(shared.client).await {
                Ok(felt) if felt != Some(id) => break,
                Ok(_) => shared.set_pulse(Some(id)),
                Err(_) => {}
            }
        }
        let now = BootClock.now();
        if felt_at.until(now) >= PULSE {
            if !pulse.is_there().await {
                break;
            }
            felt_at = now;
        }
        if shared.somebody_waits() {
            idle = 0;
        } else if !doubted {
            idle += 1;
        }
    }
    // *Invariant:* it ends when it is written that nobody looks for it: whoever did would take us for dead, and pass us.
    shared.set_pulse(None);
    let _ = shared.say_that_there_is_no_pulse().await;
    drop(pulse);
}

/// Places that nobody here waits in any more: those beside whom they were would keep them alive. What does not come through is found again.
pub(crate) async fn give_back(shared: Arc<Shared>) {
    sleep(PLACES).await;
    if let Ok(places) = shared.left_behind().await {
        for (name, hold) in places {
            let _ = shared.quit(&name, hold).await;
        }
    }
}
