//! The engine's own background: it keeps leases alive, hears of keys that go, waits in queues, and watches what is held.
use crate::{
    claims::Front,
    config::MIN_TTL,
    error::Fault,
    leases::{Lease, Place, Term},
    link::{CONNECT_TIMEOUT, Conn, PATIENCE},
    shared::{Shared, session},
    status::Looked,
    turns::{Turned, wait},
    watch::{self, Heard, Target, Watches},
    wire::{
        pb::{Done, LeaseGrant, LeaseGranted, LeaseId, LeaseKept},
        txn::{choose, get, put},
    },
};
use fencelock_core::{BootClock, Clock, Event, LossReason, Moment, Reports, Request};
use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, unbounded_channel},
        oneshot,
    },
    task::JoinSet,
    time::sleep,
};
use tonic::Streaming;

/// A busy machine is late by as much now and then.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);

pub(crate) enum Order {
    /// This request has a place in its queue.
    Wait { request: Request, place: Box<Place>, front: Front, reply: oneshot::Sender<Turned> },
    /// A lease of this term is wanted.
    Lease { term: Term, reply: oneshot::Sender<Result<(), Fault>> },
}

/// Never returns.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    watches: &Arc<Watches>,
    inbox: &mut UnboundedReceiver<Order>,
    watched: &mut UnboundedReceiver<watch::Order>,
    reports: &Reports,
) {
    shared.attend(reports);
    tokio::select! {
        () = watch::run(&shared.link, watched) => {}
        () = shared.keep_sizes() => {}
        () = keep_alive(shared) => {}
        () = orders(shared, watches, inbox) => {}
    }
}
async fn orders(shared: &Arc<Shared>, watches: &Arc<Watches>, inbox: &mut UnboundedReceiver<Order>) {
    let mut tasks = JoinSet::new();
    // Those who wait for a lease of one term wait for the same one.
    let mut opening: HashMap<Term, Vec<oneshot::Sender<Result<(), Fault>>>> = HashMap::new();
    let (opened, mut open) = unbounded_channel();
    loop {
        let settles = shared.next_settled().map(|at| BootClock.now().until(at));
        tokio::select! {
            order = inbox.recv() => match order {
                Some(Order::Wait { request, place, front, reply }) => {
                    tasks.spawn(wait(shared.clone(), watches.clone(), request, *place, front, reply));
                }
                Some(Order::Lease { term, reply }) => {
                    let waiting = opening.entry(term).or_default();
                    waiting.push(reply);
                    if waiting.len() == 1 {
                        let (shared, opened) = (shared.clone(), opened.clone());
                        tasks.spawn(async move { drop(opened.send((term, new_lease(&shared, term).await))) });
                    }
                }
                None => return pending().await,
            },
            Some((term, end)) = open.recv() => {
                for reply in opening.remove(&term).into_iter().flatten() {
                    let _ = reply.send(end.clone());
                }
            }
            () = sleep(settles.unwrap_or_default()), if settles.is_some() => {
                for place in shared.settled(BootClock.now()) {
                    tasks.spawn(guard(shared.clone(), watches.clone(), place));
                }
            }
            () = shared.settles.notified() => {}
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}

/// A lease, and its epoch. One that is made and not heard of ends by itself, so it is asked for again.
async fn new_lease(shared: &Shared, term: Term) -> Result<(), Fault> {
    let (limit, mut pause) = (BootClock.now() + CONNECT_TIMEOUT, Duration::from_millis(10));
    loop {
        let made = match shared.link.here().await {
            Ok(conn) => make_lease(shared, &conn, term).await,
            Err(fault) => Err(fault),
        };
        shared.troubled(made.as_ref().err().cloned());
        match made {
            // The server was slow: the lease ended before its epoch was written.
            Err(fault) if (fault.may_pass() || fault.is_no_lease()) && BootClock.now() + pause < limit => {}
            end => return end,
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}
async fn make_lease(shared: &Shared, conn: &Conn, term: Term) -> Result<(), Fault> {
    // Its ttl counts from before it was asked for (SAFETY G1).
    let sent_at = BootClock.now();
    let ask = LeaseGrant { ttl: term.seconds, id: 0 };
    let granted: LeaseGranted = shared.link.call(conn, "/etcdserverpb.Lease/LeaseGrant", ask).await?;
    // A server may lengthen it, and none shortens it.
    if granted.id == 0 || granted.ttl < term.seconds {
        return Err(Fault::Answer);
    }
    let epoch = put(&shared.keys.epoch(granted.id), b"new".to_vec(), granted.id);
    let answer = shared.link.txn(conn, choose(Vec::new(), vec![epoch], Vec::new())).await?;
    shared.report(Event::SessionAlive { session: session(granted.id), sent_at });
    shared.leases().put(Lease { id: granted.id, term, epoch: answer.revision() }, sent_at);
    shared.fresh.notify_one();
    Ok(())
}
pub(crate) async fn revoke(shared: &Shared, conn: &Conn, lease: i64) -> Result<(), Fault> {
    let done: Result<Done, _> = shared.link.call(conn, "/etcdserverpb.Lease/LeaseRevoke", LeaseId { id: lease }).await;
    match done {
        Err(fault) if fault.is_no_lease() => Ok(()),
        done => done.map(drop),
    }
}

/// Signs of life of all leases over one stream. Never returns.
async fn keep_alive(shared: &Arc<Shared>) {
    let (mut pause, mut patience) = (Duration::from_millis(10), Patience::default());
    loop {
        while shared.leases().next().is_none() {
            shared.fresh.notified().await;
        }
        match beat(shared, &mut patience).await {
            Beat::Counted => pause = Duration::from_millis(10),
            Beat::Late => patience.longer(),
            Beat::Failed => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}
/// How the signs of life over one connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beat {
    /// One of them has counted, or there is nothing to keep alive.
    Counted,
    /// None has, and the server was silent for longer than they can wait.
    Late,
    /// None has.
    Failed,
}
/// For how long a silent server is waited for.
///
/// *Invariant:* where it takes longer than a short ttl can wait, that hold is lost, and the others are not: from one connection on which
/// nothing has counted to the next it gets longer, until one has counted that did not need it.
#[derive(Clone, Copy, Debug, Default)]
struct Patience(u32);
impl Patience {
    fn longer(&mut self) {
        self.0 = (self.0 + 1).min(5);
    }
    /// Early enough for another one to be tried within the ttl.
    fn of(self, ttl: Duration) -> Duration {
        ((ttl / 6).clamp(LEAST_PATIENCE, PATIENCE).min(ttl / 3) * (1 << self.0)).min(PATIENCE)
    }
}
/// What was sent and is not answered yet, for each lease in its order.
#[derive(Default)]
struct Sent(HashMap<i64, (Duration, VecDeque<Moment>)>);
impl Sent {
    fn put(&mut self, lease: Lease, at: Moment) {
        self.0.entry(lease.id).or_insert_with(|| (lease.term.ttl, VecDeque::new())).1.push_back(at);
    }
    fn answered(&mut self, id: i64, term: u64) -> Option<Kept> {
        let (ttl, sent) = self.0.get_mut(&id)?;
        Some(Kept { id, ttl: *ttl, at: sent.pop_front()?, term })
    }
    /// When the stream is given up, if nothing is heard until then.
    fn limit(&self, patience: Patience, heard: Moment) -> Option<Moment> {
        self.0.values().filter_map(|(ttl, sent)| Some(heard.max(*sent.front()?) + patience.of(*ttl))).min()
    }
}
/// A sign of life that was answered.
///
/// *Invariant (SAFETY G1):* it counts when a read that was sent after the answer, over the same connection, has found the lease's epoch in
/// the same term. A member that takes itself for the leader still answers signs of life by itself, although the others have
/// elected another one, which ends the lease (etcd issue 15247); it answers no such read. And a member that does not know a lease yet
/// says that it is over.
#[derive(Clone, Copy, Debug)]
struct Kept {
    id: i64,
    ttl: Duration,
    at: Moment,
    term: u64,
}
/// In which term the members agreed, and whose epoch is there.
async fn agreed(shared: Arc<Shared>, conn: Conn, kept: Vec<Kept>) -> Result<(u64, Vec<(Kept, bool)>), Fault> {
    let look = kept.iter().map(|kept| get(shared.keys.epoch(kept.id))).collect();
    let answer = shared.link.txn(&conn, choose(Vec::new(), look, Vec::new())).await?;
    let term = answer.header.ok_or(Fault::Answer)?.term;
    let lives = |(n, kept)| Some((kept, answer.one(n)?.is_some()));
    let all: Option<Vec<_>> = kept.into_iter().enumerate().map(lives).collect();
    Ok((term, all.ok_or(Fault::Answer)?))
}
/// Until the stream ends, or there is no lease any more.
async fn beat(shared: &Arc<Shared>, patience: &mut Patience) -> Beat {
    /// So many are looked for in one transaction.
    const TOGETHER: usize = 100;
    let Ok(conn) = shared.link.here().await else { return Beat::Failed };
    let (asks, rx) = unbounded_channel();
    let (mut rx, mut opening, mut stream) = (Some(rx), None, None::<Streaming<LeaseKept>>);
    let (mut sent, mut heard, mut end) = (Sent::default(), BootClock.now(), Beat::Failed);
    // Those that were answered; the look for the first of them, and its limit.
    let (mut kept, mut look, mut looks_until) = (Vec::<Kept>::new(), None, None);
    // The first ones at once: nobody knows for how long there was no stream.
    let mut all = true;
    loop {
        let now = BootClock.now();
        for lease in shared.leases().due(now, all) {
            sent.put(lease, now);
            let _ = asks.send(LeaseId { id: lease.id });
        }
        all = false;
        for lease in shared.leases().idle(now) {
            let (shared, conn) = (shared.clone(), conn.clone());
            // Nobody waits for it, least of all the others' signs of life.
            tokio::spawn(async move {
                let _ = revoke(&shared, &conn, lease).await;
                shared.report(Event::SessionEnded { session: session(lease) });
            });
        }
        // The server answers a stream with its first word: one that was cut off keeps us waiting for the stream itself, and is given
        // up in time all the same.
        if !sent.0.is_empty()
            && let Some(rx) = rx.take()
        {
            let open = shared.link.stream(&conn, "/etcdserverpb.Lease/LeaseKeepAlive", rx);
            opening = Some(Box::pin(open));
        }
        if look.is_none() && !kept.is_empty() {
            let of: Vec<_> = kept.drain(..kept.len().min(TOGETHER)).collect();
            looks_until = of.iter().map(|kept| now + patience.of(kept.ttl)).min();
            look = Some(Box::pin(agreed(shared.clone(), conn.clone(), of)));
        }
        let limit = sent.limit(*patience, heard).into_iter().chain(looks_until).min();
        if limit.is_some_and(|at| at <= now) {
            shared.link.give_up(&conn);
            return if end == Beat::Counted { end } else { Beat::Late };
        }
        let Some(next) = shared.leases().next() else { return Beat::Counted };
        let next = limit.map_or(next, |at| at.min(next));
        let opened = async {
            match &mut opening {
                Some(opening) => opening.await,
                None => pending().await,
            }
        };
        let message = async {
            match &mut stream {
                Some(stream) => stream.message().await,
                None => pending().await,
            }
        };
        let looking = async {
            match &mut look {
                Some(look) => look.await,
                None => pending().await,
            }
        };
        tokio::select! {
            open = opened => match open {
                Ok(open) => (opening, stream) = (None, Some(open)),
                Err(_) => return end,
            },
            message = message => match message {
                Ok(Some(LeaseKept { header, id, .. })) => {
                    conn.heard();
                    heard = BootClock.now();
                    // That of the store's identity is nobody's session.
                    let of = sent.answered(id, header.map_or(0, |header| header.term));
                    kept.extend(of.filter(|_| shared.leases().get(id).is_some()));
                }
                Ok(None) => return end,
                Err(status) => {
                    shared.link.ended(&conn, &status.into());
                    return end;
                }
            },
            agreed = looking => {
                (look, looks_until) = (None, None);
                let Ok((term, all)) = agreed else { return end };
                end = Beat::Counted;
                // As the shortest would have it, whether or not it is among these.
                let shortest = Patience::default().of(MIN_TTL);
                if all.iter().all(|(kept, _)| kept.at.until(BootClock.now()) <= shortest) {
                    *patience = Patience::default();
                }
                for (Kept { id, at: sent_at, term: then, .. }, lives) in all {
                    if !lives {
                        shared.over(id);
                    } else if then == term {
                        shared.report(Event::SessionAlive { session: session(id), sent_at });
                    } else {
                        shared.leases().at_once(id);
                    }
                }
            }
            () = sleep(BootClock.now().until(next)) => {}
            () = shared.fresh.notified() => {}
            () = shared.link.left(&conn) => return end,
        }
    }
}

/// Tells when this hold is taken away; for as long as it is held.
async fn guard(shared: Arc<Shared>, watches: Arc<Watches>, place: Place) {
    let is_held = || shared.found(place.hold).is_some_and(|place| !place.leaving);
    let mut from = place.created + 1;
    let ends = place.most.map(|most| BootClock.now() + most);
    while let Some(place) = shared.found(place.hold).filter(|place| !place.leaving) {
        let watch = watches.since(place.keys().iter().map(|key| Target::goes(key.as_bytes())).collect(), from);
        tokio::select! {
            heard = watch.told() => if heard == Heard::Over {
                sleep(Duration::from_millis(10)).await;
            },
            // The lease, which other holds keep alive, does not end it. *Invariant (SAFETY G5):* told first. Core has done so; but whoever was
            // handed it late, since his runtime stood still, counts from then.
            () = sleep(ends.map_or(Duration::MAX, |ends| BootClock.now().until(ends))), if ends.is_some() => {
                shared.report(Event::Lost { hold: place.hold, reason: LossReason::MaxHold });
                let conn = shared.link.here().await;
                let left = match &conn {
                    Ok(conn) => shared.leave(conn, &place).await.is_ok(),
                    Err(_) => false,
                };
                if left {
                    return shared.bury(&place);
                }
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        }
        // It may have become a reader.
        let Some(place) = shared.found(place.hold).filter(|place| !place.leaving) else { return };
        let (all, this) = (&shared, &place);
        match shared.link.again(|conn| async move { all.look(&conn, this).await }).await {
            Ok(Looked { there: true, revision, .. }) => from = revision + 1,
            Ok(Looked { lives: false, .. }) => return shared.over(place.lease.id),
            // It has become a reader meanwhile.
            Ok(_) if shared.found(place.hold).is_some_and(|now| now.claim != place.claim) => {}
            Ok(_) if is_held() => {
                shared.bury(&place);
                return shared.report(Event::Lost { hold: place.hold, reason: LossReason::TakenOver });
            }
            Ok(_) => return,
            Err(_) => sleep(Duration::from_secs(1)).await,
        }
    }
}
