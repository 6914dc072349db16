//! redis.md 1.5 and 3, consensus.md 5, sql.md 3.1 and 5: known bugs of others that no case above shows.
use super::{
    madelson::{grant_of, is_refused, is_silent},
    prelude::*,
};
use tokio::runtime::Builder;

cases! {
    "issue/redisson-7367" => sent_twice_counts_once;
    "issue/redisson-5761" => a_wake_up_is_lost, needs: [WakeUps];
    "issue/redisson-6962" => many_holds, limit: 120;
    "issue/redisson-1104" => the_living_keep_their_place, needs: [Crash];
    "issue/redisson-1824" => tasks_that_change_threads;
    "issue/redisson-3573" => hundreds_of_waits;
    "issue/redisson-b6" => every_way_has_its_ttl, needs: [TtlPerHold];
    "issue/redsync-168" => one_handle_many_tasks;
    "issue/rslock-6" => a_drop_never_blocks, needs: [Silence];
    "issue/curator-592" => told_its_place;
    "issue/kazoo-282" => acquires_survive_the_session, needs: [Silence];
    "issue/kazoo-649" => behind_earlier_writers_only, needs: [ReadWrite];
    "issue/gbrain-2154" => late_is_not_dead, needs: [Processes];
    "issue/oban-847" => a_leader_that_ends_wakes_the_others, needs: [Alone];
    "distributed-lock-rs/loss-signal-inverted" => not_lost_at_once;
    "distributed-lock-rs/tiny-timeout" => tiny_timeouts;
}
roles! {}

async fn sent_twice_counts_once(cx: Context) {
    let ((client, chaos), other) = (cx.chaos(60 * SEC).await, cx.client().await);
    let can = client.info().capabilities.clone();
    let (m, rw, few) = (cx.name("m"), cx.name("rw"), cx.name("few"));
    for round in 0..10 {
        let twice = || chaos.next(Operation::Acquire, 1, Trouble::Twice);
        let one = async |name: &str, hold: HoldId, taken: u64| {
            let status = other.inspect(name).await.unwrap();
            assert_eq!((status.holders.len(), status.holders[0].hold), (1, hold), "{status:?}");
            assert_eq!((status.taken(), status.waiters.len()), (taken, 0));
        };
        twice();
        let guard = client.mutex(&m).try_lock().await.unwrap().expect("free");
        let status = other.inspect(&m).await.unwrap();
        assert_eq!((status.holders.len(), status.holders[0].token), (1, guard.token()));
        guard.release().await.unwrap();
        other.mutex(&m).try_lock().await.unwrap().expect("one release frees it").release().await.unwrap();
        if can.read_write {
            twice();
            let guard = client.rw_lock(&rw).read().await.unwrap();
            assert_eq!(other.inspect(&rw).await.unwrap().holders.len(), 1);
            guard.release().await.unwrap();
            other.rw_lock(&rw).try_write().await.unwrap().expect("one release frees it").release().await.unwrap();
        }
        if can.permits {
            twice();
            let guard = client.semaphore(&few, 3).acquire(2).await.unwrap();
            one(&few, guard.id(), 2).await;
            // In the queue it counts once as well.
            let mutex = client.semaphore(&few, 3);
            twice();
            let wait = tokio::spawn(mutex.acquire(2));
            cx.queued(&other, &few, 1).await;
            guard.release().await.unwrap();
            let next = within("free", wait).await.unwrap().unwrap();
            one(&few, next.id(), 2).await;
            if round % 2 == 0 { drop(next) } else { next.release().await.unwrap() }
            within("all are back", other.semaphore(&few, 3).acquire(3)).await.unwrap().release().await.unwrap();
        }
    }
}

