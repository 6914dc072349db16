//! Planted to see them go red: a lease that never ends (the next one never gets in); a head waiter that is never passed.
use crate::{
    bar,
    common::{Folder, eventually},
    percentile, tenth,
    worker::{Worker, first_in, now, queued},
};
use std::time::Duration;

pub(crate) fn holder() {
    let folder = Folder::new();
    let ttl = Duration::from_millis(600);
    let mut told = Vec::new();
    for _ in 0..tenth(50) {
        let mut holder = Worker::hold(&folder.database(), "x", ttl);
        let (_, old) = holder.hear("held");
        stop(&folder, &holder);
        let beat = folder.count(&format!("SELECT beat FROM fencelock_session WHERE pid = {}", holder.id()));
        let mut next = Worker::hold(&folder.database(), "x", Duration::from_secs(30));
        let (held, new) = next.hear("held");
        assert!(new.parse::<i64>().unwrap() > old.parse().unwrap(), "the fence refuses the old holder");
        assert!(i64::try_from(held).unwrap() >= beat + 600_000_000, "not before its lease has run out");
        let woken = holder.wake();
        let (lost, _) = holder.hear("lost");
        told.push(Duration::from_nanos(lost.saturating_sub(woken)));
        holder.tell("check");
        holder.hear("checked false");
        // The late holder's heartbeat has revived nothing, and its release frees nobody else's.
        holder.tell("release");
        holder.hear("released false");
        next.tell("check");
        next.hear("checked true");
        next.tell("release");
        next.hear("released true");
    }
    let p99 = percentile(&mut told, 0.99);
    bar("lost() after SIGCONT, p99", format!("{p99:?}"), "<= 100 ms", p99 <= Duration::from_millis(100));
}
pub(crate) fn head_waiter() {
    let folder = Folder::new();
    let ttl = Duration::from_secs(30);
    let (mut passed, mut later) = (Vec::new(), Vec::new());
    for _ in 0..tenth(30) {
        let mut holder = Worker::hold(&folder.database(), "x", ttl);
        holder.hear("held");
        let mut head = Worker::hold(&folder.database(), "x", ttl);
        queued(&folder, 1);
        let mut second = Worker::hold(&folder.database(), "x", ttl);
        queued(&folder, 2);
        let mut third = Worker::hold(&folder.database(), "x", ttl);
        queued(&folder, 3);
        stop(&folder, &head);
        holder.tell("release");
        let (released, _) = holder.hear("released true");
        // The second one, unless this machine lets it sleep through its turn.
        let (held, [next, last]) = first_in(&mut second, &mut third);
        passed.push(Duration::from_nanos(held.saturating_sub(released)));
        next.tell("release");
        let (released, _) = next.hear("released true");
        let (held, _) = last.hear("held");
        later.push(Duration::from_nanos(held.saturating_sub(released)));
        // It woke at the tail of the queue.
        head.wake();
        last.tell("release");
        last.hear("released true");
        head.hear("held");
    }
    let slowest = percentile(&mut passed, 1.0);
    assert!(slowest < Duration::from_secs(10), "stuck: {slowest:?}");
    bar(
        "past a stopped head waiter, slowest",
        format!("{slowest:?}"),
        "<= 1.5 s",
        slowest <= Duration::from_millis(1_500),
    );
    let p99 = percentile(&mut later, 0.99);
    bar("the hand-over after that, p99", format!("{p99:?}"), "<= 150 ms", p99 <= Duration::from_millis(150));
}
/// Stops it outside of a write transaction: one inside is a trial of its own.
pub(crate) fn stop(folder: &Folder, worker: &Worker) {
    let conn = rusqlite::Connection::open(folder.database()).unwrap();
    conn.busy_timeout(Duration::from_millis(20)).unwrap();
    loop {
        // Until it is, a thread of it may still take the lock, and stop with it.
        worker.stop();
        if conn.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {
            return;
        }
        worker.wake();
        // It ends its transaction.
        while conn.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err() {}
    }
}
pub(crate) fn inside_transaction() {
    let folder = Folder::new();
    let ttl = Duration::from_secs(3);
    let mut holder = Worker::hold(&folder.database(), "x", ttl);
    holder.hear("held");
    let mut waiter = Worker::hold(&folder.database(), "x", ttl);
    queued(&folder, 1);
    let mut stuck = Worker::start(&["stuck", folder.database().to_str().unwrap()]);
    stuck.hear("inside");
    // No heartbeat gets in: the hold runs out and is told, and nobody else gets in either.
    let (lost, _) = holder.hear("lost");
    let killed = stuck.kill();
    assert!(lost < killed);
    let (held, _) = waiter.hear("held");
    assert!(held > killed, "it goes on when that process is dead, and not before");
    eventually("free again", Duration::from_secs(10), || {
        waiter.tell("check");
        waiter.hear("checked").1 == "true" || now() == 0
    });
}
