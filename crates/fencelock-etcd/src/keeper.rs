//! The engine's own background: it keeps leases alive, hears of keys that go, waits in queues, and watches what is held.
use crate::{
    claims::Front,
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
    shared.leases().put(Lease { id: granted.id, term, epoch: answer.revision() });
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
    let mut pause = Duration::from_millis(10);
    loop {
        while shared.leases().next().is_none() {
            shared.fresh.notified().await;
        }
        if beat(shared).await.is_some() {
            pause = Duration::from_millis(10);
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(250));
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
    fn patience(&self) -> Option<Moment> {
        self.0.values().filter_map(|(ttl, sent)| Some(patience(*ttl, *sent.front()?))).min()
    }
}
/// When a stream that has not answered by then is given up: early enough for another one to be tried within the ttl.
fn patience(ttl: Duration, sent: Moment) -> Moment {
    sent + (ttl / 6).clamp(LEAST_PATIENCE, PATIENCE).min(ttl / 3)
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
    let look = kept.iter().map(|kept| get(&shared.keys.epoch(kept.id))).collect();
    let answer = shared.link.txn(&conn, choose(Vec::new(), look, Vec::new())).await?;
    let term = answer.header.ok_or(Fault::Answer)?.term;
    let lives = |(n, kept)| Some((kept, answer.one(n)?.is_some()));
    let all: Option<Vec<_>> = kept.into_iter().enumerate().map(lives).collect();
    Ok((term, all.ok_or(Fault::Answer)?))
}
/// Until the stream ends, or there is no lease any more. `None`: nothing was answered.
async fn beat(shared: &Arc<Shared>) -> Option<()> {
    /// So many are looked for in one transaction.
    const TOGETHER: usize = 100;
    let conn = shared.link.here().await.ok()?;
    let (asks, rx) = unbounded_channel();
    let (mut rx, mut stream, mut sent, mut answered) = (Some(rx), None, Sent::default(), None);
    // Those that were answered, those of them that are looked for, and the look.
    let (mut kept, mut looked, mut look) = (Vec::<Kept>::new(), Vec::<Kept>::new(), None);
    // The first ones at once: nobody knows for how long there was no stream.
    let mut all = true;
    loop {
        let now = BootClock.now();
        let waiting = kept.iter().chain(&looked).map(|kept| patience(kept.ttl, kept.at));
        let limit = sent.patience().into_iter().chain(waiting).min();
        if limit.is_some_and(|at| at <= now) {
            shared.link.give_up(&conn);
            return answered;
        }
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
        // The server answers a stream with its first word.
        if !sent.0.is_empty()
            && let Some(rx) = rx.take()
        {
            let opened = shared.link.stream::<_, LeaseKept>(&conn, "/etcdserverpb.Lease/LeaseKeepAlive", rx);
            stream = Some(opened.await.ok()?);
        }
        if look.is_none() && !kept.is_empty() {
            looked = kept.drain(..kept.len().min(TOGETHER)).collect();
            look = Some(Box::pin(agreed(shared.clone(), conn.clone(), looked.clone())));
        }
        let next = shared.leases().next()?;
        let next = limit.map_or(next, |at| at.min(next));
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
            message = message => match message {
                Ok(Some(LeaseKept { header, id, .. })) => {
                    conn.heard();
                    answered = Some(());
                    // That of the store's identity is nobody's session.
                    let of = sent.answered(id, header.map_or(0, |header| header.term));
                    kept.extend(of.filter(|_| shared.leases().get(id).is_some()));
                }
                Ok(None) => return answered,
                Err(status) => {
                    shared.link.ended(&conn, &status.into());
                    return answered;
                }
            },
            end = looking => {
                (look, looked) = (None, Vec::new());
                let (term, all) = end.ok()?;
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
            () = shared.link.left(&conn) => return answered,
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
            // Core has told its loss. The lease, which other holds keep alive, does not end it.
            () = sleep(ends.map_or(Duration::MAX, |ends| BootClock.now().until(ends))), if ends.is_some() => {
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
