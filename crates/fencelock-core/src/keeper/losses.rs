//! The order in which holds run out, and those who are told. This room does no I/O (SAFETY G3).
use super::Bell;
use crate::{
    clock::Moment,
    hold::{Hold, Life, Verdict},
    observe::News,
    types::{HoldId, Lease, LossReason, Request, SessionId, Spread},
};
use std::{
    collections::{BTreeSet, HashMap},
    hash::BuildHasherDefault,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::mpsc;

/// So long before its time a hold that was renewed is moved on: of a hundred thousand not each wakes the thread by itself.
const AHEAD: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Losses {
    roster: Mutex<Roster>,
    pub(super) bell: Bell,
    /// What the keeper tells those who watch: nothing of it is told here.
    news: mpsc::UnboundedSender<News>,
    heard: Mutex<Option<mpsc::UnboundedReceiver<News>>>,
}
#[derive(Debug, Default)]
struct Roster {
    entries: HashMap<HoldId, Entry, BuildHasherDefault<Spread>>,
    order: BTreeSet<(Moment, HoldId)>,
    /// What the timer is set to. An alarm that is not yet due stays set when its hold is forgotten: a busy loop of short
    /// holds then wakes the thread once per ttl, not once per hold.
    alarm: Option<Moment>,
    /// Up to then those that were renewed have been moved on already.
    swept: Option<Moment>,
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
        let (news, heard) = mpsc::unbounded_channel();
        Self { roster: Mutex::default(), bell, news, heard: Mutex::new(Some(heard)) }
    }
    /// Once: for the keeper.
    pub(super) fn news(&self) -> Option<mpsc::UnboundedReceiver<News>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
    fn report(&self, hold: &Arc<Hold>, news: fn(Arc<Hold>) -> News) {
        if hold.seen.is_watched() {
            let _ = self.news.send(news(hold.clone()));
        }
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
                let end = Life::Lost(if over { LossReason::Expired } else { reason });
                // A waker is foreign code: one that panics must not cost the others their word.
                let _ = catch_unwind(AssertUnwindSafe(|| hold.finish(end)));
                self.report(&hold, News::Lost);
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
        roster.sweep(now);
        drop(guard);
        for hold in lost.iter().chain(&suspect) {
            // A waker is foreign code: one that panics must not cost the others their word.
            let _ = catch_unwind(AssertUnwindSafe(|| hold.wake()));
        }
        lost.iter().for_each(|hold| self.report(hold, News::Lost));
        suspect.iter().for_each(|hold| self.report(hold, News::Suspect));
    }
}
impl Roster {
    /// Moves on those whose time is near and that were renewed meanwhile. Each time is looked at once, so what was not renewed costs
    /// nothing more when many end together. *Invariant (SAFETY G3):* nobody is told later for it: a hold is due no earlier than
    /// the last answer to a renewal says, and never moves back.
    fn sweep(&mut self, now: Moment) {
        let from = self.swept.map_or(now, |swept| swept.max(now));
        let to = from.max(now + AHEAD);
        self.swept = Some(to);
        let near: Vec<_> = self.order.range((from, HoldId::MIN)..(to, HoldId::MIN)).copied().collect();
        for (at, id) in near {
            if let Some(Entry::Held(known, hold)) = self.entries.get_mut(&id)
                && let Some(next) = hold.due().filter(|next| *next > at)
            {
                *known = next;
                self.order.remove(&(at, id));
                self.order.insert((next, id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: no sweep (one of a thousand is moved), and a sweep that moves what was not renewed.
    use super::*;
    use crate::{
        clock::TokioClock,
        engine::Engine,
        hold::Since,
        memory::MemoryEngine,
        types::{Claim, Grant, Name, Token, Wish},
    };
    use std::sync::atomic::AtomicU64;

    #[tokio::test(start_paused = true)]
    async fn those_that_were_renewed_are_moved_on_together_and_the_others_are_told_in_time() {
        let (clock, ttl) = (Arc::new(TokioClock::start()), Duration::from_secs(10));
        let can = MemoryEngine::new().info().capabilities.clone();
        let losses = Losses::new(Bell::Task(Default::default()));
        let mut holds = Vec::new();
        for i in 0..1_000u32 {
            let (name, claim, id) =
                (Name::new("x").unwrap(), Claim::Mutex, HoldId::from_bytes(u128::from(i).to_be_bytes()));
            let (max_hold, at_least, note) = (None, Duration::ZERO, "".into());
            let wish = Wish { name: name.clone(), claim, ttl, fixed: false, max_hold, at_least, wait: false, note };
            let request = Request::new(wish, id, None);
            // All within the first half of what is looked ahead.
            let sent_at = Moment::ZERO + Duration::from_micros(u64::from(10 * i));
            let (token, lease) = (Token::new(1).unwrap(), Lease::Own { sent_at });
            let grant = Grant { name, claim, hold: id, token, ttl, lease, server_micros: 0, place: None };
            let since = Since::Own(AtomicU64::new(sent_at.as_nanos()));
            holds.push(Arc::new(Hold::new(grant, since, &request, &can, clock.clone())));
            losses.admit(holds.last().unwrap(), Moment::ZERO).unwrap();
        }
        let first = losses.alarm(Moment::ZERO).unwrap();
        let asked = Moment::ZERO + ttl / 3;
        holds.iter().skip(1).step_by(2).for_each(|hold| hold.rebase(asked));
        assert!(losses.look(first).is_empty());
        let near = |losses: &Losses| losses.roster().order.range(..(first + AHEAD, HoldId::MIN)).count();
        // The first was judged, and is looked at again when it ends.
        assert_eq!((near(&losses), losses.len()), (499, 1_000));
        let (mut lost, mut now) = (Vec::new(), first);
        while let Some(at) = losses.alarm(now).filter(|at| *at < Moment::ZERO + ttl) {
            now = at;
            lost.extend(losses.look(at).into_iter().map(|hold| (hold, at)));
        }
        assert_eq!((lost.len(), losses.len()), (500, 500));
        assert!(lost.iter().all(|(hold, at)| *at <= hold.valid_until()), "told in time");
    }
}
