//! redis.md 6.4: other suites of Redisson: tries, tokens, MultiLock. Its semaphores are in `redisson_more`.
use super::prelude::*;
use fencelock_core::MultiGuard;

cases! {
    "redisson/lock-reentrant-renew" => lock_reentrant_renew;
    "redisson/try-lock-async-succeed" => try_lock_succeeds;
    "redisson/try-lock-async-failed" => try_lock_fails;
    "redisson/try-lock-async-wait-time" => try_lock_waits;
    "redisson/multi-busy" => multi_busy;
    "redisson/multi-threads" => multi_threads;
    "redisson/multi-wait-and-lease-timeouts" => multi_one_winner, needs: [Waiters];
    "redisson/multi-lock-unlock" => multi_lock_unlock;
    "redisson/token-increase" => token_increase;
    "redisson/non-reentrant-reacquire" => non_reentrant_reacquire;
    "redisson/non-reentrant-two-handles" => non_reentrant_two_handles;
    "redisson/faster-multi-base" => multi_base, needs: [Crash], limit: 60;
    "redisson/faster-multi-overlap" => multi_overlap;
    "redisson/faster-multi-renew" => multi_renew;
}
roles! {
    "count under all" => count_under_all;
    "hold all" => hold_all;
}

async fn holders(client: &Client, name: &str) -> Vec<HoldId> {
    client.inspect(name).await.unwrap().holders.iter().map(|holder| holder.hold).collect()
}
fn is_over(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{error}");
}

async fn lock_reentrant_renew(cx: Context) {
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client().await, cx.name("m"));
    for _ in 0..2 {
        let me = a.owner();
        let mine = a.mutex(&name).reentrant(&me);
        let (outer, inner) = (mine.lock().await.unwrap(), mine.lock().await.unwrap());
        inner.release().await.unwrap();
        outer.release().await.unwrap();
    }
    let (next, token) = (a.owner(), b.inspect(&name).await.unwrap().last_token);
    let held = a.mutex(&name).reentrant(&next).lock().await.unwrap();
    let end = held.valid_until();
    for _ in 0..if full() { 10 } else { 2 } {
        within("renewed", held.renewed()).await;
    }
    assert!(held.valid_until() > end);
    held.check().unwrap();
    assert_eq!((holders(&b, &name).await, Some(held.token()) > token), (vec![held.id()], true));
    held.release().await.unwrap();
}

async fn try_lock_succeeds(cx: Context) {
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client().await, cx.name("m"));
    for client in [&a, &b] {
        let mutex = client.mutex(&name);
        let one = within("at once", mutex.try_lock()).await.unwrap().expect("it is free");
        assert_eq!(holders(&b, &name).await, [one.id()]);
        one.release().await.unwrap();
        let other = within("at once", mutex.try_lock_for(60 * SEC)).await.unwrap().expect("it is free");
        assert_eq!(holders(&b, &name).await, [other.id()]);
        other.release().await.unwrap();
    }
    let guard = a.mutex(&name).try_lock().await.unwrap().expect("it is free");
    let end = guard.valid_until();
    eventually("it is renewed like any other", || async { guard.valid_until() > end }).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
}

async fn try_lock_fails(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).note("shipping").lock().await.unwrap();
    for client in [&a, &b] {
        for _ in 0..10 {
            let busy = within("at once", client.mutex(&name).try_lock()).await.unwrap().unwrap_err();
            let holder = busy.holder.expect("it says who");
            assert_eq!((holder.hold, &*holder.note), (guard.id(), "shipping"));
            assert!(a.inspect(&name).await.unwrap().waiters.is_empty(), "it has not waited");
        }
        // Not for a moment.
        let mut attempt = client.mutex(&name).try_lock();
        let polled = once(&mut attempt).await;
        assert!(a.inspect(&name).await.unwrap().waiters.is_empty());
        let answer = if let Some(answer) = polled { answer } else { within("at once", attempt).await };
        assert!(answer.unwrap().is_err());
    }
    guard.check().unwrap();
    guard.release().await.unwrap();
    cx.free(&b, &name).await;
}

