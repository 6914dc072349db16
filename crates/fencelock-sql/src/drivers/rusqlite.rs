//! `rusqlite`: its calls are done when they return, so nothing here waits.
use crate::{
    Dialect, Transaction, Value,
    door::{Answer, Door, Failure, Plain},
    fault::Fault,
};
use rusqlite::{
    Connection, DropBehavior, Error, params_from_iter,
    types::{Value as Theirs, ValueRef},
};

impl Transaction for rusqlite::Transaction<'_> {}
impl Door for rusqlite::Transaction<'_> {
    type Error = Error;
    const DIALECT: Dialect = Dialect::Sqlite;
    async fn run(&mut self, sql: &str, values: &[Value]) -> Result<Answer, Error> {
        let mut statement = self.prepare_cached(sql)?;
        let columns = statement.column_count();
        let values = params_from_iter(values.iter().map(theirs));
        if columns == 0 {
            let affected = u64::try_from(statement.execute(values)?).unwrap_or(u64::MAX);
            return Ok(Answer { affected, rows: Vec::new() });
        }
        let mut rows = statement.query(values)?;
        let mut answer = Answer::default();
        while let Some(row) = rows.next()? {
            let all = (0..columns).map(|i| row.get_ref(i).map(ours));
            answer.rows.push(all.collect::<Result<_, _>>()?);
        }
        Ok(answer)
    }
    async fn say(&mut self, sql: &str) -> Result<(), Error> {
        self.execute_batch(sql)
    }
    fn ended(&self) -> bool {
        self.is_autocommit()
    }
    fn undo_when_dropped(&mut self) {
        self.set_drop_behavior(DropBehavior::Rollback);
    }
    async fn commit(self) -> Result<(), Error> {
        self.commit()
    }
    async fn rollback(self) -> Result<(), Error> {
        self.rollback()
    }
}
impl crate::Connection for Connection {}
impl Plain for Connection {
    const DIALECT: Dialect = Dialect::Sqlite;
    async fn say(&mut self, sql: &str) -> Result<(), Fault> {
        self.execute_batch(sql).map_err(Failure::fault)
    }
}
impl crate::DriverError for Error {}
impl Failure for Error {
    fn fault(self) -> Fault {
        let error = match &self {
            Error::SqlInputError { error, .. } => Some(error),
            other => other.sqlite_error(),
        };
        let code = error.map_or_else(|| "driver".to_owned(), |error| error.extended_code.to_string());
        Fault { dialect: Dialect::Sqlite, code, source: self.into() }
    }
}
fn theirs(value: &Value) -> Theirs {
    match value {
        Value::Null => Theirs::Null,
        Value::Bool(yes) => Theirs::Integer((*yes).into()),
        Value::Int(n) => Theirs::Integer(*n),
        Value::Text(text) => Theirs::Text(text.clone()),
        Value::Bytes(bytes) => Theirs::Blob(bytes.clone()),
    }
}
fn ours(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(n) => Value::Int(n),
        ValueRef::Real(n) => Value::Text(n.to_string()),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}
