//! What the other processes do: what they do on every engine.
use fencelock_core::Client;
use fencelock_etcd::EtcdEngine;
use fencelock_testkit::processes::play;
use std::sync::Arc;
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
        let engine = EtcdEngine::from_url(&words[1]).await.unwrap();
        let client = Client::builder(Arc::new(engine)).build().unwrap();
        assert!(play(client, &words).await, "no such worker: {}", words[0]);
    });
    runtime.block_on(done).unwrap();
}
