//! Waiting: every queued attempt is a task of `run`.
use crate::{
    error::Fault,
    link::Ears,
    shared::{Expected, Shared},
    wire::reply::Reply,
};
use fencelock_core::{BootClock, Busy, Clock, ErrorKind, HoldId, Name, Pace, Request, Token};
use fencelock_database::{CONNECT_TIMEOUT, Turned, after_locked, granted};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, interval, sleep, timeout},
};

/// Word may be lost: whoever waits looks by himself so often, and the first of all oftener for a while.
const LOOK: u64 = 1_000;
const FIRST: Duration = Duration::from_millis(250);
/// A client that waits says so often that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// Those who wait for a lease to end look one after the other.
const APART: Duration = Duration::from_millis(60);
/// Behind a pooler of transactions nobody can listen. It may be gone some day.
const SHARED: Duration = Duration::from_secs(60);
/// Nobody waits any more: so long after, nobody listens.
const REST: Duration = Duration::from_secs(10);

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
    let mut nap = |ahead, rest| match shared.ears() {
        Some(_) => told_nap(ahead, rest),
        None => pace.nap(BootClock.now(), ahead, rest),
    };
    let mut next = nap(busy.ahead, rest);
    let end = loop {
        let told = tokio::select! {
            biased;
            () = request.stopped() => {
                shared.stops(request.hold());
                break Turned::Stopped(busy);
            }
            () = reply.closed() => return,
            told = expected.wake.woken() => told,
            () = sleep(next) => false,
        };
        let look = tokio::select! {
            biased;
            () = request.stopped() => {
                shared.stops(request.hold());
                break Turned::Stopped(busy);
            }
            look = shared.may_look() => look,
        };
        let answer = tokio::select! {
            biased;
            answer = shared.refresh(&request, told, locked) => answer,
            // Whoever stops takes back what it may have been granted.
            () = request.stopped() => break Turned::Stopped(busy),
        };
        drop(look);
        if !matches!(answer, Ok((Reply::Locked, _))) {
            locked = 1;
        }
        // Also where a row is locked.
        if answer.is_ok() {
            request.in_touch();
        }
        match answer {
            Ok((Reply::Done { number, now }, sent_at)) => {
                let Some(token) = Token::new(number) else { break Turned::Failed(Fault::Answer) };
                // Who fits in beside it may be here, too.
                if !request.claim().is_exclusive() {
                    shared.freed(request.name());
                }
                break Turned::Granted(granted(&request, token, sent_at, now));
            }
            Ok((Reply::Queued { busy: now, rest }, _)) => {
                next = nap(now.ahead, rest);
                pause = Duration::from_millis(10);
                request.queued(now.clone());
                busy = now;
            }
            Ok((Reply::Locked, _)) => {
                next = after_locked(locked);
                locked += 1;
            }
            // It was on its way for too long, or the server's clock was set; or who listens for us was ended, which is known soon.
            Ok((Reply::Past | Reply::Unheard, _)) => {
                next = pause + Duration::from_millis(fastrand::u64(0..10));
                pause = (pause * 2).min(Duration::from_millis(250));
            }
            Ok((Reply::Gone { .. }, _)) => break Turned::Displaced,
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
    drop(expected);
}
/// Until the next look of one who is told: when something ends by itself, those in front first; and now and then.
fn told_nap(ahead: Option<u32>, rest: Option<Duration>) -> Duration {
    let ahead = ahead.unwrap_or(0);
    // Nobody has it: whoever is in front may be gone.
    // Whoever is far away is told in time, too; should that word be lost he comes nearer meanwhile, or looks later.
    let far = 2 * LOOK * u64::from(1 + ahead.min(100) / 25);
    let look =
        if ahead == 0 || rest.is_none() { FIRST } else { Duration::from_millis(fastrand::u64(far..far * 5 / 4)) };
    rest.map_or(look, |rest| (rest + APART * ahead + Duration::from_millis(2)).min(look))
}

/// Listens while anybody waits. What it was not told is looked for by each waiter.
pub(crate) async fn listen(shared: Arc<Shared>) {
    let (channel, mut pause) = (shared.channel(), Duration::from_millis(10));
    while shared.link.may_listen() {
        match timeout(2 * CONNECT_TIMEOUT, shared.link.listen(&channel)).await {
            Ok(Ok(Some(mut ears))) => {
                shared.set_ears(Some(ears.pid));
                // From here on those who release know whether we are there.
                let _ = shared.beat(BEAT).await;
                shared.wake_all();
                let since = Instant::now();
                let rests = hear(&shared, &mut ears, &channel).await;
                shared.set_ears(None);
                drop(ears);
                // Whoever comes next is not taken for dead with it.
                let _ = shared.beat(BEAT).await;
                if rests {
                    return;
                }
                if since.elapsed() > FIRST {
                    pause = Duration::from_millis(10);
                }
            }
            // A pooler in between: whoever waits looks by himself.
            Ok(Ok(None)) => pause = SHARED,
            Ok(Err(fault)) if shared.link.tell("lock", &fault).kind() == ErrorKind::PermissionDenied => {
                pause = Duration::from_secs(1);
            }
            _ => {}
        }
        if shared.may_rest() {
            return;
        }
        sleep(pause + Duration::from_millis(fastrand::u64(0..10))).await;
        pause = (pause * 2).min(Duration::from_secs(1)).max(pause.min(SHARED));
    }
    // Nobody tries again until `run` is begun anew.
}
/// Until it breaks; true: until nobody waits any more.
async fn hear(shared: &Arc<Shared>, ears: &mut Ears, channel: &str) -> bool {
    let (mut rest, mut beats, mut tidying) = (interval(REST), interval(BEAT), JoinSet::new());
    rest.reset();
    beats.reset();
    loop {
        tokio::select! {
            word = ears.heard.recv() => match word {
                Some(word) => if let Some((name, hold)) = shared.heard(&word) {
                    // Nobody here waits for it any more: the next one is told (SAFETY G2).
                    tokio::spawn(give_back(shared.clone(), vec![(name, hold)]));
                },
                None => return false,
            },
            _ = rest.tick() => if shared.may_rest() {
                return true;
            },
            Some(_) = tidying.join_next(), if !tidying.is_empty() => {}
            // *Invariant:* whoever says that he listens says so where he does: his process at the server is what others take him to be
            // alive by.
            _ = beats.tick() => if shared.somebody_waits() {
                let beat = shared.next_beat(Some(ears.pid));
                match ears.are_ours(BEAT, channel, &format!("{};", beat.call)).await {
                    // One after the other: what is not done yet would be found again.
                    Ok(Some(rows)) if tidying.is_empty() => {
                        tidying.spawn(give_back(shared.clone(), beat.left_behind(shared, &rows)));
                    }
                    Ok(Some(_)) => {}
                    // *Invariant:* one that is deaf is replaced while its client is still taken to be alive. At a server that is slow all
                    // are as deaf: another connection knows.
                    Err(Fault::Unanswered) if shared.beat(BEAT).await.is_err() => {}
                    _ => return false,
                }
            },
        }
    }
}
/// Places that nobody here waits in any more: those beside whom they were would keep them alive. What does not come through is found again.
async fn give_back(shared: Arc<Shared>, places: Vec<(Name, HoldId)>) {
    for (name, hold) in places {
        // It may be taken back since.
        if !shared.leaving.has(hold) {
            let _ = shared.quit(&name, hold).await;
        }
    }
}
/// Says that this client lives, for as long as anybody of it waits: a client that does not is passed.
///
/// *Invariant:* whoever comes is known by the process by which he comes, and that is not taken back before there was time to listen: he
/// would count as alive for all of a life if he was killed meanwhile.
pub(crate) async fn beat(shared: Arc<Shared>, is_first: bool) {
    let began = BootClock.now();
    match shared.silent_in() {
        _ if is_first => sleep(BEAT / 4).await,
        // By then somebody may have looked.
        Some(rest) => sleep(rest.clamp(BEAT / 10, BEAT)).await,
        None => shared.turned.notified().await,
    }
    if shared.silent_in().is_none_or(|rest| !is_first && !rest.is_zero()) {
        return;
    }
    if let Ok(places) = shared.beat(BEAT).await {
        give_back(shared, places).await;
    }
    // However often somebody comes, or it is refused.
    sleep(BEAT.saturating_sub(began.until(BootClock.now()))).await;
}
