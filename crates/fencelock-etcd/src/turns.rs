//! Waiters: each hears of the one in front, and of nobody else.
use crate::{
    error::Fault,
    leases::Place,
    shared::{Confirmed, Front, Shared},
    watch::Watches,
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
    let mut pause = LEAST;
    let end = loop {
        let waited_for = front.before.take();
        if let Some(before) = waited_for.clone() {
            let watch = watches.add(before, front.revision + 1);
            tokio::select! {
                biased;
                () = request.stopped() => break Turned::Stopped(front.busy),
                () = reply.closed() => return,
                () = watch.gone() => {}
                () = sleep(REST) => {}
            }
        }
        let confirm = async {
            let conn = shared.link.here().await?;
            shared.confirm(&conn, &place, front.created).await
        };
        let answer = tokio::select! {
            biased;
            answer = confirm => answer,
            // Whoever stops takes back what it may have been granted.
            () = request.stopped() => break Turned::Stopped(front.busy),
        };
        match answer {
            Ok(Confirmed::Granted { token }) => {
                break match shared.granted(&request, &place, token) {
                    Some(grant) => Turned::Granted(grant),
                    None => Turned::Failed(Fault::Answer),
                };
            }
            Ok(Confirmed::Waits(now)) => {
                request.queued(now.busy.clone());
                front = now;
                // Somebody else is in front now. If it is the same one, word of him is not to be had so.
                if front.before.is_some() && front.before != waited_for {
                    pause = LEAST;
                    continue;
                }
            }
            Ok(Confirmed::Gone) => {
                shared.bury(&place);
                break Turned::Displaced;
            }
            Err(fault) if fault.may_pass() => {}
            Err(fault) => break Turned::Failed(fault),
        }
        tokio::select! {
            biased;
            () = request.stopped() => break Turned::Stopped(front.busy),
            () = reply.closed() => return,
            () = sleep(pause + Duration::from_millis(fastrand::u64(0..10))) => {}
        }
        pause = (pause * 2).min(Duration::from_millis(250));
    };
    let _ = reply.send(end);
}
