//! Locks between processes, some of which are killed or stopped. Exclusion is judged by a counter that is no atomic one and by intervals
//! on the boot clock. In full with FENCELOCK_PROVE=1, at a tenth without; times are judged only in full.
//! Planted to see them go red, beside what the stories say: whoever comes fits in (holds that are nobody's, 8 of 3 permits).
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "../common/mod.rs"]
mod common;
mod scene;

use fencelock_testkit::processes::{
    stories::{
        at_the_release, cancels, cells, downgrades, exclusion, fresh_head_waiter, head_waiter, holder, increments,
        killed_session, leaders, order, permits, readers_and_writers, starvation, stopped_head_waiter, stopped_holder,
        stopped_session, weights,
    },
    tenth, trials, work,
};
use scene::{Leases, Pooled, RepeatableRead, Scene, Serializable, Sessions, ShedLock, cuts, three_permits};

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "worker") {
        return work(&words[2..], |words| {
            let url = words[1].clone();
            async move { common::client(&url).await }
        });
    }
    trials(&[
        ("exclusion_between_12_processes", exclusion::<Scene<Leases>>),
        ("increments_by_16_processes", || increments::<Scene<Leases>>(200)),
        ("a_killed_holder_is_replaced_when_its_lease_ends", holder::<Scene<Leases>>),
        ("a_killed_head_waiter_holds_up_nobody", head_waiter::<Scene<Leases>>),
        ("a_head_waiter_killed_when_it_has_hardly_come_holds_up_nobody", fresh_head_waiter::<Scene<Leases>>),
        ("a_head_waiter_killed_at_the_release_holds_up_nobody_for_long", at_the_release::<Scene<Leases>>),
        ("a_stopped_head_waiter_is_passed", stopped_head_waiter::<Scene<Leases>>),
        ("a_stopped_holder_is_replaced_and_told", stopped_holder::<Scene<Leases>>),
        ("cancelled_waits_leave_nothing", cancels::<Scene<Leases>>),
        ("no_writer_beside_anybody", readers_and_writers::<Scene<Leases>>),
        ("a_downgrade_lets_no_writer_in", downgrades::<Scene<Leases>>),
        ("never_more_than_there_are_permits", permits::<Scene<Leases>>),
        ("never_more_permits_read_committed", three_permits::<Leases>),
        ("never_more_permits_repeatable_read", three_permits::<RepeatableRead>),
        ("never_more_permits_serializable", three_permits::<Serializable>),
        ("large_requests_do_not_starve", weights::<Scene<Leases>>),
        ("nobody_starves", starvation::<Scene<Leases>>),
        ("first_come_first_served", order::<Scene<Leases>>),
        ("leaders_that_are_killed", leaders::<Scene<Leases>>),
        ("a_cell_that_16_processes_add_to", cells::<Scene<Leases>>),
        ("a_cell_that_16_serializable_processes_add_to", cells::<Scene<Serializable>>),
        ("listeners_that_are_cut_every_second", || cuts::<Leases>(100_000)),
        // Where nobody is told, each hand-over is found by a look.
        ("pooled_exclusion_between_16_processes", || increments::<Scene<Pooled>>(tenth(200))),
        ("pooled_never_more_than_there_are_permits", three_permits::<Pooled>),
        ("pooled_a_killed_holder_is_replaced_when_its_lease_ends", holder::<Scene<Pooled>>),
        ("pooled_a_stopped_holder_is_replaced_and_told", stopped_holder::<Scene<Pooled>>),
        ("pooled_a_stopped_head_waiter_is_passed", stopped_head_waiter::<Scene<Pooled>>),
        ("pooled_cancelled_waits_leave_nothing", cancels::<Scene<Pooled>>),
        ("pooled_a_downgrade_lets_no_writer_in", downgrades::<Scene<Pooled>>),
        ("pooled_a_killed_head_waiter_holds_up_nobody", head_waiter::<Scene<Pooled>>),
        ("pooled_a_head_waiter_killed_when_it_has_hardly_come_holds_up_nobody", fresh_head_waiter::<Scene<Pooled>>),
        ("pooled_a_head_waiter_killed_at_the_release_holds_up_nobody_for_long", at_the_release::<Scene<Pooled>>),
        ("pooled_no_writer_beside_anybody", readers_and_writers::<Scene<Pooled>>),
        ("pooled_large_requests_do_not_starve", weights::<Scene<Pooled>>),
        ("pooled_nobody_starves", starvation::<Scene<Pooled>>),
        ("pooled_first_come_first_served", order::<Scene<Pooled>>),
        ("pooled_leaders_that_are_killed", leaders::<Scene<Pooled>>),
        ("pooled_cell_that_16_processes_add_to", cells::<Scene<Pooled>>),
        ("connections_of_a_pooler_that_are_cut_every_second", || cuts::<Pooled>(10_000)),
        ("sessions_exclusion_between_12_processes", exclusion::<Scene<Sessions>>),
        ("sessions_increments_by_16_processes", || increments::<Scene<Sessions>>(200)),
        ("sessions_a_killed_holder_is_replaced_at_once", killed_session::<Scene<Sessions>>),
        ("sessions_a_killed_head_waiter_holds_up_nobody", head_waiter::<Scene<Sessions>>),
        ("sessions_a_head_waiter_killed_when_it_has_hardly_come_holds_up_nobody", fresh_head_waiter::<Scene<Sessions>>),
        ("sessions_a_head_waiter_killed_at_the_release_holds_up_nobody_for_long", at_the_release::<Scene<Sessions>>),
        ("sessions_a_stopped_holder_is_replaced_when_its_lease_ends", stopped_session::<Scene<Sessions>>),
        ("sessions_a_stopped_holder_is_replaced_and_told", stopped_holder::<Scene<Sessions>>),
        ("sessions_a_stopped_head_waiter_is_passed", stopped_head_waiter::<Scene<Sessions>>),
        ("sessions_cancelled_waits_leave_nothing", cancels::<Scene<Sessions>>),
        ("sessions_no_writer_beside_anybody", readers_and_writers::<Scene<Sessions>>),
        ("sessions_a_downgrade_lets_no_writer_in", downgrades::<Scene<Sessions>>),
        ("sessions_nobody_starves", starvation::<Scene<Sessions>>),
        ("sessions_first_come_first_served", order::<Scene<Sessions>>),
        ("sessions_leaders_that_are_killed", leaders::<Scene<Sessions>>),
        ("shedlock_exclusion_between_12_processes", exclusion::<Scene<ShedLock>>),
        ("shedlock_increments_by_16_processes", || increments::<Scene<ShedLock>>(tenth(200))),
        ("shedlock_a_killed_holder_is_replaced_when_its_lease_ends", holder::<Scene<ShedLock>>),
        ("shedlock_a_stopped_holder_is_replaced_and_told", stopped_holder::<Scene<ShedLock>>),
        ("shedlock_cancelled_waits_leave_nothing", cancels::<Scene<ShedLock>>),
        ("shedlock_leaders_that_are_killed", leaders::<Scene<ShedLock>>),
        ("sessions_that_wait_and_are_cut_every_second", || cuts::<Sessions>(10_000)),
    ]);
}
