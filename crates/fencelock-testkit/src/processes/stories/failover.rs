//! Leaders of three are killed while many contend.
//!
//! Planted to see it go red: a hold that outlives its session; a waiter that watches nothing after its member is gone.
use crate::{
    Etcd, ZooKeeper,
    processes::{Scene, Span, Worker, bar, eventually, judge, now, parse, percentile, tenth, tokens_rise},
};
use std::{fs, time::Duration};

const SEC: Duration = Duration::from_secs(1);
/// Within so long a majority of the living has agreed on a leader: an engine's own affair, so it is reported, and bounded.
const ELECTION: Duration = Duration::from_secs(10);

/// Several members, of which a majority has to live.
pub trait Cluster {
    /// Who leads by its own word.
    fn leader(&self) -> Option<usize>;
    /// `kill -9`.
    fn kill(&self, member: usize);
    /// Again where it was; it serves when this returns.
    fn restart(&self, member: usize);
}
impl Cluster for Etcd {
    fn leader(&self) -> Option<usize> {
        Self::leader(self)
    }
    fn kill(&self, member: usize) {
        Self::kill(self, member);
    }
    fn restart(&self, member: usize) {
        Self::restart(self, member);
    }
}
impl Cluster for ZooKeeper {
    fn leader(&self) -> Option<usize> {
        Self::leader(self)
    }
    fn kill(&self, member: usize) {
        Self::kill(self, member);
    }
    fn restart(&self, member: usize) {
        Self::restart(self, member);
    }
}

/// `ttl`: of the holds of workers with the role `contend`.
pub fn leaders_killed<S: Scene>(scene: &S, cluster: &dyn Cluster, ttl: Duration) {
    let path = |name: &str| scene.folder().join(name).to_str().unwrap().to_owned();
    let log = |n: usize| path(&format!("log{n}"));
    let workers: Vec<_> = (0..16).map(|n| scene.start(n, "contend", &["x", &path("counter"), &log(n)])).collect();
    let count = || fs::read_to_string(path("counter")).unwrap_or_default().trim().parse::<u64>().unwrap_or(0);
    eventually("they work", 60 * SEC, || count() > 50);
    let (mut elections, mut after, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..tenth(20).max(3) {
        let mut leader = None;
        eventually("it has a leader", 60 * SEC, || {
            leader = cluster.leader();
            leader.is_some()
        });
        let leader = leader.unwrap();
        cluster.kill(leader);
        let killed = now();
        // What was granted before the kill may be counted after it.
        std::thread::sleep(Duration::from_millis(100));
        let before = count();
        let (mut elected, mut granted) = (None, None);
        eventually("there is a leader, and somebody gets it", 60 * SEC, || {
            granted = granted.or_else(|| (count() > before + 1).then(now));
            elected = elected.or_else(|| cluster.leader().filter(|new| *new != leader).map(|_| now()));
            elected.is_some() && granted.is_some()
        });
        let (elected, granted) = (elected.unwrap(), granted.unwrap());
        elections.push(Duration::from_nanos(elected - killed));
        times.push(Duration::from_nanos(granted - killed));
        // It may be granted before the leader is asked again whether he is one.
        after.push(Duration::from_nanos(granted.saturating_sub(elected)));
        cluster.restart(leader);
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
    let (engine, of) = (S::ENGINE, times.len());
    let [election, after, whole] = [elections, after, times].map(|mut times| percentile(&mut times, 1.0));
    let what = format!("{engine}: 16 clients, the leader of 3 killed");
    let figure = format!("{after:?} of {of}, {} holds, 0 overlaps, tokens rise", spans.len());
    bar(
        &format!("{what}: from the election to the next grant, ttl {ttl:?}, slowest"),
        figure,
        "<= ttl + 1 s",
        after <= ttl + SEC,
    );
    let limit = format!("<= {ELECTION:?} + ttl + 1 s");
    bar(
        &format!("{what}: from the kill to the next grant, slowest"),
        format!("{whole:?}"),
        &limit,
        whole <= ELECTION + ttl + SEC,
    );
    bar(
        &format!("{what}: the slowest election"),
        format!("{election:?}"),
        &format!("<= {ELECTION:?}"),
        election <= ELECTION,
    );
}
