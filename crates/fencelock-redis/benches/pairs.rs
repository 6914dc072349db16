//! Uncontended pairs a second, ours beside the bare driver sending the same scripts on the same runtime flavour, in turns in one
//! run; and what a pair costs the server beside SET NX and compare-and-delete.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a benchmark fails where it unwraps")]
use fencelock_core::Client;
use fencelock_redis::{RedisEngine, raw::Raw};
use fencelock_testkit::Redis;
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
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
    if std::env::args().any(|arg| arg == "pinned") {
        // The client's threads on one core; the server keeps both.
        return compare(1, "client pinned to one core");
    }
    compare(1, "not pinned");
    compare(16, "one connection");
    peers();
    server_cost();
    let me = std::env::current_exe().unwrap();
    let status = Command::new("taskset").args(["-c", "1"]).arg(me).arg("pinned").status().unwrap();
    assert!(status.success());
}

fn runtime(tasks: usize) -> tokio::runtime::Runtime {
    let mut builder = if tasks == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder.enable_all().build().unwrap()
}
fn compare(tasks: usize, place: &str) {
    let server = Redis::start();
    let runtime = runtime(tasks);
    let (client, raw) = runtime.block_on(async {
        let engine = RedisEngine::from_url(&server.url()).await.unwrap();
        (Client::builder(Arc::new(engine)).build().unwrap(), Raw::connect(&server.url()).await.unwrap())
    });
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let b = runtime.block_on(run(tasks, |task| {
            let (raw, key) = (raw.clone(), format!("raw:{task}"));
            let mut n = 0u64;
            move || {
                n += 1;
                let (key, hold) = (key.clone(), format!("{:032x}", n));
                let mut raw = raw.clone();
                async move { raw.pair(&key, &hold, "host 1 ").await.unwrap() }
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
    let judged = tasks == 16 || place.contains("pinned to");
    println!(
        "MEASURED | Redis pairs, {tasks} tasks, {place}, to the bare driver | {ratio:.2} ({ours:.0} to {bare:.0} pairs/s) | {} | {}",
        if judged { ">= 0.9" } else { "reported" },
        if ratio >= 0.9 || !judged { "ok" } else { "MISSED" }
    );
}
/// What others give in the same run: rslock, and the SET NX of a service's own code.
fn peers() {
    const TASKS: usize = 16;
    let server = Redis::start();
    let runtime = runtime(TASKS);
    runtime.block_on(async {
        let engine = RedisEngine::from_url(&server.url()).await.unwrap();
        let client = Client::builder(Arc::new(engine)).build().unwrap();
        let ours = run(TASKS, |task| {
            let lock = client.mutex(format!("ours{task}"));
            move || {
                let lock = lock.clone();
                async move { lock.lock().await.unwrap().release().await.unwrap() }
            }
        });
        let ours = ours.await;
        let manager = rslock::LockManager::new(vec![server.url()]);
        let rslock = run(TASKS, |task| {
            let (manager, name) = (manager.clone(), format!("rslock{task}"));
            move || {
                let (manager, name) = (manager.clone(), name.clone());
                async move {
                    let lock = manager.lock(name.as_str(), Duration::from_secs(30)).await.unwrap();
                    manager.unlock(&lock).await;
                }
            }
        });
        let rslock = rslock.await;
        let plain = Plain::connect(&server.url()).await;
        let plain = run(TASKS, |task| {
            let (plain, name, mut n) = (plain.clone(), format!("plain{task}"), 0u64);
            move || {
                n += 1;
                let (mut plain, name, value) = (plain.clone(), name.clone(), format!("{n:032x}"));
                async move { plain.pair(&name, &value).await }
            }
        });
        let plain = plain.await;
        for (who, rate) in [("rslock", rslock), ("SET NX and compare-and-delete", plain)] {
            println!(
                "MEASURED | Redis pairs, {TASKS} tasks, {who} | {rate:.0} pairs/s, ours {ours:.0} in the same run | reported | ok"
            );
        }
    });
}
/// No queue, no token, no renewal, no word of a loss.
#[derive(Clone)]
struct Plain {
    conn: redis::aio::MultiplexedConnection,
    delete: redis::Script,
}
impl Plain {
    async fn connect(url: &str) -> Self {
        let conn = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
        let delete = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";
        Self { conn, delete: redis::Script::new(delete) }
    }
    async fn pair(&mut self, name: &str, value: &str) {
        let mut set = redis::cmd("SET");
        let set: Option<String> =
            set.arg(name).arg(value).arg("NX").arg("PX").arg(30_000).query_async(&mut self.conn).await.unwrap();
        assert!(set.is_some());
        let gone: i64 = self.delete.key(name).arg(value).invoke_async(&mut self.conn).await.unwrap();
        assert_eq!(gone, 1);
    }
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

/// Server µs of a pair, by its own commandstats, with pipelines of 64.
fn server_cost() {
    let server = Redis::start();
    let scripts = fencelock_redis::raw::scripts();
    let sha = |name: &str| scripts.iter().find(|(known, ..)| *known == name).unwrap().1.clone();
    let mut pipe = Pipe::new(server.port());
    for (_, _, text) in &scripts {
        pipe.ask(&[&["SCRIPT", "LOAD", text]]);
    }
    let delete = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";
    let delete = pipe.ask(&[&["SCRIPT", "LOAD", delete]]).remove(0);
    let (acquire, release) = (sha("acquire"), sha("release"));
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        pipe.ask(&[&["CONFIG", "RESETSTAT"]]);
        for round in 0..300u64 {
            let of = |n: u64| (format!("fl:k{n}"), format!("{:032x}", round * 64 + n));
            let names: Vec<_> = (0..64).map(of).collect();
            let take: Vec<Vec<&str>> = names
                .iter()
                .map(|(key, hold)| {
                    vec![
                        "EVALSHA",
                        &acquire,
                        "1",
                        key,
                        "3600000",
                        hold,
                        "mutex",
                        "m",
                        "1",
                        "0",
                        "30000000",
                        "9007199254740991",
                        "0",
                        "1",
                        "fl:%0",
                        "host 1 note",
                    ]
                })
                .collect();
            let tokens = pipe.ask(&take.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let give: Vec<Vec<&str>> = names
                .iter()
                .zip(&tokens)
                .map(|((key, hold), token)| vec!["EVALSHA", &release, "1", key, "3600000", hold, token])
                .collect();
            pipe.ask(&give.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        ours.push(2.0 * pipe.cost("evalsha"));
        pipe.ask(&[&["CONFIG", "RESETSTAT"]]);
        for round in 0..300u64 {
            let of = |n: u64| (format!("b{n}"), format!("{round:032x}"));
            let names: Vec<_> = (0..64).map(of).collect();
            let take: Vec<Vec<&str>> =
                names.iter().map(|(key, hold)| vec!["SET", key, hold, "NX", "PX", "30000"]).collect();
            pipe.ask(&take.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let give: Vec<Vec<&str>> =
                names.iter().map(|(key, hold)| vec!["EVALSHA", &delete, "1", key, hold]).collect();
            pipe.ask(&give.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        bare.push(pipe.cost("evalsha") + pipe.cost("set"));
    }
    let (ours, bare) = (median(ours), median(bare));
    let ratio = ours / bare;
    println!(
        "MEASURED | server CPU of a Redis pair, to SET NX and compare-and-delete | {ratio:.1} ({ours:.1} to {bare:.1} µs) | <= 6 | {}",
        if ratio <= 6.0 { "ok" } else { "MISSED" }
    );
}
struct Pipe {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
}
impl Pipe {
    fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        Self { stream, lines }
    }
    /// The first number or text of each answer; of a list, its second entry.
    fn ask(&mut self, commands: &[&[&str]]) -> Vec<String> {
        let mut text = String::new();
        for words in commands {
            text.push_str(&format!("*{}\r\n", words.len()));
            words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        }
        self.stream.write_all(text.as_bytes()).unwrap();
        commands.iter().map(|_| self.answer()).collect()
    }
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "*" => {
                let all: Vec<String> = (0..rest.parse().unwrap()).map(|_| self.answer()).collect();
                all.into_iter().nth(1).unwrap_or_default()
            }
            "$" if rest != "-1" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                std::io::Read::read_exact(&mut self.lines, &mut bytes).unwrap();
                String::from_utf8(bytes).unwrap().trim_end().to_owned()
            }
            "-" => panic!("{rest}"),
            _ => rest.to_owned(),
        }
    }
    /// µs of one command of this name.
    fn cost(&mut self, command: &str) -> f64 {
        let all = self.ask(&[&["INFO", "commandstats"]]).remove(0);
        let line = all.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:"))).unwrap();
        let value = |key: &str| {
            let (_, rest) = line.split_once(key).unwrap();
            rest.split(',').next().unwrap().trim().parse::<f64>().unwrap()
        };
        value("usec=") / value("calls=")
    }
}
