//! How soon a session's lock is free: it lives as long as its holder's process, and a lease longer than that at most.
//! Planted to see it go red: sessions that may be silent for twenty times their ttl (stuck).
use crate::processes::Scene;
use crate::processes::{Worker, bar, now, percentile, tenth};
use std::time::Duration;

/// One that holds, and one that waits for it.
fn two(scene: &impl Scene, n: usize, ttl: Duration) -> [Worker; 2] {
    let name = format!("x{n}");
    let mut holder = scene.hold(n, &name, ttl);
    holder.hear("held");
    let next = scene.hold(n + 1, &name, Duration::from_secs(30));
    scene.queued(&name, 1);
    [holder, next]
}
/// The server hears that its connection has ended.
pub fn killed<S: Scene>() {
    let scene = S::new();
    let mut times = Vec::new();
    for n in 0..tenth(100) {
        let [holder, mut next] = two(&scene, n, Duration::from_secs(60));
        let killed = holder.bury();
        let took = Duration::from_nanos(next.hear("held").0 - killed);
        assert!(took < Duration::from_secs(10), "stuck: {took:?}");
        times.push(took);
    }
    let p99 = percentile(&mut times, 0.99);
    let figure = format!("{p99:?} of {}", times.len());
    let ok = p99 <= Duration::from_millis(100);
    bar(&format!("{}: grant after kill -9 of a holder, p99", S::ENGINE), figure, "<= 100 ms", ok);
}
/// Not before its lease is over, since its holder believes in it for that long, and not long after.
pub fn stopped<S: Scene>() {
    let scene = S::new();
    for ttl in [3_000, 4_000].map(Duration::from_millis) {
        let mut times = Vec::new();
        for batch in 0..tenth(10) {
            // Ten at a time: they wait more than they work.
            let stopped: Vec<_> = (0..10)
                .map(|n| {
                    let [holder, next] = two(&scene, 10 * batch + n, ttl);
                    // In the midst of its signs of life.
                    std::thread::sleep(Duration::from_micros(fastrand::u64(0..50_000)));
                    let at = now();
                    holder.stop();
                    (at, holder, next)
                })
                .collect();
            for (at, mut holder, mut next) in stopped {
                let (held, _) = next.hear("held");
                times.push(Duration::from_nanos(held - at));
                let woken = holder.wake();
                let (lost, _) = holder.hear("lost");
                assert!(Duration::from_nanos(lost.saturating_sub(woken)) < Duration::from_secs(10));
                holder.tell("check");
                holder.hear("checked false");
                next.tell("check");
                next.hear("checked true");
            }
        }
        let [least, worst] = [0.0, 1.0].map(|p| percentile(&mut times, p));
        assert!(worst < Duration::from_secs(20), "stuck: {worst:?}");
        // The last sign of life was a third of it ago, or a little more on a machine that is busy: some are stopped
        // while it is due.
        let third = percentile(&mut times, 0.33);
        assert!(third >= ttl / 2, "{third:?} after it was stopped, with a ttl of {ttl:?}");
        let figure = format!("{least:?} to {worst:?} of {}", times.len());
        let what = format!("{}: grant after SIGSTOP of a holder with a ttl of {ttl:?}", S::ENGINE);
        bar(&what, figure, "<= ttl + 1 s", worst <= ttl + Duration::from_secs(1));
    }
}
