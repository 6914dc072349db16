//! What is the same on every database, for the tests that bring `Java`, `start` and `micros`.
use super::*;

/// Until the other side has it.
async fn they_get(java: &mut Java, name: &str) {
    eventually("it is free for the others", || std::future::ready(java.lock(name, 60.0))).await;
}
/// Who is first has it, whoever that is; the other side is told by whom. (Red: a lease of ours that ends after half of its ttl; a busy
/// row that is taken all the same.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_keeps_the_other_out() {
    let (server, url) = start();
    let ours = client(&url).await;
    let mut java = Java::new(&server, "host-7");
    assert!(java.lock("other", 60.0));
    let other = || server.ask("SELECT * FROM shedlock WHERE name = 'other'");
    let untouched = other();
    assert!(java.lock("job", 60.0) && !java.lock("job", 60.0));
    let busy = ours.mutex("job").try_lock().await.unwrap().unwrap_err();
    let holder = *busy.holder.unwrap();
    assert_eq!((&*holder.host, &*holder.note), ("host-7", "ShedLock"));
    assert!(holder.left <= 60 * SEC && holder.left > 20 * SEC, "{holder:?}");
    let (seen, listed) = (ours.inspect("job").await.unwrap(), ours.list("j", &Default::default()).await.unwrap());
    for same in [&seen.holders[0], &listed.items[0].holders[0]] {
        assert_eq!((same.hold, same.token), (holder.hold, holder.token));
    }
    assert!(java.extend("job", 90.0) && java.unlock("job", 0.0));

    let first = ours.mutex("job").note("ours").ttl(60 * SEC).lock().await.unwrap();
    assert!(first.token() > holder.token, "what stands for a token of theirs is below ours");
    assert!(!java.lock("job", 60.0) && !java.unlock("job", 0.0) && !java.extend("job", 60.0));
    let left = micros(&server, "lock_until", "job") - micros(&server, "locked_at", "job");
    assert!(left >= 60_000_000, "all of its ttl: {left}");
    // Nothing hangs on what a client remembers.
    assert!(client(&url).await.mutex("job").try_lock().await.unwrap().is_err());
    let status = ours.inspect("job").await.unwrap();
    assert_eq!(
        (&*status.holders[0].note, status.holders[0].token, status.last_token),
        ("ours", first.token(), Some(first.token()))
    );
    first.release().await.unwrap();
    assert!(!ours.inspect("job").await.unwrap().is_held());

    // Whoever waits gets it when the other side gives it back.
    assert!(java.lock("job", 60.0));
    let waiting = tokio::spawn(ours.mutex("job").lock());
    assert!(java.unlock("job", 0.0));
    let second = soon(waiting).await.unwrap().unwrap();
    second.release().await.unwrap();
    assert!(java.lock("job", 60.0));
    assert_eq!(other(), untouched);
}

/// Neither side keeps a lock for ever, and what has to be kept at least is kept on both sides. (Red: a lease of ours that ends after
/// half of its ttl.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_end_and_not_before() {
    let (server, url) = start();
    let ours = client(&url).await;
    let mut java = Java::new(&server, "host-7");
    // One that died.
    assert!(java.lock("dead", 0.7));
    let ends = micros(&server, "lock_until", "dead");
    let guard = soon(ours.mutex("dead").lock()).await.unwrap();
    assert!(micros(&server, "locked_at", "dead") >= ends && guard.token() > Token::new(ends).unwrap());
    // lockAtLeastFor of theirs.
    assert!(java.lock("least", 60.0) && java.unlock("least", 0.7));
    let ends = micros(&server, "lock_until", "least");
    assert!(ends >= micros(&server, "locked_at", "least") + 700_000);
    soon(ours.mutex("least").lock()).await.unwrap().release().await.unwrap();
    assert!(micros(&server, "locked_at", "least") >= ends);
    // And ours.
    ours.mutex("least").at_least(700 * MS).lock().await.unwrap().release().await.unwrap();
    let since = micros(&server, "locked_at", "least");
    they_get(&mut java, "least").await;
    assert!(micros(&server, "locked_at", "least") >= since + 700_000);
    // A fixed lease of ours.
    let fixed = ours.mutex("fixed").lease(600 * MS).lock().await.unwrap();
    let since = micros(&server, "locked_at", "fixed");
    they_get(&mut java, "fixed").await;
    assert!(micros(&server, "locked_at", "fixed") >= since + 600_000 && fixed.check().is_err());
}

