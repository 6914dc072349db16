//! What ZooKeeper's own ways bring with them: numbers that begin anew, names that it refuses, nodes of strangers, and what each
//! operation costs.
//!
//! Planted to see them go red: a waiter who hears of everybody that comes and goes (stuck); a size that says nothing of a semaphore's queue; a wait that does not compare the size that it was counted
//! against.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/late.rs"]
mod late;
use common::*;
use fencelock_conformance::{
    eventually,
    proxy::{Proxy, Trouble},
    within,
};
use fencelock_core::{Client, Conflict, ErrorKind, LossReason, Member, MultiLock, Version};
use fencelock_testkit::{
    ZooKeeper as Server, ZooKeeper, ZooKeeperOptions,
    processes::{bar, tenth},
};
use fencelock_zookeeper::{Dialect, ZooKeeperEngine};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{Sender, channel},
    },
    time::{Duration, Instant},
};

/// The parent goes when nobody uses it, and its children's numbers begin anew. Tokens do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_when_the_node_of_the_name_was_removed() {
    let options = ZooKeeperOptions { reap: Duration::from_millis(100), ..ZooKeeperOptions::default() };
    let zk = ZooKeeper::with(options);
    let client = client(&zk, 10 * SEC).await;
    let (mut last, mut numbers) = (None, Vec::new());
    for _ in 0..3 {
        let guard = client.mutex("m").lock().await.unwrap();
        assert!(Some(guard.token()) > last, "{last:?}");
        last = Some(guard.token());
        numbers.extend(traces(&zk));
        guard.release().await.unwrap();
        eventually("it is removed", || async { !zk.nodes("/").contains(&"/fencelock/m".to_owned()) }).await;
    }
    assert!(numbers.iter().all(|node| node.ends_with("-lock-0000000001")), "{numbers:?}");
    // Nothing of ours stays behind.
    client.shutdown(SEC).await.unwrap();
    let left = || zk.nodes("/").into_iter().filter(|node| !node.starts_with("/zookeeper")).collect::<Vec<_>>();
    eventually("everything is removed", || async { left().is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_has_one_kind() {
    let zk = ZooKeeper::start();
    for dialect in DIALECTS {
        one_kind_in(&zk, dialect).await;
    }
    assert_eq!(traces(&zk), [""; 0]);
}
async fn one_kind_in(zk: &ZooKeeper, dialect: Dialect) {
    let (a, b) = (speaks(zk, dialect, 10 * SEC).await, speaks(zk, dialect, 10 * SEC).await);
    let name = |kind: &str| format!("{dialect}-{kind}");
    let kinds: [(&str, Attempt); 5] = [
        ("mutex", |client, name| {
            Box::pin(async move { client.mutex(name).try_lock().await.map(|it| it.map(drop).map_err(drop)) })
        }),
        ("write", |client, name| {
            Box::pin(async move { client.rw_lock(name).try_write().await.map(|it| it.map(drop).map_err(drop)) })
        }),
        ("read", |client, name| {
            Box::pin(async move { client.rw_lock(name).try_read().await.map(|it| it.map(drop).map_err(drop)) })
        }),
        ("permits", |client, name| {
            Box::pin(async move { client.semaphore(name, 3).try_acquire(1).await.map(|it| it.map(drop).map_err(drop)) })
        }),
        ("cell", |client, name| Box::pin(async move { client.cell(name).load().await.map(|_| Ok(())) })),
    ];
    let refused = async |name: &str, own: &[&str]| {
        for (kind, attempt) in kinds.iter().filter(|(kind, _)| !own.contains(kind)) {
            let error = attempt(&b, name).await.expect_err(kind);
            assert_eq!(error.kind(), ErrorKind::KindMismatch, "{name}, {kind}: {error}");
        }
    };
    let mutex = a.mutex(name("m")).lock().await.unwrap();
    refused(&name("m"), &["mutex"]).await;
    let write = a.rw_lock(name("rw")).write().await.unwrap();
    refused(&name("rw"), &["read", "write"]).await;
    let permit = a.semaphore(name("s"), 3).acquire(1).await.unwrap();
    refused(&name("s"), &["permits"]).await;
    let error = b.semaphore(name("s"), 4).try_acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CapacityMismatch, "{error}");
    let cell = a.cell(name("c"));
    let version = cell.compare_exchange(cell.load().await.unwrap().version, b"x".to_vec()).await.unwrap().unwrap();
    refused(&name("c"), &["cell"]).await;
    drop((mutex, write, permit));
    cell.remove(version).await.unwrap().unwrap();
    for name in ["m", "rw", "s", "c"].map(name) {
        eventually("it is free", || async { b.mutex(&name).try_lock().await.is_ok_and(|it| it.is_ok()) }).await;
    }
}
/// Two who hand permits to each other, and two who want a mutex of that name: whoever comes meanwhile never gets in beside them (SAFETY K1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_kinds_are_never_held_together() {
    let zk = ZooKeeper::start();
    for dialect in DIALECTS {
        let ends = Instant::now() + Duration::from_secs(tenth(30) as u64);
        // On and on until it has bitten: so many of each kind, and somebody refused.
        let counts: Arc<[AtomicUsize; 3]> = Arc::default();
        let mut tasks = Vec::new();
        for n in 0..4 {
            let (client, name) = (speaks(&zk, dialect, 10 * SEC).await, format!("{dialect}"));
            let counts = counts.clone();
            tasks.push(tokio::spawn(async move {
                let (mut spans, mut refused) = (Vec::new(), 0);
                let bites = || [10, 10, 0].iter().zip(&*counts).all(|(least, n)| n.load(SeqCst) > *least);
                while Instant::now() < ends || (!bites() && Instant::now() < ends + 60 * SEC) {
                    // Who is behind one of his kind waits for him.
                    let one: Member = match n % 2 {
                        0 => client.semaphore(&name, 1).permits(1),
                        _ => client.mutex(&name).into(),
                    };
                    let got = MultiLock::new([one]).lock().await;
                    match got {
                        Ok(held) => {
                            let since = Instant::now();
                            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
                            spans.push((since, Instant::now(), n % 2));
                            counts[n % 2].fetch_add(1, SeqCst);
                            held.release().await.unwrap();
                            // Now and then it is the others' turn.
                            if fastrand::bool() {
                                tokio::time::sleep(Duration::from_millis(fastrand::u64(0..10))).await;
                            }
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::KindMismatch, "{error}");
                            refused += 1;
                            counts[2].fetch_add(1, SeqCst);
                            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..3))).await;
                        }
                    }
                }
                (spans, refused)
            }));
        }
        let (mut spans, mut refused) = (Vec::new(), 0);
        for task in tasks {
            let (of_one, times) = task.await.unwrap();
            spans.extend(of_one);
            refused += times;
        }
        spans.sort_unstable();
        let beside = spans.windows(2).filter(|pair| pair[1].0 < pair[0].1).count();
        let kinds = [0, 1].map(|kind| spans.iter().filter(|(.., of)| *of == kind).count());
        assert!(refused > 0 && kinds.iter().all(|n| *n > 10), "the run must bite: {kinds:?}, {refused} refused");
        let what = format!("zookeeper, {dialect}: a mutex and a permit of one name held at once");
        bar(&what, format!("{beside} of {} ({refused} refused)", spans.len()), "0", beside == 0);
        assert_eq!(beside, 0);
    }
}
type Attempt = for<'a> fn(&'a Client, &'a str) -> Try<'a>;
type Try<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Result<(), ()>, fencelock_core::Error>> + Send + 'a>>;

