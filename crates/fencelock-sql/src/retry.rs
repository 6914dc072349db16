//! Runs a transaction again when somebody was in the way.
use crate::{Lock, Locked, Refused, Row, Transaction, Tx};
use fencelock_core::{ErrorKind, Result};
use std::{thread, time::Duration};

/// How often, after which pauses, and from which try on it rather locks than loses again.
///
/// What you give it begins a transaction of its own, on your connection, reads, writes and commits. When that ends in `Conflict` it is
/// run again, after a pause of any length up to a limit that doubles each time (full jitter): so they do not meet again. After
/// a few conflicts [`Attempt::lock`] takes the row's lock, and the write cannot fail any more.
///
/// ```
/// # #[cfg(feature = "rusqlite")] {
/// # use fencelock_sql::{Retry, Row, Tx, block_on};
/// # let mut db = rusqlite::Connection::open_in_memory().unwrap();
/// # db.execute_batch("CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER, version INTEGER); INSERT INTO stock VALUES (42, 9, 1)").unwrap();
/// let stock = Row::of("stock").key("id", 42);
/// let left = block_on(Retry::default().run(async |_| {
///     let mut tx = Tx::new(db.transaction().unwrap());
///     let read = tx.query_row("SELECT n, version FROM stock WHERE id = 42", [], |row| Ok((row.get(0)?, row.get(1)?)));
///     let (n, version): (i64, i64) = tx.seen(read)?;
///     stock.update(&mut tx, version, [("n", n - 1)]).await??;
///     tx.commit().await?;
///     Ok(n - 1)
/// })).unwrap();
/// assert_eq!(left, 8);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    tries: u32,
    optimistic: u32,
    first: Duration,
    longest: Duration,
}
/// Ten tries, of which the first three are optimistic; pauses up to 4 ms, 8 ms … 500 ms.
impl Default for Retry {
    fn default() -> Self {
        let (first, longest) = (Duration::from_millis(4), Duration::from_millis(500));
        Self { tries: 10, optimistic: 3, first, longest }
    }
}
impl Retry {
    /// Not more often than this; at least once.
    ///
    /// ```
    /// assert_ne!(fencelock_sql::Retry::default().tries(3), fencelock_sql::Retry::default());
    /// ```
    #[must_use]
    pub const fn tries(self, tries: u32) -> Self {
        Self { tries: if tries == 0 { 1 } else { tries }, ..self }
    }
    /// After so many conflicts the row is locked: 0 locks it from the beginning, `u32::MAX` never.
    ///
    /// ```
    /// assert_ne!(fencelock_sql::Retry::default().lock_after(1), fencelock_sql::Retry::default());
    /// ```
    #[must_use]
    pub const fn lock_after(self, conflicts: u32) -> Self {
        Self { optimistic: conflicts, ..self }
    }
    /// The longest that the first pause can be, and any.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let quick = fencelock_sql::Retry::default().pauses(Duration::from_millis(1), Duration::from_millis(50));
    /// # let _ = quick;
    /// ```
    #[must_use]
    pub const fn pauses(self, first: Duration, longest: Duration) -> Self {
        Self { first, longest, ..self }
    }
    /// Runs it, until it ends in anything but `Conflict`. Within tokio its timer makes the pauses; elsewhere the thread sleeps.
    ///
    /// # Errors
    /// The last one of what was run.
    ///
    /// # Cancel safety
    /// As that of what is run: a transaction that is dropped is rolled back.
    ///
    /// ```
    /// # use fencelock_core::{Error, ErrorKind};
    /// # use fencelock_sql::{Retry, block_on};
    /// let mut tries = 0;
    /// let done = block_on(Retry::default().run(async |attempt| {
    ///     tries = attempt.number();
    ///     if tries < 3 { Err(Error::new(ErrorKind::Conflict, "example", "somebody was first")) } else { Ok("done") }
    /// }));
    /// assert_eq!((done.unwrap(), tries), ("done", 3));
    /// ```
    pub async fn run<R>(self, mut work: impl AsyncFnMut(Attempt) -> Result<R>) -> Result<R> {
        let mut number = 1;
        loop {
            let attempt = Attempt { number, locks: number > self.optimistic };
            match work(attempt).await {
                Err(error) if error.kind() == ErrorKind::Conflict && number < self.tries => {}
                other => return other,
            }
            let pause = self.pause(number, fastrand::f64());
            match tokio::runtime::Handle::try_current() {
                Ok(_) => tokio::time::sleep(pause).await,
                Err(_) => thread::sleep(pause),
            }
            number += 1;
        }
    }
    fn pause(self, number: u32, part: f64) -> Duration {
        let limit = self.first.saturating_mul(1_u32.checked_shl(number - 1).unwrap_or(u32::MAX)).min(self.longest);
        limit.mul_f64(part)
    }
}

