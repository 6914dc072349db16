//! Primaries are killed while many contend.
use super::*;
use fencelock_core::{Client, Engine, Token};
use fencelock_testkit::processes::{bar, percentile};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

pub const FAILOVER: Duration = Duration::from_secs(30);

pub fn many_threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}
pub async fn connect_to(url: &str) -> Client {
    patient_client(|| async { connect(Config::from_url(url)?).await }).await
}
/// Somebody takes over when the primary is killed: that of the key of a lock `x`.
pub trait Replicated {
    /// All are as they should be.
    fn primary(&self) -> usize;
    fn kill(&self, server: usize);
    /// Another one is the primary, and all agree.
    fn promoted(&self, old: usize);
    /// It runs again, and follows.
    fn restart(&self, old: usize);
}

/// What the locks protect: it takes no write of a smaller token than it has seen (SAFETY T5).
#[derive(Default)]
struct Resource {
    token: AtomicI64,
    inside: AtomicUsize,
    writes: AtomicUsize,
    refused: AtomicUsize,
    overlaps: AtomicUsize,
}
impl Resource {
    fn write(&self, token: Token) -> bool {
        let is_new = self.token.fetch_max(token.get(), SeqCst) <= token.get();
        if is_new { &self.writes } else { &self.refused }.fetch_add(1, SeqCst);
        is_new
    }
}

/// 16 clients contend for `x` while the primary is killed again and again: tokens rise over every grant, also of those that were lost,
/// and whoever is refused by the resource is told that he has lost the lock.
pub fn killed(servers: &dyn Replicated, url: &str, what: &str, rounds: usize) {
    many_threads().block_on(async {
        let (stop, resource) = (Arc::<AtomicBool>::default(), Arc::<Resource>::default());
        let granted = Arc::<Mutex<Vec<i64>>>::default();
        let mut workers = JoinSet::new();
        for _ in 0..16 {
            let (stop, resource, granted) = (stop.clone(), resource.clone(), granted.clone());
            let client = connect_to(url).await;
            workers.spawn(async move {
                let mut told = 0_usize;
                while !stop.load(SeqCst) {
                    let Ok(guard) = client.mutex("x").lock().await else { continue };
                    granted.lock().unwrap().push(guard.token().get());
                    if resource.inside.fetch_add(1, SeqCst) > 0 {
                        resource.overlaps.fetch_add(1, SeqCst);
                    }
                    tokio::time::sleep(2 * MS).await;
                    let valid = guard.check().is_ok();
                    let written = valid && resource.write(guard.token());
                    resource.inside.fetch_sub(1, SeqCst);
                    // Refused, and it did not know: the next thing that it hears is that it has lost the lock.
                    if valid && !written {
                        soon(guard.lost()).await;
                    }
                    told += usize::from(!written);
                    drop(guard.release().await);
                }
                told
            });
        }
        let grants = || granted.lock().unwrap().len();
        let mut times = Vec::new();
        for _ in 0..rounds {
            let before = grants();
            eventually("they work", || std::future::ready(grants() > before + 50)).await;
            let old = servers.primary();
            servers.kill(old);
            servers.promoted(old);
            let (promoted, before) = (Instant::now(), grants());
            eventually("they go on", || std::future::ready(grants() > before + 1)).await;
            times.push(promoted.elapsed());
            servers.restart(old);
        }
        stop.store(true, SeqCst);
        let mut told = 0;
        while let Some(worker) = soon(workers.join_next()).await {
            told += worker.unwrap();
        }
        let all = granted.lock().unwrap().clone();
        let falling = all.windows(2).filter(|two| two[0] >= two[1]).count();
        let count = |n: &AtomicUsize| n.load(SeqCst);
        let figure = format!(
            "{} grants, {falling} out of order, {} writes, {} refused, {told} told, {} overlaps",
            all.len(),
            count(&resource.writes),
            count(&resource.refused),
            count(&resource.overlaps)
        );
        assert_eq!(falling, 0, "{figure}");
        bar(&format!("{what}: tokens over {rounds} primaries killed"), figure, "rise", true);
        let worst = percentile(&mut times, 1.0);
        let what = format!("{what}: the next grant after all agree on another primary, slowest");
        bar(&what, format!("{worst:?} of {rounds}"), "<= 3 s", worst <= 3 * SEC);
    });
}
