//! What goes wrong around the engine: places that nobody waits in, answers that are lost, connections that break, a clock that is set back.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/kinds.rs"]
mod kinds;
use common::*;
use fencelock_conformance::{proxy::Trouble, within};
use fencelock_core::{Client, ErrorKind, LossReason};
use fencelock_mysql::MysqlEngine;
use fencelock_testkit::{MariaDb, MariaDb as Server, on_a_steady_machine};
use std::{
    process::Stdio,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
    time::Instant,
};

/// Of what was idle for an hour.
const CLEAN: &str = "CALL fencelock_clean(3600000000)";

/// A try is granted, its answer is lost, and somebody keeps the row when it is repeated: nobody knows, so it is taken back. (Red: `Busy`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_whose_answer_was_lost_and_whose_row_is_kept() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let (a, b) = (client(&url).await, client(&server.url()).await);
    a.mutex("x").lock().await.unwrap().release().await.unwrap();
    // As soon as somebody holds it, and for two seconds.
    server.ask(
        "DELIMITER //\nCREATE PROCEDURE keeps() BEGIN DECLARE began DATETIME DEFAULT SYSDATE(); DO GET_LOCK('keeps', 10); \
           WHILE NOT EXISTS (SELECT 1 FROM fencelock_lock WHERE hold IS NOT NULL) AND SYSDATE() < began + INTERVAL 5 SECOND DO DO 0; END WHILE; \
           START TRANSACTION; SELECT COUNT(*) FROM fencelock_lock FOR UPDATE; DO SLEEP(2); COMMIT; END//",
    );
    let mut met = 0;
    for _ in 0..5 {
        let mut keeper = server.client("CALL keeps()").stdout(Stdio::null()).spawn().unwrap();
        eventually("it looks", || std::future::ready(server.ask("SELECT IS_USED_LOCK('keeps')") != "NULL")).await;
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
/// Somebody keeps the lock's row for longer than a waiter who is silent would live: whoever is in front stays there. (Red: no sign of life
/// from one who finds the row kept.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_comes_while_the_row_is_kept() {
    let server = MariaDb::start();
    let [a, b, c] = [client(&server.url()).await, client(&server.url()).await, client(&server.url()).await];
    let held = a.mutex("x").ttl(3 * SEC).lock().await.unwrap();
    let first = tokio::spawn(b.mutex("x").lock());
    queued(&b, "x", 1).await;
    let second = tokio::spawn(c.mutex("x").lock());
    queued(&b, "x", 2).await;
    // No renewal comes through, so the lease ends; and nobody can be granted it.
    let mut keeper = Session::new(&server);
    keeper.ask("BEGIN; SELECT COUNT(*) FROM fencelock_lock FOR UPDATE");
    held.lost().await;
    let began = Instant::now();
    while began.elapsed() < 5 * SEC {
        // Whoever is not among them is taken for dead, and is passed.
        assert_eq!(b.inspect("x").await.unwrap().waiters.len(), 2, "{:?} after the lease's end", began.elapsed());
        tokio::time::sleep(20 * MS).await;
    }
    assert!(!first.is_finished() && !second.is_finished());
    keeper.ask("COMMIT");
    let held = within("who was in front", first).await.unwrap().unwrap();
    assert!(!second.is_finished());
    held.release().await.unwrap();
    within("who came later", second).await.unwrap().unwrap().release().await.unwrap();
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
    let more = a.semaphore("s", 1).ttl(5 * SEC).acquire(1).await.unwrap();
    let wait = tokio::spawn(b.semaphore("s", 1).acquire(1));
    queued(&a, "s", 1).await;
    ahead();
    within("who waits", wait).await.unwrap().unwrap().release().await.unwrap();
    let alone = a.mutex("m").ttl(5 * SEC).lock().await.unwrap();
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
async fn a_server_that_stood_still_keeps_their_places() {
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
           CALL fencelock_refresh('', 'x', h, 60000000, 9000000000000000000, c, NULL, TRUE); SELECT COUNT(*) FROM fencelock_waiter; END//",
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
        let mut order = order.lock().unwrap().clone();
        // Another one may have been in front of it, and even be gone by then: nothing is shown.
        if said.starts_with("done") && order.remove(0) == 3 {
            assert_eq!(said.lines().last(), Some("3"), "they keep their places: {said}");
            // Whoever is heard again first may be first.
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2]);
            return;
        }
    }
    panic!("it never came first");
}
/// Connections on which nothing comes any more: the next renewal stands behind none of them. (Red: renewals wait in their line until one that
/// was not answered is given up.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_on_connections_that_are_silent() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let a = client(&url).await;
    let held = a.mutex("x").ttl(6 * SEC).lock().await.unwrap();
    // More than one is idle.
    let calls = (0..4).map(|n| tokio::spawn(a.mutex(format!("y{n}")).lock())).collect::<Vec<_>>();
    for call in calls {
        soon(call).await.unwrap().unwrap().release().await.unwrap();
    }
    proxy.mute_all();
    let until = held.valid_until() + 2 * SEC;
    eventually("it was renewed", || std::future::ready(held.valid_until() > until || !held.is_valid())).await;
    assert!(held.is_valid());
}
/// The server takes no more connections: those that a client has are enough for all that it does, and whoever asks meanwhile is not refused.
/// Nor has a lock that is held too few of them because others wait for it. (Red: whoever finds none idle is; a watch takes the last one.)
#[test]
fn a_server_that_is_full() {
    // Two thirds of its ttl, which is short so that there is something to renew.
    on_a_steady_machine(600 * MS, || runtime().block_on(is_full()));
}
async fn is_full() {
    let server = MariaDb::with(&["--max-connections=12"]);
    let a = client(&server.url()).await;
    let held = a.mutex("x").ttl(SEC).lock().await.unwrap();
    let taken = Session::all(&server);
    let wait = |_| {
        let lock = a.mutex("x").lock();
        tokio::spawn(async move { lock.await.unwrap().release().await.unwrap() })
    };
    let waits = (0..4).map(wait).collect::<Vec<_>>();
    // Whoever asks, and then looks at something else, keeps nobody waiting (SAFETY E5).
    let mut idle: Vec<_> = (0..32).map(|n| Box::pin(a.mutex(format!("idle{n}")).lock())).collect();
    for one in &mut idle {
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(one.as_mut().poll(cx))).await.is_pending());
    }
    let tasks = (0..32).map(|task| {
        let lock = a.mutex(format!("y{task}"));
        tokio::spawn(async move {
            for _ in 0..30 {
                lock.lock().await.unwrap().release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        within("all were served", task).await.unwrap();
    }
    let until = held.valid_until() + SEC;
    eventually("it was renewed", || std::future::ready(held.valid_until() > until || !held.is_valid())).await;
    held.release().await.unwrap();
    for one in idle {
        within("whoever looks again has it", one).await.unwrap().release().await.unwrap();
    }
    for wait in waits {
        within("its turn", wait).await.unwrap();
    }
    drop(taken);
}
/// A server that does not answer for a moment: what was not waited for is answered all the same, and no connection is given up. (Red: the first call
/// that is late ends them all.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_late_costs_no_connection() {
    let server = MariaDb::start();
    let a = client(&server.url()).await;
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let pairs = (0..4).map(|n| {
        let lock = a.mutex(format!("y{n}"));
        tokio::spawn(async move { lock.lock().await.unwrap().release().await.unwrap() })
    });
    for pair in pairs.collect::<Vec<_>>() {
        soon(pair).await.unwrap();
    }
    let ask = "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID() ORDER BY id";
    let ours = server.ask(ask);
    let mut terminal = Session::new(&server);
    terminal.ask("LOCK TABLES fencelock_lock WRITE");
    let release = tokio::spawn(held.release());
    // Longer than is waited for one answer.
    tokio::time::sleep(1_200 * MS).await;
    assert!(!release.is_finished());
    terminal.ask("UNLOCK TABLES");
    soon(release).await.unwrap().unwrap();
    let now = server.ask(ask);
    let gone = ours.lines().filter(|id| !now.lines().any(|other| other == *id)).count();
    assert!(ours.lines().count() > 3 && gone == 0, "{gone} of {ours:?}: {now:?}");
}
/// Nothing comes on any connection any more: whoever looks then is answered over a new one, once one of them was waited for. (Red: the pool is given up
/// after he was told, and he asks on the next silent one.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_on_connections_that_are_silent() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let a = client(&url).await;
    let pairs = (0..4).map(|n| {
        let lock = a.mutex(format!("y{n}"));
        tokio::spawn(async move { lock.lock().await.unwrap().release().await.unwrap() })
    });
    for pair in pairs.collect::<Vec<_>>() {
        soon(pair).await.unwrap();
    }
    proxy.mute_all();
    let began = Instant::now();
    soon(a.inspect("x")).await.unwrap();
    println!("answered after {:?}", began.elapsed());
    assert!(began.elapsed() < 5 * SEC, "{:?}", began.elapsed());
}
/// Nothing comes on any connection any more while somebody is watched for: he looks by himself three seconds after his watch should have ended, and
/// the lock, which is his, lies unused no longer. (Red: a watch that is waited for for nine seconds.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_on_a_connection_that_is_silent() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let (a, b) = (client(&url).await, client(&server.url()).await);
    let held = b.mutex("x").lock().await.unwrap();
    let met = first(&proxy, "watch", 1, Trouble::None);
    let wait = tokio::spawn(a.mutex("x").lock());
    eventually("it is watched for", || std::future::ready(met.load(SeqCst) == 1)).await;
    proxy.mute_all();
    held.release().await.unwrap();
    let began = Instant::now();
    soon(wait).await.unwrap().unwrap().release().await.unwrap();
    println!("in after {:?}", began.elapsed());
    assert!(began.elapsed() < 7 * SEC, "{:?}", began.elapsed());
}
/// Those who wait go to another server while their pulse beats on at the one before: it is felt there soon, and until then nobody takes them
/// for dead. (Red: a pulse that is asked nothing but whether it is there.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pulse_goes_where_it_is_felt() {
    let (old, new) = (MariaDb::start(), MariaDb::start());
    let (proxy, url) = proxied(&old);
    let (far, near, next) = (client(&url).await, client(&old.url()).await, client(&new.url()).await);
    let _before = near.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let after = next.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let wait = tokio::spawn(far.mutex("x").lock());
    let felt = |server: &MariaDb| {
        server.ask(
            "SELECT COUNT(*) FROM fencelock_client \
             WHERE pulse > 0 AND IS_USED_LOCK(CONCAT('fencelock.', HEX(client))) <=> pulse",
        ) == "1"
    };
    eventually("it beats", || std::future::ready(felt(&old))).await;
    proxy.lead_to(([127, 0, 0, 1], new.port()).into());
    old.ask("SET GLOBAL read_only = 1");
    queued(&next, "x", 1).await;
    eventually("it beats there", || std::future::ready(felt(&new))).await;
    assert!(!wait.is_finished());
    after.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
}
/// A name became another kind while those who waited for what it was were silent: who of them speaks again is in nobody's way. (Red: their
/// places stay.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_kind_has_another_queue() {
    let server = MariaDb::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    a.semaphore("x", 1).acquire(1).await.unwrap().release().await.unwrap();
    let silent = "X'00112233445566778899aabbccddeeff'";
    server.ask(&format!(
        "INSERT INTO fencelock_waiter VALUES ('', 'x', 1, {silent}, 'p', 1, 60000000, 0, {silent}, 0, 'h 1 ')"
    ));
    // For a moment: one who is for longer has no place at all.
    server
        .ask(&format!("INSERT INTO fencelock_client SELECT {silent}, MAX(l.fence) - 5000000, 0 FROM fencelock_lock l"));
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    assert_eq!(server.ask("SELECT COUNT(*) FROM fencelock_waiter"), "0");
    server.ask("UPDATE fencelock_client SET ends = (SELECT MAX(l.fence) + 3000000 FROM fencelock_lock l)");
    let wait = tokio::spawn(b.mutex("x").lock());
    eventually("it waits", || async { a.inspect("x").await.unwrap().waiters.len() == 1 }).await;
    held.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
}
/// A session that something between us and the server lends, and that commits nothing by itself: whatever is called there first. What ends
/// something does so at a server that takes no writes, too. (Red: it goes on so; it is refused there.)
#[test]
fn a_session_that_commits_nothing_by_itself() {
    let server = MariaDb::start();
    drop(runtime().block_on(client(&server.url())));
    let id = format!("X'{:032}'", 1);
    let ends = [format!("bury({id})"), format!("bury_holder('', 'x', 1, {id})"), format!("let_go('', 'x', 'x', {id})")];
    let more = [format!("places('', {id})"), format!("fade({id})"), "ask('', 'x', 1)".to_owned()];
    for call in ["list('', '', NULL, NULL, 1)".to_owned()].iter().chain(&more).chain(&ends) {
        let said = server.ask(&format!(
            "SET autocommit = 0, time_zone = '+05:00'; CALL fencelock_{call}; SELECT 'set', @@autocommit, @@time_zone, @@tx_isolation"
        ));
        assert_eq!(said.lines().last(), Some("set\t1\t+00:00\tREAD-COMMITTED"), "{call}: {said}");
    }
    server.ask("SET GLOBAL read_only = 1");
    for call in &ends {
        let said = server.ask(&format!("CALL fencelock_{call}"));
        assert!(said.starts_with("gone"), "{call}: {said}");
    }
}
/// One of its connections breaks, and not the one that shows that it lives: nobody takes it for dead for a moment, and passes it. (Red: what
/// shows that it lives ends before the others know that they need not look for it.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_costs_nobody_his_place() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let (far, near) = (client(&url).await, client(&server.url()).await);
    let held = near.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let wait = tokio::spawn(far.mutex("x").lock());
    let pulse = "SELECT COUNT(*) FROM fencelock_client WHERE pulse > 0 AND";
    let felt = format!("{pulse} IS_USED_LOCK(CONCAT('fencelock.', HEX(client))) <=> pulse");
    let dead = format!("{pulse} NOT (IS_USED_LOCK(CONCAT('fencelock.', HEX(client))) <=> pulse)");
    eventually("it beats", || std::future::ready(server.ask(&felt) == "1")).await;
    proxy.delay(30 * MS);
    let lost = first(&proxy, "watch", 1, Trouble::LoseReply);
    eventually("one breaks", || std::future::ready(lost.load(SeqCst) == 1)).await;
    let began = Instant::now();
    while began.elapsed() < 5 * SEC {
        assert_eq!(server.ask(&dead), "0", "taken for dead after {:?}", began.elapsed());
    }
    eventually("it beats again", || std::future::ready(server.ask(&felt) == "1")).await;
    held.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
}
/// A doorbell is a named lock of one session: where sessions are not ours, or a node has its own, it is refused, and says why. (Red: whoever
/// is felt once by another connection of the same pooler passes.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doorbells_where_sessions_are_not_ours() {
    let server = MariaDb::start();
    let open = async |url: String| MysqlEngine::from_url(&(url + "?doorbell=on")).await;
    let place = format!("127.0.0.1:{}", server.port());
    let error = open(server.url().replace(&place, &two_for_each(server.port()).to_string())).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("proxy"), "{error}");
    assert!(error.to_string().contains("doorbell=on"), "{error}");
    let node = MariaDb::with(&["--wsrep-on=ON"]);
    let error = open(node.url()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("cluster"), "{error}");
    // As leases they are served.
    client(&node.url()).await.mutex("x").lock().await.unwrap().release().await.unwrap();
}
/// Those who wait by doorbells have their turns in their order, also when a doorbell breaks, and when one of them is killed at a bad moment:
/// what is rung is a hint. (Red: a ring that is waited for without an end.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doorbells_that_break() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let far = client(&format!("{url}?doorbell=on")).await;
    let near = client(&format!("{}?doorbell=on", server.url())).await;
    let bells = || server.ask("SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'");
    // He came from the queue himself, so he has one.
    let first = near.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let held = tokio::spawn(far.mutex("x").ttl(60 * SEC).lock());
    queued(&near, "x", 1).await;
    let bell = "SELECT IS_USED_LOCK(CONCAT('fencelock:', HEX(hold))) IS NOT NULL FROM fencelock_waiter";
    eventually("it has a doorbell", || std::future::ready(server.ask(bell) == "1")).await;
    first.release().await.unwrap();
    let held = within("its turn", held).await.unwrap().unwrap();
    let wait = tokio::spawn(near.mutex("x").lock());
    eventually("it waits for a ring", || std::future::ready(bells() == "1")).await;
    // The holder's doorbell is there, and will not be rung by his release: it is silent, and he has another connection.
    proxy.mute_all();
    let _ = far.inspect("x").await;
    proxy.cut();
    within("released", held.release()).await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
}
/// One who is granted it in another call than the one that watches for him: that one ends, whoever is next in the queue, and with whichever
/// number. (Red: his number is asked for, which is somebody else's by now, and he waits for himself.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_when_its_waiter_is_granted() {
    let server = MariaDb::start();
    let c = client(&format!("{}?doorbell=on", server.url())).await;
    let mut session = Session::new(&server);
    for _ in 0..5 {
        let first = c.mutex("x").lock().await.unwrap();
        let second = tokio::spawn(c.mutex("x").lock());
        queued(&c, "x", 1).await;
        let bell = server.ask("SELECT CONCAT('fencelock:', HEX(hold)) FROM fencelock_waiter");
        let watches = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Query' AND id = IS_USED_LOCK('{bell}')"
        );
        eventually("it is looked for", || std::future::ready(server.ask(&watches) == "1")).await;
        // The one behind comes when the queue is empty, so it has the number that the first one had.
        first.release().await.unwrap();
        let second = within("its turn", second).await.unwrap().unwrap();
        let third = tokio::spawn(c.mutex("x").lock());
        queued(&c, "x", 1).await;
        // A token is the time of its grant. A watch that is seen a few times that late may have stood still with its machine.
        let now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))";
        let is_late = format!("{now} > {} + 500000", second.token());
        let late = watches.replace("COUNT(*)", &format!("COUNT(*), {is_late}"));
        let mut seen = 0;
        eventually("nobody looks for it any more", || {
            let said = session.ask(&late);
            seen += u32::from(said == "1\t1");
            std::future::ready(said.starts_with('0'))
        })
        .await;
        assert!(seen < 50, "a watch went on: seen {seen} times");
        second.release().await.unwrap();
        within("its turn", third).await.unwrap().unwrap().release().await.unwrap();
    }
}
/// Holds that become tickets, which somebody else may release: their doorbells are there for others when their leases are over. (Red: they
/// are kept.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doorbells_of_tickets() {
    let server = MariaDb::start();
    let (c, other) = (client(&format!("{}?doorbell=on", server.url())).await, client(&server.url()).await);
    let wait = async |name: &str| {
        let held = other.mutex(name).lock().await.unwrap();
        let wait = tokio::spawn(c.mutex(name).ttl(4 * SEC).lock());
        queued(&other, name, 1).await;
        held.release().await.unwrap();
        within("its turn", wait).await.unwrap().unwrap()
    };
    let count = |holds: &[String]| {
        let all: Vec<_> =
            holds.iter().map(|hold| format!("(IS_USED_LOCK(CONCAT('fencelock:', '{hold}')) IS NOT NULL)")).collect();
        server.ask(&format!("SELECT {}", all.join(" + "))).parse::<usize>().unwrap()
    };
    let mut holds = Vec::new();
    for n in 0..4 {
        let guard = wait(&format!("x{n}")).await;
        holds.push(server.ask(&format!("SELECT HEX(hold) FROM fencelock_lock WHERE name = 'x{n}'")));
        drop(guard.into_ticket().await.unwrap());
    }
    assert!(count(&holds) > 0, "none had a doorbell");
    eventually("their leases are over, and whoever comes next rings them", || async {
        wait("y").await.release().await.unwrap();
        count(&holds) == 0
    })
    .await;
}
