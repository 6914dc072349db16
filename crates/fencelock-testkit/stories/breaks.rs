//! What breaks, and what is odd: a server that is killed, connections that are ended or not to be had, tables that are gone, names. The same
//! on every database, for the tests that bring `Server`, `Engine`, `Config`, `NAME`, `WAYS`, `LEASES`, `SESSIONS` and `ROWS`, which count what is
//! left, `SESSION_CLAIMS`, the settings `FEW_CONNECTIONS` and `IMPATIENT`, `held`, which asks for what sessions hold now, whatever becomes of
//! the tables, `durable`, and `kills`.
use super::*;

pub(super) const SESSION: &str = "?strategy=session";
const SHEDLOCK: &str = "?strategy=shedlock";
pub(super) const MUTEXES: [(&str, Claim, Claim); 4] = [
    ("a", Claim::Mutex, Claim::Mutex),
    ("b", Claim::Mutex, Claim::Mutex),
    ("c", Claim::Mutex, Claim::Mutex),
    ("d", Claim::Mutex, Claim::Mutex),
];

/// The server is killed and comes again while 16 want one lock: nobody is told but what passes, nobody is beside anybody, none is stuck, and
/// each token is above the one before.
/// `url`: the way there; `again` kills, and starts.
pub(super) async fn restarted(what: &str, server: &Server, url: &str, again: impl Fn(), left: &str) {
    let (inside, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let last = Arc::new(std::sync::Mutex::new(None));
    let mut all = Vec::new();
    for _ in 0..16 {
        let client = client(url).await;
        // What lives with a session ends with its server.
        let (inside, stop, is_lease, last) = (inside.clone(), stop.clone(), !url.ends_with(SESSION), last.clone());
        all.push(tokio::spawn(async move {
            let (mut holds, mut errors) = (0, 0);
            while !stop.load(SeqCst) {
                match client.mutex("x").ttl(20 * SEC).lock().await {
                    Ok(guard) => {
                        assert!(!inside.swap(true, SeqCst), "two at once");
                        let before = last.lock().unwrap().replace(guard.token());
                        assert!(before < Some(guard.token()), "{before:?}, and then {}", guard.token());
                        holds += 1;
                        tokio::task::yield_now().await;
                        assert!(guard.is_valid() || !is_lease);
                        inside.store(false, SeqCst);
                        drop(guard);
                    }
                    Err(error) => {
                        assert!(error.is_temporary(), "{error}");
                        errors += 1;
                    }
                }
            }
            (holds, errors)
        }));
    }
    let table = if url.ends_with(SHEDLOCK) { "fencelock_shed" } else { "fencelock_lock" };
    let (fence, mut back) = (&format!("SELECT fence FROM {table}"), Vec::new());
    for _ in 0..tenth(20) {
        tokio::time::sleep(500 * MS).await;
        tokio::task::block_in_place(&again);
        let began = Instant::now();
        let last = server.ask(fence);
        eventually("somebody gets it", || std::future::ready(server.ask(fence) != last)).await;
        back.push(began.elapsed());
    }
    stop.store(true, SeqCst);
    let (mut many, mut errors) = (0, 0);
    for one in all {
        let one = within("it ends", one).await.unwrap();
        assert!(one.0 > 0, "somebody never got it");
        many += one.0;
        errors += one.1;
    }
    eventually("nothing is left", || std::future::ready(server.ask(left) == "0")).await;
    let (of, worst) = (back.len(), percentile(&mut back, 1.0));
    let figure = format!("{worst:?} of {of}, {many} holds, {errors} passing errors, 0 overlaps");
    bar(&format!("{what}: restarted while 16 contend: the next grant, slowest"), figure, "<= 3 s", worst <= 3 * SEC);
}
/// The server, over whatever way.
pub(super) async fn server_restarted(what: &str, server: &Server, url: &str, left: &str) {
    let again = || {
        server.kill();
        assert!(server.restart());
    };
    restarted(what, server, url, again, left).await;
}
/// (Red: a connection that broke and is kept.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_under_load() {
    let server = durable();
    server_restarted(NAME, &server, &server.url(), LEASES).await;
}
/// (Red: a wait that is told of its connection's end; tokens that fall.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_under_sessions() {
    let server = durable();
    server_restarted(&format!("{NAME}, sessions"), &server, &(server.url() + SESSION), SESSIONS).await;
}
/// Until it has it: what lives with sessions is told what passes.
async fn lock(client: &Client, name: &str, claim: Claim, is_lease: bool) -> Any {
    loop {
        match Any::lock(client, name, claim, 30 * SEC).await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_temporary() && !is_lease, "{error}"),
        }
    }
}
/// Rows that are shared with ShedLock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_rows_over_a_server_that_is_restarted() {
    let server = durable();
    server_restarted(&format!("{NAME}, ShedLock's table"), &server, &(server.url() + SHEDLOCK), ROWS).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_shared_rows_that_are_killed_at_any_step() {
    let server = Server::start();
    killed_at_any_step(&format!("{NAME}, ShedLock's table"), &server, &(server.url() + SHEDLOCK), MUTEXES, ROWS).await;
}
/// Sessions are ended by an operator at every step: all that was asked is done once, nothing is held, nobody waits. What lives with a session
/// may have ended with it when it is given back, and who loses one session after the other is told so, and asks again; whoever is next has a
/// higher token all the same.
pub(super) async fn killed_at_any_step(
    what: &str,
    server: &Server,
    url: &str,
    claims: [(&'static str, Claim, Claim); 4],
    left: &str,
) {
    let mut clients = Vec::new();
    for _ in 0..=claims.len() {
        clients.push(client(url).await);
    }
    let (a, is_lease) = (clients.pop().unwrap(), !url.ends_with(SESSION));
    let stop = Arc::new(AtomicBool::new(false));
    let mut killer = Session::new(server);
    let kill = kills(server);
    let killed = Arc::<AtomicU32>::default();
    let steps = Arc::<AtomicU32>::default();
    let kills = std::thread::spawn({
        let (stop, killed, steps) = (stop.clone(), killed.clone(), steps.clone());
        move || {
            let mut last = 0;
            while !stop.load(SeqCst) {
                std::thread::sleep(MS * fastrand::u32(1..30));
                // Behind a pooler few connections bear all: on a machine that is busy none would live for as long as a statement takes.
                if steps.load(SeqCst) == last {
                    continue;
                }
                last = steps.load(SeqCst);
                killed.fetch_add(killer.ask(kill).parse().unwrap(), SeqCst);
            }
        }
    });
    let (mut done, mut ended, mut all) = (0, 0, Vec::new());
    for ((name, claim, other), beside) in claims.into_iter().zip(clients) {
        let (client, killed, steps) = (a.clone(), killed.clone(), steps.clone());
        all.push(tokio::spawn(async move {
            let step = || steps.fetch_add(1, SeqCst);
            let (mut done, mut ended) = (0, 0);
            // However quick they are, they are cut.
            while done < 2 * tenth(500) || killed.load(SeqCst) <= 20 {
                let held = soon(lock(&client, name, claim, is_lease)).await;
                step();
                let wait = tokio::spawn({
                    let beside = beside.clone();
                    async move { lock(&beside, name, other, is_lease).await }
                });
                tokio::time::sleep(MS * fastrand::u32(0..5)).await;
                let first = held.token();
                let given = soon(held.release()).await;
                step();
                let next = soon(wait).await.unwrap();
                step();
                let rises = first.zip(next.token()).is_none_or(|(first, next)| next > first);
                assert!(rises, "{:?} after {first:?}", next.token());
                for given in [given, soon(next.release()).await] {
                    assert!(given.is_ok() || !is_lease, "{given:?}");
                    ended += u32::from(given.is_err());
                }
                done += 2;
            }
            (done, ended)
        }));
    }
    for one in all {
        let one = one.await.unwrap();
        (done, ended) = (done + one.0, ended + one.1);
    }
    stop.store(true, SeqCst);
    tokio::task::block_in_place(|| kills.join().unwrap());
    let killed = killed.load(SeqCst);
    eventually("nothing is left", || std::future::ready(server.ask(left) == "0")).await;
    let ended = if is_lease { String::new() } else { format!(", {ended} of them ended with their sessions") };
    let figure = format!("0 of {done} holds, {killed} connections killed{ended}");
    bar(&format!("{what}: connections killed at any step: lost, or left"), figure, "0", true);
}
/// (Red: a connection that broke and is kept.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_killed_at_any_step() {
    let server = Server::start();
    killed_at_any_step(NAME, &server, &server.url(), CLAIMS, LEASES).await;
}
/// (Red: tokens that fall.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_killed_at_any_step() {
    let server = Server::start();
    killed_at_any_step(&format!("{NAME}, sessions"), &server, &(server.url() + SESSION), SESSION_CLAIMS, SESSIONS)
        .await;
}
/// Many are taken away at once, which last for 30 s: whoever has one is told, by leases with the next renewal, and by sessions, which are looked
/// after more often. (Red: no look between the signs of life.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_taken_away() {
    let server = Server::start();
    let told = async |what: &str, query: &str, limit: Duration| {
        let (a, operator) = (client(&(server.url() + query)).await, client(&(server.url() + query)).await);
        let mut all = Vec::new();
        for n in 0..tenth(50) {
            let name = format!("{what}{n}");
            let held = a.mutex(&name).ttl(30 * SEC).lock().await.unwrap();
            // Their renewals come at different times.
            tokio::time::sleep(MS * fastrand::u32(0..200)).await;
            let operator = operator.clone();
            all.push(tokio::spawn(async move {
                let began = Instant::now();
                operator.force_release(&name, held.token()).await.unwrap();
                let lost = tokio::time::timeout(30 * SEC, held.lost()).await.unwrap();
                assert!([LossReason::TakenOver, LossReason::SessionEnded].contains(&lost), "{lost:?}");
                began.elapsed()
            }));
        }
        let mut times = Vec::new();
        for one in all {
            times.push(one.await.unwrap());
        }
        let (of, worst) = (times.len(), percentile(&mut times, 1.0));
        let what = format!("{NAME}{what}: taken away, with a ttl of 30 s: lost() after, slowest");
        bar(&what, format!("{worst:?} of {of}"), &format!("<= {limit:?}"), worst <= limit);
        // However busy the machine is: long before its lease would have ended.
        assert!(worst < limit + 5 * SEC, "{what}: {worst:?}");
    };
    tokio::join!(told("", "", 11 * SEC), told(", sessions", SESSION, SEC));
}
/// For a while each session is ended as soon as it is there: whoever comes waits that over, as he would wait for a connection. (Red: it is
/// asked anew as often as after any other fault; the same for those that are ended without a word.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_ended_as_they_come() {
    let server = Server::start();
    let a = client(&server.url()).await;
    let mut killer = Session::new(&server);
    let kill = kills(&server);
    let killing = std::thread::spawn(move || {
        // On however slow a machine, enough of them.
        let (until, mut killed) = (Instant::now() + 2 * SEC, 0);
        while Instant::now() < until || killed <= 20 {
            killed += killer.ask(kill).parse::<u32>().unwrap();
        }
    });
    loop {
        let over = killing.is_finished();
        soon(soon(a.mutex("x").lock()).await.unwrap().release()).await.unwrap();
        if over {
            break;
        }
    }
    tokio::task::block_in_place(|| killing.join().unwrap());
    eventually("nothing is left", || std::future::ready(server.ask(LEASES) == "0")).await;
}
/// The server takes no more connections: whoever tries is told so in time, whoever holds keeps it, and it goes on when there are some
/// again. (Red: the first refusal is final.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connections() {
    let server = Server::with(FEW_CONNECTIONS);
    let a = client(&server.url()).await;
    let held = a.mutex("x").ttl(6 * SEC).lock().await.unwrap();
    // Renewals have a connection of their own.
    soon(held.renewed()).await;
    let taken = Session::all(&server);
    // Who has one goes on.
    soon(held.renewed()).await;
    // Who has none any more does not take that for a loss: as if the name led to this server now.
    let other = Server::start();
    let (proxy, url) = proxied(&other);
    let c = client(&url).await;
    let far = c.mutex("x").ttl(12 * SEC).lock().await.unwrap();
    proxy.lead_to(([127, 0, 0, 1], server.port()).into());
    proxy.cut();
    soon(far.suspect()).await;
    far.check().unwrap();
    proxy.lead_to(([127, 0, 0, 1], other.port()).into());
    soon(far.renewed()).await;
    far.check().unwrap();
    far.release().await.unwrap();
    a.mutex("y").lock().await.unwrap().release().await.unwrap();
    let began = Instant::now();
    let error = Engine::from_url(&server.url()).await.unwrap_err();
    println!("{error} after {:?}", began.elapsed());
    assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("connection"), "{error}");
    assert!(began.elapsed() < 15 * SEC);
    let url = server.url();
    let late = tokio::spawn(async move { client(&url).await });
    tokio::time::sleep(SEC).await;
    drop(taken);
    let b = within("there are some again", late).await.unwrap();
    let wait = tokio::spawn(b.mutex("x").lock());
    held.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
}
/// The server has no more connections from the moment in which each client has its first one: by that it takes, keeps, waits, and gives back
/// (SAFETY E8). (Red: those who renew and wait have one of their own, or none.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_does_for_all() {
    let server = Server::with(FEW_CONNECTIONS);
    one_connection(&server.url(), || Session::all(&server)).await;
}
async fn handed_over(
    held: fencelock_core::Guard,
    wait: tokio::task::JoinHandle<fencelock_core::Result<fencelock_core::Guard>>,
) {
    let first = held.token();
    held.release().await.unwrap();
    let next = within("its turn", wait).await.unwrap().unwrap();
    assert!(next.token() > first);
    next.release().await.unwrap();
}
pub(super) async fn one_connection<T>(url: &str, full: impl FnOnce() -> T) {
    let (a, b) = (client(url).await, client(url).await);
    let taken = full();
    let held = soon(a.mutex("x").ttl(6 * SEC).lock()).await.unwrap();
    let wait = tokio::spawn(b.mutex("x").lock());
    let until = held.valid_until() + 2 * SEC;
    eventually("it was renewed", || std::future::ready(held.valid_until() > until || !held.is_valid())).await;
    held.check().unwrap();
    handed_over(held, wait).await;
    drop(taken);
}
/// Whoever waits over an outage is told that what is known of the holder is from before it (SAFETY E8). (Red: nothing is said of it, or not to
/// those who are on their way into the queue.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_over_an_outage_knows() {
    let server = durable();
    for query in WAYS.into_iter().chain([SHEDLOCK]) {
        let (url, name) = (server.url() + query, format!("x{query}"));
        let (a, b) = (client(&url).await, client(&url).await);
        let held = soon(a.mutex(&*name).ttl(60 * SEC).lock()).await.unwrap();
        let mut wait = b.mutex(&*name).lock();
        blocked(&mut wait).await;
        let mut impatient = Vec::new();
        for _ in 0..8 {
            impatient.push(client(&url).await);
        }
        let mut queued = impatient[0].mutex(&*name).try_lock_for(6 * SEC);
        blocked(&mut queued).await;
        let mut waits = vec![tokio::spawn(queued)];
        // The others have hardly come, or are on their way into the queue.
        for one in &impatient[1..] {
            waits.push(tokio::spawn(one.mutex(&*name).try_lock_for(6 * SEC)));
            tokio::time::sleep(4 * MS).await;
        }
        let began = Instant::now();
        server.kill();
        eventually(&format!("it is told of {name}"), || {
            std::future::ready(wait.blocked_by().is_some_and(|busy| busy.stale))
        })
        .await;
        // Nobody waits for longer than he wants to, and what he is told says so, too.
        for wait in waits {
            let end = within("it ends", wait).await.unwrap();
            assert!(began.elapsed() < 15 * SEC, "{query}: {:?}", began.elapsed());
            let is_told = match &end {
                Ok(got) => got.as_ref().is_err_and(|busy| busy.stale),
                Err(error) => error.is_temporary(),
            };
            assert!(is_told, "{query}: {end:?}");
        }
        assert!(server.restart());
        // What lived with its session has ended with it.
        if !query.ends_with(SESSION) {
            eventually("it is known", || std::future::ready(wait.blocked_by().is_some_and(|busy| !busy.stale))).await;
            soon(held.release()).await.unwrap();
        }
        within("its turn", wait).await.unwrap().release().await.unwrap();
    }
}
/// Whoever gets no connection to wait on has the lock by the session that he has, when it is free. (Red: he waits for a connection.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_session_does_for_all() {
    let server = Server::with(FEW_CONNECTIONS);
    let url = server.url() + SESSION;
    let (a, b) = (client(&url).await, client(&url).await);
    b.mutex("y").lock().await.unwrap().release().await.unwrap();
    let held = soon(a.mutex("x").lock()).await.unwrap();
    let taken = Session::all(&server);
    let mut wait = tokio::spawn(b.mutex("x").lock());
    assert!(tokio::time::timeout(300 * MS, &mut wait).await.is_err());
    handed_over(held, wait).await;
    drop(taken);
}
/// What the server is set to end after a second is not what we wait by, nor what holds. (Red: its limits as they are, and a wait that it breaks off is over.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_patience() {
    let server = Server::with(IMPATIENT);
    for query in WAYS {
        let url = server.url() + query;
        let (a, b) = (client(&url).await, client(&url).await);
        let held = a.mutex(format!("x{query}")).ttl(6 * SEC).lock().await.unwrap();
        let wait = tokio::spawn(b.mutex(format!("x{query}")).ttl(6 * SEC).lock());
        queued(&a, &format!("x{query}"), 1).await;
        let since = Instant::now();
        while since.elapsed() < 7 * SEC {
            held.check().unwrap_or_else(|e| panic!("{query}: {e}"));
            assert!(!wait.is_finished(), "{query}: beside one who holds");
            tokio::time::sleep(50 * MS).await;
        }
        held.release().await.unwrap_or_else(|e| panic!("{query}: {e}"));
        let freed = Instant::now();
        within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
        println!("{query}: the next one is in after {:?}", freed.elapsed());
        assert!(freed.elapsed() < 6 * SEC, "{query}: {:?}", freed.elapsed());
    }
}
/// Somebody removes the tables: that is said, and what to do about it; and nothing is held by a session then. (Red: told as
/// anything that the server refuses.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_are_gone() {
    for query in ["", SESSION] {
        let server = Server::start();
        let a = client(&(server.url() + query)).await;
        let kept = a.mutex("x").ttl(9 * SEC).lock().await.unwrap();
        let released = a.mutex("z").ttl(9 * SEC).lock().await.unwrap();
        let wait = tokio::spawn(client(&(server.url() + query)).await.mutex("x").lock());
        queued(&a, "x", 1).await;
        let left = held(&server);
        server.ask("DROP TABLE fencelock_lock CASCADE");
        let mut refused = vec![a.mutex("y").try_lock().await.unwrap_err(), a.mutex("y").lock().await.unwrap_err()];
        // The end of its session may be told before.
        let told = soon(released.release()).await.unwrap_err();
        refused.extend(Some(told).filter(|error| query.is_empty() || error.kind() != ErrorKind::Lost));
        refused.push(soon(wait).await.unwrap().unwrap_err());
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{query}: {error}");
            let said = error.to_string();
            assert!(said.contains("fencelock_lock") && said.contains("fencelock migrate"), "{query}: {error}");
        }
        // A lease ends; a session does, since it cannot give back what it should.
        soon(kept.lost()).await;
        drop((kept, a));
        eventually("nothing is held", || std::future::ready(server.ask(&left) == "0")).await;
    }
}
/// Each of them alone, and back again: whoever needs it is told which, nobody has half of anything, and then all goes on.
/// (Red: as there.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_table_that_is_gone() {
    let leases: &[&str] = &["fencelock_lock", "fencelock_holder", "fencelock_waiter", "fencelock_client"];
    for (query, tables, claims, left) in [
        ("", leases, &CLAIMS[..], LEASES),
        (SESSION, &["fencelock_lock", "fencelock_bearer"], &SESSION_CLAIMS[..], SESSIONS),
        (SHEDLOCK, &["shedlock", "fencelock_shed"], &MUTEXES[..2], ROWS),
    ] {
        let server = Server::start();
        let url = server.url() + query;
        let (a, b) = (client(&url).await, client(&url).await);
        for table in tables {
            let mut held = Vec::new();
            for &(name, claim, _) in claims {
                held.push(Any::attempt(&a, &format!("{table}{name}"), claim).await.unwrap().expect("it is free"));
            }
            server.ask(&format!("ALTER TABLE {table} RENAME TO gone"));
            let (mut told, mut asked) = (0, 0);
            for &(name, claim, other) in claims {
                // Who waits for what is held, and who comes to what is free; not everybody needs each of them.
                for (name, claim) in [(format!("{table}{name}"), other), (format!("{table}{name}2"), claim)] {
                    asked += 1;
                    let Ok(Err(error)) = tokio::time::timeout(SEC, Any::lock(&b, &name, claim, SEC)).await else {
                        continue;
                    };
                    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{query} {table}: {error}");
                    let said = error.to_string();
                    assert!(said.contains(table) && said.contains("fencelock migrate"), "{query} {table}: {error}");
                    told += 1;
                }
            }
            println!("{query} {table}: told to {told} of {asked}");
            assert!(told > 0, "{query} {table}");
            server.ask(&format!("ALTER TABLE gone RENAME TO {table}"));
            for guard in held {
                guard.release().await.unwrap();
            }
            eventually("nothing is left", || std::future::ready(server.ask(left) == "0")).await;
            for &(name, claim, _) in claims {
                soon(Any::lock(&b, &format!("{table}{name}"), claim, SEC)).await.unwrap().release().await.unwrap();
            }
        }
    }
}
/// The same of those that cells need, and every new name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_cells_that_are_gone() {
    let server = Server::start();
    let a = client(&server.url()).await;
    for table in ["fencelock_cell", "fencelock_write", "fencelock_meta"] {
        let cell = a.cell(table);
        server.ask(&format!("ALTER TABLE {table} RENAME TO gone"));
        let error = soon(cell.update(|_| "v")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{table}: {error}");
        let said = error.to_string();
        assert!(said.contains(table) && said.contains("fencelock migrate"), "{error}");
        server.ask(&format!("ALTER TABLE gone RENAME TO {table}"));
        soon(cell.update(|_| "v")).await.unwrap();
    }
}
/// Names of every plane of Unicode, of 512 bytes, and with what means something to SQL.
fn odd_names() -> Vec<String> {
    let planes = (0..=16_u32).flat_map(|plane| [0x41, 0x1_0, 0xfffd].map(|c| char::from_u32((plane << 16) + c)));
    let mut names: Vec<String> = planes.flatten().filter(|c| !c.is_control()).map(String::from).collect();
    names.extend(["x".repeat(512), "x".repeat(511) + "y", "\u{10fffd}".repeat(128), "é".repeat(256)]);
    names.extend(
        ["'; DROP TABLE fencelock_lock; --", "*/ -- $f$ \\ \" %s", "E'\\''", "a b", "A", "a"].map(String::from),
    );
    names.sort_unstable();
    names.dedup();
    names
}
/// Two clients that share a namespace of this name.
async fn two_in(url: &str, namespace: &str) -> [Client; 2] {
    let mut config = Config::from_url(url).unwrap();
    config.namespace = namespace.to_owned();
    [client_with(config.clone()).await, client_with(config).await]
}
/// Each of them is its own lock, told as it is. (Red: texts without quotes.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names() {
    for query in WAYS {
        let server = Server::start();
        names_by(&server, &(server.url() + query)).await;
    }
}
pub(super) async fn names_by(server: &Server, url: &str) {
    let names = odd_names();
    let [a, b] = two_in(url, "räume '; --").await;
    for name in &names {
        let held = a.mutex(name).ttl(60 * SEC).lock().await.unwrap_or_else(|e| panic!("{name:?}: {e}"));
        assert!(b.mutex(name).try_lock().await.unwrap().is_err(), "{name:?}");
        let status = b.inspect(name).await.unwrap();
        assert_eq!((status.name.as_str(), status.holders[0].token), (name.as_str(), held.token()));
        let wait = tokio::spawn(b.mutex(name).lock());
        queued(&a, name, 1).await;
        held.release().await.unwrap();
        within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
    }
    let known: usize = server.ask("SELECT COUNT(*) FROM fencelock_lock").parse().unwrap();
    assert_eq!(known, names.len());
    println!("{known} names");
}
/// The same of writers, readers and permits, and of values. All of them are held at once: none is another one's. (Red: the first 255 letters of a
/// name.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_what_is_no_mutex() {
    let (names, server) = (odd_names(), Server::start());
    let leases = CLAIMS[1..].iter().map(|claim| ("", claim));
    let sessions = SESSION_CLAIMS.iter().filter(|(_, claim, _)| *claim != Claim::Mutex).map(|claim| (SESSION, claim));
    let all: Vec<_> = leases.chain(sessions).collect();
    for (n, (query, (_, claim, beside))) in all.iter().enumerate() {
        let [a, b] = two_in(&(server.url() + query), &format!("räume '; -- {n}")).await;
        let mut held = Vec::new();
        for name in &names {
            let guard = Any::attempt(&a, name, *claim).await.unwrap_or_else(|e| panic!("{name:?}: {e}"));
            held.push(guard.unwrap_or_else(|| panic!("{name:?} is another one's")));
            assert!(Any::is_busy(&b, name, *beside).await, "{name:?}");
            let status = b.inspect(name).await.unwrap();
            assert_eq!((status.name.as_str(), status.holders[0].claim), (name.as_str(), *claim));
        }
        for guard in held {
            guard.release().await.unwrap();
        }
        for name in &names {
            Any::attempt(&b, name, *beside).await.unwrap().expect("it is free").release().await.unwrap();
        }
    }
    let [a, b] = two_in(&server.url(), "räume '; -- c").await;
    for name in &names {
        let version = a.cell(name).compare_exchange(Version::NONE, name.as_bytes()).await;
        version.unwrap_or_else(|e| panic!("{name:?}: {e}")).unwrap_or_else(|_| panic!("{name:?} is another one's"));
    }
    for name in &names {
        assert_eq!(b.cell(name).load().await.unwrap().value.as_deref(), Some(name.as_bytes()), "{name:?}");
    }
    let known: usize = server.ask("SELECT COUNT(*) FROM fencelock_lock").parse().unwrap();
    assert_eq!(known, (all.len() + 1) * names.len());
}
