//! sql.md 12.1: madelson, its abstract cases.
use super::prelude::*;
use crate::context::void;

cases! {
    "madelson/basic-test" => basic_test;
    "madelson/bad-arguments" => bad_arguments;
    "madelson/dispose-handle-is-idempotent" => dispose_is_idempotent;
    "madelson/get-safe-name" => get_safe_name;
    "madelson/lock-names-are-case-sensitive" => names_are_case_sensitive, needs: [OddNames];
    "madelson/handle-lost-triggers-correctly" => lost_triggers_correctly, needs: [Silence];
    "madelson/handle-lost-already-canceled" => lost_before_the_first_look;
    "madelson/dispose-while-monitoring" => dispose_while_monitoring;
    "madelson/cross-process" => cross_process;
    "madelson/cross-process-abandonment" => cross_process_abandonment;
    "madelson/cross-process-with-kill" => cross_process_with_kill, needs: [Crash];
    "madelson/writer-trumps-reader" => writer_trumps_reader, needs: [ReadWrite, WritersTurn];
    "madelson/max-count" => max_count, needs: [Permits, ManyPermits];
    "madelson/concurrency-handling" => concurrency_handling, needs: [Permits];
    "madelson/high-ticket-count" => high_ticket_count, needs: [Permits, ManyPermits];
    "madelson/self-deadlock-wait" => self_deadlock_wait, needs: [Permits];
    "madelson/composite-argument-validation" => composite_arguments;
    "madelson/composite-successful-acquisition" => composite_acquisition;
    "madelson/composite-throws-on-timeout" => composite_timeout;
    "madelson/composite-remaining-time" => composite_remaining_time;
    "madelson/composite-handle-lost-token" => composite_lost;
}
roles! {}

