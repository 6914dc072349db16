//! On SQLite, in a file.
#![cfg(feature = "rusqlite")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails where it unwraps")]
use fencelock_core::{ErrorKind, Token};
use fencelock_sql::{
    Dialect, Hold, Lock, Refused, Retry, Row, Tx, advisory, block_on,
    fence::{self, Resource, Stamp},
    keys::Key,
    seen,
};
use fencelock_testkit::Folder;
use rusqlite::{Connection, DropBehavior, TransactionBehavior};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

fn stamp(token: i64, owner: &str) -> Stamp {
    Stamp::new(Token::new(token).unwrap(), owner)
}
fn resources() -> [Resource; 2] {
    [Row::of("orders").key("id", 42).into(), "orders/42".into()]
}
fn open(file: &Path) -> Connection {
    let db = Connection::open(file).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    db
}
/// A database of the folder, with one order.
fn made(folder: &Folder) -> std::path::PathBuf {
    let file = folder.path().join("shop.db");
    let mut db = open(&file);
    db.execute_batch(
        "PRAGMA journal_mode = WAL; CREATE TABLE log (n INTEGER PRIMARY KEY, resource INTEGER, token INTEGER); \
         CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, n INTEGER DEFAULT 0, version INTEGER DEFAULT 1, \
         fence_token INTEGER, fence_owner TEXT); INSERT INTO orders (id, state) VALUES (42, 'new')",
    )
    .unwrap();
    block_on(fence::create_table(&mut db)).unwrap();
    file
}
fn begin(db: &mut Connection) -> Tx<rusqlite::Transaction<'_>> {
    Tx::new(db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap())
}

