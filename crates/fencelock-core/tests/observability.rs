//! What those who watch a program see of its locks: every figure and every span, after everything that can happen to a lock, and no gauge
//! that stays up. On one thread and on paused time, so that each test has a recorder and a subscriber of its own, and times are exact.
#![allow(clippy::unwrap_used)]
mod common;
#[path = "common/watch.rs"]
mod watch;

use common::{Hooked, here, paused};

use fencelock_core::{
    Client, LossReason, MultiLock, Operation,
    memory::MemoryEngine,
    testing::{self, Control},
};
use metrics_util::debugging::DebuggingRecorder;
use std::{future::Future, sync::Arc, time::Duration};
use tracing::{Instrument, Level, info_span};
use watch::{Figures, Watch, subscriber};

const SEC: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

struct Scene {
    client: Client,
    control: Control,
    figures: Figures,
    watch: Watch,
}
impl Scene {
    /// It is told a moment after it is so.
    async fn becomes(&self, id: &str, wanted: f64) {
        for _ in 0..5_000 {
            if self.figures.number(id) == Some(wanted) {
                return;
            }
            tokio::time::sleep(MS).await;
        }
        panic!("{id} is {:?}, not {wanted}", self.figures.number(id));
    }
    async fn nobody_is_left(&self) {
        self.becomes("fencelock_held{engine=memory}", 0.0).await;
        self.becomes("fencelock_waiting{engine=memory}", 0.0).await;
    }
    #[track_caller]
    fn is(&self, id: &str, wanted: f64) {
        assert_eq!(self.figures.number(id), Some(wanted), "{id}");
    }
    /// All values, each within 50 ms of what is wanted.
    #[track_caller]
    fn took(&self, id: &str, wanted: &[f64]) {
        let values = self.figures.values(id);
        let near = values.iter().zip(wanted).all(|(value, wanted)| (value - wanted).abs() < 0.05);
        assert!(values.len() == wanted.len() && near, "{id}: {values:?}, not {wanted:?}");
    }
}
/// With paused time, a recorder and a subscriber; in the end every gauge is where it was.
fn watched<F: Future<Output = ()>>(test: impl FnOnce(Arc<Scene>) -> F) {
    let (recorder, watch) = (DebuggingRecorder::new(), Watch::default());
    let figures = Figures::of(&recorder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        tracing::subscriber::with_default(subscriber(&watch), || {
            runtime.block_on(async {
                let (client, control) = testing::memory();
                let scene = Arc::new(Scene { client, control, figures, watch });
                test(scene.clone()).await;
                scene.nobody_is_left().await;
            });
        });
    });
}

