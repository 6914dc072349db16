//! What the answers of the nodes come to. Nothing here sends, waits or looks at a clock: the tests' `model` runs through
//! every order in which answers can come with these very functions.

/// What one node has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Vote {
    No,
    /// No for all of them: those who wait there are not passed.
    Veto,
    Open,
    /// Nothing, or nothing that can be used.
    Silent,
    Yes,
}

/// What all of them have said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A majority says yes.
    Won,
    /// There will be no majority.
    Lost,
    Open,
}

/// A majority of so many nodes: two of them have one in common.
pub(super) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// One question to all nodes.
#[derive(Clone, Debug)]
pub(super) struct Ballot {
    votes: Vec<Vote>,
}
impl Ballot {
    pub(super) fn of(nodes: usize) -> Self {
        Self { votes: vec![Vote::Open; nodes] }
    }
    pub(super) fn cast(&mut self, node: usize, vote: Vote) {
        self.votes[node] = vote;
    }
    pub(super) fn verdict(&self) -> Verdict {
        let count = |vote| self.votes.iter().filter(|cast| **cast == vote).count();
        let (need, yes) = (majority(self.votes.len()), count(Vote::Yes));
        if count(Vote::Veto) > 0 {
            Verdict::Lost
        } else if yes >= need {
            Verdict::Won
        } else if yes + count(Vote::Open) < need {
            Verdict::Lost
        } else {
            Verdict::Open
        }
    }
}

/// What the tokens come to that the nodes have given us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Settled {
    /// It stands on a majority that has our hold: it is the token.
    On(i64),
    /// It has to be written on a majority first.
    Write(i64),
    /// No majority has our hold any more.
    Lost,
}
/// *Invariant (SAFETY T4):* a token counts where it stands beside our hold, and nowhere else. A token that a majority has given is above
/// every earlier one, since one of its nodes had the earlier one; and it is below every later one, since a later majority has one of
/// its nodes. Where they differ, the highest is above every earlier one, and is written where our hold still is. `clock`: what the nodes'
/// clocks show at most, as each node gives no less than its own.
pub(super) fn settle(nodes: usize, tokens: &[i64], clock: i64) -> Settled {
    let need = majority(nodes);
    if tokens.len() < need {
        return Settled::Lost;
    }
    let shared = |token: &&i64| tokens.iter().filter(|other| other == token).count() >= need;
    match tokens.iter().find(shared) {
        Some(token) => Settled::On(*token),
        None => Settled::Write(tokens.iter().copied().fold(clock, i64::max)),
    }
}

/// The n-th largest, from one: so many are at least this.
pub(super) fn nth_largest<T: Ord + Copy>(values: impl IntoIterator<Item = T>, n: usize) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.get(n.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: `nodes / 2`; a token that two of five share; the q-th smallest.
    use super::*;

    #[test]
    fn a_majority_and_no_less() {
        // rslock: three nodes need two, two nodes need two.
        assert_eq!([2, 3, 4, 5, 7].map(majority), [2, 2, 3, 3, 4]);
        for mask in 0..1_u32 << 5 {
            let mut ballot = Ballot::of(5);
            for node in 0..5 {
                ballot.cast(node, if mask >> node & 1 == 1 { Vote::Yes } else { Vote::No });
            }
            assert_eq!(ballot.verdict() == Verdict::Won, mask.count_ones() >= 3, "{mask:05b}");
        }
        let mut ballot = Ballot::of(3);
        (1..3).for_each(|node| ballot.cast(node, Vote::Yes));
        for one in [Vote::Open, Vote::Silent, Vote::No] {
            ballot.cast(0, one);
            assert_eq!(ballot.verdict(), Verdict::Won, "{one:?}");
        }
        ballot.cast(0, Vote::Veto);
        assert_eq!(ballot.verdict(), Verdict::Lost);
    }
    #[test]
    fn a_token_is_one_that_a_majority_has() {
        assert_eq!(settle(5, &[7, 9, 7, 7], 0), Settled::On(7));
        assert_eq!(settle(5, &[7, 9, 7], 0), Settled::Write(9));
        assert_eq!(settle(5, &[7, 9, 8], 12), Settled::Write(12));
        assert_eq!(settle(5, &[7, 7], 12), Settled::Lost);
        assert_eq!(nth_largest([5, 1, 4, 2, 3], 3), Some(3));
        assert_eq!(nth_largest([5, 4], 3), None);
    }
}
