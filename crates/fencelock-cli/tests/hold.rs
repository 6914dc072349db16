//! `hold`: no job, until standard input ends or a signal comes.

mod common;

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::pty::Shell;
use common::{Place, Running, STUCK, code_of, end_of, finish, kill, pid_of, start, stop, until};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::ioctl_fionread;
use rustix::process::Signal;
use serde_json::Value;

/// Holds `x`, and what it said.
fn held(command: &mut Command) -> (Running, Value) {
    let mut holder = start(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    let object = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
    (holder, object)
}

fn hold(place: &Place, options: &[&str]) -> Command {
    let mut command = place.fencelock();
    command.args(["hold", "x"]).args(options);
    command
}

fn is_free(place: &Place) -> bool {
    finish(place.fencelock().args(["status", "-q", "x"])).0 == 1
}

// Planted: the line before the grant; no release at the end of the input.
#[test]
fn it_is_held_until_standard_input_ends() {
    let place = Place::new();
    let (mut holder, object) = held(hold(&place, &["--note", "deploy"]).stdin(Stdio::piped()));
    assert_eq!((&object["name"], &object["engine"], &object["mode"]), (&"x".into(), &"sqlite".into(), &"mutex".into()));
    assert_eq!((object["token"].to_string(), object["ttl_ms"].as_u64()), (place.token(), Some(30_000)));
    let (code, _, err) = finish(&mut hold(&place, &["-n"]));
    assert_eq!(code, 75);
    assert!(err.contains("\"deploy\""), "{err}");
    // What is said there is nothing to it.
    holder.stdin.as_mut().expect("its input").write_all(b"one\ntwo\n").expect("written");
    assert!(!is_free(&place));
    drop(holder.stdin.take());
    assert_eq!(code_of(end_of(&mut holder)), 0);
    assert!(is_free(&place));
}

// Planted: `--write` taken for `-s`; the namespace, the file and the time left out.
#[test]
fn what_its_options_say_is_held() {
    let place = Place::new();
    let ends = |holder: &mut Running| {
        drop(holder.stdin.take());
        assert_eq!(code_of(end_of(holder)), 0);
        assert!(is_free(&place));
    };
    for (options, mode, reader) in
        [(&["-s"][..], "read", 0), (&["--write"], "write", 75), (&["--permits", "2/3"], "permits", 78)]
    {
        let (mut holder, object) = held(hold(&place, options).stdin(Stdio::piped()));
        assert_eq!(object["mode"], mode);
        assert_eq!(finish(&mut place.run(&["-s", "-n"], "true")).0, reader, "{options:?}");
        ends(&mut holder);
    }
    let (mut holder, _) = held(hold(&place, &["--at-least", "5s"]).stdin(Stdio::piped()));
    let began = Instant::now();
    ends(&mut holder);
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
    let (mut holder, _) = held(hold(&place, &["--namespace", "apart"]).stdin(Stdio::piped()));
    assert!(is_free(&place));
    let apart = || finish(place.fencelock().args(["status", "-q", "x", "--namespace", "apart"])).0;
    assert_eq!(apart(), 0);
    ends(&mut holder);
    assert_eq!(apart(), 1);
    std::fs::write(place.path("url"), place.url()).expect("a file");
    let file = place.path("url").display().to_string();
    let mut command = hold(&place, &["--url-file", &file]);
    let (mut holder, _) = held(command.env_remove("FENCELOCK_URL").stdin(Stdio::piped()));
    assert!(!is_free(&place));
    ends(&mut holder);
}

// Planted: /dev/null taken for an input that has ended; the signal's own code.
#[test]
fn a_signal_ends_it_and_no_empty_input_does() {
    let place = Place::new();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1] {
        let (mut holder, _) = held(hold(&place, &[]).stdin(Stdio::null()));
        // It has looked at its input before it said that it holds.
        assert!(!is_free(&place));
        kill(pid_of(&holder).as_raw_pid(), signal);
        assert_eq!(code_of(end_of(&mut holder)), 0, "{signal:?}");
        assert!(is_free(&place));
    }
    // Closed from the start: what stands in for it is /dev/null.
    let mut closed = Command::new("bash");
    let script = format!("exec {} hold x <&-", common::binary().display());
    let (mut holder, _) = held(closed.args(["-c", &script]).env("FENCELOCK_URL", place.url()));
    kill(pid_of(&holder).as_raw_pid(), Signal::TERM);
    assert_eq!(code_of(end_of(&mut holder)), 0);
}

// Planted: a loss taken for the end of the input.
#[test]
fn a_loss_is_told_by_76() {
    let place = Place::new();
    let (mut holder, _) = held(hold(&place, &[]).stdin(Stdio::piped()));
    let token = place.token();
    assert_eq!(finish(place.fencelock().args(["release", "x", "--force", "--token", &token])).0, 0);
    assert_eq!(code_of(end_of(&mut holder)), 76);
}

