//! redis.md 6.8: short lists: rueidislock, bsm/redislock, python-redis-lock, pottery, Spring Integration.
use super::{prelude::*, redis_py::{grant_of, refused}};
use fencelock_core::TakenAway;

cases! {
    "rueidislock/unlock-by-self-force" => force_by_self, needs: [Alone];
    "rueidislock/unlock-by-other-force" => force_by_other, needs: [Alone];
    "rueidislock/unlock-by-client-side-caching" => deleted_from_outside, needs: [Alone, Deletions];
    "rueidislock/auto-extend-concurrent" => auto_extend_concurrent;
    "rueidislock/dead-context" => dead_context;
    "rueidislock/cancel-context" => cancel_context, needs: [Waiters];
    "rueidislock/shorter-timeout-context" => shorter_timeout;
    "rueidislock/missing-peers" => missing_peers;
    "rueidislock/close" => close;
    "rueidislock/retry-err-locker-closed" => waits_that_begin_at_the_end;
    "bsm/obtain-metadata" => metadata, needs: [Waiters];
    "bsm/obtain-custom-token" => same_hold_id;
    "bsm/obtain-retry-context-deadline" => deadline_tells_both;
    "bsm/obtain-concurrent" => obtain_concurrent;
    "bsm/refresh-lost-lock" => refresh_lost, needs: [FixedLeases];
    "bsm/refresh-transient-error" => refresh_transient, needs: [Silence];
    "bsm/obtain-multi" => obtain_multi;
    "python-redis-lock/no-overlap" => no_overlap, limit: 60;
    "python-redis-lock/reset-signalizes" => reset_signals;
    "python-redis-lock/reset-all-signalizes" => reset_all_signals;
    "python-redis-lock/auto-renewal-stops-after-gc" => gone_is_not_renewed;
    "pottery/state-machine" => state_machine;
    "pottery/too-many-extensions" => max_hold_ends_renewals;
    "spring/unlock-when-interrupted" => interrupted_release;
    "spring/expire-not-changed" => expire_not_changed, needs: [FixedLeases];
}
roles! {}

/// The ttl of one who is told with his next renewal: where times are judged it is due in time, else it may be late.
pub(super) fn told_with_a_renewal(cx: &Context) -> Duration {
    if full() { cx.short() } else { 2 * cx.short() }
}
/// A client who hears of a forced release in time: by a push, else with its next renewal.
async fn who_is_told(cx: &Context) -> Client {
    let client = cx.client().await;
    match client.info().capabilities.taken_away {
        TakenAway::Pushed => client,
        _ => cx.client_with(told_with_a_renewal(cx)).await,
    }
}
/// `by` takes away what `client` holds, and gets it.
async fn taken_away(cx: &Context, client: &Client, by: &Client, name: &str) {
    let (old, entered) = (client.mutex(name).lock().await.unwrap(), Instant::now());
    let lost = tokio::spawn(old.lost());
    assert_eq!(by.force_release(name, old.token()).await.unwrap(), Released::Released);
    let next = within("free", by.mutex(name).lock()).await.unwrap();
    assert_eq!(within("told", lost).await.unwrap(), LossReason::TakenOver);
    cx.in_time("told", entered.elapsed(), SEC);
    assert!(!old.is_valid() && old.remaining().is_zero() && next.token() > old.token());
    assert_eq!(old.run(async {}).await.unwrap_err().kind(), ErrorKind::Lost);
    // A second time it is not there.
    match by.force_release(name, old.token()).await.unwrap() {
        Released::NotHeld { holder: Some(holder) } => assert_eq!(holder.hold, next.id()),
        other => panic!("{other:?}"),
    }
    drop(old);
    next.check().unwrap();
    next.release().await.unwrap();
}
async fn force_by_self(cx: Context) {
    let client = who_is_told(&cx).await;
    taken_away(&cx, &client, &client, &cx.name("m")).await;
}
async fn force_by_other(cx: Context) {
    taken_away(&cx, &who_is_told(&cx).await, &cx.client().await, &cx.name("m")).await;
}

