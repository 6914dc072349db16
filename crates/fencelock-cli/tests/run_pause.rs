//! Paused processes: the job is dead before its lease ends, whoever was asleep; where all were, the fence protects.

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::bars::p99;
use common::{
    BEATS, NEXT, Place, Running, code_of, end_of, finish, granted, kill, minder_of, now_micros, pid_of, start, stop,
    stop_wrapper, until,
};
use fencelock_testkit::processes::{bar, tenth};
use rustix::process::Signal;

fn holder(place: &Place, job: &str) -> Running {
    place.clear();
    let holder = start(place.run(&["--ttl", "4s"], job).stderr(Stdio::null()));
    place.line("ready");
    holder
}

// Planted: the minder without a timer of its own.
#[test]
fn the_wrapper_alone_is_stopped_past_its_lease() {
    let place = Place::new();
    let rounds = tenth(30);
    let mut closest = Duration::MAX;
    for _ in 0..rounds {
        let mut holder = holder(&place, BEATS);
        let mut next = start(&mut place.run(&[], NEXT));
        stop_wrapper(&place, pid_of(&holder));
        assert_eq!(code_of(end_of(&mut next)), 0);
        assert!(place.last_beat() < granted(&place));
        closest = closest.min(Duration::from_micros(granted(&place) - place.last_beat()));
        assert_eq!(place.beating(), [0; 0]);
        kill(pid_of(&holder).as_raw_pid(), Signal::CONT);
        assert_eq!(code_of(end_of(&mut holder)), 76);
    }
    let figure = format!("0 overlaps in {rounds}, closest {closest:.1?}");
    bar("wrapper stopped past its lease: the last beat before the next grant", figure, "0 overlaps", true);
}

/// A job as [`BEATS`] whose first process also writes to a resource that is fenced by the token, at every beat.
fn fenced() -> String {
    let write = r#"sqlite3 -cmd ".timeout 5000" $D/resource.db "UPDATE r SET token = $FENCELOCK_TOKEN
WHERE token <= $FENCELOCK_TOKEN; SELECT changes()" >> $D/writes"#;
    let looping = format!(
        "trap '' TERM INT HUP; exec 9<> <(:)\nwhile :; do echo $$ $EPOCHREALTIME >> $D/beats; {write}; read -t 0.01 -u 9; done"
    );
    let (start, _) = BEATS.rsplit_once("eval").expect("the job's own beat");
    format!("{start}\n{looping}")
}

// Planted: a minder that does not look at the clock on waking, beside a wrapper that neither orders the KILL nor backs it up.
#[test]
fn all_three_are_stopped_and_the_job_goes_on_first() {
    let place = Place::new();
    let resource =
        |statement: &str| finish(std::process::Command::new("sqlite3").arg(place.path("resource.db")).arg(statement)).1;
    resource("CREATE TABLE r(token INTEGER); INSERT INTO r VALUES(0)");
    let take = "sqlite3 $D/resource.db \"UPDATE r SET token = $FENCELOCK_TOKEN WHERE token < $FENCELOCK_TOKEN\"";
    let times = (0..tenth(30)).map(|_| {
        let mut holder = holder(&place, &fenced());
        until("an accepted write", || place.read("writes").ends_with("1\n").then_some(()));
        let (wrapper, minder) = (pid_of(&holder), minder_of(pid_of(&holder)));
        let jobs = place.beating();
        stop_wrapper(&place, wrapper);
        stop(minder);
        for &pid in &jobs {
            kill(pid, Signal::STOP);
        }
        let mut next = start(&mut place.run(&[], &format!("{take}; {NEXT}; echo $FENCELOCK_TOKEN > $D/token")));
        assert_eq!(code_of(end_of(&mut next)), 0);
        let before = place.read("writes").len();
        for &pid in &jobs {
            kill(pid, Signal::CONT);
        }
        // As long as the two sleep on, only the fence protects: what the old job writes now is refused.
        until("a refused write", || {
            place.read("writes").get(before..).is_some_and(|w| w.contains("0\n")).then_some(())
        });
        kill(minder.as_raw_pid(), Signal::CONT);
        kill(wrapper.as_raw_pid(), Signal::CONT);
        let last = now_micros();
        assert_eq!(code_of(end_of(&mut holder)), 76);
        assert_eq!(place.beating(), [0; 0]);
        assert_eq!(resource("SELECT token FROM r"), place.read("token"), "the old token got through");
        assert!(place.read("writes")[before..].lines().skip(1).all(|changes| changes == "0"));
        Duration::from_micros(place.last_beat().saturating_sub(last))
    });
    p99("all stopped past the lease: the last beat after the last CONT", times.collect(), Duration::from_millis(50));
}

// Planted: the wrapper waits for its minder for ever.
#[test]
fn the_minder_alone_is_stopped_and_the_wrapper_renews() {
    let place = Place::new();
    let mut holder = holder(&place, BEATS);
    let minder = minder_of(pid_of(&holder));
    stop(minder);
    let since = now_micros();
    // Past its lease: the job beats on, since the wrapper renews.
    until("beats past the lease", || (place.last_beat() > since + 4_600_000).then_some(()));
    // What the minder knew has passed, and on waking it learns first that there is more.
    kill(minder.as_raw_pid(), Signal::CONT);
    let since = now_micros();
    until("beats after that", || (place.last_beat() > since + 300_000).then_some(()));
    kill(place.pid("job").as_raw_pid(), Signal::KILL);
    assert_eq!(code_of(end_of(&mut holder)), 137);
}
