//! What the program has to show over every server, beside those who work on it by other means.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part, and fails where it unwraps")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) fn fencelock(url: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencelock"));
    command.args(words).env("FENCELOCK_URL", url).stdin(Stdio::null());
    command
}
pub(crate) fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}
/// Its exit code, and what it says.
pub(crate) fn done(url: &str, words: &[&str]) -> (Option<i32>, String) {
    let out = fencelock(url, words).output().unwrap();
    (out.status.code(), said(&out))
}
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}
/// Of `job`, as JSON.
pub(crate) fn status(url: &str) -> String {
    String::from_utf8_lossy(&fencelock(url, &["status", "job", "--json"]).output().unwrap().stdout).into_owned()
}
/// Has one wait for `job`.
pub(crate) fn next(url: &str) -> Child {
    let next = fencelock(url, &["run", "-w", "60s", "job", "--", "true"]).spawn().unwrap();
    eventually("the next one waits", || status(url).contains("\"waiters\":[{"));
    next
}

/// What is held until an input ends is seen by whoever watches the list, and that it is free again. (Red: what is free left out.)
pub(crate) fn a_hold_is_watched(url: &str) {
    let mut watch = fencelock(url, &["list", "--watch", "--json", "held"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let (tell, told_of) = mpsc::channel();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    // A quorum may be seen before its token is written, or be tried twice, on a busy machine: only there do other lines come before.
    let seen = |so: &dyn Fn(&serde_json::Value) -> bool| {
        let began = Instant::now();
        loop {
            let line = told_of.recv_timeout(Duration::from_secs(20).saturating_sub(began.elapsed())).unwrap();
            let line = serde_json::from_str::<serde_json::Value>(&line).unwrap();
            assert_eq!(line["name"], "held");
            if so(&line) {
                return line;
            }
            assert!(url.starts_with("redlock:"), "{line}");
        }
    };
    let mut hold = fencelock(url, &["hold", "--note", "deploy", "held"]);
    let mut hold = hold.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(hold.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    let held = seen(&|line| line["holders"][0]["token"] == told["token"]);
    let holder = &held["holders"][0];
    assert_eq!((&holder["note"], &holder["pid"]), (&"deploy".into(), &hold.id().into()), "{held}");
    drop(hold.stdin.take());
    assert!(hold.wait().unwrap().success());
    seen(&|line| line["holders"] == serde_json::json!([]));
    watch.kill().unwrap();
    watch.wait().unwrap();
}
/// A run that somebody waits for is met by all that operators have, and in the end it is taken the lock. What whoever only tried was told.
pub(crate) fn operators_meet_a_run<T>(url: &str, options: &[&str], next: impl FnOnce() -> T) -> (String, T) {
    a_hold_is_watched(url);
    let mut job = fencelock(url, &[&["run"], options, &["job", "--", "sleep", "60"]].concat());
    let mut job = job.stderr(Stdio::piped()).spawn().unwrap();
    eventually("it runs", || status(url).contains("\"token\":"));
    let next = next();
    let (code, busy) = done(url, &["run", "-n", "job", "--", "true"]);
    assert_eq!(code, Some(75), "{busy}");
    let (code, kind) = done(url, &["run", "-s", "job", "--", "true"]);
    assert_eq!(code, Some(78), "{kind}");
    let (_, list) = done(url, &["list"]);
    assert!(list.starts_with("job: held"), "{list}");
    let text = status(url);
    let (_, token) = text.split_once("\"token\":").unwrap();
    let token: String = token.chars().take_while(char::is_ascii_digit).collect();
    let (code, released) = done(url, &["release", "job", "--force", "--token", &token]);
    assert_eq!(code, Some(0), "{released}");
    assert_eq!(job.wait().unwrap().code(), Some(76));
    (busy, next)
}
/// At the end the server goes.
pub(crate) fn all_that_leases_can(engine: &str, url: &str, goes: impl FnOnce()) {
    operators_meet(url);
    a_killed_run_is_replaced(engine, url, "6s");
    a_value_is_written_by_its_version(url);
    a_semaphore_is_resized(url);
    a_job_whose_server_goes_is_stopped(url, goes);
}
/// The next one has said that he waits, in a queue.
pub(crate) fn operators_meet(url: &str) {
    ends_with_its_turn(operators_meet_a_run(url, &["--ttl", "6s"], || next(url)));
}
/// Nobody has a place in a queue there, and the next one runs all the same.
pub(crate) fn operators_meet_a_shared_row(url: &str) {
    let next = || fencelock(url, &["run", "-w", "60s", "job", "--", "true"]).spawn().unwrap();
    ends_with_its_turn(operators_meet_a_run(url, &["--ttl", "6s"], next));
}
fn ends_with_its_turn((busy, next): (String, Child)) {
    assert!(busy.contains("\"sleep\"") && !busy.contains("lease 0"), "{busy}");
    assert!(next.wait_with_output().unwrap().status.success());
}
/// Nobody gives back what a killed process held: it ends by itself.
pub(crate) fn a_killed_run_is_replaced(engine: &str, url: &str, ttl: &str) {
    let mut job = fencelock(url, &["run", "--ttl", ttl, "job", "--", "sleep", "60"]).spawn().unwrap();
    eventually("it runs", || status(url).contains("\"token\":"));
    let next = next(url);
    job.kill().unwrap();
    job.wait().unwrap();
    let began = Instant::now();
    assert!(next.wait_with_output().unwrap().status.success());
    let took = began.elapsed();
    println!("MEASURED | {engine}: next grant after kill -9 with a ttl of {ttl} | {took:?} | reported | ok");
}

/// The server goes while a job runs: the job is told to end, and has, before its lease is over. (Red: renewals that are not answered are
/// passed over.)
pub(crate) fn a_job_whose_server_goes_is_stopped(url: &str, goes: impl FnOnce()) {
    let ttl = Duration::from_secs(9);
    let script = "trap 'echo termed; exit 5' TERM; echo in; while :; do sleep 0.05; done";
    let mut run = fencelock(url, &["run", "--ttl", "9s", "job", "--", "sh", "-c", script]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(run.stdout.take().unwrap());
    let (mut line, mut more) = (String::new(), String::new());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "in\n");
    goes();
    let began = Instant::now();
    // Its end is that of all who had it.
    out.read_line(&mut more).unwrap();
    let took = began.elapsed();
    assert_eq!(more, "termed\n");
    assert!(took < ttl, "{took:?}");
    let end = run.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&end.stderr);
    assert_eq!(end.status.code(), Some(76), "{told}");
    assert!(told.contains("fencelock: the lease of job was about to run out"), "{told}");
}
/// All that there is to be asked, of a server that is not there: a line that says so, and nothing is done.
pub(crate) fn nobody_is_there(url: &str) {
    let all = [
        "run -w 1s job -- echo in",
        "hold -w 1s job",
        "status job",
        "list",
        "release job --force --token 7",
        "cell get c",
        "cell set c 1",
        "semaphore resize s 1 2",
        "bench --seconds 0.1",
    ];
    let asked = all.map(|words| {
        let words: Vec<&str> = words.split(' ').collect();
        let mut command = fencelock(url, &words);
        (words, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    });
    for (words, child) in asked {
        let out = child.wait_with_output().unwrap();
        let told = said(&out);
        assert!(out.status.code() == Some(69) && out.stdout.is_empty(), "{words:?}: {told}");
        assert!(told.starts_with("fencelock: ") && told.lines().count() == 1, "{words:?}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

/// The job's own write is refused when a newer holder has written. `writes`: to `orders`, at a terminal that writes what is there now.
pub(crate) fn a_job_writes_with_its_token(url: &str, ask: impl Fn(&str) -> String, writes: &str) {
    ask("CREATE TABLE orders (id int, fence bigint); INSERT INTO orders VALUES (42, 0)");
    let (_, said) = done(url, &["run", "job", "--", "sh", "-c", writes]);
    let (token, _) = said.split_once('\n').unwrap();
    assert_eq!(ask("SELECT fence FROM orders"), token);
    // Nothing of it is left but the record of its tokens.
    let record = format!("name = 'job' AND hold IS NULL AND fence = {token}");
    let of = format!("SELECT (SELECT count(*) FROM fencelock_lock), count(*) FROM fencelock_lock WHERE {record}");
    assert_eq!(ask(&of), "1\t1", "{}", ask("SELECT * FROM fencelock_lock"));
}
/// A mistake or two: each is told in a line, with the way out.
pub(crate) fn what_cannot_be(other: &str, cases: &[(String, i32, &str)]) {
    for (url, code, says) in cases {
        let (found, told) = done(other, &["--url", url, "status", "x"]);
        assert!(found == Some(*code) && told.contains(says), "{url}: {found:?} {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

/// A value by its version.
pub(crate) fn a_value_is_written_by_its_version(url: &str) {
    let cell = |words: &[&str]| {
        let out = fencelock(url, &[&["cell"], words].concat()).output().unwrap();
        (out.status.code(), said(&out))
    };
    assert_eq!(cell(&["get", "c"]), (Some(1), "fencelock: c has no value\n".to_owned()));
    let (code, first) = cell(&["set", "c", "-80", "--if-version", "0"]);
    assert_eq!((code, cell(&["get", "c"]).1.as_str()), (Some(0), "-80"), "{first}");
    let (code, told) = cell(&["set", "c", "9", "--if-version", "0"]);
    assert!(code == Some(75) && told.contains(first.trim()), "{told}");
    let (code, second) = cell(&["set", "c", "81", "--if-version", first.trim()]);
    assert!(code == Some(0) && second.trim().parse::<i64>().unwrap() > first.trim().parse().unwrap(), "{second}");
    let json = format!("{{\"name\":\"c\",\"version\":{},\"value\":\"81\"}}\n", second.trim());
    assert_eq!(cell(&["get", "c", "--json"]), (Some(0), json));
    // It is no lock, while it has a value.
    let (code, told) = done(url, &["run", "-n", "c", "--", "true"]);
    assert!(code == Some(78) && told.contains("cell"), "{told}");
    assert_eq!(done(url, &["status", "c"]), (Some(0), "a cell: it has a value, and nobody can hold it\n".to_owned()));
    assert_eq!(cell(&["set", "c", "--remove", "--if-version", first.trim()]).0, Some(75));
    assert_eq!(cell(&["set", "c", "--remove", "--if-version", second.trim()]).0, Some(0));
    assert_eq!(cell(&["get", "c"]).0, Some(1));
    assert_eq!(done(url, &["status", "c"]), (Some(0), "free\n".to_owned()));
}

/// A semaphore grows under those who hold.
pub(crate) fn a_semaphore_is_resized(url: &str) {
    let ask = |permits: &str| done(url, &["run", "-n", "--permits", permits, "sized", "--", "true"]);
    let resize = |from: &str, to: &str| done(url, &["semaphore", "resize", "sized", from, to]);
    let mut holder = fencelock(url, &["hold", "--permits", "1/1", "sized"]);
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"mode\":\"permits\""), "{line}");
    let (code, told) = ask("1/1");
    assert_eq!(code, Some(75), "{told}");
    let (code, told) = resize("7", "9");
    assert!(code == Some(78) && told.contains('1'), "{told}");
    assert_eq!(resize("1", "2"), (Some(0), String::new()));
    assert_eq!(resize("1", "2"), (Some(0), String::new()), "it may be repeated");
    let (code, told) = ask("1/2");
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = ask("1/1");
    assert!(code == Some(78) && told.contains("--permits K/2"), "{told}");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}
/// An engine that has none says so.
pub(crate) fn no_semaphore_is_resized(url: &str) {
    let (code, told) = done(url, &["semaphore", "resize", "sized", "1", "2"]);
    assert!(code == Some(78) && told.starts_with("fencelock: ") && told.contains("semaphores"), "{told}");
}
/// So many clients as it measures have a connection each at a server that has no more; sessions need more, and are told so.
pub(crate) fn few_connections_are_measured(url: &str) {
    let bench = |url: &str| {
        let words = ["bench", "--seconds", "0.5", "--tasks", "1", "--waiters", "24", "--holders", "10"];
        done(url, &words)
    };
    let (code, told) = bench(url);
    assert!(code == Some(0) && told.contains("contended     24"), "{code:?}: {told}");
    let (code, told) = bench(&format!("{url}?strategy=session"));
    assert!(code == Some(69) && told.contains("raise max_connections"), "{code:?}: {told}");
}
