//! One hold: `Held → Suspect → Lost | Released`, and until when it is good.
use crate::{
    clock::{Clock, Moment},
    mutants::{Mutant, lives},
    observe::Holding,
    types::{Capabilities, Claim, Grant, LossReason, Request, Wish},
};
use std::{
    borrow::Cow,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::*},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// What a local clock and the engine's may disagree on, apart from drift.
const MARGIN: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Held,
    /// No renewal was answered for longer than it should take. It may become `Held` again.
    Suspect,
    Lost(LossReason),
    Released,
}
impl Life {
    const fn code(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::Suspect => 1,
            Self::Released => 2,
            Self::Lost(LossReason::Expired) => 3,
            Self::Lost(LossReason::MaxHold) => 4,
            Self::Lost(LossReason::SessionEnded) => 5,
            Self::Lost(LossReason::TakenOver) => 6,
            Self::Lost(LossReason::Unreachable) => 7,
        }
    }
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Held,
            1 => Self::Suspect,
            2 => Self::Released,
            4 => Self::Lost(LossReason::MaxHold),
            5 => Self::Lost(LossReason::SessionEnded),
            6 => Self::Lost(LossReason::TakenOver),
            7 => Self::Lost(LossReason::Unreachable),
            _ => Self::Lost(LossReason::Expired),
        }
    }
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Lost(_) | Self::Released)
    }
}

/// A session, shared by all of its holds: when its last answered heartbeat was sent.
#[derive(Debug, Default)]
pub(crate) struct Session {
    sent_at: AtomicU64,
    beat: Notify,
}
impl Session {
    const ENDED: u64 = u64::MAX;

    pub(crate) fn alive(&self, sent_at: Moment) {
        // Never from ENDED: a report that comes late raises nobody from the dead.
        self.sent_at.fetch_max(sent_at.as_nanos(), AcqRel);
        self.beat.notify_waiters();
    }
    /// Whether it had not before.
    pub(crate) fn end(&self) -> bool {
        self.sent_at.swap(Self::ENDED, AcqRel) != Self::ENDED
    }
    /// `None` before the first heartbeat and after the end.
    pub(crate) fn sent_at(&self) -> Option<Moment> {
        match self.sent_at.load(Acquire) {
            0 | Self::ENDED => None,
            at => Some(Moment::from_nanos(at)),
        }
    }
}

/// From when the ttl counts.
#[derive(Debug)]
pub(crate) enum Since {
    Own(AtomicU64),
    Session(Arc<Session>),
}

#[derive(Debug)]
pub(crate) struct Hold {
    /// As it was granted: see [`grant_now`](Self::grant_now).
    pub(crate) grant: Grant,
    since: Since,
    /// It is never renewed, only extended.
    pub(crate) fixed: bool,
    /// It is not given back before, if anybody has had it in hand.
    not_before: Moment,
    pub(crate) taken: AtomicBool,
    /// The latest end of an extension that was sent, and of one that was answered in time: by the engine's clock at its slowest.
    extended: AtomicU64,
    known: AtomicU64,
    /// The guards on it: those that hold it alone in the low half, those that share it in the high half (SAFETY A4).
    entries: AtomicU64,
    /// A writer's hold that readers have now.
    downgraded: AtomicBool,
    /// The part of the ttl that is trusted: less the drift of two clocks and the margin (SAFETY G3).
    trusted: Duration,
    /// End by `max_hold`.
    limit: Moment,
    life: AtomicU8,
    changed: Notify,
    /// Where it stands in the keeper's order of renewals; 0: nowhere.
    pub(crate) renewal: AtomicU64,
    /// It is being released: no renewal is started any more.
    pub(crate) leaving: AtomicBool,
    /// What is told at its end.
    pub(crate) seen: Holding,
    clock: Arc<dyn Clock>,
}

/// One guard of the low half of `entries`, one of the high half, and the low half.
const ALONE: u64 = 1;
const SHARED: u64 = 1 << 32;
const HALF: u64 = SHARED - 1;

