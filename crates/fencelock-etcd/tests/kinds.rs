//! Read-write locks, semaphores, cells and elections on a real server, beside etcd's own client.
//!
//! Planted to see them go red: a claim that does not ask for the other kinds.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/late.rs"]
mod late;
use common::*;
use fencelock_conformance::{eventually, within};
use fencelock_core::{Claim, Client, ErrorKind, Kind, Version};
use fencelock_testkit::{
    Etcd as Server, Etcd, Folder,
    processes::{bar, full, tenth},
};
use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::Duration,
};

async fn waiters(client: &Client, name: &str, n: usize) {
    eventually("they wait", || async { client.inspect(name).await.unwrap().waiters.len() == n }).await;
}

/// One call to read beside readers, one to write; one more for each turn that was waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_shared_locks_are_counted() {
    let etcd = Etcd::start();
    let [a, b] = counted(&etcd).await;
    for client in [&a, &b] {
        client.semaphore("s", 3).acquire(1).await.unwrap().release().await.unwrap();
    }
    let txns = |n: f64| assert_eq!((calls(&etcd, "Txn"), calls(&etcd, "Range")), (n, 0.0));
    let n = calls(&etcd, "Txn");
    let readers = (a.rw_lock("rw").read().await.unwrap(), b.rw_lock("rw").read().await.unwrap());
    txns(n + 2.0);
    readers.0.release().await.unwrap();
    readers.1.release().await.unwrap();
    a.rw_lock("rw").write().await.unwrap().release().await.unwrap();
    txns(n + 6.0);
    let one = a.semaphore("s", 3).acquire(1).await.unwrap();
    txns(n + 7.0);
    // Beside others it comes, and writes that it fits in.
    let two = b.semaphore("s", 3).acquire(1).await.unwrap();
    txns(n + 9.0);
    let three = tokio::spawn(b.semaphore("s", 3).acquire(2));
    waiters(&a, "s", 1).await;
    // Those of two holds, its own key, whoever goes, and the size.
    watched(&etcd, 5.0).await;
    let n = calls(&etcd, "Txn");
    one.release().await.unwrap();
    let three = within("its turn", three).await.unwrap().unwrap();
    txns(n + 2.0);
    two.release().await.unwrap();
    three.release().await.unwrap();
}

/// A writer who gives the right to write back reads on: nobody who waits to write gets in between (SAFETY E1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_becomes_a_reader_and_no_key_is_written_twice() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    let writer = a.rw_lock("rw").write().await.unwrap();
    let token = writer.token();
    let reader = tokio::spawn(b.rw_lock("rw").read());
    waiters(&a, "rw", 1).await;
    let next = tokio::spawn(b.rw_lock("rw").write());
    waiters(&a, "rw", 2).await;
    let ours = writer.downgrade().await.unwrap();
    let theirs = within("it reads beside us", reader).await.unwrap().unwrap();
    let status = a.inspect("rw").await.unwrap();
    assert_eq!(status.holders.iter().map(|holder| holder.claim).collect::<Vec<_>>(), [Claim::Read; 2]);
    assert!(!next.is_finished());
    // etcd numbers the writes of a key.
    let versions = etcd.run(&["get", "--prefix", "fencelock/%rw/", "-w", "fields"]);
    let versions: Vec<_> = versions.lines().filter_map(|line| line.strip_prefix("\"Version\" : ")).collect();
    assert_eq!(versions, ["1"; 4], "two read, and one of two keys waits to write");
    ours.release().await.unwrap();
    assert!(!next.is_finished());
    theirs.release().await.unwrap();
    let next = within("its turn", next).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// Half of a writer is no writer: whoever waited comes anew, and whoever held is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_without_one_of_its_keys_is_none() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    let reader = a.rw_lock("rw").read().await.unwrap();
    let writer = tokio::spawn(b.rw_lock("rw").write());
    waiters(&a, "rw", 1).await;
    etcd.run(&["del", "--prefix", "fencelock/%rw/rw/w/"]);
    let beside = within("nobody waits to write", a.rw_lock("rw").read()).await.unwrap();
    reader.release().await.unwrap();
    eventually("it waits anew", || async { etcd.run(&["get", "--prefix", "fencelock/%rw/rw/w/"]).len() > 1 }).await;
    assert!(!writer.is_finished());
    beside.release().await.unwrap();
    let writer = within("its turn", writer).await.unwrap().unwrap();
    // So old a hold is watched.
    tokio::time::sleep(SEC + SEC / 4).await;
    etcd.run(&["del", "--prefix", "fencelock/%rw/rw/w/"]);
    assert_eq!(within("told", writer.lost()).await, fencelock_core::LossReason::TakenOver);
    within("nothing is left", a.rw_lock("rw").write()).await.unwrap().release().await.unwrap();
}

