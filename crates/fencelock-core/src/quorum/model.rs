//! Story: two attempts for one lock on three nodes, in every order in which their messages can arrive and their leases can end. What
//! decides is [`ballot`](super::ballot) itself; the nodes do what SAFETY T1 and T4 say. No two holders meet, and tokens rise.
//!
//! Planted to see it go red: a majority of `nodes / 2`; `settle` that never writes, with a `valid` that does not compare tokens. That the
//! write-back compares the owner is left out by the second test itself.
use super::ballot::{Ballot, Settled, Verdict, Vote, majority, settle};
use foldhash::HashSet;

const NODES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    fence: i64,
    holder: Option<usize>,
}
/// What an attempt has sent to one node, or heard from it. `live`: its lease there has not ended, by the attempt's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Asked,
    Answer(Option<i64>, bool),
    Has(i64, bool),
    Nothing,
    Writing(bool),
    Written(Option<i64>, bool),
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Asking,
    Writing(i64),
    Held(i64),
    Over,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    phase: Phase,
    proposal: i64,
    parts: [Part; NODES],
    writes: u8,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    nodes: [Node; NODES],
    attempts: [Attempt; 2],
    /// The latest token that was granted.
    last: i64,
}
/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Wrong {
    TokenDoesNotRise,
    TwoHolders,
}

