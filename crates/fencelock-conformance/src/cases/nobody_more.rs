//! redis.md 6.9: what nobody tests, from no. 13 on.
use super::prelude::*;

cases! {
    "nobody/token-over-expiry" => token_over_expiry, needs: [Crash];
    "nobody/token-over-force-release" => token_over_force_release;
    "nobody/writer-under-endless-readers" => writer_under_endless_readers, needs: [ReadWrite, WritersTurn];
    "nobody/downgrade-wakes-readers" => downgrade_wakes_readers, needs: [Alone, Downgrade, ReadWrite];
    "nobody/client-clock-off" => client_clock_off, needs: [Clocks];
    "nobody/odd-names" => odd_names, needs: [OddNames], limit: 60;
    "nobody/name-of-1-kib" => name_of_1_kib;
    "nobody/hundred-thousand-names" => hundred_thousand_names, needs: [Permits, ReadWrite], limit: 180;
    "nobody/zero-lease" => zero_lease;
}
roles! {}

/// All that core has asked the engine for.
pub(super) fn calls(chaos: &Chaos) -> u64 {
    use Operation::{
        Acquire, CompareExchange, Exchange, ForceRelease, Inspect, List, Load, Observe, Release, Renew, Resize, Withdraw,
    };
    let all = [
        Acquire, CompareExchange, Exchange, ForceRelease, Inspect, List, Load, Observe, Release, Renew, Resize, Withdraw,
    ];
    all.into_iter().map(|operation| chaos.calls(operation)).sum()
}

async fn token_over_expiry(cx: Context) {
    let (client, name, mut tokens) = (cx.client().await, cx.name("m"), Vec::new());
    for ended in 0..4 {
        let guard = within("free", client.mutex(&name).lock()).await.unwrap();
        tokens.push(guard.token());
        match ended {
            0 => guard.release().await.unwrap(),
            1 => drop(guard),
            2 => {
                guard.release().await.unwrap();
                let mut gone = cx.puppet().await;
                tokens.push(gone.lock(&name).await);
                gone.crash().await;
            }
            _ => {
                guard.release().await.unwrap();
                if client.info().capabilities.fixed_leases {
                    let guard = client.mutex(&name).lease(cx.short() / 2).lock().await.unwrap();
                    tokens.push(guard.token());
                    within("it has run out", guard.lost()).await;
                }
            }
        }
    }
    let last = within("free", cx.client().await.mutex(&name).lock()).await.unwrap();
    tokens.push(last.token());
    last.release().await.unwrap();
    assert!(tokens.len() >= 6 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

async fn token_over_force_release(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let mut last = None;
    for round in 0..20 {
        let clients = if round % 2 == 0 { [&a, &b] } else { [&b, &a] };
        let guard = within("free", clients[0].mutex(&name).lock()).await.unwrap();
        assert!(last < Some(guard.token()));
        // To one who waits, or to one who comes later.
        let wait = tokio::spawn(clients[1].mutex(&name).lock());
        if round % 4 < 2 {
            cx.queued(&a, &name, 1).await;
        }
        assert_eq!(b.force_release(&name, guard.token()).await.unwrap(), Released::Released);
        let next = within("free", wait).await.unwrap().unwrap();
        assert!(next.token() > guard.token());
        let status = a.inspect(&name).await.unwrap();
        assert_eq!((status.holders[0].token, status.last_token), (next.token(), Some(next.token())));
        last = Some(next.token());
        next.release().await.unwrap();
    }
}

async fn writer_under_endless_readers(cx: Context) {
    let (client, name, judge) = (cx.client().await, cx.name("rw"), cx.judge("rw"));
    let (over, reads) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(0)));
    let mut readers = Vec::new();
    for i in 0..6 {
        let (lock, judge) = (cx.client().await.rw_lock(&name), judge.clone());
        let (over, reads) = (over.clone(), reads.clone());
        readers.push(tokio::spawn(async move {
            while !*over.lock().unwrap() {
                let guard = lock.read().await.unwrap();
                judge.share(&format!("reader-{i}"), &guard).await;
                tokio::time::sleep(3 * MS).await;
                *reads.lock().unwrap() += 1;
                guard.release().await.unwrap();
            }
        }));
    }
    let writes = tenth(100).max(3);
    for _ in 0..writes {
        let before = *reads.lock().unwrap();
        eventually("they read", || async { *reads.lock().unwrap() > before + 6 }).await;
        let guard = within("the writer is in", client.rw_lock(&name).write()).await.unwrap();
        judge.work("writer", &guard).await;
        guard.release().await.unwrap();
    }
    *over.lock().unwrap() = true;
    for reader in readers {
        within("he leaves", reader).await.unwrap();
    }
    judge.verdict(u64::try_from(writes).unwrap());
}

