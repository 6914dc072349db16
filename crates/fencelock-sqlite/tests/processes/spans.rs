//! Readers, writers and permits between processes, judged by intervals on the boot clock.
//! Planted to see them go red: those ahead not asked in `Line::read` (10 writers got in, and 6,477 readers); holders whose `take` is
//! read as 0 (more than three at once); a reader's claim read as another (no two side by side).
use crate::{
    bar,
    common::{Folder, runtime},
    full, tenth,
    worker::{Worker, now, queued},
};
use fencelock_testkit::processes::{self, Span, judge, longest, longest_beyond_the_holds, parse};
use std::{fs, time::Duration};

/// Processes that each run these claims.
pub(crate) fn run(folder: &Folder, name: &str, rounds: usize, seconds: u64, processes: &[&[&str]]) -> (Vec<Span>, u64) {
    let database = folder.database();
    let start = |_, words: &[&str]| Worker::start(&[&["spans", database.to_str().unwrap()], words].concat());
    processes::run(folder.path(), name, rounds, seconds, processes, start)
}

pub(crate) fn readers_and_writers() {
    let folder = Folder::new();
    let seconds = if full() { 60 } else { 6 };
    let (spans, counter) = run(&folder, "x", usize::MAX, seconds, &[&["write", "read", "read", "read"][..]; 8]);
    let writers = spans.iter().filter(|span| span.alone).count();
    assert_eq!(counter, writers as u64, "the counter of the writers");
    let (_, crowd) = judge(&spans);
    assert!(crowd > 1, "no two readers side by side");
    let readers = spans.len() - writers;
    assert!(writers > if full() { 10 } else { 2 }, "the run must bite: {writers} writers, {readers} readers");
    assert!(readers < 10 * writers, "three readers for a writer come, and {readers} to {writers} got in");
    bar(
        "8 writers and 24 readers in 8 processes: a writer beside anybody",
        format!("0 ({writers} writers, {readers} readers, up to {crowd} side by side)"),
        "0",
        true,
    );
    let wait = longest(&spans, |span| span.alone);
    let beyond = longest_beyond_the_holds(&spans, |span| span.alone);
    bar(
        "the longest wait of a writer beyond the holds ahead, among them",
        format!("{beyond:?}, of {wait:?} in all"),
        "<= 1 s",
        beyond <= Duration::from_secs(1),
    );
}

pub(crate) fn downgrades() {
    let (folder, rounds) = (Folder::new(), tenth(1_000));
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let client = folder.client();
    let lock = client.rw_lock("x");
    let mut worker = None;
    let mut spans = Vec::new();
    runtime().block_on(async {
        for _ in 0..rounds {
            let writer = lock.write().await.unwrap();
            if worker.is_none() {
                let (database, counter, log, ever) =
                    (path("locks.db"), path("counter"), path("log"), u64::MAX.to_string());
                worker = Some(Worker::start(&["spans", &database, "x", &counter, &log, &ever, &ever, "write"]));
            }
            queued(&folder, 1);
            let start = now();
            let token = writer.token();
            let reader = writer.downgrade().await.unwrap();
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
            let status = client.inspect("x").await.unwrap();
            assert_eq!((status.holders.len(), status.holders[0].token), (1, token), "the token stays");
            reader.check().unwrap();
            spans.push(Span { start, end: now(), alone: false, take: 0, waited: 0, token: 0 });
            reader.release().await.unwrap();
        }
        fs::write(path("log.stop"), "").unwrap();
    });
    assert!(worker.unwrap().wait());
    let writers = parse(&fs::read_to_string(path("log")).unwrap());
    // Now and then it sleeps when it is its turn, and is passed.
    assert!(writers.len() > rounds / 2, "the run must bite: {} writers", writers.len());
    spans.extend(writers);
    judge(&spans);
    bar("downgrades with a writer queued: it got in beside the reader", format!("0 of {rounds}"), "0", true);
}

pub(crate) fn permits() {
    let (folder, rounds) = (Folder::new(), tenth(200));
    let client = folder.client();
    runtime().block_on(async {
        let semaphore = client.semaphore("x", 3);
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(semaphore.acquire(1).await.unwrap());
        }
        assert!(semaphore.try_acquire(1).await.unwrap().is_err(), "three, and no fourth");
        for one in all {
            one.release().await.unwrap();
        }
    });
    let (spans, _) = run(&folder, "x", rounds, 600, &[&["1/3"][..]; 12]);
    assert_eq!(spans.len(), 12 * rounds);
    let (most, _) = judge(&spans);
    assert!(most <= 3, "{most} permits of 3");
    assert!(most > 1, "the run must bite: {most} permits at once");
    bar("12 processes, 3 permits: the most at once", format!("{most} in {} holds", spans.len()), "<= 3", true);
}
pub(crate) fn weights() {
    let (folder, rounds) = (Folder::new(), tenth(200));
    let claims: Vec<&[&str]> = [&["1/5"][..], &["2/5"], &["3/5"]].into_iter().cycle().take(12).collect();
    let (spans, _) = run(&folder, "x", rounds, 600, &claims);
    assert_eq!(spans.len(), 12 * rounds, "all of them got theirs");
    let (most, _) = judge(&spans);
    assert!(most <= 5, "{most} permits of 5");
    let (small, large) = (longest(&spans, |span| span.take == 1), longest(&spans, |span| span.take == 3));
    assert!(most > 3, "the run must bite: {most} permits at once");
    bar("12 processes take 1 to 3 of 5 permits: the most at once", most, "<= 5", true);
    let worst = small.max(large);
    bar(
        "the longest wait among them",
        format!("{worst:?} (3 permits {large:?}, 1 permit {small:?})"),
        "<= 1 s",
        worst <= Duration::from_secs(1),
    );
}