/// Somebody's junk below a lock's name minds nobody; a node that is deleted under its holder is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_hands() {
    let zk = ZooKeeper::start();
    let (a, b) = (client(&zk, 10 * SEC).await, client(&zk, 10 * SEC).await);
    let guard = a.mutex("m").lock().await.unwrap();
    zk.shell().create("/fencelock/m/junk", b"\xFF\xFE", 0).unwrap();
    assert!(b.mutex("m").try_lock().await.unwrap().is_err());
    let wait = tokio::spawn(b.mutex("m").lock());
    eventually("it waits", || async { a.inspect("m").await.unwrap().waiters.len() == 1 }).await;
    guard.release().await.unwrap();
    let guard = within("its turn", wait).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let own = traces(&zk);
    assert_eq!(own.len(), 1, "{own:?}");
    let began = Instant::now();
    assert!(zk.shell().delete(&own[0]).unwrap());
    assert_eq!(within("told", guard.lost()).await, LossReason::TakenOver);
    let took = began.elapsed();
    bar("zookeeper: a hold whose node is deleted is told after", format!("{took:?}"), "<= 250 ms", took <= SEC / 4);
    // So is one who waits: he goes to the back of the queue.
    let guard = a.mutex("m").lock().await.unwrap();
    let wait = tokio::spawn(b.mutex("m").lock());
    eventually("it waits", || async { a.inspect("m").await.unwrap().waiters.len() == 1 }).await;
    let old = a.inspect("m").await.unwrap().waiters[0].hold;
    let theirs = traces(&zk).into_iter().max_by_key(|node| node[node.len() - 10..].to_owned()).unwrap();
    zk.shell().delete(&theirs).unwrap();
    guard.release().await.unwrap();
    let next = within("its turn", wait).await.unwrap().unwrap();
    assert!(next.id() != old || a.inspect("m").await.unwrap().holders[0].hold == next.id());
}

