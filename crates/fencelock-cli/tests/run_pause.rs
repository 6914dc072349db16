//! Paused processes: the job is dead before its lease ends, whoever was asleep.

mod common;

use std::process::Stdio;

use common::{
    BEATS, NEXT, Place, Running, code_of, end_of, granted, kill, minder_of, now_micros, pid_of, start, stopped, until,
};
use rustix::process::{Pid, Signal};

fn holder(place: &Place) -> Running {
    let holder = start(place.run(&["--ttl", "900ms"], BEATS).stderr(Stdio::null()));
    place.line("ready");
    holder
}

fn stop(pid: Pid) {
    kill(pid.as_raw_pid(), Signal::STOP);
    until("it is stopped", || stopped(pid).then_some(()));
}

// Planted: the minder without a timer of its own.
#[test]
fn the_wrapper_alone_is_stopped_past_its_lease() {
    let place = Place::new();
    let mut holder = holder(&place);
    let mut next = start(&mut place.run(&[], NEXT));
    stop(pid_of(&holder));
    assert_eq!(code_of(end_of(&mut next)), 0);
    assert!(place.last_beat() < granted(&place));
    assert_eq!(place.beating(), [0; 0]);
    kill(pid_of(&holder).as_raw_pid(), Signal::CONT);
    assert_eq!(code_of(end_of(&mut holder)), 76);
}

// Planted: the minder looks at the clock only when its timer rings.
#[test]
fn all_three_are_stopped_and_the_job_goes_on_first() {
    let place = Place::new();
    let mut holder = holder(&place);
    let wrapper = pid_of(&holder);
    let minder = minder_of(wrapper);
    let jobs = place.beating();
    for pid in [wrapper, minder] {
        stop(pid);
    }
    for &pid in &jobs {
        kill(pid, Signal::STOP);
    }
    let mut next = start(&mut place.run(&[], NEXT));
    assert_eq!(code_of(end_of(&mut next)), 0);
    for &pid in &jobs {
        kill(pid, Signal::CONT);
    }
    kill(minder.as_raw_pid(), Signal::CONT);
    kill(wrapper.as_raw_pid(), Signal::CONT);
    let last = now_micros();
    assert_eq!(code_of(end_of(&mut holder)), 76);
    assert_eq!(place.beating(), [0; 0]);
    println!("the last beat came {} µs after the last CONT", place.last_beat().saturating_sub(last));
}

// Planted: the wrapper waits for its minder for ever.
#[test]
fn the_minder_alone_is_stopped_and_the_wrapper_renews() {
    let place = Place::new();
    let mut holder = holder(&place);
    let minder = minder_of(pid_of(&holder));
    stop(minder);
    let since = now_micros();
    // Past its lease: the job beats on, since the wrapper renews.
    until("beats past the lease", || (place.last_beat() > since + 1_500_000).then_some(()));
    // What the minder knew has passed, and on waking it learns first that there is more.
    kill(minder.as_raw_pid(), Signal::CONT);
    let since = now_micros();
    until("beats after that", || (place.last_beat() > since + 300_000).then_some(()));
    kill(place.pid("job").as_raw_pid(), Signal::KILL);
    assert_eq!(code_of(end_of(&mut holder)), 137);
}
