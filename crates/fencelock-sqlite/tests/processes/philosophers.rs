//! Planted to see it go red: members that are not sorted; a member that is kept when the next one is busy.
use crate::{
    bar,
    common::{Folder, client},
    full,
    worker::{Worker, now},
};
use fencelock_core::{Client, MultiLock};
use std::{collections::BTreeMap, fs, path::Path, time::Duration};

const LOCKS: usize = 5;

/// 16 processes want two or three of five locks at a time, in random order; the locks lie in two databases.
pub(crate) fn philosophers() {
    let (processes, seconds) = (16, if full() { 60 } else { 6 });
    let (even, odd) = (Folder::new(), Folder::new());
    let path = |name: &str| even.path().join(name).to_str().unwrap().to_owned();
    let end = (now() + (seconds + 2) * 1_000_000_000).to_string();
    let (a, b, counters) = (path("locks.db"), odd.database().to_str().unwrap().to_owned(), path("counter"));
    let workers: Vec<_> =
        (0..processes).map(|i| Worker::start(&["dine", &a, &b, &counters, &path(&format!("log{i}")), &end])).collect();
    assert!(workers.into_iter().all(Worker::wait), "every one of them came to its end");
    let logs: Vec<String> = (0..processes).map(|i| fs::read_to_string(path(&format!("log{i}"))).unwrap()).collect();
    assert!(logs.iter().all(|log| !log.is_empty()), "every one of them has eaten");
    let mut spans: BTreeMap<usize, Vec<(u64, u64, u64)>> = BTreeMap::new();
    for line in logs.iter().flat_map(|log| log.lines()) {
        let n: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        spans.entry(usize::try_from(n[0]).unwrap()).or_default().push((n[1], n[2], n[3]));
    }
    assert_eq!(spans.len(), LOCKS);
    let mut meals = 0;
    for (lock, mut all) in spans {
        all.sort_unstable();
        for two in all.windows(2) {
            assert!(two[0].1 <= two[1].0, "two holders of lock {lock} at once: {two:?}");
            assert!(two[0].2 < two[1].2, "tokens of lock {lock} do not rise: {two:?}");
        }
        assert_eq!(fs::read_to_string(format!("{counters}{lock}")).unwrap(), all.len().to_string());
        meals += all.len();
    }
    for folder in [&even, &odd] {
        let left = "SELECT (SELECT count(*) FROM fencelock_holder) + (SELECT count(*) FROM fencelock_waiter)";
        assert_eq!(folder.count(left), 0, "a partial hold is left");
    }
    let what = format!("{meals} holds in {seconds} s, 0 overlaps, counters exact, nothing left");
    bar("philosophers: 16 processes, 5 locks over two databases", what, "no deadlock, exact", true);
}

/// dine DB DB COUNTERS LOG END_NS
pub(crate) async fn dine(words: &[String]) {
    let clients = [client(Path::new(&words[1])), client(Path::new(&words[2]))];
    let end: u64 = words[5].parse().unwrap();
    let mut log = String::new();
    // Until it has eaten, however long it took to come.
    while log.is_empty() || now() < end {
        let mut locks: Vec<usize> = (0..LOCKS).collect();
        fastrand::shuffle(&mut locks);
        locks.truncate(fastrand::usize(2..=3));
        let mutex = |lock: usize| {
            let client: &Client = &clients[lock % 2];
            client.mutex(format!("fork/{lock}"))
        };
        let all = MultiLock::new(locks.iter().map(|lock| mutex(*lock)));
        // Some lose patience half-way, and must leave nothing.
        let hasty = fastrand::u8(0..4) == 0;
        let patience = Duration::from_millis(if hasty { fastrand::u64(0..40) } else { 20_000 });
        let Ok(guard) = all.try_lock_for(patience).await.unwrap() else {
            assert!(hasty, "somebody waits for somebody who waits for him: {locks:?}");
            continue;
        };
        let start = now();
        for lock in &locks {
            let path = format!("{}{lock}", words[3]);
            let n: u64 = fs::read_to_string(&path).unwrap_or_default().trim().parse().unwrap_or(0);
            tokio::task::yield_now().await;
            fs::write(&path, (n + 1).to_string()).unwrap();
        }
        guard.check().unwrap();
        let stop = now();
        for (name, token) in guard.tokens() {
            let lock = name.as_str().strip_prefix("fork/").unwrap();
            log.push_str(&format!("{lock} {start} {stop} {token}\n"));
        }
        guard.release().await.unwrap();
    }
    for client in clients {
        client.shutdown(Duration::from_secs(10)).await.unwrap();
    }
    fs::write(&words[4], log).unwrap();
}
