//! Planted to see them go red: a subscription that is not made anew, a hand-over to who does not hear of it (both: not within two
//! minutes); a connection that broke and is kept (a hold lost).
use crate::scene::Scene;
use fencelock_testkit::processes::{Cuts, Scene as _, bar, full, now, stories::wake_ups};
use std::time::Duration;

const CUTS: [&str; 2] = ["pubsub", "normal"];

/// Breaks all connections of this type; how many there were.
fn cut(scene: &Scene, kind: &str) -> i64 {
    scene.number(&["CLIENT", "KILL", "TYPE", kind])
}

impl Cuts for Scene {
    const CUT: &'static str = "subscriptions";

    fn cut(&self) -> usize {
        usize::try_from(cut(self, "pubsub")).unwrap()
    }
}
pub(crate) fn wake_ups_of_32() {
    wake_ups::<Scene>(8, if full() { 100_000 } else { 10_000 }, 3);
}
pub(crate) fn wake_ups_of_256() {
    wake_ups::<Scene>(64, if full() { 25_000 } else { 3_000 }, 2);
}

pub(crate) fn holds() {
    let (scene, ttl) = (Scene::new(), Duration::from_secs(3));
    let claims = [("mutex", "mutex"), ("write", "read"), ("read", "write"), ("2/3", "3/3")];
    let mut all: Vec<_> = (0..8)
        .map(|n| {
            let (name, (claim, other)) = (format!("x{n}"), claims[n / 2]);
            let mut holder = scene.claim(n, &name, claim, ttl);
            holder.hear("held");
            (name.clone(), holder, scene.claim(n + 1, &name, other, ttl))
        })
        .collect();
    all.iter().for_each(|(name, ..)| scene.queued(name, 1));
    // Each hold would have run out several times.
    let (end, mut cuts) = (now() + if full() { 60 } else { 7 } * 1_000_000_000, 0);
    while now() < end {
        for kind in CUTS {
            cuts += cut(&scene, kind);
            std::thread::sleep(Duration::from_millis(fastrand::u64(50..250)));
        }
    }
    assert!(cuts > 100, "the run must bite: {cuts} connections cut");
    for (_, holder, next) in &mut all {
        holder.tell("check");
        holder.hear("checked true");
        assert!(next.is_silent(), "it holds beside the other one");
        let asked = now();
        holder.tell("release");
        holder.hear("released true");
        let (held, _) = next.hear("held");
        assert!(held >= asked, "it was in before the other one was out");
        next.tell("release");
        next.hear("released true");
    }
    bar("Redis: 8 holds while all connections are cut: lost", format!("0 ({cuts} connections cut)"), "0", true);
}
