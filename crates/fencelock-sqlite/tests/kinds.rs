//! Readers, writers, permits, leases of a fixed length, cells and observers on real files; each client is a session, so they stand
//! for processes. Where death matters there are real ones: `processes/`.
//! Planted to see them go red: those ahead not asked in `Line::read`; a downgrade without its `freed`; HOLDERS_BURY without `least`;
//! holders whose `take` is read as 0; the nonce not asked; IDLE that takes cells; a grant that tells no watchers; the end of a session
//! without its fixed leases; a fixed lease that heartbeats renew; the one who blocks not judged; a version not compared; a stored size
//! overwritten; waiters that stay though they are too large, or are not rung when it grew; a watch that never ends, or that rings
//! prolong, or that a new session does not take up again; a live kind not looked at; tombstones never swept.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::{
    BootClock, Client, Clock, Engine, ErrorKind, HoldId, Kind, LossReason, Name, Page, Released, SharedGuard, Version,
};
use fencelock_sqlite::{Config, SqliteEngine};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const LONG: Duration = Duration::from_secs(10);

async fn queued(client: &Client, name: &str, n: usize) {
    let deadline = Instant::now() + LONG;
    while client.inspect(name).await.unwrap().waiters.len() != n {
        assert!(Instant::now() < deadline, "not {n} in the queue");
        tokio::time::sleep(MS).await;
    }
}
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.unwrap()
}
/// At once: by a ring, not by the look once a second. That is judged on a machine that does nothing else.
async fn rung<T>(what: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let what = tokio::time::timeout(LONG, what).await.unwrap();
    in_time(started.elapsed(), 900 * MS);
    what
}
/// Times are judged in full only.
fn in_time(took: Duration, limit: Duration) {
    assert!(took < if full() { limit } else { LONG }, "{took:?}");
}

#[test]
fn readers_share_and_writers_do_not() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let one = a.rw_lock("x").read().await.unwrap();
        let two = b.rw_lock("x").read().await.unwrap();
        let busy = b.rw_lock("x").try_write().await.unwrap().unwrap_err();
        assert_eq!(busy.holder.unwrap().claim, fencelock_core::Claim::Read);
        let status = a.inspect("x").await.unwrap();
        assert_eq!((status.kind, status.holders.len(), status.capacity), (Some(Kind::RwLock), 2, None));
        assert!(status.exclusive().is_none());
        assert_ne!(status.holders[0].token, status.holders[1].token, "each grant has its token");
        one.release().await.unwrap();
        two.release().await.unwrap();
        let writer = b.rw_lock("x").try_write().await.unwrap().unwrap();
        assert!(a.rw_lock("x").try_read().await.unwrap().is_err());
        assert!(writer.token() > status.last_token.unwrap());
    });
}

#[test]
fn nobody_passes_a_writer_and_one_that_gives_up_lets_those_behind_in() {
    let folder = Folder::new();
    let clients: Vec<_> = (0..4).map(|_| folder.client()).collect();
    runtime().block_on(async {
        let first = clients[0].rw_lock("x").read().await.unwrap();
        let mut writer = clients[1].rw_lock("x").write();
        let _ = tokio::time::timeout(20 * MS, &mut writer).await;
        queued(&clients[0], "x", 1).await;
        assert!(clients[2].rw_lock("x").try_read().await.unwrap().is_err(), "a reader that comes later waits");
        let readers: Vec<_> = [&clients[2], &clients[3]]
            .into_iter()
            .map(|client| {
                let lock = client.rw_lock("x");
                tokio::spawn(async move { lock.read().await.unwrap() })
            })
            .collect();
        queued(&clients[0], "x", 3).await;
        drop(writer);
        for reader in readers {
            rung(reader).await.unwrap().release().await.unwrap();
        }
        first.release().await.unwrap();
    });
}

