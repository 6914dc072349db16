//! What the core adds to a pair of `lock()` and `release()`: over an engine that costs nothing. The bar is 1.5 µs a pair, where nobody looks;
//! what it costs to be looked at is reported.
#![allow(clippy::unwrap_used)]

use async_trait::async_trait;
use fencelock_core::{
    BootClock, Client, Clock, Engine, EngineInfo, Error, ErrorKind, Event, Grant, Lease, Listing, Name, Outcome, Page,
    Released, Renewed, Reports, Request, Result, SessionId, Status, Token, memory::MemoryEngine,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};

const BAR: u128 = 1_500;
const PAIRS: u32 = 200_000;
const ROUNDS: u32 = 5;

/// Grants everything at once.
#[derive(Debug)]
struct Null {
    info: EngineInfo,
    session: Option<SessionId>,
    token: AtomicI64,
}
#[async_trait]
impl Engine for Null {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        Ok(Outcome::Granted(Grant {
            name: request.name().clone(),
            claim: request.claim(),
            hold: request.hold(),
            token: Token::new(self.token.fetch_add(1, Relaxed)).unwrap(),
            ttl: request.ttl(),
            lease: self.session.map_or_else(|| Lease::Own { sent_at: BootClock.now() }, Lease::Session),
            server_micros: 1,
            place: None,
        }))
    }
    async fn withdraw(&self, _: &Request) -> Result<()> {
        Ok(())
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        let sent_at = BootClock.now();
        Ok(vec![Renewed::Extended { sent_at }; grants.len()])
    }
    async fn release(&self, _: &Grant) -> Result<Released> {
        Ok(Released::Released)
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        let Some(session) = self.session else { return std::future::pending().await };
        loop {
            reports.send(Event::SessionAlive { session, sent_at: BootClock.now() });
            tokio::time::sleep(self.info.default_ttl / 3).await;
        }
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        Ok(Status::free(name.clone()))
    }
    async fn list(&self, _: &str, _: &Page) -> Result<Listing> {
        Err(Error::new(ErrorKind::Unsupported, "list", "nothing is stored here"))
    }
    async fn force_release(&self, _: &Name, _: Token) -> Result<Released> {
        Ok(Released::NotHeld { holder: None })
    }
}

/// The best of some rounds: what else runs on the machine only adds.
fn pair(rt: &Runtime, session: bool) -> u128 {
    let info = EngineInfo { scheme: "null", ..MemoryEngine::new().info().clone() };
    let engine = Null { info, session: session.then_some(SessionId(1)), token: AtomicI64::new(1) };
    let client = Client::builder(Arc::new(engine)).build().unwrap();
    let run = async move {
        let mutex = client.mutex("x");
        mutex.lock().await.unwrap().release().await.unwrap();
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for _ in 0..PAIRS {
                mutex.lock().await.unwrap().release().await.unwrap();
            }
            best = best.min(began.elapsed());
        }
        best.as_nanos() / u128::from(PAIRS)
    };
    // On a worker, as where it is used.
    rt.block_on(async move { tokio::spawn(run).await.unwrap() })
}

fn main() {
    // `cargo test --benches` runs it too: there is nothing to test then.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let one = Builder::new_current_thread().enable_all().build().unwrap();
    let two = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for (flavour, rt) in [("current_thread", &one), ("multi_thread(2)", &two)] {
        for (lease, session) in [("", false), (" in a session", true)] {
            let nanos = pair(rt, session);
            let verdict = if nanos <= BAR { "ok" } else { "MISSED" };
            println!("MEASURED | core cost {flavour}{lease} | {nanos} ns a pair | <= {BAR} ns | {verdict}");
        }
    }
    observed(&one);
}

/// Those who look are the process's, so each comes beside the ones before it, and none goes again.
fn observed(rt: &Runtime) {
    let report = |who: &str| {
        let nanos = pair(rt, false);
        println!("MEASURED | core cost current_thread with {who} | {nanos} ns a pair | reported | ok");
    };
    #[cfg(feature = "metrics")]
    {
        let figures = metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder().unwrap();
        // As an exporter does that is asked every few seconds.
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                figures.run_upkeep();
            }
        });
        report("the recorder of metrics-exporter-prometheus");
    }
    let to_nowhere = tracing_subscriber::fmt().with_writer(std::io::sink).with_max_level(tracing::Level::INFO);
    to_nowhere.init();
    let with = if cfg!(feature = "metrics") { "that, and " } else { "" };
    report(&format!("{with}a subscriber of all up to INFO that writes to nowhere"));
}
