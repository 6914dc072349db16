//! consensus.md 6: kazoo.
use super::prelude::*;
use fencelock_core::Term;

cases! {
    "kazoo/lock-one" => lock_one, needs: [Waiters];
    "kazoo/lock-reconnect" => lock_reconnect, needs: [Sessions];
    "kazoo/lock-non-blocking" => lock_non_blocking;
    "kazoo/rw-lock" => rw_lock, needs: [ReadWrite];
    "kazoo/semaphore-basic" => semaphore_basic, needs: [Permits];
    "kazoo/semaphore-lock-one" => semaphore_lock_one, needs: [Permits];
    "kazoo/non-blocking-release" => non_blocking_release;
    "kazoo/multiple-acquire-and-release" => multiple_acquire_and_release;
    "kazoo/handle-session-loss" => handle_session_loss, needs: [Sessions, Permits];
    "kazoo/inconsistent-max-leases" => inconsistent_max_leases, needs: [Permits];
    "kazoo/acquire-after-cancelled" => acquire_after_cancelled;
    "kazoo/election-cancel" => election_cancel, needs: [Waiters];
    "kazoo/bad-func" => bad_func;
}
roles! {}

async fn lock_one(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let mut peer = cx.puppet_with(60 * SEC).await;
    let token = peer.lock(&name).await;
    let here = std::process::id();
    let there = peer.peer().pid().unwrap_or(here);
    let wait = tokio::spawn(a.mutex(&name).note("contender").lock());
    cx.queued(&a, &name, 1).await;
    for client in [&a, &b, &cx.client().await] {
        let status = client.inspect(&name).await.unwrap();
        let holder = status.exclusive().expect("held");
        assert_eq!((holder.token, holder.pid, status.holders.len()), (token, there, 1));
        let waiters: Vec<_> = status.waiters.iter().map(|waiter| (&*waiter.note, waiter.pid, &waiter.host)).collect();
        assert_eq!(waiters, [("contender", here, &holder.host)]);
        assert!(!holder.host.is_empty());
    }
    assert!(peer.release(&name).await);
    let guard = within("free", wait).await.unwrap().unwrap();
    let status = b.inspect(&name).await.unwrap();
    let holder = status.exclusive().expect("held");
    assert_eq!((holder.hold, &*holder.note, holder.pid, status.waiters.len()), (guard.id(), "contender", here, 0));
    guard.release().await.unwrap();
}

