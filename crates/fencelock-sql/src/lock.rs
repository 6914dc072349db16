//! Row locks: they last until the transaction ends.
use crate::{Dialect, NoIndex, Refused, Row, Transaction, Tx, Value, dialect::Statement, explain, tx::seconds};
use fencelock_core::{Error, ErrorKind, Result};
use std::time::Duration;

/// How a lock is taken: as whom, and whether to wait.
///
/// ```
/// use fencelock_sql::Lock;
/// use std::time::Duration;
/// let worker = Lock::no_key().skip_locked();          // the next job that nobody has
/// let patient = Lock::shared().within(Duration::from_secs(2));
/// assert_ne!(worker, patient);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    explain: bool,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    NoKey,
    Shared,
    KeyShared,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Forever,
    No,
    Skip,
    For(Duration),
}
impl Lock {
    const fn new(mode: Mode) -> Self {
        Self { mode, wait: Wait::Forever, explain: true }
    }
    /// Nobody else locks or changes the row: `FOR UPDATE`. On PostgreSQL that stops inserts of rows that refer to it, too: see
    /// [`no_key`](Self::no_key).
    ///
    /// ```
    /// assert_ne!(fencelock_sql::Lock::exclusive(), fencelock_sql::Lock::shared());
    /// ```
    pub const fn exclusive() -> Self {
        Self::new(Mode::Exclusive)
    }
    /// The same, but rows that refer to it can be inserted: what a transaction needs that changes no key. `FOR NO KEY UPDATE` on PostgreSQL,
    /// `FOR UPDATE` elsewhere.
    ///
    /// ```
    /// assert_ne!(fencelock_sql::Lock::exclusive(), fencelock_sql::Lock::no_key());
    /// ```
    pub const fn no_key() -> Self {
        Self::new(Mode::NoKey)
    }
    /// Beside others who share it; nobody changes the row. `FOR SHARE`, on MariaDB `LOCK IN SHARE MODE`.
    ///
    /// ```
    /// assert_ne!(fencelock_sql::Lock::shared(), fencelock_sql::Lock::key_shared());
    /// ```
    pub const fn shared() -> Self {
        Self::new(Mode::Shared)
    }
    /// Beside everybody but who deletes the row or changes its key: `FOR KEY SHARE`. PostgreSQL has it; elsewhere it is
    /// [`shared`](Self::shared).
    ///
    /// ```
    /// assert_ne!(fencelock_sql::Lock::shared(), fencelock_sql::Lock::key_shared());
    /// ```
    pub const fn key_shared() -> Self {
        Self::new(Mode::KeyShared)
    }
    /// Somebody has it: [`Refused::Busy`] at once, and the transaction goes on. (Of several rows those that come before it stay locked on MySQL and
    /// MariaDB, and do not on PostgreSQL.)
    ///
    /// ```
    /// assert_ne!(fencelock_sql::Lock::shared().no_wait(), fencelock_sql::Lock::shared());
    /// ```
    #[must_use]
    pub const fn no_wait(self) -> Self {
        Self { wait: Wait::No, ..self }
    }
    /// Leaves out what somebody has. What is seen so is no consistent picture: it is for queues of jobs.
    ///
    /// ```
    /// assert_ne!(fencelock_sql::Lock::shared().skip_locked(), fencelock_sql::Lock::shared());
    /// ```
    #[must_use]
    pub const fn skip_locked(self) -> Self {
        Self { wait: Wait::Skip, ..self }
    }
    /// Waits so long, for each row anew; then [`Refused::Busy`], and the transaction goes on. MySQL and MariaDB know whole seconds: it
    /// is rounded up. Your own settings are as before afterwards. Zero is [`no_wait`](Self::no_wait).
    ///
    /// ```
    /// use fencelock_sql::Lock;
    /// use std::time::Duration;
    /// assert_eq!(Lock::shared().within(Duration::ZERO), Lock::shared().no_wait());
    /// ```
    #[must_use]
    pub const fn within(self, limit: Duration) -> Self {
        Self { wait: if limit.is_zero() { Wait::No } else { Wait::For(limit) }, ..self }
    }
    /// Does not ask the database for its plan: for a statement whose index you are sure of. It saves a round trip, on PostgreSQL three.
    ///
    /// ```
    /// assert_ne!(fencelock_sql::Lock::shared().unexplained(), fencelock_sql::Lock::shared());
    /// ```
    #[must_use]
    pub const fn unexplained(self) -> Self {
        Self { explain: false, ..self }
    }
    /// What stands at the end of the statement.
    fn clause(self, dialect: Dialect) -> String {
        let mode = match (dialect, self.mode) {
            (_, Mode::Exclusive) => "FOR UPDATE",
            (Dialect::Postgres, Mode::NoKey) => "FOR NO KEY UPDATE",
            (_, Mode::NoKey) => "FOR UPDATE",
            (Dialect::MariaDb, Mode::Shared | Mode::KeyShared) => "LOCK IN SHARE MODE",
            (Dialect::Postgres, Mode::KeyShared) => "FOR KEY SHARE",
            (_, Mode::Shared | Mode::KeyShared) => "FOR SHARE",
        };
        match self.wait {
            Wait::Forever => mode.to_owned(),
            Wait::No => format!("{mode} NOWAIT"),
            Wait::Skip => format!("{mode} SKIP LOCKED"),
            Wait::For(limit) if dialect == Dialect::MariaDb => format!("{mode} WAIT {}", seconds(limit)),
            Wait::For(_) => mode.to_owned(),
        }
    }
}