/// What is given back leaves nothing, also where somebody has deleted its first key before anybody looked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_what_was_half_deleted_leaves_nothing() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    let writer = a.rw_lock("rw").write().await.unwrap();
    etcd.run(&["del", writer.place().unwrap()]);
    assert!(writer.release().await.is_err(), "it was held no more");
    within("free", b.rw_lock("rw").write()).await.unwrap().release().await.unwrap();
    let guard = a.mutex("m").lock().await.unwrap();
    etcd.run(&["del", guard.place().unwrap()]);
    assert!(guard.release().await.is_err());
    assert!(!etcd.run(&["get", "--prefix", "fencelock/%who/", "--keys-only"]).contains("/m/"));
}

/// The next one's job has to wait, however the first one's client ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_least_outlives_a_shutdown() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    let began = std::time::Instant::now();
    let job = a.mutex("cron").ttl(10 * SEC).at_least(8 * SEC).lock().await.unwrap();
    a.mutex("other").lock().await.unwrap().release().await.unwrap();
    job.release().await.unwrap();
    a.shutdown(10 * SEC).await.unwrap();
    assert!(b.mutex("cron").try_lock().await.unwrap().is_err(), "it counts as held");
    let next = within("its turn", b.mutex("cron").lock()).await.unwrap();
    assert!(began.elapsed() >= 8 * SEC, "{:?}", began.elapsed());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_size_of_a_semaphore_is_kept() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    let one = a.semaphore("s", 2).acquire(2).await.unwrap();
    let other = b.semaphore("s", 3).acquire(1).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::CapacityMismatch, "{other}");
    // Who has waited hears of a size that lets him in, and is sent away by one that never will.
    let small = tokio::spawn(b.semaphore("s", 2).acquire(1));
    waiters(&a, "s", 1).await;
    a.semaphore("s", 2).resize(2, 3).await.unwrap();
    let small = within("its turn", small).await.unwrap().unwrap();
    let large = tokio::spawn(b.semaphore("s", 3).acquire(3));
    waiters(&a, "s", 1).await;
    a.semaphore("s", 3).resize(3, 2).await.unwrap();
    let refused = within("told", large).await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::CapacityMismatch, "{refused}");
    let status = a.inspect("s").await.unwrap();
    assert_eq!((status.capacity, status.taken(), status.waiters.len()), (Some(2), 3, 0));
    small.release().await.unwrap();
    // Somebody has ended what kept it: those who are there know what it was.
    etcd.run(&["del", "--prefix", "fencelock/%size/"]);
    let other = b.semaphore("s", 5).acquire(1).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::CapacityMismatch, "{other}");
    assert!(b.semaphore("s", 2).try_acquire(1).await.unwrap().is_err());
    one.release().await.unwrap();
    b.semaphore("s", 2).try_acquire(2).await.unwrap().unwrap().release().await.unwrap();
}

