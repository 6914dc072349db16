//! Locks shared with redis-py, python-redis-lock, pottery, node-redlock, redis-semaphore and node-redisson, as they are: one counter that
//! nobody increments atomically, and who wakes whom. Rounds in full with FENCELOCK_PROVE=1, at a tenth without.
//!
//! Planted to see them go red: a `SET` without looking whether the key is there; another template than theirs; no signal; a hash that is
//! taken whoever has it; a release that tells nobody.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::{Client, ErrorKind};
use fencelock_testkit::{Folder, Peer, Redis, processes::tenth};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::task::block_in_place;

/// A step of a counter that only exclusion keeps exact.
async fn step(file: &Path) {
    let n: u64 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
    tokio::time::sleep(Duration::from_micros(200)).await;
    fs::write(file, (n + 1).to_string()).unwrap();
}
async fn rounds(client: Client, n: usize, file: PathBuf) {
    for _ in 0..n {
        let guard = client.mutex("x").lock().await.unwrap();
        step(&file).await;
        guard.release().await.unwrap();
    }
}
fn layout(kind: &str) -> &str {
    if kind == "redisson" { kind } else { "plain" }
}
/// Two of ours and two of theirs at once.
fn together(kind: &str, query: &str, key: &str, peer: fn(&Redis) -> Peer) {
    let (server, folder, n) = (Redis::start(), Folder::new("interop"), tenth(500));
    let file = folder.path().join("counter");
    fs::write(&file, "0").unwrap();
    let mut peers = [peer(&server), peer(&server)];
    runtime().block_on(async {
        let url = format!("{}?{query}", server.url());
        let clients = [client(&url).await, client(&url).await];
        // They exclude each other before they count: it is one key.
        let (handle, _) = block_in_place(|| peers[0].acquire(&format!("{kind} x 5000")));
        assert_eq!(server.ask(&["EXISTS", key]).unwrap(), ":1");
        let busy = clients[0].mutex("x").try_lock().await.unwrap().unwrap_err();
        let holder = busy.holder.unwrap();
        assert_eq!((&*holder.host, holder.pid), ("?", 0), "{holder:?}");
        block_in_place(|| peers[0].release(&handle));
        let guard = clients[0].mutex("x").lock().await.unwrap();
        assert_eq!(block_in_place(|| peers[0].ask(&format!("acquire {kind} x 100"))), "busy");
        guard.release().await.unwrap();

        for peer in &mut peers {
            peer.say(&format!("rounds {kind} x {n} {}", file.display()));
        }
        let began = Instant::now();
        let ours: Vec<_> = clients.map(|client| tokio::spawn(rounds(client, n, file.clone()))).into();
        for task in ours {
            task.await.unwrap();
        }
        let took = began.elapsed();
        for peer in &peers {
            let answer = block_in_place(|| peer.hear());
            assert!(answer.starts_with(&format!("ok {n} ")), "{kind}: {answer}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), (4 * n).to_string(), "{kind}");
        println!(
            "MEASURED | redis {}, {kind}: two of ours beside two of theirs, {n} rounds each | exact (ours in {took:?}, all in {:?}) | exact | ok",
            layout(kind),
            began.elapsed()
        );
        assert_eq!(server.ask(&["EXISTS", key]).unwrap(), ":0");
    });
}

#[test]
fn a_counter_is_exact_beside_redis_py() {
    together("redis-py", "layout=plain&template={}", "x", Peer::redis_python);
}
#[test]
fn a_counter_is_exact_beside_python_redis_lock() {
    together("python-redis-lock", "layout=plain&template=lock:{}&signal=lock-signal:{}", "lock:x", Peer::redis_python);
}
#[test]
fn a_counter_is_exact_beside_pottery() {
    together("pottery", "layout=plain&template=redlock:{}", "redlock:x", Peer::redis_python);
}
#[test]
fn a_counter_is_exact_beside_node_redlock() {
    together("redlock", "layout=plain&template={}", "x", Peer::redis_node);
}
#[test]
fn a_counter_is_exact_beside_redis_semaphore() {
    together("redis-semaphore", "layout=plain&template=mutex:{}", "mutex:x", Peer::redis_node);
}

#[test]
fn a_counter_is_exact_beside_node_redisson() {
    together("redisson", "layout=redisson", "x", Peer::redis_node);
}

/// One of them holds it in its layout: whoever asks in another one is told so, in whatever way he asks, and theirs is as it was.
fn mismatch(kind: &str, query: &str, peer: fn(&Redis) -> Peer) {
    let server = Redis::start();
    let mut peer = peer(&server);
    runtime().block_on(async {
        let client = client(&format!("{}?{query}", server.url())).await;
        let (handle, _) = block_in_place(|| peer.acquire(&format!("{kind} x 5000")));
        let written = || server.ask(&["EVAL", "return redis.sha1hex(redis.call('DUMP','x'))", "0"]).unwrap();
        let before = written();
        for error in [
            client.mutex("x").try_lock().await.unwrap_err(),
            soon(client.mutex("x").lock()).await.unwrap_err(),
            soon(client.mutex("x").try_lock_for(SEC)).await.unwrap_err(),
            client.inspect("x").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{kind}: {error}");
            assert!(error.to_string().contains("no lock of this layout"), "{kind}: {error}");
        }
        assert_eq!(written(), before, "{kind}");
        block_in_place(|| peer.release(&handle));
        client.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
    });
}
#[test]
fn a_hash_of_node_redisson_is_no_string_of_ours() {
    mismatch("redisson", "layout=plain", Peer::redis_node);
}
#[test]
fn a_string_of_redis_py_is_no_hash_of_ours() {
    mismatch("redis-py", "layout=redisson", Peer::redis_python);
}

/// A release of ours wakes theirs, and theirs wakes ours, who hear of every change.
fn wake(kind: &str, query: &str, key: &str, peer: fn(&Redis) -> Peer) {
    let server = Redis::start();
    let mut peer = peer(&server);
    runtime().block_on(async {
        let client = client(&format!("{}?{query}", server.url())).await;
        let (mut theirs, mut ours) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..if full() { 30 } else { 5 } {
            let guard = client.mutex("x").ttl(60 * SEC).lock().await.unwrap();
            peer.say(&format!("acquire {kind} x 60000"));
            tokio::time::sleep(300 * MS).await;
            let began = Instant::now();
            guard.release().await.unwrap();
            let answer = block_in_place(|| peer.hear());
            theirs = theirs.max(began.elapsed());
            let handle = answer.split(' ').nth(1).unwrap().to_owned();
            let lock = client.mutex("x");
            let wait = tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                (Instant::now(), guard)
            });
            tokio::time::sleep(300 * MS).await;
            let began = Instant::now();
            block_in_place(|| peer.release(&handle));
            let (at, guard) = soon(wait).await.unwrap();
            ours = ours.max(at.saturating_duration_since(began));
            guard.release().await.unwrap();
            // No signal of it stays for the next round.
            eventually("the signal ends", || async { server.ask(&["EXISTS", key]).unwrap() == ":0" }).await;
        }
        let limit = if full() { 200 * MS } else { 5 * SEC };
        assert!(theirs <= limit && ours <= limit, "{theirs:?}, {ours:?}");
        println!(
            "MEASURED | redis {}: a waiter of {kind} after our release, and ours after theirs, longest | {theirs:?}, {ours:?} | <= 200 ms | ok",
            layout(kind)
        );
    });
}
/// Its waiters block on a list until their own lease would be over, 30 s.
#[test]
fn releases_wake_the_other_side() {
    wake("python-redis-lock", &format!("{PLAIN}&signal=lock-signal:{{}}"), "lock-signal:x", Peer::redis_python);
}
/// Its waiters wait for a message for as long as the lease lasts.
#[test]
fn releases_wake_node_redisson() {
    wake("redisson", "layout=redisson", "x", Peer::redis_node);
}
