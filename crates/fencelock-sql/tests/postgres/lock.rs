//! Row locks.
use super::*;
use fencelock_core::ErrorKind;
use fencelock_sql::{Lock, Refused, Retry, Row, seen};
use std::time::Instant;

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
