//! SQLite where something has run out: descriptors, or the room on a disk. And files that only another file system or another version
//! of ours knows what to do with.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::spaces::{CONTAINER, elsewhere};
use common::{
    Place, STUCK, cannot_run, code_of, end_of, finish, finish_within, minder_of, not_run, pid_of, start, until,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// A job that goes on until the file `held` is gone.
const HOLD: &str = "touch $D/held; while [ -e $D/held ]; do sleep 0.02; done";

fn descriptors(pid: Pid, limit: u64) {
    let limit = Rlimit { current: Some(limit), maximum: Some(1024) };
    prlimit(Some(pid), Resource::Nofile, limit).expect("a limit");
}

fn is_held(place: &Place) {
    until("it is held", || place.path("held").exists().then_some(()));
}

/// Nobody holds, nobody waits, and no session has left a file.
fn nothing_is_left(place: &Place) {
    let (code, out, err) = finish(place.fencelock().arg("list"));
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    let left = || fs::read_dir(place.path("locks.db.d")).map_or(0, |files| files.count());
    until("the files of sessions are gone", || (left() == 0).then_some(()));
}

/// The lease of `x` has been renewed so often.
fn renewed(place: &Place, times: usize) {
    let (mut before, mut seen) = (u64::MAX, 0);
    until("it is renewed", || {
        let (_, out, _) = finish(place.fencelock().args(["status", "x", "--json"]));
        let status: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        let left = status["holders"][0]["remaining_ms"].as_u64().expect("it is held");
        seen += usize::from(left > before);
        before = left;
        (seen >= times).then_some(())
    });
}

// Planted: the hint only where a session's files are made.
#[test]
fn whoever_has_no_descriptors_to_begin_with_is_told_so() {
    let place = Place::new();
    assert_eq!(finish(&mut place.run(&[], "true")).0, 0);
    let commands = ["run x -- bash -c 'exit 5'", "status x", "list", "cell set c 1", "semaphore resize s 1 2"];
    for command in commands {
        let mut could = 0;
        // Some of these numbers are each place where the last one may be wanted.
        for n in [4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17, 19, 23, 24, 25, 26, 27, 40] {
            let mut bash = Command::new("bash");
            bash.args(["-c", &format!("ulimit -n {n}; exec \"$F\" {command}")]);
            bash.env("F", common::binary()).env("FENCELOCK_URL", place.url()).stdin(Stdio::null());
            let (code, out, err) = finish(&mut bash);
            if matches!(code, 69 | 70) {
                assert!(err.contains("ulimit -n") && err.lines().count() <= 2, "{n} {command}: {err}");
                assert_eq!(out, "", "{n} {command}");
            } else {
                // Nobody has made that semaphore.
                assert!(matches!(code, 0 | 5 | 78) && !err.contains("open files"), "{n} {command}: {code} {err}");
                could += 1;
            }
        }
        assert!((1..18).contains(&could), "{command}: {could}");
    }
    assert_eq!(finish(place.fencelock().args(["cell", "set", "c", "--remove"])).0, 0);
    nothing_is_left(&place);
}

// Planted: a heartbeat that opens a file.
#[test]
fn what_is_held_stays_renewed_and_is_given_back_without_a_descriptor() {
    let place = Place::new();
    let mut holder = start(&mut place.run(&["--ttl", "6s"], HOLD));
    is_held(&place);
    let wrapper = pid_of(&holder);
    descriptors(wrapper, 3);
    descriptors(minder_of(wrapper), 3);
    renewed(&place, 3);
    assert_eq!(finish(&mut place.run(&["-n"], "true")).0, 75);
    let mut waiter = start(&mut place.run(&["--ttl", "10m"], "exit 5"));
    place.waiting(1);
    fs::remove_file(place.path("held")).expect("it is held");
    assert_eq!((code_of(end_of(&mut holder)), code_of(end_of(&mut waiter))), (0, 5));
    nothing_is_left(&place);
}

// Planted: no word of the descriptors where a job wants one.
#[test]
fn whoever_waits_without_a_descriptor_gets_it_or_says_so() {
    let place = Place::new();
    for (again, dies) in [(false, false), (true, false), (true, true)] {
        place.clear();
        let mut holder = start(&mut place.run(&["--ttl", "10m"], HOLD));
        is_held(&place);
        let mut waiter = start(place.run(&["--ttl", "10m"], "exit 5").stderr(Stdio::piped()));
        place.waiting(1);
        descriptors(pid_of(&waiter), 3);
        let mut third = start(&mut place.run(&["--ttl", "10m"], "exit 6"));
        place.waiting(2);
        if again {
            descriptors(pid_of(&waiter), 1024);
        }
        if dies {
            holder.kill().expect("a child to kill");
        } else {
            fs::remove_file(place.path("held")).expect("it is held");
        }
        end_of(&mut holder);
        let code = code_of(end_of(&mut waiter));
        let said = std::io::read_to_string(waiter.stderr.take().expect("its messages")).expect("text");
        assert_eq!(code, if again { 5 } else { 69 }, "{said}");
        assert!(again || said.contains("ulimit -n"), "{said}");
        assert_eq!(code_of(end_of(&mut third)), 6);
        nothing_is_left(&place);
    }
    // Who has no job needs none.
    place.clear();
    let mut holder = start(&mut place.run(&["--ttl", "10m"], HOLD));
    is_held(&place);
    let mut waiter = start(place.fencelock().args(["hold", "x"]).stdout(Stdio::piped()).stdin(Stdio::piped()));
    place.waiting(1);
    descriptors(pid_of(&waiter), 3);
    fs::remove_file(place.path("held")).expect("it is held");
    assert_eq!(code_of(end_of(&mut holder)), 0);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(waiter.stdout.take().expect("its output")), &mut line)
        .expect("a line");
    assert!(line.contains("\"token\":"), "{line}");
    drop(waiter.stdin.take());
    assert_eq!(code_of(end_of(&mut waiter)), 0);
    nothing_is_left(&place);
}

