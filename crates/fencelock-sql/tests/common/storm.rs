//! The tokens of a storm of writers, and what became of each write.
use fencelock_core::{Client, Guard, Token};
use fencelock_sql::fence::Stamp;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// So long a writer whose lock is not its own any more waits for somebody who writes before it.
const LATE: Duration = Duration::from_millis(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Flies,
    Written,
    Refused { by: i64 },
}
/// Tokens are drawn in order, from a counter or from a lock of an engine, and written in any.
pub(crate) struct Storm {
    drawn: AtomicI64,
    locks: Vec<Client>,
    fates: Mutex<BTreeMap<i64, Fate>>,
}
/// One that is about to write; with the lock, while it holds that.
pub(crate) struct Writer {
    pub(crate) stamp: Stamp,
    pub(crate) token: i64,
    held: Option<Guard>,
}
impl Storm {
    /// Of a lock that these share, or of a counter where there are none.
    pub(crate) fn of(locks: Vec<Client>) -> Self {
        Self { drawn: AtomicI64::new(1), locks, fates: Mutex::default() }
    }
    /// How often each of the writers writes: a lock is had by one of them at a time.
    pub(crate) fn rounds(&self) -> usize {
        if self.locks.is_empty() { 40 } else { 10 }
    }
    /// The next token. A late writer writes after a while, as one that was paused: others have drawn theirs meanwhile.
    pub(crate) async fn next(&self, n: usize, late: bool) -> Writer {
        if self.locks.is_empty() {
            let token = self.drawn.fetch_add(1, SeqCst);
            self.set(token, Fate::Flies);
            if late {
                tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3000))).await;
            }
            return Writer { stamp: Stamp::new(Token::new(token).unwrap(), "w"), token, held: None };
        }
        let guard = self.locks[n % self.locks.len()].mutex("storm").ttl(Duration::from_secs(60)).lock().await.unwrap();
        let (stamp, token) = (Stamp::from(&guard), guard.token().get());
        self.set(token, Fate::Flies);
        if !late {
            return Writer { stamp, token, held: Some(guard) };
        }
        guard.release().await.unwrap();
        let since = Instant::now();
        while !self.newer_was_written(token) && since.elapsed() < LATE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Writer { stamp, token, held: None }
    }
    fn set(&self, token: i64, fate: Fate) {
        self.fates.lock().unwrap().insert(token, fate);
    }
    fn newer_was_written(&self, token: i64) -> bool {
        self.fates.lock().unwrap().range(token + 1..).any(|(_, fate)| *fate == Fate::Written)
    }
    pub(crate) async fn written(&self, writer: Writer) {
        self.set(writer.token, Fate::Written);
        if let Some(held) = writer.held {
            held.release().await.unwrap();
        }
    }
    /// Only for one that is newer, and has written, or has done so without knowing it yet; and never while the lock is held.
    pub(crate) fn refused(&self, writer: Writer, newer: i64) {
        let (token, mut fates) = (writer.token, self.fates.lock().unwrap());
        let there = fates.get(&newer).copied();
        assert!(
            newer > token && matches!(there, Some(Fate::Flies | Fate::Written)) && writer.held.is_none(),
            "a fresh one was refused: {token} by {newer}, which is {there:?}"
        );
        fates.insert(token, Fate::Refused { by: newer });
    }
    /// How many were written, how many refused, each of them for one that was written; and the newest token.
    pub(crate) fn end(&self) -> (usize, usize, i64) {
        let fates = self.fates.lock().unwrap();
        let mut refused = 0;
        for (token, fate) in &*fates {
            match fate {
                Fate::Flies => panic!("{token} was neither written nor refused"),
                Fate::Written => {}
                Fate::Refused { by } => {
                    assert_eq!(fates.get(by), Some(&Fate::Written), "{token} was refused by {by}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "nobody was stale");
        (fates.len() - refused, refused, *fates.keys().last().unwrap())
    }
}
