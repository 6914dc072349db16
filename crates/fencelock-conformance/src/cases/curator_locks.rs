//! consensus.md 6: Curator, locks and semaphores.
use super::prelude::*;

cases! {
    "curator/waiting-process-killed-server" => waiting_process_killed_server, needs: [Server];
    "curator/killed-session" => killed_session, needs: [Crash];
    "curator/two-clients" => two_clients, needs: [Waiters];
    "curator/some-releases-fail" => some_releases_fail;
    "curator/some-locks-fail-to-lock" => some_locks_fail_to_lock;
    "curator/rw-participants" => rw_participants, needs: [ReadWrite, Waiters];
    "curator/that-upgrading-is-disallowed" => upgrading_is_disallowed, needs: [ReadWrite];
    "curator/that-downgrading-respects-threads" => downgrading_respects_others, needs: [ReadWrite, Downgrade];
    "curator/downgrading" => downgrading, needs: [ReadWrite, Downgrade];
    "curator/contending-downgrading" => contending_downgrading, needs: [ReadWrite, Downgrade, Waiters];
    "curator/acquire-after-lost-server" => acquire_after_lost_server, needs: [Server, Permits];
    "curator/client-close" => client_close, needs: [Permits];
    "curator/release-in-chunks" => release_in_chunks, needs: [Permits];
    "curator/semaphore-simple" => semaphore_simple, needs: [Permits];
    "curator/semaphore-simple-2" => semaphore_simple_2, needs: [Permits, Silence];
    "curator/semaphore-participants" => semaphore_participants, needs: [Permits];
    "curator/interrupt-acquire" => interrupt_acquire, needs: [Permits];
    "curator/with-namespace" => namespaces, needs: [Cells, Downgrade, Namespaces, Permits, ReadWrite];
    "curator/attempt-lock-failed-exception" => first_error_is_told;
}
roles! {}

async fn waiting_process_killed_server(cx: Context) {
    let (a, b, c, name) = (cx.client().await, cx.client().await, cx.client().await, cx.name("m"));
    let server = cx.fixture().server().unwrap();
    for release_meanwhile in [false, true] {
        let guard = a.mutex(&name).lock().await.unwrap();
        let old = guard.token();
        let wait = tokio::spawn(b.mutex(&name).lock());
        cx.queued(&c, &name, 1).await;
        server.stop().await;
        let answer = c.mutex(cx.name("other")).try_lock_for(100 * MS).await;
        assert!(answer.is_err(), "the server is gone: {answer:?}");
        let mut release = tokio::spawn(guard.release());
        if release_meanwhile {
            assert!(once(&mut release).await.is_none() && !wait.is_finished());
        }
        server.start().await;
        within("the holder finishes", release).await.unwrap().unwrap();
        let next = within("the waiter finishes", wait).await.unwrap().unwrap();
        assert!(next.token() > old);
        next.release().await.unwrap();
    }
}

async fn killed_session(cx: Context) {
    let (client, mut asleep, name) = (cx.client().await, cx.puppet().await, cx.name("m"));
    let old = asleep.lock(&name).await;
    let wait = tokio::spawn(client.mutex(&name).lock());
    cx.queued(&client, &name, 1).await;
    cx.silence(asleep.peer()).await;
    let next = within("in within the session time", wait).await.unwrap().unwrap();
    assert!(next.token() > old);
    asleep.peer().silence(false);
    asleep.lost(&name).await;
    assert!(!asleep.is_valid(&name).await && !asleep.release(&name).await, "he has slept through it");
    next.check().unwrap();
    next.release().await.unwrap();
}

