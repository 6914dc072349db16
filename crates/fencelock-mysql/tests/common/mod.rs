//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, missing_docs, missing_debug_implementations, reason = "a test fails where it unwraps")]
use fencelock_conformance::proxy::{Proxy, Trouble};
use fencelock_core::Client;
use fencelock_mysql::{Config, MysqlEngine};
use fencelock_testkit::MariaDb;
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

pub const MS: Duration = Duration::from_millis(1);
pub const SEC: Duration = Duration::from_secs(1);
pub const LONG: Duration = Duration::from_secs(10);

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
/// In front of the server, and the URL that leads through it.
pub fn proxied(server: &MariaDb) -> (Proxy, String) {
    let proxy = Proxy::mysql(([127, 0, 0, 1], server.port()).into());
    let url = server.url().replace(&format!("127.0.0.1:{}", server.port()), &proxy.address().to_string());
    (proxy, url)
}
/// This is done to the first so many calls of this function, and nothing to all others. How many there were.
pub fn first(proxy: &Proxy, function: &str, many: u32, trouble: Trouble) -> Arc<AtomicU32> {
    let call = format!("CALL fencelock_{function}(");
    let (met, count) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = met.clone();
    proxy.rule(move |command| {
        let is_it = command.windows(call.len()).any(|part| part == call.as_bytes());
        if is_it && count.fetch_add(1, SeqCst) < many {
            seen.fetch_add(1, SeqCst);
            return trouble;
        }
        Trouble::None
    });
    met
}
/// Waits for a condition, with a deadline.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut yes: impl FnMut() -> F) -> Duration {
    let started = Instant::now();
    while !yes().await {
        assert!(started.elapsed() < LONG, "{what}: not within {LONG:?}");
        tokio::time::sleep(MS).await;
    }
    started.elapsed()
}
/// Until so many are in the queue.
pub async fn queued(client: &Client, name: &str, n: usize) {
    eventually(&format!("{n} in the queue of {name}"), || async {
        client.inspect(name).await.unwrap().waiters.len() == n
    })
    .await;
}
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.unwrap()
}

pub async fn client(url: &str) -> Client {
    client_with(Config::from_url(url).unwrap()).await
}
pub async fn client_with(config: Config) -> Client {
    Client::builder(Arc::new(MysqlEngine::connect(config).await.unwrap())).build().unwrap()
}
/// Somebody at a terminal, in a transaction of their own.
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}
impl Session {
    pub fn new(server: &MariaDb) -> Self {
        let mut client = server.client("");
        // Without the command: it reads what is typed.
        let mut words: Vec<_> = client.get_args().map(ToOwned::to_owned).collect();
        words.truncate(words.len() - 2);
        words.push("--unbuffered".into());
        client = std::process::Command::new("mariadb");
        let mut child = client.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }
    /// What it answers, when it is done.
    pub fn ask(&mut self, sql: &str) -> String {
        writeln!(self.input, "{sql};\nSELECT 'done';").unwrap();
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "mariadb has ended");
            if line == "done\n" {
                return said.trim_end().to_owned();
            }
            said.push_str(&line);
        }
    }
}
impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
