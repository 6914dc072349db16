//! Planted to see them go red: `clear` that takes a live lease for one that has run out (workers lose what they hold); a token made
//! of the clock's seconds alone (tokens repeat); `is_stopped` not asked inside the transaction (`attacks.rs` sees that, where the
//! withdrawal really overtakes).
use crate::{
    bar,
    common::{Folder, eventually, runtime},
    tenth,
    worker::Worker,
};
use std::{fs, time::Duration};

pub(crate) fn exclusion() {
    let (folder, processes, rounds) = (Folder::new(), 16, tenth(200));
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (database, counter, each) = (path("locks.db"), path("counter"), rounds.to_string());
    let workers: Vec<_> = (0..processes)
        .map(|i| Worker::start(&["count", &database, "x", &counter, &path(&format!("log{i}")), &each]))
        .collect();
    assert!(workers.into_iter().all(Worker::wait));
    assert_eq!(fs::read_to_string(&counter).unwrap(), (processes * rounds).to_string());
    judge((0..processes).map(|i| fs::read_to_string(path(&format!("log{i}"))).unwrap()));
    let exact = format!("{} of {}, 0 overlaps, tokens rise", processes * rounds, processes * rounds);
    bar("exclusion: 16 processes of the library", exact, "exact, 0 overlaps", true);
}
/// Lines of `start end token`: intervals never overlap, and tokens strictly rise in their order.
fn judge(logs: impl Iterator<Item = String>) {
    let parse = |line: &str| -> Vec<u64> { line.split(' ').map(|n| n.parse().unwrap()).collect() };
    let mut all: Vec<Vec<u64>> = logs.flat_map(|log| log.lines().map(parse).collect::<Vec<_>>()).collect();
    all.sort_unstable();
    for pair in all.windows(2) {
        assert!(pair[0][1] <= pair[1][0], "two holders at once: {pair:?}");
        assert!(pair[0][2] < pair[1][2], "tokens do not rise: {pair:?}");
    }
}

pub(crate) fn cancels() {
    let folder = Folder::new();
    let client = folder.client();
    let (tasks, each) = (50, tenth(10_000) / 50);
    let (got, dropped) = runtime().block_on(async {
        let storm = (0..tasks).map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let (mut got, mut dropped) = (0, 0);
                for _ in 0..each {
                    let mutex = client.mutex(format!("n{}", fastrand::u8(0..4))).ttl(Duration::from_secs(60));
                    let after = Duration::from_micros(fastrand::u64(0..40_000));
                    match tokio::time::timeout(after, mutex.lock()).await {
                        Ok(guard) => {
                            let guard = guard.unwrap();
                            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..300))).await;
                            drop(guard);
                            got += 1;
                        }
                        Err(_) => dropped += 1,
                    }
                }
                (got, dropped)
            })
        });
        let mut sum = (0, 0);
        for task in storm.collect::<Vec<_>>() {
            let (got, dropped) = task.await.unwrap();
            sum = (sum.0 + got, sum.1 + dropped);
        }
        sum
    });
    let took = eventually("nothing held, nothing queued", Duration::from_secs(1), || {
        folder.count("SELECT (SELECT count(*) FROM fencelock_holder) + (SELECT count(*) FROM fencelock_waiter)") == 0
    });
    assert_eq!(client.held(), 0);
    bar(
        "cancelled waits on SQLite: left 1 s later",
        format!("0 of {dropped} ({got} taken; clean after {took:?})"),
        "0",
        true,
    );
    assert!(got > tasks && dropped > tasks, "the run must bite");
}
