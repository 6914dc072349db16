//! What the tests of several engines share, in a `common` module that brings `call`: what a command of this function has in it.
use super::*;
pub use fencelock_conformance::{
    STUCK as LONG,
    claims::{Any, CLAIMS},
    eventually,
};
use fencelock_conformance::{
    proxy::{Proxy, Trouble},
    within,
};
use fencelock_core::{Acquire, BootClock, Client, Clock, Engine, Moment};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

pub const MS: Duration = Duration::from_millis(1);
pub const SEC: Duration = Duration::from_secs(1);

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
/// This is done to the first so many calls of this function, and nothing to all others. How many there were.
pub fn first(proxy: &Proxy, function: &str, many: u32, trouble: Trouble) -> Arc<AtomicU32> {
    first_of(proxy, call(function), many, trouble)
}
/// The same of those that have this in them.
pub fn first_of(proxy: &Proxy, call: String, many: u32, trouble: Trouble) -> Arc<AtomicU32> {
    let (met, count) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = met.clone();
    proxy.rule(move |command| {
        let is_it = command.windows(call.len()).any(|part| part == call.as_bytes());
        if is_it && count.fetch_add(1, SeqCst) < many {
            seen.fetch_add(1, SeqCst);
            return trouble;
        }
        Trouble::None
    });
    met
}
/// This is done to each call of this function, by its number. How many there were.
pub fn each(proxy: &Proxy, function: &str, trouble: impl Fn(u32) -> Trouble + Send + Sync + 'static) -> Arc<AtomicU32> {
    let (call, met) = (call(function), Arc::<AtomicU32>::default());
    let seen = met.clone();
    proxy.rule(move |command| {
        let is_it = command.windows(call.len()).any(|part| part == call.as_bytes());
        if is_it { trouble(seen.fetch_add(1, SeqCst)) } else { Trouble::None }
    });
    met
}
/// A client of what connects: the server may be busy with others.
pub async fn patient_client<F: Future<Output = fencelock_core::Result<Arc<dyn Engine>>>>(
    connect: impl Fn() -> F,
) -> Client {
    let limit = BootClock.now() + 30 * SEC;
    loop {
        match connect().await {
            Err(error) if error.is_temporary() && BootClock.now() < limit => tokio::time::sleep(10 * MS).await,
            engine => return Client::builder(engine.unwrap()).build().unwrap(),
        }
    }
}
/// Until so many are in the queue.
pub async fn queued(client: &Client, name: &str, n: usize) {
    let so = || async { client.inspect(name).await.unwrap().waiters.len() == n };
    eventually(&format!("{n} in the queue of {name}"), so).await;
}
/// The time of day at this moment, in microseconds: servers of this machine have the same.
pub fn time_of_day(moment: Moment) -> i64 {
    // In this order, so that a pause in between makes it earlier.
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let now = BootClock.now();
    i64::try_from((today + now.until(moment) - moment.until(now)).as_micros()).unwrap()
}
/// Until whoever waits knows who is in the way.
pub async fn blocked<A>(wait: &mut Acquire<A>)
where
    Acquire<A>: Future + Unpin,
{
    soon(async {
        while wait.blocked_by().is_none_or(|busy| busy.stale) {
            assert!(tokio::time::timeout(20 * MS, &mut *wait).await.is_err());
        }
    })
    .await;
}
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    within("it", what).await
}
