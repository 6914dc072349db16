//! Behind a pooler that gives a connection for a transaction.
use super::{guard::locks, guarded::outlives_its_lease, *};
use fencelock_core::Token;
use fencelock_sql::{Lock, Row, advisory, fence, keys};
use fencelock_testkit::PgBouncer;
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::SeqCst},
};

/// Every call is good there, and what it took is gone with its transaction, whoever has the connection next. (Red: a lock of the session.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn by_transaction() {
    let server = accounts();
    let pooler = PgBouncer::start(&server, "transaction");
    let url = server.url_through(&pooler);
    let mut direct = connect(&server).await;
    fence::create_table(&mut direct).await.unwrap();
    let next = Arc::new(AtomicI64::new(1));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (url, next) = (url.clone(), next.clone());
            tokio::spawn(async move {
                let mut db = connect_by(&url).await;
                for _ in 0..10 {
                    let mut tx = begin(&mut db).await;
                    advisory::lock(&mut tx, keys::fencelock("all"), Lock::exclusive().within(LONG))
                        .await
                        .unwrap()
                        .unwrap();
                    // Drawn under the lock, so each is the newest.
                    let token = Token::new(next.fetch_add(1, SeqCst)).unwrap();
                    fence::check(&mut tx, "x", (token, "w")).await.unwrap().unwrap();
                    let account = Row::of("account").key("id", 1);
                    account.lock(&mut tx, Lock::no_key().no_wait()).await.unwrap().unwrap();
                    account.update(&mut tx, token.get(), [("balance", token.get())]).await.unwrap().unwrap();
                    tx.commit().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        tokio::time::timeout(6 * LONG, task).await.unwrap().unwrap();
    }
    assert_eq!(server.ask("SELECT balance, version FROM account WHERE id = 1"), "80\t81");
    assert_eq!(server.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
    let left =
        "SELECT count(*) FROM pg_settings WHERE name IN ('lock_timeout', 'enable_seqscan') AND source = 'session'";
    assert_eq!(server.ask(left), "0");
}
/// Locks and data by the same pooler. (Red: the SELECT without its clause.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn guarded() {
    let server = accounts();
    let pooler = PgBouncer::start(&server, "transaction");
    let url = server.url_through(&pooler);
    let (mut one, mut other) = (connect_by(&url).await, connect_by(&url).await);
    let locks = [locks(&url).await, locks(&url).await];
    outlives_its_lease(locks, begin(&mut one).await, begin(&mut other).await).await;
    assert_eq!(server.ask("SELECT count(*) FROM account WHERE balance = 7"), "1");
}
