//! A subscriber is foreign code: one that panics ends nothing of ours (SAFETY A3, G4).
#![allow(clippy::unwrap_used)]
mod common;

use common::{SEC, cuttable, lease, one_thread, server, soon, within};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use tracing::{
    Event, Id, Subscriber,
    span::{Attributes, Record},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
};

static PANICS: AtomicU32 = AtomicU32::new(0);
/// Whether spans are made: if not, there is none to be entered.
static MADE: AtomicBool = AtomicBool::new(false);

/// Whatever it is told of locks.
struct Panics;
impl Panics {
    fn at(target: &str) {
        if target == "fencelock" {
            PANICS.fetch_add(1, AcqRel);
            panic!("a subscriber's own");
        }
    }
}
impl<S: Subscriber> Layer<S> for Panics {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if !MADE.load(Acquire) {
            Self::at(attributes.metadata().target());
        }
    }
    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        Self::at("fencelock");
    }
    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        Self::at("fencelock");
    }
    fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {
        Self::at("fencelock");
    }
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        Self::at(event.metadata().target());
    }
}

/// Planted: what is foreign is called as our own; a span that is entered as our own. A release or an undo that goes with its panic would keep
/// everybody out.
#[test]
fn one_that_panics_changes_nothing() {
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Panics)).unwrap();
    // It says so each time.
    let says = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&"a subscriber's own") {
            says(panic);
        }
    }));
    for made in [false, true] {
        MADE.store(made, Release);
        let before = PANICS.load(Acquire);
        story();
        assert!(PANICS.load(Acquire) > before + 20, "{PANICS:?}");
    }
}
fn story() {
    let server = server();
    one_thread().block_on(async {
        let (client, engine) = cuttable(lease(&server));
        let (other, _) = cuttable(lease(&server));
        for _ in 0..3 {
            let guard = client.mutex("x").lock().await.unwrap();
            let next = tokio::spawn(other.mutex("x").lock());
            soon("it waits", 10 * SEC, || server.census().1 == 1).await;
            drop(guard);
            let next = within("its turn", 10 * SEC, next).await.unwrap().unwrap();
            // A wait that is given up, and one who does not wait.
            let mut wait = client.mutex("x").lock();
            assert!(tokio::time::timeout(SEC / 20, &mut wait).await.is_err());
            drop(wait);
            assert!(client.mutex("x").try_lock().await.unwrap().is_err());
            next.release().await.unwrap();
        }
        soon("nothing is left", 10 * SEC, || server.census() == (0, 0)).await;
        // Renewals go on, and a loss is told.
        let (short, long) = (client.mutex("short").ttl(SEC).lock(), client.mutex("long").ttl(60 * SEC).lock());
        let (short, long) = (short.await.unwrap(), long.await.unwrap());
        within("renewed", 10 * SEC, short.renewed()).await;
        within("renewed again", 10 * SEC, short.renewed()).await;
        engine.cut(true);
        within("lost", 10 * SEC, short.lost()).await;
        engine.cut(false);
        long.release().await.unwrap();
    });
}