/// A cell's first write that is on its way while somebody comes for a lock of that name.
struct OnItsWay {
    proxy: Proxy,
    writer: tokio::task::JoinHandle<Result<Result<Version, Conflict>, fencelock_core::Error>>,
    /// Lets it go on.
    go: Sender<()>,
}
impl OnItsWay {
    async fn start(zk: &ZooKeeper, name: &str, then: Trouble) -> Self {
        let proxy = in_front_of(zk, 0);
        let client = built(ZooKeeperEngine::from_url(&format!("zookeeper://{}", proxy.address())).await.unwrap());
        let ((come, came), (go, gone)) = (channel(), channel());
        let (come, gone) = (Mutex::new(come), Mutex::new(gone));
        proxy.rule(move |command| {
            // Those that come later find nobody who waits for them.
            if !writes(command) || come.lock().unwrap().send(()).is_err() {
                return Trouble::None;
            }
            gone.lock().unwrap().recv().unwrap();
            then
        });
        let cell = client.cell(name);
        let writer = tokio::spawn(async move { cell.compare_exchange(Version::NONE, b"100".to_vec()).await });
        tokio::task::block_in_place(|| came.recv().unwrap());
        drop(came);
        Self { proxy, writer, go }
    }
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cells_first_value_that_comes_too_late_is_taken_back() {
    let zk = ZooKeeper::start();
    let (a, b) = (client(&zk, 10 * SEC).await, client(&zk, 10 * SEC).await);
    for (name, then) in [("one", Trouble::None), ("two", Trouble::LoseReply)] {
        let write = OnItsWay::start(&zk, name, then).await;
        let guard = a.mutex(name).lock().await.unwrap();
        write.go.send(()).unwrap();
        let error = within("it is answered", write.writer).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KindMismatch, "{error}");
        let path = format!("/fencelock/{name}");
        assert_eq!(zk.nodes(&path), [guard.place().unwrap()]);
        assert_eq!(zk.shell().data(&path).unwrap().unwrap(), b"");
        guard.check().unwrap();
        guard.release().await.unwrap();
        b.mutex(name).lock().await.unwrap().release().await.unwrap();
        drop(write.proxy);
    }
    // What it writes is never a semaphore's size.
    a.semaphore("s", 1).acquire(1).await.unwrap().release().await.unwrap();
    let write = OnItsWay::start(&zk, "s", Trouble::None).await;
    let permit = a.semaphore("s", 1).acquire(1).await.unwrap();
    let next = tokio::spawn(b.semaphore("s", 1).acquire(1));
    eventually("it waits", || async { a.inspect("s").await.unwrap().waiters.len() == 1 }).await;
    write.go.send(()).unwrap();
    let error = within("it is answered", write.writer).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KindMismatch, "{error}");
    assert_eq!(zk.shell().data("/fencelock/s").unwrap().unwrap(), b"1");
    tokio::time::sleep(SEC / 5).await;
    let waits = !next.is_finished();
    if waits {
        permit.release().await.unwrap();
    }
    // Who looked while it was there was told so.
    let next = within("it is answered", next).await.unwrap();
    assert!(waits || next.is_err(), "two have it");
    drop(next);
    within("free", b.semaphore("s", 1).acquire(1)).await.unwrap().release().await.unwrap();
}
/// What is left of a cell that was removed minds nobody who contends there in Curator's words, or Go's; and who was refused on his way
/// out refuses nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_pass_are_in_nobodys_way() {
    let zk = ZooKeeper::start();
    let (a, b) = (client(&zk, 10 * SEC).await, client(&zk, 10 * SEC).await);
    let cell = a.cell("c");
    let version = cell.compare_exchange(Version::NONE, b"x".to_vec()).await.unwrap().unwrap();
    let removed = cell.remove(version).await.unwrap().unwrap();
    assert_eq!(zk.nodes("/fencelock/c"), [""; 0]);
    assert_eq!(b.cell("c").load().await.unwrap().version, removed);
    let again = b.cell("c").compare_exchange(removed, b"y".to_vec()).await.unwrap().unwrap();
    assert!(again > removed);
    let guard = a.mutex("m").lock().await.unwrap();
    let mut shell = zk.shell();
    let reader = shell.create("/fencelock/m/_c_01234567-0123-0123-0123-0123456789ab-__READ__", b"", 3).unwrap();
    let next = tokio::spawn(b.mutex("m").lock());
    eventually("it waits", || async { a.inspect("m").await.unwrap().waiters.len() == 2 }).await;
    shell.delete(&reader).unwrap();
    guard.release().await.unwrap();
    within("its turn", next).await.unwrap().unwrap().release().await.unwrap();
    // A permit of kazoo's.
    shell.create("/fencelock/k", b"", 0).unwrap();
    let permit = shell.create("/fencelock/k/0123456789abcdef0123456789abcdef", b"", 1).unwrap();
    for error in [
        a.mutex("k").lock().await.unwrap_err(),
        a.rw_lock("k").try_read().await.unwrap_err(),
        a.semaphore("k", 3).acquire(1).await.unwrap_err(),
        a.cell("k").load().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
    }
    shell.delete(&permit).unwrap();
    a.mutex("k").lock().await.unwrap().release().await.unwrap();
}