async fn lock_reconnect(cx: Context) {
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client_with(2 * cx.short()).await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    let wait = tokio::spawn(b.mutex(&name).lock());
    cx.queued(&a, &name, 1).await;
    cx.fixture().sessions().unwrap().end().await;
    let next = within("he gets it after all", wait).await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(within("told", guard.lost()).await, LossReason::SessionEnded);
    assert!(guard.release().await.is_err());
    next.check().unwrap();
    // Both have new sessions and go on.
    next.release().await.unwrap();
    for client in [&a, &b] {
        within("free", client.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    }
}

async fn lock_non_blocking(cx: Context) {
    let (a, b, c, name) = (cx.client().await, cx.client().await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    for client in [&a, &b, &c].into_iter().cycle().take(30) {
        let busy = client.mutex(&name).try_lock().await.unwrap().unwrap_err();
        assert_eq!(busy.holder.map(|holder| holder.hold), Some(guard.id()));
        let status = a.inspect(&name).await.unwrap();
        assert!(status.waiters.is_empty(), "{status:?}");
    }
    let tries = (0..30).map(|i| tokio::spawn([&b, &c][i % 2].mutex(&name).try_lock()));
    for refused in tries.collect::<Vec<_>>() {
        assert!(refused.await.unwrap().unwrap().is_err());
    }
    assert!(a.inspect(&name).await.unwrap().waiters.is_empty());
    guard.release().await.unwrap();
    b.mutex(&name).try_lock().await.unwrap().expect("nobody contends").release().await.unwrap();
}

async fn rw_lock(cx: Context) {
    let (client, name, judge) = (cx.client().await, cx.name("rw"), cx.judge("rw"));
    let first = client.rw_lock(&name).write().await.unwrap();
    let (a, b) = (cx.client().await, cx.client().await);
    let reader = tokio::spawn(a.rw_lock(&name).read());
    cx.queued(&client, &name, 1).await;
    let writer = tokio::spawn(b.rw_lock(&name).write());
    let queue: Vec<_> = cx.queued(&client, &name, 2).await.waiters.iter().map(|waiter| waiter.hold).collect();
    let freed = BootClock.now();
    judge.work("first", &first).await;
    first.release().await.unwrap();
    cx.turn_of(&client, &name, &queue, freed).await;
    let reader = within("the reader's turn", reader).await.unwrap().unwrap();
    assert_eq!(reader.id(), queue[0]);
    judge.share("reader", &reader).await;
    let status = client.inspect(&name).await.unwrap();
    assert_eq!(status.waiters.iter().map(|waiter| waiter.hold).collect::<Vec<_>>(), queue[1..]);
    assert!(!writer.is_finished());
    reader.release().await.unwrap();
    let writer = within("the writer's turn", writer).await.unwrap().unwrap();
    judge.work("writer", &writer).await;
    writer.release().await.unwrap();
    judge.verdict(2);
}

async fn semaphore_basic(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("s"));
    for _ in 0..2 {
        let one = within("free", client.semaphore(&name, 1).acquire(1)).await.unwrap();
        one.check().unwrap();
        let status = other.inspect(&name).await.unwrap();
        assert_eq!((status.taken(), status.free_permits(), status.holders[0].hold), (1, Some(0), one.id()));
        one.release().await.unwrap();
        let status = other.inspect(&name).await.unwrap();
        assert_eq!((status.taken(), status.holders.len(), status.waiters.len()), (0, 0, 0));
    }
}

async fn semaphore_lock_one(cx: Context) {
    let (client, name, judge) = (cx.client().await, cx.name("s"), cx.judge("s"));
    let mut peer = cx.puppet_with(60 * SEC).await;
    peer.acquire(&name, 1, 1).await;
    let wait = tokio::spawn(client.semaphore(&name, 1).acquire(1));
    let hold = cx.queued(&client, &name, 1).await.waiters[0].hold;
    for _ in 0..20 {
        let status = client.inspect(&name).await.unwrap();
        assert!(!wait.is_finished() && status.taken() == 1 && status.holders[0].hold != hold, "{status:?}");
    }
    assert!(peer.release(&name).await);
    let one = within("one is back", wait).await.unwrap().unwrap();
    assert_eq!(one.id(), hold);
    judge.share("second", &one).await;
    assert!(!peer.try_acquire(&name, 1, 1).await, "there is one");
    one.release().await.unwrap();
    assert!(peer.try_acquire(&name, 1, 1).await && peer.release(&name).await);
    assert_eq!(judge.permits(1), 1);
}

/// As an engine is told of it, to release it by hand.
fn grant_of(guard: &Guard) -> Grant {
    Grant {
        name: guard.name().clone(),
        claim: guard.claim(),
        hold: guard.id(),
        token: guard.token(),
        ttl: guard.ttl(),
        lease: Lease::Own { sent_at: BootClock.now() },
        server_micros: 0,
        place: None,
    }
}

async fn non_blocking_release(cx: Context) {
    let (a, name) = (cx.client().await, cx.name("m"));
    let (b, below) = cx.connect(60 * SEC).await;
    let mut peer = cx.puppet_with(60 * SEC).await;
    let guard = a.mutex(&name).lock().await.unwrap();
    let refused = b.mutex(&name).try_lock().await.unwrap();
    assert!(refused.is_err() && peer.try_lock(&name).await.is_none());
    drop(refused);
    // He has nothing to release: by word, and by a hold that was never granted.
    assert!(!peer.release(&name).await);
    let never = Grant { hold: HoldId::from_bytes(fastrand::u128(..).to_be_bytes()), ..grant_of(&guard) };
    match below.engine.release(&never).await.unwrap() {
        Released::NotHeld { holder: Some(holder) } => assert_eq!(holder.hold, guard.id()),
        other => panic!("{other:?}"),
    }
    guard.check().unwrap();
    assert!(peer.try_lock(&name).await.is_none(), "still held");
    assert_eq!(b.inspect(&name).await.unwrap().exclusive().map(|holder| holder.hold), Some(guard.id()));
    guard.release().await.unwrap();
    assert!(peer.try_lock(&name).await.is_some() && peer.release(&name).await);
}

async fn multiple_acquire_and_release(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    chaos.next(Operation::Acquire, 1, Trouble::Twice);
    let guard = client.mutex(&name).lock().await.unwrap();
    assert_eq!(other.inspect(&name).await.unwrap().holders.len(), 1, "acquired twice, held once");
    let grant = grant_of(&guard);
    guard.release().await.unwrap();
    let next = other.mutex(&name).try_lock().await.unwrap().expect("the first release frees it");
    match chaos.release(&grant).await.unwrap() {
        Released::NotHeld { holder: Some(holder) } => assert_eq!(holder.hold, next.id()),
        other => panic!("the second release: {other:?}"),
    }
    next.check().unwrap();
    next.release().await.unwrap();
    let answer = chaos.release(&grant).await.unwrap();
    assert!(matches!(answer, Released::NotHeld { holder: None }), "nothing was held: {answer:?}");
}

async fn handle_session_loss(cx: Context) {
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client_with(2 * cx.short()).await, cx.name("s"));
    let held = a.semaphore(&name, 2).acquire(2).await.unwrap();
    let wait = tokio::spawn(b.semaphore(&name, 2).acquire(1));
    let hold = cx.queued(&a, &name, 1).await.waiters[0].hold;
    cx.fixture().sessions().unwrap().end().await;
    let one = within("he queues again", wait).await.unwrap().unwrap();
    assert_ne!(one.id(), hold, "his old place was in the session that is over");
    one.check().unwrap();
    assert_eq!(within("told", held.lost()).await, LossReason::SessionEnded);
    // And no permit is gone with the session.
    let other = within("there are two", a.semaphore(&name, 2).acquire(1)).await.unwrap();
    one.release().await.unwrap();
    other.release().await.unwrap();
    within("there are two", a.semaphore(&name, 2).acquire(2)).await.unwrap().release().await.unwrap();
}

