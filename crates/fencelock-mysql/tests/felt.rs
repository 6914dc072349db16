//! Whether one who waits, and has no pulse yet, still lives: it is asked of a named lock that the session has by which he came, and of nothing
//! that the server has to make first, or that takes a right.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::{proxy::Trouble, within};
use fencelock_testkit::{MariaDb, Terminal, on_a_steady_machine, processes::tenth};
use std::{
    future::ready,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
/// Sessions that have a named lock by their numbers.
const NAMED: &str =
    "SELECT COUNT(*) FROM information_schema.processlist WHERE IS_USED_LOCK(CONCAT('fencelock.', id)) IS NOT NULL";
/// An account that sees no session of another one.
const OTHER: &str = "CREATE USER other; GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON test.* TO other";

/// Somebody with this account.
struct As<'a>(&'a MariaDb, &'a str);
impl Terminal for As<'_> {
    fn terminal(&self) -> (Command, &'static str) {
        let (mut terminal, done) = self.0.terminal();
        terminal.args(["-u", self.1]);
        (terminal, done)
    }
}
/// A client with one session, and no pulse. It is not silent for some seconds, and comes for its own sake: n is who it is.
struct Waiter {
    session: Session,
    name: String,
    n: u32,
}
impl Waiter {
    fn new(server: &MariaDb, account: &str, name: &str, n: u32) -> Self {
        Self { session: Session::new(&As(server, account)), name: name.to_owned(), n }
    }
    fn acquire(&mut self) -> String {
        let Self { session, name, n } = self;
        let said = session.ask(&format!(
            "CALL fencelock_acquire('', '{name}', X'{n:032}', 'mutex', 'm', 1, 0, 60000000, {NOW} + 9000000, 0, TRUE, X'{n:032}', NULL, 'h {n} ')"
        ));
        session.ask(&format!("UPDATE fencelock_client SET ends = {NOW} + 9000000 WHERE client = X'{n:032}'"));
        said
    }
    fn look(&mut self, told: bool) -> String {
        let Self { session, name, n } = self;
        let who = format!("'', '{name}', X'{n:032}', 60000000, {NOW} + 9000000, X'{n:032}'");
        session.ask(&format!("CALL fencelock_refresh({who}, NULL, {told})"))
    }
    fn release(&mut self) {
        let Self { session, name, n } = self;
        let said = session.ask(&format!("CALL fencelock_release('', '{name}', X'{n:032}', NULL)"));
        assert!(said.starts_with("done"), "{said}");
    }
}

/// Whoever has it, and two who wait.
fn queue(server: &MariaDb) -> [Waiter; 3] {
    let [mut before, mut first, mut second] = [1, 2, 3].map(|n| Waiter::new(server, "root", "x", n));
    assert!(before.acquire().starts_with("done"));
    for waiter in [&mut first, &mut second] {
        let said = waiter.acquire();
        assert!(said.starts_with("queued"), "{said}");
    }
    [before, first, second]
}
/// It is free, and nobody is passed.
fn assert_in_order(first: &mut Waiter, second: &mut Waiter) {
    let said = second.look(true);
    assert!(said.starts_with("queued"), "he was passed: {said}");
    let said = first.look(true);
    assert!(said.starts_with("done"), "{said}");
    first.release();
}

