//! A private server, who works on it, and what it says of a lock.
use crate::common::{client, proxied};
use fencelock_conformance::proxy::Proxy;
use fencelock_core::Client;
use fencelock_testkit::{
    Folder, MariaDb, WallClock,
    processes::{self, Cuts, Worker},
};
use std::{marker::PhantomData, path::Path, time::Duration};
use tokio::runtime::{Builder, Runtime};

/// What a lock is, and how those who wait hear.
pub(crate) trait Way {
    const ENGINE: &'static str;
    const QUERY: &'static str;
    /// As the server begins transactions.
    const ISOLATION: &'static str = "REPEATABLE-READ";
    /// Its record says when it ends.
    const LEASES: bool = true;
    /// In a table that others use, too.
    const SHARED: bool = false;
}
pub(crate) struct Leases;
impl Way for Leases {
    const ENGINE: &'static str = "MariaDB";
    const QUERY: &'static str = "";
}
pub(crate) struct ReadCommitted;
impl Way for ReadCommitted {
    const ENGINE: &'static str = "MariaDB, read committed";
    const QUERY: &'static str = "";
    const ISOLATION: &'static str = "READ-COMMITTED";
}
pub(crate) struct Doorbells;
impl Way for Doorbells {
    const ENGINE: &'static str = "MariaDB, doorbells";
    const QUERY: &'static str = "?doorbell=on";
}
pub(crate) struct Sessions;
impl Way for Sessions {
    const ENGINE: &'static str = "MariaDB, sessions";
    const QUERY: &'static str = "?strategy=session";
    const LEASES: bool = false;
}
/// Rows of ShedLock's table.
pub(crate) struct ShedLock;
impl Way for ShedLock {
    const ENGINE: &'static str = "MariaDB, ShedLock's table";
    const QUERY: &'static str = "?strategy=shedlock";
    const SHARED: bool = true;
}
pub(crate) struct Scene<W> {
    pub(crate) server: MariaDb,
    folder: Folder,
    runtime: Runtime,
    client: Client,
    clocks: Vec<WallClock>,
    /// In front of the server, where connections are to be cut.
    proxy: Option<(Proxy, String)>,
    way: PhantomData<W>,
}
impl<W: Way> processes::Scene for Scene<W> {
    const ENGINE: &'static str = W::ENGINE;
    const WORKERS: &'static str = "two runtimes, three clocks";
    const TTL: Duration = Duration::from_secs(4);
    const BRIEF: Duration = Duration::from_millis(1_500);
    const AFTER_TTL: Duration = Duration::from_millis(250);

    fn new() -> Self {
        let (server, runtime) = (
            MariaDb::with(&[&format!("--transaction-isolation={}", W::ISOLATION)]),
            Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
        );
        let client = runtime.block_on(client(&url::<W>(&server)));
        Self {
            server,
            folder: Folder::new("processes"),
            runtime,
            client,
            clocks: Vec::new(),
            proxy: None,
            way: PhantomData,
        }
    }
    fn with_wrong_clocks() -> Self {
        Self { clocks: WallClock::apart(), ..Self::new() }.proved_apart()
    }
    /// Nobody is told: each hand-over is found by a look.
    fn rounds(n: usize) -> usize {
        if W::SHARED && !processes::full() { n / 50 } else { processes::tenth(n) }
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
        let url = self.proxy.as_ref().map_or_else(|| url::<W>(&self.server), |(_, url)| format!("{url}{}", W::QUERY));
        Worker::start_by(self.clocks.get(n % 3), &[&[flavour, role, &url], words].concat())
    }
    /// Whoever waits there has no place anywhere: he has said that he waits.
    fn queued(&self, name: &str, n: usize) {
        let queued = || self.status(name).waiters.len() == n || W::SHARED;
        processes::eventually("queued", Duration::from_secs(30), queued);
    }
    /// In µs of the server's clock. What had been sent to prolong it was on the server's side of the connection already: it is done when
    /// nothing works any more.
    fn lease_end(&self, name: &str) -> Option<i64> {
        if !W::LEASES {
            return None;
        }
        let idle = "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Query' AND info LIKE 'CALL %'";
        processes::eventually("nothing works", Duration::from_secs(10), || self.server.ask(idle) == "0");
        let end = if W::SHARED {
            let end = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until)";
            format!("SELECT {end} FROM shedlock WHERE name = '{name}'")
        } else {
            format!("SELECT ends FROM fencelock_lock WHERE name = '{name}' AND hold IS NOT NULL")
        };
        Some(self.server.ask(&end).parse().unwrap_or_else(|_| panic!("nobody holds {name}")))
    }
    fn traces(&self) -> usize {
        let all = "SELECT (SELECT count(*) FROM fencelock_lock WHERE hold IS NOT NULL) \
                   + (SELECT count(*) FROM fencelock_holder) + (SELECT count(*) FROM fencelock_waiter)";
        let used = "SELECT (SELECT COUNT(*) FROM fencelock_lock WHERE IS_USED_LOCK(named) IS NOT NULL) \
                    + (SELECT COUNT(*) FROM fencelock_bearer)";
        let locked = "SELECT COUNT(*) FROM shedlock WHERE lock_until > UTC_TIMESTAMP(3)";
        let all = if W::SHARED { locked } else { all };
        self.server.ask(if W::LEASES { all } else { used }).parse().unwrap()
    }
}
/// Planted to see them go red: a look of one who waits that breaks off ends his wait; whoever waits, and whose look breaks off, looks again after a minute (4.6 s, at the bar alone); a wait whose
/// connection breaks is not begun anew (stuck).
impl<W: Way> Cuts for Scene<W> {
    const CUT: &'static str = if W::LEASES { "connections" } else { "sessions that wait" };
    const MAY_MEET_A_HOLDER: bool = !W::LEASES;

    fn to_be_cut() -> Self {
        let scene = <Self as processes::Scene>::new();
        let proxy = W::LEASES.then(|| proxied(&scene.server));
        Self { proxy, ..scene }
    }
    /// Leases on the way, all of them: where a session is killed while it sleeps, MariaDB lets nobody sleep for two seconds, now and then.
    fn cut(&self) -> usize {
        if let Some((proxy, _)) = &self.proxy {
            return proxy.cut();
        }
        // Who holds loses it, and whoever is in front may hold in a moment.
        let waiting = "state = 'User lock' ORDER BY time_ms DESC LIMIT 100 OFFSET 12";
        let killed = self.server.ask(&format!(
            "DELIMITER //\nBEGIN NOT ATOMIC DECLARE many INT DEFAULT 0; DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; \
               FOR one IN (SELECT id FROM information_schema.processlist WHERE {waiting}) DO \
                 KILL one.id; SET many = many + 1; END FOR; SELECT many; END//"
        ));
        killed.parse().unwrap()
    }
}
/// Thirty-two who wait, and whose connections, or whose places, are lost each second.
pub(crate) fn cuts<W: Way>(in_full: u64) {
    processes::stories::wake_ups::<Scene<W>>(8, if processes::full() { in_full } else { 200 }, 3);
}
fn url<W: Way>(server: &MariaDb) -> String {
    server.url() + W::QUERY
}
