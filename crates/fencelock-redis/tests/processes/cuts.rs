//! Planted to see them go red: a subscription that is not made anew, a hand-over to who does not hear of it (both: not within two
//! minutes); a connection that broke and is kept (a hold lost).
use crate::scene::Scene;
use fencelock_testkit::processes::{Scene as _, Span, Worker, bar, eventually, full, judge, now, parse, tokens_rise};
use std::{fs, time::Duration};

const CUTS: [&str; 2] = ["pubsub", "normal"];

/// Breaks all connections of this type; how many there were.
fn cut(scene: &Scene, kind: &str) -> i64 {
    scene.number(&["CLIENT", "KILL", "TYPE", kind])
}

pub(crate) fn wake_ups_of_32() {
    wake_ups(8, if full() { 100_000 } else { 10_000 }, 3);
}
pub(crate) fn wake_ups_of_256() {
    wake_ups(64, if full() { 25_000 } else { 3_000 }, 2);
}
/// So many clients in each of 4 processes want one lock all the time. A wait beyond the holds ahead of `seconds` misses the bar.
fn wake_ups(each: usize, enough: u64, seconds: u64) {
    let (scene, limit) = (Scene::new(), if full() { 600 } else { 120 });
    let path = |name: &str| scene.folder().join(name).to_str().unwrap().to_owned();
    let (counter, ever) = (path("counter"), u64::MAX.to_string());
    let log = |n: usize| path(&format!("log{n}"));
    let workers: Vec<_> = (0..4)
        .map(|n| {
            let log = log(n);
            scene.start(n, "apart", &[&["x", &counter, &log, &ever, &ever][..], &vec!["mutex"; each]].concat())
        })
        .collect();
    let count = || fs::read_to_string(&counter).unwrap_or_default().trim().parse().unwrap_or(0);
    eventually("most of them wait", Duration::from_secs(60), || scene.status("x").waiters.len() > 3 * each);
    let (before, mut cuts, mut rounds, mut next) = (count(), 0, 0, now());
    eventually("hand-overs", Duration::from_secs(limit), || {
        if now() >= next {
            cuts += cut(&scene, "pubsub");
            rounds += 1;
            next += 1_000_000_000;
        }
        count() >= before + enough && rounds > 4
    });
    (0..4).for_each(|n| fs::write(format!("{}.stop", log(n)), "").unwrap());
    assert!(workers.into_iter().all(Worker::wait));
    let logs = (0..4).map(|n| fs::read_to_string(log(n)).unwrap());
    let spans: Vec<Span> = logs.flat_map(|log| parse(&log)).collect();
    assert_eq!(count(), spans.len() as u64);
    judge(&spans);
    tokens_rise(&spans);
    assert!(usize::try_from(cuts).is_ok_and(|cuts| cuts >= 8 * each), "the run must bite: {cuts} connections cut");
    let beyond = beyond_the_holds_ahead(spans);
    assert!(beyond < Duration::from_secs(20), "a lost wake-up: {beyond:?}");
    let figure = format!("{beyond:?} beyond them in {} hand-overs, {cuts} subscriptions cut", count());
    let what =
        format!("Redis: {} waiters, subscriptions cut every second: the longest wait beyond the holds ahead", 4 * each);
    bar(&what, figure, &format!("<= {seconds} s"), beyond <= Duration::from_secs(seconds));
}
/// The longest wait, without the time for which the lock was held meanwhile.
fn beyond_the_holds_ahead(mut spans: Vec<Span>) -> Duration {
    spans.sort_unstable_by_key(|span| span.start);
    let beyond = |(i, span): (usize, &Span)| {
        let asked = span.start - span.waited;
        let ahead = spans[..i].iter().rev().take_while(|other| other.end > asked);
        span.waited - ahead.map(|other| other.end - other.start.max(asked)).sum::<u64>()
    };
    Duration::from_nanos(spans.iter().enumerate().map(beyond).max().unwrap_or(0))
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
