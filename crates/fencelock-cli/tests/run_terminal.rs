//! `run` in a pseudo-terminal: as without it.

mod common;

use common::pty::Shell;
use common::{BEATS, NEXT, Place, code_of, end_of, finish, granted, lives, start, until};
use fencelock_testkit::processes::{bar, tenth};
use std::time::{Duration, Instant};

// Planted: the job in a group of its own, so that it stops at its first read.
#[test]
fn the_job_reads_the_terminal() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.line("$F run x -- bash -c 'read a; echo got:$a:$(tty | cut -c1-5)'");
    shell.line("hello");
    shell.expect("got:hello:/dev/");
}

// Planted: the same group, and the wrapper without its own death by INT. The job has no child of its own: a bash whose
// child ends well in spite of Ctrl-C goes on, with us or without.
#[test]
fn one_ctrl_c_ends_a_loop_in_a_script() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    std::fs::write(
        place.path("loop"),
        "for i in 1 2 3; do $F run x -- bash -c 'echo Turn:$0; exec sleep 600' $i; done\n",
    )
    .expect("a script");
    shell.line("bash loop");
    shell.expect("Turn:1");
    shell.keys("\x03");
    shell.expect("> ");
    shell.line("echo code:$? | tr c C");
    shell.expect("Code:130");
    assert!(!shell.screen().contains("Turn:2"), "{}", shell.screen());
}

// Planted: a signal of the terminal forwarded once more. (Bash takes two that come at once for one, now and then.)
#[test]
fn ctrl_c_and_a_quit_reach_the_job_once() {
    for (key, signal) in [("\x03", "INT"), ("\x1c", "QUIT")] {
        let place = Place::new();
        let mut shell = Shell::start(&place);
        shell.line(&format!("$F run x -- bash -c 'trap \"echo {signal} >> $D/got\" {signal}; echo up | tr u U; read l; cat $D/got | tr IQ iq; exit 9'; echo code:$? | tr c C"));
        shell.expect("Up");
        shell.keys(key);
        until(signal, || (!place.read("got").is_empty()).then_some(()));
        shell.line("");
        shell.expect(&format!("{}\r\n", signal.replace('I', "i").replace('Q', "q")));
        shell.expect("Code:9");
        assert_eq!(place.read("got"), format!("{signal}\n"));
    }
}

// Planted: the minder's group made the foreground one.
#[test]
fn ctrl_z_and_fg() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.line("$F run x -- bash -c 'echo $$ > $D/job; read l; echo got:$l; exit 8'");
    let job = place.pid("job");
    shell.keys("\x1a");
    shell.expect("Stopped");
    shell.expect("> ");
    until("the job is stopped", || common::stopped(job).then_some(()));
    shell.line("echo shell:$((6*7))");
    shell.expect("shell:42");
    shell.line("fg; echo code:$? | tr c C");
    shell.line("word");
    shell.expect("got:word");
    shell.expect("Code:8");
    shell.line("echo again:$((6*7))");
    shell.expect("again:42");
}

// Planted: the minder waits for the wrapper's word.
#[test]
fn ctrl_z_past_the_lease() {
    let place = Place::new();
    for _ in 0..tenth(30) {
        place.clear();
        let mut shell = Shell::start(&place);
        std::fs::write(place.path("hard"), BEATS).expect("a script");
        shell.line("$F run x --ttl 4s -- bash $D/hard");
        place.line("ready");
        let job = place.pid("job").as_raw_pid();
        let mut next = start(place.run(&[], NEXT).stderr(std::process::Stdio::null()));
        place.waiting(1);
        shell.keys("\x1a");
        shell.expect("Stopped");
        assert!(end_of(&mut next).success());
        assert!(!lives(job));
        assert!(place.last_beat() < granted(&place));
        assert_eq!(place.beating(), [0; 0]);
        shell.line("fg; echo code:$? | tr c C");
        shell.expect("Code:76");
        shell.line("echo again:$((6*7))");
        shell.expect("again:42");
    }
    bar(
        "Ctrl-Z held past the lease: the job dead before the next grant, `fg`",
        "0 overlaps, 76",
        "0 overlaps, 76",
        true,
    );
}

