//! A guarded transaction that outlives its lease, by any driver and any way: for the tests that bring `locks` and `soon`.
use super::*;
use fencelock_core::{Client as Locks, ErrorKind, LossReason};
use fencelock_sql::{Hold, Refused, Row, Transaction, Tx, fence};
use std::time::Duration;

/// Whoever is next gets the lock after its commit and not before, and what is not held any more guards nothing: `later`, which was begun
/// before it was lost, commits nothing (SAFETY G1). Both are of a database with accounts.
pub(crate) async fn outlives_its_lease<T: Transaction>([a, b]: [Locks; 2], mut first: Tx<T>, mut later: Tx<T>) {
    let account = |id: i32| Row::of("account").key("id", id);
    let held = a.mutex("x").lease(Duration::from_secs(6)).lock().await.unwrap();
    fence::guard(&mut first, &held).await.unwrap().unwrap();
    let wait = tokio::spawn(b.mutex("x").lock());
    assert_eq!(account(1).update(&mut first, 1, [("balance", 7)]).await.unwrap(), Ok(2));
    assert_eq!(account(2).update(&mut later, 1, [("balance", 7)]).await.unwrap(), Ok(2));
    assert_eq!(soon(held.lost()).await, LossReason::Expired);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!wait.is_finished(), "before the commit");
    assert!(b.mutex("x").try_lock().await.unwrap().is_err(), "a try, before the commit");
    first.commit().await.unwrap();
    let next = soon(wait).await.unwrap().unwrap();
    assert!(next.token() > held.token());
    assert_eq!(fence::guard(&mut later, Hold::from(&held)).await.unwrap(), Err(Refused::Lost));
    assert_eq!(later.commit().await.unwrap_err().kind(), ErrorKind::Lost);
    next.release().await.unwrap();
}
