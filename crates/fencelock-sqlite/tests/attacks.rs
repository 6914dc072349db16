//! Attacks on the engine that once succeeded, or would. Planted to see them go red: the code before the fix, on which each was red but
//! the flood of waits, which took a release build and twice as many, or four busy loops beside it (without the turns of the
//! two threads, and without their breaks, each in one run of eight at least); what is extended not judged before.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::{Client, Engine, ErrorKind, LossReason};
use fencelock_sqlite::{Config, SqliteEngine};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs,
    future::{Future, poll_fn},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// Until so many wait, all together.
async fn queued(folder: &Folder, n: i64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while folder.count("SELECT count(*) FROM fencelock_waiter") != n {
        assert!(Instant::now() < deadline, "not {n} in the queue");
        tokio::time::sleep(MS).await;
    }
}
async fn elapse(d: Duration) {
    let end = Instant::now() + d;
    while Instant::now() < end {
        tokio::time::sleep(MS).await;
    }
}
/// Polls it once. False: it was ready, and is over.
async fn poke<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await
}
fn remove_database(folder: &Folder) {
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", folder.database().display()));
    }
}
/// A session that is in the database, with a file if `file`; alive for as long as what it returns.
fn somebody(folder: &Folder, id: i64, file: bool) -> Option<fs::File> {
    folder.execute(&format!(
        "INSERT INTO fencelock_session (id, boot, beat, host, pid) SELECT {id}, boot, 9000000000000000000, 'h', 1 FROM fencelock_meta"
    ));
    file.then(|| {
        let file = fs::File::create(folder.path().join(format!("locks.db.d/{id:016x}.live"))).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        file
    })
}
fn somebody_waits(folder: &Folder, id: i64) {
    folder.execute(&format!(
        "INSERT INTO fencelock_waiter SELECT id, 1, randomblob(16), {id}, 1, 0, 30000000000, 1, '' FROM fencelock_lock WHERE name = 'x'"
    ));
}

/// A session that held nothing had not beaten for longer than its ttl: its own grant was taken for one that had run out.
#[test]
fn whoever_waits_longer_than_its_ttl_keeps_its_turn() {
    on_a_steady_machine(100 * MS, whoever_waits_long);
}
fn whoever_waits_long() {
    let folder = Folder::new();
    let (a, b, c) = (folder.client(), folder.client(), folder.client());
    runtime().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
        for (who, client, ttl, n) in [("b", &b, 300, 1), ("c", &c, 30_000, 2)] {
            let (client, tx) = (client.clone(), tx.clone());
            tokio::spawn(async move {
                let guard = client.mutex("x").ttl(ttl * MS).lock().await.unwrap();
                tx.send(who).unwrap();
                guard.release().await.unwrap();
            });
            queued(&folder, n).await;
        }
        elapse(600 * MS).await;
        guard.release().await.unwrap();
        assert_eq!([rx.recv().await.unwrap(), rx.recv().await.unwrap()], ["b", "c"]);
    });
}

#[test]
fn an_idle_client_writes_one_grant_for_one_lock() {
    on_a_steady_machine(100 * MS, one_grant_for_one_lock);
}
fn one_grant_for_one_lock() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        a.mutex("x").ttl(200 * MS).lock().await.unwrap().release().await.unwrap();
        elapse(400 * MS).await;
        folder.execute(
            "CREATE TABLE log(token); CREATE TRIGGER t AFTER INSERT ON fencelock_holder BEGIN INSERT INTO log VALUES(new.token); END",
        );
        let _guard = a.mutex("x").ttl(200 * MS).lock().await.unwrap();
        assert_eq!(folder.count("SELECT count(*) FROM log"), 1);
    });
}

/// Holds that are too short to beat never looked whether their file is still the file.
#[test]
fn short_holds_notice_that_the_database_was_replaced() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        a.mutex("x").lock().await.unwrap().release().await.unwrap();
        remove_database(&folder);
        let b = folder.client();
        let theirs = b.mutex("x").lock().await.unwrap();
        let error = a.mutex("x").ttl(600 * MS).try_lock().await.unwrap_err();
        assert!(error.to_string().contains("removed or replaced"), "{error}");
        theirs.check().unwrap();
    });
}

