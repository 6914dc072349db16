//! Optimistic updates.
use super::*;
use fencelock_core::ErrorKind;
use fencelock_sql::{Refused, Retry, Row, seen};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

/// Who was second is told, and changes nothing; the key has to name one row. (Red: the version not compared; affected rows not looked at.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_is_told() {
    let server = accounts();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let account = Row::of("account").key("id", 1);
    let mut first = begin(&mut a).await;
    assert_eq!(account.update(&mut first, 1, [("owner", "it's; me")]).await.unwrap(), Ok(2));
    first.commit().await.unwrap();
    let mut second = begin(&mut b).await;
    assert_eq!(account.update(&mut second, 1, [("owner", "you")]).await.unwrap(), Err(Refused::Changed));
    assert_eq!(account.update(&mut second, 2, [("owner", None::<&str>)]).await.unwrap(), Ok(3));
    second.commit().await.unwrap();
    assert_eq!(server.ask("SELECT coalesce(owner, '-'), version FROM account WHERE id = 1"), "-\t3");
    let mut third = begin(&mut b).await;
    let many = Row::of("account").keys("id", [2, 3]).update(&mut third, 1, [("balance", 0)]).await.unwrap_err();
    assert_eq!((many.kind(), third.unusable()), (ErrorKind::InvalidConfig, None), "nothing was sent");
    let many = Row::of("account").filter("id < {}", [4]).update(&mut third, 1, [("balance", 0)]).await.unwrap_err();
    assert_eq!(many.kind(), ErrorKind::InvalidConfig, "{many}");
    assert_eq!(third.commit().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
    assert_eq!(server.ask("SELECT sum(balance) FROM account"), "900");
}
/// A key that names a second row, of another version, is told, and nothing is committed; so is a column that rounds. A condition that does not hold
/// any more once it is written is none of these. (Red: the number of changed rows taken for an answer.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_is_read_back() {
    let server = accounts();
    let mut db = connect(&server).await;
    let mut tx = begin(&mut db).await;
    let named = Row::of("account").key("id", 2).filter("owner = {}", ["owner 2"]);
    assert_eq!(named.update(&mut tx, 1, [("owner", "me")]).await.unwrap(), Ok(2));
    tx.commit().await.unwrap();
    for (spoil, version) in [
        ("ALTER TABLE account ALTER version TYPE real; UPDATE account SET version = 16777216 WHERE id = 1", 16_777_216),
        (
            "ALTER TABLE account DROP CONSTRAINT account_pkey CASCADE; INSERT INTO account VALUES (1, 'other', 100, 1)",
            1,
        ),
    ] {
        server.ask(spoil);
        let mut tx = begin(&mut db).await;
        let error = Row::of("account").key("id", 1).update(&mut tx, version, [("balance", 0)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
        assert_eq!(server.ask("SELECT min(balance) FROM account"), "100");
    }
}
async fn increment(db: &mut Client, account: &Row, retry: Retry) -> fencelock_core::Result<()> {
    let mut tx = Tx::new(seen(db.transaction().await)?);
    let lock = retry.lock(&mut tx, account).await??;
    assert_eq!(lock.is_some(), retry.locks());
    let read = tx.query_one("SELECT balance, version FROM account WHERE id = 1", &[]).await;
    let row = tx.seen(read)?;
    let (balance, version): (i64, i64) = (row.get(0), row.get(1));
    account.update(&mut tx, version, [("balance", balance + 1)]).await??;
    tx.commit().await
}
/// 8 tasks × 25 increments: exact, and who loses three times locks the row and loses no more. (Red: a write without the version: increments are
/// lost; `lock` that never locks: more than ten tries.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn increments_are_exact() {
    let server = accounts();
    let (conflicts, locked) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    for level in ["read committed", "repeatable read"] {
        server.ask(&format!(
            "ALTER DATABASE postgres SET default_transaction_isolation = '{level}'; UPDATE account SET balance = 0"
        ));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (url, conflicts, locked) = (server.url(), conflicts.clone(), locked.clone());
                tokio::spawn(async move {
                    let (mut db, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
                    tokio::spawn(connection);
                    let account = Row::of("account").key("id", 1);
                    for _ in 0..25 {
                        let mut retry = Retry::default().tries(100);
                        loop {
                            let done = increment(&mut db, &account, retry).await;
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
