//! `--at-least`: a short job of many hosts runs once, also where clocks differ.

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::pty::Shell;
use common::{Place, code_of, end_of, finish, kill, pid_of, start, until};
use rustix::process::Signal;

const SO_LONG: Duration = Duration::from_secs(5);

fn is_free(place: &Place) -> bool {
    finish(place.fencelock().args(["status", "-q", "x"])).0 == 1
}

// Planted: released when the job ends; the code lost on the way.
#[test]
fn the_lock_outlives_a_short_job() {
    let place = Place::new();
    let began = Instant::now();
    let mut run = start(&mut place.run(&["--at-least", "5s"], "echo $$ > $D/job; exit 7"));
    place.line("job");
    until("the job's end", || (!common::lives(place.pid("job").as_raw_pid())).then_some(()));
    assert_eq!(finish(&mut place.run(&["-n"], "true")).0, 75);
    assert_eq!(code_of(end_of(&mut run)), 7);
    assert!(began.elapsed() >= SO_LONG, "{:?}", began.elapsed());
    // It was given back, and not left to its lease.
    assert!(is_free(&place));
    // A job that takes longer is not kept.
    let (code, ..) = finish(&mut place.run(&["--at-least", "10ms"], "sleep 0.1"));
    assert!(code == 0 && is_free(&place));
}

// Planted: the wait for the end deaf to signals; the lock given back early.
#[test]
fn a_signal_ends_the_wait_and_the_lock_stays_taken() {
    let place = Place::new();
    let began = Instant::now();
    let mut run = start(&mut place.run(&["--at-least", "5s"], "echo $$ > $D/job"));
    place.line("job");
    until("the job's end", || (!common::lives(place.pid("job").as_raw_pid())).then_some(()));
    let pid = pid_of(&run);
    until("its end", || {
        kill(pid.as_raw_pid(), Signal::TERM);
        run.try_wait().expect("a child to wait for")
    });
    assert!(began.elapsed() < SO_LONG, "{:?}", began.elapsed());
    let (code, ..) = finish(&mut place.run(&["-w", "60s"], "true"));
    assert_eq!(code, 0);
    assert!(began.elapsed() >= SO_LONG, "{:?}", began.elapsed());
}

// Planted: a lock that was broken meanwhile told as lost by a job that had ended.
#[test]
fn what_is_taken_away_after_the_job_costs_it_nothing() {
    let place = Place::new();
    let mut run = start(place.run(&["--at-least", "20s"], "echo $$ > $D/job").stderr(Stdio::piped()));
    place.line("job");
    until("the job's end", || (!common::lives(place.pid("job").as_raw_pid())).then_some(()));
    // Its wrapper sees that, too, before it has any reason to stop it.
    place.alone();
    let token = place.token();
    assert_eq!(finish(place.fencelock().args(["release", "x", "--force", "--token", &token])).0, 0);
    assert_eq!(code_of(end_of(&mut run)), 0);
    // Longer than the lease, or than it may be held; and a command that is not there.
    assert_eq!(finish(&mut place.run(&["--at-least", "3s", "--max-hold", "2s"], "true")).0, 78);
    assert_eq!(finish(&mut place.run(&["--at-least", "31s"], "true")).0, 78);
    let mut none = place.fencelock();
    assert_eq!(finish(none.args(["run", "y", "--at-least", "10ms", "--", "/no/such/command"])).0, 127);
    assert_eq!(finish(place.fencelock().args(["status", "-q", "y"])).0, 1);
}

// Planted: a run that has joined ends with its job.
#[test]
fn one_that_joins_keeps_the_outer_one() {
    let place = Place::new();
    let began = Instant::now();
    let mut outer = place.run(&[], "$F run x --reentrant --at-least 5s -- true; exit 3");
    assert_eq!(finish(outer.env("F", common::binary())).0, 3);
    assert!(began.elapsed() >= SO_LONG, "{:?}", began.elapsed());
}

// Planted: Ctrl-C taken for the job's own end.
#[test]
fn ctrl_c_in_the_wait_ends_a_loop() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    let script = "for i in 1 2; do $F run x --at-least 20s -- bash -c 'echo Turn:$0; echo yes >> $D/turns' $i; done\n";
    std::fs::write(place.path("loop"), script).expect("a script");
    shell.line("bash loop");
    shell.expect("Turn:1");
    // Until then the job would die of it.
    until("its turn", || (!place.read("turns").is_empty()).then_some(()));
    place.alone();
    shell.keys("\x03");
    shell.expect("> ");
    shell.line("echo code:$? | tr c C");
    shell.expect("Code:130");
    assert_eq!(place.read("turns"), "yes\n");
}
