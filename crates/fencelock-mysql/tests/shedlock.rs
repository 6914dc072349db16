//! One lock, in the table of ShedLock, for its users and ours. Its part is played by what its provider sends with `usingDbTime()`, at a
//! terminal of MariaDB's own.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/shedlock.rs"]
mod stories;
use common::*;
use fencelock_conformance::proxy::Trouble;
use fencelock_core::{ErrorKind, Fencing, LossReason, Observer, Page, Token};
use fencelock_testkit::MariaDb;
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
    fn new(server: &MariaDb, by: &'static str) -> Self {
        Self { terminal: Session::new(server), by }
    }
    /// Whether it has changed a row.
    fn changes(&mut self, statement: &str, name: &str, seconds: f64) -> bool {
        let statement =
            statement.replace(":until", "TIMESTAMPADD(MICROSECOND, :for, :now)").replace(":now", "UTC_TIMESTAMP(3)");
        let statement = statement.replace(":name", &format!("'{name}'")).replace(":by", &format!("'{}'", self.by));
        let statement = statement.replace(":for", &format!("{:.0}", seconds * 1e6));
        self.terminal.ask(&format!("{statement}; SELECT ROW_COUNT()")) == "1"
    }
    fn lock(&mut self, name: &str, seconds: f64) -> bool {
        let insert =
            "INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by) VALUES(:name, :until, :now, :by)";
        let update = "UPDATE shedlock SET lock_until = :until, locked_at = :now, locked_by = :by \
                      WHERE name = :name AND lock_until <= :now";
        self.changes(insert, name, seconds) || self.changes(update, name, seconds)
    }
    fn unlock(&mut self, name: &str, at_least: f64) -> bool {
        let unlock = "UPDATE shedlock SET lock_until = IF (TIMESTAMPADD(MICROSECOND, :for, locked_at) > :now, \
                      TIMESTAMPADD(MICROSECOND, :for, locked_at), :now) WHERE name = :name AND locked_by = :by";
        self.changes(unlock, name, at_least)
    }
    fn extend(&mut self, name: &str, seconds: f64) -> bool {
        let extend =
            "UPDATE shedlock SET lock_until = :until WHERE name = :name AND locked_by = :by AND lock_until > :now";
        self.changes(extend, name, seconds)
    }
}
/// In a zone that is not UTC: what is in a column of timestamps is read by it. (Red: times that are read as UTC.)
fn start() -> (MariaDb, String) {
    let server = MariaDb::with(&["--default-time-zone=+05:00"]);
    let url = server.url() + "?strategy=shedlock";
    (server, url)
}
/// A procedure of an older version.
const STALE: &str = "DROP PROCEDURE fencelock_shed_write; CREATE PROCEDURE fencelock_shed_write(IN a TEXT, IN b BIGINT, IN c BIGINT, \
                     IN d TEXT) SQL SECURITY INVOKER SELECT 1 INTO @nothing";