/// Planted: a hold's span under the attempt's; a gauge that a dropped guard leaves up; the wait of one that queued in the store among the
/// times of its commands.
#[test]
fn one_gets_it_one_waits_one_is_refused() {
    watched(async |s| {
        let mutex = s.client.mutex("orders/42");
        let first = mutex.lock().instrument(info_span!("request", n = 1)).await.unwrap();
        s.is("fencelock_held{engine=memory}", 1.0);
        let waits = tokio::spawn(mutex.clone().ttl(60 * SEC).lock().instrument(info_span!("other")));
        s.becomes("fencelock_waiting{engine=memory}", 1.0).await;
        assert!(mutex.try_lock().instrument(info_span!("third")).await.unwrap().is_err());
        tokio::time::sleep(3 * SEC).await;
        let token = first.token();
        first.release().await.unwrap();
        let second = waits.await.unwrap().unwrap();
        s.is("fencelock_held{engine=memory}", 1.0);
        s.is("fencelock_waiting{engine=memory}", 0.0);
        tokio::time::sleep(2 * SEC).await;
        let later = second.token();
        drop(second);
        s.nobody_is_left().await;

        let wait = |outcome| format!("fencelock_acquire_wait_seconds{{claim=mutex,engine=memory,outcome={outcome}}}");
        s.took(&wait("granted"), &[0.0, 3.0]);
        s.took(&wait("busy"), &[0.0]);
        s.took("fencelock_hold_seconds{claim=mutex,engine=memory}", &[3.0, 2.0]);
        s.took("fencelock_engine_seconds{engine=memory,operation=acquire}", &[0.0, 0.0]);
        s.becomes_many("fencelock_engine_seconds{engine=memory,operation=release}", 2).await;

        let acquires = s.watch.about("acquire", "orders/42");
        let seen: Vec<_> = acquires.iter().map(|told| (told.within.join(" "), told.field("outcome"))).collect();
        let wanted = [("request", "granted"), ("other", "granted"), ("third", "busy")];
        assert!(seen.iter().map(|(within, outcome)| (&**within, *outcome)).eq(wanted), "{seen:?}");
        assert!(acquires.iter().all(|told| told.closed && told.level == Level::INFO));
        assert_eq!(acquires[1].field("token"), later.to_string());
        assert!(acquires[1].field("wait_seconds").starts_with("3.0"), "{:?}", acquires[1]);
        let holds = s.watch.about("hold", "orders/42");
        let seen: Vec<_> = holds.iter().map(|told| (told.within.join(" "), told.field("token").to_owned())).collect();
        assert_eq!(seen, [("request".to_owned(), token.to_string()), ("other".to_owned(), later.to_string())]);
        for told in &holds {
            assert!(told.closed && told.field("end") == "released", "{told:?}");
            assert_eq!((told.field("claim"), told.field("engine")), ("mutex", "memory"));
        }
        assert!(holds[0].field("hold_seconds").starts_with("3.0"), "{:?}", holds[0]);
        let releases = s.watch.about("release", "orders/42");
        assert!(releases.len() == 2 && releases.iter().all(|told| told.within[0] == "hold"), "{releases:?}");
        assert!(releases.iter().all(|told| told.field("outcome") == "released" && told.closed), "{releases:?}");
    });
}
impl Scene {
    async fn becomes_many(&self, id: &str, wanted: usize) {
        for _ in 0..5_000 {
            if self.figures.values(id).len() == wanted {
                return;
            }
            tokio::time::sleep(MS).await;
        }
        panic!("{id}: {:?}", self.figures.values(id));
    }
}

/// Planted: an attempt that goes on without its span.
#[test]
fn an_attempt_that_becomes_a_task_takes_its_span_along() {
    watched(async |s| {
        let (clock, server) = paused();
        let says = |grant: fencelock_core::Grant| {
            tracing::info!(target: "fencelock", name = %grant.name, "the store grants");
            Box::pin(std::future::ready(grant)) as common::Later<_>
        };
        let client = here(Arc::new(Hooked::new(MemoryEngine::on(server), says)), &clock);
        let first = client.mutex("x").lock().await.unwrap();
        let mut second = Box::pin(client.mutex("x").lock().instrument(info_span!("request")));
        assert!(tokio::time::timeout(SEC, &mut second).await.is_err());
        first.release().await.unwrap();
        drop(second.await.unwrap());
        let within: Vec<_> = s.watch.about("the store", "x").iter().map(|told| told.within.join(" ")).collect();
        assert_eq!(within, ["acquire", "acquire request"]);
    });
}

