//! The engine's own background: it waits in queues, listens, says that it lives, and cleans up.
use crate::{
    error::Fault,
    shared::{Expected, Shared},
    turns::{beat, listen, wait},
};
use fencelock_core::{BootClock, Busy, Clock, Event, HoldId, Moment, Name, Reports, Request};
use fencelock_database::{PATIENCE, Turned, micros};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

pub(crate) enum Order {
    /// This request has a place in its queue; look again after so long.
    Wait {
        request: Request,
        expected: Expected,
        busy: Busy,
        rest: Option<Duration>,
        reply: oneshot::Sender<Turned<Fault>>,
    },
    /// A command that grants this hold may arrive until then, and nobody has it any more.
    Sweep { name: Name, hold: HoldId, until: Moment },
}
/// So often what nobody uses is looked for.
const CLEAN: Duration = Duration::from_secs(3_600);

/// Never returns.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    inbox: &mut mpsc::UnboundedReceiver<Order>,
    reports: &Reports,
    retention: Duration,
) {
    // Whoever listened was a task of the run before.
    shared.nobody_listens();
    shared.set_ears(None);
    let (mut tasks, mut beats) = (JoinSet::new(), JoinSet::new());
    let mut clean_up = interval(CLEAN.min(retention));
    clean_up.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            order = inbox.recv() => match order {
                Some(Order::Wait { request, expected, busy, rest, reply }) => {
                    if shared.must_listen() {
                        tasks.spawn(listen(shared.clone()));
                    }
                    if beats.is_empty() {
                        beats.spawn(beat(shared.clone(), true));
                    }
                    tasks.spawn(wait(shared.clone(), request, expected, busy, rest, reply));
                }
                Some(Order::Sweep { name, hold, until }) => {
                    tasks.spawn(sweep(shared.clone(), name, hold, until));
                }
                None => return std::future::pending().await,
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            Some(_) = beats.join_next(), if !beats.is_empty() => {
                if shared.somebody_waits() {
                    beats.spawn(beat(shared.clone(), false));
                }
            }
            // A failover may have cost holds: they are looked at at once, not with their next renewal (SAFETY G6).
            () = shared.link.broke.notified() => reports.send(Event::Recheck),
            _ = clean_up.tick() => {
                tasks.spawn(clean(shared.clone(), retention));
            }
        }
    }
}
/// Ends what a command grants that comes late.
async fn sweep(shared: Arc<Shared>, name: Name, hold: HoldId, until: Moment) {
    sleep(BootClock.now().until(until) + Duration::from_millis(1)).await;
    // What is not ended by then ends with its lease.
    for _ in 0..10 {
        if shared.withdraw(&name, hold).await.is_ok() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
}
/// In small parts, so that nobody waits for it.
async fn clean(shared: Arc<Shared>, retention: Duration) {
    const PART: i64 = 100;
    let reap = shared.link.call("reap").end();
    let forget = shared.link.call("clean").number(micros(retention)).end();
    let Ok(conn) = shared.link.aside().await else { return };
    for call in [reap, forget] {
        loop {
            let Ok(rows) = shared.link.rows(&conn, 4 * PATIENCE, &call).await else { return };
            let gone = rows.first().and_then(|row| row.get(0)).and_then(|gone| gone.parse::<i64>().ok());
            if gone.is_none_or(|gone| gone < PART) {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}
