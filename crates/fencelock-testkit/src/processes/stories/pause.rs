//! Planted to see them go red: an owner who enters his hold whatever became of it; a release that compares nothing (nobody holds any more); a hand-over for the whole lease, without a
//! time to confirm (30 s); an acquire that ignores the holder.
use crate::processes::Scene;
use crate::processes::{bar, now, percentile, tenth};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

pub fn holder<S: Scene>() {
    let (scene, ttl) = (S::new(), S::BRIEF);
    let mut told = Vec::new();
    for n in 0..tenth(50) {
        let name = format!("x{n}");
        let mut holder = scene.hold(n, &name, ttl);
        let (_, old) = holder.hear("held");
        // In the midst of its renewals, the odd one before there was any.
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..250_000)));
        holder.stop();
        let lease_end = scene.lease_end(&name);
        let mut next = scene.hold(n + 1, &name, Duration::from_secs(30));
        let (_, new) = next.hear("held");
        let (old, new): (i64, i64) = (old.parse().unwrap(), new.parse().unwrap());
        assert!(new > old, "the fence refuses the old holder");
        // A token is the server's time in µs when it was given.
        if let Some(lease_end) = lease_end {
            assert!(new >= lease_end, "{} us before the lease was over", lease_end - new);
        }
        // With its first breath it wants it once more, as its owner.
        holder.tell("enter");
        let woken = holder.wake();
        for _ in 0..2 {
            match holder.hear("") {
                (lost, said) if said.starts_with("lost") => told.push(Duration::from_nanos(lost.saturating_sub(woken))),
                (_, said) => assert_eq!(said, "entered false", "a lost lock was entered again"),
            }
        }
        assert_eq!(told.len(), n + 1);
        holder.tell("check");
        holder.hear("checked false");
        // Nothing that the late holder does revives it, and its release frees nobody else's.
        holder.tell("release");
        holder.hear("released false");
        assert!(holder.wait());
        assert_eq!(scene.status(&name).holders.first().map(|holder| holder.token.get()), Some(new));
        next.tell("check");
        next.hear("checked true");
        next.tell("release");
        next.hear("released true");
    }
    let worst = percentile(&mut told, 1.0);
    assert!(worst < Duration::from_secs(10), "told late: {worst:?}");
    let p99 = percentile(&mut told, 0.99);
    let figure = format!("{p99:?} of {}", told.len());
    bar(&format!("{}: lost() after SIGCONT, p99", S::ENGINE), figure, "<= 100 ms", p99 <= 100 * MS);
    let figure = format!("0 of {}", told.len());
    bar(&format!("{}: owners who entered a lost lock again after SIGCONT", S::ENGINE), figure, "0", true);
}

pub fn head_waiter<S: Scene>() {
    let (scene, ttl) = (S::new(), 30_000 * MS);
    let mut passed = Vec::new();
    for batch in 0..tenth(10) {
        // Several at a time: they wait more than they work.
        let started = (0..4).map(|n| {
            let name = format!("x{batch}/{n}");
            let mut holder = scene.hold(n, &name, ttl);
            holder.hear("held");
            let head = scene.hold(n + 1, &name, ttl);
            scene.queued(&name, 1);
            let next = scene.hold(n + 2, &name, ttl);
            scene.queued(&name, 2);
            head.stop();
            holder.tell("release");
            (name, holder.hear("released true").0, head, next)
        });
        for (name, released, mut head, mut next) in started.collect::<Vec<_>>() {
            let (held, first) = next.hear("held");
            passed.push(Duration::from_nanos(held.saturating_sub(released)));
            // What it heard while it was stopped is over: it queues anew, and gets in when it is its turn.
            head.wake();
            scene.queued(&name, 1);
            next.tell("check");
            next.hear("checked true");
            assert!(head.is_silent(), "it holds beside the other one");
            let asked = now();
            next.tell("release");
            next.hear("released true");
            let (held, second) = head.hear("held");
            assert!(held >= asked, "it was in before the other one was out");
            assert!(second.parse::<i64>().unwrap() > first.parse().unwrap());
            head.tell("release");
            head.hear("released true");
        }
    }
    let slowest = percentile(&mut passed, 1.0);
    assert!(slowest < Duration::from_secs(10), "stuck: {slowest:?}");
    let figure = format!("{slowest:?} of {}", passed.len());
    bar(&format!("{}: past a stopped head waiter, slowest", S::ENGINE), figure, "<= 3.25 s", slowest <= 3_250 * MS);
}
