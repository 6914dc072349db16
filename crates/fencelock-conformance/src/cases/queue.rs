//! redis.md 6.2: first come, first served, whoever leaves, gives up or dies meanwhile.
use super::prelude::*;
use tokio::task::JoinHandle;

cases! {
    "redisson/lease-timeout" => lease_timeout, needs: [FixedLeases];
    "redisson/multiple-locks" => multiple_locks, limit: 180;
    "redisson/multi-instance-ordering" => multi_instance_ordering;
    "redisson/wait-timeout-drift" => wait_timeout_drift;
    "redisson/lock-acquired-timeout-drift" => lock_acquired_timeout_drift;
    "redisson/first-thread-death-timeout-drift" => first_waiter_dies, needs: [Crash];
    "redisson/acquire-failed-drift-discrete" => acquire_failed_discrete;
    "redisson/lock-acquired-drift-discrete" => lock_acquired_discrete, needs: [Crash];
    "redisson/abandoned-drift-discrete" => abandoned_discrete, needs: [Crash];
    "redisson/try-lock-non-delayed" => try_lock_non_delayed;
}
roles! {}

/// Somebody in the queue, with a client of his own.
struct Waiter {
    note: String,
    hold: HoldId,
    task: JoinHandle<Guard>,
}
/// Queues behind all who are there: when this returns the engine tells of him.
async fn queue_up(cx: &Context, client: &Client, name: &str, note: &str) -> Waiter {
    let before = client.inspect(name).await.unwrap().waiters.len();
    let wait = client.mutex(name).note(note).lock();
    let task = tokio::spawn(async move { wait.await.unwrap() });
    let status = cx.queued(client, name, before + 1).await;
    assert_eq!(&*status.waiters[before].note, note, "he is the last");
    Waiter { note: note.to_owned(), hold: status.waiters[before].hold, task }
}
async fn queue_of(cx: &Context, name: &str, n: usize) -> Vec<Waiter> {
    let mut waiters = Vec::new();
    for i in 0..n {
        waiters.push(queue_up(cx, &cx.client().await, name, &format!("w{i}")).await);
    }
    waiters
}
async fn notes(client: &Client, name: &str) -> Vec<String> {
    client.inspect(name).await.unwrap().waiters.iter().map(|waiter| waiter.note.to_string()).collect()
}
async fn holds(client: &Client, name: &str) -> Vec<HoldId> {
    client.inspect(name).await.unwrap().waiters.iter().map(|waiter| waiter.hold).collect()
}
/// They get in in this order, one at a time, and release. It is free since `freed`.
async fn all_get_in(cx: &Context, client: &Client, name: &str, waiters: Vec<Waiter>, mut freed: Moment) {
    let mut last = None;
    let (mut left, queue): (Vec<_>, Vec<_>) =
        waiters.iter().map(|waiter| (waiter.note.clone(), waiter.hold)).unzip();
    for (i, waiter) in waiters.into_iter().enumerate() {
        cx.turn_of(client, name, &queue[i..], freed).await;
        let guard = within("his turn", waiter.task).await.unwrap();
        assert!(last < Some(guard.token()), "tokens rise in the order of the queue");
        last = Some(guard.token());
        left.remove(0);
        // Somebody who is dead may be seen for as long as nobody can know.
        let mut behind = notes(client, name).await;
        behind.retain(|note| left.contains(note));
        assert_eq!(behind, left, "those behind keep their order");
        freed = BootClock.now();
        guard.release().await.unwrap();
    }
}
/// It is released, and they get in.
async fn release_to(cx: &Context, client: &Client, guard: Guard, waiters: Vec<Waiter>) {
    let (name, freed) = (guard.name().clone(), BootClock.now());
    guard.release().await.unwrap();
    all_get_in(cx, client, name.as_str(), waiters, freed).await;
}

async fn lease_timeout(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let (n, lease) = (if full() { 8 } else { 3 }, SEC);
    let first = client.mutex(&name).lock().await.unwrap();
    let mut waits = Vec::new();
    for i in 0..n {
        let wait = cx.client().await.mutex(&name).note(format!("w{i}")).lease(lease).lock();
        let task = tokio::spawn(async move { (wait.await.unwrap(), BootClock.now()) });
        waits.push(task);
        cx.queued(&client, &name, i + 1).await;
    }
    let queue = holds(&client, &name).await;
    // Whoever has just come may not listen yet, and is passed (SAFETY H1).
    tokio::time::sleep(SEC / 2).await;
    let (mut before, mut freed) = (first.token(), BootClock.now());
    first.release().await.unwrap();
    let mut held: Vec<Guard> = Vec::new();
    for (i, task) in waits.into_iter().enumerate() {
        if let Some(last) = held.last() {
            within("the lease before ends", last.lost()).await;
        }
        cx.turn_of(&client, &name, &queue[i..], freed).await;
        let (guard, at) = within("the lease before has ended", task).await.unwrap();
        assert!(guard.token() > before, "in the order of the queue");
        before = guard.token();
        if let Some(last) = held.last() {
            assert!(at >= last.valid_until(), "granted within the claimed validity of the one before");
        }
        freed = at + lease;
        held.push(guard);
    }
}

