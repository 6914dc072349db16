//! Locks between processes, some of which are killed or stopped, and whose connections are. Exclusion is judged by a counter that is
//! no atomic one and by intervals on the boot clock. In full with FENCELOCK_PROVE=1, at a tenth without; times are judged only in full.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod cancel;
#[path = "../common/mod.rs"]
mod common;
mod crash;
mod cuts;
mod fair;
mod pause;
mod scene;
mod spans;
mod worker;

use fencelock_testkit::processes::trials;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "worker") {
        return worker::main(words[2..].to_vec());
    }
    trials(&[
        ("exclusion_between_12_processes", spans::exclusion),
        ("a_killed_holder_is_replaced_when_its_lease_ends", crash::holder),
        ("a_killed_head_waiter_holds_up_nobody", crash::head_waiter),
        ("a_head_waiter_killed_at_the_release_holds_up_nobody_for_long", crash::at_the_release),
        ("a_stopped_holder_is_replaced_and_told", pause::holder),
        ("a_stopped_head_waiter_is_passed", pause::head_waiter),
        ("cancelled_waits_leave_nothing", cancel::cancels),
        ("no_writer_beside_anybody", spans::readers_and_writers),
        ("a_downgrade_lets_no_writer_in", spans::downgrades),
        ("never_more_than_there_are_permits", spans::permits),
        ("large_requests_do_not_starve", spans::weights),
        ("nobody_starves", fair::starvation),
        ("first_come_first_served", fair::order),
        ("no_wake_up_is_lost_while_subscriptions_are_cut", cuts::wake_ups_of_32),
        ("no_wake_up_of_256_is_lost_while_subscriptions_are_cut", cuts::wake_ups_of_256),
        ("cut_connections_lose_no_hold", cuts::holds),
    ]);
}
