//! Uncontended pairs a second, ours beside the bare driver sending the same operations on the same runtime flavour, in turns in one
//! run.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a benchmark fails where it unwraps")]
use fencelock_core::Client;
use fencelock_testkit::ZooKeeper;
use fencelock_zookeeper::{ZooKeeperEngine, raw::Raw};
use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const TURNS: usize = 7;
const TURN: Duration = Duration::from_millis(800);

fn main() {
    if std::env::args().any(|arg| arg == "pinned") {
        // The client's threads on one core; the server keeps both.
        return compare(1, "client pinned to one core");
    }
    compare(1, "not pinned");
    compare(16, "one connection");
    let me = std::env::current_exe().unwrap();
    let status = Command::new("taskset").args(["-c", "1"]).arg(me).arg("pinned").status().unwrap();
    assert!(status.success());
}

fn compare(tasks: usize, place: &str) {
    let zk = ZooKeeper::start();
    let mut builder = match tasks {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build().unwrap();
    let (client, raw) = runtime.block_on(async {
        let engine = ZooKeeperEngine::from_url(&zk.url()).await.unwrap();
        (Client::builder(Arc::new(engine)).build().unwrap(), Raw::connect(&zk.url()).await.unwrap())
    });
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let b = runtime.block_on(run(tasks, |task| {
            let (raw, mut n) = (raw.clone(), (task as u128) << 64);
            move || {
                n += 1;
                let raw = raw.clone();
                async move { raw.pair(&format!("raw{task}"), n).await.unwrap() }
            }
        }));
        let a = runtime.block_on(run(tasks, |task| {
            let lock = client.mutex(format!("ours{task}"));
            move || {
                let lock = lock.clone();
                async move { lock.lock().await.unwrap().release().await.unwrap() }
            }
        }));
        if turn > 0 {
            ours.push(a);
            bare.push(b);
        }
    }
    let (ours, bare) = (median(ours), median(bare));
    let ratio = ours / bare;
    println!(
        "MEASURED | zookeeper pairs, {tasks} tasks, {place}, to the bare driver | {ratio:.2} ({ours:.0} to {bare:.0} pairs/s) | >= 0.9 | {}",
        if ratio >= 0.9 { "ok" } else { "MISSED" }
    );
}
async fn run<F, W, P>(tasks: usize, work: F) -> f64
where
    F: Fn(usize) -> W,
    W: FnMut() -> P + Send + 'static,
    P: Future<Output = ()> + Send,
{
    let (started, pairs) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let (mut pair, pairs) = (work(task), pairs.clone());
            tokio::spawn(async move {
                while started.elapsed() < TURN {
                    pair().await;
                    pairs.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    pairs.load(Relaxed) as f64 / started.elapsed().as_secs_f64()
}
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
