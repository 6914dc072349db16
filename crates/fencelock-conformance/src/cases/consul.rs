//! consensus.md 6: Consul.
use super::prelude::*;

cases! {
    "consul/force-invalidate" => force_invalidate, needs: [Alone, Sessions];
    "consul/destroy" => destroy, needs: [Deletions, Records];
    "consul/conflict" => conflict, needs: [Permits];
    "consul/reclaim-lock" => reclaim_lock;
}
roles! {}

async fn force_invalidate(cx: Context) {
    let ttl = super::short_lists::told_with_a_renewal(&cx);
    let (client, name) = (cx.client_with(ttl).await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    guard.check().unwrap();
    let lost = guard.lost();
    let began = Instant::now();
    cx.fixture().sessions().unwrap().end().await;
    assert_eq!(within("told", lost).await, LossReason::SessionEnded);
    // With the next heartbeat, which is due within a third of the ttl.
    cx.in_time("told", began.elapsed(), SEC);
    assert!(guard.check().is_err());
    assert_eq!(guard.run(async {}).await.unwrap_err().kind(), ErrorKind::Lost);
    let next = within("and goes on in a new session", client.mutex(&name).lock()).await.unwrap();
    assert!(next.token() > guard.token() && guard.release().await.is_err());
    next.check().unwrap();
    next.release().await.unwrap();
}

/// These have been idle for long, and are cleaned up now. The client whose coming does that.
pub(super) async fn cleaned_up(cx: &Context, idle: &[&str]) -> Client {
    let records = cx.fixture().records().unwrap();
    let kept = records.names().await;
    assert!(idle.iter().all(|name| kept.iter().any(|kept| kept == name)), "{idle:?} of {kept:?}");
    let gone = async || {
        let kept = records.names().await;
        idle.iter().all(|name| kept.iter().all(|kept| kept != name))
    };
    let began = Instant::now();
    while began.elapsed() < STUCK {
        records.age().await;
        let client = cx.client().await;
        // Before he wants anything nobody knows of him.
        client.mutex(cx.name("comes")).lock().await.unwrap().release().await.unwrap();
        let came = Instant::now();
        // One who was cleaning up just then has looked before they were old; the next one who comes finds them.
        while came.elapsed() < SEC {
            if gone().await {
                return client;
            }
            tokio::time::sleep(5 * MS).await;
        }
    }
    panic!("{idle:?} are not cleaned up");
}
/// All are as old as those that go: what keeps a record is that somebody holds it, or waits for it.
async fn destroy(cx: Context) {
    let (client, other) = (cx.client().await, cx.client().await);
    let names = ["held", "waited", "read", "idle", "idle-too"].map(|what| cx.name(what));
    let [held, waited, read, idle, idle_too] = names.each_ref().map(String::as_str);
    let can = client.info().capabilities.clone();
    for name in [idle, idle_too] {
        client.mutex(name).lock().await.unwrap().release().await.unwrap();
    }
    let holder = client.mutex(held).lock().await.unwrap();
    let reader = if can.read_write { Some(client.rw_lock(read).read().await.unwrap()) } else { None };
    let first = client.mutex(waited).lock().await.unwrap();
    let wait = tokio::spawn(other.mutex(waited).lock());
    let place = cx.queued(&client, waited, 1).await.waiters[0].hold;
    let third = cleaned_up(&cx, &[idle, idle_too]).await;
    let kept = cx.fixture().records().unwrap().names().await;
    assert!(kept.iter().any(|name| name == held) && kept.iter().any(|name| name == waited), "{kept:?}");
    assert_eq!(third.inspect(held).await.unwrap().exclusive().map(|holder| holder.hold), Some(holder.id()));
    assert_eq!(cx.queued(&third, waited, 1).await.waiters[0].hold, place);
    assert!(third.mutex(held).try_lock().await.unwrap().is_err());
    if let Some(reader) = reader {
        assert!(third.rw_lock(read).try_write().await.unwrap().is_err());
        reader.release().await.unwrap();
    }
    holder.release().await.unwrap();
    // Nobody holds it while it is cleaned up once more: only a place in the queue keeps it.
    cx.fixture().deletions().unwrap().delete(waited).await;
    cleaned_up(&cx, &[held]).await;
    let kept = cx.fixture().records().unwrap().names().await;
    assert!(kept.iter().any(|name| name == waited), "somebody waits: {kept:?}");
    assert_eq!(within("his turn", wait).await.unwrap().unwrap().release().await.map_err(|e| e.kind()), Ok(()));
    drop(first);
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