#[test]
fn a_dead_writer_between_readers_lets_those_behind_in() {
    let folder = Folder::new();
    let (a, c) = (folder.client(), folder.client());
    runtime().block_on(async {
        let first = a.rw_lock("x").read().await.unwrap();
        c.mutex("own").lock().await.unwrap().release().await.unwrap();
        // A session that lived until now: its file is not locked any more.
        std::fs::write(folder.path().join("locks.db.d").join(format!("{:016x}.live", 0x77)), "").unwrap();
        folder.execute(
            "INSERT INTO fencelock_session (id, boot, beat, host, pid) SELECT 0x77, boot, 9000000000000000000, 'h', 1 FROM fencelock_meta;
             INSERT INTO fencelock_waiter SELECT id, 1, randomblob(16), 0x77, 2, 0, 30000000000, 1, '' FROM fencelock_lock WHERE name = 'x'",
        );
        let reader = soon(c.rw_lock("x").read()).await.unwrap();
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_waiter"), 0);
        reader.release().await.unwrap();
        first.release().await.unwrap();
    });
}

/// Who stood behind it and would have buried it sleeps.
#[test]
fn a_dead_writer_before_a_sleeper_is_found_by_those_behind() {
    let folder = Folder::new();
    let (a, c) = (folder.client(), folder.client());
    runtime().block_on(async {
        let first = a.rw_lock("x").read().await.unwrap();
        c.mutex("own").lock().await.unwrap().release().await.unwrap();
        let file = |id: u64| folder.path().join("locks.db.d").join(format!("{id:016x}.live"));
        let locked = |id| {
            let file = std::fs::File::create(file(id)).unwrap();
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
            file
        };
        let (writer, _sleeper) = (locked(0x77), locked(0x78));
        for (id, place, claim) in [(0x77, 1, 2), (0x78, 2, 3)] {
            folder.execute(&format!(
                "INSERT INTO fencelock_session (id, boot, beat, host, pid) SELECT {id}, boot, 9000000000000000000, 'h', 1 FROM fencelock_meta;
                 INSERT INTO fencelock_waiter SELECT id, {place}, randomblob(16), {id}, {claim}, 0, 30000000000, 1, '' FROM fencelock_lock WHERE name = 'x'"
            ));
        }
        let mut reader = c.rw_lock("x").read();
        assert!(tokio::time::timeout(100 * MS, &mut reader).await.is_err(), "behind a writer");
        drop(writer);
        soon(reader).await.unwrap().release().await.unwrap();
        first.release().await.unwrap();
    });
}

