//! The background of sessions: opens them, says that they live, waits in the server's queues, and buries what has ended.
use super::{Sessions, bearer::Bearer};
use crate::{error::Fault, wire::reply::Reply};
use fencelock_core::{BootClock, Busy, Clock, Event, HoldId, LossReason, Reports, Request, Token};
use fencelock_database::{
    PATIENCE, Turned, after_locked,
    session::{Bears, Borne, ends, granted},
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, mpsc::UnboundedReceiver, oneshot},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

pub(crate) enum Order {
    /// A session of this ttl, for whoever comes.
    Open { ttl: Duration, reply: oneshot::Sender<Result<Arc<Bearer>, Fault>> },
    /// It is taken: wait for it.
    Wait { request: Request, busy: Busy, reply: oneshot::Sender<Turned<Fault>> },
}
/// Whoever is granted it confirms it within so long, or the next one has it: the server ends a session that says nothing (SAFETY E3, H2).
const CONFIRM: Duration = Duration::from_millis(1_500);
/// So often it is looked whether the session of one that waits is there.
const FEEL: Duration = Duration::from_secs(5);
/// What cannot be buried ends by itself after a ttl.
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
                        let opened = match sessions.shared_bearer(ttl) {
                            Some(bearer) => Ok((bearer, None)),
                            None => open(&sessions, ttl, false).await.map(|(bearer, heard)| (bearer, Some(heard))),
                        };
                        drop(turn);
                        match opened {
                            Ok((bearer, heard)) => {
                                let _ = reply.send(Ok(bearer.clone()));
                                if let Some(heard) = heard {
                                    tend(sessions.clone(), bearer, heard).await;
                                }
                            }
                            Err(fault) => drop(reply.send(Err(fault))),
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
async fn open(
    sessions: &Arc<Sessions>,
    ttl: Duration,
    alone: bool,
) -> Result<(Arc<Bearer>, UnboundedReceiver<String>), Fault> {
    let (bearer, heard) = Bearer::open(&sessions.shared.link, sessions.next(), ttl, alone).await?;
    let bearer = Arc::new(bearer);
    sessions.keep(&bearer);
    Ok((bearer, heard))
}
/// For as long as it is there: signs of life while anything is held in it, what is asked back, and its end.
async fn tend(sessions: Arc<Sessions>, bearer: Arc<Bearer>, mut heard: UnboundedReceiver<String>) {
    let mut beats = interval(bearer.ttl / 3);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answered = BootClock.now();
    loop {
        let (rest, over) = bearer.first_due().map(|(at, hold)| (BootClock.now().until(at), hold)).unzip();
        tokio::select! {
            word = heard.recv() => match word {
                Some(hold) => sessions.give_back(&bearer, &hold).await,
                // *Invariant:* the end of the connection is told at once; the server has freed what was held, or will when it hears of it.
                None => break,
            },
            () = bearer.closing.notified() => {
                let idle = bearer.alone && bearer.is_empty() && !bearer.is_waiting();
                if !bearer.is_open() || idle && !sessions.rest(&bearer) {
                    break;
                }
            },
            () = bearer.needed.notified() => {}
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
            // One that holds nothing is left to the server, which ends it; of one that waits nothing is asked.
            _ = beats.tick() => if bearer.is_empty() || bearer.is_waiting() {
                answered = BootClock.now();
            } else {
                let beat = tokio::select! {
                    biased;
                    beat = bearer.beat() => beat,
                    // *Invariant:* whoever closes a session waits until its holders were told.
                    () = bearer.closing.notified() => if bearer.is_open() { continue } else { break },
                };
                match beat {
                    Ok(sent_at) => {
                        answered = sent_at;
                        bearer.alive(sessions.reports().as_ref(), sent_at);
                    }
                    // It is asked again: core tells the loss when it is time.
                    Err(fault)
                        if (fault.is_refusal() || matches!(fault, Fault::Unanswered))
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
    bury(&sessions, &bearer).await;
    sessions.gone(&bearer);
}
async fn bury(sessions: &Arc<Sessions>, bearer: &Bearer) {
    let limit = BootClock.now() + BURIED.max(bearer.ttl);
    while !matches!(bearer.process.bury(&sessions.shared.link).await, Ok(true)) && BootClock.now() < limit {
        sleep(Duration::from_millis(fastrand::u64(5..20))).await;
    }
}

/// Waits in the server's queue, on a connection of its own, which then bears the lock.
async fn wait(sessions: Arc<Sessions>, request: Request, mut busy: Busy, mut reply: oneshot::Sender<Turned<Fault>>) {
    let mut pause = Duration::from_millis(10);
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
            Err(fault) if sessions.shared.link.tell("lock", &fault).is_temporary() => {
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
        bearer.intend(request.hold(), Borne::new(request.name(), sessions.lock_of(&request)));
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
            // Its place is gone with its session, which is gone before it comes again.
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
                break match end {
                    Ok(end) => end,
                    Err(fault) if sessions.shared.link.tell("lock", &fault).is_temporary() => Turned::Displaced,
                    Err(fault) => Turned::Failed(fault),
                };
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
    while let Some(bearer) = sessions.rested(ttl) {
        // The server may be about to end it.
        if bearer.begin_waiting(idle).await.is_ok() {
            return Ok(bearer);
        }
        bearer.close();
    }
    let (bearer, heard) = open(sessions, ttl, true).await?;
    tokio::spawn(tend(sessions.clone(), bearer.clone(), heard));
    bearer.begin_waiting(idle).await.inspect_err(|_| bearer.close())?;
    Ok(bearer)
}
struct Tended<'a> {
    sessions: &'a Arc<Sessions>,
    bearer: &'a Arc<Bearer>,
}
impl Tended<'_> {
    async fn turn(&self, request: &Request, busy: &mut Busy) -> Result<Turned<Fault>, Fault> {
        let (sessions, bearer) = (self.sessions, self.bearer);
        bearer.tell(&sessions.queue_call(request)).await?;
        let call = sessions.call("await", request);
        let mut answer = tokio::select! {
            biased;
            answer = bearer.wait(&call) => answer?,
            never = self.told(request, busy) => match never {},
            () = self.vanished() => return Err(Fault::Unanswered),
        };
        let mut tries = 1;
        loop {
            match answer {
                Reply::Done { number, .. } => return self.confirm(request, number).await,
                // It is ours, and somebody's own transaction keeps its row (SAFETY E2).
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
                Reply::OtherKind(kind) => return Ok(Turned::OtherKind(kind)),
                Reply::Layout(other) => return Err(Fault::Layout(other)),
                _ => return Err(Fault::Answer),
            }
            tries += 1;
            answer = bearer.run(PATIENCE, &sessions.call("seize", request)).await?;
        }
    }
    /// Whoever waits is told how he stands, once he does.
    async fn told(&self, request: &Request, busy: &mut Busy) -> Infallible {
        let mut pause = Duration::from_millis(1);
        loop {
            match self.sessions.place(request, self.bearer.process.pid).await {
                Ok(Some(now)) => {
                    request.queued(now.clone());
                    *busy = now;
                    return std::future::pending().await;
                }
                // Not so often where that takes long: each look reads all locks that the server has, and a hundred may come at once.
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
            if self.bearer.process.has_vanished(&self.sessions.shared.link).await {
                return;
            }
        }
    }
    /// *Invariant (SAFETY G1, G2):* the lock came at a time that nobody here knows; what counts is a sign of life that was answered since.
    async fn confirm(&self, request: &Request, number: i64) -> Result<Turned<Fault>, Fault> {
        let sent_at = self.bearer.beat().await?;
        self.bearer.alive(self.sessions.reports().as_ref(), sent_at);
        let token = Token::new(number).ok_or(Fault::Answer)?;
        self.bearer.granted(request.hold(), number, ends(request, sent_at));
        Ok(Turned::Granted(granted(request, token, self.bearer.session)))
    }
}
impl Sessions {
    /// Somebody with the right to do so has asked for it: it is told, and then given back (SAFETY G6).
    async fn give_back(&self, bearer: &Arc<Bearer>, hold: &str) {
        let Ok(hold) = hold.replace('-', "").parse::<HoldId>() else { return };
        if bearer.found(hold).is_some_and(|borne| borne.token != 0) {
            self.report(Event::Lost { hold, reason: LossReason::TakenOver });
            let _ = self.let_go(bearer, hold).await;
        }
    }
}
