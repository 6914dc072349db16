//! Histories that are wrong, one for each checker: a judge that lets one pass is blind. Beside each its right neighbour, which
//! must pass.
#![allow(clippy::unwrap_used)] // helpers of tests
use super::judge;
use crate::{
    clock::{MS, Nanos, SEC},
    history::{Event, Fault, How, Part, Terms, WORLD, Way, What, Written},
    plan::{Class, Place, Plan, Sort},
};
use fencelock_core::{Claim, ErrorKind, HoldId, LossReason};

const TTL: Nanos = 10 * SEC;

/// A world of three untroubled clients, and its log so far.
struct Story {
    plan: Plan,
    events: Vec<Event>,
}
impl Story {
    fn new(sort: Sort) -> Self {
        let seed = (0..).find(|seed| Plan::new(*seed).nodes.len() >= 3).unwrap();
        let mut plan = Plan::new(seed);
        plan.class = Class::Calm;
        plan.places = vec![Place { name: "x".into(), sort, size: 3 }];
        (plan.ttl, plan.delay, plan.lost_replies, plan.twice) = (TTL, 10 * MS, 0.0, 0.0);
        for node in &mut plan.nodes {
            (node.session, node.quiet, node.chaos, node.drift.ppm) = (false, false, false, 0);
        }
        Self { plan, events: Vec::new() }
    }
    fn at(mut self, at: Nanos, client: u8, what: What) -> Self {
        self.events.push(Event { at, client, what });
        self
    }
    fn asked(self, at: Nanos, client: u8, op: u32, claim: Claim) -> Self {
        self.at(at, client, What::Asked { op, name: 0, claim, how: How::Wait })
    }
    /// In hand: part and hold have the attempt's number.
    fn got(self, at: Nanos, client: u8, op: u32, claim: Claim, token: i64) -> Self {
        self.got_with(at, client, op, claim, token, Terms { ttl: TTL, ..Terms::default() })
    }
    fn got_with(self, at: Nanos, client: u8, op: u32, claim: Claim, token: i64, terms: Terms) -> Self {
        let (hold, valid) = (hold(op), at + TTL * 99 / 100);
        self.at(at, client, What::Got { op, part: op, name: 0, claim, hold, token, valid, terms })
    }
    /// Asked for and in hand at once.
    fn has(self, at: Nanos, client: u8, op: u32, claim: Claim, token: i64) -> Self {
        self.asked(at - 20 * MS, client, op, claim).got(at, client, op, claim, token)
    }
    fn released(self, at: Nanos, client: u8, part: Part) -> Self {
        let leaves = What::Leaves { part, valid: at + TTL / 2, way: Way::Release };
        self.at(at, client, leaves).at(at + 20 * MS, client, What::Left { part, answer: None })
    }
    fn told(self, at: Nanos, client: u8, part: Part, valid: Nanos) -> Self {
        let told = What::Told { part, reason: LossReason::Unreachable };
        let gone = What::Gone { part };
        self.at(at, client, told).at(at, client, What::Stops { part, valid }).at(at, client, gone)
    }
    #[track_caller]
    fn is_right(&self) {
        assert_eq!(judge(&self.plan, &self.events), Vec::new());
    }
    #[track_caller]
    fn breaks(&self, checker: &str) {
        let all = judge(&self.plan, &self.events);
        assert!(all.iter().any(|breach| breach.checker == checker), "{checker}: {all:?}");
    }
}
fn hold(n: u32) -> HoldId {
    HoldId::from_bytes(u128::from(n).to_be_bytes())
}
const MUTEX: Claim = Claim::Mutex;
const fn permits(take: u32) -> Claim {
    Claim::Permits { take, of: 3 }
}