/// SIGSTOP, but not inside a write, which would stop everybody, other trials too.
pub(super) async fn stop(cx: &Context, client: &Client, peer: &crate::Peer) {
    loop {
        peer.stop();
        let write = async { client.mutex(cx.name("probe")).lock().await.unwrap().release().await };
        if tokio::time::timeout(300 * MS, write).await.is_ok() {
            return;
        }
        peer.go_on();
    }
}
/// He gets in by his own look, which comes much later than a wake-up and much sooner than the lease would end.
async fn a_wake_up_is_lost(cx: Context) {
    let (holder, deaf, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let mut latest = Duration::ZERO;
    // One whose own look comes in that moment misses no wake-up.
    for round in 0..20 {
        let guard = holder.mutex(&name).lock().await.unwrap();
        let wait = tokio::spawn(deaf.mutex(&name).lock());
        cx.queued(&holder, &name, 1).await;
        cx.fixture().wake_ups().unwrap().lose().await;
        let freed = Instant::now();
        guard.release().await.unwrap();
        within("without sleeping out a lease", wait).await.unwrap().unwrap().release().await.unwrap();
        latest = latest.max(freed.elapsed());
        if round > 0 && latest > 100 * MS {
            break;
        }
    }
    assert!(latest > 100 * MS, "no wake-up was lost: in after {latest:?}");
    within("free", holder.mutex(&name).lock()).await.unwrap().release().await.unwrap();
}

async fn many_holds(cx: Context) {
    let ttl = if full() { 60 * SEC } else { 6 * SEC };
    let (chaos, n) = (Arc::new(Chaos::new(cx.fixture().engine(ttl).await.engine)), tenth(100_000));
    // The keeper is here, so its tasks are among those that are counted.
    let client = Client::builder(chaos.clone()).keeper_here().build().unwrap();
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let (alive, had) = (tokio::runtime::Handle::current().metrics().num_alive_tasks(), threads());
    let mut guards = Vec::new();
    for i in 0..n {
        guards.push(client.mutex(cx.name(&i.to_string())).lock().await.unwrap());
    }
    assert_eq!(client.held(), n);
    assert!(tokio::runtime::Handle::current().metrics().num_alive_tasks() <= alive + 4, "no task for each");
    assert!(threads() < had + n / 10, "no thread for each: {had}, then {}", threads());
    let (before, last) = (chaos.calls(Operation::Renew), guards.last().unwrap());
    tokio::time::timeout(ttl, last.renewed()).await.expect("renewed");
    let calls = chaos.calls(Operation::Renew) - before;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    assert_eq!(lost, 0, "after {calls} calls");
    assert!(calls > 0 && calls < u64::try_from(n / 4).unwrap(), "{calls} calls for {n} holds");
    drop(guards);
    tokio::time::timeout(3 * ttl, async {
        while !client.list(cx.prefix(), &Page::default()).await.unwrap().items.is_empty() {
            tokio::time::sleep(20 * MS).await;
        }
    })
    .await
    .expect("all are released");
}

async fn the_living_keep_their_place(cx: Context) {
    let (holder, name, ttl) = (cx.client().await, cx.name("m"), cx.short());
    let guard = holder.mutex(&name).lock().await.unwrap();
    let mut dead = cx.puppet().await;
    dead.ask_lock(&name);
    cx.queued(&holder, &name, 1).await;
    let living = tokio::spawn(cx.client_with(ttl).await.mutex(&name).note("living").lock());
    let hold = cx.queued(&holder, &name, 2).await.waiters[1].hold;
    dead.crash().await;
    cx.queued(&holder, &name, 1).await;
    // Longer than anything of it lasts by itself.
    eventually("it waits", || async {
        let waiters = holder.inspect(&name).await.unwrap().waiters;
        let waiter = waiters.iter().find(|waiter| waiter.hold == hold);
        waiter.expect("it keeps its place").waiting_for > ttl * 5 / 4
    })
    .await;
    cx.queued(&holder, &name, 1).await;
    let late = tokio::spawn(cx.client().await.mutex(&name).lock());
    let queue = cx.queued(&holder, &name, 2).await.waiters.iter().map(|waiter| waiter.hold).collect::<Vec<_>>();
    assert_eq!(queue[0], hold);
    let freed = BootClock.now();
    guard.release().await.unwrap();
    cx.turn_of(&holder, &name, &queue, freed).await;
    within("his turn", living).await.unwrap().unwrap().release().await.unwrap();
    within("the last", late).await.unwrap().unwrap().release().await.unwrap();
}

/// A runtime of its own in a thread of its own.
fn elsewhere<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> {
    let thread = move || Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    async { tokio::task::spawn_blocking(thread).await.unwrap() }
}
async fn tasks_that_change_threads(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let me = client.owner();
    for _ in 0..10 {
        let (mutex, again) = (client.mutex(&name), client.mutex(&name));
        // Two tasks of one thread share nothing.
        let guard = elsewhere(async move {
            let guard = mutex.lock().await.unwrap();
            assert!(again.try_lock().await.unwrap().is_err());
            guard
        })
        .await;
        assert!(client.mutex(&name).try_lock().await.unwrap().is_err());
        // Another thread releases it.
        elsewhere(async move {
            guard.check().unwrap();
            guard.release().await.unwrap();
        })
        .await;
        // An owner goes with the task, not with the thread.
        let mine = client.mutex(&name).reentrant(&me);
        let (here, there) = (mine.lock().await.unwrap(), mine.clone());
        let inner = elsewhere(async move { there.lock().await.unwrap() }).await;
        assert_eq!((inner.token(), me.entries(&name)), (here.token(), 2));
        elsewhere(async move { drop(here) }).await;
        inner.check().unwrap();
        assert!(client.mutex(&name).try_lock().await.unwrap().is_err());
        inner.release().await.unwrap();
    }
}

async fn hundreds_of_waits(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let (guard, before, n) = (client.mutex(&name).lock().await.unwrap(), threads(), 1000);
    let mut others = Vec::new();
    for _ in 0..5 {
        others.push(cx.client().await);
    }
    let waits: Vec<_> = (0..n)
        .map(|i| {
            let wait = others[i % 5].mutex(&name).lock();
            tokio::spawn(async move { wait.await.unwrap().release().await.unwrap() })
        })
        .collect();
    cx.queued(&client, &name, 5).await;
    // Other trials come and go meanwhile, with some threads each.
    assert!(threads() < before + n / 2, "{before} threads, then {}", threads());
    let work = tokio::task::spawn_blocking(|| 42);
    assert_eq!(within("there is a thread for others", work).await.unwrap(), 42);
    within("no wait is in the way of a release", guard.release()).await.unwrap();
    for wait in waits {
        wait.await.unwrap();
    }
}

async fn every_way_has_its_ttl(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let (can, ttl, me) = (client.info().capabilities.clone(), 20 * SEC, client.owner());
    let good = async |held: &fencelock_core::Held| {
        let left = other.inspect(held.name().as_str()).await.unwrap().holders[0].left;
        assert_eq!(held.ttl(), ttl);
        for left in [left.saturating_sub(cx.rounds_up()), held.remaining()] {
            assert!(left <= ttl && left > ttl - STUCK, "{left:?} of {ttl:?}");
        }
    };
    let m = client.mutex(&name).ttl(ttl);
    let mut ways = vec![m.clone(), m.clone().reentrant(&me), m.note("x"), client.mutex(&name).ttl(SEC).ttl(ttl)];
    if can.fixed_leases {
        ways.push(client.mutex(&name).lease(ttl));
    }
    for way in ways {
        let guard = way.lock().await.unwrap();
        good(&guard).await;
        guard.release().await.unwrap();
        let guard = way.try_lock().await.unwrap().expect("free");
        good(&guard).await;
        guard.release().await.unwrap();
        let guard = way.try_lock_for(SEC).await.unwrap().expect("free");
        good(&guard).await;
        guard.release().await.unwrap();
        // After a wait in the queue, too.
        let guard = other.mutex(&name).lock().await.unwrap();
        let wait = tokio::spawn(way.lock());
        cx.queued(&other, &name, 1).await;
        guard.release().await.unwrap();
        let guard = within("his turn", wait).await.unwrap().unwrap();
        good(&guard).await;
        guard.release().await.unwrap();
    }
    good(&client.election(cx.name("e")).ttl(ttl).campaign("me").await.unwrap()).await;
    if can.read_write {
        let rw = client.rw_lock(cx.name("rw")).ttl(ttl);
        good(&rw.read().await.unwrap()).await;
        good(&within("free", rw.write()).await.unwrap()).await;
    }
    if can.permits {
        good(&client.semaphore(cx.name("few"), 2).ttl(ttl).acquire(1).await.unwrap()).await;
    }
    let all = MultiLock::new([client.mutex(&name).ttl(ttl), client.mutex(cx.name("n")).ttl(ttl)]).lock().await.unwrap();
    for member in all.members() {
        good(member).await;
    }
    all.release().await.unwrap();
}

async fn one_handle_many_tasks(cx: Context) {
    let ((client, below), judge, name) = (cx.connect(60 * SEC).await, cx.judge("m"), cx.name("m"));
    let mutex = Arc::new(client.mutex(&name));
    let rounds = tenth(100);
    let tasks: Vec<_> = (0..8)
        .map(|i| {
            let (mutex, judge, engine) = (mutex.clone(), judge.clone(), below.engine.clone());
            tokio::spawn(async move {
                let mut holds = Vec::new();
                for _ in 0..rounds {
                    let guard = mutex.lock().await.unwrap();
                    let ours = grant_of(&guard);
                    judge.work(&format!("t{i}"), &guard).await;
                    guard.release().await.unwrap();
                    // Late: somebody else of the same handle may have it now.
                    is_refused(&engine, &ours).await;
                    holds.push(ours.hold);
                }
                holds
            })
        })
        .collect();
    let mut holds = Vec::new();
    for task in tasks {
        holds.extend(task.await.unwrap());
    }
    judge.verdict(8 * u64::try_from(rounds).unwrap());
    holds.sort();
    holds.dedup();
    assert_eq!(holds.len(), 8 * rounds, "each attempt is a hold of its own");
}

async fn a_drop_never_blocks(cx: Context) {
    let ((client, silence), other, name) = (cx.silenceable(60 * SEC).await, cx.client().await, cx.name("m"));
    for silent in [false, true] {
        // Inside a runtime of one thread, outside of any, and while one ends.
        for way in 0..3 {
            let guard = within("free", client.mutex(&name).lock()).await.unwrap();
            if silent {
                silence.begin().await;
            }
            let gone = std::thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                match way {
                    0 => runtime.block_on(async { drop(guard) }),
                    1 => drop(guard),
                    _ => {
                        runtime.spawn(async move { guard.lost().await });
                        runtime.block_on(tokio::task::yield_now());
                        drop(runtime);
                    }
                }
            });
            eventually("it is dropped, though the engine is silent", || async { gone.is_finished() }).await;
            if silent {
                silence.end().await;
            }
            gone.join().unwrap();
            cx.free(&other, &name).await;
        }
    }
}

