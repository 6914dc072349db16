//! A crash of any of the processes: everything of the job is dead before the next grant (SAFETY R1).

mod common;

use std::process::Stdio;

use common::{
    BEATS, NEXT, Place, Running, code_of, end_of, granted, kill, lives, minder_of, now_micros, pid_of, start, until,
};
use rustix::process::Signal;

/// How often; the long bars run more (`FENCELOCK_REPEAT`).
fn repetitions() -> usize {
    std::env::var("FENCELOCK_REPEAT").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

/// A lease whose end would be told as stuck: what comes before it is not its doing.
const LONG: &str = "60s";

/// Starts a job that is hard to kill, and one that waits for its lock.
fn holder_and_next(place: &Place, ttl: &str) -> (Running, Running) {
    let holder = start(place.run(&["--ttl", ttl], BEATS).stderr(Stdio::null()));
    place.line("ready");
    let next = start(&mut place.run(&[], NEXT));
    // It waits: its descriptor for the engine is open, or at least its process is past the exec.
    until("the next one waits", || waits(&next).then_some(()));
    (holder, next)
}

fn waits(child: &Running) -> bool {
    let syscall = std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, Iterator::count);
    threads > 1 && !syscall.is_empty()
}

fn no_overlap(place: &Place, next: &mut Running, since: u64) {
    assert_eq!(code_of(end_of(next)), 0);
    let granted = granted(place);
    assert!(place.last_beat() < granted, "a beat {} µs after the next grant", place.last_beat() - granted);
    assert_eq!(place.beating(), [0; 0], "they live");
    println!("the next grant came {} ms after the kill", (granted - since) / 1000);
}

// Planted: the minder does not care for the end of the link.
#[test]
fn the_wrapper_dies() {
    for _ in 0..repetitions() {
        let place = Place::new();
        let (mut holder, mut next) = holder_and_next(&place, LONG);
        let since = now_micros();
        kill(pid_of(&holder).as_raw_pid(), Signal::KILL);
        end_of(&mut holder);
        no_overlap(&place, &mut next, since);
    }
}

// Planted: the wrapper releases at the end of the link, before its sweep.
#[test]
fn the_minder_dies() {
    for _ in 0..repetitions() {
        let place = Place::new();
        let (mut holder, mut next) = holder_and_next(&place, LONG);
        let since = now_micros();
        kill(minder_of(pid_of(&holder)).as_raw_pid(), Signal::KILL);
        assert_eq!(code_of(end_of(&mut holder)), 76);
        no_overlap(&place, &mut next, since);
    }
}

// Planted: the job without its parent-death signal.
#[test]
fn wrapper_and_minder_die_at_once() {
    let place = Place::new();
    let (mut holder, mut next) = holder_and_next(&place, "2s");
    let job = place.pid("job").as_raw_pid();
    let minder = minder_of(pid_of(&holder)).as_raw_pid();
    // Stopped first, so that neither sees the other die.
    kill(minder, Signal::STOP);
    kill(pid_of(&holder).as_raw_pid(), Signal::KILL);
    kill(minder, Signal::KILL);
    end_of(&mut holder);
    until("the end of the job", || (!lives(job)).then_some(()));
    // What it had detached keeps the lock no longer than the lease: the one case that is documented as unsafe.
    assert_eq!(code_of(end_of(&mut next)), 0);
}

// Planted: only TERM to the tree, whose processes ignore it.
#[test]
fn the_job_dies_and_takes_its_tree_along() {
    let place = Place::new();
    let (mut holder, mut next) = holder_and_next(&place, LONG);
    let since = now_micros();
    kill(place.pid("job").as_raw_pid(), Signal::KILL);
    assert_eq!(code_of(end_of(&mut holder)), 137);
    no_overlap(&place, &mut next, since);
}

// Planted: no lifeline handed down. It cannot be shown by stopping the minder instead: when its wrapper dies the kernel
// lets a stopped minder go on, since its group is orphaned then.
#[test]
fn every_process_of_the_job_keeps_what_keeps_the_lock() {
    let place = Place::new();
    let holder = start(place.run(&[], BEATS).stderr(Stdio::null()));
    place.line("ready");
    let keeps = |pid: i32| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
        let high = fds.flatten().filter(|fd| fd.file_name().to_str().and_then(|n| n.parse().ok()) >= Some(100));
        high.filter_map(|fd| std::fs::read_link(fd.path()).ok()).find(|file| file.starts_with(place.path("")))
    };
    let file = keeps(minder_of(pid_of(&holder)).as_raw_pid()).expect("the minder keeps it");
    let beating = place.beating();
    assert_eq!(beating.len(), 3);
    for pid in beating {
        assert_eq!(keeps(pid).as_ref(), Some(&file), "pid {pid}");
    }
}
