//! consensus.md 6: Consul.
use super::prelude::*;

cases! {
    "consul/force-invalidate" => force_invalidate, needs: [Sessions];
    "consul/conflict" => conflict, needs: [Permits];
    "consul/reclaim-lock" => reclaim_lock;
}
roles! {}

async fn force_invalidate(cx: Context) {
    let (client, name) = (cx.client_with(cx.short()).await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    guard.check().unwrap();
    let lost = guard.lost();
    let began = Instant::now();
    cx.fixture().sessions().unwrap().end().await;
    assert_eq!(within("told", lost).await, LossReason::SessionEnded);
    let took = began.elapsed();
    println!("told {took:?} after the session's end");
    assert!(took < SEC || !full(), "told after {took:?}");
    assert!(guard.check().is_err());
    assert_eq!(guard.run(async {}).await.unwrap_err().kind(), ErrorKind::Lost);
    let next = within("and goes on in a new session", client.mutex(&name).lock()).await.unwrap();
    assert!(next.token() > guard.token() && guard.release().await.is_err());
    next.check().unwrap();
    next.release().await.unwrap();
}

async fn conflict(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("x"));
    let mismatch = |error: Error| assert_eq!(error.kind(), ErrorKind::KindMismatch, "{error}");
    let lock = a.mutex(&name).lock().await.unwrap();
    for client in [&a, &b] {
        mismatch(within("told", client.semaphore(&name, 1).acquire(1)).await.unwrap_err());
        mismatch(client.semaphore(&name, 1).try_acquire(1).await.unwrap_err());
        mismatch(within("told", client.semaphore(&name, 1).try_acquire_for(1, STUCK)).await.unwrap_err());
    }
    lock.check().unwrap();
    lock.release().await.unwrap();
    let permit = b.semaphore(&name, 2).acquire(1).await.unwrap();
    for client in [&a, &b] {
        mismatch(within("told", client.mutex(&name).lock()).await.unwrap_err());
        mismatch(client.mutex(&name).try_lock().await.unwrap_err());
        mismatch(within("told", client.mutex(&name).try_lock_for(STUCK)).await.unwrap_err());
    }
    let status = a.inspect(&name).await.unwrap();
    assert_eq!((status.kind, status.holders.len(), status.waiters.len()), (Some(Kind::Semaphore), 1, 0));
    permit.check().unwrap();
    permit.release().await.unwrap();
    // A name that nobody uses has no kind.
    a.mutex(&name).lock().await.unwrap().release().await.unwrap();
}

async fn reclaim_lock(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    // The same attempt, twice in one session.
    chaos.next(Operation::Acquire, 1, Trouble::Twice);
    let me = client.owner();
    let mine = client.mutex(&name).reentrant(&me);
    let guard = within("its own", mine.lock()).await.unwrap();
    let holders = other.inspect(&name).await.unwrap().holders;
    let held: Vec<_> = holders.iter().map(|holder| (holder.hold, holder.token)).collect();
    assert_eq!(held, [(guard.id(), guard.token())]);
    // Its owner comes again.
    let again = within("its own", mine.lock()).await.unwrap();
    assert_eq!((again.id(), again.token(), me.entries(&name)), (guard.id(), guard.token(), 2));
    assert!(other.mutex(&name).try_lock().await.unwrap().is_err());
    guard.release().await.unwrap();
    again.check().unwrap();
    assert!(other.mutex(&name).try_lock().await.unwrap().is_err());
    again.release().await.unwrap();
    other.mutex(&name).try_lock().await.unwrap().expect("free").release().await.unwrap();
}
