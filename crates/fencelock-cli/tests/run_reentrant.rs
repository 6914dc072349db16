//! Story: a script that takes a lock can be called from one that holds it. `run --reentrant` joins the outer run: it acquires
//! nothing, releases nothing, and its job is dead before anybody else gets the lock, whatever ends the outer hold. Without an
//! outer run it is a run like any other (SAFETY A4).
//!
//! Planted to see it red: no outer run ever found; an outer run that this process is not below; every mode covered by every
//! other; the end of the hold looked at once; the mark of an outer run with `warn` not told, or not passed on;
//! FENCELOCK_OUTER not told; a hold that is gone taken for no outer run; the token not compared; the token told to a reader
//! below a writer; a minder that does not care for the end of the link; no KILL on a loss and no backstop. A stopped outer
//! wrapper is red only with TERM and KILL for the lease and the backstop of the nested wrapper left out together.

mod common;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{
    BEATS, NEXT, Place, Running, binary, code_of, end_of, finish, finish_within, granted, kill, pid_of, start, until,
};
use rustix::process::Signal;

/// `fencelock run x OPTIONS` of a bash script that knows the binary as `$F` and the nested job as `$J`.
fn outer(place: &Place, options: &[&str], script: &str, job: &str) -> Command {
    let mut command = place.run(options, script);
    command.env("F", binary()).env("J", job);
    command
}

