//! Many seeds on two threads.
use fencelock_simulation::{Breach, Verdict, run};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

const THREADS: usize = 2;
/// One of so many is run a second time, and must be the same history.
const AGAIN: u64 = 64;
/// No seed takes so many seconds, unless it goes round in circles without any time passing.
const STUCK: u64 = 60;

/// What many seeds came to.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// The first breach of each seed that failed.
    pub(crate) failed: Vec<(u64, Breach)>,
    pub(crate) coverage: BTreeMap<&'static str, u64>,
    pub(crate) differ: u64,
    /// The least simulated time of a seed.
    pub(crate) shortest: u64,
}

/// Runs them; `enough`: stops after so many failures.
pub(crate) fn sweep(from: u64, seeds: u64, enough: Option<usize>) -> Sum {
    let sum = Mutex::new(Sum { shortest: u64::MAX, ..Sum::default() });
    let (next, done) = (AtomicU64::new(from), AtomicBool::new(false));
    let current: [AtomicU64; THREADS] = std::array::from_fn(|_| AtomicU64::new(u64::MAX));
    thread::scope(|scope| {
        let workers = current.each_ref().map(|mine| {
            scope.spawn(|| {
                let mut part = Sum { shortest: u64::MAX, ..Sum::default() };
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    let full = enough.is_some_and(|enough| lock(&sum).failed.len() >= enough);
                    if seed >= from + seeds || full {
                        break;
                    }
                    mine.store(seed, Relaxed);
                    if let Some(failure) = add(&mut part, seed, enough.is_none()) {
                        lock(&sum).failed.push((seed, failure));
                    }
                }
                mine.store(u64::MAX, Relaxed);
                part
            })
        });
        scope.spawn(|| watch(&current, &done));
        for worker in workers {
            let part = worker.join().unwrap_or_default();
            let mut sum = lock(&sum);
            part.coverage.iter().for_each(|(what, times)| *sum.coverage.entry(what).or_default() += times);
            sum.differ += part.differ;
            sum.shortest = sum.shortest.min(part.shortest);
        }
        done.store(true, Relaxed);
    });
    let mut sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    sum.failed.sort_by_key(|(seed, _)| *seed);
    sum
}
fn lock(sum: &Mutex<Sum>) -> std::sync::MutexGuard<'_, Sum> {
    sum.lock().unwrap_or_else(PoisonError::into_inner)
}
fn add(part: &mut Sum, seed: u64, again: bool) -> Option<Breach> {
    let verdict = safely(seed);
    for (what, times) in &verdict.coverage {
        *part.coverage.entry(what).or_default() += times;
    }
    if again && seed.is_multiple_of(AGAIN) && safely(seed).fingerprint != verdict.fingerprint {
        println!("FENCELOCK seed {seed}: its history is another one when it is repeated");
        part.differ += 1;
    }
    part.shortest = part.shortest.min(verdict.simulated);
    verdict.breaches.into_iter().next()
}
/// A panic is a breach too.
fn safely(seed: u64) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned());
        let breaches = vec![Breach { checker: "PANIC", at: 0, what }];
        Verdict { seed, breaches, fingerprint: 0, simulated: u64::MAX, coverage: BTreeMap::new() }
    })
}
/// A seed that goes round in circles would be waited for for ever.
fn watch(current: &[AtomicU64; THREADS], done: &AtomicBool) {
    let mut seen = [(u64::MAX, 0); THREADS];
    while !done.load(Relaxed) {
        thread::sleep(Duration::from_millis(100));
        for (now, (seed, ticks)) in current.iter().map(|seed| seed.load(Relaxed)).zip(&mut seen) {
            *ticks = if now == *seed && now != u64::MAX { *ticks + 1 } else { 0 };
            *seed = now;
            if *ticks > STUCK * 10 {
                println!("FENCELOCK seed {now}: HANG: no end after {STUCK} s");
                std::process::exit(1);
            }
        }
    }
}
