//! What is the same on every database, for the tests that bring `Server`, `NAME`, `TRIED`, `GRANTED`, `HEARD`, `left`, `claims`, `waits`,
//! `looks`, `claims_row` and `left_of_row`, `terminal`, `sleeps`, `SESSIONS_END_EARLY`, how a table is locked, and the names of the commands that a client may be stopped in.
use super::*;
use fencelock_conformance::proxy::Proxy;
use fencelock_core::{Client, Guard, Result, Token};
use tokio::task::JoinHandle;

/// Somebody's own transaction keeps the row for three seconds: a try is answered in time, whoever waits gets it soon after, with all of
/// its ttl (SAFETY E2, G1). (Red: `FOR UPDATE` that waits.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_somebody_keeps() {
    let server = Server::start();
    let url = server.url();
    row_that_somebody_keeps(NAME, server, &url, KEPT).await;
}
/// Sessions have no row but that of their tokens: whoever is granted one waits for that. (Red: tries that go on for a second.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_somebody_keeps_from_sessions() {
    let server = Server::start();
    let url = server.url() + "?strategy=session";
    let kept = Kept { claims: &CLAIMS[..SESSION_CLAIMS], left: None, ..KEPT };
    row_that_somebody_keeps(&format!("{NAME}, sessions"), server, &url, kept).await;
}
/// (Red: ShedLock's row is waited for.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_is_kept_from_shedlock_s_users() {
    let server = Server::start();
    let url = server.url() + "?strategy=shedlock";
    let kept = Kept { rows: "shedlock WHERE", claims: &[("m", Claim::Mutex, Claim::Mutex)], left: None };
    row_that_somebody_keeps(&format!("{NAME}, ShedLock's table"), server, &url, kept).await;
}
/// What is kept, from whom, and how much is left of what was granted then, where a record tells.
pub(super) struct Kept {
    rows: &'static str,
    claims: &'static [(&'static str, Claim, Claim)],
    left: Option<fn(&mut Session, &str) -> f64>,
}
/// By all of its key, or a database may keep more.
pub(super) const KEPT: Kept = Kept { rows: "fencelock_lock WHERE space = '' AND", claims: &CLAIMS, left: Some(left) };
/// The same for those who come by this URL.
pub(super) async fn row_that_somebody_keeps(what: &str, server: Server, url: &str, kept: Kept) {
    let Kept { rows, claims, left } = kept;
    let server = Arc::new(server);
    let (mut all, mut tries, mut grants, mut least) = (JoinSet::new(), Vec::new(), Vec::new(), f64::MAX);
    let (a, b) = (client(url).await, client(url).await);
    for &(name, claim, _) in claims {
        let (server, a, b) = (server.clone(), a.clone(), b.clone());
        all.spawn(async move {
            let mut seen = (Vec::new(), Vec::new(), f64::MAX);
            Any::lock(&a, name, claim, SEC).await.unwrap().release().await.unwrap();
            for _ in 0..tenth(10) {
                let mut session = Session::new(&*server);
                session.ask("BEGIN");
                session.ask(&format!("SELECT 1 FROM {rows} name = '{name}' FOR UPDATE"));
                let (kept, a) = (Instant::now(), a.clone());
                let wait = tokio::spawn(async move { Any::lock(&a, name, claim, 5 * SEC).await });
                while kept.elapsed() < 3 * SEC {
                    let began = Instant::now();
                    assert!(Any::is_busy(&b, name, claim).await);
                    seen.0.push(began.elapsed());
                    tokio::time::sleep(50 * MS).await;
                }
                assert!(!wait.is_finished());
                session.ask("COMMIT");
                let free = Instant::now();
                let guard = within("it is free", wait).await.unwrap().unwrap();
                seen.1.push(free.elapsed());
                seen.2 = left.map_or(f64::MAX, |left| left(&mut session, name)).min(seen.2);
                guard.release().await.unwrap();
            }
            seen
        });
    }
    while let Some(seen) = all.join_next().await {
        let seen = seen.unwrap();
        tries.extend(seen.0);
        grants.extend(seen.1);
        least = seen.2.min(least);
    }
    let (many, of) = (tries.len(), grants.len());
    let both = [tries, grants].map(|mut all| [0.99, 1.0].map(|p| percentile(&mut all, p)));
    let [[tried, slowest_try], [granted, slowest]] = both;
    assert!(least > 2.5 && slowest < LONG, "{least} s of 5 are left, after {slowest:?}");
    let what = format!("{what}: a transaction keeps the row for 3 s");
    let [try_limit, grant_limit] = [TRIED, GRANTED].map(|limit| format!("p99 <= {limit:?}"));
    let measured = format!("p99 {tried:?}, slowest {slowest_try:?}, of {many}");
    bar(&format!("{what}: a try is answered, p99"), measured, &try_limit, tried <= TRIED);
    let measured = format!("p99 {granted:?}, slowest {slowest:?}, of {of}");
    bar(&format!("{what}: granted after it goes, p99"), measured, &grant_limit, granted <= GRANTED);
    if left.is_some() {
        bar(&format!("{what}: left of a ttl of 5 s, least"), format!("{least:.2} s"), ">= 4.9 s", least >= 4.9);
    }
}
/// Who has it for 6 s, by a token above the last one, and another one who waits for it.
async fn held_and_wanted(a: &Client, b: &Client, last: Option<Token>) -> (Guard, JoinHandle<Result<Guard>>) {
    let held = soon(a.mutex("x").ttl(6 * SEC).lock()).await.unwrap();
    assert!(Some(held.token()) > last, "{:?} after {last:?}", held.token());
    (held, tokio::spawn(b.mutex("x").ttl(6 * SEC).lock()))
}
/// Whoever waited has it by a token above that one, and gives it back.
async fn newer_and_gone(wait: JoinHandle<Result<Guard>>, token: Token) -> Token {
    let next = within("the next one", wait).await.unwrap().unwrap();
    let newer = next.token();
    assert!(newer > token, "{newer:?} after {token:?}");
    next.check().unwrap();
    soon(next.release()).await.unwrap();
    newer
}
/// The server's clock is set by an hour. Ahead: every lease is over by it, which is told, and the next token is higher. Back: who holds goes on,
/// nobody gets in beside him, and a dead one's lease lasts for its ttl, not for an hour more (SAFETY H4, T1, E8). (Red: looks that take an end at
/// its word; tokens that are the time of day alone.)
pub(super) async fn clock_that_is_set(what: &str, clock: &WallClock, server: &Server, url: &str) {
    let (a, b) = (client(url).await, client(url).await);
    let (mut last, mut slowest) = (None, Duration::ZERO);
    for (round, forward) in [true, false, false, true].into_iter().enumerate() {
        println!("round {round}, {forward}");
        let (held, wait) = held_and_wanted(&a, &b, last).await;
        queued(&a, "x", 1).await;
        let dead = format!("dead {round}");
        let said = server.ask(&claims(&dead, Claim::Mutex, 2_000_000, 5_000_000));
        assert!(said.starts_with("done"), "round {round}: {said}");
        clock.step(3_600 * SEC, forward);
        let (began, after_it) = (Instant::now(), b.mutex(&dead).lock());
        let after_it = tokio::spawn(async move { (after_it.await, began.elapsed()) });
        if !forward {
            while began.elapsed() < 7 * SEC {
                held.check().unwrap();
                assert!(!wait.is_finished(), "round {round}: beside one who holds");
                tokio::time::sleep(20 * MS).await;
            }
        }
        let (next, took) = soon(after_it).await.unwrap();
        slowest = took.max(slowest);
        soon(next.unwrap().release()).await.unwrap();
        let token = held.token();
        if forward {
            soon(held.lost()).await;
        } else {
            soon(held.release()).await.unwrap();
        }
        last = Some(newer_and_gone(wait, token).await);
    }
    // However busy the machine is.
    assert!(slowest < 7 * SEC, "{slowest:?}");
    let what =
        format!("{what}: the clock is set by an hour: whoever waits for one who died, of a ttl of 2 s, is in after");
    bar(&what, format!("{slowest:?} at most"), "<= ttl + 1.1 s", slowest <= 3_100 * MS);
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set() {
    let clock = WallClock::new();
    let server = Server::by(&clock);
    clock_that_is_set(NAME, &clock, &server, &server.url()).await;
}
/// Sessions are another matter: who holds goes on, whichever way it is set. A server that counts a session's silence by that clock may end it too
/// early, which is told, and nobody is in before. Tokens rise all the same (SAFETY T1, E3). (Red: tokens that are the time of day alone.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_over_sessions() {
    let clock = WallClock::new();
    let server = Server::by(&clock);
    let url = server.url() + "?strategy=session";
    let (a, b) = (client(&url).await, client(&url).await);
    let mut last = None;
    for (round, forward) in [true, false, false, true].into_iter().enumerate() {
        println!("round {round}, {forward}");
        let (held, wait) = held_and_wanted(&a, &b, last).await;
        queued(&a, "x", 1).await;
        clock.step(3_600 * SEC, forward);
        let (began, mut is_over) = (Instant::now(), false);
        while began.elapsed() < 7 * SEC && !is_over {
            is_over = held.check().is_err() || wait.is_finished();
            tokio::time::sleep(20 * MS).await;
        }
        println!("round {round}: {is_over} after {:?}", began.elapsed());
        let token = held.token();
        if is_over {
            assert!(SESSIONS_END_EARLY && forward, "round {round}: {:?}", held.check());
            assert_eq!(soon(held.lost()).await, LossReason::SessionEnded);
        } else {
            soon(held.release()).await.unwrap();
        }
        last = Some(newer_and_gone(wait, token).await);
    }
}
/// A row that is shared with ShedLock knows no length of a lease: who dies before it is set back is in the way for the step more (0013). Who holds
/// goes on, nobody gets in beside him, and set ahead is told; tokens rise. (Red: tokens that are the time of day alone.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_over_shared_rows() {
    let clock = WallClock::new();
    let server = Server::by(&clock);
    let url = server.url() + "?strategy=shedlock";
    let (a, b) = (client(&url).await, client(&url).await);
    let mut last = None;
    for (round, forward) in [true, false, false, true].into_iter().enumerate() {
        println!("round {round}, {forward}");
        let (held, wait) = held_and_wanted(&a, &b, last).await;
        let dead = format!("dead {round}");
        assert!(server.ask(&claims_row(&dead, 2_000_000, 5_000_000)).starts_with("done"));
        clock.step(3_600 * SEC, forward);
        let token = held.token();
        if forward {
            soon(b.mutex(&dead).lock()).await.unwrap().release().await.unwrap();
            soon(held.lost()).await;
        } else {
            let began = Instant::now();
            while began.elapsed() < 7 * SEC {
                held.check().unwrap();
                assert!(!wait.is_finished(), "round {round}: beside one who holds");
                tokio::time::sleep(20 * MS).await;
            }
            assert!(b.mutex(&dead).try_lock().await.unwrap().is_err(), "round {round}");
            let left = left_of_row(&mut Session::new(&server), &dead);
            assert!(left > 3_500.0 && left < 3_602.0, "round {round}: {left} s are left");
            soon(held.release()).await.unwrap();
        }
        last = Some(newer_and_gone(wait, token).await);
    }
}
/// A statement that waited until after its end does nothing, and one that waited for less grants a whole lease, also of a lock that became
/// free meanwhile. It is the table that it waits for, since nobody waits for a row (SAFETY A2, G1). (Red: no end that is compared; the
/// clock read when the transaction began.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_waited() {
    let server = Server::start();
    let a = client(&server.url()).await;
    for (name, claim, _) in CLAIMS {
        Any::lock(&a, name, claim, SEC).await.unwrap().release().await.unwrap();
        let mut session = Session::new(&server);
        for (end, answer) in [(200_000, "past"), (20_000_000, "done")] {
            // Of somebody who died: it ends meanwhile.
            assert!(server.ask(&claims(name, claim, 600_000, 20_000_000)).starts_with("done"));
            let said = that_waited(&server, &mut session, &claims(name, claim, 20_000_000, end)).await;
            assert!(said.starts_with(answer), "{name}: {said}");
            let left = left(&mut session, name);
            assert!(if answer == "done" { left > 15.0 } else { left <= 0.0 }, "{name} {answer}: {left} s are left");
        }
    }
}
/// The same of a row that is shared with ShedLock. (Red: no end that is compared; what is busy is so by the clock of before.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_for_a_shared_row_that_waited() {
    let server = Server::start();
    let a = client(&(server.url() + "?strategy=shedlock")).await;
    a.mutex("x").lock().await.unwrap().release().await.unwrap();
    let (mut session, locks) = (Session::new(&server), lock_table("shedlock"));
    for (end, answer) in [(200_000, "past"), (20_000_000, "done")] {
        assert!(server.ask(&claims_row("x", 600_000, 20_000_000)).starts_with("done"));
        let said = that_waited_for(&locks, &server, &mut session, &claims_row("x", 20_000_000, end)).await;
        assert!(said.starts_with(answer), "{said}");
        let left = left_of_row(&mut session, "x");
        assert!(if answer == "done" { left > 15.0 } else { left <= 0.0 }, "{answer}: {left} s are left");
    }
    // Nobody has asked for that one yet, and it makes no row either.
    let said = that_waited_for(&locks, &server, &mut session, &claims_row("new", 20_000_000, 200_000)).await;
    assert!(said.starts_with("past"), "{said}");
    assert_eq!(server.ask("SELECT COUNT(*) FROM shedlock WHERE name = 'new'"), "0");
}
/// A statement that waits for the table for a second; what it says then.
async fn that_waited(server: &Server, session: &mut Session, statement: &str) -> String {
    that_waited_for(&lock_table("fencelock_lock"), server, session, statement).await
}
/// The same of whatever this locks.
pub(super) async fn that_waited_for(locks: &str, server: &Server, session: &mut Session, statement: &str) -> String {
    session.ask(locks);
    let statement = terminal(server, statement).stdout(Stdio::piped()).spawn().unwrap();
    eventually("it waits", || std::future::ready(server.ask(BLOCKED) == "1")).await;
    // Until its end, and its predecessor's, by the server's clock.
    server.ask(&sleeps(1.0));
    session.ask(UNLOCK_TABLE);
    let said = block_in_place(|| statement.wait_with_output()).unwrap();
    String::from_utf8_lossy(&said.stdout).into_owned()
}
/// The same of a waiter's look, whose lock becomes free meanwhile; and a look of one who was not told takes nothing. (Red: a look without an
/// end; one that takes what is free.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_that_waited() {
    let server = Server::start();
    let a = client(&server.url()).await;
    let mut session = Session::new(&server);
    for (n, (letter, claim, other)) in (1..).zip(CLAIMS) {
        for (end, answer) in [(200_000, "past"), (20_000_000, "done")] {
            let (name, hold) = (format!("{letter} {answer}"), format!("{n:032x}"));
            Any::lock(&a, &name, claim, SEC).await.unwrap().release().await.unwrap();
            // In one call: the start of a second client may take as long as the lease.
            let (held, waits) = (claims(&name, other, 900_000, 20_000_000), waits(&name, claim, &hold));
            let said = server.ask(&format!("{held}; COMMIT; {waits}"));
            assert!(said.lines().any(|line| line.starts_with("queued")), "{name}: {said}");
            let said = that_waited(&server, &mut session, &looks(&name, &hold, end, true)).await;
            assert!(said.starts_with(answer), "{name}: {said}");
            let left = left(&mut session, &name);
            assert!(if answer == "done" { left > 15.0 } else { left <= 0.0 }, "{name}: {left} s are left");
        }
        // It is free, and nobody told him.
        let name = format!("{letter} past");
        let said = server.ask(&looks(&name, &format!("{n:032x}"), 20_000_000, false));
        assert!(said.starts_with("turn"), "{name}: {said}");
        assert!(self::left(&mut session, &name) <= 0.0, "{name} was taken");
    }
}
/// A client is killed when its turn has come and its look is on its way: it takes nothing. (Red: a look that does not ask whether its client
/// is there.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_look_of_one_who_is_gone() {
    let server = Server::start();
    let (b, mut times) = (client(&server.url()).await, Vec::new());
    for round in 0..tenth(20) {
        for (letter, claim, other) in CLAIMS {
            let name: Arc<str> = format!("{round} {letter}").into();
            let held = Any::lock(&b, &name, other, 60 * SEC).await.unwrap();
            let (proxy, url) = proxied(&server);
            let a = client(&url).await;
            let wait = tokio::spawn({
                let (a, name) = (a.clone(), name.clone());
                async move { Any::lock(&a, &name, claim, 60 * SEC).await }
            });
            queued(&b, &name, 1).await;
            eventually("it is known who listens", || std::future::ready(server.ask(HEARD) != "0")).await;
            let met = Arc::<AtomicBool>::default();
            let seen = met.clone();
            proxy.rule(move |message| {
                let is_it = message.windows(18).any(|part| part == b"fencelock_refresh(");
                match seen.load(SeqCst) {
                    true => Trouble::Lose,
                    false if !is_it => Trouble::None,
                    false => {
                        seen.store(true, SeqCst);
                        Trouble::Late(300 * MS)
                    }
                }
            });
            held.release().await.unwrap();
            eventually("it looks", || std::future::ready(met.load(SeqCst))).await;
            proxy.cut();
            tokio::time::sleep(500 * MS).await;
            let free = Instant::now();
            let guard = within("it is free", Any::lock(&b, &name, other, 5 * SEC)).await.unwrap();
            times.push(free.elapsed());
            guard.release().await.unwrap();
            wait.abort();
            // Nothing that it says here arrives.
            drop((a, proxy));
            eventually("it is forgotten", || {
                server.ask(FORGET);
                std::future::ready(server.ask(HEARD) == "0")
            })
            .await;
        }
    }
    let (of, worst) = (times.len(), percentile(&mut times, 1.0));
    assert!(worst < 10 * SEC, "somebody who is gone has it: {worst:?}");
    let what = format!("{NAME}: a client is killed while its look is on its way: the next is in, slowest");
    bar(&what, format!("{worst:?} of {of}"), &format!("<= {GRANTED:?}"), worst <= GRANTED);
}
/// What those ask for who vanish, and what their statements wait for.
#[derive(Clone, Copy)]
pub(super) struct Vanish {
    query: &'static str,
    claims: &'static [(&'static str, Claim, Claim)],
    table: &'static str,
    command: &'static str,
}
pub(super) const VANISH: Vanish = Vanish { query: "", claims: &CLAIMS, table: "fencelock_lock", command: "acquire(" };
/// The n-th one, by this way; how long until the next one is in after what it waited for goes.
async fn vanishes<T>(n: usize, asks: Vanish, way: impl FnOnce(&Server) -> (Proxy, String, T)) -> Duration {
    let Vanish { query, claims, table, command } = asks;
    let (server, (name, claim, other)) = (Server::start(), claims[n / 2 % claims.len()]);
    let b = client(&(server.url() + query)).await;
    Any::lock(&b, name, claim, 60 * SEC).await.unwrap().release().await.unwrap();
    let (proxy, url, _more) = way(&server);
    let a = client(&(url + query)).await;
    let mut session = Session::new(&server);
    let (keeps, lets_go) = match n % 2 {
        0 => (format!("BEGIN; SELECT 1 FROM {table} FOR UPDATE"), "COMMIT"),
        _ => (lock_table(table), UNLOCK_TABLE),
    };
    session.ask(&keeps);
    let asked = first_of(&proxy, command.to_owned(), 1, Trouble::None);
    let wait = tokio::spawn(async move { Any::lock(&a, name, claim, 60 * SEC).await });
    eventually("it asks", || std::future::ready(asked.load(SeqCst) > 0)).await;
    // It has arrived; nothing else does, of what would take it back.
    tokio::time::sleep(20 * MS).await;
    proxy.silent(true);
    // Some servers hear of that.
    if n / 8 % 2 == 1 {
        proxy.cut();
    }
    // The end of its command, by the server's clock, whatever a loaded machine knows of that.
    server.ask(&sleeps(5.0));
    session.ask(lets_go);
    let free = Instant::now();
    let guard = within("it is free", Any::lock(&b, name, other, 5 * SEC)).await.unwrap();
    let took = free.elapsed();
    assert_eq!(server.ask("SELECT count(*) FROM fencelock_waiter"), "0");
    guard.release().await.unwrap();
    wait.abort();
    took
}
/// A client vanishes while its statement waits for the table, or its attempt for the row: it leaves nothing, neither a grant nor a place.
/// (Red: no end that is compared, where a wait for the table has no limit either.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_vanishes_while_it_waits() {
    client_that_vanishes_while_it_waits(NAME, VANISH, directly).await;
}
fn directly(server: &Server) -> (Proxy, String, ()) {
    let (proxy, url) = proxied(server);
    (proxy, url, ())
}
/// The same of one who has a session for it, with which his place goes. (Red: a wait for the table that has no limit.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_vanishes_while_its_session_waits() {
    let asks = Vanish { query: "?strategy=session", claims: &CLAIMS[..SESSION_CLAIMS], command: "bear(", ..VANISH };
    client_that_vanishes_while_it_waits(&format!("{NAME}, sessions"), asks, directly).await;
}
/// The same of a row that is shared with ShedLock. (Each of both ends is enough there, too: it stays green without the one that is compared.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_vanishes_while_it_waits_for_a_shared_row() {
    let asks = Vanish { query: "?strategy=shedlock", claims: &CLAIMS[..1], table: "shedlock", ..VANISH };
    client_that_vanishes_while_it_waits(&format!("{NAME}, ShedLock's table"), asks, directly).await;
}
/// The same of those who come by this way.
pub(super) async fn client_that_vanishes_while_it_waits<T: Send + 'static>(
    what: &str,
    asks: Vanish,
    way: impl Fn(&Server) -> (Proxy, String, T) + Copy + Send + 'static,
) {
    let mut times = Vec::new();
    // A table is locked for all who share the server: each has one of its own, and they start two at a time.
    for few in (0..2 * tenth(20)).collect::<Vec<_>>().chunks(2) {
        let mut all = JoinSet::new();
        for &n in few {
            all.spawn(vanishes(n, asks, way));
        }
        while let Some(took) = all.join_next().await {
            times.push(took.unwrap());
        }
    }
    let (of, worst) = (times.len(), percentile(&mut times, 1.0));
    assert!(worst < 10 * SEC, "somebody who is gone has it: {worst:?}");
    let what = format!(
        "{what}: a client vanished while it waited for a row or the table: the next is in after it goes, slowest"
    );
    bar(&what, format!("{worst:?} of {of}"), &format!("<= {GRANTED:?}"), worst <= GRANTED);
}

