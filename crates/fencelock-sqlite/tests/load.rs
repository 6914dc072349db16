//! What others do, hold and ask for costs nobody more than it must. Planted to see them go red: the code before, with a write
//! transaction for each `try_lock`; whoever shares judged at each acquire; a turn for each of one sleeper's waits; a watch that is
//! forgotten when its row could not be deleted; observers that never ask whether the file is still the file; HOLDER_CLAIM without
//! the session; files not looked at while nothing was written; what is not on the heartbeat's snapshot told lost without a second
//! look; that look put off by each grant.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::{Client, ErrorKind};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs,
    time::{Duration, Instant},
};

const LONG: Duration = Duration::from_secs(10);

/// A session in the database that beat last at `beat`; alive for as long as the file that it returns.
fn somebody(folder: &Folder, id: i64, boot: &str, beat: i64) -> fs::File {
    folder.execute(&format!(
        "INSERT INTO fencelock_session (id, boot, beat, host, pid) SELECT {id}, {boot}, {beat}, 'h', 1 FROM fencelock_meta"
    ));
    let file = fs::File::create(folder.path().join(format!("locks.db.d/{id:016x}.live"))).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    file
}
const NEVER: i64 = 9_000_000_000_000_000_000;
/// It holds the lock `name`, as a claim of this code, so many permits.
fn holds(folder: &Folder, id: i64, name: &str, claim: u8, take: u32) {
    folder.execute(&format!(
        "INSERT INTO fencelock_holder SELECT id, randomblob(16), {id}, {claim}, {take}, fence, 30000000000, 0, {NEVER}, 0, 1, '', 0
         FROM fencelock_lock WHERE name = '{name}'"
    ));
}
async fn warm(client: &Client) {
    client.mutex("own").lock().await.unwrap().release().await.unwrap();
}
async fn queued(client: &Client, name: &str, n: usize) {
    let deadline = Instant::now() + LONG;
    while client.inspect(name).await.unwrap().waiters.len() != n {
        assert!(Instant::now() < deadline, "not {n} in the queue");
        tokio::time::sleep(MS).await;
    }
}

/// Whoever asked again and again kept those from writing who worked.
#[test]
fn who_is_refused_writes_nothing() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    let many: Vec<_> = (0..4).map(|_| folder.client()).collect();
    runtime().block_on(async {
        for client in [&a, &b].into_iter().chain(&many) {
            warm(client).await;
        }
        let _mutex = a.mutex("m").note("theirs").lock().await.unwrap();
        let _permits = a.semaphore("s", 3).acquire(3).await.unwrap();
        let _reader = a.rw_lock("r").read().await.unwrap();
        let mut writer = b.rw_lock("r").write();
        let _ = tokio::time::timeout(20 * MS, &mut writer).await;
        queued(&a, "r", 1).await;
        // Nobody else can begin a write transaction from here on.
        let conn = rusqlite::Connection::open(folder.database()).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        for client in many.iter().cycle().take(40) {
            let busy = client.mutex("m").try_lock().await.unwrap().unwrap_err();
            assert_eq!((&*busy.holder.unwrap().note, busy.ahead), ("theirs", Some(0)));
            assert!(client.semaphore("s", 3).try_acquire(1).await.unwrap().is_err());
            assert!(client.rw_lock("r").try_write().await.unwrap().is_err());
            let busy = client.rw_lock("r").try_read().await.unwrap().unwrap_err();
            assert_eq!(busy.ahead, Some(1), "behind the writer");
        }
        conn.execute_batch("ROLLBACK").unwrap();
    });
}

#[test]
fn who_is_in_the_way_and_does_not_count_is_removed_for_those_who_do_not_wait() {
    let folder = Folder::new();
    let c = folder.client();
    runtime().block_on(async {
        warm(&c).await;
        for name in ["dead", "lapsed", "foreign"] {
            c.mutex(name).lock().await.unwrap().release().await.unwrap();
        }
        drop(somebody(&folder, 0x71, "boot", NEVER));
        let _lapsed = somebody(&folder, 0x72, "boot", 1);
        folder.execute("UPDATE fencelock_session SET beat = -40000000000 WHERE id = 0x72");
        let _foreign = somebody(&folder, 0x73, "'another'", 1);
        for (id, name) in [(0x71, "dead"), (0x72, "lapsed"), (0x73, "foreign")] {
            holds(&folder, id, name, 1, 0);
        }
        c.mutex("dead").try_lock().await.unwrap().unwrap().release().await.unwrap();
        c.mutex("lapsed").try_lock().await.unwrap().unwrap().release().await.unwrap();
        assert!(c.mutex("foreign").try_lock().await.unwrap().is_err());
        assert_eq!(
            folder.count("SELECT count(*) FROM fencelock_session WHERE seen_boot <> ''"),
            1,
            "observed from now on"
        );
    });
}

