//! Row locks.
use super::*;
use fencelock_core::ErrorKind;
use fencelock_sql::{Lock, Refused, Retry, Row, seen};
use std::{sync::Arc, time::Instant};
use tokio::sync::Barrier;

fn account(id: i32) -> Row {
    Row::of("account").key("id", id)
}

/// Two at once, each of them waits, or not, or so long, as it was told. (Red: every clause left out.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_or_not() {
    let server = accounts();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let mut first = begin(&mut a).await;
    let locked = account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
    assert_eq!((locked.rows(), locked.keys[0][0].as_i64(), locked.warning), (1, Some(1), None));

    let mut second = begin(&mut b).await;
    for mode in [Lock::exclusive(), Lock::no_key(), Lock::shared(), Lock::key_shared()] {
        assert_eq!(account(1).lock(&mut second, mode.no_wait()).await.unwrap(), Err(Refused::Busy), "{mode:?}");
        let started = Instant::now();
        assert_eq!(account(1).lock(&mut second, mode.within(100 * MS)).await.unwrap(), Err(Refused::Busy), "{mode:?}");
        assert!(started.elapsed() >= 100 * MS);
    }
    // Everything else goes on in the same transaction.
    assert_eq!(account(99).lock(&mut second, Lock::exclusive()).await.unwrap(), Err(Refused::Absent));
    let skipped =
        Row::of("account").keys("id", [2, 1]).lock(&mut second, Lock::no_key().skip_locked()).await.unwrap().unwrap();
    assert_eq!(skipped.keys, [["2".into()]]);
    second.execute("UPDATE account SET balance = 7 WHERE id = 2", &[]).await.unwrap();
    second.commit().await.unwrap();
    assert_eq!(server.ask("SELECT balance FROM account WHERE id = 2"), "7");

    let waits = tokio::spawn(async move {
        let mut third = begin(&mut b).await;
        let got = account(1).lock(&mut third, Lock::exclusive().within(LONG)).await.unwrap().unwrap();
        third.commit().await.unwrap();
        got.rows()
    });
    blocked(&server, 1).await;
    first.rollback().await.unwrap();
    assert_eq!(soon(waits).await.unwrap(), 1);
}

