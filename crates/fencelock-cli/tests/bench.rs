//! `bench`: its figures are there and go together; what it cannot do is one line.

mod common;

use common::pty::Shell;
use common::{Place, finish, finish_within};
use fencelock_testkit::{Etcd, MariaDb, Postgres, Redis, RedisOptions, ZooKeeper};
use serde_json::Value;
use std::time::Duration;

const SHORT: [&str; 9] = ["bench", "--seconds", "0.6", "--tasks", "1,3", "--waiters", "4", "--holders", "20"];

fn rows(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

fn positive(row: &Value, fields: &[&str]) {
    for field in fields {
        assert!(row[field].as_f64().is_some_and(|n| n > 0.0), "{field}: {row}");
    }
}

/// The rows of one engine, which it calls by these names.
fn measured(place: &Place, (engine, layout): (&str, &str), url: Option<String>) -> Vec<Value> {
    let mut command = place.fencelock();
    command.args(SHORT).arg("--json").args(url);
    let (code, out, err) = finish_within(&mut command, Duration::from_secs(120));
    assert_eq!(code, 0, "{err}");
    let rows = rows(&out);
    let cases: Vec<_> = rows
        .iter()
        .map(|row| (row["case"].as_str().expect("a case"), row["tasks"].as_u64().expect("a number")))
        .collect();
    assert_eq!(cases, [("uncontended", 1), ("uncontended", 3), ("contended", 4), ("renew", 1)]);
    assert!(rows.iter().all(|row| row["engine"] == engine && row["layout"] == layout), "{out}");
    for row in &rows[..2] {
        positive(row, &["pairs_per_s", "p50_us", "p99_us", "client_cpu"]);
    }
    positive(&rows[2], &["pairs_per_s", "p50_us", "handoff_p50_us", "handoff_p99_us"]);
    // One after the other, each for 1 ms: they want one lock.
    assert!(rows[2]["pairs_per_s"].as_f64().is_some_and(|n| n <= 1_000.0), "{}", rows[2]);
    assert_eq!(rows[3]["holders"], 20);
    positive(&rows[3], &["renewals_per_s"]);
    rows
}

// Planted: the ratio turned round; clients of the memory engine beside those of a database.
#[test]
fn every_engine_is_measured_beside_its_driver() {
    let (redis, etcd, zk) = (Redis::start(), Etcd::start(), ZooKeeper::start());
    let (postgres, mariadb) = (Postgres::start(), MariaDb::start());
    let place = Place::new();
    for (engine, layout, url) in [
        ("sqlite", "native", None),
        ("redis", "native", Some(redis.url())),
        ("etcd", "native", Some(etcd.url())),
        ("zookeeper", "curator", Some(format!("{}?ttl=10s", zk.url()))),
        ("postgres", "lease", Some(postgres.url())),
        ("mysql", "lease", Some(mariadb.url())),
    ] {
        let rows = measured(&place, (engine, layout), url);
        for row in &rows[..2] {
            let of = |field: &str| row[field].as_f64().unwrap();
            positive(row, &["raw_pairs_per_s", "ratio"]);
            // It is the median of all rounds, not the ratio of the medians: near it, where the machine ran.
            let of_medians = of("pairs_per_s") / of("raw_pairs_per_s");
            assert!((0.25..4.0).contains(&(of("ratio") / of_medians)), "{row}");
            assert!(of("p50_us") <= of("p99_us") && row.get("handoff_p50_us").is_none(), "{row}");
        }
        // The claim, the confirm, the release; and a few signs of life, connections and the texts of scripts.
        let commands = rows[2]["commands_per_grant"].as_f64();
        assert_eq!(commands.is_some(), engine == "redis");
        assert!(commands.is_none_or(|n| (1.0..=12.0).contains(&n)), "{}", rows[2]);
    }
}
/// What has no bare driver of ours is measured alone. (Red: the native layout's driver beside another one.)
#[test]
fn what_has_no_driver_is_measured_alone() {
    let redis = Redis::several(3, &RedisOptions::default());
    let (postgres, mariadb) = (Postgres::start(), MariaDb::start());
    let hosts: Vec<_> = redis.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let place = Place::new();
    for (engine, layout, url) in [
        ("redis", "plain", format!("{}?layout=plain&template=lock:{{}}", redis[0].url())),
        ("redis", "redisson", format!("{}?layout=redisson", redis[1].url())),
        ("redlock", "native", format!("redlock://{}?ttl=2s", hosts.join(","))),
        ("postgres", "session", format!("{}?strategy=session", postgres.url())),
        ("postgres", "shedlock", format!("{}?strategy=shedlock", postgres.url())),
        ("mysql", "session", format!("{}?strategy=session", mariadb.url())),
        ("mysql", "shedlock", format!("{}?strategy=shedlock", mariadb.url())),
    ] {
        for row in measured(&place, (engine, layout), Some(url)) {
            let beside = ["ratio", "raw_pairs_per_s", "commands_per_grant"];
            assert!(beside.iter().all(|field| row.get(field).is_none()), "{row}");
        }
    }
}

#[test]
fn several_in_one_call() {
    let (place, port) = (Place::new(), fencelock_testkit::Port::free());
    let nobody = format!("redis://me:hunter2@127.0.0.1:{port}");
    let bench = |engines: &[&str]| {
        let mut command = place.fencelock();
        command.args(SHORT).args(["--html", "page.html"]).args(engines);
        finish_within(&mut command, Duration::from_secs(120))
    };
    std::fs::write(place.path("page.html"), "an older one").expect("a file");
    let (code, out, err) = bench(&[&nobody, "redis://h?colour=red"]);
    assert_eq!((code, out.as_str()), (69, ""), "{err}");
    assert_eq!(place.read("page.html"), "an older one");

    let (code, out, err) = bench(&["memory:", &nobody, "memory:?colour=red", &place.url()]);
    assert_eq!(code, 69, "{err}");
    let heads: Vec<_> = out.lines().filter(|line| line.contains(" native ")).collect();
    let database = place.path("locks.db").display().to_string();
    assert_eq!(heads, ["memory native memory:".to_owned(), format!("sqlite native {database}")]);
    assert_eq!(out.lines().count(), 2 * (2 + 4), "{out}");
    assert!(err.contains(&format!("fencelock: redis:…@127.0.0.1:{port}: ")) && err.contains("no connection"), "{err}");
    assert!(err.contains("fencelock: memory:?…: ") && err.contains("colour") && !err.contains("hunter2"), "{err}");
    let page = place.read("page.html");
    assert!(page.contains("Not measured: redis:…@") && !page.contains("hunter2"), "{page}");
    assert_eq!(page.matches("<tr>").count(), 1 + 2 * 4, "{page}");

    let (code, out, err) = finish_within(
        place.fencelock().args(SHORT).args(["--json", "memory:", &place.url()]),
        Duration::from_secs(120),
    );
    assert_eq!(code, 0, "{err}");
    let engines: Vec<_> = rows(&out).iter().map(|row| row["endpoint"].clone()).collect();
    assert_eq!(engines, [vec![Value::from("memory:"); 4], vec![Value::from(database); 4]].concat());
}

#[test]
fn a_page_takes_the_place_of_an_older_one() {
    let place = Place::new();
    std::fs::create_dir(place.path("pages")).expect("a folder");
    std::fs::write(place.path("pages/old.html"), "an older one").expect("a file");
    std::os::unix::fs::symlink("pages/old.html", place.path("link.html")).expect("a link");
    let quick = ["bench", "--seconds", "0.1", "--tasks", "1", "--waiters", "2", "--holders", "0", "memory:", "--html"];
    let (code, _, err) = finish(place.fencelock().args(quick).arg("link.html"));
    assert_eq!(code, 0, "{err}");
    assert!(place.path("link.html").is_symlink() && place.read("pages/old.html").ends_with("</dl>\n"));
    let there: Vec<_> = std::fs::read_dir(place.path("pages")).expect("a folder").flatten().collect();
    assert_eq!(there.len(), 1, "{there:?}");

    let (code, out, err) = finish(place.fencelock().args(quick).arg("/dev/stdout"));
    assert!(code == 0 && out.contains("<!doctype html>") && std::path::Path::new("/dev/stdout").is_symlink(), "{err}");
}

// Planted: as many --holders as no memory has room for.
#[test]
fn what_it_cannot_do() {
    let place = Place::new();
    let port = fencelock_testkit::Port::free();
    for (arguments, expected, said) in [
        (vec![format!("redis://127.0.0.1:{port}")], 69, "no connection"),
        (vec!["redis://h?colour=red".to_owned()], 78, "colour"),
        (vec!["memory:".to_owned(), "--tasks".to_owned(), "0".to_owned()], 64, "--tasks"),
        (vec!["memory:".to_owned(), "--seconds".to_owned(), "0".to_owned()], 64, "--seconds"),
        (vec!["memory:".to_owned(), "--holders".to_owned(), u64::MAX.to_string()], 64, "0 to 1000000"),
        (vec!["memory:".to_owned(), "--url".to_owned(), "memory:".to_owned()], 64, "--url"),
        (vec!["memory:".to_owned(), "--html".to_owned(), "/nowhere/page".to_owned()], 74, "/nowhere/page"),
        (vec!["memory:".to_owned(), "--html".to_owned(), "/".to_owned()], 74, "cannot write /"),
    ] {
        let (code, out, err) = finish(place.fencelock().args(SHORT.iter().take(3)).args(&arguments));
        assert!(code == expected && err.contains(said), "{arguments:?}: {code} {err}");
        assert_eq!(out, "", "told before anything is measured");
    }
}

// Planted: nothing said; the line left standing.
#[test]
fn at_a_terminal_it_is_seen_that_something_goes_on() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.line("$F bench memory: --seconds 0.5 --tasks 1 --waiters 2 --holders 3 > $D/out; echo code:$? | tr c C");
    for case in ["uncontended, 1 at once", "contended, 2 at once", "renewals, 3 held"] {
        shell.expect(&format!("memory: {case} …"));
        shell.expect("\r\x1b[K");
    }
    shell.expect("Code:0");
    // In a pipe there is nothing of it.
    let mut command = place.fencelock();
    command.args(["bench", "memory:", "--seconds", "0.1", "--tasks", "1", "--waiters", "2", "--holders", "0"]);
    let (code, out, err) = finish(&mut command);
    assert!(code == 0 && err.is_empty() && !out.contains('…'), "{out} {err}");
}
