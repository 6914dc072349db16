//! Uncontended pairs a second, ours beside the bare driver running the same statements, in turns in one run. Data on tmpfs where
//! there is one; the disk is reported beside it.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a benchmark fails where it unwraps")]
use fencelock_core::{Claim, Client, Result};
use fencelock_sqlite::{Config, SqliteEngine, raw::Raw};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(600);

fn main() {
    let pinned = std::env::args().any(|arg| arg == "pinned");
    if pinned {
        let mut one = rustix::thread::CpuSet::new();
        one.set(0);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        compare(&memory(), "tmpfs, pinned to one core", 1, true);
        return kinds(&memory(), "tmpfs, pinned to one core", 1);
    }
    compare(&memory(), "tmpfs", 16, true);
    compare(&memory(), "tmpfs, not pinned", 1, false);
    compare(&std::env::temp_dir(), "disk", 16, false);
    kinds(&memory(), "tmpfs", 16);
    // Pinned before its threads start: a process of its own.
    let status = Command::new(std::env::current_exe().unwrap()).arg("pinned").status().unwrap();
    assert!(status.success());
}
fn memory() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    if shm.is_dir() { shm } else { std::env::temp_dir() }
}

/// A database of its own, gone afterwards, with the two sides.
struct Arena {
    folder: PathBuf,
    client: Client,
    raw: Raw,
}
impl Arena {
    fn new(base: &Path) -> Self {
        let folder = base.join(format!("fencelock-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let database = folder.join("locks.db");
        let client = Client::builder(Arc::new(SqliteEngine::open(Config::new(&database)).unwrap())).build().unwrap();
        let raw = Raw::open(&database).unwrap();
        Self { folder, client, raw }
    }
    /// In turns: pairs a second of ours, and of the bare driver.
    fn run(&mut self, claim: Claim, tasks: usize) -> (f64, f64) {
        let mut builder = if tasks == 1 {
            tokio::runtime::Builder::new_current_thread()
        } else {
            tokio::runtime::Builder::new_multi_thread()
        };
        let runtime = builder.enable_all().build().unwrap();
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for turn in 0..=TURNS {
            let (a, b) = (run_raw(&mut self.raw, claim), run_ours(&runtime, &self.client, claim, tasks));
            if turn > 0 {
                bare.push(a);
                ours.push(b);
            }
        }
        (median(ours), median(bare))
    }
}
impl Drop for Arena {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn compare(base: &Path, place: &str, tasks: usize, judged: bool) {
    let (ours, bare) = Arena::new(base).run(Claim::Mutex, tasks);
    let ratio = ours / bare;
    let limit = |bar: &str| if judged { bar.to_owned() } else { "reported".to_owned() };
    let word = |ok: bool| if ok || !judged { "ok" } else { "MISSED" };
    println!(
        "MEASURED | SQLite pairs, {tasks} tasks, {place}, to the bare driver | {ratio:.2} ({ours:.0} to {bare:.0} pairs/s) | {} | {}",
        limit(">= 0.5"),
        word(ratio >= 0.5)
    );
    if tasks == 16 {
        println!(
            "MEASURED | SQLite pairs/s, 16 tasks, {place} | {ours:.0} | {} | {}",
            limit(">= 10000"),
            word(ours >= 10_000.0)
        );
    }
}
fn kinds(base: &Path, place: &str, tasks: usize) {
    let mut arena = Arena::new(base);
    for (claim, what) in
        [(Claim::Write, "RwLock write"), (Claim::Read, "RwLock read"), (Claim::Permits { take: 1, of: 3 }, "Semaphore")]
    {
        let (ours, bare) = arena.run(claim, tasks);
        let ratio = ours / bare;
        println!(
            "MEASURED | SQLite pairs, {what}, {tasks} tasks, {place}, to the bare driver | {ratio:.2} ({ours:.0} to {bare:.0} pairs/s) | >= 0.4 | {}",
            if ratio >= 0.4 { "ok" } else { "MISSED" }
        );
    }
}
fn run_raw(raw: &mut Raw, claim: Claim) -> f64 {
    let started = Instant::now();
    let mut pairs = 0u32;
    while started.elapsed() < TURN {
        for name in NAMES {
            raw.pair(&name_of(name, claim), claim).unwrap();
        }
        pairs += 16;
    }
    f64::from(pairs) / started.elapsed().as_secs_f64()
}
fn run_ours(runtime: &tokio::runtime::Runtime, client: &Client, claim: Claim, tasks: usize) -> f64 {
    let pairs = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    runtime.block_on(async {
        let all = NAMES.into_iter().take(tasks).map(|name| {
            let (client, name, pairs) = (client.clone(), name_of(name, claim), pairs.clone());
            tokio::spawn(async move {
                let (mutex, rw_lock, semaphore) =
                    (client.mutex(&name), client.rw_lock(&name), client.semaphore(&name, 3));
                let pair = || async {
                    match claim {
                        Claim::Read => rw_lock.read().await?.release().await,
                        Claim::Write => rw_lock.write().await?.release().await,
                        Claim::Permits { take, .. } => semaphore.acquire(take).await?.release().await,
                        _ => mutex.lock().await?.release().await,
                    }
                };
                while started.elapsed() < TURN {
                    let done: Result<()> = pair().await;
                    done.unwrap();
                    pairs.fetch_add(1, Relaxed);
                }
            })
        });
        for task in all.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    pairs.load(Relaxed) as f64 / started.elapsed().as_secs_f64()
}
/// Readers and writers share their names, other kinds do not.
fn name_of(name: &str, claim: Claim) -> String {
    format!("{name}/{}", claim.kind())
}
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
const NAMES: [&str; 16] = [
    "bench/00", "bench/01", "bench/02", "bench/03", "bench/04", "bench/05", "bench/06", "bench/07", "bench/08",
    "bench/09", "bench/10", "bench/11", "bench/12", "bench/13", "bench/14", "bench/15",
];