#[test]
fn a_database_that_was_removed_is_not_made_again_behind_everybodys_back() {
    on_a_steady_machine(100 * MS, || {
        let folder = Folder::new();
        let a = folder.client();
        runtime().block_on(async {
            let guard = a.mutex("x").ttl(600 * MS).lock().await.unwrap();
            let mut wait = a.mutex("x").lock();
            let _ = tokio::time::timeout(50 * MS, &mut wait).await;
            remove_database(&folder);
            assert_eq!(guard.lost().await, LossReason::SessionEnded);
            let error = tokio::time::timeout(Duration::from_secs(10), wait).await.unwrap().unwrap_err();
            assert!(error.to_string().contains("removed or replaced"), "{error}");
            assert!(!folder.database().exists());
        });
    });
}

/// Its session, and with it the lock on its file, went to the second client.
#[test]
fn an_engine_has_one_client() {
    let folder = Folder::new();
    let engine: Arc<dyn Engine> = Arc::new(SqliteEngine::open(Config::new(folder.database())).unwrap());
    let one = Client::builder(engine.clone()).build().unwrap();
    assert_eq!(Client::builder(engine.clone()).build().unwrap_err().kind(), ErrorKind::InvalidConfig);
    runtime().block_on(async {
        let guard = one.mutex("x").lock().await.unwrap();
        guard.release().await.unwrap();
        drop(one);
        // And one that was closed does not keep anybody waiting.
        let late = Client::builder(engine).build().unwrap();
        let error = tokio::time::timeout(Duration::from_secs(10), late.mutex("x").lock()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    });
}

/// The record's end counted from the grant, core's from the late poll.
#[test]
fn max_hold_counts_from_the_grant_also_for_those_who_poll_late() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let _beats = a.mutex("other").ttl(1_000 * MS).lock().await.unwrap();
        b.mutex("other b").lock().await.unwrap().release().await.unwrap();
        // At several moments between two heartbeats, which would find it missing.
        for i in 0..6 {
            let name = format!("x{i}");
            let ask = || a.mutex(&name).ttl(1_000 * MS).max_hold(300 * MS).lock();
            let mut lock = ask();
            while !poke(&mut lock).await {
                lock = ask();
            }
            elapse((1_305 + 50 * i) * MS).await;
            let theirs = b.mutex(&name).try_lock().await.unwrap();
            if let (Ok(theirs), Ok(Ok(mine))) = (theirs, tokio::time::timeout(20 * MS, lock).await) {
                assert!(mine.check().is_err() || theirs.check().is_err(), "both");
            }
        }
    });
}

/// Withdrawn without a stop: the grant came after the withdrawal, and nobody was there to release it.
#[test]
fn a_runtime_that_goes_away_with_a_command_under_way_leaves_no_ghost() {
    let folder = Folder::new();
    let (b, c) = (folder.client(), folder.client());
    let rt = runtime();
    let conn = rusqlite::Connection::open(folder.database()).unwrap();
    conn.busy_timeout(Duration::from_secs(5)).unwrap();
    rt.block_on(async { c.mutex("w").lock().await.unwrap().release().await.unwrap() });
    let mut waits = Vec::new();
    for round in 0..60 {
        let name = format!("x{round}");
        let guard = rt.block_on(b.mutex(&name).lock()).unwrap();
        let mut first = c.mutex(&name).lock();
        let _ = rt.block_on(async { tokio::time::timeout(15 * MS, &mut first).await });
        // Behind `first` in the local queue, so it runs as a task, on a runtime that will be gone.
        let gone = runtime();
        let mut second = c.mutex(&name).lock();
        {
            let _in = gone.enter();
            assert!(std::pin::Pin::new(&mut second).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        rt.block_on(guard.release()).unwrap();
        let mine = rt.block_on(async { tokio::time::timeout(Duration::from_secs(10), first).await }).unwrap().unwrap();
        rt.block_on(mine.release()).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        rt.block_on(elapse(5 * MS));
        gone.shutdown_background();
        rt.block_on(elapse(20 * MS));
        conn.execute_batch("COMMIT").unwrap();
        waits.push(second);
    }
    eventually("no ghost", Duration::from_secs(10), || {
        folder.count("SELECT count(*) FROM fencelock_holder") == i64::try_from(c.held()).unwrap()
    });
}

/// It asked for a write transaction every millisecond, for as long as the lock was held.
#[test]
fn a_dead_waiter_in_the_middle_is_buried_and_not_spun_at() {
    let folder = Folder::new();
    let (a, c) = (folder.client(), folder.client());
    runtime().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        c.mutex("own").lock().await.unwrap().release().await.unwrap();
        drop(somebody(&folder, 0x1234, true));
        somebody_waits(&folder, 0x1234);
        let mut wait = c.mutex("x").lock();
        let buried = async {
            while folder.count("SELECT count(*) FROM fencelock_session WHERE id = 0x1234") > 0 {
                tokio::time::sleep(MS).await;
            }
            queued(&folder, 1).await;
        };
        tokio::select! {
            _ = &mut wait => panic!("it is held"),
            buried = tokio::time::timeout(Duration::from_secs(10), buried) => buried.expect("it is buried"),
        }
        guard.release().await.unwrap();
        wait.await.unwrap().release().await.unwrap();
    });
}