/// A disk of 600 kB, `$D/small`, for as long as the script runs; `full` and `room` are its states.
fn on_a_small_disk(place: &Place, script: &str) -> Command {
    let ready = "mkdir -p $D/small && mount -t tmpfs -o size=600k none $D/small || exit 99
        export FENCELOCK_URL=sqlite:$D/small/locks.db
        full() { dd if=/dev/zero of=$D/small/fill bs=1k 2>/dev/null; }
        room() { rm $D/small/fill; }
        there() { while [ ! -e $1 ]; do sleep 0.01; done; }
        waits() { until \"$F\" status x --json | grep -q '\"position\":1'; do sleep 0.01; done; }
        job='touch $D/held; while [ -e $D/held ]; do sleep 0.02; done'";
    elsewhere(place, CONTAINER, &format!("{ready}\n{script}"))
}

/// Whether there is such a disk. What is not allowed here says so.
fn has_a_small_disk(place: &Place) -> bool {
    let there = finish(&mut on_a_small_disk(place, "true")).0 == 0;
    if !there {
        cannot_run("there is no file system of its own to be had");
    }
    there
}

// Planted: the reason of the refusals not kept for whoever gives up.
#[test]
fn a_disk_that_fills_up_while_it_is_held_and_waited_for() {
    let place = Place::on_disk();
    if !has_a_small_disk(&place) {
        return;
    }
    let script = r#"
        "$F" run x --ttl 10m -- bash -c "$job; exit 5" & holder=$!
        there $D/held
        "$F" run x --ttl 10m -- bash -c 'echo $FENCELOCK_TOKEN > $D/next; exit 6' & waiter=$!
        waits
        full
        "$F" run -n y -- touch $D/ran 2> $D/now; echo $? >> $D/now
        "$F" run -w 1s y -- touch $D/ran 2> $D/soon; echo $? >> $D/soon
        "$F" cell set c 1 2> $D/cell; echo $? >> $D/cell
        { "$F" status x && "$F" list; echo $?; } > $D/looks
        rm $D/held
        # The job has ended, and nobody has the lock before that is written.
        until [ "$(pgrep -P $(pgrep -P $holder))" = '' ]; do sleep 0.01; done
        [ -e $D/next ] && exit 98
        room
        wait $holder; echo $? > $D/codes
        wait $waiter; echo $? >> $D/codes
        "$F" list > $D/left; ls small/locks.db.d >> $D/left"#;
    let (code, _, err) = finish_within(&mut on_a_small_disk(&place, script), 6 * STUCK);
    assert_eq!(code, 0, "{err}");
    for (name, code) in [("now", "69"), ("soon", "69"), ("cell", "69")] {
        let said = place.read(name);
        assert!(said.contains("the disk is full") && said.contains("make room"), "{name}: {said}");
        assert_eq!(said.lines().last(), Some(code), "{name}: {said}");
    }
    let looks = place.read("looks");
    assert!(looks.starts_with("held ") && looks.contains("x: held ") && looks.ends_with("\n0\n"), "{looks}");
    assert_eq!((place.read("codes").as_str(), place.read("left").as_str()), ("5\n6\n", ""));
    assert!(!place.path("ran").exists());
}

// Planted: no word of the disk where a release was not confirmed.
#[test]
fn a_disk_that_is_full_at_the_end() {
    let place = Place::on_disk();
    if !has_a_small_disk(&place) {
        return;
    }
    // Room comes after the end of the lease; and whoever gives up meanwhile leaves no place.
    let script = r#"
        "$F" run x --ttl 15s -- bash -c "$job; exit 5" 2> $D/said & holder=$!
        there $D/held
        "$F" run x -- touch $D/ran & waiter=$!
        waits
        full
        rm $D/held
        kill $waiter; wait $waiter; echo $? > $D/codes
        wait $holder; echo $? >> $D/codes
        room
        "$F" run -w 60s x -- true; echo $? >> $D/codes
        until [ "$("$F" list; ls $D/small/locks.db.d)" = '' ]; do sleep 0.02; done"#;
    let (code, _, err) = finish_within(&mut on_a_small_disk(&place, script), 6 * STUCK);
    assert_eq!(code, 0, "{err}");
    assert_eq!(place.read("codes"), "143\n5\n0\n", "{}", place.read("said"));
    let said = place.read("said");
    assert!(said.contains("could not be released") && said.contains("the disk is full"), "{said}");
    assert!(!place.path("ran").exists());
}

// Planted: FUSE taken for a good one.
#[test]
fn a_fuse_mount_is_refused_and_works_where_it_is_trusted() {
    let place = Place::on_disk();
    fs::create_dir(place.path("under")).expect("a directory");
    fs::create_dir(place.path("fuse")).expect("a directory");
    std::os::unix::fs::symlink(place.path("fuse/locks.db"), place.path("link.db")).expect("a link");
    let mounted = |script: &str| elsewhere(&place, CONTAINER, &format!("bindfs $D/under $D/fuse || exit 99\n{script}"));
    if !Path::new("/dev/fuse").exists() {
        return not_run("there is no /dev/fuse");
    }
    let (code, _, err) = finish(&mut mounted("true"));
    if code != 0 {
        return not_run(&format!("nothing can be mounted by way of /dev/fuse: {err}"));
    }
    let trusted = r#"
        for file in fuse/locks.db fuse/deep/er/locks.db link.db; do
            "$F" --url sqlite:$D/$file run x -- touch $D/ran 2> $D/said; echo $? >> $D/said
            cat $D/said >> $D/refused
        done
        [ "$(ls -A $D/under)" = '' ] || exit 98
        export FENCELOCK_URL="sqlite:$D/fuse/locks.db?filesystem=trust"
        waits() { until "$F" status x --json | grep -q '"position":1'; do sleep 0.01; done; }
        hold() {
            "$F" run x --ttl 10m -- bash -c 'touch $D/held; while [ -e $D/held ]; do sleep 0.02; done' & holder=$!
            while [ ! -e $D/held ]; do sleep 0.01; done
            "$F" run -n x -- touch $D/ran; echo $? >> $D/codes
            "$F" run x --ttl 10m -- bash -c 'echo $FENCELOCK_TOKEN >> $D/tokens; exit 6' & waiter=$!
            waits
        }
        hold; rm $D/held; wait $holder; echo $? >> $D/codes; wait $waiter; echo $? >> $D/codes
        hold; kill -9 $holder; rm $D/held; wait $waiter; echo $? >> $D/codes
        "$F" list > $D/left"#;
    let (code, _, err) = finish_within(&mut mounted(trusted), 3 * STUCK);
    assert_eq!(code, 0, "{err}");
    let refused = place.read("refused");
    assert_eq!((refused.lines().count(), refused.matches("\n78\n").count()), (6, 3), "{refused}");
    assert_eq!(refused.matches("(file system FUSE)").count(), 3, "{refused}");
    assert_eq!(place.read("codes"), "75\n0\n6\n75\n6\n");
    let tokens: Vec<i64> = place.read("tokens").lines().map(|token| token.parse().expect("a token")).collect();
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{tokens:?}");
    assert_eq!(place.read("left"), "");
    assert!(!place.path("ran").exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(&*place.path("fuse").to_string_lossy()), "it is mounted still");
}

// Planted: a newer layout taken for ours.
#[test]
fn a_database_of_a_newer_version_is_left_to_it() {
    let place = Place::new();
    assert_eq!(finish(&mut place.run(&[], "true")).0, 0);
    place.sql("UPDATE fencelock_meta SET layout = 99; PRAGMA wal_checkpoint(TRUNCATE)");
    let before = place.sql(".dump");
    let commands: [&[&str]; 8] = [
        &["run", "x", "--", "touch", "ran"],
        &["hold", "x"],
        &["status", "x"],
        &["list"],
        &["release", "x", "--force", "--token", "7"],
        &["cell", "get", "c"],
        &["cell", "set", "c", "1"],
        &["semaphore", "resize", "s", "1", "2"],
    ];
    for command in commands {
        let (code, out, err) = finish(place.fencelock().args(command));
        assert_eq!((code, out.as_str(), err.lines().count()), (78, "", 1), "{command:?}: {err}");
        for says in ["layout 99", "the version of fencelock that wrote it", "locks.db"] {
            assert!(err.contains(says), "{command:?}: {err}");
        }
    }
    assert!(!place.path("ran").exists());
    assert_eq!(place.sql(".dump"), before);
    assert_eq!(fs::read_dir(place.path("locks.db.d")).map_or(0, |files| files.count()), 0);
}

// Planted: the look at /proc left out. Some had no job to see, and ended while it ran.
#[test]
fn nobody_runs_a_job_that_cannot_be_seen() {
    let place = Place::on_disk();
    // Processes of its own, and the /proc of others.
    let blind = |script: &str| elsewhere(&place, "-mpf --kill-child", script);
    if finish(&mut blind("true")).0 != 0 {
        return cannot_run("there are no processes of its own to be had");
    }
    let (code, out, err) = finish(&mut blind("exec \"$F\" run x -- touch $D/ran"));
    assert_eq!((code, out.as_str(), err.lines().count()), (78, "", 2), "{err}");
    assert!(err.contains("/proc") && err.contains("--mount-proc"), "{err}");
    assert!(!place.path("ran").exists());
    let mut holder = start(blind("exec \"$F\" hold x").stdout(Stdio::piped()).stdin(Stdio::piped()));
    until("it is held", || (finish(place.fencelock().args(["status", "-q", "x"])).0 == 0).then_some(()));
    let began = Instant::now();
    drop(holder.stdin.take());
    assert_eq!(code_of(end_of(&mut holder)), 0);
    assert!(began.elapsed() < Duration::from_secs(15));
    assert_eq!(finish(&mut place.run(&["-n"], "true")).0, 0);
}
