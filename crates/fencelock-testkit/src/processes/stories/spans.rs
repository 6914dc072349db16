//! Readers, writers, permits, and who is alone, judged by intervals on the boot clock.
//! Planted to see them go red: an acquire that ignores the holder; tokens of the clock's seconds; permits that are not added up (7 of
//! 5); readers and writers who do not ask for each other; a downgrade that is not counted among the readers; those in the queue not
//! asked (3,883 readers to 17 writers); a release that gives back one permit of three (stuck).
use crate::processes::Scene;
use crate::processes::{
    self, Span, bar, full, judge, longest, longest_beyond_the_holds, now, parse, tenth, tokens_rise,
};
use std::{fs, time::Duration};

/// Processes that each run these claims.
fn run(scene: &impl Scene, rounds: usize, seconds: u64, processes: &[&[&str]]) -> (Vec<Span>, u64) {
    let start = |n, words: &[&str]| scene.start(n, "spans", words);
    processes::run(scene.folder(), "x", rounds, seconds, processes, start)
}

pub fn exclusion<S: Scene>() {
    let what = format!("{}: exclusion: 12 processes, {}", S::ENGINE, S::WORKERS);
    exact(&S::with_wrong_clocks(), 12, tenth(1_000), &what);
}
pub fn increments<S: Scene>(each: usize) {
    exact(&S::new(), 16, each, &format!("{}: 16 processes, {each} increments each", S::ENGINE));
}
/// Nobody is beside anybody, and the counter has what each of them added.
fn exact(scene: &impl Scene, processes: usize, rounds: usize, what: &str) {
    let (spans, counter) = run(scene, rounds, 600, &vec![&["mutex"][..]; processes]);
    assert_eq!((spans.len(), counter), (processes * rounds, (processes * rounds) as u64));
    judge(&spans);
    tokens_rise(&spans);
    bar(what, format!("{counter} of {counter}, 0 overlaps, tokens rise"), "exact, 0 overlaps", true);
}

/// Each adds so many ones to a cell, and none is lost; planted to see it go red: a write that does not ask for the version.
pub fn cells<S: Scene>() {
    let (scene, processes, rounds) = (S::with_wrong_clocks(), 16, tenth(200));
    let workers: Vec<_> = (0..processes).map(|n| scene.start(n, "add", &["sum", &rounds.to_string()])).collect();
    assert!(workers.into_iter().all(processes::Worker::wait));
    let sum = scene.runtime().block_on(scene.client().cell("sum").load()).unwrap().value.unwrap();
    let (sum, all) = (String::from_utf8(sum.to_vec()).unwrap(), processes * rounds);
    assert_eq!(sum, all.to_string());
    let what = format!("{}: 16 processes add {rounds} to a cell each, {}", S::ENGINE, S::WORKERS);
    bar(&what, format!("{sum} of {all}"), "exact", true);
}

pub fn readers_and_writers<S: Scene>() {
    let scene = S::new();
    let seconds = if full() { 60 } else { 3 };
    let (spans, counter) = run(&scene, usize::MAX, seconds, &[&["write", "read", "read", "read"][..]; 8]);
    let writers = spans.iter().filter(|span| span.alone).count();
    assert_eq!(counter, writers as u64, "the counter of the writers");
    let (_, crowd) = judge(&spans);
    tokens_rise(&spans);
    assert!(crowd > 1, "no two readers side by side");
    let readers = spans.len() - writers;
    assert!(writers > if full() { 10 } else { 2 }, "the run must bite: {writers} writers, {readers} readers");
    assert!(readers < 10 * writers, "three readers for a writer come, and {readers} to {writers} got in");
    bar(
        &format!("{}: 8 writers and 24 readers in 8 processes: a writer beside anybody", S::ENGINE),
        format!("0 ({writers} writers, {readers} readers, up to {crowd} side by side)"),
        "0",
        true,
    );
    let wait = longest(&spans, |span| span.alone);
    assert!(wait < Duration::from_secs(10), "starved: {wait:?}");
    let beyond = longest_beyond_the_holds(&spans, |span| span.alone);
    bar(
        &format!("{}: the longest wait of a writer beyond the holds ahead, among them", S::ENGINE),
        format!("{beyond:?}, of {wait:?} in all"),
        "<= 1 s",
        beyond <= Duration::from_secs(1),
    );
}