/// One end of the counter and the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_goes_on_over_the_end_of_the_counter() {
    let zk = ZooKeeper::start();
    let (a, b) = (client(&zk, 10 * SEC).await, client(&zk, 10 * SEC).await);
    drop(a.mutex("m").lock().await.unwrap());
    // Four thousand million came before, and this one a little earlier than we.
    let mut shell = zk.shell();
    let node = |number: &str| format!("/fencelock/m/_c_01234567-0123-0123-0123-0123456789ab-lock-{number}");
    shell.create(&node("-000000005"), b"", 1).unwrap();
    let wait = tokio::spawn(b.mutex("m").lock());
    eventually("it waits", || async { a.inspect("m").await.unwrap().waiters.len() == 1 }).await;
    shell.delete(&node("-000000005")).unwrap();
    let held = within("its turn", wait).await.unwrap().unwrap();
    held.release().await.unwrap();
    // Who comes after the end of the counter is not before those who came before it.
    shell.create(&node("-2147483648"), b"", 1).unwrap();
    let guard = within("nobody is before", b.mutex("m").lock()).await.unwrap();
    let status = a.inspect("m").await.unwrap();
    assert_eq!(status.holders.iter().map(|holder| holder.hold).collect::<Vec<_>>(), [guard.id()], "{status:?}");
    shell.delete(&node("-2147483648")).unwrap();
}

