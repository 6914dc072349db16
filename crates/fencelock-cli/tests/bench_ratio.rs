//! How far the ratio that `bench` tells is off from run to run of the same build: the bar is for a machine that does nothing else.

mod common;

use common::{Place, finish_within};
use fencelock_testkit::processes::{bar, full};
use fencelock_testkit::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};
use std::time::Duration;

const RUNS: usize = 5;

/// Each engine by itself: what one of them misses keeps none from the others.
fn five_runs_tell_the_same_ratio(engine: &str, url: &str) {
    let place = Place::new();
    let mut ratios = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        let mut command = place.fencelock();
        command.args(["bench", "--json", "--tasks", "1,16", "--waiters", "1", "--holders", "0", url]);
        command.args(["--seconds", if full() { "3" } else { "0.2" }]);
        let (code, out, err) = finish_within(&mut command, Duration::from_secs(120));
        assert_eq!(code, 0, "{err}");
        for (line, ratios) in out.lines().zip(&mut ratios) {
            let row: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
            ratios.push(row["ratio"].as_f64().unwrap_or_else(|| panic!("no ratio: {row}")));
        }
    }
    let mut figures = Vec::new();
    for (tasks, mut ratios) in ["1 task", "16 tasks"].into_iter().zip(ratios) {
        ratios.sort_by(f64::total_cmp);
        assert_eq!(ratios.len(), RUNS);
        let middle = ratios[RUNS / 2];
        let off = ratios.iter().map(|ratio| 100.0 * (ratio / middle - 1.0).abs()).fold(0.0, f64::max);
        let what = format!("bench: ratio to the bare driver, {engine}, {tasks}, {RUNS} runs");
        figures.push((what, format!("{middle:.2}, and {off:.1} % off at most ({ratios:.2?})"), off <= 10.0));
    }
    for (what, figure, ok) in figures {
        bar(&what, figure, "± 10 %", ok);
    }
}

#[test]
fn on_sqlite() {
    let place = Place::new();
    five_runs_tell_the_same_ratio("SQLite", &place.url());
}
#[test]
fn on_redis() {
    five_runs_tell_the_same_ratio("Redis", &Redis::start().url());
}
#[test]
fn on_postgres() {
    five_runs_tell_the_same_ratio("PostgreSQL", &Postgres::start().url());
}
#[test]
fn on_mariadb() {
    five_runs_tell_the_same_ratio("MariaDB", &MariaDb::start().url());
}
#[test]
fn on_etcd() {
    five_runs_tell_the_same_ratio("etcd", &Etcd::start().url());
}
#[test]
fn on_zookeeper() {
    five_runs_tell_the_same_ratio("ZooKeeper", &ZooKeeper::start().url());
}
