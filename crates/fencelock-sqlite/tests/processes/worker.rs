//! What the other processes do.
use crate::common::client;
use fencelock_core::{BootClock, Chaos, Claim, Client, Clock, ErrorKind, Guard, Held, Operation, Result, SharedGuard};
use fencelock_sqlite::{Config, SqliteEngine};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    ops::Deref,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

pub(crate) fn main(words: &[String]) {
    let word = |i: usize| words[i].as_str();
    let database = Path::new(word(1)).to_owned();
    let number = |i: usize| word(i).parse::<u64>().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match word(0) {
        // hold DB NAME TTL_MS CLAIM AT_LEAST_MS: says when it holds, then obeys its standard input.
        "hold" => runtime.block_on(async {
            let client = client(&database);
            say("waiting");
            let (ttl, least) = (Duration::from_millis(number(3)), Duration::from_millis(number(5)));
            let guard = Any::claim(&client, word(2), claim(word(4)), ttl, least).await.unwrap();
            say(&format!("held {}", guard.token()));
            let lost = guard.lost();
            tokio::spawn(async move { say(&format!("lost {:?}", lost.await)) });
            obey(guard).await;
        }),
        // spans DB NAME COUNTER LOG ROUNDS END_NS CLAIM...: each claim is a task. Until all rounds are done, the end has come, or
        // there is a file LOG.stop.
        "spans" => {
            let log = runtime.block_on(async {
                let client = client(&database);
                let tasks: Vec<_> = words[7..]
                    .iter()
                    .map(|what| {
                        let spans = spans(client.clone(), words.to_vec(), claim(what));
                        tokio::spawn(spans)
                    })
                    .collect();
                let mut log = String::new();
                for task in tasks {
                    log.push_str(&task.await.unwrap());
                }
                log
            });
            fs::write(word(4), log).unwrap();
        }
        // add DB NAME ROUNDS SEED: each round adds one to a cell, over a link that loses every fifth reply; says how many it lost.
        "add" => runtime.block_on(async {
            let engine = SqliteEngine::open(Config::new(&database)).unwrap();
            let chaos = Arc::new(Chaos::new(Arc::new(engine)).seed(number(4)).lose_replies(0.2));
            let client = Client::builder(chaos.clone()).build().unwrap();
            let cell = client.cell(word(2));
            let mut answered = 0;
            for _ in 0..number(3) {
                let mut add = |value: Option<&[u8]>| {
                    answered += 1;
                    let n: u64 = value.map_or(0, |v| std::str::from_utf8(v).unwrap().parse().unwrap());
                    (n + 1).to_string()
                };
                while let Err(e) = cell.update(&mut add).await {
                    // A look whose reply was lost: nothing was written.
                    assert_eq!((e.kind(), e.operation()), (ErrorKind::Ambiguous, "call"));
                }
            }
            say(&format!("lost {}", chaos.calls(Operation::CompareExchange) - answered));
        }),
        // dine DB DB COUNTERS LOG END_NS
        "dine" => runtime.block_on(crate::philosophers::dine(words)),
        // campaign DB CANDIDATE, observe DB: until killed.
        "campaign" => runtime.block_on(crate::election::campaign(words)),
        "observe" => runtime.block_on(crate::election::observe(words)),
        // count DB NAME COUNTER LOG ROUNDS
        "count" => runtime.block_on(async {
            let client = client(&database);
            let mut log = String::new();
            for _ in 0..number(5) {
                let guard = client.mutex(word(2)).lock().await.unwrap();
                let start = now();
                let n: u64 = fs::read_to_string(word(3)).unwrap_or_default().trim().parse().unwrap_or(0);
                tokio::task::yield_now().await;
                fs::write(word(3), (n + 1).to_string()).unwrap();
                guard.check().unwrap();
                log.push_str(&format!("{start} {} {}\n", now(), guard.token()));
                guard.release().await.unwrap();
            }
            fs::write(word(4), log).unwrap();
        }),
        // loop DB NAME END_NS
        "loop" => runtime.block_on(async {
            let client = client(&database);
            let (mut grants, mut longest, mut ahead) = (0u64, Duration::ZERO, 0);
            while now() < number(3) {
                let asked = Instant::now();
                let mut wait = std::pin::pin!(client.mutex(word(2)).lock());
                let guard = std::future::poll_fn(|cx| {
                    let ready = wait.as_mut().poll(cx);
                    ahead = ahead.max(wait.blocked_by().and_then(|busy| busy.ahead).unwrap_or(0));
                    ready
                });
                let guard = guard.await.unwrap();
                longest = longest.max(asked.elapsed());
                grants += 1;
                guard.release().await.unwrap();
            }
            say(&format!("{grants} {} {ahead}", longest.as_micros()));
        }),
        // exit DB NAME: the guard is dropped, and main ends.
        "exit" => {
            let client = client(&database);
            drop(runtime.block_on(client.mutex(word(2)).lock()).unwrap());
        }
        // stuck DB: inside a write transaction, until killed.
        "stuck" => {
            let conn = rusqlite::Connection::open(&database).unwrap();
            conn.busy_timeout(Duration::from_secs(5)).unwrap();
            conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            say("inside");
            let _ = std::io::stdin().lines().next();
        }
        other => panic!("no such worker: {other}"),
    }
}
async fn obey(mut guard: Any) {
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).for_each(|line| drop(tx.send(line))));
    while let Some(line) = rx.recv().await {
        match line.as_str() {
            "check" => say(&format!("checked {}", guard.is_valid())),
            "downgrade" => {
                let Any::Alone(writer) = guard else { panic!("no writer") };
                guard = Any::Shared(writer.downgrade().await.unwrap());
                say("downgraded");
            }
            "release" => {
                let answer = guard.release().await;
                return say(&format!("released {}", answer.is_ok()));
            }
            other => panic!("no such order: {other}"),
        }
    }
}
/// Lines of `start end exclusive take waited`.
async fn spans(client: Client, words: Vec<String>, claim: Claim) -> String {
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    let mut log = String::new();
    for _ in 0..number(5) {
        let asked = now();
        if asked >= number(6) || Path::new(&format!("{}.stop", words[4])).exists() {
            break;
        }
        let guard = Any::claim(&client, &words[2], claim, Duration::from_secs(30), Duration::ZERO).await.unwrap();
        let start = now();
        if claim.is_exclusive() {
            let n: u64 = fs::read_to_string(&words[3]).unwrap_or_default().trim().parse().unwrap_or(0);
            tokio::task::yield_now().await;
            fs::write(&words[3], (n + 1).to_string()).unwrap();
        } else {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
        }
        guard.check().unwrap();
        let (end, alone, take) = (now(), u8::from(claim.is_exclusive()), claim.take());
        log.push_str(&format!("{start} {end} {alone} {take} {}\n", start - asked));
        guard.release().await.unwrap();
    }
    log
}
/// `mutex`, `read`, `write`, or `2/5`.
fn claim(what: &str) -> Claim {
    match what {
        "mutex" => Claim::Mutex,
        "read" => Claim::Read,
        "write" => Claim::Write,
        permits => {
            let (take, of) = permits.split_once('/').unwrap();
            Claim::Permits { take: take.parse().unwrap(), of: of.parse().unwrap() }
        }
    }
}
enum Any {
    Alone(Guard),
    Shared(SharedGuard),
}
impl Any {
    async fn claim(client: &Client, name: &str, claim: Claim, ttl: Duration, least: Duration) -> Result<Self> {
        let rw_lock = || client.rw_lock(name).ttl(ttl).at_least(least);
        Ok(match claim {
            Claim::Read => Self::Shared(rw_lock().read().await?),
            Claim::Write => Self::Alone(rw_lock().write().await?),
            Claim::Permits { take, of } => {
                Self::Shared(client.semaphore(name, of).ttl(ttl).at_least(least).acquire(take).await?)
            }
            _ => Self::Alone(client.mutex(name).ttl(ttl).at_least(least).lock().await?),
        })
    }
    fn token(&self) -> i64 {
        match self {
            Self::Alone(guard) => guard.token().get(),
            Self::Shared(_) => 0,
        }
    }
    async fn release(self) -> Result<()> {
        match self {
            Self::Alone(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
        }
    }
}
impl Deref for Any {
    type Target = Held;
    fn deref(&self) -> &Held {
        match self {
            Self::Alone(guard) => guard,
            Self::Shared(guard) => guard,
        }
    }
}
pub(crate) fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{} {what}", now());
    let _ = out.flush();
}
pub(crate) fn now() -> u64 {
    BootClock.now().as_nanos()
}

