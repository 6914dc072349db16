//! redis.md 6.3: readers and writers.
use super::prelude::*;
use fencelock_core::{Held, RwLock};
use std::ops::Deref;

cases! {
    "redisson/multi-read" => multi_read, needs: [ReadWrite];
    "redisson/force-unlock-of-nothing" => force_unlock_of_nothing, needs: [ReadWrite];
    "redisson/write-lock" => write_lock, needs: [ReadWrite];
    "redisson/write-read" => write_read, needs: [Alone, ReadWrite];
    "redisson/write-read-reentrancy" => write_read_reentrancy, needs: [ReadWrite];
    "redisson/read-lock-is-locked" => read_lock_is_locked, needs: [ReadWrite];
    "redisson/read-lock-lease-timeout" => read_lock_lease_timeout, needs: [ReadWrite, FixedLeases];
    "redisson/read-lock-lease-timeout-rrw" => lease_timeout_rrw, needs: [ReadWrite, FixedLeases];
    "redisson/read-lock-lease-timeout-wrr" => lease_timeout_wrr, needs: [ReadWrite, FixedLeases];
    "redisson/read-lock-expiration-renewal" => read_lock_expiration_renewal, needs: [ReadWrite];
    "redisson/write-lock-expiration" => write_lock_expiration, needs: [ReadWrite, FixedLeases];
    "redisson/read-write-ttl" => read_write_ttl, needs: [ReadWrite, Downgrade];
    "redisson/expire-read" => expire_read, needs: [ReadWrite, FixedLeases];
    "redisson/expire-write" => expire_write, needs: [ReadWrite, FixedLeases];
    "redisson/rw-lock-unlock" => rw_lock_unlock, needs: [ReadWrite];
    "redisson/rw-reentrancy" => rw_reentrancy, needs: [ReadWrite, WritersTurn];
    "redisson/rw-hold-count" => rw_hold_count, needs: [ReadWrite];
    "redisson/rw-is-locked" => rw_is_locked, needs: [ReadWrite];
    "redisson/rw-unlock-fail" => rw_unlock_fail, needs: [ReadWrite];
    "redisson/rw-force-unlock" => rw_force_unlock, needs: [ReadWrite];
    "redisson/rw-auto-expire" => rw_auto_expire, needs: [ReadWrite, Crash];
    "redisson/rw-concurrency" => rw_concurrency, needs: [ReadWrite], limit: 60;
    "redisson/read-lock-zombie-cleanup" => read_lock_zombie_cleanup, needs: [ReadWrite, Crash];
}
roles! {
    "read and write" => read_and_write;
}

const SIDES: [Claim; 2] = [Claim::Read, Claim::Write];
/// A hold of either side.
enum Side {
    Read(SharedGuard),
    Write(Guard),
}
impl Deref for Side {
    type Target = Held;
    fn deref(&self) -> &Held {
        match self {
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
        }
    }
}
impl Side {
    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        }
    }
}
async fn enter(lock: &RwLock, side: Claim) -> Side {
    match side {
        Claim::Read => Side::Read(within("to read", lock.read()).await.unwrap()),
        _ => Side::Write(within("to write", lock.write()).await.unwrap()),
    }
}
async fn attempt(lock: &RwLock, side: Claim) -> Option<Side> {
    match side {
        Claim::Read => lock.try_read().await.unwrap().ok().map(Side::Read),
        _ => lock.try_write().await.unwrap().ok().map(Side::Write),
    }
}
/// Whether somebody reads, and whether somebody writes.
async fn sides(client: &Client, name: &str) -> (bool, bool) {
    let status = client.inspect(name).await.unwrap();
    let has = |side| status.holders.iter().any(|holder| holder.claim == side);
    (has(Claim::Read), has(Claim::Write))
}
async fn holders(client: &Client, name: &str) -> Vec<HoldId> {
    client.inspect(name).await.unwrap().holders.iter().map(|holder| holder.hold).collect()
}
async fn passed(at: Moment) {
    eventually("its time has passed", || async { BootClock.now() > at }).await;
}
fn is_over(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{error}");
}

