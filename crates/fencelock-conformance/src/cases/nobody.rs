//! redis.md 6.9: what nobody tests.
use super::{nobody_more::calls, prelude::*, redis_py::grant_of};
use crate::{context::void, stalls};

cases! {
    "nobody/non-atomic-counter" => non_atomic_counter, needs: [Crash], limit: 60;
    "nobody/acquire-reply-lost" => acquire_reply_lost;
    "nobody/release-reply-lost" => release_reply_lost;
    "nobody/renew-reply-lost" => renew_reply_lost, needs: [OwnLeases];
    "nobody/withdraw-reply-lost" => withdraw_reply_lost;
    "nobody/idle-waiters" => idle_waiters, needs: [Alone, Store];
    "nobody/no-spin-when-not-head" => no_spin_when_not_head, needs: [Alone, Crash, Store];
    "nobody/dead-head-sigkill" => dead_head, needs: [Alone, Crash];
    "nobody/dead-head-sigstop" => stopped_head, needs: [Alone, Crash];
    "nobody/renewal-ends-with-release" => renewal_ends_with_release, needs: [FixedLeases], limit: 60;
    "nobody/lost-before-end-when-paused" => lost_before_end, needs: [Alone, Silence];
    "nobody/cancel-during-acquire" => cancel_during_acquire, needs: [Alone];
}
roles! {
    "crowd" => crowd;
}

/// Mutexes and elections of one name exclude each other, whichever way they are taken.
async fn non_atomic_counter(cx: Context) {
    all_of_a_crowd(&cx).await;
    killed_in_the_crowd(&cx).await;
}
async fn all_of_a_crowd(cx: &Context) {
    let (judge, name, mut peers) = (cx.judge("m"), cx.name("m"), Vec::new());
    let rounds = tenth(200);
    for i in 0..4 {
        let words = [&name, judge.place().to_str().unwrap(), &format!("peer-{i}"), &rounds.to_string()];
        peers.push(cx.peer_with(60 * SEC, "crowd", &words).await);
    }
    let (client, judge_here) = (cx.client().await, judge.clone());
    let here = tokio::spawn(async move { rounds_of(&client, &name, &judge_here, "here", rounds).await });
    here.await.unwrap();
    for peer in peers {
        peer.finish().await;
    }
    judge.verdict(5 * u64::try_from(rounds).unwrap());
}

/// And so it stays when one of them is killed in the middle of it: an increment of his may be missing, and nobody else's.
async fn killed_in_the_crowd(cx: &Context) {
    let (judge, name, mut peers) = (cx.judge("killed"), cx.name("killed"), Vec::new());
    let rounds = tenth(200).max(40);
    for i in 0..4 {
        let words = [&name, judge.place().to_str().unwrap(), &format!("peer-{i}"), &rounds.to_string()];
        peers.push(cx.peer("crowd", &words).await);
    }
    let inside = |who: &str| judge.history.intervals().iter().filter(|interval| interval.holder == who).count();
    eventually("he works", || async { inside("peer-0") >= 2 }).await;
    let mut killed = peers.remove(0);
    let at = killed.crash().await;
    judge.history.killed("peer-0", at);
    for peer in peers {
        peer.finish().await;
    }
    let intervals = judge.history.intervals();
    judge::overlap(&intervals).unwrap();
    judge::tokens(&intervals).unwrap();
    let (worked, counted) = (u64::try_from(intervals.len()).unwrap(), judge.counter.value());
    assert!(counted == worked || counted + 1 == worked, "{worked} rounds, and {counted} increments");
    assert!(worked >= 3 * u64::try_from(rounds).unwrap() + 2);
}
/// `crowd NAME JUDGE WHO ROUNDS`
async fn crowd(me: RoleContext) {
    let (judge, rounds) = (Judge::at(me.words[1].as_ref()), usize::try_from(me.number(3)).unwrap());
    rounds_of(&me.client, &me.words[0], &judge, &me.words[2], rounds).await;
}
async fn rounds_of(client: &Client, name: &str, judge: &Judge, who: &str, rounds: usize) {
    let (mutex, election) = (client.mutex(name), client.election(name));
    let mut done = 0;
    while done < rounds {
        let guard = match fastrand::u8(0..4) {
            0 => mutex.try_lock().await.unwrap().ok(),
            // On a busy machine its time may be over before the engine has told anything.
            1 => match mutex.try_lock_for(MS * fastrand::u32(0..20)).await {
                Err(e) if e.is_temporary() => None,
                answer => answer.unwrap().ok(),
            },
            2 => {
                let term = election.campaign(who).await.unwrap();
                judge.work(who, &term).await;
                term.resign().await.unwrap();
                done += 1;
                continue;
            }
            _ => Some(mutex.lock().await.unwrap()),
        };
        let Some(guard) = guard else {
            // Not at once again: whoever only tries in a loop keeps others from a store that they share.
            tokio::time::sleep(MS * fastrand::u32(1..5)).await;
            continue;
        };
        judge.work(who, &guard).await;
        if fastrand::bool() { guard.release().await.unwrap() } else { drop(guard) }
        done += 1;
    }
}

