//! The engine's own background: it waits in queues, shows that it lives, looks after the server, and cleans up.
use crate::{
    error::Fault,
    link::ask,
    shared::{Expected, Shared},
    turns::{give_back, pulse, wait},
    wire::{call::Call, reply::column},
};
use fencelock_core::{BootClock, Busy, Clock, Event, HoldId, Moment, Name, Reports, Request, within};
use fencelock_database::{PATIENCE, Turned, micros};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

pub(crate) enum Order {
    /// This request has a place in its queue; something ends by itself after so long.
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
    // Whoever showed that we live was a task of the run before.
    if shared.pulse().is_some() {
        shared.set_pulse(None);
    }
    let (mut tasks, mut pulses, mut looks) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    let mut clean_up = interval(CLEAN.min(retention));
    clean_up.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut feeling = pin!(shared.feel());
    loop {
        tokio::select! {
            order = inbox.recv() => match order {
                Some(Order::Wait { request, expected, busy, rest, reply }) => {
                    if pulses.is_empty() {
                        pulses.spawn(pulse(shared.clone()));
                    }
                    if looks.is_empty() {
                        looks.spawn(give_back(shared.clone()));
                    }
                    tasks.spawn(wait(shared.clone(), request, expected, busy, rest, reply));
                }
                Some(Order::Sweep { name, hold, until }) => {
                    tasks.spawn(sweep(shared.clone(), name, hold, until));
                }
                None => return std::future::pending().await,
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            Some(_) = pulses.join_next(), if !pulses.is_empty() => {
                if shared.somebody_waits() {
                    pulses.spawn(pulse(shared.clone()));
                }
            }
            Some(_) = looks.join_next(), if !looks.is_empty() => {
                if shared.somebody_waits() {
                    looks.spawn(give_back(shared.clone()));
                }
            }
            // A failover may have cost holds: they are looked at at once, not with their next renewal (SAFETY G6). And our pulse may beat
            // where nobody looks for it: until it is felt again our sign of life counts alone, and nobody is passed.
            () = shared.link.broke.notified() => {
                reports.send(Event::Recheck);
                shared.doubt_pulse();
            }
            () = &mut feeling => return,
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
        if shared.leave(&name, hold, None).await.is_ok() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
}
/// In small parts, so that nobody waits for it, and by a connection of its own: where it takes long, the others are none the worse.
async fn clean(shared: Arc<Shared>, retention: Duration) {
    const PART: i64 = 200;
    let call = Call::new("clean").number(micros(retention)).end();
    let Ok(mut session) = shared.link.dedicated().await else { return };
    loop {
        let Some(Ok(rows)) = within(4 * PATIENCE, ask(&mut session, call.clone())).await else { return };
        let gone = rows.first().and_then(|row| column(row, 0)).and_then(|gone| gone.parse::<i64>().ok());
        if gone.is_none_or(|gone| gone < PART) {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
}