// Planted: the job in a group of its own, which its terminal stops when it reads.
#[test]
fn a_pipeline_whose_end_reads_the_terminal() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    std::fs::write(place.path("pager"), "cat; read key < /dev/tty; echo key:$key\n").expect("a script");
    shell.line("$F run x -- bash -c 'echo page:$((6*7)); read a < /dev/tty; echo again:$a' | bash pager; echo codes:${PIPESTATUS[*]} | tr c C");
    shell.expect("page:42");
    shell.line("word");
    shell.expect("again:word");
    shell.line("q");
    shell.expect("key:q");
    shell.expect("Codes:0 0");
}

// Planted: HUP handled although it is ignored.
#[test]
fn nohup_outlives_the_terminal() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.line("nohup $F run x -- bash -c 'echo $$ > $D/job; for i in {1..2000}; do [ -e $D/go ] && break; sleep 0.01; done; echo done > $D/done' > $D/out 2>&1 &");
    let job = place.pid("job").as_raw_pid();
    drop(shell);
    assert!(lives(job));
    std::fs::write(place.path("go"), "").expect("a file");
    assert_eq!(place.line("done"), "done");
}

// Planted: nothing said while it waits; the line left standing; the same line for ever.
#[test]
fn a_waiter_says_who_is_in_the_way_for_as_long_as_it_is() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.line("$F run x --ttl 20s --note $'night\\x1b[31mly' -- bash -c 'echo $$ > $D/job; sleep 600' &");
    let job = place.pid("job").as_raw_pid();
    shell.line("$F run x -- echo $((6*7)):in");
    shell.expect("waiting for x: held ");
    // The escape itself is gone.
    shell.expect("\"night[31mly\" (token ");
    // It is said again, in the same place, and how long it is held goes on.
    shell.expect("\r\x1b[Kwaiting for x: held ");
    shell.expect("\r\x1b[Kwaiting for x: held ");
    let screen = shell.screen();
    let mut said: Vec<_> =
        screen.split("\r\x1b[Kwaiting for x: held ").skip(1).filter_map(|s| s.split(' ').next()).collect();
    said.dedup();
    assert!(said.len() > 1, "{screen}");
    common::kill(job, rustix::process::Signal::KILL);
    // What the job prints comes where it stood.
    shell.expect("\r\x1b[K42:in");
}

// Planted: the line before a second has passed; how many come before left out; the line in a pipe too.
#[test]
fn the_line_tells_who_holds_it_for_how_long_and_how_many_come_before() {
    let place = Place::new();
    let mut holder = start(&mut place.run(&["--ttl", "60s"], "echo $$ > $D/job; exec sleep 600"));
    let job = place.pid("job").as_raw_pid();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let who = format!(" by {} pid {} \"bash\" (token {}, lease ", host.trim(), holder.id(), place.token());
    let mut first = start(&mut place.run(&[], "true"));
    place.waiting(1);
    // Nobody looks at a pipe meanwhile: the end of the wait is all that is told there.
    let (code, out, err) = finish(&mut place.run(&["-w", "2500ms"], "true"));
    assert_eq!((code, out.as_str(), err.lines().count()), (75, "", 1), "{err}");
    assert!(err.starts_with("fencelock: x was not got: held ") && err.contains(&who), "{err}");
    let mut shell = Shell::start(&place);
    let began = Instant::now();
    shell.line("$F run x --ttl 60s -- echo $((6*7)):in");
    shell.expect("waiting for x: held ");
    let after = began.elapsed();
    assert!(after >= Duration::from_secs(1), "{after:?}");
    let soon = after <= Duration::from_millis(1_250);
    bar("a waiter at a terminal is told who is in the way after", format!("{after:.2?}"), "1 s to 1.25 s", soon);
    shell.expect(&who);
    shell.expect(" s left), 1 ahead of you");
    let screen = shell.screen();
    let (_, lease) = screen.split_once(&who).expect("the line");
    let left: u64 = lease.split_once(" s left").expect("its lease").0.parse().expect("seconds");
    assert!((30..=60).contains(&left), "{screen}");
    common::kill(job, rustix::process::Signal::KILL);
    shell.expect("42:in");
    assert!(end_of(&mut first).success());
    end_of(&mut holder);
}

