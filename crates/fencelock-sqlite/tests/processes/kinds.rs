//! Death and sleep of readers, writers and holders of permits; who watches; who adds.
//! Planted to see them go red: HOLDERS_BURY without `least` (free again after 19 ms); sleepers never passed (stuck for a minute); a
//! version not compared, or the nonce not asked (the sum is not exact); a watch that never ends; and, at the bars alone: one holder watched and not 32, a grant
//! that tells no watchers (1.0 s each).
use crate::{
    bar,
    common::{FAREWELL, Folder, eventually, full, runtime},
    pause::stop,
    percentile, tenth,
    worker::{Worker, now, queued},
};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(30);
const MS: Duration = Duration::from_millis(1);

fn start(folder: &Folder, claim: &str) -> Worker {
    Worker::claim(&folder.database(), "x", claim, TTL, Duration::ZERO)
}
fn holding(folder: &Folder, claim: &str) -> Worker {
    let mut worker = start(folder, claim);
    worker.hear("held");
    worker
}

/// Of several who hold one is killed: those who wait for its part get it at once, the others' part stays theirs.
pub(crate) fn a_killed_one_of_many() {
    let folder = Folder::new();
    let mut times = Vec::new();
    for _ in 0..tenth(100) {
        let (mut one, other) = (holding(&folder, "read"), holding(&folder, "read"));
        let mut writer = start(&folder, "write");
        queued(&folder, 1);
        other.kill();
        one.tell("check");
        one.hear("checked true");
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_waiter"), 1, "the other reader is still there");
        let killed = one.kill();
        let (held, _) = writer.hear("held");
        times.push(Duration::from_nanos(held - killed));
        writer.tell("release");
        writer.hear("released true");

        let holders = [holding(&folder, "1/3"), holding(&folder, "1/3"), holding(&folder, "1/3")];
        let mut next = start(&folder, "1/3");
        queued(&folder, 1);
        let killed = holders[1].kill();
        let (held, _) = next.hear("held");
        times.push(Duration::from_nanos(held - killed));
    }
    let worst = percentile(&mut times, 1.0);
    assert!(worst < Duration::from_secs(10), "stuck: {worst:?}");
    let p75 = percentile(&mut times, 0.75);
    assert!(!full() || p75 < 500 * MS, "by the look once a second, not by word: {p75:?}");
    let p99 = percentile(&mut times, 0.99);
    bar(
        "kill -9 of the last reader, or of one of three permits: the next is in, p99",
        format!("{p99:?} of {}", times.len()),
        "<= 150 ms",
        p99 <= 150 * MS,
    );
}

pub(crate) fn at_least() {
    let folder = Folder::new();
    let least = 700 * MS;
    let mut late = Vec::new();
    for round in 0..tenth(50) {
        let claim = ["mutex", "write", "read", "1/1"][round % 4];
        let next = if claim == "read" { "write" } else { claim };
        let name = format!("x{round}");
        let mut holder = Worker::claim(&folder.database(), &name, claim, TTL, least);
        holder.hear("held");
        let since = folder.count("SELECT since FROM fencelock_holder");
        holder.kill();
        drop(holder);
        let mut next = Worker::claim(&folder.database(), &name, next, TTL, Duration::ZERO);
        let (held, _) = next.hear("held");
        let after = Duration::from_nanos(held - u64::try_from(since).unwrap());
        assert!(after >= least, "free again after {after:?}");
        late.push(after - least);
        next.tell("release");
        let (released, _) = next.hear("released true");
        assert!(next.wait());
        if Duration::from_nanos(now() - released) >= FAREWELL {
            // It may have ended before its session did: whoever comes next buries it.
            let client = folder.client();
            runtime().block_on(async {
                client.mutex("y").lock().await.unwrap().release().await.unwrap();
                client.shutdown(10_000 * MS).await.unwrap();
            });
        }
        eventually("nothing is left", 10_000 * MS, || {
            folder.count("SELECT count(*) FROM fencelock_session") == 0 && folder.files().is_empty()
        });
    }
    let worst = percentile(&mut late, 1.0);
    assert!(worst < Duration::from_secs(10), "stuck: {worst:?}");
    bar(
        "at_least of a killed holder: the next is in after its end, slowest",
        format!("{worst:?}"),
        "<= 150 ms",
        worst <= 150 * MS,
    );
}

