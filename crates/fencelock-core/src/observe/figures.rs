//! Figures for the `metrics` facade: the names of all of them. No lock's name is a label: there are as many as there are orders.
use crate::{keeper::Keeper, types::Request};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use std::{future::Future, time::Duration};

pub(super) const KEPT: bool = true;

const WAIT: &str = "fencelock_acquire_wait_seconds";
const HOLD: &str = "fencelock_hold_seconds";
const HELD: &str = "fencelock_held";
const WAITING: &str = "fencelock_waiting";
const LOST: &str = "fencelock_lost_total";
const RENEWALS: &str = "fencelock_renewals_total";
const ENGINE: &str = "fencelock_engine_seconds";

/// What they mean, and those that begin at nothing: a rate needs a beginning.
pub(super) fn describe(engine: &'static str) {
    describe_histogram!(WAIT, Unit::Seconds, "From the call until it was granted, refused or given up");
    describe_histogram!(HOLD, Unit::Seconds, "From the grant until the hold was released or lost");
    describe_gauge!(HELD, Unit::Count, "Holds of this process");
    describe_gauge!(WAITING, Unit::Count, "Calls of this process that wait for others");
    describe_counter!(LOST, Unit::Count, "Holds that ended before they were released");
    describe_counter!(RENEWALS, Unit::Count, "Renewals of single holds that were answered, or not");
    describe_histogram!(ENGINE, Unit::Seconds, "From a command to the engine's answer, without waits in its queues");
    held(engine, 0.0);
    waiting(engine, 0.0);
    for reason in ["expired", "max_hold", "session_ended", "taken_over", "unreachable"] {
        counter!(LOST, "engine" => engine, "reason" => reason).increment(0);
    }
    for outcome in ["extended", "lost", "unknown"] {
        counter!(RENEWALS, "engine" => engine, "outcome" => outcome).increment(0);
    }
}
pub(super) fn acquired(engine: &'static str, claim: &'static str, outcome: &'static str, wait: Duration) {
    histogram!(WAIT, "engine" => engine, "claim" => claim, "outcome" => outcome).record(wait);
}
pub(super) fn hold(engine: &'static str, claim: &'static str, held: Duration) {
    histogram!(HOLD, "engine" => engine, "claim" => claim).record(held);
}
pub(super) fn held(engine: &'static str, more: f64) {
    gauge!(HELD, "engine" => engine).increment(more);
}
pub(super) fn waiting(engine: &'static str, more: f64) {
    gauge!(WAITING, "engine" => engine).increment(more);
}
pub(super) fn lost(engine: &'static str, reason: &'static str) {
    counter!(LOST, "engine" => engine, "reason" => reason).increment(1);
}
pub(super) fn renewed(engine: &'static str, outcome: &'static str) {
    counter!(RENEWALS, "engine" => engine, "outcome" => outcome).increment(1);
}

/// A call of the engine, timed; also one that is given up before its answer.
pub(crate) async fn timed<T>(keeper: &Keeper, operation: &'static str, call: impl Future<Output = T>) -> T {
    let _timer = Timer::new(keeper, operation, None);
    call.await
}
/// A claim, timed unless the store made it wait: that is a wait, and says nothing of the store.
pub(crate) async fn asked<T>(keeper: &Keeper, request: &Request, call: impl Future<Output = T>) -> T {
    let _timer = Timer::new(keeper, "acquire", Some(request));
    call.await
}
struct Timer<'a> {
    keeper: &'a Keeper,
    operation: &'static str,
    began: crate::clock::Moment,
    request: Option<&'a Request>,
}
impl<'a> Timer<'a> {
    fn new(keeper: &'a Keeper, operation: &'static str, request: Option<&'a Request>) -> Self {
        Self { keeper, operation, began: keeper.clock.now(), request }
    }
}
impl Drop for Timer<'_> {
    fn drop(&mut self) {
        if self.request.is_some_and(Request::waits_in_store) {
            return;
        }
        let (engine, took) = (self.keeper.engine.info().scheme, self.began.until(self.keeper.clock.now()));
        let operation = self.operation;
        super::outside(|| histogram!(ENGINE, "engine" => engine, "operation" => operation).record(took));
    }
}
