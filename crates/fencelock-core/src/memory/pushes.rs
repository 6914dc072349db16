//! Pushes are hints (SAFETY G2): they may be lost.
use crate::mutants::{Mutant, lives};
use fastrand::Rng;

#[derive(Debug, Default)]
pub(super) struct Pushes(Option<(f64, Rng)>);
impl Pushes {
    pub(super) fn lossy(part: f64, seed: u64) -> Self {
        Self(Some((part, Rng::with_seed(seed))))
    }
    pub(super) fn is_lost(&mut self) -> bool {
        lives(Mutant::NoWakeUp) || self.0.as_mut().is_some_and(|(part, rng)| rng.f64() < *part)
    }
}
