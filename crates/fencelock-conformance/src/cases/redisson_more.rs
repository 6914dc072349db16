//! redis.md 6.4: other suites of Redisson: semaphores, permits with leases, what a renewal leaves behind.
use super::prelude::*;

cases! {
    "redisson/blocking-n-acquire" => blocking_n_acquire, needs: [Permits];
    "redisson/try-n-acquire" => try_n_acquire, needs: [Permits];
    "redisson/acquire-after-add-permits" => acquire_after_add_permits, needs: [Permits];
    "redisson/reduce-permits" => reduce_permits, needs: [Permits];
    "redisson/try-set-permits" => try_set_permits, needs: [Permits, Store];
    "redisson/drain-permits" => drain_permits, needs: [Permits];
    "redisson/release-if-exists" => release_if_exists, needs: [Permits];
    "redisson/semaphore-zero" => semaphore_zero, needs: [Permits];
    "redisson/semaphore-concurrency" => semaphore_concurrency, needs: [Permits], limit: 60;
    "redisson/permit-expire" => permit_expire, needs: [Permits, FixedLeases];
    "redisson/permit-counts" => permit_counts, needs: [Permits, FixedLeases];
    "redisson/permit-update-lease-time" => permit_update_lease_time, needs: [Permits, FixedLeases];
    "redisson/permit-release-many" => permit_release_many, needs: [Permits, FixedLeases];
    "redisson/release-without-permits" => release_without_permits, needs: [Permits];
    "redisson/concurrency-multi-permits" => concurrency_multi_permits, needs: [Permits], limit: 60;
    "redisson/read-lock-entry" => read_lock_entry;
}
roles! {
    "share permits" => share_permits;
}

/// Size, taken and free permits, as far as the engine tells.
async fn counts(client: &Client, name: &str) -> (Option<u32>, u64, Option<u64>) {
    let status = client.inspect(name).await.unwrap();
    (status.capacity, status.taken(), status.free_permits())
}
async fn passed(at: Moment) {
    eventually("its time has passed", || async { BootClock.now() > at }).await;
}
fn is_over(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{error}");
}

async fn blocking_n_acquire(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(a.semaphore(&name, 6).acquire(2).await.unwrap());
    }
    let wait = tokio::spawn(b.semaphore(&name, 6).acquire(4));
    cx.queued(&a, &name, 1).await;
    held.pop().unwrap().release().await.unwrap();
    // Two are free, and nobody passes the one who waits for four.
    assert_eq!(counts(&b, &name).await, (Some(6), 4, Some(2)));
    assert!(a.semaphore(&name, 6).try_acquire(1).await.unwrap().is_err());
    assert!(!wait.is_finished());
    held.pop().unwrap().release().await.unwrap();
    let four = within("four are free", wait).await.unwrap().unwrap();
    assert_eq!((four.claim(), counts(&a, &name).await), (Claim::Permits { take: 4, of: 6 }, (Some(6), 6, Some(0))));
    four.check().unwrap();
    four.release().await.unwrap();
    held.pop().unwrap().release().await.unwrap();
}

async fn try_n_acquire(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    let (here, there) = (a.semaphore(&name, 6), b.semaphore(&name, 6));
    let four = here.try_acquire(4).await.unwrap().expect("six are free");
    for n in 3..=6 {
        assert!(there.try_acquire(n).await.unwrap().is_err(), "{n} of two");
        assert!(within("its time", there.try_acquire_for(n, 10 * MS)).await.unwrap().is_err(), "{n} of two");
    }
    cx.queued(&a, &name, 0).await;
    assert_eq!(counts(&b, &name).await, (Some(6), 4, Some(2)));
    let two = there.try_acquire_for(2, STUCK).await.unwrap().expect("two are free");
    assert!(here.try_acquire(1).await.unwrap().is_err());
    four.release().await.unwrap();
    let four = there.try_acquire_for(4, STUCK).await.unwrap().expect("four are free");
    two.release().await.unwrap();
    assert!(here.try_acquire(3).await.unwrap().is_err(), "three of two");
    four.release().await.unwrap();
    here.try_acquire_for(6, STUCK).await.unwrap().expect("all are free").release().await.unwrap();
}