#[test]
fn a_downgrade_lets_readers_in_and_keeps_the_writer_out() {
    let folder = Folder::new();
    let clients: Vec<_> = (0..4).map(|_| folder.client()).collect();
    runtime().block_on(async {
        let writer = clients[0].rw_lock("x").write().await.unwrap();
        let token = writer.token();
        let lock = clients[1].rw_lock("x");
        let reader = tokio::spawn(async move { lock.read().await.unwrap() });
        queued(&clients[0], "x", 1).await;
        let lock = clients[2].rw_lock("x");
        let next = tokio::spawn(async move { lock.write().await.unwrap() });
        queued(&clients[0], "x", 2).await;
        let mine = writer.downgrade().await.unwrap();
        let theirs = rung(reader).await.unwrap();
        let status = clients[3].inspect("x").await.unwrap();
        assert_eq!((status.holders.len(), status.holders[0].token), (2, token), "the token stays");
        assert!(!next.is_finished() && status.waiters.len() == 1);
        assert!(clients[3].rw_lock("x").try_read().await.unwrap().is_err(), "behind the writer");
        mine.release().await.unwrap();
        theirs.release().await.unwrap();
        rung(next).await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_downgrade_of_what_was_taken_away_is_told() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let writer = a.rw_lock("x").write().await.unwrap();
        folder.execute("DELETE FROM fencelock_holder");
        assert_eq!(writer.downgrade().await.unwrap_err().kind(), ErrorKind::Lost);
        b.rw_lock("x").try_write().await.unwrap().unwrap().release().await.unwrap();
        let mutex = a.mutex("m").lock().await.unwrap();
        assert_eq!(mutex.downgrade().await.unwrap_err().kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn permits_are_counted_and_a_large_request_is_not_starved() {
    let folder = Folder::new();
    let (a, b, c) = (folder.client(), folder.client(), folder.client());
    runtime().block_on(async {
        let two = a.semaphore("x", 3).acquire(2).await.unwrap();
        let one = b.semaphore("x", 3).acquire(1).await.unwrap();
        assert!(c.semaphore("x", 3).try_acquire(1).await.unwrap().is_err());
        one.release().await.unwrap();
        let lock = b.semaphore("x", 3);
        let large = tokio::spawn(async move { lock.acquire(3).await.unwrap() });
        queued(&a, "x", 1).await;
        let status = a.inspect("x").await.unwrap();
        assert_eq!((status.capacity, status.taken(), status.free_permits()), (Some(3), 2, Some(1)));
        assert!(c.semaphore("x", 3).try_acquire(1).await.unwrap().is_err(), "behind the large one");
        two.release().await.unwrap();
        let large = rung(large).await.unwrap();
        assert_eq!(a.inspect("x").await.unwrap().taken(), 3);
        large.release().await.unwrap();
        let status = a.inspect("x").await.unwrap();
        assert_eq!((status.kind, status.capacity), (None, Some(3)), "the size is kept");
    });
}

#[test]
fn a_name_has_one_kind_and_a_semaphore_one_size() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let mutex = a.mutex("x").lock().await.unwrap();
        let error = soon(b.rw_lock("x").read()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KindMismatch);
        assert!(error.to_string().contains("mutex now, not a rw_lock"), "{error}");
        assert_eq!(b.cell("x").load().await.unwrap_err().kind(), ErrorKind::KindMismatch);
        let error = b.cell("x").compare_exchange(Version::NONE, "1").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KindMismatch);
        assert_eq!(b.semaphore("x", 2).resize(2, 3).await.unwrap_err().kind(), ErrorKind::KindMismatch);
        mutex.release().await.unwrap();

        a.semaphore("x", 2).acquire(1).await.unwrap().release().await.unwrap();
        let error = b.semaphore("x", 3).acquire(1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CapacityMismatch);
        assert!(error.to_string().contains("has 2 permits, not 3"), "{error}");
        // Another kind takes the idle name, and the size is forgotten.
        a.rw_lock("x").read().await.unwrap().release().await.unwrap();
        assert_eq!(a.inspect("x").await.unwrap().capacity, None);
        b.semaphore("x", 3).acquire(3).await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_size_is_changed_by_compare_and_set() {
    let folder = Folder::new();
    let (a, b, c) = (folder.client(), folder.client(), folder.client());
    runtime().block_on(async {
        a.semaphore("x", 1).resize(5, 2).await.unwrap();
        assert_eq!(a.inspect("x").await.unwrap().capacity, Some(2), "none was stored");
        let all = a.semaphore("x", 2).acquire(2).await.unwrap();
        let lock = b.semaphore("x", 2);
        let next = tokio::spawn(async move { lock.acquire(2).await.map(drop) });
        queued(&a, "x", 1).await;
        assert_eq!(a.semaphore("x", 2).resize(3, 4).await.unwrap_err().kind(), ErrorKind::CapacityMismatch);
        // Larger: who waits gets in.
        a.semaphore("x", 2).resize(2, 4).await.unwrap();
        a.semaphore("x", 2).resize(2, 4).await.unwrap();
        rung(next).await.unwrap().unwrap();
        // Smaller: who wants more than there is is sent away, who holds more keeps it.
        let lock = b.semaphore("x", 4);
        let large = tokio::spawn(async move { lock.acquire(3).await.map(drop) });
        queued(&a, "x", 1).await;
        let lock = c.semaphore("x", 4);
        let small = tokio::spawn(async move { lock.acquire(1).await.map(drop) });
        queued(&a, "x", 2).await;
        a.semaphore("x", 4).resize(4, 1).await.unwrap();
        assert_eq!(rung(large).await.unwrap().unwrap_err().kind(), ErrorKind::CapacityMismatch);
        assert!(all.is_valid() && !small.is_finished());
        all.release().await.unwrap();
        rung(small).await.unwrap().unwrap();
    });
}

#[test]
fn a_fixed_lease_ends_by_itself_and_can_be_extended() {
    on_a_steady_machine(50 * MS, || {
        let folder = Folder::new();
        let (a, b) = (folder.client(), folder.client());
        runtime().block_on(async {
            // Its session goes on beating for another hold.
            let other = a.mutex("other").ttl(300 * MS).lock().await.unwrap();
            let started = Instant::now();
            let lease = Arc::new(a.mutex("x").lease(600 * MS).lock().await.unwrap());
            let (lock, old) = (b.mutex("x"), lease.clone());
            let next = tokio::spawn(async move { (lock.lock().await.unwrap(), old.is_valid()) });
            queued(&b, "x", 1).await;
            lease.extend(1_000 * MS).await.unwrap();
            let extended = Instant::now();
            lease.extend(200 * MS).await.unwrap();
            soon(other.renewed()).await;
            soon(other.renewed()).await;
            let since = extended.elapsed();
            let left = b.inspect("x").await.unwrap().holders.first().map(|holder| holder.left).unwrap_or_default();
            assert!(left <= (1_000 * MS).saturating_sub(since), "no heartbeat renews it: {left:?} after {since:?}");
            assert_eq!(soon(lease.lost()).await, LossReason::Expired);
            assert!(started.elapsed() > 900 * MS);
            let (next, beside) = soon(next).await.unwrap();
            assert!(!beside, "granted while the lease was good");
            let took = started.elapsed();
            assert!(took >= 1_000 * MS, "{took:?}");
            in_time(took, 1_900 * MS);
            assert!(next.token() > lease.token());
            assert_eq!(lease.extend(200 * MS).await.unwrap_err().kind(), ErrorKind::Lost);
        });
    });
}

#[test]
fn a_fixed_lease_of_a_session_that_ends_is_told() {
    on_a_steady_machine(50 * MS, || {
        let folder = Folder::new();
        let (a, b) = (folder.client(), folder.client());
        runtime().block_on(async {
            let lease = a.rw_lock("x").lease(30_000 * MS).write().await.unwrap();
            let beats = a.mutex("y").ttl(300 * MS).lock().await.unwrap();
            folder.execute("DELETE FROM fencelock_session");
            assert_eq!(soon(beats.lost()).await, LossReason::SessionEnded);
            assert_eq!(soon(lease.lost()).await, LossReason::SessionEnded);
            // And of one that was closed.
            let lease = soon(a.mutex("z").lease(30_000 * MS).lock()).await.unwrap();
            let lost = lease.lost();
            a.shutdown(LONG).await.unwrap();
            assert_eq!(soon(lost).await, LossReason::SessionEnded);
            b.mutex("z").try_lock().await.unwrap().unwrap().release().await.unwrap();
        });
    });
}

#[test]
fn a_fixed_lease_and_max_hold_end_with_the_earlier_one() {
    on_a_steady_machine(50 * MS, || {
        let folder = Folder::new();
        let (a, b) = (folder.client(), folder.client());
        runtime().block_on(async {
            let lease = a.mutex("x").lease(600 * MS).max_hold(300 * MS).lock().await.unwrap();
            assert_eq!(soon(lease.lost()).await, LossReason::MaxHold);
            let started = Instant::now();
            soon(b.mutex("x").lock()).await.unwrap().release().await.unwrap();
            in_time(started.elapsed(), 1_000 * MS);
            let lease = a.mutex("y").lease(300 * MS).max_hold(30_000 * MS).lock().await.unwrap();
            assert_eq!(soon(lease.lost()).await, LossReason::Expired);
        });
    });
}

#[test]
fn at_least_outlives_a_shutdown_but_not_a_forced_release() {
    let folder = Folder::new();
    let (a, b, c) = (folder.client(), folder.client(), folder.client());
    runtime().block_on(async {
        let started = Instant::now();
        let guard = a.mutex("x").at_least(3_000 * MS).lock().await.unwrap();
        let token = guard.token();
        let lock = b.mutex("x");
        let next = tokio::spawn(async move { lock.lock().await.unwrap() });
        queued(&b, "x", 1).await;
        a.shutdown(LONG).await.unwrap();
        let status = b.inspect("x").await.unwrap();
        assert_eq!(status.holders[0].token, token, "it counts as held");
        let next = soon(next).await.unwrap();
        let took = started.elapsed();
        assert!(took >= 3_000 * MS, "{took:?}");
        in_time(took, 3_700 * MS);
        next.release().await.unwrap();
        assert_eq!(folder.count("SELECT sum(dead) FROM fencelock_session"), 0, "its session went with it");

        let guard = c.mutex("y").at_least(30_000 * MS).lock().await.unwrap();
        let token = guard.token();
        c.shutdown(LONG).await.unwrap();
        assert!(b.mutex("y").try_lock().await.unwrap().is_err());
        assert_eq!(b.force_release("y", token).await.unwrap(), Released::Released);
        b.mutex("y").try_lock().await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn what_at_least_left_is_swept_when_nobody_comes_for_it() {
    let folder = Folder::new();
    let a = folder.client();
    let rt = runtime();
    rt.block_on(async {
        let guard = a.mutex("x").at_least(3_000 * MS).lock().await.unwrap();
        a.shutdown(LONG).await.unwrap();
        drop(guard);
    });
    assert_eq!(folder.count("SELECT sum(dead) FROM fencelock_session"), 1);
    assert_eq!(folder.files(), [""; 0]);
    let least = u64::try_from(folder.count("SELECT least FROM fencelock_holder")).unwrap();
    eventually("its time is over", LONG, || BootClock.now().as_nanos() > least);
    // Whoever opens a session sweeps.
    let b = folder.client();
    let _guard = rt.block_on(b.mutex("y").lock()).unwrap();
    eventually("swept", LONG, || folder.count("SELECT count(*) FROM fencelock_session") == 1);
    assert_eq!(folder.count("SELECT count(*) FROM fencelock_holder"), 1);
}

#[test]
fn a_cell_is_written_by_who_knows_its_version() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let (cell, theirs) = (a.cell("x"), b.cell("x"));
        assert_eq!(cell.load().await.unwrap().version, Version::NONE);
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_lock"), 0, "load makes no record");
        let one = cell.compare_exchange(Version::NONE, "1").await.unwrap().unwrap();
        let conflict = theirs.compare_exchange(Version::NONE, "2").await.unwrap().unwrap_err();
        assert_eq!((conflict.now.version, conflict.now.value.as_deref()), (one, Some(&b"1"[..])));
        let large = vec![7; fencelock_core::Cell::MAX_BYTES];
        let two = theirs.compare_exchange(one, large.clone()).await.unwrap().unwrap();
        assert!(two > one);
        assert_eq!(cell.load().await.unwrap().value.as_deref(), Some(&large[..]));
        assert_eq!(a.inspect("x").await.unwrap().kind, Some(Kind::Cell));
        assert!(a.list("", &Page::default()).await.unwrap().items.is_empty());
        assert_eq!(a.mutex("x").try_lock().await.unwrap_err().kind(), ErrorKind::KindMismatch);
        // Without a value the name is free for a lock, and the next version is greater all the same.
        let gone = cell.remove(two).await.unwrap().unwrap();
        let lock = a.mutex("x").lock().await.unwrap();
        let token = lock.token();
        assert!(token.get() > gone.get());
        lock.release().await.unwrap();
        let now = cell.load().await.unwrap();
        assert_eq!((now.version, now.value), (gone, None));
        let three = cell.compare_exchange(gone, "").await.unwrap().unwrap();
        assert!(three.get() > token.get());
        assert_eq!(cell.load().await.unwrap().value.as_deref(), Some(&b""[..]), "empty is a value");
    });
}

#[test]
fn a_write_that_is_sent_again_answers_what_the_first_one_did() {
    let folder = Folder::new();
    let engine = SqliteEngine::open(Config::new(folder.database())).unwrap();
    let (cells, name) = (engine.cells().unwrap(), Name::new("x").unwrap());
    let nonce = |n: u8| HoldId::from_bytes([n; 16]);
    let value = |text: &str| Some(Arc::from(text.as_bytes()));
    runtime().block_on(async {
        let write = |expected, text: &'static str, n| cells.compare_exchange(&name, expected, value(text), nonce(n));
        let one = write(Version::NONE, "1", 1).await.unwrap().unwrap();
        let two = write(one, "2", 2).await.unwrap().unwrap();
        assert_eq!(write(Version::NONE, "1", 1).await.unwrap().unwrap(), one);
        assert!(write(Version::NONE, "1", 3).await.unwrap().is_err());
        assert_eq!(cells.load(&name).await.unwrap().version, two, "and writes nothing");
        // A minute later they are forgotten, a few with each write.
        folder.execute("UPDATE fencelock_write SET at = 1");
        let three = write(two, "3", 4).await.unwrap().unwrap();
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_write"), 1);
        assert!(write(Version::NONE, "1", 1).await.unwrap().is_err());
        assert_eq!(cells.load(&name).await.unwrap().version, three);
    });
}

#[test]
fn an_observer_is_told_also_when_a_lease_ends_by_itself() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let mut observer = a.election("x").observe();
        assert!(soon(observer.changed()).await.unwrap().is_none());
        let mut heard = tokio::spawn(async move {
            let leader = observer.changed().await.unwrap().unwrap();
            (observer, leader)
        });
        assert!(tokio::time::timeout(50 * MS, &mut heard).await.is_err());
        let lease = b.mutex("x").note("b").lease(3_000 * MS).lock().await.unwrap();
        let (mut observer, leader) = soon(heard).await.unwrap();
        assert_eq!((&*leader.candidate, leader.term), ("b", lease.token()));
        let started = Instant::now();
        assert!(soon(observer.changed()).await.unwrap().is_none());
        in_time(started.elapsed(), 3_300 * MS);
        // Of those who hold it alone.
        drop(lease);
        let mut observer = a.election("y").observe();
        assert!(soon(observer.changed()).await.unwrap().is_none());
        let writer = b.rw_lock("y").write().await.unwrap();
        assert_eq!(rung(observer.changed()).await.unwrap().unwrap().term, writer.token());
        let reader = writer.downgrade().await.unwrap();
        assert!(rung(observer.changed()).await.unwrap().is_none());
        reader.release().await.unwrap();
        assert!(tokio::time::timeout(50 * MS, observer.changed()).await.is_err());
        drop(observer);
        let left = Instant::now();
        while folder.count("SELECT count(*) FROM fencelock_watcher") > 0 {
            assert!(left.elapsed() < LONG);
            tokio::time::sleep(10 * MS).await;
        }
    });
}

