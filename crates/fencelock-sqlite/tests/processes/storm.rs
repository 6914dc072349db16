//! Planted to see them go red: `clear` that takes a live lease for one that has run out (workers lose what they hold); a token made
//! of the clock's seconds alone (tokens repeat); `is_stopped` not asked inside the transaction (`attacks.rs` sees that, where the
//! withdrawal really overtakes).
use crate::{
    bar,
    common::{Folder, eventually, runtime},
    spans::run,
    tenth,
};
use fencelock_testkit::processes::{judge, tokens_rise};
use std::time::Duration;

pub(crate) fn exclusion() {
    let (folder, processes, rounds) = (Folder::new(), 16, tenth(200));
    let (spans, counter) = run(&folder, "x", rounds, 600, &[&["mutex"][..]; 16]);
    assert_eq!((spans.len(), counter), (processes * rounds, (processes * rounds) as u64));
    judge(&spans);
    tokens_rise(&spans);
    let exact = format!("{} of {}, 0 overlaps, tokens rise", processes * rounds, processes * rounds);
    bar("exclusion: 16 processes of the library", exact, "exact, 0 overlaps", true);
}

pub(crate) fn cancels() {
    let folder = Folder::new();
    let client = folder.client();
    let (tasks, each) = (50, tenth(10_000) / 50);
    let other = folder.client();
    let (got, dropped) = runtime().block_on(async {
        let held = other.mutex("held").ttl(Duration::from_secs(60)).lock().await.unwrap();
        let storm = (0..tasks).map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let (mut got, mut dropped) = (0, 0);
                for round in 0..each {
                    // However fast or slow the machine is, some wait for as long as it takes, and some for what nobody gets.
                    let name = if round % 8 == 1 { "held".into() } else { format!("n{}", fastrand::u8(0..4)) };
                    let mutex = client.mutex(name).ttl(Duration::from_secs(60));
                    let patience = if round % 8 == 0 { 60_000_000 } else { fastrand::u64(0..40_000) };
                    let after = Duration::from_micros(patience);
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
        held.release().await.unwrap();
        sum
    });
    let took = eventually("nothing held, nothing queued", Duration::from_secs(10), || {
        folder.count("SELECT (SELECT count(*) FROM fencelock_holder) + (SELECT count(*) FROM fencelock_waiter)") == 0
    });
    assert_eq!(client.held(), 0);
    bar(
        "cancelled waits on SQLite: left 1 s later",
        format!("0 of {dropped} ({got} taken; clean after {took:?})"),
        "0",
        took < Duration::from_secs(1),
    );
    assert!(got > tasks && dropped > tasks, "the run must bite");
}
