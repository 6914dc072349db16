//! sql.md 12.7: the DynamoDB lock client.
use super::prelude::*;
use tokio::sync::Barrier;

cases! {
    "dynamo/skip-blocking-wait" => tries_alone, needs: [Crash];
    "dynamo/expired-lock-concurrently-acquired" => expired_and_acquired_at_once, needs: [FixedLeases];
    "dynamo/expired-lock-concurrently-updated" => extended_while_taken_over, needs: [FixedLeases];
    "dynamo/heartbeat-when-service-unavailable" => heartbeats_unanswered, needs: [Silence];
    "dynamo/session-monitor-callback" => warned_before_the_loss;
    "dynamo/acquire-on-client-exception" => acquire_meets_a_passing_error, needs: [Silence];
}
roles! {}

async fn tries_alone(cx: Context) {
    let (client, mut gone, name) = (cx.client().await, cx.puppet().await, cx.name("m"));
    let old = gone.lock(&name).await;
    assert!(client.mutex(&name).try_lock().await.unwrap().is_err());
    gone.crash().await;
    let tries = async {
        loop {
            match client.mutex(&name).try_lock().await.unwrap() {
                Ok(guard) => return guard,
                Err(busy) => assert!(busy.holder.is_none_or(|holder| holder.token == old), "nobody else is there"),
            }
            tokio::time::sleep(10 * MS).await;
        }
    };
    let guard = within("once its lease or session is over", tries).await;
    assert!(guard.token() > old);
    guard.release().await.unwrap();
}

async fn expired_and_acquired_at_once(cx: Context) {
    let (holder, name) = (cx.client().await, cx.name("m"));
    for _ in 0..2 {
        let old = holder.mutex(&name).lease(SEC).lock().await.unwrap();
        let (old_token, start) = (old.token(), Arc::new(Barrier::new(8)));
        let mut tasks = Vec::new();
        for _ in 0..8 {
            let (mutex, start) = (cx.client().await.mutex(&name), start.clone());
            tasks.push(tokio::spawn(async move {
                start.wait().await;
                loop {
                    match mutex.try_lock().await.unwrap() {
                        Ok(guard) => return Some((guard, BootClock.now())),
                        Err(busy) if busy.holder.as_ref().is_some_and(|holder| holder.token > old_token) => return None,
                        Err(_) => tokio::task::yield_now().await,
                    }
                }
            }));
        }
        let mut winners = Vec::new();
        for task in tasks {
            winners.extend(within("it has ended", task).await.unwrap());
        }
        let [(guard, at)] = &winners[..] else { panic!("one gets it: {winners:?}") };
        assert!(guard.token() > old_token && *at >= old.valid_until() && !old.is_valid());
        guard.check().unwrap();
        assert_eq!(holder.inspect(&name).await.unwrap().holders.len(), 1);
        for (guard, _) in winners {
            guard.release().await.unwrap();
        }
    }
}

async fn extended_while_taken_over(cx: Context) {
    let (a, b, lease) = (cx.client().await, cx.client().await, cx.short());
    let rounds = (0..6).map(|round| {
        let (a, b, name) = (a.clone(), b.clone(), cx.name(&format!("m{round}")));
        async move {
            let guard = a.mutex(&name).lease(lease).lock().await.unwrap();
            let next = tokio::spawn({
                let wait = b.mutex(&name).lock();
                async move { (wait.await.unwrap(), BootClock.now()) }
            });
            // From well before its end to right at it.
            let early = 4 * MS * round;
            tokio::time::sleep(guard.remaining().saturating_sub(early)).await;
            let extended = guard.extend(lease).await;
            let until = guard.valid_until();
            let (next, at) = within("taken over in the end", next).await.unwrap();
            match extended {
                Ok(()) => assert!(at >= until, "extended, and granted to another {:?} before the end", at.until(until)),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Lost, "{e}"),
            }
            assert!(guard.extend(lease).await.is_err(), "one of them is told no");
            next.check().unwrap();
            next.release().await.unwrap();
        }
    });
    for task in rounds.map(tokio::spawn).collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

