//! Uncontended pairs a second, ours beside the bare driver sending the same calls.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
mod beside;

use fencelock_core::Engine;
use fencelock_mysql::raw::{Raw, RawHold};
use fencelock_testkit::{
    MariaDb,
    bench::{Bench, Rival, background, compare, is_pinned, pairs},
};
use std::sync::Arc;
use tokio::runtime::Handle;

fn main() {
    pairs::<beside::Side>();
    if !is_pinned() {
        compare::<beside::Side<true>>(16, "flushed at each commit", ">= 0.9");
        compare::<Sessions>(1, "not pinned", ">= 0.9");
        compare::<Sessions<true>>(1, "whose session is in a thread of its own", ">= 0.9");
        compare::<Sessions>(16, "one connection", ">= 0.9");
        for tasks in [1, 16] {
            compare::<Doorbells>(tasks, "a connection for each", ">= 0.9");
            compare::<ShedLock>(tasks, "a connection for each", ">= 0.9");
        }
    }
}
/// Sessions that bear locks, beside a session with our calls: in the thread that asks, or in one of its own, as ours.
struct Sessions<const KEPT: bool = false>;
impl<const KEPT: bool> Bench for Sessions<KEPT> {
    const ENGINE: &'static str = "MariaDB, sessions";
    type Server = MariaDb;
    type Raw = Bearing<KEPT>;
    fn start() -> MariaDb {
        beside::Side::<false>::start()
    }
    fn url(server: &MariaDb) -> String {
        server.url() + "?strategy=session"
    }
    async fn engine(url: &str) -> Arc<dyn Engine> {
        beside::Side::<false>::engine(url).await
    }
}
/// Leases whose waiters have doorbells: whoever gets it at once has none.
struct Doorbells;
impl Bench for Doorbells {
    const ENGINE: &'static str = "MariaDB, doorbells";
    type Server = MariaDb;
    type Raw = beside::Bare;
    fn start() -> MariaDb {
        beside::Side::<false>::start()
    }
    fn url(server: &MariaDb) -> String {
        server.url() + "?doorbell=on"
    }
    async fn engine(url: &str) -> Arc<dyn Engine> {
        beside::Side::<false>::engine(url).await
    }
}
/// Rows of ShedLock's table.
struct ShedLock;
impl Bench for ShedLock {
    const ENGINE: &'static str = "MariaDB, ShedLock";
    type Server = MariaDb;
    type Raw = beside::Bare;
    fn start() -> MariaDb {
        beside::Side::<false>::start()
    }
    fn url(server: &MariaDb) -> String {
        server.url() + "?strategy=shedlock"
    }
    async fn engine(url: &str) -> Arc<dyn Engine> {
        beside::Side::<false>::engine(url).await
    }
}
/// Our calls, in a session that bears what it takes.
#[derive(Clone)]
struct Bearing<const KEPT: bool>(Raw, Option<Handle>);
impl<const KEPT: bool> Rival for Bearing<KEPT> {
    type Hold = RawHold;
    async fn connect(url: &str) -> Self {
        Self(Raw::connect(url).await.unwrap(), KEPT.then(background))
    }
    async fn pair(&self, name: &str, hold: u128) {
        self.0.pair_in_session(name, hold, self.1.as_ref()).await.unwrap();
    }
    async fn lock(&self, name: &str, _: u128) -> RawHold {
        self.0.lock(name).await.unwrap()
    }
    async fn release(&self, hold: RawHold) {
        self.0.release(hold).await.unwrap();
    }
}
