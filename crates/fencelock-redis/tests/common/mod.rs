//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, missing_docs, missing_debug_implementations, reason = "a test fails where it unwraps")]
pub mod failovers;
pub mod five;
pub mod redisson;
pub mod replicated;
#[path = "../../../fencelock-testkit/stories/common.rs"]
mod stories;
use fencelock_conformance::proxy::{Proxy, resp};
use fencelock_core::{Client, Guard};
use fencelock_redis::{Config, RedisEngine, connect, raw::scripts};
use fencelock_testkit::Redis;
pub use fencelock_testkit::processes::full;
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};
pub use stories::*;

pub async fn client(url: &str) -> Client {
    client_with(Config::from_url(url).unwrap()).await
}
pub async fn client_with(config: Config) -> Client {
    Client::builder(connect(config).await.unwrap()).build().unwrap()
}
/// In front of the server, and the URL that leads through it.
pub fn proxied(server: &Redis) -> (Proxy, String) {
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into(), resp);
    let url = format!("redis://{}", proxy.address());
    (proxy, url)
}
/// What makes a URL one of the layout `plain`, with keys `lock:NAME`.
pub const PLAIN: &str = "layout=plain&template=lock:{}";
pub fn call(script: &str) -> String {
    let (_, sha, _) = scripts().into_iter().find(|(name, ..)| *name == script).unwrap();
    sha
}
/// The limit in full; else that it was not the renewal, twenty seconds later.
pub fn in_time(took: Duration, what: &str) {
    let limit = if full() { 250 * MS } else { 5_000 * MS };
    assert!(took <= limit, "{what}: told after {took:?}");
}
/// A client of the layout `plain`.
pub async fn plain(url: &str) -> Client {
    client(&format!("{url}{}{PLAIN}", if url.contains('?') { '&' } else { '?' })).await
}
pub fn number(answer: &str) -> i64 {
    answer.trim_start_matches(':').parse().unwrap_or_else(|_| panic!("{answer:?}"))
}
pub fn pttl(server: &Redis, key: &str) -> i64 {
    number(&server.ask(&["PTTL", key]).unwrap())
}
/// Has it renewed long before its time: one that is watched is, after its connections broke.
pub async fn renew(server: &Redis, guard: &Guard) {
    tokio::time::sleep(250 * MS).await;
    let before = guard.valid_until();
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    eventually("renewed", || async { guard.valid_until() > before }).await;
}
/// Somebody who listens there: each message, as it comes.
pub fn listen(server: &Redis, channel: &str) -> mpsc::Receiver<(Instant, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    write!(stream, "*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{channel}\r\n", channel.len()).unwrap();
    let (tx, messages) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines =
            BufReader::new(stream).lines().map_while(Result::ok).filter(|line| !line.starts_with(['*', '$']));
        while let Some(kind) = lines.next() {
            let (_channel, said) = (lines.next(), lines.next());
            let _ = match kind.as_str() {
                "message" => tx.send((Instant::now(), said.unwrap_or_default())).is_ok(),
                _ => ready.send(()).is_ok(),
            };
        }
    });
    is_ready.recv_timeout(LONG).unwrap();
    messages
}
