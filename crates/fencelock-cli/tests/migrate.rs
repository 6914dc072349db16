//! `fencelock migrate`: what is printed, run by the database's own terminal, is all that a role needs which may create nothing.
//!
//! Planted to see it go red: `--run` that only prints.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock_testkit::{MariaDb, Postgres};
use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

fn fencelock(url: &str, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencelock"));
    let out = command.args(words).env("FENCELOCK_URL", url).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
}
/// A terminal that is given a script, without the statement at the end of its words.
fn given(mut terminal: Command, program: &str, script: &str) -> Output {
    let mut words: Vec<_> = terminal.get_args().map(ToOwned::to_owned).collect();
    words.truncate(words.len() - 2);
    terminal = Command::new(program);
    let mut child =
        terminal.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Whoever stops reads no more.
    let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
    child.wait_with_output().unwrap()
}
/// What it says of why it broke off.
fn said(done: &Output) -> Result<(), String> {
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}
/// As it comes: what psql stops at, the script itself says.
fn by_hand(server: &Postgres, script: &str) -> Result<(), String> {
    let mut words: Vec<_> = server.psql("").get_args().map(ToOwned::to_owned).collect();
    words.retain(|word| word != "-v" && word != "ON_ERROR_STOP=1");
    let mut psql = Command::new("psql");
    psql.args(words);
    said(&given(psql, "psql", script))
}
/// Nothing is there, and the way out is told.
fn is_refused(url: &str) {
    let (code, out, err) = fencelock(url, &["run", "job", "--", "true"]);
    assert_eq!((code, out.as_str()), (78, ""), "{err}");
    assert!(err.contains("fencelock migrate") && err.contains("may not make them"), "{err}");
}
/// Every mode of a run, and what operators do.
fn works(url: &str, modes: &[&[&str]]) {
    for mode in modes {
        let name = mode.first().map_or("job", |mode| mode.trim_start_matches('-'));
        let words = [&["run"], *mode, &[name, "--", "sh", "-c", "test -n \"$FENCELOCK_HOLD\""]].concat();
        let (code, _, err) = fencelock(url, &words);
        assert_eq!(code, 0, "{mode:?}: {err}");
    }
    assert_eq!(fencelock(url, &["status", "job"]).1, "free\n");
    assert_eq!(fencelock(url, &["list"]), (0, String::new(), String::new()));
}
const MODES: &[&[&str]] = &[&[], &["-s"], &["--write"], &["--permits", "1/2"]];

