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
            std::future::ready(polled.is_pending() && lock.blocked_by().is_some())
        })
        .await;
        // Whoever waits on its behalf has begun.
        tokio::time::sleep(SEC / 4).await;
        assert_eq!(b.inspect("x").await.unwrap().waiters.len(), 1);
        // From here on nothing goes on in this runtime.
        held.release().wait().unwrap();
        let next = b.mutex("x").try_lock_for(20 * SEC).wait().unwrap().expect("its longest time is over");
        assert!(!lock.await.is_ok_and(|held| held.is_valid()), "nobody has said so");
        next.release().await.unwrap();
    });
}
