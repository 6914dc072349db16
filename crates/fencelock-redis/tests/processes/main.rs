//! Locks between processes, some of which are killed or stopped, and whose connections are. Exclusion is judged by a counter that is
//! no atomic one and by intervals on the boot clock. In full with FENCELOCK_PROVE=1, at a tenth without; times are judged only in full.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod cuts;
mod plain;
mod redlock;
mod scene;

use cluster::Cluster;
use fencelock_testkit::processes::{
    stories::{
        at_the_release, cancels, cells, downgrades, exclusion, head_waiter, holder, order, permits,
        readers_and_writers, starvation, stopped_head_waiter, stopped_holder, weights,
    },
    trials, work,
};
use plain::Plain;
use redlock::Redlock;
use scene::Scene;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "worker") {
        return work(&words[2..], |words| {
            let url = words[1].clone();
            async move { common::client(&url).await }
        });
    }
    trials(&[
        ("exclusion_between_12_processes", exclusion::<Scene>),
        ("exclusion_between_12_processes_in_the_layout_plain", exclusion::<Plain>),
        ("exclusion_between_12_processes_in_a_cluster", exclusion::<Cluster>),
        ("exclusion_between_12_processes_on_five_servers", exclusion::<Redlock>),
        ("a_killed_holder_is_replaced_when_its_lease_ends", holder::<Scene>),
        ("a_killed_holder_on_five_servers_is_replaced_when_its_lease_ends", holder::<Redlock>),
        ("a_killed_head_waiter_holds_up_nobody", head_waiter::<Scene>),
        ("a_killed_head_waiter_in_a_cluster_holds_up_nobody", head_waiter::<Cluster>),
        ("a_head_waiter_killed_at_the_release_holds_up_nobody_for_long", at_the_release::<Scene>),
        ("a_stopped_holder_is_replaced_and_told", stopped_holder::<Scene>),
        ("a_stopped_holder_on_five_servers_is_replaced_and_told", stopped_holder::<Redlock>),
        ("a_stopped_head_waiter_is_passed", stopped_head_waiter::<Scene>),
        ("a_stopped_head_waiter_in_a_cluster_is_passed", stopped_head_waiter::<Cluster>),
        ("cancelled_waits_leave_nothing", cancels::<Scene>),
        ("no_writer_beside_anybody", readers_and_writers::<Scene>),
        ("a_downgrade_lets_no_writer_in", downgrades::<Scene>),
        ("never_more_than_there_are_permits", permits::<Scene>),
        ("large_requests_do_not_starve", weights::<Scene>),
        ("nobody_starves", starvation::<Scene>),
        ("first_come_first_served", order::<Scene>),
        ("a_cell_that_16_processes_add_to", cells::<Scene>),
        ("no_wake_up_is_lost_while_subscriptions_are_cut", cuts::wake_ups_of_32),
        ("no_wake_up_of_256_is_lost_while_subscriptions_are_cut", cuts::wake_ups_of_256),
        ("cut_connections_lose_no_hold", cuts::holds),
    ]);
}
