//! Many locks held at once, and many names taken once: what that costs the client and the other clients of the server. The tests
//! run a small part of it (`tests/many.rs`).
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a benchmark fails where it unwraps")]
#[path = "../tests/common/mod.rs"]
pub mod common;
use common::*;
use fencelock_core::{Client, Guard};
use fencelock_redis::Config;
use fencelock_testkit::{
    Redis,
    processes::{bar, percentile},
};
use rustix::time::{ClockId, clock_gettime};
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
/// Time on a processor so far, of this process or thread.
fn cpu(of: ClockId) -> Duration {
    clock_gettime(of).try_into().unwrap()
}
/// A client that asks for nothing but PING.
struct Pinger(u16, Option<BufReader<TcpStream>>);
impl Pinger {
    /// How long a round trip took; `None`: it was cut, as all others are.
    fn ping(&mut self) -> Option<Duration> {
        let stream = self.1.get_or_insert_with(|| {
            let stream = TcpStream::connect(("127.0.0.1", self.0)).unwrap();
            stream.set_nodelay(true).unwrap();
            BufReader::new(stream)
        });
        let (began, mut line) = (Instant::now(), String::new());
        let sent = stream.get_mut().write_all(b"PING\r\n");
        if sent.is_ok() && stream.read_line(&mut line).is_ok_and(|n| n > 0) {
            return Some(began.elapsed());
        }
        self.1 = None;
        None
    }
}
/// Round trips of the server's other clients, and of a server that has nothing to do: where those are slow, the machine stood still.
#[derive(Default)]
struct Pings {
    /// Second by second.
    all: Vec<Vec<Duration>>,
    idle: Vec<Vec<Duration>>,
    /// The asking thread's own time on a processor.
    cpu: Duration,
}
impl Pings {
    /// Until it is told to end.
    fn start(port: u16, end: Arc<AtomicBool>) -> std::thread::JoinHandle<Self> {
        std::thread::spawn(move || {
            let nothing = Redis::start();
            let (mut this, mut idle) = (Pinger(port, None), Pinger(nothing.port(), None));
            let (mut pings, began) = (Self::default(), Instant::now());
            while !end.load(SeqCst) {
                let second = usize::try_from(began.elapsed().as_secs()).unwrap();
                pings.all.resize_with(second + 1, Vec::new);
                pings.idle.resize_with(second + 1, Vec::new);
                pings.all[second].extend(this.ping());
                pings.idle[second].extend(idle.ping());
                std::thread::sleep(5 * MS);
            }
            pings.cpu = cpu(ClockId::ThreadCPUTime);
            pings
        })
    }
    /// By the seconds in which none of the idle server's took longer than the bar, which are to be half of them at least.
    fn judge(self) {
        const BAR: Duration = Duration::from_millis(2);
        let kept = |of: &[Duration]| of.iter().all(|&took| took <= BAR);
        let ran: Vec<_> = self.all.iter().zip(&self.idle).filter(|(_, idle)| kept(idle)).map(|(all, _)| all).collect();
        let (seconds, ran, mut judged) =
            (self.all.len(), ran.len(), ran.into_iter().flatten().copied().collect::<Vec<_>>());
        let (mut all, mut idle) = (self.all.concat(), self.idle.concat());
        let (all, idle) = (percentile(&mut all, 0.99), percentile(&mut idle, 0.99));
        bar("PING of another client meanwhile, p99, in all seconds", format!("{all:?}"), "reported", true);
        bar("PING of a server beside that has nothing to do, p99", format!("{idle:?}"), "reported", true);
        let p99 = if judged.is_empty() { Duration::MAX } else { percentile(&mut judged, 0.99) };
        let what = format!(
            "PING of another client, p99, in the {ran} of {seconds} seconds in which none of the idle server's took longer"
        );
        bar(&what, format!("{p99:?}"), "<= 2 ms", p99 <= BAR && 2 * ran >= seconds);
    }
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
        let (end, began, from) = (Arc::new(AtomicBool::new(false)), Instant::now(), cpu(ClockId::ProcessCPUTime));
        let pings = Pings::start(server.port(), end.clone());
        tokio::time::sleep(span / 2).await;
        // All of them are asked for at once.
        let cut = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        assert_ne!(cut, ":0");
        tokio::time::sleep(span / 2).await;
        end.store(true, SeqCst);
        let pings = pings.join().unwrap();
        let own = cpu(ClockId::ProcessCPUTime).saturating_sub(from + pings.cpu);
        let part = 100.0 * own.as_secs_f64() / began.elapsed().as_secs_f64();
        let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
        assert_eq!((lost, c.held()), (0, n), "all of them are still held");
        bar(&format!("{n} locks held on Redis: the client"), format!("{part:.1} % of a core"), "< 10 %", part < 10.0);
        pings.judge();
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
                        c.mutex(format!("once/{i}")).ttl(5_000 * MS).lock().await.unwrap().release().await.unwrap();
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
