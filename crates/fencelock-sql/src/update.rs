//! Optimistic writes: nobody waits, whoever was first wins.
use crate::{Refused, Row, Transaction, Tx, Value, tx::Step};
use fencelock_core::{ErrorKind, Result};

const OPERATION: &str = "versioned update";
const ONE: &str = "name one row by its key, and make the version a bigint that nobody else changes";

impl Row {
    /// Writes these columns if the row still has this version, and makes it the next one: `UPDATE … SET …, version = version + 1 WHERE … AND
    /// version = …`. The new version is the answer.
    ///
    /// [`Refused::Changed`]: somebody was first. Begin a new transaction to read again: under `REPEATABLE READ` the old one does
    /// not see what was written ([`Retry`](crate::Retry) does that). [`Refused::Absent`]: there is no such row.
    ///
    /// # Errors
    /// `Conflict`: a deadlock, or on PostgreSQL under `REPEATABLE READ` what is `Changed` elsewhere. `InvalidConfig`: the key names several
    /// rows, or the column does not keep the version (it is read back: two statements). After these the transaction is unusable.
    ///
    /// # Cancel safety
    /// Dropped half-way, it leaves the transaction unusable.
    ///
    /// ```
    /// # #[cfg(feature = "rusqlite")] {
    /// # fencelock_sql::block_on(async {
    /// # use fencelock_sql::{Refused, Row, Tx};
    /// # let mut db = rusqlite::Connection::open_in_memory().unwrap();
    /// # db.execute_batch("CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER, version INTEGER); INSERT INTO stock VALUES (42, 9, 1)").unwrap();
    /// let mut tx = Tx::new(db.transaction().unwrap());
    /// let stock = Row::of("stock").key("id", 42);
    /// assert_eq!(stock.update(&mut tx, 1, [("n", 8)]).await.unwrap(), Ok(2));
    /// assert_eq!(stock.update(&mut tx, 1, [("n", 7)]).await.unwrap(), Err(Refused::Changed));
    /// # }) }
    /// ```
    pub async fn update<T: Transaction, C: Into<String>, V: Into<Value>>(
        &self,
        tx: &mut Tx<T>,
        version: i64,
        columns: impl IntoIterator<Item = (C, V)>,
    ) -> Result<Result<i64, Refused>> {
        self.check_one(OPERATION, T::DIALECT)?;
        let columns: Vec<(String, Value)> = columns.into_iter().map(|(c, v)| (c.into(), v.into())).collect();
        columns.iter().try_for_each(|(column, _)| T::DIALECT.quoted(OPERATION, column).map(drop))?;
        let mut step = tx.enter(OPERATION)?;
        let mut statement = step.statement("UPDATE ").await?;
        statement.name(self.table())?.text(" SET ");
        for (column, value) in &columns {
            statement.name(column)?.text(" = ").value(value).text(", ");
        }
        statement.name(self.version())?.text(" = ").name(self.version())?.text(" + 1 WHERE ");
        self.condition(&mut statement)?;
        statement.text(" AND ").name(self.version())?.text(" = ").value(version);
        match step.send(&statement).await?.affected {
            0 => {}
            1 => return self.kept(step, version.saturating_add(1)).await.map(Ok),
            many => {
                let error = step.error(ErrorKind::InvalidConfig, format!("{self} is {many} rows"));
                return Err(step.spoil(error.hint(ONE)));
            }
        }
        // A locking read where the snapshot may be older than what is there.
        let dialect = statement.dialect;
        let mut look = step.statement("SELECT '1' FROM ").await?;
        look.name(self.table())?.text(" WHERE ");
        self.condition(&mut look)?;
        look.text(if dialect.is_mysql() { " LIMIT 1 FOR UPDATE" } else { " LIMIT 1" });
        let there = !step.send(&look).await?.rows.is_empty();
        Ok(step.done(Err(if there { Refused::Changed } else { Refused::Absent })))
    }
    /// One row was written: whether the key names another one, too, which is of another version, and whether the column has what it was given. A
    /// row that the condition does not name any more, once it is written, is not found.
    async fn kept<T: Transaction>(&self, mut step: Step<'_, T>, version: i64) -> Result<i64> {
        let mut look = step.statement("SELECT ").await?;
        let dialect = look.dialect;
        let column = dialect.read(&dialect.number(&dialect.quoted(OPERATION, self.version())?));
        look.text(&column).text(" FROM ").name(self.table())?.text(" WHERE ");
        self.condition(&mut look)?;
        look.text(" LIMIT 2");
        let rows = step.send(&look).await?.rows;
        if rows.len() < 2 && rows.iter().flatten().all(|there| there.as_i64() == Some(version)) {
            return Ok(step.done(version));
        }
        let what = format!("{self} is several rows, or does not keep the version {version}");
        let error = step.error(ErrorKind::InvalidConfig, what);
        Err(step.spoil(error.hint(ONE)))
    }
}
