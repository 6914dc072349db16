//! Which of an engine's two threads writes next, and for how long others wait for both.
use crate::wire::scope::POLL;
use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// SQLite has no queue: who finds the database locked looks again after a while, and one who writes on and on leaves no gap that is
/// long enough to be found; a heartbeat came after a second of somebody's flood. So the two threads of an engine take turns here,
/// and after a while of writing both make a break, as long as anybody's sleep between two looks. Only courtesy hangs on it: whoever
/// has waited here for long goes on.
pub(crate) struct Writers {
    state: Mutex<State>,
    changed: Condvar,
}
#[derive(Clone, Copy)]
pub(crate) enum Thread {
    Keeper,
    Worker,
}
struct State {
    writing: u8,
    wants: [bool; 2],
    /// Who goes first where both want to.
    first: usize,
    /// Since when there was no break.
    since: Instant,
    ended: Instant,
}
pub(crate) struct Pass<'a>(&'a Writers, usize);

impl Writers {
    const PATIENCE: Duration = Duration::from_millis(100);
    const SPELL: Duration = Duration::from_millis(20);

    pub(crate) fn new() -> Self {
        let (since, ended) = (Instant::now(), Instant::now());
        Self {
            state: Mutex::new(State { writing: 0, wants: [false; 2], first: 0, since, ended }),
            changed: Condvar::new(),
        }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn enter(&self, thread: Thread) -> Pass<'_> {
        let (own, other) = match thread {
            Thread::Keeper => (0, 1),
            Thread::Worker => (1, 0),
        };
        let mut state = self.state();
        state.wants[own] = true;
        let closed = |state: &mut State| state.writing > 0 || (state.wants[other] && state.first == other);
        let waited = self.changed.wait_timeout_while(state, Self::PATIENCE, closed);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.wants[own] = false;
        state.writing += 1;
        let now = Instant::now();
        if now - state.ended >= POLL.end {
            state.since = now;
        } else if now - state.since >= Self::SPELL {
            // The other one waits, too: it is written already that somebody writes.
            drop(state);
            thread::sleep(POLL.end);
            self.state().since = Instant::now();
        }
        Pass(self, other)
    }
}
impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.writing -= 1;
        state.first = self.1;
        state.ended = Instant::now();
        drop(state);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: whoever wrote goes first again; no break.
    #![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
    use super::*;
    use fencelock_testkit::on_a_steady_machine;

    #[test]
    fn whoever_writes_on_and_on_lets_the_other_one_in_between() {
        // One that waits for longer than its patience goes on.
        on_a_steady_machine(Writers::PATIENCE / 4, || {
            for _ in 0..10 {
                let (writers, order) = (Writers::new(), Mutex::new(Vec::new()));
                let first = writers.enter(Thread::Worker);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let _pass = writers.enter(Thread::Keeper);
                        order.lock().unwrap().push("keeper");
                    });
                    while !writers.state().wants[0] && order.lock().unwrap().is_empty() {
                        thread::sleep(Duration::from_micros(50));
                    }
                    drop(first);
                    let _pass = writers.enter(Thread::Worker);
                    order.lock().unwrap().push("worker");
                });
                assert_eq!(order.into_inner().unwrap(), ["keeper", "worker"]);
            }
        });
    }
    #[test]
    fn after_a_while_there_is_a_gap_that_whoever_looks_finds() {
        let writers = Writers::new();
        let breaks = (0..20).filter(|_| {
            let pass = writers.enter(Thread::Worker);
            thread::sleep(Writers::SPELL);
            drop(pass);
            let began = Instant::now();
            drop(writers.enter(Thread::Worker));
            began.elapsed() >= POLL.end
        });
        // All of them, but for those before which the machine made a break itself.
        assert!(breaks.count() >= 10);
    }
}
