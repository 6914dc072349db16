//! What is told of locks to those who watch the program: spans and events for `tracing`, figures for `metrics`.
//!
//! *Invariant (SAFETY G3):* a subscriber and a recorder are foreign code. They are never called on the thread of the loss timers, under a
//! mutex of ours, or from an engine's report: what ends there is told by the keeper's runtime, a moment later, or by the guard as it goes,
//! whoever is first. No loss waits for what is told, and nothing is decided by it.
//!
//! *Invariant (SAFETY A3, G4):* one that panics ends nothing of ours: each call of it from here is caught, with whatever it was about to tell. A release
//! that is not sent for that, or an attempt that is not taken back, would keep everybody out.
#[cfg_attr(not(feature = "metrics"), path = "no_figures.rs")]
mod figures;
mod told;

pub(crate) use figures::{asked, timed};
pub(crate) use told::{Told, Within};
use told::{of, outside};

use crate::{
    attempt::Answer,
    client::Core,
    clock::Moment,
    error::Error,
    hold::{Hold, Life},
    keeper::Keeper,
    types::{Claim, LossReason, Released, Renewed, Request},
};
use std::{
    future::Future,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use tracing::{Level, Span, debug, debug_span, field::Empty, info_span, level_filters::LevelFilter, warn};

/// Once, before anything else is told.
pub(crate) fn describe(engine: &'static str) {
    outside(|| figures::describe(engine));
}
/// Nothing but a look at a number when there is no subscriber.
fn listens(level: Level) -> bool {
    level <= tracing::level_filters::STATIC_MAX_LEVEL && level <= LevelFilter::current()
}
fn scheme(keeper: &Keeper) -> &'static str {
    keeper.engine.info().scheme
}
/// Of few values: what it takes and of how many is in the spans.
const fn label(claim: Claim) -> &'static str {
    match claim {
        Claim::Mutex => "mutex",
        Claim::Permits { .. } => "permits",
        Claim::Read => "read",
        Claim::Write => "write",
    }
}
const fn reason(why: LossReason) -> &'static str {
    match why {
        LossReason::Expired => "expired",
        LossReason::MaxHold => "max_hold",
        LossReason::SessionEnded => "session_ended",
        LossReason::TakenOver => "taken_over",
        LossReason::Unreachable => "unreachable",
    }
}

/// The spans of an attempt, which go with it wherever it runs: that of its caller, and its own.
#[derive(Debug)]
pub(crate) struct Spans {
    caller: Told,
    acquire: Told,
}