async fn two_clients(cx: Context) {
    let (client, name, judge) = (cx.client().await, cx.name("m"), cx.judge("m"));
    let (mut one, mut other) = (cx.client().await, cx.client().await);
    let rounds: u64 = if full() { 10 } else { 3 };
    for round in 0..rounds {
        let guard = one.mutex(&name).lock().await.unwrap();
        let wait = tokio::spawn(other.mutex(&name).lock());
        let hold = cx.queued(&client, &name, 1).await.waiters[0].hold;
        let end = Instant::now() + if full() { SEC } else { 200 * MS };
        while Instant::now() < end {
            let status = client.inspect(&name).await.unwrap();
            assert_eq!(status.holders.iter().map(|holder| holder.hold).collect::<Vec<_>>(), [guard.id()]);
            assert_eq!(status.waiters.iter().map(|waiter| waiter.hold).collect::<Vec<_>>(), [hold]);
            assert!(!wait.is_finished());
            tokio::time::sleep(5 * MS).await;
        }
        judge.work(&format!("a{round}"), &guard).await;
        guard.release().await.unwrap();
        let next = within("handed over", wait).await.unwrap().unwrap();
        assert_eq!(next.id(), hold);
        judge.work(&format!("b{round}"), &next).await;
        next.release().await.unwrap();
        std::mem::swap(&mut one, &mut other);
    }
    judge.verdict(2 * rounds);
}

async fn some_releases_fail(cx: Context) {
    let names = ["m1", "m2", "m3"].map(|what| cx.name(what));
    let other = cx.client().await;
    // Each of them in turn cannot be released: it is somebody else's by then.
    for bad in 0..names.len() {
        let (a, b) = (cx.client().await, cx.client().await);
        let all = MultiLock::new([a.mutex(&names[0]), b.mutex(&names[1]), a.mutex(&names[2])]);
        let guard = within("free", all.lock()).await.unwrap();
        let tokens = guard.tokens();
        assert_eq!(tokens.len(), 3);
        assert_eq!(other.force_release(&names[bad], tokens[bad].1).await.unwrap(), Released::Released);
        let theirs = other.mutex(&names[bad]).lock().await.unwrap();
        let failed = guard.release().await.expect_err("one of them was gone");
        assert!(matches!(failed.kind(), ErrorKind::NotHeld | ErrorKind::Lost), "{failed}");
        // A lease of theirs would last for a minute.
        for name in names.iter().filter(|name| **name != names[bad]) {
            let next = other.mutex(name).try_lock().await.unwrap();
            next.expect("released though another one failed").release().await.unwrap();
        }
        theirs.check().unwrap();
        theirs.release().await.unwrap();
    }
}

/// Not soon, and not when a lease has run out.
async fn free_now(client: &Client, name: &str, why: &str) {
    let next = client.mutex(name).try_lock().await.unwrap();
    next.unwrap_or_else(|busy| panic!("{why}: {busy}")).release().await.unwrap();
}
async fn some_locks_fail_to_lock(cx: Context) {
    let (a, other) = (cx.client().await, cx.client().await);
    let (chaotic, chaos) = cx.chaos(60 * SEC).await;
    let (first, second) = (cx.name("m1"), cx.name("m2"));
    let all = MultiLock::new([a.mutex(&first), chaotic.mutex(&second)]);
    let held = other.mutex(&second).note("in the way").lock().await.unwrap();
    let busy = all.try_lock().await.unwrap().expect_err("the second one is held");
    assert_eq!(busy.holder.map(|holder| holder.hold), Some(held.id()));
    free_now(&other, &first, "after a try").await;
    let busy = within("its time", all.try_lock_for(100 * MS)).await.unwrap();
    assert!(busy.is_err());
    free_now(&other, &first, "after a timed try").await;
    // Broken off while it waits for the second one: the first is dropped, and free soon.
    let wait = tokio::spawn({
        let all = all.clone();
        async move { all.lock().await }
    });
    cx.queued(&other, &second, 1).await;
    assert!(other.inspect(&first).await.unwrap().is_held(), "held while it waits");
    wait.abort();
    cx.free(&other, &first).await;
    held.release().await.unwrap();
    cx.free(&other, &second).await;
    chaos.next(Operation::Acquire, 1, Trouble::Fail);
    let error = all.lock().await.expect_err("the second one cannot be had");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    free_now(&other, &first, "after an error").await;
    within("nothing is in the way", all.lock()).await.unwrap().release().await.unwrap();
}

