//! `mysql_async` 0.37.
use crate::{
    Dialect, Transaction, Value,
    door::{Answer, Door, Failure, Plain},
    fault::Fault,
};
use mysql_async::{Conn, Error, Params, Row, Value as Theirs, prelude::Queryable};

impl Transaction for mysql_async::Transaction<'_> {}
impl Door for mysql_async::Transaction<'_> {
    type Error = Error;
    const DIALECT: Dialect = Dialect::MySql;
    async fn run(&mut self, sql: &str, values: &[Value]) -> Result<Answer, Error> {
        let values: Vec<Theirs> = values.iter().map(theirs).collect();
        let params = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
        let mut result = self.exec_iter(sql, params).await?;
        let affected = result.affected_rows();
        let rows: Vec<Row> = result.collect().await?;
        result.drop_result().await?;
        let rows = rows.into_iter().map(|row| row.unwrap().into_iter().map(ours).collect()).collect();
        Ok(Answer { affected, rows })
    }
    async fn say(&mut self, sql: &str) -> Result<(), Error> {
        self.query_drop(sql).await
    }
    fn is_owed(&self) -> bool {
        self.is_disconnected()
    }
    async fn commit(self) -> Result<(), Error> {
        self.commit().await
    }
    async fn rollback(self) -> Result<(), Error> {
        self.rollback().await
    }
}
impl crate::Connection for Conn {}
impl Plain for Conn {
    const DIALECT: Dialect = Dialect::MySql;
    async fn say(&mut self, sql: &str) -> Result<(), Fault> {
        self.query_drop(sql).await.map_err(Failure::fault)
    }
}
impl crate::DriverError for Error {}
impl Failure for Error {
    fn fault(self) -> Fault {
        let code = match &self {
            Error::Server(server) => server.code.to_string(),
            Error::Io(_) => String::new(),
            Error::Driver(_) | Error::Other(_) | Error::Url(_) => "driver".to_owned(),
        };
        Fault { dialect: Dialect::MySql, code, source: self.into() }
    }
}
fn theirs(value: &Value) -> Theirs {
    match value {
        Value::Null => Theirs::NULL,
        Value::Bool(yes) => Theirs::Int((*yes).into()),
        Value::Int(n) => Theirs::Int(*n),
        Value::Text(text) => Theirs::Bytes(text.clone().into_bytes()),
        Value::Bytes(bytes) => Theirs::Bytes(bytes.clone()),
    }
}
fn ours(value: Theirs) -> Value {
    match value {
        Theirs::NULL => Value::Null,
        Theirs::Int(n) => Value::Int(n),
        Theirs::UInt(n) => i64::try_from(n).map_or_else(|_| Value::Text(n.to_string()), Value::Int),
        Theirs::Bytes(bytes) => String::from_utf8(bytes).map_or_else(|e| Value::Bytes(e.into_bytes()), Value::Text),
        // As it would stand in a statement, without the quotes.
        other => Value::Text(other.as_sql(true).trim_matches('\'').to_owned()),
    }
}
