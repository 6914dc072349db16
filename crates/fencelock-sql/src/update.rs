//! Optimistic writes: nobody waits, whoever was first wins.
use crate::{Refused, Row, Transaction, Tx, Value};
use fencelock_core::{ErrorKind, Result};

impl Row {
    /// Writes these columns if the row still has this version, and makes it the next one: `UPDATE … SET …, version = version + 1 WHERE … AND
    /// version = …`. The new version is the answer.
    ///
    /// [`Refused::Changed`]: somebody was first. Begin a new transaction to read again: under `REPEATABLE READ` the old one does
    /// not see what was written ([`Retry`](crate::Retry) does that). [`Refused::Absent`]: there is no such row.
    ///
    /// # Errors
    /// `Conflict`: a deadlock, or on PostgreSQL under `REPEATABLE READ` what is `Changed` elsewhere. `InvalidConfig`: the key names several
    /// rows. After these the transaction is unusable.
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
        const OPERATION: &str = "versioned update";
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
            1 => return Ok(step.done(Ok(version.saturating_add(1)))),
            0 => {}
            many => {
                let error = step.error(ErrorKind::InvalidConfig, format!("{self} is {many} rows"));
                return Err(step.spoil(error.hint("name one row by its key")));
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
}
