//! An account that may use the tables and not make them.
//!
//! Planted to see them go red: grants without the procedures.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/migrate.rs"]
mod stories;
use common::*;
use fencelock_core::{Admin, ErrorKind};
use fencelock_mysql::{Config, connect};
use fencelock_testkit::MariaDb;
use std::{future::ready, io::Write as _, process::Stdio};

/// The engine's page.
const PAGE: &str = include_str!("../src/docs.md");
const ROLE: &str = "app@127.0.0.1";
/// None of them names one account.
const NOBODY: [&str; 3] = ["", "@127.0.0.1", "app@"];

/// What is taken away, one at a time.
const RIGHTS: &[&str] = &[
    "ALL ON fencelock_lock FROM app@'127.0.0.1'",
    "UPDATE ON fencelock_lock FROM app@'127.0.0.1'",
    "ALL ON fencelock_holder FROM app@'127.0.0.1'",
    "ALL ON fencelock_waiter FROM app@'127.0.0.1'",
    "ALL ON fencelock_client FROM app@'127.0.0.1'",
    "ALL ON fencelock_bearer FROM app@'127.0.0.1'",
    "ALL ON fencelock_cell FROM app@'127.0.0.1'",
    "ALL ON fencelock_write FROM app@'127.0.0.1'",
    "ALL ON fencelock_meta FROM app@'127.0.0.1'",
    "ALL ON fencelock_asked FROM app@'127.0.0.1'",
    "EXECUTE ON PROCEDURE fencelock_ready FROM app@'127.0.0.1'",
];
/// The same of what is shared with ShedLock, whose rows need no others.
const SHARED: &[&str] = &[
    "ALL ON shedlock FROM app@'127.0.0.1'",
    "UPDATE ON shedlock FROM app@'127.0.0.1'",
    "ALL ON fencelock_shed FROM app@'127.0.0.1'",
    "ALL ON fencelock_meta FROM app@'127.0.0.1'",
    "EXECUTE ON PROCEDURE fencelock_shed_acquire FROM app@'127.0.0.1'",
    "EXECUTE ON PROCEDURE fencelock_shed_end FROM app@'127.0.0.1'",
];
/// How each strategy leaves nothing, and what it may be without.
const LEFT: [(&str, &str, &[&str]); 3] = [
    (
        "",
        "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE hold IS NOT NULL AND ends > \
         TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + (SELECT COUNT(*) FROM fencelock_holder WHERE ends > \
         TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + (SELECT COUNT(*) FROM fencelock_waiter)",
        RIGHTS,
    ),
    (
        "?strategy=session",
        "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE IS_USED_LOCK(named) IS NOT NULL) \
         + (SELECT COUNT(*) FROM fencelock_bearer WHERE name IS NOT NULL)",
        RIGHTS,
    ),
    ("?strategy=shedlock", "SELECT COUNT(*) FROM shedlock WHERE lock_until > UTC_TIMESTAMP(3)", SHARED),
];