/// What each operation costs the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_counted() {
    // Signs of life are not of these operations.
    let zk = ZooKeeper::with(ZooKeeperOptions { max_session: 3_600 * SEC, ..ZooKeeperOptions::default() });
    for dialect in DIALECTS {
        counted_in(&zk, dialect).await;
    }
}
async fn counted_in(zk: &ZooKeeper, dialect: Dialect) {
    let (client, name) = (speaks(zk, dialect, 3_600 * SEC).await, |kind: &str| format!("{dialect}-{kind}"));
    let (pairs, waiters) = (tenth(1_000), tenth(1_000));
    let lock = client.mutex(name("m"));
    lock.lock().await.unwrap().release().await.unwrap();
    let before = messages(zk);
    for _ in 0..pairs {
        lock.lock().await.unwrap().release().await.unwrap();
    }
    // The question itself is one.
    let each = (messages(zk) - before - 1.0) / f64::from(u32::try_from(pairs).unwrap());
    bar(&format!("zookeeper, {dialect}: operations of a pair"), format!("{each:.2}"), "3", each < 3.1);
    assert!(each < 3.1, "{each}");
    // Many who wait, of clients of their own: each hears of the one in front, and of nobody else.
    let mut clients = Vec::new();
    for _ in 0..waiters {
        clients.push(speaks(zk, dialect, 3_600 * SEC).await);
    }
    let first = lock.lock().await.unwrap();
    let wait = |client: &Client| -> Step {
        let wait = client.mutex(name("m")).lock();
        Box::pin(async move { drop(wait.await.unwrap()) })
    };
    let waits = clients.iter().map(wait).collect();
    let gives_back: Step = Box::pin(async { first.release().await.unwrap() });
    handed(zk, &client, &format!("{dialect}: operations of a hand-over of a mutex"), &name("m"), gives_back, waits)
        .await;
    // Readers and writers, as they come.
    let first = client.rw_lock(name("rw")).write().await.unwrap();
    let wait = |(n, client): (usize, &Client)| -> Step {
        let lock = client.rw_lock(name("rw"));
        Box::pin(async move {
            if n % 2 == 0 {
                drop(lock.write().await.unwrap());
            } else {
                drop(lock.read().await.unwrap());
            }
        })
    };
    let waits = clients.iter().enumerate().map(wait).collect();
    let gives_back: Step = Box::pin(async { first.release().await.unwrap() });
    handed(
        zk,
        &client,
        &format!("{dialect}: operations of a hand-over of a read-write lock"),
        &name("rw"),
        gives_back,
        waits,
    )
    .await;
    let first = client.semaphore(name("s"), 1).acquire(1).await.unwrap();
    let wait = |n: usize| -> Step {
        let wait = clients[n % 4].semaphore(name("s"), 1).acquire(1);
        Box::pin(async move { drop(wait.await.unwrap()) })
    };
    let waits = (0..waiters).map(wait).collect();
    let gives_back: Step = Box::pin(async { first.release().await.unwrap() });
    handed(zk, &client, &format!("{dialect}: operations of a hand-over of a semaphore"), &name("s"), gives_back, waits)
        .await;
}
type Step = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
/// What it costs, for each of them, until all have had it.
async fn handed(zk: &ZooKeeper, client: &Client, what: &str, name: &str, release: Step, waits: Vec<Step>) {
    let waiters = waits.len();
    let waits: Vec<_> = waits.into_iter().map(tokio::spawn).collect();
    eventually("all wait", || async { client.inspect(name).await.unwrap().waiters.len() == waiters }).await;
    // And have looked whom they wait for: nothing comes but our own question.
    eventually("it is quiet", || async {
        let before = messages(zk);
        tokio::time::sleep(SEC / 4).await;
        messages(zk) - before < 2.0
    })
    .await;
    let before = messages(zk);
    release.await;
    for wait in waits {
        tokio::time::timeout(60 * SEC, wait).await.expect("its turn").unwrap();
    }
    let each = (messages(zk) - before - 1.0) / f64::from(u32::try_from(waiters).unwrap());
    bar(&format!("zookeeper, {what}"), format!("{each:.2} with {waiters} waiting"), "< 5", each < 5.0);
}

