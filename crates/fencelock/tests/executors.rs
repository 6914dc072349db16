//! Every engine from executors that are not tokio and from threads that wait, and one client from several runtimes of tokio that come and go.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock::{Client, ErrorKind, LossReason, MultiLock, Page, TakenAway, blocking::Wait};
use std::{any::Any, future::Future, sync::Arc, thread, time::Duration};

/// So long nothing takes that is not stuck.
const STUCK: Duration = Duration::from_secs(60);

/// Every engine of this build that others reach, too, with its server.
#[allow(unused_mut, unused_variables, reason = "a build without engines has none")]
fn engines() -> Vec<(String, Box<dyn Any>)> {
    let mut engines: Vec<(String, Box<dyn Any>)> = Vec::new();
    macro_rules! with {
        ($feature:literal, $server:expr, $url:expr) => {
            #[cfg(feature = $feature)]
            {
                let server = $server;
                engines.push(($url(&server), Box::new(server)));
            }
        };
    }
    use fencelock_testkit as kit;
    let in_folder = |folder: &kit::Folder| format!("sqlite:{}", folder.path().join("locks.db").display());
    with!("sqlite", kit::Folder::new("executors"), in_folder);
    with!("redis", kit::Redis::start(), kit::Redis::url);
    with!("redis", kit::Redis::several(3, &kit::RedisOptions::default()), |nodes: &Vec<kit::Redis>| {
        let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redlock://{}", hosts.join(","))
    });
    with!("postgres", kit::Postgres::start(), kit::Postgres::url);
    with!("postgres", kit::Postgres::start(), |server: &kit::Postgres| server.url() + "?strategy=session");
    with!("mysql", kit::MariaDb::start(), kit::MariaDb::url);
    with!("mysql", kit::MariaDb::start(), |server: &kit::MariaDb| server.url() + "?strategy=session");
    with!("etcd", kit::Etcd::start(), kit::Etcd::url);
    with!("zookeeper", kit::ZooKeeper::start(), kit::ZooKeeper::url);
    engines
}

