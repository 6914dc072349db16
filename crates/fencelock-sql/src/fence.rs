//! Writes that only the newest holder of a lock can make.
//!
//! A lock can be lost while its holder is paused: then a new holder writes, and the old one, when it wakes, must not. Each write shows its
//! token, and the database keeps the highest with its owner: [`check`]. Where lock and data share a PostgreSQL, [`guard`] makes the lock
//! itself wait for the transaction, and needs no column.
use crate::{
    Connection, Dialect, Hold, Refused, Row, Transaction, Tx, Value, dialect::Statement, fault::STALE, tx::Step,
};
use fencelock_core::{Error, ErrorKind, Result, Token};

/// A token and whose it is: what a write shows. A guard is one: `&guard`.
///
/// ```
/// use fencelock_core::Token;
/// use fencelock_sql::fence::Stamp;
/// let stamp = Stamp::new(Token::new(7).unwrap(), "web-3");      // FENCELOCK_TOKEN of a job, say
/// assert_eq!(stamp, Stamp::from((Token::new(7).unwrap(), "web-3")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    token: Token,
    owner: String,
}
impl Stamp {
    /// Of a token and its owner: one name for each hold.
    ///
    /// ```
    /// # use fencelock_core::Token;
    /// let stamp = fencelock_sql::fence::Stamp::new(Token::new(7).unwrap(), "web-3");
    /// # let _ = stamp;
    /// ```
    pub fn new(token: Token, owner: impl Into<String>) -> Self {
        Self { token, owner: owner.into() }
    }
}
impl From<&Self> for Stamp {
    fn from(stamp: &Self) -> Self {
        stamp.clone()
    }
}

/// What is fenced: a name, which [`table`] has a row for, or a row of your own with columns for token and owner.
///
/// ```
/// use fencelock_sql::{Row, fence::Resource};
/// assert_eq!(Resource::from("orders/42"), Resource::Named("orders/42".into()));
/// let own = Resource::from(Row::of("orders").key("id", 42));
/// # let _ = own;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// In the table `fencelock_fence`.
    Named(String),
    /// In a row of yours.
    Row(Row),
}
impl From<&str> for Resource {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}
impl From<&String> for Resource {
    fn from(name: &String) -> Self {
        Self::Named(name.clone())
    }
}
impl From<String> for Resource {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}
impl From<Row> for Resource {
    fn from(row: Row) -> Self {
        Self::Row(row)
    }
}
impl From<&Row> for Resource {
    fn from(row: &Row) -> Self {
        Self::Row(row.clone())
    }
}

const CHECK: &str = "fence check";
const ONCE: &str = "where the table is missing, it is made once: by fence::create_table, or by whoever may with what fence::table says";

/// Writes token and owner, unless a newer token, or the same one of another owner, is there (SAFETY T5). Make it the first statement of the
/// transaction: its row lock lets one writer in at a time. Outside of a savepoint of your own: who rolls back to that takes the check back, too.
///
/// [`Refused::Stale`]: the lock was lost, and the transaction cannot be committed any more. [`Refused::Absent`]: the row of your own is not
/// there; a name is made when it is first met. A row that is deleted takes its fence with it: where a newer holder may have deleted it, whoever
/// inserts it anew is not stopped. Fence such rows by a name.
///
/// # Errors
/// `Conflict`: run the whole transaction again. `InvalidConfig`: no such table or column, a column that is too small for what is written, or
/// the key names several rows. After these the transaction is unusable.
///
/// # Cancel safety
/// Dropped half-way, it leaves the transaction unusable.
///
/// ```
/// # #[cfg(feature = "rusqlite")] {
/// # fencelock_sql::block_on(async {
/// # use fencelock_core::Token;
/// # use fencelock_sql::{Refused, Tx, fence};
/// # let mut db = rusqlite::Connection::open_in_memory().unwrap();
/// # let (older, newer) = (Token::new(7).unwrap(), Token::new(8).unwrap());
/// fence::create_table(&mut db).await.unwrap();
/// let mut tx = Tx::new(db.transaction().unwrap());
/// fence::check(&mut tx, "orders/42", (newer, "web-3")).await.unwrap().unwrap();       // or `&guard`
/// let refused = fence::check(&mut tx, "orders/42", (older, "web-2")).await.unwrap();
/// assert_eq!(refused, Err(Refused::Stale { token: 8, owner: Some("web-3".into()) }));
/// assert!(tx.commit().await.is_err());
/// # }) }
/// ```
pub async fn check<T: Transaction>(
    tx: &mut Tx<T>,
    resource: impl Into<Resource>,
    stamp: impl Into<Stamp>,
) -> Result<Result<(), Refused>> {
    let (resource, stamp) = (resource.into(), stamp.into());
    match &resource {
        Resource::Named(name) if name.is_empty() || name.len() > 512 || name.contains('\0') => {
            let error = Error::new(ErrorKind::InvalidName, CHECK, format!("{name:?} names no resource"));
            return Err(error.hint("use 1 to 512 bytes without NUL"));
        }
        Resource::Named(_) => {}
        Resource::Row(row) => row.check_one(CHECK, T::DIALECT)?,
    }
    let mut step = tx.enter(CHECK)?;
    let found = match &resource {
        Resource::Named(name) => named(&mut step, name, &stamp).await?,
        Resource::Row(row) => own(&mut step, row, &stamp).await?,
    };
    let refused = match found {
        Found::Written => return Ok(step.done(Ok(()))),
        Found::Nothing => return Ok(step.done(Err(Refused::Absent))),
        Found::Other { token, owner } => Refused::Stale { token, owner },
    };
    step.spoil(refused.clone().into());
    Ok(Err(refused))
}
enum Found {
    Written,
    Nothing,
    Other { token: i64, owner: Option<String> },
}