async fn try_lock_waits(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    for patience in [60 * SEC, STUCK] {
        let guard = a.mutex(&name).lock().await.unwrap();
        let wait = tokio::spawn(b.mutex(&name).try_lock_for(patience));
        cx.queued(&a, &name, 1).await;
        assert!(!wait.is_finished());
        let token = guard.token();
        guard.release().await.unwrap();
        let next = within("it is free", wait).await.unwrap().unwrap().expect("within its time");
        assert!(next.token() > token);
        assert_eq!(holders(&a, &name).await, [next.id()]);
        next.release().await.unwrap();
    }
}

fn names(cx: &Context, of: &[&str]) -> Vec<String> {
    of.iter().map(|what| cx.name(what)).collect()
}
fn multi(client: &Client, names: &[String]) -> MultiLock {
    MultiLock::new(names.iter().map(|name| client.mutex(name)))
}
/// Each is held by that member of the guard, and by nobody else.
async fn has_all(client: &Client, names: &[String], guard: &MultiGuard) {
    let members: Vec<_> = guard.members().map(|held| (held.name().to_string(), held.id())).collect();
    assert_eq!(members.len(), names.len());
    for (name, hold) in members {
        assert!(names.contains(&name));
        assert_eq!(holders(client, &name).await, [hold]);
    }
    guard.check().unwrap();
}
async fn all_free(client: &Client, names: &[String]) {
    for name in names {
        let status = client.inspect(name).await.unwrap();
        assert!(!status.is_held() && status.waiters.is_empty(), "{status:?}");
    }
}