/// What a client would say of this hold to its engine.
pub(super) fn grant_of(guard: &Guard) -> Grant {
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
/// A release of this grant is refused.
pub(super) async fn is_refused(engine: &Arc<dyn Engine>, grant: &Grant) {
    let answer = engine.release(grant).await.unwrap();
    assert!(matches!(answer, Released::NotHeld { .. }), "{answer:?} to {grant:?}");
}
/// It is not ready now, nor a moment later.
pub(super) async fn is_silent<T>(what: &str, future: impl Future<Output = T>) {
    assert!(tokio::time::timeout(50 * MS, future).await.is_err(), "{what}");
}

async fn basic_test(cx: Context) {
    let (a, b) = (cx.client().await, cx.client().await);
    let (name, other) = (cx.name("m"), cx.name("other"));
    for _ in 0..2 {
        let guard = a.mutex(&name).try_lock().await.unwrap().expect("free");
        let busy = b.mutex(&name).try_lock().await.unwrap().unwrap_err();
        assert_eq!(busy.holder.expect("the engine tells").hold, guard.id());
        let beside = b.mutex(&other).try_lock().await.unwrap().expect("another name is another lock");
        guard.release().await.unwrap();
        let next = b.mutex(&name).try_lock().await.unwrap().expect("free after the release");
        next.release().await.unwrap();
        beside.release().await.unwrap();
    }
}

async fn bad_arguments(cx: Context) {
    let ((client, chaos), name) = (cx.chaos(60 * SEC).await, cx.name("m"));
    let (mutex, rw, few) = (client.mutex(&name), client.rw_lock(&name), client.semaphore(&name, 3));
    let (zero, endless) = (Duration::ZERO, Duration::MAX);
    for ttl in [zero, endless] {
        let answers = [
            mutex.clone().ttl(ttl).lock().await.err(),
            mutex.clone().lease(ttl).try_lock().await.err(),
            rw.clone().ttl(ttl).read().await.err(),
            rw.clone().lease(ttl).try_write_for(SEC).await.err(),
            few.clone().ttl(ttl).acquire(1).await.err(),
        ];
        for error in answers {
            assert_eq!(error.expect("refused").kind(), ErrorKind::InvalidConfig, "{ttl:?}");
        }
    }
    let answers = [
        mutex.clone().max_hold(zero).lock().await.err(),
        mutex.clone().at_least(endless).lock().await.err(),
        mutex.clone().ttl(SEC).lease(SEC).lock().await.err(),
        few.acquire(0).await.err(),
        few.acquire(4).await.err(),
        client.semaphore(&name, 0).acquire(0).await.err(),
    ];
    for error in answers {
        assert_eq!(error.expect("refused").kind(), ErrorKind::InvalidConfig);
    }
    assert_eq!((chaos.calls(Operation::Acquire), client.held()), (0, 0), "before anything is sent");
    // A wait has no longest time.
    mutex.try_lock_for(endless).await.unwrap().expect("free").release().await.unwrap();
}

async fn dispose_is_idempotent(cx: Context) {
    let (client, below) = cx.connect(60 * SEC).await;
    let ((b, chaos), name) = (cx.chaos(60 * SEC).await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let ours = grant_of(&guard);
    guard.release().await.unwrap();
    is_refused(&below.engine, &ours).await;
    // Also when the newer grant is of the same client.
    for other in [&client, &b] {
        let next = other.mutex(&name).try_lock().await.unwrap().expect("free");
        is_refused(&below.engine, &ours).await;
        next.check().unwrap();
        assert_eq!(b.inspect(&name).await.unwrap().holders[0].hold, next.id());
        // Asked twice in one: the second one says that it was not held, or nothing.
        chaos.next(Operation::Release, 1, Trouble::Twice);
        let _ = next.release().await;
        cx.free(&client, &name).await;
    }
}

async fn get_safe_name(cx: Context) {
    let client = cx.client().await;
    for fill in ["a", "\\", "/", "ä", "%", "'"] {
        let start = cx.name(fill);
        let longest = format!("{start}{}", fill.repeat((cx.longest_name() - start.len()) / fill.len()));
        let guard = client.mutex(&longest).lock().await.unwrap();
        assert!(client.mutex(&longest).try_lock().await.unwrap().is_err());
        let status = client.inspect(&longest).await.unwrap();
        assert_eq!((status.holders[0].hold, status.name.as_str()), (guard.id(), longest.as_str()), "kept as it is");
        guard.release().await.unwrap();
    }
    // Never "busy", and never another lock that its name was cut down to.
    for bad in [String::new(), "a".repeat(1000), "\\".repeat(1000), cx.name("a\0b")] {
        let answers = [
            client.mutex(&bad).try_lock().await.err(),
            client.rw_lock(&bad).try_read().await.err(),
            client.semaphore(&bad, 1).try_acquire(1).await.err(),
            client.election(&bad).try_campaign("me").await.err(),
            client.inspect(&bad).await.err(),
        ];
        for error in answers {
            assert_eq!(error.expect("refused").kind(), ErrorKind::InvalidName, "{:?}", bad.get(..2));
        }
    }
}

async fn names_are_case_sensitive(cx: Context) {
    let (a, b) = (cx.client().await, cx.client().await);
    let names = ["lock", "Lock", "LOCK", "lock ", " lock", "ß", "ss", "ẞ", "é", "É", "e\u{301}"].map(|name| cx.name(name));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(a.mutex(name).try_lock().await.unwrap().expect("a lock of its own"));
    }
    for (name, guard) in names.iter().zip(guards) {
        assert!(b.mutex(name).try_lock().await.unwrap().is_err());
        assert_eq!(b.inspect(name).await.unwrap().holders[0].hold, guard.id());
        guard.release().await.unwrap();
        b.mutex(name).try_lock().await.unwrap().expect("this one is free").release().await.unwrap();
    }
}

async fn lost_triggers_correctly(cx: Context) {
    let (a, silence) = cx.silenceable(2 * cx.short()).await;
    let (b, name) = (cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    let (lost, suspect) = (guard.lost(), guard.suspect());
    guard.release().await.unwrap();
    is_silent("a release is no loss", async { tokio::select! { _ = lost => (), () = suspect => () } }).await;
    // Its lease is broken.
    let guard = a.mutex(&name).lock().await.unwrap();
    let lost = tokio::spawn(guard.lost());
    assert_eq!(b.force_release(&name, guard.token()).await.unwrap(), Released::Released);
    assert_eq!(within("told", lost).await.unwrap(), LossReason::TakenOver);
    assert!(!guard.is_valid() && guard.release().await.is_err());
    // Its way is.
    let guard = a.mutex(&name).lock().await.unwrap();
    silence.begin().await;
    let next = tokio::spawn(b.mutex(&name).lock());
    within("told", guard.lost()).await;
    silence.let_others().await;
    let next = within("free", next).await.unwrap().unwrap();
    silence.end().await;
    assert!(guard.release().await.is_err());
    next.release().await.unwrap();
}

async fn lost_before_the_first_look(cx: Context) {
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    b.force_release(&name, guard.token()).await.unwrap();
    eventually("it is lost", || async { !guard.is_valid() }).await;
    for _ in 0..2 {
        assert_eq!(once(&mut Box::pin(guard.lost())).await, Some(LossReason::TakenOver));
    }
    assert!(once(&mut Box::pin(guard.suspect())).await.is_some());
    let answer = guard.run(async { panic!("nothing begins under a lock that is lost") }).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Lost);
}

async fn dispose_while_monitoring(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    for round in 0..tenth(200) {
        let guard = client.mutex(&name).lock().await.unwrap();
        let watches: Vec<_> = (0..4)
            .map(|i| {
                let (lost, suspect, renewed) = (guard.lost(), guard.suspect(), guard.renewed());
                tokio::spawn(async move {
                    match i {
                        0 | 3 => drop(lost.await),
                        1 => suspect.await,
                        _ => renewed.await,
                    }
                })
            })
            .collect();
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        within("no watch stands in the way", guard.release()).await.unwrap();
        for (i, watch) in watches.into_iter().enumerate() {
            if i == 2 && watch.is_finished() {
                void("it was renewed before it was released".to_owned());
            }
            assert!(!watch.is_finished(), "a release is no loss and no renewal");
            watch.abort();
        }
    }
}

async fn cross_process(cx: Context) {
    let (client, mut other, name) = (cx.client().await, cx.puppet().await, cx.name("m"));
    let token = other.lock(&name).await;
    assert!(client.mutex(&name).try_lock().await.unwrap().is_err());
    assert!(client.mutex(&name).try_lock_for(30 * MS).await.unwrap().is_err());
    let wait = tokio::spawn(client.mutex(&name).lock());
    cx.queued(&client, &name, 1).await;
    assert!(other.release(&name).await);
    let guard = within("free", wait).await.unwrap().unwrap();
    assert!(guard.token() > token && other.try_lock(&name).await.is_none());
    guard.release().await.unwrap();
    assert!(other.try_lock(&name).await.is_some() && other.release(&name).await);
}

async fn cross_process_abandonment(cx: Context) {
    let (client, mut other, name) = (cx.client().await, cx.puppet_with(60 * SEC).await, cx.name("m"));
    let token = other.lock(&name).await;
    let wait = tokio::spawn(client.mutex(&name).lock());
    cx.queued(&client, &name, 1).await;
    other.forget(&name).await;
    let guard = within("free", wait).await.unwrap().unwrap();
    assert!(guard.token() > token);
    guard.release().await.unwrap();
}

async fn cross_process_with_kill(cx: Context) {
    let (client, mut other, name) = (cx.client().await, cx.puppet().await, cx.name("m"));
    let token = other.lock(&name).await;
    assert!(client.mutex(&name).try_lock().await.unwrap().is_err());
    other.crash().await;
    let guard = within("in time", client.mutex(&name).lock()).await.unwrap();
    assert!(guard.token() > token);
    guard.release().await.unwrap();
}

async fn writer_trumps_reader(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let first = a.rw_lock(&name).read().await.unwrap();
    let beside = b.rw_lock(&name).try_read().await.unwrap().expect("nobody writes");
    let write = tokio::spawn(b.rw_lock(&name).write());
    cx.queued(&a, &name, 1).await;
    for client in [&a, &b] {
        assert!(client.rw_lock(&name).try_read().await.unwrap().is_err(), "a writer waits");
    }
    let late = tokio::spawn(cx.client().await.rw_lock(&name).read());
    cx.queued(&a, &name, 2).await;
    first.release().await.unwrap();
    beside.release().await.unwrap();
    let write = within("his turn", write).await.unwrap().unwrap();
    assert_eq!(a.inspect(&name).await.unwrap().holders.len(), 1);
    write.release().await.unwrap();
    within("his turn", late).await.unwrap().unwrap().release().await.unwrap();
}

async fn max_count(cx: Context) {
    let client = cx.client().await;
    for size in [1, 2, 1000, i32::MAX.unsigned_abs(), u32::MAX] {
        let name = cx.name(&format!("of-{size}"));
        let all = client.semaphore(&name, size).acquire(size).await.unwrap();
        let status = client.inspect(&name).await.unwrap();
        assert_eq!((status.capacity, status.taken(), status.free_permits()), (Some(size), u64::from(size), Some(0)));
        assert_eq!(all.claim(), Claim::Permits { take: size, of: size });
        assert!(client.semaphore(&name, size).try_acquire(1).await.unwrap().is_err());
        let other = client.semaphore(&name, size - 1).try_acquire(1).await;
        let kind = if size == 1 { ErrorKind::InvalidConfig } else { ErrorKind::CapacityMismatch };
        assert_eq!(other.unwrap_err().kind(), kind);
        all.release().await.unwrap();
        // Another mismatch does not change it.
        client.semaphore(&name, size).try_acquire(size).await.unwrap().expect("free").release().await.unwrap();
    }
}

async fn concurrency_handling(cx: Context) {
    let client = cx.client().await;
    for size in 1..=3 {
        let (name, judge) = (cx.name(&format!("of-{size}")), cx.judge(&format!("{size}")));
        let few = client.semaphore(&name, size);
        let mut inside = Vec::new();
        for _ in 0..size {
            inside.push(few.try_acquire(1).await.unwrap().expect("there is one"));
        }
        assert!(few.try_acquire(1).await.unwrap().is_err(), "{size} are inside");
        let next = tokio::spawn(cx.client().await.semaphore(&name, size).acquire(1));
        cx.queued(&client, &name, 1).await;
        inside.pop().unwrap().release().await.unwrap();
        inside.push(within("one has left", next).await.unwrap().unwrap());
        assert!(few.try_acquire(1).await.unwrap().is_err(), "{size} are inside again");
        drop(inside);
        let mut tasks = Vec::new();
        for i in 0..6 {
            let (few, judge) = (cx.client().await.semaphore(&name, size), judge.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = few.acquire(1).await.unwrap();
                    judge.share(&format!("t{i}"), &guard).await;
                    guard.release().await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert!(judge.permits(size) >= 1);
    }
}

async fn high_ticket_count(cx: Context) {
    let (client, name, size) = (cx.client().await, cx.name("many"), i32::MAX.unsigned_abs());
    let many = client.semaphore(&name, size);
    let mut guards = Vec::new();
    for _ in 0..100 {
        guards.push(many.try_acquire(1).await.unwrap().expect("there are many"));
    }
    let status = client.inspect(&name).await.unwrap();
    assert_eq!((status.taken(), status.free_permits()), (100, Some(u64::from(size) - 100)));
    assert!(many.try_acquire(size - 99).await.unwrap().is_err());
    guards.push(many.try_acquire(size - 100).await.unwrap().expect("all the others"));
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert!(!client.inspect(&name).await.unwrap().is_held());
}

async fn self_deadlock_wait(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("two"));
    let two = client.semaphore(&name, 2);
    let all = [two.acquire(1).await.unwrap(), two.acquire(1).await.unwrap()];
    for patience in [Duration::ZERO, MS, 100 * MS] {
        let began = Instant::now();
        assert!(within("it ends", two.try_acquire_for(1, patience)).await.unwrap().is_err());
        assert!(began.elapsed() >= patience);
    }
    let wait = tokio::spawn(two.acquire(1));
    cx.queued(&client, &name, 1).await;
    wait.abort();
    cx.queued(&client, &name, 0).await;
    assert!(all.iter().all(|guard| guard.is_valid()));
    drop(all);
    within("free", two.acquire(2)).await.unwrap().release().await.unwrap();
}

async fn composite_arguments(cx: Context) {
    let ((client, chaos), name) = (cx.chaos(60 * SEC).await, cx.name("m"));
    let other = cx.client().await;
    let (mutex, rw, few) = (client.mutex(&name), client.rw_lock(&name), client.semaphore(cx.name("few"), 2));
    let wrong = [
        MultiLock::new(Vec::<fencelock_core::Member>::new()),
        MultiLock::new([mutex.clone(), mutex.clone()]),
        MultiLock::new([mutex.clone(), other.mutex(&name)]),
        MultiLock::new([rw.reading(), rw.writing()]),
        MultiLock::new([few.permits(1), few.permits(1)]),
        MultiLock::new([few.permits(0)]),
        MultiLock::new([few.permits(3)]),
        MultiLock::new([mutex.ttl(Duration::ZERO)]),
    ];
    for multi in wrong {
        let answers = [multi.lock().await.err(), multi.try_lock().await.err(), multi.try_lock_for(SEC).await.err()];
        for error in answers {
            assert_eq!(error.expect("refused").kind(), ErrorKind::InvalidConfig, "{multi:?}");
        }
    }
    let nameless = MultiLock::new([client.mutex(cx.name("a")), client.mutex("")]).lock().await;
    assert_eq!(nameless.unwrap_err().kind(), ErrorKind::InvalidName);
    assert_eq!((chaos.calls(Operation::Acquire), client.held()), (0, 0), "before anything is sent");
}

async fn composite_acquisition(cx: Context) {
    let (b, names) = (cx.client().await, ["a", "b", "c"].map(|name| cx.name(name)));
    let tap = super::spring::Tap::new(cx.connect(60 * SEC).await.1.engine);
    let a = Client::builder(tap.clone()).build().unwrap();
    let multi = MultiLock::new([2, 0, 1].map(|i| a.mutex(&names[i])));
    for dropped in [false, true] {
        let guard = multi.lock().await.unwrap();
        assert!(guard.is_valid() && guard.members().len() == 3 && guard.tokens().len() == 3);
        for (name, member) in names.iter().zip(guard.members()) {
            assert_eq!(member.name().as_str(), name, "taken in the order of names");
            assert!(b.mutex(name).try_lock().await.unwrap().is_err());
            assert_eq!(b.inspect(name).await.unwrap().holders[0].hold, member.id());
        }
        let waits = names.each_ref().map(|name| tokio::spawn(b.mutex(name).lock()));
        tap.forget();
        if dropped { drop(guard) } else { guard.release().await.unwrap() }
        for wait in waits {
            within("free", wait).await.unwrap().unwrap().release().await.unwrap();
        }
        if !dropped {
            let back: Vec<_> = names.iter().rev().cloned().collect();
            assert_eq!(tap.names(Operation::Release), back, "in reverse order");
        }
    }
}

async fn composite_timeout(cx: Context) {
    let (a, b, names) = (cx.client().await, cx.client().await, ["a", "b", "c"].map(|name| cx.name(name)));
    let busy = b.mutex(&names[1]).note("shipping").lock().await.unwrap();
    let multi = MultiLock::new(names.each_ref().map(|name| a.mutex(name)));
    let began = Instant::now();
    let in_the_way = within("its time", multi.try_lock_for(SEC)).await.unwrap().unwrap_err();
    assert!(began.elapsed() >= SEC);
    assert_eq!(in_the_way.holder.expect("the engine tells").hold, busy.id());
    assert_eq!(&*who_has_it(|| multi.try_lock()).await.note, "shipping");
    for name in [&names[0], &names[2]] {
        b.mutex(name).try_lock_for(STUCK).await.unwrap().expect("given back").release().await.unwrap();
    }
    cx.queued(&b, &names[1], 0).await;
    busy.release().await.unwrap();
    multi.try_lock_for(STUCK).await.unwrap().expect("all are free").release().await.unwrap();
}

async fn composite_remaining_time(cx: Context) {
    let (a, b, names) = (cx.client().await, cx.client().await, ["a", "b"].map(|name| cx.name(name)));
    let first = b.mutex(&names[0]).lock().await.unwrap();
    let second = b.mutex(&names[1]).lock().await.unwrap();
    let multi = MultiLock::new(names.each_ref().map(|name| a.mutex(name)));
    let began = Instant::now();
    let frees_the_first = async {
        tokio::time::sleep(800 * MS).await;
        first.release().await.unwrap();
    };
    // With a time of its own the second member would end after this.
    let too_long = tokio::time::sleep(1700 * MS);
    tokio::select! {
        biased;
        (busy, ()) = async { tokio::join!(multi.try_lock_for(SEC), frees_the_first) } => assert!(busy.unwrap().is_err()),
        () = too_long => panic!("each member had the whole time"),
    }
    assert!(began.elapsed() >= SEC);
    assert_eq!(a.held(), 0);
    second.release().await.unwrap();
}

async fn composite_lost(cx: Context) {
    let (a, b) = (cx.client_with(2 * cx.short()).await, cx.client().await);
    let names = ["a", "b", "c"].map(|name| cx.name(name));
    let multi = MultiLock::new(names.each_ref().map(|name| a.mutex(name)));
    let guard = multi.lock().await.unwrap();
    let (name, token) = guard.tokens()[1].clone();
    let work = guard.run(std::future::pending::<()>());
    let (answer, broken) = tokio::join!(within("told", work), b.force_release(name.as_str(), token));
    assert_eq!((answer.unwrap_err().kind(), broken.unwrap()), (ErrorKind::Lost, Released::Released));
    assert_eq!(within("told", guard.lost()).await, (name.clone(), LossReason::TakenOver));
    let error = guard.check().unwrap_err();
    assert!(!guard.is_valid() && guard.remaining().is_zero() && error.to_string().contains(name.as_str()), "{error}");
    assert!(guard.members().filter(|member| member.is_valid()).count() == 2, "the others are still held");
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{error}");
    for name in &names {
        b.mutex(name).try_lock().await.unwrap().expect("the others were released").release().await.unwrap();
    }
}
