//! How long a hand-over takes between processes: ours, the bare driver's (release, one word of a watch, one read), and warm Curator's of as
//! many clients, one after the other in one run.
#![allow(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]
mod beside;

use fencelock_testkit::{
    Peer, ZooKeeper,
    bench::{Handed, handoff},
};
use std::time::Duration;

/// Hand-overs in all.
const HOLDS: usize = 320;

fn main() {
    handoff::<beside::Side>(|processes, ours| {
        let what =
            format!("hand-over between {processes} processes on zookeeper, p50, to warm Curator's of as many clients");
        ours.compare(&what, curators(processes), 1.0);
    });
}
/// Of clients of Curator's, of one process that has done it once before.
fn curators(clients: usize) -> Handed {
    let zk = ZooKeeper::start();
    let mut curator = Peer::curator(&zk, None);
    let answer = curator.ask(&format!("handoff /fencelock/handoff {clients} {HOLDS}"));
    let mut micros = answer.strip_prefix("ok ").unwrap_or_else(|| panic!("{answer}")).split(' ');
    let [p50, p99] = [(); 2].map(|()| Duration::from_micros(micros.next().unwrap().parse().unwrap()));
    Handed { p50, p99 }
}
