//! Planted to see them go red: a lease that is over 300 ms early (133 ms before its end); one that ends 20 s late (stuck); and, at the
//! bar alone: a hand-over to who does not hear of it (1.76 s), no hand-over at all (1.2 s), one who has hardly come and is not looked for
//! (3.03 s).
use crate::processes::Scene;
use crate::processes::{Worker, bar, eventually, percentile, tenth};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
pub fn holder<S: Scene>() {
    let scene = S::new();
    let mut times = Vec::new();
    // Ten at a time: they wait more than they work.
    for batch in 0..tenth(10) {
        let pairs: Vec<_> = (0..10)
            .map(|n| {
                let name = format!("x{batch}/{n}");
                let mut holder = scene.hold(n, &name, S::TTL);
                let token = holder.hear("held").1;
                let next = scene.hold(n + 1, &name, S::TTL);
                scene.queued(&name, 1);
                (name, holder, token, next)
            })
            .collect();
        let killed: Vec<_> = pairs
            .into_iter()
            .map(|(name, holder, token, next)| {
                let killed = holder.bury();
                (killed, scene.lease_end(&name), token, next)
            })
            .collect();
        for (killed, lease_end, old, mut next) in killed {
            let (held, new) = next.hear("held");
            let (old, new): (i64, i64) = (old.parse().unwrap(), new.parse().unwrap());
            assert!(new > old, "the fence refuses the old holder");
            // A token is the server's time in µs when it was given.
            if let Some(lease_end) = lease_end {
                assert!(new >= lease_end, "{} us before the lease was over", lease_end - new);
            }
            times.push(Duration::from_nanos(held - killed));
        }
    }
    let worst = percentile(&mut times, 1.0);
    assert!(worst < S::TTL + Duration::from_secs(10), "stuck: {worst:?}");
    let p99 = percentile(&mut times, 0.99);
    let figure = format!("{p99:?} of {}", times.len());
    bar(
        &format!("{}: grant after kill -9 of a holder with a ttl of {:?}, p99", S::ENGINE, S::TTL),
        figure,
        &format!("<= ttl + {:?}", S::AFTER_TTL),
        p99 <= S::TTL + S::AFTER_TTL,
    );
}

/// Holder, first waiter, and the one behind it.
fn three(scene: &impl Scene, n: usize, ttl: Duration) -> [Worker; 3] {
    let name = format!("x{n}");
    let mut holder = scene.hold(n, &name, ttl);
    holder.hear("held");
    let head = scene.hold(n + 1, &name, ttl);
    scene.queued(&name, 1);
    let next = scene.hold(n + 2, &name, ttl);
    scene.queued(&name, 2);
    [holder, head, next]
}
/// After the release that the holder was told of.
fn hands_over(holder: &mut Worker, next: &mut Worker) -> Duration {
    let (released, _) = holder.hear("released true");
    let (held, _) = next.hear("held");
    Duration::from_nanos(held.saturating_sub(released))
}
pub fn head_waiter<S: Scene>() {
    let scene = S::new();
    let mut times = Vec::new();
    // Where it takes long, ten at a time.
    let (all, many) = (tenth(100), if S::DEAD_WAITER > 1_000 * MS { 10 } else { 1 });
    for batch in 0..all / many {
        let threes: Vec<_> = (0..many).map(|n| three(&scene, many * batch + n, 30_000 * MS)).collect();
        let bury = |[holder, head, next]: [Worker; 3]| {
            head.bury();
            [holder, next]
        };
        let mut pairs: Vec<_> = threes.into_iter().map(bury).collect();
        pairs.iter_mut().for_each(|[holder, _]| holder.tell("release"));
        for [holder, next] in &mut pairs {
            times.push(hands_over(holder, next));
        }
    }
    let worst = percentile(&mut times, 1.0);
    assert!(worst < Duration::from_secs(10), "stuck: {worst:?}");
    let p99 = percentile(&mut times, 0.99);
    let figure = format!("{p99:?} of {}", times.len());
    let what = format!("{}: hand-over past a killed head waiter, p99", S::ENGINE);
    bar(&what, figure, &limit::<S>(), p99 <= S::DEAD_WAITER);
}
/// It has hardly come: what shows others that it lives may not be there yet.
pub fn fresh_head_waiter<S: Scene>() {
    let scene = S::new();
    let mut times = Vec::new();
    for n in 0..tenth(100) {
        let name = format!("x{n}");
        let mut holder = scene.hold(n, &name, 30_000 * MS);
        holder.hear("held");
        let head = scene.hold(n + 1, &name, 30_000 * MS);
        scene.queued(&name, 1);
        let first = scene.status(&name).waiters[0].hold;
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..12_000)));
        head.bury();
        let mut next = scene.hold(n + 2, &name, 30_000 * MS);
        let comes = || scene.status(&name).waiters.iter().any(|waiter| waiter.hold != first);
        eventually("the next one waits", Duration::from_secs(30), comes);
        holder.tell("release");
        times.push(hands_over(&mut holder, &mut next));
    }
    let worst = percentile(&mut times, 1.0);
    assert!(worst < Duration::from_secs(10), "stuck: {worst:?}");
    let p99 = percentile(&mut times, 0.99);
    let figure = format!("{p99:?} of {}", times.len());
    let what = format!("{}: hand-over past a head waiter that was killed 0 to 12 ms after it came, p99", S::ENGINE);
    bar(&what, figure, &limit::<S>(), p99 <= S::DEAD_WAITER);
}
fn limit<S: Scene>() -> String {
    format!("<= {} ms", S::DEAD_WAITER.as_millis())
}
/// The server may still take it for alive, or it may just have got it.
pub fn at_the_release<S: Scene>() {
    let scene = S::new();
    let mut times = Vec::new();
    for batch in 0..tenth(10) {
        let mut all: Vec<_> = (0..10).map(|n| three(&scene, 10 * batch + n, S::TTL)).collect();
        let mut killed = Vec::new();
        for [holder, head, _] in &mut all {
            holder.tell("release");
            std::thread::sleep(Duration::from_micros(fastrand::u64(0..8_000)));
            killed.push(head.kill());
        }
        for ([holder, _, next], killed) in all.iter_mut().zip(killed) {
            holder.hear("released true");
            let (held, _) = next.hear("held");
            times.push(Duration::from_nanos(held.saturating_sub(killed)));
        }
    }
    let (p50, worst) = (percentile(&mut times, 0.5), percentile(&mut times, 1.0));
    assert!(worst < S::TTL + Duration::from_secs(10), "stuck: {worst:?}");
    let figure = format!("{worst:?} of {}, p50 {p50:?}", times.len());
    let what =
        format!("{}: head waiter with a ttl of {:?} killed at the release: the next is in, slowest", S::ENGINE, S::TTL);
    bar(&what, figure, &format!("<= ttl + {:?}", S::AFTER_TTL), worst <= S::TTL + S::AFTER_TTL);
}
