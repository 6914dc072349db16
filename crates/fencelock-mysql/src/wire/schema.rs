//! The tables and procedures, and how they come into a database.

/// Of the tables and procedures together.
pub(crate) const VERSION: i64 = 1;
/// The server's clock, in µs since 1970; the session's time is UTC.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6))";

/// All of it, statement by statement, for a database that has nothing of it, or a part that somebody left half made: whoever reads
/// `fencelock_meta` and finds a version there finds everything.
pub(crate) fn script(store: &str) -> Vec<String> {
    let all = concat!(
        include_str!("sql/tables.sql"),
        include_str!("sql/common.sql"),
        include_str!("sql/queue.sql"),
        include_str!("sql/others.sql")
    )
    .replace("{now}", NOW);
    let mut statements = Vec::new();
    for statement in all.split("\n//\n").map(str::trim).filter(|statement| !statement.is_empty()) {
        if let Some(procedure) = procedure(statement) {
            statements.push(format!("DROP PROCEDURE IF EXISTS {procedure}"));
        }
        statements.push(statement.to_owned());
    }
    // The second row is the turn of those who clean up.
    statements.push(format!(
        "INSERT INTO fencelock_meta (one, version, store) VALUES (1, {VERSION}, X'{store}'), (2, {VERSION}, X'{store}')"
    ));
    statements
}
fn procedure(statement: &str) -> Option<&str> {
    let (_, after) = statement.split_once("CREATE PROCEDURE ")?;
    after.split('(').next()
}
