//! Two subscribers at once: the numbers of one's spans say nothing to the other.
#![allow(clippy::unwrap_used)]
mod common;
#[path = "common/watch.rs"]
mod watch;

use common::{SEC, cuttable, eventually, lease, runtime, server, soon, within};
use tracing::{Instrument, info_span, instrument::WithSubscriber};
use tracing_subscriber::layer::SubscriberExt;
use watch::Watch;

/// Each is told of what began with it, wherever that goes on.
///
/// Planted: parts of a span made by whichever subscriber the thread has: the one that does not know it panics.
#[test]
fn each_is_told_of_what_began_with_it() {
    let (everywhere, here) = (Watch::default(), Watch::default());
    // That of the keeper's threads and of the workers; a caller has another one.
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(everywhere.clone())).unwrap();
    let mine = tracing_subscriber::registry().with(here.clone());
    let (client, engine) = cuttable(lease(&server()));
    runtime().block_on(async {
        let held = client.mutex("x").lock().await.unwrap();
        let caller = async {
            let wait = client.mutex("x").ttl(SEC).lock();
            let next = wait.instrument(info_span!("caller")).await.unwrap();
            within("renewed", 10 * SEC, next.renewed()).await;
            engine.cut(true);
            within("lost", 10 * SEC, next.lost()).await;
            engine.cut(false);
            // Released by whoever has another one.
            let left = client.mutex("left").lock().await.unwrap();
            tokio::spawn(left.release()).await.unwrap().unwrap();
            drop(tokio::spawn(client.mutex("dropped").lock()).await.unwrap().unwrap());
        };
        let caller = tokio::join!(within("all of it", 30 * SEC, caller.with_subscriber(mine)), async {
            soon("it waits", 10 * SEC, || !here.about("acquire", "x").is_empty()).await;
            soon("in the queue", 10 * SEC, || engine.commands() > 1).await;
            held.release().await.unwrap();
        });
        let ((), ()) = caller;
    });
    eventually("the loss is told to whom the hold is", 10 * SEC, || here.everything().contains("the lock is lost"));
    assert!(!everywhere.everything().contains("the lock is lost"));
    assert_eq!((here.about("hold", "x").len(), everywhere.about("hold", "x").len()), (1, 1));
}
