//! One lock, in the table of ShedLock, for its users and ours. Its part is played by what its provider sends with `usingDbTime()`, at a
//! terminal of PostgreSQL's own.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/shedlock.rs"]
mod stories;
use common::*;
use fencelock_conformance::proxy::Trouble;
use fencelock_core::{ErrorKind, Fencing, LossReason, Observer, Page, Token};
use fencelock_testkit::Postgres;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::Instant,
};

/// A process with ShedLock.
struct Java {
    terminal: Session,
    by: &'static str,
}
impl Java {
    fn new(server: &Postgres, by: &'static str) -> Self {
        Self { terminal: Session::new(server), by }
    }
    /// Whether it has changed a row.
    fn changes(&mut self, statement: &str, name: &str, seconds: f64) -> bool {
        let statement = statement.replace(":now", "timezone('utc', CURRENT_TIMESTAMP)");
        let statement = statement.replace(":name", &format!("'{name}'")).replace(":by", &format!("'{}'", self.by));
        let said =
            self.terminal.ask(&format!("{};\n\\echo :ROW_COUNT", statement.replace(":for", &seconds.to_string())));
        said == "1;"
    }
    fn lock(&mut self, name: &str, seconds: f64) -> bool {
        let upsert = "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) \
                      VALUES(:name, :now + make_interval(secs => :for), :now, :by) ON CONFLICT (name) DO UPDATE \
                      SET lock_until = :now + make_interval(secs => :for), locked_at = :now, locked_by = :by \
                      WHERE shedlock.name = :name AND shedlock.lock_until <= :now";
        self.changes(upsert, name, seconds)
    }
    fn unlock(&mut self, name: &str, at_least: f64) -> bool {
        let unlock = "UPDATE shedlock SET lock_until = CASE WHEN locked_at + make_interval(secs => :for) > :now \
                      THEN locked_at + make_interval(secs => :for) ELSE :now END WHERE name = :name AND locked_by = :by";
        self.changes(unlock, name, at_least)
    }
    fn extend(&mut self, name: &str, seconds: f64) -> bool {
        let extend = "UPDATE shedlock SET lock_until = :now + make_interval(secs => :for) \
                      WHERE name = :name AND locked_by = :by AND lock_until > :now";
        self.changes(extend, name, seconds)
    }
}
fn start() -> (Postgres, String) {
    let server = Postgres::start();
    let url = server.url() + "?strategy=shedlock";
    (server, url)
}
/// A function of an older version.
const STALE: &str = "CREATE OR REPLACE FUNCTION fencelock_shed_end(n timestamp, ttl bigint) RETURNS timestamp \
                     LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS 'SELECT n + fencelock_span(ttl / 2)'";
/// Why nobody connects.
async fn refused(url: &str) -> String {
    let config = fencelock_postgres::Config::from_url(url).unwrap();
    let error = fencelock_postgres::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    error.to_string()
}
/// µs since 1970, of a column.
fn micros(server: &Postgres, column: &str, name: &str) -> i64 {
    let ask = format!("SELECT (extract(epoch FROM {column}) * 1000000)::bigint FROM shedlock WHERE name = '{name}'");
    server.ask(&ask).parse().unwrap()
}