impl Attempt {
    fn valid(&self) -> bool {
        let Phase::Held(token) = self.phase else { return false };
        self.parts.iter().filter(|part| **part == Part::Has(token, true)).count() >= majority(NODES)
    }
    fn tokens(&self) -> Vec<i64> {
        let token = |part: &Part| if let Part::Has(token, _) = part { Some(*token) } else { None };
        self.parts.iter().filter_map(token).collect()
    }
    /// As `Attempt::ask` and `Attempt::token` go on after each answer.
    fn decide(&mut self) {
        match self.phase {
            Phase::Asking => {
                let mut ballot = Ballot::of(NODES);
                for (node, part) in self.parts.iter().enumerate() {
                    let vote = match part {
                        Part::Has(..) => Vote::Yes,
                        Part::Nothing => Vote::No,
                        _ => Vote::Open,
                    };
                    ballot.cast(node, vote);
                }
                match ballot.verdict() {
                    Verdict::Won => self.settle(),
                    Verdict::Lost => self.phase = Phase::Over,
                    Verdict::Open => {}
                }
            }
            Phase::Writing(token) => {
                let has = self.tokens().iter().filter(|given| **given == token).count();
                let under_way = self.parts.iter().any(|part| matches!(part, Part::Writing(_) | Part::Written(..)));
                if has >= majority(NODES) || !under_way {
                    self.settle();
                }
            }
            Phase::Held(_) | Phase::Over => {}
        }
    }
    fn settle(&mut self) {
        self.phase = match settle(NODES, &self.tokens(), 0) {
            Settled::On(token) => Phase::Held(token),
            Settled::Write(token) if self.writes < 2 => {
                self.writes += 1;
                for part in &mut self.parts {
                    if let Part::Has(given, live) = *part
                        && given != token
                    {
                        *part = Part::Writing(live);
                    }
                }
                Phase::Writing(token)
            }
            Settled::Write(_) | Settled::Lost => Phase::Over,
        };
    }
}
impl World {
    fn new(fences: [i64; NODES], proposals: [i64; 2]) -> Self {
        let node = |fence| Node { fence, holder: None };
        let attempt = |proposal| Attempt { phase: Phase::Asking, proposal, parts: [Part::Asked; NODES], writes: 0 };
        Self { nodes: fences.map(node), attempts: proposals.map(attempt), last: 0 }
    }
    /// All that can happen next.
    fn next(&self, compares: bool, found: &mut HashSet<Wrong>) -> Vec<Self> {
        let mut worlds = Vec::new();
        for a in 0..2 {
            for n in 0..NODES {
                worlds.extend(self.message(a, n, compares).map(|world| world.judged(a, self, found)));
                worlds.extend(self.ends(a, n));
            }
            if let Phase::Held(_) = self.attempts[a].phase {
                let mut given_back = *self;
                given_back.attempts[a].phase = Phase::Over;
                worlds.push(given_back);
            }
        }
        worlds
    }
    /// The next message between this attempt and this node arrives.
    fn message(&self, a: usize, n: usize, compares: bool) -> Option<Self> {
        let mut world = *self;
        let (attempt, node) = (&mut world.attempts[a], &mut world.nodes[n]);
        match attempt.parts[n] {
            Part::Asked if node.holder.is_none() => {
                node.fence = (node.fence + 1).max(attempt.proposal);
                node.holder = Some(a);
                attempt.parts[n] = Part::Answer(Some(node.fence), true);
            }
            Part::Asked => attempt.parts[n] = Part::Answer(None, false),
            Part::Writing(live) => {
                let Phase::Writing(token) = attempt.phase else {
                    attempt.parts[n] = Part::Nothing;
                    return Some(world);
                };
                let ours = node.holder == Some(a);
                if ours || !compares {
                    node.fence = (node.fence + 1).max(token);
                    attempt.parts[n] = Part::Written(Some(node.fence), true);
                } else {
                    attempt.parts[n] = Part::Written(None, live);
                }
            }
            Part::Answer(token, live) | Part::Written(token, live) => {
                attempt.parts[n] = token.map_or(Part::Nothing, |token| Part::Has(token, live));
                attempt.decide();
            }
            Part::Has(..) | Part::Nothing => return None,
        }
        Some(world)
    }
    /// What this attempt has on this node ends: given back, or its lease is over, of which it knows.
    fn ends(&self, a: usize, n: usize) -> Option<Self> {
        if self.nodes[n].holder != Some(a) {
            return None;
        }
        let mut world = *self;
        world.nodes[n].holder = None;
        match &mut world.attempts[a].parts[n] {
            Part::Answer(_, live) | Part::Has(_, live) | Part::Writing(live) | Part::Written(_, live) => *live = false,
            Part::Asked | Part::Nothing => {}
        }
        Some(world)
    }
    fn judged(mut self, a: usize, before: &Self, found: &mut HashSet<Wrong>) -> Self {
        let Phase::Held(token) = self.attempts[a].phase else { return self };
        if matches!(before.attempts[a].phase, Phase::Held(_)) {
            return self;
        }
        // Core looks at its clock: what is over is no grant.
        if !self.attempts[a].valid() {
            self.attempts[a].phase = Phase::Over;
            return self;
        }
        if self.attempts[1 - a].valid() {
            found.insert(Wrong::TwoHolders);
        }
        if token <= self.last {
            found.insert(Wrong::TokenDoesNotRise);
        }
        self.last = token;
        self
    }
}
/// Every world that can be reached: how many, how often somebody held, and what went wrong in them.
fn explore(compares: bool) -> (usize, usize, HashSet<Wrong>) {
    let (mut seen, mut found, mut held) = (HashSet::default(), HashSet::default(), 0);
    let mut open = Vec::new();
    for fences in [[0, 0, 0], [0, 1, 3]] {
        for proposals in [[0, 0], [2, 3]] {
            open.push(World::new(fences, proposals));
        }
    }
    while let Some(world) = open.pop() {
        if seen.insert(world) {
            held += usize::from(world.attempts.iter().any(Attempt::valid));
            open.extend(world.next(compares, &mut found));
            if !compares && found.len() == 2 {
                break;
            }
        }
    }
    (seen.len(), held, found)
}

#[test]
fn no_two_holders_meet_and_tokens_rise_in_any_order() {
    let (worlds, held, found) = explore(true);
    println!("{worlds} worlds, held in {held}");
    assert!(found.is_empty(), "{found:?}");
    assert!(worlds > 10_000 && held > 1_000);
}
#[test]
fn a_write_back_that_does_not_compare_the_owner_is_found() {
    let (_, _, found) = explore(false);
    assert!(found.contains(&Wrong::TokenDoesNotRise) && found.contains(&Wrong::TwoHolders), "{found:?}");
}
