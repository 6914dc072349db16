//! `status`, `list` and `release`.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Place, Running, code_of, end_of, finish, kill, start, until};
use rustix::process::Signal;
use serde_json::Value;

fn holder(place: &Place) -> Running {
    let holder =
        start(place.run(&["--note", "a\u{1b}[31mb\u{9b}c"], "echo $$ > $D/job; exec sleep 600").stderr(Stdio::null()));
    place.line("job");
    holder
}

// Planted: nothing said of a database that is new; `free` with exit code 1; the queue left out; host and note as they came.
#[test]
fn status_tells_holder_and_queue() {
    let place = Place::new();
    let (code, out, err) = finish(place.fencelock().args(["status", "x"]));
    // Of a path that is mistyped, too, everything is free.
    assert_eq!((code, out.as_str()), (0, "free\n"));
    assert!(err.contains("there was no database at ") && err.contains("locks.db"), "{err}");
    let (code, out, err) = finish(place.fencelock().args(["status", "x"]));
    assert_eq!((code, out.as_str(), err.as_str()), (0, "free\n", ""));
    assert_eq!(finish(place.fencelock().args(["status", "-q", "x"])).0, 1);
    let _holder = holder(&place);
    let waiter = start(&mut place.run(&[], "exit 0"));
    let object: Value = until("a waiter", || {
        let (_, out, _) = finish(place.fencelock().args(["status", "x", "--json"]));
        let object: Value = serde_json::from_str(&out).expect("JSON");
        (!object["waiters"].as_array()?.is_empty()).then_some(object)
    });
    assert_eq!((&object["name"], &object["engine"]), (&"x".into(), &"sqlite".into()));
    let h = &object["holders"][0];
    assert_eq!((&h["mode"], &h["note"]), (&"mutex".into(), &"a[31mbc".into()));
    assert_eq!(h["hold"].as_str().map(str::len), Some(32));
    assert!(h["token"].as_i64() > Some(0) && h["remaining_ms"].as_u64() <= Some(30_000), "{object}");
    assert_eq!(object["last_token"], h["token"]);
    assert_eq!((&object["waiters"][0]["position"], &object["waiters"][0]["pid"]), (&1.into(), &waiter.id().into()));
    let (code, out, _) = finish(place.fencelock().args(["status", "x"]));
    assert_eq!(code, 0);
    assert!(out.starts_with("held ") && out.contains("\"a[31mbc\" (token ") && out.contains("\n  1. "), "{out}");
    let (code, out, _) = finish(place.fencelock().args(["status", "-q", "x"]));
    assert_eq!((code, out.as_str()), (0, ""));
}

// Planted: a key misspelt; the permits of waiters left out.
#[test]
fn programs_find_the_same_keys_whatever_is_locked() {
    let place = Place::new();
    let keys = |of: &Value| -> String {
        let mut keys: Vec<_> = of.as_object().expect("an object").keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys.join(" ")
    };
    let of_all = "capacity engine holders kind last_token layout name waiters";
    for (options, kind) in [(&[][..], "mutex"), (&["--write"], "rw_lock"), (&["--permits", "1/1"], "semaphore")] {
        let (code, out, _) = finish(place.fencelock().args(["status", "y", "--json"]));
        let free: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!((code, keys(&free).as_str()), (0, of_all));
        place.clear();
        let mut holder = start(place.run(options, "echo $$ > $D/job; exec sleep 600").stderr(Stdio::null()));
        place.line("job");
        let mut waiter = start(&mut place.run(options, "true"));
        place.waiting(1);
        for words in [&["status", "x", "--json"][..], &["list", "--json"]] {
            let (code, out, _) = finish(place.fencelock().args(words));
            assert_eq!((code, out.lines().count()), (0, 1), "{words:?}: {out}");
            let object: Value = serde_json::from_str(&out).expect("JSON");
            assert_eq!((keys(&object).as_str(), &object["kind"]), (of_all, &kind.into()));
            let (holder, waiter) = (&object["holders"][0], &object["waiters"][0]);
            assert_eq!(keys(holder), "hold host mode note permits pid remaining_ms since_ms token", "{words:?}");
            assert_eq!(keys(waiter), "hold host mode note permits pid position waiting_ms", "{words:?}");
            for (key, of) in [("capacity", &object), ("permits", holder), ("permits", waiter)] {
                assert_eq!(of[key], if kind == "semaphore" { 1.into() } else { Value::Null }, "{key}: {out}");
            }
        }
        kill(place.pid("job").as_raw_pid(), Signal::KILL);
        end_of(&mut holder);
        assert!(end_of(&mut waiter).success());
    }
}