/// A claim on its way, from the first poll of its future until that is ready or dropped.
pub(crate) struct Acquiring {
    core: Arc<Core>,
    request: Request,
    spans: Option<Arc<Spans>>,
    began: Moment,
    waiting: bool,
    told: bool,
}
/// `None`: nobody watches.
pub(crate) fn acquiring(core: &Arc<Core>, request: &Request) -> Option<Acquiring> {
    let listens = listens(Level::INFO);
    if !listens && !figures::KEPT {
        return None;
    }
    let spans = || {
        let (name, claim, engine) = (request.name(), request.claim(), scheme(core.keeper()));
        let caller = Told::new(Span::current());
        let acquire = info_span!(target: "fencelock", "acquire", %name, %claim, engine, token = Empty, outcome = Empty, wait_seconds = Empty);
        Arc::new(Spans { caller, acquire: Told::new(acquire) })
    };
    let spans = listens.then(|| outside(spans)).flatten();
    // Engines keep requests for as long as a hold: these are gone from it when the attempt is over.
    request.seen_by(spans.clone());
    let (core, request) = (core.clone(), request.clone());
    let began = core.keeper().clock.now();
    Some(Acquiring { core, request, spans, began, waiting: false, told: false })
}
impl Acquiring {
    /// It has to wait for others.
    pub(crate) fn queued(&mut self) {
        if !self.waiting {
            self.waiting = true;
            outside(|| figures::waiting(scheme(self.core.keeper()), 1.0));
        }
    }
    pub(crate) fn answered(mut self, answer: &Answer) {
        let outcome = match answer {
            Ok(Ok(held)) => {
                self.record(|span| _ = span.record("token", held.token_of_grant().get()));
                "granted"
            }
            Ok(Err(_)) => "busy",
            Err(_) => "error",
        };
        self.tell(outcome);
    }
    fn tell(&mut self, outcome: &'static str) {
        self.told = true;
        let (engine, wait) = (scheme(self.core.keeper()), self.began.until(self.core.keeper().clock.now()));
        if self.waiting {
            outside(|| figures::waiting(engine, -1.0));
        }
        outside(|| figures::acquired(engine, label(self.request.claim()), outcome, wait));
        self.record(|span| _ = span.record("outcome", outcome).record("wait_seconds", wait.as_secs_f64()));
        outside(|| self.request.seen_by(None));
        outside(|| self.spans.take());
    }
    fn record(&self, what: impl FnOnce(&Span)) {
        if let Some(spans) = &self.spans {
            outside(|| what(&spans.acquire));
        }
    }
}
/// Nobody waits for it any more.
impl Drop for Acquiring {
    fn drop(&mut self) {
        if !self.told {
            self.tell("withdrawn");
        }
    }
}
/// That of the attempt; of none where nobody listens. When that is told as over it is still the one in which what is left of it runs.
pub(crate) fn span(request: &Request) -> Told {
    let is_ours = |span: &Span| span.metadata().is_some_and(|of| of.target() == "fencelock" && of.name() == "acquire");
    match request.spans() {
        Some(spans) => spans.acquire.clone(),
        None if listens(Level::INFO) => {
            outside(|| Some(Span::current()).filter(is_ours)).flatten().map_or_else(Told::none, Told::new)
        }
        None => Told::none(),
    }
}
/// A call that goes on in another thread is the caller's all the same.
pub(crate) fn elsewhere<'a, T>(call: impl Future<Output = T> + Send + 'a) -> Within<'a, T> {
    let caller = listens(Level::INFO).then(|| outside(Span::current)).flatten();
    Within::new(caller.map_or_else(Told::none, Told::new), call)
}
/// Several claims in one step of their engine have come to an end.
pub(crate) fn at_once(core: &Core, claims: impl Iterator<Item = Claim>, began: Moment, outcome: &'static str) {
    let wait = began.until(core.keeper().clock.now());
    claims.for_each(|claim| _ = outside(|| figures::acquired(scheme(core.keeper()), label(claim), outcome, wait)));
}
/// The keeper takes it back, for whoever wanted it has gone.
pub(crate) fn left_to_keeper(request: &Request) {
    outside(
        || debug!(target: "fencelock", name = %request.name(), claim = %request.claim(), "the keeper withdraws an attempt"),
    );
}