async fn downgrade_wakes_readers(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("rw"));
    let guard = client.rw_lock(&name).write().await.unwrap();
    let (token, mut readers) = (guard.token(), Vec::new());
    for i in 0..3 {
        readers.push(tokio::spawn(cx.client().await.rw_lock(&name).read()));
        cx.queued(&client, &name, i + 1).await;
    }
    let writer = tokio::spawn(cx.client().await.rw_lock(&name).write());
    cx.queued(&client, &name, 4).await;
    let began = Instant::now();
    let mine = guard.downgrade().await.unwrap();
    let mut reading = Vec::new();
    for reader in readers {
        reading.push(within("woken", reader).await.unwrap().unwrap());
    }
    cx.in_time("woken", began.elapsed(), 100 * MS);
    // The writer stays out: all of them read beside each other.
    let status = cx.queued(&client, &name, 1).await;
    assert_eq!(status.holders.len(), 4);
    assert!(!writer.is_finished() && mine.is_valid());
    mine.release().await.unwrap();
    for guard in reading {
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
    let last = within("nobody reads", writer).await.unwrap().unwrap();
    assert!(last.token() > token);
    last.release().await.unwrap();
}

/// Eleven minutes behind the store, with it, and ahead of it: they exclude each other, in the order in which they came, and
/// each of them knows until when its hold is good.
async fn client_clock_off(cx: Context) {
    let clocks = cx.fixture().clocks().unwrap();
    let mut clients = Vec::new();
    for ahead in [-660, 0, 660] {
        clients.push(clocks.client(ahead, cx.short()).await);
    }
    let rounds = (0..clients.len()).map(|first| {
        clients.rotate_left(1);
        let (cx, clients) = (cx.clone(), clients.clone());
        tokio::spawn(async move { clocks_apart(&cx, &clients, first).await })
    });
    for round in rounds.collect::<Vec<_>>() {
        within("all had their turns", round).await.unwrap();
    }
    // What is not renewed ends by the store's clock, and not before its holder knows.
    let ends = clients.into_iter().enumerate().map(|(i, client)| {
        let mutex = client.mutex(cx.name(&format!("end{i}")));
        tokio::spawn(async move {
            let over = mutex.lock().await.unwrap();
            let lost = over.lost();
            client.shutdown(STUCK).await.unwrap();
            within("told", lost).await;
            assert!(over.check().is_err());
        })
    });
    for end in ends.collect::<Vec<_>>() {
        end.await.unwrap();
    }
}
/// The first one holds; he himself and the others queue behind him.
async fn clocks_apart(cx: &Context, clients: &[Client], round: usize) {
    let (name, judge) = (cx.name(&format!("m{round}")), cx.judge(&format!("m{round}")));
    let guard = clients[0].mutex(&name).lock().await.unwrap();
    assert!(guard.remaining() <= cx.short() && guard.remaining() > cx.short() / 4, "{:?}", guard.remaining());
    let (mut waits, mut queue) = (Vec::new(), Vec::new());
    for i in 1..=clients.len() {
        waits.push(tokio::spawn(clients[i % clients.len()].mutex(&name).lock()));
        queue.push(cx.queued(&clients[0], &name, i).await.waiters[i - 1].hold);
    }
    // Renewed, for longer than it was good for at first.
    let end = Instant::now() + cx.short() * 5 / 4;
    eventually("it lives on", || async { Instant::now() > end }).await;
    judge.work("first", &guard).await;
    let status = clients[1].inspect(&name).await.unwrap();
    assert!(status.holders[0].left <= cx.short() && status.holders[0].held_for < STUCK, "{status:?}");
    let freed = BootClock.now();
    guard.release().await.unwrap();
    for (i, wait) in waits.into_iter().enumerate() {
        if i == 0 {
            cx.turn_of(&clients[0], &name, &queue, freed).await;
        }
        let guard = within("his turn", wait).await.unwrap().unwrap();
        assert_eq!(guard.id(), queue[i]);
        judge.work("next", &guard).await;
        guard.release().await.unwrap();
    }
    judge.verdict(4);
}

