//! Benchmarks of an engine beside the bare driver with the engine's operations: one after the other in one run, so that a noisy machine is
//! noisy for both.
#![allow(missing_docs, reason = "a benchmark says in its figures what it shows")]
#![allow(clippy::cast_precision_loss, reason = "a rate")]
use crate::processes::percentile;
use fencelock_core::{BootClock, Client, Clock, Engine};
use std::{
    future::Future,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Handle};

/// So often each side has its turn; the first one is not counted.
const TURNS: usize = 7;
const TURN: Duration = Duration::from_millis(800);
/// Hand-overs in all, shared by the processes.
const HOLDS: usize = 320;
/// So long each of them holds.
const HELD: std::ops::Range<u64> = 20_000..40_000;
/// What processes hand over to each other.
pub const NAME: &str = "handoff";

/// An engine, its server, and the bare driver.
pub trait Bench: 'static {
    /// As figures name it.
    const ENGINE: &'static str;
    /// What several tasks share.
    const CONNECTIONS: &'static str = "one connection";
    /// What runs for as long as it is asked.
    type Server;
    /// The bare driver with this engine's operations.
    type Raw: Rival;
    fn start() -> Self::Server;
    fn url(server: &Self::Server) -> String;
    fn engine(url: &str) -> impl Future<Output = Arc<dyn Engine>> + Send;
}
/// The bare driver with an engine's operations, and no library.
pub trait Rival: Clone + Send + Sync + Sized + 'static {
    type Hold: Send + Sync;
    fn connect(url: &str) -> impl Future<Output = Self> + Send;
    /// Takes a lock that is free, and gives it back.
    fn pair(&self, name: &str, hold: u128) -> impl Future<Output = ()> + Send;
    /// Waits for it.
    fn lock(&self, name: &str, hold: u128) -> impl Future<Output = Self::Hold> + Send;
    fn release(&self, hold: Self::Hold) -> impl Future<Output = ()> + Send;
}

