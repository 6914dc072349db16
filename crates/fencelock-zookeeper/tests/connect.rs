//! Connections: encrypted, with credentials, to servers of which some are dead; and what a client is granted.
//!
//! Planted to see them go red: nodes that are everybody's, whoever logs in.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::{eventually, within};
use fencelock_core::ErrorKind;
use fencelock_testkit::{
    Pki, Port, ZooKeeper, ZooKeeperOptions, ZooKeeperTls,
    processes::{bar, full},
};
use fencelock_zookeeper::{Config, Tls, ZooKeeperEngine};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_with_certificates_of_both_sides() {
    let pki = Pki::new(&["127.0.0.1"]);
    let (cert, key, ca) = (pki.file("ours.server.crt"), pki.file("ours.server.key"), pki.file("ours.ca"));
    let tls = ZooKeeperTls { cert, key, ca, client_auth: true };
    let zk = ZooKeeper::with(ZooKeeperOptions { tls: Some(tls), ..ZooKeeperOptions::default() });
    let config = |ca: Option<&str>, client: Option<&str>| {
        let mut config = Config::from_url(&zk.url()).unwrap();
        let pair = |who: &str| (pki.file(&format!("{who}.client.crt")), pki.file(&format!("{who}.client.key")));
        config.tls = Some(Tls { ca: ca.map(|name| pki.file(name)), client: client.map(pair) });
        config
    };
    let good = config(Some("ours.ca"), Some("ours"));
    let a = built(ZooKeeperEngine::connect(good.clone()).await.unwrap());
    let word = |name: &str| pki.file(name).display().to_string();
    let (ca, cert, key) = (word("ours.ca"), word("ours.client.crt"), word("ours.client.key"));
    let url = format!("{}?ca={ca}&cert={cert}&key={key}", zk.url());
    let b = built(ZooKeeperEngine::from_url(&url).await.unwrap());
    let guard = a.mutex("x").lock().await.unwrap();
    let next = tokio::spawn(b.mutex("x").lock());
    eventually("it waits", || async { a.inspect("x").await.unwrap().waiters.len() == 1 }).await;
    guard.release().await.unwrap();
    within("its turn", next).await.unwrap().unwrap().release().await.unwrap();
    // Signed by nobody whom we trust; a client that shows none, or one that the server does not trust; and no encryption at all.
    let mut plain = Config::from_url(&zk.url()).unwrap();
    plain.tls = None;
    let wrong = [
        config(Some("others.ca"), Some("ours")),
        config(None, Some("ours")),
        config(Some("ours.ca"), None),
        config(Some("ours.ca"), Some("others")),
        plain,
    ];
    let all = wrong.map(|wrong| tokio::spawn(async move { (ZooKeeperEngine::connect(wrong.clone()).await, wrong) }));
    for one in all {
        let (end, wrong) = one.await.unwrap();
        let error = end.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{wrong:?}: {error}");
    }
    // Files that are none.
    for (ca, cert, key) in [
        ("missing", "ours.client.crt", "ours.client.key"),
        ("nothing", "ours.client.crt", "ours.client.key"),
        ("ours.ca", "nothing", "ours.client.key"),
        ("ours.ca", "ours.client.crt", "nothing"),
    ] {
        let mut wrong = good.clone();
        wrong.tls = Some(Tls { ca: Some(pki.file(ca)), client: Some((pki.file(cert), pki.file(key))) });
        let error = ZooKeeperEngine::connect(wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{ca} {cert} {key}: {error}");
    }
}

/// With user and password nodes are the creator's alone, and of those whom he names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_belong_to_whoever_logs_in() {
    let zk = ZooKeeper::start();
    let open = async |user: &str, more: &str| {
        let url = zk.url().replace("zookeeper://", &format!("zookeeper://{user}")) + more;
        built(ZooKeeperEngine::from_url(&url).await.unwrap())
    };
    let ann = open("ann:secret@", "?root=/ann").await;
    let guard = ann.mutex("x").lock().await.unwrap();
    // The lock's own node, and what was made for it to lie in, alike.
    let mut shell = zk.shell();
    shell.log_in("ann:secret").unwrap();
    for node in [guard.place().unwrap(), "/ann/x", "/ann"] {
        let who = shell.acl(node).unwrap();
        assert!(who.len() == 1 && who[0].0.starts_with("digest:ann:") && who[0].1 == 31, "{node}: {who:?}");
    }
    for other in [
        ZooKeeperEngine::from_url(&(zk.url() + "?root=/ann")).await,
        ZooKeeperEngine::from_url(&(zk.url().replace("//", "//bob:hunter2@") + "?root=/ann")).await,
        ZooKeeperEngine::from_url(&(zk.url().replace("//", "//ann:wrong@") + "?root=/ann")).await,
    ] {
        let error = other.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(!error.to_string().contains("hunter2") && !error.to_string().contains("wrong"), "{error}");
    }
    guard.release().await.unwrap();
    // `digest:bob:` and the hash of `bob:hunter2`, as `DigestAuthenticationProvider` makes it.
    let more = "?root=/both&acl=digest:bob:1Yu1ryCXOIF7lyFzbmQ5J%2BMJOZc%3D";
    let guard = open("ann:secret@", more).await.mutex("x").lock().await.unwrap();
    let bob = open("bob:hunter2@", "?root=/both").await;
    let who: Vec<_> = shell.acl(guard.place().unwrap()).unwrap().into_iter().map(|(who, _)| who).collect();
    assert!(who.len() == 2 && who.contains(&"digest:bob:1Yu1ryCXOIF7lyFzbmQ5J+MJOZc=".to_owned()), "{who:?}");
    let busy = bob.mutex("x").try_lock().await.unwrap().unwrap_err();
    assert_eq!(busy.holder.unwrap().hold, guard.id());
    let error = ZooKeeperEngine::from_url(&(zk.url() + "?root=/both")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

/// Whoever waits behind a node that he may not read is told all the same that it goes, and need not look by himself half a minute later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_may_not_read_the_one_in_front_is_told_that_he_goes() {
    let zk = ZooKeeper::start();
    let open = async |user: &str| {
        let url = zk.url().replace("zookeeper://", &format!("zookeeper://{user}")) + "?root=/open";
        built(ZooKeeperEngine::from_url(&url).await.unwrap())
    };
    // What lies above is everybody's.
    open("").await.mutex("x").lock().await.unwrap().release().await.unwrap();
    let (ann, bob) = (open("ann:secret@").await, open("bob:hunter2@").await);
    for _ in 0..3 {
        let guard = ann.mutex("x").lock().await.unwrap();
        let wait = tokio::spawn(bob.mutex("x").lock());
        let both = || tokio::task::block_in_place(|| zk.shell().children("/open/x").unwrap().len() == 2);
        eventually("he waits", || async { both() }).await;
        // His watch, which is one more call, is there; or he looks for himself.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!wait.is_finished());
        guard.release().await.unwrap();
        let next = tokio::time::timeout(10 * SEC, wait).await.expect("he is told").unwrap().unwrap();
        next.release().await.unwrap();
    }
}

/// The server has the last word about a session's timeout, and that is what a hold is good for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_grants_counts() {
    let zk = ZooKeeper::with(ZooKeeperOptions { max_session: 4 * SEC, ..ZooKeeperOptions::default() });
    let asked = client(&zk, 60 * SEC).await;
    assert_eq!(asked.info().default_ttl, 4 * SEC);
    let guard = asked.mutex("x").lock().await.unwrap();
    assert!(guard.ttl() == 4 * SEC && guard.remaining() <= 4 * SEC);
    let error = asked.mutex("y").ttl(SEC).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    // Two ticks at least.
    let short = client(&zk, Duration::from_millis(200)).await;
    assert!(short.info().default_ttl >= SEC, "{:?}", short.info().default_ttl);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_dead() {
    let (dead, zk) = (Port::free(), ZooKeeper::start());
    let began = Instant::now();
    let error = ZooKeeperEngine::from_url(&format!("zookeeper://127.0.0.1:{dead}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(began.elapsed() < 20 * SEC, "{:?}", began.elapsed());
    // One of them lives.
    for _ in 0..4 {
        let url = format!("zookeeper://127.0.0.1:{dead},{}", zk.endpoints());
        let client = built(ZooKeeperEngine::from_url(&url).await.unwrap());
        client.mutex("x").lock().await.unwrap().release().await.unwrap();
    }
}

/// The server takes no more of this address: whoever comes is told where to look, and those who are there go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_as_the_server_takes_of_one_address() {
    let arguments = vec!["maxClientCnxns=2".to_owned()];
    let zk = ZooKeeper::with(ZooKeeperOptions { arguments, ..ZooKeeperOptions::default() });
    let [a, b] = [client(&zk, 6 * SEC).await, client(&zk, 6 * SEC).await];
    let guard = a.mutex("x").lock().await.unwrap();
    b.mutex("y").lock().await.unwrap().release().await.unwrap();
    let began = Instant::now();
    let error = ZooKeeperEngine::from_url(&zk.url()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("maxClientCnxns"), "{error}");
    assert!(began.elapsed() < 20 * SEC, "{:?}", began.elapsed());
    let next = tokio::spawn(b.mutex("x").lock());
    guard.release().await.unwrap();
    within("its turn", next).await.unwrap().unwrap().release().await.unwrap();
    // One of them has gone.
    b.shutdown(SEC).await.unwrap();
    eventually("there is room", || async { ZooKeeperEngine::from_url(&zk.url()).await.is_ok() }).await;
}
/// A server that restarts costs nobody his hold, and nobody his place; a majority that is missing, neither (SAFETY E8).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_survived() {
    let zk = ZooKeeper::cluster();
    let (a, b) = (client(&zk, 60 * SEC).await, client(&zk, 60 * SEC).await);
    let guard = a.mutex("x").lock().await.unwrap();
    let mut wait = b.mutex("x").lock();
    within("it waits", async {
        while wait.blocked_by().is_none() {
            assert!(tokio::time::timeout(SEC / 50, &mut wait).await.is_err());
        }
    })
    .await;
    eventually("it waits", || async { a.inspect("x").await.unwrap().waiters.len() == 1 }).await;
    let hold = a.inspect("x").await.unwrap().waiters[0].hold;
    zk.kill(0);
    zk.kill(1);
    let began = Instant::now();
    let error = a.mutex("y").lock().await.unwrap_err();
    // Whether the last try was refused or not answered is the member's affair.
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Ambiguous), "{error}");
    assert!(began.elapsed() < 20 * SEC, "{:?}", began.elapsed());
    // What is known of the holder is from before (SAFETY E8).
    eventually("it is told", || std::future::ready(wait.blocked_by().is_some_and(|busy| busy.stale))).await;
    guard.check().unwrap();
    zk.begin(0);
    zk.restart(1);
    eventually("it is answered", || async { a.inspect("x").await.is_ok() }).await;
    guard.check().unwrap();
    let status = a.inspect("x").await.unwrap();
    assert_eq!(status.waiters.iter().map(|waiter| waiter.hold).collect::<Vec<_>>(), [hold], "{status:?}");
    eventually("it is known", || std::future::ready(wait.blocked_by().is_some_and(|busy| !busy.stale))).await;
    guard.release().await.unwrap();
    let next = within("its turn", wait).await.unwrap();
    assert_eq!(next.id(), hold);
    next.release().await.unwrap();
}