/// Why nobody connects.
async fn refused(url: &str) -> String {
    let config = fencelock_mysql::Config::from_url(url).unwrap();
    let error = fencelock_mysql::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    error.to_string()
}
/// µs since 1970, of a column.
fn micros(server: &MariaDb, column: &str, name: &str) -> i64 {
    let ask = format!("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {column}) FROM shedlock WHERE name = '{name}'");
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
    let copy = "CALL fencelock_shed_acquire('x', X'HOLD', 5000000, 9000000000000000, 0, 'host 1 ')";
    assert!(server.ask(&copy.replace("HOLD", &held.id().to_string())).starts_with("done"));
    assert!(micros(&server, "lock_until", "x") >= end);
    assert!(!Java::new(&server, "host-7").lock("x", 60.0));
    held.release().await.unwrap();
}
/// A table that others have made is looked at before anything is locked in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_others() {
    let (server, url) = start();
    let table = |name: &str, time: &str, more: &str| {
        let time = format!("lock_until {time} NOT NULL DEFAULT 0, locked_at {time} NOT NULL DEFAULT 0");
        let columns = format!("name {name} NOT NULL PRIMARY KEY, locked_by varchar(255), {time}");
        server.ask(&format!(
            "SET sql_mode = ''; DROP TABLE IF EXISTS shedlock; CREATE TABLE shedlock ({columns}) {more}"
        ));
    };
    for (time, more, says) in [
        ("timestamp", "", "TIMESTAMP(3)"),
        ("timestamp(3)", "ENGINE=MyISAM", "ENGINE=InnoDB"),
        ("date", "", "TIMESTAMP(3)"),
    ] {
        table("varchar(64)", time, more);
        let error = refused(&url).await;
        assert!(error.contains(says), "{error}");
    }
    for (more, says) in [
        ("DROP PRIMARY KEY", "name of the table shedlock may be there twice"),
        ("DROP PRIMARY KEY, ADD UNIQUE (name(8))", "may be there twice"),
        ("DROP PRIMARY KEY, ADD UNIQUE (name, lock_until)", "may be there twice"),
        ("MODIFY locked_by varchar(100)", "locked_by of the table shedlock is a varchar of 100 letters"),
        ("DROP locked_by", "locked_by of the table shedlock is not there"),
    ] {
        table("varchar(64)", "timestamp(3)", "");
        server.ask(&format!("SET sql_mode = ''; ALTER TABLE shedlock {more}"));
        let error = refused(&url).await;
        assert!(error.contains(says), "{more}: {error}");
    }
    // Letters that are not the database's, and in the table's order the same as others. (Red: parameters of the database's own letters.)
    for sort in ["CHARACTER SET latin1 COLLATE latin1_german1_ci", "CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"] {
        table("varchar(10)", "datetime(6)", sort);
        // Procedures compare by what was there when they were made. (Red: nobody compares that.)
        let error = refused(&url).await;
        assert!(error.contains("the names in shedlock are compared by") && error.contains("made anew"), "{error}");
        server.ask("UPDATE fencelock_meta SET shed = NULL");
        let ours = client(&url).await;
        let error = ours.mutex("elevenchars").lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
        ours.mutex("zehnümläut").lock().await.unwrap().release().await.unwrap();
        let mut java = Java::new(&server, "host-7");
        assert!(java.lock("Job", 60.0));
        assert!(ours.mutex("job").try_lock().await.unwrap().is_err());
        assert!(java.unlock("Job", 0.0));
        let held = ours.mutex("job").lock().await.unwrap();
        assert!(!java.lock("Job", 60.0));
        held.release().await.unwrap();
        // Somebody without a name has it. (Red: no name is compared.)
        server.ask(
            "INSERT INTO shedlock (name, lock_until, locked_at) \
             SELECT 'x', TIMESTAMPADD(HOUR, 1, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3)",
        );
        assert!(ours.mutex("x").try_lock().await.unwrap().is_err());
        assert!(ours.inspect("x").await.unwrap().is_held());
    }
}
/// A name is told to be too long wherever one is given; and one of the longest is a name like the others. (Red: 255 letters are taken, and
/// whoever looks is told the server's number of an error.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_names() {
    let (server, url) = start();
    let ours = client(&url).await;
    let long = "n".repeat(400);
    for error in [
        ours.inspect(&*long).await.unwrap_err(),
        ours.mutex(&*long).lock().await.unwrap_err(),
        ours.force_release(&*long, Token::new(1).unwrap()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    }
    server.ask("ALTER TABLE shedlock MODIFY name VARCHAR(600) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL");
    let ours = client(&url).await;
    let held = ours.mutex(&*long).lock().await.unwrap();
    Java::new(&server, "host-7").lock(&"x".repeat(600), 60.0);
    let (mut page, mut all) = (Page { after: None, limit: 1 }, 0);
    while {
        let listing = ours.list("", &page).await.unwrap();
        all += listing.items.len();
        page.after = listing.next;
        page.after.is_some()
    } {}
    assert_eq!(all, 1);
    assert!(ours.inspect(&*long).await.unwrap().is_held());
    held.release().await.unwrap();
}
