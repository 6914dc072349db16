//! A word that comes late, for the tests of engines whose sessions are their clients', which bring `Server` and `client`.
use super::*;
use fencelock_core::blocking::Wait;
use std::task::{Context, Waker};

/// A grant that its caller hears of when its longest time is long over, since his runtime stood still: it is told before somebody else has the
/// lock. (Red: given back without a word.)
#[test]
fn a_grant_that_is_heard_of_late() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (a, b) = (client(&server, 4 * SEC).await, client(&server, 4 * SEC).await);
        let held = b.mutex("x").lock().await.unwrap();
        let mut lock = Box::pin(a.mutex("x").max_hold(SEC).lock());
        eventually("it waits", || {
            let polled = lock.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let status = b.inspect("x");
            async move { polled.is_pending() && status.await.unwrap().waiters.len() == 1 }
        })
        .await;
        // From here on nothing goes on in this runtime.
        held.release().wait().unwrap();
        let next = b.mutex("x").lock().wait().unwrap();
        assert!(!lock.await.is_ok_and(|held| held.is_valid()), "nobody has said so");
        next.release().await.unwrap();
    });
}
