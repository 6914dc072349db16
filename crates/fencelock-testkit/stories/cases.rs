//! Cases of the peers' suites that mean something on every database: connections, other people's transactions, rows that somebody else removes.
//! For the tests that bring `Server`, `NAME`, `OURS` and `SESSIONS`, which count our connections and what sessions hold, `SNAPSHOT`, `end_session`,
//! `dead` and `clean`, and of a clean-up that looks for long `HELD` and `many`, `SILENT`, `cleaning` and
//! `CLEANING`; of a look that was held up for 5 s `LATE_SETTLE` and `HELD_UNTIL`.
use super::*;
use std::task::Poll;

async fn sessions(server: &Server) -> Client {
    client(&(server.url() + "?strategy=session")).await
}

/// Thirty locks one after the other cost one connection of the caller's runtime and one of the keeper's; when the client is gone there is
/// none. (Red: a connection for each call, and it is kept.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_do_not_leak() {
    let server = Server::start();
    let a = client(&server.url()).await;
    for n in 0..30 {
        let (name, claim, _) = CLAIMS[n % CLAIMS.len()];
        Any::lock(&a, name, claim, SEC).await.unwrap().release().await.unwrap();
    }
    eventually("two at most", || ready(server.ask(OURS).parse::<u32>().unwrap() <= 2)).await;
    drop(a);
    eventually("none is left", || ready(server.ask(OURS) == "0")).await;
}
/// While a sign of life is not answered, whoever asks for the loss is not kept waiting. (Red: a sign of life that counts without its answer.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_that_is_asked_for_meanwhile() {
    let server = Server::start();
    let (proxy, url) = proxied(&server);
    let a = client(&(url + "?strategy=session")).await;
    let held = a.mutex("x").ttl(3 * SEC).lock().await.unwrap();
    proxy.silent(true);
    // What was answered was sent before this.
    let latest = BootClock.now() + 3 * SEC;
    let (began, lost) = (Instant::now(), held.lost());
    while held.is_valid() {
        let asked = Instant::now();
        let _ = (held.check(), held.remaining(), held.lost());
        assert!(asked.elapsed() < 3 * SEC, "it waited");
        assert!(held.valid_until() <= latest, "it counts on what nobody has answered");
        assert!(began.elapsed() < LONG);
        tokio::time::sleep(5 * MS).await;
    }
    let took = began.elapsed();
    println!("lost after {took:?}: {:?}", soon(lost).await);
    let what = format!("{NAME}: lost while a sign of life is not answered, ttl 3 s");
    bar(&what, format!("{took:?}"), "< 4 s", took < 4 * SEC);
}
/// Guards that are dropped give back what they had of a session that bears others, and no others; one that is killed spoils nothing of what
/// comes after it, and a release of what it had is no release. (Red: a lock that is not given back.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_many_share() {
    let server = Server::start();
    let a = sessions(&server).await;
    let kept = a.mutex("kept").lock().await.unwrap();
    for n in 0..20 {
        drop(a.mutex(format!("x{n}")).lock().await.unwrap());
    }
    eventually("they are given back", || ready(server.ask(SESSIONS) == "1")).await;
    // It is nobody's twice, also in the session that has it.
    assert!(a.mutex("kept").try_lock().await.unwrap().is_err());
    assert!(a.mutex("kept").try_lock_for(200 * MS).await.unwrap().is_err());
    kept.check().unwrap();
    end_session(&server, "kept");
    assert_eq!(soon(kept.lost()).await, LossReason::SessionEnded);
    assert_eq!(kept.release().await.unwrap_err().kind(), ErrorKind::Lost);
    for n in 0..20 {
        soon(a.mutex(format!("x{n}")).lock()).await.unwrap().release().await.unwrap();
    }
    eventually("nothing is left", || ready(server.ask(SESSIONS) == "0")).await;
}
/// Somebody keeps the rows of all locks for three seconds: neither a sign of life nor a claim nor a release ends the session meanwhile, and
/// nothing of them is lost. (Red: a session is ended for a row that somebody keeps.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_somebody_keeps_end_no_session() {
    let server = Server::start();
    let (a, b) = (sessions(&server).await, sessions(&server).await);
    for name in ["w", "x", "y", "z"] {
        a.mutex(name).lock().await.unwrap().release().await.unwrap();
    }
    // Its lease is as long as that: without a sign of life it would be over.
    let kept = a.mutex("kept").ttl(6 * SEC).lock().await.unwrap();
    // In the same session.
    let (held, dropped) =
        (a.mutex("x").ttl(6 * SEC).lock().await.unwrap(), a.mutex("y").ttl(6 * SEC).lock().await.unwrap());
    // What it has to write when it is given back is written when the row is free.
    let timed = a.mutex("w").ttl(6 * SEC).at_least(MS).lock().await.unwrap();
    let mut terminal = Session::new(&server);
    terminal.ask("BEGIN; SELECT name FROM fencelock_lock FOR UPDATE");
    let began = Instant::now();
    drop(dropped);
    let releases = [tokio::spawn(held.release()), tokio::spawn(timed.release())];
    let claim = tokio::spawn(a.mutex("z").ttl(6 * SEC).lock());
    let waits = ["w", "x", "y"].map(|name| tokio::spawn(b.mutex(name).lock()));
    while began.elapsed() < 6 * SEC {
        kept.check().unwrap();
        assert!(!claim.is_finished() && !waits.iter().any(|wait| wait.is_finished()), "a row was passed over");
        tokio::time::sleep(20 * MS).await;
    }
    terminal.ask("ROLLBACK");
    for release in releases {
        within("it is released", release).await.unwrap().unwrap();
    }
    let mine = within("a claim", claim).await.unwrap().unwrap();
    for wait in waits {
        within("it is free", wait).await.unwrap().unwrap().release().await.unwrap();
    }
    kept.check().unwrap();
    mine.check().unwrap();
    kept.release().await.unwrap();
    mine.release().await.unwrap();
    eventually("nothing is left", || ready(server.ask(SESSIONS) == "0")).await;
}
/// A counter in the user's own transactions, under the lock: exact, whatever these see. (Red: an acquire that ignores the holder.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_counter_in_transactions() {
    let server = Arc::new(Server::start());
    server.ask("CREATE TABLE counter (name text, n int); INSERT INTO counter VALUES ('a', 0), ('b', 0)");
    let (mut all, rounds) = (Vec::new(), tenth(100));
    for _ in 0..8 {
        let (client, server) = (client(&server.url()).await, server.clone());
        all.push(tokio::spawn(async move {
            let mut terminal = Session::new(&*server);
            for n in 0..rounds {
                let name = ["a", "b"][n % 2];
                let guard = client.mutex(name).lock().await.unwrap();
                tokio::task::block_in_place(|| {
                    terminal.ask(SNAPSHOT);
                    let n: usize =
                        terminal.ask(&format!("SELECT n FROM counter WHERE name = '{name}'")).parse().unwrap();
                    terminal.ask(&format!("UPDATE counter SET n = {} WHERE name = '{name}'", n + 1));
                    terminal.ask("COMMIT")
                });
                guard.release().await.unwrap();
            }
        }));
    }
    for one in all {
        tokio::time::timeout(60 * SEC, one).await.unwrap().unwrap();
    }
    assert_eq!(server.ask("SELECT sum(n) FROM counter"), (8 * rounds).to_string());
}
/// A user's transaction is open meanwhile, sees what was, and is rolled back: the lock is not of it. (Red: another token is kept than is told.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_a_transaction_of_the_user() {
    let server = Server::start();
    let a = client(&server.url()).await;
    let mut terminal = Session::new(&server);
    terminal.ask(SNAPSHOT);
    terminal.ask("SELECT * FROM fencelock_lock");
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    assert_eq!(terminal.ask("SELECT count(*) FROM fencelock_lock"), "0");
    terminal.ask("ROLLBACK");
    assert_eq!(terminal.ask("SELECT fence FROM fencelock_lock"), held.token().to_string());
    held.release().await.unwrap();
}
/// A hold whose record somebody has removed: it is told, and neither a renewal nor a release makes it anew. What is over and unused goes,
/// what lives stays. (Red: a clean-up that takes what is held.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_go() {
    let server = Server::start();
    let a = client(&server.url()).await;
    let held = a.mutex("x").ttl(6 * SEC).lock().await.unwrap();
    server.ask("DELETE FROM fencelock_lock");
    assert_eq!(soon(held.lost()).await, LossReason::TakenOver);
    assert!(held.release().await.is_err());
    assert_eq!(server.ask("SELECT count(*) FROM fencelock_lock"), "0");
    let live = a.mutex("live").ttl(60 * SEC).lock().await.unwrap();
    let reads = a.rw_lock("reads").ttl(60 * SEC).read().await.unwrap();
    dead(&server);
    clean(&server);
    assert_eq!(server.ask("SELECT name FROM fencelock_lock ORDER BY name"), "live\nreads");
    live.release().await.unwrap();
    reads.release().await.unwrap();
}
/// It looks through very many that are held, and keeps nobody from an idle one meanwhile, nor a client that had been silent from waiting
/// again. (Red: a row is locked as it is found; what the dead have left goes in the same transaction.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_up_is_in_nobodys_way() {
    let server = Server::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let (mut bites, mut rounds) = (0, 0);
    while bites < tenth(10) {
        rounds += 1;
        assert!(rounds <= 40 * tenth(10), "the run must bite");
        // The idle ones are found first. Each is tried once: then it is somewhere else.
        server.ask(&many());
        let wait = async |client: &Client| client.mutex("m7").try_lock_for(10 * MS).await.unwrap();
        assert!(wait(&b).await.is_err());
        server.ask(SILENT);
        let mut child = cleaning(&server).stdout(Stdio::null()).spawn().unwrap();
        let looks = || server.ask(CLEANING) != "0";
        eventually("it looks", || ready(looks() || child.try_wait().unwrap().is_some())).await;
        // A sign of life that came late is none of this.
        let reaped = server.ask("SELECT count(*) FROM fencelock_client") == "0";
        let mut busy = Vec::new();
        for n in 0..10 {
            match a.mutex(format!("#{n}")).try_lock().await.unwrap() {
                Ok(guard) => guard.release().await.unwrap(),
                Err(of) => busy.push(format!("#{n}: {of:?}")),
            }
        }
        // Where its row is kept until the end, that is later than the look.
        assert!(wait(&b).await.is_err());
        // Its end has the rows for a moment.
        if looks() && reaped {
            assert!(busy.is_empty(), "{busy:?}");
            bites += 1;
        }
        assert!(tokio::task::block_in_place(|| child.wait()).unwrap().success());
        assert_eq!(server.ask("SELECT count(*) FROM fencelock_lock WHERE hold IS NOT NULL"), HELD.to_string());
    }
}
/// A grant that its caller hears of when its longest time is long over, since his runtime stood still: it is told before somebody else has the lock.
/// (Red: given back without a word.)
#[test]
fn a_grant_that_is_heard_of_late() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (a, b) = (sessions(&server).await, sessions(&server).await);
        // Its session lives on by what else it bears.
        let beside = a.mutex("beside").ttl(SEC).lock().await.unwrap();
        let began = Instant::now();
        let lock = 'bite: loop {
            let mut lock = Box::pin(a.mutex("x").ttl(SEC).max_hold(SEC).lock());
            // No further than to where the server has given it.
            while server.ask(SESSIONS) != "2" {
                assert!(began.elapsed() < LONG, "the run must bite");
                if let Poll::Ready(soon) = std::future::poll_fn(|cx| Poll::Ready(lock.as_mut().poll(cx))).await {
                    soon.unwrap().release().await.unwrap(); // heard of at once: anew
                    continue 'bite;
                }
                std::thread::sleep(20 * MS);
            }
            break lock;
        };
        std::thread::sleep(3 * SEC);
        let held = lock.await;
        let next = soon(b.mutex("x").lock()).await.unwrap();
        assert!(!held.is_ok_and(|held| held.is_valid()), "nobody has said so");
        next.release().await.unwrap();
        beside.release().await.unwrap();
    });
}
/// Whoever has come to a lock with readers or permits, and is held up before he looks through them, cuts nothing of what was renewed meanwhile: its
/// holder counts on that (SAFETY E2). (Red: ends judged by the clock as it was when he came.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_that_was_held_up() {
    let server = Server::start();
    let a = client(&server.url()).await;
    for claim in [Claim::Read, Claim::Permits { take: 2, of: 3 }] {
        let held = Any::lock(&a, "x", claim, 60 * SEC).await.unwrap();
        let before = server.ask(HELD_UNTIL);
        assert!(!before.is_empty());
        server.ask(LATE_SETTLE);
        assert_eq!(server.ask(HELD_UNTIL), before, "{claim:?}");
        held.release().await.unwrap();
        server.ask("DELETE FROM fencelock_lock");
    }
}
/// A hundred locks of thirty clients, taken and given back for a while: no release fails. (Red: a release that compares another token.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_release_comes_too_late() {
    let server = Server::start();
    let until = Instant::now() + if full() { 6 * SEC } else { SEC };
    let mut all = Vec::new();
    for _ in 0..30 {
        let client = client(&server.url()).await;
        all.push(tokio::spawn(async move {
            while Instant::now() < until {
                let guard = client.mutex(format!("x{}", fastrand::u32(0..100))).lock().await.unwrap();
                guard.release().await.unwrap();
            }
        }));
    }
    for one in all {
        within("it ends", one).await.unwrap();
    }
}
/// Tokens are at the end of what a bigint holds: the next one is refused, in words, and nobody holds it. (Red: a token that begins anew.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_token() {
    let server = Server::start();
    let a = client(&server.url()).await;
    server.ask(&format!("INSERT INTO fencelock_lock (space, name, fence) VALUES ('', 'x', {})", i64::MAX - 1));
    let last = a.mutex("x").lock().await.unwrap();
    assert_eq!(last.token().get(), i64::MAX);
    last.release().await.unwrap();
    let error = a.mutex("x").try_lock().await.unwrap_err();
    assert!(!error.is_temporary() && error.to_string().contains("out of range"), "{error}");
    assert!(!a.inspect("x").await.unwrap().is_held());
}
/// The server refuses what it is asked, at each table: that is said as it says it, and nothing is held afterwards. (Red: a refusal told as
/// busy.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_told() {
    let server = Server::start();
    let a = client(&server.url()).await;
    let held = a.mutex("held").ttl(60 * SEC).lock().await.unwrap();
    let waits = tokio::spawn(a.mutex("held").ttl(60 * SEC).lock());
    queued(&a, "held", 1).await;
    let given = a.mutex("given").ttl(60 * SEC).lock().await.unwrap();
    for table in ["lock", "holder", "waiter"] {
        refuse(&server, &format!("fencelock_{table}"));
        let error = match table {
            "lock" => a.mutex("x").lock().await.unwrap_err(),
            "holder" => a.rw_lock("r").read().await.unwrap_err(),
            _ => a.mutex("held").ttl(59 * SEC).lock().await.unwrap_err(),
        };
        assert!(error.to_string().contains("out of ink") && !error.is_temporary(), "{error}");
        assert!(error.to_string().starts_with("lock:"), "{error}");
        refuse_no_more(&server, &format!("fencelock_{table}"));
    }
    refuse(&server, "fencelock_lock");
    let error = given.release().await.unwrap_err();
    assert!(error.to_string().contains("out of ink") && error.to_string().starts_with("release:"), "{error}");
    refuse_no_more(&server, "fencelock_lock");
    for (name, claim, _) in CLAIMS {
        soon(Any::lock(&a, &format!("after {name}"), claim, SEC)).await.unwrap().release().await.unwrap();
    }
    held.release().await.unwrap();
    soon(waits).await.unwrap().unwrap().release().await.unwrap();
}
/// The server of one that waits vanishes without a word, and its address leads to another one: it waits there soon. (Red: a wait that hears
/// of nothing but its own connection; one that waits for the end of its session at a server that is gone; a claim in a session that is gone.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_vanishes_under_those_who_wait() {
    let (old, new) = (Server::start(), Server::start());
    let (proxy, url) = proxied(&old);
    let (far, near, next) =
        (client(&format!("{url}?strategy=session")).await, sessions(&old).await, sessions(&new).await);
    let _before = near.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    // In the session for its ttl, which has vanished, too.
    let beside = far.mutex("y").lock().await.unwrap();
    let wait = tokio::spawn(far.mutex("x").lock());
    queued(&near, "x", 1).await;
    let brief = tokio::spawn(far.mutex("x").ttl(20 * SEC).try_lock_for(8 * SEC));
    queued(&near, "x", 2).await;
    old.pause(true);
    let began = Instant::now();
    // Its limit is its own, whether there is a server or not.
    assert!(within("its limit", brief).await.unwrap().unwrap().is_err());
    assert!(began.elapsed() < 11 * SEC, "{:?}", began.elapsed());
    proxy.lead_to(([127, 0, 0, 1], new.port()).into());
    let began = Instant::now();
    let held = tokio::time::timeout(20 * SEC, wait).await.unwrap().unwrap().unwrap();
    println!("it has it at the other one after {:?}", began.elapsed());
    assert!(next.inspect("x").await.unwrap().is_held());
    held.release().await.unwrap();
    // Whoever comes anew is not sent to the one that is gone.
    let held = within("at the new one", far.mutex("z").lock()).await.unwrap();
    held.release().await.unwrap();
    drop(beside);
    old.pause(false);
}