/// The lease of what is kept is ended, and so is what was kept: no hold is lost, and it is made anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_needs_no_lease_that_lasts() {
    let etcd = Etcd::start();
    let a = client(&etcd, 30 * SEC).await;
    let guard = a.mutex("m").lock().await.unwrap();
    a.semaphore("s", 2).acquire(1).await.unwrap().release().await.unwrap();
    let leases = etcd.run(&["lease", "list"]);
    let shelves = leases.lines().skip(1).filter(|lease| {
        let about = etcd.run(&["lease", "timetolive", lease.trim(), "--keys"]);
        about.contains("%size")
    });
    let shelves: Vec<_> = shelves.map(str::trim).collect();
    assert_eq!(shelves.len(), 1);
    etcd.run(&["lease", "revoke", shelves[0]]);
    let three = a.semaphore("s", 3).acquire(1).await.unwrap();
    assert_eq!(a.inspect("s").await.unwrap().capacity, Some(3));
    guard.check().unwrap();
    three.release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_has_one_kind() {
    let etcd = Etcd::start();
    let a = client(&etcd, 30 * SEC).await;
    let is = |error: fencelock_core::Error| assert_eq!(error.kind(), ErrorKind::KindMismatch, "{error}");
    let guard = a.mutex("x").lock().await.unwrap();
    is(a.rw_lock("x").read().await.unwrap_err());
    is(a.semaphore("x", 2).try_acquire(1).await.unwrap_err());
    is(a.cell("x").load().await.unwrap_err());
    is(a.semaphore("x", 2).resize(2, 3).await.unwrap_err());
    guard.release().await.unwrap();
    let reader = a.rw_lock("x").read().await.unwrap();
    is(a.mutex("x").lock().await.unwrap_err());
    is(a.semaphore("x", 2).try_acquire(1).await.unwrap_err());
    is(a.cell("x").load().await.unwrap_err());
    reader.release().await.unwrap();
    let permit = a.semaphore("x", 2).acquire(1).await.unwrap();
    is(a.mutex("x").lock().await.unwrap_err());
    is(a.rw_lock("x").read().await.unwrap_err());
    is(a.rw_lock("x").try_write().await.unwrap_err());
    is(a.cell("x").load().await.unwrap_err());
    permit.release().await.unwrap();
    let cell = a.cell("x");
    let version = cell.compare_exchange(Version::NONE, b"1".as_slice()).await.unwrap().unwrap();
    is(a.mutex("x").lock().await.unwrap_err());
    is(a.rw_lock("x").write().await.unwrap_err());
    is(a.semaphore("x", 2).acquire(1).await.unwrap_err());
    assert_eq!(a.inspect("x").await.unwrap().kind, Some(Kind::Cell));
    cell.remove(version).await.unwrap().unwrap();
    a.mutex("x").lock().await.unwrap().release().await.unwrap();
    // Somebody of another program asks for no kind; we see him.
    let mut theirs = etcd.etcdctl(&["lock", "fencelock/x"]).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    eventually("they hold", || async { a.inspect("x").await.unwrap().is_held() }).await;
    is(a.rw_lock("x").read().await.unwrap_err());
    theirs.kill().unwrap();
    theirs.wait().unwrap();
}

/// Versions rise over removal, and a removal has one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_has_the_revision_as_its_version() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    let (ours, theirs) = (a.cell("c"), b.cell("c"));
    assert_eq!(ours.load().await.unwrap().version, Version::NONE);
    let one = ours.compare_exchange(Version::NONE, b"1".as_slice()).await.unwrap().unwrap();
    let late = theirs.compare_exchange(Version::NONE, b"2".as_slice()).await.unwrap().unwrap_err();
    assert_eq!((late.now.version, late.now.value.as_deref()), (one, Some(b"1".as_slice())));
    assert_eq!(etcd.run(&["get", "--prefix", "fencelock/%cell/c/", "--print-value-only"]).trim(), "1");
    let gone = theirs.remove(one).await.unwrap().unwrap();
    assert!(gone > one && theirs.load().await.unwrap().value.is_none());
    let late = ours.compare_exchange(Version::NONE, b"3".as_slice()).await.unwrap().unwrap_err();
    assert_eq!(late.now.version, gone);
    let three = ours.compare_exchange(gone, b"3".as_slice()).await.unwrap().unwrap();
    assert!(three > gone);
    ours.remove(three).await.unwrap().unwrap();
}

