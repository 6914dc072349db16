//! `cell` and `semaphore`.

mod common;

use std::io::Write;
use std::process::Stdio;

use common::{Place, Running, code_of, done, end_of, finish, start};
use serde_json::Value;

fn json(place: &Place) -> Value {
    serde_json::from_str(&finish(place.fencelock().args(["cell", "get", "x", "--json"])).1).expect("JSON")
}

/// What `cell set x` says to this on its standard input.
fn set(place: &Place, bytes: &[u8]) -> (i32, String) {
    let mut child: Running = start(
        place
            .fencelock()
            .args(["cell", "set", "x", "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    let mut input = child.stdin.take().expect("its input");
    // It reads no more than it takes.
    let _ = input.write_all(bytes);
    drop(input);
    let code = code_of(end_of(&mut child));
    (code, std::io::read_to_string(child.stdout.take().expect("its output")).expect("text"))
}

// Planted: the version not compared; a newline added; a removed cell with exit code 0.
#[test]
fn a_cell_is_read_and_written_by_its_version() {
    let place = Place::new();
    let run = |args: &[&str]| finish(place.fencelock().arg("cell").args(args));
    assert!(run(&["get", "x"]).2.contains("there was no database"), "the first one makes it");
    assert_eq!(run(&["get", "x"]), (1, String::new(), "fencelock: x has no value\n".to_owned()));
    let (code, first, _) = run(&["set", "x", "-80", "--if-version", "0"]);
    assert_eq!((code, run(&["get", "x"]).1.as_str()), (0, "-80"));
    assert_eq!(
        json(&place),
        serde_json::json!({"name": "x", "version": first.trim().parse::<i64>().ok(), "value": "-80"})
    );
    let (code, out, err) = run(&["set", "x", "9", "--if-version", "0"]);
    assert_eq!((code, out.as_str()), (75, ""));
    assert!(err.contains(first.trim()), "{err}");
    let (code, second, _) = run(&["set", "x", "81", "--if-version", first.trim()]);
    assert_eq!(code, 0);
    assert!(second.trim().parse::<i64>().ok() > first.trim().parse().ok(), "{first} {second}");
    let (code, third, _) = run(&["set", "x", "82"]);
    assert_eq!((code, run(&["get", "x"]).1.as_str()), (0, "82"));
    assert_eq!(run(&["set", "x", "--remove", "--if-version", second.trim()]).0, 75);
    assert_eq!(run(&["set", "x", "--remove", "--if-version", third.trim()]).0, 0);
    assert_eq!((run(&["get", "x"]).0, json(&place)["value"].clone()), (1, Value::Null));
    assert_eq!(run(&["set", "x", "--remove"]).0, 0);
    for bad in [
        &["set", "x", "y", "--remove"][..],
        &["set", "x", "y", "--if-version", "-1"],
        &["get"],
        &["set"],
        &["set", "x", "--remvoe"],
        &["set", "x"],
    ] {
        assert_eq!(run(bad).0, 64, "{bad:?}");
    }
}

// Planted: the value read as text; one byte more than the largest cut off in silence.
#[test]
fn a_value_is_bytes_and_no_more_than_fits() {
    let place = Place::new();
    assert_eq!(set(&place, b"a\xff\n\0").0, 0);
    assert_eq!((json(&place)["hex"].clone(), json(&place)["value"].clone()), ("61ff0a00".into(), Value::Null));
    let most = vec![b'a'; 256 * 1024];
    assert_eq!(set(&place, &most).0, 0);
    assert_eq!(finish(place.fencelock().args(["cell", "get", "x"])).1.len(), most.len());
    assert_eq!(set(&place, &[most.as_slice(), b"b"].concat()), (78, String::new()));
    assert_eq!(finish(place.fencelock().args(["cell", "get", "x"])).1.len(), most.len());
    assert_eq!(set(&place, b"").0, 0);
    assert_eq!(finish(place.fencelock().args(["cell", "get", "x"])), (0, String::new(), String::new()));
}

// Planted: what nobody holds told as free, whatever it is; a size told of those alone that somebody waits for.
#[test]
fn status_tells_what_a_name_is_though_nobody_holds_it() {
    let place = Place::new();
    let status = |name: &str| {
        let (code, out, _) = finish(place.fencelock().args(["status", name]));
        assert_eq!(finish(place.fencelock().args(["status", "-q", name])).0, 1, "{name}");
        (code, out)
    };
    let free = |what: &str| (0, format!("free{what}\n"));
    assert_eq!(status("x"), free(""));
    assert_eq!(set(&place, b"80").0, 0);
    assert_eq!(status("x"), (0, "a cell: it has a value, and nobody can hold it\n".to_owned()));
    assert_eq!(finish(&mut place.run(&["-n"], "true")).0, 78);
    assert_eq!(finish(place.fencelock().args(["cell", "set", "x", "--remove"])).0, 0);
    assert_eq!(status("x"), free(""));
    assert_eq!(finish(&mut place.run(&["-n", "--permits", "1/3"], "true")).0, 0);
    assert_eq!(status("x"), free(", a semaphore of 3"));
    // As whoever names another size is told.
    assert_eq!(finish(&mut place.run(&["-n", "--permits", "1/4"], "true")).0, 78);
    // Nobody has it: it may become anything else.
    assert_eq!(finish(&mut place.run(&["-n"], "true")).0, 0);
    assert_eq!(status("x"), free(""));
}

// Planted: increments by `set` without the version.
#[test]
fn those_who_come_together_lose_no_write() {
    let place = Place::new();
    let script = "for i in $(seq 10); do while :; do \
        o=$($F cell get n --json); v=$(sed 's/.*\"version\":\\([0-9]*\\).*/\\1/' <<< $o); n=$($F cell get n 2>/dev/null || echo 0); \
        [ \"$v\" = \"$(sed 's/.*\"version\":\\([0-9]*\\).*/\\1/' <<< $($F cell get n --json))\" ] || continue; \
        $F cell set n $((n + 1)) --if-version $v >/dev/null 2>&1 && break; done; done";
    let one = || {
        let mut bash = std::process::Command::new("bash");
        start(bash.args(["-c", script]).env("F", common::binary()).env("FENCELOCK_URL", place.url()))
    };
    let all: Vec<_> = (0..3).map(|_| one()).collect();
    all.into_iter().for_each(|one| assert_eq!(done(one), 0));
    assert_eq!(finish(place.fencelock().args(["cell", "get", "n"])).1, "30");
}

// Planted: FROM and TO exchanged.
#[test]
fn a_semaphore_is_resized_for_everybody() {
    let place = Place::new();
    let resize = |from: &str, to: &str| finish(place.fencelock().args(["semaphore", "resize", "x", from, to]));
    let _holder = start(place.run(&["--permits", "1/1"], "echo $$ > $D/job; exec sleep 600").stderr(Stdio::null()));
    place.line("job");
    assert_eq!(finish(&mut place.run(&["-n", "--permits", "1/1"], "true")).0, 75);
    assert_eq!(resize("1", "2"), (0, String::new(), String::new()));
    assert_eq!(resize("1", "2").0, 0, "it may be repeated");
    assert_eq!(finish(&mut place.run(&["-n", "--permits", "1/2"], "true")).0, 0);
    assert_eq!(finish(&mut place.run(&["-n", "--permits", "1/1"], "true")).0, 78);
    let (code, _, err) = resize("7", "9");
    assert_eq!(code, 78);
    assert!(err.contains('2'), "{err}");
    assert_eq!(resize("2", "0").0, 64);
    let (code, _, err) = finish(place.fencelock().args(["cell", "set", "x", "1"]));
    assert_eq!(code, 78, "{err}");
}
