//! The cases. Every figure comes of the public API; names begin with `bench/`.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures to be read"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fencelock::Client;
use tokio::task::JoinSet;

use super::Arena;
use super::report::Row;
use crate::args::Bench;
use crate::exit::Failure;

/// A turn of one side, about: so short that both sides of a round have the same machine.
const TURN: f64 = 0.1;
/// Of which there are so many at least.
const ROUNDS: f64 = 5.0;
/// A holder under contention does something, so that the others are in the queue when it ends.
const HELD: Duration = Duration::from_millis(1);

/// What is measured of every engine.
pub(super) enum Case {
    Uncontended { tasks: usize },
    Contended { waiters: usize },
    Renew { holders: usize },
}

impl Case {
    pub(super) fn all(args: &Bench) -> Vec<Self> {
        let uncontended = args.tasks.iter().map(|&tasks| Self::Uncontended { tasks });
        let contended = args.waiters.iter().map(|&waiters| Self::Contended { waiters });
        let renew = Some(Self::Renew { holders: args.holders }).filter(|_| args.holders > 0);
        uncontended.chain(contended).chain(renew).collect()
    }

    /// For people, while it is measured.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Uncontended { tasks } => format!("uncontended, {tasks} at once"),
            Self::Contended { waiters } => format!("contended, {waiters} at once"),
            Self::Renew { holders } => format!("renewals, {holders} held"),
        }
    }
    pub(super) async fn measure(self, arena: &Arena, seconds: f64) -> Result<Row, Failure> {
        match self {
            Self::Uncontended { tasks } => uncontended(arena, tasks, seconds).await,
            Self::Contended { waiters } => contended(arena, waiters, seconds).await,
            Self::Renew { holders } => renew(arena, holders, seconds).await,
        }
    }
}

