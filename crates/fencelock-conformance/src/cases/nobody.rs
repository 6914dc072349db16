//! redis.md 6.9: what nobody tests.
use super::prelude::*;

cases! {
    "nobody/acquire-reply-lost" => acquire_reply_lost;
    "nobody/release-reply-lost" => release_reply_lost;
    "nobody/renew-reply-lost" => renew_reply_lost;
    "nobody/withdraw-reply-lost" => withdraw_reply_lost;
}
roles! {}

/// The call is made twice under one hold id, as after a lost reply: one hold, one token, one release.
async fn acquire_reply_lost(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(cx.short()).await, cx.client().await, cx.name("m"));
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
        let next = other.mutex(&name).try_lock().await.unwrap().expect("one release frees it");
        next.release().await.unwrap();

        // Nobody asks again: what was granted to nobody is taken back.
        chaos.next(Operation::Acquire, 1, Trouble::LoseReply);
        if let Ok(guard) = within("an answer", client.mutex(&name).lock()).await {
            guard.release().await.unwrap();
        }
        within("free", other.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    }
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
    let ((client, chaos), other, name) = (cx.chaos(cx.short()).await, cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let token = guard.token();
    chaos.next(Operation::Renew, 2, Trouble::LoseReply);
    let (end, began) = (2 * cx.short(), Instant::now());
    eventually("two leases have passed", || async { began.elapsed() > end || !guard.is_valid() }).await;
    guard.check().expect("two lost replies do not cost the hold");
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
