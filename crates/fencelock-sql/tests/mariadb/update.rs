//! Optimistic updates.
use super::*;
use fencelock_core::ErrorKind;
use fencelock_sql::{Refused, Retry, Row, seen};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

/// Who was second is told, however the driver counts rows, and also where the snapshot is older than what is there. (Red: the version not
/// compared; a plain read for the reason.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_is_told() {
    let server = accounts(&[]);
    let mut a = connect(&server).await;
    let mut version = 1;
    for mut b in [connect(&server).await, found_rows(&server).await] {
        for level in LEVELS {
            let row = Row::of("account").key("id", 1);
            let mut second = at(&mut b, level).await;
            let _: Option<i64> = second.query_first("SELECT balance FROM account WHERE id = 1").await.unwrap();
            let mut first = begin(&mut a).await;
            assert_eq!(row.update(&mut first, version, [("owner", "me")]).await.unwrap(), Ok(version + 1));
            first.commit().await.unwrap();
            assert_eq!(row.update(&mut second, version, [("owner", "you")]).await.unwrap(), Err(Refused::Changed));
            // One that is there since, which the snapshot does not see.
            let id = 60 + i32::try_from(version).unwrap();
            server.ask(&format!("INSERT INTO account VALUES ({id}, 'new', 0, 5)"));
            let since = Row::of("account").key("id", id).update(&mut second, 4, [("owner", "you")]).await.unwrap();
            assert_eq!(since, Err(Refused::Changed), "{level}");
            let absent = Row::of("account").key("id", 99).update(&mut second, 1, [("owner", "you")]).await.unwrap();
            assert_eq!(absent, Err(Refused::Absent));
            // Nothing but the version changes.
            assert_eq!(row.update(&mut second, version + 1, [("owner", "me")]).await.unwrap(), Ok(version + 2));
            second.commit().await.unwrap();
            version += 2;
        }
        let mut third = begin(&mut b).await;
        let many = Row::of("account").keys("id", [2, 3]).update(&mut third, 1, [("balance", 0)]).await.unwrap_err();
        assert_eq!((many.kind(), third.unusable()), (ErrorKind::InvalidConfig, None), "nothing was sent");
        let many = Row::of("account").filter("id IN (2, {})", [3]).update(&mut third, 1, [("balance", 0)]).await;
        let many = many.unwrap_err();
        assert_eq!(many.kind(), ErrorKind::InvalidConfig, "{many}");
        assert_eq!(third.commit().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
    assert_eq!(server.ask("SELECT sum(balance) FROM account"), "900");
}
/// A key that names a second row, of another version, is told, and nothing is committed; so is a column that is full, or rounds. A condition that does
/// not hold any more once it is written is none of these. (Red: the number of changed rows taken for an answer.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_is_read_back() {
    let server = accounts(&["--sql-mode="]);
    for mut db in [connect(&server).await, found_rows(&server).await] {
        let mut tx = begin(&mut db).await;
        let named = Row::of("account").key("id", 2).filter("owner = {}", ["owner 2"]);
        assert_eq!(named.update(&mut tx, 1, [("owner", "me")]).await.unwrap(), Ok(2));
        tx.rollback().await.unwrap();
        for (spoil, version) in [
            ("MODIFY version smallint; UPDATE account SET version = 32767 WHERE id = 1", 32_767),
            ("MODIFY version float; UPDATE account SET version = 16777216 WHERE id = 1", 16_777_216),
            (
                "MODIFY version bigint, DROP PRIMARY KEY; UPDATE account SET version = 1 WHERE id = 1; INSERT INTO account VALUES (1, 'b', 100, 7)",
                1,
            ),
        ] {
            server.ask(&format!("ALTER TABLE account {spoil}"));
            let mut tx = begin(&mut db).await;
            let error = Row::of("account").key("id", 1).update(&mut tx, version, [("balance", 0)]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
            assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
            assert_eq!(server.ask("SELECT min(balance) FROM account"), "100");
        }
        server.ask("DELETE FROM account WHERE owner = 'b'; ALTER TABLE account ADD PRIMARY KEY (id)");
    }
}
async fn increment(db: &mut Conn, level: IsolationLevel, retry: Retry) -> fencelock_core::Result<()> {
    let account = Row::of("account").key("id", 1);
    let mut options = TxOpts::default();
    options.with_isolation_level(level);
    let mut tx = Tx::new(seen(db.start_transaction(options).await)?);
    retry.lock(&mut tx, &account).await??;
    let read = tx.query_first("SELECT balance, version FROM account WHERE id = 1").await;
    let (balance, version): (i64, i64) = tx.seen(read)?.unwrap();
    account.update(&mut tx, version, [("balance", balance + 1)]).await??;
    tx.commit().await
}
/// 8 tasks × 25 increments: exact, and who loses three times locks the row and loses no more. (Red: a write without the version: increments are
/// lost; `lock` that never locks: more than ten tries.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn increments_are_exact() {
    let server = accounts(&[]);
    let (conflicts, locked) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    for level in LEVELS {
        server.ask("UPDATE account SET balance = 0");
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (url, conflicts, locked) = (server.url(), conflicts.clone(), locked.clone());
                tokio::spawn(async move {
                    let mut db = Conn::from_url(url).await.unwrap();
                    for _ in 0..25 {
                        let mut retry = Retry::default().tries(100);
                        loop {
                            let done = increment(&mut db, level, retry).await;
                            locked.fetch_add(u32::from(retry.locks()), SeqCst);
                            if !retry.again(&done).await {
                                done.unwrap();
                                break;
                            }
                            conflicts.fetch_add(1, SeqCst);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            tokio::time::timeout(6 * LONG, task).await.unwrap().unwrap();
        }
        assert_eq!(server.ask("SELECT balance FROM account WHERE id = 1"), "200", "{level}");
    }
    println!("400 increments, {} conflicts, {} locked", conflicts.load(SeqCst), locked.load(SeqCst));
    assert!(locked.load(SeqCst) > 0, "nobody lost three times");
}