/// Planted: nothing is told of a future that is dropped.
#[test]
fn a_wait_that_is_given_up_is_told_as_one() {
    watched(async |s| {
        let guard = s.client.mutex("x").lock().await.unwrap();
        let mut wait = s.client.mutex("x").lock();
        assert!(tokio::time::timeout(2 * SEC, &mut wait).await.is_err());
        s.is("fencelock_waiting{engine=memory}", 1.0);
        drop(wait);
        s.is("fencelock_waiting{engine=memory}", 0.0);
        s.took("fencelock_acquire_wait_seconds{claim=mutex,engine=memory,outcome=withdrawn}", &[2.0]);
        // One whose patience is over was refused.
        assert!(s.client.mutex("x").try_lock_for(SEC).await.unwrap().is_err());
        s.took("fencelock_acquire_wait_seconds{claim=mutex,engine=memory,outcome=busy}", &[1.0]);
        // Nothing was ever begun.
        drop(s.client.mutex("x").lock());
        drop(guard);
        let outcomes: Vec<_> =
            s.watch.about("acquire", "x").into_iter().map(|told| told.field("outcome").to_owned()).collect();
        assert_eq!(outcomes, ["granted", "withdrawn", "busy"]);
        // It cannot be had at all.
        assert!(s.client.mutex("x").ttl(MS).lock().await.is_err());
        s.took("fencelock_acquire_wait_seconds{claim=mutex,engine=memory,outcome=error}", &[0.0]);
    });
}

/// Planted: losses that the timers find are told by nobody but the guard.
#[test]
fn every_loss_is_told_with_its_reason_though_its_guard_is_still_there() {
    watched(async |s| {
        let lost = |reason: &str| format!("fencelock_lost_total{{engine=memory,reason={reason}}}");
        let reasons = ["expired", "max_hold", "session_ended", "taken_over", "unreachable"];
        reasons.iter().for_each(|reason| s.is(&lost(reason), 0.0));

        let taken = s.client.mutex("taken").lock().await.unwrap();
        let thief = s.control.take_over("taken").await.unwrap();
        assert_eq!(taken.lost().await, LossReason::TakenOver);
        s.becomes(&lost("taken_over"), 1.0).await;
        let told = s.watch.one("the lock is lost", "taken");
        assert_eq!((told.level, told.field("reason"), told.within[0].as_str()), (Level::WARN, "taken_over", "hold"));
        assert_eq!(told.field("token"), taken.token().to_string());
        drop(thief);

        let expired = s.client.mutex("expired").lease(2 * SEC).lock().await.unwrap();
        assert_eq!(expired.lost().await, LossReason::Expired);
        s.becomes(&lost("expired"), 1.0).await;
        let long = s.client.mutex("long").max_hold(2 * SEC).lock().await.unwrap();
        assert_eq!(long.lost().await, LossReason::MaxHold);
        s.becomes(&lost("max_hold"), 1.0).await;
        s.becomes("fencelock_held{engine=memory}", 0.0).await;

        let far = s.client.mutex("far").ttl(10 * SEC).lock().await.unwrap();
        s.control.cut();
        assert_eq!(far.lost().await, LossReason::Unreachable);
        s.becomes(&lost("unreachable"), 1.0).await;
        s.becomes("fencelock_held{engine=memory}", 0.0).await;
        let doubt = s.watch.one("renewals are not answered", "far");
        assert_eq!((doubt.level, doubt.within[0].as_str()), (Level::WARN, "hold"));
        let unknown = s.figures.number("fencelock_renewals_total{engine=memory,outcome=unknown}").unwrap();
        assert!(unknown >= 2.0, "{unknown}");
        assert!(s.watch.about("renew", "far").iter().any(|told| told.field("outcome") == "unknown"));
        s.control.restore();

        for (name, guard) in [("taken", taken), ("expired", expired), ("long", long), ("far", far)] {
            let token = guard.token().to_string();
            assert!(guard.release().await.is_err());
            s.watch.one("the lock is lost", name);
            // What may have come too late is given back, and that belongs to the hold.
            let mut hold = s.watch.of_token("hold", name, &token);
            for _ in 0..5_000 {
                if hold.closed {
                    break;
                }
                tokio::time::sleep(MS).await;
                hold = s.watch.of_token("hold", name, &token);
            }
            assert!(hold.closed && !["", "released"].contains(&hold.field("end")), "{hold:?}");
        }
        let sum: f64 = reasons.iter().map(|reason| s.figures.number(&lost(reason)).unwrap()).sum();
        assert_eq!(sum, 4.0, "each once");
    });
}

