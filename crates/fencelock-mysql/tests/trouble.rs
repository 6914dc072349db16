//! What goes wrong around the engine: places that nobody waits in, answers that are lost, connections that break, a clock that is set back.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::{proxy::Trouble, within};
use fencelock_core::{Client, ErrorKind, LossReason};
use fencelock_testkit::MariaDb;
use std::{
    process::Stdio,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
    time::Instant,
};

/// A try is granted, its answer is lost, and somebody keeps the row when it is repeated: nobody knows, so it is taken back. (Red: `Busy`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_whose_answer_was_lost_and_whose_row_is_kept() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let (a, b) = (client(&url).await, client(&server.url()).await);
    a.mutex("x").lock().await.unwrap().release().await.unwrap();
    // As soon as somebody holds it, and for two seconds.
    server.ask(
        "DELIMITER //\nCREATE PROCEDURE keeps() BEGIN \
           WHILE NOT EXISTS (SELECT 1 FROM fencelock_lock WHERE hold IS NOT NULL) DO DO 0; END WHILE; \
           START TRANSACTION; SELECT COUNT(*) FROM fencelock_lock FOR UPDATE; DO SLEEP(2); COMMIT; END//",
    );
    let mut met = 0;
    for _ in 0..5 {
        let mut keeper = server.client("CALL keeps()").stdout(Stdio::null()).spawn().unwrap();
        // The client begins meanwhile.
        tokio::time::sleep(300 * MS).await;
        let lost = first(&proxy, "acquire", 1, Trouble::LoseReply);
        let answer = a.mutex("x").ttl(60 * SEC).try_lock().await;
        assert_eq!(lost.load(SeqCst), 1);
        match answer {
            Ok(Ok(guard)) => guard.release().await.unwrap(),
            Ok(Err(busy)) => panic!("it is free, or ours: {busy}"),
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                met += 1;
            }
        }
        tokio::task::block_in_place(|| keeper.wait()).unwrap();
        eventually("it is free", || async { !b.inspect("x").await.unwrap().is_held() }).await;
    }
    assert!(met > 0, "the row was never kept in time");
}
/// Somebody becomes a reader while a renewal is under way: that is no loss. (Red: a renewal that takes a writer who is gone for the end.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_beside_a_downgrade() {
    let server = MariaDb::start();
    let a = client(&server.url()).await;
    // What the keeper sends three times in a ttl, without a break.
    let one =
        "CONCAT(UNHEX(LPAD(HEX(LENGTH(n)), 4, '0')), n, o, UNHEX(LPAD(HEX(f), 16, '0')), UNHEX(LPAD(HEX(t), 16, '0')))";
    server.ask(&format!(
        "DELIMITER //\nCREATE PROCEDURE renews() BEGIN DECLARE n VARBINARY(512); DECLARE o BINARY(16); DECLARE f, t BIGINT; \
           WHILE NOT EXISTS (SELECT 1 FROM fencelock_lock WHERE name = 'stop') DO \
             SET o = NULL; SELECT name, hold, fence, ttl INTO n, o, f, t FROM fencelock_lock \
               WHERE name LIKE 'd%' AND hold IS NOT NULL LIMIT 1; \
             IF o IS NOT NULL THEN CALL fencelock_renew('', {one}); END IF; \
           END WHILE; END//"
    ));
    let renewer = server.client("CALL renews()").stdout(Stdio::piped()).spawn().unwrap();
    let said = std::thread::spawn(move || renewer.wait_with_output().unwrap());
    let mut guards = Vec::new();
    for n in 0..400 {
        let writer = a.rw_lock(format!("d{n}")).ttl(60 * SEC).write().await.unwrap();
        guards.push(writer.downgrade().await.unwrap());
    }
    a.mutex("stop").lock().await.unwrap().release().await.unwrap();
    let said = tokio::task::block_in_place(|| said.join()).unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let many = |letter: &str| said.lines().filter(|line| *line == letter).count();
    println!("{} extended, {} unknown", many("e"), many("u"));
    assert!(many("e") > 0 && many("g") == 0, "{} losses", many("g"));
}
/// Connections break, and something was lost meanwhile: it is looked at, at once. (Red: the next renewal is waited for.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_break_all_holds_are_looked_at() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let a = client(&url).await;
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    tokio::time::sleep(100 * MS).await;
    server.ask("UPDATE fencelock_lock SET hold = X'00112233445566778899aabbccddeeff'");
    proxy.cut();
    let began = Instant::now();
    // Whoever looks next finds the connection broken.
    let _ = a.inspect("x").await;
    assert_eq!(soon(held.lost()).await, LossReason::TakenOver);
    println!("told after {:?}", began.elapsed());
}
/// Whoever gave up, and whose withdrawal did not come through, is not in the way for as long as somebody beside him waits for something
/// else. (Red: no look for what was left behind.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_was_not_withdrawn() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let (far, near) = (client(&url).await, client(&server.url()).await);
    let (x, y) = (near.mutex("x").lock().await.unwrap(), near.mutex("y").lock().await.unwrap());
    let beside = tokio::spawn(far.mutex("y").lock());
    queued(&near, "y", 1).await;
    proxy.rule(|command| {
        let releases = command.windows(18).any(|part| part == b"fencelock_release(");
        if releases { Trouble::Lose } else { Trouble::None }
    });
    assert!(far.mutex("x").ttl(500 * MS).try_lock_for(300 * MS).await.unwrap().is_err());
    // Core takes it back for a second, and once more after the end of its command; then it leaves it to the end of the lease, which a
    // place has not.
    tokio::time::sleep(6 * SEC).await;
    proxy.calm();
    let next = tokio::spawn(near.mutex("x").lock());
    x.release().await.unwrap();
    within("the next one", next).await.unwrap().unwrap().release().await.unwrap();
    assert!(!beside.is_finished());
    y.release().await.unwrap();
    within("who waits beside", beside).await.unwrap().unwrap().release().await.unwrap();
}
/// The clock was an hour ahead when those who held it died: whoever waits, or tries, is in after a ttl. (Red: looks that take an end at its
/// word.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back() {
    let server = MariaDb::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let ahead = || {
        let other = "X'00112233445566778899aabbccddeeff'";
        server.ask(&format!("UPDATE fencelock_holder SET ends = ends + 3600000000, hold = {other}"));
        server
            .ask(&format!("UPDATE fencelock_lock SET ends = ends + 3600000000, hold = {other} WHERE hold IS NOT NULL"));
    };
    let dead = a.rw_lock("r").ttl(2 * SEC).read().await.unwrap();
    ahead();
    eventually("a writer who tries", || async {
        b.rw_lock("r").try_write().await.unwrap().map(|guard| drop(tokio::spawn(guard.release()))).is_ok()
    })
    .await;
    let more = a.semaphore("s", 1).ttl(2 * SEC).acquire(1).await.unwrap();
    let wait = tokio::spawn(b.semaphore("s", 1).acquire(1));
    queued(&a, "s", 1).await;
    ahead();
    within("who waits", wait).await.unwrap().unwrap().release().await.unwrap();
    let alone = a.mutex("m").ttl(2 * SEC).lock().await.unwrap();
    let wait = tokio::spawn(b.mutex("m").lock());
    queued(&a, "m", 1).await;
    ahead();
    within("who waits", wait).await.unwrap().unwrap().release().await.unwrap();
    drop((dead, more, alone));
}
/// A size that was changed is kept as if the semaphore had been used then. (Red: a clean-up that takes it for never used.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_size_that_nobody_has_used_yet_is_kept() {
    let server = MariaDb::start();
    let a = client(&server.url()).await;
    a.semaphore("s", 3).resize(3, 5).await.unwrap();
    server.ask("CALL fencelock_clean(3600000000)");
    let error = a.semaphore("s", 3).try_acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CapacityMismatch, "{error}");
}
/// Nobody has said for some seconds that he lives, as when the server stood still: whoever comes first then passes the others, and they keep
/// their places. (Red: he removes them.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stood_still_keeps_the_order() {
    let server = MariaDb::start();
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..4 {
        clients.push(client(&server.url()).await);
    }
    // At once: all have been silent, the lock is free, and the last one looks.
    server.ask(
        "DELIMITER //\nCREATE PROCEDURE looks() BEGIN DECLARE h, c BINARY(16); \
           SELECT hold, client INTO h, c FROM fencelock_waiter ORDER BY ticket DESC LIMIT 1; \
           UPDATE fencelock_client SET ends = ends - 7000000; UPDATE fencelock_lock SET hold = NULL; \
           CALL fencelock_refresh('', 'x', h, 60000000, c, NULL); END//",
    );
    for _ in 0..10 {
        let held = clients[0].mutex("x").ttl(60 * SEC).lock().await.unwrap();
        let (order, mut waits) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
        for (n, one) in clients.iter().enumerate() {
            let (wait, order) = (one.mutex("x").ttl(60 * SEC).lock(), order.clone());
            waits.push(tokio::spawn(async move {
                let guard = wait.await.unwrap();
                order.lock().unwrap().push(n);
                guard.release().await.unwrap();
            }));
            let many = || server.ask("SELECT COUNT(*) FROM fencelock_waiter") == (n + 1).to_string();
            eventually("it waits", || async { many() }).await;
        }
        let said = server.ask("CALL looks()");
        for wait in waits {
            soon(wait).await.unwrap();
        }
        assert!(held.release().await.is_err());
        // Another one may have been in front of it: then nothing is shown.
        if said.starts_with("done") {
            assert_eq!(*order.lock().unwrap(), [3, 0, 1, 2]);
            return;
        }
    }
    panic!("it never came first");
}
