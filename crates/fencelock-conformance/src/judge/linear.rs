//! Whether a history could have been: an order of its operations, each between its call and its answer, that a model allows. After
//! Wing and Gong, with Lowe's memory of what was tried. What was never answered may have its effect at any later time, or never.
use std::{cmp::Reverse, collections::BTreeMap, collections::HashSet, fmt::Debug, hash::Hash};

/// An operation, on CLOCK_BOOTTIME in ns.
#[derive(Clone, Debug)]
pub struct Op<A> {
    /// By whom.
    pub who: usize,
    /// What was done, and how it was answered.
    pub what: A,
    /// Not before.
    pub called: u64,
    /// Not after; `None`: nobody knows.
    pub answered: Option<u64>,
}
/// What one after the other may do.
pub trait Model: Clone + Eq + Hash + Debug {
    /// What is done.
    type Act: Debug;
    /// Afterwards; `None`: it cannot be.
    fn step(&self, who: usize, act: &Self::Act) -> Option<Self>;
}

/// Some order of it is the model's.
///
/// # Errors
/// None is: how far the longest one went, and what could not follow.
pub fn linearizable<M: Model>(start: M, ops: &[Op<M::Act>]) -> Result<(), String> {
    let known = ops.iter().filter(|op| op.answered.is_some()).count();
    let (mut seen, mut furthest) = (HashSet::new(), (0, String::from("nothing")));
    let mut open = vec![(vec![false; ops.len()], 0, start)];
    while let Some((done, n, state)) = open.pop() {
        if n == known {
            return Ok(());
        }
        let left = || ops.iter().enumerate().filter(|(i, _)| !done[*i]);
        let first = left().filter_map(|(_, op)| op.answered).min().unwrap_or(u64::MAX);
        let mut next: Vec<_> = left().filter(|(_, op)| op.called <= first).collect();
        // The one that was answered first is tried first: it is popped first.
        next.sort_by_key(|(_, op)| Reverse(op.answered.unwrap_or(u64::MAX)));
        if n >= furthest.0 {
            furthest = (n, format!("{state:?}, then one of {:?}", next.iter().map(|(_, op)| op).collect::<Vec<_>>()));
        }
        for (i, op) in next {
            let Some(state) = state.step(op.who, &op.what) else { continue };
            let mut done = done.clone();
            done[i] = true;
            if seen.insert((done.clone(), state.clone())) {
                open.push((done, n + usize::from(op.answered.is_some()), state));
            }
        }
    }
    Err(format!("no order of the {} is the model's: after {} of {known} {}", ops.len(), furthest.0, furthest.1))
}

