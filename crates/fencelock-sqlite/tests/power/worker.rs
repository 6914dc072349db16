//! What the processes on the disk do, until they are killed: locks, permits and cells, each token written down before it is used.
use fencelock_core::{BootClock, Client, Clock, Version};
use fencelock_sqlite::{Config, SqliteEngine};
use std::{
    fs::File,
    future::Future,
    io::Write,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// Of the holds that a new boot waits for.
pub(crate) const SHORT: Duration = Duration::from_millis(250);
/// Of those that it does not.
pub(crate) const LONG: Duration = Duration::from_secs(30);
const MUTEXES: [&str; 3] = ["m0", "m1", "m2"];
/// Now and then: their records lie idle.
const RARE: [&str; 8] = ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"];
const CELLS: [&str; 2] = ["c0", "c1"];
/// Of the semaphore.
const PERMITS: u32 = 3;

/// What a worker is told.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) database: String,
    pub(crate) log: String,
    pub(crate) full: bool,
    /// Of idle records, in seconds.
    pub(crate) retention: u64,
    pub(crate) seed: u64,
    pub(crate) boot: u32,
    pub(crate) role: u32,
}
impl Orders {
    pub(crate) fn words(&self) -> Vec<String> {
        let numbers = [self.full.into(), self.retention, self.seed, self.boot.into(), self.role.into()];
        let paths = [self.database.clone(), self.log.clone()];
        paths.into_iter().chain(numbers.iter().map(u64::to_string)).collect()
    }
    fn read(words: &[String]) -> Self {
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let small = |at| u32::try_from(number(at)).unwrap();
        let (database, log) = (words[0].clone(), words[1].clone());
        let (full, retention, seed) = (number(2) == 1, number(3), number(4));
        Self { database, log, full, retention, seed, boot: small(5), role: small(6) }
    }
}

