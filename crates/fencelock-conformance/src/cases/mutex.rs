//! redis.md 6.1: one holder at a time.
use super::prelude::*;

cases! {
    "redisson/lock-unlock" => lock_unlock;
    "redisson/reentrancy" => reentrancy;
    "redisson/get-hold-count" => get_hold_count;
    "redisson/is-locked" => is_locked;
    "redisson/is-held-by-current-thread" => is_held;
    "redisson/unlock-fail" => unlock_fail;
    "redisson/force-unlock" => force_unlock;
    "redisson/expire" => expire, needs: [FixedLeases];
    "redisson/auto-expire" => auto_expire, needs: [Crash];
    "redisson/remain-time-to-live" => remain_time_to_live, needs: [TtlPerHold];
    "redisson/remain-time-to-live-2" => remain_time_to_live_2, needs: [TtlPerHold];
    "redisson/try-lock-wait" => try_lock_wait, needs: [Alone];
    "redisson/lock-uninterruptibly" => lock_uninterruptibly;
    "redisson/not-renewed-after-interrupted-try" => not_renewed_after_interrupted_try;
    "redisson/redis-failed" => engine_failed, needs: [Alone, Server];
    "redisson/concurrency-single-instance" => concurrency_single_instance;
    "redisson/concurrency-multi-instance" => concurrency_multi_instance, limit: 60;
    "redisson/concurrency-try-lock-unlock" => concurrency_try_lock_unlock;
    "redisson/lock-listener" => lock_listener, needs: [Crash];
}
roles! {
    "count" => count;
}

async fn lock_unlock(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    for client in [&a, &a, &b, &a] {
        let guard = within("free", client.mutex(&name).lock()).await.unwrap();
        guard.check().unwrap();
        let status = b.inspect(&name).await.unwrap();
        assert_eq!(status.holders.iter().map(|holder| holder.hold).collect::<Vec<_>>(), [guard.id()]);
        guard.release().await.unwrap();
        let status = b.inspect(&name).await.unwrap();
        assert!(!status.is_held() && status.waiters.is_empty(), "{status:?}");
    }
}

