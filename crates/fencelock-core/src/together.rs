//! Several locks in one step of their engine, or none of them.
use crate::{
    attempt::{ANSWER, LAST_REPLY, Undo, admit, check, mute},
    client::Core,
    error::{Error, Result},
    guard::Held,
    observe,
    types::{Busy, Request, Together},
};
use std::{pin::pin, sync::Arc, time::Duration};

/// What came of it.
pub(crate) enum Got {
    All(Vec<Held>),
    Busy(Busy),
    /// One after the other.
    Apart,
}

/// All of these, of which none waits, in one step; it takes `patience` at most, and a reply on its way.
///
/// *Invariant (SAFETY A3):* from the first byte on each of them has its `Undo` armed, until a guard owns it or the engine has
/// answered that nothing is left. Who drops this posts all of them to the keeper.
pub(crate) async fn together(core: &Arc<Core>, requests: &[Request], patience: Duration) -> Result<Got> {
    core.ready("lock")?;
    requests.iter().try_for_each(|request| check(core, request))?;
    // Who waits here is not passed (SAFETY K2).
    let waited_for = |request: &Request| {
        let key = (request.name().clone(), request.claim(), request.ttl());
        request.claim().is_exclusive() && core.turns.waiting(&key) > 0
    };
    if requests.iter().any(waited_for) {
        return Ok(Got::Apart);
    }
    let undos: Vec<_> = requests.iter().map(|request| Undo::arm(core, request)).collect();
    // Armed first: a shutdown either finds them among those it stops, or is seen here.
    if core.is_closed() {
        undos.into_iter().for_each(Undo::nothing_left);
        return Err(Error::closed("lock"));
    }
    let Some(answer) = asked(core, requests, patience).await else { return Err(mute(core, &requests[0])) };
    let grants = match answer? {
        Together::Granted(grants) => grants,
        Together::Busy(n, busy) => {
            undos.into_iter().for_each(Undo::nothing_left);
            return Ok(Got::Busy(requests.get(n).map_or(busy.clone(), |request| busy.of(request.name()))));
        }
        Together::Apart => {
            undos.into_iter().for_each(Undo::nothing_left);
            return Ok(Got::Apart);
        }
    };
    grants.iter().for_each(|grant| core.floors.saw(grant));
    if core.is_closed() {
        return Err(Error::closed("lock"));
    }
    let mut all = Vec::with_capacity(grants.len());
    for ((request, undo), grant) in requests.iter().zip(undos).zip(grants) {
        // What is wrong with one of them is told by the way that takes it alone.
        let Ok(held) = admit(core, request, grant).await? else { return Ok(Got::Apart) };
        undo.hand_over();
        all.push(held);
        if !request.settle() {
            return Ok(Got::Apart);
        }
    }
    Ok(if all.len() == requests.len() { Got::All(all) } else { Got::Apart })
}
/// The engine's answer; `None`: there was none in time.
async fn asked(core: &Core, requests: &[Request], patience: Duration) -> Option<Result<Together>> {
    let deadline = core.keeper().clock.now() + patience.min(ANSWER);
    let mut answer = pin!(observe::timed(core.keeper(), "acquire_all", core.engine().acquire_all(requests)));
    tokio::select! {
        biased;
        answer = &mut answer => return Some(answer),
        // A shutdown stops all of them.
        () = requests[0].stopped() => {}
        () = core.nap(Some(deadline)) => {}
    }
    for request in requests {
        request.stop();
    }
    tokio::time::timeout(LAST_REPLY, answer).await.ok()
}
