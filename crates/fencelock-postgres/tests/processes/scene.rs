//! A private server, who works on it, and what it says of a lock.
use crate::common::client;
use fencelock_core::Client;
use fencelock_testkit::{
    Folder, PgBouncer, Postgres, WallClock,
    processes::{self, Cuts, Scene as _, Worker},
};
use std::{marker::PhantomData, path::Path, time::Duration};
use tokio::runtime::{Builder, Runtime};

/// How the workers lock, and by which way they reach the server.
pub(crate) trait Way {
    const NAME: &'static str;
    const SESSIONS: bool = false;
    const POOLED: bool = false;
    /// In a table that others use, too.
    const SHARED: bool = false;
    /// As its database begins transactions.
    const ISOLATION: &'static str = "read committed";
}
pub(crate) struct Leases;
impl Way for Leases {
    const NAME: &'static str = "PostgreSQL";
}
pub(crate) struct Sessions;
impl Way for Sessions {
    const NAME: &'static str = "PostgreSQL, sessions";
    const SESSIONS: bool = true;
}
/// Through a pooler of transactions.
pub(crate) struct Pooled;
impl Way for Pooled {
    const NAME: &'static str = "PostgreSQL, pgbouncer";
    const POOLED: bool = true;
}
pub(crate) struct RepeatableRead;
impl Way for RepeatableRead {
    const NAME: &'static str = "PostgreSQL, repeatable read";
    const ISOLATION: &'static str = "repeatable read";
}
pub(crate) struct Serializable;
impl Way for Serializable {
    const NAME: &'static str = "PostgreSQL, serializable";
    const ISOLATION: &'static str = "serializable";
}
/// Rows of ShedLock's table.
pub(crate) struct ShedLock;
impl Way for ShedLock {
    const NAME: &'static str = "PostgreSQL, ShedLock's table";
    const SHARED: bool = true;
}

pub(crate) struct Scene<W> {
    pub(crate) server: Postgres,
    pooler: Option<PgBouncer>,
    folder: Folder,
    runtime: Runtime,
    client: Client,
    clocks: Vec<WallClock>,
    way: PhantomData<W>,
}
impl<W: Way> processes::Scene for Scene<W> {
    const ENGINE: &'static str = W::NAME;
    const WORKERS: &'static str = "two runtimes, three clocks";
    const TTL: Duration = Duration::from_secs(4);
    const BRIEF: Duration = Duration::from_millis(1_500);
    const AFTER_TTL: Duration = Duration::from_millis(250);
    /// Behind a pooler nobody sees a process end: it has been silent for as long as one that is stopped.
    const DEAD_WAITER: Duration = Duration::from_millis(if W::POOLED { 3_250 } else { 100 });