async fn inconsistent_max_leases(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    let held = a.semaphore(&name, 2).acquire(1).await.unwrap();
    for client in [&a, &b] {
        for other in [1, 3] {
            let wrong = client.semaphore(&name, other);
            let errors = [
                within("told", wrong.acquire(1)).await.unwrap_err(),
                wrong.try_acquire(1).await.unwrap_err(),
                within("told", wrong.try_acquire_for(1, STUCK)).await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::CapacityMismatch, "{error}");
            }
        }
        let status = client.inspect(&name).await.unwrap();
        assert_eq!((status.capacity, status.taken(), status.waiters.len()), (Some(2), 1, 0));
    }
    // Not at once: a database's row may be kept by what is undone of those before.
    let beside = b.semaphore(&name, 2).try_acquire_for(1, STUCK).await.unwrap();
    beside.expect("there are two").release().await.unwrap();
    held.check().unwrap();
    held.release().await.unwrap();
}

async fn acquire_after_cancelled(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    // Never polled; ended already; broken off before its first poll.
    drop(client.mutex(&name).lock());
    let done = tokio::spawn(client.mutex(&name).lock());
    eventually("granted", || async { done.is_finished() }).await;
    done.abort();
    done.await.unwrap().expect("it was ready").release().await.unwrap();
    tokio::time::timeout(Duration::ZERO, std::future::pending::<()>()).await.unwrap_err();
    let early = tokio::spawn(client.mutex(&name).lock());
    early.abort();
    drop(early.await);
    cx.free(&other, &name).await;
    for client in [&client, &other] {
        let guard = within("as if nothing had been", client.mutex(&name).lock()).await.unwrap();
        assert_eq!(client.inspect(&name).await.unwrap().holders.len(), 1);
        guard.release().await.unwrap();
    }
    eventually("nothing is renewed", || async { client.held() == 0 && other.held() == 0 }).await;
}

async fn election_cancel(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("e"));
    let mut term = client.election(&name).campaign("first").await.unwrap();
    let (mut tasks, mut clients) = (Vec::new(), Vec::new());
    for i in 0..5 {
        let other = cx.client().await;
        tasks.push(tokio::spawn(other.election(&name).campaign(format!("c{i}"))));
        clients.push(other);
        cx.queued(&client, &name, i + 1).await;
    }
    for (i, left) in [(1, 4), (2, 3)] {
        tasks[i].abort();
        cx.queued(&client, &name, left).await;
    }
    let status = cx.queued(&client, &name, 3).await;
    let notes: Vec<_> = status.waiters.iter().map(|waiter| &*waiter.note).collect();
    assert_eq!(notes, ["c0", "c3", "c4"]);
    let queue: Vec<_> = status.waiters.iter().map(|waiter| waiter.hold).collect();
    let kept = tasks.into_iter().enumerate().filter(|(i, _)| ![1, 2].contains(i)).map(|(_, task)| task);
    for (i, task) in kept.enumerate() {
        let freed = BootClock.now();
        term.resign().await.unwrap();
        cx.turn_of(&client, &name, &queue[i..], freed).await;
        term = within("his turn", task).await.unwrap().unwrap();
        assert_eq!(term.id(), queue[i]);
    }
    term.resign().await.unwrap();
}

async fn bad_func(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("e"));
    let lead = |election: fencelock_core::Election| async move {
        let term: Term = election.campaign("a").await?;
        let work = async { Err::<(), _>(Error::new(ErrorKind::Protocol, "work", "it has failed")) };
        term.run(work).await?
    };
    let failed = lead(a.election(&name)).await.unwrap_err();
    assert_eq!((failed.kind(), failed.operation()), (ErrorKind::Protocol, "work"), "{failed}");
    // A lease of a would last for a minute.
    let next = within("the term has ended", b.election(&name).campaign("b")).await.unwrap();
    next.resign().await.unwrap();
    let election = a.election(&name);
    let panics = tokio::spawn(async move {
        let term = election.campaign("a").await.unwrap();
        term.run(async { panic!("it has panicked") }).await
    });
    let panic = panics.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"it has panicked"));
    within("the term has ended", b.election(&name).campaign("b")).await.unwrap().resign().await.unwrap();
    assert_eq!(a.held(), 0);
}
