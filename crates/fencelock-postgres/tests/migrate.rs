//! A role that may use the tables and not make them.
//!
//! Planted to see them go red: grants without the functions.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/migrate.rs"]
mod stories;
use common::*;
use fencelock_core::{Admin, ErrorKind};
use fencelock_postgres::{Config, connect};
use fencelock_testkit::Postgres;
use std::{future::ready, io::Write, process::Stdio};

/// The engine's page.
const PAGE: &str = include_str!("../src/docs.md");
const ROLE: &str = "app";
/// None of them names one role.
const NOBODY: [&str; 2] = ["", "public"];

/// What is taken away, one at a time.
const RIGHTS: &[&str] = &[
    "ALL ON fencelock_lock FROM app",
    "UPDATE ON fencelock_lock FROM app",
    "ALL ON fencelock_holder FROM app",
    "ALL ON fencelock_waiter FROM app",
    "ALL ON fencelock_client FROM app",
    "ALL ON fencelock_bearer FROM app",
    "ALL ON fencelock_cell FROM app",
    "ALL ON fencelock_write FROM app",
    "ALL ON fencelock_meta FROM app",
    "EXECUTE ON FUNCTION fencelock_take FROM app",
];
/// The same of what is shared with ShedLock, whose rows need no others.
const SHARED: &[&str] = &[
    "ALL ON shedlock FROM app",
    "UPDATE ON shedlock FROM app",
    "ALL ON fencelock_shed FROM app",
    "ALL ON fencelock_meta FROM app",
    "EXECUTE ON FUNCTION fencelock_shed_acquire FROM app",
    "EXECUTE ON FUNCTION fencelock_shed_release FROM app",
];
/// How each strategy leaves nothing, and what it may be without.
const LEFT: [(&str, &str, &[&str]); 3] = [
    (
        "",
        "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE hold IS NOT NULL AND until > clock_timestamp()) \
         + (SELECT COUNT(*) FROM fencelock_holder WHERE until > clock_timestamp()) + (SELECT COUNT(*) FROM fencelock_waiter)",
        RIGHTS,
    ),
    ("?strategy=session", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", RIGHTS),
    (
        "?strategy=shedlock",
        "SELECT count(*) FROM shedlock WHERE lock_until > timezone('utc', clock_timestamp())",
        SHARED,
    ),
];

/// Nobody may do what he is not granted, and that is little.
fn start() -> Postgres {
    let server = Postgres::start();
    server.ask("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC");
    server.ask("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE app LOGIN; CREATE SCHEMA \"Locks\"");
    server
}
fn app(server: &Postgres, more: &str) -> String {
    server.url().replace("postgres@", "app@") + more
}
/// As `fencelock_sql::fence` makes them.
const FENCES: [&str; 5] = [
    "CREATE TABLE fencelock_fence (resource text PRIMARY KEY, token bigint NOT NULL, owner text NOT NULL)",
    "INSERT INTO fencelock_fence VALUES ('r', 7, 'o')",
    "CREATE TABLE orders (token bigint)",
    "CREATE FUNCTION fencelock_orders_1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TRIGGER fencelock_orders_1 BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION fencelock_orders_1()",
];
const FENCE_ROUTINES: &str = "fencelock_orders_1";
fn drop_by(server: &Postgres, block: &str) {
    server.ask(block);
}
/// By psql, as it comes.
fn by_hand(server: &Postgres, script: &str) -> bool {
    let mut psql = std::process::Command::new("psql");
    psql.args(["-X", "-q", "-h", "127.0.0.1", "-U", "postgres", "-p", &server.port().to_string(), "postgres"]);
    let mut child = psql.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // Whoever stops reads no more.
    let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
    child.wait().unwrap().success()
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_only_use_them() {
    let server = start();
    for more in ["", "?schema=Locks", "?strategy=shedlock", "?schema=Locks&strategy=shedlock", "?strategy=session"] {
        if more == "?schema=Locks&strategy=shedlock" {
            // A second table is nobody's wish but theirs who say so.
            server.ask("CREATE TABLE \"Locks\".shedlock (LIKE public.shedlock INCLUDING ALL)");
        }
        let config = Config::from_url(&app(&server, more)).unwrap();
        if more != "?strategy=session" {
            let error = connect(config).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{more}: {error}");
            assert!(error.to_string().contains("fencelock migrate"), "{error}");
        }
        let admin = Config::from_url(&(server.url() + more)).unwrap();
        // Twice does no harm.
        admin.migrate(Some(ROLE)).await.unwrap();
        admin.migrate(Some(ROLE)).await.unwrap();
        stories::everything(&app(&server, more)).await;
        let schema = if more.contains("Locks") { "\"Locks\"" } else { "public" };
        let drop = format!("SET ROLE app; DROP TABLE {schema}.fencelock_lock");
        assert!(!server.psql(&drop).output().unwrap().status.success(), "it may not change them");
        if more.contains("shedlock") {
            let may = format!("SELECT has_table_privilege('app', '{schema}.shedlock', 'DELETE')");
            assert_eq!(server.ask(&may), "f", "nobody needs that");
        }
    }
}
/// A sign of life that is refused for a while costs no session its holds. (Red: the first refusal ends it.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_may_not_say_that_it_lives() {
    let server = start();
    let config = Config::from_url(&(server.url() + "?strategy=session")).unwrap();
    config.migrate(Some(ROLE)).await.unwrap();
    let a = client(&app(&server, "?strategy=session")).await;
    let (ttl, patience) = (12 * SEC, 6 * SEC);
    let held = a.mutex("x").ttl(ttl).lock().await.unwrap();
    server.ask("REVOKE EXECUTE ON FUNCTION set_config(text, text, boolean) FROM PUBLIC");
    // A third of it goes by between two of them.
    eventually("it is not heard", || ready(held.remaining() < ttl - patience)).await;
    held.check().unwrap();
    server.ask("GRANT EXECUTE ON FUNCTION set_config(text, text, boolean) TO PUBLIC");
    eventually("it is heard again", || ready(held.remaining() > ttl - patience / 2 || !held.is_valid())).await;
    held.release().await.unwrap();
}
/// Somebody may make things in a schema of everybody's path, and has made an operator there that fits better than the server's: nobody runs
/// it. (Red: a function, or a look at the clock, that goes by the caller's path.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_have_made() {
    let server = Postgres::start();
    server.ask("CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory; CREATE SCHEMA \"Locks\"");
    server.ask(
        "SET ROLE mallory; CREATE TABLE trap (who text, did text); GRANT INSERT ON trap TO PUBLIC;
         CREATE FUNCTION times(numeric, integer) RETURNS numeric LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO public.trap VALUES (current_user, current_query()); RETURN $1 * $2::numeric; END $$;
         CREATE OPERATOR * (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = times)",
    );
    for way in ["schema=Locks", "schema=Locks&strategy=session&namespace=s"] {
        stories::everything(&(server.url() + "?" + way)).await;
        let clean = "SELECT \"Locks\".fencelock_reap(), \"Locks\".fencelock_clean(0)";
        server.ask(clean);
    }
    assert_eq!(server.ask("SELECT DISTINCT who, did FROM trap"), "");
    // It would have.
    server.ask("SELECT 1.5 * 2");
    assert_eq!(server.ask("SELECT count(*) FROM trap"), "1");
}
/// What is printed is what is made. (Red: a column more in one of them.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_printed_is_what_is_made() {
    let server = start();
    let config = |schema: &str| {
        let url = format!("{}?strategy=shedlock&schema={schema}", server.url());
        Config::from_url(&url).unwrap()
    };
    let printed = config("Locks").schema(None).await.unwrap();
    assert!(by_hand(&server, &printed));
    let all = |schema: &str| {
        let columns = "SELECT table_name, column_name, data_type, column_default, is_nullable FROM information_schema.columns \
                       WHERE table_schema = '{}' ORDER BY 1, 2";
        let functions = "SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
                         WHERE n.nspname = '{}' ORDER BY proname";
        let indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = '{}' ORDER BY indexname";
        [columns, functions, indexes].map(|ask| server.ask(&ask.replace("{}", schema)))
    };
    let printed = all("Locks");
    server.ask("DROP SCHEMA \"Locks\" CASCADE; CREATE SCHEMA \"Others\"");
    config("Others").migrate(None).await.unwrap();
    let made = all("Others");
    for (printed, made) in printed.iter().zip(&made) {
        assert!(!made.is_empty());
        assert_eq!(printed.replace("\"Locks\"", "\"Others\""), *made);
    }
}
/// Whoever uses tables that are there need not be able to read the catalog. (Red: the tables looked for in it with each connect.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catalog_that_is_not_for_everybody() {
    let server = start();
    Config::from_url(&server.url()).unwrap().migrate(Some(ROLE)).await.unwrap();
    server.ask("REVOKE SELECT ON pg_catalog.pg_class FROM PUBLIC");
    for query in ["", "?strategy=session"] {
        let ours = client(&app(&server, query)).await;
        ours.mutex("x").lock().await.unwrap().release().await.unwrap();
    }
}
/// Whatever is asked for a lock, its rows are found by an index, also by those whose server has planned it when the tables were next to empty.
/// Nor is a lock found by the tokens of all its grants. (Red: without saying so; a table without a condition that an index knows; a key of both
/// name and token.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_table_is_read_as_a_whole() {
    let server = Postgres::with(&[
        "shared_preload_libraries=auto_explain",
        "auto_explain.log_min_duration=0",
        "auto_explain.log_nested_statements=on",
        "log_line_prefix=%a|",
        "autovacuum=off",
    ]);
    for (first, query) in [
        ("", "?namespace=new"),
        ("?strategy=session", "?strategy=session&namespace=new"),
        ("?strategy=shedlock", "?strategy=shedlock"),
    ] {
        stories::everything(&(server.url() + first)).await;
        if first.contains("shedlock") {
            server.ask("DELETE FROM shedlock");
        }
        server.ask("VACUUM ANALYZE");
        let log = || std::fs::read_to_string(server.folder().path().join("log")).unwrap();
        let before = log().len();
        stories::everything(&(server.url() + query)).await;
        let log = log()[before..].to_owned();
        let plans: Vec<_> = log.split("fencelock|").filter(|said| said.contains("Query Text: ")).collect();
        assert!(plans.iter().any(|plan| plan.contains("Index Scan using")), "{query}");
        // But for what cleans up, what lists, and what is asked when a client connects.
        const OTHERS: [&str; 8] = [
            "LIMIT 1000",
            "p_retention",
            "ctid = ANY (",
            "fencelock_used(",
            "SELECT l.hold IS NOT NULL",
            "starts_with(",
            "SELECT store",
            "FROM \"public\".fencelock_meta)",
        ];
        let whole = plans.iter().find(|plan| {
            ["Seq Scan on fencelock_", "Seq Scan on shedlock", "fencelock_lock_fence"]
                .iter()
                .any(|scan| plan.contains(scan))
                && !OTHERS.iter().any(|other| plan.contains(other))
        });
        assert_eq!(whole, None, "{query}");
        assert!(!log.contains("JIT:"), "{query}");
    }
}