/// A worker, as the tests see it. Killed when it is dropped.
pub(crate) struct Worker {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}
impl Worker {
    pub(crate) fn start(words: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("worker").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let (tx, lines) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| {
                let _ = tx.send(line);
            })
        });
        Self { child, input, lines }
    }
    pub(crate) fn hold(database: &Path, name: &str, ttl: Duration) -> Self {
        Self::claim(database, name, "mutex", ttl, Duration::ZERO)
    }
    pub(crate) fn claim(database: &Path, name: &str, claim: &str, ttl: Duration, least: Duration) -> Self {
        let (ttl, least) = (ttl.as_millis().to_string(), least.as_millis().to_string());
        let mut worker = Self::start(&["hold", database.to_str().unwrap(), name, &ttl, claim, &least]);
        worker.hear("waiting");
        worker
    }
    /// The next line: when it was said, and the rest after the expected word.
    pub(crate) fn hear(&mut self, word: &str) -> (u64, String) {
        let line = self.lines.recv_timeout(Duration::from_secs(60));
        Self::parse(word, &line.unwrap_or_else(|e| panic!("waited a minute for {word:?}: {e}")))
    }
    fn parse(word: &str, line: &str) -> (u64, String) {
        let (at, said) = line.trim().split_once(' ').unwrap_or(("0", ""));
        let rest = said.strip_prefix(word).unwrap_or_else(|| panic!("waited for {word:?}, heard {line:?}"));
        (at.parse().unwrap(), rest.trim().to_owned())
    }
    pub(crate) fn tell(&mut self, order: &str) {
        writeln!(self.input.as_mut().unwrap(), "{order}").unwrap();
    }
    pub(crate) fn signal(&self, signal: rustix::process::Signal) -> u64 {
        let pid = rustix::process::Pid::from_child(&self.child);
        let at = now();
        rustix::process::kill_process(pid, signal).unwrap();
        at
    }
    pub(crate) fn kill(&self) -> u64 {
        self.signal(rustix::process::Signal::KILL)
    }
    pub(crate) fn wait(mut self) -> bool {
        self.input = None;
        self.child.wait().unwrap().success()
    }
}
impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
/// Who of these is in first, and when; then the other one.
pub(crate) fn first_in<'a>(one: &'a mut Worker, other: &'a mut Worker) -> (u64, [&'a mut Worker; 2]) {
    let mut line = None;
    crate::common::eventually("one of two is in", Duration::from_secs(60), || {
        line = [&one, &other].into_iter().enumerate().find_map(|(i, w)| w.lines.try_recv().ok().map(|line| (i, line)));
        line.is_some()
    });
    let (i, line) = line.unwrap_or_default();
    (Worker::parse("held", &line).0, if i == 0 { [one, other] } else { [other, one] })
}
/// Until this many wait for the lock.
pub(crate) fn queued(folder: &crate::common::Folder, n: i64) {
    crate::common::eventually("queued", Duration::from_secs(10), || {
        folder.count("SELECT count(*) FROM fencelock_waiter") == n
    });
}