/// `etcdctl elect` sees our candidate, and we see its.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_and_etcdctl_elect_one_leader() {
    let etcd = Etcd::start();
    let a = client(&etcd, 30 * SEC).await;
    let mut observer = a.election("job").observe();
    assert!(within("nobody yet", observer.changed()).await.unwrap().is_none());
    let term = a.election("job").campaign("node-1").await.unwrap();
    let leader = within("ours leads", observer.changed()).await.unwrap().unwrap();
    assert_eq!((&*leader.candidate, leader.term), ("node-1", term.token()));
    let mut theirs = etcd.etcdctl(&["elect", "fencelock/job", "theirs"]).stdout(Stdio::null()).spawn().unwrap();
    waiters(&a, "job", 1).await;
    let seen = etcd.run(&["get", "--prefix", "fencelock/job/", "--sort-by=CREATE", "--print-value-only"]);
    assert_eq!(seen.lines().collect::<Vec<_>>(), ["node-1", "theirs"]);
    let first = term.token();
    term.resign().await.unwrap();
    let leader = within("theirs leads", async {
        loop {
            if let Some(leader) = observer.changed().await.unwrap() {
                return leader;
            }
        }
    })
    .await;
    assert_eq!(&*leader.candidate, "theirs");
    let next = tokio::spawn(a.election("job").campaign("node-2"));
    waiters(&a, "job", 1).await;
    theirs.kill().unwrap();
    theirs.wait().unwrap();
    // Its lease, of a minute, is nobody's: it is ended by hand.
    let key = etcd.run(&["get", "--prefix", "fencelock/job/", "--sort-by=CREATE", "--keys-only"]);
    let lease = key.lines().next().unwrap().rsplit('/').next().unwrap().to_owned();
    etcd.run(&["lease", "revoke", &lease]);
    let term = within("ours again", next).await.unwrap().unwrap();
    assert!(term.token() > first);
    term.resign().await.unwrap();
}

/// One counter, which only one leader at a time may raise: two candidates of ours beside one of `etcdctl`'s, which resigns when it is interrupted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_is_exact_beside_etcdctls_elections() {
    let (rounds, etcd, folder) = (tenth(500), Etcd::start(), Folder::new("elections"));
    let counter = folder.path().join("n");
    std::fs::write(&counter, "0").unwrap();
    let step = async |counter: &std::path::Path| {
        let n: usize = std::fs::read_to_string(counter).unwrap().trim().parse().unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        std::fs::write(counter, (n + 1).to_string()).unwrap();
    };
    let ours = [client(&etcd, 10 * SEC).await, client(&etcd, 10 * SEC).await].map(|client| {
        let counter = counter.clone();
        tokio::spawn(async move {
            for _ in 0..rounds {
                let term = client.election("job").campaign("ours").await.unwrap();
                step(&counter).await;
                term.resign().await.unwrap();
            }
        })
    });
    for round in 0..rounds {
        let mut theirs = etcd.etcdctl(&["elect", "fencelock/job", "theirs"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut elected = String::new();
        let mut says = BufReader::new(theirs.stdout.take().unwrap());
        tokio::task::block_in_place(|| says.read_line(&mut elected).unwrap());
        assert!(elected.starts_with("fencelock/job/"), "round {round}: {elected:?}");
        step(&counter).await;
        let resign = std::process::Command::new("kill").args(["-INT", &theirs.id().to_string()]).status().unwrap();
        assert!(resign.success());
        tokio::task::block_in_place(|| theirs.wait().unwrap());
    }
    for ours in ours {
        ours.await.unwrap();
    }
    let (counted, all) = (std::fs::read_to_string(&counter).unwrap(), (3 * rounds).to_string());
    let what = format!("etcd: two candidates of ours beside etcdctl elect, {rounds} terms each");
    bar(&what, format!("{counted} of {all}"), "exact", counted == all);
}

/// Who waits watches its own key, too: a client that has lost its place does not wait for its turn to find out (etcd#19597).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_key_is_gone_comes_again_at_once() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    let guard = a.mutex("m").lock().await.unwrap();
    let wait = tokio::spawn(b.mutex("m").lock());
    waiters(&a, "m", 1).await;
    let keys = etcd.run(&["get", "--prefix", "fencelock/m/", "--sort-by=CREATE", "--keys-only"]);
    let key = keys.lines().filter(|key| !key.is_empty()).nth(1).unwrap().to_owned();
    let before = a.inspect("m").await.unwrap().waiters[0].hold;
    etcd.run(&["del", &key]);
    eventually("it is there again", || async {
        a.inspect("m").await.unwrap().waiters.first().is_some_and(|waiter| waiter.hold != before)
    })
    .await;
    assert!(!wait.is_finished());
    guard.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
}

