//! redis.md 6.7: rslock.
use super::{prelude::*, spring::Tap, redis_py::in_thread};
use fencelock_core::{Acquire, Cell, Election, MultiGuard, Mutex as NamedMutex, Owner, RwLock, Semaphore, Term, Ticket};
use std::{collections::HashSet, future::pending};
use tokio::sync::Notify;

cases! {
    "rslock/is-normal" => is_normal;
    "rslock/smol-without-tokio-runtime" => without_tokio;
    "rslock/lock-get-unique-id" => unique_ids;
    "rslock/lock-validity" => validity;
    "rslock/dropping-guard" => dropping_guard, needs: [Alone];
    "rslock/cancelling-using" => cancelling_using;
    "rslock/using-renews-and-releases" => using_renews;
    "rslock/lock-with-short-ttl" => too_slow_for_its_ttl, needs: [FixedLeases];
    "rslock/lock-ttl-duration-conversion-error" => too_long;
    "rslock/lock-send-lock-manager" => client_moves;
    "rslock/lock-state-in-multiple-threads" => state_in_threads;
    "rslock/redis-connection-failed" => unreachable_engine, needs: [Silence];
}
roles! {}

async fn is_normal(cx: Context) {
    fn normal<T: Send + Sync + Unpin + 'static>() {}
    normal::<(Client, NamedMutex, RwLock, Semaphore, Election, Cell, MultiLock, Owner)>();
    normal::<(Guard, SharedGuard, MultiGuard, Term, Ticket, Error, Busy, Status)>();
    fn sent<T: Send + 'static>(future: T) -> T {
        future
    }
    sent::<Option<(Acquire<Guard>, Acquire<SharedGuard>, Acquire<Result<Guard, Busy>>)>>(None);
    // Also the futures that are no types of their own.
    let client = cx.client().await;
    let guard = sent(client.mutex(cx.name("m")).lock()).await.unwrap();
    drop((sent(guard.lost()), sent(guard.suspect()), sent(guard.renewed()), sent(guard.expires_within(SEC))));
    let task = async move { (guard.run(async {}).await, guard.release().await) };
    let (ran, released) = tokio::spawn(sent(task)).await.unwrap();
    ran.and(released).unwrap();
}