/// A lock lasts until the transaction ends, however it ends, and no longer. (Red: a savepoint around the lock that is rolled back.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_ends_with_the_transaction() {
    let server = accounts();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    for end in ["commit", "rollback", "drop", "in doubt"] {
        let mut tx = begin(&mut a).await;
        account(1).lock(&mut tx, Lock::exclusive().within(SEC)).await.unwrap().unwrap();
        tx.execute("UPDATE account SET balance = balance + 1 WHERE id = 2", &[]).await.unwrap();
        let mut other = begin(&mut b).await;
        assert_eq!(account(1).lock(&mut other, Lock::shared().no_wait()).await.unwrap(), Err(Refused::Busy), "{end}");
        other.rollback().await.unwrap();
        match end {
            "commit" => tx.commit().await.unwrap(),
            "rollback" => tx.rollback().await.unwrap(),
            "drop" => drop(tx),
            _ => {
                // Its server process is gone: nobody can commit it, and nothing says that it was.
                let pid: i32 = tx.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
                server.ask(&format!("SELECT pg_terminate_backend({pid}, 5000)"));
                let kind = account(1).lock(&mut tx, Lock::shared()).await.unwrap_err().kind();
                assert_eq!(kind, ErrorKind::Unreachable);
                assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Unreachable);
            }
        }
        let mut after = begin(&mut b).await;
        account(1).lock(&mut after, Lock::exclusive().within(LONG)).await.unwrap().unwrap();
        after.commit().await.unwrap();
    }
    assert_eq!(server.ask("SELECT balance FROM account WHERE id = 2"), "101");
}
/// Settings are the user's: of the session, of the transaction, changed before or after. (Red: `set_config` not taken back; `SET` without
/// `LOCAL`; the plan's setting left.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_as_before() {
    let server = accounts();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    b.batch_execute("SET lock_timeout = '3s'; SET enable_seqscan = on").await.unwrap();
    let show = "SELECT current_setting('lock_timeout') || ' ' || current_setting('enable_seqscan') || ' ' || current_setting('statement_timeout')";
    let mut first = begin(&mut a).await;
    account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
    for (set, is) in [
        ("SELECT 1", "3s on 0"),
        ("SET LOCAL lock_timeout = '70ms'", "70ms on 0"),
        ("SET lock_timeout = '4s'", "4s on 0"),
    ] {
        let mut tx = begin(&mut b).await;
        tx.batch_execute(set).await.unwrap();
        for (id, busy) in [(1, true), (2, false)] {
            let got = account(id).lock(&mut tx, Lock::no_key().within(50 * MS)).await.unwrap();
            assert_eq!(got.is_err(), busy);
            let shown: String = tx.query_one(show, &[]).await.unwrap().get(0);
            assert_eq!(shown, is, "{set}, {id}");
        }
        tx.commit().await.unwrap();
        // Nothing of ours is in the session, and what is the user's stays.
        let shown: String = b.query_one(show, &[]).await.unwrap().get(0);
        assert_eq!(shown, if set.starts_with("SET lock") { is } else { "3s on 0" }, "{set}");
    }
}
async fn transfer(db: &mut Client, from: i32, to: i32, retry: Retry, meet: &Barrier) -> fencelock_core::Result<()> {
    let mut tx = Tx::new(seen(db.transaction().await)?);
    account(from).lock(&mut tx, Lock::no_key()).await??;
    if retry.number() == 1 {
        meet.wait().await;
    }
    if let Err(error) = account(to).lock(&mut tx, Lock::no_key()).await {
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let why = tx.unusable().unwrap();
        assert!(why.contains("40P01"), "{why}");
        let again = account(from).lock(&mut tx, Lock::no_key()).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Conflict);
        return Err(tx.commit().await.unwrap_err());
    }
    let sql = "UPDATE account SET balance = balance + CASE id WHEN $1 THEN -10 ELSE 10 END WHERE id IN ($1, $2)";
    let done = tx.execute(sql, &[&from, &to]).await;
    tx.seen(done)?;
    tx.commit().await
}
/// The opposite order in two transactions: one is told `Conflict` and can neither go on nor commit; run again it succeeds. (Red: 40P01 as any
/// other error; `commit` without a look at the state.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deadlock_is_a_conflict() {
    let server = accounts();
    let transfers = |from: i32, to: i32, meet: Arc<Barrier>| {
        let url = server.url();
        tokio::spawn(async move {
            let (mut db, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(connection);
            let (mut conflicts, mut retry) = (0, Retry::default());
            loop {
                let done = transfer(&mut db, from, to, retry, &meet).await;
                conflicts += u32::from(done.is_err());
                if !retry.again(&done).await {
                    done.unwrap();
                    return conflicts;
                }
            }
        })
    };
    let meet = Arc::new(Barrier::new(2));
    let (one, two) = (transfers(1, 2, meet.clone()), transfers(2, 1, meet));
    // Who is run again may meet the other one once more.
    assert!(soon(one).await.unwrap() + soon(two).await.unwrap() >= 1);
    assert_eq!(server.ask("SELECT string_agg(balance::text, ' ' ORDER BY id) FROM account WHERE id < 3"), "100 100");
}
/// Several rows are locked in the order of their keys, whatever that of the call: no deadlock. (Red: without `ORDER BY`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_rows_have_one_order() {
    let server = accounts();
    // So that a plan without an order finds them in the opposite one.
    server.ask("UPDATE account SET balance = 100 WHERE id = 1");
    let work = |ids: [i32; 9]| {
        let url = server.url();
        tokio::spawn(async move {
            let (mut db, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(connection);
            for _ in 0..50 {
                let mut tx = begin(&mut db).await;
                let locked = Row::of("account").keys("id", ids).lock(&mut tx, Lock::no_key()).await.unwrap().unwrap();
                let keys: Vec<_> = locked.keys.iter().map(|key| key[0].as_i64().unwrap()).collect();
                assert_eq!(keys, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
                tx.execute("UPDATE account SET balance = balance + 1 WHERE id = $1", &[&ids[0]]).await.unwrap();
                tx.commit().await.unwrap();
            }
        })
    };
    let all = [work([1, 2, 3, 4, 5, 6, 7, 8, 9]), work([9, 8, 7, 6, 5, 4, 3, 2, 1]), work([5, 1, 9, 2, 8, 3, 7, 4, 6])];
    for one in all {
        tokio::time::timeout(6 * LONG, one).await.unwrap().unwrap();
    }
    assert_eq!(server.ask("SELECT sum(balance) FROM account"), "1050");
}
/// A statement that is stopped while it waits is undone by itself; the transaction goes on from its savepoint. (Red: 57014 as any other error.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goes_on_after_a_cancel() {
    let server = accounts();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let mut first = begin(&mut a).await;
    account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
    let cancel = b.cancel_token();
    let mut tx = begin(&mut b).await;
    tx.execute("UPDATE account SET balance = 7 WHERE id = 2", &[]).await.unwrap();
    let one = account(1);
    let (got, ()) = tokio::join!(soon(one.lock(&mut tx, Lock::no_key().within(LONG))), async {
        blocked(&server, 1).await;
        cancel.cancel_query(NoTls).await.unwrap();
    });
    assert_eq!(got.unwrap(), Err(Refused::Busy));
    tx.commit().await.unwrap();
    assert_eq!(server.ask("SELECT balance FROM account WHERE id = 2"), "7");
}
/// A call that is dropped half-way may have had its effect: the transaction cannot be committed. (Red: the state set only at the end.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped() {
    let server = accounts();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let mut first = begin(&mut a).await;
    account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
    let mut tx = begin(&mut b).await;
    tokio::time::timeout(100 * MS, account(1).lock(&mut tx, Lock::exclusive())).await.unwrap_err();
    assert!(tx.unusable().unwrap().contains("lock rows was dropped"));
    assert_eq!(account(2).lock(&mut tx, Lock::shared()).await.unwrap_err().kind(), ErrorKind::Conflict);
    drop(first);
    let error = soon(tx.commit()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("it was rolled back instead"), "{error}");
    let mut after = begin(&mut a).await;
    account(1).lock(&mut after, Lock::exclusive().within(LONG)).await.unwrap().unwrap();
}
/// What is refused, or not there, aborts nothing (symfony#61125): the user's statements before and after it are committed. (Red: NOWAIT without a
/// savepoint.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_statements_abort_nothing() {
    let server = accounts();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    fencelock_sql::fence::create_table(&mut a).await.unwrap();
    let stamp = (fencelock_core::Token::new(5).unwrap(), "me");
    let mut first = begin(&mut a).await;
    account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
    let mut tx = begin(&mut b).await;
    tx.execute("UPDATE account SET balance = 2 WHERE id = 2", &[]).await.unwrap();
    assert_eq!(account(1).lock(&mut tx, Lock::no_key().no_wait()).await.unwrap(), Err(Refused::Busy));
    assert_eq!(account(99).lock(&mut tx, Lock::no_key()).await.unwrap(), Err(Refused::Absent));
    for _ in 0..2 {
        // The second one meets its own row.
        fencelock_sql::fence::check(&mut tx, "x", stamp).await.unwrap().unwrap();
    }
    assert_eq!(account(3).update(&mut tx, 7, [("balance", 0)]).await.unwrap(), Err(Refused::Changed));
    assert_eq!(account(99).update(&mut tx, 1, [("balance", 0)]).await.unwrap(), Err(Refused::Absent));
    tx.execute("UPDATE account SET balance = 3 WHERE id = 3", &[]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(server.ask("SELECT balance FROM account WHERE id IN (2, 3) ORDER BY id"), "2\n3");
}
/// Under REPEATABLE READ a lock that one has already is no conflict with oneself (quartz#957); a row that somebody else has changed since
/// is one, and is told so. (Red: 40001 as any other error.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatable_read() {
    let server = accounts();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let level = tokio_postgres::IsolationLevel::RepeatableRead;
    let mut tx = Tx::new(a.build_transaction().isolation_level(level).start().await.unwrap());
    account(1).lock(&mut tx, Lock::exclusive()).await.unwrap().unwrap();
    account(1).lock(&mut tx, Lock::no_key().no_wait()).await.unwrap().unwrap();
    assert_eq!(account(1).update(&mut tx, 1, [("balance", 1)]).await.unwrap(), Ok(2));
    account(1).lock(&mut tx, Lock::exclusive().within(SEC)).await.unwrap().unwrap();
    let mut other = begin(&mut b).await;
    assert_eq!(account(2).update(&mut other, 1, [("balance", 1)]).await.unwrap(), Ok(2));
    other.commit().await.unwrap();
    assert_eq!(account(2).lock(&mut tx, Lock::no_key()).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
}
/// A queue: workers take what nobody has, in order, with a limit, and the clauses stand as the server wants them (db-scheduler#537). (Red: the
/// limit behind the clause.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_queue_of_jobs() {
    let server = Postgres::start();
    server.ask("CREATE TABLE job (id bigint PRIMARY KEY, state text); CREATE INDEX ON job (state); INSERT INTO job SELECT i, 'new' FROM generate_series(1, 60) i");
    let worker = || {
        let url = server.url();
        tokio::spawn(async move {
            let (mut db, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(connection);
            let mut done = 0;
            loop {
                let mut tx = begin(&mut db).await;
                let next = Row::of("job").filter("state = {}", ["new"]).sorted_by("id").limit(2);
                let locked = match next.lock(&mut tx, Lock::no_key().skip_locked()).await.unwrap() {
                    Ok(locked) => locked,
                    Err(Refused::Absent) => return done,
                    Err(other) => panic!("{other}"),
                };
                for key in &locked.keys {
                    let id = key[0].as_i64().unwrap();
                    tx.execute("UPDATE job SET state = state || 'done' WHERE id = $1", &[&id]).await.unwrap();
                    done += 1;
                }
                tx.commit().await.unwrap();
            }
        })
    };
    let all = [worker(), worker(), worker()];
    let mut done = 0;
    for one in all {
        done += tokio::time::timeout(6 * LONG, one).await.unwrap().unwrap();
    }
    assert_eq!((done, server.ask("SELECT count(*) FROM job WHERE state = 'newdone'").as_str()), (60, "60"));
}
/// Numbers are in the order of numbers, by a key and by what it is sorted by: 9 in front of 10. (Red: the columns read as texts, by which
/// the server sorts when they have the column's name.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_sorted_as_numbers() {
    let server = accounts();
    server.ask("INSERT INTO account SELECT i, 'owner ' || i, 100 FROM generate_series(10, 12) i");
    let mut a = connect(&server).await;
    let mut tx = begin(&mut a).await;
    let first = Row::of("account").filter("id > {}", [8]).sorted_by("id").limit(2);
    assert_eq!(first.lock(&mut tx, Lock::no_key()).await.unwrap().unwrap().keys, [["9".into()], ["10".into()]]);
    let both = Row::of("account").keys("id", [10, 9]).lock(&mut tx, Lock::no_key()).await.unwrap().unwrap();
    assert_eq!(both.keys, [["9".into()], ["10".into()]]);
}
/// Rows that refer to a locked one can be inserted beside `no_key`, and not beside `exclusive`. (Red: the one as the other.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_beside_a_lock() {
    let server = accounts();
    let mut a = connect(&server).await;
    for (mode, goes) in [(Lock::no_key(), true), (Lock::exclusive(), false)] {
        let mut tx = begin(&mut a).await;
        account(1).lock(&mut tx, mode).await.unwrap().unwrap();
        let insert = server.psql("SET lock_timeout = '200ms'; INSERT INTO entry VALUES (1, 5)").output().unwrap();
        assert_eq!(insert.status.success(), goes, "{mode:?}");
    }
}
/// No index: told, however small the table is; an index: not. (Red: the plan asked without the setting; the word not looked for.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_without_an_index_is_told() {
    let server = accounts();
    server.ask(
        "CREATE INDEX ON account (lower(owner)); CREATE TABLE \"Odd\".\"T\" (\"a\"\"b\" text PRIMARY KEY)"
            .replace("CREATE TABLE", "CREATE SCHEMA \"Odd\"; CREATE TABLE")
            .as_str(),
    );
    server.ask("INSERT INTO \"Odd\".\"T\" VALUES ('\"Index Cond\": x'' OR true; --')");
    let mut a = connect(&server).await;
    let mut tx = begin(&mut a).await;
    let by = |row: Row| row;
    for (row, told) in [
        (account(1), false),
        (Row::of("account").keys("id", [1, 2]), false),
        (Row::of("account").filter("lower(owner) = {}", ["owner 3"]), false),
        (Row::of("account").filter("owner = {}", ["owner 3"]), true),
        (Row::of("account").key("owner", "owner 3").sorted_by("id"), true),
        (Row::of("account").key("id", 3).filter("balance > {}", [5]), false),
        (Row::of("Odd.T").key("a\"b", "\"Index Cond\": x' OR true; --"), false),
        (Row::of("Odd.T").filter("length(\"a\"\"b\") > 1 AND \"a\"\"b\" <> '\"Index Cond\":'", [""; 0]), true),
    ] {
        let row = by(row);
        let locked = row.lock(&mut tx, Lock::no_key()).await.unwrap().unwrap();
        let warning = locked.warning.map(|warning| warning.to_string());
        assert_eq!(warning.is_some(), told, "{row}: {warning:?}");
        let unexplained = row.lock(&mut tx, Lock::no_key().unexplained()).await.unwrap().unwrap();
        assert_eq!(unexplained.warning, None);
    }
}
/// An error that nobody has looked at: the server would answer COMMIT with a rollback, and the driver would call that success. (Red: COMMIT sent as
/// it is; only conflicts remembered.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_would_be_a_rollback() {
    let server = accounts();
    let mut a = connect(&server).await;
    for shown in [false, true] {
        let mut tx = begin(&mut a).await;
        account(1).update(&mut tx, 1, [("balance", 7)]).await.unwrap().unwrap();
        let twice = tx.execute("INSERT INTO account VALUES (2)", &[]).await;
        if shown {
            tx.seen(twice).unwrap_err();
            assert!(tx.unusable().is_some());
        }
        tx.commit().await.unwrap_err();
        assert_eq!(server.ask("SELECT balance FROM account WHERE id = 1"), "100");
    }
    // What is taken back to a savepoint is no harm.
    let mut tx = begin(&mut a).await;
    account(1).update(&mut tx, 1, [("balance", 7)]).await.unwrap().unwrap();
    tx.batch_execute("SAVEPOINT mine").await.unwrap();
    seen(tx.execute("INSERT INTO account VALUES (2)", &[]).await).unwrap_err();
    tx.batch_execute("ROLLBACK TO mine").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(server.ask("SELECT balance FROM account WHERE id = 1"), "7");
}
/// Bad input is told before anything is sent, so the transaction goes on. What the server does not know is told, and it does not.
/// (Red: `enter` before `check`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input() {
    let server = accounts();
    let mut a = connect(&server).await;
    let mut tx = begin(&mut a).await;
    for bad in bad_rows() {
        assert_eq!(bad.lock(&mut tx, Lock::shared()).await.unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad}");
        assert_eq!(bad.update(&mut tx, 1, [("a", 1)]).await.unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad}");
    }
    account(1).lock(&mut tx, Lock::shared()).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    for (wrong, word) in [
        (Row::of("nobody").key("id", 1), "\"nobody\" does not exist"),
        (Row::of("account").key("nothing", 1), "\"nothing\" does not exist"),
        (Row::of("account").key("id", "one"), "\"one\""),
    ] {
        let mut tx = begin(&mut a).await;
        let error = wrong.lock(&mut tx, Lock::shared()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
    server.ask("CREATE ROLE poor LOGIN");
    let url = server.url().replace("postgres@", "poor@");
    let (mut poor, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut tx = begin(&mut poor).await;
    let error = account(1).lock(&mut tx, Lock::shared()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}