async fn multiple_locks(cx: Context) {
    let (judge, name) = (cx.judge("m"), cx.name("m"));
    let (waiters, hold) = (tenth(500), if full() { 200 * MS } else { 5 * MS });
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(cx.client().await);
    }
    let tasks: Vec<_> = (0..waiters)
        .map(|i| {
            let (wait, judge) = (clients[i % 10].mutex(&name).lock(), judge.clone());
            tokio::spawn(async move {
                let guard = wait.await.unwrap();
                judge.work(&format!("w{i}"), &guard).await;
                tokio::time::sleep(hold).await;
                guard.release().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    judge.verdict(u64::try_from(waiters).unwrap());
}

async fn multi_instance_ordering(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let (mut puppets, mut waits) = (Vec::new(), Vec::new());
    for i in 0..5 {
        let mut puppet = cx.puppet_with(60 * SEC).await;
        let asked = BootClock.now().as_nanos();
        puppet.ask_lock(&name);
        cx.queued(&client, &name, i + 1).await;
        waits.push(judge::Wait { who: format!("w{i}"), asked, queued: BootClock.now().as_nanos(), granted: 0 });
        puppets.push(puppet);
    }
    let queue = holds(&client, &name).await;
    let (mut before, mut freed) = (guard.token(), BootClock.now());
    guard.release().await.unwrap();
    for (i, (puppet, wait)) in puppets.iter_mut().zip(&mut waits).enumerate() {
        cx.turn_of(&client, &name, &queue[i..], freed).await;
        let token = puppet.granted().await;
        wait.granted = BootClock.now().as_nanos();
        assert!(token > before, "{}", wait.who);
        (before, freed) = (token, BootClock.now());
        assert!(puppet.release(&name).await);
    }
    judge::fifo(&waits).unwrap();
}

async fn wait_timeout_drift(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let (b, c) = (cx.client().await, cx.client().await);
    let guard = client.mutex(&name).lock().await.unwrap();
    let mut waiters = queue_of(&cx, &name, 3).await;
    for round in 0..tenth(100) {
        let short = 3 * MS * u32::try_from(round % 4).unwrap();
        let both = async { tokio::join!(b.mutex(&name).try_lock_for(short), c.mutex(&name).try_lock_for(2 * short)) };
        let (one, other) = within("they give up", both).await;
        assert!(one.unwrap().is_err() && other.unwrap().is_err());
    }
    cx.queued(&client, &name, 3).await;
    assert_eq!(notes(&client, &name).await, ["w0", "w1", "w2"]);
    // One who comes after all of that is behind those three and behind nobody else.
    waiters.push(queue_up(&cx, &b, &name, "late").await);
    release_to(&cx, &client, guard, waiters).await;
}

async fn lock_acquired_timeout_drift(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(cx.client().await);
    }
    let mut holding = client.mutex(&name).lock().await.unwrap();
    let mut queue = std::collections::VecDeque::new();
    for (i, client) in clients.iter().enumerate() {
        queue.push_back((i, queue_up(&cx, client, &name, &format!("w{i}")).await));
    }
    // Whoever is in asks again before he leaves: the order goes round and round.
    let rounds = tenth(60);
    for _ in 0..rounds {
        let order = holds(&client, &name).await;
        let (freed, (i, waiter)) = (BootClock.now(), queue.pop_front().unwrap());
        holding.release().await.unwrap();
        cx.turn_of(&client, &name, &order, freed).await;
        holding = within("his turn", waiter.task).await.unwrap();
        queue.push_back((i, queue_up(&cx, &clients[i], &name, &format!("w{i}")).await));
    }
    release_to(&cx, &client, holding, queue.into_iter().map(|(_, waiter)| waiter).collect()).await;
}

async fn first_waiter_dies(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let mut gone = cx.puppet().await;
    gone.ask_lock(&name);
    cx.queued(&client, &name, 1).await;
    let waiters = queue_of(&cx, &name, 3).await;
    gone.crash().await;
    release_to(&cx, &client, guard, waiters).await;
}

async fn acquire_failed_discrete(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let mut waiters = queue_of(&cx, &name, 4).await;
    assert_eq!(notes(&client, &name).await, ["w0", "w1", "w2", "w3"]);
    waiters.remove(1).task.abort();
    cx.queued(&client, &name, 3).await;
    assert_eq!(notes(&client, &name).await, ["w0", "w2", "w3"]);
    release_to(&cx, &client, guard, waiters).await;
}

async fn lock_acquired_discrete(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let mut waiters = queue_of(&cx, &name, 1).await;
    let mut gone = cx.puppet().await;
    gone.ask_lock(&name);
    cx.queued(&client, &name, 2).await;
    for note in ["w2", "w3"] {
        waiters.push(queue_up(&cx, &cx.client().await, &name, note).await);
    }
    let (queue, freed, first) = (holds(&client, &name).await, BootClock.now(), waiters.remove(0));
    guard.release().await.unwrap();
    cx.turn_of(&client, &name, &queue, freed).await;
    let first = within("his turn", first.task).await.unwrap();
    assert_eq!(client.inspect(&name).await.unwrap().waiters.len(), 3, "those behind move up by one");
    gone.crash().await;
    release_to(&cx, &client, first, waiters).await;
}

async fn abandoned_discrete(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let mut gone = [cx.puppet().await, cx.puppet().await];
    for (i, puppet) in gone.iter_mut().enumerate() {
        puppet.ask_lock(&name);
        cx.queued(&client, &name, i + 1).await;
    }
    let third = queue_up(&cx, &cx.client().await, &name, "third").await;
    for puppet in &mut gone {
        puppet.crash().await;
    }
    release_to(&cx, &client, guard, vec![third]).await;
}

async fn try_lock_non_delayed(cx: Context) {
    let (a, b, c, name) = (cx.client().await, cx.client().await, cx.client().await, cx.name("m"));
    for client in [&b, &c] {
        let guard = a.mutex(&name).lock().await.unwrap();
        assert!(within("it gives up", b.mutex(&name).try_lock_for(50 * MS)).await.unwrap().is_err());
        guard.release().await.unwrap();
        let next = client.mutex(&name).try_lock_for(STUCK).await.unwrap();
        next.expect("who gave up is in nobody's way").release().await.unwrap();
    }
}
