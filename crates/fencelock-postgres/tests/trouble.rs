//! What goes wrong around the engine: places that nobody waits in, listeners that hear nothing, hosts that are silent, statements that hang,
//! a server that stands still, is killed, or whose clock is set back.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/kinds.rs"]
mod kinds;
use common::*;
use fencelock_conformance::{proxy::Trouble, within};
use fencelock_core::{Client, ErrorKind, LossReason};
use fencelock_postgres::{Config, PostgresEngine};
use fencelock_testkit::{Port, Postgres, Postgres as Server};
use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

/// Of what was idle for an hour.
const CLEAN: &str = "SELECT fencelock_clean(3600000000)";

/// Until somebody listens; the server's process.
async fn ears(server: &Postgres) -> i32 {
    let mut pid = String::new();
    eventually("somebody listens", || {
        pid = server.ask("SELECT max(pid) FROM fencelock_client");
        std::future::ready(!pid.is_empty())
    })
    .await;
    pid.parse().unwrap()
}
fn with_hosts(server: &Postgres, hosts: &[u16]) -> Config {
    let mut config = Config::from_url(&server.url()).unwrap();
    config.hosts = hosts.iter().map(|port| ("127.0.0.1".to_owned(), *port)).collect();
    config
}

/// Whoever gave up, and whose withdrawal did not come through, is not in the way for as long as somebody beside him waits for something
/// else. (Red: no look for what was left behind, and no answer to word that nobody waits for.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_was_not_withdrawn() {
    let server = Postgres::start();
    let (proxy, url) = proxied(&server);
    let (far, near) = (client(&url).await, client(&server.url()).await);
    let (x, y) = (near.mutex("x").lock().await.unwrap(), near.mutex("y").lock().await.unwrap());
    let beside = tokio::spawn(far.mutex("y").lock());
    queued(&near, "y", 1).await;
    proxy.rule(|command| {
        let is = |call: &[u8]| command.windows(call.len()).any(|part| part == call);
        if is(b".fencelock_withdraw(") || is(b".fencelock_release(") { Trouble::Lose } else { Trouble::None }
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
/// Places are looked for that nobody waits in while others are taken: whoever comes at that moment keeps his. (Red: whoever was not here
/// before it was asked has gone.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_taken_meanwhile() {
    let server = Postgres::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let (began, mut waits) = (Instant::now(), Vec::new());
    // A hold of its own for each: what waits with the same ttl in one process is one.
    while began.elapsed() < 7 * SEC {
        waits.push(tokio::spawn(b.mutex("x").ttl(60 * SEC + MS * u32::try_from(waits.len()).unwrap()).lock()));
        tokio::time::sleep(20 * MS).await;
    }
    let places = || server.ask("SELECT string_agg(hold::text, ' ' ORDER BY ticket) FROM fencelock_waiter");
    let n = waits.len().to_string();
    eventually("all wait", || std::future::ready(server.ask("SELECT count(*) FROM fencelock_waiter") == n)).await;
    let tickets = server.ask("SELECT max(ticket) - min(ticket) + 1 FROM fencelock_waiter");
    assert_eq!(tickets, n, "nobody came twice: {}", places().len());
    waits.iter().for_each(tokio::task::JoinHandle::abort);
    held.release().await.unwrap();
}
/// The server's process that listens is there, and nothing comes of it any more: it is noticed within 3 s, and another one listens. (Red: a
/// listener that is never asked; one that has as long for an answer as a call has: 4 s.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_hears_nothing() {
    let mut took = Vec::<Duration>::new();
    // On a machine that stands still now and then it is later: one of three times it is not.
    while took.len() < 3 && took.iter().all(|took| *took >= 3_900 * MS) {
        took.push(another_listens_after().await);
    }
    assert!(took.iter().any(|took| *took < 3_900 * MS), "{took:?}");
}
/// How long it takes until another one listens, once.
async fn another_listens_after() -> Duration {
    let server = Postgres::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let held = a.mutex("x").lock().await.unwrap();
    let wait = tokio::spawn(b.mutex("x").lock());
    let deaf = ears(&server).await;
    // Just after it has said that it is there, so that it is not asked again for as long as can be.
    let said = || server.ask("SELECT max(until) FROM fencelock_client");
    let before = said();
    eventually("it says that it is there", || std::future::ready(said() != before)).await;
    server.stop_session(deaf);
    let began = Instant::now();
    let mut now = String::new();
    eventually("another one listens", || {
        now = server.ask("SELECT max(pid) FROM fencelock_client");
        std::future::ready(!now.is_empty() && now != deaf.to_string())
    })
    .await;
    let took = began.elapsed();
    println!("another one listens after {took:?}");
    assert!(!wait.is_finished());
    held.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
    took
}
/// The first hosts are dead, or take connections and say nothing. (Red: one limit for all of them together.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_are_silent() {
    let server = Postgres::start();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, dead) = (mute.local_addr().unwrap().port(), Port::free());
    for hosts in [&[port, server.port()][..], &[port, dead.number(), port, server.port()]] {
        let began = Instant::now();
        let client = client_with(with_hosts(&server, hosts)).await;
        client.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
        println!("{} hosts: {:?}", hosts.len(), began.elapsed());
    }
    // What tells most is told: there is no such user, and the others are silent.
    let mut config = with_hosts(&server, &[server.port(), dead.number()]);
    config.user = "nobody".to_owned();
    let error = PostgresEngine::connect(config).await.unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
}
/// A try is granted, its answer is lost, and somebody keeps the row when it is repeated: nobody knows, so it is taken back. (Red: `Busy`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_whose_answer_was_lost_and_whose_row_is_kept() {
    let server = Postgres::start();
    let (proxy, url) = proxied(&server);
    let (a, b) = (client(&url).await, client(&server.url()).await);
    a.mutex("x").lock().await.unwrap().release().await.unwrap();
    let mut met = 0;
    for _ in 0..5 {
        // As soon as somebody holds it, and for two seconds.
        let keeps = "DO $$ BEGIN FOR i IN 1 .. 100000 LOOP IF EXISTS (SELECT FROM fencelock_lock WHERE hold IS NOT NULL) THEN \
                     PERFORM FROM fencelock_lock FOR UPDATE; PERFORM pg_sleep(2); EXIT; END IF; COMMIT; END LOOP; END $$";
        let keeper = server.psql(keeps).spawn().unwrap();
        let active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'";
        eventually("it looks", || std::future::ready(server.ask(active) == "1")).await;
        let lost = first(&proxy, "acquire", 1, Trouble::LoseReply);
        let answer = a.mutex("x").ttl(60 * SEC).try_lock().await;
        assert_eq!(lost.load(std::sync::atomic::Ordering::SeqCst), 1);
        match answer {
            Ok(Ok(guard)) => guard.release().await.unwrap(),
            Ok(Err(busy)) => panic!("it is free, or ours: {busy}"),
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                met += 1;
            }
        }
        let mut keeper = keeper;
        tokio::task::block_in_place(|| keeper.wait()).unwrap();
        eventually("it is free", || async { !b.inspect("x").await.unwrap().is_held() }).await;
    }
    assert!(met > 0, "the row was never kept in time");
}
/// Somebody's transaction keeps the rows of many locks that a client waits for: its other locks do not stand behind those. (Red: each look
/// waits for its row.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_kept_delay_nobody_else() {
    const MANY: usize = 400;
    let server = Postgres::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let mut holds = Vec::new();
    for n in 0..MANY {
        holds.push(b.mutex(format!("kept{n}")).ttl(60 * SEC).lock().await.unwrap());
    }
    let waits: Vec<_> = (0..MANY).map(|n| tokio::spawn(a.mutex(format!("kept{n}")).lock())).collect();
    eventually("all wait", || {
        std::future::ready(server.ask("SELECT count(*) FROM fencelock_waiter") == MANY.to_string())
    })
    .await;
    let job = a.mutex("job").ttl(4 * SEC).lock().await.unwrap();
    // Their turn has come, and the rows are kept.
    let mut session = Session::new(&server);
    session.ask("BEGIN");
    session.ask("UPDATE fencelock_lock SET until = now() WHERE name LIKE 'kept%'");
    session.ask("COMMIT AND CHAIN");
    session.ask("SELECT count(*) FROM (SELECT FROM fencelock_lock WHERE name LIKE 'kept%' FOR UPDATE) AS rows");
    let mut took = Vec::new();
    let began = Instant::now();
    while began.elapsed() < 5 * SEC {
        let before = Instant::now();
        a.inspect("other").await.unwrap();
        took.push(before.elapsed());
        job.check().unwrap();
        tokio::time::sleep(20 * MS).await;
    }
    took.sort();
    println!("a look at another one: p50 {:?}, most {:?}", took[took.len() / 2], took[took.len() - 1]);
    job.check().unwrap();
    session.ask("COMMIT");
    for wait in waits {
        soon(wait).await.unwrap().unwrap().release().await.unwrap();
    }
    job.release().await.unwrap();
}
/// Somebody locks the whole table: callers are told, and what they gave up does not go on at the server. (Red: nothing is cancelled.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_hang_do_not_pile_up() {
    let server = Postgres::start();
    let a = client(&server.url()).await;
    a.mutex("x").lock().await.unwrap().release().await.unwrap();
    let mut session = Session::new(&server);
    session.ask("BEGIN");
    session.ask("LOCK TABLE fencelock_lock IN ACCESS EXCLUSIVE MODE");
    for _ in 0..3 {
        let error = a.mutex("x").ttl(SEC).try_lock().await.unwrap_err();
        assert!(error.is_temporary(), "{error}");
    }
    let blocked = || server.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
    eventually("none is left", || std::future::ready(blocked() == "0")).await;
    session.ask("COMMIT");
    soon(a.mutex("x").lock()).await.unwrap().release().await.unwrap();
}
/// A repeat that finds its own grant puts its end off, and that is on the disk before it is told, whatever the role has. (Red: as the
/// role has it.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_repeat_puts_off_stays_put_off() {
    let server = Postgres::with(&["synchronous_commit=off", "wal_writer_delay=10s"]);
    let (proxy, url) = proxied(&server);
    let a = client(&url).await;
    let until = || server.ask("SELECT until, fence FROM fencelock_lock");
    first(&proxy, "acquire", 1, Trouble::Twice);
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let before = until();
    server.kill();
    assert!(server.restart());
    assert_eq!(until(), before);
    drop(held);
}
/// A writer who became a reader is one after a crash of the server, whatever the role has: others read beside him. (Red: as the role has it.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_that_is_told_stays() {
    let server = Postgres::with(&["synchronous_commit=off", "wal_writer_delay=10s"]);
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let writer = a.rw_lock("x").ttl(60 * SEC).write().await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    server.kill();
    assert!(server.restart());
    soon(b.rw_lock("x").read()).await.unwrap().release().await.unwrap();
    reader.check().unwrap();
    reader.release().await.unwrap();
}
/// The clock was an hour ahead when those who held it died: whoever waits, or tries, is in after a ttl. One that is set ahead ends every
/// lease: that is told, and the next token is higher. (Red: looks that take an end at its word.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set() {
    let server = Postgres::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let ahead = || {
        server.ask("UPDATE fencelock_holder SET until = until + interval '1 hour', hold = gen_random_uuid()");
        server.ask("UPDATE fencelock_lock SET until = until + interval '1 hour', hold = gen_random_uuid() WHERE hold IS NOT NULL");
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
    let alone = a.mutex("m").ttl(2 * SEC).lock().await.unwrap();
    ahead();
    eventually("another kind", || async { b.rw_lock("m").try_read().await.is_ok_and(|got| got.is_ok()) }).await;
    let over = a.mutex("ahead").ttl(6 * SEC).lock().await.unwrap();
    server.ask("UPDATE fencelock_lock SET until = until - interval '1 hour' WHERE name = 'ahead'");
    let next = soon(b.mutex("ahead").lock()).await.unwrap();
    assert!(next.token() > over.token());
    assert_eq!(soon(over.lost()).await, LossReason::TakenOver);
    next.check().unwrap();
    drop((dead, more, alone));
}
/// Somebody becomes a reader while a renewal is under way: that is no loss. (Red: a renewal that takes a writer who is gone for the end.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_beside_a_downgrade() {
    let server = Postgres::start();
    let a = client(&server.url()).await;
    // What the keeper sends three times in a ttl, without a break.
    let renews = "DO $$ DECLARE l record; said text; BEGIN LOOP \
                  SELECT * INTO l FROM fencelock_lock WHERE name = 'stop'; EXIT WHEN FOUND; COMMIT; \
                  SELECT * INTO l FROM fencelock_lock WHERE name LIKE 'd%' AND hold IS NOT NULL LIMIT 1; \
                  IF FOUND THEN said := fencelock_renew('', ARRAY[l.name], ARRAY[l.hold], ARRAY[l.fence], ARRAY[l.ttl]); COMMIT; \
                  IF said = 'g' THEN RAISE EXCEPTION 'it was told as a loss'; END IF; END IF; COMMIT; END LOOP; END $$";
    let mut renewer = server.psql(renews).spawn().unwrap();
    let mut guards = Vec::new();
    for n in 0..400 {
        let writer = a.rw_lock(format!("d{n}")).ttl(60 * SEC).write().await.unwrap();
        guards.push(writer.downgrade().await.unwrap());
    }
    a.mutex("stop").lock().await.unwrap().release().await.unwrap();
    let said = tokio::task::block_in_place(|| renewer.wait()).unwrap();
    assert!(said.success(), "a downgrade was told as a loss");
}
/// Connections break, and something was lost meanwhile: it is looked at, at once. (Red: the next renewal is waited for.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_break_all_holds_are_looked_at() {
    let server = Postgres::start();
    let a = client(&server.url()).await;
    let held = a.mutex("x").ttl(300 * SEC).lock().await.unwrap();
    tokio::time::sleep(100 * MS).await;
    server.ask("UPDATE fencelock_lock SET hold = gen_random_uuid()");
    server.ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'fencelock'");
    let began = Instant::now();
    // Whoever looks next finds the connection broken.
    let _ = a.inspect("x").await;
    assert_eq!(soon(held.lost()).await, LossReason::TakenOver);
    println!("told after {:?}", began.elapsed());
}
/// A size that was changed is kept as if the semaphore had been used then. (Red: a clean-up that takes it for never used.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_size_that_nobody_has_used_yet_is_kept() {
    let server = Postgres::start();
    let a = client(&server.url()).await;
    a.semaphore("s", 3).resize(3, 5).await.unwrap();
    server.ask("SELECT fencelock_clean(3600000000)");
    let error = a.semaphore("s", 3).try_acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CapacityMismatch, "{error}");
    // It does not wait for another clean-up that is under way.
    eventually("it is removed", || async {
        server.ask("SELECT pg_sleep(0.01), fencelock_clean(0)");
        server.ask("SELECT count(*) FROM fencelock_lock") == "0"
    })
    .await;
    a.semaphore("s", 3).try_acquire(1).await.unwrap().unwrap().release().await.unwrap();
}
/// Nobody has said for some seconds that he lives, as when the server stood still: whoever comes first then passes the others, and they keep
/// their places. (Red: he removes them.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stood_still_keeps_their_places() {
    let server = Postgres::start();
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..4 {
        clients.push(client(&server.url()).await);
    }
    let held = clients[0].mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let (order, mut waits) = (std::sync::Arc::new(std::sync::Mutex::new(Vec::new())), Vec::new());
    for (n, one) in clients.iter().enumerate() {
        let (wait, order) = (one.mutex("x").ttl(60 * SEC).lock(), order.clone());
        waits.push(tokio::spawn(async move {
            let guard = wait.await.unwrap();
            order.lock().unwrap().push(n);
            guard.release().await.unwrap();
        }));
        eventually("it waits", || async { server.ask("SELECT count(*) FROM fencelock_waiter") == (n + 1).to_string() })
            .await;
    }
    // In one transaction: the lock is free, all have been silent, and the last one looks.
    let first = "UPDATE fencelock_client SET until = clock_timestamp() - interval '4 seconds'; \
                 UPDATE fencelock_lock SET hold = NULL; \
                 SELECT (fencelock_refresh('', 'x', (SELECT hold FROM fencelock_waiter ORDER BY ticket DESC LIMIT 1), 60000000, \
                 9000000000000000000, NULL, true)).code; \
                 SELECT count(*) FROM fencelock_waiter";
    assert_eq!(server.ask(first), "done\n3", "they keep their places");
    for wait in waits {
        soon(wait).await.unwrap();
    }
    // Whoever is heard again first may be first.
    let mut order = order.lock().unwrap().clone();
    assert_eq!(order.remove(0), 3);
    order.sort_unstable();
    assert_eq!(order, [0, 1, 2]);
    assert!(held.release().await.is_err());
}
/// Where nobody listens each look says that its client lives: also where the process of the server is gone by which it was known before. Whoever
/// names no client says nothing by it. (Red: a look that writes nothing.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looks_lives() {
    let server = Postgres::start();
    let held = client(&server.url()).await.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let who = "'00112233-4455-6677-8899-aabbccddeeff'::uuid";
    // By a process that is gone when it is answered.
    server.ask(&format!(
        "SELECT fencelock_acquire('', 'x', {who}, 'mutex', 'm', 1, NULL, 60000000, 9000000000000000000, 0, true, {who}, NULL, 'h 1 ')"
    ));
    let is = "SELECT fencelock_alive(until, pid, clock_timestamp()), pid IS NULL, round(extract(epoch FROM until - clock_timestamp())) \
              FROM fencelock_client";
    let look = |told: bool, client: &str| {
        let ask = format!("'', 'x', {who}, 60000000, 9000000000000000000, NULL, {told}, true, {client}");
        server.ask(&format!("SELECT code FROM fencelock_refresh({ask}); {is}"))
    };
    assert_eq!(look(false, "NULL"), "queued\nf\tf\t3", "nothing is said");
    assert_eq!(look(false, who), "queued\nt\tt\t3", "it lives");
    server.ask("UPDATE fencelock_client SET until = clock_timestamp() + interval '1 second'");
    assert_eq!(look(false, "NULL"), "queued\nt\tt\t1", "nothing is said");
    assert_eq!(look(false, who), "queued\nt\tt\t3", "it goes on");
    server.ask("DELETE FROM fencelock_client");
    assert_eq!(look(false, who), "queued", "who is forgotten says who he is in his next sign of life");
    held.release().await.unwrap();
}
/// Somebody who was silent is heard again when the lock has become another kind: his place is not there any more. (Red: it is, and keeps
/// others waiting.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_kind_has_another_queue() {
    let server = Postgres::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let silent = "'00112233-4455-6677-8899-aabbccddeeff'::uuid";
    let place = |claim: &str| {
        server.ask(&format!(
            "INSERT INTO fencelock_client VALUES ({silent}, clock_timestamp() - interval '1 second') \
             ON CONFLICT (client) DO UPDATE SET until = excluded.until; \
             INSERT INTO fencelock_waiter (space, name, hold, claim, take, ttl, floor, client, since, who) \
             VALUES ('', 'x', {silent}, '{claim}', 1, 60000000, 0, {silent}, clock_timestamp(), 'h 1 ')"
        ))
    };
    a.semaphore("x", 1).acquire(1).await.unwrap().release().await.unwrap();
    place("p");
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    server.ask("UPDATE fencelock_client SET until = clock_timestamp() + interval '3 seconds'");
    let wait = tokio::spawn(b.mutex("x").lock());
    queued(&a, "x", 1).await;
    held.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
    // What becomes a value, a size, or a session's.
    let places = || server.ask("SELECT count(*) FROM fencelock_waiter");
    place("m");
    let value = a.cell("x").update(|_| "one").await.unwrap();
    assert_eq!(places(), "0");
    a.cell("x").remove(value.version).await.unwrap().unwrap();
    place("m");
    a.semaphore("x", 1).resize(1, 2).await.unwrap();
    assert_eq!(places(), "0");
    place("p");
    let sessions = client(&format!("{}?strategy=session", server.url())).await;
    sessions.mutex("x").lock().await.unwrap().release().await.unwrap();
    assert_eq!(places(), "0");
}