/// The environment that a job of `run x OPTIONS` had, as `KEY=VALUE`.
fn environment(place: &Place, name: &str) -> Vec<(String, String)> {
    let pairs = place.read(name);
    let ours = pairs.lines().filter(|line| line.starts_with("FENCELOCK_"));
    ours.filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

const TELL: &str = "echo $FENCELOCK_NAME,$FENCELOCK_HOLD,$FENCELOCK_TOKEN,$FENCELOCK_MODE,$FENCELOCK_TTL_MS";

#[test]
fn it_joins_and_neither_acquires_nor_releases() {
    let place = Place::new();
    let nested = format!("{TELL} > $D/inner; \"$F\" status x --json > $D/status; exit 7");
    let script = format!(
        "{TELL} > $D/outer; \"$F\" run --reentrant x -- bash -c \"$J\"; echo $? > $D/code
\"$F\" run --reentrant -n --ttl 1s x -- \"$F\" run --reentrant x -- bash -c 'exit 9'; echo $? > $D/again; read"
    );
    let mut holder = start(outer(&place, &["--ttl", "6s"], &script, &nested).stdin(Stdio::piped()));
    assert_eq!((place.line("code"), place.line("again")), ("7".into(), "9".into()));
    assert_eq!(place.read("inner"), place.read("outer"));
    let object: serde_json::Value = serde_json::from_str(&place.read("status")).expect("JSON");
    let (holders, waiters) = (object["holders"].as_array(), object["waiters"].as_array());
    assert_eq!((holders.map(Vec::len), waiters.map(Vec::len)), (Some(1), Some(0)), "{object}");
    assert_eq!(object["holders"][0]["pid"], holder.id());
    // What the nested runs left is the outer one's hold.
    assert_eq!(finish(&mut place.run(&["-n"], "echo > $D/ran")).0, 75);
    assert_eq!(place.token(), place.read("outer").split(',').nth(2).expect("a token"));
    drop(holder.stdin.take());
    end_of(&mut holder);
    assert_eq!(finish(&mut place.run(&["-n"], "exit 4")).0, 4);
    assert_eq!(place.read("ran"), "");
}

#[test]
fn without_an_outer_run_of_that_name_and_engine_it_is_an_ordinary_one() {
    let place = Place::new();
    let mine = |script: &str| finish(&mut place.run(&["--reentrant", "-n"], script));
    assert_eq!(mine("exit 5").0, 5);
    let mut holder = start(place.run(&["--reentrant"], "echo > $D/held; read").stdin(Stdio::piped()));
    place.line("held");
    assert_eq!(mine("exit 5").0, 75);
    drop(holder.stdin.take());
    end_of(&mut holder);
    let other = format!("sqlite:{}", place.path("other.db").display());
    for options in [format!("--url {other} x"), "--namespace other x".to_owned(), "y".to_owned()] {
        let status = format!("\"$F\" status {options} --json");
        let script = format!("echo $FENCELOCK_HOLD; \"$F\" run --reentrant {options} -- bash -c \"$J\"");
        let (code, out, err) = finish(&mut outer(&place, &[], &script, &format!("echo $FENCELOCK_HOLD; {status}")));
        assert_eq!(code, 0, "{err}");
        let lines: Vec<&str> = out.lines().collect();
        assert_ne!(lines[0], lines[1], "{options}");
        assert!(lines[2].contains(lines[1]), "{out}");
    }
    // Around it there are others between.
    let stack = "\"$F\" run y -- \"$F\" run z -- bash -c \"$J\"";
    let joins = format!("\"$F\" run --reentrant x -- bash -c '{TELL}'; \"$F\" run --reentrant y -- bash -c '{TELL}'");
    let (code, out, err) = finish(&mut outer(&place, &[], &format!("{TELL}; {stack}"), &joins));
    assert_eq!(code, 0, "{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, lines[1]), "{out}");
    assert!(lines[2].starts_with("y,"), "{out}");
}

#[test]
fn a_hold_that_is_gone_or_held_elsewhere_is_not_joined() {
    let place = Place::new();
    let holder = start(place.run(&[], "env > $D/env.new; mv $D/env.new $D/env; read").stdin(Stdio::piped()));
    until("its environment", || place.path("env").exists().then_some(()));
    let join = || {
        let mut command = place.run(&["--reentrant"], "echo > $D/ran");
        command.envs(environment(&place, "env"));
        finish(&mut command)
    };
    // It has what the job was told, and is not below it: nobody would end it in time.
    let (code, _, err) = join();
    assert_eq!(code, 78, "{err}");
    assert!(
        err.starts_with("fencelock: cannot join x: this process is not below the run that holds it, pid "),
        "{err}"
    );
    assert_eq!(err.lines().count(), 2, "{err}");
    drop(holder);
    until("its end", || (finish(place.fencelock().args(["status", "-q", "x"])).0 == 1).then_some(()));
    let (code, _, err) = join();
    assert_eq!((code, err.as_str()), (76, "fencelock: the outer run does not hold x any more\n"));
    // Somebody else has it by now.
    let _next = start(place.run(&[], "echo > $D/held; sleep 600").stderr(Stdio::null()));
    place.line("held");
    assert_eq!(join().0, 76);
    // In its place, with another token, or without a hold that could be one.
    for change in ["FENCELOCK_TOKEN=1", "FENCELOCK_HOLD=7", "FENCELOCK_HOLD=00000000000000000000000000000007"] {
        let place = Place::new();
        let script = format!("{change} \"$F\" run --reentrant -w 5s x -- bash -c \"$J\"");
        let (code, _, err) = finish(&mut outer(&place, &[], &script, "echo > $D/ran"));
        assert_eq!(code, 76, "{change}: {err}");
        assert_eq!(place.read("ran"), "");
    }
    assert_eq!(place.read("ran"), "");
}

#[test]
fn what_the_outer_hold_does_not_cover_is_refused() {
    let place = Place::new();
    let modes = ["", "-s", "--write", "--permits 1/3", "--permits 2/3", "--permits 2/4"];
    let joins: [(&[&str], [bool; 6]); 4] = [
        (&[], [true, false, false, false, false, false]),
        (&["-s"], [false, true, false, false, false, false]),
        (&["--write"], [false, true, true, false, false, false]),
        (&["--permits", "2/3"], [false, false, false, true, true, false]),
    ];
    for (options, expected) in joins {
        let nested = |mode: &&str| {
            let script = format!("\"$F\" run --reentrant -w 5s {mode} x -- bash -c \"$J\"");
            let job = "echo $FENCELOCK_MODE,${FENCELOCK_TOKEN:+told}; exit 5";
            let (code, out, err) = finish(&mut outer(&place, options, &script, job));
            assert!(matches!(code, 5 | 78), "{options:?} {mode}: {code} {err}");
            assert!(code == 5 || (err.starts_with("fencelock: cannot join x: ") && out.is_empty()), "{err}");
            let told = match *mode {
                "" => "mutex,told\n",
                "-s" => "read,\n",
                "--write" => "write,told\n",
                _ => "permits,\n",
            };
            assert!(code == 78 || out == told, "{options:?} {mode}: {out}");
            code == 5
        };
        let joined: Vec<bool> = modes.iter().map(nested).collect();
        assert_eq!(joined, expected, "{options:?}");
    }
}

#[test]
fn it_goes_on_for_as_long_as_the_outer_hold_is_renewed() {
    let place = Place::new();
    let deaf = "trap 'echo > $D/termed' TERM; exec 9<> <(:); for i in {1..100}; do read -t 0.1 -u 9; done; exit 5";
    // No TERM comes before the KILL: a machine that is busy for some 100 ms ends nothing.
    let script = "\"$F\" run --reentrant --grace 50ms x -- bash -c \"$J\"";
    for between in ["", "\"$F\" run --ttl 20s y -- "] {
        let options = ["--ttl", "6s", "--grace", "50ms"];
        let mut run = outer(&place, &options, &format!("{between}{script}"), deaf);
        let (code, _, err) = finish_within(&mut run, Duration::from_secs(60));
        assert_eq!((code, place.read("termed").as_str()), (5, ""), "{between}: {err}");
    }
}

#[test]
fn signals_and_max_hold_are_its_own() {
    let place = Place::new();
    let reads = "read -t 0.01 -u 9";
    // It has its descriptor, and has read, before it says that it is there: a bash may lose a signal until then.
    let nested =
        &format!("trap 'exit 40' TERM; exec 9<> <(:); {reads}; echo $PPID > $D/minder; while :; do {reads}; done");
    let script = r#""$F" run --reentrant x -- bash -c "$J" & echo $! > $D/wrapper; wait $!; echo $? > $D/code
"$F" run --reentrant --max-hold 200ms x -- bash -c "trap '' TERM; while :; do sleep 0.01; done" 2> $D/said
echo $? > $D/held; exit 6"#;
    let mut holder = start(&mut outer(&place, &[], script, nested));
    place.line("minder");
    kill(place.pid("wrapper").as_raw_pid(), Signal::TERM);
    assert_eq!((place.line("code"), place.line("held")), ("40".into(), "76".into()));
    assert!(place.read("said").contains("--max-hold"), "{}", place.read("said"));
    assert_eq!(code_of(end_of(&mut holder)), 6);
}

/// A job that is hard to kill, joined to an outer run, and who waits behind it.
fn joined(place: &Place, options: &[&str]) -> (Running, Running) {
    // A shell that has nothing more to do would become the nested run.
    let script = "\"$F\" run --reentrant x -- bash -c \"$J\"; exit $?";
    let holder = start(outer(place, options, script, BEATS).stderr(Stdio::null()));
    place.line("ready");
    let next = start(&mut place.run(&[], NEXT));
    place.waiting(1);
    (holder, next)
}

fn dead_before_the_next(place: &Place, next: &mut Running) {
    assert_eq!(code_of(end_of(next)), 0);
    assert!(
        place.last_beat() < granted(place),
        "a beat {} µs after the next grant",
        place.last_beat() - granted(place)
    );
    assert_eq!(place.beating(), [0; 0], "they live");
}

#[test]
fn whatever_ends_the_outer_hold_ends_its_job_before() {
    for round in 0..4 {
        let place = Place::new();
        let lease = if round == 0 { "5s" } else { "10m" };
        let (mut holder, mut next) = joined(&place, &["--ttl", lease]);
        let wrapper = pid_of(&holder);
        match round {
            // It renews nothing any more.
            0 => common::stop_wrapper(&place, wrapper),
            1 => kill(wrapper.as_raw_pid(), Signal::KILL),
            2 => kill(common::minder_of(wrapper).as_raw_pid(), Signal::KILL),
            // The shell between the two: the nested run loses its parent.
            _ => kill(above(&place, 3), Signal::KILL),
        }
        dead_before_the_next(&place, &mut next);
        kill(wrapper.as_raw_pid(), Signal::CONT);
        let code = code_of(end_of(&mut holder));
        assert_eq!(code, [76, 137, 76, 137][round]);
    }
}

/// Above the nested job are its minder, its wrapper, and the shell that is the outer job.
fn above(place: &Place, steps: usize) -> i32 {
    (0..steps).fold(place.pid("job").as_raw_pid(), |pid, _| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
        let (_, rest) = stat.rsplit_once(')').expect("a name");
        rest.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a parent")
    })
}

#[test]
fn its_own_processes_may_die_and_the_outer_run_goes_on() {
    for (steps, code) in [(1, "76"), (2, "137")] {
        let place = Place::new();
        let script = "\"$F\" run --reentrant x -- bash -c \"$J\"; echo $? > $D/code; read; exit 6";
        let mut holder = start(outer(&place, &[], script, BEATS).stdin(Stdio::piped()).stderr(Stdio::null()));
        place.line("ready");
        kill(above(&place, steps), Signal::KILL);
        assert_eq!(place.line("code"), code);
        until("the end of its job", || place.beating().is_empty().then_some(()));
        assert_eq!(finish(&mut place.run(&["-n"], "echo > $D/ran")).0, 75);
        drop(holder.stdin.take());
        assert_eq!(code_of(end_of(&mut holder)), 6);
    }
}

#[test]
fn a_hold_that_is_taken_away_takes_its_job_along() {
    let place = Place::new();
    let (mut holder, mut next) = joined(&place, &[]);
    let token = place.token();
    assert_eq!(finish(place.fencelock().args(["release", "x", "--force", "--token", &token])).0, 0);
    assert_eq!(code_of(end_of(&mut holder)), 76);
    assert_eq!(place.beating(), [0; 0]);
    assert_eq!(code_of(end_of(&mut next)), 0);
}

/// Its job may end, and the lock be released, and all below it goes on.
#[test]
fn the_hold_of_a_run_that_only_warns_is_not_joined() {
    let place = Place::new();
    let nested = "\"$F\" run --reentrant x -- bash -c \"$J\"";
    for between in ["", "\"$F\" run y -- "] {
        let script = format!("{between}{nested}");
        let (code, _, err) = finish(&mut outer(&place, &["--on-loss", "warn"], &script, "echo > $D/ran"));
        assert_eq!(code, 78, "{err}");
        let why = "fencelock: cannot join x: the run that holds it has --on-loss warn, and stops nobody\n";
        assert!(err.starts_with(why) && err.lines().count() == 2, "{err}");
    }
    // It is not proposed either.
    let (_, _, err) = finish(&mut outer(&place, &["--on-loss", "warn"], "\"$F\" run -n x -- true", ""));
    assert!(err.ends_with("which waits for this one\n"), "{err}");
    assert_eq!(place.read("ran"), "");
    // One that warns and has joined holds nothing: what it is part of stops all below it.
    let script = format!("\"$F\" run --reentrant --on-loss warn x -- {nested}");
    assert_eq!(finish(&mut outer(&place, &[], &script, "exit 5")).0, 5);
}

#[test]
fn whoever_waits_for_itself_is_told() {
    let place = Place::new();
    let hint = "hint: it is held by the run that this one is part of";
    let joins = format!("{hint}: --reentrant joins it\n");
    let never = format!("{hint}, which waits for this one\n");
    let cases: [(&[&str], &str, &str); 3] =
        [(&[], "-n x", &joins), (&["-s"], "-n --write x", &never), (&[], "-w 4s x", &joins)];
    for (options, nested, said) in cases {
        let script = format!("\"$F\" run {nested} -- true");
        let (code, _, err) = finish(&mut outer(&place, options, &script, ""));
        assert_eq!(code, 75, "{err}");
        assert!(err.ends_with(said), "{err}");
        // In the middle of the wait, without a terminal too.
        assert_eq!(err.starts_with("waiting for x: held "), nested.starts_with("-w"), "{err}");
    }
    let (_, _, err) = finish(&mut outer(&place, &[], "\"$F\" run y -- \"$F\" run -n x -- true", ""));
    assert!(err.ends_with(&joins), "{err}");
}