async fn rw_participants(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let one = a.rw_lock(&name).note("reader-1").read().await.unwrap();
    let other = b.rw_lock(&name).note("reader-2").read().await.unwrap();
    let writer = tokio::spawn(a.rw_lock(&name).note("writer").write());
    cx.queued(&b, &name, 1).await;
    let late = tokio::spawn(b.rw_lock(&name).note("reader-3").read());
    let status = cx.queued(&a, &name, 2).await;
    let mut holders: Vec<_> =
        status.holders.iter().map(|holder| (holder.note.to_string(), holder.claim, holder.hold)).collect();
    holders.sort_by(|a, b| a.0.cmp(&b.0));
    let readers = [("reader-1", one.id()), ("reader-2", other.id())];
    assert_eq!(holders, readers.map(|(note, hold)| (note.to_owned(), Claim::Read, hold)));
    let waiters: Vec<_> = status.waiters.iter().map(|waiter| (&*waiter.note, waiter.claim)).collect();
    assert_eq!(waiters, [("writer", Claim::Write), ("reader-3", Claim::Read)]);
    assert_eq!((status.kind, status.exclusive()), (Some(Kind::RwLock), None));
    one.release().await.unwrap();
    other.release().await.unwrap();
    let writer = within("the writer's turn", writer).await.unwrap().unwrap();
    let status = b.inspect(&name).await.unwrap();
    let alone = status.exclusive().expect("one writer");
    assert_eq!((status.holders.len(), alone.hold, alone.claim, &*alone.note), (1, writer.id(), Claim::Write, "writer"));
    writer.release().await.unwrap();
    within("the reader's turn", late).await.unwrap().unwrap().release().await.unwrap();
}

async fn upgrading_is_disallowed(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let me = a.owner();
    let mine = a.rw_lock(&name).reentrant(&me);
    let reader = mine.read().await.unwrap();
    let refused = |error: Error| assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    refused(within("refused, not waited for", mine.write()).await.unwrap_err());
    refused(within("refused", mine.try_write()).await.unwrap_err());
    refused(within("refused", mine.try_write_for(STUCK)).await.unwrap_err());
    let status = b.inspect(&name).await.unwrap();
    assert_eq!((status.holders.len(), status.waiters.len(), me.entries(&name)), (1, 0, 1), "nothing is left of it");
    reader.check().unwrap();
    // Who says nothing of an owner is a stranger to himself, and is told who is in the way.
    let busy = a.rw_lock(&name).try_write().await.unwrap().unwrap_err();
    assert_eq!(busy.holder.map(|holder| holder.hold), Some(reader.id()));
    reader.release().await.unwrap();
    within("it read no more", mine.write()).await.unwrap().release().await.unwrap();
}

async fn downgrading_respects_others(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let (me, stranger) = (a.owner(), a.owner());
    let mine = a.rw_lock(&name).reentrant(&me);
    let others = [a.rw_lock(&name), a.rw_lock(&name).reentrant(&stranger), b.rw_lock(&name)];
    let writer = mine.write().await.unwrap();
    let reader = within("its own read hold", mine.read()).await.unwrap();
    for other in &others {
        assert!(other.try_read().await.unwrap().is_err(), "somebody rides on the writer");
        assert!(other.try_write().await.unwrap().is_err());
    }
    writer.release().await.unwrap();
    for other in &others {
        assert!(other.try_write().await.unwrap().is_err(), "somebody writes beside a reader");
        let beside = other.try_read().await.unwrap().expect("readers share");
        // A hold of one's own: when it goes, ours stays.
        assert_ne!(beside.id(), reader.id());
        beside.release().await.unwrap();
        reader.check().unwrap();
    }
    reader.release().await.unwrap();
}

