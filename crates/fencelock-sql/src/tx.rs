//! A transaction of yours, and whether it may still be committed.
use crate::{
    Dialect, Lock, Refused, Value,
    dialect::Statement,
    door::{Answer, Door, Failure, Plain},
    fault::{Fault, Meaning},
    lock::Wait,
};
use fencelock_core::{Error, ErrorKind, Result};
use std::{
    fmt,
    ops::{Deref, DerefMut},
    time::Duration,
};

/// A driver's transaction: `tokio_postgres::Transaction`, `mysql_async::Transaction`, `sqlx::Transaction` of `Postgres` and `MySql`,
/// `rusqlite::Transaction`, each with the feature that names it.
///
/// ```
/// # #[cfg(feature = "rusqlite")] {
/// fn takes_any(_: impl fencelock_sql::Transaction) {}
/// let mut db = rusqlite::Connection::open_in_memory().unwrap();
/// takes_any(db.transaction().unwrap());
/// # }
/// ```
pub trait Transaction: Door {}

/// A driver's connection, outside of a transaction.
///
/// ```
/// # #[cfg(feature = "rusqlite")] {
/// fn takes_any(_: impl fencelock_sql::Connection) {}
/// takes_any(rusqlite::Connection::open_in_memory().unwrap());
/// # }
/// ```
pub trait Connection: Plain {}

/// The error of a driver.
///
/// ```
/// # #[cfg(feature = "rusqlite")] {
/// fn takes_any(_: impl fencelock_sql::DriverError) {}
/// takes_any(rusqlite::Error::QueryReturnedNoRows);
/// # }
/// ```
pub trait DriverError: Failure {}

/// What a driver answered, where that says nothing of a transaction: to `BEGIN`, say, or to what a savepoint of your own has undone. Elsewhere it
/// is [`Tx::seen`].
///
/// # Errors
/// The driver's, in our terms.
///
/// ```
/// # #[cfg(feature = "rusqlite")] {
/// # use fencelock_sql::{Tx, seen};
/// # fn main() -> fencelock_core::Result<()> {
/// let mut db = seen(rusqlite::Connection::open_in_memory())?;
/// let tx = Tx::new(seen(db.transaction())?);
/// # let _ = tx; Ok(()) } main().unwrap() }
/// ```
pub fn seen<R, E: DriverError>(result: Result<R, E>) -> Result<R> {
    result.map_err(|error| error.fault().told("statement"))
}

