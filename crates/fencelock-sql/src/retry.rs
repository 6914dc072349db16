//! Runs a transaction again when somebody was in the way.
use crate::{Dialect, Lock, Locked, Refused, Row, Transaction, Tx};
use fencelock_core::{ErrorKind, Result};
use std::{thread, time::Duration};

/// How often, after which pauses, and from which try on it rather locks than loses again; and which try this is.
///
/// Each try is a transaction of its own, on your connection: it reads, writes and commits. When that ends in `Conflict` it is run again,
/// after a pause of any length up to a limit that doubles each time (full jitter), so that the same do not meet again. After a few
/// conflicts [`Retry::lock`] takes the row's lock, and the write cannot lose any more.
///
/// ```no_run
/// # #[cfg(feature = "tokio-postgres-0_7")] mod example {
/// use fencelock_core::Result;
/// use fencelock_sql::{Retry, Row, Tx, seen};
/// use tokio_postgres::Client;
///
/// async fn sell(db: &mut Client) -> Result<i64> {
///     let mut retry = Retry::default();
///     loop {
///         let sold = try_to_sell(db, retry).await;
///         if !retry.again(&sold).await {
///             return sold;
///         }
///     }
/// }
/// async fn try_to_sell(db: &mut Client, retry: Retry) -> Result<i64> {
///     let stock = Row::of("stock").key("id", 42);
///     let mut tx = Tx::new(seen(db.transaction().await)?);
///     retry.lock(&mut tx, &stock).await??;                        // not in the first three tries
///     let read = tx.query_one("SELECT n, version FROM stock WHERE id = 42", &[]).await;
///     let row = tx.seen(read)?;
///     let (n, version): (i64, i64) = (row.get(0), row.get(1));
///     stock.update(&mut tx, version, [("n", n - 1)]).await??;
///     tx.commit().await?;
///     Ok(n - 1)
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    tries: u32,
    optimistic: u32,
    first: Duration,
    longest: Duration,
    number: u32,
}
/// Ten tries, of which the first three are optimistic; pauses up to 4 ms, 8 ms … 500 ms.
impl Default for Retry {
    fn default() -> Self {
        let (first, longest) = (Duration::from_millis(4), Duration::from_millis(500));
        Self { tries: 10, optimistic: 3, first, longest, number: 1 }
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
    /// assert!(fencelock_sql::Retry::default().lock_after(0).locks());
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
    /// Which try this is: the first is 1.
    ///
    /// ```
    /// assert_eq!(fencelock_sql::Retry::default().number(), 1);
    /// ```
    pub const fn number(self) -> u32 {
        self.number
    }
    /// It locks before it reads.
    ///
    /// ```
    /// assert!(!fencelock_sql::Retry::default().locks());
    /// ```
    pub const fn locks(self) -> bool {
        self.number > self.optimistic
    }
    /// Whether it is to be run again: after a `Conflict`, when there are tries left, and after the pause. Within tokio that is its timer's;
    /// elsewhere the thread sleeps.
    ///
    /// # Cancel safety
    /// Dropped, it has counted the try.
    ///
    /// ```
    /// # use fencelock_core::{Error, ErrorKind};
    /// # use fencelock_sql::{Retry, block_on};
    /// # block_on(async {
    /// let mut retry = Retry::default().tries(2);
    /// let lost = Err::<(), _>(Error::new(ErrorKind::Conflict, "example", "somebody was first"));
    /// assert!(retry.again(&lost).await);
    /// assert!(!retry.again(&lost).await);
    /// assert!(!Retry::default().again(&Ok(())).await);
    /// # })
    /// ```
    pub fn again<R>(&mut self, result: &Result<R>) -> impl Future<Output = bool> + Send + use<R> {
        let conflict = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict);
        let pause = (conflict && self.number < self.tries).then(|| self.pause(fastrand::f64()));
        self.number += u32::from(pause.is_some());
        async move {
            let Some(pause) = pause else { return false };
            match fencelock_core::blocking::runtime() {
                Some(_) => tokio::time::sleep(pause).await,
                None => thread::sleep(pause),
            }
            true
        }
    }
    fn pause(self, part: f64) -> Duration {
        let limit = self.first.saturating_mul(1_u32.checked_shl(self.number - 1).unwrap_or(u32::MAX));
        limit.min(self.longest).mul_f64(part)
    }
    /// The loop with [`again`](Self::again), for work that is written in place. (What is spawned wants the loop itself: the compiler does not see
    /// that such a closure is `Send`.)
    ///
    /// # Errors
    /// The last one of what was run.
    ///
    /// # Cancel safety
    /// As that of what is run: a transaction that is dropped is rolled back.
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
    /// }));
    /// assert_eq!(left.unwrap(), 8);
    /// # }
    /// ```
    pub async fn run<R>(mut self, mut work: impl AsyncFnMut(Self) -> Result<R>) -> Result<R> {
        loop {
            let result = work(self).await;
            if !self.again(&result).await {
                return result;
            }
        }
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
    /// # async fn first(db: &mut tokio_postgres::Client) -> fencelock_core::Result<()> {
    /// # use fencelock_sql::{Retry, Row, Tx, seen};
    /// let mut tx = Tx::new(seen(db.transaction().await)?);
    /// Retry::default().lock_after(0).lock(&mut tx, &Row::of("stock").key("id", 42)).await??;
    /// # Ok(()) }
    /// ```
    pub async fn lock<T: Transaction>(self, tx: &mut Tx<T>, row: &Row) -> Result<Result<Option<Locked>, Refused>> {
        if !self.locks() || T::DIALECT == Dialect::Sqlite {
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
        let at = |number| Retry { number, ..retry };
        let millis: Vec<_> = [1, 2, 3, 8, 9, 40].map(|n| at(n).pause(1.0).as_millis()).into();
        assert_eq!(millis, [4, 8, 16, 500, 500, 500]);
        assert_eq!(at(3).pause(0.25), Duration::from_millis(4));
    }
}