async fn downgrading(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let me = a.owner();
    let mine = a.rw_lock(&name).reentrant(&me);
    for by_word in [false, true] {
        let writer = mine.write().await.unwrap();
        let (hold, token) = (writer.id(), writer.token());
        let reader = if by_word {
            writer.downgrade().await.unwrap()
        } else {
            let reader = mine.read().await.unwrap();
            writer.release().await.unwrap();
            reader
        };
        assert_eq!((reader.id(), reader.claim(), me.entries(&name)), (hold, Claim::Read, 1));
        let status = b.inspect(&name).await.unwrap();
        let holders: Vec<_> = status.holders.iter().map(|holder| (holder.hold, holder.claim, holder.token)).collect();
        assert_eq!(holders, [(hold, Claim::Read, token)]);
        b.rw_lock(&name).try_read().await.unwrap().expect("beside a reader").release().await.unwrap();
        assert!(b.rw_lock(&name).try_write().await.unwrap().is_err(), "the read hold stays");
        reader.check().unwrap();
        reader.release().await.unwrap();
        let next = b.rw_lock(&name).try_write().await.unwrap().expect("free");
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
}

async fn contending_downgrading(cx: Context) {
    let (client, name, judge) = (cx.client().await, cx.name("rw"), cx.judge("rw"));
    let writer = client.rw_lock(&name).write().await.unwrap();
    let mut queued = cx.puppet_with(60 * SEC).await;
    queued.ask_write(&name);
    cx.queued(&client, &name, 1).await;
    let token = writer.token();
    let reader = writer.downgrade().await.unwrap();
    for _ in 0..10 {
        judge.share("downgraded", &reader).await;
        let status = client.inspect(&name).await.unwrap();
        let holders: Vec<_> = status.holders.iter().map(|holder| (holder.hold, holder.claim)).collect();
        assert_eq!(holders, [(reader.id(), Claim::Read)], "a writer beside the reader");
        assert_eq!(status.waiters.len(), 1);
    }
    let left = BootClock.now().as_nanos();
    reader.release().await.unwrap();
    assert!(queued.granted().await > token);
    let status = client.inspect(&name).await.unwrap();
    let alone = status.exclusive().expect("the writer");
    let since = Duration::from_nanos(BootClock.now().as_nanos() - left);
    assert!(!cx.tells_since_the_grant() || alone.held_for <= since, "in before the reader was out");
    assert!(queued.release(&name).await);
}

async fn acquire_after_lost_server(cx: Context) {
    let (a, b, name) = (cx.client_with(cx.short()).await, cx.client().await, cx.name("s"));
    let server = cx.fixture().server().unwrap();
    let held = a.semaphore(&name, 2).acquire(1).await.unwrap();
    let all = b.semaphore(&name, 2);
    let wait = tokio::spawn(all.acquire(2));
    cx.queued(&b, &name, 1).await;
    server.stop().await;
    // One who waits is broken off, one tries, and one loses his permit: all in the dark.
    wait.abort();
    let answer = all.try_acquire_for(1, 100 * MS).await;
    assert!(answer.is_err(), "{answer:?}");
    within("told", held.lost()).await;
    server.start().await;
    within("no orphan is in the way", all.acquire(2)).await.unwrap().release().await.unwrap();
    assert!(held.release().await.is_err());
    within("nor later", a.semaphore(&name, 2).acquire(2)).await.unwrap().release().await.unwrap();
}

async fn client_close(cx: Context) {
    let (other, name) = (cx.client().await, cx.name("s"));
    for dropped in [true, false] {
        // What is dropped before is released; what is still held ends with the session, or with its lease.
        let ttl = if dropped { 60 * SEC } else { cx.closing_ttl() };
        let client = cx.client_with(ttl).await;
        let held = client.semaphore(&name, 3).acquire(2).await.unwrap();
        let wait = tokio::spawn(other.semaphore(&name, 3).acquire(3));
        cx.queued(&other, &name, 1).await;
        let kept = if dropped {
            drop(held);
            None
        } else {
            Some(held)
        };
        within("closed", client.shutdown(STUCK)).await.unwrap();
        within("free", wait).await.unwrap().unwrap().release().await.unwrap();
        if let Some(kept) = kept {
            assert!(kept.check().is_err() && kept.release().await.is_err(), "others have had its permits");
        }
    }
}

async fn release_in_chunks(cx: Context) {
    let (client, name, judge) = (cx.client().await, cx.name("s"), cx.judge("s"));
    let of = 6;
    for chunks in [vec![1; 6], vec![3, 2, 1]] {
        let mut held = Vec::new();
        for take in &chunks {
            held.push((*take, client.semaphore(&name, of).acquire(*take).await.unwrap()));
        }
        let mut waits = Vec::new();
        for i in 0..of as usize {
            let (wait, judge) = (cx.client().await.semaphore(&name, of).acquire(1), judge.clone());
            waits.push(tokio::spawn(async move {
                let guard = wait.await.unwrap();
                judge.share(&format!("w{i}"), &guard).await;
                guard
            }));
            cx.queued(&client, &name, i + 1).await;
        }
        let mut served = 0;
        for (take, guard) in held {
            judge.share("holder", &guard).await;
            guard.release().await.unwrap();
            served += take;
            // So many are served as came back, and no more.
            eventually("served", || async { waits.iter().filter(|wait| wait.is_finished()).count() >= served as usize })
                .await;
            let status = client.inspect(&name).await.unwrap();
            assert_eq!((status.waiters.len(), status.taken()), ((of - served) as usize, u64::from(of)), "{status:?}");
        }
        for wait in waits {
            within("served", wait).await.unwrap().release().await.unwrap();
        }
    }
    assert!(judge.permits(of) >= 1);
}

async fn semaphore_simple(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    let one = a.semaphore(&name, 1).acquire(1).await.unwrap();
    let (began, patience) = (Instant::now(), 200 * MS);
    let busy = within("its time", b.semaphore(&name, 1).try_acquire_for(1, patience)).await.unwrap();
    assert!(busy.is_err() && began.elapsed() >= patience, "{:?}", began.elapsed());
    assert!(b.semaphore(&name, 1).try_acquire(1).await.unwrap().is_err());
    cx.queued(&a, &name, 0).await;
    one.check().unwrap();
    one.release().await.unwrap();
    within("free", b.semaphore(&name, 1).acquire(1)).await.unwrap().release().await.unwrap();
}

/// All four are taken: the fifth is granted when one is back, and not before.
async fn one_more(other: &Client, name: &str, held: &mut Vec<SharedGuard>) {
    let semaphore = other.semaphore(name, 4);
    assert!(semaphore.try_acquire(1).await.unwrap().is_err(), "a fifth one");
    held.pop().unwrap().release().await.unwrap();
    held.push(within("one is back", semaphore.acquire(1)).await.unwrap());
    assert!(semaphore.try_acquire(1).await.unwrap().is_err(), "a fifth one");
}
async fn semaphore_simple_2(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("s"));
    let (other, silence) = cx.silenceable(60 * SEC).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(client.semaphore(&name, 4).try_acquire(1).await.unwrap().expect("there are four"));
    }
    one_more(&other, &name, &mut held).await;
    // Its link breaks and heals; then it goes, and another client comes.
    silence.begin().await;
    assert!(other.semaphore(&name, 4).try_acquire_for(1, 50 * MS).await.is_err());
    silence.end().await;
    one_more(&other, &name, &mut held).await;
    held.pop().unwrap().release().await.unwrap();
    held.push(client.semaphore(&name, 4).acquire(1).await.unwrap());
    other.shutdown(STUCK).await.unwrap();
    one_more(&cx.client().await, &name, &mut held).await;
}

