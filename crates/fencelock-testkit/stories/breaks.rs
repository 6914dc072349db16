//! What breaks, and what is odd: a server that is killed, connections that are ended or not to be had, tables that are gone, names. The same
//! on every database, for the tests that bring `Server`, `Engine`, `Config`, `NAME`, `LEASES` and `SESSIONS`, which count what is left,
//! `FEW_CONNECTIONS`, `durable`, and `kills`.
use super::*;

const SESSION: &str = "?strategy=session";

/// The server is killed and comes again while 16 want one lock: nobody is told but what passes, nobody is beside anybody, none is stuck.
async fn restarted(what: &str, query: &str, left: &str) {
    let server = durable();
    let (inside, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut all = Vec::new();
    for _ in 0..16 {
        let client = client(&(server.url() + query)).await;
        // What lives with a session ends with its server.
        let (inside, stop, is_lease) = (inside.clone(), stop.clone(), query.is_empty());
        all.push(tokio::spawn(async move {
            let (mut tokens, mut errors) = (Vec::new(), 0);
            while !stop.load(SeqCst) {
                match client.mutex("x").ttl(20 * SEC).lock().await {
                    Ok(guard) => {
                        assert!(!inside.swap(true, SeqCst), "two at once");
                        tokens.push(guard.token());
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
            (tokens, errors)
        }));
    }
    let mut back = Vec::new();
    for _ in 0..tenth(20) {
        tokio::time::sleep(500 * MS).await;
        server.kill();
        assert!(tokio::task::block_in_place(|| server.restart()));
        let began = Instant::now();
        let last = server.ask("SELECT fence FROM fencelock_lock");
        eventually("somebody gets it", || std::future::ready(server.ask("SELECT fence FROM fencelock_lock") != last))
            .await;
        back.push(began.elapsed());
    }
    stop.store(true, SeqCst);
    let (mut tokens, mut errors) = (Vec::new(), 0);
    for one in all {
        let one = within("it ends", one).await.unwrap();
        assert!(!one.0.is_empty(), "somebody never got it");
        tokens.extend(one.0);
        errors += one.1;
    }
    let many = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), many, "a token twice");
    eventually("nothing is left", || std::future::ready(server.ask(left) == "0")).await;
    let (of, worst) = (back.len(), percentile(&mut back, 1.0));
    let figure = format!("{worst:?} of {of}, {many} holds, {errors} passing errors, 0 overlaps");
    bar(&format!("{what}: restarted while 16 contend: the next grant, slowest"), figure, "<= 3 s", worst <= 3 * SEC);
}
/// (Red: a connection that broke and is kept.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_under_load() {
    restarted(NAME, "", LEASES).await;
}
/// (Red: a wait that is told of its connection's end.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_under_sessions() {
    restarted(&format!("{NAME}, sessions"), SESSION, SESSIONS).await;
}
/// Sessions are ended by an operator at every step: all that was asked is done once, nothing is held, nobody waits. (Red: a connection
/// that broke and is kept.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_killed_at_any_step() {
    let server = Server::start();
    let mut clients = Vec::new();
    for _ in 0..=CLAIMS.len() {
        clients.push(client(&server.url()).await);
    }
    let a = clients.pop().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut killer = Session::new(&server);
    let kill = kills(&server);
    let killed = Arc::<std::sync::atomic::AtomicU32>::default();
    let kills = std::thread::spawn({
        let (stop, killed) = (stop.clone(), killed.clone());
        move || {
            while !stop.load(SeqCst) {
                std::thread::sleep(MS * fastrand::u32(1..30));
                killed.fetch_add(killer.ask(kill).parse().unwrap(), SeqCst);
            }
        }
    });
    let (mut done, mut all) = (0, Vec::new());
    for ((name, claim, other), beside) in CLAIMS.into_iter().zip(clients) {
        let (client, killed) = (a.clone(), killed.clone());
        all.push(tokio::spawn(async move {
            let mut done = 0;
            // However quick they are, they are cut.
            while done < 2 * tenth(500) || killed.load(SeqCst) <= 20 {
                let held = soon(Any::lock(&client, name, claim, 30 * SEC)).await.unwrap();
                let wait = tokio::spawn({
                    let beside = beside.clone();
                    async move { Any::lock(&beside, name, other, 30 * SEC).await }
                });
                tokio::time::sleep(MS * fastrand::u32(0..5)).await;
                soon(held.release()).await.unwrap();
                let next = soon(wait).await.unwrap().unwrap();
                soon(next.release()).await.unwrap();
                done += 2;
            }
            done
        }));
    }
    for one in all {
        done += one.await.unwrap();
    }
    stop.store(true, SeqCst);
    tokio::task::block_in_place(|| kills.join().unwrap());
    let killed = killed.load(SeqCst);
    eventually("nothing is left", || std::future::ready(server.ask(LEASES) == "0")).await;
    let figure = format!("0 of {done} holds, {killed} connections killed");
    bar(&format!("{NAME}: connections killed at any step: lost, or left"), figure, "0", true);
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
/// Somebody removes the tables, or a right: that is said, and what to do about it. (Red: told as anything that the server refuses.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_are_gone() {
    let server = Server::start();
    let a = client(&server.url()).await;
    let held = a.mutex("x").ttl(2 * SEC).lock().await.unwrap();
    server.ask("DROP TABLE fencelock_lock CASCADE");
    for error in [a.mutex("y").try_lock().await.unwrap_err(), a.mutex("y").lock().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains("fencelock_lock"), "{error}");
    }
    soon(held.lost()).await;
}
/// Names of every plane of Unicode, of 512 bytes, and with what means something to SQL: each is its own lock, told as it is. (Red: texts
/// without quotes.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names() {
    for query in ["", SESSION] {
        let server = Server::start();
        let mut config = Config::from_url(&(server.url() + query)).unwrap();
        config.namespace = "räume '; --".to_owned();
        let (a, b) = (client_with(config.clone()).await, client_with(config).await);
        let planes = (0..=16_u32).flat_map(|plane| [0x41, 0x1_0, 0xfffd].map(|c| char::from_u32((plane << 16) + c)));
        let mut names: Vec<String> = planes.flatten().filter(|c| !c.is_control()).map(String::from).collect();
        names.extend(["x".repeat(512), "\u{10fffd}".repeat(128), "é".repeat(256)]);
        names.extend(
            ["'; DROP TABLE fencelock_lock; --", "*/ -- $f$ \\ \" %s", "E'\\''", "a b", "A", "a"].map(String::from),
        );
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
        names.sort_unstable();
        names.dedup();
        assert_eq!(known, names.len());
        println!("{known} names");
    }
}
