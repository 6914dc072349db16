//! Story: an owner is a handle and not a thread: its tasks enter each other's hold wherever they run, another owner queues, and
//! the count is exact when tasks are cancelled half-way (SAFETY A4).
//!
//! Planted to see it red: the first guard that leaves releases; a name that is not forgotten when nobody is inside any more;
//! `enter` without the look at the validity; a last writer that is dropped and keeps the readers out; one who comes while another
//! one is at the slot is told `Busy`; a downgrade that comes after the release, told as a loss.
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use fencelock_core::{ErrorKind, Owner};
use std::time::Duration;

#[test]
fn tasks_and_threads_of_one_owner_share_a_hold_and_others_queue() {
    let server = server();
    let a = client(lease(&server));
    let (me, other) = (a.owner(), a.owner());
    let mutex = a.mutex("x");
    runtime().block_on(async {
        let outer = mutex.clone().reentrant(&me).lock().await.unwrap();
        let inner = tokio::spawn(mutex.clone().reentrant(&me).lock()).await.unwrap().unwrap();
        let (handle, owner) = (mutex.clone(), me.clone());
        let thread = std::thread::spawn(move || block_on(handle.reentrant(&owner).try_lock()).unwrap().unwrap());
        let third = tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
        assert_eq!((outer.token(), inner.token(), third.token()), (third.token(), outer.token(), inner.token()));
        assert_eq!((me.entries("x"), outer.entries(), other.entries("x")), (3, 3, 0));
        assert_eq!(server.census(), (1, 0));
        let wait = tokio::spawn(mutex.clone().reentrant(&other).lock());
        soon("it queues", 5 * SEC, || server.census() == (1, 1)).await;
        outer.release().await.unwrap();
        third.release().await.unwrap();
        assert_eq!((me.entries("x"), server.census()), (1, (1, 1)));
        drop(inner);
        let guard = within("the other one", 5 * SEC, wait).await.unwrap().unwrap();
        assert_eq!((me.entries("x"), other.entries("x")), (0, 1));
        guard.release().await.unwrap();
        assert!(
            format!("{me:?} {other:?}").matches("0 names").count() == 2,
            "nothing is left of the name: {me:?} {other:?}"
        );
    });
}

#[test]
fn an_owner_that_has_it_is_never_told_that_it_is_busy() {
    let server = server();
    let a = client(lease(&server));
    let me = a.owner();
    let outer = block_on(a.mutex("x").reentrant(&me).lock()).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (mutex, me) = (a.mutex("x").reentrant(&me), me.clone());
            std::thread::spawn(move || {
                for round in 0..2_000 {
                    let inner = block_on(mutex.try_lock()).unwrap();
                    assert!(inner.is_ok(), "round {round}: {inner:?}");
                    assert!(me.entries("x") >= 2, "round {round}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(outer.entries(), 1);
}

#[test]
fn the_count_is_exact_when_tasks_are_cancelled() {
    let server = server();
    let a = client(lossy(&server, 0.02));
    runtime().block_on(async {
        let me = a.owner();
        for round in 0..300u32 {
            let tasks: Vec<_> = (0..8)
                .map(|i| {
                    let lock = a.mutex("x").reentrant(&me).lock();
                    tokio::spawn(async move {
                        let patience = Duration::from_micros(u64::from(round * 37 + i * 411) % 4_000);
                        match tokio::time::timeout(patience, lock).await {
                            Ok(guard) => Some(guard.unwrap()),
                            Err(_) => None,
                        }
                    })
                })
                .collect();
            let mut guards = Vec::new();
            for task in tasks {
                guards.extend(task.await.unwrap());
            }
            // One that was cancelled as it got in is on its way out.
            soon("the count is exact", 5 * SEC, || me.entries("x") as usize == guards.len()).await;
            guards.iter().for_each(|guard| guard.check().unwrap());
        }
        soon("nothing is left", 10 * SEC, || server.census() == (0, 0) && a.held() == 0).await;
        soon("no name is left", 5 * SEC, || format!("{me:?}").contains("0 names")).await;
    });
}

#[test]
fn an_owner_that_writes_may_read_and_is_a_reader_when_it_has_written() {
    let server = server();
    let (a, b) = (client(lease(&server)), client(lease(&server)));
    runtime().block_on(async {
        let me = a.owner();
        let lock = a.rw_lock("x").reentrant(&me);
        let write = lock.write().await.unwrap();
        let read = lock.read().await.unwrap();
        assert!(b.rw_lock("x").try_read().await.unwrap().is_err(), "it writes");
        let waiting = tokio::spawn(b.rw_lock("x").write());
        soon("a writer queues", 5 * SEC, || server.census() == (1, 1)).await;
        write.release().await.unwrap();
        tokio::time::sleep(20 * MS).await;
        assert_eq!((server.census(), waiting.is_finished()), ((1, 1), false), "it reads, and the writer stays out");
        let upgrade = lock.write().await.unwrap_err();
        assert_eq!(upgrade.kind(), ErrorKind::Unsupported);
        let again = lock.read().await.unwrap();
        assert_eq!(me.entries("x"), 2);
        drop((read, again));
        within("the writer", 5 * SEC, waiting).await.unwrap().unwrap().release().await.unwrap();

        // By a drop, too: the keeper does it.
        let write = lock.write().await.unwrap();
        let read = lock.try_read().await.unwrap().unwrap();
        drop(write);
        let beside = within("a reader", 5 * SEC, b.rw_lock("x").read()).await.unwrap();
        drop((read, beside));
        soon("nothing is left", 5 * SEC, || server.census() == (0, 0)).await;
    });
}

#[test]
fn a_writer_and_a_reader_who_go_together_lose_nothing() {
    let server = server();
    let a = client(lease(&server));
    runtime().block_on(async {
        let me = a.owner();
        let lock = a.rw_lock("x").reentrant(&me);
        for round in 0..300 {
            let (write, read) = (lock.write().await.unwrap(), lock.read().await.unwrap());
            let told = tokio::spawn(read.lost());
            // The one becomes a reader while the other is given back, and either comes first.
            if round % 2 == 0 {
                let (wrote, has_read) = tokio::join!(write.release(), read.release());
                wrote.unwrap_or_else(|e| panic!("round {round}: {e}"));
                has_read.unwrap_or_else(|e| panic!("round {round}: {e}"));
            } else {
                drop(write);
                read.release().await.unwrap_or_else(|e| panic!("round {round}: {e}"));
            }
            assert!(!told.is_finished(), "round {round}");
            told.abort();
        }
        soon("nothing is left", 5 * SEC, || server.census() == (0, 0)).await;
    });
}

#[test]
fn a_hold_that_is_lost_is_acquired_anew_and_not_entered() {
    let server = server();
    let a = client(lease(&server));
    runtime().block_on(async {
        let me: Owner = a.owner();
        let lost = a.mutex("x").reentrant(&me).lock().await.unwrap();
        a.force_release("x", lost.token()).await.unwrap();
        within("the loss", 5 * SEC, lost.lost()).await;
        let new = a.mutex("x").reentrant(&me).lock().await.unwrap();
        assert!(new.token() > lost.token() && new.check().is_ok());
        assert_eq!(lost.release().await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(me.entries("x"), 1);
        new.check().unwrap();
        // The lost one's end has not freed the new one's lock.
        assert_eq!(server.census(), (1, 0));
        drop(new);
        soon("nothing is left", 5 * SEC, || server.census() == (0, 0)).await;
    });
}
