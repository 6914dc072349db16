//! The background of sessions: opens them, says that they live, waits in the server's queues, and buries what has ended.
use super::{
    Sessions,
    bearer::{Bearer, Beat, bury},
};
use crate::{error::Fault, wire::reply::Reply};
use fencelock_core::{BootClock, Busy, Clock, Event, HoldId, LossReason, Reports, Request, Token};
use fencelock_database::{
    Turned, after_locked,
    session::{Bears, ends, granted},
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

pub(crate) enum Order {
    /// A session of this ttl, for whoever comes.
    Open { ttl: Duration, reply: oneshot::Sender<Result<Arc<Bearer>, Fault>> },
    /// It is taken: wait for it.
    Wait { request: Request, busy: Busy, reply: oneshot::Sender<Turned<Fault>> },
}
/// Whoever is granted it confirms it within so long, or the next one has it: the server ends a session that says nothing (SAFETY E3, H2), and
/// counts in seconds.
const CONFIRM: Duration = Duration::from_secs(2);
/// Nothing tells of a session's end: while it bears anything it is looked so often, and not only when a sign of life is due.
const LOOK: Duration = Duration::from_millis(450);
/// So often the pulse of one that waits is felt.
const FEEL: Duration = Duration::from_secs(5);
/// Until it is woken.
const LONG: Duration = Duration::from_secs(86_400);
/// So many seconds one statement waits in the server's queue: GET_LOCK knows no endless wait on MariaDB.
const WAITS: i64 = 600;
/// What cannot be buried for so long, and for its ttl, has been ended by the server.
const BURIED: Duration = Duration::from_secs(60);

/// Never returns.
pub(crate) async fn run(sessions: &Arc<Sessions>, inbox: &mut mpsc::UnboundedReceiver<Order>, reports: &Reports) {
    let _reporting = sessions.report_to(reports);
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            order = inbox.recv() => match order {
                Some(Order::Open { ttl, reply }) => {
                    let sessions = sessions.clone();
                    tasks.spawn(async move {
                        let turn = sessions.opening.lock().await;
                        let (opened, is_new) = match sessions.shared_bearer(ttl) {
                            Some(bearer) => (Ok(bearer), false),
                            None => (open(&sessions, ttl, false).await, true),
                        };
                        drop(turn);
                        let _ = reply.send(opened.clone());
                        if let (Ok(bearer), true) = (opened, is_new) {
                            tend(sessions.clone(), bearer).await;
                        }
                    });
                }
                Some(Order::Wait { request, busy, reply }) => drop(tasks.spawn(wait(sessions.clone(), request, busy, reply))),
                None => return std::future::pending().await,
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}
async fn open(sessions: &Arc<Sessions>, ttl: Duration, alone: bool) -> Result<Arc<Bearer>, Fault> {
    let bearer = Arc::new(Bearer::open(&sessions.shared.link, sessions.next(), ttl, alone).await?);
    sessions.keep(&bearer);
    Ok(bearer)
}
/// For as long as it is there: signs of life while anything is held in it, what is asked back, and its end.
async fn tend(sessions: Arc<Sessions>, bearer: Arc<Bearer>) {
    let (step, most) = ((bearer.ttl / 3).min(LOOK), bearer.ttl * 2 / 3);
    let (mut answered, mut idle, mut due) = (BootClock.now(), None, Instant::now() + step);
    loop {
        let (rest, over) = bearer.first_due().map(|(at, hold)| (BootClock.now().until(at), hold)).unzip();
        tokio::select! {
            () = bearer.closing.notified() => {
                let rests = bearer.alone && bearer.is_empty() && !bearer.is_waiting();
                if !bearer.is_open() || rests && !sessions.rest(&bearer) {
                    break;
                }
            },
            // One at a time: signs of life come in between.
            () = sleep(rest.unwrap_or_default()), if rest.is_some() => {
                if let Some(hold) = over {
                    // *Invariant:* told first. Whoever was handed it late, since his runtime stood still, counts from then.
                    if bearer.found(hold).is_some_and(|borne| !borne.leaves) {
                        sessions.report(Event::Lost { hold, reason: LossReason::MaxHold });
                    }
                    let _ = sessions.let_go(&bearer, hold).await;
                }
            }
            () = bearer.broken() => break,
            () = bearer.needed.notified() => (idle, due) = (None, due.min(Instant::now() + step)),
            // Of one that waits nothing is asked; one that is not needed goes before the server ends it.
            () = sleep_until(due) => if bearer.is_waiting() {
                (answered, idle, due) = (BootClock.now(), None, Instant::now() + LONG);
            } else if bearer.is_empty() {
                answered = BootClock.now();
                let left = most.saturating_sub(idle.get_or_insert(answered).until(answered));
                if left.is_zero() && bearer.end_if_idle() {
                    sessions.report(Event::SessionEnded { session: bearer.session });
                    return sessions.gone(&bearer);
                }
                due = Instant::now() + if left < most { bearer.nap(step, left) } else { step };
            } else {
                (idle, due) = (None, Instant::now() + step);
                let beat = tokio::select! {
                    biased;
                    beat = bearer.beat() => beat,
                    // *Invariant:* whoever closes a session waits until its holders were told.
                    () = bearer.closing.notified() => if bearer.is_open() { continue } else { break },
                };
                match beat {
                    Ok(Beat { sent_at, asked }) => {
                        answered = sent_at;
                        bearer.alive(sessions.reports().as_ref(), sent_at);
                        for hold in asked {
                            sessions.give_back(&bearer, hold).await;
                        }
                    }
                    // It is asked again: core tells the loss when it is time. A right that is taken away for a while is no end of it.
                    Err(fault)
                        if (fault.is_refusal() || matches!(fault, Fault::Unanswered) && bearer.is_connected())
                            && answered.until(BootClock.now()) < bearer.ttl => {}
                    Err(_) => break,
                }
            },
        }
    }
    bearer.end();
    // Told first: from here on nobody takes any of it for good. Then the server frees it, if it has not: where only our side of the
    // connection has broken it would keep the locks for a ttl. And then it is forgotten.
    sessions.report(Event::SessionEnded { session: bearer.session });
    bearer.hang_up();
    let limit = BootClock.now() + BURIED.max(bearer.ttl);
    while !matches!(bury(&sessions.shared.link, bearer.id).await, Ok(true) | Err(Fault::Closed))
        && BootClock.now() < limit
    {
        sleep(Duration::from_millis(fastrand::u64(5..20))).await;
    }
    sessions.gone(&bearer);
}

/// Waits in the server's queue, on a connection of its own, which then bears the lock.
async fn wait(sessions: Arc<Sessions>, request: Request, mut busy: Busy, mut reply: oneshot::Sender<Turned<Fault>>) {
    let (mut pause, mut displaced) = (Duration::from_millis(10), false);
    let passes = |fault: &Fault| sessions.shared.link.tell("lock", fault).is_temporary();
    let end = loop {
        let opened = tokio::select! {
            biased;
            () = request.stopped() => break Turned::Stopped(busy),
            () = reply.closed() => return,
            opened = one_that_waits(&sessions, request.ttl()) => opened,
        };
        let bearer = match opened {
            Ok(bearer) => bearer,
            // The session that he has may take it, when it is free.
            Err(fault) if fault.is_full() => {
                request.queued(busy);
                break Turned::Displaced;
            }
            Err(fault) if passes(&fault) => {
                // An outage: it is tried again (SAFETY E8).
                request.cut_off();
                tokio::select! {
                    biased;
                    () = request.stopped() => break Turned::Stopped(busy),
                    () = reply.closed() => return,
                    () = sleep(pause + Duration::from_millis(fastrand::u64(0..10))) => {}
                }
                pause = (pause * 2).min(Duration::from_millis(500));
                continue;
            }
            Err(fault) => break Turned::Failed(fault),
        };
        // There is a server again. Nobody sees the same hold in two sessions: what waited in the one before never holds.
        if displaced {
            bearer.has_waited();
            bearer.closing.notify_one();
            break Turned::Displaced;
        }
        bearer.intend(request.hold(), sessions.borne(&request));
        sessions.hold(request.hold(), &bearer);
        let tended = Tended { sessions: &sessions, bearer: &bearer };
        let turned = tokio::select! {
            biased;
            // Whoever stops takes it back: core withdraws, and this session is ended.
            () = request.stopped() => Ok(Turned::Stopped(busy.clone())),
            turned = tended.turn(&request, &mut busy) => turned,
        };
        match turned {
            Ok(end @ (Turned::Granted(_) | Turned::Stopped(_))) => break end,
            // Its place is gone with its session. When that is gone it comes again, under a fresh id, to whatever server there is then
            // (SAFETY E8).
            end => {
                if end.is_err() {
                    request.cut_off();
                }
                bearer.close();
                tokio::select! {
                    biased;
                    () = request.stopped() => break Turned::Stopped(busy),
                    () = reply.closed() => return,
                    () = async { while !sessions.is_buried(&bearer).await {} } => {}
                }
                match end {
                    Ok(end) => break end,
                    Err(fault) if passes(&fault) => {
                        displaced = true;
                        sleep(Duration::from_millis(fastrand::u64(5..20))).await;
                    }
                    Err(fault) => break Turned::Failed(fault),
                }
            }
        }
    };
    // Nobody takes it: the guard was never made.
    if let Err(Turned::Granted(grant)) = reply.send(end)
        && let Some(bearer) = sessions.bearer_of(grant.hold)
    {
        let _ = sessions.let_go(&bearer, grant.hold).await;
    }
}
/// A connection that bears nothing: one that waited before, or another one.
async fn one_that_waits(sessions: &Arc<Sessions>, ttl: Duration) -> Result<Arc<Bearer>, Fault> {
    let idle = ttl.min(CONFIRM);
    if let Some(bearer) = sessions.rested(ttl) {
        // The server may have ended it, and the others.
        if begun(&bearer, idle).await.is_ok() {
            return Ok(bearer);
        }
    }
    let bearer = open(sessions, ttl, true).await?;
    // Before anything is told of it: one that is neither waiting nor bearing anything is idle.
    bearer.will_wait();
    tokio::spawn(tend(sessions.clone(), bearer.clone()));
    begun(&bearer, idle).await?;
    Ok(bearer)
}
/// Whoever gives up meanwhile, or cannot, leaves nothing that nobody waits in.
async fn begun(bearer: &Arc<Bearer>, idle: Duration) -> Result<(), Fault> {
    let unless = Closing(Some(bearer.clone()));
    bearer.begin_waiting(idle).await?;
    unless.keep();
    Ok(())
}
/// It is closed with this, unless it is needed.
struct Closing(Option<Arc<Bearer>>);
impl Closing {
    fn keep(mut self) {
        self.0 = None;
    }
}
impl Drop for Closing {
    fn drop(&mut self) {
        self.0.iter().for_each(|bearer| bearer.close());
    }
}
struct Tended<'a> {
    sessions: &'a Arc<Sessions>,
    bearer: &'a Arc<Bearer>,
}
impl Tended<'_> {
    async fn turn(&self, request: &Request, busy: &mut Busy) -> Result<Turned<Fault>, Fault> {
        let (sessions, bearer) = (self.sessions, self.bearer);
        let mut tries = 1;
        loop {
            // What it has already it does not wait for.
            let call = sessions.call("await", bearer, request).number(WAITS).end();
            let answer = tokio::select! {
                biased;
                answer = bearer.wait(call) => answer?,
                never = self.told(request, busy) => match never {},
                () = self.vanished() => return Err(Fault::Unanswered),
            };
            match answer {
                Reply::Done { number, .. } => return self.confirm(request, number).await,
                // Somebody's own transaction keeps its row (SAFETY E2).
                Reply::Locked => sleep(after_locked(tries)).await,
                // It is ours, and the one before has said how long it is not free.
                // No longer than the server lets it be silent.
                Reply::Reserved { rest } => {
                    sleep((rest + Duration::from_millis(1)).min(request.ttl().min(CONFIRM) / 3)).await
                }
                Reply::Busy(now) => {
                    *busy = now;
                    sleep(after_locked(tries)).await;
                }
                // It is a value by now. Whoever comes again is told so.
                Reply::OtherKind(_) => return Ok(Turned::Displaced),
                Reply::Layout(other) => return Err(Fault::Layout(other)),
                _ => return Err(Fault::Answer),
            }
            tries += 1;
        }
    }
    /// Whoever waits is told how he stands, once he does.
    async fn told(&self, request: &Request, busy: &mut Busy) -> Infallible {
        let mut pause = Duration::from_millis(1);
        loop {
            match self.sessions.place(request, self.bearer).await {
                Ok(Some(now)) => {
                    request.queued(now.clone());
                    *busy = now;
                    return std::future::pending().await;
                }
                Ok(None) => sleep(pause).await,
                Err(_) => sleep(Duration::from_millis(250)).await,
            }
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }
    /// Until its session is not at the server any more: where a server vanishes without a word nothing else tells those who wait (SAFETY E8).
    /// While there is none that could be asked it is better off where it is.
    async fn vanished(&self) {
        loop {
            sleep(FEEL).await;
            if self.sessions.has_vanished(self.bearer).await {
                return;
            }
        }
    }
    /// *Invariant (SAFETY G1, G2):* the lock came at a time that nobody here knows; what counts is a sign of life that was answered since.
    async fn confirm(&self, request: &Request, number: i64) -> Result<Turned<Fault>, Fault> {
        let Beat { sent_at, .. } = self.bearer.beat().await?;
        self.bearer.has_waited();
        self.bearer.alive(self.sessions.reports().as_ref(), sent_at);
        let token = Token::new(number).ok_or(Fault::Answer)?;
        self.bearer.granted(request.hold(), number, ends(request, sent_at));
        Ok(Turned::Granted(granted(request, token, self.bearer.session)))
    }
}
impl Sessions {
    /// Somebody with the right to do so has asked for it: it is told, and then given back (SAFETY G6).
    async fn give_back(&self, bearer: &Arc<Bearer>, hold: HoldId) {
        if bearer.found(hold).is_some_and(|borne| borne.token != 0) {
            self.report(Event::Lost { hold, reason: LossReason::TakenOver });
            let _ = self.let_go(bearer, hold).await;
        }
        let done = format!("DELETE FROM fencelock_asked WHERE bearer = X'{}' AND hold = X'{hold}'", bearer.id);
        // Whoever asks for signs of life does not wait for that.
        let shared = self.shared.clone();
        tokio::spawn(async move { shared.link.again(&done).await.map(drop) });
    }
}
