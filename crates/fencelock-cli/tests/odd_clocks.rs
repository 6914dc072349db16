//! SQLite by clocks that are not the others': a wall clock that is set by hours, and containers whose boot clock has an offset.

mod common;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::spaces::elsewhere;
use common::{Place, Running, cannot_run, code_of, end_of, finish, kill, pid_of, start, stop_wrapper, until};
use fencelock_testkit::WallClock;
use rustix::process::{Pid, Signal};
use serde_json::Value;

const HOURS: Duration = Duration::from_secs(5 * 3_600);
/// So much of it is left at least when a test has seen that it was renewed.
const TTL: Duration = Duration::from_secs(6);
/// A job that goes on until the file `held` is gone.
const HOLD: &str = "touch $D/held; while [ -e $D/held ]; do sleep 0.02; done";

fn status(place: &Place) -> Value {
    let (code, out, err) = finish(place.fencelock().args(["status", "x", "--json"]));
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).expect("JSON")
}

/// Waits until the hold of this token was renewed so often.
fn renewed(place: &Place, token: &str, times: usize) {
    let (mut before, mut seen) = (u64::MAX, 0);
    until("it is renewed", || {
        let holder = status(place)["holders"][0].clone();
        assert_eq!(holder["token"].to_string(), token, "somebody else has it");
        let left = holder["remaining_ms"].as_u64().expect("a lease");
        assert!(left <= TTL.as_millis().try_into().expect("it fits"), "a lease of {left} ms");
        seen += usize::from(left > before);
        before = left;
        (seen >= times).then_some(())
    });
}

fn is_held(place: &Place) {
    until("it is held", || place.path("held").exists().then_some(()));
}

fn run_by(place: &Place, clock: &WallClock, options: &[&str], script: &str) -> Command {
    let mut command = place.run(options, script);
    command.envs(clock.environment()).stderr(Stdio::null());
    command
}

// Planted: the clock of leases read from the wall.
#[test]
fn a_wall_clock_that_is_set_by_hours_moves_no_lease_and_no_wait() {
    let place = Place::on_disk();
    let (ahead, behind) = (WallClock::new(), WallClock::new());
    ahead.step(HOURS, true);
    behind.step(HOURS, false);
    let ttl = format!("{}s", TTL.as_secs());
    for (one, other) in [(&ahead, &behind), (&behind, &ahead)] {
        place.clear();
        let mut holder =
            start(&mut run_by(&place, one, &["--ttl", &ttl], &format!("echo $EPOCHSECONDS > $D/job; {HOLD}")));
        is_held(&place);
        let seen: u64 = place.line("job").parse().expect("seconds");
        assert!(seen.abs_diff(common::now_micros() / 1_000_000) > 4 * 3_600, "its clock is right");
        let token = place.token();
        let mut waiter = start(&mut run_by(&place, other, &["--ttl", &ttl], "echo $FENCELOCK_TOKEN > $D/next"));
        place.waiting(1);
        // While it is held and waited for each becomes what the other was.
        ahead.step(2 * HOURS, false);
        behind.step(2 * HOURS, true);
        renewed(&place, &token, 2);
        // A limit is a time, too.
        let began = Instant::now();
        let mut patient = start(run_by(&place, other, &["-w", "5s"], "true").stdout(Stdio::null()));
        place.waiting(2);
        ahead.step(2 * HOURS, true);
        behind.step(2 * HOURS, false);
        assert_eq!(code_of(end_of(&mut patient)), 75);
        assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
        renewed(&place, &token, 1);
        fs::remove_file(place.path("held")).expect("it is held");
        assert_eq!((code_of(end_of(&mut holder)), code_of(end_of(&mut waiter))), (0, 0));
        let next = place.line("next");
        assert!(next.parse::<i64>().expect("a token") > token.parse().expect("a token"), "{next} after {token}");
    }
    let mut last = 0;
    for clock in [&ahead, &behind, &ahead, &behind] {
        let (code, out, _) = finish(&mut run_by(&place, clock, &["-n"], "echo $FENCELOCK_TOKEN"));
        let token: i64 = out.trim().parse().expect("a token");
        assert!(code == 0 && token > last, "{token} after {last}");
        last = token;
    }
}

