//! What kind of lock a name is, and how long its row stays, for the tests that bring `Server` and `CLEAN`: a clean-up of what was idle for an
//! hour.
use super::*;
use fencelock_core::Version;

/// A free name becomes another kind in the moment in which somebody tries it as that kind: it is no mismatch. (Red: what was read before it
/// became that is told.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_was_another_one_a_moment_ago() {
    let server = Server::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    for _ in 0..500 {
        a.mutex("x").lock().await.unwrap().release().await.unwrap();
        let (one, other) = (a.rw_lock("x"), b.rw_lock("x"));
        let (one, other) = tokio::join!(one.try_read(), other.try_read());
        for got in [one, other] {
            if let Ok(guard) = got.unwrap() {
                guard.release().await.unwrap();
            }
        }
    }
}
/// A row was just made, and nobody has used it yet: it is not idle, so no clean-up keeps it from whoever made it. (Red: it has no token yet, and
/// counts as older than all others.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_was_just_made_is_not_idle() {
    let server = Server::start();
    let a = client(&server.url()).await;
    let version = a.cell("other").compare_exchange(Version::NONE, b"1".as_slice()).await.unwrap().unwrap();
    assert!(a.cell("x").compare_exchange(version, b"2".as_slice()).await.unwrap().is_err());
    let row = || server.ask("SELECT count(*) FROM fencelock_lock WHERE name = 'x'");
    assert_eq!(row(), "1");
    server.ask(CLEAN);
    assert_eq!(row(), "1");
}
