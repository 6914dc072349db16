//! A private server, who works on it, and what it says of a lock.
use crate::common::{client, runtime};
use fencelock_core::{Client, Status};
use fencelock_testkit::{
    Folder, Redis, WallClock,
    processes::{Worker, eventually},
};
use std::time::Duration;

pub(crate) struct Scene {
    pub(crate) server: Redis,
    pub(crate) folder: Folder,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) client: Client,
    clocks: Vec<WallClock>,
}
impl Scene {
    pub(crate) fn new() -> Self {
        let (server, runtime) = (Redis::start(), runtime());
        let client = runtime.block_on(client(&server.url()));
        Self { server, folder: Folder::new("processes"), runtime, client, clocks: Vec::new() }
    }
    /// Of three workers one has a clock that is 11 minutes ahead, and one that is as much behind.
    pub(crate) fn with_wrong_clocks() -> Self {
        let clock = |forward| {
            let clock = WallClock::new();
            clock.step(Duration::from_secs(660), forward);
            clock
        };
        let scene = Self { clocks: vec![clock(true), clock(false)], ..Self::new() };
        let walls: Vec<i64> = (0..3).map(|n| scene.start(n, "wall", &[]).hear("").1.parse().unwrap()).collect();
        assert!(walls[0] - walls[2] > 600 && walls[2] - walls[1] > 600, "{walls:?}");
        scene
    }
    /// The n-th worker: every other one on a runtime with two threads, one of four speaks the older protocol.
    pub(crate) fn start(&self, n: usize, role: &str, words: &[&str]) -> Worker {
        let flavour = if n.is_multiple_of(2) { "two" } else { "one" };
        let url = self.server.url() + if n % 4 == 3 { "?protocol=resp2" } else { "" };
        Worker::start_by(self.clocks.get(n % 3), &[&[flavour, role, &url], words].concat())
    }
    /// It waits, or holds already, until it is told otherwise.
    pub(crate) fn claim(&self, n: usize, name: &str, claim: &str, ttl: Duration) -> Worker {
        let mut worker = self.start(n, "hold", &[name, &ttl.as_millis().to_string(), claim, "0"]);
        worker.hear("waiting");
        worker
    }
    pub(crate) fn hold(&self, n: usize, name: &str, ttl: Duration) -> Worker {
        self.claim(n, name, "mutex", ttl)
    }
    pub(crate) fn status(&self, name: &str) -> Status {
        self.runtime.block_on(self.client.inspect(name)).unwrap()
    }
    /// Until so many wait for it.
    pub(crate) fn queued(&self, name: &str, n: usize) {
        eventually("queued", Duration::from_secs(30), || self.status(name).waiters.len() == n);
    }
    /// A number that the server has.
    pub(crate) fn number(&self, words: &[&str]) -> i64 {
        let answer = self.server.ask(words).unwrap();
        answer.trim_start_matches(':').parse().unwrap_or_else(|_| panic!("{words:?}: {answer:?}"))
    }
    /// When the lease of who holds it alone ends, in µs of the server's clock. Whoever may have prolonged it is dead or stopped, and
    /// what it had sent before was on the server's side of the connection already: a command later it is done.
    pub(crate) fn lease_end(&self, name: &str) -> i64 {
        assert_eq!(self.server.ask(&["PING"]).unwrap(), "+PONG");
        let record = self.server.ask(&["HGET", &format!("fl:{name}"), "o"]).unwrap();
        record.split(' ').nth(2).unwrap_or_else(|| panic!("nobody holds {name}: {record:?}")).parse().unwrap()
    }
    /// How many fields of all records tell of a holder or a waiter.
    pub(crate) fn traces(&self) -> i64 {
        let count = "local n=0 for _,K in ipairs(redis.call('KEYS','fl:*')) do
            if redis.call('TYPE',K).ok=='hash' then
              for _,field in ipairs(redis.call('HKEYS',K)) do
                if string.find(field,'^[ohwxj]') then n=n+1 end
              end
              n=n+math.abs(redis.call('HGET',K,'n') or 0)+math.abs(redis.call('HGET',K,'q') or 0)
            end
          end
          return n";
        self.number(&["EVAL", count, "0"])
    }
}
