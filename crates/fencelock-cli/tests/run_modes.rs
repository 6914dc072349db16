//! Story: `run -s` reads beside other readers and keeps `run --write` out, `run --permits K/N` never lets more than N in, and
//! what does not fit together is one clear message, never a silent second lock. A crash of one who shares takes its job along
//! and nobody else's.
//!
//! Planted to see it red: `--write` that reads; one permit taken instead of K; an inherited FENCELOCK_TOKEN left where the
//! hold has none; `4/3` let through to the engine; no hint about the kind; only the first holder's token named by `release`;
//! the permits of waiters told as 1; a minder that does not care for the end of the link (the job outlives its wrapper).

mod common;

use std::process::{Command, Stdio};

use common::{
    BEATS, NEXT, Place, Running, binary, code_of, done, end_of, finish, granted, kill, lives, pid_of, start, until,
};
use fencelock_testkit::{Etcd, ZooKeeper, processes::tenth};
use rustix::process::Signal;
use serde_json::Value;

/// Runs as these options say until its input ends, and writes how it was let in.
fn holder(place: &Place, options: &[&str], file: &str) -> Running {
    let script = format!("echo $FENCELOCK_MODE,${{FENCELOCK_TOKEN-none}} > $D/{file}; read");
    // What an outer run may have left there.
    start(place.run(options, &script).env("FENCELOCK_TOKEN", "7").stdin(Stdio::piped()))
}

fn let_go(mut holder: Running) {
    drop(holder.stdin.take());
    end_of(&mut holder);
}

fn object(place: &Place) -> Value {
    let (code, out, err) = finish(place.fencelock().args(["status", "x", "--json"]));
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).expect("JSON")
}

#[test]
fn readers_are_side_by_side_and_a_writer_is_kept_out() {
    let place = Place::new();
    let one = holder(&place, &["-s"], "one");
    let two = holder(&place, &["--shared"], "two");
    assert_eq!((place.line("one"), place.line("two")), ("read,none".into(), "read,none".into()));
    let (code, _, err) = finish(&mut place.run(&["-n", "--write"], "echo > $D/ran"));
    assert_eq!(code, 75, "{err}");
    assert!(err.contains("(read, token "), "{err}");
    let writer = holder(&place, &["--write"], "writer");
    place.waiting(1);
    // Nobody passes the writer that waits.
    assert_eq!(finish(&mut place.run(&["-n", "-s"], "echo > $D/ran")).0, 75);
    let three = holder(&place, &["-s"], "three");
    place.waiting(2);
    let_go(one);
    until("one reader", || (object(&place)["holders"].as_array()?.len() == 1).then_some(()));
    assert_eq!(place.read("writer"), "");
    let_go(two);
    let wrote = place.line("writer");
    let token: i64 = wrote.trim_start_matches("write,").parse().expect("a token");
    assert!(token > 7 && object(&place)["last_token"] == token, "{wrote}");
    assert_eq!(finish(&mut place.run(&["-n", "-s"], "echo > $D/ran")).0, 75);
    assert_eq!((place.read("three"), place.read("ran")), (String::new(), String::new()));
    let_go(writer);
    assert_eq!(place.line("three"), "read,none");
    let_go(three);
    assert_eq!(finish(&mut place.run(&["-n", "--write"], "exit 4")).0, 4);
}