/// Nobody can tell that it is dead, and everybody waited a quarter of a second for it, again and again.
#[test]
fn a_waiter_without_a_file_is_passed_once() {
    let folder = Folder::new();
    let (b, c) = (folder.client(), folder.client());
    runtime().block_on(async {
        for client in [&b, &c] {
            client.mutex("x").lock().await.unwrap().release().await.unwrap();
        }
        somebody(&folder, 99, false);
        somebody_waits(&folder, 99);
        let pairs = |client: Client| async move {
            for _ in 0..10 {
                client.mutex("x").lock().await.unwrap().release().await.unwrap();
            }
        };
        tokio::join!(pairs(b.clone()), pairs(c.clone()));
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_waiter"), 0);
    });
}

/// It went on watching the one that had stood before it.
#[test]
fn whoever_becomes_first_watches_the_holder() {
    let folder = Folder::new();
    let (b, c) = (folder.client(), folder.client());
    runtime().block_on(async {
        for client in [&b, &c] {
            client.mutex("x").lock().await.unwrap().release().await.unwrap();
        }
        let mut slow = 0;
        for id in 0x77..0x7c {
            let alive = somebody(&folder, id, true);
            folder.execute(&format!(
                "INSERT INTO fencelock_holder SELECT id, randomblob(16), {id}, 1, 0, fence, 30000000000, 0, 9223372036854775807, 0, 1, '', 0 FROM fencelock_lock WHERE name = 'x'"
            ));
            let mut first = b.mutex("x").lock();
            let _ = tokio::time::timeout(10 * MS, &mut first).await;
            queued(&folder, 1).await;
            let mut second = c.mutex("x").lock();
            let _ = tokio::time::timeout(10 * MS, &mut second).await;
            queued(&folder, 2).await;
            drop(first);
            queued(&folder, 1).await;
            let _ = tokio::time::timeout(20 * MS, &mut second).await;
            let died = Instant::now();
            drop(alive);
            let guard = tokio::time::timeout(Duration::from_secs(10), second).await.unwrap().unwrap();
            slow += u32::from(died.elapsed() > 400 * MS);
            guard.release().await.unwrap();
        }
        assert!(slow < 3, "by the look once a second, not by word: {slow} of 5");
    });
}

/// One error while the session was opened anew ended every wait.
#[test]
fn a_queued_attempt_survives_a_session_that_cannot_be_opened_for_a_while() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        let _beats = b.mutex("own").ttl(300 * MS).lock().await.unwrap();
        let mut wait = b.mutex("x").lock();
        let _ = tokio::time::timeout(20 * MS, &mut wait).await;
        queued(&folder, 1).await;
        let (files, away) = (folder.path().join("locks.db.d"), folder.path().join("away"));
        fs::rename(&files, &away).unwrap();
        fs::write(&files, "").unwrap();
        folder.execute("DELETE FROM fencelock_session WHERE id IN (SELECT session FROM fencelock_waiter)");
        elapse(500 * MS).await;
        fs::remove_file(&files).unwrap();
        fs::rename(&away, &files).unwrap();
        guard.release().await.unwrap();
        tokio::time::timeout(Duration::from_secs(10), wait).await.unwrap().unwrap().release().await.unwrap();
    });
}

