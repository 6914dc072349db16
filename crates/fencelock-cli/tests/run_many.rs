//! Many runs: exclusion, what they leave, what each of them costs.

mod common;

use fencelock_testkit::processes::{bar, full, percentile, tenth};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::bars::p99;
use common::{NEXT, Place, Running, binary, done, kill, minder_of, pid_of, start, until};
use rustix::process::Signal;

/// A bash that runs the script with the place as `$D`, the binary as `$F`, its engine, and `$N`.
fn bash(place: &Place, script: &str, n: usize) -> Command {
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).env("D", place.path("")).env("F", binary()).env("FENCELOCK_URL", place.url());
    bash.env("N", n.to_string()).stdin(Stdio::null());
    bash
}

// Planted: the lock taken under another name by every process; one token for all.
#[test]
fn sixteen_processes_take_turns() {
    let place = Place::new();
    std::fs::write(place.path("counter"), "0\n").expect("a counter");
    // No clock: one log, to which both ends of every interval are appended, has them in their order.
    let job = r#"echo start $FENCELOCK_TOKEN >> $D/log; read n < $D/counter; echo $((n+1)) > $D/counter
echo end $FENCELOCK_TOKEN >> $D/log"#;
    std::fs::write(place.path("turn"), job).expect("a script");
    let each = tenth(200);
    let looping = "for ((i = 0; i < N; i++)); do \"$F\" run x -- bash $D/turn || exit; done";
    let begun = Instant::now();
    let workers: Vec<Running> = (0..16).map(|_| start(&mut bash(&place, looping, each))).collect();
    for worker in workers {
        assert_eq!(done(worker), 0);
    }
    let took = begun.elapsed();
    let log = place.read("log");
    let lines: Vec<&str> = log.lines().collect();
    let (mut before, mut overlaps) = (0, 0);
    for turn in lines.chunks(2) {
        let token: i64 = turn[0].trim_start_matches("start ").parse().unwrap_or(0);
        assert!(token > before, "the token {token} was granted after {before}");
        before = token;
        overlaps += usize::from(turn.len() != 2 || turn[1] != format!("end {token}"));
    }
    let counted: usize = place.read("counter").trim().parse().expect("a number");
    assert_eq!((counted, lines.len(), overlaps), (16 * each, 2 * 16 * each, 0));
    let figure = format!("{counted} of {}, {overlaps} overlaps, tokens rise, {took:.1?}", 16 * each);
    bar("exclusion: 16 processes × increments under `run`", figure, "exact, 0 overlaps", true);
}

// Planted in the engine: nobody sweeps up after the dead; doorbells that stay.
#[test]
fn only_the_living_leave_traces() {
    let place = Place::new();
    let (runs, kills) = (tenth(1000), tenth(100));
    let looping = "for ((i = 0; i < N; i++)); do \"$F\" run x$((i % 7)) -- true || exit; done";
    assert_eq!(done(start(&mut bash(&place, looping, runs))), 0);
    for i in 0..kills {
        place.clear();
        // Most under a name of their own, where no successor comes by and buries them.
        let name = if i % 4 == 0 { "x".to_owned() } else { format!("k{i}") };
        let mut holder = place.fencelock();
        holder.args(["run", &name, "--", "bash", "-c", "echo > $D/held; exec sleep 600"]).env("D", place.path(""));
        let mut holder = start(holder.stderr(Stdio::null()));
        place.line("held");
        if i % 4 == 0 {
            let mut waiter = start(&mut place.run(&[], NEXT));
            place.waiting(1);
            kill(pid_of(&waiter).as_raw_pid(), Signal::KILL);
            common::end_of(&mut waiter);
        }
        let victim = if i % 4 == 1 { minder_of(pid_of(&holder)) } else { pid_of(&holder) };
        kill(victim.as_raw_pid(), Signal::KILL);
        common::end_of(&mut holder);
    }
    // Whoever comes next tidies up.
    let _living = start(place.run(&[], "echo > $D/left; exec sleep 600").stderr(Stdio::null()));
    place.line("left");
    let files = || std::fs::read_dir(place.path("locks.db.d")).map_or(0, Iterator::count);
    let rows = |table: &str| place.sql(&format!("SELECT count(*) FROM {table}"));
    until("only the living have a session", || (rows("fencelock_session") == "1" && files() == 2).then_some(()));
    assert_eq!((rows("fencelock_holder").as_str(), rows("fencelock_waiter").as_str()), ("1", "0"));
    let figure =
        format!("{} session, {} files after {runs} runs and {kills} kills", rows("fencelock_session"), files());
    bar("leftovers beside the one that lives", figure, "1 session, liveness file and doorbell", true);
}

// Planted: 12 ms of sleep in the wrapper.
#[test]
fn it_starts_at_once() {
    let place = Place::new();
    let time = |mut command: Command| {
        let begun = Instant::now();
        assert!(command.stdin(Stdio::null()).status().expect("a child").success());
        begun.elapsed()
    };
    let bare = || time(Command::new("true"));
    let ours = || {
        let mut command = Command::new(binary());
        command.args(["run", "x", "--", "true"]).env("FENCELOCK_URL", place.url());
        time(command)
    };
    // The database is made once.
    ours();
    let (mut alone, mut over) = (Vec::new(), Vec::new());
    let rounds = if full() { 200 } else { 50 };
    for _ in 0..rounds {
        let bare = bare();
        over.push(ours().saturating_sub(bare));
        alone.push(bare);
    }
    let limit = Duration::from_millis(10);
    let (p50, true_p50) = (percentile(&mut over, 0.5), percentile(&mut alone, 0.5));
    let figure = format!("{p50:.1?}, `true` alone {true_p50:.1?}");
    bar(&format!("`fencelock run x -- true` over `true`, p50 of {rounds}"), figure, "≤ 10ms", p50 <= limit);
    p99("`fencelock run x -- true` over `true`", over, limit);
}

// Planted: 1 instead of 0 under --skip-ok.
#[test]
fn a_crowd_that_does_not_wait() {
    let place = Place::new();
    let crowd: Vec<Running> = (0..if full() { 200 } else { 60 })
        .map(|_| start(place.run(&["-n", "--skip-ok"], "echo in >> $D/in; sleep 0.02; exit 7").stderr(Stdio::null())))
        .collect();
    let codes: Vec<i32> = crowd.into_iter().map(done).collect();
    let got = codes.iter().filter(|&&code| code == 7).count();
    assert!(codes.iter().all(|code| matches!(code, 0 | 7)), "{codes:?}");
    assert!(got >= 1);
    assert_eq!(place.read("in").lines().count(), got);
    assert_eq!(common::finish(&mut place.run(&["-n"], "exit 4")).0, 4);
}
