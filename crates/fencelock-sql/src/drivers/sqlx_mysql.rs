//! `sqlx` 0.8 with MySQL and MariaDB.
use crate::{
    Dialect, Transaction, Value,
    door::{Answer, Door, Failure, Plain},
    fault::Fault,
};
use futures_util::{TryStreamExt, future::BoxFuture};
use sqlx::{
    Decode, Either, Error, Executor, MySql, MySqlConnection, Row, Type, ValueRef,
    mysql::{MySqlRow, MySqlValueRef},
};

impl Transaction for sqlx::Transaction<'_, MySql> {}
// In boxes: the compiler does not see that the driver's own futures are `Send` wherever ours are used.
#[allow(refining_impl_trait, reason = "that it is a box is nobody's business")]
impl Door for sqlx::Transaction<'_, MySql> {
    type Error = Error;
    const DIALECT: Dialect = Dialect::MySql;
    fn run<'a>(&'a mut self, sql: &'a str, values: &'a [Value]) -> BoxFuture<'a, Result<Answer, Error>> {
        Box::pin(async move {
            let query = values.iter().fold(sqlx::query(sql), |query, value| match value {
                Value::Null => query.bind(None::<i64>),
                Value::Bool(yes) => query.bind(*yes),
                Value::Int(n) => query.bind(*n),
                Value::Text(text) => query.bind(text),
                Value::Bytes(bytes) => query.bind(bytes),
            });
            let mut answer = Answer::default();
            let connection: &mut MySqlConnection = self;
            let mut results = connection.fetch_many(query);
            while let Some(result) = results.try_next().await? {
                match result {
                    Either::Left(done) => answer.affected += done.rows_affected(),
                    Either::Right(row) => answer.rows.push(ours(&row)?),
                }
            }
            Ok(answer)
        })
    }
    fn say<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        let connection: &mut MySqlConnection = self;
        // Without arguments it is one message, and nothing is prepared.
        Box::pin(async move { connection.execute(sql).await.map(drop) })
    }
    async fn commit(self) -> Result<(), Error> {
        self.commit().await
    }
    async fn rollback(self) -> Result<(), Error> {
        self.rollback().await
    }
}
impl crate::Connection for MySqlConnection {}
impl Plain for MySqlConnection {
    const DIALECT: Dialect = Dialect::MySql;
    async fn say(&mut self, sql: &str) -> Result<(), Fault> {
        self.execute(sql).await.map(drop).map_err(Failure::fault)
    }
}
fn ours(row: &MySqlRow) -> Result<Vec<Value>, Error> {
    (0..row.len()).map(|i| value(row.try_get_raw(i)?).map_err(Error::Decode)).collect()
}
fn value(raw: MySqlValueRef<'_>) -> Result<Value, sqlx::error::BoxDynError> {
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let of = raw.type_info().into_owned();
    if <i64 as Type<MySql>>::compatible(&of) {
        return <i64 as Decode<'_, MySql>>::decode(raw).map(Value::Int);
    }
    if <u64 as Type<MySql>>::compatible(&of) {
        let number = <u64 as Decode<'_, MySql>>::decode(raw)?;
        return Ok(i64::try_from(number).map_or_else(|_| Value::Text(number.to_string()), Value::Int));
    }
    if <Vec<u8> as Type<MySql>>::compatible(&of) || <String as Type<MySql>>::compatible(&of) {
        let bytes = <Vec<u8> as Decode<'_, MySql>>::decode(raw)?;
        return Ok(String::from_utf8(bytes).map_or_else(|e| Value::Bytes(e.into_bytes()), Value::Text));
    }
    Err(format!("a key of the type {of} cannot be read").into())
}
