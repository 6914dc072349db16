//! Planted to see them go red: the second of the queue served before the first (and 68 grants to 1, at the bar alone); no hand-over
//! (3.3 s, at the bar alone).
use crate::on_a_steady_machine;
use crate::processes::Scene;
use crate::processes::{bar, full, now};
use std::{cell::Cell, time::Duration};

pub fn starvation<S: Scene>() {
    let scene = S::new();
    let seconds = if full() { 30 } else { 4 };
    // They take a moment to start.
    let end = (now() + (seconds + 3) * 1_000_000_000).to_string();
    let mut workers: Vec<_> = (0..16).map(|n| scene.start(n, "loop", &["x", &end])).collect();
    let (mut counts, mut longest) = (Vec::new(), Duration::ZERO);
    for worker in &mut workers {
        let said = worker.hear("").1;
        let numbers: Vec<u64> = said.split(' ').map(|n| n.parse().unwrap()).collect();
        counts.push(numbers[0]);
        longest = longest.max(Duration::from_micros(numbers[1]));
    }
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 0, "somebody starved: {counts:?}");
    assert!(longest < Duration::from_secs(10), "somebody starved: {longest:?}");
    bar(
        &format!("{}: 16 processes on one lock: most grants to least", S::ENGINE),
        format!("{most} : {least} in {seconds} s"),
        "<= 2 : 1",
        *most <= 2 * least,
    );
    bar(
        &format!("{}: the longest wait among them", S::ENGINE),
        format!("{longest:?}"),
        "<= 1 s",
        longest <= Duration::from_secs(1),
    );
}

/// Without faults the order of the grants is that of the queue, exactly, whatever the clocks of those who wait show.
pub fn order<S: Scene>() {
    let (scene, ttl) = (S::with_wrong_clocks(), Duration::from_secs(30));
    let (rounds, waiters) = (S::rounds(50), 8);
    let tries = Cell::new(0);
    let one = |round| {
        let name = format!("x{}", tries.replace(tries.get() + 1));
        let mut holder = scene.hold(round, &name, ttl);
        holder.hear("held");
        let mut queue: Vec<_> = (0..waiters)
            .map(|n| {
                let mut waiter = scene.hold(n, &name, ttl);
                scene.queued(&name, n + 1);
                // As soon as it has it.
                waiter.tell("release");
                waiter
            })
            .collect();
        holder.tell("release");
        holder.hear("released true");
        let tokens: Vec<i64> = queue.iter_mut().map(|waiter| waiter.hear("held").1.parse().unwrap()).collect();
        assert!(tokens.is_sorted(), "in the order of the queue the tokens are {tokens:?}");
        queue.iter_mut().for_each(|waiter| drop(waiter.hear("released true")));
    };
    // Who sleeps when it is his turn is passed.
    for round in 0..rounds {
        on_a_steady_machine(Duration::from_millis(500), || one(round));
    }
    let figure = format!("{} of {}", rounds * waiters, rounds * waiters);
    bar(&format!("{}: grants in the order of the queue, 8 waiters, {}", S::ENGINE, S::WORKERS), figure, "all", true);
}