/// The simplest executor there is.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(out) => return out,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
/// Every public call that has to wait for something.
async fn without_tokio(cx: Context) {
    let (client, name, last) = (cx.client_with(cx.short()).await, cx.name("m"), cx.client().await);
    let calls = move || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        let mutex = client.mutex(&name);
        let guard = block_on(mutex.lock()).unwrap();
        assert!(block_on(mutex.try_lock()).unwrap().is_err());
        assert!(block_on(mutex.try_lock_for(20 * MS)).unwrap().is_err());
        assert!(block_on(client.inspect(&name)).unwrap().is_held());
        assert_eq!(block_on(client.list(&name, &Page::default())).unwrap().items.len(), 1);
        assert_eq!(block_on(guard.run(async { 42 })).unwrap(), 42);
        block_on(guard.renewed());
        let wait = std::thread::spawn({
            let mutex = mutex.clone();
            move || block_on(mutex.try_lock_for(STUCK)).unwrap().unwrap()
        });
        while block_on(client.inspect(&name)).unwrap().waiters.is_empty() {
            std::thread::yield_now();
        }
        block_on(guard.release()).unwrap();
        let guard = wait.join().unwrap();
        let lost = guard.lost();
        block_on(client.force_release(&name, guard.token())).unwrap();
        assert_eq!(block_on(lost), LossReason::TakenOver);
        block_on(guard.suspect());
        drop(guard);
        let guard = block_on(mutex.clone().lease(SEC).lock()).unwrap();
        block_on(guard.extend(2 * SEC)).unwrap();
        drop(guard);
        let ticket = block_on(block_on(mutex.lock()).unwrap().into_ticket()).unwrap();
        drop(block_on(client.adopt(&ticket)).unwrap());
        drop(block_on(mutex.lock()).unwrap());
        let both = MultiLock::new([client.mutex(&name), client.mutex(format!("{name}2"))]);
        block_on(block_on(both.lock()).unwrap().release()).unwrap();
        drop(block_on(both.try_lock_for(STUCK)).unwrap().unwrap());
        let me = client.owner();
        let mine = mutex.reentrant(&me);
        drop((block_on(mine.lock()).unwrap(), block_on(mine.lock()).unwrap()));

        let (lock, semaphore) = (client.rw_lock(&name), client.semaphore(&name, 3));
        let reader = block_on(block_on(lock.write()).unwrap().downgrade()).unwrap();
        assert!(block_on(lock.try_write()).unwrap().is_err());
        block_on(block_on(lock.read()).unwrap().release()).unwrap();
        block_on(reader.release()).unwrap();
        let permits = block_on(semaphore.acquire(2)).unwrap();
        assert!(block_on(semaphore.try_acquire_for(2, 20 * MS)).unwrap().is_err());
        block_on(semaphore.resize(3, 4)).unwrap();
        block_on(permits.release()).unwrap();

        let election = client.election(&name);
        let mut observer = election.observe();
        assert_eq!(block_on(observer.changed()).unwrap(), None);
        let term = block_on(election.campaign("me")).unwrap();
        let leader = block_on(observer.changed()).unwrap().unwrap();
        assert_eq!((&*leader.candidate, leader.term), ("me", term.token()));
        assert_eq!(block_on(election.leader()).unwrap().unwrap().term, term.token());
        block_on(term.resign()).unwrap();
        let cell = client.cell(format!("{name}-cell"));
        let version = block_on(cell.load()).unwrap().version;
        block_on(cell.compare_exchange(version, "7")).unwrap().unwrap();
        let now = block_on(cell.update(|_| "8")).unwrap();
        block_on(cell.remove(now.version)).unwrap().unwrap();
        block_on(client.shutdown(STUCK)).unwrap();
        assert_eq!(block_on(client.mutex(&name).lock()).unwrap_err().kind(), ErrorKind::Closed);
    };
    let done = tokio::task::spawn_blocking(|| std::thread::spawn(calls).join());
    assert!(within("it needs no tokio", done).await.unwrap().is_ok());
    within("nothing is left", last.mutex(cx.name("m")).lock()).await.unwrap().release().await.unwrap();
}

async fn unique_ids(cx: Context) {
    let mut ids = HashSet::new();
    for i in 0..4 {
        let client = cx.client().await;
        let mutex = client.mutex(cx.name(&format!("m{i}")));
        for _ in 0..tenth(10_000) {
            let guard = mutex.lock().await.unwrap();
            let (id, text) = (guard.id(), guard.id().to_string());
            assert!(text.len() == 32 && text.chars().all(|c| c.is_ascii_hexdigit()), "{text:?}");
            assert_eq!(text.parse::<HoldId>().unwrap(), id);
            assert!(ids.insert(id), "{id} twice");
            guard.release().await.unwrap();
        }
    }
    // 128 bits, and no few of them stand still.
    let all = ids.iter().fold((0, 0), |(ones, zeros), id| {
        let bits = u128::from_be_bytes(id.to_bytes());
        (ones | bits, zeros | !bits)
    });
    assert_eq!(all, (u128::MAX, u128::MAX));
}

async fn validity(cx: Context) {
    for ttl in [cx.short(), 60 * SEC] {
        let (client, name) = (cx.client_with(ttl).await, cx.name("m"));
        for _ in 0..10 {
            let guard = client.mutex(&name).lock().await.unwrap();
            let (left, until, now) = (guard.remaining(), guard.valid_until(), BootClock.now());
            assert!(!left.is_zero() && left < ttl && guard.ttl() == ttl, "{left:?} of {ttl:?}");
            assert!(until < now + ttl && guard.is_valid());
            guard.release().await.unwrap();
        }
    }
}

async fn dropping_guard(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    for _ in 0..5 {
        let guard = client.mutex(&name).lock().await.unwrap();
        let wait = tokio::spawn(other.mutex(&name).lock());
        cx.queued(&client, &name, 1).await;
        let dropped = Instant::now();
        drop(guard);
        // The lease would last for a minute.
        let next = within("free", wait).await.unwrap().unwrap();
        cx.in_time("free", dropped.elapsed(), SEC);
        assert_eq!(client.held(), 0);
        next.release().await.unwrap();
    }
}

