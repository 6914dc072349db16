//! The engine's own background: it waits in queues, hears pushes, watches what is held, and keeps the store's identity.
use crate::{
    error::Fault,
    link::{Conn, follow},
    observers::{self, observe},
    plain,
    shared::{Ears, Expected, Haunt, Place, Shared},
    turns::{Seen, Turned, heard, listen, wait},
    watch::Watches,
    wire::{reply::text, scripts::REMEMBER},
};
use fencelock_core::{BootClock, Busy, Clock, HoldId, Name, Reports, Request, Token};
use redis::PushKind;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

/// So long a subscription is waited for before there is a place in the queue: where there is none whoever waits looks now and then.
const HEARS: Duration = Duration::from_millis(500);

pub(crate) enum Order {
    /// This attempt will have a place in its queue; the sender is dropped when somebody listens for it, or has tried to.
    Listen { place: Arc<Place>, reply: oneshot::Sender<()> },
    /// This request has a place in its queue; look again after so long.
    Wait {
        request: Request,
        expected: Expected,
        busy: Busy,
        next: Duration,
        seen: Seen,
        reply: oneshot::Sender<Turned>,
    },
    /// This request waits, in the layout `plain`: look when it is free.
    Look { request: Request, busy: Busy, reply: oneshot::Sender<Turned> },
    /// A command that grants this hold may arrive until then, and nobody has it any more.
    Sweep { key: String, hold: HoldId, haunt: Haunt },
    /// Tell when this token is not that of the one who holds it alone.
    Observe { name: Name, seen: Option<Token>, reply: observers::Reply },
}

/// Never returns.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    inbox: &mut mpsc::UnboundedReceiver<Order>,
    reports: &Reports,
    id: Option<&str>,
    retention: Duration,
) {
    let (told, mut pushes) = mpsc::unbounded_channel();
    shared.link.attend(told);
    // Whoever listened was a task of the run before.
    shared.nobody_listens();
    let (mut tasks, mut watches) = (JoinSet::new(), Watches::default());
    let mut remember = interval((retention / 3).max(Duration::from_millis(300)));
    remember.set_missed_tick_behavior(MissedTickBehavior::Delay);
    remember.reset();
    tasks.spawn(follow(shared.link.clone()));
    loop {
        let due = watches.next(shared);
        let due = due.map(|at| BootClock.now().until(at));
        tokio::select! {
            order = inbox.recv() => match order {
                Some(Order::Listen { place, reply }) => {
                    let ears = heeded(shared, &mut tasks, &place);
                    tasks.spawn(async move {
                        let mut hears = ears.hears.subscribe();
                        drop((timeout(HEARS, hears.wait_for(|hears| *hears)).await, reply));
                    });
                }
                Some(Order::Wait { request, expected, busy, next, seen, reply }) => {
                    heeded(shared, &mut tasks, &expected.place);
                    tasks.spawn(wait(shared.clone(), request, expected, busy, next, seen, reply));
                }
                Some(Order::Look { request, busy, reply }) => {
                    tasks.spawn(plain::wait(shared.clone(), request, busy, reply));
                }
                Some(Order::Sweep { key, hold, haunt }) => {
                    let shared = shared.clone();
                    tasks.spawn(async move { sweep(&shared, &key, hold, haunt).await });
                }
                Some(Order::Observe { name, seen, reply }) => {
                    tasks.spawn(observe(shared.clone(), name, seen, reply));
                }
                None => return std::future::pending().await,
            },
            Some(push) = pushes.recv() => match push.kind {
                PushKind::SMessage => heard(shared, push.data.get(1).and_then(text)),
                // Its slot has moved.
                PushKind::SUnsubscribe => push.data.first().and_then(text).into_iter().for_each(|c| shared.deaf(c)),
                _ => watches.told(&push, shared),
            },
            () = sleep(due.unwrap_or_default()), if due.is_some() => watches.look(shared, reports, &mut tasks),
            () = shared.fresh.notified() => {}
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            _ = remember.tick(), if id.is_some() => {
                let (shared, id) = (shared.clone(), id.unwrap_or_default().to_owned());
                tasks.spawn(async move { drop(remember_id(&shared, &id).await) });
            }
        }
    }
}

/// Somebody listens for this attempt from here on.
fn heeded(shared: &Arc<Shared>, tasks: &mut JoinSet<()>, place: &Arc<Place>) -> Arc<Ears> {
    let (ears, is_new) = shared.ears(&place.channel);
    if is_new {
        let (shared, place, ears) = (shared.clone(), place.clone(), ears.clone());
        tasks.spawn(async move { listen(&shared, &place.key, &place.channel, &ears).await });
    }
    ears
}

/// Ends what a command grants that comes late. Tried for as long as there may be something to end.
pub(crate) async fn sweep(shared: &Shared, key: &str, hold: HoldId, haunt: Haunt) {
    sleep(BootClock.now().until(haunt.until) + Duration::from_millis(1)).await;
    let mut pause = Duration::from_millis(100);
    while shared.leave(key, hold, None).await.is_err() && BootClock.now() < haunt.over {
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// The store's identity goes with the last who knows it; it is put back after it was lost, as what it was (SAFETY K3).
pub(crate) async fn remember_id(shared: &Shared, id: &str) -> Result<String, Fault> {
    let (key, args) = (&*shared.keys.id(), [id.as_bytes()]);
    let ask = |conn: Conn| async move {
        shared.link.eval(&conn, conn.server.patience(), &REMEMBER, &[key], args.into_iter()).await
    };
    let answer = shared.link.again(key, ask).await?;
    text(&answer).map(str::to_owned).ok_or(Fault::Answer)
}
