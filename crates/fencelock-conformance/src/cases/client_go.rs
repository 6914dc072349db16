//! consensus.md 6: client-go.
use super::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

cases! {
    "client-go/try-acquire-or-renew" => try_acquire_or_renew, needs: [FixedLeases];
    "client-go/release-lease" => release_lease, needs: [FixedLeases];
    "client-go/release-retries-on-conflict" => release_retries_on_conflict;
    "client-go/config-validation" => config_validation;
    "client-go/fast-path-leader-election" => fast_path, needs: [FixedLeases];
    "client-go/check-method-race" => check_method_race, needs: [Alone];
}
roles! {}

/// As its engine is told of it.
fn grant_of(guard: &Guard) -> Grant {
    Grant {
        name: guard.name().clone(),
        claim: guard.claim(),
        hold: guard.id(),
        token: guard.token(),
        ttl: guard.ttl(),
        lease: Lease::Own { sent_at: BootClock.now() },
        server_micros: 0,
        place: None,
    }
}
async fn try_acquire_or_renew(cx: Context) {
    let ((client, engine), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    let leased = client.mutex(&name).lease(60 * SEC);
    // None; free.
    let none = leased.try_lock().await.unwrap().expect("no record: granted");
    let first = none.token();
    none.release().await.unwrap();
    let ours = leased.try_lock().await.unwrap().expect("free: granted");
    assert!(ours.token() > first);
    // Ours.
    let grant = grant_of(&ours);
    assert!(matches!(renewed(&*engine, &grant).await, Renewed::Extended { .. }), "ours: renewed");
    ours.check().unwrap();
    // Another's.
    let busy = other.mutex(&name).try_lock().await.unwrap().expect_err("another's: refused");
    assert_eq!(busy.holder.map(|holder| holder.hold), Some(ours.id()));
    let stranger = Grant { hold: HoldId::from_bytes(fastrand::u128(..).to_be_bytes()), ..grant.clone() };
    assert!(matches!(renewed(&*engine, &stranger).await, Renewed::Lost(_)), "another's: not renewed");
    // Changed meanwhile.
    assert_eq!(other.force_release(&name, ours.token()).await.unwrap(), Released::Released);
    let theirs = other.mutex(&name).lease(2 * cx.short()).lock().await.unwrap();
    assert!(matches!(renewed(&*engine, &grant).await, Renewed::Lost(_)), "changed meanwhile: lost");
    assert!(leased.try_lock().await.unwrap().is_err(), "changed meanwhile: refused");
    assert_eq!(other.inspect(&name).await.unwrap().holders[0].hold, theirs.id());
    // Expired.
    let again = within("expired: granted", leased.lock()).await.unwrap();
    assert!(again.token() > theirs.token() && !theirs.is_valid());
    let old = grant_of(&theirs);
    assert!(matches!(renewed(&*engine, &old).await, Renewed::Lost(_)), "expired: not renewed");
    let extended = renewed(&*engine, &grant_of(&again)).await;
    assert!(matches!(extended, Renewed::Extended { .. }), "expired, and granted anew: {extended:?}");
    again.release().await.unwrap();
}

/// It is not released, and this one has the lock.
async fn refused(engine: &Chaos, grant: &Grant, by: Option<HoldId>) {
    match engine.release(grant).await.unwrap() {
        Released::NotHeld { holder } => assert_eq!(holder.map(|holder| holder.hold), by),
        Released::Released => panic!("{grant:?} was released, and {by:?} has the lock"),
    }
}
async fn release_lease(cx: Context) {
    let ((client, engine), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    let ours = client.mutex(&name).lease(60 * SEC).lock().await.unwrap();
    let grant = grant_of(&ours);
    // None.
    let stranger = HoldId::from_bytes(fastrand::u128(..).to_be_bytes());
    let elsewhere = Grant { name: Name::new(cx.name("other")).unwrap(), hold: stranger, ..grant.clone() };
    refused(&engine, &elsewhere, None).await;
    // Another's: by its hold, or by its token.
    let later = Token::new(grant.token.get() + 1).unwrap();
    refused(&engine, &Grant { hold: stranger, ..grant.clone() }, Some(ours.id())).await;
    refused(&engine, &Grant { token: later, ..grant.clone() }, Some(ours.id())).await;
    ours.check().unwrap();
    // Ours, and ours again.
    assert_eq!(engine.release(&grant).await.unwrap(), Released::Released);
    refused(&engine, &grant, None).await;
    // Expired, while nobody and while somebody has it.
    let expired = client.mutex(&name).lease(cx.short()).lock().await.unwrap();
    let old = grant_of(&expired);
    let next = within("expired", other.mutex(&name).lock()).await.unwrap();
    refused(&engine, &old, Some(next.id())).await;
    refused(&engine, &grant, Some(next.id())).await;
    next.check().unwrap();
    next.release().await.unwrap();
    refused(&engine, &old, None).await;
    assert!(ours.release().await.is_err() && expired.release().await.is_err());
}

async fn release_retries_on_conflict(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    // Others write to the same record all the time: they queue and leave, try, and force what is not there.
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let (other, name, stop) = (other.clone(), name.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    // They are only there to write: on a busy machine they may hear nothing in time.
                    match other.mutex(&name).try_lock_for(MS).await {
                        Ok(Ok(guard)) => guard.release().await.unwrap(),
                        Ok(Err(_)) => {}
                        Err(e) => assert!(e.is_temporary(), "{e}"),
                    }
                    if let Err(e) = other.force_release(&name, Token::new(1).unwrap()).await {
                        assert!(e.is_temporary(), "{e}");
                    }
                }
            })
        })
        .collect();
    for round in 0..tenth(300) {
        let guard = within("in", client.mutex(&name).lock()).await.unwrap();
        let (hold, before) = (guard.id(), chaos.calls(Operation::Release));
        // Now and then it fails on its way, too, or its reply is lost.
        match round % 3 {
            0 => {}
            1 => chaos.next(Operation::Release, 2, Trouble::Fail),
            _ => chaos.next(Operation::Release, 1, Trouble::LoseReply),
        }
        within("it frees", guard.release()).await.unwrap();
        assert!(chaos.calls(Operation::Release) > before + [0, 2, 1][round % 3], "done again");
        let holders = other.inspect(&name).await.unwrap().holders;
        assert!(holders.iter().all(|holder| holder.hold != hold), "{holders:?}");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    cx.free(&other, &name).await;
}

