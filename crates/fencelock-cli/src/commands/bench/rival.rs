//! The other side: the bare driver of each engine, with the statements that ours sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fencelock::{Claim, Client, EngineInfo};

use crate::exit::{self, Failure};

/// How many commands an engine has sent so far, where they can be counted.
pub(super) type Counter = Option<Box<dyn Fn() -> u64 + Send + Sync>>;

/// A client of its own, as another process has one.
pub(super) async fn client(url: &str, info: &EngineInfo) -> Result<(Client, Counter), Failure> {
    if !is_native_redis(info) {
        return Ok((fencelock::connect(url).await?, None));
    }
    let engine = Arc::new(fencelock::redis::RedisEngine::from_url(url).await?);
    let counted = engine.clone();
    let counter: Counter = Some(Box::new(move || fencelock::redis::raw::commands(&counted)));
    Ok((Client::builder(engine).build()?, counter))
}

/// The bare driver.
#[derive(Clone)]
pub(super) enum Rival {
    Sqlite(std::path::PathBuf),
    Redis(fencelock::redis::raw::Raw),
    Etcd(fencelock::etcd::raw::Raw),
    ZooKeeper(fencelock::zookeeper::raw::Raw),
    Postgres(fencelock::postgres::raw::Raw),
    Mysql(fencelock::mysql::raw::Raw),
}

impl Rival {
    /// `None`: there is no driver below the engine.
    pub(super) async fn open(url: &str, info: &EngineInfo) -> Result<Option<Self>, Failure> {
        Ok(match info.scheme {
            "sqlite" => Some(Self::Sqlite(fencelock::sqlite::Config::from_url(url)?.path)),
            _ if is_native_redis(info) => Some(Self::Redis(fencelock::redis::raw::Raw::connect(url).await?)),
            "etcd" | "etcds" => Some(Self::Etcd(fencelock::etcd::raw::Raw::connect(url).await?)),
            "zookeeper" | "zookeepers" => Some(Self::ZooKeeper(fencelock::zookeeper::raw::Raw::connect(url).await?)),
            "postgres" if info.layout == "lease" => {
                Some(Self::Postgres(fencelock::postgres::raw::Raw::connect(url).await?))
            }
            "mysql" if info.layout == "lease" => Some(Self::Mysql(fencelock::mysql::raw::Raw::connect(url).await?)),
            _ => None,
        })
    }

    /// Pairs a second of so many tasks, each on a name of its own.
    pub(super) async fn turn(&self, tasks: usize, span: Duration) -> Result<f64, Failure> {
        match self {
            // It has one writer: a thread of its own, and no other.
            Self::Sqlite(path) => {
                let mut raw = fencelock::sqlite::raw::Raw::open(path)?;
                let work = move || {
                    let (started, mut pairs) = (Instant::now(), 0_u64);
                    while started.elapsed() < span {
                        raw.pair("bench/raw", Claim::Mutex)
                            .map_err(|e| Failure::new(exit::UNREACHABLE, e.to_string()))?;
                        pairs += 1;
                    }
                    Ok(super::cases::rate(pairs, started.elapsed()))
                };
                tokio::task::spawn_blocking(work).await.map_err(Failure::bug)?
            }
            Self::Redis(raw) => {
                let raw = raw.clone();
                let pair = move |task: usize, n: u64| {
                    let mut raw = raw.clone();
                    async move { raw.pair(&name(task), &format!("{n:032x}"), "bench 1 ").await }
                };
                side_by_side(tasks, span, pair).await
            }
            Self::Etcd(raw) => {
                let raw = raw.clone();
                let pair = move |task: usize, n: u64| {
                    let raw = raw.clone();
                    async move { raw.pair(&name(task), u128::from(n)).await }
                };
                side_by_side(tasks, span, pair).await
            }
            Self::ZooKeeper(raw) => {
                let raw = raw.clone();
                let pair = move |task: usize, n: u64| {
                    let raw = raw.clone();
                    async move { raw.pair(&name(task), hold(task, n)).await }
                };
                side_by_side(tasks, span, pair).await
            }
            Self::Postgres(raw) => {
                let raw = raw.clone();
                let pair = move |task: usize, n: u64| {
                    let raw = raw.clone();
                    async move { raw.pair(&name(task), hold(task, n)).await }
                };
                side_by_side(tasks, span, pair).await
            }
            Self::Mysql(raw) => {
                let raw = raw.clone();
                let pair = move |task: usize, n: u64| {
                    let raw = raw.clone();
                    async move { raw.pair(&name(task), hold(task, n)).await }
                };
                side_by_side(tasks, span, pair).await
            }
        }
    }
}
/// One Redis with a layout of our own: the others have other commands, and another engine.
fn is_native_redis(info: &EngineInfo) -> bool {
    matches!(info.scheme, "redis" | "rediss") && info.layout == "native"
}
/// As much spread as our ids, which are random: a server has an easier life with those that count up.
fn hold(task: usize, n: u64) -> u128 {
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    ((u128::from(n) << 32) + task as u128).wrapping_mul(ODD)
}
fn name(task: usize) -> String {
    format!("bench/raw/{task}")
}
/// Pairs a second over one connection, or one for each task.
async fn side_by_side<P, F>(tasks: usize, span: Duration, pair: P) -> Result<f64, Failure>
where
    P: Fn(usize, u64) -> F + Clone + Send + 'static,
    F: Future<Output = fencelock::Result<()>> + Send,
{
    let (started, pairs, failed) = (Instant::now(), Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let (pair, pairs, failed) = (pair.clone(), pairs.clone(), failed.clone());
            tokio::spawn(async move {
                let mut n = 0_u64;
                while started.elapsed() < span && !failed.load(Relaxed) {
                    n += 1;
                    pair(task, n).await.inspect_err(|_| failed.store(true, Relaxed))?;
                    pairs.fetch_add(1, Relaxed);
                }
                Ok::<_, fencelock::Error>(())
            })
        })
        .collect();
    for one in all {
        one.await.map_err(Failure::bug)??;
    }
    Ok(super::cases::rate(pairs.load(Relaxed), started.elapsed()))
}
