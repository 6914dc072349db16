//! A session: this process in the database. It lives for as long as its liveness file is locked, and its holds for as long as
//! its heartbeats go on.
pub(crate) mod doorbell;
pub(crate) mod liveness;
pub(crate) mod watches;
pub(crate) mod writers;

use crate::{config::Config, wire::time::HostTime};
use fencelock_core::{Error, ErrorKind, Event, HoldId, LossReason, Moment, Reports, SessionId};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    collections::HashMap,
    fmt,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// What both threads of an engine share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// With all links resolved: everybody must find the same folder beside it.
    pub(crate) database: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) time: HostTime,
    /// The database's device and inode when it was opened.
    identity: (u64, u64),
    state: Mutex<State>,
    pub(crate) writers: writers::Writers,
    /// Wakes the keeper's thread.
    pub(crate) bell: OwnedFd,
    /// For those who wait for a session: it, or why there is none.
    pub(crate) opened: watch::Sender<Option<Result<i64, Refusal>>>,
}
/// Why there is no session.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    kind: ErrorKind,
    why: String,
}
impl Refusal {
    fn of(error: &Error) -> Self {
        Self { kind: error.kind(), why: error.to_string() }
    }
    pub(crate) fn tell(self, operation: &'static str) -> Error {
        Error::new(self.kind, operation, self.why)
    }
}
#[derive(Default)]
struct State {
    /// Why the session could not be opened the last time it was tried.
    trouble: Option<Refusal>,
    reports: Option<Reports>,
    live: Option<Live>,
    /// Until when the keeper's thread sleeps.
    asleep_until: i64,
}
/// The session that is open.
struct Live {
    id: i64,
    /// What was granted and not given back: what a heartbeat must find in the database.
    held: HashMap<HoldId, Own>,
    /// No ttl of `held` is shorter.
    shortest: i64,
    beat: i64,
    /// When all of `held` was last looked for, or there was nothing to look for. A grant beats, but does not look.
    looked: i64,
    /// A heartbeat failed: not before then.
    not_before: i64,
    liveness: OwnedFd,
}
/// One hold of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) lock: i64,
    pub(crate) token: i64,
    pub(crate) ttl: i64,
    /// No heartbeat renews it.
    pub(crate) fixed: bool,
}

