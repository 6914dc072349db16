//! What the other processes do, beside what they do on every engine.
use crate::common::built;
use fencelock_core::Client;
use fencelock_etcd::EtcdEngine;
use fencelock_testkit::processes::{now, play, record};
use std::{fs, path::Path, time::Duration};
use tokio::runtime::Builder;

/// `FLAVOUR ROLE URL …`: on a runtime with two threads (`two`), or on the caller's own (`one`).
pub(crate) fn main(words: &[String]) {
    let runtime = match words[0].as_str() {
        "one" => Builder::new_current_thread().enable_all().build(),
        "two" => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        other => panic!("no such flavour: {other}"),
    };
    let (runtime, words) = (runtime.unwrap(), words[1..].to_vec());
    // In a task: where there are two threads the main one would be a third.
    let done = runtime.spawn(async move {
        let client = || async { built(EtcdEngine::from_url(&words[1]).await.unwrap()) };
        match words[0].as_str() {
            "contend" => contend(client().await, &words).await,
            // apart, as `spans`: each claim has a client of its own.
            "apart" => {
                let mut claims = Vec::new();
                for what in &words[7..] {
                    claims.push((client().await, what.as_str()));
                }
                record(claims, &words).await;
            }
            other => assert!(play(client().await, &words).await, "no such worker: {other}"),
        }
    });
    runtime.block_on(done).unwrap();
}
/// contend URL NAME COUNTER LOG: takes a mutex again and again, whatever becomes of the server meanwhile, until there is a file
/// `LOG.stop`; adds one to the counter as nobody could beside somebody else, and writes down from when to when it was valid.
async fn contend(client: Client, words: &[String]) {
    let [name, counter, log] = [&words[2], &words[3], &words[4]];
    let (mut spans, stop) = (String::new(), format!("{log}.stop"));
    while !Path::new(&stop).exists() {
        let asked = now();
        let Ok(guard) = client.mutex(name).ttl(Duration::from_secs(5)).lock().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let start = now();
        let n: u64 = fs::read_to_string(counter).unwrap_or_default().trim().parse().unwrap_or(0);
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
        fs::write(format!("{log}.new"), (n + 1).to_string()).unwrap();
        fs::rename(format!("{log}.new"), counter).unwrap();
        let end = now();
        guard.check().unwrap();
        spans.push_str(&format!("{start} {end} 1 0 {} {}\n", start - asked, guard.token()));
        // Whether it has arrived is not always known; the lease ends it then.
        let _ = guard.release().await;
    }
    fs::write(log, spans).unwrap();
}