/// Uncontended pairs a second: with one task, with 16, and with one on one core.
///
/// # Panics
/// Something does not do what it should.
pub fn pairs<B: Bench>() {
    if is_pinned() {
        // The client's threads on one core; the server keeps both.
        return compare::<B>(1, "client pinned to one core", "reported");
    }
    compare::<B>(1, "not pinned", ">= 0.9");
    compare::<B>(16, B::CONNECTIONS, ">= 0.9");
    let me = std::env::current_exe().unwrap_or_else(|e| panic!("{e}"));
    let status = Command::new("taskset").args(["-c", "1"]).arg(me).arg("pinned").status();
    assert!(status.is_ok_and(|status| status.success()), "taskset");
}
/// A runtime in a thread of its own, as that of the library's background: what is there lives on when whoever asked is blocked or gone.
///
/// # Panics
/// There is no thread for it.
pub fn background() -> Handle {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap_or_else(|e| panic!("{e}"));
    let handle = runtime.handle().clone();
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
}
/// The process was started to measure on one core.
pub fn is_pinned() -> bool {
    std::env::args().any(|arg| arg == "pinned")
}
/// One of these figures: of so many tasks, there, with this limit.
///
/// # Panics
/// As [`pairs`].
pub fn compare<B: Bench>(tasks: usize, place: &str, limit: &str) {
    let server = B::start();
    let url = B::url(&server);
    let mut builder = if tasks == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    let runtime = builder.enable_all().build().unwrap_or_else(|e| panic!("{e}"));
    let (client, raw) = runtime.block_on(async {
        // What is made once is made before, by neither side: sessions that have made tables are slower by some per cent.
        drop(B::Raw::connect(&url).await);
        let client = Client::builder(B::engine(&url).await).build().unwrap_or_else(|e| panic!("{e}"));
        (client, B::Raw::connect(&url).await)
    });
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let b = runtime.block_on(rate(tasks, |task| {
            let raw = raw.clone();
            move || {
                // As random as ours: ids that count up are cheaper for a server.
                let (raw, hold) = (raw.clone(), fastrand::u128(..));
                async move { raw.pair(&format!("raw{task}"), hold).await }
            }
        }));
        let a = runtime.block_on(rate(tasks, |task| {
            let lock = client.mutex(format!("ours{task}"));
            move || {
                let lock = lock.clone();
                async move {
                    let guard = lock.lock().await.unwrap_or_else(|e| panic!("{e}"));
                    guard.release().await.unwrap_or_else(|e| panic!("{e}"));
                }
            }
        }));
        if turn > 0 {
            ours.push(a);
            bare.push(b);
        }
    }
    let (ours, bare) = (median(ours), median(bare));
    let (engine, ratio) = (B::ENGINE, ours / bare);
    let verdict = if ratio >= 0.9 || limit == "reported" { "ok" } else { "MISSED" };
    println!(
        "MEASURED | {engine} pairs, {tasks} tasks, {place}, to the bare driver | {ratio:.2} ({ours:.0} to {bare:.0} pairs/s) | {limit} | {verdict}"
    );
}
async fn rate<F, W, P>(tasks: usize, work: F) -> f64
where
    F: Fn(usize) -> W,
    W: FnMut() -> P + Send + 'static,
    P: Future<Output = ()> + Send,
{
    let (started, pairs) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let task = |task| {
        let (mut pair, pairs) = (work(task), pairs.clone());
        tokio::spawn(async move {
            while started.elapsed() < TURN {
                pair().await;
                pairs.fetch_add(1, Relaxed);
            }
        })
    };
    let all: Vec<_> = (0..tasks).map(task).collect();
    for one in all {
        one.await.unwrap_or_else(|e| panic!("{e}"));
    }
    pairs.load(Relaxed) as f64 / started.elapsed().as_secs_f64()
}
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// A hand-over, from the call of `release` until another one has the lock: the median and the p99 of those who waited meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Handed {
    pub p50: Duration,
    pub p99: Duration,
}
impl Handed {
    /// One line, of this to that.
    pub fn compare(self, what: &str, to: Self, limit: f64) {
        let ratio = self.p50.as_secs_f64() / to.p50.as_secs_f64();
        println!(
            "MEASURED | {what} | {ratio:.2} ({:.2?} to {:.2?}; p99 {:.2?} to {:.2?}) | <= {limit} | {}",
            self.p50,
            to.p50,
            self.p99,
            to.p99,
            if ratio <= limit { "ok" } else { "MISSED" }
        );
    }
}
/// Hand-overs between processes, of which each holds for 20 to 40 ms, ours and the bare driver's. `beside`: what else is measured in the
/// same run, with this figure of ours.
///
/// # Panics
/// Something does not do what it should; two hold at once.
pub fn handoff<B: Bench>(beside: impl Fn(usize, Handed)) {
    if is_worker::<B>() {
        return;
    }
    for processes in [2, 16] {
        let [ours, bare] = ["ours", "bare"].map(|kind| between::<B>(kind, processes, None));
        ours.compare(
            &format!("hand-over between {processes} processes on {}, p50, to the bare driver", B::ENGINE),
            bare,
            1.5,
        );
        beside(processes, ours);
    }
}
/// The process was started to do a part of a hand-over, and has done it.
///
/// # Panics
/// As [`handoff`].
pub fn is_worker<B: Bench>() -> bool {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [worker, kind, url, holds] = &words.iter().map(String::as_str).collect::<Vec<_>>()[..] else { return false };
    if *worker == "worker" {
        work::<B>(kind, url, holds.parse().unwrap_or_else(|e| panic!("{e}")));
    }
    *worker == "worker"
}
/// Starts this very program again.
fn start(kind: &str, url: &str, holds: usize) -> Child {
    let me = std::env::current_exe().unwrap_or_else(|e| panic!("{e}"));
    let mut command = Command::new(me);
    command.args(["worker", kind, url, &holds.to_string()]).stdout(Stdio::piped());
    command.spawn().unwrap_or_else(|e| panic!("{e}"))
}
/// `url`: of another server than one of its own.
pub fn between<B: Bench>(kind: &str, processes: usize, url: Option<&str>) -> Handed {
    let server = url.is_none().then(B::start);
    let url = url.map_or_else(|| server.as_ref().map(B::url).unwrap_or_default(), str::to_owned);
    let holds = HOLDS / processes;
    let all: Vec<_> = (0..processes).map(|_| start(kind, &url, holds)).collect();
    // When it was asked for, got and given back, of each hold.
    let mut spans: Vec<[u64; 3]> = Vec::new();
    for one in all {
        let out = one.wait_with_output().unwrap_or_else(|e| panic!("{e}"));
        assert!(out.status.success(), "{kind}: {}", out.status);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        spans.extend(text.lines().map(|line| {
            let mut words = line.split(' ').map(|word| word.parse().unwrap_or(0));
            [(); 3].map(|()| words.next().unwrap_or(0))
        }));
    }
    assert_eq!(spans.len(), holds * processes, "{kind}");
    spans.sort_unstable_by_key(|[_, held, _]| *held);
    let waited = spans.windows(2).filter_map(|pair| {
        let [[_, _, released], [asked, held, _]] = [pair[0], pair[1]];
        assert!(held >= released, "{kind}: two at once");
        (asked < released).then(|| Duration::from_nanos(held - released))
    });
    let mut times: Vec<Duration> = waited.collect();
    Handed { p50: percentile(&mut times, 0.5), p99: percentile(&mut times, 0.99) }
}
fn work<B: Bench>(kind: &str, url: &str, holds: usize) {
    let (kind, url) = (kind.to_owned(), url.to_owned());
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap_or_else(|e| panic!("{e}"));
    // On the runtime's own thread, as a service's tasks are.
    let work = async move {
        if kind == "ours" {
            let client = Client::builder(B::engine(&url).await).build().unwrap_or_else(|e| panic!("{e}"));
            let lock = client.mutex(NAME);
            for _ in 0..holds {
                let span = Span::begins();
                let guard = lock.lock().await.unwrap_or_else(|e| panic!("{e}"));
                span.held(async || guard.release().await.unwrap_or_else(|e| panic!("{e}"))).await;
            }
            return;
        }
        let raw = B::Raw::connect(&url).await;
        for n in 0..holds {
            let span = Span::begins();
            let mine = raw.lock(NAME, (u128::from(std::process::id()) << 64) + n as u128).await;
            span.held(async || raw.release(mine).await).await;
        }
    };
    runtime.block_on(async { tokio::spawn(work).await.unwrap_or_else(|e| panic!("{e}")) });
}
/// From when it was asked for.
struct Span(u64);
impl Span {
    fn begins() -> Self {
        Self(BootClock.now().as_nanos())
    }
    async fn held<F: Future<Output = ()>>(self, release: impl FnOnce() -> F) {
        let held = BootClock.now().as_nanos();
        tokio::time::sleep(Duration::from_micros(fastrand::u64(HELD))).await;
        let released = BootClock.now().as_nanos();
        release().await;
        println!("{} {held} {released}", self.0);
    }
}