/// The same doors of a server, and in each of ZooKeeper's dialects.
#[test]
fn modes_of_servers() {
    let (etcd, zk) = (Etcd::start(), ZooKeeper::start());
    for url in [etcd.url(), zk.url(), format!("{}?root=/kazoo&dialect=kazoo", zk.url())] {
        let place = Place::new();
        let at = |options: &[&str], script: &str| {
            let mut command = place.run(options, script);
            command.env("FENCELOCK_URL", &url);
            command
        };
        let holds = |options: &[&str], file: &str| {
            let running = start(at(options, &format!("echo $FENCELOCK_MODE > $D/{file}; read")).stdin(Stdio::piped()));
            (place.line(file), running)
        };
        let ends = |options: &[&str]| {
            let (code, _, err) = finish(&mut at(options, "exit 4"));
            (code, err)
        };
        let ((one, first), (two, second)) = (holds(&["-s"], "one"), holds(&["-s"], "two"));
        assert_eq!((one.as_str(), two.as_str()), ("read", "read"), "{url}");
        for (options, code) in [(&["-n", "--write"][..], 75), (&["-n"], 78), (&["-n", "--permits", "1/2"], 78)] {
            let (ended, err) = ends(options);
            assert_eq!(ended, code, "{url} {options:?}: {err}");
        }
        [first, second].into_iter().for_each(let_go);
        assert_eq!(ends(&["--write"]).0, 4, "{url}");
        let options = ["--permits", "1/2"];
        let ((one, first), (two, second)) = (holds(&options, "three"), holds(&options, "four"));
        assert_eq!((one.as_str(), two.as_str()), ("permits", "permits"), "{url}");
        for (permits, code) in [("1/2", 75), ("2/2", 75), ("1/3", 78)] {
            let (ended, err) = ends(&["-n", "--permits", permits]);
            assert_eq!(ended, code, "{url} {permits}: {err}");
        }
        [first, second].into_iter().for_each(let_go);
        assert_eq!(ends(&["--permits", "2/2"]).0, 4, "{url}");
    }
}

#[test]
fn no_more_permits_are_out_than_there_are() {
    let place = Place::new();
    std::fs::write(place.path("counter"), "0\n").expect("a counter");
    // One log has both ends of every interval in their order. Whoever has all permits counts as if nobody else could.
    let job = r#"echo $1 >> $D/log; [ $1 = 3 ] && { read n < $D/counter; sleep 0.002; echo $((n+1)) > $D/counter; }
sleep 0.005; echo -$1 >> $D/log"#;
    std::fs::write(place.path("turn"), job).expect("a script");
    let each = tenth(150);
    let looping = "for ((i = 0; i < N; i++)); do \"$F\" run --permits $K/3 x -- bash $D/turn $K || exit; done";
    let workers: Vec<Running> = [1, 1, 1, 2, 2, 3, 3]
        .into_iter()
        .map(|k| {
            let mut bash = Command::new("bash");
            bash.args(["-c", looping]).env("D", place.path("")).env("F", binary()).env("FENCELOCK_URL", place.url());
            start(bash.env("N", each.to_string()).env("K", k.to_string()).stdin(Stdio::null()))
        })
        .collect();
    for worker in workers {
        assert_eq!(done(worker), 0);
    }
    let log = place.read("log");
    let (mut out, mut most, mut holders, mut crowd) = (0, 0, 0, 0);
    for line in log.lines() {
        let k: i64 = line.parse().expect("a number");
        (out, holders) = (out + k, holders + k.signum());
        (most, crowd) = (most.max(out), crowd.max(holders));
    }
    assert_eq!((log.lines().count(), out, most), (14 * each, 0, 3));
    assert!(crowd > 1, "they were never beside each other");
    assert_eq!(place.read("counter").trim(), (2 * each).to_string());
}

#[test]
fn one_who_shares_dies_and_the_next_gets_in_after_its_job() {
    let semaphore: (&[&str], &[&str]) = (&["--permits", "1/3"], &["--permits", "3/3"]);
    for (sharing, alone) in [(&["-s"][..], &["--write"][..]), semaphore] {
        let place = Place::new();
        let other = holder(&place, sharing, "other");
        place.line("other");
        let mut dying = start(place.run(&[sharing, &["--ttl", "10m"]].concat(), BEATS).stderr(Stdio::null()));
        place.line("ready");
        let mut next = start(&mut place.run(alone, NEXT));
        place.waiting(1);
        kill(pid_of(&dying).as_raw_pid(), Signal::KILL);
        end_of(&mut dying);
        until("the end of its hold", || (object(&place)["holders"].as_array()?.len() == 1).then_some(()));
        assert_eq!(place.beating(), [0; 0], "{sharing:?}");
        // The other one is not touched, and still counts.
        assert_eq!(place.read("next"), "", "{sharing:?}");
        let_go(other);
        assert_eq!(code_of(end_of(&mut next)), 0);
        assert!(place.last_beat() < granted(&place), "{sharing:?}");
    }
}