/// What a user of any executor does: wait, be told of a loss, give back; every kind of lock that there is.
async fn story(url: &str) {
    if let Some(admin) = fencelock::admin(url).unwrap() {
        assert!(admin.schema(None).await.unwrap().contains("fencelock_lock"));
        admin.migrate(None).await.unwrap();
    }
    let (client, other) = (fencelock::connect(url).await.unwrap(), fencelock::connect(url).await.unwrap());
    let (mutex, can) = (client.mutex("m"), client.info().capabilities.clone());
    let guard = mutex.lock().await.unwrap();
    assert!(other.mutex("m").try_lock().await.unwrap().is_err());
    assert!(other.mutex("m").try_lock_for(Duration::from_millis(20)).await.unwrap().is_err());
    // Where nobody is told of what is taken away, the next renewal tells.
    let ttl = if can.taken_away == TakenAway::Pushed { client.ttl() } else { can.min_ttl.max(Duration::from_secs(6)) };
    let waiter = thread::spawn(move || {
        let wait = other.mutex("m").ttl(ttl).lock();
        pollster::block_on(wait).map(|guard| (guard, other))
    });
    while client.inspect("m").await.unwrap().waiters.is_empty() {
        pause().await;
    }
    assert_eq!(guard.run(async { 42 }).await.unwrap(), 42);
    // Renewals come every third of the ttl: long after.
    guard.expires_within(guard.remaining().saturating_sub(Duration::from_millis(20))).await;
    guard.release().await.unwrap();
    let (theirs, other) = waiter.join().unwrap().unwrap();
    let lost = theirs.lost();
    assert_eq!(client.list("", &Page::default()).await.unwrap().items.len(), 1);
    client.force_release("m", theirs.token()).await.unwrap();
    assert_eq!(lost.await, LossReason::TakenOver, "{url}");
    drop(theirs);
    // A wait that is given up leaves nothing in the way.
    let guard = mutex.lock().await.unwrap();
    let mut wait = other.mutex("m").lock();
    assert!(is_pending(&mut wait).await);
    drop(wait);
    guard.release().await.unwrap();
    let guard = other.mutex("m").lock().await.unwrap();
    let again = other.owner();
    drop(guard);
    let mine = other.mutex("r").reentrant(&again).lock().await.unwrap();
    drop(other.mutex("r").reentrant(&again).lock().await.unwrap());
    mine.release().await.unwrap();
    if can.read_write {
        let reader = client.rw_lock("rw").read().await.unwrap();
        assert!(client.rw_lock("rw").try_write().await.unwrap().is_err());
        assert!(client.rw_lock("rw").try_write_for(Duration::from_millis(20)).await.unwrap().is_err());
        // What was given up may still be on its way out.
        other.rw_lock("rw").try_read_for(STUCK).await.unwrap().unwrap().release().await.unwrap();
        other.rw_lock("rw").try_read().await.unwrap().unwrap().release().await.unwrap();
        reader.release().await.unwrap();
        let writer = client.rw_lock("rw").write().await.unwrap();
        if can.downgrade {
            writer.downgrade().await.unwrap().release().await.unwrap();
        }
    }
    if can.permits {
        let some = client.semaphore("s", 3).acquire(2).await.unwrap();
        assert!(client.semaphore("s", 3).try_acquire(2).await.unwrap().is_err());
        assert!(client.semaphore("s", 3).try_acquire_for(2, Duration::from_millis(20)).await.unwrap().is_err());
        some.release().await.unwrap();
        client.semaphore("s", 3).resize(3, 4).await.unwrap();
        client.semaphore("s", 4).resize(4, 3).await.unwrap();
    }
    let term = client.election("e").campaign("me").await.unwrap();
    assert_eq!(&*client.election("e").leader().await.unwrap().unwrap().candidate, "me");
    assert!(other.election("e").try_campaign("you").await.unwrap().is_err());
    assert!(other.election("e").try_campaign_for("you", Duration::from_millis(20)).await.unwrap().is_err());
    let mut observer = client.election("e").observe();
    assert_eq!(&*observer.changed().await.unwrap().unwrap().candidate, "me");
    term.resign().await.unwrap();
    match client.cell("c").update(|_| "7").await {
        Ok(written) => {
            assert_eq!(client.cell("c").load().await.unwrap(), written);
            assert!(client.cell("c").compare_exchange(written.version, "8").await.unwrap().is_ok());
            let conflict = client.cell("c").compare_exchange(written.version, "9").await.unwrap().unwrap_err();
            let written = conflict.now;
            assert_eq!(written.value.as_deref(), Some(&b"8"[..]), "{url}");
            client.cell("c").remove(written.version).await.unwrap().unwrap();
        }
        Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported, "{url}: {e}"),
    }
    let several = MultiLock::new([client.mutex("x"), client.mutex("y")]);
    let both = several.lock().await.unwrap();
    assert!(client.mutex("x").try_lock().await.unwrap().is_err());
    assert!(several.try_lock().await.unwrap().is_err());
    assert!(several.try_lock_for(Duration::from_millis(20)).await.unwrap().is_err());
    assert_eq!(both.run(async { 42 }).await.unwrap(), 42);
    let token = client.inspect("y").await.unwrap().holders[0].token;
    if can.taken_away == TakenAway::Pushed {
        client.force_release("y", token).await.unwrap();
        let (name, reason) = both.lost().await;
        assert_eq!((name.as_str(), reason), ("y", LossReason::TakenOver), "{url}");
        drop(both);
    } else {
        both.release().await.unwrap();
    }
    if can.tickets {
        let ticket = client.mutex("t").lock().await.unwrap().into_ticket().await.unwrap();
        other.adopt(&ticket).await.unwrap().release().await.unwrap();
        if can.permits {
            let ticket = client.semaphore("s", 3).acquire(1).await.unwrap().into_ticket().await.unwrap();
            other.adopt_shared(&ticket).await.unwrap().release().await.unwrap();
        }
    }
    // Renewed by itself; one that is not is extended, or runs out, which is near before it is told.
    let short = can.min_ttl.max(Duration::from_secs(4));
    let guard = client.mutex("renewed").ttl(short).lock().await.unwrap();
    guard.renewed().await;
    guard.release().await.unwrap();
    if can.fixed_leases {
        let guard = client.mutex("fixed").lease(short).lock().await.unwrap();
        guard.extend(2 * short).await.unwrap();
        assert!(guard.remaining() > short, "{url}");
        guard.release().await.unwrap();
        let guard = client.mutex("fixed").lease(can.min_ttl.max(Duration::from_secs(1))).lock().await.unwrap();
        guard.suspect().await;
        assert_eq!(guard.lost().await, LossReason::Expired, "{url}");
    }
    other.shutdown(STUCK).await.unwrap();
    client.shutdown(STUCK).await.unwrap();
    let closed = client.mutex("m").lock().await.map(drop).unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Closed, "{url}: {closed}");
}

/// Somewhere else than on this executor.
async fn pause() {
    let (tx, rx) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(2));
        let _ = tx.send(());
    });
    let _ = rx.await;
}

/// Polls it once; true when it is not ready.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await
}

/// Planted to see it go red: calls made where the caller is, tokio or not.
#[test]
fn every_engine_on_smol() {
    for (url, _server) in engines() {
        smol::block_on(smol::spawn(async move {
            assert!(tokio::runtime::Handle::try_current().is_err(), "no tokio here");
            let in_time = async {
                smol::Timer::after(STUCK).await;
                panic!("stuck");
            };
            smol::future::or(story(&url), in_time).await;
        }));
    }
}