// Planted: the line drawn from the background, over what is typed in front.
#[test]
fn from_the_background_it_is_said_once() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.line("set -m; $F run x -- bash -c 'echo $$ > $D/job; sleep 600' &");
    let job = place.pid("job").as_raw_pid();
    shell.line("$F run x -- bash -c 'echo yes > $D/ran' &");
    shell.expect("waiting for x: held ");
    place.waiting(1);
    // So long that a line in front would be drawn twice.
    std::thread::sleep(std::time::Duration::from_millis(2_200));
    common::kill(job, rustix::process::Signal::KILL);
    place.line("ran");
    shell.line("echo code:$? | tr c C");
    shell.expect("Code:");
    assert_eq!(shell.screen().matches("waiting for x: ").count(), 1, "{}", shell.screen());
    assert!(!shell.screen().contains("\x1b[Kwaiting"), "{}", shell.screen());
}

// Planted: the line drawn whoever is in front.
#[test]
fn one_that_is_sent_to_the_background_says_no_more() {
    let place = Place::new();
    let mut holder = start(&mut place.run(&[], "echo $$ > $D/job; exec sleep 600"));
    let job = place.pid("job").as_raw_pid();
    let mut shell = Shell::start(&place);
    shell.line("$F run x -- bash -c 'echo yes > $D/ran'");
    shell.expect("waiting for x: held ");
    shell.keys("\x1a");
    shell.expect("Stopped");
    shell.line("bg; echo typed:$? | tr t T");
    shell.expect("Typed:0");
    let before = shell.screen().len();
    // As above.
    std::thread::sleep(std::time::Duration::from_millis(2_200));
    common::kill(job, rustix::process::Signal::KILL);
    place.line("ran");
    shell.line("echo more:$? | tr m M");
    shell.expect("More:");
    let screen = shell.screen();
    assert!(!screen[before..].contains("\x1b[K"), "{screen}");
    end_of(&mut holder);
}

// Planted: a page printed below the one before.
#[test]
fn a_list_that_is_watched_is_drawn_where_it_was() {
    const ANEW: &str = "\x1b[H\x1b[J";
    let place = Place::new();
    let hold = |name: &str| {
        let command = format!("touch $D/{name}; while [ -e $D/{name} ]; do sleep 0.02; done");
        let holder =
            start(place.fencelock().args(["run", name, "--", "bash", "-c", &command]).env("D", place.path("")));
        until("it is held", || place.path(name).exists().then_some(()));
        holder
    };
    let mut shell = Shell::start(&place);
    let mut first = hold("a1");
    shell.line("$F list --watch");
    shell.expect(&format!("{ANEW}a1: held "));
    let mut second = hold("b2");
    shell.expect(&format!("{ANEW}a1: held "));
    shell.expect("b2: held ");
    for (name, holder) in [("a1", &mut first), ("b2", &mut second)] {
        std::fs::remove_file(place.path(name)).expect("it is held");
        assert_eq!(code_of(end_of(holder)), 0);
        let left = if name == "a1" { "b2: held " } else { "" };
        shell.expect(&format!("{ANEW}{left}"));
    }
    shell.keys("\x03");
    shell.expect("> ");
    // As often as something has changed.
    assert_eq!(shell.screen().matches(ANEW).count(), 4, "{}", shell.screen());
}

// Planted: the end of the terminal not heard while it waits.
#[test]
fn a_terminal_that_goes_away_ends_the_wait() {
    let place = Place::new();
    let mut holder = start(&mut place.run(&["--ttl", "60s"], "echo $$ > $D/job; exec sleep 600"));
    let job = place.pid("job").as_raw_pid();
    for (line, shown) in [
        ("$F run x -- bash -c 'echo yes > $D/ran'", "waiting for x: held "),
        ("$F hold x | tee $D/said", "waiting for x: held "),
        ("$F list --watch", "x: held "),
    ] {
        let mut shell = Shell::start(&place);
        shell.line(line);
        shell.expect(shown);
        let pid = until("its pid", || pid_in(&shell));
        drop(shell);
        place.waiting(0);
        until(&format!("the end of {line}"), || (!lives(pid)).then_some(()));
    }
    // Whoever has called it, and goes on, is told of what it died.
    let mut shell = Shell::start(&place);
    shell.line("bash -c 'trap : HUP; $F run x -- true; echo $? > $D/code'");
    shell.expect("waiting for x: held ");
    drop(shell);
    assert_eq!(place.line("code"), "129");
    common::kill(job, rustix::process::Signal::KILL);
    end_of(&mut holder);
    assert_eq!(finish(&mut place.run(&["-n"], "exit 4")).0, 4);
    assert_eq!((place.read("ran"), place.read("said")), (String::new(), String::new()));
}

