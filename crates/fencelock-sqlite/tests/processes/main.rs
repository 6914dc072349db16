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

use fencelock_testkit::processes::trials;
pub(crate) use fencelock_testkit::processes::{bar, full, percentile, tenth};

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "worker") {
        return worker::main(&words[2..]);
    }
    trials(&[
        ("exclusion_between_16_processes", storm::exclusion),
        ("ten_thousand_cancels", storm::cancels),
        ("a_killed_holder_is_replaced_at_once", crash::holder),
        ("a_killed_head_waiter_holds_up_nobody", crash::head_waiter),
        ("holder_and_head_waiter_killed_at_once", crash::both),
        ("a_stopped_holder_is_replaced_and_told", pause::holder),
        ("a_stopped_head_waiter_is_passed", pause::head_waiter),
        ("a_process_stopped_inside_its_transaction_stops_nobody_for_ever", pause::inside_transaction),
        ("nobody_starves", fair::starvation),
        ("an_idle_waiter_costs_nothing", fair::idle),
        ("hand_over_between_processes", fair::hand_over),
        ("end_of_main_leaves_the_record_released", leave::end_of_main),
        ("only_the_living_leave_traces", leave::leftovers),
        ("no_writer_beside_anybody", spans::readers_and_writers),
        ("a_downgrade_lets_no_writer_in", spans::downgrades),
        ("never_more_than_there_are_permits", spans::permits),
        ("large_requests_do_not_starve", spans::weights),
        ("of_many_holders_one_is_killed", kinds::a_killed_one_of_many),
        ("at_least_outlives_its_process", kinds::at_least),
        ("a_stopped_head_waiter_of_each_claim_is_passed", kinds::a_stopped_head_waiter),
        ("readers_behind_a_writer_are_in_together", kinds::twenty_readers_behind_a_writer),
        ("an_observer_is_told", kinds::observer),
        ("cells_are_exact_between_processes", kinds::cells),
        ("philosophers_do_not_starve", philosophers::philosophers),
        ("leaders_are_killed_and_observers_see_it", election::leaders),
    ]);
}