// Planted: the wait for the lock hears no signal; `--skip-ok` forgotten.
#[test]
fn whoever_waits_can_give_up() {
    let place = Place::new();
    let (mut holder, _) = held(hold(&place, &[]).stdin(Stdio::piped()));
    let mut waiter = start(hold(&place, &[]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()));
    place.waiting(1);
    kill(pid_of(&waiter).as_raw_pid(), Signal::TERM);
    assert_eq!(code_of(end_of(&mut waiter)), 143);
    place.waiting(0);
    assert_eq!(finish(&mut hold(&place, &["-w", "10ms", "-E", "3"])).0, 3);
    assert_eq!(finish(&mut hold(&place, &["-n", "--skip-ok"])), (0, String::new(), String::new()));
    drop(holder.stdin.take());
    assert_eq!(code_of(end_of(&mut holder)), 0);
}

// Planted: the line written by the thread that hears of the loss; a closed output taken for one that was written.
#[test]
fn a_reader_that_does_not_read_keeps_nothing() {
    let place = Place::new();
    let mut gone = Command::new("bash");
    let script = format!("{} hold x > >(exec true) 2> $D/said; echo $? > $D/end", common::binary().display());
    gone.args(["-c", &script]).env("FENCELOCK_URL", place.url()).env("D", place.path("")).stdin(Stdio::piped());
    // Whether the reader has gone already when the line comes is chance.
    let mut running = start(&mut gone);
    until("held, or given back", || (!is_free(&place) || !place.read("end").is_empty()).then_some(()));
    drop(running.stdin.take());
    end_of(&mut running);
    assert!(["0\n", "74\n"].contains(&&*place.read("end")), "{}", place.read("said"));
    assert!(is_free(&place));
    // A pipe that is full: nobody ever reads it.
    let mut full = Command::new("bash");
    let script = "mkfifo $D/pipe; exec 7<>$D/pipe; head -c 65536 /dev/zero >&7; exec $F hold x >&7 2>/dev/null";
    full.args(["-c", script]).env("F", common::binary()).env("FENCELOCK_URL", place.url()).env("D", place.path(""));
    let mut running = start(full.stdin(Stdio::piped()));
    until("it is held", || (!is_free(&place)).then_some(()));
    let token = place.token();
    assert_eq!(finish(place.fencelock().args(["release", "x", "--force", "--token", &token])).0, 0);
    assert_eq!(code_of(end_of(&mut running)), 76);
}

/// A pipe that takes no more, and its reader, who does not read.
fn full() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::WRONLY | OFlags::NONBLOCK).expect("a pipe that does not block");
    while writer.write(&[b'.'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::WRONLY).expect("a pipe");
    (reader, writer)
}