/// The call is made twice under one hold id, as after a lost reply: one hold, one token, one release.
async fn acquire_reply_lost(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    let mut last = None;
    for _ in 0..tenth(100) {
        chaos.next(Operation::Acquire, 1, Trouble::Twice);
        let guard = within("granted", client.mutex(&name).lock()).await.unwrap();
        let status = other.inspect(&name).await.unwrap();
        let holders: Vec<_> = status.holders.iter().map(|holder| (holder.hold, holder.token)).collect();
        assert_eq!(holders, [(guard.id(), guard.token())]);
        assert!(last < Some(guard.token()));
        last = Some(guard.token());
        guard.release().await.unwrap();
        let next = other.mutex(&name).try_lock_for(STUCK).await.unwrap().expect("one release frees it");
        next.release().await.unwrap();

        // Nobody asks again: what was granted to nobody is taken back.
        chaos.next(Operation::Acquire, 1, Trouble::LoseReply);
        match within("an answer", client.mutex(&name).lock()).await {
            Ok(guard) => guard.release().await.unwrap(),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Ambiguous, "{e}"),
        }
        within("free", other.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    }
    // Entered again: the first entry is sent twice, the second one not at all, and the depth is that of the guards.
    let me = client.owner();
    let mine = client.mutex(&name).reentrant(&me);
    chaos.next(Operation::Acquire, 2, Trouble::Twice);
    let (outer, asked) = (mine.lock().await.unwrap(), chaos.calls(Operation::Acquire));
    let inner = mine.lock().await.unwrap();
    assert_eq!((outer.entries(), me.entries(&name), inner.token()), (2, 2, outer.token()));
    assert_eq!(chaos.calls(Operation::Acquire), asked, "core joins them");
    inner.release().await.unwrap();
    assert!(outer.entries() == 1 && other.mutex(&name).try_lock().await.unwrap().is_err());
    outer.release().await.unwrap();
    let free = other.mutex(&name).try_lock_for(STUCK).await.unwrap();
    free.expect("one release frees it").release().await.unwrap();
}

async fn release_reply_lost(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(cx.short()).await, cx.client().await, cx.name("m"));
    for trouble in [Trouble::LoseReply, Trouble::Twice, Trouble::Fail] {
        let guard = client.mutex(&name).lock().await.unwrap();
        let wait = tokio::spawn(other.mutex(&name).lock());
        cx.queued(&client, &name, 1).await;
        chaos.next(Operation::Release, 1, trouble);
        let released = guard.release().await;
        let next = within("free", wait).await.unwrap().unwrap();
        // A release that was made twice in one call finds the next holder: that it says so is right as well.
        assert!(released.is_ok() || trouble == Trouble::Twice, "{trouble:?}: {released:?}");
        let status = other.inspect(&name).await.unwrap();
        assert_eq!((status.holders.len(), status.holders[0].hold), (1, next.id()), "no newer hold is touched");
        next.check().unwrap();
        next.release().await.unwrap();
    }
}

async fn renew_reply_lost(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(3 * cx.short()).await, cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let token = guard.token();
    chaos.next(Operation::Renew, 2, Trouble::LoseReply);
    let end = guard.valid_until() + cx.short() / 4;
    eventually("its lease has passed", || async { BootClock.now() > end || !guard.is_valid() }).await;
    guard.check().expect("two lost replies do not cost the hold");
    assert!(chaos.calls(Operation::Renew) > 2, "two replies were lost, and it was asked again");
    let holder = other.inspect(&name).await.unwrap().holders.pop().expect("held");
    assert_eq!((holder.hold, holder.token), (guard.id(), token));
    guard.release().await.unwrap();
}