/// How a guard has its part of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Alone,
    Shared,
}
impl Way {
    pub(crate) const fn of(claim: Claim) -> Self {
        if claim.is_exclusive() { Self::Alone } else { Self::Shared }
    }
    const fn one(self) -> u64 {
        match self {
            Self::Alone => ALONE,
            Self::Shared => SHARED,
        }
    }
}
/// What became of one who wants to enter again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Enter {
    In,
    /// It is lost, or being given back: it is acquired anew.
    Over,
    /// Readers have it, and who enters would write.
    Shared,
}
/// Who is left when a guard goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    Last,
    Others,
    /// Nobody who writes: those who wait to read may come in.
    Readers,
}
/// The part of a ttl that is trusted: less the drift of two clocks and the margin (SAFETY G3).
fn trusted(ttl: Duration, drift: f64) -> Duration {
    if lives(Mutant::DriftIgnored) {
        return ttl;
    }
    ttl.saturating_sub(ttl.mul_f64(drift) + MARGIN)
}
/// So long before the validity ends the loss is told.
fn early(ttl: Duration) -> Duration {
    Duration::from_millis(10).max(ttl / 50)
}
/// So long after it was sent a grant of this ttl counts, until its loss is told.
pub(crate) fn counted(ttl: Duration, drift: f64) -> Duration {
    trusted(ttl, drift).saturating_sub(early(ttl))
}

/// What the loss timers found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Look again then.
    Good(Moment),
    /// This look found that renewals are late. Look again then.
    Suspect(Moment),
    /// This look ended it.
    Lost,
    /// It had ended before.
    Over,
}