/// What is done to a lock.
#[derive(Clone, Debug)]
pub enum Act {
    /// It was granted, under this token where that is known.
    Enter(Option<i64>),
    /// It was released once.
    Leave,
    /// It was lost, whatever it was entered.
    Lapse,
    /// A release was refused.
    Refused,
}
/// A mutex: one owner, who enters at most so often; where it is fenced, under tokens that rise with each owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    most: u32,
    fenced: bool,
    owner: Option<(usize, u32, i64)>,
    last: i64,
}
impl Lock {
    /// That may be entered so often by its owner.
    pub fn new(most: u32, fenced: bool) -> Self {
        Self { most, fenced, owner: None, last: 0 }
    }
}
impl Model for Lock {
    type Act = Act;
    fn step(&self, who: usize, act: &Act) -> Option<Self> {
        let mine = self.owner.filter(|(owner, ..)| *owner == who);
        let (owner, last) = match (act, mine) {
            (Act::Refused, None) => (self.owner, self.last),
            (Act::Enter(token), None) if self.owner.is_none() => {
                let token = token.filter(|_| self.fenced);
                let last = token.unwrap_or(self.last);
                (token.is_none() || last > self.last).then_some((Some((who, 1, last)), last))?
            }
            (Act::Enter(token), Some((_, n, held))) if n < self.most => {
                let same = !self.fenced || token.is_none_or(|token| token == held);
                same.then_some((Some((who, n + 1, held)), self.last))?
            }
            (Act::Leave, Some((_, n, held))) => ((n > 1).then_some((who, n - 1, held)), self.last),
            (Act::Lapse, Some(_)) => (None, self.last),
            _ => return None,
        };
        Some(Self { owner, last, ..*self })
    }
}
/// Permits, each given back by who took it. An act is how many were taken; given back where that is negative.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permits(i64, BTreeMap<usize, i64>);
impl Permits {
    /// So many.
    pub fn new(size: i64) -> Self {
        Self(size, BTreeMap::new())
    }
}
impl Model for Permits {
    type Act = i64;
    fn step(&self, who: usize, n: &i64) -> Option<Self> {
        let mut next = self.clone();
        *next.1.entry(who).or_default() += n;
        let fits = next.1[&who] >= 0 && next.1.values().sum::<i64>() <= self.0;
        next.1.retain(|_, taken| *taken > 0);
        fits.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::{Act::*, *};

    fn op<A>(who: usize, what: A, called: u64, answered: u64) -> Op<A> {
        Op { who, what, called, answered: (answered > 0).then_some(answered) }
    }
    fn lock(most: u32, fenced: bool, ops: &[Op<Act>]) -> bool {
        linearizable(Lock::new(most, fenced), ops).is_ok()
    }
    #[test]
    fn two_owners_at_once_are_seen() {
        let good = [op(1, Enter(None), 1, 2), op(1, Leave, 5, 9), op(2, Enter(None), 3, 8), op(2, Leave, 10, 11)];
        assert!(lock(1, false, &good));
        assert!(!lock(1, false, &[op(1, Enter(None), 1, 2), op(2, Enter(None), 3, 4), op(1, Leave, 5, 6)]));
        assert!(!lock(1, false, &[op(1, Enter(None), 1, 2), op(2, Enter(None), 3, 4), op(1, Lapse, 5, 0)]), "too late");
        assert!(!lock(1, false, &[op(1, Enter(None), 1, 2), op(2, Leave, 3, 4)]), "only the owner releases");
        assert!(!lock(1, false, &[op(1, Enter(None), 1, 2), op(1, Refused, 3, 4)]), "the owner is refused");
    }
    #[test]
    fn what_nobody_knows_happens_later_or_never() {
        let grant = |called| [op(1, Enter(None), 1, 2), op(1, Lapse, called, 0), op(2, Enter(None), 3, 4)];
        assert!(lock(1, false, &grant(2)), "it has lapsed");
        assert!(!lock(1, false, &grant(5)), "it had not yet");
        let lost = [op(9, Enter(None), 1, 0), op(9, Lapse, 1, 0), op(1, Enter(None), 2, 3), op(1, Leave, 4, 5)];
        assert!(lock(1, false, &lost) && lock(1, false, &lost[2..]), "it may, it need not");
    }
    #[test]
    fn entries_and_tokens_are_counted() {
        let twice = |second| [op(1, Enter(Some(5)), 1, 2), op(1, Enter(Some(second)), 3, 4), op(1, Leave, 5, 6)];
        assert!(lock(2, true, &twice(5)) && !lock(2, true, &twice(6)) && !lock(1, true, &twice(5)));
        let next = |token| [&twice(5)[..], &[op(1, Leave, 7, 8), op(2, Enter(Some(token)), 9, 10)]].concat();
        assert!(lock(2, true, &next(6)) && !lock(2, true, &next(5)) && !lock(2, true, &next(4)));
        assert!(!lock(2, true, &[&twice(5)[..], &[op(2, Enter(Some(6)), 9, 10)]].concat()), "one is still in");
    }
    #[test]
    fn permits_belong_to_who_took_them() {
        let fits = |ops: &[Op<i64>]| linearizable(Permits::new(2), ops).is_ok();
        assert!(fits(&[op(1, 2, 1, 2), op(1, -1, 3, 6), op(2, 1, 4, 5), op(2, -1, 7, 8)]));
        assert!(!fits(&[op(1, 1, 1, 2), op(2, 2, 3, 4)]), "three of two");
        assert!(!fits(&[op(1, 1, 1, 2), op(2, -1, 3, 4)]), "another's");
    }
}
