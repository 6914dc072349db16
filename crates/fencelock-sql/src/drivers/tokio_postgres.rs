//! `tokio-postgres` 0.7.
use crate::{
    Dialect, Transaction, Value,
    door::{Answer, Door, Failure, Plain},
    fault::Fault,
    value::hex,
};
use bytes::BytesMut;
use futures_util::TryStreamExt;
use std::{error::Error as StdError, pin::pin};
use tokio_postgres::{
    Client, Error,
    types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked},
};

impl Transaction for tokio_postgres::Transaction<'_> {}
impl Door for tokio_postgres::Transaction<'_> {
    type Error = Error;
    const DIALECT: Dialect = Dialect::Postgres;
    async fn run(&mut self, sql: &str, values: &[Value]) -> Result<Answer, Error> {
        // Unnamed, in one round trip: a named statement may be another client's behind a pooler.
        let values = values.iter().map(|value| (Written(value), Type::UNKNOWN));
        let mut rows = pin!(self.query_typed_raw(sql, values).await?);
        let mut answer = Answer::default();
        while let Some(row) = rows.try_next().await? {
            let columns =
                (0..row.len()).map(|i| row.try_get::<_, Option<Read>>(i).map(|read| read.map(|read| read.0).into()));
            answer.rows.push(columns.collect::<Result<_, _>>()?);
        }
        answer.affected = rows.rows_affected().unwrap_or_default();
        Ok(answer)
    }
    async fn say(&mut self, sql: &str) -> Result<(), Error> {
        self.batch_execute(sql).await
    }
    async fn commit(self) -> Result<(), Error> {
        // After an error that nobody has looked at the server answers COMMIT with a rollback, and the driver calls that success: a
        // statement is refused then.
        self.batch_execute("SELECT 1").await?;
        self.commit().await
    }
    async fn rollback(self) -> Result<(), Error> {
        self.rollback().await
    }
}
impl crate::Connection for Client {}
impl Plain for Client {
    const DIALECT: Dialect = Dialect::Postgres;
    async fn say(&mut self, sql: &str) -> Result<(), Fault> {
        self.batch_execute(sql).await.map_err(Failure::fault)
    }
}
impl crate::DriverError for Error {}
impl Failure for Error {
    fn fault(self) -> Fault {
        let code = match (self.code(), self.is_closed()) {
            (Some(code), _) => code.code().to_owned(),
            (None, true) => String::new(),
            // Of the driver itself: a value that is no text, say.
            (None, false) if self.source().is_some_and(|source| source.is::<std::io::Error>()) => String::new(),
            (None, false) => "driver".to_owned(),
        };
        // The driver's own text says no more than that it was the database.
        let source = match self.as_db_error() {
            Some(error) => error.clone().into(),
            None => self.into(),
        };
        Fault { dialect: Dialect::Postgres, code, source }
    }
}

/// As a text that the server reads as whatever it wants there.
#[derive(Debug)]
struct Written<'a>(&'a Value);
impl ToSql for Written<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self.0 {
            Value::Null => return Ok(IsNull::Yes),
            Value::Bool(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
            Value::Int(n) => out.extend_from_slice(n.to_string().as_bytes()),
            Value::Text(text) => out.extend_from_slice(text.as_bytes()),
            Value::Bytes(bytes) => out.extend_from_slice(hex(bytes).as_bytes()),
        }
        Ok(IsNull::No)
    }
    fn accepts(_: &Type) -> bool {
        true
    }
    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }
    to_sql_checked!();
}

/// Each of our statements reads texts, and plans, which are JSON: that is sent as a text, too.
#[derive(Debug)]
struct Read(String);
impl<'a> FromSql<'a> for Read {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(String::from_utf8(raw.to_vec())?))
    }
    fn accepts(wanted: &Type) -> bool {
        [Type::TEXT, Type::JSON, Type::VARCHAR, Type::UNKNOWN].contains(wanted)
    }
}
