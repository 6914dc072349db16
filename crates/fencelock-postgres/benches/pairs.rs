//! Uncontended pairs a second, ours beside the bare driver sending the same calls.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
mod beside;

use fencelock_core::Engine;
use fencelock_postgres::raw::{Raw, RawHold};
use fencelock_testkit::{
    Postgres,
    bench::{Bench, Rival, background, compare, is_pinned, pairs},
};
use std::sync::Arc;

fn main() {
    pairs::<beside::Side>();
    if !is_pinned() {
        compare::<Sessions>(1, "not pinned", ">= 0.9");
        compare::<Sessions<true>>(1, "whose session is in a thread of its own", ">= 0.9");
        compare::<Sessions>(16, "one connection", ">= 0.9");
    }
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
        let task = i64::try_from(hold >> 64).unwrap();
        self.0.pair_in_session(name, task, hold).await.unwrap();
    }
    async fn lock(&self, name: &str, hold: u128) -> RawHold {
        self.0.lock(name, hold).await.unwrap()
    }
    async fn release(&self, hold: RawHold) {
        self.0.release(hold).await.unwrap();
    }
}