pub fn downgrades<S: Scene>() {
    let (scene, rounds) = (S::with_wrong_clocks(), S::rounds(1_000));
    let path = |name: &str| scene.folder().join(name).to_str().unwrap().to_owned();
    let lock = scene.client().rw_lock("x");
    let (mut worker, mut spans) = (None, Vec::new());
    for _ in 0..rounds {
        let writer = scene.runtime().block_on(lock.write()).unwrap();
        worker.get_or_insert_with(|| {
            let ever = u64::MAX.to_string();
            scene.start(0, "spans", &["x", &path("counter"), &path("log"), &ever, &ever, "write"])
        });
        scene.queued("x", 1);
        let (start, token) = (now(), writer.token());
        scene.runtime().block_on(async {
            let reader = writer.downgrade().await.unwrap();
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
            let status = scene.client().inspect("x").await.unwrap();
            assert_eq!((status.holders.len(), status.holders[0].token), (1, token), "the token stays");
            assert_eq!(status.waiters.len(), 1, "the writer waits");
            reader.check().unwrap();
            spans.push(Span { start, end: now(), alone: false, take: 0, waited: 0, token: 0 });
            reader.release().await.unwrap();
        });
    }
    fs::write(path("log.stop"), "").unwrap();
    assert!(worker.unwrap().wait());
    let writers = parse(&fs::read_to_string(path("log")).unwrap());
    // Now and then it sleeps when it is its turn, and is passed.
    assert!(writers.len() > rounds / 2, "the run must bite: {} writers", writers.len());
    spans.extend(writers);
    judge(&spans);
    let figure = format!("0 of {rounds}");
    bar(&format!("{}: downgrades with a writer queued: it got in beside the reader", S::ENGINE), figure, "0", true);
}

pub fn permits<S: Scene>() {
    permits_in(&S::new(), tenth(500));
}
/// Twelve who want one of three permits, so many times each: never four.
pub fn permits_in<S: Scene>(scene: &S, rounds: usize) {
    let semaphore = scene.client().semaphore("x", 3);
    scene.runtime().block_on(async {
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(semaphore.acquire(1).await.unwrap());
        }
        assert!(semaphore.try_acquire(1).await.unwrap().is_err(), "three, and no fourth");
        for one in all {
            one.release().await.unwrap();
        }
    });
    let (spans, _) = run(scene, rounds, 600, &[&["1/3"][..]; 12]);
    assert_eq!(spans.len(), 12 * rounds);
    let (most, _) = judge(&spans);
    assert!(most <= 3, "{most} permits of 3");
    assert!(most > 1, "the run must bite: {most} permits at once");
    let figure = format!("{most} in {} holds", spans.len());
    bar(&format!("{}: 12 processes, 3 permits, {rounds} rounds: the most at once", S::ENGINE), figure, "<= 3", true);
}
pub fn weights<S: Scene>() {
    let (scene, rounds) = (S::new(), tenth(500));
    let claims: Vec<&[&str]> = [&["1/5"][..], &["2/5"], &["3/5"]].into_iter().cycle().take(12).collect();
    let (spans, _) = run(&scene, rounds, 600, &claims);
    assert_eq!(spans.len(), 12 * rounds, "all of them got theirs");
    let (most, _) = judge(&spans);
    assert!(most <= 5, "{most} permits of 5");
    assert!(most > 3, "the run must bite: {most} permits at once");
    bar(&format!("{}: 12 processes take 1 to 3 of 5 permits: the most at once", S::ENGINE), most, "<= 5", true);
    let (small, large) = (longest(&spans, |span| span.take == 1), longest(&spans, |span| span.take == 3));
    let worst = small.max(large);
    assert!(worst < Duration::from_secs(10), "starved: {worst:?}");
    let figure = format!("{worst:?} (3 permits {large:?}, 1 permit {small:?})");
    bar(&format!("{}: the longest wait among them", S::ENGINE), figure, "<= 1 s", worst <= Duration::from_secs(1));
}
