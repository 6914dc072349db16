//! Leaders are killed while many contend.
use crate::scene::Scene;
use fencelock_testkit::{
    Etcd,
    processes::{Scene as _, Span, Worker, bar, eventually, judge, now, parse, percentile, tenth, tokens_rise},
};
use std::{fs, time::Duration};

const SEC: Duration = Duration::from_secs(1);
/// Of the contenders' holds, as [`worker`](crate::worker) has it.
const TTL: Duration = Duration::from_secs(5);

pub(crate) fn leaders_killed() {
    let scene = Scene::of(Etcd::cluster());
    let path = |name: &str| scene.folder().join(name).to_str().unwrap().to_owned();
    let log = |n: usize| path(&format!("log{n}"));
    let workers: Vec<_> = (0..16).map(|n| scene.start(n, "contend", &["x", &path("counter"), &log(n)])).collect();
    let count = || fs::read_to_string(path("counter")).unwrap_or_default().trim().parse::<u64>().unwrap_or(0);
    eventually("they work", 60 * SEC, || count() > 50);
    let (mut elections, mut times) = (Vec::new(), Vec::new());
    for _ in 0..tenth(20).max(3) {
        let leader = scene.etcd.leader().unwrap();
        scene.etcd.kill(leader);
        let killed = now();
        // What was granted before the kill may be counted after it.
        std::thread::sleep(Duration::from_millis(100));
        let before = count();
        let mut elected = None;
        eventually("somebody gets it", 60 * SEC, || {
            elected = elected.or_else(|| scene.etcd.leader().map(|_| now()));
            count() > before + 1
        });
        let (granted, elected) = (now(), elected.unwrap_or_else(now));
        elections.push(Duration::from_nanos(elected - killed));
        times.push(Duration::from_nanos(granted - elected));
        scene.etcd.restart(leader);
        eventually("it has a leader", 60 * SEC, || scene.etcd.leader().is_some());
        let before = count();
        eventually("they work", 60 * SEC, || count() > before + 50);
    }
    (0..16).for_each(|n| fs::write(format!("{}.stop", log(n)), "").unwrap());
    assert!(workers.into_iter().all(Worker::wait), "a worker failed or is stuck");
    let spans: Vec<Span> = (0..16).flat_map(|n| parse(&fs::read_to_string(log(n)).unwrap())).collect();
    assert!((0..16).all(|n| !fs::read_to_string(log(n)).unwrap().is_empty()), "somebody never got it");
    judge(&spans);
    tokens_rise(&spans);
    assert_eq!(count(), spans.len() as u64, "no hold was lost, so the counter is exact");
    eventually("nothing is left", 20 * SEC, || scene.traces() == 0);
    let (worst, election) = (percentile(&mut times, 1.0), percentile(&mut elections, 1.0));
    let figure = format!("{worst:?} of {}, {} holds, 0 overlaps, tokens rise", times.len(), spans.len());
    let what =
        format!("etcd: 16 clients, the leader of 3 killed: grant with a ttl of {TTL:?} after the election, slowest");
    bar(&what, figure, "<= ttl + 1 s", worst <= TTL + SEC);
    bar("etcd: the slowest of these elections", format!("{election:?}"), "reported", true);
}
