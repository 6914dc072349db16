//! Signals sent to the wrapper, without a terminal.

mod common;

use std::process::{Command, Stdio};

use common::{Place, Running, code_of, end_of, kill, lives, pid_of, start, until};
use rustix::process::Signal;

/// A job that writes which signal it got, and ends with 40 on TERM. It has its descriptor before it says that it is there:
/// a bash that is about to start a process substitution may lose a signal for which it has a trap. And it has read once: the
/// first `read -t` of a bash takes HUP over for a moment, an ignored one too.
const LISTENER: &str = r#"
for s in INT HUP QUIT USR1 USR2 WINCH; do trap "echo $s >> $D/got" $s; done
trap 'echo TERM >> $D/got; exit 40' TERM
exec 9<> <(:)
read -t 0.01 -u 9
echo $$ > $D/job
while :; do read -t 0.01 -u 9; done
"#;

fn spawn(mut command: Command) -> Running {
    // A group of its own, as a shell or a service manager gives.
    use std::os::unix::process::CommandExt;
    start(command.process_group(0).stderr(Stdio::null()))
}

fn send(child: &Running, signal: Signal) {
    kill(pid_of(child).as_raw_pid(), signal);
}

// Planted: USR2 missing in the list; a forwarded signal sent to the whole group of the wrapper too.
#[test]
fn signals_are_passed_on_once_and_the_lock_is_released_when_the_job_has_ended() {
    let place = Place::new();
    let mut holder = spawn(place.run(&[], LISTENER));
    place.line("job");
    let mut expected = String::new();
    let signals = [
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
        (Signal::TERM, "TERM"),
    ];
    for (signal, name) in signals {
        expected.push_str(name);
        expected.push('\n');
        send(&holder, signal);
        until(name, || (place.read("got") == expected).then_some(()));
    }
    assert_eq!(code_of(end_of(&mut holder)), 40);
    assert_eq!(common::finish(&mut place.run(&["-n"], "exit 4")).0, 4);
}

// Planted: handlers for ignored signals too.
#[test]
fn what_is_ignored_at_the_start_stays_ignored() {
    let place = Place::new();
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' HUP USR1; exec \"$F\" run x -- bash -c \"$S\""]);
    command.env("F", common::binary()).env("S", LISTENER).env("D", place.path("")).env("FENCELOCK_URL", place.url());
    let mut holder = spawn(command);
    let job = place.pid("job");
    let status = std::fs::read_to_string(format!("/proc/{}/status", job.as_raw_pid())).expect("its status");
    let mask = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key)).expect("a mask");
        u64::from_str_radix(line.trim(), 16).expect("a mask")
    };
    let bit = |s: Signal| 1 << (s.as_raw() - 1);
    for signal in [Signal::HUP, Signal::USR1] {
        assert_ne!(mask("SigIgn:") & bit(signal), 0, "{signal:?}\n{status}");
    }
    // bash cannot trap what it was started ignoring, so it hears of USR2 alone.
    for signal in [Signal::HUP, Signal::USR1, Signal::USR2] {
        send(&holder, signal);
    }
    until("USR2", || (place.read("got") == "USR2\n").then_some(()));
    send(&holder, Signal::TERM);
    assert_eq!(code_of(end_of(&mut holder)), 40);
}

// Planted: the wait is left without a withdrawal; 130 for TERM.
#[test]
fn a_signal_while_waiting_withdraws() {
    let place = Place::new();
    let mut holder = spawn(place.run(&[], "echo $$ > $D/job; sleep 600"));
    let job = place.pid("job");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut waiter = spawn(place.run(&[], "echo no > $D/ran"));
        until("it waits", || {
            let (_, out, _) = common::finish(place.fencelock().args(["status", "x", "--json"]));
            out.contains("\"position\":1").then_some(())
        });
        send(&waiter, signal);
        assert_eq!(code_of(end_of(&mut waiter)), code);
    }
    kill(job.as_raw_pid(), Signal::KILL);
    assert_eq!(code_of(end_of(&mut holder)), 137);
    assert_eq!(common::finish(&mut place.run(&["-n"], "exit 4")).0, 4);
    assert_eq!(place.read("ran"), "");
}

// Planted: the minder without handlers.
#[test]
fn the_minder_is_deaf() {
    let place = Place::new();
    let mut holder = spawn(place.run(&[], LISTENER));
    place.line("job");
    let minder = common::minder_of(pid_of(&holder)).as_raw_pid();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::TSTP, Signal::PIPE] {
        kill(minder, signal);
    }
    send(&holder, Signal::USR1);
    until("USR1", || (place.read("got") == "USR1\n").then_some(()));
    assert!(lives(minder));
    send(&holder, Signal::TERM);
    assert_eq!(code_of(end_of(&mut holder)), 40);
}

// Planted: on-loss kill treated as term.
#[test]
fn with_kill_the_job_has_no_time_to_end_well() {
    let script = "trap 'echo > $D/termed; exit 0' TERM; echo $$ > $D/job; while :; do sleep 0.01; done";
    // Both at once: with `term` the job is asked first.
    let all = ["kill", "term"].map(|on_loss| {
        let place = Place::new();
        let holder = spawn(place.run(&["--ttl", "6s", "--on-loss", on_loss], script));
        let job = place.pid("job").as_raw_pid();
        // Nobody renews any more.
        common::stop_wrapper(&place, pid_of(&holder));
        (place, holder, job, on_loss)
    });
    for (place, mut holder, job, on_loss) in all {
        until("the end of the job", || (!lives(job)).then_some(()));
        assert_eq!(place.read("termed").is_empty(), on_loss == "kill", "{on_loss}");
        send(&holder, Signal::CONT);
        assert_eq!(code_of(end_of(&mut holder)), 76, "{on_loss}");
        assert_eq!(common::finish(&mut place.run(&["-n"], "exit 4")).0, 4);
    }
}

// Planted: on-loss warn treated as term.
#[test]
fn with_warn_the_job_outlives_a_dead_wrapper() {
    let place = Place::new();
    let mut holder = spawn(place.run(&["--on-loss", "warn"], LISTENER));
    let job = place.pid("job").as_raw_pid();
    send(&holder, Signal::KILL);
    end_of(&mut holder);
    kill(job, Signal::USR1);
    until("USR1", || (place.read("got") == "USR1\n").then_some(()));
    kill(job, Signal::TERM);
    until("its end", || (!lives(job)).then_some(()));
}

// Planted: a signal without an action taken for its own end.
#[test]
fn the_first_process_of_all_ends_as_a_shell_tells_it() {
    let place = Place::new();
    let inside = ["--pid", "--fork", "--mount-proc"];
    if !Command::new("unshare").args(inside).arg("true").stderr(Stdio::null()).status().is_ok_and(|s| s.success()) {
        return common::cannot_run("there are no process numbers of its own to be had");
    }
    let mut command = place.fencelock();
    let script = format!("exec {} run x -- bash -c 'kill -INT $$'", common::binary().display());
    // Whoever is started in the background has INT ignored.
    let mut first = Command::new("env");
    first.args(["--default-signal=INT", "unshare"]).args(inside).args(["bash", "-c", &script]);
    first.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?)))).current_dir(place.path(""));
    assert_eq!(common::finish(first.stdin(Stdio::null())).0, 130);
    assert_eq!(common::finish(command.args(["run", "-n", "x", "--", "true"])).0, 0);
}
