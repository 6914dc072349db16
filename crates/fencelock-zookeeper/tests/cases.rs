//! What once went wrong elsewhere: sessions that end, servers that go and come, nodes that vanish in between.
//!
//! Planted to see them go red: the end of a session that nobody is told of.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::{eventually, proxy::Proxy, within};
use fencelock_core::{Client, ErrorKind, LossReason};
use fencelock_testkit::{Folder, Port, ZooKeeper, ZooKeeperOptions, processes};
use fencelock_zookeeper::{Config, ZooKeeperEngine};
use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::{
    task::block_in_place,
    time::{sleep, timeout},
};

async fn of(url: &str, ttl: Duration) -> Client {
    let mut config = Config::from_url(url).unwrap();
    config.ttl = ttl;
    built(ZooKeeperEngine::connect(config).await.unwrap())
}
async fn by(proxy: &Proxy, ttl: Duration) -> Client {
    of(&format!("zookeeper://{}", proxy.address()), ttl).await
}
async fn waits(client: &Client, name: &str, n: usize) {
    eventually("they wait", || async { client.inspect(name).await.is_ok_and(|status| status.waiters.len() == n) })
        .await;
}
fn nodes(zk: &ZooKeeper) -> Vec<String> {
    block_in_place(|| traces(zk))
}
async fn nothing_left(zk: &ZooKeeper) {
    eventually("nothing is left", || async { nodes(zk).is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_session_ends_makes_way() {
    let zk = ZooKeeper::start();
    let (a, b) = (client(&zk, 10 * SEC).await, client(&zk, 10 * SEC).await);
    let writer = a.rw_lock("x").write().await.unwrap();
    let reader = tokio::spawn(b.rw_lock("x").read());
    waits(&b, "x", 1).await;
    block_in_place(|| zk.end_session_of(writer.place().unwrap()));
    assert_eq!(within("it is told", writer.lost()).await, LossReason::SessionEnded);
    let reader = within("its turn", reader).await.unwrap().unwrap();
    // In a new session he waits again, and gets it.
    let again = tokio::spawn(a.rw_lock("x").write());
    waits(&b, "x", 1).await;
    reader.release().await.unwrap();
    within("its turn", again).await.unwrap().unwrap().release().await.unwrap();
    nothing_left(&zk).await;
}

/// For longer than a session lasts there is no server at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_are_told_and_come_again_when_all_servers_were_gone() {
    let zk = ZooKeeper::cluster();
    let (a, b) = (client(&zk, 5 * SEC).await, client(&zk, 5 * SEC).await);
    let (one, other) = (a.semaphore("s", 2).acquire(1).await.unwrap(), b.semaphore("s", 2).acquire(1).await.unwrap());
    let term = a.election("e").campaign("a").await.unwrap();
    // Told that there is no server, it comes again.
    let candidate = b.clone();
    let next = tokio::spawn(async move {
        loop {
            match candidate.election("e").campaign("b").await {
                Err(error) if error.is_temporary() => {}
                end => break end,
            }
        }
    });
    (0..3).for_each(|member| zk.kill(member));
    for lost in [within("it is told", one.lost()).await, within("it is told", other.lost()).await] {
        assert!(matches!(lost, LossReason::Expired | LossReason::Unreachable | LossReason::SessionEnded), "{lost:?}");
    }
    within("the leader is told", term.lost()).await;
    block_in_place(|| {
        zk.begin(0);
        zk.begin(1);
        zk.restart(2);
    });
    drop((one, other, term));
    // Servers that begin are not quick.
    let next = timeout(30 * SEC, next).await.expect("somebody leads").unwrap().unwrap();
    // A server tells what it has heard; the one of `a` may have begun a moment ago.
    let sees = || async { a.election("e").leader().await.unwrap().is_some_and(|leader| &*leader.candidate == "b") };
    eventually("the leader is seen", sees).await;
    let one = timeout(30 * SEC, a.semaphore("s", 2).acquire(1)).await.expect("a permit").unwrap();
    let other = timeout(30 * SEC, b.semaphore("s", 2).acquire(1)).await.expect("a permit").unwrap();
    assert!(b.semaphore("s", 2).try_acquire(1).await.unwrap().is_err());
    one.release().await.unwrap();
    other.release().await.unwrap();
    next.resign().await.unwrap();
    nothing_left(&zk).await;
}

/// One permit, three who want it, and a leader that is killed, twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_has_the_permit_while_leaders_are_killed() {
    let (zk, folder) = (ZooKeeper::cluster(), Folder::new("permit"));
    let (file, stop, grants) =
        (folder.path().join("holder"), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for n in 0..3 {
        let client = client(&zk, 5 * SEC).await;
        let (file, stop, grants) = (file.clone(), stop.clone(), grants.clone());
        tasks.push(tokio::spawn(async move {
            while !stop.load(SeqCst) {
                let Ok(permit) = client.semaphore("s", 1).acquire(1).await else { continue };
                fs::write(&file, n.to_string()).unwrap();
                sleep(Duration::from_millis(5)).await;
                let alone = fs::read_to_string(&file).unwrap() == n.to_string();
                assert!(alone || !permit.is_valid(), "two have it");
                grants.fetch_add(1, SeqCst);
                let _ = permit.release().await;
            }
        }));
    }
    for _ in 0..2 {
        let before = grants.load(SeqCst);
        block_in_place(|| processes::eventually("they work", 40 * SEC, || grants.load(SeqCst) > before + 10));
        let leader = block_in_place(|| {
            let mut leader = None;
            processes::eventually("somebody leads", 40 * SEC, || {
                leader = zk.leader();
                leader.is_some()
            });
            let leader = leader.unwrap();
            zk.kill(leader);
            leader
        });
        let before = grants.load(SeqCst);
        // An election, and the session of whoever had it, where that was too long for him.
        let goes_on = || grants.load(SeqCst) > before + 10;
        block_in_place(|| processes::eventually("they go on", 40 * SEC, goes_on));
        block_in_place(|| zk.restart(leader));
    }
    stop.store(true, SeqCst);
    for task in tasks {
        within("it ends", task).await.unwrap();
    }
    nothing_left(&zk).await;
}

/// Short ones, which cost nothing, and long ones, which cost the term: it is told once, and one leads at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_outages_in_a_row() {
    let zk = ZooKeeper::start();
    let clients = [client(&zk, 5 * SEC).await, client(&zk, 5 * SEC).await];
    let (told, leads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = clients.clone().map(|client| {
        let (told, leads, stop) = (told.clone(), leads.clone(), stop.clone());
        tokio::spawn(async move {
            while !stop.load(SeqCst) {
                let Ok(term) = client.election("e").campaign("one").await else { continue };
                leads.fetch_add(1, SeqCst);
                tokio::select! {
                    _ = term.lost() => drop(told.fetch_add(1, SeqCst)),
                    () = async { while !stop.load(SeqCst) { sleep(SEC / 50).await } } => drop(term.resign().await),
                }
            }
        })
    });
    let led = |n: usize| {
        let leads = leads.clone();
        eventually("one leads", move || {
            let leads = leads.clone();
            async move { leads.load(SeqCst) >= n }
        })
    };
    led(1).await;
    for (n, long) in [false, true, false, true].into_iter().enumerate() {
        zk.kill(0);
        sleep(if long { 8 * SEC } else { SEC / 5 }).await;
        block_in_place(|| zk.restart(0));
        let ended = told.load(SeqCst);
        // A short one may last longer than the session on a busy machine.
        assert!(ended <= n + 1 && (!long || ended > n / 2), "after {} outages {ended} terms have ended", n + 1);
        led(ended + 1).await;
        eventually("it is seen", || async { matches!(clients[0].election("e").leader().await, Ok(Some(_))) }).await;
    }
    eventually("one leads, and no other", || async { leads.load(SeqCst) == told.load(SeqCst) + 1 }).await;
    stop.store(true, SeqCst);
    for task in tasks {
        within("it ends", task).await.unwrap();
    }
    nothing_left(&zk).await;
}

/// Whoever cleans up deletes the name's node whenever it is empty, in the middle of what contenders do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_whose_node_comes_and_goes() {
    let options = ZooKeeperOptions { reap: Duration::from_millis(5), ..ZooKeeperOptions::default() };
    let (zk, folder, stop) = (ZooKeeper::with(options), Folder::new("counter"), Arc::new(AtomicBool::new(false)));
    let deleted = Arc::new(AtomicUsize::new(0));
    let cleaner = thread::spawn({
        let (mut shell, stop, deleted) = (zk.shell(), stop.clone(), deleted.clone());
        move || {
            while !stop.load(SeqCst) {
                deleted.fetch_add(usize::from(shell.delete("/fencelock/x").unwrap_or(false)), SeqCst);
                // Whoever comes has a chance to be there before it is deleted again.
                thread::sleep(Duration::from_millis(fastrand::u64(0..6)));
            }
        }
    });
    let file = folder.path().join("counter");
    fs::write(&file, "0").unwrap();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let (client, file, deleted) = (client(&zk, 10 * SEC).await, file.clone(), deleted.clone());
        tasks.push(tokio::spawn(async move {
            let mut rounds = 0;
            // Until it has bitten.
            while rounds < 100 || deleted.load(SeqCst) <= 10 {
                rounds += 1;
                let guard = client.mutex("x").lock().await.unwrap();
                let n: u64 = fs::read_to_string(&file).unwrap().parse().unwrap();
                fs::write(&file, (n + 1).to_string()).unwrap();
                guard.release().await.unwrap();
                // Now and then nobody is there.
                sleep(Duration::from_micros(fastrand::u64(0..5_000))).await;
            }
            rounds
        }));
    }
    let mut rounds = 0;
    for task in tasks {
        rounds += timeout(60 * SEC, task).await.expect("they get on").unwrap();
    }
    stop.store(true, SeqCst);
    cleaner.join().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), rounds.to_string());
    nothing_left(&zk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_predecessor_goes_while_we_reconnect() {
    let zk = ZooKeeper::start();
    let (proxy, server) = (in_front_of(&zk, 0), ([127, 0, 0, 1], zk.client_port(0)).into());
    let (a, b) = (client(&zk, 10 * SEC).await, by(&proxy, 10 * SEC).await);
    let guard = a.mutex("x").lock().await.unwrap();
    let next = tokio::spawn(b.mutex("x").lock());
    waits(&a, "x", 1).await;
    let nobody = Port::free();
    proxy.lead_to(([127, 0, 0, 1], nobody.number()).into());
    proxy.cut();
    guard.release().await.unwrap();
    sleep(SEC / 2).await;
    assert!(!next.is_finished());
    proxy.lead_to(server);
    let next = within("its turn", next).await.unwrap().unwrap();
    assert_eq!(nodes(&zk), [next.place().unwrap()]);
    next.release().await.unwrap();
    nothing_left(&zk).await;
}

/// They come, give up, come again, resign; one leads at the end, and each has one node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_that_start_over() {
    let zk = ZooKeeper::start();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(client(&zk, 10 * SEC).await);
    }
    let tasks: Vec<_> = clients
        .iter()
        .map(|client| {
            let election = client.election("e");
            tokio::spawn(async move {
                for _ in 0..60 {
                    let patience = Duration::from_micros(fastrand::u64(0..20_000));
                    if let Ok(Ok(term)) = timeout(patience, election.campaign("one")).await
                        && fastrand::bool()
                    {
                        term.resign().await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        within("they come and go", task).await.unwrap();
    }
    nothing_left(&zk).await;
    let mut last: Vec<_> = clients.iter().map(|client| Box::pin(client.election("e").campaign("last"))).collect();
    let term = within("one leads", &mut last[0]).await.unwrap();
    for other in &mut last[1..] {
        assert!(timeout(SEC / 4, other).await.is_err(), "two lead");
    }
    assert_eq!(nodes(&zk).len(), 3);
    term.resign().await.unwrap();
    within("the next one leads", &mut last[1]).await.unwrap().resign().await.unwrap();
}

/// Those who wait lose their nodes to somebody's hand, at any moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_vanish_while_many_wait() {
    let zk = ZooKeeper::start();
    let (mut tasks, bites) = (Vec::new(), Arc::new(AtomicBool::new(false)));
    for _ in 0..6 {
        let (client, bites) = (client(&zk, 10 * SEC).await, bites.clone());
        tasks.push(tokio::spawn(async move {
            let mut rounds = 0;
            while rounds < 20 || !bites.load(SeqCst) {
                rounds += 1;
                let guard = client.mutex("x").lock().await.unwrap();
                sleep(Duration::from_millis(1)).await;
                // Its own node may be the one that was deleted.
                let _ = guard.release().await;
            }
        }));
    }
    let (began, mut vanished) = (Instant::now(), 0);
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        let all = nodes(&zk);
        if let Some(node) = fastrand::choice(&all) {
            vanished += usize::from(block_in_place(|| zk.shell().delete(node).unwrap_or(false)));
        }
        bites.store(vanished > 5, SeqCst);
        assert!(began.elapsed() < 60 * SEC, "stuck, or {vanished} do not bite");
        sleep(Duration::from_millis(2)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    nothing_left(&zk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_interrupted_leaves_nothing() {
    let zk = ZooKeeper::start();
    let client = client(&zk, 60 * SEC).await;
    let election = client.election("e");
    let leads = tokio::spawn(async move {
        let _term = election.campaign("one").await.unwrap();
        std::future::pending::<()>().await;
    });
    eventually("it leads", || async { matches!(client.election("e").leader().await, Ok(Some(_))) }).await;
    leads.abort();
    nothing_left(&zk).await;
    assert!(client.election("e").leader().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_flaps_costs_nothing() {
    let zk = ZooKeeper::start();
    let proxy = in_front_of(&zk, 0);
    let client = by(&proxy, 10 * SEC).await;
    let guard = client.mutex("x").lock().await.unwrap();
    let next = tokio::spawn(client.mutex("x").lock());
    waits(&client, "x", 1).await;
    let before = nodes(&zk);
    for _ in 0..20 {
        proxy.cut();
        sleep(Duration::from_millis(fastrand::u64(0..100))).await;
    }
    assert_eq!((nodes(&zk).len(), before.len()), (2, 2), "one each");
    guard.check().unwrap();
    within("it is given back", guard.release()).await.unwrap();
    let next = within("its turn", next).await.unwrap().unwrap();
    assert_eq!(nodes(&zk).len(), 1);
    next.release().await.unwrap();
    nothing_left(&zk).await;
}

/// A term is its session's: connections that break end none, and it is over with the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_outlives_a_cut_and_not_its_session() {
    let zk = ZooKeeper::start();
    let proxy = in_front_of(&zk, 0);
    let (a, b) = (by(&proxy, 10 * SEC).await, client(&zk, 10 * SEC).await);
    let term = a.election("e").campaign("a").await.unwrap();
    let next = tokio::spawn(b.election("e").campaign("b"));
    waits(&b, "e", 1).await;
    for _ in 0..5 {
        proxy.cut();
        within("it is back", a.election("e").leader()).await.unwrap();
        term.check().unwrap();
    }
    assert_eq!(&*b.election("e").leader().await.unwrap().unwrap().candidate, "a");
    assert!(!next.is_finished());
    let own = nodes(&zk).into_iter().min_by_key(|node| node[node.len() - 10..].to_owned()).unwrap();
    block_in_place(|| zk.end_session_of(&own));
    assert_eq!(within("it is told", term.lost()).await, LossReason::SessionEnded);
    let next = within("the other one leads", next).await.unwrap().unwrap();
    assert_eq!(&*b.election("e").leader().await.unwrap().unwrap().candidate, "b");
    next.resign().await.unwrap();
    nothing_left(&zk).await;
}

/// It is finished later, and the session goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_without_a_connection() {
    let zk = ZooKeeper::start();
    let proxy = in_front_of(&zk, 0);
    let (a, b) = (by(&proxy, 30 * SEC).await, client(&zk, 30 * SEC).await);
    let (guard, keeps) = (a.mutex("x").lock().await.unwrap(), a.mutex("y").lock().await.unwrap());
    let next = tokio::spawn(b.mutex("x").lock());
    waits(&b, "x", 1).await;
    proxy.silent(true);
    drop(guard);
    sleep(SEC).await;
    proxy.silent(false);
    proxy.cut();
    within("its turn", next).await.unwrap().unwrap().release().await.unwrap();
    keeps.check().unwrap();
    keeps.release().await.unwrap();
    nothing_left(&zk).await;
}

/// Sessions are ended under those who hold, wait, and come. Whoever held hears of it at once, though not before the next one may be in:
/// somebody's hand gives no notice. Nobody takes what is left of his old session for his own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_session_that_ends_is_nobodys() {
    let zk = ZooKeeper::start();
    let (stop, spans) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (client, stop, spans) = (client(&zk, 10 * SEC).await, stop.clone(), spans.clone());
        tasks.push(tokio::spawn(async move {
            while !stop.load(SeqCst) {
                let Ok(guard) = client.mutex("x").lock().await else { continue };
                let (began, mut ended) = (Instant::now(), None);
                for _ in 0..5 {
                    sleep(Duration::from_millis(1)).await;
                    let now = Instant::now();
                    if guard.is_valid() {
                        ended = Some(now);
                    }
                }
                if let Some(ended) = ended {
                    spans.lock().unwrap().push((began, ended, guard.token()));
                }
                let _ = guard.release().await;
            }
        }));
    }
    let (began, mut sessions) = (Instant::now(), 0);
    // Until it has bitten.
    while sessions < 8 || spans.lock().unwrap().len() <= 50 {
        assert!(began.elapsed() < 60 * SEC, "{sessions} sessions, {} holds", spans.lock().unwrap().len());
        sleep(SEC / 4).await;
        let all = nodes(&zk);
        if sessions < 8
            && let Some(node) = fastrand::choice(&all)
        {
            block_in_place(|| zk.end_session_of(node));
            sessions += 1;
        }
    }
    stop.store(true, SeqCst);
    for task in tasks {
        within("it ends", task).await.unwrap();
    }
    let mut spans = std::mem::take(&mut *spans.lock().unwrap());
    spans.sort();
    let mut beside = 0;
    for pair in spans.windows(2) {
        assert!(pair[0].2 < pair[1].2, "tokens rise");
        if pair[0].1 > pair[1].0 {
            beside += 1;
            assert!(pair[0].1 - pair[1].0 < SEC / 4, "two held it for {:?}", pair[0].1 - pair[1].0);
        }
    }
    assert!(beside <= sessions, "{beside} times two held it, {sessions} sessions were ended");
    nothing_left(&zk).await;
}

/// Somebody in between makes of a session that is to be taken over a new one, and the server grants it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_session_in_silence_is_the_end_of_the_first() {
    let zk = ZooKeeper::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    thread::spawn({
        let (open, port) = (open.clone(), zk.client_port(0));
        move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                open.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (mut answers, mut hears) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut answers, &mut hears));
                thread::spawn(move || {
                    // Length, version, the last transaction, timeout, session, password.
                    let mut hello = [0; 48];
                    client.read_exact(&mut hello)?;
                    hello[20..28].fill(0);
                    hello[32..48].fill(0);
                    server.write_all(&hello)?;
                    std::io::copy(&mut client, &mut server)
                });
            }
        }
    });
    let client = of(&format!("zookeeper://{address}"), 3 * SEC).await;
    let guard = client.mutex("x").lock().await.unwrap();
    for end in open.lock().unwrap().drain(..) {
        let _ = end.shutdown(Shutdown::Both);
    }
    assert_eq!(within("it is told", guard.lost()).await, LossReason::SessionEnded);
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    let next = within("when the old one is over", client.mutex("x").lock()).await.unwrap();
    assert!(next.token() > guard.token());
}

