//! What kind of lock a name is, for the tests that bring `Server`.
use super::*;

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