// Planted: the prefix not passed on; `--watch` prints every second.
#[test]
fn list_shows_what_is_held_and_watch_what_changes() {
    let place = Place::new();
    let mut holder = holder(&place);
    let (code, out, _) = finish(place.fencelock().args(["list"]));
    assert_eq!((code, out.lines().count()), (0, 1));
    assert!(out.starts_with("x: held "), "{out}");
    assert_eq!(finish(place.fencelock().args(["list", "y"])).1, "");
    let mut watch = start(place.fencelock().args(["list", "--watch", "--json"]).stdout(Stdio::piped()));
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    let first = next();
    // Longer than it takes to look again: what has not changed is not printed.
    std::thread::sleep(std::time::Duration::from_millis(1300));
    kill(place.pid("job").as_raw_pid(), Signal::KILL);
    end_of(&mut holder);
    let _other = start(place.run(&[], "sleep 600").stderr(Stdio::null()));
    let second = next();
    assert_eq!((&first["name"], &second["name"]), (&"x".into(), &"x".into()));
    assert_ne!(first["holders"][0]["hold"], second["holders"][0]["hold"]);
}

// Planted: the namespace left out by each of these commands in turn.
#[test]
fn a_namespace_is_apart_for_every_command() {
    const APART: [&str; 2] = ["--namespace", "apart"];
    let place = Place::new();
    let here = |args: &[&str]| finish(place.fencelock().args(args));
    let apart = |args: &[&str]| finish(place.fencelock().args(args).args(APART));
    let _holder = start(place.run(&APART, "echo $$ > $D/job; exec sleep 600").stderr(Stdio::null()));
    place.line("job");
    assert_eq!((here(&["list"]).1.as_str(), here(&["status", "-q", "x"]).0), ("", 1));
    assert!(apart(&["list"]).1.starts_with("x: held ") && apart(&["status", "-q", "x"]).0 == 0);
    let status: Value = serde_json::from_str(&apart(&["status", "x", "--json"]).1).expect("JSON");
    let token = status["holders"][0]["token"].to_string();
    let force = ["release", "--force", "x", "--token", &token];
    assert_eq!(here(&force).0, 76, "nobody holds it here");
    assert_eq!(apart(&force).0, 0);
    assert_eq!((apart(&["cell", "set", "c", "there"]).0, here(&["cell", "get", "c"]).0), (0, 1));
    assert_eq!((here(&["cell", "set", "c", "here"]).0, apart(&["cell", "get", "c"]).1.as_str()), (0, "there"));
    let permits = ["-n", "--permits", "1/2", "s", "--", "true"];
    assert_eq!(
        [here(&[&["run"][..], &permits].concat()).0, apart(&[&["run", APART[0], APART[1]][..], &permits].concat()).0],
        [0, 0]
    );
    assert_eq!(apart(&["semaphore", "resize", "s", "2", "3"]).0, 0);
    let capacity = |out: String| serde_json::from_str::<Value>(&out).expect("JSON")["capacity"].clone();
    let of = ["status", "s", "--json"];
    assert_eq!([capacity(here(&of).1), capacity(apart(&of).1)], [2.into(), Value::from(3)]);
}

// Planted: what is free left out; a reader that has gone noticed with the next line alone.
#[test]
fn a_program_that_watches_hears_of_what_is_free_and_may_go_at_any_time() {
    let place = Place::new();
    let mut holder = holder(&place);
    let mut watch = start(place.fencelock().args(["list", "--watch", "--json"]).stdout(Stdio::piped()));
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    assert_eq!(next()["holders"].as_array().map(Vec::len), Some(1));
    kill(place.pid("job").as_raw_pid(), Signal::KILL);
    end_of(&mut holder);
    let free = next();
    assert_eq!((&free["name"], free["holders"].as_array().map(Vec::len)), (&"x".into(), Some(0)));
    // From here on there is nothing to say.
    drop(lines);
    assert_eq!(code_of(end_of(&mut watch)), 0);
}

// Planted: the token not compared; the holder not shown.
#[test]
fn release_needs_force_and_the_token() {
    let place = Place::new();
    let mut holder = holder(&place);
    assert_eq!(finish(place.fencelock().args(["release", "x", "--token", "7"])).0, 64);
    let (code, _, err) = finish(place.fencelock().args(["release", "x", "--force"]));
    assert_eq!(code, 64);
    let token = place.token();
    assert!(err.contains(&format!("hint: --token {token}")), "{err}");
    let (code, _, err) = finish(place.fencelock().args(["release", "x", "--force", "--token", "7"]));
    assert_eq!(code, 76, "{err}");
    assert!(err.starts_with("x: held ") && err.contains("hint: nothing was released"), "{err}");
    assert_eq!(finish(place.fencelock().args(["status", "-q", "x"])).0, 0);
    assert_eq!(finish(place.fencelock().args(["release", "x", "--force", "--token", &token])).0, 0);
    assert_eq!(code_of(end_of(&mut holder)), 76);
    let (code, _, err) = finish(place.fencelock().args(["release", "x", "--force", "--token", &token]));
    assert_eq!((code, err.as_str()), (76, "fencelock: x is free: there is nothing to release\n"));
}
