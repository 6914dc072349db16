//! Waiting for a key that others use, too: whoever asks when it is free has it. Where the server tells of changes it is asked then.
use super::record::Claimed;
use crate::{error::Fault, observers::Observed, shared::Shared, turns::Turned};
use fencelock_core::{BootClock, Busy, Clock, Pace, Request};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

/// Where changes are told, one looks so often all the same, in ms.
const CALM: std::ops::Range<u64> = 1_050..1_300;
/// Those who hear of one change, or wait for one lease to end, do not all come at once, in µs.
const APART: u64 = 2_000;

/// Looks until it is granted or stopped. An outage is survived, until the caller's limit (SAFETY E8).
///
/// By a task of `run`: its connection is the one that the server tells of changes.
pub(crate) async fn wait(shared: Arc<Shared>, request: Request, mut busy: Busy, mut reply: oneshot::Sender<Turned>) {
    let key = shared.keys.key(request.name());
    let observed = Observed::new(&shared, &key);
    let Some(changed) = &observed.changed else { return };
    let (mut pace, mut pause, mut late) = (Pace::new(BootClock.now()), Duration::from_millis(10), false);
    let end = loop {
        let mut change = pin!(changed.notified());
        // From here on no change is missed: the claim makes the server tell of the next one.
        change.as_mut().enable();
        let claim = async { shared.claim(shared.link.at(&key).await?, &request, !shared.spins).await };
        let answer = tokio::select! {
            biased;
            answer = claim => answer,
            // Whoever stops takes back what it may have been granted.
            () = request.stopped() => break Turned::Stopped(busy),
        };
        let next = match answer {
            Ok(Claimed::Granted { number, now, sent_at, value }) => {
                break match shared.acknowledged(&request, sent_at).await {
                    Ok(sent_at) => shared
                        .granted_as(&request, number, sent_at, now, value)
                        .map_or(Turned::Failed(Fault::Answer), Turned::Granted),
                    Err(fault) => Turned::Failed(fault),
                };
            }
            Ok(Claimed::Busy { busy: now, rest, tracks }) => {
                (late, pause) = (false, Duration::from_millis(10));
                request.queued(now.clone());
                busy = now;
                let look = if tracks && !shared.spins {
                    Duration::from_millis(fastrand::u64(CALM))
                } else {
                    pace.nap(BootClock.now(), Some(0), None)
                };
                let ends = rest.map(|rest| rest + Duration::from_micros(1_000 + fastrand::u64(0..APART)));
                ends.map_or(look, |ends| ends.min(look))
            }
            // It is asked for anew, and told what it is.
            Ok(Claimed::OtherKind(_)) => break Turned::Displaced,
            Ok(Claimed::Stopped) => break Turned::Stopped(busy),
            Ok(Claimed::Past) if !late => {
                late = true;
                Duration::ZERO
            }
            answer => {
                if let Err(fault) = &answer
                    && !shared.link.tell("lock", fault).is_temporary()
                {
                    break Turned::Failed(fault.clone());
                }
                if answer.is_err() {
                    request.cut_off();
                } else {
                    request.in_touch();
                }
                let next = pause + Duration::from_millis(fastrand::u64(0..10));
                pause = (pause * 2).min(Duration::from_millis(250));
                next
            }
        };
        tokio::select! {
            biased;
            () = request.stopped() => break Turned::Stopped(busy),
            () = reply.closed() => return,
            () = sleep(next), if shared.spins => {}
            heard = timeout(next, change), if !shared.spins => if heard.is_ok() {
                sleep(Duration::from_micros(fastrand::u64(0..APART))).await;
            }
        }
    };
    let _ = reply.send(end);
}