/// While somebody asks who is in front of him, now that the one he waited for has given up, the first of the queue gets in: what he has
/// counted before is no more what is held. (Red: he counts, and then asks whether he is the first.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_behind_one_who_gives_up_counts_when_he_is_the_first() {
    const ENTERS: usize = 0;
    const LISTENS: usize = 1;
    const GOES_ON: usize = 2;
    const LISTENS_AGAIN: usize = 3;
    let zk = ZooKeeper::start();
    let (a, b) = (client(&zk, 30 * SEC).await, client(&zk, 30 * SEC).await);
    let proxy = in_front_of(&zk, 0);
    let c = built(ZooKeeperEngine::from_url(&format!("zookeeper://{}?ttl=30s", proxy.address())).await.unwrap());
    let stage = Arc::new(AtomicUsize::new(ENTERS));
    let ((come, came), (go, gone)) = (channel(), channel());
    let (come, gone, stands) = (Mutex::new(come), Mutex::new(gone), stage.clone());
    proxy.rule(move |command| {
        match (stands.load(SeqCst), command[8..12].try_into().map(i32::from_be_bytes), asked_at(command)) {
            (ENTERS, Ok(4), path) if path.starts_with("/fencelock/s/locks/") => stands.store(LISTENS, SeqCst),
            (LISTENS, Ok(12), "/fencelock/s/locks") => {
                come.lock().unwrap().send(()).unwrap();
                gone.lock().unwrap().recv().unwrap();
                stands.store(GOES_ON, SeqCst);
            }
            (GOES_ON, Ok(4), "/fencelock/s") => stands.store(LISTENS_AGAIN, SeqCst),
            _ => {}
        }
        Trouble::None
    });
    let waits = async |many| {
        eventually("they wait", || async { a.inspect("s").await.unwrap().waiters.len() == many }).await;
    };
    let held = a.semaphore("s", 2).acquire(1).await.unwrap();
    let first = tokio::spawn(b.semaphore("s", 2).acquire(2));
    waits(1).await;
    let second = tokio::spawn(a.semaphore("s", 2).acquire(1));
    waits(2).await;
    let third = tokio::spawn(c.semaphore("s", 2).acquire(1));
    eventually("he hears of the one in front", || async { stage.load(SeqCst) == LISTENS }).await;
    second.abort();
    tokio::task::block_in_place(|| came.recv_timeout(30 * SEC)).unwrap();
    held.release().await.unwrap();
    let both = within("the first of the queue", first).await.unwrap().unwrap();
    go.send(()).unwrap();
    eventually("he is in, or listens", || async { third.is_finished() || stage.load(SeqCst) == LISTENS_AGAIN }).await;
    assert_eq!(zk.nodes("/fencelock/s/leases").iter().filter(|node| !node.is_empty()).count(), 2, "two are all");
    both.check().unwrap();
    both.release().await.unwrap();
    within("his turn", third).await.unwrap().unwrap().release().await.unwrap();
}
/// The path that a command begins with.
fn asked_at(command: &[u8]) -> &str {
    let end = command.get(12..16).map(|len| 16 + u32::from_be_bytes(len.try_into().unwrap()) as usize);
    end.and_then(|end| std::str::from_utf8(command.get(16..end)?).ok()).unwrap_or_default()
}

/// Whoever begins to wait while the size changes has counted against the one before, and hears of no other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_size_that_changes_while_somebody_begins_to_wait() {
    let zk = ZooKeeper::start();
    let (a, b) = (client(&zk, 30 * SEC).await, client(&zk, 30 * SEC).await);
    for round in 0..200_u64 {
        let held = a.semaphore("s", 1).acquire(1).await.unwrap();
        let wait = tokio::spawn(b.semaphore("s", 1).acquire(1));
        tokio::time::sleep(Duration::from_micros(round * 20)).await;
        a.semaphore("s", 1).resize(1, 2).await.unwrap();
        let next = match tokio::time::timeout(10 * SEC, wait).await.expect("there is room").unwrap() {
            Ok(next) => Some(next),
            // It came after the change, and says another size.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::CapacityMismatch, "round {round}: {error}");
                None
            }
        };
        held.release().await.unwrap();
        if let Some(next) = next {
            next.release().await.unwrap();
        }
        a.semaphore("s", 2).resize(2, 1).await.unwrap();
    }
}
