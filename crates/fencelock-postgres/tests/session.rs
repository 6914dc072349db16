//! Locks that live with a session of the server: how soon they are free, what ends a session, who may have them, and the advisory locks of
//! other libraries.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::within;
use fencelock_core::{Client, ErrorKind, LossReason, Page};
use fencelock_postgres::{Config, Keys, PostgresEngine, PostgresSessionEngine, Strategy};
use fencelock_testkit::{
    PgBouncer, Postgres,
    processes::{bar, tenth},
};
use std::time::{Duration, Instant};

/// Which processes of the server have locks of sessions.
const BEARERS: &str = "SELECT string_agg(DISTINCT pid::text, ' ') FROM pg_locks WHERE locktype = 'advisory'";

fn config(server: &Postgres) -> Config {
    let mut config = Config::from_url(&server.url()).unwrap();
    config.strategy = Strategy::Session;
    config
}
async fn sessions(server: &Postgres) -> Client {
    client_with(config(server)).await
}
/// How many advisory locks are held, or waited for.
fn locks(server: &Postgres) -> String {
    server.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
}

/// A release that is given up, and made again: nothing of the session's other holds ends. (Red: a hold that another release has ended already
/// ends the session.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_made_twice() {
    let server = Postgres::start();
    let ours = sessions(&server).await;
    let kept = ours.mutex("kept").lock().await.unwrap();
    for _ in 0..200 {
        let held = within("free", ours.mutex("x").lock()).await.unwrap();
        let patience = Duration::from_micros(fastrand::u64(0..1_500));
        // Its guard is gone then, which releases it once more.
        let _ = tokio::time::timeout(patience, held.release()).await;
        kept.check().unwrap();
    }
    kept.release().await.unwrap();
}
/// The server is slow when one hold is given back: the others of its session stay, and what was given back is free when the server can do it.
/// (Red: a release that is not answered ends the session; nobody tries it again.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_release_costs_nobody_else_a_hold() {
    let server = Postgres::start();
    let (proxy, url) = proxied(&server);
    let url = format!("{url}{}strategy=session", if url.contains('?') { '&' } else { '?' });
    let (ours, other) = (client(&url).await, sessions(&server).await);
    let kept = ours.mutex("kept").lock().await.unwrap();
    let held = ours.mutex("x").lock().await.unwrap();
    proxy.delay(700 * MS);
    drop(held.release().await);
    // Whoever gives up a claim takes it back there, too.
    drop(ours.mutex("y").try_lock_for(300 * MS).await);
    tokio::time::sleep(2 * SEC).await;
    kept.check().unwrap();
    proxy.delay(MS);
    within("x is free", other.mutex("x").lock()).await.unwrap().release().await.unwrap();
    within("y is free", other.mutex("y").lock()).await.unwrap().release().await.unwrap();
    // Its time is over while somebody keeps the tables: nobody calls it back but the session itself.
    let brief = ours.mutex("z").ttl(3 * SEC).at_least(MS).max_hold(SEC).lock().await.unwrap();
    let beside = ours.mutex("beside").ttl(6 * SEC).lock().await.unwrap();
    let mut operator = Session::new(&server);
    operator.ask("BEGIN; LOCK TABLE fencelock_lock");
    assert_eq!(soon(brief.lost()).await, LossReason::MaxHold);
    std::mem::forget(brief);
    tokio::time::sleep(4 * SEC).await;
    operator.ask("COMMIT");
    within("z is free", other.mutex("z").lock()).await.unwrap().release().await.unwrap();
    kept.check().unwrap();
    beside.check().unwrap();
}
/// A session that is killed tells its holder, and the next one is in. (Red: the end of a connection that nobody listens for.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_killed() {
    let server = Postgres::start();
    let (a, b) = (sessions(&server).await, sessions(&server).await);
    let (mut told, mut next) = (Vec::new(), Vec::new());
    for n in 0..tenth(100) {
        let name = format!("x{n}");
        let held = a.mutex(&name).ttl(60 * SEC).lock().await.unwrap();
        let wait = tokio::spawn(b.mutex(&name).lock());
        queued(&b, &name, 1).await;
        let kill = format!("SELECT pg_terminate_backend(pid) FROM fencelock_lock WHERE name = '{name}'");
        let began = Instant::now();
        server.ask(&kill);
        assert_eq!(soon(held.lost()).await, LossReason::SessionEnded);
        told.push(began.elapsed());
        within("the next one", wait).await.unwrap().unwrap().release().await.unwrap();
        next.push(began.elapsed());
    }
    let [told, next] = [told, next].map(|mut all| fencelock_testkit::processes::percentile(&mut all, 0.99));
    bar("PostgreSQL, sessions: killed by an operator: lost() after, p99", format!("{told:?}"), "<= 1 s", told <= SEC);
    bar("PostgreSQL, sessions: the next one is in after, p99", format!("{next:?}"), "<= 100 ms", next <= 100 * MS);
}
/// Whoever waits for so long and no longer is told then who was in the way, though the server is away and nobody can say what his session still has
/// there. (Red, where he had not said yet who is: whoever waits for that hears of nothing else, and is
/// told that nobody answers.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_kept_in_an_outage() {
    let server = Postgres::start();
    let (a, b) = (sessions(&server).await, sessions(&server).await);
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let began = Instant::now();
    let wait = tokio::spawn(b.mutex("x").ttl(60 * SEC).try_lock_for(3 * SEC));
    queued(&a, "x", 1).await;
    server.kill();
    let busy = soon(wait).await.unwrap().unwrap().unwrap_err();
    assert_eq!(busy.holder.map(|holder| holder.token), Some(held.token()));
    assert!((3 * SEC..LONG).contains(&began.elapsed()), "{:?}", began.elapsed());
}
/// Behind a pooler of transactions a session is nobody's, and a standby gives the same lock beside its primary: both are refused. (Red: no
/// second connection that is compared.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_sessions_are_not_ours() {
    let server = Postgres::start();
    let open = async |url: String| PostgresSessionEngine::from_url(&(url + "?strategy=session")).await;
    let pooler = PgBouncer::start(&server, "transaction");
    let error = open(server.url_through(&pooler)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("pooler"), "{error}");
    // One that keeps a session for each of its clients is none.
    let pooler = PgBouncer::start(&server, "session");
    let through = server.url_through(&pooler) + "?strategy=session";
    let client = client_with(Config::from_url(&through).unwrap()).await;
    client.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
    let standby = server.standby();
    // Nor are leases granted there.
    let leases = PostgresEngine::from_url(&standby.url()).await.unwrap_err();
    for error in [open(standby.url()).await.unwrap_err(), leases] {
        assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("standby"), "{error}");
    }
    // The other engine is not taken for this one.
    let error = PostgresEngine::from_url(&(server.url() + "?strategy=session")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
}
/// A pooler of transactions has come in between since the client connected: of two sessions that it carries by one process the server takes each
/// for the other, and gives to both; so what the other one has spoken in is refused, and so is what goes on in another process. (Red: a
/// session that is not looked at when it is opened; a statement that is for any.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_comes_later() {
    let server = Postgres::start();
    let pooler = PgBouncer::with_pool(&server, "transaction", 1);
    let (proxy, url) = proxied(&server);
    let [a, b] = [client(&(url.clone() + "?strategy=session")).await, client(&(url + "?strategy=session")).await];
    proxy.lead_to(([127, 0, 0, 1], pooler.port()).into());
    proxy.cut();
    let held = soon(a.mutex("x").ttl(6 * SEC).lock()).await.unwrap();
    for _ in 0..10 {
        let error = soon(b.mutex("x").ttl(6 * SEC).try_lock()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("pooler"), "{error}");
        held.check().unwrap();
    }
    // Its process goes: nothing is taken in the next one, unless a sign of life has found that out before: then that is another session.
    server.ask("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'");
    match soon(a.mutex("y").ttl(6 * SEC).try_lock()).await {
        Ok(next) => drop((held.check().unwrap_err(), next)),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert_eq!(server.ask("SELECT count(*) FROM fencelock_lock WHERE name = 'y'"), "0");
        }
    }
    assert_eq!(soon(held.lost()).await, LossReason::SessionEnded);
}
/// A claim that the server refuses costs no other hold of its session. (Red: whatever is refused ends it; nothing that is refused does.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_refused() {
    let server = Postgres::start();
    let a = sessions(&server).await;
    let held = a.mutex("x").lock().await.unwrap();
    let process = server.ask(BEARERS);
    for (refused, allowed) in [
        ("ALTER TABLE fencelock_lock RENAME TO gone", "ALTER TABLE gone RENAME TO fencelock_lock"),
        ("ALTER FUNCTION fencelock_bear RENAME TO gone", "ALTER FUNCTION gone RENAME TO fencelock_bear"),
        ("ALTER FUNCTION fencelock_durably RENAME TO gone", "ALTER FUNCTION gone RENAME TO fencelock_durably"),
    ] {
        server.ask(refused);
        let error = a.mutex("y").try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{refused}: {error}");
        server.ask(allowed);
        held.check().unwrap();
    }
    let mut psql = Session::new(&server);
    psql.ask("BEGIN; LOCK TABLE fencelock_lock IN ACCESS EXCLUSIVE MODE");
    let lock = tokio::spawn(a.mutex("y").lock());
    // It was refused, and waits in a session of its own.
    let waits = || server.ask("SELECT count(*) FROM fencelock_bearer WHERE token IS NULL");
    eventually("it waits", || std::future::ready(waits() == "1")).await;
    psql.ask("COMMIT");
    let other = soon(lock).await.unwrap().unwrap();
    assert!(server.ask(BEARERS).contains(&process));
    assert_eq!(server.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "2");
    other.release().await.unwrap();
    held.check().unwrap();
    // What it took it cannot give back: the session ends, and its holders are told.
    let parts = [("fencelock_durably", "gone"), ("fencelock_unlock", "kept")];
    let rename = |from: &str, to: &str| drop(server.ask(&format!("ALTER FUNCTION {from} RENAME TO {to}")));
    parts.iter().for_each(|(part, other)| rename(part, other));
    let error = a.mutex("z").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    parts.iter().for_each(|(part, other)| rename(other, part));
    assert_eq!(soon(held.lost()).await, LossReason::SessionEnded);
    soon(sessions(&server).await.mutex("z").lock()).await.unwrap().release().await.unwrap();
}
/// One name is one strategy's at a time, and tokens rise over both. (Red: a lease that does not look for sessions; a session that does not
/// look for leases.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_strategy_at_a_time() {
    let server = Postgres::start();
    let (s, l) = (sessions(&server).await, client(&server.url()).await);
    let held = s.mutex("x").lock().await.unwrap();
    let first = held.token();
    for error in [l.mutex("x").try_lock().await.unwrap_err(), l.mutex("x").lock().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
    }
    // Each sees the other's.
    assert_eq!(l.inspect("x").await.unwrap().holders[0].token, first);
    held.release().await.unwrap();
    let held = l.mutex("x").lock().await.unwrap();
    let second = held.token();
    let error = s.mutex("x").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
    eventually("what was refused is given back", || std::future::ready(locks(&server) == "0")).await;
    held.release().await.unwrap();
    let third = s.mutex("x").lock().await.unwrap();
    assert!(first < second && second < third.token());
    third.release().await.unwrap();
}
/// The numbers of other libraries: whoever takes theirs is waited for, and waits. (Red: the two halves of a pair changed.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_with_others() {
    let server = Postgres::start();
    // Of "orders/42", as sqlx, DistributedLock and with_advisory_lock make it.
    for (keys, name, key) in [
        (Keys::Sqlx, "orders/42", "8076690847007745901"),
        (Keys::Madelson, "orders/42", "-540334498, 1557640292"),
        (Keys::WithAdvisoryLock, "orders/42", "370287966, 0"),
        (Keys::Raw, "42", "42"),
        (Keys::Raw, "-1,2", "-1, 2"),
    ] {
        let mut config = config(&server);
        config.keys = keys;
        let ours = client_with(config).await;
        let mut psql = Session::new(&server);
        let held = ours.mutex(name).lock().await.unwrap();
        let once = "SELECT count(*) FROM pg_locks k JOIN fencelock_lock l USING (pid) WHERE k.locktype = 'advisory' AND l.hold IS NOT NULL";
        assert_eq!(server.ask(once), "1", "{keys:?}");
        assert_eq!(psql.ask(&format!("SELECT pg_try_advisory_lock({key})")), "f", "{keys:?}");
        held.release().await.unwrap();
        assert_eq!(psql.ask(&format!("SELECT pg_try_advisory_lock({key})")), "t", "{keys:?}");
        assert!(ours.mutex(name).try_lock().await.unwrap().is_err(), "{keys:?}");
        let wait = tokio::spawn(ours.mutex(name).lock());
        eventually("it waits", || std::future::ready(locks(&server) == "2")).await;
        let began = Instant::now();
        psql.ask(&format!("SELECT pg_advisory_unlock({key})"));
        let held = within("it is free", wait).await.unwrap().unwrap();
        println!("{keys:?}: woken after {:?}", began.elapsed());
        held.release().await.unwrap();
    }
    let mut config = config(&server);
    config.keys = Keys::Raw;
    let error = client_with(config).await.mutex("orders").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
}
/// A shared lock of theirs stands beside our readers, and keeps our writers out, and so does one of ours. (Red: readers that take it alone.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_beside_psql() {
    let server = Postgres::start();
    let mut config = config(&server);
    config.keys = Keys::Raw;
    let ours = client_with(config).await.rw_lock("9");
    let mut psql = Session::new(&server);
    let mut theirs = |call: &str| psql.ask(&format!("SELECT pg_{call}(9)"));
    assert_eq!(theirs("try_advisory_lock_shared"), "t");
    let reader = within("beside theirs", ours.read()).await.unwrap();
    assert!(ours.try_write().await.unwrap().is_err());
    assert_eq!(theirs("advisory_unlock_shared"), "t");
    assert_eq!(theirs("try_advisory_lock"), "f");
    assert_eq!(theirs("try_advisory_lock_shared"), "t");
    reader.release().await.unwrap();
    let mut wait = ours.write();
    blocked(&mut wait).await;
    assert_eq!(theirs("advisory_unlock_shared"), "t");
    let writer = within("its turn", wait).await.unwrap();
    assert_eq!(theirs("try_advisory_lock_shared"), "f");
    writer.release().await.unwrap();
    assert_eq!(theirs("try_advisory_lock"), "t");
}
/// A counter that nobody increments atomically, between ours and a psql that takes the same advisory lock: exact. (Red: another key.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_beside_psql() {
    let server = Postgres::start();
    server.ask("CREATE TABLE counter (n bigint); INSERT INTO counter VALUES (0)");
    let rounds = tenth(500);
    let step =
        "SELECT n AS n FROM counter \\gset\n SELECT pg_sleep(0.0005) \\g /dev/null\n UPDATE counter SET n = :n + 1;";
    let theirs =
        format!("SELECT pg_advisory_lock(7) \\g /dev/null\n {step}\n SELECT pg_advisory_unlock(7) \\g /dev/null\n");
    let mut psql = Session::new(&server);
    let other = std::thread::spawn(move || {
        for _ in 0..rounds {
            psql.ask(&theirs);
        }
    });
    let mut config = config(&server);
    config.keys = Keys::Raw;
    let ours = client_with(config).await;
    let mut mine = Session::new(&server);
    for _ in 0..rounds {
        let guard = ours.mutex("7").lock().await.unwrap();
        tokio::task::block_in_place(|| mine.ask(step));
        guard.release().await.unwrap();
    }
    tokio::task::block_in_place(|| other.join().unwrap());
    let counted: usize = server.ask("SELECT n FROM counter").parse().unwrap();
    let figure = if counted == 2 * rounds { "exact".to_owned() } else { format!("{counted} of {}", 2 * rounds) };
    bar(&format!("PostgreSQL, sessions: ours beside psql, {rounds} rounds each"), &figure, "exact", figure == "exact");
    assert_eq!(counted, 2 * rounds);
}
/// Its client is dropped at any moment of a wait or a try: nothing is held, and nobody waits. (Red: a session that waits is left to itself.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_at_any_moment_leaves_nothing() {
    let server = Postgres::start();
    let (a, b) = (sessions(&server).await, sessions(&server).await);
    for n in 0..tenth(400).max(40) {
        let held = if n % 2 == 0 { Some(a.mutex("x").lock().await.unwrap()) } else { None };
        let wait = b.mutex("x").ttl(60 * SEC).lock();
        let patience = std::time::Duration::from_micros(fastrand::u64(0..8_000));
        if let Ok(got) = tokio::time::timeout(patience, wait).await {
            drop(got.unwrap());
        }
        if let Some(held) = held {
            held.release().await.unwrap();
        }
    }
    eventually("nothing is left", || std::future::ready(locks(&server) == "0")).await;
    let mut idle = 0;
    eventually("nor a session", || {
        idle =
            server.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock'").parse().unwrap();
        std::future::ready(idle <= 8)
    })
    .await;
}
/// A lock that is not free before its time is not, though its holder's session is gone. (Red: the end of a session frees it.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_that_is_kept() {
    let server = Postgres::start();
    let (a, b) = (sessions(&server).await, sessions(&server).await);
    let began = Instant::now();
    let held = a.mutex("x").at_least(4 * SEC).lock().await.unwrap();
    server.ask("SELECT pg_terminate_backend(pid) FROM fencelock_lock");
    soon(held.lost()).await;
    assert!(b.mutex("x").try_lock().await.unwrap().is_err());
    eventually("it is the row that keeps it", || std::future::ready(locks(&server) == "0")).await;
    let next = soon(b.mutex("x").lock()).await.unwrap();
    let took = began.elapsed();
    assert!(took >= 4 * SEC && took < 8 * SEC, "{took:?}");
    next.release().await.unwrap();
}
/// A time that is kept is a session's: nobody waits for a lease of it meanwhile; and the place of one who was silent for long
/// is none beside a session, nor after it. (Red: a claim that asks only whether a session is there; a session that leaves places
/// for leases where there was one before; a look that does not ask what the lock is.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_that_is_kept_is_a_sessions() {
    let server = Postgres::start();
    let (s, l) = (sessions(&server).await, client(&server.url()).await);
    let held = s.rw_lock("x").ttl(600 * SEC).at_least(600 * SEC).write().await.unwrap();
    server.ask("SELECT pg_terminate_backend(pid) FROM fencelock_lock");
    soon(held.lost()).await;
    eventually("it is the row that keeps it", || std::future::ready(locks(&server) == "0")).await;
    for error in [l.rw_lock("x").try_read().await.unwrap_err(), soon(l.rw_lock("x").read()).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
    }
    assert_eq!(server.ask("SELECT until > clock_timestamp() + interval '500 seconds' FROM fencelock_lock"), "t");
    // One of an earlier time.
    let hold = "00000000-0000-0000-0000-000000000007";
    let place = format!(
        "INSERT INTO fencelock_waiter (space, name, hold, claim, take, ttl, floor, client, since, who) \
         VALUES ('', 'x', '{hold}', 'r', 1, 60000000, 0, gen_random_uuid(), clock_timestamp(), 'silent')"
    );
    server.ask(&format!("{place}; UPDATE fencelock_lock SET until = clock_timestamp()"));
    let held = soon(s.mutex("x").lock()).await.unwrap();
    assert_eq!(server.ask("SELECT count(*) FROM fencelock_waiter"), "0");
    // Were it there all the same, it would be good for nothing.
    server.ask(&place);
    let look = |told: bool| {
        let until = "fencelock_us(clock_timestamp()) + 9000000";
        server.ask(&format!("SELECT code FROM fencelock_refresh('', 'x', '{hold}', 60000000, {until}, NULL, {told})"))
    };
    assert_eq!((look(false).as_str(), look(true).as_str()), ("turn", "gone"));
    held.release().await.unwrap();
    assert_eq!((look(false).as_str(), look(true).as_str()), ("turn", "gone"));
    let held = l.mutex("x").try_lock().await.unwrap().unwrap();
    assert_eq!(server.ask("SELECT count(*) FROM fencelock_holder"), "0");
    held.release().await.unwrap();
}
/// An operator breaks one hold of a session: the others stay. (Red: its session is ended.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hold_of_a_session_is_broken() {
    let server = Postgres::start();
    let (a, b) = (sessions(&server).await, client(&server.url()).await);
    let (x, y) = (a.mutex("x").lock().await.unwrap(), a.mutex("y").lock().await.unwrap());
    let began = Instant::now();
    b.force_release("x", x.token()).await.unwrap();
    assert_eq!(soon(x.lost()).await, LossReason::TakenOver);
    println!("told after {:?}", began.elapsed());
    y.check().unwrap();
    // It is told before it is given back.
    soon(a.mutex("x").lock()).await.unwrap().release().await.unwrap();
    y.release().await.unwrap();
}
/// The server takes no more connections: who waits is not told so, and gets it when there are some again. (Red: the first refusal is told.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_to_wait_on() {
    let server = Postgres::with(&["max_connections=20"]);
    let (a, b) = (sessions(&server).await, sessions(&server).await);
    let held = a.mutex("x").lock().await.unwrap();
    b.mutex("y").lock().await.unwrap().release().await.unwrap();
    let taken = Session::all(&server);
    let wait = tokio::spawn(b.mutex("x").lock());
    tokio::time::sleep(500 * MS).await;
    assert!(!wait.is_finished());
    held.release().await.unwrap();
    drop(taken);
    within("there are some again", wait).await.unwrap().unwrap().release().await.unwrap();
}
/// Whoever bears a lock is nobody else's: whatever else its client asks is asked by another connection, by the server's own log. (Red: a look that
/// is asked where the lock is held.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_bears_a_lock_does_nothing_else() {
    let server = Postgres::with(&["log_statement=all", "log_line_prefix=%p:"]);
    let a = sessions(&server).await;
    let held = a.mutex("x").lock().await.unwrap();
    let bearer = server.ask(BEARERS);
    for _ in 0..20 {
        assert!(a.inspect("x").await.unwrap().is_held());
        assert_eq!(a.list("", &Page::default()).await.unwrap().items.len(), 1);
        a.cell("c").update(|_| b"v".to_vec()).await.unwrap();
        assert_eq!(server.ask(BEARERS), bearer);
    }
    held.release().await.unwrap();
    let log = std::fs::read_to_string(server.folder().path().join("log")).unwrap();
    let said: Vec<_> =
        log.lines().filter(|line| line.starts_with(&format!("{bearer}:")) && line.contains("fencelock_")).collect();
    let other = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert!(other("fencelock_inspect(") >= 20 && other("fencelock_swap(") >= 20, "{log}");
    assert!(said.iter().any(|line| line.contains("fencelock_bear(")), "{said:?}");
    for line in said {
        let is_its_own = ["fencelock_bear(", "fencelock_let_go(", "LISTEN"].iter().any(|own| line.contains(own));
        assert!(is_its_own, "{line}");
    }
}