async fn multi_read(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let (here, there) = (a.rw_lock(&name), b.rw_lock(&name));
    let mut last = cx.puppet_with(60 * SEC).await;
    last.read(&name).await;
    let mut readers = vec![
        within("beside others", here.read()).await.unwrap(),
        within("beside others", there.read()).await.unwrap(),
        here.try_read().await.unwrap().expect("beside others"),
        within("beside others", there.try_read_for(STUCK)).await.unwrap().expect("beside others"),
    ];
    while let Some(reader) = readers.pop() {
        assert_eq!(holders(&a, &name).await.len(), readers.len() + 2);
        for lock in [&here, &there] {
            assert!(lock.try_write().await.unwrap().is_err(), "a writer beside {} readers", readers.len() + 2);
        }
        reader.check().unwrap();
        reader.release().await.unwrap();
    }
    let wait = tokio::spawn(there.write());
    cx.queued(&a, &name, 1).await;
    assert_eq!((sides(&a, &name).await, wait.is_finished()), ((true, false), false));
    assert!(last.release(&name).await);
    let writer = within("the last of them has left", wait).await.unwrap().unwrap();
    assert_eq!(holders(&a, &name).await, [writer.id()]);
    writer.release().await.unwrap();
}

async fn force_unlock_of_nothing(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let nothing = a.inspect(&name).await.unwrap();
    assert_eq!(b.force_release(&name, Token::new(7).unwrap()).await.unwrap(), Released::NotHeld { holder: None });
    assert_eq!(a.inspect(&name).await.unwrap(), nothing, "it makes no record");

    let guard = a.rw_lock(&name).write().await.unwrap();
    let old = guard.token();
    guard.release().await.unwrap();
    let idle = a.inspect(&name).await.unwrap();
    assert_eq!(b.force_release(&name, old).await.unwrap(), Released::NotHeld { holder: None });
    assert_eq!(a.inspect(&name).await.unwrap(), idle, "what was held is not held any more");

    let reader = a.rw_lock(&name).read().await.unwrap();
    assert!(matches!(b.force_release(&name, old).await.unwrap(), Released::NotHeld { .. }));
    assert_eq!(holders(&b, &name).await, [reader.id()]);
    reader.check().unwrap();
    reader.release().await.unwrap();
}

async fn write_lock(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let me = a.owner();
    let mine = a.rw_lock(&name).reentrant(&me);
    let first = mine.write().await.unwrap();
    let again = within("at once", mine.write()).await.unwrap();
    assert_eq!((again.token(), again.id(), me.entries(&name)), (first.token(), first.id(), 2));
    let (one, other) = (tokio::spawn(a.rw_lock(&name).read()), tokio::spawn(b.rw_lock(&name).read()));
    cx.queued(&a, &name, 2).await;
    for guard in [first, again] {
        assert!(b.rw_lock(&name).try_read().await.unwrap().is_err());
        assert_eq!((sides(&b, &name).await, one.is_finished(), other.is_finished()), ((false, true), false, false));
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
    for reader in [one, other] {
        within("they read", reader).await.unwrap().unwrap().check().unwrap();
    }
}

async fn write_read(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("rw"));
    let writer = client.rw_lock(&name).write().await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..5 {
        let reader = cx.client().await;
        readers.extend((0..4).map(|_| tokio::spawn(reader.rw_lock(&name).read())));
    }
    cx.queued(&client, &name, 20).await;
    assert!(!readers.iter().any(tokio::task::JoinHandle::is_finished));
    let began = Instant::now();
    writer.release().await.unwrap();
    let mut inside = Vec::new();
    for reader in readers {
        inside.push(within("nobody has to leave for another", reader).await.unwrap().unwrap());
    }
    cx.in_time("all read", began.elapsed(), SEC);
    assert!(inside.iter().all(|reader| reader.is_valid()));
    assert_eq!(holders(&client, &name).await.len(), 20);
}

