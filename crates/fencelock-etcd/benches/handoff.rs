//! How long a hand-over takes between processes, from the call of `release` until another one has the lock: ours, the bare driver
//! (release, one word of a watch, one read), and the same as Go's `concurrency.Mutex` watches, one after the other in one run. Each
//! holds for 20 to 40 ms. Once more where somebody writes other keys all the time.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
use fencelock_core::{BootClock, Client, Clock};
use fencelock_etcd::{
    EtcdEngine,
    raw::{From, Raw, RawQueue},
};
use fencelock_testkit::Etcd;
use std::{
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

const NAME: &str = "handoff";
/// Hand-overs in all, shared by the processes.
const HOLDS: usize = 320;
const TTL: Duration = Duration::from_secs(30);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [worker, kind, url, holds] = words.iter().map(String::as_str).collect::<Vec<_>>()[..]
        && worker == "worker"
    {
        return self::worker(kind, url, holds.parse().unwrap());
    }
    for (processes, busy) in [(2, false), (16, false), (2, true), (16, true)] {
        let ours = handed("ours", processes, busy);
        let bare = handed("bare", processes, busy);
        let beside = if busy { " beside 400 writes a second" } else { "" };
        let ratio = ours.0.as_secs_f64() / bare.0.as_secs_f64();
        println!(
            "MEASURED | hand-over between {processes} processes on etcd{beside}, p50, to the bare driver | {ratio:.2} ({:.2?} to {:.2?}; p99 {:.2?} to {:.2?}) | <= 1.5 | {}",
            ours.0,
            bare.0,
            ours.1,
            bare.1,
            if ratio <= 1.5 { "ok" } else { "MISSED" }
        );
        let go = handed("go", processes, busy);
        println!(
            "MEASURED | the same between {processes} processes{beside}, watching as Go's Mutex does | {:.2?} (p99 {:.2?}) | ours is below | {}",
            go.0,
            go.1,
            if ours.0 <= go.0 { "ok" } else { "MISSED" }
        );
    }
}

/// The median and the p99 of those who waited while it was released.
fn handed(kind: &str, processes: usize, busy: bool) -> (Duration, Duration) {
    let etcd = Etcd::start();
    let (url, holds) = (etcd.url(), (HOLDS / processes).to_string());
    let start = |kind: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["worker", kind, &url, &holds]).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut writer = busy.then(|| start("writer"));
    let all: Vec<_> = (0..processes).map(|_| start(kind)).collect();
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
    if let Some(writer) = &mut writer {
        writer.kill().unwrap();
        writer.wait().unwrap();
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

fn worker(kind: &str, url: &str, holds: usize) {
    let hold = || Duration::from_micros(fastrand::u64(20_000..40_000));
    let now = || BootClock.now().as_nanos();
    let say = |asked, held, released| println!("{asked} {held} {released}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // On the runtime's own thread, as a service's tasks are.
    let (kind, url) = (kind.to_owned(), url.to_owned());
    let work = async move {
        if kind == "ours" {
            let engine = EtcdEngine::from_url(&url).await.unwrap();
            let lock = Client::builder(Arc::new(engine)).build().unwrap().mutex(NAME).ttl(TTL);
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
        if kind == "writer" {
            let raw = Raw::connect(&url).await.unwrap();
            for hold in 0.. {
                raw.pair("another", hold).await.unwrap();
                tokio::time::sleep(Duration::from_millis(4)).await;
            }
        }
        let from = if kind == "go" { From::Read } else { From::Next };
        let mut queue = RawQueue::connect(&url).await.unwrap();
        for _ in 0..holds {
            let asked = now();
            let mine = queue.lock(NAME, from).await.unwrap();
            let held = now();
            tokio::time::sleep(hold()).await;
            let released = now();
            queue.release(&mine).await.unwrap();
            say(asked, held, released);
        }
    };
    runtime.block_on(async { tokio::spawn(work).await.unwrap() });
}