/// Rows that are locked until the transaction ends.
///
/// ```
/// fn warn(locked: &fencelock_sql::Locked) {
///     if let Some(warning) = &locked.warning {
///         eprintln!("{} rows: {warning}", locked.rows());
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Locked {
    /// Of each row the columns that were named by `key`, `keys` and `sorted_by`, in the order in which they were named.
    pub keys: Vec<Vec<Value>>,
    /// No index leads to them.
    pub warning: Option<NoIndex>,
}
impl Locked {
    /// How many: at least one.
    ///
    /// ```
    /// fn rows(locked: fencelock_sql::Locked) -> usize { locked.rows() }
    /// ```
    pub fn rows(&self) -> usize {
        self.keys.len()
    }
}

impl Row {
    /// Locks what it names, in the order of its keys, until the transaction ends. `Refused::Absent`: nothing is there, or with
    /// [`skip_locked`](Lock::skip_locked) nothing that nobody has.
    ///
    /// A plain `SELECT` after it reads, under `REPEATABLE READ` of MySQL, what was there when the transaction first read: read with
    /// `FOR UPDATE`, use `READ COMMITTED`, or lock first.
    ///
    /// # Errors
    /// `Unsupported` on SQLite, which locks the whole database: `BEGIN IMMEDIATE`. `Conflict`: a deadlock, or under `REPEATABLE READ` of
    /// PostgreSQL a row that was changed; `Busy`: the server's own limit has passed. After these the transaction is unusable.
    ///
    /// # Cancel safety
    /// Dropped half-way, it leaves the transaction unusable.
    ///
    /// ```no_run
    /// # #[cfg(feature = "tokio-postgres-0_7")]
    /// # async fn transfer(db: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use fencelock_sql::{Lock, Row, Tx};
    /// let mut tx = Tx::new(db.transaction().await?);
    /// let locked = Row::of("account").keys("id", [7, 3]).lock(&mut tx, Lock::no_key()).await??;   // 3 first: no deadlock
    /// assert_eq!(locked.rows(), 2);
    /// tx.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
    /// tx.execute("UPDATE account SET balance = balance + 10 WHERE id = 3", &[]).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn lock<T: Transaction>(&self, tx: &mut Tx<T>, how: Lock) -> Result<Result<Locked, Refused>> {
        const OPERATION: &str = "lock rows";
        if T::DIALECT == Dialect::Sqlite {
            let what = "SQLite locks no rows, but the whole database";
            let error = Error::new(ErrorKind::Unsupported, OPERATION, what).with("table", self.table());
            return Err(error.hint("begin with TransactionBehavior::Immediate: then nobody else writes"));
        }
        self.check(OPERATION, T::DIALECT)?;
        let mut step = tx.enter(OPERATION)?;
        let mut statement = step.statement("").await?;
        self.select(&mut statement)?;
        let plain = statement.text.clone();
        self.order(&mut statement)?;
        let dialect = statement.dialect;
        statement.text(" ").text(&how.clause(dialect));
        let answer = match step.locking(&statement, how).await? {
            Ok(answer) => answer,
            Err(refused) => return Ok(step.done(Err(refused))),
        };
        if answer.rows.is_empty() {
            return Ok(step.done(Err(Refused::Absent)));
        }
        let mut warning = None;
        if how.explain {
            // Afterwards: it reads, and the first read is what a REPEATABLE READ of MySQL goes on to see.
            let plain = Statement { text: plain, ..statement };
            warning = explain::look(&mut step, self.table(), &plain).await?;
        }
        Ok(step.done(Ok(Locked { keys: answer.rows, warning })))
    }
}
