//! Whether this machine stands still now and then: what is late on one that does shows nothing.
//!
//! On each processor a thread does nothing but sleep for a moment and look how long that was: one processor that the host has taken
//! away delays a server whose turn was there, and nobody else.
use fencelock_core::{BootClock, Clock, Moment};
use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

const NAP: Duration = Duration::from_millis(2);
/// Any thread is late by as much now and then.
const NONE: Duration = Duration::from_millis(3);

/// When a processor ran again, and for how long it had not.
static STALLS: Mutex<Vec<(Moment, Duration)>> = Mutex::new(Vec::new());
/// When the present nap on each of them began.
static NAPS: Mutex<Vec<Arc<AtomicU64>>> = Mutex::new(Vec::new());

/// From now on, until the process ends.
pub(crate) fn watch() {
    static WATCHING: OnceLock<()> = OnceLock::new();
    WATCHING.get_or_init(|| {
        for pin in processors() {
            let began = Arc::new(AtomicU64::new(BootClock.now().as_nanos()));
            NAPS.lock().unwrap_or_else(PoisonError::into_inner).push(began.clone());
            thread::spawn(move || {
                pin();
                loop {
                    let before = BootClock.now();
                    began.store(before.as_nanos(), Relaxed);
                    thread::sleep(NAP);
                    let after = BootClock.now();
                    let still = before.until(after).saturating_sub(NAP);
                    if still > NONE {
                        STALLS.lock().unwrap_or_else(PoisonError::into_inner).push((after, still));
                    }
                }
            });
        }
    });
}
/// The longest time since then in which a thread that wanted to run did not.
pub(crate) fn worst_since(began: Moment) -> Duration {
    // One that has just ended is about to be told.
    thread::sleep(2 * NAP);
    let (now, naps) = (BootClock.now(), NAPS.lock().unwrap_or_else(PoisonError::into_inner));
    // One that lasts still is not told before it is over.
    let lasting = naps.iter().map(|nap| Moment::from_nanos(nap.load(Relaxed)).until(now).saturating_sub(NAP));
    let lasting = lasting.filter(|still| *still > NONE);
    let stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = stalls.iter().rev().take_while(|(ended, _)| *ended >= began).map(|(_, still)| *still);
    ended.chain(lasting).max().unwrap_or_default()
}

/// What puts a thread on each of them.
#[cfg(target_os = "linux")]
fn processors() -> Vec<Box<dyn FnOnce() + Send>> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let ours = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let one = |n: usize| -> Box<dyn FnOnce() + Send> {
        Box::new(move || {
            let mut only = CpuSet::new();
            only.set(n);
            // Where that is not allowed it watches wherever it is.
            let _ = sched_setaffinity(None, &only);
        })
    };
    (0..CpuSet::MAX_CPU).filter(|n| ours.is_set(*n)).map(one).collect()
}
#[cfg(not(target_os = "linux"))]
fn processors() -> Vec<Box<dyn FnOnce() + Send>> {
    vec![Box::new(|| {})]
}