/// Nobody pushes that: it is told with the next renewal, which is due within a third of the ttl.
async fn deleted_from_outside(cx: Context) {
    let (client, other) = (cx.client_with(told_with_a_renewal(&cx)).await, cx.client().await);
    let name = cx.name("m");
    let old = client.mutex(&name).lock().await.unwrap();
    let (lost, deleted) = (old.lost(), Instant::now());
    cx.fixture().deletions().unwrap().delete(&name).await;
    assert_eq!(within("told", lost).await, LossReason::TakenOver);
    cx.in_time("told", deleted.elapsed(), SEC);
    assert!(!old.is_valid() && old.run(async {}).await.is_err());
    let next = within("free", other.mutex(&name).lock()).await.unwrap();
    assert!(next.token() > old.token());
    assert_eq!(old.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.check().unwrap();
    next.release().await.unwrap();
    client.mutex(&name).lock().await.unwrap().release().await.unwrap();
}

async fn auto_extend_concurrent(cx: Context) {
    let (client, other) = (cx.client_with(3 * cx.short()).await, cx.client().await);
    let mut guards = Vec::new();
    for i in 0..tenth(500) {
        guards.push(client.mutex(cx.name(&format!("m{i}"))).lock().await.unwrap());
    }
    let end = guards.last().unwrap().valid_until() + 200 * MS;
    eventually("longer than their leases", || async { BootClock.now() > end }).await;
    for guard in &guards {
        guard.check().unwrap_or_else(|e| panic!("{}: {e}", guard.name()));
    }
    assert_eq!(client.held(), guards.len());
    for guard in guards {
        assert!(other.mutex(guard.name().as_str()).try_lock().await.unwrap().is_err());
        guard.release().await.unwrap();
    }
}

async fn dead_context(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    let mutex = client.mutex(&name);
    // Given up before it began: nothing is sent.
    drop(mutex.lock());
    drop(mutex.try_lock_for(SEC));
    let dead = tokio::spawn(mutex.lock());
    dead.abort();
    drop(dead.await);
    let sent = chaos.calls(Operation::Acquire);
    assert!(sent <= 1, "only what was running when it was given up");
    // Its time is over: whatever it answers, nothing stays.
    for _ in 0..10 {
        let over = within("an answer", mutex.try_lock_for(Duration::ZERO)).await;
        drop(over);
        let _ = tokio::time::timeout(Duration::ZERO, mutex.lock()).await;
        within("nothing is taken", other.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    }
    let guard = other.mutex(&name).lock().await.unwrap();
    assert!(refused(within("an answer", mutex.try_lock_for(Duration::ZERO)).await));
    assert!(tokio::time::timeout(Duration::ZERO, mutex.lock()).await.is_err());
    cx.queued(&other, &name, 0).await;
    guard.release().await.unwrap();
    within("nothing is taken", other.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    assert_eq!(client.held(), 0);
}

async fn cancel_context(cx: Context) {
    let (client, waiting, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    for limited in [false, true] {
        let wait = match limited {
            false => tokio::spawn(waiting.mutex(&name).lock()).abort_handle(),
            true => tokio::spawn(waiting.mutex(&name).try_lock_for(60 * SEC)).abort_handle(),
        };
        let behind = tokio::spawn({
            let wait = client.mutex(&name).note("behind").lock();
            cx.queued(&client, &name, 1).await;
            wait
        });
        cx.queued(&client, &name, 2).await;
        wait.abort();
        let status = cx.queued(&client, &name, 1).await;
        assert_eq!(&*status.waiters[0].note, "behind");
        behind.abort();
        cx.queued(&client, &name, 0).await;
    }
    assert_eq!(waiting.held(), 0);
    guard.release().await.unwrap();
    within("nobody is in the way", client.mutex(&name).lock()).await.unwrap().release().await.unwrap();
}

async fn shorter_timeout(cx: Context) {
    let (client, waiting, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    for patience in [20 * MS, 200 * MS] {
        let (long, began) = (waiting.mutex(&name).try_lock_for(600 * SEC), Instant::now());
        let over = within("its time", tokio::time::timeout(patience, long)).await;
        assert!(over.is_err() && began.elapsed() >= patience);
        let (long, began) = (waiting.mutex(&name).lock(), Instant::now());
        let over = within("its time", tokio::time::timeout(patience, long)).await;
        assert!(over.is_err() && began.elapsed() >= patience);
    }
    cx.queued(&client, &name, 0).await;
    guard.release().await.unwrap();
    within("free", client.mutex(&name).lock()).await.unwrap().release().await.unwrap();
}

async fn missing_peers(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    for round in 0..tenth(50) {
        let guard = client.mutex(&name).lock().await.unwrap();
        let waits: Vec<_> = (0..100).map(|_| tokio::spawn(client.mutex(&name).lock())).collect();
        if round % 2 == 0 {
            cx.queued(&client, &name, 1).await;
        }
        let leave = tokio::spawn(guard.release());
        for (i, wait) in waits.iter().enumerate() {
            wait.abort();
            if i % 10 == round % 10 {
                tokio::task::yield_now().await;
            }
        }
        within("released", leave).await.unwrap().unwrap();
        for wait in waits {
            // Some were in before; theirs is released where it drops.
            drop(within("each one returns", wait).await);
        }
        within("nobody is in the way", client.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    }
    cx.queued(&client, &name, 0).await;
    assert_eq!(client.held(), 0);
}

async fn close(cx: Context) {
    let (client, other) = (cx.client().await, cx.client().await);
    let (held, name) = (cx.name("held"), cx.name("m"));
    let guard = other.mutex(&name).lock().await.unwrap();
    let kept = client.mutex(&held).lock().await.unwrap();
    // One waits at the engine, one behind it, one with a limit.
    let waits = [tokio::spawn(client.mutex(&name).lock()), tokio::spawn(client.mutex(&name).lock())];
    let limited = tokio::spawn(client.mutex(&name).try_lock_for(60 * SEC));
    cx.queued(&other, &name, 1).await;
    drop(kept);
    within("shut down", client.shutdown(STUCK)).await.unwrap();
    for wait in waits {
        assert_eq!(within("it ends", wait).await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(within("it ends", limited).await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    let later = [
        client.mutex(&name).lock().await.map(drop),
        client.mutex(&name).try_lock().await.map(drop),
        client.rw_lock(&name).read().await.map(drop),
        client.inspect(&name).await.map(drop),
        client.list(&name, &Page::default()).await.map(drop),
        client.force_release(&name, guard.token()).await.map(drop),
        client.election(&name).leader().await.map(drop),
        client.cell(&name).load().await.map(drop),
    ];
    for answer in later {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed);
    }
    cx.queued(&other, &name, 0).await;
    within("what was dropped is free", other.mutex(&held).lock()).await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    within("shut down again", client.shutdown(STUCK)).await.unwrap();

    // What is held through it ends: with the session at once, else with its lease.
    let client = cx.client_with(cx.closing_ttl()).await;
    let kept = client.mutex(&held).lock().await.unwrap();
    within("shut down", client.shutdown(STUCK)).await.unwrap();
    within("told", kept.lost()).await;
    assert!(kept.check().is_err());
    within("free", other.mutex(&held).lock()).await.unwrap().release().await.unwrap();
}

async fn waits_that_begin_at_the_end(cx: Context) {
    let (other, name) = (cx.client().await, cx.name("m"));
    let guard = other.mutex(&name).lock().await.unwrap();
    for round in 0..tenth(40) {
        let client = cx.client().await;
        let waits: Vec<_> = (0..20)
            .map(|i| {
                let (client, name) = (client.clone(), name.clone());
                tokio::spawn(async move {
                    for _ in 0..i {
                        tokio::task::yield_now().await;
                    }
                    let mutex = client.mutex(&name);
                    // With a ttl of its own it asks the engine, else it waits behind the others here.
                    let own = client.info().capabilities.ttl_per_hold && i % 2 == 0;
                    if own { mutex.ttl(client.ttl() - i * MS) } else { mutex }.lock().await
                })
            })
            .collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        within("shut down", client.shutdown(STUCK)).await.unwrap();
        for wait in waits {
            assert_eq!(within("it ends", wait).await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
        }
        cx.queued(&other, &name, 0).await;
    }
    guard.check().unwrap();
    guard.release().await.unwrap();
}

async fn metadata(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    for note in ["", "shipping", "ünïcode ✓ \"quoted\"\n{\"json\": [1, 2]}", &"long ".repeat(200)] {
        let mut mine = note.to_owned();
        let wait = client.mutex(&name).note(mine.as_str());
        mine.clear();
        let guard = wait.lock().await.unwrap();
        let waiter = tokio::spawn(other.mutex(&name).note(format!("after {note}")).lock());
        let status = cx.queued(&other, &name, 1).await;
        assert_eq!((&*status.holders[0].note, &*status.waiters[0].note), (note, format!("after {note}").as_str()));
        assert_eq!((status.holders[0].pid, status.waiters[0].pid), (std::process::id(), std::process::id()));
        guard.release().await.unwrap();
        within("its turn", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn same_hold_id(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    for _ in 0..10 {
        // The same attempt comes twice: the second time it finds its own lock.
        chaos.next(Operation::Acquire, 1, Trouble::Twice);
        let guard = within("granted again", client.mutex(&name).try_lock()).await.unwrap().expect("it is its own");
        for stranger in [&client, &other] {
            let busy = stranger.mutex(&name).try_lock().await.unwrap().expect_err("another id is refused");
            assert_eq!(busy.holder.expect("the engine tells").hold, guard.id());
        }
        let status = other.inspect(&name).await.unwrap();
        assert_eq!((status.holders.len(), status.holders[0].token), (1, guard.token()));
        guard.release().await.unwrap();
        assert!(!other.inspect(&name).await.unwrap().is_held());
    }
}

async fn deadline_tells_both(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).note("shipping").lock().await.unwrap();
    // The limit of the call: the kind says that its time is over, the rest who holds.
    let busy = other.mutex(&name).try_lock_for(50 * MS).await.unwrap().unwrap_err();
    assert_eq!(busy.holder.as_ref().expect("told").hold, guard.id());
    let error = Error::from(busy);
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("\"shipping\""), "{error}");
    // The caller's own: it has the deadline in hand, and the wait tells who.
    let mut wait = other.mutex(&name).lock();
    assert!(tokio::time::timeout(50 * MS, &mut wait).await.is_err());
    let busy = wait.blocked_by().expect("told");
    assert_eq!(busy.holder.as_ref().expect("told").hold, guard.id());
    assert!(busy.to_string().contains("\"shipping\""), "{busy}");
    drop(wait);
    cx.queued(&client, &name, 0).await;
    guard.release().await.unwrap();
}

async fn obtain_concurrent(cx: Context) {
    let name = cx.name("m");
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(cx.client().await);
    }
    for _ in 0..tenth(30) {
        let start = Arc::new(tokio::sync::Barrier::new(100));
        let tries: Vec<_> = (0..100)
            .map(|i| {
                let (start, attempt) = (start.clone(), clients[i % 10].mutex(&name).try_lock());
                tokio::spawn(async move {
                    start.wait().await;
                    attempt.await.unwrap()
                })
            })
            .collect();
        let mut got = Vec::new();
        for attempt in tries {
            got.extend(within("an answer", attempt).await.unwrap().ok());
        }
        assert_eq!(got.len(), 1);
        let status = clients[0].inspect(&name).await.unwrap();
        assert_eq!((status.holders[0].hold, status.waiters.len()), (got[0].id(), 0));
        got.pop().unwrap().release().await.unwrap();
    }
}

async fn refresh_lost(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(cx.short()).await, cx.client().await, cx.name("m"));
    let renewed = client.mutex(&name).lock().await.unwrap();
    let fixed = client.mutex(cx.name("fixed")).lease(60 * SEC).lock().await.unwrap();
    for guard in [&renewed, &fixed] {
        other.force_release(guard.name().as_str(), guard.token()).await.unwrap();
    }
    within("told", renewed.lost()).await;
    let before = chaos.calls(Operation::Renew);
    assert_eq!(fixed.extend(60 * SEC).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(within("told", fixed.lost()).await, LossReason::TakenOver);
    let after = chaos.calls(Operation::Renew);
    // On a busy machine it is asked again before it is answered.
    assert!(after <= before + 3, "one answer is enough");
    let end = Instant::now() + cx.short() / 2;
    eventually("the next renewal would be due", || async { Instant::now() > end }).await;
    assert_eq!(chaos.calls(Operation::Renew), after, "what is lost is not renewed");
    assert!(renewed.check().is_err() && fixed.check().is_err());
    assert_eq!(fixed.extend(60 * SEC).await.unwrap_err().kind(), ErrorKind::Lost);
    for name in [&name, fixed.name().as_str()] {
        assert!(!other.inspect(name).await.unwrap().is_held());
    }
}

async fn refresh_transient(cx: Context) {
    let ((client, silence), name) = (cx.silenceable(2 * cx.short()).await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    for _ in 0..2 {
        silence.begin().await;
        within("in doubt", guard.suspect()).await;
        guard.check().expect("in doubt is not lost");
        silence.end().await;
        crate::context::renewed_in_time(&guard).await;
        guard.check().expect("what passes costs nothing");
        if !full() {
            break;
        }
    }
    eventually("in doubt no more", || async { once(&mut Box::pin(guard.suspect())).await.is_none() }).await;
    guard.release().await.unwrap();
}

async fn obtain_multi(cx: Context) {
    let (client, other) = (cx.client().await, cx.client().await);
    let names: Vec<_> = ["a", "b", "c"].iter().map(|part| cx.name(part)).collect();
    let all = MultiLock::new(names.iter().map(|name| client.mutex(name)));
    let free = |name: String| {
        let other = other.clone();
        async move { !other.inspect(&name).await.unwrap().is_held() }
    };
    for taken in &names {
        let one = other.mutex(taken).lock().await.unwrap();
        assert!(within("an answer", all.try_lock()).await.unwrap().is_err());
        assert!(refused(within("an answer", all.try_lock_for(50 * MS)).await));
        for name in names.iter().filter(|name| *name != taken) {
            assert!(free(name.clone()).await, "none of them");
        }
        cx.queued(&other, taken, 0).await;
        one.release().await.unwrap();
        let guard = within("all of them", all.lock()).await.unwrap();
        guard.check().unwrap();
        for (name, token) in guard.tokens() {
            assert_eq!(other.inspect(name.as_str()).await.unwrap().exclusive().unwrap().token, token);
        }
        assert_eq!(guard.members().len(), 3);
        guard.release().await.unwrap();
        for name in &names {
            assert!(free(name.clone()).await);
        }
    }
}

async fn no_overlap(cx: Context) {
    let (judge, name, mut peers) = (cx.judge("m"), cx.name("m"), Vec::new());
    let n = tenth(125);
    for i in 0..n {
        let words = [&name, judge.place().to_str().unwrap(), &format!("peer-{i}"), "4"];
        peers.push(cx.peer_with(60 * SEC, "count", &words).await);
    }
    for peer in peers {
        peer.finish().await;
    }
    judge.verdict(4 * u64::try_from(n).unwrap());
}

async fn reset_signals(cx: Context) {
    let (client, waiting, name) = (cx.client().await, cx.client().await, cx.name("m"));
    for _ in 0..5 {
        let old = client.mutex(&name).lock().await.unwrap();
        let wait = tokio::spawn(waiting.mutex(&name).lock());
        cx.queued(&client, &name, 1).await;
        assert_eq!(client.force_release(&name, old.token()).await.unwrap(), Released::Released);
        let next = within("woken", wait).await.unwrap().unwrap();
        assert!(next.token() > old.token());
        next.release().await.unwrap();
    }
}

async fn reset_all_signals(cx: Context) {
    let (client, waiting) = (cx.client().await, cx.client().await);
    let names: Vec<_> = (0..20).map(|i| cx.name(&format!("m{i}"))).collect();
    let (mut held, mut waits) = (Vec::new(), Vec::new());
    for name in &names {
        held.push(client.mutex(name).lock().await.unwrap());
        waits.push(tokio::spawn(waiting.mutex(name).lock()));
        cx.queued(&client, name, 1).await;
    }
    let listed = listed(&client, cx.prefix()).await;
    assert_eq!(listed.len(), names.len());
    for status in listed {
        let token = status.exclusive().unwrap().token;
        assert_eq!(client.force_release(status.name.as_str(), token).await.unwrap(), Released::Released);
    }
    for (wait, old) in waits.into_iter().zip(held) {
        let next = within("woken", wait).await.unwrap().unwrap();
        assert!(next.token() > old.token());
        next.release().await.unwrap();
    }
}

async fn gone_is_not_renewed(cx: Context) {
    let ttl = 2 * cx.short();
    let ((client, chaos), other) = (cx.chaos(ttl).await, cx.client().await);
    let names: Vec<_> = (0..10).map(|i| cx.name(&format!("m{i}"))).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.mutex(name).lock().await.unwrap());
    }
    within("a renewal", guards[0].renewed()).await;
    drop(guards);
    eventually("nothing is held", || async { client.held() == 0 }).await;
    for name in &names {
        within("free", other.mutex(name).lock()).await.unwrap().release().await.unwrap();
    }
    let before = chaos.calls(Operation::Renew);
    let end = Instant::now() + ttl / 2;
    eventually("the next renewal would be due", || async { Instant::now() > end }).await;
    assert_eq!(chaos.calls(Operation::Renew), before);
}

/// What each state of a hold allows, and what it refuses.
async fn state_machine(cx: Context) {
    let ((client, below), other, name) = (cx.connect(60 * SEC).await, cx.client().await, cx.name("m"));
    let fixed = client.info().capabilities.fixed_leases;
    let mutex = client.mutex(&name);
    let mutex = if fixed { mutex.lease(60 * SEC) } else { mutex };
    let extended = |answer: Result<(), Error>| answer.err().map(|e| e.kind());
    for _ in 0..2 {
        // Free: neither held, nor to be released.
        assert!(!other.inspect(&name).await.unwrap().is_held());
        let guard = mutex.try_lock().await.unwrap().expect("free");
        let grant = grant_of(&guard, guard.token());
        // Held: not again, but extended, where it is not renewed by itself.
        assert!(mutex.try_lock().await.unwrap().is_err() && other.mutex(&name).try_lock().await.unwrap().is_err());
        let refused = (!fixed).then_some(ErrorKind::InvalidConfig);
        assert_eq!(extended(guard.extend(60 * SEC).await), refused);
        assert!(guard.is_valid() && other.inspect(&name).await.unwrap().is_held());
        guard.release().await.unwrap();
        // Released: not again.
        assert!(!other.inspect(&name).await.unwrap().is_held());
        assert_eq!(below.engine.release(&grant).await.unwrap(), Released::NotHeld { holder: None });
        // Lost: neither extended nor released.
        let guard = mutex.try_lock().await.unwrap().expect("free");
        other.force_release(&name, guard.token()).await.unwrap();
        assert_eq!(extended(guard.extend(60 * SEC).await), if fixed { Some(ErrorKind::Lost) } else { refused });
        assert!(guard.release().await.is_err());
    }
}

async fn max_hold_ends_renewals(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(600 * MS).await, cx.client().await, cx.name("m"));
    let began = Instant::now();
    let guard = client.mutex(&name).max_hold(900 * MS).lock().await.unwrap();
    let wait = tokio::spawn(other.mutex(&name).lock());
    cx.queued(&other, &name, 1).await;
    assert_eq!(within("told", guard.lost()).await, LossReason::MaxHold);
    assert!(began.elapsed() >= 900 * MS && guard.check().is_err());
    let renewals = chaos.calls(Operation::Renew);
    assert!(renewals >= 1, "it was renewed until then");
    // Its lease runs out, though the guard is there.
    let next = within("free", wait).await.unwrap().unwrap();
    assert!(chaos.calls(Operation::Renew) <= renewals + 1, "only what was on its way");
    assert!(guard.release().await.is_err());
    next.check().unwrap();
    next.release().await.unwrap();
}

async fn interrupted_release(cx: Context) {
    let (other, name) = (cx.client().await, cx.name("m"));
    for (trouble, n) in [(Trouble::Fail, 3), (Trouble::LoseReply, 3), (Trouble::Delay(30 * MS), 1)] {
        let (client, chaos) = cx.chaos(60 * SEC).await;
        let guard = client.mutex(&name).lock().await.unwrap();
        chaos.next(Operation::Release, n, trouble);
        within("released", guard.release()).await.unwrap();
        assert!(!other.inspect(&name).await.unwrap().is_held(), "{trouble:?}: it has said so before");
        // Nobody waits for its end any more: whoever shuts down does.
        let guard = client.mutex(&name).lock().await.unwrap();
        chaos.next(Operation::Release, n, trouble);
        let mut release = Box::pin(guard.release());
        let _ = once(&mut release).await;
        drop(release);
        within("shut down", client.shutdown(STUCK)).await.unwrap();
        assert!(!other.inspect(&name).await.unwrap().is_held(), "{trouble:?}: it has shut down before");
    }
}

async fn expire_not_changed(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lease(60 * SEC).lock().await.unwrap();
    let until = guard.valid_until();
    let mut left = b.inspect(&name).await.unwrap().holders[0].left;
    for _ in 0..5 {
        for client in [&a, &b] {
            assert!(client.mutex(&name).lease(90 * SEC).try_lock().await.unwrap().is_err());
            assert!(refused(client.mutex(&name).ttl(80 * SEC).try_lock_for(5 * MS).await));
        }
        let now = b.inspect(&name).await.unwrap().holders[0].left;
        assert!(now < left, "{now:?} after {left:?}");
        left = now;
    }
    assert_eq!(guard.valid_until(), until);
    guard.release().await.unwrap();
}