async fn write_read_reentrancy(cx: Context) {
    let (a, b) = (cx.client().await, cx.client().await);
    let downgrade = a.info().capabilities.downgrade;
    for write_first in [false, true] {
        let name = cx.name(if write_first { "write goes first" } else { "read goes first" });
        let me = a.owner();
        let (mine, theirs) = (a.rw_lock(&name).reentrant(&me), b.rw_lock(&name));
        let write = mine.write().await.unwrap();
        let read = within("it is a reader too", mine.read()).await.unwrap();
        assert_eq!((read.id(), read.claim(), me.entries(&name)), (write.id(), Claim::Read, 2));
        for side in SIDES {
            assert!(attempt(&theirs, side).await.is_none(), "beside a writer: {side}");
        }
        if write_first {
            write.release().await.unwrap();
            let beside = attempt(&theirs, Claim::Read).await;
            assert_eq!(beside.is_some(), downgrade, "it only reads now, where the engine can pass down");
            assert!(attempt(&theirs, Claim::Write).await.is_none(), "beside a reader");
            read.check().unwrap();
            read.release().await.unwrap();
            if let Some(beside) = beside {
                beside.release().await.unwrap();
            }
        } else {
            read.release().await.unwrap();
            for side in SIDES {
                assert!(attempt(&theirs, side).await.is_none(), "beside a writer: {side}");
            }
            write.check().unwrap();
            write.release().await.unwrap();
        }
        assert_eq!(me.entries(&name), 0);
        attempt(&theirs, Claim::Write).await.expect("both are released").release().await.unwrap();
    }
}

async fn read_lock_is_locked(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    assert_eq!(sides(&b, &name).await, (false, false));
    let writer = a.rw_lock(&name).write().await.unwrap();
    assert_eq!(sides(&b, &name).await, (false, true));
    let wait = tokio::spawn(b.rw_lock(&name).read());
    cx.queued(&a, &name, 1).await;
    assert_eq!(sides(&b, &name).await, (false, true), "who waits to read does not read");
    writer.release().await.unwrap();
    let reader = within("it reads", wait).await.unwrap().unwrap();
    assert_eq!(sides(&a, &name).await, (true, false));
    reader.release().await.unwrap();
    assert_eq!(sides(&a, &name).await, (false, false));
}

async fn read_lock_lease_timeout(cx: Context) {
    let (a, b, long) = (cx.client().await, cx.client().await, 30 * SEC);
    let [one, other, owned] = ["a long one first", "a short one first", "of one owner"].map(|what| cx.name(what));
    let read = |client: &Client, name: &str, d| client.rw_lock(name).lease(d).read();
    let (long_first, short_second) = (read(&a, &one, long).await.unwrap(), read(&b, &one, cx.short()).await.unwrap());
    let short_first = read(&a, &other, cx.short()).await.unwrap();
    let long_second = read(&b, &other, long).await.unwrap();
    let me = a.owner();
    let mine = a.rw_lock(&owned).reentrant(&me);
    let first = mine.clone().lease(long).read().await.unwrap();
    let ends = [&long_first, &short_first, &long_second, &first].map(|guard| guard.valid_until());
    let again = mine.lease(cx.short()).read().await.unwrap();
    assert_eq!((again.id(), again.valid_until()), (first.id(), first.valid_until()));

    within("told", short_second.lost()).await;
    within("told", short_first.lost()).await;
    passed(short_first.valid_until().max(short_second.valid_until()) + cx.short() / 10).await;
    for (name, guard) in [(&one, &long_first), (&other, &long_second)] {
        assert_eq!(holders(&b, name).await, [guard.id()], "{name}");
        assert!(b.rw_lock(name).try_write().await.unwrap().is_err(), "{name}");
        guard.check().unwrap();
    }
    again.check().unwrap();
    let now = [&long_first, &short_first, &long_second, &first].map(|guard| guard.valid_until());
    assert_eq!(ends, now, "each has its own end");
    for (name, guard) in [(one, long_first), (other, long_second)] {
        guard.release().await.unwrap();
        drop(b.rw_lock(&name).try_write().await.unwrap().expect("nothing is left of the other one"));
    }
}