pub(crate) fn main(words: &[String]) {
    let orders = Orders::read(words);
    // It would go on for ever.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    fastrand::seed(orders.seed);
    let log = File::options().append(true).open(&orders.log).unwrap();
    let worker = Arc::new(Worker { orders, log });
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    worker.say(&format!("C {}", wall.as_micros()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Err(what) = runtime.block_on(worker.clone().live()) {
        worker.say(&format!("E {}", what.to_string().replace('\n', "; ")));
    }
}
type Done = fencelock_core::Result<()>;

struct Worker {
    orders: Orders,
    log: File,
}
impl Worker {
    /// In one write: a killed worker leaves no half lines.
    fn say(&self, line: &str) {
        (&self.log).write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    fn granted(&self, name: &str, token: i64, asked: u64) {
        self.say(&format!("G {name} {token} {asked} {}", now()));
    }
    fn open(&self) -> fencelock_core::Result<Client> {
        let mut config = Config::new(&self.orders.database);
        config.sync_full = self.orders.full;
        config.retention = Duration::from_secs(self.orders.retention);
        Client::builder(Arc::new(SqliteEngine::open(config)?)).build()
    }
    async fn live(self: Arc<Self>) -> Done {
        for life in 0.. {
            let client = self.open()?;
            if life == 0 && self.orders.role == 0 {
                self.clone().probe(&client).await?;
                self.say("P");
            }
            let name = format!("long-{}-{}-{life}", self.orders.boot, self.orders.role);
            let asked = now();
            // So many lives are looked at in the next boot.
            let long = if life < 3 { Some(client.mutex(&name).ttl(LONG).lock().await?) } else { None };
            if let Some(guard) = &long {
                self.granted(&name, guard.token().get(), asked);
                self.say(&format!("H {name} {}", guard.token().get()));
            }
            let rounds = fastrand::u32(3..40);
            let (one, two) = (self.clone().work(client.clone(), rounds), self.clone().work(client.clone(), rounds));
            let (one, two) = (tokio::spawn(one), tokio::spawn(two));
            one.await.unwrap()?;
            two.await.unwrap()?;
            if let Some(guard) = long {
                self.say(&format!("R {name}"));
                let _ = guard.release().await;
            }
            if fastrand::u8(0..3) == 0 {
                self.checkpoint();
            }
            client.shutdown(Duration::from_secs(10)).await?;
        }
        Ok(())
    }
    /// Everything once, in a boot that may have holders and waiters of a lost one: how long each took.
    async fn probe(self: Arc<Self>, client: &Client) -> Done {
        for boot in 0..self.orders.boot {
            for name in (0..9).map(|n| format!("long-{boot}-{}-{}", n / 3, n % 3)) {
                let asked = now();
                match client.mutex(&name).ttl(LONG).try_lock().await? {
                    Ok(guard) => {
                        self.granted(&name, guard.token().get(), asked);
                        let _ = guard.release().await;
                    }
                    Err(busy) => {
                        let (token, left) = busy.holder.map_or((0, 0), |h| (h.token.get(), h.left.as_millis()));
                        self.say(&format!("B {name} {token} {left}"));
                    }
                }
            }
        }
        for name in CELLS {
            self.load(client, name).await?;
        }
        let mut all = Vec::new();
        for name in MUTEXES {
            all.push(tokio::spawn(self.clone().timed(name, self.clone().mutex(client.clone(), name))));
        }
        all.push(tokio::spawn(self.clone().timed("s0", self.clone().permits(client.clone(), PERMITS))));
        all.push(tokio::spawn(self.clone().timed("r0", self.clone().write(client.clone()))));
        for one in all {
            one.await.unwrap()?;
        }
        for name in CELLS {
            self.clone().cell(client.clone(), name).await?;
        }
        Ok(())
    }
    async fn timed(self: Arc<Self>, name: &'static str, what: impl Future<Output = Done>) -> Done {
        let started = Instant::now();
        what.await?;
        self.say(&format!("W {name} {}", started.elapsed().as_millis()));
        Ok(())
    }
    async fn work(self: Arc<Self>, client: Client, rounds: u32) -> Done {
        for _ in 0..rounds {
            let (me, client) = (self.clone(), client.clone());
            match fastrand::u8(0..10) {
                0 | 1 => me.permits(client, fastrand::u32(1..=PERMITS)).await?,
                2 | 3 => me.cell(client, CELLS[fastrand::usize(0..CELLS.len())]).await?,
                4 => me.write(client).await?,
                5 => me.read(client).await?,
                6 => me.mutex(client, RARE[fastrand::usize(0..RARE.len())]).await?,
                _ => me.mutex(client, MUTEXES[fastrand::usize(0..MUTEXES.len())]).await?,
            }
        }
        Ok(())
    }
    async fn mutex(self: Arc<Self>, client: Client, name: &str) -> Done {
        let asked = now();
        let guard = client.mutex(name).ttl(SHORT).lock().await?;
        self.granted(name, guard.token().get(), asked);
        let _ = guard.release().await;
        Ok(())
    }
    async fn write(self: Arc<Self>, client: Client) -> Done {
        let asked = now();
        let guard = client.rw_lock("r0").ttl(SHORT).write().await?;
        self.granted("r0", guard.token().get(), asked);
        let _ = guard.release().await;
        Ok(())
    }
    async fn read(self: Arc<Self>, client: Client) -> Done {
        let asked = now();
        let guard = client.rw_lock("r0").ttl(SHORT).read().await?;
        self.shared(&client, "r0", guard.id(), asked).await?;
        let _ = guard.release().await;
        Ok(())
    }
    async fn permits(self: Arc<Self>, client: Client, n: u32) -> Done {
        let asked = now();
        let guard = client.semaphore("s0", PERMITS).ttl(SHORT).acquire(n).await?;
        self.shared(&client, "s0", guard.id(), asked).await?;
        let _ = guard.release().await;
        Ok(())
    }
    /// A shared guard does not tell its token: the database does.
    async fn shared(&self, client: &Client, name: &str, hold: fencelock_core::HoldId, asked: u64) -> Done {
        let status = client.inspect(name).await?;
        if let Some(holder) = status.holders.iter().find(|holder| holder.hold == hold) {
            self.granted(name, holder.token.get(), asked);
        }
        Ok(())
    }
    async fn load(&self, client: &Client, name: &str) -> fencelock_core::Result<Version> {
        let now = client.cell(name).load().await?;
        let value = now.value.as_deref().map_or("-".into(), String::from_utf8_lossy);
        self.say(&format!("L {name} {} {}", now.version.get(), value.trim_end_matches('.')));
        Ok(now.version)
    }
    async fn cell(self: Arc<Self>, client: Client, name: &str) -> Done {
        let before = self.load(&client, name).await?;
        let asked = now();
        // Some of them long: over several pages.
        let value = format!("{asked}-{}{}", self.orders.role, ".".repeat(fastrand::choice([0, 9, 5_000]).unwrap()));
        let cell = client.cell(name);
        let (value, written) = match fastrand::u8(0..10) {
            0 => {
                self.say(&format!("D {name}"));
                ("-".into(), cell.remove(before).await?)
            }
            _ => (value.clone(), cell.compare_exchange(before, value).await?),
        };
        if let Ok(version) = written {
            self.granted(name, version.get(), asked);
            self.say(&format!("V {name} {} {}", version.get(), value.trim_end_matches('.')));
        }
        Ok(())
    }
    /// Somebody looks after the log with a program of their own. Through SQLite, and never the last one to have it open.
    fn checkpoint(&self) {
        let mode = fastrand::choice(["PASSIVE", "RESTART", "TRUNCATE"]).unwrap();
        let done = rusqlite::Connection::open(Path::new(&self.orders.database))
            .and_then(|conn| conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())));
        // Busy, mostly: then it did what it could.
        drop(done);
    }
}
fn now() -> u64 {
    BootClock.now().as_nanos()
}