async fn config_validation(cx: Context) {
    let ((client, chaos), name) = (cx.chaos(60 * SEC).await, cx.name("m"));
    let can = client.info().capabilities.clone();
    let mutex = client.mutex(&name);
    let wrong = [
        ("no ttl", mutex.clone().ttl(Duration::ZERO)),
        ("a ttl below what the engine has", mutex.clone().ttl(can.min_ttl - MS)),
        ("a ttl above what the engine has", mutex.clone().ttl(can.max_ttl + MS)),
        ("a lease below what the engine has", mutex.clone().lease(can.min_ttl - MS)),
        ("a lease above what the engine has", mutex.clone().lease(can.max_ttl + MS)),
        ("renewed and not renewed", mutex.clone().ttl(SEC).lease(SEC)),
        ("not renewed and renewed", mutex.clone().lease(SEC).ttl(SEC)),
        ("held for no time", mutex.clone().max_hold(Duration::ZERO)),
        ("taken for longer than its ttl", mutex.clone().ttl(SEC).at_least(SEC + MS)),
        ("taken for longer than it may be held", mutex.clone().ttl(60 * SEC).max_hold(SEC).at_least(2 * SEC)),
    ];
    for (what, mutex) in wrong {
        for error in [mutex.lock().await.map(drop), mutex.try_lock().await.map(drop)] {
            assert_eq!(error.expect_err(what).kind(), ErrorKind::InvalidConfig, "{what}");
        }
    }
    assert_eq!(chaos.calls(Operation::Acquire), 0, "refused before anything is sent");
    // The edges are no contradiction.
    for mutex in [
        mutex.clone().ttl(can.min_ttl),
        mutex.clone().ttl(can.max_ttl),
        mutex.clone().ttl(SEC).ttl(can.max_ttl),
        mutex.clone().ttl(SEC).at_least(MS).max_hold(SEC),
    ] {
        within("free", mutex.lock()).await.unwrap().release().await.unwrap();
    }
    cx.runs_out(); // the last one: at least for its millisecond
}