async fn told_its_place(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).note("shipping").lock().await.unwrap();
    let mut waits = Vec::new();
    for i in 0..3 {
        let mut wait = cx.client().await.mutex(&name).lock();
        assert!(wait.blocked_by().is_none(), "nothing is sent before it is polled");
        let told = async {
            while wait.blocked_by().is_none() {
                assert!(once(&mut wait).await.is_none());
                tokio::time::sleep(MS).await;
            }
            wait.blocked_by().unwrap()
        };
        let busy = within("told", told).await;
        assert_eq!(busy.ahead, Some(i), "{busy}");
        assert_eq!(busy.holder.expect("the engine tells").hold, guard.id());
        // As soon as it has one: it is there now.
        assert_eq!(client.inspect(&name).await.unwrap().waiters.len(), usize::try_from(i).unwrap() + 1);
        waits.push(wait);
    }
    drop(waits);
    cx.queued(&client, &name, 0).await;
    guard.release().await.unwrap();
}

async fn acquires_survive_the_session(cx: Context) {
    let ((a, silence), b, name) = (cx.silenceable(cx.short()).await, cx.client().await, cx.name("m"));
    let (gone, other) = (cx.name("gone"), cx.name("other"));
    let (guard, lost) = (b.mutex(&name).lock().await.unwrap(), a.mutex(&gone).lock().await.unwrap());
    let wait = tokio::spawn(a.mutex(&name).lock());
    cx.queued(&b, &name, 1).await;
    silence.begin().await;
    let mut on_its_way = a.mutex(&other).lock();
    assert!(once(&mut on_its_way).await.is_none());
    // The session is over, and its place in the queue with it; a new one is opened, and nobody has to do anything for it.
    within("told", lost.lost()).await;
    silence.let_others().await;
    within("the session ends", b.mutex(&gone).lock()).await.unwrap().release().await.unwrap();
    silence.end().await;
    within("it does not hang", on_its_way).await.unwrap().release().await.unwrap();
    assert!(!lost.is_valid() && lost.release().await.is_err());
    guard.release().await.unwrap();
    within("in", wait).await.unwrap().unwrap().release().await.unwrap();
}

