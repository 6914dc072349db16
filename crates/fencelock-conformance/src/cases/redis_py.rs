//! redis.md 6.6: redis-py.
use super::prelude::*;
use fencelock_core::Held;

cases! {
    "redis-py/lock-token-thread-local-false" => other_thread;
    "redis-py/float-timeout" => float_timeout, needs: [FixedLeases, TtlPerHold];
    "redis-py/context-manager" => scope_releases;
    "redis-py/context-manager-raises" => not_in_time;
    "redis-py/context-manager-not-raise-on-release" => end_of_scope_is_silent;
    "redis-py/releasing-unlocked-lock" => releasing_unlocked;
    "redis-py/releasing-lock-no-longer-owned" => releasing_no_longer_owned;
    "redis-py/extend-lock" => extend_lock, needs: [FixedLeases];
    "redis-py/extending-unlocked-lock" => extending_unlocked, needs: [FixedLeases];
    "redis-py/extending-lock-no-longer-owned" => extending_no_longer_owned, needs: [FixedLeases];
    "redis-py/reacquire-lock" => reacquire_lock, needs: [FixedLeases];
    "redis-py/lock-error-gives-correct-lock-name" => error_gives_name;
    "redis-py/release-cancellation" => release_cancellation, needs: [Alone];
}
roles! {}

/// What the engine granted to this guard: for calls that core would never send.
pub(super) fn grant_of(held: &Held, token: Token) -> Grant {
    Grant {
        name: held.name().clone(),
        claim: held.claim(),
        hold: held.id(),
        token,
        ttl: held.ttl(),
        lease: Lease::Own { sent_at: BootClock.now() },
        server_micros: 0,
        place: None,
    }
}
/// A limited try has got nothing: its time was over, on a busy machine before the engine had told anything.
pub(super) fn refused<G>(answer: Result<Result<G, Busy>, Error>) -> bool {
    answer.map_or_else(|e| e.is_temporary(), |got| got.is_err())
}
/// Runs it in a thread of its own, with a runtime that ends with it.
pub(super) fn in_thread<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> std::thread::JoinHandle<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || runtime.block_on(work))
}