/// No procedure reads the list of all sessions, nor is any printed that does: the server makes it, on disk, for each who reads it, and one has
/// died of it. (Red: it is looked for by a number in that list.)
#[test]
fn no_procedure_reads_the_list_of_sessions() {
    let server = MariaDb::start();
    let url = server.url() + "?strategy=shedlock";
    drop(runtime().block_on(client(&url)));
    let routines = "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = 'test'";
    let many = |which: &str| server.ask(&format!("{routines} AND {which}")).parse::<u32>().unwrap();
    assert!(many("routine_name LIKE 'fencelock%' AND routine_definition LIKE '%SELECT%'") > 20, "they can be read");
    assert_eq!(many("LOWER(routine_definition) LIKE '%processlist%'"), 0);
    let config = fencelock_mysql::Config::from_url(&url).unwrap();
    let printed = runtime().block_on(fencelock_core::Admin::schema(&config, Some("other"))).unwrap();
    assert!(printed.contains("fencelock_in_front") && !printed.to_lowercase().contains("processlist"));
}
/// Whoever has no pulse yet is in front for as long as the session is there by which he came, whichever account that has, and no longer: when
/// it is ended the next one has his turn. (Red: that session has no named lock, and whoever is alive is passed; another account's is looked for in
/// the list of sessions, and is passed.)
#[test]
fn one_without_a_pulse_is_in_front_while_his_session_is_there() {
    let server = MariaDb::start();
    server.ask(OTHER);
    drop(runtime().block_on(client(&server.url())));
    for (first, second) in [("root", "root"), ("root", "other"), ("other", "root"), ("other", "other")] {
        let name = format!("{first}, {second}");
        // What a machine that stands still has cost is no answer.
        on_a_steady_machine(30 * MS, || {
            // Of a try before.
            server.ask("DELETE FROM fencelock_waiter; DELETE FROM fencelock_client; DELETE FROM fencelock_lock");
            let mut before = Waiter::new(&server, "root", &name, 1);
            assert!(before.acquire().starts_with("done"));
            let [mut first, mut second] = [(first, 2), (second, 3)].map(|(who, n)| Waiter::new(&server, who, &name, n));
            for waiter in [&mut first, &mut second] {
                let said = waiter.acquire();
                assert!(said.starts_with("queued"), "{name}: {said}");
            }
            before.release();
            for told in [false, true] {
                let said = second.look(told);
                assert!(said.starts_with("queued"), "{name}: who is in front was passed: {said}");
            }
            let id = first.session.ask("SELECT CONNECTION_ID()");
            server.ask(&format!("KILL {id}"));
            let began = Instant::now();
            while !second.look(false).starts_with("turn") {
                assert!(began.elapsed() < LONG, "{name}: its turn does not come");
            }
            let took = began.elapsed();
            let said = second.look(true);
            second.release();
            assert!(said.starts_with("done"), "{name}: {said}");
            assert!(took <= 100 * MS, "{name}: its turn came after {took:?}");
            println!("{name}: its turn came after {took:?}");
        });
    }
}
/// Whoever has no pulse yet, and loses the session by which he came, is in front again with his next word. (Red: who has said so lately says
/// nothing more, and is passed until he has to.)
#[test]
fn one_who_comes_by_another_session_is_in_front_again() {
    let server = MariaDb::start();
    drop(runtime().block_on(client(&server.url())));
    let [mut before, mut first, mut second] = queue(&server);
    server.ask(&format!("KILL {}", first.session.ask("SELECT CONNECTION_ID()")));
    first.session = Session::new(&As(&server, "root"));
    let said = first.look(false);
    assert!(said.starts_with("queued"), "{said}");
    before.release();
    assert_in_order(&mut first, &mut second);
}
/// Until he has a pulse nobody watches: a watch goes on for a while when its client was killed, and the session in which it does so may be the
/// one by which he came. (Red: he watches at once.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_watches_before_he_has_a_pulse() {
    let server = MariaDb::start();
    let (proxy, url) = proxied(&server);
    let (far, near) = (client(&url).await, client(&server.url()).await);
    let (seen, held) = (Arc::<Mutex<Vec<String>>>::default(), near.mutex("x").ttl(60 * SEC).lock().await.unwrap());
    let all = seen.clone();
    proxy.rule(move |command| {
        all.lock().unwrap().push(String::from_utf8_lossy(command).into_owned());
        Trouble::None
    });
    let wait = tokio::spawn(far.mutex("x").lock());
    let watches = || {
        let seen = seen.lock().unwrap();
        seen.iter().filter(|call| call.contains("CALL fencelock_watch(")).cloned().collect::<Vec<_>>()
    };
    eventually("it watches", || ready(!watches().is_empty())).await;
    assert!(!watches()[0].contains(",NULL,"), "without a pulse: {}", watches()[0]);
    held.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
}
/// A named lock is a waiter's: whoever finds it free, and gives it back, takes none, whatever he claims. (Red: it is taken with each claim.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_wait_takes_no_named_lock() {
    let server = MariaDb::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    for (name, claim, _) in CLAIMS {
        for n in 0..tenth(100) {
            Any::lock(&a, &format!("{name}{n}"), claim, 60 * SEC).await.unwrap().release().await.unwrap();
        }
    }
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_err());
    assert_eq!(server.ask(NAMED), "0");
    let wait = tokio::spawn(b.mutex("x").lock());
    queued(&a, "x", 1).await;
    assert_ne!(server.ask(NAMED), "0", "one who waits has one");
    held.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
}
/// Sixteen want it all the time, half of them strangers to the others' sessions: no error reaches anybody, and nobody is in beside another one.
/// (Red: whoever looks fits in.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_who_want_it_all_the_time() {
    let server = MariaDb::start();
    server.ask(OTHER);
    let end = Instant::now() + Duration::from_millis(tenth(40_000) as u64);
    let (counter, mut tasks) = (Arc::new(AtomicU32::new(0)), Vec::new());
    for n in 0..16 {
        let url = if n % 2 == 0 { server.url() } else { server.url().replace("root@", "other@") };
        let (client, counter) = (client(&url).await, counter.clone());
        tasks.push(tokio::spawn(async move {
            let mut grants = 0;
            while grants == 0 || Instant::now() < end {
                let guard = client.mutex("c").lock().await.unwrap();
                let read = counter.load(Relaxed);
                tokio::time::sleep(Duration::from_micros(fastrand::u64(0..1_000))).await;
                counter.store(read + 1, Relaxed);
                guard.release().await.unwrap();
                grants += 1;
            }
            grants
        }));
    }
    let mut all = 0;
    tokio::time::sleep_until(end.into()).await;
    for task in tasks {
        all += within("all of them", task).await.unwrap();
    }
    println!("{all} grants");
    assert_eq!(counter.load(Relaxed), all);
}
/// Who says that he is felt by a session that has not his named lock is told so, by a look and by a watch, and it is written nowhere: whoever
/// read it would take him for dead, and pass him. (Red: it is written.)
#[test]
fn who_is_not_felt_is_told_so() {
    let server = MariaDb::start();
    drop(runtime().block_on(client(&server.url())));
    let [mut before, mut first, mut second] = queue(&server);
    let who = format!("'', 'x', X'{:032}'", first.n);
    let client = format!("X'{:032}'", first.n);
    // One that is there, and one that was never.
    for pulse in [server.ask("SELECT CONNECTION_ID()"), "4000000000".to_owned()] {
        let look =
            |told| format!("CALL fencelock_refresh({who}, 60000000, {NOW} + 9000000, {client}, {pulse}, {told})");
        let watch = format!("CALL fencelock_watch({who}, {client}, {pulse}, 9000000, 4000, 4000, FALSE)");
        for call in [look("FALSE"), look("TRUE"), watch] {
            let said = first.session.ask(&call);
            assert!(said.starts_with("unheard"), "{call}: {said}");
        }
    }
    before.release();
    assert_in_order(&mut first, &mut second);
}
/// The session is ended that shows that one lives who waits behind: his next look tells him, and he has another one. (Red: nobody
/// asks: 15 s.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_felt_any_more_has_another_pulse() {
    let server = MariaDb::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let wait = tokio::spawn(b.mutex("x").lock());
    let pulse = || server.ask("SELECT pulse FROM fencelock_client WHERE pulse > 0");
    eventually("it has a pulse", || ready(!pulse().is_empty())).await;
    let (first, began) = (pulse(), Instant::now());
    server.ask(&format!("KILL {first}"));
    eventually("it has another one", || ready(!pulse().is_empty() && pulse() != first)).await;
    let took = began.elapsed();
    println!("another pulse after {took:?}");
    assert!(took < 10 * SEC, "{took:?}");
    held.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
}
/// A node of a cluster has named locks of its own: who waits there says from the first moment on that nobody is to look for one, and takes none.
/// (Red: it is asked when he waits already.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_felt_in_a_cluster() {
    let server = MariaDb::with(&["--wsrep-on=ON"]);
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    // What anybody says of himself, each time.
    server.ask(
        "CREATE TABLE said (pulse BIGINT); \
         CREATE TRIGGER says BEFORE INSERT ON fencelock_client FOR EACH ROW INSERT INTO said VALUES (NEW.pulse)",
    );
    for n in 0..4 {
        let (first, second) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let held = first.mutex("x").ttl(60 * SEC).lock().await.unwrap();
        let wait = tokio::spawn(second.mutex("x").lock());
        queued(&a, "x", 1).await;
        eventually("it has said so", || ready(server.ask("SELECT COUNT(*) > 0 FROM said") == "1")).await;
        assert_eq!(
            (server.ask("SELECT COUNT(*) FROM said WHERE pulse <> 0"), server.ask(NAMED)),
            ("0".into(), "0".into())
        );
        held.release().await.unwrap();
        within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
    }
}
