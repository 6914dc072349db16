//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, missing_docs, missing_debug_implementations, reason = "a test fails where it unwraps")]
use fencelock_conformance::proxy::{Proxy, Trouble, resp};
use fencelock_core::Client;
use fencelock_redis::{Config, RedisEngine, raw::scripts};
use fencelock_testkit::Redis;
pub use fencelock_testkit::processes::full;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

pub const MS: Duration = Duration::from_millis(1);
pub const LONG: Duration = Duration::from_secs(10);

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
pub async fn client(url: &str) -> Client {
    Client::builder(Arc::new(RedisEngine::from_url(url).await.unwrap())).build().unwrap()
}
pub async fn client_with(config: Config) -> Client {
    Client::builder(Arc::new(RedisEngine::connect(config).await.unwrap())).build().unwrap()
}
/// In front of the server, and the URL that leads through it.
pub fn proxied(server: &Redis) -> (Proxy, String) {
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into(), resp);
    let url = format!("redis://{}", proxy.address());
    (proxy, url)
}
/// This is done to the first so many runs of this script, and nothing to all others. How many there were.
pub fn first(proxy: &Proxy, script: &str, many: u32, trouble: Trouble) -> Arc<AtomicU32> {
    let (_, sha, _) = scripts().into_iter().find(|(name, ..)| *name == script).unwrap();
    let (met, count) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = met.clone();
    proxy.rule(move |command| {
        let is_it = command.windows(sha.len()).any(|part| part == sha.as_bytes());
        if is_it && count.fetch_add(1, SeqCst) < many {
            seen.fetch_add(1, SeqCst);
            return trouble;
        }
        Trouble::None
    });
    met
}
/// Waits for a condition, with a deadline.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut yes: impl FnMut() -> F) -> Duration {
    let started = Instant::now();
    while !yes().await {
        assert!(started.elapsed() < LONG, "{what}: not within {LONG:?}");
        tokio::time::sleep(MS).await;
    }
    started.elapsed()
}
/// Until so many are in the queue.
pub async fn queued(client: &Client, name: &str, n: usize) {
    eventually(&format!("{n} in the queue of {name}"), || async {
        client.inspect(name).await.unwrap().waiters.len() == n
    })
    .await;
}
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.unwrap()
}