/// Somebody of ours who hears nothing of the server knows that his lease is over before anybody else has it. (Red: a lease of ours that
/// ends after half of its ttl.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_before_it_is_taken_over() {
    let (server, _) = start();
    let (proxy, url) = proxied(&server);
    let ours = client(&(url + "?strategy=shedlock")).await;
    let mut java = Java::new(&server, "host-7");
    let guard = ours.mutex("job").ttl(3 * SEC).lock().await.unwrap();
    proxy.silent(true);
    they_get(&mut java, "job").await;
    let taken = micros(&server, "locked_at", "job");
    let promised = time_of_day(guard.valid_until());
    assert!(promised < taken, "taken {} ms before its promised end", (promised - taken) / 1_000);
    soon(guard.lost()).await;
    // A renewal that comes late changes nothing.
    proxy.silent(false);
    assert!(java.extend("job", 70.0));
    drop(guard.release().await);
    assert!(java.extend("job", 80.0));
}

/// What somebody takes away is told with the next renewal, on either side. (Red: renewals that compare nothing.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taken_away() {
    let (server, url) = start();
    let ours = client(&url).await;
    let mut java = Java::new(&server, "host-7");
    let guard = ours.mutex("job").ttl(9 * SEC).lock().await.unwrap();
    server.ask("UPDATE shedlock SET locked_by = 'host-7' WHERE name = 'job'");
    assert_eq!(soon(guard.lost()).await, LossReason::TakenOver);
    // A row that was deleted, and the tokens that go on all the same.
    let guard = ours.mutex("gone").ttl(9 * SEC).lock().await.unwrap();
    server.ask("DELETE FROM shedlock WHERE name = 'gone'");
    let next = ours.mutex("gone").ttl(60 * SEC);
    assert_eq!(soon(guard.lost()).await, LossReason::TakenOver);
    let token = guard.token();
    drop(guard);
    let next = soon(next.lock()).await.unwrap();
    assert!(next.token() > token);
    // By an operator: ours, and theirs by what stands for a token.
    assert!(java.lock("theirs", 60.0));
    let stands = ours.inspect("theirs").await.unwrap().holders[0].token;
    let other = Token::new(stands.get() + 1).unwrap();
    assert!(matches!(
        ours.force_release("theirs", other).await.unwrap(),
        fencelock_core::Released::NotHeld { holder: Some(_) }
    ));
    assert!(java.extend("theirs", 90.0));
    for (name, token) in [("theirs", stands), ("gone", next.token())] {
        assert_eq!(ours.force_release(name, token).await.unwrap(), fencelock_core::Released::Released);
        assert!(!ours.inspect(name).await.unwrap().is_held());
    }
    assert!(!java.extend("theirs", 99.0) && !java.unlock("theirs", 0.0));
}

