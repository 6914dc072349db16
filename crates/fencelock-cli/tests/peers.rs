//! Story: what the command lines of etcd and consul are tested for, or were reported for, holds here too. The other cases of
//! theirs are shown where they belong (`cases.toml` of the conformance suite has them all).
//!
//! Planted to see it red: 1+n for a signal; what the job leaves behind left alone; the job run by `sh -c`; the note and the ttl
//! not passed on; `-n` that waits for permits; renewals not told to the minder.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, Running, code_of, end_of, finish, kill, lives, pid_of, start, until};
use rustix::process::Signal;

/// Runs until its input ends, and writes its hold and token.
fn holder(place: &Place, file: &str) -> Running {
    let script = format!("echo $FENCELOCK_HOLD $FENCELOCK_TOKEN > $D/{file}; read");
    start(place.run(&[], &script).stdin(Stdio::piped()).stderr(Stdio::null()))
}

/// etcd/ctl-v3-lock
#[test]
fn after_an_interrupt_of_the_waiter_and_of_the_holder_a_third_is_in() {
    let place = Place::new();
    let mut first = holder(&place, "first");
    let key = place.line("first");
    let mut blocked = holder(&place, "blocked");
    place.waiting(1);
    // Were it let in beside the first, it would be soon.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(place.read("blocked"), "");
    let begun = Instant::now();
    kill(pid_of(&blocked).as_raw_pid(), Signal::INT);
    assert_eq!(code_of(end_of(&mut blocked)), 130);
    kill(pid_of(&first).as_raw_pid(), Signal::INT);
    assert_eq!(code_of(end_of(&mut first)), 130);
    let _third = holder(&place, "third");
    let other = place.line("third");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(key.len() > 32 && key != other, "{key} {other}");
    assert_eq!(place.read("blocked"), "");
}

/// etcd/ctl-v3-elect. An election is a mutex, and its candidate the note: who runs under its name leads, and whoever uses the
/// library sees that.
#[test]
fn one_leads_and_a_second_waits_until_the_first_ends() {
    let place = Place::new();
    let leader = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = fencelock::connect(&place.url()).await.expect("a client");
            let leader = client.election("x").leader().await.expect("an answer");
            leader.map(|l| (l.candidate.to_string(), l.term.get()))
        })
    };
    let candidate = |note: &str| {
        let script = format!("echo $FENCELOCK_TOKEN > $D/{note}; read");
        start(place.run(&["--note", note], &script).stdin(Stdio::piped()))
    };
    let mut first = candidate("one");
    let term: i64 = place.line("one").parse().expect("a token");
    assert_eq!(leader(), Some(("one".to_owned(), term)));
    let mut second = candidate("two");
    place.waiting(1);
    assert_eq!(place.read("two"), "");
    drop(first.stdin.take());
    end_of(&mut first);
    let next: i64 = place.line("two").parse().expect("a token");
    assert!(next > term);
    assert_eq!(leader(), Some(("two".to_owned(), next)));
    drop(second.stdin.take());
    end_of(&mut second);
    assert_eq!(leader(), None);
}

/// consul/command-no-shell
#[test]
fn a_job_is_run_without_a_shell() {
    let place = Place::new();
    let odd = ["$HOME", "`id`", "a b", "*", ";", "&&", "'\"", "", "--", "-n", "\\n", "~"];
    let (code, out, err) = finish(place.fencelock().args(["run", "x", "--", "printf", "[%s]"]).args(odd));
    let expected: String = odd.iter().map(|word| format!("[{word}]")).collect();
    assert_eq!((code, out, err), (0, expected, String::new()));
    // What only a shell could run.
    assert_eq!(finish(place.fencelock().args(["run", "x", "--", "echo hello; exit 3"])).0, 127);
}

