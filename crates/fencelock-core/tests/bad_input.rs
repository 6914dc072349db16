//! Story: what cannot be used is refused at the first await, by one clear error that names the value and the way out, before
//! any byte is sent; nothing is held or queued afterwards.
//!
//! Planted to see it red: `check` that accepts every ttl; `Name::new` without the NUL; `check` without max_hold; a loss by `MaxHold` on the way that is tried again.
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use fencelock_core::{Client, ErrorKind, Mutex};
use std::time::Duration;

#[test]
fn what_cannot_be_used_is_refused_before_a_byte_is_sent() {
    let server = server();
    let (client, engine) = cuttable(lease(&server));
    let long = "x".repeat(513);
    type Make = Box<dyn Fn(&Client) -> Mutex>;
    let named = |name: &str| -> Make {
        let name = name.to_owned();
        Box::new(move |client| client.mutex(&name))
    };
    let cases: Vec<(Make, ErrorKind, &[&str])> = vec![
        (named(""), ErrorKind::InvalidName, &["empty", "1 to 512 bytes"]),
        (named(&long), ErrorKind::InvalidName, &["513 bytes", "xxx", "shorten it"]),
        (named("a\0b"), ErrorKind::InvalidName, &["NUL", "\"a\\0b\"", "leave the NUL out"]),
        (Box::new(|c| c.mutex("m").ttl(Duration::ZERO)), ErrorKind::InvalidConfig, &["ttl", "0ns", "50ms", "m"]),
        (Box::new(|c| c.mutex("m").ttl(Duration::MAX)), ErrorKind::InvalidConfig, &["ttl", "86400s"]),
        (Box::new(|c| c.mutex("m").max_hold(Duration::ZERO)), ErrorKind::InvalidConfig, &["max_hold", "leave it out"]),
    ];
    runtime().block_on(async {
        for (make, kind, says) in cases {
            let mutex = make(&client);
            let errors = [
                within("an error", 5 * SEC, mutex.lock()).await.unwrap_err(),
                within("an error", 5 * SEC, mutex.try_lock()).await.unwrap_err(),
                within("an error", 5 * SEC, mutex.try_lock_for(SEC)).await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), kind, "{error}");
                assert!(!error.is_temporary());
                for word in says {
                    assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
                }
            }
        }
        assert_eq!((engine.commands(), server.census(), client.held()), (0, (0, 0), 0));
        for name in ["", "a\0b"] {
            assert_eq!(client.inspect(name).await.unwrap_err().kind(), ErrorKind::InvalidName);
        }
        let just = client.mutex("x".repeat(512)).ttl(50 * MS).max_hold(Duration::MAX).lock().await.unwrap();
        just.release().await.unwrap();
    });
}

/// Of no use, but nothing that can be seen before: it is told, and not tried for ever.
#[test]
fn a_max_hold_that_is_over_at_once_is_told() {
    let server = server();
    let client = client(lease(&server));
    runtime().block_on(async {
        let nano = client.mutex("m").max_hold(Duration::from_nanos(1));
        let error = within("an error", 5 * SEC, nano.lock()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidConfig && error.to_string().contains("1ns"), "{error}");
    });
    eventually("nothing held", 10 * SEC, || server.census() == (0, 0));
}

/// On an engine with sessions the ttl is the session's.
#[test]
fn a_ttl_that_no_session_has_is_refused() {
    let server = server();
    let client = client(lease(&server).with_session(5 * SEC));
    runtime().block_on(async {
        let error = client.mutex("m").ttl(SEC).lock().await.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidConfig && error.to_string().contains("5s to 5s"), "{error}");
        client.mutex("m").lock().await.unwrap().release().await.unwrap();
    });
}

#[test]
#[should_panic(expected = "polled after it was ready")]
fn an_acquire_that_was_ready_is_not_polled_again() {
    let client = client(lease(&server()));
    one_thread().block_on(async {
        let mut lock = client.mutex("m").lock();
        let _guard = (&mut lock).await;
        let _ = (&mut lock).await;
    });
}
