//! Many locks held at once, and many names taken once: what that costs the client and the other clients of the server. The tests
//! run a small part of it (`tests/many.rs`).
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a benchmark fails where it unwraps")]
#[path = "../tests/common/mod.rs"]
pub mod common;
use common::*;
use fencelock_core::{Client, Guard};
use fencelock_redis::Config;
use fencelock_testkit::{Redis, processes::bar};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

#[allow(dead_code, reason = "the tests have their own sizes")]
fn main() {
    held(100_000, 30_000 * MS, 120_000 * MS);
    names(1_000_000);
}
/// Time on a processor of this process so far.
fn cpu() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).try_into().unwrap()
}
/// Another client's round trips, until it is told to end: how long the slowest of a hundred took.
fn pings(port: u16, end: Arc<AtomicBool>) -> std::thread::JoinHandle<Duration> {
    let connect = move || {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        BufReader::new(stream)
    };
    std::thread::spawn(move || {
        let (mut stream, mut line, mut times) = (connect(), String::new(), Vec::new());
        while !end.load(SeqCst) {
            let began = Instant::now();
            let sent = stream.get_mut().write_all(b"PING\r\n");
            line.clear();
            // It is cut as all others are.
            if sent.is_ok() && stream.read_line(&mut line).is_ok_and(|n| n > 0) {
                times.push(began.elapsed());
            } else {
                stream = connect();
            }
            std::thread::sleep(5 * MS);
        }
        times.sort_unstable();
        times[(times.len() * 99).div_ceil(100).saturating_sub(1)]
    })
}
/// As fast as 64 tasks take them.
async fn take(client: &Client, n: usize, ttl: Duration) -> Vec<Guard> {
    let next = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (client, next) = (client.clone(), next.clone());
            tokio::spawn(async move {
                let mut guards = Vec::new();
                loop {
                    let i = next.fetch_add(1, SeqCst);
                    if i >= n {
                        return guards;
                    }
                    guards.push(client.mutex(format!("many/{i}")).ttl(ttl).lock().await.unwrap());
                }
            })
        })
        .collect();
    let mut all = Vec::with_capacity(n);
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all
}

/// So many for so long: none is lost.
pub(crate) fn held(n: usize, ttl: Duration, span: Duration) {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let guards = take(&c, n, ttl).await;
        let (end, began, from) = (Arc::new(AtomicBool::new(false)), Instant::now(), cpu());
        let pings = pings(server.port(), end.clone());
        tokio::time::sleep(span / 2).await;
        // All of them are asked for at once.
        let cut = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        assert_ne!(cut, ":0");
        tokio::time::sleep(span / 2).await;
        let part = 100.0 * (cpu() - from).as_secs_f64() / began.elapsed().as_secs_f64();
        end.store(true, SeqCst);
        let p99 = pings.join().unwrap();
        let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
        assert_eq!((lost, c.held()), (0, n), "all of them are still held");
        bar(&format!("{n} locks held on Redis: the client"), format!("{part:.1} % of a core"), "< 10 %", part < 10.0);
        bar("PING of another client meanwhile, p99", format!("{p99:?}"), "<= 2 ms", p99 <= 2 * MS);
        drop(guards);
        let deadline = Instant::now() + 6 * LONG;
        while c.held() > 0 {
            assert!(Instant::now() < deadline, "{} are left", c.held());
            tokio::time::sleep(10 * MS).await;
        }
        c.shutdown(6 * LONG).await.unwrap();
    });
}

/// After the retention no key of them is left.
pub(crate) fn names(n: usize) {
    let server = Redis::start();
    runtime().block_on(async {
        let mut config = Config::new("127.0.0.1", server.port());
        config.retention = 2_000 * MS;
        let c = client_with(config).await;
        let next = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let (c, next) = (c.clone(), next.clone());
                tokio::spawn(async move {
                    loop {
                        let i = next.fetch_add(1, SeqCst);
                        if i >= n {
                            return;
                        }
                        c.mutex(format!("once/{i}")).ttl(1_000 * MS).lock().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(c.held(), 0);
        c.shutdown(6 * LONG).await.unwrap();
        let began = Instant::now();
        // Expired keys go when the server comes to them.
        let deadline = began + 6 * LONG;
        while server.ask(&["DBSIZE"]).unwrap() != ":0" {
            assert!(Instant::now() < deadline, "{} keys are left", server.ask(&["DBSIZE"]).unwrap());
            tokio::time::sleep(50 * MS).await;
        }
        bar("names taken once on Redis: keys left after the retention", format!("0 of {n}"), "0", true);
    });
}