async fn heartbeats_unanswered(cx: Context) {
    let (ttl, name) = (cx.short(), cx.name("m"));
    let ((a, silence), b) = (cx.silenceable(ttl).await, cx.client().await);
    let guard = a.mutex(&name).lock().await.unwrap();
    let next = tokio::spawn(b.mutex(&name).lock());
    cx.queued(&b, &name, 1).await;
    silence.begin().await;
    within("suspect", guard.suspect()).await;
    let holders = b.inspect(&name).await.unwrap().holders;
    assert!(!guard.is_valid() || holders[0].hold == guard.id(), "held until the deadline");
    let mut until = guard.valid_until();
    let reason = within("and no longer", guard.lost()).await;
    assert!(matches!(reason, LossReason::Unreachable | LossReason::Expired), "{reason:?}");
    until = until.max(guard.valid_until());
    silence.let_others().await;
    let next = within("another is in", next).await.unwrap().unwrap();
    assert!(BootClock.now() >= until, "granted within the claimed validity of the other");
    silence.end().await;
    assert!(guard.release().await.is_err());
    next.check().unwrap();
    next.release().await.unwrap();
    // It is back before the deadline: nothing is lost, unless this machine was asleep.
    let guard = within("back again", a.mutex(&name).lock()).await.unwrap();
    silence.begin().await;
    within("suspect", guard.suspect()).await;
    let until = guard.valid_until();
    silence.end().await;
    tokio::select! {
        () = guard.renewed() => {}
        _ = guard.lost() => {}
    }
    let checked = guard.check();
    assert!(checked.is_ok() || BootClock.now() + ttl / 20 >= until, "lost before its deadline: {checked:?}");
    drop(guard);
    cx.free(&b, &name).await;
}

async fn warned_before_the_loss(cx: Context) {
    let ((client, chaos), name) = (cx.chaos(cx.short()).await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let near = guard.expires_within(cx.short() / 2);
    let calm = async {
        guard.renewed().await;
        guard.renewed().await;
    };
    tokio::select! {
        () = near => assert!(guard.remaining() <= cx.short() / 2, "renewals are answered"),
        () = calm => {}
    }
    chaos.next(Operation::Renew, u32::MAX, Trouble::Fail);
    within("warned", guard.expires_within(cx.short() / 2)).await;
    assert!(guard.remaining() <= cx.short() / 2);
    within("and then told", guard.lost()).await;
    assert!(once(&mut Box::pin(guard.expires_within(MS))).await.is_some(), "whoever asks later is told as well");
    chaos.next(Operation::Renew, 0, Trouble::Fail);
    drop(guard);
    // Not after it was closed.
    let guard = client.mutex(&name).lock().await.unwrap();
    let near = guard.expires_within(cx.short() / 2);
    guard.release().await.unwrap();
    super::madelson::is_silent("a release is no expiry", near).await;
}

async fn acquire_meets_a_passing_error(cx: Context) {
    let ((a, silence), b, name) = (cx.silenceable(60 * SEC).await, cx.client().await, cx.name("m"));
    a.mutex(&name).lock().await.unwrap().release().await.unwrap();
    for _ in 0..3 {
        silence.begin().await;
        let mut wait = a.mutex(&name).lock();
        assert!(once(&mut wait).await.is_none(), "it is on its way");
        tokio::time::sleep(20 * MS).await;
        assert!(once(&mut wait).await.is_none(), "nothing is answered");
        silence.end().await;
        let answer = within("an end", wait).await;
        if silence.is_in_front() {
            // It is the engine that tries again, and this one was not asked: the caller is told that nobody knows.
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Ambiguous);
            cx.free(&b, &name).await;
            continue;
        }
        let guard = answer.expect("tried again");
        let holders = b.inspect(&name).await.unwrap().holders;
        assert_eq!(holders.iter().map(|holder| holder.hold).collect::<Vec<_>>(), [guard.id()], "one hold");
        guard.release().await.unwrap();
        b.mutex(&name).try_lock().await.unwrap().expect("one release frees it").release().await.unwrap();
    }
}
