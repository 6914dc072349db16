//! The engine's own background: it carries the session, does what callers ask where the session is, and watches what is held.
use crate::{
    error::Fault,
    link::{Session, Word, found, heard},
    session::Wire,
    shared::{Place, Shared},
    wire::{
        node::{Child, Role},
        op::{Happened, Op},
    },
};
use fencelock_core::{BootClock, Clock, Event, Kind, LossReason};
use std::{future::pending, pin::Pin, sync::Arc, time::Duration};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinSet, time::sleep};

/// Those who come to a lock that is held are looked at this often at most.
const BREATH: Duration = Duration::from_millis(250);

/// What somebody wants done here.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns when the session was closed.
pub(crate) async fn run(shared: &Arc<Shared>, wire: &mut Wire, jobs: &mut UnboundedReceiver<Job>) {
    tokio::select! {
        () = wire.serve(&shared.link) => {}
        () = work(shared, jobs) => {}
        () = bury(shared) => {}
    }
}
async fn work(shared: &Arc<Shared>, jobs: &mut UnboundedReceiver<Job>) {
    let mut tasks = JoinSet::new();
    loop {
        let settles = shared.next_settled().map(|at| BootClock.now().until(at));
        tokio::select! {
            biased;
            job = jobs.recv() => match job {
                Some(job) => drop(tasks.spawn(job)),
                None => return pending().await,
            },
            () = sleep(settles.unwrap_or_default()), if settles.is_some() => {
                for place in shared.settled(BootClock.now()) {
                    tasks.spawn(guard(shared.clone(), place));
                }
            }
            () = shared.settles.notified() => {}
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}
/// What was written in a session that is over is forgotten.
async fn bury(shared: &Shared) {
    let mut last = Session(0);
    loop {
        shared.link.after(last).await;
        if let Ok(now) = shared.link.session(pending()).await {
            shared.only(now);
            // Whoever comes first after an outage writes what the store is known by.
            tokio::select! {
                () = shared.present(now) => {}
                () = shared.link.after(now) => {}
            }
            last = now;
        }
    }
}

/// How a hold is found.
enum Looked {
    /// Alone, or beside those who may be there: word will come when that changes.
    Well(Vec<Word>),
    /// Somebody is there who does not mind us, or is on his way out again.
    Beside(String),
    Gone,
}
/// Tells when this hold is taken away, or somebody has got in beside it; for as long as it is held (SAFETY G6).
async fn guard(shared: Arc<Shared>, place: Place) {
    let ends = place.most.map(|most| place.since + most);
    let held = || shared.found(place.hold).filter(|place| !place.leaving);
    let mut beside = None::<String>;
    if let Some(place) = held() {
        shared.tell_since(&place).await;
    }
    while let Some(mut place) = held() {
        let watch = async {
            let looked = look(&shared, &place).await;
            match looked {
                // Whoever comes and goes is not looked at one by one.
                Ok(Looked::Well(mut words)) => {
                    if heard(&mut words.iter_mut().collect::<Vec<_>>()).await == Some(Happened::ChildrenChanged) {
                        sleep(BREATH).await;
                    }
                    return Ok(None);
                }
                Err(_) => sleep(Duration::from_secs(1)).await,
                Ok(Looked::Beside(_)) => sleep(BREATH).await,
                Ok(Looked::Gone) => {}
            }
            looked.map(Some)
        };
        let looked = tokio::select! {
            looked = watch => looked,
            // The session, which lives on for other holds, does not end it. *Invariant (SAFETY G5):* told first. Core has done so; but whoever
            // was handed it late, since his runtime stood still, counts from then.
            () = sleep(ends.map_or(Duration::MAX, |ends| BootClock.now().until(ends))), if ends.is_some() => {
                if held().is_some() {
                    shared.report(Event::Lost { hold: place.hold, reason: LossReason::MaxHold });
                }
                if shared.leave(&mut place).await.is_ok() {
                    return shared.forget(place.hold);
                }
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        if !shared.link.is_open(place.session) {
            return;
        }
        // The same one, twice: those who refuse themselves are gone by then.
        let now = if let Ok(Some(Looked::Beside(who))) = &looked { Some(who.clone()) } else { None };
        let lost = matches!(looked, Ok(Some(Looked::Gone))) || (now.is_some() && now == beside);
        beside = now;
        // It may have been given back meanwhile, or become a reader.
        if !lost {
            continue;
        }
        if held().is_some_and(|now| now.node == place.node && !now.open) {
            shared.report(Event::Lost { hold: place.hold, reason: LossReason::TakenOver });
            // Its holder lets go, or its time is over.
            let Some(ends) = ends else { return };
            sleep(BootClock.now().until(ends)).await;
        } else {
            sleep(BREATH).await;
        }
    }
}
async fn look(shared: &Shared, place: &Place) -> Result<Looked, Fault> {
    let watch = |path: &String| shared.link.watch(Some(place.session), Op::Data { path: path.clone(), watch: true });
    let own: Vec<_> = place.nodes().map(watch).collect();
    // Whoever minds other rules lies at the name itself, of a semaphore, too.
    let (others, came) = shared.link.watch(Some(place.session), Op::Children { path: place.path.clone(), watch: true });
    let mut words = Vec::new();
    for (asked, word) in own {
        match found(asked.data().await)? {
            // In Curator's words, and in those of ZooKeeper's own recipe.
            Some((data, _)) if shared.revocable && matches!(&data[..], b"__REVOKE__" | b"unlock") => {
                return Ok(Looked::Gone);
            }
            Some(_) => words.push(word),
            None => return Ok(Looked::Gone),
        }
    }
    let names = found(others.children().await)?.map(|(names, _)| names).unwrap_or_default();
    let beside = |name: &String| match shared.paths.child(name) {
        Child::Foreign(_) => true,
        Child::Contender(node) if place.claim.kind() == Kind::Semaphore => node.role != Role::Permit,
        Child::Contender(node) => !node.is_of(place.role()),
        _ => false,
    };
    if let Some(who) = names.iter().find(|name| beside(name)) {
        return Ok(Looked::Beside(who.clone()));
    }
    words.push(came);
    Ok(Looked::Well(words))
}