#[test]
fn me_l_two_holders() {
    let first = || Story::new(Sort::Mutex).has(SEC, 0, 1, MUTEX, 100);
    first().released(3 * SEC, 0, 1).has(4 * SEC, 1, 2, MUTEX, 101).released(5 * SEC, 1, 2).is_right();
    first().has(2 * SEC, 1, 2, MUTEX, 101).released(3 * SEC, 0, 1).released(4 * SEC, 1, 2).breaks("ME-L");
    // A process that stands still claims to the end of its validity.
    let paused = |next| {
        let story = first().at(2 * SEC, WORLD, What::Began { fault: Fault::Pause, who: 0 });
        let story = story.has(next, 1, 2, MUTEX, 101).released(next + SEC, 1, 2);
        story.at(20 * SEC, WORLD, What::Ended { fault: Fault::Pause, who: 0 }).told(
            20 * SEC,
            0,
            1,
            SEC + TTL * 99 / 100,
        )
    };
    paused(11 * SEC).is_right();
    paused(SEC + TTL * 98 / 100).breaks("ME-L");
}

#[test]
fn me_l_readers_and_writers() {
    let story = || Story::new(Sort::RwLock).has(SEC, 0, 1, Claim::Read, 0).has(2 * SEC, 1, 2, Claim::Read, 0);
    story().released(3 * SEC, 0, 1).released(4 * SEC, 1, 2).is_right();
    let story = story().released(3 * SEC, 0, 1).has(4 * SEC, 2, 3, Claim::Write, 7);
    story.released(5 * SEC, 1, 2).released(6 * SEC, 2, 3).breaks("ME-L");
}

#[test]
fn me_l_permits() {
    let story = |take| {
        let story = Story::new(Sort::Semaphore).has(SEC, 0, 1, permits(2), 0).has(2 * SEC, 1, 2, permits(take), 0);
        story.released(3 * SEC, 0, 1).released(4 * SEC, 1, 2)
    };
    story(1).is_right();
    story(2).breaks("ME-L");
}

#[test]
fn me_r_a_valid_holder_is_refused() {
    let wrote = |accepted| {
        let story = Story::new(Sort::Mutex).has(SEC, 0, 1, MUTEX, 100);
        story.at(2 * SEC, 0, What::Wrote { part: 1, accepted }).released(3 * SEC, 0, 1)
    };
    wrote(true).is_right();
    wrote(false).breaks("ME-R");
}

#[test]
fn tok_repeats_and_falls() {
    let second = |token| {
        let story = Story::new(Sort::Mutex).has(SEC, 0, 1, MUTEX, 100).released(2 * SEC, 0, 1);
        story.has(3 * SEC, 1, 2, MUTEX, token).released(4 * SEC, 1, 2)
    };
    second(101).is_right();
    second(100).breaks("TOK");
    second(99).breaks("TOK");
}

#[test]
fn tok_over_lost_data() {
    let lost = |client, by, token| {
        let story = Story::new(Sort::Mutex).has(SEC, 0, 1, MUTEX, 100).released(2 * SEC, 0, 1);
        let story = story.at(3 * SEC, WORLD, What::Wall { by }).at(4 * SEC, WORLD, What::DataLost);
        story.has(15 * SEC, client, 2, MUTEX, token).released(16 * SEC, client, 2)
    };
    lost(1, 0, 101).is_right();
    lost(1, 0, 90).breaks("TOK");
    // With the clock set back only he is promised more who had seen the old one.
    lost(1, -1, 90).is_right();
    lost(0, -1, 90).breaks("TOK");
}

#[test]
fn loss_too_late_never_or_after_a_release() {
    let valid = SEC + TTL * 99 / 100;
    let story = || Story::new(Sort::Mutex).has(SEC, 0, 1, MUTEX, 100);
    story().told(valid - 200 * MS, 0, 1, valid).is_right();
    story().told(valid + 200 * MS, 0, 1, valid).breaks("LOSS");
    let late = What::Leaves { part: 1, valid, way: Way::Drop };
    story().at(valid + SEC, 0, late).breaks("LOSS");
    story().at(valid, 0, What::Untold { part: 1 }).told(valid, 0, 1, valid).breaks("LOSS");
    let told = What::Told { part: 1, reason: LossReason::Expired };
    story().released(3 * SEC, 0, 1).at(5 * SEC, 0, told).breaks("LOSS");
    story().told(9 * SEC, 0, 1, valid).at(12 * SEC, 0, What::Revived { part: 1 }).breaks("LOSS");
}

