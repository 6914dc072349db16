//! An attempt, from its first command to its end: it comes on the caller's task, and waits where the session is.
use crate::{
    claims::{Front, Turn},
    error::Fault,
    link::{CONNECT_TIMEOUT, Session, Word, found, heard},
    shared::{Place, Shared},
    wire::op::{Op, code},
};
use fencelock_core::{BootClock, Busy, Clock, Error, Outcome, Request, Result};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// Without word for so long a waiter looks: word may have been lost.
const REST: Duration = Duration::from_secs(30);
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_millis(250);

/// How far an attempt has come.
pub(crate) enum Came {
    Ended(Outcome),
    /// It has a place in the queue.
    Waits(Box<Place>, Turn),
}
/// Claims.
pub(crate) async fn come(shared: &Shared, request: &Request) -> Result<Came> {
    let told = |fault: Fault| shared.link.tell("lock", &fault);
    let session = shared.link.session(request.stopped()).await.map_err(told)?;
    let mut place = shared.found(request.hold()).unwrap_or_else(|| shared.place(request, session));
    let turn = match enter(shared, request, &mut place, BootClock.now() + CONNECT_TIMEOUT).await {
        Ok(turn) => turn,
        Err(Fault::SessionOver) => return Ok(Came::Ended(displaced(shared, &place))),
        Err(fault) if fault.may_pass() => return Err(told(fault)),
        Err(fault) => {
            shared.nothing_of(&mut place).await.map_err(told)?;
            return Err(told(fault));
        }
    };
    if request.wait() && matches!(turn, Turn::Waits { .. }) {
        return Ok(Came::Waits(Box::new(place), turn));
    }
    let ended = end(shared, request, &mut place, turn, None).await?;
    Ok(Came::Ended(ended))
}
/// Anything but a wait.
async fn end(
    shared: &Shared,
    request: &Request,
    place: &mut Place,
    turn: Turn,
    queued: Option<Busy>,
) -> Result<Outcome> {
    let told = |fault: Fault| shared.link.tell("lock", &fault);
    match turn {
        Turn::Granted(token) => return shared.granted(place, token).map(Outcome::Granted).map_err(told),
        // Whoever has stopped it takes it back, if he does not come too early.
        Turn::Stopped => {
            if !place.open && place.nodes().next().is_none() {
                shared.forget(place.hold);
            }
            return Ok(Outcome::Busy(queued.unwrap_or_default()));
        }
        Turn::Waits { ahead, front } => {
            let holder = match front.holder() {
                Some(holder) => shared.holder_at(place.session, holder).await.unwrap_or_default(),
                None => None,
            };
            shared.nothing_of(place).await.map_err(told)?;
            return Ok(Outcome::Busy(Busy::new(holder, Some(ahead))));
        }
        Turn::Gone | Turn::OtherKind(_) | Turn::OtherSize(_) => shared.nothing_of(place).await.map_err(told)?,
    }
    match turn {
        Turn::OtherKind(kind) => Err(request.other_kind(kind)),
        // Who waits asks anew, and is told then.
        Turn::OtherSize(size) if queued.is_none() => Err(request.other_capacity(size)),
        _ => Ok(Outcome::Displaced),
    }
}
/// Waits until it is its turn.
pub(crate) async fn wait(
    shared: Arc<Shared>,
    request: Request,
    mut place: Box<Place>,
    mut turn: Turn,
) -> Result<Outcome> {
    let told = |fault: Fault| shared.link.tell("lock", &fault);
    let (mut pause, mut queued) = (LEAST, None::<Busy>);
    loop {
        match turn {
            Turn::Waits { ahead, front } => {
                let goes_on = async {
                    let (mut words, news) = listen(&shared, place.session, &front).await?;
                    if queued.as_ref().is_none_or(|busy| busy.ahead != Some(ahead)) {
                        let holder = match front.holder() {
                            Some(holder) => match shared.holder_at(place.session, holder).await {
                                Err(fault) if fault.is(code::NO_AUTH) => None,
                                holder => holder?,
                            },
                            None => None,
                        };
                        let busy = Busy::new(holder, Some(ahead));
                        request.queued(busy.clone());
                        queued = Some(busy);
                    }
                    if !news {
                        tokio::select! {
                            _ = heard(&mut words) => {}
                            () = sleep(REST) => {}
                        }
                    }
                    shared.look(&mut place, false).await
                };
                let next = tokio::select! {
                    biased;
                    next = goes_on => next,
                    // Whoever stops takes back what it may have been granted.
                    () = request.stopped() => return Ok(Outcome::Busy(queued.unwrap_or_default())),
                };
                turn = match next {
                    Ok(next) => {
                        pause = LEAST;
                        next
                    }
                    Err(Fault::SessionOver) => return Ok(displaced(&shared, &place)),
                    // An outage is survived, until the caller's limit (SAFETY E8).
                    Err(fault) if fault.may_pass() => {
                        tokio::select! {
                            biased;
                            () = request.stopped() => return Ok(Outcome::Busy(queued.unwrap_or_default())),
                            () = sleep(pause + Duration::from_millis(fastrand::u64(0..10))) => {}
                        }
                        pause = (pause * 2).min(MOST);
                        match settle(&shared, &mut place).await {
                            Ok(Some(settled)) => settled,
                            Err(Fault::SessionOver) => return Ok(displaced(&shared, &place)),
                            _ => Turn::Waits { ahead, front },
                        }
                    }
                    Err(fault) => {
                        shared.nothing_of(&mut place).await.map_err(told)?;
                        return Err(told(fault));
                    }
                };
            }
            turn => return end(&shared, &request, &mut place, turn, queued).await,
        }
    }
}
/// A place in the queue, or what is known of the one that it has.
async fn enter(
    shared: &Shared,
    request: &Request,
    place: &mut Place,
    limit: fencelock_core::Moment,
) -> std::result::Result<Turn, Fault> {
    let mut pause = LEAST;
    loop {
        let turn = if place.nodes().next().is_some() {
            shared.look(place, true).await
        } else if request.wait() {
            shared.enter(place).await
        } else {
            // Who does not wait looks first: most who are refused leave no trace.
            match shared.peek(place).await {
                Ok(Turn::Granted(_)) => shared.enter(place).await,
                refused => refused,
            }
        };
        let fault = match turn {
            Err(fault) if fault.may_pass() && fault != Fault::SessionOver => fault,
            end => return end,
        };
        loop {
            if request.is_stopped() || BootClock.now() >= limit {
                return Err(shared.link.trouble().unwrap_or(fault));
            }
            tokio::select! {
                biased;
                () = request.stopped() => return Err(fault),
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(MOST);
            match settle(shared, place).await {
                Ok(Some(turn)) => return Ok(turn),
                Ok(None) => break,
                Err(fault) if fault.may_pass() && fault != Fault::SessionOver => {}
                Err(fault) => return Err(fault),
            }
        }
    }
}
/// What became of a command that was not answered. `Some`: it was granted.
async fn settle(shared: &Shared, place: &mut Place) -> std::result::Result<Option<Turn>, Fault> {
    if place.open {
        shared.find(place).await?;
    }
    Ok((!place.permits.is_empty()).then_some(Turn::Granted(place.made)))
}
fn displaced(shared: &Shared, place: &Place) -> Outcome {
    shared.forget(place.hold);
    Outcome::Displaced
}
/// From now on it is told. True: it has happened already.
async fn listen(shared: &Shared, session: Session, front: &Front) -> std::result::Result<(Vec<Word>, bool), Fault> {
    // In the session of the place: where that is over, so is the wait.
    let session = Some(session);
    match front {
        Front::Goes { node, .. } => {
            let (asked, word) = shared.link.watch(session, Op::Data { path: node.clone(), watch: true });
            match found(asked.data().await) {
                // Whoever is in front lets nobody read what he says.
                Err(fault) if fault.is(code::NO_AUTH) => {
                    let (asked, word) = shared.link.watch(session, Op::Exists { path: node.clone(), watch: true });
                    let news = found(asked.stat().await)?.is_none();
                    Ok((vec![word], news))
                }
                data => Ok((vec![word], data?.is_none())),
            }
        }
        Front::Frees { leases, taken, path, size, .. } => {
            let (held, freed) = shared.link.watch(session, Op::Children { path: leases.clone(), watch: true });
            let (sized, resized) = shared.link.watch(session, Op::Data { path: path.clone(), watch: true });
            let now = found(held.children().await)?.map_or(0, |(names, _)| names.len());
            let (data, _) = found(sized.data().await)?.unwrap_or_default();
            Ok((vec![freed, resized], now != *taken || crate::permits::parse(path, &data)? != Some(*size)))
        }
    }
}
impl Shared {
    /// Core takes a refusal for nothing left behind.
    async fn nothing_of(&self, place: &mut Place) -> std::result::Result<(), Fault> {
        self.leave(place).await?;
        self.forget(place.hold);
        Ok(())
    }
    pub(crate) async fn withdraw(&self, mut place: Place) -> std::result::Result<(), Fault> {
        self.nothing_of(&mut place).await
    }
}
/// What a caller is told when the background that worked for him is gone.
pub(crate) fn gone() -> Error {
    Error::new(fencelock_core::ErrorKind::Ambiguous, "lock", "the engine's background was begun anew").hint("try again")
}