#[test]
fn who_fits_in_beside_all_judges_nobody() {
    // The turn that leaves no trace comes in time.
    on_a_steady_machine(300 * MS, beside_all);
}
fn beside_all() {
    let folder = Folder::new();
    let c = folder.client();
    runtime().block_on(async {
        let mine = c.semaphore("s", 10).acquire(1).await.unwrap();
        // Its first clean-up would bury whoever is dead, and so would the turn a tenth of a second after it, which leaves no trace.
        eventually("cleaned up", Duration::from_secs(10), || folder.count("SELECT swept FROM fencelock_meta") > 0);
        tokio::time::sleep(500 * MS).await;
        drop(somebody(&folder, 0x71, "boot", NEVER));
        holds(&folder, 0x71, "s", 4, 5);
        let beside = c.semaphore("s", 10).acquire(3).await.unwrap();
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_holder"), 3);
        // And when its permits are needed it is found.
        let rest = c.semaphore("s", 10).try_acquire(6).await.unwrap().unwrap();
        assert_eq!(folder.count("SELECT sum(take) FROM fencelock_holder"), 10);
        for guard in [mine, beside, rest] {
            guard.release().await.unwrap();
        }
    });
}

/// Each of its waits had a turn of its own: the twentieth came after 24 s.
#[test]
fn a_sleeper_is_passed_once_however_often_it_waits() {
    let folder = Folder::new();
    let c = folder.client();
    runtime().block_on(async {
        c.mutex("x").lock().await.unwrap().release().await.unwrap();
        let _sleeps = somebody(&folder, 0x71, "boot", NEVER);
        folder.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20)
             INSERT INTO fencelock_waiter SELECT id, i, randomblob(16), 0x71, 1, 0, 30000000000, 1, ''
             FROM fencelock_lock, n WHERE name = 'x'",
        );
        let asked = Instant::now();
        let guard = tokio::time::timeout(LONG, c.mutex("x").lock()).await.unwrap().unwrap();
        assert!(asked.elapsed() >= 250 * MS, "not before its turn was over");
        guard.release().await.unwrap();
    });
}

#[test]
fn many_idle_records_go_in_turns_and_those_between_stay() {
    let folder = Folder::new();
    let rt = runtime();
    rt.block_on(async { warm(&folder.client()).await });
    folder.execute(
        "DELETE FROM fencelock_lock;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 7000)
         INSERT INTO fencelock_lock (id, space, name, kind, capacity, fence, used)
         SELECT i, '', 'n' || i, 'mutex', 0, i, iif(i BETWEEN 1000 AND 5000, 1 << 40, 0) FROM n;
         UPDATE fencelock_meta SET swept = 0",
    );
    let client = folder.client();
    rt.block_on(async {
        warm(&client).await;
        eventually("swept", LONG, || folder.count("SELECT swept FROM fencelock_meta") > 0);
    });
    assert_eq!(folder.count("SELECT count(*) FROM fencelock_lock WHERE name <> 'own'"), 4_001);
    assert!(folder.count("SELECT floor FROM fencelock_meta") >= 7_000);
}

/// Its row stayed, and each grant of the lock rang for nobody.
#[test]
fn a_watch_that_could_not_be_ended_is_ended_later() {
    let folder = Folder::new();
    let a = folder.client();
    let rt = runtime();
    rt.block_on(async {
        let mut observer = a.election("x").observe();
        observer.changed().await.unwrap();
        let watch = tokio::spawn(async move { observer.changed().await.map(drop) });
        eventually("watched", LONG, || folder.count("SELECT count(*) FROM fencelock_watcher") == 1);
        folder.execute("CREATE TRIGGER t BEFORE DELETE ON fencelock_watcher BEGIN SELECT RAISE(ABORT, 'not now'); END");
        watch.abort();
        // Its time has come, and the attempt has failed.
        tokio::time::sleep(1_000 * MS).await;
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_watcher"), 1);
        folder.execute("DROP TRIGGER t");
        eventually("ended", LONG, || folder.count("SELECT count(*) FROM fencelock_watcher") == 0);
    });
}