async fn semaphore_participants(cx: Context) {
    let (client, mut peer, name) = (cx.client().await, cx.puppet_with(60 * SEC).await, cx.name("s"));
    let two = client.semaphore(&name, 4).note("two").acquire(2).await.unwrap();
    let one = client.semaphore(&name, 4).note("one").acquire(1).await.unwrap();
    peer.acquire(&name, 1, 4).await;
    let status = cx.client().await.inspect(&name).await.unwrap();
    assert_eq!((status.kind, status.capacity, status.taken()), (Some(Kind::Semaphore), Some(4), 4));
    let mut holders: Vec<_> = status.holders.iter().map(|h| (h.note.to_string(), h.claim.take(), h.pid)).collect();
    holders.sort();
    let (here, there) = (std::process::id(), peer.peer().pid().unwrap_or(std::process::id()));
    assert_eq!(holders, [(String::new(), 1, there), ("one".to_owned(), 1, here), ("two".to_owned(), 2, here)]);
    two.release().await.unwrap();
    let status = client.inspect(&name).await.unwrap();
    assert_eq!((status.holders.len(), status.taken()), (2, 2));
    assert!(peer.release(&name).await);
    let status = client.inspect(&name).await.unwrap();
    assert_eq!(status.holders.iter().map(|holder| holder.hold).collect::<Vec<_>>(), [one.id()]);
    one.release().await.unwrap();
}

