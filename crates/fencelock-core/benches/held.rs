//! What it costs to hold: 100,000 holds of 30 s on the memory engine, renewed a third of a ttl after the other. The bar is 5 %
//! of a core, for renewals, loss timers and the engine together; the memory per hold is told.
#![allow(clippy::unwrap_used)]

use fencelock_core::{Client, memory::MemoryEngine};
use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

const HOLDS: usize = 100_000;
const TTL: Duration = Duration::from_secs(30);

/// Time on a processor so far.
fn cpu() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).try_into().unwrap()
}
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn main() {
    // `cargo test --benches` runs it too: there is nothing to test then.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async {
        let client = Client::builder(Arc::new(MemoryEngine::new())).build().unwrap();
        let before = resident();
        let mut guards = Vec::with_capacity(HOLDS);
        // As they come in life: not all at once, or all renewals would fall together.
        let began = Instant::now();
        for i in 0..HOLDS {
            guards.push(client.mutex(format!("held/{i}")).ttl(TTL).lock().await.unwrap());
            let due = began + TTL.mul_f64(i as f64 / HOLDS as f64 / 3.0);
            if i % 100 == 0 {
                tokio::time::sleep_until(due.into()).await;
            }
        }
        let each = (resident() - before) / HOLDS as u64;
        let (start, from) = (Instant::now(), cpu());
        tokio::time::sleep(TTL).await;
        let part = 100.0 * (cpu() - from).as_secs_f64() / start.elapsed().as_secs_f64();
        let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
        assert_eq!((lost, client.held()), (0, HOLDS), "all of them are still held");
        let verdict = if part < 5.0 { "ok" } else { "MISSED" };
        println!(
            "MEASURED | 100,000 holds of 30 s on memory | {part:.1} % of a core, {each} bytes each | < 5 % | {verdict}"
        );
    });
}
