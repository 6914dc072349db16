//! Locks between processes, some of which are killed or stopped. Exclusion is judged by a counter that is no atomic one and by intervals
//! on the boot clock. In full with FENCELOCK_PROVE=1, at a tenth without; times are judged only in full.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "../common/mod.rs"]
mod common;
mod scene;

use fencelock_testkit::processes::{
    Scene as _,
    stories::{
        at_the_release, cancels, cells, downgrades, exclusion, fresh_head_waiter, head_waiter, holder, increments,
        killed_session, leaders, order, permits, permits_in, readers_and_writers, starvation, stopped_head_waiter,
        stopped_holder, stopped_session, weights,
    },
    tenth, trials, work,
};
use scene::{Doorbells, Leases, ReadCommitted, Scene, Sessions, ShedLock, cuts};

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
        // Nobody is told: each hand-over is found by a look.
        ("increments_by_16_processes", || increments::<Scene<Leases>>(tenth(200))),
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
        ("never_more_permits_read_committed", || permits_in(&Scene::<ReadCommitted>::new(), tenth(200))),
        ("large_requests_do_not_starve", weights::<Scene<Leases>>),
        ("nobody_starves", starvation::<Scene<Leases>>),
        ("first_come_first_served", order::<Scene<Leases>>),
        ("leaders_that_are_killed", leaders::<Scene<Leases>>),
        ("a_cell_that_16_processes_add_to", cells::<Scene<Leases>>),
        ("doorbells_exclusion_between_12_processes", exclusion::<Scene<Doorbells>>),
        ("doorbells_increments_by_16_processes", || increments::<Scene<Doorbells>>(tenth(200))),
        ("doorbells_a_killed_holder_is_replaced_when_its_lease_ends", holder::<Scene<Doorbells>>),
        ("doorbells_a_killed_head_waiter_holds_up_nobody", head_waiter::<Scene<Doorbells>>),
        (
            "doorbells_a_head_waiter_killed_when_it_has_hardly_come_holds_up_nobody",
            fresh_head_waiter::<Scene<Doorbells>>,
        ),
        ("doorbells_a_head_waiter_killed_at_the_release_holds_up_nobody_for_long", at_the_release::<Scene<Doorbells>>),
        ("doorbells_a_stopped_head_waiter_is_passed", stopped_head_waiter::<Scene<Doorbells>>),
        ("doorbells_a_stopped_holder_is_replaced_and_told", stopped_holder::<Scene<Doorbells>>),
        ("doorbells_cancelled_waits_leave_nothing", cancels::<Scene<Doorbells>>),
        ("doorbells_no_writer_beside_anybody", readers_and_writers::<Scene<Doorbells>>),
        ("doorbells_a_downgrade_lets_no_writer_in", downgrades::<Scene<Doorbells>>),
        ("doorbells_never_more_than_there_are_permits", permits::<Scene<Doorbells>>),
        ("doorbells_large_requests_do_not_starve", weights::<Scene<Doorbells>>),
        ("doorbells_nobody_starves", starvation::<Scene<Doorbells>>),
        ("doorbells_first_come_first_served", order::<Scene<Doorbells>>),
        ("doorbells_leaders_that_are_killed", leaders::<Scene<Doorbells>>),
        ("sessions_exclusion_between_12_processes", exclusion::<Scene<Sessions>>),
        ("sessions_increments_by_16_processes", || increments::<Scene<Sessions>>(tenth(200))),
        ("sessions_a_killed_holder_is_replaced_at_once", killed_session::<Scene<Sessions>>),
        ("sessions_a_killed_head_waiter_holds_up_nobody", head_waiter::<Scene<Sessions>>),
        ("sessions_a_head_waiter_killed_when_it_has_hardly_come_holds_up_nobody", fresh_head_waiter::<Scene<Sessions>>),
        ("sessions_a_head_waiter_killed_at_the_release_holds_up_nobody_for_long", at_the_release::<Scene<Sessions>>),
        ("sessions_a_stopped_holder_is_replaced_when_its_lease_ends", stopped_session::<Scene<Sessions>>),
        ("sessions_a_stopped_holder_is_replaced_and_told", stopped_holder::<Scene<Sessions>>),
        ("sessions_a_stopped_head_waiter_is_passed", stopped_head_waiter::<Scene<Sessions>>),
        ("sessions_cancelled_waits_leave_nothing", cancels::<Scene<Sessions>>),
        ("sessions_nobody_starves", starvation::<Scene<Sessions>>),
        ("sessions_first_come_first_served", order::<Scene<Sessions>>),
        ("sessions_leaders_that_are_killed", leaders::<Scene<Sessions>>),
        ("shedlock_exclusion_between_12_processes", exclusion::<Scene<ShedLock>>),
        ("shedlock_increments_by_16_processes", || increments::<Scene<ShedLock>>(tenth(200))),
        ("shedlock_a_killed_holder_is_replaced_when_its_lease_ends", holder::<Scene<ShedLock>>),
        ("shedlock_a_stopped_holder_is_replaced_and_told", stopped_holder::<Scene<ShedLock>>),
        ("shedlock_cancelled_waits_leave_nothing", cancels::<Scene<ShedLock>>),
        ("shedlock_leaders_that_are_killed", leaders::<Scene<ShedLock>>),
        ("connections_that_are_cut_every_second", || cuts::<Leases>(100_000)),
        ("doorbells_that_are_cut_every_second", || cuts::<Doorbells>(10_000)),
        ("sessions_that_wait_and_are_cut_every_second", || cuts::<Sessions>(10_000)),
    ]);
}
