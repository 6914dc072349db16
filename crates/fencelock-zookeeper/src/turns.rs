//! An attempt, from its first command to its end: it comes on the caller's task, and waits where the session is.
use crate::{
    claims::{Front, Turn},
    error::Fault,
    link::{CONNECT_TIMEOUT, Word, found, heard},
    permits::Known,
    shared::{Place, Shared},
    wire::{
        node::last,
        op::{Op, code},
    },
};
use fencelock_core::{BootClock, Busy, Clock, Error, Outcome, Request, Result};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::time::sleep;

/// Without word for so long a waiter looks: word may have been lost.
const REST: Duration = Duration::from_secs(30);
/// Who has come forward, and waits for so long, looks who holds.
const SOON: Duration = Duration::from_millis(100);
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_millis(250);

/// How far an attempt has come.
type Begun = (Box<Place>, std::result::Result<Turn, Fault>);
/// Claims, once, on the caller's task: most have what they want then. `None`: there is no session, or it is begun already.
///
/// *Invariant:* nothing in it has a timer, for the runtime that it was begun on may be gone when it goes on.
pub(crate) async fn begin(shared: &Shared, request: &Request) -> Option<Begun> {
    let session = shared.link.now()?;
    if shared.found(request.hold()).is_some() {
        return None;
    }
    let mut place = Box::new(shared.place(request, session));
    let turn = once(shared, request, &mut place).await;
    Some((place, turn))
}
/// Its end, if this is one: a wait is none, nor what is to be tried again.
pub(crate) async fn ended(
    shared: &Shared,
    request: &Request,
    begun: Option<Begun>,
) -> std::result::Result<Result<Outcome>, Option<Begun>> {
    match begun {
        Some((mut place, Ok(turn))) if !(request.wait() && matches!(turn, Turn::Waits { .. })) => {
            Ok(end(shared, request, &mut place, turn, None).await)
        }
        begun => Err(begun),
    }
}
/// From there on, until its end.
pub(crate) async fn go_on(shared: Arc<Shared>, request: Request, begun: Option<Begun>) -> Result<Outcome> {
    let told = |fault: Fault| shared.link.tell("lock", &fault);
    let (mut place, turn) = match begun {
        Some((place, turn)) => (place, Some(turn)),
        None => {
            let session = shared.link.session(request.stopped()).await.map_err(told)?;
            let place = shared.found(request.hold()).unwrap_or_else(|| shared.place(&request, session));
            (Box::new(place), None)
        }
    };
    let turn = match enter(&shared, &request, &mut place, turn, BootClock.now() + CONNECT_TIMEOUT).await {
        Ok(turn) => turn,
        Err(Fault::SessionOver) => return Ok(displaced(&shared, &place)),
        Err(fault) if fault.may_pass() => return Err(told(fault)),
        Err(fault) => {
            shared.nothing_of(&mut place).await.map_err(told)?;
            return Err(told(fault));
        }
    };
    if request.wait() && matches!(turn, Turn::Waits { .. }) {
        return wait(shared, request, place, turn).await;
    }
    end(&shared, &request, &mut place, turn, None).await
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
        // It was not sent: its session was over.
        Turn::Stopped if !request.is_stopped() && shared.found(place.hold).is_none() => return Ok(Outcome::Displaced),
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
/// Nothing is asked for as long as nothing is told: that nobody is there to tell it is known here.
async fn told_of_outages(shared: &Shared, request: &Request) -> Infallible {
    let mut state = shared.link.state.subscribe();
    // One that was told before, and has ended since.
    if state.borrow().trouble.is_none() {
        request.in_touch();
    }
    while state.wait_for(|state| state.trouble.is_some()).await.is_ok() {
        request.cut_off();
        let _ = state.wait_for(|state| state.trouble.is_none()).await;
        request.in_touch();
    }
    std::future::pending().await
}
/// Waits until it is its turn.
async fn wait(shared: Arc<Shared>, request: Request, mut place: Box<Place>, mut turn: Turn) -> Result<Outcome> {
    let told = |fault: Fault| shared.link.tell("lock", &fault);
    let (mut pause, mut queued, mut known) = (LEAST, None::<Busy>, None::<Known>);
    loop {
        match turn {
            Turn::Waits { ahead, front } => {
                let goes_on = async {
                    let mut word = listen(&shared, &place, &front, &mut known).await?;
                    if queued.is_none() {
                        queued = Some(report(&shared, &request, &place, &front, ahead).await?);
                    }
                    while word.as_ref().is_some_and(|word| !word.is_told()) {
                        // Most who come forward have it soon.
                        let late = queued.as_ref().is_some_and(|busy| busy.ahead != Some(ahead));
                        let mut words: Vec<_> = word.iter_mut().collect();
                        words.extend(known.as_mut().map(|known| &mut known.resized));
                        tokio::select! {
                            _ = heard(&mut words) => break,
                            () = sleep(if late { SOON } else { REST }) => {}
                        }
                        if !late {
                            break;
                        }
                        queued = Some(report(&shared, &request, &place, &front, ahead).await?);
                    }
                    if place.claim.capacity().is_some() {
                        shared.next(&mut place, &front, &mut known).await
                    } else {
                        shared.look(&mut place, false).await
                    }
                };
                let next = tokio::select! {
                    biased;
                    next = goes_on => next,
                    never = told_of_outages(&shared, &request) => match never {},
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
                        known = None;
                        tokio::select! {
                            biased;
                            () = request.stopped() => return Ok(Outcome::Busy(queued.unwrap_or_default())),
                            () = sleep(pause + Duration::from_millis(fastrand::u64(0..10))) => {}
                        }
                        pause = (pause * 2).min(MOST);
                        match settle(&shared, &mut place).await {
                            Ok(Some(settled)) => settled,
                            // Somebody has taken away what it had.
                            Ok(None) if place.nodes().next().is_none() => Turn::Gone,
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
async fn once(shared: &Shared, request: &Request, place: &mut Place) -> std::result::Result<Turn, Fault> {
    if place.nodes().next().is_some() {
        return shared.look(place, true).await;
    }
    if !request.wait() {
        // Who does not wait looks first: most who are refused leave no trace.
        match shared.peek(place).await {
            Ok(Turn::Granted(_)) => {}
            refused => return refused,
        }
    }
    shared.enter(place).await
}
async fn enter(
    shared: &Shared,
    request: &Request,
    place: &mut Place,
    mut begun: Option<std::result::Result<Turn, Fault>>,
    limit: fencelock_core::Moment,
) -> std::result::Result<Turn, Fault> {
    let mut pause = LEAST;
    loop {
        let turn = match begun.take() {
            Some(turn) => turn,
            None => once(shared, request, place).await,
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
/// Who waits is told whom he waits for.
async fn report(
    shared: &Shared,
    request: &Request,
    place: &Place,
    front: &Front,
    ahead: u32,
) -> std::result::Result<Busy, Fault> {
    let holder = match front.holder() {
        Some(holder) => match shared.holder_at(place.session, holder).await {
            Err(fault) if fault.is(code::NO_AUTH) => None,
            holder => holder?,
        },
        None => None,
    };
    let busy = Busy::new(holder, Some(ahead));
    request.queued(busy.clone());
    Ok(busy)
}
/// From now on it is told. `None`: it has happened already.
async fn listen(
    shared: &Shared,
    place: &Place,
    front: &Front,
    known: &mut Option<Known>,
) -> std::result::Result<Option<Word>, Fault> {
    // In the session of the place: where that is over, so is the wait.
    let session = Some(place.session);
    if known.is_none() && place.claim.capacity().is_some() {
        *known = Some(shared.hears_of_size(place).await?);
    }
    match front {
        Front::Goes { node, .. } => {
            let (asked, word) = shared.link.watch(session, Op::Data { path: node.clone(), watch: true });
            match found(asked.data().await) {
                // Whoever is in front lets nobody read what he says. Then nobody else is told that his node goes (CVE-2024-23944); that
                // one of the room's has gone is.
                Err(fault) if fault.is(code::NO_AUTH) => {
                    let room = Op::Children { path: place.room.clone(), watch: true };
                    let (asked, word) = shared.link.watch(session, room);
                    let names = found(asked.children().await)?.map(|(names, _)| names).unwrap_or_default();
                    Ok(names.iter().any(|name| name == last(node)).then_some(word))
                }
                data => Ok(data?.map(|_| word)),
            }
        }
        Front::Frees { taken, version, .. } => {
            // It was counted against another size.
            if known.as_ref().is_some_and(|known| known.version != *version) {
                return Ok(None);
            }
            if let Some(freed) = known.as_mut().and_then(|known| known.freed.take()) {
                return Ok(Some(freed));
            }
            let leases = shared.paths.permits(&place.path);
            let (asked, word) = shared.link.watch(session, Op::Children { path: leases, watch: true });
            let now = found(asked.children().await)?.map_or(0, |(names, _)| names.len());
            Ok((now == *taken).then_some(word))
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