/// One try of [`Retry::run`].
///
/// ```
/// # use fencelock_sql::{Retry, block_on};
/// let first = block_on(Retry::default().run(async |attempt| Ok(attempt))).unwrap();
/// assert!(!first.locks());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    number: u32,
    locks: bool,
}
impl Attempt {
    /// The first is 1.
    ///
    /// ```
    /// # use fencelock_sql::{Retry, block_on};
    /// assert_eq!(block_on(Retry::default().run(async |attempt| Ok(attempt.number()))).unwrap(), 1);
    /// ```
    pub const fn number(self) -> u32 {
        self.number
    }
    /// It locks before it reads.
    ///
    /// ```
    /// # use fencelock_sql::{Retry, block_on};
    /// let pessimist = Retry::default().lock_after(0);
    /// assert!(block_on(pessimist.run(async |attempt| Ok(attempt.locks()))).unwrap());
    /// ```
    pub const fn locks(self) -> bool {
        self.locks
    }
    /// Locks the row, if it has lost often enough: make it the first statement, in front of what reads. `None`: it does not lock yet.
    ///
    /// # Errors
    /// As [`Row::lock`]; never `Unsupported`: a transaction of SQLite that is begun with `Immediate` has its lock.
    ///
    /// # Cancel safety
    /// As [`Row::lock`].
    ///
    /// ```no_run
    /// # #[cfg(feature = "tokio-postgres-0_7")]
    /// # async fn sell(db: &mut tokio_postgres::Client) -> fencelock_core::Result<()> {
    /// use fencelock_sql::{Retry, Row, Tx, seen};
    /// let stock = Row::of("stock").key("id", 42);
    /// Retry::default().run(async |attempt| {
    ///     let mut tx = Tx::new(seen(db.transaction().await)?);
    ///     attempt.lock(&mut tx, &stock).await??;
    ///     let read = tx.query_one("SELECT n, version FROM stock WHERE id = 42", &[]).await;
    ///     let row = tx.seen(read)?;
    ///     let (n, version): (i64, i64) = (row.get(0), row.get(1));
    ///     stock.update(&mut tx, version, [("n", n - 1)]).await??;
    ///     tx.commit().await
    /// }).await
    /// # }
    /// ```
    pub async fn lock<T: Transaction>(self, tx: &mut Tx<T>, row: &Row) -> Result<Result<Option<Locked>, Refused>> {
        if !self.locks || T::DIALECT == crate::Dialect::Sqlite {
            return Ok(Ok(None));
        }
        Ok(row.lock(tx, Lock::no_key()).await?.map(Some))
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: the longest left out; the pause not multiplied.
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let retry = Retry::default();
        let millis: Vec<_> = [1, 2, 3, 8, 9, 40].map(|n| retry.pause(n, 1.0).as_millis()).into();
        assert_eq!(millis, [4, 8, 16, 500, 500, 500]);
        assert_eq!(retry.pause(3, 0.25), Duration::from_millis(4));
    }
}
