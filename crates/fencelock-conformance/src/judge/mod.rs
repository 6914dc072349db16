//! Who was inside, when, and whether that may be: a counter that is not atomic, intervals of holding on the boot clock, and
//! checkers that say what is wrong with them. All of it lies in files, so that several processes are judged together.
mod checkers;
mod counter;
mod history;
mod linear;

pub use checkers::{Wait, fifo, in_order, overlap, permits, tokens};
pub use counter::Counter;
pub use history::{History, Inside, Interval};
pub use linear::{Act, Lock, Model, Op, Permits, linearizable};

use fencelock_core::{Claim, Guard, SharedGuard};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// A counter and a history that belong together.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// use fencelock_conformance::judge::Judge;
/// use fencelock_core::{Client, memory::MemoryEngine};
/// # use std::sync::Arc;
/// # let client = Client::builder(Arc::new(MemoryEngine::new())).build()?;
/// let folder = std::env::temp_dir().join(format!("judge-{}", fastrand::u64(..)));
/// let judge = Judge::at(&folder);
/// for _ in 0..3 {
///     let guard = client.mutex("m").lock().await?;
///     judge.work("me", &guard).await;
///     guard.release().await?;
/// }
/// judge.verdict(3);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Judge {
    folder: PathBuf,
    /// What the holders count with.
    pub counter: Counter,
    /// When they were inside.
    pub history: History,
}
impl Judge {
    /// In this folder, which is made when it is not there.
    ///
    /// # Panics
    /// The folder cannot be made.
    pub fn at(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let (counter, history) = (Counter::at(folder.join("counter")), History::at(folder.join("history")));
        Self { folder: folder.to_owned(), counter, history }
    }
    /// What leads another process to it.
    pub fn place(&self) -> &Path {
        &self.folder
    }
    /// One round of work under an exclusive hold: noted, counted, and the hold is good at its end.
    ///
    /// # Panics
    /// The hold was lost.
    pub async fn work(&self, who: &str, guard: &Guard) {
        let inside = self.history.enter(who, guard.claim(), guard.token().get());
        self.counter.bump().await;
        if let Err(e) = guard.check() {
            panic!("{who} worked under a lock that it had lost: {e}");
        }
        self.history.leave(inside);
    }
    /// One round beside others: a reader's, or under permits.
    ///
    /// # Panics
    /// The hold was lost.
    pub async fn share(&self, who: &str, guard: &SharedGuard) {
        self.share_for(who, guard, a_while()).await;
    }
    /// The same, for so long.
    ///
    /// # Panics
    /// As [`share`](Self::share).
    pub(crate) async fn share_for(&self, who: &str, guard: &SharedGuard, stays: Duration) {
        let inside = self.history.enter(who, guard.claim(), 0);
        tokio::time::sleep(stays).await;
        if let Err(e) = guard.check() {
            panic!("{who} shared a lock that it had lost: {e}");
        }
        self.history.leave(inside);
    }
    /// Exactly so many rounds of exclusive work, none beside anybody, their tokens rising.
    ///
    /// # Panics
    /// It was not so.
    #[track_caller]
    pub fn verdict(&self, rounds: u64) {
        let intervals = self.history.intervals();
        let exclusive = intervals.iter().filter(|interval| interval.claim.is_exclusive()).count();
        let all = [overlap(&intervals), tokens(&intervals)];
        if let Some(wrong) = all.into_iter().find_map(Result::err) {
            panic!("{wrong}");
        }
        let counted = (self.counter.value(), u64::try_from(exclusive).unwrap_or(u64::MAX));
        assert_eq!(counted, (rounds, rounds), "increments that are there, and rounds that were noted");
    }
    /// No two holders of permits had more than there are; the most that were taken at once.
    ///
    /// # Panics
    /// They had.
    #[track_caller]
    pub fn permits(&self, capacity: u32) -> u64 {
        permits(&self.history.intervals(), capacity).unwrap_or_else(|wrong| panic!("{wrong}"))
    }
}

/// How long one stays: now and then for longer than an engine takes to hand the next one his share.
pub(crate) fn a_while() -> Duration {
    Duration::from_micros(fastrand::u64(0..if fastrand::u8(..16) == 0 { 40_000 } else { 500 }))
}
/// As history files have it: `mutex`, `read`, `write`, `2/3`.
fn claim_text(claim: Claim) -> String {
    match claim {
        Claim::Permits { take, of } => format!("{take}/{of}"),
        other => other.to_string(),
    }
}
fn claim_of(text: &str) -> Option<Claim> {
    match text {
        "mutex" => Some(Claim::Mutex),
        "read" => Some(Claim::Read),
        "write" => Some(Claim::Write),
        permits => {
            let (take, of) = permits.split_once('/')?;
            Some(Claim::Permits { take: take.parse().ok()?, of: of.parse().ok()? })
        }
    }
}