async fn behind_earlier_writers_only(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("rw"));
    let first = client.rw_lock(&name).write().await.unwrap();
    let mut readers = Vec::new();
    for i in 0..2 {
        readers.push(tokio::spawn(cx.client().await.rw_lock(&name).read()));
        cx.queued(&client, &name, i + 1).await;
    }
    let second = tokio::spawn(cx.client().await.rw_lock(&name).write());
    cx.queued(&client, &name, 3).await;
    let late = tokio::spawn(cx.client().await.rw_lock(&name).read());
    cx.queued(&client, &name, 4).await;
    first.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(within("only the first writer was before them", reader).await.unwrap().unwrap());
    }
    assert!(!second.is_finished() && !late.is_finished(), "two read");
    for guard in guards {
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
    let second = within("his turn", second).await.unwrap().unwrap();
    assert!(!late.is_finished());
    second.release().await.unwrap();
    within("the last", late).await.unwrap().unwrap().release().await.unwrap();
}

async fn late_is_not_dead(cx: Context) {
    let (client, mut late, name) = (cx.client().await, cx.puppet().await, cx.name("m"));
    let asked = BootClock.now();
    let old = late.lock(&name).await;
    stop(&cx, &client, late.peer()).await;
    let next = within("its lease ends", client.mutex(&name).lock()).await.unwrap();
    assert!(BootClock.now() >= asked + cx.short(), "its process lives: nobody is in before its lease ends");
    assert!(next.token() > old);
    late.peer().go_on();
    assert!(!late.release(&name).await);
    next.check().unwrap();
    next.release().await.unwrap();
}

