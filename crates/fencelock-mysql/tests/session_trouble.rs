//! What goes wrong around sessions: servers that vanish, that are slow, that may not be told to end one; connections that are not ours.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::within;
use fencelock_core::{Client, ErrorKind, LossReason};
use fencelock_testkit::{MariaDb, processes::full};
use std::{future::ready, time::Instant};

async fn sessions(server: &MariaDb) -> Client {
    client(&(server.url() + "?strategy=session")).await
}

/// The server is slow, or somebody keeps its tables, when one hold is given back: the others of its session stay, and what was given back is
/// free when the server can do it. (Red: a release that is not answered ends the session; nobody tries it again.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_release_costs_nobody_else_a_hold() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let (ours, other) = (client(&format!("{url}?strategy=session")).await, sessions(&server).await);
    let kept = ours.mutex("kept").lock().await.unwrap();
    let held = ours.mutex("x").lock().await.unwrap();
    proxy.delay(700 * MS);
    drop(held.release().await);
    // Whoever gives up a claim takes it back there, too.
    drop(ours.mutex("y").try_lock_for(300 * MS).await);
    tokio::time::sleep(2 * SEC).await;
    kept.check().unwrap();
    proxy.delay(MS);
    let next = within("x is free", other.mutex("x").lock()).await.unwrap();
    next.release().await.unwrap();
    within("y is free", other.mutex("y").lock()).await.unwrap().release().await.unwrap();
    // Its time is over while the tables are locked: nobody calls it back but the session itself.
    let brief = ours.mutex("z").ttl(3 * SEC).max_hold(SEC).lock().await.unwrap();
    let beside = ours.mutex("beside").ttl(6 * SEC).lock().await.unwrap();
    let mut operator = Session::new(&server);
    operator.ask("LOCK TABLES fencelock_lock WRITE");
    assert_eq!(soon(brief.lost()).await, LossReason::MaxHold);
    std::mem::forget(brief);
    tokio::time::sleep(4 * SEC).await;
    operator.ask("UNLOCK TABLES");
    within("z is free", other.mutex("z").lock()).await.unwrap().release().await.unwrap();
    kept.check().unwrap();
    beside.check().unwrap();
    drop((kept, beside));
}
/// What is between us and the server has changed since we connected, and gives each session to two: no lock is taken there. (Red: only the
/// first session is judged.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_new_session_is_judged() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let ours = client(&format!("{url}?strategy=session")).await;
    proxy.lead_to(two_for_each(server.port()));
    let error = ours.mutex("x").try_lock().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("proxy"), "{error}");
    assert_eq!(server.ask("SELECT COUNT(*) FROM fencelock_lock"), "0");
}
/// Who may not end the session of another account is told so. (Red: the server's refusal is passed over.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_may_not_be_ended() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let ours = client(&format!("{url}?strategy=session")).await;
    let held = ours.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    server.ask("CREATE USER poor@'%'; GRANT ALL ON test.* TO poor@'%'");
    let poor = client(&(server.url().replace("root@", "poor@") + "?strategy=session")).await;
    proxy.silent(true);
    let error = poor.force_release("x", held.token()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::PermissionDenied && error.to_string().contains("1095"), "{error}");
    proxy.silent(false);
    assert_eq!(soon(held.lost()).await, LossReason::TakenOver);
}
/// What cannot be buried has been ended by the server after a minute, or after its ttl: whoever waited there waits anew, and not before. In
/// full runs only: it takes that long. (Red: no limit; a minute, whatever the ttl.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_cannot_be_buried() {
    if !full() {
        return;
    }
    let server = MariaDb::start();
    let (near, ours) = (sessions(&server).await, sessions(&server).await);
    let came = |name: &'static str, ttl| {
        let (server, near, ours) = (&server, near.clone(), ours.clone());
        async move {
            let held = near.mutex(name).ttl(300 * SEC).lock().await.unwrap();
            let wait = tokio::spawn(ours.mutex(name).ttl(ttl).lock());
            queued(&near, name, 1).await;
            let waits = format!("SELECT pid FROM fencelock_bearer WHERE name = '{name}'");
            let pid = server.ask(&waits);
            server.ask(&format!("KILL {pid}"));
            let began = Instant::now();
            while [&*pid, ""].contains(&&*server.ask(&waits)) && began.elapsed() < 120 * SEC {
                tokio::time::sleep(100 * MS).await;
            }
            let took = began.elapsed();
            held.release().await.unwrap();
            within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
            took
        }
    };
    server.ask("DROP PROCEDURE fencelock_bury");
    let (brief, long) = tokio::join!(came("x", SEC), came("y", 80 * SEC));
    println!("it waits anew after {brief:?}, with a ttl of 80 s after {long:?}");
    assert!(brief >= 60 * SEC && brief < 75 * SEC && long >= 80 * SEC && long < 95 * SEC);
}
/// A session is ended for the one hold that it does not give back, and for none that it has given back meanwhile. (Red: it is ended whatever
/// it holds.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_has_let_go_is_not_ended() {
    let server = MariaDb::start();
    let ours = sessions(&server).await;
    let (kept, held) = (ours.mutex("kept").lock().await.unwrap(), ours.mutex("x").lock().await.unwrap());
    let bearer = server.ask("SELECT HEX(bearer) FROM fencelock_lock WHERE name = 'x'");
    let bury = |token| server.ask(&format!("CALL fencelock_bury_holder('', 'x', {token}, X'{bearer}')"));
    let first = held.token();
    held.release().await.unwrap();
    assert_eq!(bury(first), "gone");
    let held = ours.mutex("x").lock().await.unwrap();
    assert_eq!(bury(first), "gone");
    // More than two looks.
    tokio::time::sleep(SEC).await;
    kept.check().unwrap();
    held.check().unwrap();
    bury(held.token());
    assert_eq!(soon(held.lost()).await, LossReason::SessionEnded);
}
/// The clock was an hour ahead when a holder said how long it is not free before its time: it is free to leases, too, and is forgotten. (Red:
/// a time that is taken at its word.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_time_of_another_clock() {
    let server = MariaDb::start();
    let (ours, leases) = (sessions(&server).await, client(&server.url()).await);
    for name in ["x", "y"] {
        let held = ours.mutex(name).ttl(60 * SEC).at_least(60 * SEC).lock().await.unwrap();
        let pid = server.ask(&format!("SELECT pid FROM fencelock_lock WHERE name = '{name}'"));
        server.ask(&format!("KILL {pid}"));
        soon(held.lost()).await;
    }
    assert_eq!(leases.mutex("x").try_lock().await.unwrap_err().kind(), ErrorKind::LayoutMismatch);
    let hour = "since = since + 3600000000, until = until + 3600000000, fence = 1";
    server.ask(&format!("UPDATE fencelock_lock SET {hour}"));
    leases.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
    server.ask("CALL fencelock_clean(3600000000)");
    assert_eq!(server.ask("SELECT COUNT(*) FROM fencelock_lock WHERE name = 'y'"), "0");
}
/// What is too long to be written is refused in plain words, and nothing of it is left. (Red: the server's words alone.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_long_is_refused() {
    let server = MariaDb::start();
    let (near, ours) = (sessions(&server).await, sessions(&server).await);
    let leases = client(&server.url()).await;
    let held = near.mutex("x").lock().await.unwrap();
    let kept = ours.mutex("kept").lock().await.unwrap();
    let long = "n".repeat(70_000);
    let refused = [
        ours.mutex("y").note(&*long).try_lock().await.unwrap_err(),
        ours.mutex("y").note(&*long).lock().await.unwrap_err(),
        soon(ours.mutex("x").note(&*long).lock()).await.unwrap_err(),
        leases.mutex("z").note(&*long).lock().await.unwrap_err(),
    ];
    for error in refused {
        assert!(error.kind() == ErrorKind::InvalidConfig && error.to_string().contains("64 KiB"), "{error}");
    }
    kept.check().unwrap();
    eventually("nothing is left", || {
        let named = "SELECT COUNT(*) FROM fencelock_lock WHERE IS_USED_LOCK(named) IS NOT NULL OR kind = 'mutex' AND hold IS NOT NULL";
        let waits = "SELECT COUNT(*) FROM fencelock_bearer";
        ready(server.ask(named) == "2" && server.ask(waits) == "0")
    })
    .await;
    ours.mutex("y").note(&long[..60_000]).try_lock().await.unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
    kept.release().await.unwrap();
}