#[test]
fn loss_of_what_was_taken_away_and_of_fixed_leases() {
    let forced = |at, valid| {
        let story = Story::new(Sort::Mutex).has(SEC, 0, 1, MUTEX, 100);
        story.at(3 * SEC, WORLD, What::Forced { name: 0, hold: hold(1) }).told(at, 0, 1, valid)
    };
    forced(3 * SEC, 11 * SEC).is_right();
    forced(9 * SEC, 11 * SEC).breaks("LOSS");
    forced(3 * SEC, 40 * SEC).breaks("LOSS");
    let fixed = |valid| {
        let terms = Terms { ttl: TTL, fixed: true, ..Terms::default() };
        let story = Story::new(Sort::Mutex).asked(SEC, 0, 1, MUTEX).got_with(SEC, 0, 1, MUTEX, 100, terms);
        story.told(SEC + TTL * 97 / 100, 0, 1, valid)
    };
    fixed(SEC + TTL * 99 / 100).is_right();
    fixed(SEC + TTL * 2).breaks("LOSS");
}

#[test]
fn fifo_and_at_least() {
    let second = |first_in, second_in| {
        let story = Story::new(Sort::RwLock).has(SEC, 0, 1, Claim::Read, 0);
        let story = story.asked(2 * SEC, 1, 2, Claim::Write).asked(3 * SEC, 2, 3, Claim::Read);
        let mut story = story.released(4 * SEC, 0, 1);
        story = story.got(first_in, 1, 2, Claim::Write, 5).released(first_in + SEC, 1, 2);
        story.got(second_in, 2, 3, Claim::Read, 0).released(second_in + SEC, 2, 3)
    };
    second(4_050 * MS, 5_100 * MS).is_right();
    second(6 * SEC, 4_100 * MS).breaks("FIFO");
    let terms = Terms { ttl: TTL, at_least: 4 * SEC, ..Terms::default() };
    let next = |at| {
        let story = Story::new(Sort::Mutex).asked(SEC, 0, 1, MUTEX).got_with(SEC, 0, 1, MUTEX, 100, terms);
        story.released(2 * SEC, 0, 1).has(at, 1, 2, MUTEX, 101).released(at + SEC, 1, 2)
    };
    next(5_100 * MS).is_right();
    next(4 * SEC).breaks("AT-LEAST");
}

#[test]
fn wake_nobody_in_the_way() {
    let got = |at| {
        let story = Story::new(Sort::Mutex).has(SEC, 0, 1, MUTEX, 100).asked(2 * SEC, 1, 2, MUTEX);
        story.released(3 * SEC, 0, 1).got(at, 1, 2, MUTEX, 101).released(at + SEC, 1, 2)
    };
    got(4_500 * MS).is_right();
    got(6 * SEC).breaks("WAKE");
    // It was cut off, so nobody could give back what an extension has made longer than its lease: half as long again, at the most.
    let extended = |how, at| {
        let story = Story::new(Sort::Mutex).has(SEC, 0, 1, MUTEX, 100).asked(2 * SEC, 1, 2, MUTEX);
        let story = story.at(9 * SEC, WORLD, What::Began { fault: Fault::Cut, who: 0 }).at(10 * SEC, 0, how);
        let story = story.told(11 * SEC, 0, 1, 11 * SEC).got(at, 1, 2, MUTEX, 101).released(at + SEC, 1, 2);
        story.at(60 * SEC, WORLD, What::Ended { fault: Fault::Cut, who: 0 })
    };
    let (ok, no) = (What::Extended { part: 1, ok: true }, What::Extended { part: 1, ok: false });
    [ok, no].into_iter().for_each(|how| extended(how, 27 * SEC).is_right());
    extended(no, 31 * SEC).breaks("WAKE");
    extended(What::Wrote { part: 1, accepted: true }, 27 * SEC).breaks("WAKE");
    // Who never gets in has waited too long as well.
    let never = Story::new(Sort::Mutex).asked(SEC, 0, 1, MUTEX).at(600 * SEC, WORLD, What::Calm);
    never.at(700 * SEC, WORLD, What::Stuck { tasks: 1 }).breaks("WAKE");
}

