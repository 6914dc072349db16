//! How long a hand-over takes between processes, from the call of `release` until another one has the lock: ours and the bare driver
//! (release, one word of a watch, one read), and Curator's, one after the other in one run. Each holds for 20 to 40 ms.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
use fencelock_core::{BootClock, Client, Clock};
use fencelock_testkit::{Peer, ZooKeeper};
use fencelock_zookeeper::{ZooKeeperEngine, raw::Raw};
use std::{
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

const NAME: &str = "handoff";
/// Hand-overs in all, shared by the processes.
const HOLDS: usize = 320;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [worker, kind, url, holds] = words.iter().map(String::as_str).collect::<Vec<_>>()[..]
        && worker == "worker"
    {
        return self::worker(kind, url, holds.parse().unwrap());
    }
    for processes in [2, 16] {
        let ours = handed("ours", processes);
        let bare = handed("bare", processes);
        let ratio = ours.0.as_secs_f64() / bare.0.as_secs_f64();
        println!(
            "MEASURED | hand-over between {processes} processes on zookeeper, p50, to the bare driver | {ratio:.2} ({:.2?} to {:.2?}; p99 {:.2?} to {:.2?}) | <= 1.5 | {}",
            ours.0,
            bare.0,
            ours.1,
            bare.1,
            if ratio <= 1.5 { "ok" } else { "MISSED" }
        );
        let curator = curators(processes);
        let ratio = ours.0.as_secs_f64() / curator.0.as_secs_f64();
        println!(
            "MEASURED | hand-over between {processes} processes on zookeeper, p50, to warm Curator's of as many clients | {ratio:.2} ({:.2?} to {:.2?}; p99 {:.2?} to {:.2?}) | <= 1 | {}",
            ours.0,
            curator.0,
            ours.1,
            curator.1,
            if ratio <= 1.0 { "ok" } else { "MISSED" }
        );
    }
}

/// The median and the p99 of those who waited while it was released.
fn handed(kind: &str, processes: usize) -> (Duration, Duration) {
    let zk = ZooKeeper::start();
    let (url, holds) = (zk.url(), (HOLDS / processes).to_string());
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["worker", kind, &url, &holds]).stdout(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..processes).map(|_| start()).collect();
    // When it was asked for, got and given back, of each hold.
    let mut spans: Vec<[u64; 3]> = Vec::new();
    for one in all {
        let out = one.wait_with_output().unwrap();
        assert!(out.status.success(), "{kind}: {}", out.status);
        let text = String::from_utf8(out.stdout).unwrap();
        spans.extend(text.lines().map(|line| {
            let mut words = line.split(' ').map(|word| word.parse().unwrap());
            [(); 3].map(|()| words.next().unwrap())
        }));
    }
    assert_eq!(spans.len(), HOLDS / processes * processes, "{kind}");
    spans.sort_unstable_by_key(|[_, held, _]| *held);
    let mut times: Vec<u64> = spans
        .windows(2)
        .filter_map(|pair| {
            let [[_, _, released], [asked, held, _]] = [pair[0], pair[1]];
            assert!(held >= released, "{kind}: two at once");
            (asked < released).then_some(held - released)
        })
        .collect();
    times.sort_unstable();
    let at = |p: usize| Duration::from_nanos(times[(times.len() * p).div_ceil(100).max(1) - 1]);
    (at(50), at(99))
}

/// Of clients of Curator's, of one process that has done it once before.
fn curators(clients: usize) -> (Duration, Duration) {
    let zk = ZooKeeper::start();
    let mut curator = Peer::curator(&zk, None);
    let answer = curator.ask(&format!("handoff /fencelock/handoff {clients} {HOLDS}"));
    let mut micros = answer.strip_prefix("ok ").unwrap_or_else(|| panic!("{answer}")).split(' ');
    [(); 2].map(|()| Duration::from_micros(micros.next().unwrap().parse().unwrap())).into()
}

fn worker(kind: &str, url: &str, holds: usize) {
    let hold = || Duration::from_micros(fastrand::u64(20_000..40_000));
    let now = || BootClock.now().as_nanos();
    let say = |asked, held, released| println!("{asked} {held} {released}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // On the runtime's own thread, as a service's tasks are.
    let (kind, url) = (kind.to_owned(), url.to_owned());
    let work = async move {
        if kind == "ours" {
            let engine = ZooKeeperEngine::from_url(&url).await.unwrap();
            let lock = Client::builder(Arc::new(engine)).build().unwrap().mutex(NAME);
            for _ in 0..holds {
                let asked = now();
                let guard = lock.lock().await.unwrap();
                let held = now();
                tokio::time::sleep(hold()).await;
                let released = now();
                guard.release().await.unwrap();
                say(asked, held, released);
            }
            return;
        }
        let queue = Raw::connect(&url).await.unwrap();
        for n in 0..holds {
            let asked = now();
            let mine = queue.lock(NAME, (u128::from(std::process::id()) << 64) + n as u128).await.unwrap();
            let held = now();
            tokio::time::sleep(hold()).await;
            let released = now();
            queue.release(&mine).await.unwrap();
            say(asked, held, released);
        }
    };
    runtime.block_on(async { tokio::spawn(work).await.unwrap() });
}