// Planted: the end waits until its last message is read.
#[test]
fn an_unread_standard_error_keeps_no_loss_from_being_told() {
    let place = Place::new();
    let (_reader, writer) = full();
    let (mut holder, _) = held(hold(&place, &[]).stdin(Stdio::piped()).stderr(writer.try_clone().expect("a copy")));
    let token = place.token();
    assert_eq!(finish(place.fencelock().args(["release", "x", "--force", "--token", &token])).0, 0);
    assert_eq!(code_of(end_of(&mut holder)), 76);
    // Nor does it keep one that waits from giving up.
    let (mut holder, _) = held(hold(&place, &[]).stdin(Stdio::piped()));
    let mut waiter = start(hold(&place, &["-v"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(writer));
    place.waiting(1);
    kill(pid_of(&waiter).as_raw_pid(), Signal::TERM);
    assert_eq!(code_of(end_of(&mut waiter)), 143);
    drop(holder.stdin.take());
    assert_eq!(code_of(end_of(&mut holder)), 0);
}

// Planted: any error of a read taken for the end; a device that never ends read for ever.
#[test]
fn only_an_end_ends_it() {
    let place = Place::new();
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let copy = reader.try_clone().expect("a copy");
    fcntl_setfl(&reader, OFlags::RDONLY | OFlags::NONBLOCK).expect("a pipe that does not block");
    let (mut holder, _) = held(hold(&place, &[]).stdin(reader));
    // What it says is read, and that there is no more just now is no end.
    for _ in 0..2 {
        writer.write_all(b"a word").expect("written");
        until("it is read", || ioctl_fionread(&copy).is_ok_and(|left| left == 0).then_some(()));
    }
    assert!(!is_free(&place));
    drop((writer, copy));
    assert_eq!(code_of(end_of(&mut holder)), 0);
    let folder = std::fs::File::open(place.path("")).expect("a folder");
    let (code, _, err) = finish(hold(&place, &[]).stdin(folder));
    assert_eq!(code, 74);
    assert!(err.contains("cannot read standard input"), "{err}");
    let zero = std::fs::File::open("/dev/zero").expect("a device");
    let (mut holder, _) = held(hold(&place, &[]).stdin(zero));
    assert!(!is_free(&place));
    kill(pid_of(&holder).as_raw_pid(), Signal::TERM);
    assert_eq!(code_of(end_of(&mut holder)), 0);
    assert!(is_free(&place));
}

// Planted: an input that ends while it waits heard of when it is granted.
#[test]
fn a_script_that_dies_while_it_waits_leaves_no_place() {
    let place = Place::new();
    let (mut holder, _) = held(hold(&place, &[]).stdin(Stdio::piped()));
    let mut waiter = start(hold(&place, &[]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()));
    place.waiting(1);
    drop(waiter.stdin.take());
    assert_eq!(code_of(end_of(&mut waiter)), 75);
    place.waiting(0);
    drop(holder.stdin.take());
    assert_eq!(code_of(end_of(&mut holder)), 0);
}

// Planted: the example without its `|| exit`.
#[test]
fn the_example_of_the_help_does_not_go_on_without_the_lock() {
    let place = Place::new();
    let (_, help, _) = finish(place.fencelock().args(["hold", "--help"]));
    let lines = help.lines().map(|line| line.split("   ").next().unwrap_or_default().trim());
    let lines: Vec<&str> = lines.filter(|line| line.starts_with("coproc") || line.starts_with("read -r")).collect();
    assert_eq!(lines.len(), 2, "{help}");
    let script = format!("fencelock() {{ exec $F \"$@\"; }}; {}; echo $held", lines.join("; "));
    let run = |patience: &str| {
        let script = script.replace("hold deploy", &format!("hold -w {patience} x"));
        let mut bash = Command::new("bash");
        finish(bash.args(["-c", &script]).env("F", common::binary()).env("FENCELOCK_URL", place.url()))
    };
    let (mut holder, _) = held(hold(&place, &[]).stdin(Stdio::piped()));
    let (code, out, _) = run("100ms");
    assert_eq!((code, out.as_str()), (75, ""));
    drop(holder.stdin.take());
    assert_eq!(code_of(end_of(&mut holder)), 0);
    let (code, out, err) = run("30s");
    assert!(code == 0 && out.contains("\"token\":"), "{code} {out} {err}");
    until("it is given back", || is_free(&place).then_some(()));
}

// Planted: no word of a loss to one that stood still.
#[test]
fn one_that_stood_still_is_told() {
    let stopped = || {
        let place = Place::new();
        let mut command = hold(&place, &["--ttl", "1s"]);
        let (holder, _) = held(command.stdin(Stdio::piped()).stderr(Stdio::null()));
        stop(pid_of(&holder));
        let (code, _, err) = finish(place.fencelock().args(["run", "x", "--wait", "5s", "--", "true"]));
        // Stopped inside of its transaction it keeps everybody out, which is told: another one, then.
        let inside = code == 69 && err.contains("inside its transaction");
        assert!(code == 0 || inside, "{code} {err}");
        (!inside).then_some((place, holder))
    };
    let (_place, mut holder) = until("one is stopped elsewhere", stopped);
    kill(pid_of(&holder).as_raw_pid(), Signal::CONT);
    let began = Instant::now();
    assert_eq!(code_of(end_of(&mut holder)), 76);
    assert!(began.elapsed() < STUCK);
}

// Planted: a terminal read from the background, which stops whoever does.
#[test]
fn on_a_terminal_ctrl_d_ends_it_and_nothing_does_in_the_background() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    for (key, turn) in [("\x04", 1), ("\x03", 2)] {
        shell.line(&format!("$F hold x; echo end{turn}:$? | tr e E"));
        shell.expect("\"token\":");
        shell.keys(key);
        shell.expect(&format!("End{turn}:0"));
        assert!(is_free(&place));
    }
    // Stopped by the terminal, and sent on in the background: what is typed is the shell's.
    shell.line("$F hold x; echo end4:$? | tr e E");
    shell.expect("\"token\":");
    let (_, status, _) = finish(place.fencelock().args(["status", "x", "--json"]));
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let pid = status["holders"][0]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid");
    shell.keys("\x1a");
    shell.expect("Stopped");
    shell.line("bg; echo typed:$? | tr t T");
    shell.expect("Typed:0");
    shell.line("echo more:$? | tr m M");
    shell.expect("More:0");
    // Longer than it takes to look again, which is not to stop it.
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert!(!common::stopped(rustix::process::Pid::from_raw(pid).expect("a pid")), "{}", shell.screen());
    assert!(!is_free(&place));
    kill(pid, Signal::TERM);
    until("its end", || (!common::lives(pid)).then_some(()));
    assert!(is_free(&place));
    shell.line("set -m; $F hold x > $D/said & echo $! > $D/job");
    let pid = place.pid("job");
    place.line("said");
    // Were it stopped by its first read, a signal would not end it before it goes on.
    shell.line("kill $!; wait $!; echo end3:$? | tr e E");
    shell.expect("End3:0");
    until("its end", || (!common::lives(pid.as_raw_pid())).then_some(()));
    assert!(is_free(&place));
}
