//! The order in which holds run out, and those who are told. This room does no I/O (SAFETY G3).
use super::Bell;
use crate::{
    clock::Moment,
    hold::{Hold, Life, Verdict},
    types::{HoldId, Lease, LossReason, Request, SessionId, Spread},
};
use std::{
    collections::{BTreeSet, HashMap},
    hash::BuildHasherDefault,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Debug)]
pub(crate) struct Losses {
    roster: Mutex<Roster>,
    pub(super) bell: Bell,
}
#[derive(Debug, Default)]
struct Roster {
    entries: HashMap<HoldId, Entry, BuildHasherDefault<Spread>>,
    order: BTreeSet<(Moment, HoldId)>,
    /// What the timer is set to. An alarm that is not yet due stays set when its hold is forgotten: a busy loop of short
    /// holds then wakes the thread once per ttl, not once per hold.
    alarm: Option<Moment>,
    /// Lost by the clock, and not looked after yet.
    lapsed: Vec<Arc<Hold>>,
}
#[derive(Debug)]
enum Entry {
    /// An attempt is under way. A loss that is reported before its guard is built must not be missed.
    Awaited(Request, Option<LossReason>),
    Held(Moment, Arc<Hold>),
}

impl Losses {
    pub(super) fn new(bell: Bell) -> Self {
        Self { roster: Mutex::default(), bell }
    }
    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// From before the attempt's first byte until [`admit`](Self::admit) or [`forget`](Self::forget).
    pub(crate) fn expect(&self, request: &Request) {
        self.roster().entries.insert(request.hold(), Entry::Awaited(request.clone(), None));
    }
    /// Starts the loss timer of a new hold; or says that it was lost while its grant was on the way.
    pub(crate) fn admit(&self, hold: &Arc<Hold>, now: Moment) -> Result<(), LossReason> {
        let mut roster = self.roster();
        let id = hold.grant.hold;
        if let Some(Entry::Awaited(_, Some(reason))) = roster.entries.get(&id) {
            return Err(*reason);
        }
        // Under the mutex: a session that ends after this look finds the hold on the list.
        let at = match hold.judge(now) {
            Verdict::Good(at) | Verdict::Suspect(at) => at,
            Verdict::Lost | Verdict::Over => match hold.life() {
                Life::Lost(reason) => return Err(reason),
                _ => return Err(LossReason::Expired),
            },
        };
        roster.entries.insert(id, Entry::Held(at, hold.clone()));
        roster.order.insert((at, id));
        let earlier = roster.alarm.is_none_or(|alarm| at < alarm);
        if earlier {
            roster.alarm = Some(at);
        }
        drop(roster);
        if earlier {
            self.bell.ring();
        }
        Ok(())
    }
    /// Nobody wants to hear of this attempt or hold any more.
    pub(crate) fn forget(&self, id: HoldId) {
        let mut roster = self.roster();
        if let Some(Entry::Held(at, _)) = roster.entries.remove(&id) {
            roster.order.remove(&(at, id));
        }
    }
    /// The engine said so.
    pub(crate) fn lose(&self, id: HoldId, reason: LossReason) {
        let mut roster = self.roster();
        match roster.entries.get_mut(&id) {
            None => {}
            Some(Entry::Awaited(_, lost)) => *lost = Some(reason),
            Some(Entry::Held(at, hold)) => {
                let (at, hold) = (*at, hold.clone());
                roster.entries.remove(&id);
                roster.order.remove(&(at, id));
                drop(roster);
                // An engine that says first that it is gone, of one whose time was over: that is why.
                let over = reason == LossReason::TakenOver && hold.remaining().is_zero();
                hold.finish(Life::Lost(if over { LossReason::Expired } else { reason }));
            }
        }
    }
    /// Every hold of a session that has ended.
    pub(crate) fn lose_session(&self, session: SessionId) {
        let gone = |hold: &Hold| hold.grant.lease == Lease::Session(session);
        for hold in self.holds(gone) {
            self.lose(hold.grant.hold, LossReason::SessionEnded);
        }
    }
    pub(crate) fn holds(&self, wanted: impl Fn(&Hold) -> bool) -> Vec<Arc<Hold>> {
        let roster = self.roster();
        let held = roster.entries.values().filter_map(|entry| match entry {
            Entry::Held(_, hold) if wanted(hold) => Some(hold.clone()),
            _ => None,
        });
        held.collect()
    }
    pub(crate) fn awaited(&self) -> Vec<Request> {
        let roster = self.roster();
        let awaited = roster.entries.values().filter_map(|entry| match entry {
            Entry::Awaited(request, _) => Some(request.clone()),
            Entry::Held(..) => None,
        });
        awaited.collect()
    }
    /// How many are held.
    pub(crate) fn len(&self) -> usize {
        self.roster().order.len()
    }

    /// When to look next.
    pub(super) fn alarm(&self, now: Moment) -> Option<Moment> {
        let mut roster = self.roster();
        let set = roster.alarm.filter(|at| *at > now);
        let first = roster.order.first().map(|(at, _)| *at);
        roster.alarm = set.into_iter().chain(first).min();
        roster.alarm
    }
    /// Tells every hold that is due; returns those that are lost. All states first, then the wakers.
    pub(super) fn look(&self, now: Moment) -> Vec<Arc<Hold>> {
        self.judge(now);
        std::mem::take(&mut self.roster().lapsed)
    }
    /// *Invariant (SAFETY G4):* a heartbeat's answer that comes after the end of validity revives nothing: before it counts, what
    /// is due is judged by the one before.
    pub(super) fn before_beat(&self, now: Moment) {
        let due = self.roster().order.first().is_some_and(|(at, _)| *at <= now);
        if due {
            self.judge(now);
            self.bell.ring();
        }
    }
    fn judge(&self, now: Moment) {
        let (mut lost, mut suspect) = (Vec::new(), Vec::new());
        let mut guard = self.roster();
        let roster = &mut *guard;
        while let Some((at, id)) = roster.order.first().copied().filter(|(at, _)| *at <= now) {
            roster.order.remove(&(at, id));
            let Some(Entry::Held(_, hold)) = roster.entries.get(&id) else { continue };
            let hold = hold.clone();
            match hold.judge(now) {
                verdict @ (Verdict::Good(next) | Verdict::Suspect(next)) => {
                    if matches!(verdict, Verdict::Suspect(_)) {
                        suspect.push(hold.clone());
                    }
                    // Never at or before `now`: that would not let this loop end.
                    let next = next.max(Moment::from_nanos(now.as_nanos() + 1));
                    roster.entries.insert(id, Entry::Held(next, hold));
                    roster.order.insert((next, id));
                }
                verdict => {
                    roster.entries.remove(&id);
                    if verdict == Verdict::Lost {
                        lost.push(hold);
                    }
                }
            }
        }
        roster.lapsed.extend(lost.iter().cloned());
        drop(guard);
        for hold in lost.iter().chain(&suspect) {
            // A waker is foreign code: one that panics must not cost the others their word.
            let _ = catch_unwind(AssertUnwindSafe(|| hold.wake()));
        }
    }
}
