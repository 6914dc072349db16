//! Planted to see it go red: a withdrawal that does nothing; a release that leaves the place in the queue, or compares nothing.
//! It was red by itself when connections were made by who waited for them: each gave up before there was one.
use crate::processes::Scene;
use crate::processes::{Worker, bar, eventually, tenth};
use std::time::Duration;

pub fn cancels<S: Scene>() {
    let scene = S::new();
    let guard = scene.runtime().block_on(scene.client().mutex("held").lock()).unwrap();
    let mine = scene.traces();
    // Five tasks in each of them.
    let rounds = (tenth(10_000) / 30).to_string();
    let mut workers: Vec<_> = (0..6).map(|n| scene.start(n, "cancel", &[&rounds])).collect();
    let (mut got, mut dropped) = (0, 0);
    for worker in &mut workers {
        let said = worker.hear("").1;
        let numbers: Vec<usize> = said.split(' ').map(|n| n.parse().unwrap()).collect();
        (got, dropped) = (got + numbers[0], dropped + numbers[1]);
    }
    // No lease ends by itself for a minute, and a waiter that is dead to the server still has its place.
    let took = eventually("nothing held, nothing queued", Duration::from_secs(10), || scene.traces() == mine);
    for name in ["held", "m0", "m1", "rw0", "rw1", "s0", "s1"] {
        let status = scene.status(name);
        assert_eq!((status.holders.len(), status.waiters.len()), (usize::from(name == "held"), 0), "{status:?}");
    }
    guard.check().unwrap();
    scene.runtime().block_on(guard.release()).unwrap();
    for worker in &mut workers {
        worker.tell("end");
    }
    assert!(workers.into_iter().all(Worker::wait), "a client that holds something still");
    assert_eq!(scene.traces(), 0);
    assert!(got > 60 && dropped > 60, "the run must bite: {got} {dropped}");
    let figure = format!("0 of {dropped} ({got} taken; clean after {took:?})");
    bar(&format!("{}: cancelled waits: left 1 s later", S::ENGINE), figure, "0", took <= Duration::from_secs(1));
}