#[test]
fn permits_that_are_none() {
    let place = Place::new();
    let huge = "99999999999999999999/99999999999999999999";
    for value in ["0/3", "4/3", "x", "3", "", "/", "0/0", "-1/3", "1/3/3", "1.5/3", "1 / 3", huge] {
        let (code, out, err) = finish(&mut place.run(&[&format!("--permits={value}")], "echo > $D/ran"));
        assert_eq!((code, out.as_str()), (64, ""), "{value:?}: {err}");
        let first = err.lines().next().unwrap_or_default();
        assert!(first.contains(&format!("'{value}'")) && first.contains("--permits"), "{err}");
    }
    let both: [&[&str]; 4] =
        [&["-s", "--write"], &["-s", "--permits", "1/3"], &["--write", "--permits", "1/3"], &["-s", "-s"]];
    for options in both {
        let (code, _, err) = finish(&mut place.run(options, "echo > $D/ran"));
        assert_eq!(code, 64, "{options:?}: {err}");
        assert!(err.contains("cannot be used"), "{err}");
    }
    assert_eq!(place.read("ran"), "");
    assert_eq!(object(&place)["kind"], Value::Null);
    // As many as there can be are no mistake.
    assert_eq!(finish(&mut place.run(&["--permits", "4294967295/4294967295"], "exit 4")).0, 4);
}

#[test]
fn a_name_is_one_kind_and_one_size() {
    let ways: [(&[&str], &str); 4] = [
        (&[], "without -s"),
        (&["-s"], "with -s to read, with --write to write"),
        (&["--write"], "with -s to read, with --write to write"),
        (&["--permits", "1/3"], "with --permits K/3"),
    ];
    for (i, (options, fitting)) in ways.into_iter().enumerate() {
        let place = Place::new();
        let held = holder(&place, options, "held");
        place.line("held");
        for (j, (other, _)) in ways.into_iter().enumerate() {
            let same = i == j || (matches!(i, 1 | 2) && matches!(j, 1 | 2));
            for how in [&["-n"][..], &["-w", "5s"]].into_iter().filter(|_| !same) {
                let (code, _, err) = finish(&mut place.run(&[other, how].concat(), "echo > $D/ran"));
                assert_eq!(code, 78, "{options:?} {other:?}: {err}");
                let lines: Vec<&str> = err.lines().collect();
                assert_eq!(lines.len(), 2, "{err}");
                assert!(lines[0].starts_with("fencelock: lock: it is a ") && lines[1].contains(fitting), "{err}");
            }
        }
        let_go(held);
        assert_eq!(place.read("ran"), "");
        assert_eq!(object(&place)["waiters"], Value::Array(Vec::new()));
    }
    let place = Place::new();
    let held = holder(&place, &["--permits", "1/3"], "held");
    place.line("held");
    for other in ["1/2", "1/4"] {
        let (code, _, err) = finish(&mut place.run(&["--permits", other], "echo > $D/ran"));
        assert_eq!(code, 78, "{err}");
        assert!(err.contains("3 permits") && err.ends_with("take it with --permits K/3\n"), "{err}");
    }
    assert_eq!(place.read("ran"), "");
    let_go(held);
}