async fn lease_timeout_rrw(cx: Context) {
    let (client, names) = (cx.client().await, [cx.name("the last ends last"), cx.name("the first ends last")]);
    let mut tasks = Vec::new();
    for (name, leases) in names.into_iter().zip([[cx.short() / 2, cx.short()], [cx.short(), cx.short() / 2]]) {
        let mut readers = Vec::new();
        for lease in leases {
            readers.push(cx.client().await.rw_lock(&name).lease(lease).read().await.unwrap());
        }
        let wait = client.rw_lock(&name).write();
        tasks.push(tokio::spawn(async move {
            let writer = wait.await.unwrap();
            let granted = BootClock.now();
            for reader in &readers {
                assert!(granted >= reader.valid_until() && !reader.is_valid(), "{name}: {reader:?} still reads");
            }
            writer.check().unwrap();
            writer.release().await.unwrap();
            for reader in readers {
                is_over(&reader.release().await.unwrap_err());
            }
        }));
    }
    for task in tasks {
        within("both leases have ended", task).await.unwrap();
    }
}

async fn lease_timeout_wrr(cx: Context) {
    let (a, b, c, name) = (cx.client().await, cx.client().await, cx.client().await, cx.name("rw"));
    let writer = a.rw_lock(&name).lease(cx.short()).write().await.unwrap();
    let end = writer.valid_until();
    let tasks = [&b, &c].map(|client| {
        let wait = client.rw_lock(&name).read();
        tokio::spawn(async move { (wait.await.unwrap(), BootClock.now()) })
    });
    let mut readers = Vec::new();
    for task in tasks {
        let (reader, granted) = within("the lease has ended", task).await.unwrap();
        assert!(granted >= end && !writer.is_valid(), "read within the claimed validity of the writer");
        readers.push(reader);
    }
    assert_eq!(holders(&a, &name).await.len(), 2, "both at once");
    is_over(&writer.release().await.unwrap_err());
    for reader in readers {
        reader.check().unwrap();
        reader.release().await.unwrap();
    }
}

async fn read_lock_expiration_renewal(cx: Context) {
    let name = cx.name("rw");
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(cx.client_with(2 * cx.short()).await);
    }
    let mut readers = Vec::new();
    for i in 0..50 {
        readers.push(clients[i % 5].rw_lock(&name).read().await.unwrap());
    }
    passed(BootClock.now() + clients[0].ttl()).await;
    assert_eq!(holders(&clients[0], &name).await.len(), 50);
    for (i, reader) in readers.into_iter().enumerate() {
        reader.check().unwrap_or_else(|e| panic!("reader {i}: {e}"));
        reader.release().await.unwrap_or_else(|e| panic!("reader {i}: {e}"));
    }
}

async fn write_lock_expiration(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let (me, lock) = (a.owner(), a.rw_lock(&name));
    let first = lock.clone().lease(cx.short()).reentrant(&me).write().await.unwrap();
    let end = first.valid_until();
    let again = lock.clone().lease(60 * SEC).reentrant(&me).write().await.unwrap();
    let mine = lock.reentrant(&me);
    let beside = mine.read().await.unwrap();
    assert_eq!((again.id(), beside.id(), again.valid_until()), (first.id(), first.id(), end));
    let next = within("its own time, not that of the re-entry", b.rw_lock(&name).write()).await.unwrap();
    assert!(BootClock.now() >= end, "granted within the claimed validity of the other");
    for side in SIDES {
        assert!(attempt(&mine, side).await.is_none(), "nobody enters a hold that is over");
    }
    for guard in [Side::Write(first), Side::Write(again), Side::Read(beside)] {
        assert!(!guard.is_valid());
        within("told", guard.lost()).await;
        is_over(&guard.release().await.unwrap_err());
    }
    assert_eq!(holders(&a, &name).await, [next.id()]);
    next.check().unwrap();
    next.release().await.unwrap();
}

