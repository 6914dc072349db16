//! Advisory locks.
use super::*;
use fencelock_core::ErrorKind;
use fencelock_sql::{
    Lock, Refused, advisory,
    keys::{self, Key},
};

/// It waits or not as it was told, is shared or not, ends with the transaction, and leaves the settings. (Red: `_shared` left out; the
/// savepoint rolled back; the two spaces of keys taken for one.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_the_transaction() {
    let server = Postgres::start();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    b.batch_execute("SET lock_timeout = '3s'").await.unwrap();
    let key = keys::fencelock("nightly");
    for (mine, theirs, beside) in [
        (Lock::exclusive(), Lock::exclusive(), false),
        (Lock::exclusive().within(SEC), Lock::shared(), false),
        (Lock::shared().no_wait(), Lock::exclusive(), false),
        (Lock::shared(), Lock::shared(), true),
    ] {
        let mut first = begin(&mut a).await;
        advisory::lock(&mut first, key, mine).await.unwrap().unwrap();
        for how in [theirs.no_wait(), theirs.skip_locked(), theirs.within(50 * MS)] {
            let mut second = begin(&mut b).await;
            let got = advisory::lock(&mut second, key, how).await.unwrap();
            assert_eq!(got, if beside { Ok(()) } else { Err(Refused::Busy) }, "{mine:?} {how:?}");
            // Other keys are other locks, and the transaction goes on.
            for other in [keys::fencelock("Nightly"), Key::Int4s(0, 0)] {
                advisory::lock(&mut second, other, Lock::exclusive().no_wait()).await.unwrap().unwrap();
            }
            let shown: String = second.query_one("SELECT current_setting('lock_timeout')", &[]).await.unwrap().get(0);
            assert_eq!(shown, "3s");
            second.commit().await.unwrap();
        }
        let held = server.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");
        assert_eq!(held, "1");
        first.commit().await.unwrap();
        assert_eq!(server.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
    }
    // One 64-bit number, and two of 32 with the same bits.
    let (mut one, mut two) = (begin(&mut a).await, begin(&mut b).await);
    advisory::lock(&mut one, Key::Int8(0x0000_0007_0000_0008), Lock::exclusive()).await.unwrap().unwrap();
    advisory::lock(&mut two, Key::Int4s(7, 8), Lock::exclusive().no_wait()).await.unwrap().unwrap();
}
/// Who waits gets it when the other transaction ends; a circle is a conflict. And psql with the number of another library is in the way.
/// (Red: 40P01 as any other error; another byte order of the key.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_others() {
    let server = Postgres::start();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let (x, y) = (keys::sqlx("orders/42"), keys::madelson("orders"));
    let mut one = begin(&mut a).await;
    advisory::lock(&mut one, x, Lock::exclusive()).await.unwrap().unwrap();
    let psql = server.ask(&format!("SELECT pg_try_advisory_lock({x}), pg_try_advisory_xact_lock({y})"));
    assert_eq!(psql, "f\tt");
    let mut two = begin(&mut b).await;
    advisory::lock(&mut two, y, Lock::exclusive()).await.unwrap().unwrap();
    let (first, second) = tokio::join!(
        soon(advisory::lock(&mut one, y, Lock::exclusive())),
        soon(async {
            let got = advisory::lock(&mut two, x, Lock::exclusive()).await;
            // The victim's locks go with its transaction.
            if got.is_err() {
                drop(two)
            } else {
                two.commit().await.unwrap()
            }
            got
        })
    );
    let kinds: Vec<_> = [first, second].into_iter().filter_map(Result::err).map(|error| error.kind()).collect();
    assert_eq!(kinds, [ErrorKind::Conflict]);
}
