//! Locks shared with Apache Curator and kazoo, as they are: one counter that nobody increments atomically, wake-ups both ways, and what
//! happens where they do not mind each other. Rounds in full with FENCELOCK_PROVE=1, at a tenth without.
//!
//! Planted to see them go red: somebody of another layout beside a hold who is taken for one of ours.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::{Client, ErrorKind, LossReason, MultiLock};
use fencelock_testkit::{
    Folder, Peer, ZooKeeper,
    processes::{bar, tenth},
};
use fencelock_zookeeper::{Config, Dialect, ZooKeeperEngine};
use std::{
    fs,
    path::Path,
    pin::Pin,
    time::{Duration, Instant},
};

async fn of(zk: &ZooKeeper, dialect: Dialect, login: Option<&str>) -> Client {
    let mut config = Config::from_url(&zk.url()).unwrap();
    config.dialect = dialect;
    config.login =
        login.map(|login| login.split_once(':').map(|(user, word)| (user.to_owned(), word.to_owned())).unwrap());
    config.ttl = 10 * SEC;
    built(ZooKeeperEngine::connect(config).await.unwrap())
}
/// A step of a counter that only exclusion keeps exact.
async fn step(file: &Path) {
    let n: u64 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
    tokio::time::sleep(Duration::from_micros(200)).await;
    fs::write(file, (n + 1).to_string()).unwrap();
}
/// `permits 2/3`: two of three, so that no two of that kind are there at once.
fn so_many(permits: &str) -> Option<(u32, u32)> {
    let (n, most) = permits.strip_prefix("permits ")?.split_once('/')?;
    Some((n.parse().ok()?, most.parse().ok()?))
}
async fn rounds(client: &Client, kind: &str, name: &str, n: usize, file: &Path) {
    for _ in 0..n {
        match kind {
            "mutex" => {
                let guard = client.mutex(name).lock().await.unwrap();
                step(file).await;
                guard.release().await.unwrap();
            }
            "write" => {
                let guard = client.rw_lock(name).write().await.unwrap();
                step(file).await;
                guard.release().await.unwrap();
            }
            "read" => {
                let guard = client.rw_lock(name).read().await.unwrap();
                let read = || fs::read_to_string(file).unwrap();
                let before = read();
                tokio::time::sleep(Duration::from_micros(200)).await;
                assert_eq!(before, read(), "a writer beside a reader");
                guard.release().await.unwrap();
            }
            "term" => {
                let term = client.election(name).campaign("ours").await.unwrap();
                step(file).await;
                term.resign().await.unwrap();
            }
            permits => {
                let (n, most) = so_many(permits).unwrap_or_else(|| panic!("{permits}"));
                let guard = client.semaphore(name, most).acquire(n).await.unwrap();
                step(file).await;
                guard.release().await.unwrap();
            }
        }
    }
}
/// Ours and each of the peers at once; writers count.
async fn together(zk: &ZooKeeper, client: &Client, who: &str, name: &str, ours: &str, peers: &mut [(&mut Peer, &str)]) {
    let (folder, n) = (Folder::new("interop"), tenth(500));
    let file = folder.path().join("counter");
    fs::write(&file, "0").unwrap();
    for (peer, kind) in peers.iter_mut() {
        let (kind, size) = kind.split_once(' ').unwrap_or((kind, ""));
        peer.say(&format!("rounds {kind} /fencelock/{name} {n} {} {size}", file.display()));
    }
    rounds(client, ours, name, n, &file).await;
    for (peer, kind) in peers.iter_mut() {
        let answer = tokio::task::block_in_place(|| peer.hear());
        assert!(answer.starts_with(&format!("ok {n} ")), "{name}, {kind}: {answer}");
    }
    let writers =
        1 + peers.len() - peers.iter().filter(|(_, kind)| kind.ends_with("read")).count() - usize::from(ours == "read");
    assert_eq!(fs::read_to_string(&file).unwrap(), (writers * n).to_string(), "{name}");
    let kinds: Vec<_> = peers.iter().map(|(_, kind)| *kind).collect();
    println!(
        "MEASURED | zookeeper, {who}: {ours} of ours beside {}, {n} rounds each | exact | exact | ok",
        kinds.join(" and ")
    );
    assert_eq!(traces(zk), [""; 0], "{name}");
}