async fn a_leader_that_ends_wakes_the_others(cx: Context) {
    let name = cx.name("m");
    let mut client = cx.client().await;
    let mut term = client.election(&name).campaign("n0").await.unwrap();
    for end in 0..4 {
        let other = cx.client().await;
        let wait = tokio::spawn(other.election(&name).campaign(format!("n{}", end + 1)));
        cx.queued(&other, &name, 1).await;
        let ended = Instant::now();
        match end {
            0 | 3 => term.resign().await.unwrap(),
            1 => drop(term),
            _ => {
                drop(term);
                client.shutdown(SEC).await.unwrap();
            }
        }
        term = within("at once", wait).await.unwrap().unwrap();
        cx.in_time("the next one leads", ended.elapsed(), SEC);
        client = other;
    }
    term.resign().await.unwrap();
}

async fn not_lost_at_once(cx: Context) {
    let (client, name) = (cx.client_with(2 * cx.short()).await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let lost = guard.lost();
    assert!(once(&mut Box::pin(guard.lost())).await.is_none(), "not at the grant");
    within("a renewal", guard.renewed()).await;
    for _ in 0..100 {
        assert!(once(&mut Box::pin(guard.lost())).await.is_none(), "nor while it is held");
        guard.check().unwrap();
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    is_silent("nor after the release", lost).await;
}

async fn tiny_timeouts(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    let guard = other.mutex(&name).lock().await.unwrap();
    let mutex = client.mutex(&name);
    for patience in [0, 1, 999, 1_000, 999_999].map(Duration::from_nanos) {
        let answer = within("short, not endless", mutex.try_lock_for(patience)).await;
        assert!(answer.unwrap().is_err(), "{patience:?}");
    }
    cx.queued(&other, &name, 0).await;
    // The time that it takes to get through counts as well.
    let began = Instant::now();
    chaos.next(Operation::Acquire, 1, Trouble::Delay(60 * SEC));
    let answer = within("its time", mutex.try_lock_for(50 * MS)).await;
    assert!(answer.is_err_and(|e| e.is_temporary()) && began.elapsed() >= 50 * MS);
    guard.release().await.unwrap();
    // What is free is got, however short the time: or nothing of it is left.
    for _ in 0..20 {
        if let Ok(guard) = within("short", mutex.try_lock_for(Duration::from_micros(1))).await.unwrap() {
            guard.release().await.unwrap();
        }
    }
    cx.free(&other, &name).await;
}
