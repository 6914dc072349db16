//! The tables and procedures, and how they come into a database.
use std::sync::LazyLock;

/// Of the tables and procedures together.
pub(crate) const VERSION: i64 = 10;
/// Of what comes to them for locks that are shared with ShedLock.
pub(crate) const SHEDLOCK: i64 = 1;
/// Waits for whoever has locked one of the tables, and reads nothing: by their names, as `LOCK TABLES` takes them.
const TABLES: &str = "SELECT COUNT(*) INTO v_none FROM fencelock_bearer, fencelock_cell, fencelock_client, fencelock_holder, \
    fencelock_lock, fencelock_waiter, fencelock_write WHERE FALSE FOR UPDATE";
/// The server's clock, in µs since 1970; the session's time is UTC.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6))";
/// The named lock of whoever makes them: he does so alone.
pub(crate) const TURN: &str = "CONCAT('fencelock.', MD5(DATABASE()))";
/// Whether a client `c` is not known to be gone: nobody says by which session it shows that it lives, or that very session is there and has
/// the named lock. It is asked of the lock alone: whoever reads the list of all sessions has it made, and needs a right to see those of others.
const FELT: &str =
    "(c.pulse = 0 OR IS_USED_LOCK(CONCAT('fencelock.', IF(c.pulse > 0, HEX(c.client), -c.pulse))) <=> ABS(c.pulse))";
/// What the client that calls says of itself is so no more: that session is not there, or has that lock no more.
const LOST: &str = "p_pulse > 0 AND NOT (IS_USED_LOCK(CONCAT('fencelock.', HEX(p_client))) <=> p_pulse)";
/// Whatever the account's own is: no letter is replaced by another one without a word.
const MODE: &str = "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'";

