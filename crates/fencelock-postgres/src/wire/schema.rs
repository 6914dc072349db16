//! The tables and functions, and how they come into a database.

/// Of the tables and functions together.
pub(crate) const VERSION: i64 = 2;
/// Whoever makes them does so alone.
pub(crate) const TURN: i64 = 7_378_697_629_484_716_394;

/// All of it, for a schema (with quotes) that has nothing of it yet.
pub(crate) fn script(schema: &str) -> String {
    let all = concat!(
        include_str!("sql/tables.sql"),
        include_str!("sql/session.sql"),
        include_str!("sql/common.sql"),
        include_str!("sql/queue.sql"),
        include_str!("sql/others.sql")
    );
    let first =
        format!("INSERT INTO {schema}.fencelock_meta (version, store) VALUES ({VERSION}, gen_random_uuid());\n");
    all.replace("{s}", schema) + &first
}