async fn acquire_after_add_permits(cx: Context) {
    let (a, b, c, name) = (cx.client().await, cx.client().await, cx.client().await, cx.name("s"));
    let all = a.semaphore(&name, 3).acquire(3).await.unwrap();
    let one = tokio::spawn(b.semaphore(&name, 3).acquire(1));
    cx.queued(&a, &name, 1).await;
    let two = tokio::spawn(c.semaphore(&name, 3).acquire(2));
    cx.queued(&a, &name, 2).await;
    a.semaphore(&name, 3).resize(3, 4).await.unwrap();
    let one = within("one more is there", one).await.unwrap().unwrap();
    cx.queued(&a, &name, 1).await;
    assert!(!two.is_finished());
    assert_eq!(counts(&b, &name).await, (Some(4), 4, Some(0)));
    b.semaphore(&name, 4).resize(4, 6).await.unwrap();
    let two = within("two more are there", two).await.unwrap().unwrap();
    assert_eq!(counts(&b, &name).await, (Some(6), 6, Some(0)));
    for held in [all, one, two] {
        held.check().unwrap();
        held.release().await.unwrap();
    }
    b.semaphore(&name, 6).try_acquire(6).await.unwrap().expect("six are free").release().await.unwrap();
}

async fn reduce_permits(cx: Context) {
    let (a, b, c, name) = (cx.client().await, cx.client().await, cx.client().await, cx.name("s"));
    let mut held = vec![b.semaphore(&name, 5).acquire(2).await.unwrap()];
    for _ in 0..3 {
        held.push(a.semaphore(&name, 5).acquire(1).await.unwrap());
    }
    c.semaphore(&name, 5).resize(5, 2).await.unwrap();
    assert_eq!(counts(&c, &name).await, (Some(2), 5, Some(0)), "nothing is taken away");
    let wait = tokio::spawn(c.semaphore(&name, 2).acquire(1));
    cx.queued(&a, &name, 1).await;
    for taken in [4, 3, 2] {
        held.iter().for_each(|held| held.check().unwrap());
        held.pop().unwrap().release().await.unwrap();
        assert_eq!((counts(&a, &name).await, wait.is_finished()), ((Some(2), taken, Some(0)), false));
    }
    cx.queued(&a, &name, 1).await;
    held.pop().unwrap().release().await.unwrap();
    let one = within("enough is back", wait).await.unwrap().unwrap();
    assert_eq!(counts(&a, &name).await, (Some(2), 1, Some(1)));
    one.release().await.unwrap();
}

/// An idle record goes after its time, and the size with it. (Where its time cannot be set, the size stays for good.)
async fn try_set_permits(cx: Context) {
    if cx.fixture().records().is_some() {
        let (client, name) = (cx.client().await, cx.name("idle"));
        client.semaphore(&name, 3).acquire(2).await.unwrap().release().await.unwrap();
        assert_eq!(client.semaphore(&name, 4).acquire(1).await.unwrap_err().kind(), ErrorKind::CapacityMismatch);
        let other = super::consul::cleaned_up(&cx, &[&name]).await;
        for client in [&other, &client] {
            client.semaphore(&name, 4).acquire(4).await.unwrap().release().await.unwrap();
        }
    }
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    let refused = |error: &Error| assert_eq!(error.kind(), ErrorKind::CapacityMismatch, "{error}");
    assert_eq!(counts(&b, &name).await, (None, 0, None), "never used");
    let two = a.semaphore(&name, 3).acquire(2).await.unwrap();
    for other in [1, 2, 4, 5, u32::MAX] {
        let theirs = b.semaphore(&name, other);
        refused(&theirs.acquire(1).await.unwrap_err());
        refused(&theirs.try_acquire(1).await.unwrap_err());
        refused(&theirs.resize(other, 7).await.unwrap_err());
        assert_eq!(counts(&b, &name).await, (Some(3), 2, Some(1)), "not overwritten");
    }
    let one = b.semaphore(&name, 3).try_acquire(1).await.unwrap().expect("one is free");
    one.release().await.unwrap();
    two.release().await.unwrap();
    // Nobody has to be there.
    refused(&b.semaphore(&name, 5).try_acquire(1).await.unwrap_err());
    b.semaphore(&name, 3).try_acquire(3).await.unwrap().expect("all are free").release().await.unwrap();
}

