//! sql.md 12.5: cirello pglock.
use super::{madelson::grant_of, prelude::*};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

cases! {
    "pglock/get-unknown" => get_unknown, needs: [Permits, ReadWrite];
    "pglock/lock-data" => lock_data, needs: [Waiters];
    "pglock/do-lost-lock" => do_lost_lock;
    "pglock/send-heartbeat-racy" => heartbeats_race;
    "pglock/get-all-locks" => get_all_locks;
}
roles! {}

async fn get_unknown(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("unknown"));
    for client in [&a, &b, &a] {
        let status = client.inspect(&name).await.unwrap();
        assert_eq!(status, Status::free(Name::new(&name).unwrap()), "no kind, no size, no token: no record");
        assert!(client.election(&name).leader().await.unwrap().is_none());
        assert!(client.list(cx.prefix(), &Page::default()).await.unwrap().items.is_empty());
    }
    // Any kind of lock may be made of it.
    drop(a.semaphore(&name, 3).try_acquire(1).await.unwrap().expect("it is not taken by having been looked at"));
    cx.free(&b, &name).await;
}

async fn lock_data(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    for (i, note) in ["a long note that the next one is shorter than", "b", "", "d", ""].into_iter().enumerate() {
        let client = [&a, &b][i % 2];
        let guard = client.mutex(&name).note(note).lock().await.unwrap();
        let wait = tokio::spawn(b.mutex(&name).note(format!("after {note}")).lock());
        let status = cx.queued(&a, &name, 1).await;
        assert_eq!((&*status.holders[0].note, &*status.waiters[0].note), (note, &*format!("after {note}")));
        let busy = a.mutex(&name).try_lock().await.unwrap().unwrap_err();
        assert!(busy.holder.is_none_or(|holder| &*holder.note == note));
        guard.release().await.unwrap();
        let next = within("his turn", wait).await.unwrap().unwrap();
        assert_eq!(&*a.inspect(&name).await.unwrap().holders[0].note, format!("after {note}"));
        next.release().await.unwrap();
        assert!(!a.inspect(&name).await.unwrap().is_held());
    }
}

/// Says when it is dropped.
struct Work(Arc<AtomicBool>);
impl Drop for Work {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
async fn do_lost_lock(cx: Context) {
    let (a, b, name) = (cx.client_with(cx.short()).await, cx.client().await, cx.name("m"));
    let stopped = Arc::new(AtomicBool::new(false));
    let work = |stopped: &Arc<AtomicBool>| {
        let work = Work(stopped.clone());
        async move {
            let _work = work;
            std::future::pending::<()>().await
        }
    };
    // It is lost: the work is stopped where it stands.
    let guard = a.mutex(&name).lock().await.unwrap();
    let (answer, broken) =
        tokio::join!(within("told", guard.run(work(&stopped))), b.force_release(&name, guard.token()));
    assert_eq!((answer.unwrap_err().kind(), broken.unwrap()), (ErrorKind::Lost, Released::Released));
    assert!(stopped.swap(false, SeqCst));
    drop(guard);
    // It ends by itself: its answer, and the lock is still held.
    let guard = a.mutex(&name).lock().await.unwrap();
    assert_eq!(guard.run(async { 6 * 7 }).await.unwrap(), 42);
    guard.check().unwrap();
    guard.release().await.unwrap();
    // It is cancelled: stopped, and released.
    let guard = a.mutex(&name).lock().await.unwrap();
    let (begun, work) = (Arc::new(tokio::sync::Notify::new()), work(&stopped));
    let task = tokio::spawn({
        let begun = begun.clone();
        async move {
            guard.run(async { tokio::join!(async { begun.notify_one() }, work) }).await.unwrap();
        }
    });
    begun.notified().await;
    assert!(b.mutex(&name).try_lock().await.unwrap().is_err());
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled() && stopped.load(SeqCst));
    within("free", b.mutex(&name).lock()).await.unwrap().release().await.unwrap();
}

async fn heartbeats_race(cx: Context) {
    let ((client, below), other, name) = (cx.connect(cx.short()).await, cx.client().await, cx.name("m"));
    for _ in 0..tenth(100) {
        let guard = client.mutex(&name).lock().await.unwrap();
        let (grant, done) = (grant_of(&guard), Arc::new(AtomicBool::new(false)));
        let beats: Vec<_> = (0..4)
            .map(|_| {
                let (engine, grant, done) = (below.engine.clone(), grant.clone(), done.clone());
                tokio::spawn(async move {
                    let mut rounds = 0;
                    while !done.load(SeqCst) || rounds < 3 {
                        let before = !done.load(SeqCst);
                        let answer = engine.renew(std::slice::from_ref(&grant)).await.unwrap();
                        // While it is held nobody is told that it is lost.
                        let held = before && !done.load(SeqCst);
                        assert!(!held || !matches!(answer[..], [Renewed::Lost(_)]), "{answer:?}");
                        rounds += 1;
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for _ in 0..5 {
            guard.check().unwrap();
            tokio::time::sleep(MS).await;
        }
        // Set before: what is answered from now on may be late.
        done.store(true, SeqCst);
        guard.release().await.unwrap();
        let next = within("free", other.mutex(&name).lock()).await.unwrap();
        for beat in beats {
            beat.await.unwrap();
        }
        // A renewal of what was released brings nothing back and breaks nothing.
        next.check().unwrap();
        let status = other.inspect(&name).await.unwrap();
        assert_eq!(status.holders.iter().map(|holder| holder.hold).collect::<Vec<_>>(), [next.id()]);
        next.release().await.unwrap();
        assert!(!other.inspect(&name).await.unwrap().is_held());
    }
}

async fn get_all_locks(cx: Context) {
    let (a, b) = (cx.client().await, cx.client().await);
    let can = a.info().capabilities.clone();
    let (mut alone, mut shared) = (Vec::new(), Vec::new());
    let mut names: Vec<String> = (0..40).map(|i| cx.name(&format!("m{i:02}"))).collect();
    for (i, name) in names.iter().enumerate() {
        alone.push([&a, &b][i % 2].mutex(name).lock().await.unwrap());
    }
    if can.read_write {
        names.push(cx.name("rw"));
        shared.push(a.rw_lock(cx.name("rw")).read().await.unwrap());
    }
    if can.permits {
        names.push(cx.name("some"));
        shared.push(b.semaphore(cx.name("some"), 5).acquire(2).await.unwrap());
    }
    let wait = tokio::spawn(a.mutex(&names[7]).lock());
    cx.queued(&b, &names[7], 1).await;
    names.sort();
    for limit in [1000, 7, 1] {
        let (mut seen, mut page) = (Vec::new(), Page { after: None, limit });
        loop {
            let listing = b.list(cx.prefix(), &page).await.unwrap();
            assert!(listing.items.len() <= limit);
            for status in &listing.items {
                assert!(status.is_held(), "{status:?}");
                seen.push(status.name.to_string());
            }
            page.after = listing.next;
            if page.after.is_none() {
                break;
            }
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen, names, "in pages of {limit}");
    }
    assert_eq!(listed(&b, &cx.name("m0")).await.len(), 10);
    wait.abort();
    drop((alone, shared));
    cx.nothing_left().await;
}
