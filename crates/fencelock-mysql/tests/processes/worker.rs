//! What the other processes do: what they do on every engine.
use crate::common::client;
use fencelock_testkit::processes::{play, record};
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
        other => assert!(play(client(&words[1]).await, words).await, "no such worker: {other}"),
    }
}
