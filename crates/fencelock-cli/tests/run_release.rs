//! `release --force`: the next one may start before the old job is dead, but not long before (SAFETY).

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::bars::p99;
use common::{BEATS, NEXT, Place, code_of, end_of, finish, granted, kill, minder_of, now_micros, pid_of, start};
use fencelock_testkit::processes::tenth;
use rustix::process::Signal;

/// From the next one's start to the end of the old wrapper, which comes after the last process of its job.
fn broken(place: &Place, minder_is_stopped: bool) -> Duration {
    place.clear();
    let mut holder = start(place.run(&[], BEATS).stderr(Stdio::null()));
    place.line("ready");
    let mut next = start(&mut place.run(&[], NEXT));
    place.waiting(1);
    if minder_is_stopped {
        kill(minder_of(pid_of(&holder)).as_raw_pid(), Signal::STOP);
    }
    assert_eq!(finish(place.fencelock().args(["release", "x", "--force", "--token", &place.token()])).0, 0);
    assert_eq!(code_of(end_of(&mut holder)), 76);
    let dead = now_micros();
    assert_eq!(place.beating(), [0; 0]);
    assert_eq!(code_of(end_of(&mut next)), 0);
    let after = Duration::from_micros(dead.saturating_sub(granted(place)));
    // Far below the grace of 5 s that a TERM would have given it.
    assert!(after < Duration::from_secs(4), "it was asked to end first");
    after
}

// Planted: TERM for a lock that was taken away.
#[test]
fn the_old_job_is_killed_at_once() {
    let place = Place::new();
    let times = (0..tenth(100)).map(|_| broken(&place, false)).collect();
    p99(
        "release --force: the old job, deaf to TERM, dead after the next one's start",
        times,
        Duration::from_millis(100),
    );
}

// Planted: the wrapper leaves it to a stopped minder.
#[test]
fn the_old_job_is_killed_though_its_minder_is_stopped() {
    let place = Place::new();
    let times = (0..tenth(100)).map(|_| broken(&place, true)).collect();
    p99("the same with a stopped minder", times, Duration::from_millis(100));
}

// Planted: a minder that the wrapper has ended, since it does not act, told as one that died.
#[test]
fn what_took_the_lock_away_is_told_though_the_minder_is_stopped() {
    let place = Place::new();
    let mut holder = start(place.run(&[], "echo > $D/held; sleep 600").stderr(Stdio::piped()));
    place.line("held");
    kill(minder_of(pid_of(&holder)).as_raw_pid(), Signal::STOP);
    assert_eq!(finish(place.fencelock().args(["release", "x", "--force", "--token", &place.token()])).0, 0);
    assert_eq!(code_of(end_of(&mut holder)), 76);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut holder.stderr.take().expect("its messages"), &mut said).expect("text");
    assert_eq!(said, "fencelock: x is lost, it was taken away: the job was stopped\n");
}