/// A user's own write, in one transaction with a look whether the hold's node is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_guarded_by_the_holds_own_node() {
    let zk = ZooKeeper::start();
    let client = client(&zk, 10 * SEC).await;
    let mut shell = zk.shell();
    shell.create("/data", b"old", 0).unwrap();
    let guard = client.mutex("x").lock().await.unwrap();
    let node = guard.place().unwrap().to_owned();
    assert!(shell.set_if(&node, "/data", b"new").unwrap());
    guard.release().await.unwrap();
    assert!(!shell.set_if(&node, "/data", b"late").unwrap());
    assert_eq!(shell.data("/data").unwrap().unwrap(), b"new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_each_of_two_chroots() {
    let zk = ZooKeeper::start();
    let (a, b) = (of(&(zk.url() + "/one"), 60 * SEC).await, of(&(zk.url() + "/two/deep"), 60 * SEC).await);
    let (mine, theirs) = (a.mutex("x").lock().await.unwrap(), b.mutex("x").lock().await.unwrap());
    assert!(mine.place().unwrap() != theirs.place().unwrap());
    assert!(a.mutex("x").try_lock().await.unwrap().is_err());
    drop((mine, theirs));
    let contender = |node: &String| node.contains("-lock-");
    let left = || block_in_place(|| zk.nodes("/")).iter().any(contender);
    eventually("nothing is left", || async { !left() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_size_is_told_and_left_alone() {
    let zk = ZooKeeper::start();
    let client = client(&zk, 10 * SEC).await;
    client.semaphore("s", 2).acquire(1).await.unwrap().release().await.unwrap();
    for junk in [&b"many"[..], b"-1", b"2.5", b"\xFF"] {
        let mut shell = zk.shell();
        // The node goes when it has not been used for a while.
        let _ = shell.create("/fencelock/s", b"", 0);
        shell.set("/fencelock/s", junk).unwrap();
        for error in [
            client.semaphore("s", 2).try_acquire(1).await.unwrap_err(),
            client.semaphore("s", 2).acquire(1).await.unwrap_err(),
            client.semaphore("s", 2).resize(2, 3).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
        }
        assert_eq!(shell.data("/fencelock/s").unwrap().unwrap(), junk);
        assert_eq!(nodes(&zk), [""; 0]);
        shell.set("/fencelock/s", b"").unwrap();
        client.semaphore("s", 2).acquire(1).await.unwrap().release().await.unwrap();
    }
}
