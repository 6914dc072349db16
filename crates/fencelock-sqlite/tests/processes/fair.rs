//! Planted to see them go red: places given from the front (5,133 grants to 1 in 30 s); a look every 2 ms (139 switches a second,
//! two cores busy).
use crate::{
    bar,
    common::{Folder, eventually},
    full, percentile, tenth,
    worker::{Worker, now, queued},
};
use std::{fs, time::Duration};

pub(crate) fn starvation() {
    let folder = Folder::new();
    let seconds = if full() { 30 } else { 5 };
    // They take a moment to start.
    let end = now() + (seconds + 3) * 1_000_000_000;
    let mut workers: Vec<_> =
        (0..16).map(|_| Worker::start(&["loop", folder.database().to_str().unwrap(), "x", &end.to_string()])).collect();
    let mut counts = Vec::new();
    let mut longest = Duration::ZERO;
    for worker in &mut workers {
        let said = worker.hear("").1;
        let numbers: Vec<u64> = said.split(' ').map(|n| n.parse().unwrap()).collect();
        counts.push(numbers[0]);
        longest = longest.max(Duration::from_micros(numbers[1]));
    }
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 0, "somebody starved: {counts:?}");
    bar(
        "16 processes on one lock: most grants to least",
        format!("{most} : {least} in {seconds} s"),
        "<= 2 : 1",
        *most <= 2 * least,
    );
    bar("the longest wait among them", format!("{longest:?}"), "<= 1 s", longest <= Duration::from_secs(1));
}

pub(crate) fn idle() {
    let folder = Folder::new();
    let mut holder = Worker::hold(&folder.database(), "x", Duration::from_secs(30));
    holder.hear("held");
    let waiters: Vec<_> = (0..32)
        .map(|i| {
            let waiter = Worker::hold(&folder.database(), "x", Duration::from_secs(30));
            queued(&folder, i + 1);
            waiter
        })
        .collect();
    let seconds = if full() { 20 } else { 4 };
    let before: Vec<_> = waiters.iter().map(|w| cost(w.id())).collect();
    let started = now();
    eventually("some seconds pass", Duration::from_secs(60), || now() > started + seconds * 1_000_000_000);
    let after: Vec<_> = waiters.iter().map(|w| cost(w.id())).collect();
    let switches = before.iter().zip(&after).map(|(b, a)| a.0 - b.0).max().unwrap();
    let busy: u64 = before.iter().zip(&after).map(|(b, a)| a.1 - b.1).sum();
    let part = Duration::from_nanos(busy).as_secs_f64() / seconds as f64;
    bar(
        "voluntary context switches of an idle waiter, the worst of 32",
        format!("{:.1} per second", switches as f64 / seconds as f64),
        "< 5 per second",
        switches < 5 * seconds,
    );
    bar("32 idle waiters together", format!("{:.2} % of a core", part * 100.0), "< 1 % of a core", part < 0.01);
}
/// Voluntary switches of all threads, and their processor time in ns.
fn cost(pid: u32) -> (u64, u64) {
    let (mut switches, mut busy) = (0, 0);
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        switches += line.trim().parse::<u64>().unwrap();
        let schedule = fs::read_to_string(task.path().join("schedstat")).unwrap();
        busy += schedule.split(' ').next().unwrap().parse::<u64>().unwrap();
    }
    (switches, busy)
}

pub(crate) fn hand_over() {
    let folder = Folder::new();
    let ttl = Duration::from_secs(30);
    let mut times = Vec::new();
    let mut holder = Worker::hold(&folder.database(), "x", ttl);
    holder.hear("held");
    for _ in 0..tenth(500) {
        let mut next = Worker::hold(&folder.database(), "x", ttl);
        queued(&folder, 1);
        let asked = now();
        holder.tell("release");
        let (held, _) = next.hear("held");
        times.push(Duration::from_nanos(held - asked));
        holder.hear("released true");
        holder = next;
    }
    let (p50, p99) = (percentile(&mut times, 0.5), percentile(&mut times, 0.99));
    bar(
        "hand-over between processes, p50",
        format!("{p50:?} (p99 {p99:?})"),
        "<= 2 ms",
        p50 <= Duration::from_millis(2),
    );
}