async fn other_thread(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    for dropped in [false, true] {
        let guard = in_thread(client.mutex(&name).lock()).join().unwrap().unwrap();
        assert!(other.mutex(&name).try_lock().await.unwrap().is_err());
        let ended = async move {
            guard.check().unwrap();
            if dropped {
                drop(guard);
                return Ok(());
            }
            guard.release().await
        };
        in_thread(ended).join().unwrap().unwrap();
        within("free", other.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    }
}

async fn float_timeout(cx: Context) {
    let (client, name, ttl) = (cx.client().await, cx.name("m"), 10_900 * MS);
    let mutex = client.mutex(&name);
    for mutex in [mutex.clone().ttl(ttl), mutex.lease(ttl)] {
        // Whoever cuts the parts off never has more than ten seconds left, whoever rounds has more than was asked for.
        eventually("the parts of a second are there", || async {
            let guard = mutex.lock().await.unwrap();
            assert_eq!(guard.ttl(), ttl);
            let left = client.inspect(&name).await.unwrap().holders[0].left;
            let left = [guard.remaining(), left.saturating_sub(cx.rounds_up())];
            guard.release().await.unwrap();
            assert!(left.iter().all(|left| *left <= ttl), "{left:?}");
            left.iter().all(|left| *left > 10 * SEC)
        })
        .await;
    }
}

async fn scope_releases(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let mutex = a.mutex(&name);
    {
        let guard = mutex.lock().await.unwrap();
        assert!(b.mutex(&name).try_lock().await.unwrap().is_err());
        guard.check().unwrap();
    }
    within("free", b.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    // Left by an error, and by a panic.
    let failed = async {
        let _guard = mutex.lock().await?;
        a.mutex("").lock().await.map(drop)
    };
    assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::InvalidName);
    within("free", b.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    let panicked = async move {
        let _guard = mutex.lock().await.unwrap();
        std::panic::resume_unwind(Box::new("in the scope"))
    };
    assert!(tokio::spawn(panicked).await.unwrap_err().is_panic());
    within("free", b.mutex(&name).lock()).await.unwrap().release().await.unwrap();
}

async fn not_in_time(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    for patience in [Duration::ZERO, 100 * MS] {
        let mut entered = false;
        let scope = async {
            let guard = b.mutex(&name).try_lock_for(patience).await??;
            entered = true;
            guard.release().await
        };
        let error = within("its time", scope).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Busy || error.is_temporary(), "{error}");
        assert!(!entered && b.held() == 0);
    }
    assert_eq!(cx.queued(&a, &name, 0).await.holders[0].hold, guard.id());
    guard.check().unwrap();
    guard.release().await.unwrap();
}

async fn end_of_scope_is_silent(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    for tell in [false, true] {
        let guard = a.mutex(&name).lock().await.unwrap();
        assert_eq!(b.force_release(&name, guard.token()).await.unwrap(), Released::Released);
        let next = b.mutex(&name).lock().await.unwrap();
        within("told", guard.lost()).await;
        if tell {
            let error = guard.release().await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{error}");
        } else {
            drop(guard);
        }
        assert_eq!(a.held(), 0);
        // Whatever the end of the scope has left to do is done before this.
        a.mutex(cx.name("other")).lock().await.unwrap().release().await.unwrap();
        assert_eq!(b.inspect(&name).await.unwrap().holders[0].hold, next.id());
        next.release().await.unwrap();
    }
    // One that was released is no more: there is nothing that could be released twice.
    let guard = a.mutex(&name).lock().await.unwrap();
    let lost = guard.lost();
    guard.release().await.unwrap();
    assert!(tokio::time::timeout(30 * MS, lost).await.is_err(), "a release is no loss");
}

async fn releasing_unlocked(cx: Context) {
    let ((client, below), name) = (cx.connect(cx.short()).await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let released = grant_of(&guard, guard.token());
    guard.release().await.unwrap();
    let stranger = HoldId::from_bytes(fastrand::u128(..).to_be_bytes());
    let never = Grant { name: Name::new(cx.name("never")).unwrap(), hold: stranger, ..released.clone() };
    for grant in [released, never] {
        let answers = [below.engine.release(&grant).await, client.force_release(grant.name.as_str(), grant.token).await];
        for answer in answers {
            assert_eq!(answer.unwrap(), Released::NotHeld { holder: None });
        }
        let status = client.inspect(grant.name.as_str()).await.unwrap();
        assert_eq!((status.is_held(), status.kind), (false, None), "it makes nothing");
    }
    let guard = client.mutex(&name).lock().await.unwrap();
    assert_eq!(below.engine.force_release(guard.name(), guard.token()).await.unwrap(), Released::Released);
    let error = guard.release().await.expect_err("it was not held any more");
    assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{error}");
}

async fn releasing_no_longer_owned(cx: Context) {
    let ((a, below), b, name) = (cx.connect(cx.short()).await, cx.client().await, cx.name("m"));
    for by_hand in [false, true] {
        let old = a.mutex(&name).lock().await.unwrap();
        assert_eq!(b.force_release(&name, old.token()).await.unwrap(), Released::Released);
        let next = within("free", b.mutex(&name).lock()).await.unwrap();
        if by_hand {
            match below.engine.release(&grant_of(&old, old.token())).await.unwrap() {
                Released::NotHeld { holder: Some(holder) } => assert_eq!(holder.hold, next.id()),
                other => panic!("{other:?}"),
            }
        }
        let error = old.release().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{error}");
        let status = a.inspect(&name).await.unwrap();
        assert_eq!((status.holders.len(), status.holders[0].hold, status.holders[0].token), (1, next.id(), next.token()));
        assert!(a.mutex(&name).try_lock().await.unwrap().is_err());
        next.check().unwrap();
        next.release().await.unwrap();
    }
}

/// What a lease of `d` that was asked for at `asked` is good until, at least: two clocks and a margin are not trusted.
fn at_least(asked: Moment, d: Duration) -> Moment {
    asked + (d - d / 50 - 10 * MS)
}

async fn extend_lock(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lease(30 * SEC).lock().await.unwrap();
    let (token, mut longest) = (guard.token(), 30 * SEC);
    for d in [60_500 * MS, 90 * SEC, 10 * SEC] {
        let (before, asked) = (guard.valid_until(), BootClock.now());
        guard.extend(d).await.unwrap();
        let (now, left) = (guard.valid_until(), b.inspect(&name).await.unwrap().holders[0].left);
        if d > longest {
            assert!(now > before && now >= at_least(asked, d) && left > longest, "{d:?}: {left:?}");
            longest = d;
        } else {
            assert_eq!(now, before, "it never gets shorter");
        }
        assert!(left <= longest + cx.rounds_up() && guard.remaining() <= longest, "{left:?} of {longest:?}");
        assert!(b.mutex(&name).try_lock().await.unwrap().is_err());
        assert_eq!(guard.token(), token);
    }
    guard.release().await.unwrap();
    // And it is good beyond its first end.
    let guard = a.mutex(&name).lease(cx.short()).lock().await.unwrap();
    let end = guard.valid_until() + 100 * MS;
    guard.extend(2 * cx.short()).await.unwrap();
    eventually("its first end is over", || async { BootClock.now() > end }).await;
    assert!(b.mutex(&name).try_lock().await.unwrap().is_err());
    guard.check().unwrap();
    guard.release().await.unwrap();
}

async fn extending_unlocked(cx: Context) {
    let ((client, below), other, name) = (cx.connect(60 * SEC).await, cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lease(30 * SEC).lock().await.unwrap();
    let released = grant_of(&guard, guard.token());
    guard.release().await.unwrap();
    let stranger = HoldId::from_bytes(fastrand::u128(..).to_be_bytes());
    let never = Grant { name: Name::new(cx.name("never")).unwrap(), hold: stranger, ..released.clone() };
    for grant in [released.clone(), Grant { hold: stranger, ..released }, never] {
        let answer = renewed(&*below.engine, &grant).await;
        assert!(matches!(answer, Renewed::Lost(_)), "{answer:?}");
        let status = other.inspect(grant.name.as_str()).await.unwrap();
        assert_eq!((status.is_held(), status.kind), (false, None), "it creates nothing");
        other.mutex(grant.name.as_str()).try_lock().await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn extending_no_longer_owned(cx: Context) {
    let ((a, below), b, name) = (cx.connect(60 * SEC).await, cx.client().await, cx.name("m"));
    let old = a.mutex(&name).lease(90 * SEC).lock().await.unwrap();
    assert_eq!(b.force_release(&name, old.token()).await.unwrap(), Released::Released);
    let next = b.mutex(&name).lease(30 * SEC).lock().await.unwrap();
    let until = next.valid_until();
    let answer = renewed(&*below.engine, &grant_of(&old, old.token())).await;
    assert!(matches!(answer, Renewed::Lost(_)), "{answer:?}");
    assert_eq!(old.extend(90 * SEC).await.unwrap_err().kind(), ErrorKind::Lost);
    let status = a.inspect(&name).await.unwrap();
    assert_eq!((status.holders.len(), status.holders[0].hold), (1, next.id()));
    assert!(status.holders[0].left <= 30 * SEC, "the new lease is untouched: {status:?}");
    assert_eq!(next.valid_until(), until);
    next.check().unwrap();
    next.release().await.unwrap();
    assert!(old.release().await.is_err());
}

async fn reacquire_lock(cx: Context) {
    let (client, name, ttl) = (cx.client_with(2 * cx.short()).await, cx.name("m"), 10 * SEC);
    let guard = client.mutex(&name).lease(ttl).lock().await.unwrap();
    eventually("a part of it is over", || async { guard.remaining() < ttl - ttl / 25 }).await;
    let asked = BootClock.now();
    guard.extend(ttl).await.unwrap();
    assert!(guard.valid_until() >= at_least(asked, ttl) && guard.remaining() <= ttl);
    let left = client.inspect(&name).await.unwrap().holders[0].left;
    assert!(left <= ttl + cx.rounds_up() && left > ttl.saturating_sub(asked.until(BootClock.now()) + 10 * MS), "{left:?}");
    guard.release().await.unwrap();
    // And one that is renewed by itself.
    let guard = client.mutex(&name).lock().await.unwrap();
    let first = guard.valid_until();
    within("a renewal", guard.renewed()).await;
    assert!(guard.valid_until() > first && guard.remaining() <= guard.ttl());
    guard.release().await.unwrap();
}

async fn error_gives_name(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let names = |what: &str, error: Error| {
        let context: Vec<_> = error.context().collect();
        assert!(context.contains(&("name", &name)), "{what}: {error}");
        assert!(error.to_string().contains(&name), "{what}: {error}");
    };
    let mutex = client.mutex(&name);
    names("ttl", mutex.clone().ttl(Duration::ZERO).lock().await.unwrap_err());
    names("both", mutex.clone().ttl(SEC).lease(SEC).lock().await.unwrap_err());
    names("permits", client.semaphore(&name, 2).acquire(3).await.unwrap_err());
    let guard = mutex.lock().await.unwrap();
    names("kind", other.rw_lock(&name).read().await.unwrap_err());
    names("extend", guard.extend(SEC).await.unwrap_err());
    other.force_release(&name, guard.token()).await.unwrap();
    within("told", guard.lost()).await;
    names("check", guard.check().unwrap_err());
    names("run", guard.run(async {}).await.unwrap_err());
    names("release", guard.release().await.unwrap_err());
    names("downgrade", mutex.lock().await.unwrap().downgrade().await.unwrap_err());
    let ticket = mutex.lock().await.unwrap().into_ticket().await.unwrap();
    names("sort", other.adopt_shared(&ticket).await.unwrap_err());
    let adopted = other.adopt(&ticket).await.unwrap();
    names("adopted twice", client.adopt(&ticket).await.unwrap_err());
    names("busy", mutex.try_lock().await.unwrap().unwrap_err().into());
    adopted.release().await.unwrap();
    let permit = client.semaphore(&name, 2).acquire(1).await.unwrap();
    names("size", other.semaphore(&name, 3).acquire(1).await.unwrap_err());
    permit.release().await.unwrap();
}

async fn release_cancellation(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    for trouble in [Trouble::Delay(20 * MS), Trouble::LoseReply, Trouble::Fail] {
        for polls in 0..4 {
            let guard = client.mutex(&name).lock().await.unwrap();
            let wait = tokio::spawn(other.mutex(&name).lock());
            cx.queued(&client, &name, 1).await;
            chaos.next(Operation::Release, 1, trouble);
            let mut release = Box::pin(guard.release());
            for _ in 0..polls {
                if once(&mut release).await.is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let dropped = Instant::now();
            drop(release);
            // The lease would last for a minute: this is a release.
            within("free", wait).await.unwrap().unwrap().release().await.unwrap();
            cx.in_time(&format!("free after {trouble:?} {polls}"), dropped.elapsed(), SEC);
            eventually("nothing is left", || async { client.held() == 0 }).await;
        }
    }
}
