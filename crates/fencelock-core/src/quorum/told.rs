//! What an attempt is told that does not get the lock.
use super::{attempt::Attempt, look, say};
use crate::{
    clock::Moment,
    error::{Error, Result},
    types::{Busy, Holder, Outcome, Status},
};
use std::{pin::pin, time::Duration};
use tokio::time::timeout;

/// Whoever's wait is over before anybody has answered looks for so long: core waits a second.
const LAST_LOOK: Duration = Duration::from_millis(750);
/// For so long no majority has answered before whoever has not waited yet is told so: many a silence is shorter.
const OUTAGE: Duration = Duration::from_secs(1);

impl Attempt<'_> {
    /// When a majority has last answered, if it has since this one came.
    pub(super) fn heard(&self) -> Option<Moment> {
        self.shared.heard().filter(|at| *at >= self.began)
    }
    /// For so long no majority has answered.
    fn silent_for(&self) -> Duration {
        self.heard().unwrap_or(self.began).until(self.shared.now())
    }
    /// No majority answers, or has since this one came, and that has lasted.
    pub(super) fn is_outage(&self) -> bool {
        self.unreached() && self.heard().is_none() && self.silent_for() >= OUTAGE
    }
    /// So few have answered that there can be no majority, whoever holds what.
    pub(super) fn unreached(&self) -> bool {
        self.failed.len() >= self.blocks()
    }
    /// What no repetition changes.
    pub(super) fn definite(&mut self) -> Option<Error> {
        let definite = |(_, error): &(usize, Error)| !error.is_temporary();
        if self.failed.iter().filter(|failed| definite(failed)).count() < self.blocks() {
            return None;
        }
        let first = self.failed.iter().position(definite)?;
        Some(self.failed.swap_remove(first).1)
    }
    /// Who has waited long enough is told for whom, also where that was too short for an answer: a look changes nothing, and may be had after a
    /// stop. That nobody knows is told only where no majority answers. What there is of his own is not in his way, and goes meanwhile.
    pub(super) async fn stopped(&self) -> Result<Outcome> {
        if let Some(busy) = self.request.last_report() {
            return Ok(Outcome::Busy(busy));
        }
        let said = self.said();
        if !said.is_empty() && self.heard().is_some() && self.silent_for() < OUTAGE {
            return Ok(self.taken(&said).await);
        }
        let name = self.request.name();
        let mut seen = pin!(look::at(self.shared, name, self.limit().min(LAST_LOOK)));
        let (seen, failed) = tokio::select! {
            biased;
            answers = &mut seen => answers,
            () = self.shared.undo(&self.entry, None, true) => seen.await,
        };
        if seen.len() < self.shared.need() {
            return Err(say::unreachable("lock", self.shared, &failed).with("name", name));
        }
        let mine = self.request.hold().whole();
        let other = |at: Status| at.holders.into_iter().find(|holder| holder.hold.whole() != mine);
        let busy: Vec<_> =
            seen.into_iter().map(|(node, at)| (node, Busy::new(other(at), None).in_whole(mine))).collect();
        Ok(Outcome::Busy(say::busy(self.shared, &busy)))
    }
    /// Of whom the nodes have told; those that were not waited for this time, before.
    pub(super) fn said(&self) -> Vec<(usize, Busy)> {
        let tells = |(_, busy): &&(usize, Busy)| busy.holder.is_some() || busy.ahead.is_some_and(|ahead| ahead > 0);
        let now: Vec<_> = self.busy.iter().filter(tells).collect();
        let missing = |node| self.open.contains(node) && now.iter().all(|(told, _)| told != node);
        let before = self.before.iter().filter(|(node, _)| now.is_empty() || missing(node));
        now.iter().copied().chain(before).cloned().collect()
    }
    /// By whom. Those who have told may differ on his token, since the hold counts where most nodes have the same: then all are asked, so that
    /// nobody is told of one that is not his.
    async fn taken(&self, said: &[(usize, Busy)]) -> Outcome {
        let mut busy = say::busy(self.shared, said);
        if let Some(holder) = &mut busy.holder
            && holder.claim.is_exclusive()
        {
            let mut all = said.iter().filter_map(|(_, busy)| busy.holder.as_deref());
            let differs = |other: &Holder| other.hold.whole() == holder.hold && other.token != holder.token;
            let limit = self.limit().min(LAST_LOOK);
            if all.any(differs)
                && let Some(Ok(Ok(status))) = tokio::select! {
                    biased;
                    () = self.request.stopped() => None,
                    seen = timeout(limit, look::inspect(self.shared, self.request.name())) => Some(seen),
                }
                && let Some(same) = status.holders.iter().find(|other| other.hold == holder.hold)
            {
                holder.token = same.token;
            }
        }
        Outcome::Busy(busy)
    }
    /// Why there is no majority.
    pub(super) async fn refusal(&mut self) -> Result<Outcome> {
        if let Some(error) = self.definite() {
            return Err(error);
        }
        if !self.unreached() {
            return Ok(self.taken(&self.said()).await);
        }
        let mut error = say::unreachable("lock", self.shared, &self.failed).with("name", self.request.name());
        for (node, busy) in &self.said() {
            error = error.with("node", format!("{}: {busy}", self.shared.label(*node)));
        }
        Err(error)
    }
}
