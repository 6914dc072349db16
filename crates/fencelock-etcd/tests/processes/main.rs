//! Locks between processes, some of which are killed or stopped, and whose connections and servers are. Exclusion is judged by a
//! counter that is no atomic one and by intervals on the boot clock. In full with FENCELOCK_PROVE=1, at a tenth without; times are
//! judged only in full.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "../common/mod.rs"]
mod common;
mod failover;
mod scene;

use fencelock_etcd::{Config, EtcdEngine};
use fencelock_testkit::processes::{
    stories::{
        at_the_release, cancels, cells, downgrades, exclusion, holder, order, permits, readers_and_writers, starvation,
        stopped_holder, wake_ups, weights,
    },
    tenth, trials, work,
};
use scene::Scene;
use std::time::Duration;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "worker") {
        return work(&words[2..], |words| {
            let mut config = Config::from_url(&words[1]).unwrap();
            if words[0] == "contend" {
                config.ttl = Duration::from_secs(5);
            }
            async move { common::built(EtcdEngine::connect(config).await.unwrap()) }
        });
    }
    trials(&[
        ("exclusion_between_12_processes", exclusion::<Scene>),
        ("a_killed_holder_is_replaced_when_its_lease_ends", holder::<Scene>),
        ("a_head_waiter_killed_at_the_release_holds_up_nobody_for_long", at_the_release::<Scene>),
        ("a_stopped_holder_is_replaced_and_told", stopped_holder::<Scene>),
        ("cancelled_waits_leave_nothing", cancels::<Scene>),
        ("no_writer_beside_anybody", readers_and_writers::<Scene>),
        ("a_downgrade_lets_no_writer_in", downgrades::<Scene>),
        ("never_more_than_there_are_permits", permits::<Scene>),
        ("large_requests_do_not_starve", weights::<Scene>),
        ("nobody_starves", starvation::<Scene>),
        ("first_come_first_served", order::<Scene>),
        ("a_cell_that_16_processes_add_to", cells::<Scene>),
        ("no_wake_up_is_lost_while_connections_are_cut", || wake_ups::<Scene>(8, tenth(10_000) as u64, 3)),
        ("no_hold_is_lost_with_a_leader", failover::leaders_killed),
    ]);
}