async fn drain_permits(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    let two = a.semaphore(&name, 5).acquire(2).await.unwrap();
    let free = u32::try_from(b.inspect(&name).await.unwrap().free_permits().unwrap()).unwrap();
    assert_eq!(free, 3);
    let drained = b.semaphore(&name, 5).try_acquire(free).await.unwrap().expect("as many as are free");
    assert_eq!(counts(&a, &name).await, (Some(5), 5, Some(0)));
    for client in [&a, &b] {
        assert!(client.semaphore(&name, 5).try_acquire(1).await.unwrap().is_err(), "there is none");
    }
    two.release().await.unwrap();
    assert_eq!(counts(&a, &name).await, (Some(5), 3, Some(2)), "what came back is free, what was drained is not");
    drained.release().await.unwrap();
}

/// What is gone stays gone: a release makes no record, and gives no permit back twice.
async fn release_if_exists(cx: Context) {
    let (a, (b, below), name) = (cx.client_with(cx.short()).await, cx.connect(cx.short()).await, cx.name("s"));
    let held = a.semaphore(&name, 3).acquire(2).await.unwrap();
    let holder = b.inspect(&name).await.unwrap().holders.remove(0);
    assert_eq!(b.force_release(&name, holder.token).await.unwrap(), Released::Released);
    is_over(&held.release().await.unwrap_err());
    // Also one that the engine never heard of.
    for name in [name.clone(), cx.name("never")] {
        let before = b.inspect(&name).await.unwrap();
        let grant = grant_of(&Name::new(&name).unwrap(), holder.claim, holder.hold, holder.token);
        assert_eq!(below.engine.release(&grant).await.unwrap(), Released::NotHeld { holder: None });
        let after = b.inspect(&name).await.unwrap();
        assert!(!before.is_held() && after == before, "{before:?}, then {after:?}");
    }
    let listed = b.list(cx.prefix(), &Page::default()).await.unwrap();
    assert!(listed.items.is_empty(), "{listed:?}");
    let all = b.semaphore(&name, 3).try_acquire(3).await.unwrap().expect("three are there");
    assert!(a.semaphore(&name, 3).try_acquire(1).await.unwrap().is_err(), "and not five");
    all.release().await.unwrap();
}
fn grant_of(name: &Name, claim: Claim, hold: HoldId, token: Token) -> Grant {
    let lease = Lease::Own { sent_at: BootClock.now() };
    Grant { name: name.clone(), claim, hold, token, ttl: 60 * SEC, lease, server_micros: 0, place: None }
}

async fn semaphore_zero(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("s"));
    let refused = |error: Error| assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    for (take, of) in [(0, 3), (0, 1), (1, 0), (0, 0), (4, 3), (u32::MAX, 0)] {
        let semaphore = client.semaphore(&name, of);
        refused(within("at once", semaphore.acquire(take)).await.unwrap_err());
        refused(within("at once", semaphore.try_acquire(take)).await.unwrap_err());
        refused(within("at once", semaphore.try_acquire_for(take, STUCK)).await.unwrap_err());
        let all = MultiLock::new([semaphore.permits(take)]);
        refused(within("at once", all.lock()).await.unwrap_err());
    }
    for (from, to) in [(0, 3), (3, 0), (0, 0)] {
        refused(client.semaphore(&name, 3).resize(from, to).await.unwrap_err());
    }
    assert_eq!(counts(&client, &name).await, (None, 0, None), "nothing was stored");
    let one = client.semaphore(&name, 1).acquire(1).await.unwrap();
    refused(client.semaphore(&name, 1).resize(1, 0).await.unwrap_err());
    assert_eq!((counts(&client, &name).await, one.is_valid()), ((Some(1), 1, Some(0)), true));
    one.release().await.unwrap();
}