/// Of many holds a client keeps one session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holds_cost_a_word_now_and_then() {
    let holds = if full() { 10_000 } else { 1_000 };
    let zk = ZooKeeper::start();
    let client = client(&zk, 6 * SEC).await;
    let mut held = Vec::new();
    for batch in 0..holds / 100 {
        let tasks = (0..100).map(|n| {
            let mutex = client.mutex(format!("held{}", 100 * batch + n));
            tokio::spawn(async move { mutex.lock().await.unwrap() })
        });
        for task in tasks.collect::<Vec<_>>() {
            held.push(task.await.unwrap());
        }
    }
    // Everybody is watched by now.
    tokio::time::sleep(3 * SEC).await;
    let mut words = f64::MAX;
    // Where a machine stands still a connection is made anew, and all is looked at then: not three times on end.
    for _ in 0..3 {
        let (began, mut last) = (Instant::now(), messages(&zk));
        loop {
            tokio::time::sleep(SEC).await;
            let now = messages(&zk);
            // This question is one of them.
            if now - last <= 4.0 {
                break;
            }
            assert!(began.elapsed() < 20 * SEC, "it does not become quiet");
            last = now;
        }
        let before = messages(&zk);
        tokio::time::sleep(6 * SEC).await;
        words = messages(&zk) - before - 1.0;
        if words <= 18.0 {
            break;
        }
    }
    held.iter().for_each(|guard| guard.check().unwrap());
    bar(
        &format!("zookeeper: {holds} holds with a session of 6 s"),
        format!("{words} messages in 6 s"),
        "<= 3 a second",
        words <= 18.0,
    );
    assert!(words <= 18.0, "{words}");
    for guard in held {
        guard.release().await.unwrap();
    }
}