/// Planted: a renewal that nobody counts; one whose span is none of its hold's.
#[test]
fn renewals_are_counted_by_what_became_of_them() {
    watched(async |s| {
        let guard = s.client.mutex("x").ttl(3 * SEC).lock().await.unwrap();
        tokio::time::sleep(9 * SEC).await;
        let extended = s.figures.number("fencelock_renewals_total{engine=memory,outcome=extended}").unwrap();
        assert!((8.0..=12.0).contains(&extended), "{extended}");
        let spans = s.watch.about("renew", "x");
        assert!(spans.iter().all(|told| told.within[0] == "hold" && told.field("outcome") == "extended"), "{spans:?}");
        assert!(spans.len() >= 8 && spans[0].level == Level::DEBUG && spans[0].closed, "{spans:?}");
        s.control.lose_data();
        guard.lost().await;
        s.becomes("fencelock_renewals_total{engine=memory,outcome=lost}", 1.0).await;
        // One of a fixed length is renewed by its holder's own word.
        let fixed = s.client.mutex("fixed").lease(5 * SEC).lock().await.unwrap();
        let before = s.figures.number("fencelock_renewals_total{engine=memory,outcome=extended}").unwrap();
        fixed.extend(10 * SEC).await.unwrap();
        s.is("fencelock_renewals_total{engine=memory,outcome=extended}", before + 1.0);
    });
}

/// Planted: a ticket leaves the gauge up.
#[test]
fn a_hold_is_one_whoever_has_it() {
    watched(async |s| {
        let held = "fencelock_held{engine=memory}";
        let me = s.client.owner();
        let mutex = s.client.mutex("again").reentrant(&me);
        let (outer, inner) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
        s.is(held, 1.0);
        drop(outer);
        s.is(held, 1.0);
        inner.release().await.unwrap();
        s.is(held, 0.0);

        let write = s.client.rw_lock("rw").write().await.unwrap();
        let read = write.downgrade().await.unwrap();
        s.is(held, 1.0);
        let beside = s.client.rw_lock("rw").read().await.unwrap();
        let permits = s.client.semaphore("permits", 3).acquire(2).await.unwrap();
        s.is(held, 3.0);
        drop((read, beside, permits));
        s.is(held, 0.0);
        for (claim, holds) in [("write", 1), ("read", 1), ("permits", 1), ("mutex", 1)] {
            let id = format!("fencelock_hold_seconds{{claim={claim},engine=memory}}");
            assert_eq!(s.figures.values(&id).len(), holds, "{id}");
        }
        assert_eq!(s.watch.one("hold", "permits").field("claim"), "2 of 3 permits");

        let ticket = s.client.mutex("ticket").lock().await.unwrap().into_ticket().await.unwrap();
        s.is(held, 0.0);
        let adopted = s.control.another().adopt(&ticket).await.unwrap();
        s.is(held, 1.0);
        assert!(s.client.adopt(&ticket).await.is_err());
        adopted.release().await.unwrap();
        s.is(held, 0.0);
        assert_eq!(s.watch.about("hold", "ticket").len(), 2);

        let both = MultiLock::new([s.client.mutex("a"), s.client.mutex("b")]).lock().await.unwrap();
        s.is(held, 2.0);
        assert!(MultiLock::new([s.client.mutex("b"), s.client.mutex("c")]).try_lock().await.unwrap().is_err());
        both.release().await.unwrap();
        s.is(held, 0.0);
    });
}

