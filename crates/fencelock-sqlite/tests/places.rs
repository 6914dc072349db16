//! Other boots, other files, other file systems: what lies in the database and beside it is not always ours.
//! Planted to see them go red: a foreign boot id taken for dead; `floor` not raised to the mark on a new boot; a missing file
//! taken for a dead session; LOCK_RETIRE without its floor; the file system not asked; the layout asked along with other columns.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::{Client, ErrorKind, LossReason};
use fencelock_sqlite::{Config, SqliteEngine};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// A holder of another boot, as a crash of the host leaves it.
fn foreign_holder(folder: &Folder, ttl: Duration) {
    let ttl = ttl.as_nanos();
    folder.execute(&format!(
        "UPDATE fencelock_session SET boot = 'another';
         UPDATE fencelock_holder SET ttl = {ttl};"
    ));
}
fn open(config: Config) -> fencelock_core::Result<Client> {
    Client::builder(Arc::new(SqliteEngine::open(config)?)).build()
}

#[test]
fn another_boot_is_judged_by_observation() {
    let folder = Folder::new();
    let (old, new) = (folder.client(), folder.client());
    let rt = runtime();
    rt.block_on(async {
        let guard = old.mutex("x").lock().await.unwrap();
        // Its session's sweep is over before there is anything foreign.
        for _ in 0..20 {
            new.mutex("w").lock().await.unwrap().release().await.unwrap();
        }
        let ttl = Duration::from_millis(700);
        foreign_holder(&folder, ttl);
        let asked = Instant::now();
        assert!(new.mutex("x").try_lock().await.unwrap().is_err(), "not by decree");
        let next = tokio::time::timeout(Duration::from_secs(10), new.mutex("x").lock()).await.unwrap().unwrap();
        assert!(asked.elapsed() >= ttl, "after {:?}", asked.elapsed());
        assert!(next.token() > guard.token());
        std::mem::forget(guard);
    });
}

#[test]
fn another_boot_that_still_beats_is_alive() {
    let folder = Folder::new();
    let (old, new) = (folder.client(), folder.client());
    let rt = runtime();
    rt.block_on(async {
        let guard = old.mutex("x").lock().await.unwrap();
        foreign_holder(&folder, Duration::from_secs(3));
        let wait = tokio::spawn({
            let new = new.clone();
            async move { new.mutex("x").lock().await.map(drop) }
        });
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(450)).await;
            folder.execute("UPDATE fencelock_session SET beat = beat + 1, seen_boot = '' WHERE boot = 'another'");
            assert!(!wait.is_finished());
        }
        // Then it stops.
        tokio::time::timeout(Duration::from_secs(10), wait).await.unwrap().unwrap().unwrap();
        std::mem::forget(guard);
    });
}

#[test]
fn after_a_power_cut_tokens_start_above_the_mark_whatever_the_clock_says() {
    let folder = Folder::new();
    let rt = runtime();
    let first = rt.block_on(async { folder.client().mutex("x").lock().await.unwrap().token() });
    let mark = folder.count("SELECT mark FROM fencelock_meta");
    assert!(first.get() < mark);
    // The clock had jumped ahead before the cut, and the last grants are lost with the log's end.
    let ahead = mark + (1 << 50);
    folder.execute(&format!("UPDATE fencelock_meta SET mark = {ahead}, boot = 'another'"));
    let client = folder.client();
    let token = rt.block_on(async { client.mutex("x").lock().await.unwrap().token() });
    assert!(token.get() > ahead);
    let fresh = rt.block_on(async { client.mutex("never seen").lock().await.unwrap().token() });
    assert!(fresh.get() > ahead);
    assert!(
        folder.count("SELECT mark FROM fencelock_meta") > token.get(),
        "and a new mark is there before the token is"
    );
}