/// `token < mine OR token = mine AND owner = me`: what may be overwritten.
fn older(statement: &mut Statement, columns: (&str, &str), stamp: &Stamp) -> Result<()> {
    let dialect = statement.dialect;
    let quoted = |name| dialect.quoted(statement.operation, name);
    let (token, owner) = (quoted(columns.0)?, quoted(columns.1)?);
    let (number, bytes) = (dialect.number(&token), dialect.bytes(&owner));
    statement.text(&format!("({token} IS NULL OR {number} < ")).value(stamp.token);
    statement.text(&format!(" OR ({number} = ")).value(stamp.token);
    statement.text(&format!(" AND {bytes} = ")).value(&stamp.owner).text("))");
    Ok(())
}
async fn own<T: Transaction>(step: &mut Step<'_, T>, row: &Row, stamp: &Stamp) -> Result<Found> {
    let (token, owner) = row.fence();
    let mut statement = step.statement("UPDATE ").await?;
    statement.name(row.table())?.text(" SET ").name(token)?.text(" = ").value(stamp.token).text(", ");
    statement.name(owner)?.text(" = ").value(&stamp.owner).text(" WHERE ");
    row.condition(&mut statement)?;
    statement.text(" AND ");
    older(&mut statement, row.fence(), stamp)?;
    let written = match step.send(&statement).await?.affected {
        0 => false,
        1 => true,
        many => {
            let error = step.error(ErrorKind::InvalidConfig, format!("{row} is {many} rows"));
            return Err(step.spoil(error.hint("name one row by its key")));
        }
    };
    look(step, row, stamp, written).await
}
/// What is there now: a key may name a second row, which is newer and was not written, and what was written may have been made to fit the
/// column. On MySQL it is read under the row's lock, since its snapshot may be old, and what was there already counts as no change.
async fn look<T: Transaction>(step: &mut Step<'_, T>, row: &Row, stamp: &Stamp, written: bool) -> Result<Found> {
    let mut statement = step.statement("SELECT ").await?;
    let dialect = statement.dialect;
    let (token, owner) = (dialect.quoted(CHECK, row.fence().0)?, dialect.quoted(CHECK, row.fence().1)?);
    statement
        .text(&format!("{}, {} FROM ", dialect.read(&dialect.number(&token)), dialect.read(&owner)))
        .name(row.table())?
        .text(" WHERE ");
    row.condition(&mut statement)?;
    statement.text(if dialect.is_mysql() { " FOR UPDATE" } else { "" });
    let answer = step.send(&statement).await?;
    let [found] = answer.rows.as_slice() else {
        if answer.rows.is_empty() && written {
            let error = step.error(ErrorKind::InvalidConfig, format!("{row} is not found any more when it is written"));
            return Err(step.spoil(error.hint("name it by columns that the fence does not change")));
        }
        if answer.rows.is_empty() {
            return Ok(Found::Nothing);
        }
        let error = step.error(ErrorKind::InvalidConfig, format!("{row} is {} rows", answer.rows.len()));
        return Err(step.spoil(error.hint("name one row by its key")));
    };
    let (there, whose) = (found.first().and_then(Value::as_i64), found.get(1).and_then(Value::as_str));
    let mine = (Some(stamp.token.get()), Some(stamp.owner.as_str()));
    if (written || dialect.is_mysql()) && (there, whose) == mine {
        return Ok(Found::Written);
    }
    if written {
        let error = step.error(ErrorKind::InvalidConfig, format!("{row} does not keep the token and the owner"));
        return Err(step.spoil(error.hint("make the token a bigint, and the owner wide enough")));
    }
    match there {
        Some(token) if (there, whose) != mine && token >= stamp.token.get() => {
            Ok(Found::Other { token, owner: whose.map(str::to_owned) })
        }
        _ => Err(meanwhile(step)),
    }
}
/// Nothing was written, and nothing is in its way now: somebody has changed the row in between.
fn meanwhile<T: Transaction>(step: &mut Step<'_, T>) -> Error {
    let error = step.error(ErrorKind::Conflict, "the row was changed in the same moment");
    step.spoil(error.hint("roll back, and run the whole transaction again, from BEGIN"))
}
/// The table that [`table`] describes: a name is inserted, or its row changed, in one statement.
async fn named<T: Transaction>(step: &mut Step<'_, T>, name: &str, stamp: &Stamp) -> Result<Found> {
    let row = Row::of("fencelock_fence").key("resource", name).fence_columns("token", "owner");
    let mut statement = step.statement("INSERT INTO fencelock_fence (resource, token, owner) VALUES (").await?;
    statement.value(name).text(", ").value(stamp.token).text(", ").value(&stamp.owner).text(")");
    let mysql = statement.dialect.is_mysql();
    statement.text(if mysql {
        // Assigned from left to right: the owner is judged by the old token. The number of affected rows depends on how the driver has
        // connected.
        " ON DUPLICATE KEY UPDATE owner = IF(token < VALUES(token), VALUES(owner), owner), \
         token = GREATEST(token, VALUES(token))"
    } else {
        " ON CONFLICT (resource) DO UPDATE SET token = excluded.token, owner = excluded.owner \
         WHERE fencelock_fence.token < excluded.token \
         OR (fencelock_fence.token = excluded.token AND fencelock_fence.owner = excluded.owner)"
    });
    let sent = step.send(&statement).await;
    let sent = sent.map_err(|error| match error.kind() {
        ErrorKind::InvalidConfig => step.spoil(error.hint(ONCE)),
        _ => error,
    });
    if sent?.affected == 1 && !mysql {
        return Ok(Found::Written);
    }
    match look(step, &row, stamp, false).await? {
        Found::Nothing => Err(meanwhile(step)),
        found => Ok(found),
    }
}