async fn interrupt_acquire(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("s"));
    for round in 0..tenth(200) {
        let held = a.semaphore(&name, 2).acquire(1).await.unwrap();
        let wait = tokio::spawn(b.semaphore(&name, 2).acquire(2));
        // Interrupted before it queues, while it waits, and while it is granted.
        if round % 3 > 0 {
            cx.queued(&a, &name, 1).await;
        }
        if round % 3 < 2 {
            wait.abort();
        }
        held.release().await.unwrap();
        wait.abort();
        drop(wait.await);
        // A lease of b would last for a minute.
        within("all permits are there", a.semaphore(&name, 2).acquire(2)).await.unwrap().release().await.unwrap();
    }
    cx.free(&a, &name).await;
    eventually("nothing is renewed", || async { b.held() == 0 }).await;
}

/// CURATOR-41.
async fn first_error_is_told(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    let clean_up_fails = || chaos.next(Operation::Withdraw, 2, Trouble::Fail);
    // The acquire's reply is lost, and so is the undo.
    chaos.next(Operation::Acquire, 1, Trouble::LoseReply);
    clean_up_fails();
    let error = client.mutex(&name).lock().await.expect_err("its reply was lost");
    assert!(error.kind() == ErrorKind::Ambiguous && error.to_string().contains("reply was lost"), "{error}");
    cx.free(&other, &name).await;
    // The first of two locks is held when the second says no, and cannot be given back at once.
    let (first, second) = (cx.name("1"), cx.name("2"));
    let held = other.rw_lock(&second).write().await.unwrap();
    chaos.next(Operation::Release, 2, Trouble::Fail);
    let error = MultiLock::new([client.mutex(&first), client.mutex(&second)]).lock().await.expect_err("another kind");
    assert_eq!(error.kind(), ErrorKind::KindMismatch, "{error}");
    cx.free(&other, &first).await;
    held.release().await.unwrap();
    // What was granted cannot be used, and cannot be given back at once.
    clean_up_fails();
    let error = client.mutex(&name).max_hold(Duration::from_nanos(1)).lock().await.expect_err("it is over at once");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    cx.free(&other, &name).await;
    // Nor is the answer lost of one who gives up.
    let held = other.mutex(&name).note("in the way").lock().await.unwrap();
    clean_up_fails();
    let busy = client.mutex(&name).try_lock_for(50 * MS).await.expect("an answer, not the undo's error").unwrap_err();
    assert_eq!(busy.holder.map(|holder| holder.hold), Some(held.id()));
    held.release().await.unwrap();
}