/// consul/command-try-semaphore
#[test]
fn permits_are_waited_for_as_long_as_one_likes() {
    let place = Place::new();
    let script = "echo > $D/held; read";
    let mut holder = start(place.run(&["--permits", "2/3"], script).stdin(Stdio::piped()));
    place.line("held");
    let ask = |options: &[&str]| {
        let begun = Instant::now();
        let (code, ..) = finish(&mut place.run(&[&["--permits", "2/3"], options].concat(), "exit 4"));
        (code, begun.elapsed())
    };
    assert_eq!(ask(&["-n"]).0, 75);
    let (code, took) = ask(&["-w", "400ms", "-E", "9"]);
    assert!(code == 9 && took >= Duration::from_millis(400) && took < Duration::from_secs(8), "{code} {took:?}");
    assert_eq!(ask(&["-w", "50ms", "--skip-ok"]).0, 0);
    // What is left can be had at once.
    assert_eq!(finish(&mut place.run(&["--permits", "1/3", "-n"], "exit 4")).0, 4);
    drop(holder.stdin.take());
    end_of(&mut holder);
    assert_eq!(ask(&["-n"]).0, 4);
}

/// consul/command-monitor-retry
#[test]
fn errors_in_passing_do_not_end_the_job() {
    let place = Place::new();
    let script = "trap 'echo > $D/termed' TERM; echo > $D/held; exec 9<> <(:); until [ -e $D/go ]; do read -t 0.05 -u 9; done; exit 5";
    let mut holder = start(&mut place.run(&["--ttl", "12s", "--grace", "500ms"], script));
    place.line("held");
    // Nobody can write for longer than from one renewal to the next.
    let mut sqlite = Command::new("sqlite3");
    let mut sqlite = start(sqlite.arg(place.path("locks.db")).stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut input = sqlite.stdin.take().expect("its input");
    input.write_all(b".timeout 5000\nBEGIN IMMEDIATE;\nSELECT 'in';\n").expect("written");
    let mut said = String::new();
    BufReader::new(sqlite.stdout.take().expect("its output")).read_line(&mut said).expect("text");
    assert_eq!(said, "in\n");
    // A renewal leaves more, and the next one is due when 8 s are left.
    until("a renewal that is missed", || (left(&place).0 < 7500).then_some(()));
    input.write_all(b"COMMIT;\n").expect("written");
    drop(input);
    assert_eq!(code_of(end_of(&mut sqlite)), 0);
    until("a renewal", || (left(&place).0 > 8000).then_some(()));
    // Past the lease that it had before: nothing may happen at its end.
    std::thread::sleep(Duration::from_millis(8000));
    std::fs::write(place.path("go"), "").expect("a file");
    assert_eq!((code_of(end_of(&mut holder)), place.read("termed").as_str()), (5, ""));
}

/// What is left of the lease in ms, and the token.
fn left(place: &Place) -> (u64, String) {
    let (_, out, _) = finish(place.fencelock().args(["status", "x", "--json"]));
    let object: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let holder = &object["holders"][0];
    (holder["remaining_ms"].as_u64().expect("a number"), holder["token"].to_string())
}

/// issue/etcd-8365
#[test]
fn a_ttl_can_be_given_and_a_lock_looked_at_and_removed() {
    let place = Place::new();
    let mut holder = start(place.run(&["--ttl", "7s"], "echo > $D/held; sleep 600").stderr(Stdio::null()));
    place.line("held");
    let (left, token) = left(&place);
    assert!((1..=7000).contains(&left), "{left}");
    let (code, ..) = finish(place.fencelock().args(["release", "x", "--force", "--token", &token]));
    assert_eq!((code, code_of(end_of(&mut holder))), (0, 76));
    assert_eq!(finish(place.fencelock().args(["status", "x"])).1, "free\n");
}

/// issue/consul-2022
#[test]
fn a_signal_reaches_the_job_and_its_whole_tree_is_gone_at_the_end() {
    let place = Place::new();
    // The shell alone would die of it, and what it runs would go on.
    let script = "sleep 600 & echo $! > $D/one; (setsid bash -c 'sleep 600; true' & echo $! > $D/two); bash -c 'echo $$ > $D/three; sleep 600; true'; true";
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::USR1, 138)] {
        for name in ["one", "two", "three"] {
            let _ = std::fs::remove_file(place.path(name));
        }
        let mut holder = start(place.run(&[], script).stderr(Stdio::null()));
        let tree = ["one", "two", "three"].map(|name| place.pid(name).as_raw_pid());
        kill(pid_of(&holder).as_raw_pid(), signal);
        assert_eq!(code_of(end_of(&mut holder)), code);
        assert_eq!(tree.map(lives), [false; 3], "{signal:?}");
        until("nobody holds it", || (finish(&mut place.run(&["-n"], "exit 4")).0 == 4).then_some(()));
    }
}
