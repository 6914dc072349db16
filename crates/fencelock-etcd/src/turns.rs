//! Waiters: each hears of the one in front, and of nobody else.
use crate::{
    claims::{Confirmed, Front},
    error::Fault,
    leases::Place,
    shared::Shared,
    watch::{Ear, Heard, Target, Watches},
};
use fencelock_core::{Busy, Grant, Request};
use std::{sync::Arc, time::Duration};
use tokio::{sync::oneshot, time::sleep};

/// Without word for so long a waiter looks: word may have been lost, or its key been taken away.
const REST: Duration = Duration::from_secs(30);

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Turned {
    Granted(Grant),
    Stopped(Busy),
    /// Its key is gone, with its lease or by somebody's hand.
    Displaced,
    Failed(Fault),
}

/// Waits in the queue until it is granted, stopped, or has no place any more. An outage is survived, until the caller's limit
/// (SAFETY E8).
pub(crate) async fn wait(
    shared: Arc<Shared>,
    watches: Arc<Watches>,
    request: Request,
    place: Place,
    mut front: Front,
    mut reply: oneshot::Sender<Turned>,
) {
    const LEAST: Duration = Duration::from_millis(10);
    let (mut pause, own, mut ear) = (LEAST, place.spot.keys[0].as_bytes(), Ear::default());
    let end = 'turn: loop {
        // Who knows nothing looks, and not again and again.
        let (mut word, mut news) = (front.line.is_some(), false);
        if front.waits() {
            // And for our own key: who has lost his place hears of it.
            let mut targets = std::mem::take(&mut front.before);
            targets.push(Target::goes(own));
            let watch = ear.at(&watches, targets, front.revision);
            let rest = sleep(REST);
            tokio::pin!(rest);
            loop {
                tokio::select! {
                    biased;
                    () = request.stopped() => break 'turn Turned::Stopped(*front.busy),
                    () = reply.closed() => return,
                    heard = watch.told() => {
                        (word, news) = (heard != Heard::Over, matches!(heard, Heard::Of(_)));
                        match heard {
                            Heard::Of(keys) if !front.is_news(&keys, own) => {}
                            Heard::Of(_) | Heard::Missed => break,
                            Heard::Over => {
                                ear.close();
                                break;
                            }
                        }
                    }
                    () = &mut rest => {
                        word = true;
                        // What it has heard of may not be all.
                        front.line = front.line.filter(|line| !line.hears_all);
                        ear.close();
                        break;
                    }
                }
            }
        }
        let confirm = async {
            let conn = shared.link.here().await?;
            if news { shared.confirm(&conn, &place, &front).await } else { shared.stands(&conn, &place, &front).await }
        };
        let answer = tokio::select! {
            biased;
            answer = confirm => answer,
            // Whoever stops takes back what it may have been granted.
            () = request.stopped() => break Turned::Stopped(*front.busy),
        };
        match answer {
            Ok(Confirmed::Granted { token }) => {
                break match shared.granted(&request, &place, token) {
                    Some(grant) => Turned::Granted(grant),
                    None => Turned::Failed(Fault::Answer),
                };
            }
            Ok(Confirmed::Waits(now)) => {
                request.queued((*now.busy).clone());
                front = now;
                // Something had happened; only not enough.
                if word && !front.before.is_empty() {
                    pause = LEAST;
                    continue;
                }
            }
            Ok(Confirmed::TooLarge) => {
                // It asks anew, and is told the size.
                let conn = shared.link.here().await;
                if let Ok(conn) = &conn
                    && shared.undo(conn, &place).await.is_ok()
                {
                    shared.forget(&place);
                    break Turned::Displaced;
                }
            }
            Ok(Confirmed::Gone) => {
                shared.bury(&place);
                break Turned::Displaced;
            }
            Err(fault) if fault.may_pass() => request.cut_off(),
            Err(fault) => break Turned::Failed(fault),
        }
        tokio::select! {
            biased;
            () = request.stopped() => break Turned::Stopped(*front.busy),
            () = reply.closed() => return,
            () = sleep(pause + Duration::from_millis(fastrand::u64(0..10))) => {}
        }
        pause = (pause * 2).min(Duration::from_millis(250));
    };
    let _ = reply.send(end);
}