/// Each of many waiters hears of the one in front alone, and of a semaphore those who are near of whoever goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_more_wait_the_same_it_costs() {
    let wait: u32 = if full() { 1_000 } else { 200 };
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 60 * SEC).await, client(&etcd, 60 * SEC).await);
    let first = [a.semaphore("s", 2).acquire(1).await.unwrap(), a.semaphore("s", 2).acquire(1).await.unwrap()];
    let turn = |_| -> Step {
        let semaphore = b.semaphore("s", 2);
        Box::pin(async move { semaphore.acquire(1).await.unwrap().release().await.unwrap() })
    };
    let turns = (0..wait).map(turn).collect();
    let gives_back: Step = Box::pin(async {
        for permit in first {
            permit.release().await.unwrap();
        }
    });
    handed(&etcd, &a, ("s", "a semaphore"), gives_back, turns).await;
    // Of clients of their own: those of one wait for each other in it.
    let mut clients = Vec::new();
    for _ in 0..if full() { 1_000 } else { 100 } {
        clients.push(client(&etcd, 60 * SEC).await);
    }
    let first = a.mutex("m").lock().await.unwrap();
    let turn = |client: &Client| -> Step {
        let mutex = client.mutex("m");
        Box::pin(async move { mutex.lock().await.unwrap().release().await.unwrap() })
    };
    let turns = clients.iter().map(turn).collect();
    handed(&etcd, &a, ("m", "a mutex"), Box::pin(async { first.release().await.unwrap() }), turns).await;
    // Readers and writers, as they come.
    let first = a.rw_lock("rw").write().await.unwrap();
    let turn = |(n, client): (usize, &Client)| -> Step {
        let lock = client.rw_lock("rw");
        Box::pin(async move {
            match n % 2 {
                0 => lock.write().await.unwrap().release().await.unwrap(),
                _ => lock.read().await.unwrap().release().await.unwrap(),
            }
        })
    };
    let turns = clients.iter().enumerate().map(turn).collect();
    handed(&etcd, &a, ("rw", "a read-write lock"), Box::pin(async { first.release().await.unwrap() }), turns).await;
}
type Step = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
/// What it costs, for each of them, until all have had it.
async fn handed(etcd: &Etcd, client: &Client, (name, kind): (&str, &str), gives_back: Step, turns: Vec<Step>) {
    let wait = turns.len();
    let turns: Vec<_> = turns.into_iter().map(tokio::spawn).collect();
    let all = async {
        // A server that goes through a thousand places may be late with one answer.
        while client.inspect(name).await.map_or(0, |status| status.waiters.len()) < wait {
            tokio::time::sleep(SEC / 4).await;
        }
    };
    tokio::time::timeout(60 * SEC, all).await.expect("they wait");
    let words = || calls(etcd, "Txn") + calls(etcd, "Range");
    // Those who came last have looked whom they wait for.
    quiet(words, SEC / 4, 2.0).await;
    let before = words();
    gives_back.await;
    // The server goes through all of them whenever somebody asks who is in front.
    for turn in turns {
        tokio::time::timeout(60 * SEC, turn).await.expect("its turn").unwrap();
    }
    let each = (words() - before) / f64::from(u32::try_from(wait).unwrap());
    let what = format!("etcd: calls for each grant of {kind} with {wait} waiters");
    bar(&what, format!("{each:.2}"), "< 5", each < 5.0);
    assert!(each < 5.0, "{each}");
}