async fn cancelling_using(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let (mutex, begun) = (client.mutex(&name), Arc::new(Notify::new()));
    let using = tokio::spawn({
        let begun = begun.clone();
        async move {
            let guard = mutex.lock().await.unwrap();
            let work = async {
                begun.notify_one();
                pending::<()>().await;
            };
            guard.run(work).await
        }
    });
    within("it works", begun.notified()).await;
    let wait = tokio::spawn(other.mutex(&name).lock());
    cx.queued(&client, &name, 1).await;
    using.abort();
    within("free at once", wait).await.unwrap().unwrap().release().await.unwrap();
    assert!(using.await.unwrap_err().is_cancelled());
    assert_eq!(client.held(), 0);
}

async fn using_renews(cx: Context) {
    let (client, other, name) = (cx.client_with(3 * cx.short()).await, cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let wait = tokio::spawn(other.mutex(&name).lock());
    cx.queued(&other, &name, 1).await;
    let end = guard.valid_until() + 200 * MS;
    let work = async {
        eventually("longer than its lease", || async { BootClock.now() > end }).await;
        assert!(!wait.is_finished(), "somebody came in");
    };
    guard.run(work).await.expect("not lost");
    guard.release().await.unwrap();
    within("free", wait).await.unwrap().unwrap().release().await.unwrap();
    // The shortest there is: whatever becomes of it on a busy machine, nothing wraps.
    let least = client.info().capabilities.min_ttl;
    let client = cx.client_with(least).await;
    match within("an answer", client.mutex(&name).lock()).await {
        Ok(guard) => {
            assert!(guard.remaining() < least && guard.ttl() == least);
            if let Err(e) = guard.run(tokio::task::yield_now()).await {
                assert_eq!(e.kind(), ErrorKind::Lost);
            }
        }
        Err(e) => assert!(e.is_temporary(), "{e}"),
    }
    within("free", other.mutex(&name).lock()).await.unwrap().release().await.unwrap();
}

/// A grant that comes when its lease is over is none. One that comes in its second half is renewed first; when the renewals
/// come as late, the engine is too slow for such a ttl.
async fn too_slow_for_its_ttl(cx: Context) {
    let (ttl, other, name) = (500 * MS, cx.client().await, cx.name("m"));
    for (late, patience) in [(ttl * 3 / 2, Some(2 * ttl)), (ttl * 7 / 10, None)] {
        let tap = Tap::new(cx.fixture().engine(cx.short()).await.engine);
        let client = Client::builder(tap.clone()).build().unwrap();
        tap.grant_late(late);
        tap.answer_late(late);
        let mutex = client.mutex(&name).lease(ttl);
        let answer = match patience {
            Some(patience) => within("an answer", mutex.try_lock_for(patience)).await.map(Result::ok),
            None => within("an answer", mutex.lock()).await.map(Some),
        };
        match answer {
            Ok(Some(guard)) => panic!("{late:?} late, and {:?} are left of {ttl:?}", guard.remaining()),
            Ok(None) => assert!(patience.is_some(), "nobody else has it"),
            Err(e) => assert!(e.is_temporary() && (patience.is_some() || e.kind() == ErrorKind::Unreachable), "{e}"),
        }
        within("nothing is left", other.mutex(&name).lock()).await.unwrap().release().await.unwrap();
        eventually("nothing is held", || async { client.held() == 0 }).await;
    }
    // An answer in good time is a grant.
    let tap = Tap::new(cx.fixture().engine(cx.short()).await.engine);
    tap.grant_late(ttl / 10);
    let guard = Client::builder(tap).build().unwrap().mutex(&name).lease(20 * ttl).lock().await.unwrap();
    assert!(guard.remaining() > 10 * ttl);
    guard.release().await.unwrap();
}

async fn too_long(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let mutex = client.mutex(&name);
    let most = client.info().capabilities.max_ttl;
    for d in [most + MS, Duration::from_millis(u64::MAX), Duration::from_secs(u64::MAX), Duration::MAX] {
        let handles = [mutex.clone().ttl(d), mutex.clone().lease(d), mutex.clone().at_least(d)];
        for handle in handles {
            let error = handle.lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        }
        assert!(!other.inspect(&name).await.unwrap().is_held());
        let guard = mutex.clone().lease(30 * SEC).lock().await.unwrap();
        assert_eq!(guard.extend(d).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
        assert!(guard.is_valid() && guard.remaining() < 30 * SEC);
        guard.release().await.unwrap();
        // What is only compared may be as long as it likes: it is never, not at once.
        let guard = mutex.clone().max_hold(d).lock().await.unwrap();
        let wait = tokio::spawn(other.mutex(&name).try_lock_for(d));
        cx.queued(&client, &name, 1).await;
        guard.check().unwrap();
        guard.release().await.unwrap();
        within("its turn", wait).await.unwrap().unwrap().unwrap().release().await.unwrap();
    }
}

async fn client_moves(cx: Context) {
    let (client, judge, name) = (cx.client().await, cx.judge("m"), cx.name("m"));
    let work = |who: String| {
        let (client, judge, name) = (client.clone(), judge.clone(), name.clone());
        async move {
            for _ in 0..5 {
                let guard = client.mutex(&name).lock().await.unwrap();
                judge.work(&who, &guard).await;
                guard.release().await.unwrap();
            }
        }
    };
    let tasks: Vec<_> = (0..4).map(|i| tokio::spawn(work(format!("task-{i}")))).collect();
    let threads: Vec<_> = (0..4).map(|i| in_thread(work(format!("thread-{i}")))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let threads = tokio::task::spawn_blocking(|| threads.into_iter().all(|thread| thread.join().is_ok()));
    assert!(threads.await.unwrap());
    judge.verdict(40);
}

async fn state_in_threads(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = Arc::new(client.mutex(&name).lock().await.unwrap());
    let (ready, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (guard, ready) = (guard.clone(), ready.clone());
            in_thread(async move {
                guard.check().unwrap();
                ready.send((guard.id(), guard.token(), guard.entries())).unwrap();
                let reason = within("told", guard.lost()).await;
                (reason, guard.is_valid(), guard.remaining(), guard.check().unwrap_err().kind())
            })
        })
        .collect();
    for _ in 0..4 {
        assert_eq!(within("a thread", seen.recv()).await.unwrap(), (guard.id(), guard.token(), 1));
    }
    other.force_release(&name, guard.token()).await.unwrap();
    let ends = tokio::task::spawn_blocking(|| threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>());
    assert_eq!(ends.await.unwrap(), [(LossReason::TakenOver, false, Duration::ZERO, ErrorKind::Lost); 4]);
}

async fn unreachable_engine(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(cx.short()).await, cx.client().await, cx.name("m"));
    for held in [false, true] {
        let guard = if held { Some(other.mutex(&name).lock().await.unwrap()) } else { None };
        chaos.next(Operation::Acquire, 1000, Trouble::Fail);
        chaos.next(Operation::Inspect, 1000, Trouble::Fail);
        let mutex = client.mutex(&name);
        let answers = [
            within("an answer", mutex.try_lock()).await.map(drop),
            within("an answer", mutex.try_lock_for(100 * MS)).await.map(drop),
            within("an answer", mutex.lock()).await.map(drop),
            within("an answer", client.inspect(&name)).await.map(drop),
        ];
        for answer in answers {
            assert_eq!(answer.expect_err("nobody knows").kind(), ErrorKind::Unreachable);
        }
        assert_eq!(client.held(), 0);
        chaos.next(Operation::Acquire, 0, Trouble::Fail);
        chaos.next(Operation::Inspect, 0, Trouble::Fail);
        if let Some(guard) = guard {
            guard.release().await.unwrap();
        }
        within("it is there again", mutex.lock()).await.unwrap().release().await.unwrap();
    }
    // One that is silent.
    let (client, silence) = cx.silenceable(cx.short()).await;
    client.mutex(&name).lock().await.unwrap().release().await.unwrap();
    silence.begin().await;
    let answer = within("an answer", client.mutex(&name).try_lock_for(100 * MS)).await;
    assert_eq!(answer.expect_err("nobody knows").kind(), ErrorKind::Unreachable);
    silence.end().await;
    within("it is there again", client.mutex(&name).lock()).await.unwrap().release().await.unwrap();
}