/// Lower tokens and the same one of somebody else are refused, and leave nothing that could be committed (SAFETY T5). (Red: `<=` without the
/// owner; the state left alive.)
#[test]
fn the_newest_writes() {
    let folder = Folder::new("sql");
    let mut db = open(&made(&folder));
    for resource in resources() {
        let steps =
            [(5, "a", None), (5, "a", None), (5, "b", Some(5)), (4, "a", Some(5)), (7, "b", None), (6, "z", Some(7))];
        for (token, owner, stale) in steps {
            let mut tx = begin(&mut db);
            let got = block_on(fence::check(&mut tx, resource.clone(), stamp(token, owner))).unwrap();
            tx.execute("UPDATE orders SET state = ?1 || ?2 WHERE id = 42", (owner, token)).unwrap();
            match stale {
                None => {
                    assert_eq!(got, Ok(()), "{token} {owner}");
                    block_on(tx.commit()).unwrap();
                }
                Some(newer) => {
                    let owner_there = if newer == 5 { "a" } else { "b" };
                    assert_eq!(got, Err(Refused::Stale { token: newer, owner: Some(owner_there.to_owned()) }));
                    assert_eq!(block_on(tx.commit()).unwrap_err().kind(), ErrorKind::Lost);
                }
            }
        }
        let state: String = db.query_row("SELECT state FROM orders", [], |row| row.get(0)).unwrap();
        assert_eq!(state, "b7");
    }
    let mut tx = begin(&mut db);
    let missing = block_on(fence::check(&mut tx, Row::of("orders").key("id", 43), stamp(5, "a"))).unwrap();
    assert_eq!(missing, Err(Refused::Absent));
}
/// What SQLite has not is told before anything is done, with the way out. (Red: the statement sent to see what happens.)
#[test]
fn what_is_unsupported() {
    let folder = Folder::new("sql");
    let mut db = open(&made(&folder));
    let mut tx = begin(&mut db);
    let error = block_on(Row::of("orders").key("id", 42).lock(&mut tx, Lock::exclusive())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("TransactionBehavior::Immediate"), "{error}");
    let hold = Hold::new("x", fencelock_core::HoldId::from_bytes([7; 16]), fencelock_core::Claim::Read).unwrap();
    assert_eq!(block_on(fence::guard(&mut tx, hold)).unwrap_err().kind(), ErrorKind::Unsupported);
    let error = block_on(advisory::lock(&mut tx, Key::Int8(1), Lock::exclusive())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    block_on(tx.commit()).unwrap();
}
/// A reader cannot become a writer where somebody has written since: `Conflict` at once, and run again it succeeds. (Red: SQLITE_BUSY as any other
/// error.)
#[test]
fn a_late_writer_is_a_conflict() {
    let folder = Folder::new("sql");
    let file = made(&folder);
    let (mut a, mut b) = (open(&file), open(&file));
    let order = Row::of("orders").key("id", 42);
    let mut late = Tx::new(a.transaction().unwrap());
    let _: i64 = late.query_row("SELECT n FROM orders", [], |row| row.get(0)).unwrap();
    let mut early = begin(&mut b);
    assert_eq!(block_on(order.update(&mut early, 1, [("n", 5)])).unwrap(), Ok(2));
    block_on(early.commit()).unwrap();
    assert_eq!(block_on(order.update(&mut late, 1, [("n", 6)])).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(block_on(late.commit()).unwrap_err().kind(), ErrorKind::Conflict);
    let mut again = begin(&mut a);
    assert_eq!(block_on(order.update(&mut again, 1, [("n", 6)])).unwrap(), Err(Refused::Changed));
    assert_eq!(block_on(order.update(&mut again, 2, [("n", 6)])).unwrap(), Ok(3));
    block_on(again.commit()).unwrap();
}
/// 8 threads × 25 increments: exact, from transactions that begin as readers. (Red: SQLITE_BUSY as any other error.)
#[test]
fn increments_are_exact() {
    let folder = Folder::new("sql");
    let file = made(&folder);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let mut db = open(&file);
            thread::spawn(move || {
                let order = Row::of("orders").key("id", 42);
                for _ in 0..25 {
                    let done = block_on(Retry::default().tries(1000).run(async |_| {
                        let mut tx = Tx::new(seen(db.transaction())?);
                        let read =
                            tx.query_row("SELECT n, version FROM orders", [], |row| Ok((row.get(0)?, row.get(1)?)));
                        let (n, version): (i64, i64) = tx.seen(read)?;
                        order.update(&mut tx, version, [("n", n + 1)]).await??;
                        tx.commit().await
                    }));
                    done.unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let n: i64 = open(&file).query_row("SELECT n FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(n, 200);
}
/// A storm of stale and fresh writers: no stale write is accepted, every fresh one is. (Red: the check left out.)
#[test]
fn a_storm_of_writers() {
    let folder = Folder::new("sql");
    let file = made(&folder);
    for (r, resource) in resources().into_iter().enumerate() {
        let (next, refused) = (Arc::new(AtomicI64::new(1)), Arc::new(AtomicU32::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (mut db, resource, next, refused) = (open(&file), resource.clone(), next.clone(), refused.clone());
                thread::spawn(move || {
                    for i in 0..50 {
                        let token = next.fetch_add(1, SeqCst);
                        if i % 3 == 0 {
                            thread::sleep(Duration::from_micros(fastrand::u64(0..3000)));
                        }
                        let mut tx = begin(&mut db);
                        let got = block_on(fence::check(&mut tx, resource.clone(), stamp(token, "w"))).unwrap();
                        tx.execute(
                            "INSERT INTO log (resource, token) VALUES (?1, ?2)",
                            (i64::try_from(r).unwrap(), token),
                        )
                        .unwrap();
                        let committed = block_on(tx.commit()).is_ok();
                        assert_eq!(committed, got.is_ok());
                        if let Err(Refused::Stale { token: newer, .. }) = got {
                            assert!(newer > token, "a fresh one was refused: {token} by {newer}");
                            refused.fetch_add(1, SeqCst);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let db = open(&file);
        let ask = |sql: &str| db.query_row(sql, [i64::try_from(r).unwrap()], |row| row.get::<_, i64>(0)).unwrap();
        let back = "SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY n) AS back FROM log WHERE resource = ?1) WHERE back";
        assert_eq!(ask(back), 0, "a stale write was accepted");
        let refused = i64::from(refused.load(SeqCst));
        assert_eq!(ask("SELECT count(*) FROM log WHERE resource = ?1") + refused, 200);
        assert_eq!(ask("SELECT max(token) FROM log WHERE resource = ?1"), 200);
        assert!(refused > 0, "nobody was stale");
    }
}
/// The trigger refuses who forgets to compare. (Red: without it.)
#[test]
fn triggers_refuse_who_forgets() {
    let folder = Folder::new("sql");
    let mut db = open(&made(&folder));
    for sql in fence::triggers(Dialect::Sqlite, "main.orders", "fence_token", "fence_owner").unwrap() {
        db.execute_batch(&sql).unwrap();
    }
    let mut tx = begin(&mut db);
    block_on(fence::check(&mut tx, Row::of("orders").key("id", 42), stamp(5, "a"))).unwrap().unwrap();
    block_on(tx.commit()).unwrap();
    let tries =
        [("4", "'a'", false), ("NULL", "'a'", false), ("5", "'b'", false), ("5", "'a'", true), ("6", "'b'", true)];
    for (token, owner, goes) in tries {
        let forgot = format!("UPDATE orders SET fence_token = {token}, fence_owner = {owner}");
        assert_eq!(db.execute_batch(&forgot).is_ok(), goes, "{forgot}");
    }
    db.execute_batch("UPDATE orders SET state = 'paid'").unwrap();
    let mut tx = begin(&mut db);
    let late = tx.execute("UPDATE orders SET fence_token = 4", []);
    assert_eq!(tx.seen(late).unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(block_on(tx.commit()).unwrap_err().kind(), ErrorKind::Lost);
}
/// A key that names a second row, which is newer, or of another version, is told, and nothing is committed; a column that is not there is told, too.
/// (Red: the number of changed rows taken for an answer; names in double quotes, which are texts where there is no such column.)
#[test]
fn what_is_written_is_read_back() {
    let folder = Folder::new("sql");
    let mut db = open(&made(&folder));
    db.execute_batch(
        "CREATE TABLE shared (tenant INTEGER, id INTEGER, version INTEGER, fence_token INTEGER, fence_owner TEXT); \
         INSERT INTO shared VALUES (1, 42, 1, 5, 'a'), (2, 42, 7, 9, 'b')",
    )
    .unwrap();
    let row = Row::of("shared").key("id", 42);
    for key in [row, Row::of("orders").key("idd", 42), Row::of("orders").key("idd", "idd")] {
        for fenced in [true, false] {
            let mut tx = begin(&mut db);
            let error = if fenced {
                block_on(fence::check(&mut tx, key.clone(), stamp(7, "c"))).unwrap_err()
            } else {
                block_on(key.update(&mut tx, 1, [("fence_owner", "c")])).unwrap_err()
            };
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{key}: {error}");
            assert_eq!(block_on(tx.commit()).unwrap_err().kind(), ErrorKind::InvalidConfig);
        }
    }
    let mut tx = begin(&mut db);
    let one = Row::of("shared").key("tenant", 1).key("id", 42).filter("fence_owner = {}", ["a"]);
    assert_eq!(block_on(one.update(&mut tx, 1, [("fence_owner", "c")])).unwrap(), Ok(2));
}
/// Who has told the driver to commit what is dropped does not commit what was refused. (Red: left as it was.)
#[test]
fn what_is_dropped_is_undone() {
    let folder = Folder::new("sql");
    let mut db = open(&made(&folder));
    let order = || Row::of("orders").key("id", 42);
    let mut tx = begin(&mut db);
    block_on(fence::check(&mut tx, order(), stamp(7, "a"))).unwrap().unwrap();
    block_on(tx.commit()).unwrap();
    for late in [false, true] {
        let mut inner = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        inner.set_drop_behavior(DropBehavior::Commit);
        let mut tx = Tx::new(inner);
        if late {
            tx.set_drop_behavior(DropBehavior::Commit);
        }
        tx.execute("UPDATE orders SET state = 'stale'", []).unwrap();
        assert!(block_on(fence::check(&mut tx, order(), stamp(6, "b"))).unwrap().is_err());
        drop(tx);
        let state: String = db.query_row("SELECT state FROM orders", [], |row| row.get(0)).unwrap();
        assert_eq!(state, "new", "{late}");
    }
}
/// A disk that is full, and whatever else makes SQLite undo the whole transaction by itself: what comes after it is written at once, without the
/// fence. Nothing goes on with such a one, also when nobody has shown the error. (Red: only conflicts remembered.)
#[test]
fn a_transaction_that_is_undone() {
    let folder = Folder::new("sql");
    let mut db = open(&made(&folder));
    db.execute_batch(
        "PRAGMA max_page_count = 60; CREATE TABLE rare (n INTEGER PRIMARY KEY ON CONFLICT ROLLBACK); INSERT INTO rare VALUES (1)",
    )
    .unwrap();
    let order = Row::of("orders").key("id", 42);
    for (sql, kind) in [
        ("INSERT INTO log VALUES (NULL, zeroblob(900000), 1)", ErrorKind::Protocol),
        ("INSERT INTO rare VALUES (1)", ErrorKind::Protocol),
    ] {
        for shown in [true, false] {
            let mut tx = begin(&mut db);
            block_on(fence::check(&mut tx, &order, stamp(5, "a"))).unwrap().unwrap();
            let undone = tx.execute(sql, []);
            let kind = if shown {
                assert_eq!(tx.seen(undone).unwrap_err().kind(), kind, "{sql}");
                kind
            } else {
                undone.unwrap_err();
                // What is before it is gone, what is after it is not.
                ErrorKind::Ambiguous
            };
            assert!(tx.unusable().is_some(), "{sql}");
            assert_eq!(block_on(order.update(&mut tx, 1, [("state", "paid")])).unwrap_err().kind(), kind, "{sql}");
            let named = block_on(fence::check(&mut tx, "orders/42", stamp(5, "a")));
            assert_eq!(named.unwrap_err().kind(), kind, "{sql}");
            assert_eq!(block_on(tx.commit()).unwrap_err().kind(), kind, "{sql}");
            let left = "SELECT state || count(token) FROM orders LEFT JOIN fencelock_fence";
            assert_eq!(db.query_row(left, [], |row| row.get::<_, String>(0)).unwrap(), "new0", "{sql}");
        }
    }
    // One that is undone by itself leaves the others.
    let mut tx = begin(&mut db);
    block_on(fence::check(&mut tx, &order, stamp(5, "a"))).unwrap().unwrap();
    let twice = tx.execute("INSERT INTO orders (id) VALUES (42)", []);
    tx.seen(twice).unwrap_err();
    block_on(tx.commit()).unwrap();
}
/// A token that is kept as a text is compared as a number, and an owner by its bytes, whatever the column says. (Red: as they stand.)
#[test]
fn columns_that_compare_otherwise() {
    let folder = Folder::new("sql");
    let mut db = open(&made(&folder));
    db.execute_batch("CREATE TABLE odd (id INTEGER PRIMARY KEY, fence_token TEXT, fence_owner TEXT COLLATE NOCASE); INSERT INTO odd (id) VALUES (1)")
        .unwrap();
    for (token, owner, stale) in [(9, "a", false), (10, "a", false), (9, "a", true), (10, "A", true), (10, "a", false)]
    {
        let mut tx = begin(&mut db);
        let got = block_on(fence::check(&mut tx, Row::of("odd").key("id", 1), stamp(token, owner))).unwrap();
        assert_eq!(got.is_err(), stale, "{token} {owner}: {got:?}");
        assert_eq!(block_on(tx.commit()).is_err(), stale);
    }
    for sql in fence::triggers(Dialect::Sqlite, "odd", "fence_token", "fence_owner").unwrap() {
        db.execute_batch(&sql).unwrap();
    }
    for (token, owner, goes) in [("9", "a", false), ("10", "A", false), ("10", "a", true), ("100", "A", true)] {
        let forgot = format!("UPDATE odd SET fence_token = '{token}', fence_owner = '{owner}'");
        assert_eq!(db.execute_batch(&forgot).is_ok(), goes, "{forgot}");
    }
}
/// What was not written, and is not newer, is a conflict, and no loss. Here a trigger keeps the write out. (Red: whatever is there told as a
/// newer one.)
#[test]
fn a_row_that_is_not_newer() {
    let folder = Folder::new("sql");
    let mut db = open(&made(&folder));
    for (token, owner, newer) in
        [("NULL", "NULL", false), ("4", "'b'", false), ("5", "'a'", false), ("5", "'b'", true), ("6", "'a'", true)]
    {
        db.execute_batch(&format!(
            "DROP TRIGGER IF EXISTS still; UPDATE orders SET fence_token = {token}, fence_owner = {owner}; \
             CREATE TRIGGER still BEFORE UPDATE ON orders BEGIN SELECT RAISE(IGNORE); END"
        ))
        .unwrap();
        let mut tx = begin(&mut db);
        let got = block_on(fence::check(&mut tx, Row::of("orders").key("id", 42), stamp(5, "a")));
        if newer {
            assert!(matches!(got, Ok(Err(Refused::Stale { .. }))), "{token} {owner}: {got:?}");
        } else {
            assert_eq!(got.unwrap_err().kind(), ErrorKind::Conflict, "{token} {owner}");
        }
        block_on(tx.commit()).unwrap_err();
    }
}
