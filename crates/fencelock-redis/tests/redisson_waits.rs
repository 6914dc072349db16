//! Layout `redisson`: who wakes whom. Theirs wait for messages on Redisson's channels; ours hear of every change of the key, also of those that
//! Redisson tells nobody.
//!
//! Planted to see them go red: a release that tells nobody; a writer's that says what a reader's does; a downgrade that tells nobody; a head of
//! the fair queue that is not told.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::{
    redisson::{ONE, TWO, Theirs, redisson},
    *,
};
use fencelock_core::Waiting;
use fencelock_testkit::Redis;
use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

fn said(messages: &mpsc::Receiver<(Instant, String)>) -> String {
    messages.recv_timeout(LONG).unwrap().1
}

/// Each release is told once, on the channel and in the words that theirs wait for.
#[test]
fn releases_are_told_as_redisson_tells_them() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    let (one, both) = (listen(&server, &theirs.channel()), listen(&server, &theirs.channel_of_both()));
    let head = listen(&server, &format!("{}:{TWO}", theirs.channel()));
    runtime().block_on(async {
        let c = redisson(&server.url()).await;
        c.mutex("x").lock().await.unwrap().release().await.unwrap();
        assert_eq!(said(&one), "0");
        server.ask(&["RPUSH", "redisson_lock_queue:{x}", TWO]).unwrap();
        c.mutex("x").lock().await.unwrap().release().await.unwrap();
        assert_eq!((said(&one), said(&head)), ("0".to_owned(), "0".to_owned()));
        server.ask(&["DEL", "redisson_lock_queue:{x}"]).unwrap();
        c.rw_lock("x").write().await.unwrap().release().await.unwrap();
        assert_eq!(said(&both), "1");
        let (first, second) = (c.rw_lock("x").read().await.unwrap(), c.rw_lock("x").read().await.unwrap());
        first.release().await.unwrap();
        second.release().await.unwrap();
        assert_eq!(said(&both), "0");
        let reader = c.rw_lock("x").write().await.unwrap().downgrade().await.unwrap();
        assert_eq!(said(&both), "1");
        reader.release().await.unwrap();
        assert_eq!(said(&both), "0");
        // An operator breaks one of theirs.
        assert!(theirs.lock(ONE, "60000"));
        let seen = c.inspect("x").await.unwrap().holders[0].token;
        c.force_release("x", seen).await.unwrap();
        assert_eq!(said(&one), "0");
        tokio::time::sleep(100 * MS).await;
        assert!(one.try_recv().is_err() && both.try_recv().is_err() && head.try_recv().is_err(), "nothing else");
    });
}

/// Whatever frees it wakes ours: an unlock, a writer that leaves its own readers (which Redisson tells nobody), an end without a word.
#[test]
fn whatever_frees_it_wakes_ours() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let c = redisson(&server.url()).await;
        let mut longest = Duration::ZERO;
        for round in 0..if full() { 60 } else { 15 } {
            match round % 3 {
                0 => {
                    assert!(theirs.lock(ONE, "60000"));
                    let wait = tokio::spawn(c.mutex("x").lock());
                    tokio::time::sleep(150 * MS).await;
                    let began = Instant::now();
                    assert_eq!(theirs.unlock(ONE, "60000"), 1);
                    let guard = soon(wait).await.unwrap().unwrap();
                    longest = longest.max(began.elapsed());
                    guard.release().await.unwrap();
                }
                1 => {
                    assert!(theirs.write(ONE, "60000") && theirs.read(ONE, "60000"));
                    let wait = tokio::spawn(c.rw_lock("x").read());
                    tokio::time::sleep(150 * MS).await;
                    let began = Instant::now();
                    assert_eq!(theirs.end_write(ONE, "60000"), 1);
                    let guard = soon(wait).await.unwrap().unwrap();
                    longest = longest.max(began.elapsed());
                    assert_eq!(theirs.end_read(ONE), 0);
                    guard.release().await.unwrap();
                }
                _ => {
                    assert!(theirs.lock(ONE, "400"));
                    let began = Instant::now();
                    let guard = soon(c.mutex("x").lock()).await.unwrap();
                    let took = began.elapsed();
                    assert!(took >= 390 * MS, "{took:?}");
                    longest = longest.max(took.saturating_sub(400 * MS));
                    guard.release().await.unwrap();
                }
            }
            assert!(theirs.is_free());
        }
        in_time(longest, "a waiter");
        println!(
            "MEASURED | redis redisson: a waiter of ours after what frees it, longest | {longest:?} | <= 250 ms | ok"
        );
    });
}

/// Free in the moment in which somebody begins to wait: nobody sleeps until the lease of whoever had it.
#[test]
fn no_wake_up_is_lost() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let c = redisson(&server.url()).await;
        let mut slow = 0;
        for round in 0..if full() { 500 } else { 100 } {
            assert!(theirs.lock(ONE, "60000"));
            let wait = tokio::spawn(c.mutex("x").lock());
            tokio::time::sleep(Duration::from_micros(round * 40 % 4_000)).await;
            let began = Instant::now();
            assert_eq!(theirs.unlock(ONE, "60000"), 1);
            let guard = soon(wait).await.unwrap().unwrap();
            // Sooner than anybody looks by himself.
            slow += usize::from(began.elapsed() > 900 * MS);
            guard.release().await.unwrap();
        }
        assert!(slow <= if full() { 0 } else { 5 }, "{slow} were not woken");
        // Ours among themselves, of one client and of several.
        let mut tasks = Vec::new();
        for n in 0..8 {
            let c = if n % 2 == 0 { c.clone() } else { redisson(&server.url()).await };
            tasks.push(tokio::spawn(async move {
                for _ in 0..25 {
                    let guard = c.mutex("x").ttl(60 * SEC).lock().await.unwrap();
                    tokio::task::yield_now().await;
                    guard.release().await.unwrap();
                }
            }));
        }
        for task in tasks {
            soon(task).await.unwrap();
        }
    });
}

/// Where the server does not tell they look, and have it all the same.
#[test]
fn without_pushes_they_look() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let c = redisson(&(server.url() + "?protocol=resp2")).await;
        assert_eq!(c.info().capabilities.waiting, Waiting::Poll);
        for _ in 0..5 {
            assert!(theirs.lock(ONE, "60000"));
            let wait = tokio::spawn(c.mutex("x").lock());
            tokio::time::sleep(200 * MS).await;
            let began = Instant::now();
            assert_eq!(theirs.unlock(ONE, "60000"), 1);
            soon(wait).await.unwrap().unwrap().release().await.unwrap();
            assert!(began.elapsed() < 5 * SEC, "{:?}", began.elapsed());
        }
    });
}