impl Shared {
    pub(crate) fn new(config: Config, database: PathBuf, folder: PathBuf, time: HostTime) -> std::io::Result<Self> {
        let meta = std::fs::metadata(&database)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (state, writers, opened) = (Mutex::default(), writers::Writers::new(), watch::Sender::new(None));
        let identity = (meta.dev(), meta.ino());
        Ok(Self { config, database, folder, time, identity, state, writers, bell, opened })
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn wake_keeper(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
    /// Somebody put another file in its place: we and those who open it now would each have a world of their own.
    pub(crate) fn is_replaced(&self) -> bool {
        match std::fs::metadata(&self.database) {
            Ok(meta) => (meta.dev(), meta.ino()) != self.identity,
            Err(e) => e.kind() == std::io::ErrorKind::NotFound,
        }
    }

    pub(crate) fn attend(&self, reports: Reports) {
        self.state().reports = Some(reports);
    }
    pub(crate) fn open(&self, id: i64, liveness: OwnedFd, beat: i64, sent_at: Moment) {
        let mut state = self.state();
        state.trouble = None;
        state.live =
            Some(Live { id, held: HashMap::new(), shortest: i64::MAX, beat, looked: beat, not_before: 0, liveness });
        let reports = state.reports.clone();
        drop(state);
        report(reports.as_ref(), Event::SessionAlive { session: public(id), sent_at });
        self.opened.send_replace(Some(Ok(id)));
    }
    /// Every hold of it is told lost. Its file's lock is given back with it: it may be unlinked before the lock is let go.
    pub(crate) fn end(&self) -> Option<(i64, OwnedFd)> {
        let mut state = self.state();
        let live = state.live.take()?;
        let reports = state.reports.clone();
        drop(state);
        self.opened.send_replace(None);
        report(reports.as_ref(), Event::SessionEnded { session: public(live.id) });
        // Core does not know that those live in it, too.
        for (hold, _) in live.held.iter().filter(|(_, own)| own.fixed) {
            report(reports.as_ref(), Event::Lost { hold: *hold, reason: LossReason::SessionEnded });
        }
        Some((live.id, live.liveness))
    }
    pub(crate) fn failed(&self, error: &Error) {
        self.opened.send_replace(Some(Err(Refusal::of(error))));
    }
    /// It is tried again: told to whoever does not wait for that.
    pub(crate) fn is_in_trouble(&self, error: &Error) {
        self.state().trouble = Some(Refusal::of(error));
    }
    pub(crate) fn trouble(&self, operation: &'static str) -> Option<Error> {
        self.state().trouble.clone().map(|refusal| refusal.tell(operation))
    }
    pub(crate) fn has_file(&self, session: i64) -> bool {
        liveness::liveness(&self.folder, session).exists()
    }
    pub(crate) fn session(&self) -> Option<i64> {
        self.state().live.as_ref().map(|live| live.id)
    }
    /// The descriptor whose lock is the session's life, again.
    pub(crate) fn lifeline(&self) -> Option<std::io::Result<OwnedFd>> {
        self.state().live.as_ref().map(|live| live.liveness.try_clone())
    }
    pub(crate) fn is_ours(&self, session: i64) -> bool {
        self.session() == Some(session)
    }

    /// *Invariant:* called inside the transaction that grants, so every heartbeat, whose transaction comes after, looks for it.
    pub(crate) fn grant(&self, session: i64, hold: HoldId, own: Own, now: i64) -> bool {
        let mut state = self.state();
        let Some(live) = state.live.as_mut().filter(|live| live.id == session) else { return false };
        if live.held.is_empty() {
            live.looked = now;
        }
        live.held.insert(hold, own);
        live.shortest = live.shortest.min(own.ttl);
        true
    }
    pub(crate) fn drop_hold(&self, hold: HoldId) -> Option<Own> {
        let mut state = self.state();
        let live = state.live.as_mut()?;
        let own = live.held.remove(&hold);
        if live.held.is_empty() {
            live.shortest = i64::MAX;
        }
        own
    }
    pub(crate) fn own(&self, hold: HoldId) -> Option<Own> {
        self.state().live.as_ref().and_then(|live| live.held.get(&hold).copied())
    }
    /// What is held, and the numbers of the locks.
    pub(crate) fn held(&self) -> Vec<(HoldId, i64)> {
        let all = |live: &Live| live.held.iter().map(|(hold, own)| (*hold, own.lock)).collect();
        self.state().live.as_ref().map(all).unwrap_or_default()
    }
    /// Some hold of ours may have run out since the last heartbeat.
    pub(crate) fn may_have_lapsed(&self, now: i64) -> bool {
        self.state().live.as_ref().is_some_and(|live| now >= live.beat.saturating_add(live.shortest))
    }
    /// A heartbeat was committed. *Invariant:* what it did not find is told lost before the others are told alive.
    /// And until then nobody sees the new beat: another transaction that grants meanwhile looks for them by itself.
    pub(crate) fn beaten(&self, session: i64, beat: i64, lost: &[HoldId], sent_at: Moment) {
        self.lost(lost);
        let mut state = self.state();
        let Some(live) = state.live.as_mut().filter(|live| live.id == session) else { return };
        live.beat = live.beat.max(beat);
        let next = live.next_beat();
        let reports = state.reports.clone();
        let wake = next < state.asleep_until;
        if wake {
            state.asleep_until = next;
        }
        drop(state);
        report(reports.as_ref(), Event::SessionAlive { session: public(session), sent_at });
        if wake {
            self.wake_keeper();
        }
    }
    pub(crate) fn lost(&self, lost: &[HoldId]) {
        if lost.is_empty() {
            return;
        }
        let reports = self.state().reports.clone();
        for hold in lost {
            report(reports.as_ref(), Event::Lost { hold: *hold, reason: LossReason::TakenOver });
        }
        if let Some(live) = self.state().live.as_mut() {
            lost.iter().for_each(|hold| {
                live.held.remove(hold);
            });
        }
    }
    /// When the keeper's thread must beat next; `i64::MAX` when nothing is held: the lock on the file speaks for us.
    pub(crate) fn next_beat(&self) -> i64 {
        let mut state = self.state();
        let Some(live) = state.live.as_mut() else { return i64::MAX };
        live.shortest = live.held.values().map(|own| own.ttl).min().unwrap_or(i64::MAX);
        live.next_beat()
    }
    /// All that is held was looked for at that time, or soon after.
    pub(crate) fn looked(&self, session: i64, at: i64) {
        if let Some(live) = self.state().live.as_mut().filter(|live| live.id == session) {
            live.looked = at;
        }
    }
    pub(crate) fn postpone_beat(&self, until: i64) {
        if let Some(live) = self.state().live.as_mut() {
            live.not_before = until;
        }
    }
    /// The keeper's thread is about to sleep. False: a heartbeat is due before `until`.
    pub(crate) fn sleep(&self, until: i64) -> bool {
        let mut state = self.state();
        let next = state.live.as_ref().map_or(i64::MAX, Live::next_beat);
        state.asleep_until = until;
        next >= until
    }
}
impl Live {
    /// A third of the shortest ttl of what is held (SAFETY G1), after the last one that looked for it all: somebody who is killed
    /// after he took a hold away rings nobody, and a client that is granted others all the time must hear of it, too.
    fn next_beat(&self) -> i64 {
        if self.held.is_empty() { i64::MAX } else { self.looked.saturating_add(self.shortest / 3).max(self.not_before) }
    }
}
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sqlite({})", self.database.display())
    }
}
fn report(reports: Option<&Reports>, event: Event) {
    if let Some(reports) = reports {
        reports.send(event);
    }
}
/// A session's number as core knows it.
pub(crate) fn public(id: i64) -> SessionId {
    SessionId(id.unsigned_abs())
}
/// A time span in the database's unit.
pub(crate) fn nanos(d: Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)
}
/// And back; what is past is zero.
pub(crate) fn duration(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}
