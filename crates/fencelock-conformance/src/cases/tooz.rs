//! sql.md 12.4: tooz.
use super::{
    madelson::{grant_of, is_refused},
    prelude::*,
};

cases! {
    "tooz/shared-twice" => shared_twice, needs: [ReadWrite];
    "tooz/two-locks-matrix" => two_locks_matrix;
    "tooz/release-broken" => release_broken;
    "tooz/acquire-twice-no-deadlock" => acquire_twice_no_deadlock;
    "tooz/ensure-acquire-release-return" => says_what_happened;
    "tooz/failure-acquire-release" => failures_reach_the_caller;
}
roles! {}

async fn shared_twice(cx: Context) {
    let ((client, below), name) = (cx.connect(60 * SEC).await, cx.name("rw"));
    let lock = client.rw_lock(&name);
    let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    assert_ne!(one.id(), two.id());
    let holders = client.inspect(&name).await.unwrap().holders;
    let first = holders.iter().find(|holder| holder.hold == one.id()).expect("it reads");
    let old = Grant {
        name: one.name().clone(),
        claim: Claim::Read,
        hold: first.hold,
        token: first.token,
        ttl: one.ttl(),
        lease: Lease::Own { sent_at: BootClock.now() },
        server_micros: 0,
        place: None,
    };
    one.release().await.unwrap();
    is_refused(&below.engine, &old).await;
    assert!(lock.try_write().await.unwrap().is_err(), "the other one still reads");
    two.check().unwrap();
    two.release().await.unwrap();
    is_refused(&below.engine, &old).await;
    lock.try_write().await.unwrap().expect("both were released").release().await.unwrap();
}

async fn two_locks_matrix(cx: Context) {
    let (a, b, mut other) = (cx.client().await, cx.client().await, cx.puppet_with(60 * SEC).await);
    let (one, two) = (cx.name("one"), cx.name("two"));
    let in_a_thread = |client: &Client, name: &str| {
        let mutex = client.mutex(name);
        let thread = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { mutex.try_lock().await.unwrap().map(|guard| guard.token()) })
        };
        async move { tokio::task::spawn_blocking(thread).await.unwrap() }
    };
    for by_process in [false, true] {
        let guard = if by_process {
            other.lock(&one).await;
            None
        } else {
            Some(a.mutex(&one).lock().await.unwrap())
        };
        let mutex = a.mutex(&one);
        for again in [&mutex, &a.mutex(&one), &b.mutex(&one)] {
            assert!(again.try_lock().await.unwrap().is_err(), "the same handle, the same client, another client");
        }
        for client in [&a, &b] {
            assert!(in_a_thread(client, &one).await.is_err(), "another thread");
            in_a_thread(client, &two).await.expect("another lock");
            cx.free(&a, &two).await;
        }
        if by_process {
            assert!(other.try_lock(&two).await.is_some() && other.release(&two).await && other.release(&one).await);
        } else {
            assert!(other.try_lock(&one).await.is_none(), "another process");
            assert!(other.try_lock(&two).await.is_some() && other.release(&two).await);
        }
        if let Some(guard) = guard {
            guard.release().await.unwrap();
        }
    }
    in_a_thread(&b, &one).await.expect("free");
}

async fn release_broken(cx: Context) {
    let (a, b, c, name) = (cx.client_with(cx.short()).await, cx.client().await, cx.client().await, cx.name("m"));
    let first = a.mutex(&name).lock().await.unwrap();
    assert_eq!(b.force_release(&name, first.token()).await.unwrap(), Released::Released);
    let third = c.mutex(&name).try_lock().await.unwrap().expect("it was broken");
    let error = first.release().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{error}");
    third.check().unwrap();
    assert_eq!(b.inspect(&name).await.unwrap().holders[0].hold, third.id());
    assert!(a.mutex(&name).try_lock().await.unwrap().is_err());
    third.release().await.unwrap();
}

async fn acquire_twice_no_deadlock(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let mutex = client.mutex(&name);
    for _ in 0..5 {
        let guard = mutex.lock().await.unwrap();
        assert!(mutex.try_lock().await.unwrap().is_err());
        assert!(mutex.try_lock_for(5 * MS).await.unwrap().is_err());
        let wait = tokio::spawn(mutex.lock());
        cx.queued(&client, &name, 1).await;
        within("nobody is in the way of a release", guard.release()).await.unwrap();
        within("the second one is in", wait).await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn says_what_happened(cx: Context) {
    let ((a, below), b, name) = (cx.connect(cx.short()).await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).try_lock().await.unwrap().expect("free: it is held now");
    assert_eq!(b.inspect(&name).await.unwrap().holders[0].hold, guard.id());
    let busy = b.mutex(&name).try_lock().await.unwrap().expect_err("taken: it is not held now");
    assert_eq!((busy.holder.expect("the engine tells").hold, b.held()), (guard.id(), 0));
    let old = grant_of(&guard);
    guard.release().await.expect("it was held, and is free");
    assert!(!b.inspect(&name).await.unwrap().is_held());
    is_refused(&below.engine, &old).await;
    let guard = a.mutex(&name).lock().await.unwrap();
    b.force_release(&name, guard.token()).await.unwrap();
    let error = guard.release().await.expect_err("it was not held any more");
    assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{error}");
    let answer = b.force_release(&name, old.token).await.unwrap();
    assert_eq!(answer, Released::NotHeld { holder: None });
}

async fn failures_reach_the_caller(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    let mutex = client.mutex(&name);
    for (trouble, kind) in [(Trouble::Fail, ErrorKind::Unreachable), (Trouble::LoseReply, ErrorKind::Ambiguous)] {
        for held in [false, true] {
            let guard = if held { Some(other.mutex(&name).lock().await.unwrap()) } else { None };
            chaos.next(Operation::Acquire, 1, trouble);
            let answer = within("an answer", mutex.try_lock()).await;
            assert_eq!(answer.expect_err("it is not known").kind(), kind, "{trouble:?}");
            if !held {
                chaos.next(Operation::Acquire, 1, trouble);
                let answer = within("an answer", mutex.try_lock_for(STUCK)).await;
                assert_eq!(answer.expect_err("it is not known").kind(), kind, "{trouble:?}");
                // What may have been granted is taken back.
                cx.free(&other, &name).await;
            }
            if let Some(guard) = guard {
                guard.release().await.unwrap();
            }
        }
        // A release that is answered in the end says so; meanwhile it is asked again.
        let guard = mutex.lock().await.unwrap();
        chaos.next(Operation::Release, 3, trouble);
        within("done", guard.release()).await.unwrap();
        assert!(!other.inspect(&name).await.unwrap().is_held());
    }
    if client.info().capabilities.fixed_leases {
        let guard = mutex.lease(cx.short()).lock().await.unwrap();
        chaos.next(Operation::Release, u32::MAX, Trouble::Fail);
        let error = within("not for longer than its lease", guard.release()).await.expect_err("it was not released");
        assert_ne!(error.kind(), ErrorKind::Busy);
        chaos.next(Operation::Release, 0, Trouble::Fail);
    }
}