async fn read_write_ttl(cx: Context) {
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client().await, cx.name("rw"));
    let mine = a.rw_lock(&name).reentrant(&a.owner());
    let (write, read) = (mine.write().await.unwrap(), mine.read().await.unwrap());
    let end = write.valid_until();
    eventually("both are renewed", || async { write.valid_until() > end && read.valid_until() > end }).await;
    write.release().await.unwrap();
    let end = read.valid_until();
    eventually("the read hold alone is renewed", || async { read.valid_until() > end }).await;
    read.check().unwrap();
    assert_eq!((holders(&b, &name).await, sides(&b, &name).await), (vec![read.id()], (true, false)));
    read.release().await.unwrap();
    attempt(&b.rw_lock(&name), Claim::Write).await.expect("free").release().await.unwrap();
}

async fn expire(cx: &Context, side: Claim) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let held = enter(&a.rw_lock(&name).lease(cx.short()), side).await;
    let next = within("the lease has ended", b.rw_lock(&name).write()).await.unwrap();
    let granted = BootClock.now();
    assert!(granted >= held.valid_until() && !held.is_valid(), "granted within the claimed validity of the other");
    is_over(&held.release().await.unwrap_err());
    assert_eq!(holders(&a, &name).await, [next.id()], "a late release ends nothing of others");
    next.check().unwrap();
    next.release().await.unwrap();
}
async fn expire_read(cx: Context) {
    expire(&cx, Claim::Read).await;
}
async fn expire_write(cx: Context) {
    expire(&cx, Claim::Write).await;
}

async fn rw_lock_unlock(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    for side in [Claim::Read, Claim::Read, Claim::Write, Claim::Write, Claim::Read] {
        for client in [&a, &b] {
            let held = enter(&client.rw_lock(&name), side).await;
            assert_eq!((held.claim(), holders(&b, &name).await), (side, vec![held.id()]));
            held.check().unwrap();
            held.release().await.unwrap();
            let status = b.inspect(&name).await.unwrap();
            assert!(!status.is_held() && status.waiters.is_empty() && a.held() + b.held() == 0, "{status:?}");
        }
    }
}

async fn rw_reentrancy(cx: Context) {
    let (a, b) = (cx.client().await, cx.client().await);
    for side in SIDES {
        let (name, me) = (cx.name(&side.to_string()), a.owner());
        let mine = a.rw_lock(&name).reentrant(&me);
        let first = enter(&mine, side).await;
        // A writer who waits stops new readers, and not one who is inside.
        let wait = tokio::spawn(b.rw_lock(&name).write());
        cx.queued(&a, &name, 1).await;
        let mut guards = vec![first, enter(&mine, side).await, attempt(&mine, side).await.expect("at once")];
        while let Some(guard) = guards.pop() {
            assert_eq!(usize::try_from(guard.entries()).unwrap(), guards.len() + 1);
            assert_eq!((holders(&b, &name).await, wait.is_finished()), (vec![guard.id()], false));
            for client in [&a, &b] {
                assert!(attempt(&client.rw_lock(&name), side).await.is_none(), "a stranger is in");
            }
            guard.check().unwrap();
            guard.release().await.unwrap();
        }
        let next = within("the outermost release frees it", wait).await.unwrap().unwrap();
        assert_eq!((me.entries(&name), holders(&a, &name).await), (0, vec![next.id()]));
        assert!(attempt(&mine, side).await.is_none(), "an owner that has left is a stranger");
        next.release().await.unwrap();
    }
}

async fn rw_hold_count(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("rw"));
    let me = client.owner();
    let mine = client.rw_lock(&name).reentrant(&me);
    for side in SIDES {
        assert_eq!(me.entries(&name), 0);
        let one = enter(&mine, side).await;
        assert_eq!((me.entries(&name), one.entries()), (1, 1));
        let two = enter(&mine, side).await;
        assert_eq!((me.entries(&name), one.entries(), two.entries()), (2, 2, 2));
        one.release().await.unwrap();
        assert_eq!((me.entries(&name), two.entries()), (1, 1));
        drop(two);
        assert_eq!(me.entries(&name), 0);
    }
    let (write, read) = (enter(&mine, Claim::Write).await, enter(&mine, Claim::Read).await);
    assert_eq!((me.entries(&name), write.entries(), read.entries()), (2, 2, 2));
    write.release().await.unwrap();
    assert_eq!((me.entries(&name), read.entries(), read.claim()), (1, 1, Claim::Read));
    assert_eq!(mine.write().await.unwrap_err().kind(), ErrorKind::Unsupported, "it would wait for itself");
    read.release().await.unwrap();
    assert_eq!(me.entries(&name), 0);
}

