//! Five servers as one: uncontended pairs beside the bare driver sending the same ten scripts, in turns in one run; and how long a
//! hand-over between clients takes. Beside them what rslock does in the same run.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a benchmark fails where it unwraps")]
use fencelock_core::{BootClock, Client, Clock, Engine, Moment, Name};
use fencelock_redis::{RedisEngine, raw::Raw};
use fencelock_testkit::Redis;
use futures_util::future::join_all;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const NODES: usize = 5;
const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(600);

fn main() {
    let servers: Vec<_> = (0..NODES).map(|_| Redis::start()).collect();
    pairs(&servers, 1);
    pairs(&servers, 16);
    if std::env::args().any(|arg| arg == "pairs") {
        return;
    }
    hanging(&servers);
    for (clients, holds) in [(2, 100), (16, 25)] {
        handed(&servers, clients, holds);
        handed_by_rslock(&servers, clients, holds);
    }
}
async fn engines(servers: &[Redis]) -> Vec<Arc<RedisEngine>> {
    let mut engines = Vec::new();
    for server in servers {
        engines.push(Arc::new(RedisEngine::from_url(&server.url()).await.unwrap()));
    }
    engines
}
async fn quorum(servers: &[Redis]) -> Client {
    of(&engines(servers).await)
}
fn of(engines: &[Arc<RedisEngine>]) -> Client {
    Client::quorum(engines.iter().map(|engine| engine.clone() as Arc<dyn Engine>)).unwrap().build().unwrap()
}
fn runtime(tasks: usize) -> tokio::runtime::Runtime {
    let mut builder = if tasks == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder.enable_all().build().unwrap()
}
fn pairs(servers: &[Redis], tasks: usize) {
    let runtime = runtime(tasks);
    let (engines, client, raws) = runtime.block_on(async {
        let raws = join_all(servers.iter().map(|server| async { Raw::connect(&server.url()).await.unwrap() })).await;
        let engines = engines(servers).await;
        (engines.clone(), of(&engines), raws)
    });
    let (mut ours, mut bare, mut peer) = (Vec::new(), Vec::new(), Vec::new());
    let rslock = rslock(servers);
    let sent = || engines.iter().map(|engine| fencelock_redis::raw::commands(engine)).sum::<u64>();
    let before = sent();
    for turn in 0..=TURNS {
        let b = runtime.block_on(run(tasks, |task| {
            let (raws, mut n) = (raws.clone(), 0_u64);
            let key = raws[0].key(&Name::new(format!("bare{task}")).unwrap());
            move || {
                n += 1;
                let (mut raws, key, hold) = (raws.clone(), key.clone(), format!("{n:032x}"));
                async move {
                    let tokens = join_all(raws.iter_mut().map(|raw| raw.take(&key, &hold, "host 1 "))).await;
                    let all = raws.iter_mut().zip(tokens).map(|(raw, token)| raw.give(&key, &hold, token.unwrap()));
                    join_all(all).await.into_iter().for_each(|done| done.unwrap());
                }
            }
        }));
        let a = runtime.block_on(run(tasks, |task| {
            let lock = client.mutex(format!("ours{task}"));
            move || {
                let lock = lock.clone();
                async move { lock.lock().await.unwrap().release().await.unwrap() }
            }
        }));
        let c = runtime.block_on(run(tasks, |task| {
            let (manager, name) = (rslock.clone(), format!("rslock{task}"));
            move || {
                let (manager, name) = (manager.clone(), name.clone());
                async move {
                    let lock = manager.lock(name.as_str(), Duration::from_secs(30)).await.unwrap();
                    manager.unlock(&lock).await;
                }
            }
        }));
        if turn > 0 {
            ours.push(a);
            bare.push(b);
            peer.push(c);
        }
    }
    let each =
        (sent() - before) as f64 / (ours.iter().sum::<f64>() * (TURNS + 1) as f64 / TURNS as f64 * TURN.as_secs_f64());
    let (ours, bare, peer) = (median(ours), median(bare), median(peer));
    let ratio = ours / bare;
    let verdict = if ratio >= 0.9 { "ok" } else { "MISSED" };
    println!(
        "MEASURED | pairs on a quorum of five Redis, {tasks} tasks, to the bare driver | {ratio:.2} ({ours:.0} to {bare:.0} pairs/s; {each:.1} commands each) | >= 0.9 | {verdict}"
    );
    println!("MEASURED | the same, rslock | {peer:.0} pairs/s | reported | ok");
}
async fn run<F, W>(tasks: usize, work: impl Fn(usize) -> W) -> f64
where
    W: FnMut() -> F + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let (done, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let (mut work, done) = (work(task), done.clone());
            tokio::spawn(async move {
                while began.elapsed() < TURN {
                    work().await;
                    done.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    done.load(Relaxed) as f64 / began.elapsed().as_secs_f64()
}
fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
/// One that is stopped: nobody waits for it.
fn hanging(servers: &[Redis]) {
    let runtime = runtime(1);
    let p50 = |client: &Client| {
        runtime.block_on(async {
            let (lock, mut took) = (client.mutex("hanging"), Vec::new());
            for _ in 0..500 {
                let began = Instant::now();
                lock.lock().await.unwrap().release().await.unwrap();
                took.push(began.elapsed());
            }
            took.sort_unstable();
            took[took.len() / 2]
        })
    };
    let client = runtime.block_on(quorum(servers));
    p50(&client);
    let healthy = p50(&client);
    servers[0].pause(true);
    let hanging = p50(&client);
    servers[0].pause(false);
    let ratio = hanging.as_secs_f64() / healthy.as_secs_f64();
    println!(
        "MEASURED | a pair with one of five Redis stopped, p50, to all well | {ratio:.2} ({hanging:.2?} to {healthy:.2?}) | <= 1.2 | {}",
        if ratio <= 1.2 { "ok" } else { "MISSED" }
    );
}
fn rslock(servers: &[Redis]) -> rslock::LockManager {
    rslock::LockManager::new(servers.iter().map(Redis::url).collect())
}
/// Of those who waited while it was given back: from the call of `release` until the next one has it.
fn handed(servers: &[Redis], clients: usize, holds: usize) {
    let spans = Arc::new(Mutex::new(Vec::<[Moment; 3]>::new()));
    runtime(2).block_on(async {
        let mut all = Vec::new();
        for _ in 0..clients {
            let (client, spans) = (quorum(servers).await, spans.clone());
            all.push(tokio::spawn(async move {
                for _ in 0..holds {
                    let asked = BootClock.now();
                    let guard = client.mutex("handed").lock().await.unwrap();
                    let held = BootClock.now();
                    tokio::time::sleep(Duration::from_micros(fastrand::u64(5_000..10_000))).await;
                    let released = BootClock.now();
                    guard.release().await.unwrap();
                    spans.lock().unwrap().push([asked, held, released]);
                }
                client.shutdown(Duration::from_secs(5)).await.unwrap();
            }));
        }
        for one in all {
            one.await.unwrap();
        }
    });
    let [p50, p99, most] = between(&spans, clients * holds);
    let verdict = if p50 <= Duration::from_millis(3) { "ok" } else { "MISSED" };
    println!(
        "MEASURED | hand-over between {clients} clients of a quorum of five Redis, p50 | {p50:.2?} (p99 {p99:.2?}, most {most:.2?}) | <= 3 ms | {verdict}"
    );
}
/// The same of rslock: who gives up begins anew, and is counted.
fn handed_by_rslock(servers: &[Redis], clients: usize, holds: usize) {
    let (spans, gave_up) = (Arc::new(Mutex::new(Vec::<[Moment; 3]>::new())), Arc::new(AtomicU64::new(0)));
    runtime(2).block_on(async {
        let all = (0..clients).map(|_| {
            let (manager, spans, gave_up) = (rslock(servers), spans.clone(), gave_up.clone());
            tokio::spawn(async move {
                for _ in 0..holds {
                    let asked = BootClock.now();
                    let lock = loop {
                        match manager.lock("handed by rslock", Duration::from_secs(30)).await {
                            Ok(lock) => break lock,
                            Err(_) => gave_up.fetch_add(1, Relaxed),
                        };
                    };
                    let held = BootClock.now();
                    tokio::time::sleep(Duration::from_micros(fastrand::u64(5_000..10_000))).await;
                    let released = BootClock.now();
                    manager.unlock(&lock).await;
                    spans.lock().unwrap().push([asked, held, released]);
                }
            })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap();
        }
    });
    let [p50, p99, most] = between(&spans, clients * holds);
    let gave_up = gave_up.load(Relaxed);
    println!(
        "MEASURED | the same, rslock | {p50:.2?} (p99 {p99:.2?}, most {most:.2?}); {gave_up} give-ups | reported | ok"
    );
}
/// The median, the 99th of a hundred, and the longest.
fn between(spans: &Mutex<Vec<[Moment; 3]>>, all: usize) -> [Duration; 3] {
    let mut spans = spans.lock().unwrap();
    assert_eq!(spans.len(), all, "nobody gave up");
    spans.sort_by_key(|[_, held, _]| *held);
    let between = |pair: &[[Moment; 3]]| {
        let [[_, _, released], [asked, held, _]] = [pair[0], pair[1]];
        assert!(held >= released, "two at once");
        (asked < released).then(|| released.until(held))
    };
    let mut times: Vec<_> = spans.windows(2).filter_map(between).collect();
    times.sort_unstable();
    [50, 99, 100].map(|p: usize| times[(times.len() * p).div_ceil(100).max(1) - 1])
}
