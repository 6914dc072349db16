//! Waiting: every queued attempt is a task of `run`, so a blocked runtime of the user costs nobody the grant lease (SAFETY G2).
use crate::{
    error::Fault,
    link::CONNECT_TIMEOUT,
    shared::{Ears, Expected, Shared},
    wire::reply::Reply,
};
use fencelock_core::{BootClock, Busy, Clock, ErrorKind, Grant, Moment, Request, Token};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use redis::Msg;
use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    time::{Instant, interval, sleep, timeout},
};

/// A waiter's sign of life, with as much again of a quarter at random (SAFETY H2).
const HEARTBEAT: u64 = 1_000;
/// Those who wait for a lease to end look one after the other.
const APART: Duration = Duration::from_millis(60);
/// Nobody waits any more: so long after, the subscription ends.
const REST: Duration = Duration::from_secs(10);
/// A grant that a sign of life finds is a push that was lost, when it is older than this.
const LATE: Duration = Duration::from_millis(50);

/// How a wait ended.
pub(crate) enum Turned {
    Granted(Grant),
    /// What was known of those in the way.
    Stopped(Busy),
    Displaced,
    Failed(Fault),
}

/// When the lock is free by itself, as a waiter last saw it. The server's clock may be set back meanwhile; a waiter's own never is
/// (SAFETY H4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// By the server's clock.
    pub(crate) end: i64,
    left: Duration,
    at: Moment,
}
impl Seen {
    /// An answer that has just come: no more was left when it was given.
    pub(crate) fn now(end: i64, left: Duration) -> Self {
        Self { end, left, at: BootClock.now() }
    }
    /// How much is left. *Invariant:* no less than by the clock of whoever holds it, also where clocks run 2 % apart.
    pub(crate) fn rest(&self) -> Duration {
        let passed = self.at.until(BootClock.now());
        self.left.saturating_sub(passed - passed / 50)
    }
}

/// Waits in the queue until it is granted, stopped, or has no place any more. An outage is survived, until the caller's limit
/// (SAFETY E8).
pub(crate) async fn wait(
    shared: Arc<Shared>,
    request: Request,
    expected: Expected,
    mut busy: Busy,
    mut next: Duration,
    mut seen: Seen,
    mut reply: oneshot::Sender<Turned>,
) {
    let place = expected.place.clone();
    let mut pause = Duration::from_millis(10);
    let end = loop {
        tokio::select! {
            biased;
            () = request.stopped() => break Turned::Stopped(busy),
            () = reply.closed() => return,
            () = place.wake.notified() => {}
            () = sleep(next) => {}
        }
        if let Some(fault) = shared.denied() {
            break Turned::Failed(fault);
        }
        let answer = tokio::select! {
            biased;
            answer = shared.refresh(&request, seen) => answer,
            // Whoever stops takes back what it may have been granted.
            () = request.stopped() => break Turned::Stopped(busy),
        };
        match answer {
            Ok((Reply::Done { number, now, ago }, sent_at)) => {
                let Some(token) = Token::new(number) else { break Turned::Failed(Fault::Answer) };
                if !place.pushed.load(Relaxed) {
                    shared.granted_before_its_push(request.hold());
                    if ago > LATE {
                        shared.deaf(&place.channel);
                    }
                }
                break match shared.acknowledged(&request, sent_at).await {
                    Ok(sent_at) => Turned::Granted(shared.granted(&request, token, sent_at, now)),
                    Err(fault) => Turned::Failed(fault),
                };
            }
            Ok((Reply::Queued { busy: now, left, end }, _)) => {
                seen = Seen::now(end, left);
                next = nap(now.ahead, left, request.ttl());
                pause = Duration::from_millis(10);
                request.queued(now.clone());
                busy = now;
            }
            Ok((Reply::Unknown { .. }, _)) => break Turned::Displaced,
            Ok(_) => break Turned::Failed(Fault::Answer),
            Err(fault) if shared.link.tell("lock", &fault).is_temporary() => {
                request.cut_off();
                next = pause + Duration::from_millis(fastrand::u64(0..10));
                pause = (pause * 2).min(Duration::from_millis(250));
            }
            Err(fault) => break Turned::Failed(fault),
        }
    };
    let _ = reply.send(end);
    // Only now: until here a push was for it.
    drop(expected);
}
/// Until the next look: when something ends by itself, those in front first; and a sign of life in time, also for a grant that was
/// handed over for no longer than `ttl` and not heard of.
pub(crate) fn nap(ahead: Option<u32>, left: Duration, ttl: Duration) -> Duration {
    let beat = Duration::from_millis(fastrand::u64(HEARTBEAT..HEARTBEAT * 5 / 4)).min(ttl / 2);
    (left + APART * ahead.unwrap_or(0) + Duration::from_millis(2)).min(beat)
}

