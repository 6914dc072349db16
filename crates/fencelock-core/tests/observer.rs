//! A subscriber is foreign code: one that hangs keeps nobody from hearing that a lock is lost (SAFETY G3).
#![allow(clippy::unwrap_used)]
mod common;

use common::{SEC, cuttable, lease, one_thread, server, soon, within};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::*},
    },
    thread,
};
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
};

static HANGING: AtomicU32 = AtomicU32::new(0);
static OVER: OnceLock<()> = OnceLock::new();

/// Its output is a pipe that nobody reads.
struct Hangs;
impl<S: Subscriber> Layer<S> for Hangs {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "fencelock" {
            HANGING.fetch_add(1, AcqRel);
            while OVER.get().is_none() {
                thread::park_timeout(SEC / 100);
            }
        }
    }
}

/// Planted: the thread of the loss timers tells losses itself.
#[test]
fn one_that_hangs_keeps_no_loss_from_being_told() {
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Hangs)).unwrap();
    one_thread().block_on(async {
        let (client, engine) = cuttable(lease(&server()));
        let short = client.mutex("short").ttl(5 * SEC).lock().await.unwrap();
        let long = client.mutex("long").ttl(8 * SEC).lock().await.unwrap();
        engine.cut(true);
        within("the first", 30 * SEC, short.lost()).await;
        soon("the subscriber was told that renewals are late, and hangs", 10 * SEC, || HANGING.load(Acquire) > 0).await;
        within("the second", 30 * SEC, long.lost()).await;
        OVER.set(()).unwrap();
        engine.cut(false);
    });
}