/// A transaction that you have begun, with your driver and your isolation level. It derefs to the driver's own: your statements go
/// on as before.
///
/// It remembers what must not be committed. After a deadlock, a fence that was refused, a lock that was gone, a statement that the server
/// undid by itself, or a call that was dropped half-way, it takes no further call and [`commit`](Tx::commit) rolls back and says why.
///
/// ```
/// # #[cfg(feature = "rusqlite")] {
/// # fencelock_sql::block_on(async {
/// use fencelock_sql::{Row, Tx};
/// let mut db = rusqlite::Connection::open_in_memory().unwrap();
/// db.execute_batch("CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER, version INTEGER); INSERT INTO stock VALUES (42, 9, 1)").unwrap();
/// let mut tx = Tx::new(db.transaction().unwrap());
/// let n: i64 = tx.query_row("SELECT n FROM stock WHERE id = 42", [], |row| row.get(0)).unwrap();
/// let version = Row::of("stock").key("id", 42).update(&mut tx, 1, [("n", n - 1)]).await.unwrap().unwrap();
/// assert_eq!(version, 2);
/// tx.commit().await.unwrap();
/// # }) }
/// ```
pub struct Tx<T> {
    inner: T,
    state: State,
    /// Once the server was asked.
    dialect: Option<Dialect>,
    /// A setting that is not as it was: how it is put back.
    owed: Option<(&'static str, Value)>,
}
#[derive(Debug)]
enum State {
    Live,
    /// In this call. Who finds it so was dropped there.
    In(&'static str),
    Unusable(ErrorKind, String),
}

impl<T: Transaction> Tx<T> {
    /// Takes a transaction that you have begun. One of `rusqlite` rolls back from now on when it is dropped, whatever its `DropBehavior` was.
    ///
    /// ```
    /// # #[cfg(feature = "rusqlite")] {
    /// let mut db = rusqlite::Connection::open_in_memory().unwrap();
    /// let tx = fencelock_sql::Tx::new(db.transaction().unwrap());
    /// assert_eq!(tx.unusable(), None);
    /// # }
    /// ```
    pub fn new(mut transaction: T) -> Self {
        transaction.undo_when_dropped();
        Self { inner: transaction, state: State::Live, dialect: None, owed: None }
    }
    /// Why it cannot be committed; `None`: it can.
    ///
    /// ```
    /// # #[cfg(feature = "rusqlite")] {
    /// # let mut db = rusqlite::Connection::open_in_memory().unwrap();
    /// assert!(fencelock_sql::Tx::new(db.transaction().unwrap()).unusable().is_none());
    /// # }
    /// ```
    pub fn unusable(&self) -> Option<String> {
        self.trouble().map(|(_, why)| why)
    }
    fn trouble(&self) -> Option<(ErrorKind, String)> {
        match &self.state {
            State::Unusable(kind, why) => Some((*kind, why.clone())),
            _ if self.inner.is_owed() => Some((ErrorKind::Unreachable, OWED.to_owned())),
            // What came before that may be undone, and what came after it stands.
            State::Live if self.inner.ended() => Some((
                ErrorKind::Ambiguous,
                "it has ended before: a statement has ended it, or an error that Tx::seen was not shown".to_owned(),
            )),
            State::Live => None,
            State::In(operation) => Some((ErrorKind::Conflict, format!("{operation} was dropped before it was done"))),
        }
    }
    /// Judges what one of your own statements answered: an error is told in our terms (`Conflict`: run the whole transaction again),
    /// and after one that leaves nothing to commit [`commit`](Self::commit) refuses. On PostgreSQL that is any error; one that you have
    /// taken back to a savepoint of your own is for the free function [`seen`].
    ///
    /// # Errors
    /// What the driver said.
    ///
    /// ```
    /// # #[cfg(feature = "rusqlite")] {
    /// # let mut db = rusqlite::Connection::open_in_memory().unwrap();
    /// let mut tx = fencelock_sql::Tx::new(db.transaction().unwrap());
    /// let made = tx.execute("CREATE TABLE stock (n INTEGER)", []);
    /// assert_eq!(tx.seen(made).unwrap(), 0);
    /// # }
    /// ```
    pub fn seen<R>(&mut self, result: Result<R, T::Error>) -> Result<R> {
        result.map_err(|error| {
            let fault = error.fault();
            let dialect = self.dialect.unwrap_or(T::DIALECT);
            let over = matches!(
                fault.meaning(),
                Meaning::Conflict | Meaning::Busy | Meaning::Stale | Meaning::Gone | Meaning::Undone
            );
            let error = fault.told("statement");
            if over || dialect == Dialect::Postgres || self.inner.ended() { self.spoil(error) } else { error }
        })
    }
    /// Commits, if everything that it was asked for is in it.
    ///
    /// # Errors
    /// It was unusable, and is rolled back: with the kind of what has made it so. `Ambiguous`: the connection broke, and nobody knows
    /// whether it is committed; or on SQLite it has ended before, by itself or by a statement of yours.
    ///
    /// # Cancel safety
    /// Dropped half-way, nobody knows whether it is committed.
    ///
    /// ```
    /// # #[cfg(feature = "rusqlite")] { fencelock_sql::block_on(async {
    /// # let mut db = rusqlite::Connection::open_in_memory().unwrap();
    /// fencelock_sql::Tx::new(db.transaction().unwrap()).commit().await.unwrap();
    /// # }) }
    /// ```
    pub async fn commit(mut self) -> Result<()> {
        self.inner.undo_when_dropped();
        if let Some((kind, why)) = self.trouble() {
            let what = if self.inner.ended() || self.inner.is_owed() {
                why
            } else {
                format!("it was rolled back instead: {why}")
            };
            // Should that fail, too, the server rolls back when the connection goes.
            let _ = self.rollback().await;
            return Err(Error::new(kind, "commit", what).hint(again(kind)));
        }
        self.inner.commit().await.map_err(|error| {
            let fault = error.fault();
            match fault.meaning() {
                Meaning::Gone => {
                    let what = "the connection broke: nobody knows whether it is committed";
                    let error = Error::new(ErrorKind::Ambiguous, "commit", what).because(fault.source);
                    error.hint("look for what it wrote before you run it again")
                }
                _ => fault.told("commit"),
            }
        })
    }
    /// Undoes all of it.
    ///
    /// # Errors
    /// What the driver said. The server undoes it by itself when the connection goes.
    ///
    /// ```
    /// # #[cfg(feature = "rusqlite")] { fencelock_sql::block_on(async {
    /// # let mut db = rusqlite::Connection::open_in_memory().unwrap();
    /// fencelock_sql::Tx::new(db.transaction().unwrap()).rollback().await.unwrap();
    /// # }) }
    /// ```
    pub async fn rollback(mut self) -> Result<()> {
        if self.inner.is_owed() {
            let error = Error::new(ErrorKind::Unreachable, "rollback", OWED);
            return Err(error.hint(again(ErrorKind::Unreachable)));
        }
        if let Some((set, value)) = self.owed.take() {
            // On PostgreSQL the setting ends with the transaction, which may take no statement any more. Elsewhere the first answer may be
            // the late one of the call that was dropped.
            let values = [value];
            if self.inner.run(set, &values).await.is_err() {
                let _ = self.inner.run(set, &values).await;
            }
        }
        self.inner.rollback().await.map_err(|error| error.fault().told("rollback"))
    }

