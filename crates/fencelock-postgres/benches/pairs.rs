//! Uncontended pairs a second, ours beside the bare driver sending the same calls.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
mod beside;

use fencelock_core::{Client, Engine};
use fencelock_postgres::raw::{Raw, RawHold};
use fencelock_testkit::{
    PgBouncer, Postgres,
    bench::{Bench, Rival, background, compare, is_pinned, pairs},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

fn main() {
    pairs::<beside::Side>();
    if !is_pinned() {
        compare::<Sessions>(1, "not pinned", ">= 0.9");
        compare::<Sessions<true>>(1, "whose session is in a thread of its own", ">= 0.9");
        compare::<Sessions>(16, "one connection", ">= 0.9");
        for tasks in [1, 16] {
            compare::<Pooled>(tasks, "behind a pooler of transactions", ">= 0.9");
            compare::<ShedLock>(tasks, "rows of its table", ">= 0.9");
        }
        steady();
    }
}
/// A grant leaves a dead row behind, until the next vacuum. What it costs to find a lock beside them: the rate after a while, to that of the
/// beginning, of one whose server has planned how to look when there were none (which fell to a fifth in 20 s: `docs/design/0008-postgres-by-functions.md`).
fn steady() {
    const SECONDS: usize = 30;
    let server = Postgres::with(&["autovacuum=off"]);
    let rates = background().block_on(async {
        let connect = || async { Client::builder(beside::Side::engine(&server.url()).await).build().unwrap() };
        connect().await.mutex("x").lock().await.unwrap().release().await.unwrap();
        server.ask("VACUUM ANALYZE");
        let (lock, mut rates) = (connect().await.mutex("x"), Vec::new());
        for _ in 0..SECONDS {
            let (began, mut pairs) = (Instant::now(), 0);
            while began.elapsed() < Duration::from_secs(1) {
                lock.lock().await.unwrap().release().await.unwrap();
                pairs += 1;
            }
            rates.push(pairs);
        }
        rates
    });
    let of = |rates: &[i32]| f64::from(rates.iter().sum::<i32>()) / 5.0;
    let (first, last) = (of(&rates[..5]), of(&rates[SECONDS - 5..]));
    let (ratio, all) = (last / first, rates.iter().sum::<i32>());
    let verdict = if ratio >= 0.9 { "ok" } else { "MISSED" };
    println!(
        "MEASURED | PostgreSQL pairs, 1 task, no vacuum for {all} of them: the last 5 s to the first 5 s | {ratio:.2} ({last:.0} to {first:.0} pairs/s) | >= 0.9 | {verdict}"
    );
}
/// Sessions that bear locks, beside a session with our calls: in the thread that asks, or in one of its own, as ours.
struct Sessions<const KEPT: bool = false>;
impl<const KEPT: bool> Bench for Sessions<KEPT> {
    const ENGINE: &'static str = "PostgreSQL, sessions";
    type Server = Postgres;
    type Raw = Bearing<KEPT>;
    fn start() -> Postgres {
        Postgres::start()
    }
    fn url(server: &Postgres) -> String {
        server.url() + "?strategy=session"
    }
    async fn engine(url: &str) -> Arc<dyn Engine> {
        beside::Side::engine(url).await
    }
}
/// Leases, both sides through a pooler.
struct Pooled;
impl Bench for Pooled {
    const ENGINE: &'static str = "PostgreSQL, pgbouncer";
    type Server = (PgBouncer, Postgres);
    type Raw = beside::Bare;
    fn start() -> (PgBouncer, Postgres) {
        let server = Postgres::start();
        (PgBouncer::start(&server, "transaction"), server)
    }
    fn url((pooler, server): &(PgBouncer, Postgres)) -> String {
        server.url_through(pooler)
    }
    async fn engine(url: &str) -> Arc<dyn Engine> {
        beside::Side::engine(url).await
    }
}
/// Rows of ShedLock's table.
struct ShedLock;
impl Bench for ShedLock {
    const ENGINE: &'static str = "PostgreSQL, ShedLock";
    type Server = Postgres;
    type Raw = beside::Bare;
    fn start() -> Postgres {
        Postgres::start()
    }
    fn url(server: &Postgres) -> String {
        server.url() + "?strategy=shedlock"
    }
    async fn engine(url: &str) -> Arc<dyn Engine> {
        beside::Side::engine(url).await
    }
}
/// Our calls, in a session that bears what it takes.
#[derive(Clone)]
struct Bearing<const KEPT: bool>(Raw);
impl<const KEPT: bool> Rival for Bearing<KEPT> {
    type Hold = RawHold;
    async fn connect(url: &str) -> Self {
        if !KEPT {
            return Self(Raw::connect(url).await.unwrap());
        }
        let url = url.to_owned();
        Self(background().spawn(async move { Raw::connect(&url).await }).await.unwrap().unwrap())
    }
    async fn pair(&self, name: &str, hold: u128) {
        let task = name.trim_start_matches("raw").parse().unwrap();
        self.0.pair_in_session(name, task, hold).await.unwrap();
    }
    async fn lock(&self, name: &str, hold: u128) -> RawHold {
        self.0.lock(name, hold).await.unwrap()
    }
    async fn release(&self, hold: RawHold) {
        self.0.release(hold).await.unwrap();
    }
}