/// All of it, statement by statement, for a database that has nothing of it, or a part that somebody left half made: whoever reads
/// `fencelock_meta` and finds a version there finds everything.
pub(crate) fn script() -> Vec<String> {
    let all = concat!(
        include_str!("sql/tables.sql"),
        include_str!("sql/common.sql"),
        include_str!("sql/queue.sql"),
        include_str!("sql/others.sql"),
        include_str!("sql/session.sql")
    )
    .replace("{now}", NOW)
    .replace("{tables}", TABLES)
    .replace("{felt}", FELT)
    .replace("{lost}", LOST);
    let mut statements = statements(&all, &comment());
    // The second row is the turn of those who clean up.
    let store = "UNHEX(REPLACE(UUID(), '-', ''))";
    statements.push(format!(
        "INSERT IGNORE INTO fencelock_meta (one, version, store) VALUES (1, {VERSION}, {store}), (2, {VERSION}, {store})"
    ));
    statements
}
/// How the names in a table of ShedLock are kept, and which of them are one: letters of two sorts cannot be compared.
pub(crate) struct Letters {
    pub(crate) set: String,
    pub(crate) sort: String,
}
impl Default for Letters {
    /// Of a table that we make: each name is one.
    fn default() -> Self {
        Self { set: "utf8mb4".to_owned(), sort: "utf8mb4_bin".to_owned() }
    }
}
/// By which a session reads each procedure that others call: a packet for those of locks, and one for those that may be there for ShedLock.
pub(crate) static READING: LazyLock<[String; 2]> = LazyLock::new(|| {
    [script(), shedlock(&Letters::default())].map(|script| {
        let called = |name: &&str| script.iter().any(|statement| statement.contains(&format!("CALL {name}(")));
        let names = script.iter().filter_map(|statement| procedure(statement)).filter(called);
        // Not by SHOW, which reads and keeps nothing.
        let mut all: Vec<_> = names.map(|name| format!("PREPARE fencelock FROM 'CALL {name}()'")).collect();
        all.push("DEALLOCATE PREPARE fencelock".to_owned());
        all.join("; ")
    })
});
/// What comes to it for locks that are shared with ShedLock.
pub(crate) fn shedlock(letters: &Letters) -> Vec<String> {
    let us = |column: &str, none: &str| {
        format!("COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', s.{column}), {none})")
    };
    // One without an end ends in the year 9999.
    let row = format!(
        "TRUE, {}, {}, COALESCE(LEFT(s.locked_by, 255), '') INTO l_found, l_until, l_at, l_by FROM shedlock s",
        us("lock_until", "253402300799000000"),
        us("locked_at", "0")
    );
    let sort = format!("CHARACTER SET {} COLLATE {}", letters.set, letters.sort);
    let all = include_str!("sql/shedlock.sql").replace("{now}", NOW).replace("{row}", &row);
    let all = all.replace("{name}", &format!("VARCHAR(512) {sort}")).replace("{letters}", &sort);
    let all = all.replace("{sort}", &letters.sort).replace("{version}", &SHEDLOCK.to_string());
    statements(&all, &shed_comment(letters))
}
/// What each procedure says of itself.
fn comment() -> String {
    format!("fencelock {VERSION}")
}
fn shed_comment(letters: &Letters) -> String {
    format!("fencelock {VERSION}.{SHEDLOCK} {}", letters.sort)
}
/// For the server's own terminal: makes what is missing, and changes nothing that is there. `letters`: where it is for ShedLock, too.
pub(crate) fn printed(letters: Option<&Letters>, made: &[String], grants: &[String]) -> String {
    let none = Letters::default();
    let sort = letters.unwrap_or(&none);
    let check = include_str!("sql/check.sql").replace("{turn}", TURN).replace("{version}", &VERSION.to_string());
    let check = check.replace("{shedlock}", if letters.is_some() { "TRUE" } else { "FALSE" });
    let check = check.replace("{comment}", &comment()).replace("{shed_comment}", &shed_comment(sort));
    let check = check.replace("{shed_version}", &SHEDLOCK.to_string()).replace("{sort}", &sort.sort);
    const DROP: &str = "DROP PROCEDURE IF EXISTS fencelock_check";
    let begin = ["SET NAMES utf8mb4", MODE, DROP, check.trim(), "CALL fencelock_check()", DROP];
    // MariaDB reads the one, MySQL the other.
    let missing = "CREATE PROCEDURE /*M!100103 IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ ";
    let made = made.iter().map(|statement| statement.replacen("CREATE PROCEDURE ", missing, 1));
    let all: Vec<String> = begin.into_iter().map(str::to_owned).chain(made).chain(grants.iter().cloned()).collect();
    format!("{}\n//\nDO RELEASE_LOCK({TURN})", all.join("\n//\n"))
}
/// What an account needs that only uses these, one right after the other. MariaDB, which alone reads what is behind `M!`, would make one
/// without a password where there is none of that name.
pub(crate) fn grants(statements: &[String], account: &str) -> Vec<String> {
    const MADE: &str = "/*M!100300 SET STATEMENT sql_mode = 'NO_AUTO_CREATE_USER' FOR */ ";
    let shrinks = |table: &str| {
        let words = |statement: &String| {
            let words: Vec<_> = statement.split_whitespace().collect();
            words.windows(3).any(|words| words == ["DELETE", "FROM", table])
        };
        statements.iter().any(words)
    };
    let grant = |statement: &String| {
        let right = match (procedure(statement), table(statement)) {
            (Some(procedure), _) => format!("EXECUTE ON PROCEDURE {procedure}"),
            (_, Some(table)) if shrinks(table) => format!("SELECT, INSERT, UPDATE, DELETE ON {table}"),
            (_, Some(table)) => format!("SELECT, INSERT, UPDATE ON {table}"),
            _ => return None,
        };
        Some(format!("{MADE}GRANT {right} TO {account}"))
    };
    statements.iter().filter_map(grant).collect()
}
fn statements(all: &str, comment: &str) -> Vec<String> {
    let said = format!("SQL SECURITY INVOKER COMMENT '{comment}'");
    let statements = all.split("\n//\n").map(str::trim).filter(|statement| !statement.is_empty());
    statements.map(|statement| statement.replacen("SQL SECURITY INVOKER", &said, 1)).collect()
}
pub(crate) fn procedure(statement: &str) -> Option<&str> {
    let (_, after) = statement.split_once("CREATE PROCEDURE ")?;
    after.split('(').next()
}
fn table(statement: &str) -> Option<&str> {
    let (_, after) = statement.split_once("CREATE TABLE IF NOT EXISTS ")?;
    after.split(' ').next()
}