#[test]
fn a_liveness_file_that_is_gone_is_no_death() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    let rt = runtime();
    rt.block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        for file in folder.files() {
            fs::remove_file(folder.path().join("locks.db.d").join(file)).unwrap();
        }
        assert!(b.mutex("x").try_lock_for(Duration::from_millis(1_500)).await.unwrap().is_err());
        guard.check().unwrap();
        guard.release().await.unwrap();
        b.mutex("x").lock().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_database_that_was_replaced_costs_its_holds_and_says_so() {
    let folder = Folder::new();
    let a = folder.client();
    let rt = runtime();
    rt.block_on(async {
        let guard = a.mutex("x").ttl(Duration::from_secs(3)).lock().await.unwrap();
        for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
            fs::remove_file(folder.path().join(file)).unwrap();
        }
        let reason = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await.unwrap();
        assert_eq!(reason, LossReason::SessionEnded);
        let error = a.mutex("x").lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.to_string().contains("removed or replaced"), "{error}");
        folder.client().mutex("x").lock().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn idle_records_go_and_their_tokens_do_not_come_back() {
    let folder = Folder::new();
    let rt = runtime();
    rt.block_on(async { drop(folder.client().mutex("x").lock().await.unwrap()) });
    let high = folder.count("SELECT mark FROM fencelock_meta") - 5;
    folder.execute(&format!("UPDATE fencelock_lock SET fence = {high}, used = 0; UPDATE fencelock_meta SET swept = 0"));
    let client = folder.client();
    rt.block_on(async {
        let _kept = client.mutex("kept").lock().await.unwrap();
        eventually("swept", Duration::from_secs(10), || {
            folder.count("SELECT count(*) FROM fencelock_lock WHERE name = 'x'") == 0
        });
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_lock"), 1);
        assert!(client.mutex("x").lock().await.unwrap().token().get() > high);
    });
}

#[test]
fn files_without_a_row_are_swept_unless_somebody_lives_by_them() {
    let folder = Folder::new();
    drop(folder.client());
    let rt = runtime();
    rt.block_on(async { drop(folder.client().mutex("x").lock().await.unwrap()) });
    let path = |n: u32| folder.path().join(format!("locks.db.d/{n:016x}.live"));
    let (dead, alive) = (path(1), path(2));
    fs::write(&dead, "").unwrap();
    let lock = fs::File::create(&alive).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let client = folder.client();
    let _guard = rt.block_on(client.mutex("x").lock()).unwrap();
    eventually("swept", Duration::from_secs(10), || !dead.exists());
    assert!(alive.exists());
}

/// Whoever may only read the files there could lock them. (Red: folders as the umask has them.)
#[test]
fn a_folder_that_is_made_is_its_users_alone() {
    let folder = Folder::new();
    let mode = |path: &str| fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777;
    let before = mode("");
    let client = client(&folder.path().join("a/b/locks.db"));
    assert_eq!([mode("a"), mode("a/b"), mode("")], [0o700, 0o700, before]);
    // One that is there is somebody's decision.
    fs::set_permissions(folder.path().join("a/b"), fs::Permissions::from_mode(0o755)).unwrap();
    drop(client);
    drop(common::client(&folder.path().join("a/b/locks.db")));
    assert_eq!(mode("a/b"), 0o755);
}

#[test]
fn new_files_take_mode_and_group_of_the_database() {
    let folder = Folder::new();
    drop(folder.client());
    fs::set_permissions(folder.database(), fs::Permissions::from_mode(0o660)).unwrap();
    let client = folder.client();
    let _guard = runtime().block_on(client.mutex("x").lock()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("locks.db.d")), 0o770);
    assert_eq!(folder.files().len(), 2);
    for file in folder.files() {
        assert_eq!(mode(&folder.path().join("locks.db.d").join(file)), 0o660);
    }
}

#[test]
fn a_link_leads_to_the_same_locks() {
    let folder = Folder::new();
    let a = folder.client();
    let link = folder.path().join("elsewhere/link.db");
    fs::create_dir(folder.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(folder.database(), &link).unwrap();
    let b = client(&link);
    runtime().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        assert!(b.mutex("x").try_lock().await.unwrap().is_err());
        let freed = Instant::now();
        let wait = tokio::spawn(async move { b.mutex("x").lock().await.map(drop) });
        while a.inspect("x").await.unwrap().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        guard.release().await.unwrap();
        wait.await.unwrap().unwrap();
        assert!(freed.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn what_cannot_be_opened_is_told() {
    let folder = Folder::new();
    let text = folder.path().join("text");
    fs::write(&text, "this is no database, and it is long enough to be looked at as one ".repeat(100)).unwrap();
    let file_as_folder = text.join("locks.db");
    for (path, kind, says) in [
        (text.as_path(), ErrorKind::InvalidConfig, "no SQLite database"),
        (folder.path(), ErrorKind::InvalidConfig, "is a folder"),
        (file_as_folder.as_path(), ErrorKind::InvalidConfig, "folder cannot be made"),
        (Path::new("/proc/locks.db"), ErrorKind::Unsupported, "0x9fa0"),
        (Path::new("/"), ErrorKind::InvalidConfig, "no path of a file"),
    ] {
        let error = open(Config::new(path)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "it names the path: {error}");
    }
    assert!(fs::read_to_string(&text).unwrap().starts_with("this is no database"), "and it is untouched");
}

#[test]
fn a_database_of_another_layout_is_left_as_it_is() {
    // As the first layout was, as a later one may be, and one that was copied away and is in no log any more.
    let first = "CREATE TABLE m AS SELECT id, layout, boot, mark, floor FROM fencelock_meta; DROP TABLE fencelock_meta;
                 ALTER TABLE m RENAME TO fencelock_meta; PRAGMA journal_mode = WAL";
    let later = "ALTER TABLE fencelock_meta RENAME COLUMN boot TO booted; DROP TABLE fencelock_write;
                 PRAGMA journal_mode = WAL";
    for (layout, change) in [(1, first), (3, later), (3, "")] {
        let folder = Folder::new();
        drop(folder.client());
        let conn = rusqlite::Connection::open(folder.database()).unwrap();
        // The client's threads have left it.
        eventually("alone", Duration::from_secs(10), || conn.execute_batch("PRAGMA journal_mode = DELETE").is_ok());
        conn.execute_batch(&format!("UPDATE fencelock_meta SET layout = {layout}; {change}")).unwrap();
        drop(conn);
        let before = (fs::read(folder.database()).unwrap(), folder.files());
        let error = open(Config::new(folder.database())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
        for says in [&format!("has layout {layout}"), "writes layout 2", "the version of fencelock that wrote it"] {
            assert!(error.to_string().contains(says), "{error}");
        }
        assert!((fs::read(folder.database()).unwrap(), folder.files()) == before, "layout {layout} was changed");
    }
}

#[test]
fn bad_ttls_are_refused_before_anything_is_written() {
    let folder = Folder::new();
    let client = folder.client();
    runtime().block_on(async {
        for ttl in [Duration::ZERO, Duration::from_millis(199), Duration::from_secs(86_401), Duration::MAX] {
            let error = client.mutex("x").ttl(ttl).lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
            assert!(error.to_string().contains("200ms"), "{error}");
        }
        assert!(client.mutex("x").max_hold(Duration::ZERO).lock().await.is_err());
        assert!(client.mutex("").lock().await.is_err());
    });
    assert_eq!(folder.count("SELECT count(*) FROM fencelock_lock"), 0);
}