/// What is to be told at the end of a hold: once, by whoever takes it first.
#[derive(Debug, Default)]
pub(crate) struct Holding(OnceLock<Box<Mutex<Option<Open>>>>);
#[derive(Debug)]
struct Open {
    span: Arc<Told>,
    since: Moment,
}
impl Holding {
    pub(crate) fn is_watched(&self) -> bool {
        self.0.get().is_some()
    }
    fn end(&self) -> Option<Open> {
        self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
    /// None when it has ended.
    fn span(&self) -> Option<Arc<Told>> {
        let open = self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map(|open| open.span.clone())
    }
}
/// A hold has begun. Its span belongs to whoever called, not to the attempt, which is over.
pub(crate) fn granted(keeper: &Keeper, request: &Request, hold: &Hold, since: Moment) {
    let listens = listens(Level::INFO);
    if !listens && !figures::KEPT {
        return;
    }
    let (name, claim, engine, token) = (&hold.grant.name, hold.grant.claim, scheme(keeper), hold.grant.token.get());
    let begun = |caller: &Span| info_span!(target: "fencelock", parent: caller, "hold", %name, %claim, engine, token, end = Empty, hold_seconds = Empty);
    let span = match request.spans().filter(|_| listens) {
        Some(spans) => of(&spans.acquire, || begun(&spans.caller)),
        None if listens => outside(|| begun(&Span::current())),
        None => None,
    };
    let span = Arc::new(span.map_or_else(Told::none, Told::new));
    let _ = hold.seen.0.set(Box::new(Mutex::new(Some(Open { span, since }))));
    outside(|| figures::held(engine, 1.0));
    // Whoever ended it before has found nothing to tell.
    if hold.life().is_over() {
        ended(keeper, hold);
    }
}
/// A hold is over: whoever is told of it first, or lets go of it.
pub(crate) fn ended(keeper: &Keeper, hold: &Hold) {
    let Some(Open { span, since }) = hold.seen.end() else { return };
    let (engine, claim, held) = (scheme(keeper), hold.grant.claim, since.until(keeper.clock.now()));
    let lost = if let Life::Lost(why) = hold.life() { Some(why) } else { None };
    outside(|| {
        figures::held(engine, -1.0);
        figures::hold(engine, label(claim), held);
        if let Some(why) = lost {
            figures::lost(engine, reason(why));
        }
    });
    outside(|| {
        span.record("hold_seconds", held.as_secs_f64()).record("end", lost.map_or("released", reason)).is_none()
    });
    if let Some(why) = lost {
        let (name, token) = (&hold.grant.name, hold.grant.token.get());
        of(
            &span,
            || warn!(target: "fencelock", parent: &**span, %name, %claim, engine, token, reason = reason(why), "the lock is lost: {why}"),
        );
    }
}
/// What the timers and the engines find, on its way to the keeper's runtime.
#[derive(Debug)]
pub(crate) enum News {
    Suspect(Arc<Hold>),
    Lost(Arc<Hold>),
}
pub(crate) fn tell(keeper: &Keeper, news: &News) {
    match news {
        News::Lost(hold) => ended(keeper, hold),
        News::Suspect(hold) => {
            let (name, claim, token) = (&hold.grant.name, hold.grant.claim, hold.grant.token.get());
            let Some(span) = hold.seen.span() else { return };
            let engine = scheme(keeper);
            of(
                &span,
                || warn!(target: "fencelock", parent: &**span, %name, %claim, engine, token, "renewals are not answered"),
            );
        }
    }
}

/// One for each hold of a call; none where nobody listens.
pub(crate) fn renewing(keeper: &Keeper, holds: &[Arc<Hold>]) -> Vec<Told> {
    if !listens(Level::DEBUG) {
        return Vec::new();
    }
    holds.iter().map(|hold| renewal(keeper, hold)).collect()
}
pub(crate) fn renewal(keeper: &Keeper, hold: &Hold) -> Told {
    if !listens(Level::DEBUG) {
        return Told::none();
    }
    part(hold, |parent| {
        let (name, claim, engine, token) = (&hold.grant.name, hold.claim(), scheme(keeper), hold.grant.token.get());
        debug_span!(target: "fencelock", parent: parent, "renew", %name, %claim, engine, token, outcome = Empty)
    })
}
/// What belongs to a hold.
fn part(hold: &Hold, make: impl Fn(&Span) -> Span) -> Told {
    let parent = hold.seen.span();
    let none = Span::none();
    let parent = parent.as_ref().map_or(&none, |told| &***told);
    of(parent, || make(parent)).map_or_else(Told::none, Told::new)
}
/// The call belongs to its hold where it is for one alone.
pub(crate) fn under<'a, T>(spans: &[Told], call: impl Future<Output = T> + Send + 'a) -> Within<'a, T> {
    Within::new(if let [one] = spans { one.clone() } else { Told::none() }, call)
}
pub(crate) fn renewed(keeper: &Keeper, span: Option<&Told>, answer: Renewed) {
    let outcome = match answer {
        Renewed::Extended { .. } => "extended",
        Renewed::Lost(_) => "lost",
        Renewed::Unknown => "unknown",
    };
    outside(|| figures::renewed(scheme(keeper), outcome));
    if let Some(span) = span {
        outside(|| _ = span.record("outcome", outcome));
    }
}

/// Made while its hold is open, whose part it is.
pub(crate) fn releasing(keeper: &Keeper, hold: &Hold) -> Told {
    if !listens(Level::DEBUG) {
        return Told::none();
    }
    part(hold, |parent| {
        let (name, claim, engine, token) = (&hold.grant.name, hold.claim(), scheme(keeper), hold.grant.token.get());
        debug_span!(target: "fencelock", parent: parent, "release", %name, %claim, engine, token, outcome = Empty)
    })
}
/// What came of a release: in its span. `None`: nobody knows.
pub(crate) fn released(keeper: &Keeper, hold: &Hold, answer: Result<&Released, Option<&Error>>) {
    let outcome = match answer {
        Ok(Released::Released) => "released",
        Ok(Released::NotHeld { .. }) => "not_held",
        Err(_) => "unknown",
    };
    if listens(Level::DEBUG) {
        outside(|| _ = Span::current().record("outcome", outcome));
    }
    let Err(why) = answer else { return };
    let (name, claim, token) = (&hold.grant.name, hold.grant.claim, hold.grant.token.get());
    let why = why.map(tracing::field::display);
    let engine = scheme(keeper);
    outside(
        || warn!(target: "fencelock", %name, %claim, engine, token, error = why, "a release was not answered: the lease ends by itself"),
    );
}