#[test]
fn a_watch_that_nobody_uses_ends_and_a_new_session_watches_again() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let mut observer = a.election("x").observe();
        soon(observer.changed()).await.unwrap();
        let watch = tokio::spawn(async move {
            let leader = observer.changed().await.unwrap();
            (observer, leader)
        });
        let watched = "SELECT (SELECT count(*) FROM fencelock_watcher) + (SELECT coalesce(sum(watched), 0) FROM fencelock_lock)";
        let until = |sql: &'static str, n| {
            let folder = &folder;
            async move {
                while folder.count(sql) != n {
                    tokio::time::sleep(MS).await;
                }
            }
        };
        soon(until(watched, 2)).await;
        // Its session is ended by somebody; the next one is told.
        let guard = a.mutex("own").ttl(300 * MS).lock().await.unwrap();
        folder.execute("DELETE FROM fencelock_session WHERE id IN (SELECT session FROM fencelock_watcher); DELETE FROM fencelock_watcher");
        soon(guard.lost()).await;
        soon(until("SELECT count(*) FROM fencelock_watcher", 1)).await;
        let holder = b.mutex("x").lock().await.unwrap();
        let (observer, leader) = rung(watch).await.unwrap();
        assert_eq!(leader.unwrap().term, holder.token());
        let dropped = Instant::now();
        drop(observer);
        holder.release().await.unwrap();
        while folder.count(watched) > 0 {
            assert!(dropped.elapsed() < LONG);
            // However much happens to the lock meanwhile.
            b.mutex("x").lock().await.unwrap().release().await.unwrap();
            tokio::time::sleep(10 * MS).await;
        }
        println!("ended after {:?}", dropped.elapsed());
    });
}

