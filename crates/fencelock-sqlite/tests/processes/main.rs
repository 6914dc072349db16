//! Locks between processes, some of which are killed or stopped. Exclusion is judged by a counter that is no atomic one and by
//! intervals on the boot clock. In full with FENCELOCK_PROVE=1, at a tenth without; times are judged only in full.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "../common/mod.rs"]
mod common;
mod crash;
mod election;
mod fair;
mod kinds;
mod leave;
mod pause;
mod philosophers;
mod spans;
mod storm;
mod worker;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "worker") {
        return worker::main(&words[2..]);
    }
    let trial = |name: &str, run: fn()| {
        Trial::test(name, move || {
            run();
            Ok::<(), Failed>(())
        })
    };
    let mut args = Arguments::from_args();
    // The trials load the machine as they need it: side by side they would only measure each other.
    args.test_threads = Some(1);
    let trials = vec![
        trial("exclusion_between_16_processes", storm::exclusion),
        trial("ten_thousand_cancels", storm::cancels),
        trial("a_killed_holder_is_replaced_at_once", crash::holder),
        trial("a_killed_head_waiter_holds_up_nobody", crash::head_waiter),
        trial("holder_and_head_waiter_killed_at_once", crash::both),
        trial("a_stopped_holder_is_replaced_and_told", pause::holder),
        trial("a_stopped_head_waiter_is_passed", pause::head_waiter),
        trial("a_process_stopped_inside_its_transaction_stops_nobody_for_ever", pause::inside_transaction),
        trial("nobody_starves", fair::starvation),
        trial("an_idle_waiter_costs_nothing", fair::idle),
        trial("hand_over_between_processes", fair::hand_over),
        trial("end_of_main_leaves_the_record_released", leave::end_of_main),
        trial("only_the_living_leave_traces", leave::leftovers),
        trial("no_writer_beside_anybody", spans::readers_and_writers),
        trial("a_downgrade_lets_no_writer_in", spans::downgrades),
        trial("never_more_than_there_are_permits", spans::permits),
        trial("large_requests_do_not_starve", spans::weights),
        trial("of_many_holders_one_is_killed", kinds::a_killed_one_of_many),
        trial("at_least_outlives_its_process", kinds::at_least),
        trial("a_stopped_head_waiter_of_each_claim_is_passed", kinds::a_stopped_head_waiter),
        trial("readers_behind_a_writer_are_in_together", kinds::twenty_readers_behind_a_writer),
        trial("an_observer_is_told", kinds::observer),
        trial("cells_are_exact_between_processes", kinds::cells),
        trial("philosophers_do_not_starve", philosophers::philosophers),
        trial("leaders_are_killed_and_observers_see_it", election::leaders),
    ];
    libtest_mimic::run(&args, trials).exit();
}

/// In full, or at a tenth.
pub(crate) use common::full;
pub(crate) fn tenth(n: usize) -> usize {
    if full() { n } else { (n / 10).max(1) }
}
/// A bar: printed always, judged in full runs.
pub(crate) fn bar(what: &str, figure: impl std::fmt::Display, limit: &str, ok: bool) {
    println!("\nMEASURED | {what} | {figure} | {limit} | {}", if ok { "ok" } else { "MISSED" });
    assert!(ok || !full(), "{what}: {figure}, the bar is {limit}");
}
/// The p-th percentile.
pub(crate) fn percentile(values: &mut [std::time::Duration], p: f64) -> std::time::Duration {
    values.sort_unstable();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an index")]
    let at = ((values.len() as f64 * p).ceil() as usize).clamp(1, values.len()) - 1;
    values[at]
}
