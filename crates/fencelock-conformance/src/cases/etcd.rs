//! consensus.md 6: etcd.
use super::prelude::*;
use fencelock_core::Observer;

cases! {
    "etcd/mutex-waits-on-current-holder" => mutex_waits_on_current_holder, needs: [Crash];
    "etcd/mutex-lock-session-expired" => mutex_lock_session_expired, needs: [Sessions];
    "etcd/session-ctx" => session_ctx, needs: [Sessions, Permits, ReadWrite];
    "etcd/election-wait" => election_wait;
    "etcd/election-failover" => election_failover, needs: [Crash];
    "etcd/election-session-recampaign" => election_session_recampaign;
    "etcd/election-on-session-restart" => election_on_session_restart, needs: [Sessions];
    "etcd/election-observe-fresh" => election_observe_fresh;
    "etcd/election-campaign" => election_campaign;
}
roles! {}

async fn mutex_waits_on_current_holder(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let mut middle = cx.puppet().await;
    middle.ask_lock(&name);
    cx.queued(&client, &name, 1).await;
    let last = tokio::spawn(cx.client().await.mutex(&name).note("last").lock());
    cx.queued(&client, &name, 2).await;
    middle.crash().await;
    drop(middle);
    // He was what the last one waited behind: that he goes grants nothing.
    cx.queued(&client, &name, 1).await;
    let began = Instant::now();
    let end = if full() { 2 * cx.short() } else { 300 * MS };
    while began.elapsed() < end {
        let status = client.inspect(&name).await.unwrap();
        assert_eq!(status.holders.iter().map(|holder| holder.hold).collect::<Vec<_>>(), [guard.id()]);
        assert!(!last.is_finished());
        tokio::time::sleep(10 * MS).await;
    }
    guard.check().unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    let next = within("the last one's turn", last).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// Ours does not fail: it queues again (SAFETY E8), and the lock is never granted to what waited in the session that is over.
async fn mutex_lock_session_expired(cx: Context) {
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client_with(2 * cx.short()).await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    let wait = tokio::spawn(b.mutex(&name).lock());
    let old = cx.queued(&a, &name, 1).await.waiters[0].hold;
    let timed = tokio::spawn(b.mutex(&name).try_lock_for(3 * STUCK));
    cx.fixture().sessions().unwrap().end().await;
    eventually("his turn", || async {
        let status = a.inspect(&name).await.unwrap();
        assert!(status.holders.iter().all(|holder| holder.hold != old), "granted to a session that is over");
        wait.is_finished()
    })
    .await;
    let next = wait.await.unwrap().unwrap();
    assert!(next.id() != old && next.token() > guard.token());
    next.check().unwrap();
    next.release().await.unwrap();
    // He who waited behind him in the same client is served as well.
    within("his turn", timed).await.unwrap().unwrap().expect("in time").release().await.unwrap();
    assert_eq!(within("told", guard.lost()).await, LossReason::SessionEnded);
}

async fn session_ctx(cx: Context) {
    let (a, b) = (cx.client_with(2 * cx.short()).await, cx.client_with(2 * cx.short()).await);
    let names = ["m", "r", "w", "s"].map(|what| cx.name(what));
    let [m, r, w, s] = &names;
    let mutex = a.mutex(m).lock().await.unwrap();
    let reads = a.rw_lock(r).read().await.unwrap();
    let writes = a.rw_lock(w).write().await.unwrap();
    let permits = a.semaphore(s, 2).acquire(2).await.unwrap();
    let mut places = Vec::new();
    for (wait, name) in [(b.rw_lock(r).write(), r), (b.rw_lock(w).write(), w)] {
        let task = tokio::spawn(wait);
        places.push((cx.queued(&a, name, 1).await.waiters[0].hold, task));
    }
    cx.fixture().sessions().unwrap().end().await;
    let lost = [within("m", mutex.lost()).await, within("w", writes.lost()).await];
    let shared = [within("r", reads.lost()).await, within("s", permits.lost()).await];
    assert_eq!((lost, shared), ([LossReason::SessionEnded; 2], [LossReason::SessionEnded; 2]));
    for name in &names {
        let holders = a.inspect(name).await.unwrap().holders;
        let old = [mutex.id(), reads.id(), writes.id(), permits.id()];
        assert!(holders.iter().all(|holder| !old.contains(&holder.hold)), "{name}: {holders:?}");
    }
    for (place, task) in places {
        let next = within("again in the queue", task).await.unwrap().unwrap();
        assert_ne!(next.id(), place, "a place is the session's, too");
        next.release().await.unwrap();
    }
    within("all permits", b.semaphore(s, 2).acquire(2)).await.unwrap().release().await.unwrap();
    // What is left of it in hand is good for nothing.
    let errors = [
        mutex.release().await.unwrap_err(),
        reads.release().await.unwrap_err(),
        writes.release().await.unwrap_err(),
        permits.release().await.unwrap_err(),
    ];
    assert!(errors.iter().all(|error| matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld)), "{errors:?}");
}

/// What he is told next.
async fn told(observer: &mut Observer) -> Option<(String, Token)> {
    let change = within("a change", observer.changed()).await.unwrap();
    change.map(|leader| (leader.candidate.to_string(), leader.term))
}