/// A number that nobody increases in one step: none is lost between both sides, and the tokens of ours rise. (Red: a busy row that is
/// taken all the same.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_both_sides() {
    const ROUNDS: u32 = 15;
    let (server, url) = start();
    let clients = [client(&url).await, client(&url).await];
    let (count, tokens) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
    let step = |count: &AtomicU32| {
        let before = count.load(SeqCst);
        thread::sleep(MS);
        count.store(before + 1, SeqCst);
    };
    let theirs: Vec<_> = ["host-1", "host-2"]
        .map(|by| {
            let (mut java, count) = (Java::new(&server, by), count.clone());
            thread::spawn(move || {
                let began = Instant::now();
                for _ in 0..ROUNDS {
                    while !java.lock("storm", 30.0) {
                        assert!(began.elapsed() < 60 * SEC, "{by} does not get in");
                        thread::sleep(3 * MS);
                    }
                    step(&count);
                    assert!(java.unlock("storm", 0.0));
                }
            })
        })
        .into();
    let mut ours = Vec::new();
    for client in clients {
        for _ in 0..2 {
            let (client, count, tokens) = (client.clone(), count.clone(), tokens.clone());
            ours.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = client.mutex("storm").lock().await.unwrap();
                    tokens.lock().unwrap().push(guard.token());
                    tokio::task::block_in_place(|| step(&count));
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for task in ours {
        tokio::time::timeout(60 * SEC, task).await.unwrap().unwrap();
    }
    tokio::task::block_in_place(|| theirs.into_iter().for_each(|thread| thread.join().unwrap()));
    assert_eq!(count.load(SeqCst), 6 * ROUNDS);
    assert!(tokens.lock().unwrap().is_sorted_by(|a, b| a < b));
}

/// A repeat of an attempt finds its own grant; and a copy that comes after the release is swept up. (Red: no sweep.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_are_lost() {
    let (server, _) = start();
    let (proxy, url) = proxied(&server);
    let ours = client(&(url + "?strategy=shedlock")).await;
    let mut java = Java::new(&server, "host-7");
    for (trouble, name) in [(Trouble::LoseReply, "lost"), (Trouble::Lose, "never"), (Trouble::Twice, "twice")] {
        let met = first(&proxy, "shed_acquire", 1, trouble);
        let guard = soon(ours.mutex(name).ttl(60 * SEC).lock()).await.unwrap();
        assert_eq!(met.load(SeqCst), 1);
        assert_eq!(
            server.ask(&format!("SELECT fence FROM fencelock_shed WHERE name = '{name}'")),
            guard.token().to_string()
        );
        guard.release().await.unwrap();
        let guard = ours.mutex(name).ttl(9 * SEC).lock().await.unwrap();
        let met = first(&proxy, "shed_renew", 1, trouble);
        for _ in 0..2 {
            soon(guard.renewed()).await;
        }
        assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
        assert!(!java.lock(name, 60.0));
        let met = first(&proxy, "shed_release", 1, trouble);
        guard.release().await.unwrap();
        assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
        assert!(java.lock(name, 60.0) && java.unlock(name, 0.0), "{trouble:?}");
    }
    first(&proxy, "shed_acquire", 1, Trouble::Late(1_500 * MS));
    soon(ours.mutex("late").ttl(60 * SEC).lock()).await.unwrap().release().await.unwrap();
    eventually("it has come", || async { ours.inspect("late").await.unwrap().is_held() }).await;
    they_get(&mut java, "late").await;
}

/// Each kind that the table has no place for is refused before anything is sent. (Red: what leases can, told as its own.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_cannot_do() {
    let (_server, url) = start();
    let ours = client(&url).await;
    assert_eq!((ours.info().layout, ours.info().capabilities.fencing), ("shedlock", Fencing::OursOnly));
    let refused = [
        ours.rw_lock("x").read().await.unwrap_err(),
        ours.rw_lock("x").write().await.unwrap_err(),
        ours.semaphore("x", 2).acquire(1).await.unwrap_err(),
        ours.cell("x").load().await.unwrap_err(),
        ours.mutex("x").lock().await.unwrap().into_ticket().await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    let long = ours.mutex("x".repeat(65)).lock().await.unwrap_err();
    assert_eq!(long.kind(), ErrorKind::InvalidName, "{long}");
    // An election is a mutex.
    let term = ours.election("boss").campaign("ann").await.unwrap();
    assert_eq!(&*ours.election("boss").leader().await.unwrap().unwrap().candidate, "ann");
    term.resign().await.unwrap();
}

/// Whoever watches sees each holder of either side, and no token falls: also where those of ours are ahead of the clock. (Red: for a token
/// of theirs stands when they took it, and nothing more.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_sees_both_sides() {
    let (server, url) = start();
    let ours = client(&url).await;
    let mut java = Java::new(&server, "host-7");
    let election = ours.election("boss");
    election.campaign("ann").await.unwrap().resign().await.unwrap();
    // The clock was an hour ahead then.
    server.ask("UPDATE fencelock_shed SET fence = fence + 3600000000");
    let mut observer = election.observe();
    let mut last = Token::new(1).unwrap();
    for _ in 0..2 {
        let term = election.campaign("ann").await.unwrap();
        assert!(term.token() > last);
        last = term.token();
        sees(&mut observer, "ann", |seen| seen == last).await;
        term.resign().await.unwrap();
        for _ in 0..2 {
            // Two of theirs in one millisecond are one row: nobody can tell them apart.
            tokio::time::sleep(2 * MS).await;
            assert!(java.lock("boss", 60.0));
            let stands = sees(&mut observer, "ShedLock", |seen| seen > last).await;
            last = stands;
            assert!(java.unlock("boss", 0.0));
        }
        // By what stands for its token, and by no other.
        tokio::time::sleep(2 * MS).await;
        assert!(java.lock("boss", 60.0));
        let stands = sees(&mut observer, "ShedLock", |seen| seen > last).await;
        assert!(matches!(
            ours.force_release("boss", last).await.unwrap(),
            fencelock_core::Released::NotHeld { holder: Some(_) }
        ));
        assert_eq!(ours.force_release("boss", stands).await.unwrap(), fencelock_core::Released::Released);
        last = stands;
    }
}
/// Until this one leads, with such a token.
async fn sees(observer: &mut Observer, candidate: &str, right: impl Fn(Token) -> bool) -> Token {
    loop {
        if let Some(leader) = soon(observer.changed()).await.unwrap()
            && &*leader.candidate == candidate
            && right(leader.term)
        {
            return leader.term;
        }
    }
}