/// The kind, whether somebody is alone in it, and who is in it and how, by their notes.
async fn who(by: &Client, name: &str) -> (Option<Kind>, bool, Vec<(String, Claim)>) {
    let status = by.inspect(name).await.unwrap();
    let mut holders: Vec<_> = status.holders.iter().map(|holder| (holder.note.to_string(), holder.claim)).collect();
    holders.sort_by(|(one, _), (other, _)| one.cmp(other));
    (status.kind, status.exclusive().is_some(), holders)
}
async fn rw_is_locked(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("rw"));
    let (kind, reads) = (Some(Kind::RwLock), |note: &str| (note.to_owned(), Claim::Read));
    for client in [&a, &b] {
        assert_eq!(who(client, &name).await, (None, false, vec![]), "never used");
    }
    let one = a.rw_lock(&name).note("one").read().await.unwrap();
    let two = b.rw_lock(&name).note("two").read().await.unwrap();
    for client in [&a, &b] {
        assert_eq!(who(client, &name).await, (kind, false, vec![reads("one"), reads("two")]));
    }
    one.release().await.unwrap();
    assert_eq!(who(&b, &name).await, (kind, false, vec![reads("two")]));
    two.release().await.unwrap();
    let writer = a.rw_lock(&name).note("shipping").write().await.unwrap();
    for client in [&a, &b] {
        assert_eq!(who(client, &name).await, (kind, true, vec![("shipping".to_owned(), Claim::Write)]));
        let busy = client.rw_lock(&name).try_read().await.unwrap().unwrap_err();
        assert_eq!(busy.holder.map(|holder| holder.hold), Some(writer.id()));
    }
    writer.release().await.unwrap();
    assert_eq!(who(&b, &name).await, (None, false, vec![]));
}

async fn rw_unlock_fail(cx: Context) {
    let (a, (b, below)) = (cx.client().await, cx.connect(cx.short()).await);
    for side in SIDES {
        let name = cx.name(&side.to_string());
        let held = enter(&a.rw_lock(&name), side).await;
        let token = b.inspect(&name).await.unwrap().holders[0].token;
        let (lock, lease, ttl) = (held.name().clone(), Lease::Own { sent_at: BootClock.now() }, held.ttl());
        let ours = Grant { name: lock, claim: side, hold: held.id(), token, ttl, lease, server_micros: 0, place: None };
        let (stranger, another) = (HoldId::from_bytes([7; 16]), Token::new(token.get() + 1).unwrap());
        for (hold, token) in [(stranger, token), (held.id(), another), (stranger, another)] {
            let answer = below.engine.release(&Grant { hold, token, ..ours.clone() }).await.unwrap();
            assert!(matches!(answer, Released::NotHeld { .. }), "{side}: {answer:?}");
        }
        assert!(matches!(b.force_release(&name, another).await.unwrap(), Released::NotHeld { .. }), "{side}");
        assert!(attempt(&b.rw_lock(&name), Claim::Write).await.is_none());
        assert_eq!(holders(&b, &name).await, [held.id()]);
        held.check().unwrap();
        held.release().await.unwrap();
    }
}

async fn rw_force_unlock(cx: Context) {
    // Short: some engines tell it with the next renewal.
    let (a, b) = (cx.client_with(2 * cx.short()).await, cx.client().await);
    for (side, n) in [(Claim::Read, 2), (Claim::Write, 1)] {
        let name = cx.name(&side.to_string());
        let mut held = Vec::new();
        for _ in 0..n {
            held.push(enter(&a.rw_lock(&name), side).await);
        }
        let wait = tokio::spawn(b.rw_lock(&name).write());
        let status = cx.queued(&b, &name, 1).await;
        assert_eq!(status.holders.len(), n);
        for holder in &status.holders {
            assert!(!wait.is_finished(), "{side}");
            assert_eq!(b.force_release(&name, holder.token).await.unwrap(), Released::Released, "{side}");
        }
        let next = within("free", wait).await.unwrap().unwrap();
        for held in held {
            assert_eq!(within("told", held.lost()).await, LossReason::TakenOver, "{side}");
            is_over(&held.release().await.unwrap_err());
        }
        assert_eq!(holders(&a, &name).await, [next.id()]);
        next.check().unwrap();
        next.release().await.unwrap();
    }
}