async fn odd_names(cx: Context) {
    let (client, other) = (cx.client().await, cx.client().await);
    let mut names: Vec<_> = [
        "{", "}", "{}", "}{", "a{b", "a{b}", "{a}b", "{}x", "{x}", ":", "a:b", "a::b", " ", "  ", " a", "a ", "a", "A",
        "/", "//", "a/", "a/b", ".", "..", "../a", "%", "_", "%25", "*", "?", "[a]", "\\", "'", "\"", "';--", "\n", "\t",
        "\u{7f}", "ä", "a\u{308}", "ß", "ss", "日本語", "🔒", "\u{200b}", "\u{feff}a", "$a", "#", "-a", "~",
    ]
    .iter()
    .map(|odd| cx.name(odd))
    .collect();
    let long = cx.name("x");
    names.extend(["y", "z"].map(|end| format!("{long}{}{end}", "x".repeat(cx.longest_name() - long.len() - 1))));
    // Each is one lock, and no two of them meet: all are free beside all others.
    let mut guards = Vec::new();
    for name in &names {
        let guard = client.mutex(name).note(name.as_str()).try_lock().await.unwrap();
        guards.push(guard.unwrap_or_else(|busy| panic!("{name:?} meets another: {busy}")));
    }
    for (name, guard) in names.iter().zip(&guards) {
        let status = other.inspect(name).await.unwrap();
        assert_eq!((status.name.as_str(), &*status.holders[0].note), (name.as_str(), name.as_str()));
        assert_eq!(status.holders[0].hold, guard.id());
        assert!(other.mutex(name).try_lock().await.unwrap().is_err(), "{name:?}");
        let listed = listed(&other, name).await;
        let listed: std::collections::BTreeSet<_> = listed.iter().map(|status| status.name.as_str()).collect();
        let meant: std::collections::BTreeSet<_> =
            names.iter().filter(|other| other.starts_with(name)).map(String::as_str).collect();
        assert_eq!(listed, meant, "a prefix is meant as it stands: {name:?}");
    }
    let waits: Vec<_> = names.iter().map(|name| tokio::spawn(other.mutex(name).lock())).collect();
    for (name, (guard, wait)) in names.iter().zip(guards.into_iter().zip(waits)) {
        cx.queued(&client, name, 1).await;
        guard.release().await.unwrap();
        let next = within("its turn", wait).await.unwrap().unwrap();
        assert_eq!(next.name().as_str(), name);
        next.release().await.unwrap();
    }
}