/// Planted to see it go red: the same.
#[test]
fn every_engine_where_there_is_no_executor_at_all() {
    for (url, _server) in engines() {
        pollster::block_on(story(&url));
    }
}

/// A thread that waits: one without a runtime, the only one of a runtime, a worker, one that may block. None of them waits for itself.
///
/// Planted to see it go red: calls made on the runtime of whoever waits: the only thread of it is stuck.
#[test]
fn every_engine_from_threads_that_wait() {
    let in_time = |what: &str, url: &str, work: Box<dyn FnOnce() + Send>| {
        let (tx, rx) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            work();
            let _ = tx.send(());
        });
        let end = rx.recv_timeout(STUCK);
        assert!(end != Err(std::sync::mpsc::RecvTimeoutError::Timeout), "stuck: {what}, {url}");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    };
    let only = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let worker = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for (at, (url, _server)) in engines().into_iter().enumerate() {
        let said = url.clone();
        in_time("the only thread", &url, Box::new(move || only().block_on(async { story(&said).wait() })));
        if at > 0 {
            continue; // The calls go the same way from the others, whatever the engine.
        }
        let said = url.clone();
        in_time("no runtime", &url, Box::new(move || story(&said).wait()));
        let said = url.clone();
        let from_a_worker =
            move || worker().block_on(async { tokio::spawn(async move { story(&said).wait() }).await.unwrap() });
        in_time("the only worker", &url, Box::new(from_a_worker));
        let said = url.clone();
        let blocking =
            move || only().block_on(async { tokio::task::spawn_blocking(move || story(&url).wait()).await.unwrap() });
        in_time("a blocking thread", &said, Box::new(blocking));
    }
}

/// Threads take turns, count what nobody counts atomically, and drop their guards; tasks of a runtime take part.
///
/// Planted to see it go red: a guard that is dropped before the count.
#[test]
fn threads_and_tasks_exclude_each_other() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for (url, _server) in engines() {
        let count = Arc::new(Unguarded(0.into()));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (url, count) = (url.clone(), count.clone());
                thread::spawn(move || {
                    let client = fencelock::connect(&url).wait().unwrap();
                    for _ in 0..25 {
                        let guard = client.mutex("count").lock().wait().unwrap();
                        count.add();
                        drop(guard);
                    }
                    client.shutdown(STUCK).wait().unwrap();
                })
            })
            .collect();
        let (ours, in_tasks) = (url.clone(), count.clone());
        runtime.block_on(async move {
            let client = fencelock::connect(&ours).await.unwrap();
            for _ in 0..25 {
                let guard = client.mutex("count").lock().await.unwrap();
                in_tasks.add();
                guard.release().await.unwrap();
            }
            client.shutdown(STUCK).await.unwrap();
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(count.0.load(std::sync::atomic::Ordering::Relaxed), 125, "{url}");
    }
}
/// Reads, lets others run, writes: exact only where one at a time does it.
struct Unguarded(std::sync::atomic::AtomicU64);
impl Unguarded {
    fn add(&self) {
        let seen = self.0.load(std::sync::atomic::Ordering::Relaxed);
        thread::yield_now();
        self.0.store(seen + 1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A client whose keeper is on this thread cannot serve it while it waits: refused, and not stuck; also what is asked of a guard.
///
/// Planted to see it go red: only what begins an attempt is refused.
#[tokio::test]
async fn a_keeper_on_this_runtime_serves_nobody_who_waits_there() {
    let engine = Arc::new(fencelock::memory::MemoryEngine::new());
    let client = Client::builder(engine).keeper_here().build().unwrap();
    let refused = |error: fencelock::Error| assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    refused(client.mutex("x").lock().wait().map(drop).unwrap_err());
    let guard = client.mutex("x").lock().await.unwrap();
    refused(guard.release().wait().unwrap_err());
    refused(client.inspect("x").wait().map(drop).unwrap_err());
    refused(client.shutdown(STUCK).wait().unwrap_err());
    // What was not released there was dropped, and that releases.
    client.mutex("x").lock().await.unwrap().release().await.unwrap();
    client.shutdown(STUCK).await.unwrap();
}

/// A task of tokio's may do so much before it yields; whoever waits within one never does, and goes on all the same.
///
/// Planted to see it go red: a future that is polled under the task's budget: stuck at the 128th answer, or spinning.
#[test]
fn a_task_that_waits_many_times() {
    use tokio::runtime::Builder;
    let work = |client: Client| {
        for n in 0..300 {
            client.mutex(format!("n{n}")).lock().wait().unwrap().release().wait().unwrap();
        }
    };
    let runtimes: [fn() -> Builder; 2] = [Builder::new_current_thread, Builder::new_multi_thread];
    let (tx, rx) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for runtime in runtimes {
            let runtime = runtime().worker_threads(1).enable_all().build().unwrap();
            let client = runtime.block_on(fencelock::connect("memory:")).unwrap();
            let (here, there) = (client.clone(), client.clone());
            runtime.block_on(async { work(here) });
            runtime.block_on(async { tokio::spawn(async move { work(there) }).await.unwrap() });
            tx.send(()).unwrap();
        }
    });
    for flavour in ["the only thread", "a worker"] {
        assert!(rx.recv_timeout(STUCK).is_ok(), "stuck: {flavour}");
    }
}

/// After a shutdown nobody renews any more: told at once to whoever asks when little is left, since nobody could wake him later.
#[test]
fn little_is_left_after_a_shutdown() {
    let client = fencelock::connect("memory:").wait().unwrap();
    let guard = client.mutex("x").lock().wait().unwrap();
    client.shutdown(STUCK).wait().unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    let near = guard.expires_within(Duration::from_secs(1));
    thread::spawn(move || {
        near.wait();
        let _ = tx.send(());
    });
    assert_eq!(rx.recv_timeout(STUCK), Ok(()));
}

/// A wait within a wait: what the outer one was woken for meanwhile is not lost.
///
/// Planted to see it go red: the thread's own mark alone, which the inner wait takes.
#[test]
fn a_wait_within_a_wait() {
    let client = fencelock::connect("memory:").wait().unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let guard = client.mutex("outer").lock().wait().unwrap();
        let (inner, token) = (client.clone(), guard.token());
        let work = async move {
            // The loss comes while the inner ones wait, and wakes this thread, not the inner one's future.
            inner.force_release("outer", token).wait().unwrap();
            for n in 0..50 {
                inner.mutex(format!("inner{n}")).lock().wait().unwrap().release().wait().unwrap();
            }
            std::future::pending::<()>().await;
        };
        let end = guard.run(work).wait().map(drop);
        tx.send(end.unwrap_err().kind()).unwrap();
    });
    assert_eq!(rx.recv_timeout(STUCK), Ok(ErrorKind::Lost));
}