/// A `MultiLock` of ours beside one of Curator's: it takes them in the order that it is given.
async fn several(client: &Client, who: &str, curator: &mut Peer) {
    let (folder, n) = (Folder::new("interop"), tenth(500));
    let file = folder.path().join("counter");
    fs::write(&file, "0").unwrap();
    curator.say(&format!("rounds multi /fencelock/a,/fencelock/b {n} {}", file.display()));
    for _ in 0..n {
        let guard = MultiLock::new([client.mutex("b"), client.mutex("a")]).lock().await.unwrap();
        step(&file).await;
        guard.release().await.unwrap();
    }
    let answer = tokio::task::block_in_place(|| curator.hear());
    assert!(answer.starts_with(&format!("ok {n} ")), "{answer}");
    assert_eq!(fs::read_to_string(&file).unwrap(), (2 * n).to_string());
    println!("MEASURED | zookeeper, {who}: a MultiLock of ours beside multi, {n} rounds each | exact | exact | ok");
}
/// Who is asked to give it back does, where the URL says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curators_revoker_is_heeded_by_whoever_wants_it() {
    let zk = ZooKeeper::start();
    let mut config = Config::from_url(&zk.url()).unwrap();
    let plain = built(ZooKeeperEngine::connect(config.clone()).await.unwrap());
    config.revocable = true;
    let heeds = built(ZooKeeperEngine::connect(config).await.unwrap());
    let mut curator = tokio::task::block_in_place(|| Peer::curator(&zk, None));
    let (a, b) = (plain.mutex("a").note("mine").lock().await.unwrap(), heeds.mutex("b").lock().await.unwrap());
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for node in traces(&zk) {
        assert_eq!(tokio::task::block_in_place(|| curator.ask(&format!("revoke {node}"))), "ok");
    }
    let began = Instant::now();
    let why = tokio::time::timeout(20 * SEC, b.lost()).await.expect("it is told");
    assert_eq!(why, LossReason::TakenOver);
    println!(
        "MEASURED | zookeeper: a hold that Curator asks back is told after | {:?} | reported | ok",
        began.elapsed()
    );
    // Nobody else gets it before its holder has let go.
    assert_eq!(tokio::task::block_in_place(|| curator.ask("acquire mutex /fencelock/b 50")), "busy");
    drop(b);
    tokio::task::block_in_place(|| curator.acquire("mutex /fencelock/b 20000"));
    // The other one holds on, and what it said of itself is gone.
    a.check().unwrap();
    let status = plain.inspect("a").await.unwrap();
    assert_eq!((status.holders[0].hold, status.holders[0].token), (a.id(), a.token()), "{status:?}");
    a.release().await.unwrap();
}
async fn everybody(login: Option<&str>) {
    let who =
        if login.is_some() { "Curator and kazoo's subclass, with credentials" } else { "Curator and kazoo's subclass" };
    let zk = ZooKeeper::start();
    let client = of(&zk, Dialect::Curator, login).await;
    let (mut curator, mut kazoo) = tokio::task::block_in_place(|| (Peer::curator(&zk, login), Peer::kazoo(&zk, login)));
    together(&zk, &client, who, "m", "mutex", &mut [(&mut curator, "mutex"), (&mut kazoo, "mutex")]).await;
    together(&zk, &client, who, "w", "write", &mut [(&mut curator, "write"), (&mut kazoo, "write")]).await;
    together(&zk, &client, who, "r", "read", &mut [(&mut curator, "write"), (&mut kazoo, "read")]).await;
    together(&zk, &client, who, "wr", "write", &mut [(&mut curator, "read"), (&mut kazoo, "read")]).await;
    together(&zk, &client, who, "p", "permits 1/1", &mut [(&mut curator, "permits 1/1")]).await;
    together(&zk, &client, who, "ps", "permits 2/3", &mut [(&mut curator, "permits 2/3")]).await;
    together(&zk, &client, who, "pt", "permits 1/3", &mut [(&mut curator, "permits 3/3")]).await;
    together(&zk, &client, who, "sm", "permits 1/1", &mut [(&mut curator, "semaphore-mutex")]).await;
    together(&zk, &client, who, "e", "term", &mut [(&mut curator, "leader"), (&mut kazoo, "leader")]).await;
    several(&client, who, &mut curator).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_is_exact_beside_curator_and_kazoo() {
    everybody(None).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_with_credentials() {
    everybody(Some("ann:s@cret")).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_is_exact_beside_stock_kazoo_in_its_dialect() {
    for (login, who) in [(None, "stock kazoo"), (Some("ann:secret"), "stock kazoo, with credentials")] {
        let zk = ZooKeeper::start();
        let client = of(&zk, Dialect::Kazoo, login).await;
        let mut kazoo = tokio::task::block_in_place(|| Peer::kazoo(&zk, login));
        together(&zk, &client, who, "m", "mutex", &mut [(&mut kazoo, "kazoo-mutex")]).await;
        together(&zk, &client, who, "w", "write", &mut [(&mut kazoo, "kazoo-write")]).await;
        together(&zk, &client, who, "r", "read", &mut [(&mut kazoo, "kazoo-write")]).await;
        together(&zk, &client, who, "wr", "write", &mut [(&mut kazoo, "kazoo-read")]).await;
        together(&zk, &client, who, "p", "permits 1/1", &mut [(&mut kazoo, "kazoo-permits 1/1")]).await;
        together(&zk, &client, who, "ps", "permits 3/3", &mut [(&mut kazoo, "kazoo-permits 1/3")]).await;
        together(&zk, &client, who, "e", "term", &mut [(&mut kazoo, "kazoo-election")]).await;
    }
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wake_ups_work_both_ways() {
    let zk = ZooKeeper::start();
    let (ours, stock) = (of(&zk, Dialect::Curator, None).await, of(&zk, Dialect::Kazoo, None).await);
    let (mut curator, mut kazoo) = tokio::task::block_in_place(|| (Peer::curator(&zk, None), Peer::kazoo(&zk, None)));
    for (theirs, kind) in [
        ("mutex", "mutex"),
        ("write", "write"),
        ("read", "write"),
        ("write", "read"),
        ("semaphore-mutex", "permits 1/1"),
        ("permits 2/3", "permits 2/3"),
    ] {
        woken(&ours, &format!("c-{theirs}-{kind}"), kind, ("Curator", &mut curator, theirs)).await;
    }
    for (theirs, kind) in [("mutex", "mutex"), ("write", "write"), ("read", "write"), ("write", "read")] {
        woken(&ours, &format!("k-{theirs}-{kind}"), kind, ("kazoo's subclass", &mut kazoo, theirs)).await;
    }
    for (theirs, kind) in [
        ("kazoo-mutex", "mutex"),
        ("kazoo-write", "write"),
        ("kazoo-read", "write"),
        ("kazoo-permits 1/3", "permits 3/3"),
    ] {
        woken(&stock, &format!("s-{theirs}-{kind}"), kind, ("stock kazoo", &mut kazoo, theirs)).await;
    }
    let guard = ours.mutex("m").lock().await.unwrap();
    let before = guard.token();
    guard.release().await.unwrap();
    let (handle, _) = tokio::task::block_in_place(|| curator.acquire("mutex /fencelock/m 5000"));
    let busy = ours.mutex("m").try_lock().await.unwrap().unwrap_err().holder.unwrap();
    assert_eq!(&*busy.note, "127.0.0.1", "what Curator says of itself");
    tokio::task::block_in_place(|| curator.release(&handle));
    assert!(before < busy.token && busy.token < ours.mutex("m").lock().await.unwrap().token());
}
type GivenBack = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Of any kind; to be given back.
async fn held(client: &Client, name: &str, kind: &str) -> Box<dyn FnOnce() -> GivenBack + Send> {
    macro_rules! hold {
        ($guard:expr) => {{
            let guard = $guard.await.unwrap();
            Box::new(move || Box::pin(async move { guard.release().await.unwrap() }))
        }};
    }
    match kind {
        "mutex" => hold!(client.mutex(name).lock()),
        "write" => hold!(client.rw_lock(name).write()),
        "read" => hold!(client.rw_lock(name).read()),
        permits => {
            let (n, most) = so_many(permits).unwrap();
            hold!(client.semaphore(name, most).acquire(n))
        }
    }
}
/// A waiter of theirs hears of our release, and one of ours of theirs.
async fn woken(client: &Client, name: &str, kind: &str, (who, peer, theirs): (&str, &mut Peer, &str)) {
    let name = &name.replace([' ', '/'], "-");
    let (word, size) = theirs.split_once(' ').unwrap_or((theirs, ""));
    let waits = async || {
        while client.inspect(name).await.unwrap().waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ours = held(client, name, kind).await;
    let busy = tokio::task::block_in_place(|| peer.ask(&format!("acquire {word} /fencelock/{name} 50 {size}")));
    assert_eq!(busy, "busy", "{name}");
    peer.say(&format!("acquire {word} /fencelock/{name} 20000 {size}"));
    waits().await;
    assert_eq!(peer.heard(), None, "{name}");
    let began = Instant::now();
    ours().await;
    let answer = tokio::task::block_in_place(|| peer.hear());
    let theirs_after = began.elapsed();
    let handle = answer.strip_prefix("ok ").expect(&answer).split(' ').next().unwrap().to_owned();
    let (next, taken) = (client.clone(), (name.clone(), kind.to_owned()));
    let next = tokio::spawn(async move { held(&next, &taken.0, &taken.1).await });
    waits().await;
    assert!(!next.is_finished(), "{name}");
    let began = Instant::now();
    tokio::task::block_in_place(|| peer.release(&handle));
    next.await.unwrap()().await;
    let longest = theirs_after.max(began.elapsed());
    let what = format!("zookeeper: {kind} of ours and {who}'s {theirs} wake each other, slower way");
    bar(&what, format!("{longest:?}"), "<= 1 s", longest <= SEC);
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_are_shared_with_curators_selector_and_kazoos_election() {
    elections(None).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_with_credentials() {
    elections(Some("ann:s@cret")).await;
}
async fn elections(login: Option<&str>) {
    let zk = ZooKeeper::start();
    let client = of(&zk, Dialect::Curator, login).await;
    let (mut curator, mut kazoo) = tokio::task::block_in_place(|| (Peer::curator(&zk, login), Peer::kazoo(&zk, login)));
    let term = client.election("e").campaign("ours").await.unwrap();
    curator.say("leader /fencelock/e theirs");
    while client.inspect("e").await.unwrap().waiters.len() != 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let seen = tokio::task::block_in_place(|| kazoo.ask("participants mutex /fencelock/e"));
    assert!(seen.contains("ours") && seen.contains("theirs"), "{seen}");
    term.resign().await.unwrap();
    let answer = tokio::task::block_in_place(|| curator.hear());
    let handle = answer.strip_prefix("ok ").unwrap().split(' ').next().unwrap().to_owned();
    let leader = client.election("e").leader().await.unwrap().unwrap();
    assert_eq!(&*leader.candidate, "theirs");
    let again = tokio::spawn({
        let election = client.election("e");
        async move { election.campaign("ours").await.unwrap() }
    });
    while client.inspect("e").await.unwrap().waiters.len() != 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::task::block_in_place(|| curator.release(&handle));
    again.await.unwrap().resign().await.unwrap();
    assert!(client.election("e").leader().await.unwrap().is_none());
    // kazoo's, by its subclass in Curator's words, and stock in its own.
    for (name, dialect, word) in [("e1", Dialect::Curator, ""), ("e2", Dialect::Kazoo, " kazoo")] {
        let client = of(&zk, dialect, login).await;
        let waits = async |n| {
            while client.inspect(name).await.unwrap().waiters.len() != n {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let term = client.election(name).campaign("ours").await.unwrap();
        kazoo.say(&format!("leader /fencelock/{name} theirs{word}"));
        waits(1).await;
        term.resign().await.unwrap();
        let answer = tokio::task::block_in_place(|| kazoo.hear());
        let handle = answer.strip_prefix("ok ").unwrap().split(' ').next().unwrap().to_owned();
        assert_eq!(&*client.election(name).leader().await.unwrap().unwrap().candidate, "theirs");
        let again = tokio::spawn({
            let election = client.election(name);
            async move { election.campaign("ours").await.unwrap() }
        });
        waits(1).await;
        tokio::task::block_in_place(|| kazoo.release(&handle));
        again.await.unwrap().resign().await.unwrap();
    }
    // One that ranks by other names is refused.
    let answer = tokio::task::block_in_place(|| curator.ask("latch /fencelock/latch theirs"));
    assert!(answer.starts_with("ok"), "{answer}");
    let error = client.election("latch").campaign("ours").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_speaks_in_other_words_is_refused_and_told_of() {
    let zk = ZooKeeper::start();
    let (curators, kazoos) = (of(&zk, Dialect::Curator, None).await, of(&zk, Dialect::Kazoo, None).await);
    let (mut curator, mut kazoo) = tokio::task::block_in_place(|| (Peer::curator(&zk, None), Peer::kazoo(&zk, None)));
    // They are there first: we do not get in.
    let (handle, _) = tokio::task::block_in_place(|| kazoo.acquire("kazoo-mutex /fencelock/a 5000"));
    let error = curators.mutex("a").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
    tokio::task::block_in_place(|| kazoo.release(&handle));
    let (handle, _) = tokio::task::block_in_place(|| curator.acquire("mutex /fencelock/b 20000"));
    let error = kazoos.mutex("b").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
    let kind = curators.rw_lock("b").try_read().await.unwrap_err();
    assert_eq!(kind.kind(), ErrorKind::KindMismatch, "{kind}");
    tokio::task::block_in_place(|| curator.release(&handle));
    let (handle, _) = tokio::task::block_in_place(|| kazoo.acquire("kazoo-permits /fencelock/d 5000 1/2"));
    let error = curators.semaphore("d", 2).try_acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
    let error = curators.mutex("d").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
    let error = kazoos.mutex("d").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KindMismatch, "{error}");
    let beside = kazoos.semaphore("d", 2).acquire(1).await.unwrap();
    let none = tokio::task::block_in_place(|| kazoo.ask("acquire kazoo-permits /fencelock/d 50 1/2"));
    assert_eq!(none, "busy");
    assert_eq!(kazoos.semaphore("d", 3).acquire(1).await.unwrap_err().kind(), ErrorKind::CapacityMismatch);
    beside.release().await.unwrap();
    tokio::task::block_in_place(|| kazoo.release(&handle));
    // We are there first: they do, and we hear of it.
    for (name, theirs) in [("c", "kazoo-mutex"), ("p", "kazoo-permits")] {
        let guard = curators.mutex(name).lock().await.unwrap();
        is_told(name, theirs, &mut kazoo, guard.lost()).await;
    }
    for (name, writes) in [("w", true), ("r", false)] {
        if writes {
            let guard = curators.rw_lock(name).write().await.unwrap();
            is_told(name, "kazoo-mutex", &mut kazoo, guard.lost()).await;
        } else {
            let guard = curators.rw_lock(name).read().await.unwrap();
            is_told(name, "kazoo-mutex", &mut kazoo, guard.lost()).await;
        }
    }
    let guard = curators.semaphore("s", 2).acquire(1).await.unwrap();
    is_told("s", "kazoo-mutex", &mut kazoo, guard.lost()).await;
    let guard = curators.semaphore("t", 2).acquire(1).await.unwrap();
    is_told("t", "mutex", &mut curator, guard.lost()).await;
    let guard = kazoos.mutex("k").lock().await.unwrap();
    is_told("k", "mutex", &mut curator, guard.lost()).await;
    let guard = kazoos.semaphore("l", 2).acquire(1).await.unwrap();
    is_told("l", "mutex", &mut curator, guard.lost()).await;
}
/// This hold of ours is older than a second when somebody gets in beside it who minds other rules.
async fn is_told(name: &str, theirs: &str, peer: &mut Peer, lost: impl Future<Output = LossReason>) {
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let (handle, _) = tokio::task::block_in_place(|| peer.acquire(&format!("{theirs} /fencelock/{name} 20000 1/2")));
    let began = Instant::now();
    let why = tokio::time::timeout(20 * SEC, lost).await.expect("it is told");
    assert_eq!(why, LossReason::TakenOver);
    let took = began.elapsed();
    let what = format!("zookeeper: somebody of another layout ({theirs}) beside hold {name:?} is told after");
    bar(&what, format!("{took:?}"), "<= 1 s", took <= SEC);
    tokio::task::block_in_place(|| peer.release(&handle));
}