    fn new() -> Self {
        let (server, runtime) = (
            Postgres::with(&[&format!("default_transaction_isolation={}", W::ISOLATION)]),
            Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
        );
        let pooler = W::POOLED.then(|| PgBouncer::start(&server, "transaction"));
        let client = runtime.block_on(client(&url::<W>(&server, None)));
        Self { server, pooler, folder: Folder::new("processes"), runtime, client, clocks: Vec::new(), way: PhantomData }
    }
    fn with_wrong_clocks() -> Self {
        Self { clocks: WallClock::apart(), ..Self::new() }.proved_apart()
    }
    /// Where nobody is told, each hand-over is found by a look.
    fn rounds(n: usize) -> usize {
        if (W::POOLED || W::SHARED) && !processes::full() { n / 50 } else { processes::tenth(n) }
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
    /// Every other one on a runtime with two threads.
    fn start(&self, n: usize, role: &str, words: &[&str]) -> Worker {
        let flavour = if n.is_multiple_of(2) { "two" } else { "one" };
        Worker::start_by(
            self.clocks.get(n % 3),
            &[&[flavour, role, &url::<W>(&self.server, self.pooler.as_ref())], words].concat(),
        )
    }
    /// Whoever waits there has no place anywhere: he has said that he waits.
    fn queued(&self, name: &str, n: usize) {
        let queued = || self.status(name).waiters.len() == n || W::SHARED;
        processes::eventually("queued", Duration::from_secs(30), queued);
    }
    /// In µs of the server's clock. What had been sent to prolong it was on the server's side of the connection already: it is done when
    /// nothing works any more.
    fn lease_end(&self, name: &str) -> Option<i64> {
        if W::SESSIONS {
            return None;
        }
        let idle = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock' AND state = 'active'";
        processes::eventually("nothing works", Duration::from_secs(10), || self.server.ask(idle) == "0");
        let end = if W::SHARED {
            format!("SELECT (extract(epoch FROM lock_until) * 1000000)::bigint FROM shedlock WHERE name = '{name}'")
        } else {
            format!("SELECT fencelock_us(until) FROM fencelock_lock WHERE name = '{name}' AND hold IS NOT NULL")
        };
        Some(self.server.ask(&end).parse().unwrap_or_else(|_| panic!("nobody holds {name}")))
    }
    fn traces(&self) -> usize {
        let all = "SELECT (SELECT count(*) FROM fencelock_lock WHERE hold IS NOT NULL) \
                   + (SELECT count(*) FROM fencelock_holder) + (SELECT count(*) FROM fencelock_waiter)";
        // A clean-up has one of its own.
        let used = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
                    AND (classid::bigint << 32 | objid::bigint) <> 7378697629484716395";
        let locked = "SELECT count(*) FROM shedlock WHERE lock_until > timezone('utc', clock_timestamp())";
        let all = if W::SHARED { locked } else { all };
        let all = if W::SESSIONS { used } else { all };
        self.server.ask(all).parse().unwrap()
    }
}
/// Planted to see them go red: a listener that is not made anew, and those who wait look once in a minute; a wait whose
/// connection breaks is not begun anew (both stuck).
impl<W: Way> Cuts for Scene<W> {
    const CUT: &'static str = match (W::SESSIONS, W::POOLED) {
        (true, _) => "sessions that wait",
        (_, true) => "the pooler's connections",
        _ => "listeners",
    };
    const MAY_MEET_A_HOLDER: bool = W::SESSIONS;

    fn cut(&self) -> usize {
        let listeners =
            "SELECT count(pg_terminate_backend(a.pid)) FROM fencelock_client c JOIN pg_stat_activity a USING (pid)";
        // Who holds loses it, and whoever is in front may hold in a moment.
        let waiting = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_locks \
                       WHERE locktype = 'advisory' AND NOT granted ORDER BY waitstart OFFSET 12) AS late";
        // Nobody listens there.
        let pooled =
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'fencelock'";
        let which = match (W::SESSIONS, W::POOLED) {
            (true, _) => waiting,
            (_, true) => pooled,
            _ => listeners,
        };
        self.server.ask(which).parse().unwrap()
    }
}
/// Thirty-two who wait, and whose words are lost, or their places, each second.
pub(crate) fn cuts<W: Way>(in_full: u64) {
    processes::stories::wake_ups::<Scene<W>>(8, if processes::full() { in_full } else { 200 }, 3);
}
fn url<W: Way>(server: &Postgres, pooler: Option<&PgBouncer>) -> String {
    pooler.map_or_else(|| server.url(), |pooler| server.url_through(pooler))
        + match (W::SESSIONS, W::SHARED) {
            (true, _) => "?strategy=session",
            (_, true) => "?strategy=shedlock",
            _ => "",
        }
}

/// However the database begins its transactions, and without an error in the server's log.
pub(crate) fn three_permits<W: Way>() {
    let scene = Scene::<W>::new();
    processes::stories::permits_in(&scene, processes::tenth(200));
    let log = std::fs::read_to_string(scene.server.folder().path().join("log")).unwrap();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(errors.is_empty(), "{errors:?}");
}
