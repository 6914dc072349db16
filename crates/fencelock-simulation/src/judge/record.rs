//! What the checkers look at: the log, folded into attempts, guards and troubles.
use crate::{
    clock::{MS, Nanos, SEC},
    history::{Event, Fault, How, Op, Part, Terms, WORLD, Way, What},
    plan::Plan,
};
use fencelock_core::{Claim, ErrorKind, HoldId, LossReason};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const NEVER: Nanos = Nanos::MAX;

/// How a claim came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Leaves(Way),
    /// Its holder stopped, for it was lost.
    Stops,
    /// Its process did not come to it.
    Open,
}
/// One guard.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) part: Part,
    pub(crate) client: u8,
    pub(crate) name: u8,
    pub(crate) claim: Claim,
    pub(crate) hold: HoldId,
    pub(crate) token: i64,
    pub(crate) terms: Terms,
    pub(crate) asked: Nanos,
    pub(crate) how: How,
    pub(crate) got: Nanos,
    /// The end of validity, when it was in hand and at its end.
    pub(crate) valid_first: Nanos,
    pub(crate) valid: Nanos,
    pub(crate) end: End,
    pub(crate) ended: Nanos,
    pub(crate) told: Option<(Nanos, LossReason)>,
    pub(crate) untold: bool,
    /// Its session has ended: the end of its validity is not known any more.
    pub(crate) timeless: bool,
    /// The answer of its release.
    pub(crate) left: Option<(Nanos, Option<ErrorKind>)>,
    pub(crate) gone: Option<Nanos>,
    pub(crate) extended: bool,
    pub(crate) refused: Option<Nanos>,
    pub(crate) forced: Nanos,
    /// How many times the store had lost data before it was granted.
    pub(crate) epoch: usize,
    /// It may have been granted after the next loss, too.
    pub(crate) unsure: bool,
}
impl Held {
    /// Until when it is claimed: nobody may be granted what conflicts before.
    pub(crate) fn to(&self) -> Nanos {
        let told = self.told.map_or(NEVER, |(at, _)| at);
        self.ended.min(self.valid).min(told).min(self.forced)
    }
    fn over(&mut self, at: Nanos, end: End, valid: Nanos) {
        // A session that has ended has no time any more.
        self.timeless = valid < self.valid_first;
        (self.ended, self.end, self.valid) = (at, end, valid.max(self.valid));
    }
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        self.hold != other.hold && (self.claim.is_exclusive() || other.claim.is_exclusive())
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Got,
    Refused,
    Failed(ErrorKind),
    Cancelled,
    None,
}
/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) op: Op,
    pub(crate) client: u8,
    pub(crate) name: u8,
    pub(crate) claim: Claim,
    pub(crate) how: How,
    pub(crate) at: Nanos,
    pub(crate) ended: Nanos,
    pub(crate) answer: Answer,
}
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) who: u8,
    pub(crate) fault: Fault,
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
}
/// A history, folded.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) events: &'a [Event],
    pub(crate) held: Vec<Held>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) troubles: Vec<Trouble>,
    /// When the store lost something.
    pub(crate) disasters: Vec<Nanos>,
    pub(crate) calm: Nanos,
}

impl<'a> Record<'a> {
    pub(crate) fn new(plan: &'a Plan, events: &'a [Event]) -> Self {
        let mut fold = Fold::default();
        for event in events {
            fold.event(event);
        }
        let Fold { mut held, asked, troubles, disasters, sessions_ended, calm, forced, .. } = fold;
        let extended: BTreeSet<HoldId> = held.iter().filter(|one| one.extended).map(|one| one.hold).collect();
        let mut known = BTreeMap::new();
        for one in &mut held {
            one.extended = extended.contains(&one.hold);
            one.forced = forced.get(&one.hold).copied().unwrap_or(NEVER);
            if one.terms.session {
                // An operator's word; and of those that live with a session no grant has a time of its own.
                let beat = one.valid_first.saturating_sub(one.terms.ttl + one.terms.ttl / 50);
                let ended = sessions_ended.iter().copied().find(|at| *at >= beat);
                one.forced = one.forced.min(ended.unwrap_or(NEVER));
            }
            // Another guard of a hold is as old as the hold.
            if let Some((epoch, forced, unsure)) = known.get(&one.hold) {
                (one.epoch, one.forced, one.unsure) = (*epoch, one.forced.min(*forced), *unsure);
                continue;
            }
            // A message that was sent after the loss was answered by what was left.
            let sent = if one.terms.session {
                one.asked
            } else {
                one.valid_first.saturating_sub(one.terms.ttl).max(one.asked)
            };
            one.epoch = disasters.iter().filter(|at| **at < sent).count();
            if let Some(next) = disasters.get(one.epoch) {
                one.forced = one.forced.min(*next);
                one.unsure = *next <= one.got;
            }
            known.insert(one.hold, (one.epoch, one.forced, one.unsure));
        }
        Self { plan, events, held, asked, troubles, disasters, calm }
    }
    /// Somebody's process stood still in this time: until when.
    pub(crate) fn paused(&self, who: u8, from: Nanos, to: Nanos) -> Option<Nanos> {
        let stops = |fault| matches!(fault, Fault::Pause | Fault::Kill);
        let still = |t: &&Trouble| t.who == who && stops(t.fault) && t.from <= to && from <= t.to;
        self.troubles.iter().filter(still).map(|t| t.to).max()
    }
    pub(crate) fn killed(&self, who: u8) -> Option<Nanos> {
        self.troubles.iter().find(|t| t.who == who && t.fault == Fault::Kill).map(|t| t.from)
    }
    /// Some trouble of a client touches this time.
    pub(crate) fn troubled(&self, who: u8, from: Nanos, to: Nanos) -> bool {
        self.troubles.iter().any(|t| t.who == who && t.from <= to && from <= t.to)
    }
    /// What somebody has to send from `at` on has arrived: when he is in no trouble any more, and for so long.
    pub(crate) fn through(&self, who: u8, at: Nanos, takes: Nanos) -> Nanos {
        let mut done = at.saturating_add(takes);
        for t in self.troubles.iter().filter(|t| t.who == who) {
            if t.from <= done && at <= t.to {
                done = done.max(t.to.saturating_add(takes));
            }
        }
        done
    }
    /// A message there and back, and what it takes when some are lost.
    pub(crate) fn trip(&self) -> Nanos {
        let lost = if self.plan.lost_replies > 0.0 || self.plan.twice > 0.0 { SEC / 2 } else { 0 };
        4 * self.plan.delay + 100 * MS + lost
    }
    /// After so long nothing is left of an attempt that was given up, without trouble.
    pub(crate) fn cleared(&self) -> Nanos {
        2 * SEC + 12 * self.plan.delay + self.trip()
    }
    pub(crate) fn size(&self, name: u8, from: Nanos, to: Nanos) -> u32 {
        let mut size = self.plan.places[usize::from(name)].size;
        let mut most = 0;
        for event in self.events {
            if let What::Resized { name: of, to: now } = event.what
                && of == name
            {
                if event.at > to {
                    break;
                }
                if event.at >= from {
                    most = most.max(size);
                }
                size = now;
            }
        }
        most.max(size)
    }
}