async fn reentrancy(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let me = a.owner();
    let mine = a.mutex(&name).reentrant(&me);
    let first = mine.lock().await.unwrap();
    let mut guards = vec![
        within("again", mine.lock()).await.unwrap(),
        within("at once", mine.try_lock()).await.unwrap().unwrap(),
        within("in time", mine.try_lock_for(STUCK)).await.unwrap().unwrap(),
    ];
    assert!(guards.iter().all(|guard| (guard.token(), guard.id()) == (first.token(), first.id())));
    guards.push(first);
    // Not from the innermost one outwards: which guard goes last does not matter.
    while let Some(guard) = guards.pop() {
        assert_eq!(usize::try_from(guard.entries()).unwrap(), guards.len() + 1);
        for client in [&a, &b] {
            assert!(client.mutex(&name).try_lock().await.unwrap().is_err(), "a stranger is in");
        }
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(me.entries(&name), 0);
    let next = b.mutex(&name).try_lock().await.unwrap().expect("the outermost release frees it");
    assert!(mine.try_lock().await.unwrap().is_err(), "an owner that has left is a stranger");
    next.release().await.unwrap();
}

async fn get_hold_count(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let me = client.owner();
    let mine = client.mutex(&name).reentrant(&me);
    assert_eq!(me.entries(&name), 0);
    let one = mine.lock().await.unwrap();
    assert_eq!((me.entries(&name), one.entries()), (1, 1));
    one.release().await.unwrap();
    assert_eq!(me.entries(&name), 0);
    let one = mine.lock().await.unwrap();
    let two = mine.lock().await.unwrap();
    assert_eq!((me.entries(&name), one.entries(), two.entries()), (2, 2, 2));
    one.release().await.unwrap();
    assert_eq!((me.entries(&name), two.entries()), (1, 1));
    drop(two);
    assert_eq!(me.entries(&name), 0);
}

async fn is_locked(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    for client in [&a, &b] {
        let status = client.inspect(&name).await.unwrap();
        assert_eq!((status.is_held(), status.kind), (false, None), "never used");
    }
    let guard = a.mutex(&name).note("shipping").lock().await.unwrap();
    for client in [&a, &b] {
        let status = client.inspect(&name).await.unwrap();
        let holder = status.exclusive().expect("held");
        assert_eq!((holder.hold, holder.token, holder.claim), (guard.id(), guard.token(), Claim::Mutex));
        assert_eq!((&*holder.note, holder.pid, status.kind), ("shipping", std::process::id(), Some(Kind::Mutex)));
        assert!(!client.inspect(cx.name("other")).await.unwrap().is_held());
    }
    let last = cx.tells_last_token().then_some(guard.token());
    guard.release().await.unwrap();
    for client in [&a, &b] {
        let status = client.inspect(&name).await.unwrap();
        assert_eq!((status.is_held(), status.kind, status.last_token), (false, None, last));
    }
}

async fn is_held(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    assert!(guard.is_valid() && !guard.remaining().is_zero());
    assert_eq!((a.held(), b.held(), guard.name().as_str()), (1, 0, name.as_str()));
    // Also another handle of the same client is told who has it, and has nothing.
    for client in [&a, &b] {
        let busy = client.mutex(&name).try_lock().await.unwrap().unwrap_err();
        assert_eq!(busy.holder.expect("the engine tells").hold, guard.id());
    }
    assert_eq!((a.held(), b.held()), (1, 0));
    guard.release().await.unwrap();
    assert_eq!((a.held(), b.held()), (0, 0));
}

async fn unlock_fail(cx: Context) {
    let (a, name) = (cx.client().await, cx.name("m"));
    let (b, below) = cx.connect(cx.short()).await;
    let guard = a.mutex(&name).lock().await.unwrap();
    let ours = Grant {
        name: guard.name().clone(),
        claim: Claim::Mutex,
        hold: guard.id(),
        token: guard.token(),
        ttl: guard.ttl(),
        lease: Lease::Own { sent_at: BootClock.now() },
        server_micros: 0,
        place: None,
    };
    let (before, after) = (Token::new(guard.token().get() - 1).unwrap(), Token::new(guard.token().get() + 1).unwrap());
    let stranger = HoldId::from_bytes(fastrand::u128(..).to_be_bytes());
    // Hold id *and* token must be the holder's (SAFETY A1).
    for (hold, token) in [(stranger, guard.token()), (guard.id(), before), (guard.id(), after), (stranger, after)] {
        let answer = below.engine.release(&Grant { hold, token, ..ours.clone() }).await.unwrap();
        match answer {
            Released::NotHeld { holder: Some(holder) } => assert_eq!(holder.hold, guard.id()),
            other => panic!("a stranger's release: {other:?}"),
        }
    }
    for token in [before, after] {
        let answer = b.force_release(&name, token).await.unwrap();
        assert!(matches!(answer, Released::NotHeld { .. }), "{answer:?}");
    }
    assert!(b.mutex(&name).try_lock().await.unwrap().is_err());
    guard.check().unwrap();
    guard.release().await.unwrap();
}

async fn force_unlock(cx: Context) {
    // Short: some engines tell it with the next renewal.
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    let lost = guard.lost();
    assert_eq!(b.force_release(&name, guard.token()).await.unwrap(), Released::Released);
    assert!(!b.inspect(&name).await.unwrap().is_held());
    let next = within("free", b.mutex(&name).lock()).await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(within("told", lost).await, LossReason::TakenOver);
    assert!(guard.check().is_err());
    // What the old holder does now changes nothing.
    let late = guard.release().await.unwrap_err();
    assert!(matches!(late.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{late}");
    assert_eq!(a.inspect(&name).await.unwrap().holders[0].hold, next.id());
    next.check().unwrap();
    next.release().await.unwrap();
}

async fn expire(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let began = Instant::now();
    let held = a.mutex(&name).lease(cx.short()).lock().await.unwrap();
    let next = within("the lease has ended", b.mutex(&name).lock()).await.unwrap();
    let granted = BootClock.now();
    assert!(granted >= held.valid_until() && !held.is_valid(), "granted within the claimed validity of the other");
    assert!(began.elapsed() >= cx.short() * 9 / 10, "{:?}", began.elapsed());
    // On a busy machine the engine may be first to tell, and call it something else.
    within("told", held.lost()).await;
    assert!(next.token() > held.token());
    assert!(held.release().await.is_err(), "a lease that ran out cannot be released");
    next.check().unwrap();
    next.release().await.unwrap();
}

async fn auto_expire(cx: Context) {
    let (client, mut gone, name) = (cx.client().await, cx.puppet().await, cx.name("m"));
    let old = gone.lock(&name).await;
    let wait = tokio::spawn(client.mutex(&name).lock());
    cx.queued(&client, &name, 1).await;
    gone.crash().await;
    let next = within("free within the lease or session time", wait).await.unwrap().unwrap();
    assert!(next.token() > old);
    next.release().await.unwrap();
}

async fn remain_time_to_live(cx: Context) {
    let (ttl, other) = (Duration::from_secs(60), Duration::from_secs(300));
    let (a, b, name) = (cx.client_with(ttl).await, cx.client().await, cx.name("m"));
    assert_eq!(a.ttl(), ttl);
    let mutex = a.mutex(&name);
    for (mutex, ttl) in [(mutex.clone(), ttl), (mutex.ttl(other), other)] {
        let guard = mutex.lock().await.unwrap();
        assert_eq!(guard.ttl(), ttl);
        let left = b.inspect(&name).await.unwrap().holders[0].left;
        for left in [guard.remaining(), left.saturating_sub(cx.rounds_up())] {
            assert!(left <= ttl && left > ttl - STUCK, "{left:?} of {ttl:?}");
        }
        guard.release().await.unwrap();
        assert!(b.inspect(&name).await.unwrap().holders.is_empty());
    }
}

async fn remain_time_to_live_2(cx: Context) {
    let ttl = Duration::from_secs(60);
    let (client, name) = (cx.client().await, cx.name("m"));
    let me = client.owner();
    let mine = client.mutex(&name).ttl(ttl).reentrant(&me);
    let (last, mut more) = (mine.lock().await.unwrap(), Vec::new());
    for _ in 0..2 {
        more.push(mine.lock().await.unwrap());
    }
    assert_eq!(last.entries(), 3);
    while let Some(one) = more.pop() {
        let before = last.remaining();
        one.release().await.unwrap();
        assert!(last.remaining() + SEC > before, "a release of one entry takes nothing from the hold");
        let status = client.inspect(&name).await.unwrap();
        assert_eq!((status.holders.len(), status.holders[0].hold), (1, last.id()));
        for left in [last.remaining(), status.holders[0].left.saturating_sub(cx.rounds_up())] {
            assert!(left <= ttl && left > ttl - STUCK, "{left:?} of {ttl:?}");
        }
    }
    last.release().await.unwrap();
    assert!(!client.inspect(&name).await.unwrap().is_held());
}

async fn try_lock_wait(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).note("shipping").lock().await.unwrap();
    for patience in [100 * MS, SEC] {
        let began = Instant::now();
        let busy = within("its time", b.mutex(&name).try_lock_for(patience)).await.unwrap().unwrap_err();
        assert!(began.elapsed() >= patience, "{:?} of {patience:?}", began.elapsed());
        cx.in_time("and not much later", began.elapsed(), patience + 500 * MS);
        // Within a tenth of a second a busy engine may not have told.
        assert!(busy.holder.is_some_and(|holder| &*holder.note == "shipping") || patience < SEC);
    }
    cx.queued(&a, &name, 0).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
}

async fn lock_uninterruptibly(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let mut wait = client.mutex(&name).lock();
    // A wake-up that is not for it does not end it, however often.
    for _ in 0..1000 {
        assert!(once(&mut wait).await.is_none());
        tokio::task::yield_now().await;
    }
    cx.queued(&client, &name, 1).await;
    assert!(once(&mut wait).await.is_none());
    guard.release().await.unwrap();
    within("in", wait).await.unwrap().release().await.unwrap();
}

async fn not_renewed_after_interrupted_try(cx: Context) {
    let (a, b, c, name) = (cx.client().await, cx.client().await, cx.client().await, cx.name("m"));
    for round in 0..20 {
        let guard = a.mutex(&name).lock().await.unwrap();
        let wait = tokio::spawn({
            let wait = b.mutex(&name).try_lock_for(STUCK);
            async move { drop(tokio::time::timeout(2 * MS * round, wait).await) }
        });
        // Broken off before it queues, while it waits, and while it is granted.
        if round % 2 == 1 {
            tokio::time::sleep(MS * round).await;
        }
        guard.release().await.unwrap();
        wait.await.unwrap();
        // A lease of b would last for a minute: this is a release.
        within("nobody has it", c.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    }
    eventually("nothing is renewed", || async { b.held() == 0 }).await;
}

async fn engine_failed(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    client.mutex(&name).lock().await.unwrap().release().await.unwrap();
    let server = cx.fixture().server().unwrap();
    server.stop().await;
    let began = Instant::now();
    let answer = within("it does not hang", client.mutex(&name).try_lock_for(300 * MS)).await;
    let error = answer.expect_err("neither free nor held: nobody knows");
    assert!(error.is_temporary(), "{error}");
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Ambiguous), "{error}");
    assert!(began.elapsed() >= 300 * MS || error.kind() == ErrorKind::Unreachable, "{error}");
    cx.in_time("told", began.elapsed(), 2 * SEC);
    server.start().await;
    within("back again", client.mutex(&name).lock()).await.unwrap().release().await.unwrap();
}

async fn concurrency_single_instance(cx: Context) {
    let (client, judge, name) = (cx.client().await, cx.judge("m"), cx.name("m"));
    let (tasks, rounds) = (16, tenth(100));
    let tasks: Vec<_> = (0..tasks)
        .map(|i| {
            let (mutex, judge) = (client.mutex(&name), judge.clone());
            tokio::spawn(async move {
                for _ in 0..rounds {
                    let guard = mutex.lock().await.unwrap();
                    judge.work(&format!("task-{i}"), &guard).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    judge.verdict(16 * u64::try_from(rounds).unwrap());
}

/// Half of them are processes, where the engine has them.
async fn concurrency_multi_instance(cx: Context) {
    let (judge, name) = (cx.judge("m"), cx.name("m"));
    let (clients, rounds) = (tenth(100) / 2, 20);
    let mut peers = Vec::new();
    for i in 0..clients {
        let words = [&name, judge.place().to_str().unwrap(), &format!("peer-{i}"), &rounds.to_string()];
        peers.push(cx.peer_with(60 * SEC, "count", &words).await);
    }
    let mut tasks = Vec::new();
    for i in 0..clients {
        let (client, judge, name) = (cx.client().await, judge.clone(), name.clone());
        tasks.push(tokio::spawn(async move { rounds_of_work(&client, &name, &judge, &format!("here-{i}"), rounds).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for peer in peers {
        peer.finish().await;
    }
    judge.verdict(2 * u64::try_from(clients).unwrap() * rounds);
}
/// `count NAME JUDGE WHO ROUNDS`
async fn count(me: RoleContext) {
    let judge = Judge::at(me.words[1].as_ref());
    rounds_of_work(&me.client, &me.words[0], &judge, &me.words[2], me.number(3)).await;
}
async fn rounds_of_work(client: &Client, name: &str, judge: &Judge, who: &str, rounds: u64) {
    for _ in 0..rounds {
        let guard = client.mutex(name).lock().await.unwrap();
        judge.work(who, &guard).await;
        guard.release().await.unwrap();
    }
}

async fn concurrency_try_lock_unlock(cx: Context) {
    let ttl = 3 * cx.short();
    let (client, kept) = (cx.client_with(ttl).await, cx.name("kept"));
    let keep = client.mutex(&kept).lock().await.unwrap();
    let end = Instant::now() + ttl + cx.short();
    let tasks: Vec<_> = (0..16)
        .map(|i| {
            let mutex = client.mutex(cx.name(&format!("m{}", i % 4)));
            tokio::spawn(async move {
                let mut rounds = 0;
                while rounds < tenth(10_000) || Instant::now() < end {
                    if let Ok(guard) = mutex.try_lock().await.unwrap() {
                        let granted = Instant::now();
                        let released = guard.release().await;
                        released.unwrap_or_else(|e| panic!("{:?} after its grant: {e}", granted.elapsed()));
                    }
                    rounds += 1;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    keep.check().expect("renewed all the time");
    assert_eq!((client.held(), client.inspect(&kept).await.unwrap().holders[0].hold), (1, keep.id()));
    keep.release().await.unwrap();
    assert_eq!(client.held(), 0);
}

async fn lock_listener(cx: Context) {
    let (a, (b, chaos), name) = (cx.client().await, cx.chaos(60 * SEC).await, cx.name("m"));
    let mut observer = b.election(&name).observe();
    assert_eq!(within("what is so now", observer.changed()).await.unwrap(), None);
    for _ in 0..3 {
        let guard = a.mutex(&name).note("shipping").lock().await.unwrap();
        let leader = within("a grant", observer.changed()).await.unwrap().expect("held");
        assert_eq!((&*leader.candidate, leader.term), ("shipping", guard.token()));
        guard.release().await.unwrap();
        assert_eq!(within("a release", observer.changed()).await.unwrap(), None);
        assert!(tokio::time::timeout(30 * MS, observer.changed()).await.is_err(), "a release is told once");
    }
    let mut gone = cx.puppet().await;
    let token = gone.lock(&name).await;
    assert_eq!(within("a grant", observer.changed()).await.unwrap().expect("held").term, token);
    gone.crash().await;
    assert_eq!(within("an end without a release", observer.changed()).await.unwrap(), None);
    assert!(tokio::time::timeout(30 * MS, observer.changed()).await.is_err(), "an end is told once");
    drop(observer);
    let asked = chaos.calls(Operation::Observe);
    for _ in 0..3 {
        a.mutex(&name).lock().await.unwrap().release().await.unwrap();
    }
    assert_eq!(chaos.calls(Operation::Observe), asked, "asked for after it was dropped");
}