async fn fast_path(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(2 * cx.short()).await, cx.client().await, cx.name("m"));
    let calls = || [Operation::Acquire, Operation::Renew, Operation::Inspect, Operation::Exchange].map(|of| chaos.calls(of));
    let guard = client.mutex(&name).lease(30 * SEC).lock().await.unwrap();
    assert_eq!(calls(), [1, 0, 0, 0]);
    let no_read = || {
        let [tries, writes, reads, exchanges] = calls();
        assert_eq!([tries, reads, exchanges], [1, 0, 0], "a renewal reads nothing");
        writes
    };
    let asked = Instant::now();
    guard.extend(60 * SEC).await.unwrap();
    // An engine that could not look in time is asked again.
    let (at_once, writes) = (asked.elapsed() < 25 * MS, no_read());
    assert!(writes == 1 || !at_once, "one write, not {writes}");
    // It fails: it is asked again, and the record answers.
    chaos.next(Operation::Renew, 1, Trouble::LoseReply);
    guard.extend(90 * SEC).await.unwrap();
    assert!(no_read() >= writes + 2);
    assert!(guard.remaining() > 60 * SEC);
    // And so does one that another has by now.
    assert_eq!(other.force_release(&name, guard.token()).await.unwrap(), Released::Released);
    let theirs = other.mutex(&name).lock().await.unwrap();
    let error = guard.extend(120 * SEC).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{error}");
    assert!(guard.check().is_err());
    theirs.check().unwrap();
    theirs.release().await.unwrap();
    // A hold that is renewed by itself is never read.
    let kept = client.mutex(&name).lock().await.unwrap();
    let before = calls();
    let began = Instant::now();
    let end = 3 * cx.short();
    eventually("more than a ttl has passed", || async { began.elapsed() > end }).await;
    kept.check().unwrap();
    let after = calls();
    assert_eq!([after[0], after[2], after[3]], [before[0], before[2], before[3]], "renewals read nothing");
    kept.release().await.unwrap();
}

/// Ends the threads also when the trial fails.
struct Stop(Arc<AtomicBool>);
impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

async fn check_method_race(cx: Context) {
    let (client, name) = (cx.client_with(600 * MS).await, cx.name("m"));
    for round in 0..if full() { 20 } else { 2 } {
        let guard = Arc::new(client.mutex(&name).lock().await.unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Stop(stop.clone());
        let asking: Vec<_> = (0..4)
            .map(|_| {
                let (guard, stop) = (guard.clone(), stop.clone());
                std::thread::spawn(move || {
                    let (mut until, mut over, mut asked) = (Moment::ZERO, false, 0_u64);
                    while !stop.load(Relaxed) {
                        let (now, left) = (guard.valid_until(), guard.remaining());
                        let (valid, good) = (guard.is_valid(), guard.check().is_ok());
                        assert!(now >= until, "it never gets shorter");
                        assert!(!over || (!valid && !good && left.is_zero()), "what is over stays over");
                        assert!(valid || !good, "good after it was not valid");
                        assert!(left <= guard.ttl(), "torn: {left:?} are left of {:?}", guard.ttl());
                        assert_eq!(guard.entries(), 1);
                        (until, over, asked) = (now, over || !valid, asked + 1);
                        // It asks often enough, and leaves room for who renews.
                        std::thread::yield_now();
                    }
                    asked
                })
            })
            .collect();
        // Renewals come and go; then it is taken away.
        for _ in 0..3 {
            within("renewed", guard.renewed()).await;
        }
        let lost = guard.lost();
        assert_eq!(client.force_release(&name, guard.token()).await.unwrap(), Released::Released);
        within("told", lost).await;
        assert!(guard.check().is_err() && guard.remaining().is_zero());
        drop(stops);
        for thread in asking {
            let asked = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            assert!(asked > 0, "round {round}");
        }
    }
}
