//! What the other processes do, beside what they do on every engine.
use crate::common::client;
use fencelock_core::Client;
use fencelock_testkit::processes::{play, record, say};
use std::time::{Duration, SystemTime};
use tokio::runtime::Builder;

/// `FLAVOUR ROLE URL …`: on a runtime with two threads (`two`), or on the caller's own (`one`).
pub(crate) fn main(mut words: Vec<String>) {
    let flavour = words.remove(0);
    let runtime = match flavour.as_str() {
        "one" => Builder::new_current_thread().enable_all().build(),
        "two" => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        other => panic!("no such flavour: {other}"),
    };
    let runtime = runtime.unwrap();
    // In a task: where there are two threads the main one would be a third.
    let done = runtime.spawn(async move { work(&words).await });
    runtime.block_on(done).unwrap();
}
async fn work(words: &[String]) {
    match words[0].as_str() {
        // apart, as `spans`: each claim has a client of its own.
        "apart" => {
            let mut claims = Vec::new();
            for what in &words[7..] {
                claims.push((client(&words[1]).await, what.as_str()));
            }
            record(claims, words).await;
        }
        // cancel URL ROUNDS: tasks that give up at random moments; says how many got it and how many were dropped. Then it stays,
        // so that nothing is tidied up by its end.
        "cancel" => {
            let client = client(&words[1]).await;
            let rounds: usize = words[2].parse().unwrap();
            let tasks: Vec<_> = (0..5).map(|_| tokio::spawn(hasty(client.clone(), rounds))).collect();
            let (mut got, mut dropped) = (0, 0);
            for task in tasks {
                let one = task.await.unwrap();
                (got, dropped) = (got + one.0, dropped + one.1);
            }
            say(&format!("{got} {dropped}"));
            tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.unwrap();
            assert_eq!(client.held(), 0);
        }
        // wall URL: what its wall clock shows, in seconds.
        "wall" => say(&SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().to_string()),
        other => assert!(play(client(&words[1]).await, words).await, "no such worker: {other}"),
    }
}
/// How often it got what it wanted, and how often its future was dropped before.
async fn hasty(client: Client, rounds: usize) -> (usize, usize) {
    let (mut got, mut dropped) = (0, 0);
    let ttl = Duration::from_secs(60);
    let short = || tokio::time::sleep(Duration::from_micros(fastrand::u64(0..300)));
    for round in 0..rounds {
        // Some wait for as long as it takes: they are not starved by those who come and go.
        let (patient, n) = (round % 8 == 0, fastrand::u8(0..2));
        let patience = if patient { 30_000_000 } else { fastrand::u64(0..60_000) };
        let attempt = async {
            match fastrand::u8(0..if patient { 4 } else { 5 }) {
                0 => drop((client.rw_lock(format!("rw{n}")).ttl(ttl).read().await.unwrap(), short().await)),
                1 => drop((client.rw_lock(format!("rw{n}")).ttl(ttl).write().await.unwrap(), short().await)),
                2 => drop((client.semaphore(format!("s{n}"), 2).ttl(ttl).acquire(1).await.unwrap(), short().await)),
                3 => drop((client.mutex(format!("m{n}")).ttl(ttl).lock().await.unwrap(), short().await)),
                // Somebody else has it all the time: nobody's turn comes, and sweeps up who is gone.
                _ => drop(client.mutex("held").ttl(ttl).lock().await.unwrap()),
            }
        };
        match tokio::time::timeout(Duration::from_micros(patience), attempt).await {
            Ok(()) => got += 1,
            Err(_) => dropped += 1,
        }
    }
    (got, dropped)
}
