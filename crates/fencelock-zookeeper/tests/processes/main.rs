//! Locks between processes, some of which are killed or stopped, and whose connections and servers are. Exclusion is judged by a
//! counter that is no atomic one and by intervals on the boot clock. In full with FENCELOCK_PROVE=1, at a tenth without; times are
//! judged only in full.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "../common/mod.rs"]
mod common;
mod failover;
mod scene;

use fencelock_testkit::processes::{
    Cuts, full,
    stories::{
        at_the_release, cancels, cells, downgrades, exclusion, holder, order, permits, readers_and_writers, starvation,
        stopped_holder, wake_ups, weights,
    },
    tenth, trials, work,
};
use fencelock_zookeeper::{Config, ZooKeeperEngine};
use scene::{Kazoo, Scene};
use std::time::Duration;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "worker") {
        return work(&words[2..], |words| {
            let mut config = Config::from_url(&words[1]).unwrap();
            // The ttl is the session's.
            config.ttl = match words[0].as_str() {
                "hold" => Duration::from_millis(words[3].parse().unwrap()),
                "contend" => Duration::from_secs(5),
                "spans" | "apart" => Duration::from_secs(30),
                _ => Duration::from_secs(60),
            };
            async move { common::built(ZooKeeperEngine::connect(config).await.unwrap()) }
        });
    }
    // The second time in full runs alone.
    let again = sessions::<Kazoo>().into_iter().filter(|_| full());
    let kazoos = queues::<Kazoo>().into_iter().chain(again).map(|(name, story)| (format!("kazoo: {name}"), story));
    let all = queues::<Scene>().into_iter().chain(sessions::<Scene>());
    let mut all: Vec<_> = all.map(|(name, story)| (name.to_owned(), story)).chain(kazoos).collect();
    all.push(("a_cell_that_16_processes_add_to".to_owned(), cells::<Scene>));
    all.push(("no_hold_is_lost_with_a_leader".to_owned(), failover::leaders_killed));
    let all: Vec<_> = all.iter().map(|(name, story)| (name.as_str(), *story)).collect();
    trials(&all);
}
/// What each dialect has ways of its own for.
fn queues<S: Cuts>() -> Vec<(&'static str, fn())> {
    vec![
        ("exclusion_between_12_processes", exclusion::<S>),
        ("cancelled_waits_leave_nothing", cancels::<S>),
        ("no_writer_beside_anybody", readers_and_writers::<S>),
        ("a_downgrade_lets_no_writer_in", downgrades::<S>),
        ("never_more_than_there_are_permits", permits::<S>),
        ("large_requests_do_not_starve", weights::<S>),
        ("first_come_first_served", order::<S>),
    ]
}
/// Sessions and connections know nothing of dialects, and these take their time.
fn sessions<S: Cuts>() -> Vec<(&'static str, fn())> {
    vec![
        ("a_killed_holder_is_replaced_when_its_session_ends", holder::<S>),
        ("a_head_waiter_killed_at_the_release_holds_up_nobody_for_long", at_the_release::<S>),
        ("a_stopped_holder_is_replaced_and_told", stopped_holder::<S>),
        ("nobody_starves", starvation::<S>),
        ("no_wake_up_is_lost_while_connections_are_cut", || wake_ups::<S>(8, tenth(10_000) as u64, 3)),
    ]
}
