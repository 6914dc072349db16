//! Row locks.
use super::*;
use fencelock_core::ErrorKind;
use fencelock_sql::{Lock, Refused, Retry, Row, seen};
use std::sync::Arc;
use tokio::sync::Barrier;

fn account(id: i32) -> Row {
    Row::of("account").key("id", id)
}

/// Two at once, each of them waits, or not, or so long, as it was told; the transaction goes on, and so do its settings. (Red: every clause
/// left out; `FOR SHARE`, which MariaDB does not know.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_or_not() {
    let server = accounts(&[]);
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    b.query_drop("SET innodb_lock_wait_timeout = 7").await.unwrap();
    let mut first = begin(&mut a).await;
    let locked = account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
    assert_eq!((locked.rows(), locked.keys[0][0].as_i64(), locked.warning), (1, Some(1), None));

    let mut second = begin(&mut b).await;
    for mode in [Lock::exclusive(), Lock::no_key(), Lock::shared(), Lock::key_shared()] {
        assert_eq!(account(1).lock(&mut second, mode.no_wait()).await.unwrap(), Err(Refused::Busy), "{mode:?}");
        let both = Row::of("account").keys("id", [2, 1]);
        let skipped = both.lock(&mut second, mode.skip_locked().unexplained()).await;
        assert_eq!(skipped.unwrap().unwrap().keys, [[2.into()]], "{mode:?}");
    }
    let started = Instant::now();
    assert_eq!(account(1).lock(&mut second, Lock::no_key().within(100 * MS)).await.unwrap(), Err(Refused::Busy));
    assert!((900 * MS..LONG).contains(&started.elapsed()), "rounded up to a second: {:?}", started.elapsed());
    assert_eq!(account(99).lock(&mut second, Lock::exclusive()).await.unwrap(), Err(Refused::Absent));
    let shown: Option<u64> = second.query_first("SELECT @@innodb_lock_wait_timeout").await.unwrap();
    assert_eq!(shown, Some(7));
    second.query_drop("UPDATE account SET balance = 7 WHERE id = 2").await.unwrap();
    second.commit().await.unwrap();
    assert_eq!(server.ask("SELECT balance FROM account WHERE id = 2"), "7");

    let waits = tokio::spawn(async move {
        let mut third = begin(&mut b).await;
        let got = account(1).lock(&mut third, Lock::exclusive().within(LONG)).await.unwrap().unwrap();
        third.commit().await.unwrap();
        got.rows()
    });
    blocked(&server).await;
    first.rollback().await.unwrap();
    assert_eq!(soon(waits).await.unwrap(), 1);
}
/// N23: the server's own limit passes and only the statement is undone; what the transaction wrote before is still there, and a commit would keep it.
/// So nothing goes on with it: not our calls, not the commit. (Red: 1205 not remembered: the half of it is committed.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_poisons_the_transaction() {
    for settings in
        [&["--innodb-lock-wait-timeout=1"][..], &["--innodb-lock-wait-timeout=1", "--innodb-rollback-on-timeout=ON"]]
    {
        let server = accounts(settings);
        let (mut a, mut b) = (connect(&server).await, connect(&server).await);
        let mut first = begin(&mut a).await;
        account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
        for by in ["lock", "update", "fence", "own"] {
            let mut tx = begin(&mut b).await;
            tx.query_drop("UPDATE account SET balance = 7 WHERE id = 2").await.unwrap();
            let error = match by {
                "lock" => account(1).lock(&mut tx, Lock::no_key()).await.unwrap_err(),
                "update" => account(1).update(&mut tx, 1, [("balance", 0)]).await.unwrap_err(),
                "fence" => {
                    let stamp = (fencelock_core::Token::new(5).unwrap(), "me");
                    let row = account(1).fence_columns("version", "owner");
                    fencelock_sql::fence::check(&mut tx, row, stamp).await.unwrap_err()
                }
                _ => {
                    let own = tx.query_drop("UPDATE account SET balance = 0 WHERE id = 1").await;
                    tx.seen(own).unwrap_err()
                }
            };
            assert_eq!(error.kind(), ErrorKind::Busy, "{by}: {error}");
            assert!(tx.unusable().unwrap().contains("1205"), "{by}");
            let again = account(3).lock(&mut tx, Lock::shared()).await.unwrap_err();
            assert_eq!(again.kind(), ErrorKind::Busy, "{by}");
            let refused = tx.commit().await.unwrap_err();
            assert!(refused.to_string().contains("it was rolled back instead"), "{by}: {refused}");
            assert_eq!(server.ask("SELECT balance FROM account WHERE id = 2"), "100", "{by}");
        }
        // Where the server undoes all of it, an answer that was asked for cannot leave the transaction alive either.
        let mut tx = begin(&mut b).await;
        tx.query_drop("UPDATE account SET balance = 7 WHERE id = 2").await.unwrap();
        let got = account(1).lock(&mut tx, Lock::no_key().no_wait()).await;
        match got {
            Ok(answer) => {
                assert_eq!(answer, Err(Refused::Busy));
                tx.commit().await.unwrap();
                assert_eq!(server.ask("SELECT balance FROM account WHERE id = 2"), "7");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
                assert_eq!(server.ask("SELECT balance FROM account WHERE id = 2"), "100");
            }
        }
    }
}
async fn transfer(db: &mut Conn, from: i32, to: i32, retry: Retry, meet: &Barrier) -> fencelock_core::Result<()> {
    let mut tx = Tx::new(seen(db.start_transaction(TxOpts::default()).await)?);
    account(from).lock(&mut tx, Lock::no_key()).await??;
    if retry.number() == 1 {
        meet.wait().await;
    }
    if let Err(error) = account(to).lock(&mut tx, Lock::no_key()).await {
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(tx.unusable().unwrap().contains("1213"));
        let again = account(from).lock(&mut tx, Lock::no_key()).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Conflict);
        return Err(tx.commit().await.unwrap_err());
    }
    let done = tx
        .exec_drop("UPDATE account SET balance = balance + IF(id = ?, -10, 10) WHERE id IN (?, ?)", (from, from, to))
        .await;
    tx.seen(done)?;
    tx.commit().await
}
/// The opposite order in two transactions: one is told `Conflict` and can neither go on nor commit; run again it succeeds. (Red: 1213 as any
/// other error.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deadlock_is_a_conflict() {
    let server = accounts(&[]);
    let transfers = |from: i32, to: i32, meet: Arc<Barrier>| {
        let url = server.url();
        tokio::spawn(async move {
            let mut db = Conn::from_url(url).await.unwrap();
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
    assert!(soon(one).await.unwrap() + soon(two).await.unwrap() >= 1);
    assert_eq!(server.ask("SELECT balance FROM account WHERE id < 3"), "100\n100");
}
/// A row lock that one has already is no conflict with oneself under REPEATABLE READ, in any mode (quartz#957), also after a read that made the
/// snapshot. (Red: the plan asked for in front of the lock: the snapshot is older than the lock.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatable_read() {
    let server = accounts(&[]);
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let mut tx = at(&mut a, IsolationLevel::RepeatableRead).await;
    let mut other = begin(&mut b).await;
    assert_eq!(account(1).update(&mut other, 1, [("balance", 55)]).await.unwrap(), Ok(2));
    let commits = async {
        blocked(&server).await;
        other.commit().await.unwrap();
    };
    let row = account(1);
    let (locked, ()) = tokio::join!(soon(row.lock(&mut tx, Lock::exclusive())), commits);
    locked.unwrap().unwrap();
    // The lock was the first statement: what is read now is what is locked.
    let read: Option<i64> = tx.query_first("SELECT balance FROM account WHERE id = 1").await.unwrap();
    assert_eq!(read, Some(55));
    for again in [Lock::shared(), Lock::exclusive().no_wait(), Lock::no_key().within(SEC)] {
        account(1).lock(&mut tx, again).await.unwrap().unwrap();
    }
    assert_eq!(account(1).update(&mut tx, 2, [("balance", 56)]).await.unwrap(), Ok(3));
    tx.commit().await.unwrap();
}
/// A lock lasts until the transaction ends, however it ends, and no longer. (Red: rows that are read without a clause.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_ends_with_the_transaction() {
    let server = accounts(&[]);
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    for end in ["commit", "rollback", "drop", "in doubt"] {
        let mut tx = begin(&mut a).await;
        account(1).lock(&mut tx, Lock::exclusive().within(SEC)).await.unwrap().unwrap();
        tx.query_drop("UPDATE account SET balance = balance + 1 WHERE id = 2").await.unwrap();
        let mut other = begin(&mut b).await;
        assert_eq!(account(1).lock(&mut other, Lock::shared().no_wait()).await.unwrap(), Err(Refused::Busy), "{end}");
        other.rollback().await.unwrap();
        match end {
            "commit" => tx.commit().await.unwrap(),
            "rollback" => tx.rollback().await.unwrap(),
            // The driver rolls it back with the next call on that connection, or as its pool takes it back.
            "drop" => {
                drop(tx);
                a.query_drop("DO 0").await.unwrap();
            }
            _ => {
                // Its session is gone: nobody can commit it, and nothing says that it was.
                let id: Option<u64> = tx.query_first("SELECT CONNECTION_ID()").await.unwrap();
                server.ask(&format!("KILL {}", id.unwrap()));
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
/// Several rows are locked in the order of their keys, whatever that of the call: no deadlock. (InnoDB reads them by their key anyway: it stays
/// green without `ORDER BY`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_rows_have_one_order() {
    let server = accounts(&[]);
    let work = |ids: [i32; 9]| {
        let url = server.url();
        tokio::spawn(async move {
            let mut db = Conn::from_url(url).await.unwrap();
            for _ in 0..50 {
                let mut tx = begin(&mut db).await;
                let locked = Row::of("account").keys("id", ids).lock(&mut tx, Lock::no_key()).await.unwrap().unwrap();
                let keys: Vec<_> = locked.keys.iter().map(|key| key[0].as_i64().unwrap()).collect();
                assert_eq!(keys, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
                let update = format!("UPDATE account SET balance = balance + 1 WHERE id = {}", ids[0]);
                tx.query_drop(update).await.unwrap();
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
/// A statement that is stopped while it waits is undone by itself; the transaction goes on from its savepoint. (Red: 1317 as any other error.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goes_on_after_a_cancel() {
    let server = accounts(&[]);
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let mut first = begin(&mut a).await;
    account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
    let id = b.id();
    let mut tx = begin(&mut b).await;
    tx.query_drop("UPDATE account SET balance = 7 WHERE id = 2").await.unwrap();
    let one = account(1);
    let (got, ()) = tokio::join!(soon(one.lock(&mut tx, Lock::no_key().within(LONG))), async {
        blocked(&server).await;
        server.ask(&format!("KILL QUERY {id}"));
    });
    assert_eq!(got.unwrap(), Err(Refused::Busy));
    tx.commit().await.unwrap();
    assert_eq!(server.ask("SELECT balance FROM account WHERE id = 2"), "7");
}
/// A queue: workers take what nobody has, in order, with a limit, and the clauses stand as the server wants them (db-scheduler#537). (Red: the
/// limit behind the clause.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_queue_of_jobs() {
    let server = MariaDb::start();
    server.ask("CREATE TABLE job (id bigint PRIMARY KEY, state varchar(9), KEY (state, id)) ENGINE=InnoDB; INSERT INTO job SELECT seq, 'new' FROM seq_1_to_60");
    let worker = || {
        let url = server.url();
        tokio::spawn(async move {
            let mut db = Conn::from_url(url).await.unwrap();
            let (mut done, mut retry) = (0, Retry::default().tries(50));
            loop {
                let took = take(&mut db).await;
                if retry.again(&took).await {
                    continue;
                }
                match took.unwrap() {
                    0 => return done,
                    more => done += more,
                }
                retry = Retry::default().tries(50);
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
async fn take(db: &mut Conn) -> fencelock_core::Result<usize> {
    let mut tx = at(db, IsolationLevel::ReadCommitted).await;
    let next = Row::of("job").filter("state = {}", ["new"]).sorted_by("id").limit(2);
    let locked = match next.lock(&mut tx, Lock::no_key().skip_locked().unexplained()).await? {
        Ok(locked) => locked,
        // Others have all that is left; they are done with it in a moment, or have put it back.
        Err(Refused::Absent) => return Ok(0),
        Err(other) => return Err(other.into()),
    };
    for key in &locked.keys {
        let id = key[0].as_i64().unwrap();
        let done = tx.exec_drop("UPDATE job SET state = concat(state, 'done') WHERE id = ?", (id,)).await;
        tx.seen(done)?;
    }
    tx.commit().await?;
    Ok(locked.rows())
}
/// What is locked where no index leads to the row: under REPEATABLE READ every row and every gap, under READ COMMITTED that row alone; and the
/// warning is given under both. With an index neither. (Red: the warning left out; the plan's word for a whole index not known.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_index_the_table_is_locked() {
    let server = accounts(&[]);
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    b.query_drop("SET innodb_lock_wait_timeout = 1").await.unwrap();
    let by_owner = Row::of("account").key("owner", "owner 3");
    for indexed in [false, true] {
        if indexed {
            server.ask("CREATE UNIQUE INDEX owners ON account (owner); ANALYZE TABLE account");
        }
        for level in LEVELS {
            let mut tx = at(&mut a, level).await;
            let locked = by_owner.lock(&mut tx, Lock::exclusive()).await.unwrap().unwrap();
            assert_eq!((locked.rows(), locked.warning.is_some()), (1, !indexed), "{level} {indexed}");
            if let Some(warning) = locked.warning {
                assert_eq!(warning.table, "account");
                assert!(warning.to_string().contains("under REPEATABLE READ the whole table is locked"), "{warning}");
            }
            let whole = !indexed && level == IsolationLevel::RepeatableRead;
            let mut other = begin(&mut b).await;
            for (sql, blocked) in [
                ("SELECT id FROM account WHERE id = 3 FOR UPDATE NOWAIT", true),
                ("SELECT id FROM account WHERE id = 7 FOR UPDATE NOWAIT", whole),
                ("INSERT INTO account (id, owner, balance) VALUES (50, 'new', 0)", whole),
                ("UPDATE account SET balance = balance WHERE id = 1", whole),
            ] {
                let got = other.query_drop(sql).await;
                assert_eq!(got.is_err(), blocked, "{level}, index {indexed}: {sql}: {got:?}");
            }
            other.rollback().await.unwrap();
            tx.rollback().await.unwrap();
        }
    }
    // One that goes through all of an index is no better than none.
    let mut tx = begin(&mut a).await;
    let all = Row::of("account").filter("owner LIKE {}", ["%3"]).lock(&mut tx, Lock::shared()).await.unwrap().unwrap();
    assert!(all.warning.is_some());
    let few = Row::of("account").keys("id", [1, 2]).lock(&mut tx, Lock::shared()).await.unwrap().unwrap();
    assert_eq!(few.rows(), 2);
    // A backquote, a quote, and SQL are parts of names and values.
    server.ask("CREATE TABLE `od``d` (`a``b` varchar(99) PRIMARY KEY) ENGINE=InnoDB; INSERT INTO `od``d` VALUES ('x'' OR 1=1; --')");
    let odd = Row::of("od`d").key("a`b", "x' OR 1=1; --").lock(&mut tx, Lock::shared()).await.unwrap().unwrap();
    assert_eq!((odd.rows(), odd.warning), (1, None));
}
/// A call that is dropped half-way leaves nothing that could be committed. (Red: the state set only at the end.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped() {
    let server = accounts(&[]);
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let mut first = begin(&mut a).await;
    account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
    let mut tx = begin(&mut b).await;
    tx.query_drop("UPDATE account SET balance = 7 WHERE id = 2").await.unwrap();
    tokio::time::timeout(100 * MS, account(1).lock(&mut tx, Lock::exclusive())).await.unwrap_err();
    first.rollback().await.unwrap();
    // Its answer is on its way: whatever was sent now would be given it.
    assert_eq!(soon(tx.commit()).await.unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(server.ask("SELECT balance FROM account WHERE id = 2"), "100");
}
/// A call, or a statement of one's own, that is dropped half-way: the pool's next borrower is not given its answer, and nobody is told to run it
/// again there. (Red: a rollback that is sent: the pool takes the connection for a good one.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_has_read() {
    let server = accounts(&[]);
    let opts = OptsBuilder::from_opts(Opts::from_url(&server.url()).unwrap());
    let one = PoolOpts::default().with_constraints(PoolConstraints::new(1, 1).unwrap());
    let pool = Pool::new(opts.pool_opts(one));
    for own in [false, true] {
        let mut conn = pool.get_conn().await.unwrap();
        let mut tx = begin(&mut conn).await;
        if own {
            tokio::time::timeout(100 * MS, tx.query_drop("SELECT SLEEP(0.5)")).await.unwrap_err();
        } else {
            let row = Row::of("account").filter("SLEEP(0.5) = 0 AND id = {}", [1]);
            tokio::time::timeout(100 * MS, row.lock(&mut tx, Lock::exclusive())).await.unwrap_err();
        }
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("close the connection"), "{error}");
        assert!(!error.to_string().contains("rolled back instead"), "nothing was sent: {error}");
        drop(conn);
        let mut next = soon(pool.get_conn()).await.unwrap();
        assert_eq!(next.query_first::<i64, _>("SELECT 7").await.unwrap(), Some(7));
    }
}
/// What is not there is told as that, and not as somebody who was in the way; a view of whose tables this role may not know has no plan, and is locked.
/// (Red: 1305 as a savepoint that is gone; the plan's error as one of the lock.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_that_are_nobodys() {
    let server = accounts(&[]);
    let mut db = connect(&server).await;
    let mut tx = begin(&mut db).await;
    let wrong = tx.query_drop("SELECT nothing_of_that_name(1)").await;
    assert_eq!(tx.seen(wrong).unwrap_err().kind(), ErrorKind::InvalidConfig);
    let gone = tx.query_drop("ROLLBACK TO SAVEPOINT mine").await;
    assert_eq!(tx.seen(gone).unwrap_err().kind(), ErrorKind::Conflict);
    tx.rollback().await.unwrap();
    server.ask(
        "CREATE VIEW seen AS SELECT * FROM account; CREATE USER app@'127.0.0.1'; GRANT SELECT, UPDATE ON test.seen TO app@'127.0.0.1'",
    );
    let mut app = Conn::from_url(server.url().replace("root@", "app@")).await.unwrap();
    let mut tx = begin(&mut app).await;
    let locked = Row::of("seen").key("id", 1).lock(&mut tx, Lock::exclusive()).await.unwrap().unwrap();
    assert_eq!((locked.rows(), locked.warning), (1, None));
    tx.commit().await.unwrap();
}
/// The server has no room for more locks and undoes the whole transaction, fence and all: what comes after it would be committed without. (Red:
/// 1206 as any other error.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_table_that_is_full() {
    let server = accounts(&["--innodb-buffer-pool-size=6M"]);
    // One row a page, and each page has a lock of each mode.
    let noise: Vec<_> = (0..7).map(|n| format!("unhex(sha2(seq + {n} / 10, 512))")).collect();
    server.ask(&format!(
        "CREATE TABLE big (id int PRIMARY KEY, noise varbinary(800)) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=1; \
         INSERT INTO big SELECT seq, concat({}) FROM seq_1_to_24000",
        noise.join(", ")
    ));
    let mut db = connect(&server).await;
    let mut tx = begin(&mut db).await;
    assert_eq!(account(1).update(&mut tx, 1, [("balance", 7)]).await.unwrap(), Ok(2));
    let all = |mode: &str| format!("SELECT count(*) FROM big FORCE INDEX (PRIMARY) {mode}");
    tx.query_drop(all("LOCK IN SHARE MODE")).await.unwrap();
    let full = tx.query_drop(all("FOR UPDATE")).await;
    let error = tx.seen(full).unwrap_err();
    assert!(error.to_string().contains("1206"), "{error}");
    assert!(tx.unusable().unwrap().contains("1206"));
    account(2).update(&mut tx, 1, [("balance", 7)]).await.unwrap_err();
    assert!(tx.commit().await.unwrap_err().to_string().contains("it was rolled back instead"));
    assert_eq!(server.ask("SELECT balance FROM account WHERE id < 3"), "100\n100");
}
/// Bad input is told before anything is sent, so the transaction goes on. What the server does not know, or refuses, is told, and the transaction
/// does not. (Red: `enter` before `check`; 1142 as any other error.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input() {
    let server = accounts(&[]);
    let mut a = connect(&server).await;
    let mut tx = begin(&mut a).await;
    for bad in bad_rows() {
        assert_eq!(bad.lock(&mut tx, Lock::shared()).await.unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad}");
        assert_eq!(bad.update(&mut tx, 1, [("a", 1)]).await.unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad}");
    }
    account(1).lock(&mut tx, Lock::shared()).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    server.ask(
        "CREATE TABLE other (n int); CREATE USER poor@'127.0.0.1'; GRANT SELECT ON test.other TO poor@'127.0.0.1'",
    );
    let poor = Opts::from_url(&server.url().replace("root@", "poor@")).unwrap();
    let mut poor = Conn::new(poor).await.unwrap();
    for (wrong, kind, word) in [
        (Row::of("nobody").key("id", 1), ErrorKind::InvalidConfig, "nobody"),
        (Row::of("account").key("nothing", 1), ErrorKind::InvalidConfig, "nothing"),
        (account(1), ErrorKind::PermissionDenied, "account"),
    ] {
        let mut tx = begin(if kind == ErrorKind::PermissionDenied { &mut poor } else { &mut a }).await;
        let error = wrong.lock(&mut tx, Lock::exclusive()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(tx.commit().await.unwrap_err().kind(), kind);
    }
}