    fn spoil(&mut self, error: Error) -> Error {
        self.inner.undo_when_dropped();
        self.state = State::Unusable(error.kind(), error.to_string());
        error
    }
    /// The beginning of each of our calls. A call that does not come to [`Step::done`] leaves the transaction unusable.
    pub(crate) fn enter(&mut self, operation: &'static str) -> Result<Step<'_, T>> {
        if let Some((kind, why)) = self.trouble() {
            let error = Error::new(kind, operation, format!("the transaction is unusable: {why}"));
            return Err(error.hint(again(kind)));
        }
        self.state = State::In(operation);
        Ok(Step { tx: self, operation })
    }
}
impl<T> Deref for Tx<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}
impl<T> DerefMut for Tx<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
impl<T> fmt::Debug for Tx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("state", &self.state).finish_non_exhaustive()
    }
}

/// One of our calls under way.
pub(crate) struct Step<'a, T: Transaction> {
    tx: &'a mut Tx<T>,
    operation: &'static str,
}
impl<T: Transaction> Step<'_, T> {
    /// It is over, and the transaction goes on.
    pub(crate) fn done<R>(self, result: R) -> R {
        self.tx.state = State::Live;
        result
    }
    /// It is over, and so is the transaction.
    pub(crate) fn spoil(&mut self, error: Error) -> Error {
        self.tx.spoil(error)
    }
    pub(crate) fn error(&self, kind: ErrorKind, what: impl Into<String>) -> Error {
        Error::new(kind, self.operation, what)
    }
    /// What the server speaks: MySQL's family is asked once.
    pub(crate) async fn dialect(&mut self) -> Result<Dialect> {
        if let Some(dialect) = self.tx.dialect {
            return Ok(dialect);
        }
        let mut dialect = T::DIALECT;
        if dialect.is_mysql() {
            let version = self.run("SELECT VERSION()", &[]).await?;
            dialect = if version.text().contains("MariaDB") { Dialect::MariaDb } else { Dialect::MySql };
        }
        self.tx.dialect = Some(dialect);
        Ok(dialect)
    }
    pub(crate) async fn statement(&mut self, text: &str) -> Result<Statement> {
        Ok(Statement::new(self.dialect().await?, self.operation, text))
    }
    pub(crate) async fn asked(&mut self, sql: &str, values: &[Value]) -> Result<Answer, Fault> {
        self.tx.inner.run(sql, values).await.map_err(Failure::fault)
    }
    /// Whatever goes wrong here leaves nothing that could be committed.
    pub(crate) async fn run(&mut self, sql: &str, values: &[Value]) -> Result<Answer> {
        let answer = self.asked(sql, values).await;
        answer.map_err(|fault| self.failed(fault))
    }
    pub(crate) async fn send(&mut self, statement: &Statement) -> Result<Answer> {
        self.run(&statement.text, &statement.values).await
    }
    async fn say(&mut self, sql: &str) -> Result<()> {
        let said = self.tx.inner.say(sql).await;
        said.map_err(|error| self.failed(error.fault()))
    }
    pub(crate) fn failed(&mut self, fault: Fault) -> Error {
        let error = fault.told(self.operation);
        self.spoil(error)
    }

    /// A statement that takes locks. That one is not free is an answer where somebody asked not to wait, or not for ever: the statement is
    /// undone by itself, and the transaction goes on. (MySQL undoes more in some settings: then our savepoint is gone, too, and that is told.)
    pub(crate) async fn locking(&mut self, statement: &Statement, how: Lock) -> Result<Result<Answer, Refused>> {
        let dialect = statement.dialect;
        let limit = match how.wait {
            Wait::Forever | Wait::Skip => return self.send(statement).await.map(Ok),
            Wait::No => None,
            Wait::For(limit) => Some(limit),
        };
        self.say("SAVEPOINT fencelock_step").await?;
        if let Some(limit) = limit {
            self.limited(dialect, limit).await?;
        }
        let answer = self.asked(&statement.text, &statement.values).await;
        // PostgreSQL takes it back with the savepoint, or the transaction; elsewhere it is the session's, whatever came of the statement.
        if answer.is_ok() || dialect.is_mysql() {
            self.put_back().await?;
        }
        let refused = match answer {
            Err(fault) if !matches!(fault.meaning(), Meaning::Busy | Meaning::Stopped) => {
                return Err(self.failed(fault));
            }
            Err(_) => true,
            Ok(_) => false,
        };
        if refused {
            self.say("ROLLBACK TO SAVEPOINT fencelock_step").await?;
            self.tx.owed = None;
        }
        self.say("RELEASE SAVEPOINT fencelock_step").await?;
        Ok(answer.map_err(|_| Refused::Busy))
    }
    /// Sets a limit of time for the locks of the next statement, until [`put_back`](Self::put_back). The setting is owed before it is changed:
    /// who is dropped in between has it put back when the transaction is committed or rolled back. Of a `Tx` that is dropped itself it stays.
    async fn limited(&mut self, dialect: Dialect, limit: Duration) -> Result<()> {
        match dialect {
            Dialect::Postgres => {
                let millis = limit.as_nanos().div_ceil(1_000_000).clamp(1, 2_147_483_647);
                let sql = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', $1, true)";
                let before = self.run(sql, &[millis.to_string().into()]).await?;
                let before = before.first().cloned().unwrap_or(Value::Null);
                self.tx.owed = Some(("SELECT set_config('lock_timeout', $1, true)", before));
            }
            // It has a clause for that: see `Wait::clause`.
            Dialect::MariaDb | Dialect::Sqlite => {}
            Dialect::MySql => {
                const SET: &str = "SET SESSION innodb_lock_wait_timeout = ?";
                let before = self.run("SELECT @@SESSION.innodb_lock_wait_timeout", &[]).await?;
                self.tx.owed = Some((SET, before.first().cloned().unwrap_or(Value::Null)));
                self.run(SET, &[Value::Int(seconds(limit))]).await?;
            }
        }
        Ok(())
    }
    async fn put_back(&mut self) -> Result<()> {
        if let Some((set, value)) = self.tx.owed.clone() {
            self.run(set, &[value]).await?;
            self.tx.owed = None;
        }
        Ok(())
    }
}
/// A connection that is used on would give that answer to the next one who asks, a pool's next borrower, say.
const OWED: &str = "a statement was dropped before its answer came, and the next one would be given it";
/// What to do with a transaction that cannot go on.
fn again(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Ambiguous => "look for what it wrote before you run it again",
        ErrorKind::Unreachable => {
            "close the connection, and run the whole transaction again, from BEGIN, on another one"
        }
        ErrorKind::Lost => "stop: another holder has the lock",
        _ => "roll back, and run the whole transaction again, from BEGIN",
    }
}
/// What a server that knows only whole seconds is asked for.
pub(crate) fn seconds(limit: Duration) -> i64 {
    i64::try_from(limit.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX).clamp(1, 100_000_000)
}

