//! Two threads per client. One has the loss timers and does nothing else (SAFETY G3). The other, a small runtime of its own,
//! renews, releases what was dropped, takes back abandoned attempts, polls [`Engine::run`], and serves callers without tokio.
//!
//! Callers touch only the orders of losses and renewals (a mutex, no hop), and wake the keeper only when their moment is
//! earlier than the one it sleeps for.
mod host;
mod jobs;
mod losses;
mod renewals;
mod sessions;

pub(crate) use host::Host;
pub(crate) use jobs::Job;
pub(crate) use losses::Losses;

use crate::{
    clock::Clock,
    engine::Engine,
    gate::Gate,
    hold::{Hold, Session},
    mutants::{Mutant, lives},
    observe,
    os::Alarm,
    types::{Event, Grant, Renewed, SessionId},
};
use renewals::Renewals;
use sessions::Sessions;
use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::Notify;

/// What wakes the one who has the loss timers.
#[derive(Debug)]
pub(crate) enum Bell {
    /// A thread, asleep on a boot-time timer.
    Thread(Alarm),
    /// A task on the caller's runtime: paused time.
    Task(Notify),
}
impl Bell {
    pub(crate) fn ring(&self) {
        match self {
            Self::Thread(alarm) => alarm.ring(),
            Self::Task(notify) => notify.notify_one(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) losses: Losses,
    renewals: Renewals,
    /// Where its tasks go through.
    pub(crate) gate: Option<Gate>,
    sessions: Sessions,
    /// The client is being closed: nothing is tried for longer than it must.
    closing: AtomicBool,
}

/// Where an engine's `run` reports to. Cheap to clone; a report takes no I/O and no time.
#[derive(Clone)]
pub struct Reports(Heeds);
#[derive(Clone)]
enum Heeds {
    Keeper(Arc<Keeper>),
    /// An engine that is made of engines hears what they report.
    Engine(Arc<dyn Fn(Event) + Send + Sync>),
}
impl Reports {
    pub(crate) fn to(heed: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Heeds::Engine(Arc::new(heed)))
    }
    /// Tells core. Report the heartbeat of a grant before the grant is returned (SAFETY G1).
    pub fn send(&self, event: Event) {
        match &self.0 {
            Heeds::Keeper(keeper) => keeper.heed(event),
            Heeds::Engine(heed) => heed(event),
        }
    }
}
impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reports")
    }
}

impl Keeper {
    pub(crate) fn new(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, bell: Bell, gate: Option<Gate>) -> Arc<Self> {
        let (losses, renewals) = (Losses::new(bell), Renewals::default());
        let (sessions, closing) = (Sessions::default(), AtomicBool::new(false));
        Arc::new(Self { engine, clock, losses, renewals, gate, sessions, closing })
    }
    /// Starts to renew a hold, where core does that.
    pub(crate) fn tend(&self, hold: &Arc<Hold>) {
        if hold.is_own() && (!hold.fixed || lives(Mutant::FixedIsRenewed)) {
            self.renewals.put(hold.clone(), hold.renew_at());
        }
    }
    /// No renewal after this. One that is on its way extends a hold that nobody has; the release that follows ends it.
    pub(crate) fn rest(&self, hold: &Hold) {
        if hold.is_own() {
            self.renewals.remove(hold);
        }
    }
    pub(crate) fn session(&self, id: SessionId) -> Arc<Session> {
        self.sessions.get(id)
    }
    /// A session lives: what was left in it does not end by itself.
    fn in_session(&self) -> bool {
        self.sessions.any_lives()
    }

    pub(crate) fn heed(&self, event: Event) {
        match event {
            Event::Lost { hold, reason } => self.losses.lose(hold, reason),
            Event::SessionAlive { session, sent_at } => {
                self.losses.before_beat(self.clock.now());
                self.session(session).alive(sent_at);
            }
            Event::SessionEnded { session } => {
                self.sessions.end(session);
                self.losses.lose_session(session);
            }
            Event::Recheck => {
                let now = self.clock.now();
                for hold in self.losses.holds(Hold::is_own) {
                    self.renewals.put(hold, now);
                }
            }
        }
    }

    /// One call for some holds. What is not known is asked again until the validity ends; what is lost is told at once.
    async fn renew(self: Arc<Self>, mut holds: Vec<Arc<Hold>>) {
        // What has ended since it was put on the list is not extended any more (SAFETY G4, G5).
        holds.retain(|hold| hold.is_open());
        if holds.is_empty() {
            return;
        }
        let shortest = holds.iter().map(|hold| hold.grant.ttl).min().unwrap_or_default();
        let wanted = |hold: &Arc<Hold>| {
            let grant = hold.grant_now().into_owned();
            // A fixed lease is only looked at: a renewal by nothing.
            if hold.fixed && !lives(Mutant::FixedIsRenewed) { Grant { ttl: Duration::ZERO, ..grant } } else { grant }
        };
        let grants: Vec<_> = holds.iter().map(wanted).collect();
        let spans = observe::renewing(&self, &holds);
        let call = observe::under(&spans, observe::timed(&self, "renew", self.engine.renew(&grants)));
        // One that hangs must not keep the next one from being tried.
        let answers = match tokio::time::timeout(shortest / 6, call).await {
            Ok(Ok(answers)) if answers.len() == holds.len() => answers,
            _ => vec![Renewed::Unknown; holds.len()],
        };
        for (n, (hold, answer)) in holds.into_iter().zip(answers).enumerate() {
            if !hold.is_open() && !lives(Mutant::LateRenewalRevives) {
                continue;
            }
            match answer {
                Renewed::Extended { .. } if hold.fixed && !lives(Mutant::FixedIsRenewed) => continue,
                Renewed::Extended { sent_at } => {
                    hold.extend(sent_at);
                    let at = hold.renew_at();
                    self.renewals.put(hold, at);
                }
                Renewed::Lost(reason) => self.losses.lose(hold.grant.hold, reason),
                Renewed::Unknown => {
                    let soon = self.clock.now() + (hold.grant.ttl / 20).min(Duration::from_millis(500));
                    self.renewals.put(hold, soon);
                }
            }
            observe::renewed(&self, spans.get(n), answer);
        }
    }
}