async fn withdraw_reply_lost(cx: Context) {
    // Its place would last as long as its client does: what goes was withdrawn.
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    for trouble in [Trouble::LoseReply, Trouble::Twice, Trouble::Fail] {
        let guard = other.mutex(&name).lock().await.unwrap();
        let wait = tokio::spawn(client.mutex(&name).lock());
        cx.queued(&other, &name, 1).await;
        chaos.next(Operation::Withdraw, 1, trouble);
        wait.abort();
        cx.queued(&other, &name, 0).await;
        guard.release().await.unwrap();
        cx.free(&other, &name).await;
    }
    assert!(chaos.calls(Operation::Withdraw) >= 3);
}

/// What a process does while it waits: how often its threads went to sleep, and how long they were busy.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Since when.
    at: Instant,
    sleeps: u64,
    busy: Duration,
}
impl Cost {
    fn of(pid: u32) -> Self {
        let (at, mut sleeps, mut busy) = (Instant::now(), 0, 0);
        for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let read = |file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let (status, schedule) = (read("status"), read("schedstat"));
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:").map(str::trim));
            sleeps += line.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
            busy += schedule.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        }
        Self { at, sleeps, busy: Duration::from_nanos(busy) }
    }
    /// As soon as it rests: it has done nothing in three looks on end, which one that only stands still for a moment has not either.
    async fn at_rest(pid: u32) -> Self {
        let (mut last, mut same) = (Self::of(pid), 0);
        let rests = async {
            loop {
                tokio::time::sleep(100 * MS).await;
                let now = Self::of(pid);
                same = if (now.sleeps, now.busy) == (last.sleeps, last.busy) { same + 1 } else { 0 };
                if same == 3 {
                    return now;
                }
                last = now;
            }
        };
        within("it rests", rests).await
    }
    /// It looks by itself once a second, which wakes a few threads. Whoever polls sleeps more often; whoever spins never does,
    /// and is busy.
    #[track_caller]
    fn is_idle(self, pid: u32, more: u64) {
        let now = Self::of(pid);
        // As long as it was: a machine that stands still makes it longer.
        let secs = self.at.elapsed().as_secs() + 1;
        let (sleeps, busy) = (now.sleeps - self.sleeps, now.busy.saturating_sub(self.busy));
        // At either end of the span there may be one look.
        assert!(sleeps <= 5 * (secs + 1) + more, "{sleeps} times asleep in {secs} s");
        assert!(busy <= 20 * MS * u32::try_from(secs + 1).unwrap(), "{busy:?} busy in {secs} s");
    }
}
/// How many commands were sent, as soon as there are no more for a moment.
async fn rested(sent: impl Fn() -> u64) -> u64 {
    let (mut last, mut same) = (sent(), 0);
    let rests = async {
        while same < 5 {
            tokio::time::sleep(60 * MS).await;
            let now = sent();
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        last
    };
    within("it rests", rests).await
}
/// A client, and how many commands his engine has sent; where it does not count them, how many core has.
async fn counted(cx: &Context, ttl: Duration) -> (Client, impl Fn() -> u64) {
    let below = cx.fixture().engine(ttl).await;
    let chaos = Arc::new(Chaos::new(below.engine));
    let client = Client::builder(chaos.clone()).build().unwrap();
    (client, move || calls(&chaos).max(below.commands.as_ref().map_or(0, |commands| commands())))
}

async fn idle_waiters(cx: Context) {
    let ((client, sent), other, name) = (counted(&cx, 60 * SEC).await, cx.client().await, cx.name("m"));
    let guard = other.mutex(&name).lock().await.unwrap();
    let first = tokio::spawn(client.mutex(&name).lock());
    cx.queued(&other, &name, 1).await;
    let behind = tokio::spawn(client.mutex(&name).lock());
    let mut puppet = cx.puppet_with(60 * SEC).await;
    puppet.ask_lock(&name);
    cx.queued(&other, &name, 2).await;
    let (secs, pid) = (if full() { 10 } else { 2 }, puppet.peer().pid());
    let cost = match pid {
        Some(pid) => Some((pid, Cost::at_rest(pid).await)),
        None => None,
    };
    let before = rested(&sent).await;
    let began = Instant::now();
    eventually("they wait", || async { began.elapsed() > Duration::from_secs(secs) }).await;
    let sent = sent() - before;
    // As long as it was.
    let secs = began.elapsed().as_secs();
    assert!(sent <= secs + 1, "{sent} commands in {secs} s");
    if let Some((pid, cost)) = cost {
        cost.is_idle(pid, 0);
    }
    guard.release().await.unwrap();
    within("in", first).await.unwrap().unwrap().release().await.unwrap();
    puppet.granted().await;
    assert!(puppet.release(&name).await);
    within("in", behind).await.unwrap().unwrap().release().await.unwrap();
}

/// A first waiter who is stopped: by a signal where he is a process, else by a cut of his link.
struct Stopped(Body);
enum Body {
    Process(Puppet),
    Cut(fencelock_core::Client, crate::Cut, tokio::task::JoinHandle<Result<Guard, Error>>),
}
impl Stopped {
    /// He is in the queue, and stopped.
    async fn queue(cx: &Context, client: &Client, name: &str) -> Self {
        if cx.fixture().address().is_some() {
            let mut puppet = cx.puppet().await;
            puppet.ask_lock(name);
            cx.queued(client, name, 1).await;
            puppet.peer().stop();
            return Self(Body::Process(puppet));
        }
        let (head, below) = cx.connect(cx.short()).await;
        let wait = tokio::spawn(head.mutex(name).lock());
        cx.queued(client, name, 1).await;
        let cut = below.cut.unwrap();
        cut(true);
        Self(Body::Cut(head, cut, wait))
    }
    /// He goes on; when it is his turn he gets in and leaves, or has given up.
    async fn go_on(self, name: &str) {
        match self.0 {
            Body::Process(mut puppet) => {
                puppet.peer().go_on();
                puppet.granted().await;
                assert!(puppet.release(name).await);
            }
            Body::Cut(_head, cut, wait) => {
                cut(false);
                match within("an end", wait).await.unwrap() {
                    Ok(guard) => guard.release().await.unwrap(),
                    Err(e) => assert!(e.is_temporary(), "{e}"),
                }
            }
        }
    }
}

async fn no_spin_when_not_head(cx: Context) {
    let ((client, sent), other, name) = (counted(&cx, 60 * SEC).await, cx.client().await, cx.name("m"));
    let guard = other.mutex(&name).lock().await.unwrap();
    let head = Stopped::queue(&cx, &other, &name).await;
    let mut puppet = cx.puppet_with(60 * SEC).await;
    puppet.ask_lock(&name);
    cx.queued(&other, &name, 2).await;
    let wait = tokio::spawn(client.mutex(&name).lock());
    cx.queued(&other, &name, 3).await;
    let cost = match puppet.peer().pid() {
        Some(pid) => Some((pid, Cost::at_rest(pid).await)),
        None => None,
    };
    let (before, freed) = (rested(&sent).await, Instant::now());
    // Free, or granted to one who does not answer: not theirs to take, until he has had his time.
    guard.release().await.unwrap();
    puppet.granted().await;
    // That it is told, and takes it, wakes some threads as well.
    if let Some((pid, cost)) = cost {
        cost.is_idle(pid, 30);
    }
    let sent = sent() - before;
    let secs = freed.elapsed().as_secs() + 1;
    assert!(sent <= secs + 1, "{sent} commands in {secs} s");
    assert!(puppet.release(&name).await);
    within("in", wait).await.unwrap().unwrap().release().await.unwrap();
    head.go_on(&name).await;
}

/// Dead before it is his turn, and dead while it is.
async fn dead_head(cx: Context) {
    tokio::join!(dead_when(&cx, cx.name("before"), false), dead_when(&cx, cx.name("turn"), true));
}
async fn dead_when(cx: &Context, name: String, his_turn: bool) {
    let (client, next) = (cx.client().await, cx.client().await);
    let guard = client.mutex(&name).lock().await.unwrap();
    let mut head = cx.puppet().await;
    head.ask_lock(&name);
    cx.queued(&client, &name, 1).await;
    let wait = tokio::spawn(next.mutex(&name).lock());
    cx.queued(&client, &name, 2).await;
    if his_turn {
        guard.release().await.unwrap();
        head.crash().await;
    } else {
        head.crash().await;
        guard.release().await.unwrap();
    }
    let freed = Instant::now();
    let guard = within("the next one is in", wait).await.unwrap().unwrap();
    cx.in_time("in after the dead one", freed.elapsed(), 3 * SEC);
    guard.release().await.unwrap();
}

async fn stopped_head(cx: Context) {
    let (client, next, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let head = Stopped::queue(&cx, &client, &name).await;
    let wait = tokio::spawn(next.mutex(&name).lock());
    cx.queued(&client, &name, 2).await;
    let (before, freed) = (guard.token(), Instant::now());
    guard.release().await.unwrap();
    let guard = within("the next one is in", wait).await.unwrap().unwrap();
    cx.in_time("in after the stopped one", freed.elapsed(), 3 * SEC);
    assert!(guard.token() > before);
    guard.check().unwrap();
    guard.release().await.unwrap();
    head.go_on(&name).await;
}

async fn renewal_ends_with_release(cx: Context) {
    let ((client, below), other, name) = (cx.connect(60 * SEC).await, cx.client().await, cx.name("m"));
    let mutex = client.mutex(&name).lease(30 * SEC);
    for round in 0..tenth(10_000) {
        let guard = mutex.lock().await.unwrap();
        let longer = [Grant { ttl: 90 * SEC, ..grant_of(&guard, guard.token()) }];
        let renewal = async {
            for _ in 0..round % 3 {
                tokio::task::yield_now().await;
            }
            below.engine.renew(&longer).await
        };
        let (longer_at_once, released) = tokio::join!(renewal, guard.release());
        released.unwrap();
        assert!(longer_at_once.is_ok());
        assert!(!other.inspect(&name).await.unwrap().is_held(), "round {round}: a renewal has made it again");
        if round % 10 == 0 {
            // Nor does it touch the next one's.
            let next = other.mutex(&name).lease(30 * SEC).try_lock().await.unwrap().expect("free");
            let answer = renewed(&*below.engine, &longer[0]).await;
            assert!(matches!(answer, Renewed::Lost(_)), "{answer:?}");
            assert!(client.inspect(&name).await.unwrap().holders[0].left <= 30 * SEC + cx.rounds_up());
            next.release().await.unwrap();
        }
    }
}

/// Told before the validity ends, and so before the next one can be granted.
async fn lost_before_end(cx: Context) {
    for _ in 0..if full() { 5 } else { 1 } {
        let ((client, silence), other, name) = (cx.silenceable(cx.short()).await, cx.client().await, cx.name("m"));
        let guard = client.mutex(&name).lock().await.unwrap();
        let lost = guard.lost();
        let lost = tokio::spawn(async move { (lost.await, BootClock.now()) });
        let wait = other.mutex(&name).lock();
        let next = tokio::spawn(async move { (wait.await.unwrap(), BootClock.now()) });
        cx.queued(&other, &name, 1).await;
        let began = BootClock.now();
        silence.begin().await;
        let (reason, told) = within("told", lost).await.unwrap();
        let (until, stood) = (guard.valid_until(), stalls::worst_since(began));
        assert!(matches!(reason, LossReason::Unreachable | LossReason::Expired | LossReason::SessionEnded), "{reason}");
        if told > until {
            let late = format!("told {:?} after the end of the validity", until.until(told));
            if stood > 5 * MS {
                void(format!("{late}, on a machine that stood still for {stood:?}"));
            }
            panic!("{late}");
        }
        silence.let_others().await;
        let (next, granted) = within("free", next).await.unwrap();
        assert!(granted >= until && guard.check().is_err());
        silence.end().await;
        drop(guard);
        next.check().unwrap();
        next.release().await.unwrap();
    }
}

async fn cancel_during_acquire(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    let (mutex, election) = (client.mutex(&name), client.election(&name));
    for held in [false, true] {
        for slow in [Operation::Inspect, Operation::Acquire, Operation::Withdraw] {
            for polls in 0..8 {
                let guard = if held { Some(other.mutex(&name).lock().await.unwrap()) } else { None };
                chaos.next(slow, 1, Trouble::Delay(2 * MS));
                dropped_after(polls, mutex.lock()).await;
                dropped_after(polls, mutex.try_lock()).await;
                dropped_after(polls, mutex.try_lock_for(3 * MS)).await;
                dropped_after(polls, election.campaign("me")).await;
                cx.queued(&other, &name, 0).await;
                if let Some(guard) = guard {
                    guard.release().await.unwrap();
                }
                // What was left would be held for a minute.
                let dropped = Instant::now();
                within("free", other.mutex(&name).lock()).await.unwrap().release().await.unwrap();
                cx.in_time("free", dropped.elapsed(), SEC);
            }
        }
    }
    eventually("nothing is held", || async { client.held() == 0 }).await;
}
async fn dropped_after<F: Future + Unpin>(polls: u32, mut future: F) {
    for _ in 0..polls {
        if once(&mut future).await.is_some() {
            return;
        }
        tokio::time::sleep(MS / 2).await;
    }
}