/// A head waiter that sleeps, of each claim, and one behind it that fits in when it does.
pub(crate) fn a_stopped_head_waiter() {
    let folder = Folder::new();
    let mut passed = Vec::new();
    for _ in 0..tenth(20).max(2) {
        for (holds, head, second) in
            [("write", "write", "write"), ("read", "write", "read"), ("write", "read", "write"), ("3/3", "3/3", "2/3")]
        {
            let mut holder = holding(&folder, holds);
            let sleeper = start(&folder, head);
            queued(&folder, 1);
            let mut next = start(&folder, second);
            queued(&folder, 2);
            stop(&folder, &sleeper);
            holder.tell("release");
            let (released, _) = holder.hear("released true");
            let (held, _) = next.hear("held");
            passed.push(Duration::from_nanos(held.saturating_sub(released)));
        }
        // Readers pass a reader that sleeps at once: it loses nothing by it.
        let mut holder = holding(&folder, "write");
        let sleeper = start(&folder, "read");
        queued(&folder, 1);
        let mut next = start(&folder, "read");
        queued(&folder, 2);
        stop(&folder, &sleeper);
        holder.tell("release");
        let (released, _) = holder.hear("released true");
        let (held, _) = next.hear("held");
        let took = Duration::from_nanos(held.saturating_sub(released));
        assert!(took < if full() { 200 * MS } else { 10_000 * MS }, "after {took:?}");
    }
    let slowest = percentile(&mut passed, 1.0);
    assert!(slowest < Duration::from_secs(10), "stuck: {slowest:?}");
    bar("past a stopped head waiter of each claim, slowest", format!("{slowest:?}"), "<= 1.5 s", slowest <= 1_500 * MS);
}

pub(crate) fn twenty_readers_behind_a_writer() {
    let folder = Folder::new();
    let mut holder = holding(&folder, "write");
    let mut readers: Vec<_> = (0..20)
        .map(|i| {
            let reader = start(&folder, "read");
            queued(&folder, i + 1);
            reader
        })
        .collect();
    holder.tell("release");
    let (released, _) = holder.hear("released true");
    let last = readers.iter_mut().map(|reader| reader.hear("held").0).max().unwrap();
    let took = Duration::from_nanos(last.saturating_sub(released));
    assert!(took < if full() { 900 * MS } else { 10_000 * MS }, "by the look once a second, not by word: {took:?}");
    bar("20 readers behind a writer: the last is in", format!("{took:?}"), "<= 150 ms", took <= 150 * MS);
}

pub(crate) fn observer() {
    let folder = Folder::new();
    let client = folder.client();
    let mut times = Vec::new();
    runtime().block_on(async {
        let mut observer = client.election("x").observe();
        assert!(observer.changed().await.unwrap().is_none());
        let mut last = None;
        for round in 0..tenth(100) {
            let mut holder = start(&folder, "mutex");
            let leader = observer.changed().await.unwrap().unwrap();
            let heard = crate::worker::now();
            let (held, token) = holder.hear("held");
            assert_eq!(leader.term.get().to_string(), token);
            assert!(last < Some(leader.term), "terms rise");
            last = Some(leader.term);
            times.push(Duration::from_nanos(heard.saturating_sub(held)));
            let gone = if round % 2 == 0 {
                holder.kill()
            } else {
                holder.tell("release");
                holder.hear("released true").0
            };
            assert!(observer.changed().await.unwrap().is_none());
            times.push(Duration::from_nanos(crate::worker::now().saturating_sub(gone)));
        }
        drop(observer);
    });
    let worst = percentile(&mut times, 1.0);
    assert!(worst < Duration::from_secs(10), "stuck: {worst:?}");
    let p75 = percentile(&mut times, 0.75);
    assert!(!full() || p75 < 250 * MS, "by the look once a second, not by word: {p75:?}");
    let p99 = percentile(&mut times, 0.99);
    bar(
        "an observer hears of a new holder, of a release, of a kill -9, p99",
        format!("{p99:?} of {}", times.len()),
        "<= 250 ms",
        p99 <= 250 * MS,
    );
    eventually("its watch is ended", 10_000 * MS, || {
        folder.count("SELECT (SELECT count(*) FROM fencelock_watcher) + (SELECT sum(watched) FROM fencelock_lock)") == 0
    });
}

pub(crate) fn cells() {
    let (folder, processes, rounds) = (Folder::new(), 16, tenth(200));
    let (database, each) = (folder.database(), rounds.to_string());
    let add = |seed: usize| Worker::start(&["add", database.to_str().unwrap(), "x", &each, &seed.to_string()]);
    let mut workers: Vec<_> = (0..processes).map(add).collect();
    let lost: u64 = workers.iter_mut().map(|worker| worker.hear("lost").1.parse::<u64>().unwrap()).sum();
    assert!(workers.into_iter().all(Worker::wait));
    let now = runtime().block_on(async { folder.client().cell("x").load().await.unwrap() });
    let sum = String::from_utf8(now.value.unwrap().to_vec()).unwrap();
    assert_eq!(sum, (processes * rounds).to_string());
    assert!(lost > 0, "the run must bite");
    let figure = format!("{sum} of {}, {lost} replies of writes lost", processes * rounds);
    bar("16 processes add to a cell", figure, "exact", true);
}
