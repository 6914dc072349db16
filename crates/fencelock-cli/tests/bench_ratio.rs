//! How far the ratio that `bench` tells is off from run to run of the same build: the bar is for a machine that does nothing else.

mod common;

use common::{Place, finish_within};
use fencelock_testkit::processes::{bar, full};
use fencelock_testkit::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};
use std::time::Duration;

const RUNS: usize = 5;

#[test]
fn five_runs_tell_the_same_ratio() {
    let (redis, place) = (Redis::start(), Place::new());
    let mut engines = vec![("SQLite", place.url()), ("Redis", redis.url())];
    let others = full().then(|| (Postgres::start(), MariaDb::start(), Etcd::start(), ZooKeeper::start()));
    if let Some((postgres, mariadb, etcd, zookeeper)) = &others {
        engines.extend([("PostgreSQL", postgres.url()), ("MariaDB", mariadb.url())]);
        engines.extend([("etcd", etcd.url()), ("ZooKeeper", zookeeper.url())]);
    }
    for (engine, url) in engines {
        let mut ratios = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            let mut command = place.fencelock();
            command.args(["bench", "--json", "--tasks", "1,16", "--waiters", "1", "--holders", "0", &url]);
            command.args(["--seconds", if full() { "3" } else { "0.5" }]);
            let (code, out, err) = finish_within(&mut command, Duration::from_secs(120));
            assert_eq!(code, 0, "{err}");
            for (line, ratios) in out.lines().zip(&mut ratios) {
                let row: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
                ratios.push(row["ratio"].as_f64().unwrap_or_else(|| panic!("no ratio: {row}")));
            }
        }
        for (tasks, mut ratios) in ["1 task", "16 tasks"].into_iter().zip(ratios) {
            ratios.sort_by(f64::total_cmp);
            assert_eq!(ratios.len(), RUNS);
            let middle = ratios[RUNS / 2];
            let off = ratios.iter().map(|ratio| 100.0 * (ratio / middle - 1.0).abs()).fold(0.0, f64::max);
            bar(
                &format!("bench: ratio to the bare driver, {engine}, {tasks}, {RUNS} runs"),
                format!("{middle:.2}, and {off:.1} % off at most ({ratios:.2?})"),
                "± 10 %",
                off <= 10.0,
            );
        }
    }
}
