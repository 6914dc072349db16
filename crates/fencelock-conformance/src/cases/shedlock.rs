//! sql.md 12.2: ShedLock.
use super::{madelson::grant_of, prelude::*};

cases! {
    "shedlock/fuzz-test" => fuzz_test;
    "shedlock/lock-at-least-for" => lock_at_least_for;
    "shedlock/extend-at-least" => extend_at_least;
    "shedlock/lock-can-not-be-extended-twice" => handed_on, needs: [Tickets];
    "shedlock/keep-alive-multiple" => keep_alive_multiple;
    "shedlock/keep-alive-fail-for-short" => keep_alive_fail_for_short;
}
roles! {}

async fn fuzz_test(cx: Context) {
    let names = ["one", "two"].map(|name| (cx.name(name), cx.judge(name)));
    let rounds = tenth(100);
    let mut tasks = Vec::new();
    for i in 0..8 {
        let (client, names) = (cx.client().await, names.clone());
        tasks.push(tokio::spawn(async move {
            for round in 0..2 * rounds {
                let (name, judge) = &names[(i + round) % 2];
                let guard = client.mutex(name).lock().await.unwrap();
                judge.work(&format!("t{i}"), &guard).await;
                if round % 3 == 0 { drop(guard) } else { guard.release().await.unwrap() }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for (_, judge) in names {
        judge.verdict(8 * u64::try_from(rounds).unwrap());
    }
}

/// Taken at `asked` for at least `d`, and released: nobody has it before.
async fn stays_taken(client: &Client, name: &str, guard: Guard, asked: Moment, d: Duration) {
    let token = guard.token();
    within("nobody has to wait for that", guard.release()).await.unwrap();
    let tried = client.mutex(name).try_lock().await.unwrap();
    if BootClock.now() < asked + d {
        assert!(tried.is_err(), "it is taken for {d:?}");
    }
    drop(tried);
    let next = within("then it is free", client.mutex(name).lock()).await.unwrap();
    assert!(BootClock.now() >= asked + d && next.token() > token);
    next.release().await.unwrap();
}
async fn lock_at_least_for(cx: Context) {
    let (a, b) = (cx.client().await, cx.client().await);
    let d = 400 * MS;
    for round in 0..2 {
        let (name, asked) = (cx.name(&format!("m{round}")), BootClock.now());
        let guard = a.mutex(&name).at_least(d).lock().await.unwrap();
        stays_taken(&b, &name, guard, asked, d).await;
    }
    // One that is held for longer is free at once.
    let name = cx.name("long");
    let guard = a.mutex(&name).at_least(MS).lock().await.unwrap();
    let granted = Instant::now();
    eventually("that is over", || async { granted.elapsed() > 2 * MS }).await;
    guard.release().await.unwrap();
    within("free", b.mutex(&name).lock()).await.unwrap().release().await.unwrap();
}
async fn extend_at_least(cx: Context) {
    let (ttl, name) = (2 * cx.short(), cx.name("m"));
    let (a, b) = (cx.client_with(ttl).await, cx.client().await);
    let (d, asked) = (ttl * 3 / 4, BootClock.now());
    let guard = a.mutex(&name).at_least(d).lock().await.unwrap();
    within("a renewal", guard.renewed()).await;
    stays_taken(&b, &name, guard, asked, d).await;
}

async fn handed_on(cx: Context) {
    let ((a, below), b, name) = (cx.connect(60 * SEC).await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    let old = grant_of(&guard);
    let ticket = guard.into_ticket().await.unwrap();
    assert!(b.mutex(&name).try_lock().await.unwrap().is_err(), "nobody gets it meanwhile");
    let new = b.adopt(&ticket).await.unwrap();
    assert!(new.token() > old.token && new.id() != old.hold);
    let mixed = Grant { hold: new.id(), ..old.clone() };
    for grant in [&old, &mixed] {
        let answer = renewed(&*below.engine, grant).await;
        assert!(matches!(answer, Renewed::Lost(_)), "{answer:?}");
        super::madelson::is_refused(&below.engine, grant).await;
    }
    assert_eq!(a.adopt(&ticket).await.unwrap_err().kind(), ErrorKind::NotHeld, "it is good once");
    assert_eq!(a.inspect(&name).await.unwrap().holders[0].hold, new.id());
    new.check().unwrap();
    new.release().await.unwrap();
}

async fn keep_alive_multiple(cx: Context) {
    let tap = super::spring::Tap::new(cx.connect(60 * SEC).await.1.engine);
    let client = Client::builder(tap.clone()).build().unwrap();
    let hold = |ms: u32| {
        let (name, mutex) = (cx.name(&ms.to_string()), client.mutex(cx.name(&ms.to_string())).ttl(MS * ms));
        async move { (name, mutex.lock().await.unwrap(), BootClock.now()) }
    };
    let (fast, slow, slowest) = (hold(1500).await, hold(4500).await, hold(60_000).await);
    // Between two of a hold there is a quarter of its own ttl.
    within("a renewal", slow.1.renewed()).await;
    within("another of the first one", fast.1.renewed()).await;
    for (name, guard, _) in [&fast, &slow, &slowest] {
        guard.check().unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let renewals = |(name, guard, granted): &(String, Guard, Moment)| {
        let mut last = None;
        let times = tap.times(Operation::Renew, name);
        for at in &times {
            let since = last.unwrap_or(*granted).until(*at);
            assert!(last.is_none() || since >= guard.ttl() / 5, "{name} after {since:?}");
            last = Some(*at);
        }
        times.len()
    };
    let (often, seldom, never) = (renewals(&fast), renewals(&slow), renewals(&slowest));
    assert!(often > seldom && seldom >= 1 && never == 0, "{often} {seldom} {never}");
}

async fn keep_alive_fail_for_short(cx: Context) {
    let ((client, chaos), name) = (cx.chaos(60 * SEC).await, cx.name("m"));
    let least = client.info().capabilities.min_ttl;
    let mutex = client.mutex(&name);
    for ttl in [Duration::ZERO, MS, least - Duration::from_nanos(1)] {
        let answers = [mutex.clone().ttl(ttl).lock().await, mutex.clone().lease(ttl).lock().await];
        for answer in answers {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains(&format!("{least:?}")), "it says what is possible: {error}");
        }
    }
    assert_eq!(chaos.calls(Operation::Acquire), 0);
    let shortest = mutex.clone().ttl(least).lock().await.unwrap();
    // On a busy machine it may be lost as well, but nobody refuses it.
    let _ = shortest.release().await;
    cx.free(&client, &name).await;
}
