//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, missing_docs, missing_debug_implementations, reason = "a test fails where it unwraps")]
use fencelock_core::Client;
use fencelock_postgres::{Config, PostgresEngine};
use fencelock_testkit::Postgres;
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::Arc,
    time::Duration,
};

pub const MS: Duration = Duration::from_millis(1);
pub const SEC: Duration = Duration::from_secs(1);

pub async fn client(url: &str) -> Client {
    client_with(Config::from_url(url).unwrap()).await
}
pub async fn client_with(config: Config) -> Client {
    Client::builder(Arc::new(PostgresEngine::connect(config).await.unwrap())).build().unwrap()
}
/// Somebody at a terminal, in a transaction of their own.
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}
impl Session {
    pub fn new(server: &Postgres) -> Self {
        let mut psql = server.psql("");
        // Without the command: it reads what is typed.
        let mut words: Vec<_> = psql.get_args().map(ToOwned::to_owned).collect();
        words.truncate(words.len() - 2);
        psql = std::process::Command::new("psql");
        let mut child = psql.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }
    /// What it answers, when it is done.
    pub fn ask(&mut self, sql: &str) -> String {
        writeln!(self.input, "{sql};\n\\echo done").unwrap();
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "psql has ended");
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
