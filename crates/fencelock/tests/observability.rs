//! What is told of locks on threads and files as they are: SQLite, and a store that is not there. One test, for a recorder and a subscriber
//! are the whole program's.
#![cfg(all(feature = "metrics", feature = "sqlite", feature = "redis"))]
#![allow(clippy::unwrap_used)]
#[path = "../../fencelock-core/tests/common/watch.rs"]
mod watch;

use fencelock::LossReason;
use metrics_util::debugging::DebuggingRecorder;
use std::time::{Duration, Instant};
use watch::{Figures, Watch, subscriber};

const SEC: Duration = Duration::from_secs(1);

/// A folder of its own, gone with it.
struct Folder(std::path::PathBuf);
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn becomes(figures: &Figures, id: &str, wanted: f64) {
    let began = Instant::now();
    while figures.number(id) != Some(wanted) {
        assert!(began.elapsed() < 10 * SEC, "{id} is {:?}, not {wanted}", figures.number(id));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// To plant: an event with the URL; a session's end that nobody counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_told_and_no_secret() {
    let (recorder, watch) = (DebuggingRecorder::new(), Watch::default());
    let figures = Figures::of(&recorder);
    recorder.install().unwrap();
    tracing::subscriber::set_global_default(subscriber(&watch)).unwrap();
    let folder = Folder(std::env::temp_dir().join(format!("fencelock-observed-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let url = format!("sqlite:{}", folder.0.join("locks.db").display());
    let (here, there) = (fencelock::connect(&url).await.unwrap(), fencelock::connect(&url).await.unwrap());
    let (held, waiting) = ("fencelock_held{engine=sqlite}", "fencelock_waiting{engine=sqlite}");

    // Handed from one client to another; the third one gives up.
    let first = here.mutex("orders/42").lock().await.unwrap();
    let second = tokio::spawn(there.mutex("orders/42").lock());
    becomes(&figures, waiting, 1.0).await;
    assert!(here.mutex("orders/42").try_lock().await.unwrap().is_err());
    let mut third = there.mutex("orders/42").lock();
    assert!(tokio::time::timeout(SEC / 10, &mut third).await.is_err());
    becomes(&figures, waiting, 2.0).await;
    drop(third);
    becomes(&figures, waiting, 1.0).await;
    let token = first.token();
    drop(first);
    let second = second.await.unwrap().unwrap();
    becomes(&figures, held, 1.0).await;
    becomes(&figures, waiting, 0.0).await;
    for (outcome, times) in [("granted", 2), ("busy", 1), ("withdrawn", 1)] {
        let id = format!("fencelock_acquire_wait_seconds{{claim=mutex,engine=sqlite,outcome={outcome}}}");
        assert_eq!(figures.values(&id).len(), times, "{id}");
    }
    let hold = watch.about("hold", "orders/42").remove(0);
    assert_eq!((hold.field("token"), hold.field("engine"), hold.closed), (&*token.to_string(), "sqlite", true));

    // Taken away, and lost with its session: told though both guards are still there.
    here.force_release("orders/42", second.token()).await.unwrap();
    assert_eq!(second.lost().await, LossReason::TakenOver);
    becomes(&figures, "fencelock_lost_total{engine=sqlite,reason=taken_over}", 1.0).await;
    let left = there.mutex("left").lock().await.unwrap();
    becomes(&figures, held, 1.0).await;
    there.shutdown(5 * SEC).await.unwrap();
    assert_eq!(left.lost().await, LossReason::SessionEnded);
    becomes(&figures, "fencelock_lost_total{engine=sqlite,reason=session_ended}", 1.0).await;
    becomes(&figures, held, 0.0).await;
    assert_eq!(watch.one("the lock is lost", "left").field("reason"), "session_ended");
    drop((second, left));
    // The thread of a program without a runtime.
    let client = here.clone();
    std::thread::spawn(move || drop(pollster::block_on(client.mutex("elsewhere").lock()).unwrap())).join().unwrap();
    becomes(&figures, held, 0.0).await;
    becomes(&figures, waiting, 0.0).await;
    for operation in ["acquire", "release", "force_release", "inspect"] {
        here.inspect("orders/42").await.unwrap();
        let id = format!("fencelock_engine_seconds{{engine=sqlite,operation={operation}}}");
        let began = Instant::now();
        while figures.values(&id).is_empty() {
            assert!(began.elapsed() < 10 * SEC, "{id}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    // Nobody is there, and a password is in the URL.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("redis://worker:tell-nobody@{closed}");
    if let Ok(client) = fencelock::connect(&url).await {
        let refused = client.mutex("secret").try_lock().await;
        assert!(refused.is_err(), "{refused:?}");
        let _ = client.shutdown(SEC).await;
    }
    let everything = watch.everything();
    assert!(everything.contains("orders/42") && !everything.contains("tell-nobody"), "{everything}");
    assert_eq!(figures.ids().into_iter().find(|id| id.contains("tell-nobody") || id.contains("orders")), None);
}