/// Planted: a release that nobody answers is told by nobody; what the keeper takes back is told outside the span of its attempt.
#[test]
fn what_is_left_to_the_keeper_is_told() {
    watched(async |s| {
        let guard = s.client.mutex("dropped").ttl(5 * SEC).lock().await.unwrap();
        s.control.cut();
        drop(guard);
        s.is("fencelock_held{engine=memory}", 0.0);
        let mut wait = s.client.mutex("abandoned").lock();
        assert!(tokio::time::timeout(SEC, &mut wait).await.is_err());
        drop(wait);
        tokio::time::sleep(20 * SEC).await;
        let release = s.watch.one("a release was not answered", "dropped");
        assert_eq!((release.level, release.within.join(" ")), (Level::WARN, "release hold".to_owned()));
        let withdrawn = s.watch.about("the keeper withdraws", "abandoned");
        assert!(!withdrawn.is_empty(), "by its caller's word, and by that of what was under way");
        for told in withdrawn {
            assert_eq!((told.level, told.within.join(" ")), (Level::DEBUG, "acquire".to_owned()));
        }
        s.control.restore();
        // A reply that is lost is a call all the same.
        s.control.lose_reply(Operation::Release);
        let before = s.figures.values("fencelock_engine_seconds{engine=memory,operation=release}").len();
        s.client.mutex("again").lock().await.unwrap().release().await.unwrap();
        let calls = s.figures.values("fencelock_engine_seconds{engine=memory,operation=release}").len();
        assert!(calls >= before + 2, "{before} and then {calls}");
    });
}

/// Planted: a guard that goes tells nothing.
#[test]
fn a_client_that_ends_with_holds_leaves_nothing_up() {
    watched(async |s| {
        let other = s.control.another();
        let guard = other.mutex("left").ttl(2 * SEC).lock().await.unwrap();
        let mut wait = other.mutex("left").lock();
        assert!(tokio::time::timeout(SEC / 2, &mut wait).await.is_err());
        other.shutdown(SEC).await.unwrap();
        assert!(wait.await.is_err());
        s.is("fencelock_waiting{engine=memory}", 0.0);
        guard.lost().await;
        // Its keeper has gone: whoever has the guard tells it.
        drop(guard);
        s.is("fencelock_held{engine=memory}", 0.0);
        s.is("fencelock_lost_total{engine=memory,reason=unreachable}", 1.0);
    });
}

/// Planted: the nodes of a quorum are described as clients are.
#[test]
fn a_quorum_is_one_engine() {
    let (recorder, watch) = (DebuggingRecorder::new(), Watch::default());
    let figures = Figures::of(&recorder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        tracing::subscriber::with_default(subscriber(&watch), || {
            runtime.block_on(async {
                let nodes = (0..3).map(|_| Arc::new(MemoryEngine::new()) as Arc<dyn fencelock_core::Engine>);
                let client = Client::quorum(nodes).unwrap().keeper_here().build().unwrap();
                let guard = client.mutex("x").lock().await.unwrap();
                assert_eq!(figures.number("fencelock_held{engine=quorum}"), Some(1.0));
                guard.release().await.unwrap();
                assert_eq!(figures.number("fencelock_held{engine=quorum}"), Some(0.0));
                let others: Vec<_> = figures.ids().into_iter().filter(|id| !id.contains("engine=quorum")).collect();
                assert_eq!(others, [""; 0]);
                assert_eq!(watch.one("hold", "x").field("engine"), "quorum");
            });
        });
    });
}

/// Planted: one of them without a description.
#[test]
fn every_figure_says_what_it_is() {
    watched(async |s| {
        drop(s.client.mutex("x").lock().await.unwrap());
        for (name, unit) in [
            ("fencelock_acquire_wait_seconds", "seconds"),
            ("fencelock_hold_seconds", "seconds"),
            ("fencelock_held", "count"),
            ("fencelock_waiting", "count"),
            ("fencelock_lost_total", "count"),
            ("fencelock_renewals_total", "count"),
            ("fencelock_engine_seconds", "seconds"),
        ] {
            let (told, description) = s.figures.described(name).unwrap_or_default();
            assert!(told == unit && description.len() > 10, "{name}: {told:?} {description:?}");
        }
    });
}