#[cfg(all(test, feature = "mysql_async-0_37"))]
mod tests {
    //! MySQL's way to limit a wait, shown on MariaDB, which knows it, too. Planted to see it go red: the setting not taken back.
    #![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
    use super::*;
    use crate::Row;
    use mysql_async::{Conn, TxOpts, prelude::Queryable};
    use std::time::Instant;

    #[tokio::test]
    async fn a_limit_of_mysql_is_taken_back() {
        let server = fencelock_testkit::MariaDb::start();
        server.ask("CREATE TABLE account (id int PRIMARY KEY) ENGINE=InnoDB; INSERT INTO account VALUES (1), (2)");
        let (mut a, mut b) = (Conn::from_url(server.url()).await.unwrap(), Conn::from_url(server.url()).await.unwrap());
        b.query_drop("SET innodb_lock_wait_timeout = 7").await.unwrap();
        let mut first = a.start_transaction(TxOpts::default()).await.unwrap();
        first.query_drop("SELECT 1 FROM account WHERE id = 1 FOR UPDATE").await.unwrap();
        let mut tx = Tx::new(b.start_transaction(TxOpts::default()).await.unwrap());
        tx.dialect = Some(Dialect::MySql);
        for (id, busy) in [(1, true), (2, false)] {
            let started = Instant::now();
            let limit = Lock::exclusive().within(Duration::from_millis(10));
            let got = Row::of("account").key("id", id).lock(&mut tx, limit).await.unwrap();
            assert_eq!(got.is_err(), busy);
            assert!(started.elapsed() < Duration::from_secs(6));
            let shown: Option<i64> = tx.query_first("SELECT @@innodb_lock_wait_timeout").await.unwrap();
            assert_eq!(shown, Some(7));
        }
        tx.commit().await.unwrap();
        // After an error, though nobody ends the transaction.
        let mut tx = Tx::new(b.start_transaction(TxOpts::default()).await.unwrap());
        tx.dialect = Some(Dialect::MySql);
        let wrong = Row::of("account").filter("id = (SELECT 1 UNION SELECT {})", [2]);
        wrong.lock(&mut tx, Lock::exclusive().within(Duration::from_millis(10))).await.unwrap_err();
        drop(tx);
        assert_eq!(b.query_first("SELECT @@innodb_lock_wait_timeout").await.unwrap(), Some(7));
    }
    /// By a driver that reads the late answer of a call that was dropped.
    #[cfg(feature = "sqlx-0_8")]
    #[tokio::test]
    async fn a_limit_of_mysql_is_taken_back_after_a_drop() {
        use sqlx::{Connection, MySqlConnection};
        let server = fencelock_testkit::MariaDb::start();
        server.ask("CREATE TABLE account (id int PRIMARY KEY) ENGINE=InnoDB; INSERT INTO account VALUES (1)");
        let mut a = Conn::from_url(server.url()).await.unwrap();
        let mut b = MySqlConnection::connect(&server.url()).await.unwrap();
        sqlx::query("SET innodb_lock_wait_timeout = 7").execute(&mut b).await.unwrap();
        let mut first = a.start_transaction(TxOpts::default()).await.unwrap();
        first.query_drop("SELECT 1 FROM account WHERE id = 1 FOR UPDATE").await.unwrap();
        for commits in [true, false] {
            let mut tx = Tx::new(b.begin().await.unwrap());
            tx.dialect = Some(Dialect::MySql);
            let row = Row::of("account").key("id", 1);
            let waits = row.lock(&mut tx, Lock::exclusive().within(Duration::from_secs(2)));
            tokio::time::timeout(Duration::from_millis(500), waits).await.unwrap_err();
            assert_eq!(if commits { tx.commit().await } else { tx.rollback().await }.is_err(), commits);
            let shown: Result<u64, _> = sqlx::query_scalar("SELECT @@innodb_lock_wait_timeout").fetch_one(&mut b).await;
            assert_eq!(shown.unwrap(), 7);
        }
    }
}
