//! Whether an index leads to what is locked.
use crate::{Dialect, Transaction, Value, dialect::Statement, tx::Step};
use fencelock_core::Result;
use std::fmt;

/// No index leads to these rows. On MySQL and MariaDB under `REPEATABLE READ`, their default, the whole table is locked then, gaps included:
/// nobody else changes or inserts any row. Under `READ COMMITTED`, and on PostgreSQL, only these rows stay locked, but each such
/// statement reads the whole table, and a second one waits for whatever row the first has.
///
/// ```
/// fn is_told(locked: fencelock_sql::Locked) {
///     let Some(warning) = locked.warning else { return };
///     assert!(warning.to_string().contains(&warning.table));
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoIndex {
    /// Of which table.
    pub table: String,
    dialect: Dialect,
}
impl fmt::Display for NoIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.dialect {
            Dialect::Postgres | Dialect::Sqlite => "the whole table is read for each such lock",
            Dialect::MySql | Dialect::MariaDb => {
                "under REPEATABLE READ the whole table is locked, under READ COMMITTED it is read"
            }
        };
        write!(f, "no index of {} leads to these rows: {what}; create one on the columns of the condition", self.table)
    }
}

/// Asks for the plan. PostgreSQL is asked as if a scan of the whole table cost a fortune: what it then still scans no index leads to,
/// however small the table is today.
pub(crate) async fn look<T: Transaction>(
    step: &mut Step<'_, T>,
    table: &str,
    plain: &Statement,
) -> Result<Option<NoIndex>> {
    let found = Some(NoIndex { table: table.to_owned(), dialect: plain.dialect });
    match plain.dialect {
        Dialect::Postgres => {
            let sql = "SELECT current_setting('enable_seqscan'), set_config('enable_seqscan', 'off', true)";
            let before = step.run(sql, &[]).await?.first().cloned().unwrap_or(Value::Null);
            let sql = format!("EXPLAIN (FORMAT JSON, COSTS OFF) {}", plain.text);
            let plan = step.run(&sql, &plain.values).await?;
            step.run("SELECT set_config('enable_seqscan', $1, true)", &[before]).await?;
            // Quotes within a text of the plan are escaped: these are its own words.
            let leads = ["\"Index Cond\":", "\"TID Cond\":"].iter().any(|word| plan.text().contains(word));
            let nothing = plan.text().contains("\"One-Time Filter\":");
            Ok(if leads || nothing { None } else { found })
        }
        Dialect::MySql | Dialect::MariaDb => {
            let plan = match step.asked(&format!("EXPLAIN FORMAT=JSON {}", plain.text), &plain.values).await {
                Ok(plan) => plan,
                // A view, of whose tables this role may not know: no plan, and the lock is taken.
                Err(fault) if fault.code == "1345" => return Ok(None),
                Err(fault) => return Err(step.failed(fault)),
            };
            let all = ["\"access_type\": \"ALL\"", "\"access_type\": \"index\""];
            Ok(if all.iter().any(|word| plan.text().contains(word)) { found } else { None })
        }
        Dialect::Sqlite => Ok(None),
    }
}