/// The one fencelock that the shell has started.
fn pid_in(shell: &Shell) -> Option<i32> {
    let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "fencelock\n");
    common::children(shell.pid()).into_iter().find(name)
}

// Planted: an exit with 130 instead of a death by INT.
#[test]
fn one_ctrl_c_ends_a_loop_that_waits() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    std::fs::write(place.path("loop"), "for i in 1 2; do $F run x -- true; echo next:$((6*7)); done\n")
        .expect("a script");
    shell.line("$F run x -- bash -c 'echo $$ > $D/job; sleep 600' &");
    place.pid("job");
    shell.line("bash loop");
    shell.expect("waiting for x: held ");
    shell.keys("\x03");
    shell.expect("> ");
    shell.line("echo code:$? | tr c C");
    shell.expect("Code:130");
    assert!(!shell.screen().contains("next:42"), "{}", shell.screen());
}

// Planted: the job started with HUP ignored.
#[test]
fn a_terminal_that_goes_away_ends_the_job_and_the_hold() {
    let place = Place::new();
    let is_free = || finish(place.fencelock().args(["status", "-q", "x"])).0 == 1;
    let mut shell = Shell::start(&place);
    shell.line("$F run x --ttl 60s -- bash -c 'echo $$ > $D/job; exec sleep 600'");
    let job = place.pid("job").as_raw_pid();
    drop(shell);
    until("the end of the job", || (!lives(job)).then_some(()));
    until("a free lock", || is_free().then_some(()));
    let mut shell = Shell::start(&place);
    shell.line("$F hold x --ttl 60s");
    shell.expect("\"token\":");
    drop(shell);
    until("a free lock", || is_free().then_some(()));
    // A job that does not mind: it has its lock for as long as it runs.
    place.clear();
    let mut shell = Shell::start(&place);
    shell.line("$F run x --ttl 60s -- bash -c 'trap \"\" HUP; exec 9<> <(:); echo $$ > $D/job; while [ ! -e $D/go ]; do read -t 0.02 -u 9; done; echo done > $D/done'");
    let job = place.pid("job").as_raw_pid();
    drop(shell);
    assert!(lives(job) && !is_free());
    std::fs::write(place.path("go"), "").expect("a file");
    assert_eq!(place.line("done"), "done");
    until("a free lock", || is_free().then_some(()));
}

// Planted: the width asked for once.
#[test]
fn the_line_fits_into_a_terminal_that_has_become_narrow() {
    let place = Place::new();
    let _holder = start(&mut place.run(&["--note", &"wide".repeat(20)], "echo $$ > $D/job; exec sleep 600"));
    place.pid("job");
    let mut shell = Shell::start(&place);
    shell.resize(150);
    shell.line("$F run x -- true");
    shell.expect("\r\x1b[Kwaiting for x: held ");
    shell.expect("widewide\" (token ");
    for columns in [30, 1, 150] {
        shell.resize(columns);
        let before = shell.screen().len();
        // The one that was being drawn, and two more.
        while shell.screen()[before..].matches("\r\x1b[K").count() < 3 {
            shell.expect("\r\x1b[K");
        }
        let screen = shell.screen();
        let drawn: Vec<_> = screen[before..].split("\r\x1b[K").skip(2).collect();
        assert!(drawn.iter().all(|line| line.chars().count() < usize::from(columns)), "{columns}: {drawn:?}");
        assert!(columns < 150 || drawn[0].contains("widewide"), "{drawn:?}");
    }
    shell.keys("\x03");
    shell.line("echo code:$? | tr c C");
    shell.expect("Code:130");
}
