//! How long a hand-over takes between processes, from the call of `release` until another one has the lock: ours, the bare driver
//! with the same four messages, and the peers, one after the other in one run. Each holds for 20 to 40 ms.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
use fencelock_core::{BootClock, Client, Clock};
use fencelock_redis::{RedisEngine, raw::RawQueue};
use fencelock_testkit::{Redis, RedisCluster};
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

const NAME: &str = "handoff";
/// Hand-overs in all, shared by the processes.
const HOLDS: usize = 320;
const TTL: Duration = Duration::from_secs(30);
const PYTHON: &str = "
import random, sys, time, redis, redis_lock
port, holds = int(sys.argv[1]), int(sys.argv[2])
conn = redis.StrictRedis(port=port)
now = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME)
for _ in range(holds):
    lock = redis_lock.Lock(conn, 'handoff', expire=30)
    asked = now()
    lock.acquire()
    held = now()
    time.sleep(random.uniform(0.02, 0.04))
    released = now()
    lock.release()
    print(asked, held, released, flush=True)
";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [worker, kind, url, holds] = words.iter().map(String::as_str).collect::<Vec<_>>()[..]
        && worker == "worker"
    {
        return self::worker(kind, url.to_owned(), holds.parse().unwrap());
    }
    let python = python();
    for processes in [2, 16] {
        let ours = handed("ours", processes, None);
        let bare = handed("bare", processes, None);
        let ratio = ours.0.as_secs_f64() / bare.0.as_secs_f64();
        println!(
            "MEASURED | hand-over between {processes} processes on Redis, p50, to the bare driver | {ratio:.2} ({:.2?} to {:.2?}; p99 {:.2?} to {:.2?}) | <= 1.5 | {}",
            ours.0,
            bare.0,
            ours.1,
            bare.1,
            if ratio <= 1.5 { "ok" } else { "MISSED" }
        );
        let cluster = handed("cluster", processes, None);
        let ratio = cluster.0.as_secs_f64() / bare.0.as_secs_f64();
        let verdict = if ratio <= 1.5 { "ok" } else { "MISSED" };
        println!(
            "MEASURED | the same in a Cluster, to the bare driver on one server | {ratio:.2} ({:.2?}; p99 {:.2?}) | <= 1.5 | {verdict}",
            cluster.0, cluster.1
        );
        if let Some(python) = &python {
            let peer = handed("python", processes, Some(python));
            let verdict = if ours.0 < peer.0 { "ok" } else { "MISSED" };
            println!(
                "MEASURED | the same, python-redis-lock | {:.2?} (p99 {:.2?}) | ours is below | {verdict}",
                peer.0, peer.1
            );
        }
        let peer = handed("rslock", processes, None);
        println!("MEASURED | the same, rslock | {:.2?} (p99 {:.2?}) | reported | ok", peer.0, peer.1);
    }
}

/// A Python that has the peer, in a folder of the build; `None`: this machine has none.
fn python() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("python-redis-lock");
    let python = folder.join("bin/python");
    let has = || Command::new(&python).args(["-c", "import redis_lock"]).output().is_ok_and(|out| out.status.success());
    if !has() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
        let packages = ["install", "--quiet", "python-redis-lock==4.0.1"];
        let installed = made.is_ok() && Command::new(folder.join("bin/pip")).args(packages).status().is_ok();
        if !installed || !has() {
            println!("python-redis-lock cannot be installed here: it is left out");
            return None;
        }
    }
    Some(python)
}

/// The median and the p99 of those who waited while it was released.
fn handed(kind: &str, processes: usize, python: Option<&PathBuf>) -> (Duration, Duration) {
    let server = Redis::start();
    let cluster = (kind == "cluster").then(RedisCluster::start);
    let (port, holds) = (server.port().to_string(), (HOLDS / processes).to_string());
    let url = cluster.as_ref().map_or_else(|| server.url(), |nodes| format!("redis+cluster://{}", nodes.endpoints()));
    let start = || {
        let mut command = match python {
            Some(python) => {
                let mut command = Command::new(python);
                command.args(["-c", PYTHON, &port, &holds]);
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["worker", kind, &url, &holds]);
                command
            }
        };
        command.stdout(Stdio::piped()).spawn().unwrap()
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

fn worker(kind: &str, url: String, holds: usize) {
    let hold = || Duration::from_micros(fastrand::u64(20_000..40_000));
    let now = || BootClock.now().as_nanos();
    let say = |asked, held, released| println!("{asked} {held} {released}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // On the runtime's own thread, as a service's tasks are.
    let kind = kind.to_owned();
    let work = async move {
        match kind.as_str() {
            "ours" | "cluster" => {
                let engine = RedisEngine::from_url(&url).await.unwrap();
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
            }
            "bare" => {
                let mut queue = RawQueue::connect(&url).await.unwrap();
                for _ in 0..holds {
                    let asked = now();
                    let (id, token) = queue.lock(NAME).await.unwrap();
                    let held = now();
                    tokio::time::sleep(hold()).await;
                    let released = now();
                    queue.release(NAME, &id, token).await.unwrap();
                    say(asked, held, released);
                }
            }
            _ => {
                let locks = rslock::LockManager::new(vec![url]);
                for _ in 0..holds {
                    let asked = now();
                    // It tries three times with a pause, and gives up; then it begins anew.
                    let lock = locks.acquire_no_guard(NAME, TTL).await.unwrap();
                    let held = now();
                    tokio::time::sleep(hold()).await;
                    let released = now();
                    locks.unlock(&lock).await;
                    say(asked, held, released);
                }
            }
        }
    };
    runtime.block_on(async { tokio::spawn(work).await.unwrap() });
}
