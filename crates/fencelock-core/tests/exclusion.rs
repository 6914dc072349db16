//! Story: sixteen clients, each with a link of its own that is slow, reorders and loses 2 % of the replies, count with a
//! counter that is not atomic. No increment may be lost, and every holder's token is greater than that of the one before.
//! Tasks of one client get in in the order in which they asked.
//!
//! Planted to see it red: `Record::fits` always true (the counter loses); `mint` without `fence + 1` on a clock that stands
//! (tokens repeat); `push_front` in `Turns::enter` (order).
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
};

#[test]
fn sixteen_clients_count_exactly_and_tokens_rise() {
    let server = server();
    let (counter, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicI64::new(0)));
    runtime().block_on(async {
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let client = client(lossy(&server, 0.02));
                let (counter, last) = (counter.clone(), last.clone());
                tokio::spawn(async move {
                    for _ in 0..50 {
                        let guard = client.mutex("m").ttl(LONG).lock().await.unwrap();
                        let before = last.swap(guard.token().get(), SeqCst);
                        assert!(before < guard.token().get(), "tokens rise in the order of grants");
                        let n = counter.load(SeqCst);
                        tokio::task::yield_now().await;
                        guard.check().unwrap();
                        counter.store(n + 1, SeqCst);
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(counter.load(SeqCst), 800);
    eventually("all released", 10 * SEC, || server.census() == (0, 0));
}

#[test]
fn those_of_one_client_get_in_in_the_order_in_which_they_asked() {
    let server = server();
    let client = client(lease(&server));
    one_thread().block_on(async {
        let guard = client.mutex("m").lock().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for i in 0..12 {
            let (client, order) = (client.clone(), order.clone());
            let (asked, told) = tokio::sync::oneshot::channel();
            tasks.push(tokio::spawn(async move {
                let mut wait = client.mutex("m").lock();
                assert!(once(&mut wait).await.is_none());
                asked.send(()).unwrap();
                let guard = wait.await.unwrap();
                order.lock().unwrap().push(i);
                drop(guard);
            }));
            told.await.unwrap();
        }
        assert!(server.census().1 <= 1, "one of them at most waits at the engine");
        guard.release().await.unwrap();
        for task in tasks {
            within("its turn", 5 * SEC, task).await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..12).collect::<Vec<_>>());
    });
    eventually("all released", 10 * SEC, || server.census() == (0, 0));
}