#[test]
fn prog_leak_re_size_and_rel() {
    let story = || Story::new(Sort::Mutex).has(SEC, 0, 1, MUTEX, 100);
    story().released(2 * SEC, 0, 1).at(700 * SEC, WORLD, What::Stuck { tasks: 1 }).breaks("PROG");
    let census = |held, queued| What::Census { held, queued, clients: 0, after: SEC };
    story().released(2 * SEC, 0, 1).at(700 * SEC, WORLD, census(0, 0)).is_right();
    story().released(2 * SEC, 0, 1).at(700 * SEC, WORLD, census(1, 0)).breaks("LEAK");
    story().released(2 * SEC, 0, 1).at(700 * SEC, WORLD, census(0, 1)).breaks("LEAK");
    story().at(SEC, 0, What::Entries { part: 1, are: 1, should: 2 }).released(2 * SEC, 0, 1).breaks("RE");
    let size = |answer| Story::new(Sort::Semaphore).at(SEC, 0, What::WrongSize { name: 0, answer });
    size(Some(ErrorKind::CapacityMismatch)).is_right();
    size(None).breaks("SIZE");
    size(Some(ErrorKind::Busy)).breaks("SIZE");
    let forced = What::Forced { name: 0, hold: hold(1) };
    story().at(1_990 * MS, WORLD, forced).released(2 * SEC, 0, 1).breaks("REL");
}

#[test]
fn canc_a_hold_that_nobody_has() {
    let stands = |hold, since| {
        let stands = What::Stands { name: 0, hold, since };
        let story =
            Story::new(Sort::Mutex).asked(SEC, 0, 1, MUTEX).at(2 * SEC, 0, What::Cancelled { op: 1, early: true });
        story.has(3 * SEC, 1, 2, MUTEX, 5).at(9 * SEC, WORLD, stands).released(10 * SEC, 1, 2)
    };
    stands(hold(2), 3 * SEC).is_right();
    stands(hold(1), 8 * SEC).is_right();
    stands(hold(1), 2 * SEC).breaks("CANC");
}

#[test]
fn re_a_lost_hold_is_entered() {
    let again = |id| {
        let story = Story::new(Sort::Mutex).has(SEC, 0, 1, MUTEX, 100).told(9 * SEC, 0, 1, SEC + TTL * 99 / 100);
        let story = story.at(11_200 * MS, 0, What::Asked { op: 2, name: 0, claim: MUTEX, how: How::Again });
        let (terms, valid) = (Terms { ttl: TTL, ..Terms::default() }, 21 * SEC);
        let token = if id == 1 { 100 } else { 101 };
        let (hold, claim) = (hold(id), MUTEX);
        let got = What::Got { op: 2, part: 2, name: 0, claim, hold, token, valid, terms };
        story.at(11_300 * MS, 0, got).released(12 * SEC, 0, 2)
    };
    again(2).is_right();
    again(1).breaks("RE");
}

#[test]
fn idem_cells() {
    let story = |second, value| {
        let wrote = |written| What::CellWrote { name: 0, written };
        let story = Story::new(Sort::Cell).at(SEC, 0, wrote(Written::Won)).at(2 * SEC, 1, wrote(second));
        story.at(700 * SEC, WORLD, What::CellIs { name: 0, value })
    };
    story(Written::Won, 2).is_right();
    story(Written::Unknown, 1).is_right();
    story(Written::Unknown, 2).is_right();
    story(Written::Conflict { own: false }, 1).is_right();
    story(Written::Won, 3).breaks("IDEM");
    story(Written::Won, 1).breaks("IDEM");
    story(Written::Conflict { own: true }, 1).breaks("IDEM");
}

#[test]
fn obs_goes_back_or_does_not_hear() {
    let saw = |first, second| {
        let saw = |term| What::Saw { observer: 9, name: 0, term };
        let story = Story::new(Sort::Election).at(MS, 2, What::Observes { observer: 9, name: 0 });
        let story = story.has(SEC, 0, 1, MUTEX, 100).at(SEC, 2, saw(first)).released(8 * SEC, 0, 1);
        let story = story.has(9 * SEC, 1, 2, MUTEX, 101).at(9_100 * MS, 2, saw(second));
        story.released(16 * SEC, 1, 2).at(600 * SEC, WORLD, What::Calm)
    };
    saw(100, 101).is_right();
    saw(101, 100).breaks("OBS");
    saw(100, 0).breaks("OBS");
}