async fn multi_busy(cx: Context) {
    let (a, b, all) = (cx.client().await, cx.client().await, names(&cx, &["1", "2", "3"]));
    for taken in &all {
        let guard = a.mutex(taken).lock().await.unwrap();
        for _ in 0..2 {
            assert_eq!(who_has_it(|| async { multi(&b, &all).try_lock().await }).await.hold, guard.id());
            let busy = within("its time", multi(&b, &all).try_lock_for(20 * MS)).await.unwrap();
            assert!(busy.is_err());
            for name in &all {
                let held = if name == taken { vec![guard.id()] } else { vec![] };
                assert_eq!(holders(&a, name).await, held, "all or nothing");
            }
            cx.queued(&a, taken, 0).await;
        }
        assert_eq!(b.held(), 0);
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
    let guard = multi(&b, &all).try_lock_for(STUCK).await.unwrap().expect("all are free");
    has_all(&a, &all, &guard).await;
    for _ in 0..2 {
        assert!(multi(&a, &all).try_lock().await.unwrap().is_err(), "another has all of them");
    }
    guard.release().await.unwrap();
    all_free(&a, &all).await;
}

async fn multi_threads(cx: Context) {
    let (client, all) = (cx.client().await, names(&cx, &["1", "2", "3"]));
    let mut puppets = Vec::new();
    for name in &all {
        let mut puppet = cx.puppet_with(60 * SEC).await;
        puppet.lock(name).await;
        puppets.push(puppet);
    }
    let lock = multi(&cx.client().await, &all);
    let wait = tokio::spawn(async move { lock.lock().await });
    // The order is the names': the last comes free first, and the second before the first.
    cx.queued(&client, &all[0], 1).await;
    for (name, puppet) in all.iter().zip(&mut puppets).rev() {
        assert!(!wait.is_finished(), "{name} is not free");
        assert!(puppet.release(name).await);
    }
    let guard = within("all are free", wait).await.unwrap().unwrap();
    has_all(&client, &all, &guard).await;
    guard.release().await.unwrap();
    all_free(&client, &all).await;
}

async fn multi_one_winner(cx: Context) {
    let (all, winners, losers) = (names(&cx, &["1", "2", "3"]), Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
    let mut tasks = Vec::new();
    for i in 0..10 {
        // In any order; half of them would wait for long.
        let mut own = all.clone();
        own.rotate_left(i % 3);
        let (lock, winners, losers) = (multi(&cx.client_with(10 * SEC).await, &own), winners.clone(), losers.clone());
        tasks.push(tokio::spawn(async move {
            let answer = if i % 2 == 0 { lock.try_lock_for(60 * SEC).await } else { lock.try_lock().await };
            match answer.unwrap() {
                Ok(guard) => winners.lock().unwrap().push(guard),
                Err(_) => *losers.lock().unwrap() += 1,
            }
        }));
    }
    let client = cx.client().await;
    eventually("one has all, the others are refused or wait", || async {
        let (won, lost) = (winners.lock().unwrap().len(), *losers.lock().unwrap());
        won > 0 && won + lost + client.inspect(&all[0]).await.unwrap().waiters.len() == 10
    })
    .await;
    let late = multi(&client, &all);
    assert!(within("its time", late.try_lock_for(50 * MS)).await.unwrap().is_err());
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    cx.queued(&client, &all[0], 0).await;
    let winner = winners.lock().unwrap().pop().unwrap();
    assert!(winners.lock().unwrap().is_empty(), "two winners");
    has_all(&client, &all, &winner).await;
    winner.release().await.unwrap();
    for name in &all {
        cx.free(&client, name).await;
    }
}

async fn multi_lock_unlock(cx: Context) {
    let (a, b, all) = (cx.client().await, cx.client().await, names(&cx, &["1", "2", "3"]));
    for _ in 0..2 {
        let guard = within("free", multi(&a, &all).lock()).await.unwrap();
        has_all(&b, &all, &guard).await;
        assert_eq!((a.held(), b.held(), guard.tokens().len()), (3, 0, 3));
        for client in [&a, &b] {
            for name in &all {
                assert!(client.mutex(name).try_lock().await.unwrap().is_err(), "{name} is its owner's only");
            }
        }
        assert!(guard.is_valid() && !guard.remaining().is_zero());
        guard.release().await.unwrap();
        all_free(&b, &all).await;
        assert_eq!(a.held(), 0);
    }
}

async fn token_increase(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    // Where one ttl is that of all holds it is given all the same.
    let ttl = if a.info().capabilities.ttl_per_hold { 30 * SEC } else { a.ttl() };
    let mut last = None;
    for client in [&a, &b, &a] {
        let (mutex, me) = (client.mutex(&name), client.owner());
        for way in 0..5 {
            let guard = match way {
                0 => mutex.lock().await.unwrap(),
                1 => mutex.try_lock().await.unwrap().expect("free"),
                2 => mutex.try_lock_for(STUCK).await.unwrap().expect("free"),
                3 => mutex.clone().ttl(ttl).lock().await.unwrap(),
                _ => mutex.clone().reentrant(&me).lock().await.unwrap(),
            };
            assert!(last < Some(guard.token()), "way {way}: {last:?}, then {}", guard.token());
            last = Some(guard.token());
            if way == 4 {
                let again = mutex.clone().reentrant(&me).lock().await.unwrap();
                assert_eq!(Some(again.token()), last, "a re-entry is no grant");
                again.release().await.unwrap();
            }
            guard.release().await.unwrap();
        }
    }
}

async fn non_reentrant_reacquire(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let mutex = client.mutex(&name);
    let guard = mutex.lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_err());
    assert!(within("its time", mutex.try_lock_for(20 * MS)).await.unwrap().is_err());
    let second = tokio::spawn(mutex.lock());
    cx.queued(&other, &name, 1).await;
    assert!(mutex.try_lock().await.unwrap().is_err());
    assert!(!second.is_finished());
    second.abort();
    cx.queued(&other, &name, 0).await;
    let status = other.inspect(&name).await.unwrap();
    let held: Vec<_> = status.holders.iter().map(|holder| (holder.hold, holder.token)).collect();
    assert_eq!((held, guard.entries(), client.held()), (vec![(guard.id(), guard.token())], 1, 1), "nothing has changed");
    guard.check().unwrap();
    guard.release().await.unwrap();
    let free = other.mutex(&name).try_lock_for(STUCK).await.unwrap();
    free.expect("one release frees it").release().await.unwrap();
}

async fn non_reentrant_two_handles(cx: Context) {
    let (client, judge, name) = (cx.client().await, cx.judge("m"), cx.name("m"));
    let (one, other) = (client.mutex(&name), client.mutex(&name));
    for (one, other) in [(&one, &other), (&other, &one)] {
        let guard = one.lock().await.unwrap();
        assert!(other.try_lock().await.unwrap().is_err());
        let wait = tokio::spawn(other.lock());
        cx.queued(&client, &name, 1).await;
        let token = guard.token();
        guard.release().await.unwrap();
        let next = within("free", wait).await.unwrap().unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
    let rounds = tenth(500);
    let tasks = [one, other].map(|mutex| {
        let judge = judge.clone();
        tokio::spawn(async move {
            for _ in 0..rounds {
                let guard = mutex.lock().await.unwrap();
                judge.work("handle", &guard).await;
                guard.release().await.unwrap();
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    judge.verdict(2 * u64::try_from(rounds).unwrap());
}

async fn multi_base(cx: Context) {
    let fixed = cx.client().await.info().capabilities.fixed_leases;
    let expires = async {
        if fixed {
            multi_expires(&cx).await;
        }
    };
    tokio::join!(multi_is_entered_again(&cx), multi_is_taken_away(&cx), multi_crash(&cx), multi_counts(&cx), expires);
}
async fn multi_is_entered_again(cx: &Context) {
    let (a, b, all) = (cx.client().await, cx.client().await, names(cx, &["again-1", "again-2"]));
    let me = a.owner();
    let mine = MultiLock::new(all.iter().map(|name| a.mutex(name).reentrant(&me)));
    let (outer, inner) = (mine.lock().await.unwrap(), within("again", mine.lock()).await.unwrap());
    assert_eq!(outer.tokens(), inner.tokens());
    for guard in [outer, inner] {
        assert!(multi(&b, &all).try_lock().await.unwrap().is_err());
        has_all(&b, &all, &guard).await;
        guard.release().await.unwrap();
    }
    all_free(&b, &all).await;
}
async fn multi_is_taken_away(cx: &Context) {
    // Short: some engines tell it with the next renewal.
    let (a, b, all) = (cx.client_with(2 * cx.short()).await, cx.client().await, names(cx, &["away-1", "away-2"]));
    let guard = multi(&a, &all).lock().await.unwrap();
    let token = guard.tokens()[1].1;
    let wrong = Token::new(token.get() + 1).unwrap();
    assert!(matches!(b.force_release(&all[1], wrong).await.unwrap(), Released::NotHeld { .. }));
    guard.check().unwrap();
    assert_eq!(b.force_release(&all[1], token).await.unwrap(), Released::Released);
    let (name, reason) = within("told", guard.lost()).await;
    assert_eq!((name.as_str(), reason), (all[1].as_str(), LossReason::TakenOver));
    assert!(!guard.is_valid() && guard.check().is_err(), "one lost is all lost");
    let next = b.mutex(&all[1]).try_lock().await.unwrap().expect("free");
    is_over(&guard.release().await.unwrap_err());
    // The other one is given back all the same, and the new holder's is his.
    b.mutex(&all[0]).try_lock().await.unwrap().expect("given back").release().await.unwrap();
    next.check().unwrap();
    next.release().await.unwrap();
}
async fn multi_crash(cx: &Context) {
    let (client, all) = (cx.client().await, names(cx, &["crash-1", "crash-2"]));
    let mut gone = cx.peer("hold all", &[&all[0], &all[1]]).await;
    gone.hear("held").await;
    let lock = multi(&client, &all);
    let wait = tokio::spawn(async move { lock.lock().await });
    cx.queued(&client, &all[0], 1).await;
    gone.crash().await;
    let guard = within("free within the lease or session time", wait).await.unwrap().unwrap();
    has_all(&client, &all, &guard).await;
    guard.release().await.unwrap();
}
/// `hold all NAME NAME`
async fn hold_all(mut me: RoleContext) {
    let guard = multi(&me.client, &me.words).lock().await.unwrap();
    me.say("held");
    let _ = me.hear().await;
    drop(guard);
}
async fn multi_expires(cx: &Context) {
    let (a, b, all) = (cx.client().await, cx.client().await, names(cx, &["lease-1", "lease-2"]));
    let old = MultiLock::new(all.iter().map(|name| a.mutex(name).lease(cx.short()))).lock().await.unwrap();
    let next = within("the leases have ended", multi(&b, &all).lock()).await.unwrap();
    let granted = BootClock.now();
    assert!(old.members().all(|held| granted >= held.valid_until()) && !old.is_valid());
    is_over(&old.release().await.unwrap_err());
    has_all(&a, &all, &next).await;
    next.release().await.unwrap();
}
/// Half of them are processes, where the engine has them.
async fn multi_counts(cx: &Context) {
    let (judge, all) = (cx.judge("m"), names(cx, &["count-1", "count-2"]));
    let (clients, rounds) = (tenth(20), 10);
    let (mut peers, mut tasks) = (Vec::new(), Vec::new());
    for i in 0..clients {
        // Half of them name them in the other order.
        let (one, other) = if i % 2 == 0 { (&all[0], &all[1]) } else { (&all[1], &all[0]) };
        let (place, who, rounds) = (judge.place().to_str().unwrap(), format!("peer-{i}"), rounds.to_string());
        peers.push(cx.peer_with(60 * SEC, "count under all", &[place, &who, &rounds, one, other]).await);
    }
    for i in 0..clients {
        let (lock, judge) = (multi(&cx.client().await, &all), judge.clone());
        tasks.push(tokio::spawn(async move { work_under_all(&lock, 0, &judge, &format!("here-{i}"), rounds).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for peer in peers {
        peer.finish().await;
    }
    judge.verdict(2 * u64::try_from(clients).unwrap() * rounds);
}
/// `count under all JUDGE WHO ROUNDS NAME …`
async fn count_under_all(me: RoleContext) {
    let judge = Judge::at(me.words[0].as_ref());
    work_under_all(&multi(&me.client, &me.words[3..]), 0, &judge, &me.words[1], me.number(2)).await;
}
/// The token is that of the n-th member, by name.
async fn work_under_all(lock: &MultiLock, n: usize, judge: &Judge, who: &str, rounds: u64) {
    for _ in 0..rounds {
        let guard = lock.lock().await.unwrap();
        let inside = judge.history.enter(who, Claim::Mutex, guard.tokens()[n].1.get());
        judge.counter.bump().await;
        guard.check().unwrap();
        judge.history.leave(inside);
        guard.release().await.unwrap();
    }
}

async fn multi_overlap(cx: Context) {
    let (a, b, judge) = (cx.client().await, cx.client().await, cx.judge("m"));
    let (one, other) = (names(&cx, &["2", "1"]), names(&cx, &["3", "2"]));
    for (mine, theirs) in [(&one, &other), (&other, &one)] {
        let guard = multi(&a, mine).lock().await.unwrap();
        for client in [&a, &b] {
            assert!(multi(client, theirs).try_lock().await.unwrap().is_err(), "they share a member");
        }
        has_all(&b, mine, &guard).await;
        let lock = multi(&b, theirs);
        let wait = tokio::spawn(async move { lock.lock().await });
        cx.queued(&a, &cx.name("2"), 1).await;
        guard.release().await.unwrap();
        let next = within("free", wait).await.unwrap().unwrap();
        has_all(&a, theirs, &next).await;
        next.release().await.unwrap();
    }
    // What they share is the second of the one and the first of the other.
    let rounds = 10;
    let mut tasks = Vec::new();
    for i in 0..6 {
        let (names, n) = if i % 2 == 0 { (&one, 1) } else { (&other, 0) };
        let (lock, judge) = (multi(&cx.client().await, names), judge.clone());
        tasks.push(tokio::spawn(async move { work_under_all(&lock, n, &judge, &format!("w{i}"), rounds).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    judge.verdict(6 * rounds);
}

async fn multi_renew(cx: Context) {
    let (a, b, all) = (cx.client_with(2 * cx.short()).await, cx.client().await, names(&cx, &["1", "2", "3"]));
    let guard = multi(&a, &all).lock().await.unwrap();
    let ends: Vec<_> = guard.members().map(|held| held.valid_until()).collect();
    for (held, end) in guard.members().zip(ends) {
        eventually("each of them is renewed", || async { held.valid_until() > end }).await;
    }
    assert!(multi(&b, &all).try_lock().await.unwrap().is_err());
    has_all(&b, &all, &guard).await;
    guard.release().await.unwrap();
}