impl Hold {
    pub(crate) fn new(
        grant: Grant,
        since: Since,
        request: &Request,
        can: &Capabilities,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let trusted = trusted(grant.ttl, can.drift);
        // Where a session's record ends by itself after it, two clocks measure it (SAFETY G3, G5).
        let drift = if matches!(since, Since::Session(_)) { can.drift } else { 0.0 };
        let limit = request.max_hold().map_or(Moment::FAR, |d| clock.now() + d.saturating_sub(d.mul_f64(drift)));
        let at_least = request.at_least();
        let at_once = at_least.is_zero() || lives(Mutant::AtLeastIgnored);
        let not_before = if at_once { Moment::ZERO } else { clock.now() + at_least };
        let entries = AtomicU64::new(if grant.claim.is_exclusive() { ALONE } else { SHARED });
        let (fixed, downgraded, taken) = (request.is_fixed(), AtomicBool::new(false), AtomicBool::new(false));
        let (life, changed) = (AtomicU8::new(Life::Held.code()), Notify::new());
        let (renewal, leaving) = (AtomicU64::new(0), AtomicBool::new(false));
        Self {
            grant,
            since,
            fixed,
            not_before,
            taken,
            extended: AtomicU64::new(0),
            known: AtomicU64::new(0),
            entries,
            downgraded,
            trusted,
            limit,
            life,
            changed,
            renewal,
            leaving,
            seen: Holding::default(),
            clock,
        }
    }
    /// When it may be given back: an attempt that was dropped as it got in keeps nobody out.
    pub(crate) fn not_before(&self) -> Moment {
        if self.taken.load(Acquire) { self.not_before } else { Moment::ZERO }
    }
    /// What the engine has of it now.
    pub(crate) fn grant_now(&self) -> Cow<'_, Grant> {
        match self.claim() {
            claim if claim == self.grant.claim => Cow::Borrowed(&self.grant),
            claim => Cow::Owned(Grant { claim, ..self.grant.clone() }),
        }
    }
    pub(crate) fn claim(&self) -> Claim {
        if self.downgraded.load(Acquire) { Claim::Read } else { self.grant.claim }
    }
    /// What a downgrade asks for: the same hold, to read.
    pub(crate) fn as_reader(&self) -> Request {
        let Grant { name, hold, ttl, .. } = self.grant.clone();
        let wish = Wish {
            name,
            claim: Claim::Read,
            ttl,
            fixed: self.fixed,
            max_hold: None,
            at_least: Duration::ZERO,
            wait: false,
            note: "".into(),
        };
        Request::new(wish, hold, None)
    }
    pub(crate) fn set_downgraded(&self) {
        self.downgraded.store(true, Release);
    }

    /// Another guard on it, if it is still good and has one that allows this one beside it.
    pub(crate) fn enter(&self, claim: Claim) -> Enter {
        if !self.is_valid() && !lives(Mutant::ReentersLost) {
            return Enter::Over;
        }
        let one = if claim.is_exclusive() { ALONE } else { SHARED };
        let more = |entries: u64| {
            let allowed = entries > 0 && (one == SHARED || entries & HALF > 0);
            allowed.then_some(entries + one)
        };
        match self.entries.fetch_update(AcqRel, Acquire, more) {
            Ok(_) => Enter::In,
            Err(0) => Enter::Over,
            Err(_) => Enter::Shared,
        }
    }
    pub(crate) fn leave(&self, way: Way) -> Leave {
        let one = way.one();
        match self.entries.fetch_sub(one, AcqRel) - one {
            0 => Leave::Last,
            // Also when somebody began to share it and was dropped half-way.
            left if left & HALF == 0 && self.claim() == Claim::Write => Leave::Readers,
            _ => Leave::Others,
        }
    }
    /// The only guard takes the hold along: nobody enters it any more. False: there are others.
    pub(crate) fn close(&self, way: Way) -> bool {
        self.entries.compare_exchange(way.one(), 0, AcqRel, Acquire).is_ok()
    }
    /// One of those who hold it alone shares it from now on. True: nobody holds it alone any more.
    pub(crate) fn share(&self) -> bool {
        (self.entries.fetch_add(SHARED - ALONE, AcqRel) + SHARED - ALONE) & HALF == 0
    }
    pub(crate) fn entries(&self) -> u32 {
        let entries = self.entries.load(Acquire);
        u32::try_from((entries & HALF) + (entries >> 32)).unwrap_or(u32::MAX)
    }
    /// It ends by something else than its ttl.
    pub(crate) fn is_limited(&self) -> bool {
        self.fixed || self.limit < Moment::FAR || self.not_before > Moment::ZERO
    }
    /// Core renews it by itself.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.since, Since::Own(_))
    }
    pub(crate) fn sent_at(&self) -> Moment {
        match &self.since {
            Since::Own(at) => Moment::from_nanos(at.load(Acquire)),
            Since::Session(session) => session.sent_at().unwrap_or(Moment::ZERO),
        }
    }
    /// `sent_at + ttl − drift·ttl − margin`: the engine started to count later than `sent_at`, and may count faster by the
    /// drift. Nobody else can be granted the lock before (SAFETY G3).
    pub(crate) fn valid_until(&self) -> Moment {
        self.sent_and(self.trusted).min(self.limit)
    }
    /// So long after it was sent. Of a session of which nothing was heard, or that has ended, that was over before the machine began to count.
    pub(crate) fn sent_and(&self, d: Duration) -> Moment {
        match &self.since {
            Since::Own(at) => Moment::from_nanos(at.load(Acquire)) + d,
            Since::Session(session) => session.sent_at().map_or(Moment::ZERO, |at| at + d),
        }
    }
    /// When the engine itself has ended the lease, whatever was lost on the way.
    pub(crate) fn ends_by(&self) -> Moment {
        self.known_end().max(Moment::from_nanos(self.extended.load(Acquire)))
    }
    /// When the lease has ended that the holder knew of: what came too late gave it nothing.
    pub(crate) fn known_end(&self) -> Moment {
        let known = Moment::from_nanos(self.known.load(Acquire));
        (self.sent_at() + self.grant.ttl.mul_f64(1.02) + MARGIN).max(known)
    }
    /// A third of the ttl, jittered, so that bursts of grants become no bursts of renewals.
    pub(crate) fn renew_at(&self) -> Moment {
        self.sent_at() + self.grant.ttl.mul_f64(0.28 + 0.05 * fastrand::f64())
    }
    pub(crate) fn life(&self) -> Life {
        Life::from_code(self.life.load(Acquire))
    }
    /// Neither lost nor on its way out.
    pub(crate) fn is_open(&self) -> bool {
        !self.life().is_over() && !self.leaving.load(Relaxed)
    }
    /// It lives with a session, and that lives.
    pub(crate) fn in_session(&self) -> bool {
        matches!(&self.since, Since::Session(session) if session.sent_at().is_some())
    }
    pub(crate) fn is_valid(&self) -> bool {
        // Read in this order: a renewal that comes in between must not meet the time from before it.
        let until = self.valid_until();
        !self.life().is_over() && self.clock.now() < until
    }
    pub(crate) fn remaining(&self) -> Duration {
        let until = self.valid_until();
        if self.life().is_over() { Duration::ZERO } else { self.clock.now().until(until) }
    }
    /// An extension of a fixed lease by `d` is sent now: whatever becomes of its answer, the engine may have done it.
    pub(crate) fn extends(&self, d: Duration) {
        let ends = self.clock.now() + d.mul_f64(1.02) + MARGIN;
        self.extended.fetch_max(ends.as_nanos(), AcqRel);
    }
    /// An extension of a fixed lease by `d` that was sent at `sent_at` was answered. It never shortens. False: it came too late.
    pub(crate) fn extend_by(&self, sent_at: Moment, d: Duration, can: &Capabilities) -> bool {
        // As if it had been granted with its own ttl, so much earlier or later.
        let ends = sent_at + d.mul_f64(1.02) + MARGIN;
        self.extended.fetch_max(ends.as_nanos(), AcqRel);
        self.extend(sent_at + trusted(d, can.drift) - self.trusted);
        let in_time = self.is_valid();
        if in_time {
            self.known.fetch_max(ends.as_nanos(), AcqRel);
        }
        in_time
    }
    /// A renewal that was sent at `sent_at` was answered. *Invariant (SAFETY G4):* an answer that comes after the end of
    /// validity changes nothing, for the loss may have been told already.
    pub(crate) fn extend(&self, sent_at: Moment) {
        if let Since::Own(at) = &self.since
            && (self.is_valid() || lives(Mutant::LateRenewalRevives))
        {
            at.fetch_max(sent_at.as_nanos(), AcqRel);
            let late = if lives(Mutant::LateRenewalRevives) { self.life() } else { Life::Suspect };
            let (late, calm) = (late.code(), Life::Held.code());
            let _ = self.life.compare_exchange(late, calm, AcqRel, Acquire);
            self.changed.notify_waiters();
        }
    }
    /// The renewal of a grant that nobody has in hand yet: validity was not claimed, so there is nothing that it must not
    /// outlive; the engine has just said that the hold is there.
    pub(crate) fn rebase(&self, sent_at: Moment) {
        if let Since::Own(at) = &self.since {
            at.fetch_max(sent_at.as_nanos(), AcqRel);
        }
    }
    /// Judges by the clock: the loss timers' look. Wakes nobody, so that the thread that tells losses runs foreign code
    /// (wakers) only after every state of this round is set: [`wake`](Self::wake).
    pub(crate) fn judge(&self, now: Moment) -> Verdict {
        let life = self.life();
        if life.is_over() {
            return Verdict::Over;
        }
        let (lost_at, suspect_at) = (self.told_at(), self.suspect_at());
        let over = if now >= self.limit {
            Some(LossReason::MaxHold)
        } else if now >= lost_at {
            // Suspect: we were awake and saw no renewal. Held: we slept through it all.
            Some(if life == Life::Suspect { LossReason::Unreachable } else { LossReason::Expired })
        } else {
            None
        };
        if let Some(reason) = over {
            return if self.settle(Life::Lost(reason)) { Verdict::Lost } else { Verdict::Over };
        }
        if self.fixed {
            return Verdict::Good(lost_at.min(self.limit));
        }
        let (late, calm) = (Life::Suspect.code(), Life::Held.code());
        if now >= suspect_at {
            let new = self.life.compare_exchange(calm, late, AcqRel, Acquire).is_ok();
            let next = lost_at.min(self.limit);
            return if new { Verdict::Suspect(next) } else { Verdict::Good(next) };
        }
        let _ = self.life.compare_exchange(late, calm, AcqRel, Acquire);
        Verdict::Good(suspect_at.min(lost_at).min(self.limit))
    }
    /// When it is to be judged, as long as nothing is wrong with it.
    pub(crate) fn due(&self) -> Option<Moment> {
        let end = self.told_at().min(self.limit);
        let at = if self.fixed { end } else { self.suspect_at().min(end) };
        (self.life() == Life::Held).then_some(at)
    }
    /// When a renewal should long have been answered.
    fn suspect_at(&self) -> Moment {
        self.sent_at() + self.trusted.mul_f64(0.6)
    }
    /// When its loss is told: before the validity ends, so that whoever listens hears of it in time.
    fn told_at(&self) -> Moment {
        let early = early(self.grant.ttl);
        if lives(Mutant::LossToldLate) {
            return self.sent_and(self.grant.ttl + early);
        }
        self.sent_and(self.trusted.saturating_sub(early))
    }
    /// Ends it and tells. Only the first end counts; true if it was this one.
    pub(crate) fn finish(&self, end: Life) -> bool {
        let first = self.settle(end);
        if first {
            self.wake();
        }
        first
    }
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }
    fn settle(&self, end: Life) -> bool {
        let open = |code| (!Life::from_code(code).is_over()).then_some(end.code());
        self.life.fetch_update(AcqRel, Acquire, open).is_ok()
    }
    /// Resolves with the first answer of `look`, which is asked again after each change.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut(Life) -> Option<T>) -> T {
        let mut changed = pin!(self.changed.notified());
        loop {
            changed.as_mut().enable();
            if let Some(found) = look(self.life()) {
                return found;
            }
            changed.as_mut().await;
            changed.set(self.changed.notified());
        }
    }
    pub(crate) async fn renewed(&self) {
        let seen = self.sent_at();
        let beat = match &self.since {
            Since::Own(_) => &self.changed,
            Since::Session(session) => &session.beat,
        };
        let mut changed = pin!(beat.notified());
        loop {
            changed.as_mut().enable();
            if self.sent_at() > seen {
                return;
            }
            changed.as_mut().await;
            changed.set(beat.notified());
        }
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: `known_end` at the latest end that was sent.
    use super::*;
    use crate::{
        clock::TokioClock,
        engine::Engine,
        memory::MemoryEngine,
        types::{HoldId, Lease, Name, Token},
    };

    /// A task that is not polled in time sees the answer when its hold is lost: the store has extended it all the same, and that is
    /// given back when the lease is over that its holder knew of (SAFETY G4), not when this one is.
    #[tokio::test(start_paused = true)]
    async fn an_extension_that_is_seen_too_late_moves_no_end_that_the_holder_knows_of() {
        let (second, clock) = (Duration::from_secs(1), Arc::new(TokioClock::start()));
        let can = MemoryEngine::new().info().capabilities.clone();
        let (name, hold, sent_at) = (Name::new("x").unwrap(), HoldId::from_bytes([1; 16]), clock.now());
        let (ttl, claim, note) = (10 * second, Claim::Mutex, "".into());
        let (max_hold, at_least) = (None, Duration::ZERO);
        let wish = Wish { name: name.clone(), claim, ttl, fixed: true, max_hold, at_least, wait: false, note };
        let request = Request::new(wish, hold, None);
        let (token, lease) = (Token::new(1).unwrap(), Lease::Own { sent_at });
        let grant = Grant { name, claim, hold, token, ttl, lease, server_micros: 0, place: None };
        let hold = Hold::new(grant, Since::Own(AtomicU64::new(sent_at.as_nanos())), &request, &can, clock.clone());
        assert!(hold.extend_by(clock.now(), 20 * second, &can));
        let first = hold.known_end();
        assert!(first == hold.ends_by() && first > sent_at + 20 * second, "in time");
        tokio::time::sleep(19 * second).await;
        let asked = clock.now();
        tokio::time::sleep(second).await;
        assert_eq!(hold.judge(clock.now()), Verdict::Lost);
        assert!(!hold.extend_by(asked, 20 * second, &can));
        assert_eq!(hold.known_end(), first);
        assert!(hold.ends_by() > asked + 20 * second, "a release insists until then");
    }
}