async fn election_wait(cx: Context) {
    let name = cx.name("e");
    let mut observers = Vec::new();
    for _ in 0..3 {
        let mut observer = cx.client().await.election(&name).observe();
        assert_eq!(told(&mut observer).await, None);
        observers.push(observer);
    }
    for i in 0..if full() { 20 } else { 5 } {
        let who = format!("c{i}");
        let term = cx.client().await.election(&name).campaign(who.as_str()).await.unwrap();
        for observer in &mut observers {
            assert_eq!(told(observer).await, Some((who.clone(), term.token())));
        }
        term.resign().await.unwrap();
        for observer in &mut observers {
            assert_eq!(told(observer).await, None);
        }
    }
}

async fn election_failover(cx: Context) {
    let (client, mut first, name) = (cx.client().await, cx.puppet().await, cx.name("e"));
    let token = first.lock(&name).await;
    let mut observers = Vec::new();
    for _ in 0..2 {
        let mut observer = cx.client().await.election(&name).observe();
        assert_eq!(told(&mut observer).await, Some((String::new(), token)));
        observers.push(observer);
    }
    let next = tokio::spawn(client.election(&name).campaign("next"));
    cx.queued(&client, &name, 1).await;
    first.crash().await;
    let next = within("the next leads", next).await.unwrap().unwrap();
    assert!(next.token() > token);
    for observer in &mut observers {
        // That nobody led in between may be told, or not.
        let change = told(observer).await;
        let change = if change.is_none() { told(observer).await } else { change };
        assert_eq!(change, Some(("next".into(), next.token())));
    }
    next.resign().await.unwrap();
    for observer in &mut observers {
        assert_eq!(told(observer).await, None);
    }
}

async fn election_session_recampaign(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("e"));
    let me = client.owner();
    let mine = client.election(&name).reentrant(&me);
    let mut observer = other.election(&name).observe();
    let term = mine.campaign("first").await.unwrap();
    assert_eq!(told(&mut observer).await, Some(("first".into(), term.token())));
    let candidate = tokio::spawn(other.election(&name).campaign("other"));
    cx.queued(&other, &name, 1).await;
    // Ahead of the other one: it leads already.
    let again = within("at once", mine.campaign("first")).await.unwrap();
    assert_eq!((again.token(), again.id(), again.entries()), (term.token(), term.id(), 2));
    term.resign().await.unwrap();
    assert!(!candidate.is_finished() && again.is_valid());
    let (token, status) = (again.token(), other.inspect(&name).await.unwrap());
    assert_eq!(status.exclusive().map(|holder| (holder.hold, holder.token)), Some((again.id(), token)));
    again.resign().await.unwrap();
    let next = within("he leads", candidate).await.unwrap().unwrap();
    let change = told(&mut observer).await;
    let change = if change.is_none() { told(&mut observer).await } else { change };
    assert_eq!(change, Some(("other".into(), next.token())), "the term was told once");
    next.resign().await.unwrap();
}

async fn election_on_session_restart(cx: Context) {
    let (client, other, name) = (cx.client_with(cx.short() * 3 / 2).await, cx.client_with(cx.short() * 3 / 2).await, cx.name("e"));
    let mut last = None;
    for _ in 0..if full() { 10 } else { 2 } {
        let term = within("elected", client.election(&name).campaign("a")).await.unwrap();
        assert!(last < Some(term.token()));
        last = Some(term.token());
        cx.fixture().sessions().unwrap().end().await;
        assert_eq!(within("told", term.lost()).await, LossReason::SessionEnded);
        let again = within("elected again", client.election(&name).campaign("a")).await.unwrap();
        assert!(last < Some(again.token()));
        last = Some(again.token());
        let status = other.inspect(&name).await.unwrap();
        assert_eq!(status.exclusive().map(|holder| holder.hold), Some(again.id()));
        // The end of the old term does not end the new one.
        assert!(term.resign().await.is_err());
        again.check().unwrap();
        again.resign().await.unwrap();
    }
}

async fn election_observe_fresh(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("e"));
    let mut asleep = other.election(&name).observe();
    assert_eq!(told(&mut asleep).await, None);
    for round in 0..5 {
        for i in 0..3 {
            let term = client.election(&name).campaign(format!("old-{round}-{i}")).await.unwrap();
            term.resign().await.unwrap();
        }
        let term = client.election(&name).campaign(format!("new-{round}")).await.unwrap();
        let newest = Some((format!("new-{round}"), term.token()));
        // One who has just come, and one who has slept through the others.
        assert_eq!(told(&mut cx.client().await.election(&name).observe()).await, newest);
        assert_eq!(told(&mut asleep).await, newest);
        term.resign().await.unwrap();
        assert_eq!(told(&mut asleep).await, None);
        assert_eq!(told(&mut other.election(&name).observe()).await, None);
    }
}

async fn election_campaign(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("e"));
    let mut observer = cx.client().await.election(&name).observe();
    assert_eq!(told(&mut observer).await, None);
    let first = a.election(&name).campaign("a").await.unwrap();
    assert_eq!(told(&mut observer).await, Some(("a".into(), first.token())));
    let second = tokio::spawn(b.election(&name).campaign("b"));
    cx.queued(&a, &name, 1).await;
    for _ in 0..10 {
        let leader = b.election(&name).leader().await.unwrap().expect("a leads");
        assert!(!second.is_finished() && leader.term == first.token());
    }
    let token = first.token();
    first.resign().await.unwrap();
    let second = within("the first has resigned", second).await.unwrap().unwrap();
    assert!(second.token() > token);
    let change = told(&mut observer).await;
    let change = if change.is_none() { told(&mut observer).await } else { change };
    assert_eq!(change, Some(("b".into(), second.token())));
    second.resign().await.unwrap();
    assert_eq!(told(&mut observer).await, None);
}