#[test]
fn status_and_list_show_every_mode() {
    let place = Place::new();
    let said = |mode: &str, permits: Value| (Value::from(mode), permits);
    let both = |o: &Value, list: &str| {
        let of = |one: &Value| (one["mode"].clone(), one["permits"].clone());
        o[list].as_array().expect("a list").iter().map(of).collect::<Vec<_>>()
    };
    let (one, two) = (holder(&place, &["-s"], "one"), holder(&place, &["-s"], "two"));
    place.line("one");
    place.line("two");
    let writer = holder(&place, &["--write"], "writer");
    place.waiting(1);
    let o = object(&place);
    assert_eq!((&o["kind"], &o["capacity"]), (&"rw_lock".into(), &Value::Null));
    assert_eq!(both(&o, "holders"), [said("read", Value::Null), said("read", Value::Null)]);
    assert_eq!(both(&o, "waiters"), [said("write", Value::Null)]);
    let (_, out, _) = finish(place.fencelock().args(["status", "x"]));
    assert!(out.matches(" (read, token ").count() == 2 && out.ends_with(", for write\n"), "{out}");
    let (_, out, _) = finish(place.fencelock().args(["list"]));
    assert!(out.starts_with("x: held ") && out.ends_with(", 1 more hold it, 1 waiting\n"), "{out}");
    let_go(one);
    let_go(two);
    assert!(place.line("writer").starts_with("write,"));
    assert_eq!(both(&object(&place), "holders"), [said("write", Value::Null)]);
    let_go(writer);

    let three = holder(&place, &["--permits", "3/5"], "three");
    place.line("three");
    let four = holder(&place, &["--permits", "4/5"], "four");
    place.waiting(1);
    let o = object(&place);
    assert_eq!((&o["kind"], &o["capacity"]), (&"semaphore".into(), &5.into()));
    assert_eq!(both(&o, "holders"), [said("permits", 3.into())]);
    assert_eq!(both(&o, "waiters"), [said("permits", 4.into())]);
    let (_, out, _) = finish(place.fencelock().args(["status", "x"]));
    assert!(out.contains("(3 permits, token ") && out.contains("\n2 of 5 permits free\n"), "{out}");
    assert!(out.ends_with(", for 4 permits\n"), "{out}");
    let (_, out, _) = finish(place.fencelock().args(["list"]));
    assert!(out.ends_with(", 2 of 5 permits free, 1 waiting\n"), "{out}");
    let_go(three);
    let_go(four);
    let mutex = holder(&place, &[], "mutex");
    assert!(place.line("mutex").starts_with("mutex,"));
    let o = object(&place);
    assert_eq!((&o["kind"], both(&o, "holders")), (&"mutex".into(), vec![said("mutex", Value::Null)]));
    assert!(finish(place.fencelock().args(["status", "x"])).1.contains(" (token "));
    let_go(mutex);
    assert_eq!(finish(place.fencelock().args(["status", "x"])).1, "free\n");
}

#[test]
fn one_of_several_is_broken_by_its_token() {
    for sharing in [&["-s"][..], &["--permits", "1/3"]] {
        let place = Place::new();
        let script = |file: &str| format!("echo $$ > $D/{file}; exec sleep 600");
        let mut one = start(place.run(sharing, &script("one")).stderr(Stdio::null()));
        place.line("one");
        let mut two = start(place.run(sharing, &script("two")).stderr(Stdio::null()));
        place.line("two");
        let (code, _, err) = finish(place.fencelock().args(["release", "x", "--force"]));
        let o = object(&place);
        let token = |pid: u32| {
            let holders = o["holders"].as_array().expect("holders");
            holders.iter().find(|h| h["pid"] == pid).expect("it holds")["token"].to_string()
        };
        let tokens = (token(one.id()), token(two.id()));
        assert_eq!(code, 64);
        assert!(err.contains(&tokens.0) && err.contains(&format!(" or --token {}", tokens.1)), "{err}");
        let (code, _, err) = finish(place.fencelock().args(["release", "x", "--force", "--token", &tokens.1]));
        assert_eq!(code, 0, "{err}");
        assert_eq!(code_of(end_of(&mut two)), 76);
        assert!(lives(place.pid("one").as_raw_pid()) && !lives(place.pid("two").as_raw_pid()));
        assert_eq!(finish(place.fencelock().args(["release", "x", "--force", "--token", &tokens.1])).0, 76);
        kill(place.pid("one").as_raw_pid(), Signal::KILL);
        assert_eq!(code_of(end_of(&mut one)), 137);
    }
}