/// Some are processes, where the engine has them. Each round takes `most` permits, or a random number up to that.
async fn share_among_many(cx: &Context, of: u32, most: u32) {
    let (judge, name) = (cx.judge("s"), cx.name("s"));
    // First the house is full: those who come now wait, and the maximum is reached.
    let (mut full_house, before) = (Vec::new(), judge::History::in_memory());
    for i in 0..of {
        let guard = cx.client().await.semaphore(&name, of).acquire(1).await.unwrap();
        full_house.push((before.enter(&format!("first-{i}"), guard.claim(), 0), guard));
    }
    let (each, rounds) = (tenth(30), if full() { 40 } else { 15 });
    let (mut peers, mut tasks) = (Vec::new(), Vec::new());
    let [sizes, rounds_word] = [format!("{of} {most}"), rounds.to_string()];
    for i in 0..each {
        let words = [&name, judge.place().to_str().unwrap(), &format!("peer-{i}"), &rounds_word, &sizes];
        peers.push(cx.peer_with(60 * SEC, "share permits", &words).await);
        // Several tasks of one client.
        let client = cx.client().await;
        for j in 0..2 {
            let (client, judge, name) = (client.clone(), judge.clone(), name.clone());
            tasks.push(tokio::spawn(async move {
                rounds_of_sharing(&client, &name, &judge, &format!("here-{i}-{j}"), rounds, of, most).await;
            }));
        }
    }
    eventually("those who come wait", || async { !cx.client().await.inspect(&name).await.unwrap().waiters.is_empty() })
        .await;
    for (inside, guard) in full_house {
        before.leave(inside);
        guard.release().await.unwrap();
    }
    for task in tasks {
        task.await.unwrap();
    }
    for peer in peers {
        peer.finish().await;
    }
    // Of those who came, without those who were there first.
    let crowd = judge.history.intervals();
    let most_at_once = judge.permits(of);
    assert!(most_at_once > 1, "one by one, though there are {of}");
    let turns = 3 * each * usize::try_from(rounds).unwrap();
    assert_eq!(crowd.len(), turns, "all had their turns");
    let all: Vec<_> = before.intervals().into_iter().chain(crowd).collect();
    judge::permits(&all, of).unwrap();
}
/// `share permits NAME JUDGE WHO ROUNDS "OF MOST"`
async fn share_permits(me: RoleContext) {
    let judge = Judge::at(me.words[1].as_ref());
    let (of, most) = me.words[4].split_once(' ').unwrap();
    let (of, most) = (of.parse().unwrap(), most.parse().unwrap());
    rounds_of_sharing(&me.client, &me.words[0], &judge, &me.words[2], me.number(3), of, most).await;
}
async fn rounds_of_sharing(client: &Client, name: &str, judge: &Judge, who: &str, rounds: u64, of: u32, most: u32) {
    for round in 0..rounds {
        let guard = client.semaphore(name, of).acquire(fastrand::u32(1..=most)).await.unwrap();
        // Once for so long that another one comes in beside him, however slow the machine is.
        let stays = if round == 0 { 200 * MS } else { judge::a_while() };
        judge.share_for(who, &guard, stays).await;
        guard.release().await.unwrap();
    }
}
async fn semaphore_concurrency(cx: Context) {
    share_among_many(&cx, 3, 1).await;
}
async fn concurrency_multi_permits(cx: Context) {
    share_among_many(&cx, 5, 5).await;
}