/// The table of named resources, as SQL. Its rows stay: one that is deleted would let an old holder write again. It is the one that a session
/// finds without a schema (the search path on PostgreSQL, the database in use elsewhere): all who write to a resource have to find the same.
///
/// ```
/// use fencelock_sql::{Dialect, fence};
/// assert!(fence::table(Dialect::Postgres).starts_with("CREATE TABLE IF NOT EXISTS fencelock_fence"));
/// ```
pub const fn table(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => {
            "CREATE TABLE IF NOT EXISTS fencelock_fence (resource text COLLATE \"C\" PRIMARY KEY, token bigint NOT NULL, \
             owner text COLLATE \"C\" NOT NULL)"
        }
        Dialect::Sqlite => {
            "CREATE TABLE IF NOT EXISTS fencelock_fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL, \
             owner TEXT NOT NULL) WITHOUT ROWID"
        }
        // Their default collations take `a` and `A ` for the same.
        Dialect::MySql | Dialect::MariaDb => {
            "CREATE TABLE IF NOT EXISTS fencelock_fence (resource VARBINARY(512) PRIMARY KEY, token BIGINT NOT NULL, \
             owner VARBINARY(512) NOT NULL) ENGINE=InnoDB"
        }
    }
}
/// Creates the table of named resources if it is not there. Not within a transaction: MySQL would commit it.
///
/// # Errors
/// `PermissionDenied`: this role may not; give [`table`] to who may.
///
/// # Cancel safety
/// Dropped half-way, the table may be there.
///
/// ```
/// # #[cfg(feature = "rusqlite")] {
/// # let mut db = rusqlite::Connection::open_in_memory().unwrap();
/// fencelock_sql::block_on(fencelock_sql::fence::create_table(&mut db)).unwrap();
/// # }
/// ```
pub async fn create_table<C: Connection>(db: &mut C) -> Result<()> {
    let mut left = 5;
    loop {
        match db.say(table(C::DIALECT)).await {
            Ok(()) => return Ok(()),
            // PostgreSQL: those who create it in the same moment meet in its catalogue: at the table, its type, or a unique index.
            Err(fault) if left > 0 && matches!(fault.code.as_str(), "23505" | "42710" | "42P07") => left -= 1,
            Err(fault) => return Err(fault.told("create the table of fences")),
        }
    }
}
/// Triggers, as SQL, that refuse a lower token in a table, and the same one of another owner: also from who forgets to compare. (Who leaves
/// the columns as they are is not seen.) Each text is one statement; on MySQL and MariaDB a client like `mysql` wants another
/// `DELIMITER`.
///
/// # Errors
/// `InvalidConfig`: a name that nothing can have.
///
/// ```
/// use fencelock_sql::{Dialect, fence};
/// let sql = fence::triggers(Dialect::Sqlite, "orders", "fence_token", "fence_owner").unwrap();
/// assert!(sql[0].contains("CREATE TRIGGER"));
/// ```
pub fn triggers(dialect: Dialect, table: &str, token: &str, owner: &str) -> Result<Vec<String>> {
    const OPERATION: &str = "fence triggers";
    let quoted = |name: &str| dialect.quoted(OPERATION, name);
    // In the table's own schema, one for each pair of columns, and not longer than a name may be.
    let (schema, bare) = table.rsplit_once('.').map_or((None, table), |(schema, bare)| (Some(schema), bare));
    let short: String = bare.chars().take(12).collect();
    let trigger = format!("fencelock_{short}_{:08x}", crc32fast::hash(format!("{table}\0{token}\0{owner}").as_bytes()));
    let own = quoted(&schema.map_or_else(|| trigger.clone(), |schema| format!("{schema}.{trigger}")))?;
    let (bare_trigger, table, token, owner) = (quoted(&trigger)?, quoted(table)?, quoted(token)?, quoted(owner)?);
    let stale = STALE;
    let [new, old] = ["NEW", "OLD"].map(|row| dialect.number(&format!("{row}.{token}")));
    let [whose, before] = ["NEW", "OLD"].map(|row| dialect.bytes(&format!("{row}.{owner}")));
    let distinct = match dialect {
        Dialect::Postgres => format!("{whose} IS DISTINCT FROM {before}"),
        Dialect::Sqlite => format!("{whose} IS NOT {before}"),
        Dialect::MySql | Dialect::MariaDb => format!("NOT ({whose} <=> {before})"),
    };
    let refused =
        format!("OLD.{token} IS NOT NULL AND (NEW.{token} IS NULL OR {new} < {old} OR ({new} = {old} AND {distinct}))");
    // A quote of the function's text that is not in it.
    let quote = (0..).map(|n| format!("$f{n}$")).find(|quote| !refused.contains(quote)).unwrap_or_default();
    Ok(match dialect {
        Dialect::Postgres => vec![
            format!(
                "CREATE OR REPLACE FUNCTION {own}() RETURNS trigger LANGUAGE plpgsql AS {quote} BEGIN IF {refused} THEN \
                 RAISE EXCEPTION '{stale}' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END {quote}"
            ),
            format!("CREATE TRIGGER {bare_trigger} BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {own}()"),
        ],
        Dialect::Sqlite => vec![format!(
            "CREATE TRIGGER {own} BEFORE UPDATE ON {bare} FOR EACH ROW WHEN {refused} \
             BEGIN SELECT RAISE(ABORT, '{stale}'); END",
            bare = quoted(bare)?
        )],
        Dialect::MySql | Dialect::MariaDb => vec![format!(
            "CREATE TRIGGER {own} BEFORE UPDATE ON {table} FOR EACH ROW BEGIN IF {refused} THEN \
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{stale}'; END IF; END"
        )],
    })
}

