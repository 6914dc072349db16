//! When the minder sends TERM and KILL: time alone, no processes.

use super::clock::Nanos;
use super::wire::Reason;
use crate::args::OnLoss;

/// What is due now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Term(Reason),
    Kill(Reason),
}

/// Two ends, either may be missing: that of the lease, which moves with every renewal, and that of `--max-hold`.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) on_loss: OnLoss,
    /// From TERM to the end of the lease, and from TERM to KILL after `--max-hold`.
    pub(super) grace: Nanos,
    /// KILL comes this long before the end of the lease, since nobody else may hold while the job runs (SAFETY R1).
    pub(super) margin: Nanos,
    /// `None` under `--on-loss warn`.
    pub(super) deadline: Option<Nanos>,
    pub(super) max_hold: Option<Nanos>,
    /// The deadline for which TERM was sent: a renewal arms the next one.
    termed: Option<Nanos>,
    max_hold_termed: bool,
}

impl Schedule {
    pub(super) fn new(
        on_loss: OnLoss,
        grace: Nanos,
        margin: Nanos,
        deadline: Option<Nanos>,
        max_hold: Option<Nanos>,
    ) -> Self {
        Self { on_loss, grace, margin, deadline, max_hold, termed: None, max_hold_termed: false }
    }

    /// A renewal arrived.
    pub(super) fn renewed(&mut self, deadline: Nanos) {
        if self.on_loss != OnLoss::Warn {
            self.deadline = Some(deadline);
        }
    }

    /// What is due at `now`. TERM is told once per deadline, KILL every time.
    pub(super) fn due(&mut self, now: Nanos) -> Due {
        if self.kill_for_lease().is_some_and(|at| now >= at) {
            return Due::Kill(Reason::Deadline);
        }
        if self.kill_for_max_hold().is_some_and(|at| now >= at) {
            return Due::Kill(Reason::MaxHold);
        }
        if self.term_for_max_hold().is_some_and(|at| now >= at) {
            self.max_hold_termed = true;
            return Due::Term(Reason::MaxHold);
        }
        if self.term_for_lease().is_some_and(|at| now >= at) {
            self.termed = self.deadline;
            return Due::Term(Reason::Deadline);
        }
        Due::Nothing
    }

    /// The next moment at which something is due.
    pub(super) fn next(&self) -> Option<Nanos> {
        let moments =
            [self.kill_for_lease(), self.kill_for_max_hold(), self.term_for_max_hold(), self.term_for_lease()];
        moments.into_iter().flatten().min()
    }

    fn kill_for_lease(&self) -> Option<Nanos> {
        self.deadline.map(|d| d.saturating_sub(self.margin))
    }

    fn kill_for_max_hold(&self) -> Option<Nanos> {
        self.max_hold.map(|m| m.saturating_add(self.grace))
    }

    fn term_for_max_hold(&self) -> Option<Nanos> {
        self.max_hold.filter(|_| !self.max_hold_termed)
    }

    fn term_for_lease(&self) -> Option<Nanos> {
        let wanted = self.on_loss == OnLoss::Term && self.grace > self.margin && self.termed != self.deadline;
        self.deadline.filter(|_| wanted).map(|d| d.saturating_sub(self.grace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(on_loss: OnLoss) -> Schedule {
        Schedule::new(on_loss, 300, 100, Some(1000), None)
    }

    // Planted: KILL at the deadline instead of a margin before it.
    #[test]
    fn term_then_kill_before_the_deadline() {
        let mut s = schedule(OnLoss::Term);
        assert_eq!(s.due(699), Due::Nothing);
        assert_eq!(s.next(), Some(700));
        assert_eq!(s.due(700), Due::Term(Reason::Deadline));
        assert_eq!(s.due(701), Due::Nothing);
        assert_eq!(s.next(), Some(900));
        assert_eq!(s.due(900), Due::Kill(Reason::Deadline));
        assert_eq!(s.due(901), Due::Kill(Reason::Deadline));
    }

    // Planted: `termed` as a flag, so that a second deadline had no TERM.
    #[test]
    fn a_renewal_moves_both_and_arms_the_next_term() {
        let mut s = schedule(OnLoss::Term);
        assert_eq!(s.due(700), Due::Term(Reason::Deadline));
        s.renewed(2000);
        assert_eq!(s.due(1500), Due::Nothing);
        assert_eq!(s.due(1700), Due::Term(Reason::Deadline));
        assert_eq!(s.due(1900), Due::Kill(Reason::Deadline));
    }

    // Planted: the check for TERM before the one for KILL.
    #[test]
    fn asleep_past_the_deadline_kills_first() {
        assert_eq!(schedule(OnLoss::Term).due(5000), Due::Kill(Reason::Deadline));
    }

    // Planted: `renewed` without the check for warn.
    #[test]
    fn warn_never_kills_for_the_lease() {
        let mut s = Schedule::new(OnLoss::Warn, 300, 100, None, Some(400));
        s.renewed(450);
        assert_eq!(s.due(399), Due::Nothing);
        assert_eq!(s.due(400), Due::Term(Reason::MaxHold));
        assert_eq!(s.due(699), Due::Nothing);
        assert_eq!(s.due(700), Due::Kill(Reason::MaxHold));
    }

    // Planted: `kill` treated as `term`.
    #[test]
    fn kill_has_no_grace() {
        let mut s = schedule(OnLoss::Kill);
        assert_eq!(s.due(899), Due::Nothing);
        assert_eq!(s.due(900), Due::Kill(Reason::Deadline));
    }
}
