//! PostgreSQL's advisory locks, for the length of your transaction: they work behind a pooler, too.
//!
//! A key is a number, and everybody who uses the same number means the same lock: [`keys`](crate::keys) has those of other libraries.
use crate::{
    Dialect, Lock, Refused, Transaction, Tx, Value,
    keys::Key,
    lock::{Mode, Wait},
};
use fencelock_core::{Error, ErrorKind, Result};

/// Takes the advisory lock of this key until the transaction ends: `pg_advisory_xact_lock`. [`Lock::skip_locked`] is as
/// [`Lock::no_wait`], and [`Lock::no_key`] as [`Lock::exclusive`], here.
///
/// # Errors
/// `Unsupported` elsewhere than on PostgreSQL. `Conflict`: a deadlock; the transaction is unusable then.
///
/// # Cancel safety
/// Dropped half-way, it leaves the transaction unusable.
///
/// ```no_run
/// # #[cfg(feature = "tokio-postgres-0_7")]
/// # async fn migrate(db: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use fencelock_sql::{Lock, Refused, Tx, advisory, keys};
/// let mut tx = Tx::new(db.transaction().await?);
/// match advisory::lock(&mut tx, keys::fencelock("nightly"), Lock::exclusive().no_wait()).await? {
///     Ok(()) => tx.commit().await?,
///     Err(Refused::Busy) => println!("somebody else is at it"),
///     Err(other) => return Err(other.into()),
/// }
/// # Ok(()) }
/// ```
pub async fn lock<T: Transaction>(tx: &mut Tx<T>, key: Key, how: Lock) -> Result<Result<(), Refused>> {
    const OPERATION: &str = "advisory lock";
    if T::DIALECT != Dialect::Postgres {
        let what = "only PostgreSQL has advisory locks that end with the transaction";
        return Err(Error::new(ErrorKind::Unsupported, OPERATION, what).hint("lock a row of a table instead"));
    }
    let shared = if matches!(how.mode, Mode::Shared | Mode::KeyShared) { "_shared" } else { "" };
    let tries = matches!(how.wait, Wait::No | Wait::Skip);
    let mut step = tx.enter(OPERATION)?;
    let mut statement = step.statement("SELECT ").await?;
    statement.text(if tries { "pg_try_advisory_xact_lock" } else { "pg_advisory_xact_lock" }).text(shared).text("(");
    match key {
        Key::Int8(key) => statement.value(key).text("::int8"),
        Key::Int4s(first, second) => statement.value(first).text("::int4, ").value(second).text("::int4"),
    };
    statement.text(")::text");
    if tries {
        let got = step.send(&statement).await?.first().and_then(Value::as_str) == Some("true");
        return Ok(step.done(if got { Ok(()) } else { Err(Refused::Busy) }));
    }
    let answer = step.locking(&statement, how).await?;
    Ok(step.done(answer.map(drop)))
}
