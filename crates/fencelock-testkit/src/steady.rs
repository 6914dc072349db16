//! Tests of short leases, on machines that stand still now and then.
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

/// Runs a test that a machine which stands still for longer than `most` may fail rightly, its lease being over by then: where it
/// fails, and a thread that only sleeps was kept from waking for as long meanwhile, it runs again, twelve times at
/// most.
///
/// # Panics
/// As the test does, where the machine ran.
pub fn on_a_steady_machine(most: Duration, test: impl Fn()) {
    const NAP: Duration = Duration::from_millis(5);
    for left in (0..12).rev() {
        let end = AtomicBool::new(false);
        let (result, longest) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                // Once at least: a test that fails at once is measured, too.
                loop {
                    let began = Instant::now();
                    thread::sleep(NAP);
                    longest = longest.max(began.elapsed().saturating_sub(NAP));
                    if end.load(SeqCst) {
                        return longest;
                    }
                }
            });
            let result = catch_unwind(AssertUnwindSafe(&test));
            end.store(true, SeqCst);
            (result, watch.join().unwrap_or_default())
        });
        let Err(panic) = result else { return };
        if left == 0 || longest <= most {
            eprintln!("the machine stood still for {longest:?} at the longest, {most:?} are no excuse");
            resume_unwind(panic);
        }
        eprintln!("the machine stood still for {longest:?}: once more");
    }
}

#[cfg(test)]
mod tests {
    use super::on_a_steady_machine;
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::atomic::{AtomicU32, Ordering::SeqCst},
        time::Duration,
    };

    #[test]
    fn a_failure_on_a_machine_that_ran_is_a_failure_and_another_is_tried_twelve_times() {
        let runs = |most| {
            let runs = AtomicU32::new(0);
            let fails = || {
                runs.fetch_add(1, SeqCst);
                panic!("planted");
            };
            assert!(catch_unwind(AssertUnwindSafe(|| on_a_steady_machine(most, fails))).is_err());
            runs.load(SeqCst)
        };
        assert_eq!(runs(Duration::MAX), 1);
        // Any nap is longer than it was meant to be.
        assert_eq!(runs(Duration::ZERO), 12);
    }
}