/// A client outlives the runtime on which it was connected, and those on which it was used: also what is held.
///
/// Planted to see it go red: one connection for all runtimes.
#[test]
fn one_client_on_runtimes_that_come_and_go() {
    let on_its_own = |work: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let in_time = async { tokio::time::timeout(STUCK, work).await.expect("stuck") };
        thread::spawn(move || runtime.block_on(in_time)).join().unwrap();
    };
    for (url, _server) in engines() {
        let (tx, rx) = std::sync::mpsc::channel();
        on_its_own(Box::pin(async move {
            tx.send(Arc::new(fencelock::connect(&url).await.unwrap())).unwrap();
        }));
        let client: Arc<Client> = rx.recv().unwrap();
        let kept = Arc::new(std::sync::Mutex::new(None));
        for turn in 0..3 {
            let (client, kept) = (client.clone(), kept.clone());
            on_its_own(Box::pin(async move {
                // Held by a runtime that has ended: it is renewed all the same, and is given back on another one.
                let before: Option<fencelock::Guard> = kept.lock().unwrap().take();
                assert_eq!(before.is_some(), turn > 0);
                if let Some(before) = before {
                    assert!(client.mutex("a").try_lock().await.unwrap().is_err());
                    before.release().await.unwrap();
                }
                let guard = client.mutex("a").lock().await.unwrap();
                let wait = tokio::spawn({
                    let client = client.clone();
                    async move { client.mutex("a").lock().await.unwrap() }
                });
                while client.inspect("a").await.unwrap().waiters.is_empty() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                drop(guard);
                *kept.lock().unwrap() = Some(wait.await.unwrap());
            }));
        }
        drop(kept.lock().unwrap().take());
        pollster::block_on(client.shutdown(STUCK)).unwrap();
    }
}

mod a_static_client {
    //! As users write it: one client for all tests of a file, each of which has a runtime of its own.
    use super::*;
    static CLIENT: tokio::sync::OnceCell<Client> = tokio::sync::OnceCell::const_new();

    async fn client() -> &'static Client {
        CLIENT.get_or_init(|| async { fencelock::connect("memory:").await.unwrap() }).await
    }
    async fn work() {
        for _ in 0..20 {
            let guard = client().await.mutex("shared").lock().await.unwrap();
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        }
    }
    #[tokio::test]
    async fn one() {
        work().await;
    }
    #[tokio::test]
    async fn two() {
        work().await;
    }
    #[tokio::test(flavor = "multi_thread")]
    async fn three() {
        work().await;
    }
}