/// A copy of a claim that arrives late takes nothing back of what was extended meanwhile. (Red: it writes the end that it asks for.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_copy_shortens_nothing() {
    let (server, url) = start();
    let ours = client(&url).await;
    let held = ours.mutex("x").lease(5 * SEC).lock().await.unwrap();
    held.extend(60 * SEC).await.unwrap();
    let end = micros(&server, "lock_until", "x");
    let copy = "(fencelock_shed_acquire('x', 'HOLD', 5000000, 9000000000000000, 0, 'host 1 ')).code";
    assert_eq!(server.ask(&format!("SELECT {}", copy.replace("HOLD", &held.id().to_string()))), "done");
    assert!(micros(&server, "lock_until", "x") >= end);
    assert!(!Java::new(&server, "host-7").lock("x", 60.0));
    held.release().await.unwrap();
}
/// A table that others have made is looked at before anything is locked in it. (Red: nobody looks.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_others() {
    let (server, url) = start();
    let table = |name: &str, time: &str| {
        let columns =
            format!("name {name} PRIMARY KEY, locked_by text, lock_until {time} NOT NULL, locked_at {time} NOT NULL");
        server.ask(&format!("DROP TABLE IF EXISTS shedlock; CREATE TABLE shedlock ({columns})"));
    };
    for time in ["timestamptz", "timestamp(0)"] {
        table("text", time);
        let error = refused(&url).await;
        assert!(error.contains("lock_until of the table shedlock"), "{error}");
    }
    for (more, says) in [
        ("DROP CONSTRAINT shedlock_pkey", "name of the table shedlock may be there twice"),
        ("DROP CONSTRAINT shedlock_pkey, ADD UNIQUE (name, locked_by)", "may be there twice"),
        ("ALTER locked_by TYPE varchar(100)", "locked_by of the table shedlock is a character varying(100)"),
        ("DROP locked_by", "locked_by of the table shedlock is not there"),
        (
            "DROP CONSTRAINT shedlock_pkey, ALTER name TYPE character(64), ADD PRIMARY KEY (name)",
            "name of the table shedlock is a character(64)",
        ),
        (
            "DROP CONSTRAINT shedlock_pkey; CREATE UNIQUE INDEX ON shedlock (name COLLATE \"POSIX\"); ALTER TABLE shedlock SET LOGGED",
            "may be there twice",
        ),
        ("SET UNLOGGED", "SET LOGGED"),
    ] {
        table("text", "timestamp");
        server.ask(&format!("ALTER TABLE shedlock {more}"));
        let error = refused(&url).await;
        assert!(error.contains(says), "{more}: {error}");
    }
    table("varchar(10)", "timestamp(3)");
    let ours = client(&url).await;
    let error = ours.mutex("elevenchars").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    // In another order, and each with a letter of two bytes.
    ours.mutex("zehnümläut").lock().await.unwrap().release().await.unwrap();
    // Somebody without a name has it. (Red: no name is compared.)
    server.ask(
        "INSERT INTO shedlock (name, lock_until, locked_at) \
         SELECT 'x', n + interval '1 hour', n FROM timezone('utc', now()) AS n",
    );
    assert!(ours.mutex("x").try_lock().await.unwrap().is_err());
    assert!(ours.inspect("x").await.unwrap().is_held());
}
/// Times that have no number: one without an end is held, and one without a beginning is one like the others. (Red: a number is made of
/// each.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn infinity() {
    let (server, url) = start();
    let ours = client(&url).await;
    for (n, at) in ["infinity", "-infinity", "2001-01-01"].into_iter().enumerate() {
        let name = format!("x{n}");
        let row = |until: &str| {
            server.ask(&format!(
                "INSERT INTO shedlock VALUES ('{name}', '{until}', '{at}', 'host-7') \
                 ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_at = excluded.locked_at, locked_by = 'host-7'"
            ))
        };
        row("infinity");
        let busy = ours.mutex(&*name).try_lock().await.unwrap().unwrap_err();
        let holder = *busy.holder.unwrap();
        assert!(&*holder.host == "host-7" && holder.left > 1_000_000 * SEC, "{holder:?}");
        assert_eq!(ours.list(&name, &Page::default()).await.unwrap().items[0].holders[0].token, holder.token);
        assert_eq!(ours.inspect(&*name).await.unwrap().holders[0].token, holder.token);
        assert_eq!(ours.force_release(&*name, holder.token).await.unwrap(), fencelock_core::Released::Released);
        for until in ["2001-01-01", "-infinity"] {
            row(until);
            let guard = ours.mutex(&*name).lock().await.unwrap();
            assert!(guard.token().get() < micros(&server, "locked_at", &name) + 86_400_000_000, "{at}");
            guard.release().await.unwrap();
        }
    }
}
/// Names that are one for the table are one lock: its holder is known by each of them, and tokens rise over all of them. (Red: tokens by
/// other letters than the lock.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_one() {
    let (server, url) = start();
    server.ask(
        "CREATE COLLATION same (provider = icu, locale = 'und-u-ks-level2', deterministic = false); \
         CREATE TABLE shedlock (name varchar(64) COLLATE same PRIMARY KEY, lock_until timestamp NOT NULL, \
         locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)",
    );
    let ours = client(&url).await;
    let mut java = Java::new(&server, "host-7");
    assert!(java.lock("Job", 60.0));
    assert!(ours.mutex("job").try_lock().await.unwrap().is_err());
    assert_eq!(ours.list("J", &Page::default()).await.unwrap().items.len(), 1);
    assert!(java.unlock("Job", 0.0));
    let held = ours.mutex("job").ttl(60 * SEC).lock().await.unwrap();
    assert!(!java.lock("Job", 60.0));
    for name in ["job", "JOB"] {
        let seen = ours.inspect(name).await.unwrap();
        assert_eq!((seen.holders[0].hold, seen.holders[0].token), (held.id(), held.token()), "{name}");
    }
    server.ask("UPDATE fencelock_shed SET fence = fence + 3600000000");
    let last = ours.inspect("job").await.unwrap().last_token.unwrap();
    assert_eq!(ours.force_release("JOB", last).await.unwrap(), fencelock_core::Released::Released);
    let next = ours.mutex("JOB").lock().await.unwrap();
    assert!(next.token() > last);
    next.release().await.unwrap();
}
/// The table is in another schema, as the search path of others has it: no second one is made. (Red: one is made.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_another_schema() {
    let (server, url) = start();
    server.ask(
        "CREATE SCHEMA fleet; CREATE TABLE fleet.shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, \
         locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)",
    );
    for url in [url.clone(), url.clone() + "&schema=public"] {
        let error = refused(&url).await;
        assert!(error.contains("shedlock is in the schema fleet") && error.contains("?schema=NAME"), "{error}");
    }
    assert_eq!(server.ask("SELECT count(*) FROM pg_class WHERE relname = 'shedlock'"), "1");
    let there = client(&(url.clone() + "&schema=fleet")).await;
    there.mutex("x").lock().await.unwrap().release().await.unwrap();
    assert_eq!(server.ask("SELECT count(*) FROM fleet.shedlock"), "1");
    // Somebody has said that it is another one.
    server.ask("CREATE TABLE public.shedlock (LIKE fleet.shedlock INCLUDING ALL)");
    client(&url).await.mutex("x").lock().await.unwrap().release().await.unwrap();
}