/// Each task takes a lock of its own and gives it back, in turns with the bare driver.
async fn uncontended(arena: &Arena, tasks: usize, seconds: f64) -> Result<Row, Failure> {
    let rounds = (seconds / TURN).round().max(ROUNDS);
    let span = Duration::from_secs_f64(seconds / rounds);
    let (mut ours, mut raw, mut times, mut cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // The first one warms up.
    for round in 0..=rounds as u32 {
        // In turns, and no side twice in a row: what has served one for a while, a server's process and where the system runs it, serves it
        // otherwise than one that comes after another.
        let work = Cpu::start();
        let (rate, took) = pairs(&arena.client, tasks, span).await?;
        let part = work.part();
        let bare = match &arena.rival {
            Some(rival) => Some(rival.turn(tasks, span).await?),
            None => None,
        };
        if round > 0 {
            ours.push(rate);
            times.extend(took);
            cpu.extend(part);
            raw.extend(bare);
        }
    }
    // Round by round: a machine that is slow for a while is slow for both.
    let ratio = median(ours.iter().zip(&raw).map(|(ours, raw)| ours / raw).collect());
    Ok(Row {
        pairs_per_s: median(ours).map(f64::round),
        raw_pairs_per_s: median(raw).map(f64::round),
        ratio: ratio.map(hundredths),
        p50_us: percentile(&mut times, 0.5),
        p99_us: percentile(&mut times, 0.99),
        client_cpu: median(cpu),
        ..arena.row("uncontended", tasks)
    })
}

async fn pairs(client: &Client, tasks: usize, span: Duration) -> Result<(f64, Vec<u64>), Failure> {
    let started = Instant::now();
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let lock = client.mutex(format!("bench/{task}"));
            tokio::spawn(async move {
                let mut times = Vec::new();
                while started.elapsed() < span {
                    let began = Instant::now();
                    lock.lock().await?.release().await?;
                    times.push(micros(began.elapsed()));
                }
                Ok::<_, fencelock::Error>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for one in all {
        times.extend(one.await.map_err(Failure::bug)??);
    }
    Ok((rate(times.len() as u64, started.elapsed()), times))
}

/// So many clients want one lock. A hand-over lasts from the call of `release` until another one has it.
async fn contended(arena: &Arena, waiters: usize, seconds: f64) -> Result<Row, Failure> {
    let mut clients = Vec::new();
    for _ in 0..waiters.max(1) {
        clients.push(arena.another().await?);
    }
    let sent = || clients.iter().map(|(_, counter)| Some(counter.as_ref()?())).sum::<Option<u64>>();
    let (before, work) = (sent(), Cpu::start());
    let (epoch, released, stop) = (Instant::now(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut all = JoinSet::new();
    for (client, _) in &clients {
        let (lock, released, stop) = (client.mutex("bench/contended"), released.clone(), stop.clone());
        all.spawn(async move {
            let (mut pairs, mut handed) = (Vec::new(), Vec::new());
            while !stop.load(Relaxed) {
                let began = Instant::now();
                let guard = lock.lock().await?;
                let at = released.swap(0, Relaxed);
                if at > 0 {
                    handed.push(micros(epoch.elapsed()).saturating_sub(at));
                }
                tokio::time::sleep(HELD).await;
                released.store(micros(epoch.elapsed()).max(1), Relaxed);
                guard.release().await?;
                pairs.push(micros(began.elapsed()));
            }
            Ok::<_, fencelock::Error>((pairs, handed))
        });
    }
    // Whoever fails ends it for all.
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => {}
        Some(failed) = all.join_next() => drop(failed.map_err(Failure::bug)??),
    }
    stop.store(true, Relaxed);
    let (mut pairs, mut handed) = (Vec::new(), Vec::new());
    while let Some(one) = all.join_next().await {
        let (some, more) = one.map_err(Failure::bug)??;
        pairs.extend(some);
        handed.extend(more);
    }
    let grants = pairs.len() as u64;
    let commands = before.zip(sent()).map(|(before, after)| after - before);
    let row = Row {
        pairs_per_s: Some(rate(grants, epoch.elapsed()).round()),
        p50_us: percentile(&mut pairs, 0.5),
        p99_us: percentile(&mut pairs, 0.99),
        handoff_p50_us: percentile(&mut handed, 0.5),
        handoff_p99_us: percentile(&mut handed, 0.99),
        commands_per_grant: commands.filter(|_| grants > 0).map(|n| hundredths(n as f64 / grants as f64)),
        client_cpu: work.part(),
        ..arena.row("contended", waiters)
    };
    for (client, _) in clients {
        if client.info().scheme != "memory" {
            client.shutdown(super::GRACE).await?;
        }
    }
    Ok(row)
}

/// So many are held at once, and kept alive.
async fn renew(arena: &Arena, holders: usize, seconds: f64) -> Result<Row, Failure> {
    let can = &arena.client.info().capabilities;
    let ttl = arena.ttl.unwrap_or(Duration::from_secs(3)).clamp(can.min_ttl, can.max_ttl);
    let mut guards = Vec::with_capacity(holders);
    for i in 0..holders {
        guards.push(Arc::new(arena.client.mutex(format!("bench/held/{i}")).ttl(ttl).lock().await?));
    }
    let renewals = Arc::<AtomicU64>::default();
    let count: Vec<_> = guards
        .iter()
        .map(|guard| {
            let (guard, renewals) = (guard.clone(), renewals.clone());
            tokio::spawn(async move {
                loop {
                    guard.renewed().await;
                    renewals.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    // From the first renewal on, and whole rounds of them: a third of a ttl each.
    tokio::time::sleep(ttl / 3).await;
    let (work, before) = (Cpu::start(), renewals.load(Relaxed));
    tokio::time::sleep(Duration::from_secs_f64(seconds).max(ttl)).await;
    let (done, took, cpu) = (renewals.load(Relaxed) - before, work.since.elapsed(), work.part());
    count.iter().for_each(tokio::task::JoinHandle::abort);
    for one in count {
        let _ = one.await;
    }
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    if lost > 0 {
        return Err(Failure::new(
            crate::exit::LOST,
            format!("{lost} of {holders} locks were lost while they were held"),
        ));
    }
    drop(guards);
    Ok(Row {
        holders: Some(holders),
        renewals_per_s: Some(rate(done, took).round()),
        client_cpu: cpu,
        ..arena.row("renew", 1)
    })
}

/// Time on a processor of this process, over some spans.
#[derive(Clone, Copy)]
struct Cpu {
    since: Instant,
    used: Duration,
}

impl Cpu {
    fn start() -> Self {
        Self { since: Instant::now(), used: used() }
    }

    /// How much of a core since then, in percent.
    fn part(&self) -> Option<f64> {
        let took = self.since.elapsed().as_secs_f64();
        let part = used().saturating_sub(self.used).as_secs_f64() / took;
        (took > 0.0).then(|| (part * 1_000.0).round() / 10.0)
    }
}

fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// So many in so long, a second.
pub(super) fn rate(n: u64, took: Duration) -> f64 {
    n as f64 / took.as_secs_f64().max(1e-9)
}

fn hundredths(x: f64) -> f64 {
    (x * 100.0).round() / 100.0
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

fn percentile(all: &mut [u64], p: f64) -> Option<u64> {
    all.sort_unstable();
    let at = (all.len() as f64 * p).ceil() as usize;
    all.get(at.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: the index one too high.
    #[test]
    fn percentiles_of_few_and_of_none() {
        assert_eq!(percentile(&mut [], 0.5), None);
        assert_eq!(percentile(&mut [7], 0.99), Some(7));
        assert_eq!(percentile(&mut [3, 1, 2, 4], 0.5), Some(2));
        assert_eq!(percentile(&mut [3, 1, 2, 4], 0.99), Some(4));
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
    }
}