/// It looked into the removed file for ever.
#[test]
fn an_observer_is_told_what_is_wrong() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        let mut observer = a.election("x").observe();
        observer.changed().await.unwrap();
        let watch = tokio::spawn(async move { observer.changed().await.map(drop) });
        eventually("watched", LONG, || folder.count("SELECT count(*) FROM fencelock_watcher") == 1);
        for end in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{end}", folder.database().display()));
        }
        let error = tokio::time::timeout(LONG, watch).await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.to_string().contains("removed or replaced"), "{error}");
    });
}

/// What another session has is not renewed by ours.
#[test]
fn a_hold_of_another_session_is_not_downgraded() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        let writer = a.rw_lock("x").write().await.unwrap();
        let _theirs = somebody(&folder, 0x71, "boot", NEVER);
        folder.execute("UPDATE fencelock_holder SET session = 0x71");
        assert_eq!(writer.downgrade().await.unwrap_err().kind(), ErrorKind::Lost);
    });
}

/// The heartbeat looks for what it holds on a snapshot: what is granted meanwhile, by the other thread, is not in it.
#[test]
fn a_hold_that_is_granted_while_a_heartbeat_looks_is_not_lost() {
    on_a_steady_machine(50 * MS, || {
        let folder = Folder::new();
        let c = folder.client();
        let until = Instant::now() + if full() { 60 * 1_000 * MS } else { 3_000 * MS };
        runtime().block_on(async {
            let short = c.mutex("short").ttl(300 * MS).lock().await.unwrap();
            let many: Vec<_> = (0..8)
                .map(|n| {
                    let lock = c.mutex(format!("m{n}"));
                    tokio::spawn(async move {
                        let mut grants = 0;
                        while Instant::now() < until {
                            let guard = lock.lock().await.unwrap();
                            tokio::time::sleep(MS).await;
                            guard.check().unwrap();
                            guard.release().await.unwrap();
                            grants += 1;
                        }
                        grants
                    })
                })
                .collect();
            let mut grants = 0;
            for one in many {
                grants += one.await.unwrap();
            }
            assert!(grants > 100, "{grants}");
            // Its own end is not what this is about.
            drop(short.release().await);
        });
    });
}

/// Who takes a hold away rings its holder; one who is killed in between does not. A client that is granted others all the time
/// beats with each grant, and looked for nothing.
#[test]
fn a_client_of_many_short_holds_is_told_that_a_long_one_was_taken_away() {
    let folder = Folder::new();
    let c = folder.client();
    runtime().block_on(async {
        let long = c.mutex("long").ttl(6_000 * MS).lock().await.unwrap();
        let lost = long.lost();
        let (lock, stop) = (c.mutex("short"), Instant::now() + 2 * LONG);
        let short = tokio::spawn(async move {
            while Instant::now() < stop {
                lock.lock().await.unwrap().release().await.unwrap();
                tokio::time::sleep(10 * MS).await;
            }
        });
        folder.execute("DELETE FROM fencelock_holder WHERE ttl = 6000000000");
        assert_eq!(tokio::time::timeout(LONG, lost).await.unwrap(), fencelock_core::LossReason::TakenOver);
        short.abort();
    });
}

/// Where no event tells of a death: not many processes of one user can watch files.
#[test]
fn a_death_that_nobody_tells_is_seen_by_the_next_look() {
    let folder = Folder::new();
    let c = folder.client();
    runtime().block_on(async {
        c.mutex("x").lock().await.unwrap().release().await.unwrap();
        drop(somebody(&folder, 0x71, "boot", NEVER));
        // Opened for reading: to close it is no event.
        let dies = fs::File::open(folder.path().join("locks.db.d/0000000000000071.live")).unwrap();
        flock(&dies, FlockOperation::LockExclusive).unwrap();
        holds(&folder, 0x71, "x", 1, 0);
        let lock = c.mutex("x");
        let next = tokio::spawn(async move { lock.lock().await.unwrap() });
        queued(&c, "x", 1).await;
        // It has looked, and nothing has changed since.
        tokio::time::sleep(2_500 * MS).await;
        assert!(!next.is_finished());
        drop(dies);
        tokio::time::timeout(LONG / 2, next).await.unwrap().unwrap().release().await.unwrap();
    });
}