async fn permit_expire(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    let stays = a.semaphore(&name, 3).acquire(1).await.unwrap();
    let held = a.semaphore(&name, 3).lease(2 * cx.short()).acquire(2).await.unwrap();
    let wait = tokio::spawn(b.semaphore(&name, 3).acquire(1));
    cx.queued(&a, &name, 1).await;
    let timed = within("its time", a.semaphore(&name, 3).try_acquire_for(1, 10 * MS)).await.unwrap();
    assert!(timed.is_err() && held.is_valid());
    let next = within("the lease has ended", wait).await.unwrap().unwrap();
    assert!(BootClock.now() >= held.valid_until() && !held.is_valid(), "granted within the claimed validity");
    is_over(&held.release().await.unwrap_err());
    assert_eq!(counts(&a, &name).await, (Some(3), 2, Some(1)), "a late release gives nothing back");
    for guard in [stays, next] {
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
}

async fn permit_counts(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    let expires = a.semaphore(&name, 5).lease(2 * cx.short()).acquire(2).await.unwrap();
    let stays = b.semaphore(&name, 5).lease(60 * SEC).acquire(1).await.unwrap();
    for client in [&a, &b] {
        assert_eq!(counts(client, &name).await, (Some(5), 3, Some(2)));
    }
    within("told", expires.lost()).await;
    eventually("it has ended", || async { counts(&b, &name).await == (Some(5), 1, Some(4)) }).await;
    assert!(BootClock.now() >= expires.valid_until());
    let four = a.semaphore(&name, 5).try_acquire(4).await.unwrap().expect("as many as are told to be free");
    assert_eq!(counts(&b, &name).await, (Some(5), 5, Some(0)));
    four.release().await.unwrap();
    stays.release().await.unwrap();
    assert_eq!(counts(&a, &name).await.1, 0);
}

async fn permit_update_lease_time(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    let held = a.semaphore(&name, 2).lease(cx.short()).acquire(2).await.unwrap();
    let end = held.valid_until();
    held.extend(60 * SEC).await.unwrap();
    let wait = tokio::spawn(b.semaphore(&name, 2).acquire(1));
    cx.queued(&a, &name, 1).await;
    for _ in 0..2 {
        let left = b.inspect(&name).await.unwrap().holders[0].left;
        for left in [left, held.remaining()] {
            assert!(left <= 60 * SEC && left > 60 * SEC - STUCK, "{left:?}");
        }
        // It never gets shorter.
        held.extend(cx.short()).await.unwrap();
    }
    passed(end + cx.short() / 10).await;
    assert_eq!((counts(&b, &name).await, wait.is_finished()), ((Some(2), 2, Some(0)), false));
    held.check().expect("beyond its first end");
    held.release().await.unwrap();
    within("free", wait).await.unwrap().unwrap().release().await.unwrap();
}

/// Permits that are taken at once are one hold: they come back at once, or, when it is over, none of them does.
async fn permit_release_many(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    let held = a.semaphore(&name, 5).acquire(3).await.unwrap();
    assert_eq!(counts(&b, &name).await, (Some(5), 3, Some(2)));
    held.release().await.unwrap();
    assert_eq!(counts(&b, &name).await.1, 0);

    let old = a.semaphore(&name, 5).lease(cx.short()).acquire(3).await.unwrap();
    within("told", old.lost()).await;
    let wait = b.semaphore(&name, 5).acquire(4);
    let next = within("all three have expired", wait).await.unwrap();
    is_over(&old.release().await.unwrap_err());
    assert_eq!(counts(&b, &name).await, (Some(5), 4, Some(1)), "nothing of the next holder's came back");
    assert!(a.semaphore(&name, 5).try_acquire(2).await.unwrap().is_err());
    next.check().unwrap();
    next.release().await.unwrap();
}

async fn release_without_permits(cx: Context) {
    let (a, (b, below), name) = (cx.client().await, cx.connect(cx.short()).await, cx.name("s"));
    let held = a.semaphore(&name, 3).acquire(2).await.unwrap();
    let token = b.inspect(&name).await.unwrap().holders[0].token;
    let (stranger, other) = (HoldId::from_bytes([7; 16]), Token::new(token.get() + 1).unwrap());
    for take in 1..=3 {
        for (hold, token) in [(stranger, token), (held.id(), other), (stranger, other)] {
            let grant = grant_of(held.name(), Claim::Permits { take, of: 3 }, hold, token);
            let answer = below.engine.release(&grant).await.unwrap();
            assert!(matches!(answer, Released::NotHeld { .. }), "{answer:?}");
            assert_eq!(counts(&b, &name).await, (Some(3), 2, Some(1)), "the capacity does not grow");
        }
    }
    assert!(b.semaphore(&name, 3).try_acquire(2).await.unwrap().is_err());
    held.check().unwrap();
    held.release().await.unwrap();
    let all = b.semaphore(&name, 3).try_acquire(3).await.unwrap().expect("three are free");
    assert!(a.semaphore(&name, 3).try_acquire(1).await.unwrap().is_err(), "and not one more");
    all.release().await.unwrap();
}

async fn read_lock_entry(cx: Context) {
    let ttl = 2 * cx.short();
    let ((client, chaos), other, name) = (cx.chaos(ttl).await, cx.client().await, cx.name("rw"));
    let me = client.owner();
    let mine = client.rw_lock(&name).reentrant(&me);
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(mine.read().await.unwrap());
    }
    within("renewed", guards[0].renewed()).await;
    while let Some(guard) = guards.pop() {
        // While there is an entry left there is one hold.
        assert_eq!((client.held(), other.inspect(&name).await.unwrap().holders.len()), (1, 1));
        guard.release().await.unwrap();
        assert_eq!(usize::try_from(me.entries(&name)).unwrap(), guards.len());
    }
    assert_eq!((client.held(), other.inspect(&name).await.unwrap().is_held()), (0, false));
    // It would be renewed after a third of its ttl.
    let (renewals, due) = (chaos.calls(Operation::Renew), BootClock.now() + ttl * 2 / 5);
    assert!(renewals > 0);
    passed(due).await;
    assert_eq!(chaos.calls(Operation::Renew), renewals, "nothing of it is left in the renewals");
}