/// Stopped, it is replaced at the end of its lease: not before, and not hours later.
// Planted: as above.
#[test]
fn one_that_hangs_is_replaced_at_its_end_whatever_the_wall_says() {
    let place = Place::on_disk();
    let (ahead, behind) = (WallClock::new(), WallClock::new());
    for (one, other) in [(&ahead, &behind), (&behind, &ahead)] {
        place.clear();
        let mut holder = start(&mut run_by(&place, one, &["--ttl", "6s"], HOLD));
        is_held(&place);
        let token = place.token();
        ahead.step(HOURS, true);
        behind.step(HOURS, false);
        let mut waiter = start(&mut run_by(&place, other, &[], "true"));
        place.waiting(1);
        replaced(&place, pid_of(&holder), &mut waiter, &token);
        assert_eq!(code_of(end_of(&mut holder)), 76);
    }
}

/// Stops the wrapper that holds `x`; whoever waits gets it when its lease is over.
fn replaced(place: &Place, wrapper: Pid, waiter: &mut Running, token: &str) {
    renewed(place, token, 1);
    stop_wrapper(place, wrapper);
    let began = Instant::now();
    let left = status(place)["holders"][0]["remaining_ms"].as_u64().expect("a lease");
    assert_eq!(code_of(end_of(waiter)), 0);
    assert!(began.elapsed() >= Duration::from_millis(left), "{:?} of {left} ms", began.elapsed());
    kill(wrapper.as_raw_pid(), Signal::CONT);
}

/// Of a container whose boot clock is so many seconds ahead of the host's.
fn ahead(place: &Place, seconds: i64, script: &str) -> Command {
    if seconds == 0 {
        let mut here = Command::new("bash");
        here.args(["-c", script]).env("F", common::binary()).env("D", place.path(""));
        here.env("FENCELOCK_URL", place.url()).stdin(Stdio::null());
        return here;
    }
    elsewhere(place, &format!("-T -f --kill-child --boottime {seconds} --monotonic {seconds}"), script)
}

// Planted: the offset not subtracted.
#[test]
fn containers_with_a_boot_clock_of_their_own_see_one_lease() {
    let place = Place::on_disk();
    let uptime = fs::read_to_string("/proc/uptime").expect("how long it runs");
    let uptime: i64 = uptime.split('.').next().expect("seconds").parse().expect("a number");
    let (day, back) = (86_400, -(uptime / 2));
    if finish(&mut ahead(&place, day, "true")).0 != 0 {
        return cannot_run("there are no clocks of its own to be had");
    }
    let ttl = format!("{}s", TTL.as_secs());
    let hold = format!("exec \"$F\" run x --ttl {ttl} -- bash -c '{HOLD}'");
    for (holds, waits) in [(day, 0), (0, day), (day, back), (back, day)] {
        place.clear();
        let mut holder = start(ahead(&place, holds, &hold).stderr(Stdio::null()));
        is_held(&place);
        let token = place.token();
        let (code, _, err) = finish(&mut ahead(&place, waits, "exec \"$F\" run -n x -- true"));
        assert_eq!(code, 75, "{err}");
        let mut waiter = start(ahead(&place, waits, "exec \"$F\" run x -- true").stderr(Stdio::null()));
        place.waiting(1);
        renewed(&place, &token, 2);
        let pid = status(&place)["holders"][0]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        replaced(&place, pid.and_then(Pid::from_raw).expect("a pid"), &mut waiter, &token);
        assert_eq!(code_of(end_of(&mut holder)), 76, "{holds} {waits}");
    }
}

/// It makes a time namespace a day ahead and stays where it was: as a program that starts containers does.
const BETWEEN: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void start(void) {
  const char *day = "boottime 86400 0\n";
  int file;
  if (unshare(CLONE_NEWTIME) || (file = open("/proc/self/timens_offsets", O_WRONLY)) < 0) _exit(9);
  if (write(file, day, strlen(day)) < 0) _exit(9);
  close(file);
}
"#;

// Planted: the offsets of its children taken for its own. Its leases were over a day ago for everybody else, who had the lock beside it.
#[test]
fn a_process_between_two_clocks_is_refused() {
    let place = Place::on_disk();
    fs::write(place.path("between.c"), BETWEEN).expect("a source");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).args([place.path("between.so"), place.path("between.c")]);
    assert!(cc.status().expect("cc").success());
    let between = || {
        let mut command = Command::new(common::binary());
        command.args(["hold", "x"]).env("LD_PRELOAD", place.path("between.so")).env("FENCELOCK_URL", place.url());
        command
    };
    let (code, out, err) = finish(between().stdin(Stdio::piped()));
    if code == 9 {
        return cannot_run("there are no clocks of its own to be had");
    }
    assert_eq!((code, out.as_str(), err.lines().count()), (78, "", 1), "{err}");
    assert!(err.contains("between two time namespaces") && err.contains("in a child"), "{err}");
    assert_eq!(finish(&mut place.run(&["-n"], "true")).0, 0);
}