#[derive(Default)]
struct Fold {
    held: Vec<Held>,
    parts: BTreeMap<Part, usize>,
    asked: Vec<Asked>,
    ops: BTreeMap<Op, usize>,
    troubles: Vec<Trouble>,
    disasters: Vec<Nanos>,
    sessions_ended: Vec<Nanos>,
    calm: Nanos,
    forced: BTreeMap<HoldId, Nanos>,
}
impl Fold {
    fn part(&mut self, part: Part) -> Option<&mut Held> {
        self.parts.get(&part).map(|at| &mut self.held[*at])
    }
    fn answer(&mut self, op: Op, at: Nanos, answer: Answer) {
        if let Some(place) = self.ops.get(&op) {
            let asked = &mut self.asked[*place];
            (asked.ended, asked.answer) = (at, answer);
        }
    }
    fn event(&mut self, event: &Event) {
        let Event { at, client, what } = *event;
        if client == WORLD {
            return self.world(at, what);
        }
        match what {
            What::Asked { op, name, claim, how } => {
                self.ops.insert(op, self.asked.len());
                let (ended, answer) = (NEVER, Answer::None);
                self.asked.push(Asked { op, client, name, claim, how, at, ended, answer });
            }
            What::Refused { op } => self.answer(op, at, Answer::Refused),
            What::Failed { op, kind } => self.answer(op, at, Answer::Failed(kind)),
            What::Cancelled { op, .. } => self.answer(op, at, Answer::Cancelled),
            What::Got { op, part, name, claim, hold, token, valid, terms } => {
                self.answer(op, at, Answer::Got);
                let (asked, how) =
                    self.ops.get(&op).map_or((at, How::Wait), |i| (self.asked[*i].at, self.asked[*i].how));
                self.parts.insert(part, self.held.len());
                self.held.push(Held {
                    part,
                    client,
                    name,
                    claim,
                    hold,
                    token,
                    terms,
                    asked,
                    how,
                    got: at,
                    valid_first: valid,
                    valid,
                    end: End::Open,
                    ended: NEVER,
                    told: None,
                    untold: false,
                    timeless: false,
                    left: None,
                    gone: None,
                    extended: false,
                    refused: None,
                    forced: NEVER,
                    epoch: 0,
                    unsure: false,
                });
            }
            _ => self.guard(at, what),
        }
    }
    fn guard(&mut self, at: Nanos, what: What) {
        let part = match what {
            What::Leaves { part, .. }
            | What::Left { part, .. }
            | What::Told { part, .. }
            | What::Stops { part, .. }
            | What::Untold { part }
            | What::Gone { part }
            | What::Extended { part, .. }
            | What::Wrote { part, .. } => part,
            _ => return,
        };
        let Some(held) = self.part(part) else { return };
        match what {
            What::Leaves { valid, way, .. } => held.over(at, End::Leaves(way), valid),
            What::Stops { valid, .. } => held.over(at, End::Stops, valid),
            What::Left { answer, .. } => held.left = Some((at, answer)),
            What::Told { reason, .. } => held.told = Some((at, reason)),
            What::Untold { .. } => held.untold = true,
            What::Gone { .. } => held.gone = Some(at),
            What::Extended { .. } => held.extended = true,
            What::Wrote { accepted: false, .. } => held.refused = Some(at),
            _ => {}
        }
    }
    fn world(&mut self, at: Nanos, what: What) {
        match what {
            What::Began { fault, who } => self.troubles.push(Trouble { who, fault, from: at, to: NEVER }),
            What::Ended { fault, who } => {
                let open = |t: &&mut Trouble| t.who == who && t.fault == fault && t.to == NEVER;
                if let Some(trouble) = self.troubles.iter_mut().find(open) {
                    trouble.to = at;
                }
            }
            What::Forced { hold, .. } => {
                self.forced.entry(hold).or_insert(at);
            }
            What::SessionsEnded => self.sessions_ended.push(at),
            What::DataLost | What::FailedOver => self.disasters.push(at),
            What::Calm => self.calm = at,
            _ => {}
        }
    }
}