async fn name_of_1_kib(cx: Context) {
    let (client, chaos) = cx.chaos(cx.short()).await;
    let kib = "x".repeat(1024);
    for name in [kib.as_str(), &"x".repeat(Name::MAX_BYTES + 1), &"ä".repeat(Name::MAX_BYTES / 2 + 1), "", "a\0b"] {
        let token = Token::new(1).unwrap();
        let answers = [
            client.mutex(name).lock().await.map(drop),
            client.mutex(name).try_lock().await.map(drop),
            client.mutex(name).try_lock_for(SEC).await.map(drop),
            client.rw_lock(name).read().await.map(drop),
            client.rw_lock(name).write().await.map(drop),
            client.semaphore(name, 2).acquire(1).await.map(drop),
            client.election(name).campaign("me").await.map(drop),
            client.election(name).leader().await.map(drop),
            client.election(name).observe().changed().await.map(drop),
            client.cell(name).load().await.map(drop),
            client.inspect(name).await.map(drop),
            client.force_release(name, token).await.map(drop),
            MultiLock::new([client.mutex(cx.name("m")), client.mutex(name)]).lock().await.map(drop),
        ];
        for answer in answers {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
            assert!(error.to_string().len() < 300, "it does not repeat all of it: {error}");
        }
    }
    assert_eq!(calls(&chaos), 0, "refused before a byte is sent");
    // The longest that there may be is as good as any.
    let name = cx.name("m");
    let longest = format!("{name}{}", "x".repeat(cx.longest_name() - name.len()));
    client.mutex(longest).lock().await.unwrap().release().await.unwrap();
}

async fn hundred_thousand_names(cx: Context) {
    let client = cx.client().await;
    let (n, tasks) = (if full() { 100_000 } else { 2_000 }, 16);
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let (client, cx) = (client.clone(), cx.clone());
            tokio::spawn(async move {
                for i in (task..n).step_by(tasks) {
                    let guard = client.mutex(cx.name(&i.to_string())).lock().await.unwrap();
                    if i % 2 == 0 { guard.release().await.unwrap() } else { drop(guard) }
                }
            })
        })
        .collect();
    for task in all {
        task.await.unwrap();
    }
    eventually("nothing is held", || async { client.held() == 0 }).await;
    eventually("no name is held or waited for", || async {
        client.list(cx.prefix(), &Page::default()).await.unwrap().items.is_empty()
    })
    .await;
    // Each of them is as free as one that was never used, for others too.
    let other = cx.client().await;
    for i in [0, 1, n / 2, n - 1] {
        let name = cx.name(&i.to_string());
        assert_eq!(other.inspect(&name).await.unwrap().kind, None);
        other.rw_lock(&name).read().await.unwrap().release().await.unwrap();
    }
}

async fn zero_lease(cx: Context) {
    let ((client, chaos), name) = (cx.chaos(60 * SEC).await, cx.name("m"));
    let least = client.info().capabilities.min_ttl;
    for d in [Duration::ZERO, Duration::from_nanos(1), least - Duration::from_nanos(1)] {
        let mutex = client.mutex(&name);
        for mutex in [mutex.clone().ttl(d), mutex.lease(d)] {
            let answers = [
                mutex.lock().await.map(drop),
                mutex.try_lock().await.map(drop),
                mutex.try_lock_for(SEC).await.map(drop),
                MultiLock::new([mutex]).lock().await.map(drop),
            ];
            for answer in answers {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidConfig);
            }
        }
        let others = [
            client.rw_lock(&name).ttl(d).write().await.map(drop),
            client.semaphore(&name, 2).ttl(d).acquire(1).await.map(drop),
            client.election(&name).ttl(d).campaign("me").await.map(drop),
        ];
        for answer in others {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidConfig);
        }
    }
    let none = client.mutex(&name).max_hold(Duration::ZERO).lock().await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidConfig);
    assert_eq!(calls(&chaos), 0, "refused before a byte is sent");
    let guard = client.mutex(&name).lease(30 * SEC).lock().await.unwrap();
    assert_eq!(guard.extend(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
    assert_eq!(chaos.calls(Operation::Renew), 0);
    guard.check().unwrap();
    guard.release().await.unwrap();
}
