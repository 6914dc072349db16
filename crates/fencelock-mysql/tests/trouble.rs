//! What goes wrong around the engine: places that nobody waits in, answers that are lost, connections that break, a clock that is set back.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::proxy::Trouble;
use fencelock_core::LossReason;
use fencelock_testkit::MariaDb;
use std::{process::Stdio, sync::atomic::Ordering::SeqCst, time::Instant};

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