/// Somebody's transaction has made the row and goes on: whoever tries is told that, and does not wait for it. (Red: an INSERT that waits.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_not_there_yet() {
    let (server, url) = start();
    let ours = client(&url).await;
    let mut other = Session::new(&server);
    let columns = "name, lock_until, locked_at, locked_by";
    other.ask(&format!("BEGIN; INSERT INTO shedlock ({columns}) VALUES ('new', '2001-01-01', '2001-01-01', 'x')"));
    let began = Instant::now();
    assert!(soon(ours.mutex("new").try_lock()).await.unwrap().is_err());
    assert!(began.elapsed() < 2 * SEC, "{:?}", began.elapsed());
    let waiting = tokio::spawn(ours.mutex("new").lock());
    other.ask("ROLLBACK");
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// What is no name of ours is passed over, and does not end the list. (Red: a page ends it that has less than it may have.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_goes_on() {
    let (server, url) = start();
    let ours = client(&url).await;
    let mut java = Java::new(&server, "host-7");
    for name in ["", "a", "b", "c"] {
        assert!(java.lock(name, 60.0));
    }
    let (mut names, mut page) = (Vec::new(), Page { after: None, limit: 1 });
    for _ in 0..6 {
        let listing = ours.list("", &page).await.unwrap();
        names.extend(listing.items.iter().map(|item| item.name.to_string()));
        page.after = listing.next;
        if page.after.is_none() {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c"]);
}

/// What comes to the tables for ShedLock has a version: another one is refused, and made anew by who says so. (Red: nobody looks whether it
/// is another one.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_version() {
    let (server, url) = start();
    let first = client(&url).await.mutex("x").lock().await.unwrap();
    let token = first.token();
    first.release().await.unwrap();
    server.ask(STALE);
    server.ask("UPDATE fencelock_meta SET shed = 9");
    let error = refused(&url).await;
    assert!(error.contains("for ShedLock are of version 9") && error.contains("UPDATE fencelock_meta"), "{error}");
    server.ask("UPDATE fencelock_meta SET shed = NULL");
    let guard = client(&url).await.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    assert!(guard.token() > token);
    let left = micros(&server, "lock_until", "x") - micros(&server, "locked_at", "x");
    assert!(left >= 60_000_000, "{left}");
    guard.release().await.unwrap();
}
/// Who has broken a hold, and was not told so, does not hear that it was not held. (Red: the repeat's
/// answer.)
#[test]
fn a_shared_hold_that_is_broken() {
    let (server, past) = start();
    let (proxy, url) = proxied(&server);
    runtime().block_on(async {
        let (c, other) = (client(&(url + "?strategy=shedlock")).await, client(&past).await);
        for trouble in [Trouble::LoseReply, Trouble::Lose] {
            let held = other.mutex("x").ttl(6 * SEC).lock().await.unwrap();
            let met = first(&proxy, "shed_force", 1, trouble);
            let answer = soon(c.force_release("x", held.token())).await;
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            match answer {
                Ok(answer) => assert!(matches!(answer, fencelock_core::Released::Released), "{trouble:?}: {answer:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Ambiguous, "{trouble:?}: {error}"),
            }
            soon(held.lost()).await;
            assert!(!other.inspect("x").await.unwrap().is_held(), "{trouble:?}");
        }
    });
}