/// Each of them tried for five seconds, one after the other.
#[test]
fn callers_of_a_blocked_database_are_told_together() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        a.mutex("w").lock().await.unwrap().release().await.unwrap();
        let conn = rusqlite::Connection::open(folder.database()).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        let started = Instant::now();
        let tries = (0..6).map(|i| {
            let a = a.clone();
            tokio::spawn(async move { a.mutex(format!("n{i}")).try_lock().await.map(drop) })
        });
        for one in tries.collect::<Vec<_>>() {
            assert_eq!(one.await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
        }
        let took = started.elapsed();
        conn.execute_batch("ROLLBACK").unwrap();
        assert!(took < Duration::from_secs(20), "{took:?}");
        a.mutex("n0").lock().await.unwrap().release().await.unwrap();
    });
}

/// He was told that the lock is taken, though nothing had been asked.
#[test]
fn who_gives_up_before_there_is_a_session_is_not_told_busy() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        a.mutex("w").lock().await.unwrap().release().await.unwrap();
        let conn = rusqlite::Connection::open(folder.database()).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        let late = folder.client();
        let answer = late.mutex("free").try_lock_for(20 * MS).await;
        assert_eq!(answer.map(drop).unwrap_err().kind(), ErrorKind::Unreachable);
        conn.execute_batch("ROLLBACK").unwrap();
        late.mutex("free").lock().await.unwrap().release().await.unwrap();
    });
}

/// A flood of withdrawals came before the heartbeat.
#[test]
fn a_flood_of_abandoned_waits_costs_no_hold() {
    on_a_steady_machine(100 * MS, || {
        let folder = Folder::new();
        let (a, b) = (folder.client(), folder.client());
        runtime().block_on(async {
            let keep = a.mutex("keep").ttl(500 * MS).lock().await.unwrap();
            let theirs = b.mutex("theirs").ttl(500 * MS).lock().await.unwrap();
            let _block = b.mutex("x").lock().await.unwrap();
            for _ in 0..3 {
                let mut all = Vec::new();
                for i in 0..500 {
                    // Different ttls: each has its own place in the database.
                    let mut lock = a.mutex("x").ttl(Duration::from_millis(10_000 + i)).lock();
                    assert!(poke(&mut lock).await);
                    // Else tokio's budget for one turn of a task is soon spent, and nothing is sent any more.
                    tokio::task::yield_now().await;
                    all.push(lock);
                }
                queued(&folder, 500).await;
                drop(all);
                queued(&folder, 0).await;
                keep.check().unwrap();
                theirs.check().unwrap();
            }
        });
    });
}

#[test]
fn a_token_at_its_end_is_told_and_never_goes_back() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        a.mutex("x").lock().await.unwrap().release().await.unwrap();
        folder.execute("UPDATE fencelock_lock SET fence = 9223372036854775807");
        let error = a.mutex("x").lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.to_string().contains("highest number"), "{error}");
        a.mutex("y").lock().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_database_of_two_names_is_refused() {
    let folder = Folder::new();
    drop(folder.client());
    fs::hard_link(folder.database(), folder.path().join("other.db")).unwrap();
    let error = SqliteEngine::open(Config::new(folder.path().join("other.db"))).unwrap_err();
    assert!(error.to_string().contains("second name"), "{error}");
}

#[test]
fn what_has_run_out_is_revived_by_no_extension_and_no_downgrade() {
    let folder = Folder::new();
    let c = folder.client();
    runtime().block_on(async {
        let lease = c.mutex("lease").lease(30_000 * MS).lock().await.unwrap();
        let writer = c.rw_lock("writer").ttl(30_000 * MS).write().await.unwrap();
        // As if the process had been stopped for longer, and nobody had come by since.
        folder.execute("UPDATE fencelock_holder SET fixed = 1 WHERE fixed > 0");
        let error = lease.extend(20_000 * MS).await.unwrap_err();
        assert_eq!((error.kind(), lease.is_valid()), (ErrorKind::Lost, false), "{error}");
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_holder WHERE fixed > 0"), 0);
        folder.execute("UPDATE fencelock_session SET beat = beat - 40000000000");
        let error = writer.downgrade().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_holder"), 0);
    });
}
