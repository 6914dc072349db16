//! `wait=spin` where there is a queue: nobody stands in it. Each looks by himself, less often as time goes by.
use crate::engine::RedisEngine;
use fencelock_core::{BootClock, Clock, Error, Outcome, Pace, Request, Result};
use std::time::Duration;
use tokio::time::sleep;

/// Looks until it is granted or stopped. Once somebody was in the way an outage is survived, until the caller's limit (SAFETY E8); not where
/// replicas are counted.
///
/// *Invariant (SAFETY E8):* a grant that too few replicas have is told, and core takes it back. The next look would find it as its own, and
/// keep it for as long as there are too few.
///
/// *Invariant (SAFETY A2, A3):* all looks have one hold id, and each an end of its own. So one that breaks off and arrives late grants what a
/// later look finds as its own, or what core takes back; it is swept up by nobody else, who would end what a later look was granted.
pub(crate) async fn acquire(engine: &RedisEngine, request: &Request) -> Result<Outcome> {
    let passes = |error: &Error| error.is_temporary() && !engine.counts_replicas();
    let (mut pace, mut pause, mut was_in_the_way) = (Pace::new(BootClock.now()), Duration::from_millis(10), None);
    loop {
        let next = match engine.attempt(request, false).await {
            Ok(Outcome::Busy(busy)) => {
                if request.is_stopped() {
                    return Ok(Outcome::Busy(was_in_the_way.unwrap_or(busy)));
                }
                request.queued(busy.clone());
                (was_in_the_way, pause) = (Some(busy), Duration::from_millis(10));
                pace.nap(BootClock.now(), Some(0), None)
            }
            Err(error) if was_in_the_way.is_some() && passes(&error) && !request.is_stopped() => {
                request.cut_off();
                let next = pause + Duration::from_millis(fastrand::u64(0..10));
                pause = (pause * 2).min(Duration::from_millis(250));
                next
            }
            answer => return answer,
        };
        tokio::select! {
            biased;
            () = request.stopped() => return Ok(Outcome::Busy(was_in_the_way.unwrap_or_default())),
            () = sleep(next) => {}
        }
    }
}
