//! How long to wait before something is tried again.
use std::time::Duration;

/// Each twice as long as the one before, up to the longest: who asks again at once is heard at once when nothing was wrong, and
/// does not add to the trouble when something is.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}
impl Pauses {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }
    /// Between two commands whose answer somebody waits for.
    pub(crate) const fn short() -> Self {
        Self::new(Duration::from_millis(5), Duration::from_millis(250))
    }
    /// Between two commands that nobody waits for.
    pub(crate) const fn long() -> Self {
        Self::new(Duration::from_millis(10), Duration::from_secs(1))
    }
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(self.longest);
        now
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: `min` left out.
    use super::*;

    #[test]
    fn they_double_and_stop_growing() {
        let mut pauses = Pauses::short();
        let millis: Vec<_> = (0..8).map(|_| pauses.next().as_millis()).collect();
        assert_eq!(millis, [5, 10, 20, 40, 80, 160, 250, 250]);
    }
}