/// The same names, of all kinds, in two namespaces of one store at the same time: they never meet, and each of them works.
async fn namespaces(cx: Context) {
    let spaces = cx.fixture().namespaces().unwrap();
    let room = cx.name("space").replace('/', "-");
    let connect = async |space: String| {
        let engine = spaces.engine(&space, 60 * SEC).await.engine;
        Client::builder(engine).build().unwrap()
    };
    // One of them begins as the other one does.
    let spaces = [format!("{room}-a"), format!("{room}-a-b")];
    let names = ["m", "rw", "few", "e", "cell"];
    let [m, rw, few, e, cell] = names;
    let mut all = Vec::new();
    for (i, space) in spaces.iter().enumerate() {
        let (a, b) = (connect(space.clone()).await, connect(space.clone()).await);
        let mutex = a.mutex(m).note(space.as_str()).try_lock().await.unwrap().expect("free here");
        let writes = a.rw_lock(rw).try_write().await.unwrap().expect("free here");
        let permits = a.semaphore(few, 2 + u32::try_from(i).unwrap()).acquire(2).await.unwrap();
        let mut observer = b.election(e).observe();
        assert_eq!(within("nobody leads here", observer.changed()).await.unwrap(), None);
        let term = a.election(e).campaign(space.as_str()).await.unwrap();
        assert_eq!(&*within("told", observer.changed()).await.unwrap().expect("one leads").candidate, space.as_str());
        let nothing = a.cell(cell).load().await.unwrap();
        assert_eq!(nothing.value, None, "nothing is here");
        a.cell(cell).compare_exchange(nothing.version, space.as_bytes()).await.unwrap().unwrap();
        let wait = tokio::spawn(b.mutex(m).lock());
        cx.queued(&a, m, 1).await;
        all.push((a, b, observer, wait, (mutex, writes, permits, term)));
    }
    for ((a, ..), space) in all.iter().zip(&spaces) {
        let held = a.inspect(m).await.unwrap();
        assert_eq!((&*held.holders[0].note, held.holders.len(), held.waiters.len()), (space.as_str(), 1, 1));
        let listed = listed(a, "").await;
        let mut listed: Vec<_> = listed.iter().map(|status| status.name.to_string()).collect();
        listed.retain(|name| name != cell);
        let mut meant = vec![m, rw, few, e];
        meant.sort_unstable();
        assert_eq!(listed, meant);
        let stored = a.cell(cell).load().await.unwrap().value;
        assert_eq!(stored.as_deref(), Some(space.as_bytes()));
    }
    // What happens in the one wakes, frees and tells nobody in the other.
    let (_, b, mut observer, other_wait, other) = all.pop().unwrap();
    let (a, _, _, wait, (mutex, writes, permits, term)) = all.pop().unwrap();
    let token = other.0.token();
    assert!(matches!(a.force_release(m, token).await.unwrap(), Released::NotHeld { .. }), "its token is of another space");
    let reads = writes.downgrade().await.unwrap();
    assert_eq!(a.force_release(m, mutex.token()).await.unwrap(), Released::Released);
    within("woken here", wait).await.unwrap().unwrap().release().await.unwrap();
    for shared in [reads, permits] {
        shared.release().await.unwrap();
    }
    term.resign().await.unwrap();
    assert!(!other_wait.is_finished() && a.list("", &Page::default()).await.unwrap().items.iter().all(|status| !status.is_held()));
    assert!(a.rw_lock(rw).try_write().await.unwrap().is_ok() && b.rw_lock(rw).try_read().await.unwrap().is_err());
    assert!(b.semaphore(few, 3).try_acquire(2).await.unwrap().is_err());
    assert!(tokio::time::timeout(100 * MS, observer.changed()).await.is_err(), "another space's term has ended");
    other.0.check().unwrap();
    cx.queued(&b, m, 1).await;
    other.0.release().await.unwrap();
    within("woken there", other_wait).await.unwrap().unwrap().release().await.unwrap();
    other.3.resign().await.unwrap();
    assert_eq!(within("told there", observer.changed()).await.unwrap(), None);
}