#[test]
fn postgres() {
    let server = Postgres::start();
    server.ask(
        "CREATE ROLE app LOGIN; CREATE SCHEMA locks; ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC",
    );
    let app = server.url().replace("postgres@", "app@");
    is_refused(&app);
    // By hand, in the schema that the role itself would find.
    let (code, script, err) = fencelock(&app, &["migrate", "--role", "app"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for _ in 0..2 {
        by_hand(&server, &script).unwrap();
    }
    works(&app, MODES);
    works(&format!("{app}?strategy=session"), &MODES[..3]);
    // By itself, with ShedLock's table, in another schema.
    let more = "?schema=locks&strategy=shedlock";
    let (code, out, err) = fencelock(&(server.url() + more), &["migrate", "--run", "--role", "app"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", "fencelock: the schema is there\n"));
    works(&format!("{app}{more}"), &MODES[..1]);
    assert_eq!(server.ask("SELECT count(*) FROM locks.shedlock"), "1");
    let (code, _, err) = fencelock(&server.url(), &["migrate", "--run", "--role", "nobody"]);
    assert!(code == 78 && err.contains("no such role"), "{code} {err}");
}

#[test]
fn mariadb() {
    let server = MariaDb::start();
    server.ask("CREATE TABLE other (n int); CREATE USER app@'127.0.0.1'; GRANT SELECT ON other TO app@'127.0.0.1'");
    let app = server.url().replace("root@", "app@");
    is_refused(&app);
    // Nobody is asked for what is printed.
    let nowhere = format!("mysql://app@127.0.0.1:{}/test", fencelock_testkit::Port::free());
    let (code, script, err) = fencelock(&nowhere, &["migrate", "--role", "app@127.0.0.1"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for _ in 0..2 {
        said(&given(server.client(""), "mariadb", &script)).unwrap();
    }
    works(&app, MODES);
    let shedlock = server.url() + "?strategy=shedlock";
    let (code, out, err) = fencelock(&shedlock, &["migrate", "--run", "--role", "app@127.0.0.1"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", "fencelock: the schema is there\n"));
    works(&format!("{app}?strategy=shedlock"), &MODES[..1]);
    assert_eq!(server.ask("SELECT count(*) FROM shedlock"), "1");
    let (code, _, err) = fencelock(&shedlock, &["migrate", "--run", "--role", "nobody"]);
    assert!(code == 78 && err.contains("no such account"), "{code} {err}");
    assert_eq!(server.ask("SELECT count(*) FROM mysql.user WHERE user = 'nobody'"), "0");
}

/// What is printed adds what is missing to what is there, and takes nothing away; another version is left alone as a whole. (Red: a script
/// that stops where something is there.)
#[test]
fn postgres_that_is_there() {
    let server = Postgres::start();
    server.ask(
        "CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; CREATE ROLE third; ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC",
    );
    let of = |role: &str| server.url().replace("postgres@", &format!("{role}@"));
    let printed = |more: &str, role: &str| fencelock(&(server.url() + more), &["migrate", "--role", role]).1;
    assert_eq!(fencelock(&server.url(), &["migrate", "--run", "--role", "app"]).0, 0);
    for _ in 0..2 {
        by_hand(&server, &printed("", "other")).unwrap();
        by_hand(&server, &printed("?strategy=shedlock", "other")).unwrap();
    }
    works(&of("app"), MODES);
    works(&of("other"), MODES);
    works(&format!("{}?strategy=shedlock", of("other")), &MODES[..1]);
    // Somebody else's table.
    server.ask("CREATE SCHEMA fleet; ALTER TABLE shedlock SET SCHEMA fleet; UPDATE fencelock_meta SET shed = NULL");
    let said = by_hand(&server, &printed("?strategy=shedlock", "third")).unwrap_err();
    assert!(said.contains("shedlock is in the schema fleet"), "{said}");
    server.ask("UPDATE fencelock_meta SET version = 2");
    let said = by_hand(&server, &printed("?strategy=shedlock", "third")).unwrap_err();
    assert!(said.contains("the tables are of version 2, and this is version"), "{said}");
    assert_eq!(
        server.ask("SELECT to_regclass('shedlock') IS NULL, has_table_privilege('third', 'fencelock_lock', 'SELECT')"),
        "t\tf"
    );
}
/// As there. (Red: procedures that are made anew, without the rights on them.)
#[test]
fn mariadb_that_is_there() {
    let server = MariaDb::start();
    server.ask("CREATE USER app@'127.0.0.1'; CREATE USER other@'127.0.0.1'; CREATE USER third@'127.0.0.1'");
    let of = |role: &str| server.url().replace("root@", &format!("{role}@"));
    let printed = |more: &str, role: &str| {
        fencelock(&(server.url() + more), &["migrate", "--role", &format!("{role}@127.0.0.1")]).1
    };
    let by_hand = |script: &str| said(&given(server.client(""), "mariadb", script));
    assert_eq!(fencelock(&server.url(), &["migrate", "--run", "--role", "app@127.0.0.1"]).0, 0);
    let made =
        || server.ask("SELECT MIN(created) FROM information_schema.routines WHERE routine_name LIKE 'fencelock%'");
    let first = made();
    for _ in 0..2 {
        by_hand(&printed("", "other")).unwrap();
        by_hand(&printed("?strategy=shedlock", "other")).unwrap();
    }
    assert_eq!(made(), first);
    works(&of("app"), MODES);
    works(&of("other"), MODES);
    works(&format!("{}?strategy=shedlock", of("other")), &MODES[..1]);
    // It was printed for another table.
    let script = printed("?strategy=shedlock", "third");
    server.ask("UPDATE fencelock_meta SET shed = NULL; ALTER TABLE shedlock MODIFY name VARCHAR(64) COLLATE utf8mb4_general_ci NOT NULL");
    let why = by_hand(&script).unwrap_err();
    assert!(why.contains("shedlock.name is utf8mb4_general_ci, and this utf8mb4_bin"), "{why}");
    // That of no whole store, and another one.
    server.ask("DROP PROCEDURE fencelock_ready; CREATE PROCEDURE fencelock_ready() SELECT 1");
    let why = by_hand(&script).unwrap_err();
    assert!(why.contains("procedures fencelock_* of another version"), "{why}");
    server.ask("UPDATE fencelock_meta SET version = 2; DROP TABLE fencelock_write");
    let why = by_hand(&script).unwrap_err();
    assert!(why.contains("are of version 2, and this is version"), "{why}");
    assert_eq!(server.ask("SHOW TABLES LIKE 'fencelock_write'"), "");
    assert_eq!(server.ask("SHOW GRANTS FOR third@'127.0.0.1'").lines().count(), 1);
}

#[test]
fn others_need_none() {
    for url in ["sqlite:/nowhere/locks.db", "redis://127.0.0.1:1", "memory:"] {
        let (code, out, err) = fencelock(url, &["migrate"]);
        assert_eq!((code, out.as_str()), (0, ""));
        assert!(err.contains("needs no schema"), "{err}");
    }
    assert_eq!(fencelock("tikv://h", &["migrate"]).0, 78);
}
/// What means something to SQL, or to a terminal that reads it.
const ODD: [&str; 8] = [
    "o'neil \"the\" 3rd",
    "a`; DROP TABLE other; -- ",
    "a\"; DROP TABLE other; -- ",
    "a//b",
    "a\\",
    "a\nb",
    "räume %s $1 :x",
    "-- /*",
];
/// A role is a name, whatever it is made of: by hand, and by itself. (Red: quotes of a name as they are.)
#[test]
fn postgres_roles_of_odd_names() {
    let server = Postgres::start();
    server.ask("CREATE TABLE other (n int); ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC");
    let may = |role: &str| {
        let role = role.replace('\'', "''");
        server
            .ask(&format!("SELECT has_table_privilege(E'{}', 'fencelock_lock', 'UPDATE')", role.replace('\\', "\\\\")))
    };
    for role in ODD {
        let [one, other] = ["1", "2"].map(|n| format!("{role}{n}"));
        for role in [&one, &other] {
            server.ask(&format!("CREATE ROLE \"{}\"", role.replace('"', "\"\"")));
        }
        let (code, script, err) = fencelock(&server.url(), &["migrate", &format!("--role={one}")]);
        assert_eq!(code, 0, "{role:?}: {err}");
        by_hand(&server, &script).unwrap_or_else(|e| panic!("{role:?}: {e}"));
        assert_eq!((may(&one), may(&other)), ("t".to_owned(), "f".to_owned()), "{role:?}");
        let (code, _, err) = fencelock(&server.url(), &["migrate", "--run", &format!("--role={other}")]);
        assert_eq!(code, 0, "{role:?}: {err}");
        assert_eq!(may(&other), "t", "{role:?}");
    }
    assert_eq!(server.ask("SELECT count(*) FROM other"), "0");
    // The server would take the first 63 bytes of it, which may be somebody.
    let somebody = "x".repeat(63);
    server.ask(&format!("CREATE ROLE {somebody}"));
    for long in [format!("{somebody}y"), "9".repeat(100_000)] {
        for run in [&["migrate", "--role", &long][..], &["migrate", "--run", "--role", &long]] {
            let (code, out, err) = fencelock(&server.url(), run);
            assert_eq!((code, out.as_str()), (78, ""), "{err}");
            assert!(err.contains("63 bytes") && err.len() < 1_000, "{err}");
        }
    }
    assert_eq!(may(&somebody), "f");
}
/// As there.
#[test]
fn mariadb_accounts_of_odd_names() {
    let server = MariaDb::start();
    server.ask("CREATE TABLE other (n int)");
    let name = |role: &str| format!("`{}`@`127.0.0.1`", role.replace('`', "``"));
    let may = |role: &str| server.ask(&format!("SHOW GRANTS FOR {}", name(role))).contains("fencelock_lock");
    for role in ODD {
        let [one, other] = ["1", "2"].map(|n| format!("{role}{n}"));
        for role in [&one, &other] {
            server.ask(&format!("CREATE USER {}", name(role)));
        }
        let (code, script, err) = fencelock(&server.url(), &["migrate", &format!("--role={one}@127.0.0.1")]);
        assert_eq!(code, 0, "{role:?}: {err}");
        said(&given(server.client(""), "mariadb", &script)).unwrap_or_else(|e| panic!("{role:?}: {e}"));
        assert!(may(&one) && !may(&other), "{role:?}");
        let run = ["migrate", "--run", &format!("--role={other}@127.0.0.1")];
        let (code, _, err) = fencelock(&server.url(), &run);
        assert_eq!(code, 0, "{role:?}: {err}");
        assert!(may(&other), "{role:?}");
    }
    assert_eq!(server.ask("SELECT count(*) FROM other"), "0");
    let (code, out, err) = fencelock(&server.url(), &["migrate", "--run", "--role", &"9".repeat(100_000)]);
    assert_eq!((code, out.as_str()), (78, ""), "{err}");
    assert!(err.contains("no such account") && err.len() < 1_000, "{} bytes", err.len());
}