/// An account that may look at one table.
fn start() -> MariaDb {
    let server = MariaDb::start();
    server.ask("CREATE TABLE other (n int); CREATE USER app@'127.0.0.1'; GRANT SELECT ON other TO app@'127.0.0.1'");
    server
}
fn app(server: &MariaDb, more: &str) -> String {
    server.url().replace("root@", "app@") + more
}
/// What prints statements; they are run.
/// As `fencelock_sql::fence` makes them.
const FENCES: [&str; 4] = [
    "CREATE TABLE fencelock_fence (resource VARBINARY(512) PRIMARY KEY, token BIGINT NOT NULL, owner VARBINARY(512) NOT NULL)",
    "INSERT INTO fencelock_fence VALUES ('r', 7, 'o')",
    "CREATE TABLE orders (token BIGINT)",
    "CREATE TRIGGER fencelock_orders_1 BEFORE UPDATE ON orders FOR EACH ROW SET NEW.token = 1",
];
const FENCE_ROUTINES: &str = "";
fn drop_by(server: &MariaDb, prints: &str) {
    server.ask(&server.ask(prints));
}
/// What is printed is what is made, whatever the terminal's own mode. (Red: with the comments, which the terminal takes out.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_printed_is_what_is_made() {
    let server = MariaDb::with(&["--sql-mode=ANSI,NO_BACKSLASH_ESCAPES"]);
    let config = Config::from_url(&(server.url() + "?strategy=shedlock")).unwrap();
    let ours = [
        "table_name, engine, row_format, table_collation FROM information_schema.tables WHERE table_schema",
        "table_name, column_name, column_type, column_default, is_nullable, collation_name, extra \
         FROM information_schema.columns WHERE table_schema",
        "table_name, index_name, seq_in_index, column_name, non_unique FROM information_schema.statistics WHERE table_schema",
        // The terminal takes comments out.
        r"routine_name, REGEXP_REPLACE(REGEXP_REPLACE(routine_definition, '-- [^\n]*', ''), '\s+', ' '), sql_data_access,
         security_type, sql_mode, routine_comment FROM information_schema.routines WHERE routine_schema",
        "specific_name, ordinal_position, parameter_mode, parameter_name, dtd_identifier \
         FROM information_schema.parameters WHERE specific_schema",
    ];
    let all = || ours.map(|what| server.ask(&format!("SELECT {what} = 'test' ORDER BY 1, 2, 3")));
    let printed = config.schema(None).await.unwrap();
    let mut terminal = server.client("source /dev/stdin");
    let mut terminal = terminal.stdin(Stdio::piped()).spawn().unwrap();
    terminal.stdin.take().unwrap().write_all(printed.as_bytes()).unwrap();
    assert!(terminal.wait().unwrap().success());
    let printed = all();
    server.ask("DROP DATABASE test; CREATE DATABASE test");
    config.migrate(None).await.unwrap();
    for ((printed, made), what) in printed.iter().zip(all()).zip(ours) {
        assert!(!made.is_empty(), "{what}");
        assert_eq!(*printed, made, "{what}");
    }
}
/// A sign of life that is refused for a while costs no session its holds. (Red: the first refusal ends it.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_may_not_say_that_it_lives() {
    let server = start();
    let admin = Config::from_url(&(server.url() + "?strategy=session")).unwrap();
    admin.migrate(Some(ROLE)).await.unwrap();
    let a = client(&app(&server, "?strategy=session")).await;
    let (ttl, patience) = (60 * SEC, 3 * SEC);
    let held = a.mutex("x").ttl(ttl).lock().await.unwrap();
    server.ask("REVOKE EXECUTE ON PROCEDURE fencelock_ready FROM app@'127.0.0.1'");
    eventually("it is not heard", || ready(held.remaining() < ttl - patience)).await;
    held.check().unwrap();
    admin.migrate(Some(ROLE)).await.unwrap();
    eventually("it is heard again", || ready(held.remaining() > ttl - patience / 2)).await;
    held.release().await.unwrap();
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_may_only_use_them() {
    for more in ["", "?doorbell=on", "?strategy=session", "?strategy=shedlock"] {
        // What was granted for one is there for another.
        let server = start();
        let config = Config::from_url(&app(&server, more)).unwrap();
        let error = connect(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{more}: {error}");
        assert!(error.to_string().contains("fencelock migrate"), "{error}");
        let admin = Config::from_url(&(server.url() + more)).unwrap();
        // Twice does no harm.
        admin.migrate(Some(ROLE)).await.unwrap();
        admin.migrate(Some(ROLE)).await.unwrap();
        stories::everything(&app(&server, more)).await;
        let rights = server.ask("SHOW GRANTS FOR app@'127.0.0.1'");
        assert!(!rights.contains("CREATE") && !rights.contains("ALTER") && !rights.contains("DROP"), "{rights}");
        for line in rights.lines().filter(|line| line.contains("shed") && line.contains("INSERT")) {
            assert!(!line.contains("DELETE"), "nobody needs that: {line}");
        }
    }
}
