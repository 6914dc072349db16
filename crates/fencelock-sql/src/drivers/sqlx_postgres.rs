//! `sqlx` 0.8 with PostgreSQL, and its errors, which are those of MySQL, too.
use crate::{
    Dialect, Transaction, Value,
    door::{Answer, Door, Failure, Plain},
    fault::Fault,
};
use futures_util::{TryStreamExt, future::BoxFuture};
use sqlx::{
    Arguments, Either, Encode, Error, Executor, PgConnection, Postgres, Row, Statement, Type, ValueRef,
    encode::IsNull,
    error::BoxDynError,
    mysql::MySqlDatabaseError,
    postgres::{PgArgumentBuffer, PgArguments, PgDatabaseError, PgTypeInfo},
};

impl Transaction for sqlx::Transaction<'_, Postgres> {}
// In boxes: the compiler does not see that the driver's own futures are `Send` wherever ours are used.
#[allow(refining_impl_trait, reason = "that it is a box is nobody's business")]
impl Door for sqlx::Transaction<'_, Postgres> {
    type Error = Error;
    const DIALECT: Dialect = Dialect::Postgres;
    fn run<'a>(&'a mut self, sql: &'a str, values: &'a [Value]) -> BoxFuture<'a, Result<Answer, Error>> {
        Box::pin(async move {
            // This driver sends values in the binary form of their type, so the server is asked for it; the statement is kept.
            let connection: &mut PgConnection = self;
            let statement = connection.prepare(sql).await?;
            let types = match statement.parameters() {
                Some(Either::Left(types)) => types,
                _ => &[],
            };
            let mut arguments = PgArguments::default();
            for (value, of) in values.iter().zip(types) {
                arguments.add(Typed { value, of }).map_err(Error::Encode)?;
            }
            let mut answer = Answer::default();
            let mut results = connection.fetch_many(statement.query_with(arguments));
            while let Some(result) = results.try_next().await? {
                match result {
                    Either::Left(done) => answer.affected += done.rows_affected(),
                    Either::Right(row) => {
                        let columns = (0..row.len()).map(|i| {
                            // Each of our statements reads texts, and plans, which are JSON: that is sent as a text, too.
                            let raw = row.try_get_raw(i)?;
                            if raw.is_null() {
                                return Ok(Value::Null);
                            }
                            Ok(raw.as_str().map_err(Error::Decode)?.into())
                        });
                        answer.rows.push(columns.collect::<Result<_, Error>>()?);
                    }
                }
            }
            Ok(answer)
        })
    }
    fn say<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        let connection: &mut PgConnection = self;
        // Without arguments it is one message, and nothing is prepared.
        Box::pin(async move { connection.execute(sql).await.map(drop) })
    }
    async fn commit(mut self) -> Result<(), Error> {
        // After an error that nobody has looked at the server answers COMMIT with a rollback, and the driver calls that success: a
        // statement is refused then.
        Door::say(&mut self, "SELECT 1").await?;
        self.commit().await
    }
    async fn rollback(self) -> Result<(), Error> {
        self.rollback().await
    }
}
impl crate::Connection for PgConnection {}
impl Plain for PgConnection {
    const DIALECT: Dialect = Dialect::Postgres;
    async fn say(&mut self, sql: &str) -> Result<(), Fault> {
        self.execute(sql).await.map(drop).map_err(Failure::fault)
    }
}
impl crate::DriverError for Error {}
impl Failure for Error {
    fn fault(self) -> Fault {
        let of_mysql = |error: &dyn sqlx::error::DatabaseError| {
            error.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
        };
        let (dialect, code) = match &self {
            Self::Database(error) => match (of_mysql(&**error), error.try_downcast_ref::<PgDatabaseError>()) {
                (Some(number), _) => (Dialect::MySql, number.to_string()),
                (None, Some(error)) => (Dialect::Postgres, error.code().to_owned()),
                (None, None) => (Dialect::Postgres, "driver".to_owned()),
            },
            Self::Io(_) | Self::PoolClosed | Self::PoolTimedOut | Self::WorkerCrashed => {
                (Dialect::Postgres, String::new())
            }
            _ => (Dialect::Postgres, "driver".to_owned()),
        };
        Fault { dialect, code, source: self.into() }
    }
}

/// In the binary form of the type that the statement wants there.
struct Typed<'a> {
    value: &'a Value,
    of: &'a PgTypeInfo,
}
impl Type<Postgres> for Typed<'_> {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }
}
impl<'q> Encode<'q, Postgres> for Typed<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let Self { value, of } = self;
        if **value == Value::Null {
            return Ok(IsNull::Yes);
        }
        let name = sqlx::TypeInfo::name(*of);
        let other = || {
            format!(
                "{value} is wanted as a {name}, which is not sent so; write {{}}::text::{name} in a filter, or use the driver tokio-postgres"
            )
        };
        let number = || value.as_i64().ok_or_else(other);
        match (name, *value) {
            ("INT2", _) => buffer.extend_from_slice(&i16::try_from(number()?)?.to_be_bytes()),
            ("INT4", _) => buffer.extend_from_slice(&i32::try_from(number()?)?.to_be_bytes()),
            ("INT8", _) => buffer.extend_from_slice(&number()?.to_be_bytes()),
            ("BOOL", Value::Bool(yes)) => buffer.push(u8::from(*yes)),
            ("BYTEA", Value::Bytes(bytes)) => buffer.extend_from_slice(bytes),
            ("UUID", Value::Text(text)) => {
                let digits: String = text.chars().filter(|c| *c != '-').collect();
                let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32).ok_or_else(other)?;
                buffer.extend_from_slice(&number.to_be_bytes());
            }
            ("TEXT" | "VARCHAR" | "CHAR" | "NAME" | "UNKNOWN", Value::Text(text)) => {
                buffer.extend_from_slice(text.as_bytes())
            }
            ("TEXT" | "VARCHAR", Value::Int(number)) => buffer.extend_from_slice(number.to_string().as_bytes()),
            _ => return Err(other().into()),
        }
        Ok(IsNull::No)
    }
    fn produces(&self) -> Option<PgTypeInfo> {
        Some(self.of.clone())
    }
}