/// Stopped when so many bytes of its first command of this name have arrived: how long until the next one is in; and who was stopped.
///
/// He is not dropped here: a client that goes waits for a moment for what it has to give back, and the thread that he is dropped on would
/// keep the others from hearing that they are next.
async fn stopped(url: String, (proxy, through): (Proxy, String), what: Stop) -> (Duration, String, (Client, Proxy)) {
    let Stop { query, name, claim, other, command: (does, part), bytes, ttl } = what;
    let (a, b) = (client(&(through + query)).await, client(&(url + query)).await);
    let (met, held) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    // What prolongs a hold is that only once there is one.
    let (seen, is_held) = (met.clone(), held.clone());
    proxy.rule(move |message| {
        let is_it =
            (does != Renews || is_held.load(SeqCst)) && message.windows(part.len()).any(|is| is == part.as_bytes());
        if is_it && !seen.swap(true, SeqCst) { Trouble::Stop(bytes) } else { Trouble::None }
    });
    let after = if bytes == usize::MAX { "all".to_owned() } else { bytes.to_string() };
    let (which, name) = (format!("{does:?} of {claim:?} after {after} bytes"), Arc::<str>::from(name));
    // One that waits has somebody to wait for.
    let mut before =
        if matches!(does, Waits | Looks | Withdraws) { Any::lock(&b, &name, other, 30 * SEC).await.ok() } else { None };
    let theirs = tokio::spawn({
        let (name, a) = (name.clone(), a.clone());
        async move {
            let guard = Any::lock(&a, &name, claim, ttl).await?;
            held.store(true, SeqCst);
            match (does, guard) {
                (Softens, Any::Alone(guard)) => guard.downgrade().await.map(drop),
                (Renews, _guard) => std::future::pending().await,
                (_, guard) => guard.release().await,
            }
        }
    });
    if matches!(does, Looks | Withdraws) {
        queued(&b, &name, 1).await;
        match before.take_if(|_| does == Looks) {
            Some(before) => before.release().await.unwrap(),
            None => theirs.abort(),
        }
    }
    eventually("it is stopped", || std::future::ready(met.load(SeqCst))).await;
    if let Some(before) = before {
        before.release().await.unwrap();
    }
    let began = Instant::now();
    let guard = within("the next one", Any::lock(&b, &name, other, 30 * SEC)).await.unwrap();
    let took = began.elapsed();
    guard.release().await.unwrap();
    theirs.abort();
    (took, which, (a, proxy))
}
/// What a command is for, of those that a client may be stopped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Acquires,
    Waits,
    /// After a wait, since its turn has come.
    Looks,
    Renews,
    Softens,
    Withdraws,
    Releases,
}
use Does::*;
/// What it is for, and what it has in it.
pub(super) type Sent = (Does, &'static str);
struct Stop {
    query: &'static str,
    name: String,
    claim: Claim,
    other: Claim,
    command: Sent,
    bytes: usize,
    ttl: Duration,
}
/// A client is stopped before, within or after any command: the next one is in when its lease is over (SAFETY E7).
pub(super) async fn stopped_inside(
    what: &str,
    query: &'static str,
    claims: &[(&str, Claim, Claim)],
    commands: &[Sent],
    late: Duration,
) {
    let server = Server::start();
    stopped_inside_by(what, &server, || proxied(&server), query, claims, commands, late).await;
}
/// The same by this way.
pub(super) async fn stopped_inside_by(
    what: &str,
    server: &Server,
    way: impl Fn() -> (Proxy, String),
    query: &'static str,
    claims: &[(&str, Claim, Claim)],
    commands: &[Sent],
    late: Duration,
) {
    let (ttl, mut times) = (3 * SEC, Vec::new());
    for round in 0..tenth(10) {
        let mut stops = Vec::new();
        for &(letter, claim, other) in claims {
            for &command in commands {
                // Only a writer becomes a reader, who lets no other writer in.
                if command.0 == Softens && claim != Claim::Write {
                    continue;
                }
                let other = if command.0 == Softens { Claim::Write } else { other };
                for bytes in [0, 40, usize::MAX] {
                    let name = format!("{round} {letter} {:?} {bytes}", command.0);
                    stops.push(Stop { query, name, claim, other, command, bytes, ttl });
                }
            }
        }
        // So many at a time that nobody waits for this machine.
        while !stops.is_empty() {
            let mut all = JoinSet::new();
            for what in stops.drain(..stops.len().min(40)) {
                all.spawn(stopped(server.url(), way(), what));
            }
            let mut theirs = Vec::new();
            while let Some(one) = all.join_next().await {
                let (took, what, one) = one.unwrap();
                times.push((took, what));
                theirs.push(one);
            }
        }
    }
    times.sort_unstable();
    times.iter().rev().take(5).for_each(|(took, which)| println!("{what}: {which}: {took:?}"));
    let (of, Some((worst, which))) = (times.len(), times.pop()) else { panic!("nobody was stopped") };
    // However busy the machine is: a lease of twice its ttl is seen.
    assert!(worst < 2 * ttl - SEC, "{which}: {worst:?}");
    let what =
        format!("{what}: stopped before, within or after a command, with a ttl of {ttl:?}: the next is in, slowest");
    bar(&what, format!("{worst:?} of {of} ({which})"), &format!("<= ttl + {late:?}"), worst <= ttl + late);
}
/// (Red: the transaction of a call ends with a message of its own; a lease of twice its ttl, also of a writer who becomes a reader.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_is_stopped_inside() {
    stopped_inside(NAME, "", &CLAIMS, COMMANDS, 250 * MS).await;
}
/// Its session ends, and a session counts whole seconds on some servers (SAFETY E3). (Red: a session that may be silent for as long as it likes.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_session_that_is_stopped_inside() {
    let what = format!("{NAME}, sessions");
    stopped_inside(&what, "?strategy=session", &CLAIMS[..SESSION_CLAIMS], SESSION_COMMANDS, SEC).await;
}
/// Of a row that is shared with ShedLock. (Red: a lease of twice its ttl.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shared_row_of_a_client_that_is_stopped_inside() {
    const COMMANDS: &[Sent] = &[
        (Acquires, "fencelock_shed_acquire("),
        (Renews, "fencelock_shed_renew("),
        (Releases, "fencelock_shed_release("),
    ];
    stopped_inside(&format!("{NAME}, ShedLock's table"), "?strategy=shedlock", &CLAIMS[..1], COMMANDS, 250 * MS).await;
}