async fn rw_auto_expire(cx: Context) {
    let (client, reading, writing) = (cx.client().await, cx.name("reading"), cx.name("writing"));
    let (mut reader, mut writer) = (cx.puppet().await, cx.puppet().await);
    reader.read(&reading).await;
    let old = writer.write(&writing).await;
    let (write, read) = (tokio::spawn(client.rw_lock(&reading).write()), tokio::spawn(client.rw_lock(&writing).read()));
    cx.queued(&client, &reading, 1).await;
    cx.queued(&client, &writing, 1).await;
    reader.crash().await;
    writer.crash().await;
    let next = within("the reader is gone", write).await.unwrap().unwrap();
    let beside = within("the writer is gone", read).await.unwrap().unwrap();
    beside.release().await.unwrap();
    next.release().await.unwrap();
    assert!(within("free", client.rw_lock(&writing).write()).await.unwrap().token() > old);
}

/// Half of them are processes, where the engine has them.
async fn rw_concurrency(cx: Context) {
    let (judge, name) = (cx.judge("rw"), cx.name("rw"));
    let (each, rounds) = (tenth(40), if full() { 40 } else { 20 });
    let mut peers = Vec::new();
    for i in 0..each {
        let words = [&name, judge.place().to_str().unwrap(), &format!("peer-{i}"), &rounds.to_string()];
        peers.push(cx.peer_with(60 * SEC, "read and write", &words).await);
    }
    let mut tasks = Vec::new();
    for i in 0..each {
        let (client, judge, name) = (cx.client().await, judge.clone(), name.clone());
        tasks.push(tokio::spawn(async move { rounds_of_both(&client, &name, &judge, &format!("here-{i}"), rounds).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for peer in peers {
        peer.finish().await;
    }
    judge.verdict(2 * u64::try_from(each).unwrap() * (rounds / 4));
    assert_eq!(judge.history.intervals().len(), 2 * each * usize::try_from(rounds).unwrap());
}
/// `read and write NAME JUDGE WHO ROUNDS`
async fn read_and_write(me: RoleContext) {
    let judge = Judge::at(me.words[1].as_ref());
    rounds_of_both(&me.client, &me.words[0], &judge, &me.words[2], me.number(3)).await;
}
/// One of four writes.
async fn rounds_of_both(client: &Client, name: &str, judge: &Judge, who: &str, rounds: u64) {
    for round in 0..rounds {
        if round % 4 == 3 {
            let writer = client.rw_lock(name).write().await.unwrap();
            judge.work(who, &writer).await;
            writer.release().await.unwrap();
        } else {
            let reader = client.rw_lock(name).read().await.unwrap();
            judge.share(who, &reader).await;
            reader.release().await.unwrap();
        }
    }
}

async fn read_lock_zombie_cleanup(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("rw"));
    let (mut dead, mut alive) = (cx.puppet().await, cx.puppet_with(2 * cx.short()).await);
    dead.read(&name).await;
    let zombie = holders(&client, &name).await.remove(0);
    alive.read(&name).await;
    assert_eq!(holders(&client, &name).await.len(), 2);
    let wait = tokio::spawn(client.rw_lock(&name).write());
    cx.queued(&client, &name, 1).await;
    dead.crash().await;
    eventually("the dead one is gone", || async { !holders(&client, &name).await.contains(&zombie) }).await;
    assert!(alive.is_valid(&name).await && holders(&client, &name).await.len() == 1 && !wait.is_finished());
    assert!(alive.release(&name).await);
    within("the writer gets in", wait).await.unwrap().unwrap().release().await.unwrap();
}