#[test]
fn a_store_is_the_same_by_every_path() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(folder.database(), &link).unwrap();
    let other = Folder::new();
    assert_eq!(a.info().id, b.info().id);
    assert_eq!(a.info().id, client(&link).info().id);
    assert_ne!(a.info().id, other.client().info().id);
}

#[test]
fn many_names_leave_only_rows_and_many_holds_are_one_session() {
    let folder = Folder::new();
    let a = folder.client();
    let (names, holds) = if full() { (100_000, 10_000) } else { (10_000, 1_000) };
    runtime().block_on(async {
        for first in (0..names).step_by(1_000) {
            let all = (first..first + 1_000).map(|n| {
                let lock = a.mutex(format!("n{n}"));
                tokio::spawn(async move { lock.lock().await.unwrap().release().await.unwrap() })
            });
            for one in all.collect::<Vec<_>>() {
                one.await.unwrap();
            }
        }
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_lock"), names);
        assert_eq!((folder.files().len(), a.held()), (2, 0));
        let others = ["holder", "waiter", "watcher", "write"].map(|t| folder.count(&format!("SELECT count(*) FROM fencelock_{t}")));
        assert_eq!((others, folder.count("SELECT count(*) FROM fencelock_session")), ([0; 4], 1), "rows and nothing else");
        let mut guards: Vec<SharedGuard> = Vec::new();
        for first in (0..holds).step_by(500) {
            let all = (first..first + 500).map(|n| {
                let lock = a.rw_lock(format!("h{n}")).ttl(6_000 * MS);
                tokio::spawn(async move { lock.read().await.unwrap() })
            });
            for one in all.collect::<Vec<_>>() {
                guards.push(one.await.unwrap());
            }
        }
        folder.execute(
            "CREATE TABLE log(id); CREATE TRIGGER t AFTER UPDATE OF beat ON fencelock_session BEGIN INSERT INTO log VALUES(new.id); END",
        );
        tokio::time::sleep(12_000 * MS).await;
        assert!(guards.iter().all(|guard| guard.is_valid()));
        let beats = folder.count("SELECT count(*) FROM log");
        assert!((4..=12).contains(&beats), "{beats} heartbeats in two ttls");
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_session"), 1);
        println!(
            "\nMEASURED | {names} names used, {holds} locks held | 1 session, 2 files, {beats} heartbeats in two ttls | 1 session | ok"
        );
    });
}

#[test]
fn idle_clean_up_keeps_cells_and_their_versions_rising() {
    let folder = Folder::new();
    let rt = runtime();
    let (kept, gone, token) = rt.block_on(async {
        let client = folder.client();
        let kept = client.cell("kept").compare_exchange(Version::NONE, "1").await.unwrap().unwrap();
        let gone = client.cell("gone").compare_exchange(Version::NONE, "1").await.unwrap().unwrap();
        let gone = client.cell("gone").remove(gone).await.unwrap().unwrap();
        (kept, gone, client.mutex("x").lock().await.unwrap().token())
    });
    folder.execute("UPDATE fencelock_lock SET used = 0; UPDATE fencelock_meta SET swept = 0");
    let client = folder.client();
    rt.block_on(async {
        let _open = client.mutex("open").lock().await.unwrap();
        eventually("swept", LONG, || folder.count("SELECT count(*) FROM fencelock_lock") == 2);
        assert_eq!(client.cell("kept").load().await.unwrap().version, kept);
        let again = client.cell("gone").compare_exchange(Version::NONE, "1").await.unwrap().unwrap();
        assert!(again > gone);
        assert!(client.mutex("x").lock().await.unwrap().token() > token);
    });
}
