//! A private server, who works on it, and what it says of a lock.
use crate::common::{client, runtime};
use fencelock_core::Client;
use fencelock_testkit::{
    Folder, Redis, WallClock,
    processes::{self, Worker},
};
use std::{path::Path, time::Duration};
use tokio::runtime::Runtime;

/// Fields of all records of a server that tell of a holder or a waiter.
pub(crate) const COUNT: &str = "local n=0 for _,K in ipairs(redis.call('KEYS','fl:*')) do
    if redis.call('TYPE',K).ok=='hash' then
      for _,field in ipairs(redis.call('HKEYS',K)) do
        if string.find(field,'^[ohwxj]') then n=n+1 end
      end
      n=n+math.abs(redis.call('HGET',K,'n') or 0)+math.abs(redis.call('HGET',K,'q') or 0)
    end
  end
  return n";

pub(crate) struct Scene {
    pub(crate) server: Redis,
    folder: Folder,
    runtime: Runtime,
    client: Client,
    clocks: Vec<WallClock>,
}
impl processes::Scene for Scene {
    const ENGINE: &'static str = "Redis";
    const WORKERS: &'static str = "two runtimes, two protocols, three clocks";
    const TTL: Duration = Duration::from_millis(2_500);
    const BRIEF: Duration = Duration::from_millis(600);
    const AFTER_TTL: Duration = Duration::from_millis(250);

    fn new() -> Self {
        let (server, runtime) = (Redis::start(), runtime());
        let client = runtime.block_on(client(&server.url()));
        Self { server, folder: Folder::new("processes"), runtime, client, clocks: Vec::new() }
    }
    /// Of three workers one has a clock that is 11 minutes ahead, and one that is as much behind.
    fn with_wrong_clocks() -> Self {
        Self { clocks: WallClock::apart(), ..Self::new() }.proved_apart()
    }
    fn folder(&self) -> &Path {
        self.folder.path()
    }
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    fn client(&self) -> &Client {
        &self.client
    }
    /// Every other one on a runtime with two threads, one of four speaks the older protocol.
    fn start(&self, n: usize, role: &str, words: &[&str]) -> Worker {
        self.start_at(&self.server.url(), n, role, words)
    }
    /// In µs of the server's clock. What had been sent to prolong it was on the server's side of the connection already: a command later
    /// it is done.
    fn lease_end(&self, name: &str) -> Option<i64> {
        assert_eq!(self.server.ask(&["PING"]).unwrap(), "+PONG");
        let record = self.server.ask(&["HGET", &format!("fl:{name}"), "o"]).unwrap();
        let end = record.split(' ').nth(2).unwrap_or_else(|| panic!("nobody holds {name}: {record:?}"));
        Some(end.parse().unwrap())
    }
    fn traces(&self) -> usize {
        usize::try_from(self.number(&["EVAL", COUNT, "0"])).unwrap()
    }
}
impl Scene {
    pub(crate) fn start_at(&self, url: &str, n: usize, role: &str, words: &[&str]) -> Worker {
        let flavour = if n.is_multiple_of(2) { "two" } else { "one" };
        let older = format!("{}protocol=resp2", if url.contains('?') { '&' } else { '?' });
        let url = url.to_owned() + if n % 4 == 3 { &older } else { "" };
        Worker::start_by(self.clocks.get(n % 3), &[&[flavour, role, &url], words].concat())
    }
    /// A number that the server has.
    pub(crate) fn number(&self, words: &[&str]) -> i64 {
        let answer = self.server.ask(words).unwrap();
        answer.trim_start_matches(':').parse().unwrap_or_else(|_| panic!("{words:?}: {answer:?}"))
    }
}