/// Ties the transaction to a lock that is a lease in the same PostgreSQL (`strategy=lease`, which is the default): whoever is next gets the lock after this transaction has ended, even
/// when the lease runs out meanwhile; renewals go on. So what it writes is written by the holder, without a column. It is good for every
/// claim, also for readers and permits, whose tokens order nothing.
///
/// The first statement of the transaction is the place for it, outside of any savepoint of your own. [`Refused::Lost`]: the lease is over, and the transaction
/// cannot be committed any more. Who waits for the lock waits for your commit: keep it short, and let
/// `idle_in_transaction_session_timeout` end one whose client is gone. Commit before you release: the release of a reader's hold, or of permits, is
/// refused while the transaction keeps its row.
///
/// # Errors
/// `Unsupported` elsewhere, and for a lock that lives with a session of the server, which no row keeps: use [`check`]. One in ShedLock's table
/// is not found, so it is taken for lost. `Conflict` under `REPEATABLE READ` and `SERIALIZABLE`, where somebody else has had the lock since the
/// transaction began to read; there [`Refused::Lost`] also where the end of the lease that its snapshot shows is over, whatever renewals came since. `InvalidConfig`: the lock's tables are not in this schema.
///
/// # Cancel safety
/// Dropped half-way, it leaves the transaction unusable.
///
/// ```no_run
/// # #[cfg(feature = "tokio-postgres-0_7")]
/// # async fn pay(db: &mut tokio_postgres::Client, guard: &fencelock_core::Guard) -> Result<(), Box<dyn std::error::Error>> {
/// use fencelock_sql::{Tx, fence};
/// let mut tx = Tx::new(db.transaction().await?);
/// fence::guard(&mut tx, guard).await??;
/// tx.execute("UPDATE orders SET state = 'paid' WHERE id = 42", &[]).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub async fn guard<T: Transaction>(tx: &mut Tx<T>, hold: impl Into<Hold>) -> Result<Result<(), Refused>> {
    const OPERATION: &str = "guarded transaction";
    let hold = hold.into();
    if T::DIALECT != Dialect::Postgres {
        let what = "only PostgreSQL has a row lock that stops the next holder and lets renewals through";
        return Err(Error::new(ErrorKind::Unsupported, OPERATION, what).hint("use fence::check"));
    }
    let there =
        |table: &str| hold.schema.as_ref().map_or_else(|| table.to_owned(), |schema| format!("{schema}.{table}"));
    let table = there(if hold.alone { "fencelock_lock" } else { "fencelock_holder" });
    T::DIALECT.quoted(OPERATION, &table)?;
    let mut step = tx.enter(OPERATION)?;
    // The end is judged after the row is locked: that may have taken a while. What has a key is a session's.
    let key = if hold.alone { "key" } else { "NULL" };
    let begin = format!("WITH mine AS MATERIALIZED (SELECT until, {key} AS key FROM ");
    let end = " FOR KEY SHARE) SELECT CASE WHEN key IS NULL THEN (until > clock_timestamp())::text ELSE 'session' END FROM mine";
    let mut found = of(&mut step, [&begin, end], &table, &hold).await?;
    if found == "true" {
        return Ok(step.done(Ok(())));
    }
    if !hold.alone && found != "false" {
        found = of(&mut step, ["SELECT 'session' FROM ", ""], &there("fencelock_bearer"), &hold).await?;
    }
    if found == "session" {
        let error = Error::new(
            ErrorKind::Unsupported,
            OPERATION,
            "this lock lives with a session of the server, and no row keeps it",
        );
        let error = error.with("name", hold.name.as_str()).hint("take strategy=lease for it, or fence::check");
        return Err(step.spoil(error));
    }
    step.spoil(Refused::Lost.into());
    Ok(Err(Refused::Lost))
}
/// What is asked of this hold's row in this table.
async fn of<T: Transaction>(
    step: &mut Step<'_, T>,
    [begin, end]: [&str; 2],
    table: &str,
    hold: &Hold,
) -> Result<String> {
    let mut statement = step.statement(begin).await?;
    statement.name(table)?.text(" WHERE space = ").value(hold.namespace.clone());
    statement.text(" AND name = ").value(hold.name.as_str());
    statement.text(" AND hold = ").value(hold.id.to_string()).text(end);
    Ok(step.send(&statement).await?.text().to_owned())
}