/// What a push says. One for an attempt that nobody has any more is given back (SAFETY G2).
pub(crate) fn heard(shared: &Arc<Shared>, message: Option<&str>) {
    if let Some((hold, key)) = message.and_then(|message| shared.heard(message)) {
        let shared = shared.clone();
        tokio::spawn(async move { shared.leave(&key, hold, None).await.map(drop) });
    }
}
/// Listens on this channel while anybody waits. What it was not told is looked for by each waiter, at the latest with
/// its next sign of life.
pub(crate) async fn listen(shared: &Arc<Shared>, key: &str, channel: &str, ears: &Ears) {
    let mut pause = Duration::from_millis(10);
    loop {
        let mut moved = pin!(shared.link.moved.notified());
        moved.as_mut().enable();
        let stream = timeout(CONNECT_TIMEOUT, subscribe(shared, key, channel)).await;
        if let Ok(Err(fault)) = &stream
            && shared.link.tell("lock", fault).kind() == ErrorKind::PermissionDenied
        {
            return shared.deny(fault.clone());
        }
        if let Ok(Ok(mut messages)) = stream {
            ears.hears.send_replace(true);
            shared.wake(channel);
            let (since, mut rest) = (Instant::now(), interval(REST));
            rest.reset();
            loop {
                tokio::select! {
                    message = messages.next() => match message {
                        Some(message) => heard(shared, message.get_payload::<String>().ok().as_deref()),
                        None => break,
                    },
                    () = ears.anew.notified() => break,
                    // The one before may be silent without being gone.
                    () = &mut moved => break,
                    _ = rest.tick() => if shared.is_idle(channel) {
                        // First: whoever comes meanwhile has no place before the next subscription.
                        ears.hears.send_replace(false);
                        unsubscribe(shared, key, channel).await;
                        break;
                    },
                }
            }
            ears.hears.send_replace(false);
            if since.elapsed() > Duration::from_secs(1) {
                pause = Duration::from_millis(10);
            }
        }
        // Whoever has come since was told that somebody listens.
        if shared.may_rest(channel) {
            return;
        }
        sleep(pause + Duration::from_millis(fastrand::u64(0..10))).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
/// In a cluster messages come by the connection that `run` has to the key's server, and nothing by this stream.
async fn subscribe(shared: &Shared, key: &str, channel: &str) -> Result<BoxStream<'static, Msg>, Fault> {
    if shared.link.is_cluster() {
        shared.link.again(key, |conn| async move { shared.link.hear(&conn, "SSUBSCRIBE", channel).await }).await?;
        return Ok(stream::pending().boxed());
    }
    let server = shared.link.at(key).await?.server.clone();
    let (mut sink, stream) = server.client.get_async_pubsub().await?.split();
    sink.subscribe(channel).await?;
    Ok(stream.boxed())
}
async fn unsubscribe(shared: &Shared, key: &str, channel: &str) {
    if shared.link.is_cluster()
        && let Ok(conn) = shared.link.at(key).await
    {
        // Where it fails the subscription goes with its connection; what it hears is for nobody.
        drop(shared.link.hear(&conn, "SUNSUBSCRIBE", channel).await);
    }
}
