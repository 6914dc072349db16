//! The program over a real MariaDB, beside an operator at its terminal.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock_testkit::MariaDb;
use std::{
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

fn fencelock(server: &MariaDb, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencelock"));
    command.args(words).env("FENCELOCK_URL", server.url()).stdin(Stdio::null());
    command
}
fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The job's own write is refused when a newer holder has written.
#[test]
fn a_job_writes_with_its_token() {
    let server = MariaDb::start();
    server.ask("CREATE TABLE orders (id int, fence bigint); INSERT INTO orders VALUES (42, 0)");
    let script = format!(
        "mariadb --no-defaults -h 127.0.0.1 -P {} -u root -D test -NBe \"UPDATE orders SET fence = $FENCELOCK_TOKEN \
         WHERE id = 42 AND fence <= $FENCELOCK_TOKEN; SELECT fence FROM orders\"",
        server.port()
    );
    let out = fencelock(&server, &["run", "job", "--", "sh", "-c", &script]).output().unwrap();
    let (token, _) = said(&out).split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(server.ask("SELECT fence FROM orders"), token);
    // Nothing of it is left but the record of its tokens.
    assert_eq!(server.ask("SELECT name, hold IS NULL, fence FROM fencelock_lock"), format!("job\t1\t{token}"));
}

#[test]
fn operators_meet_a_run() {
    let server = MariaDb::start();
    let mut job =
        fencelock(&server, &["run", "--ttl", "2s", "job", "--", "sleep", "60"]).stderr(Stdio::piped()).spawn().unwrap();
    let status = || {
        String::from_utf8_lossy(&fencelock(&server, &["status", "job", "--json"]).output().unwrap().stdout).into_owned()
    };
    eventually("it runs", || status().contains("\"token\":"));
    let busy = fencelock(&server, &["run", "-n", "job", "--", "true"]).output().unwrap();
    assert_eq!(busy.status.code(), Some(75), "{}", said(&busy));
    assert!(said(&busy).contains("\"sleep\"") && !said(&busy).contains("lease 0"), "{}", said(&busy));
    let kind = fencelock(&server, &["run", "-s", "job", "--", "true"]).output().unwrap();
    assert_eq!(kind.status.code(), Some(78), "{}", said(&kind));
    let list = fencelock(&server, &["list"]).output().unwrap();
    assert!(said(&list).starts_with("job: held"), "{}", said(&list));
    let text = status();
    let (_, token) = text.split_once("\"token\":").unwrap();
    let token: String = token.chars().take_while(char::is_ascii_digit).collect();
    let next = fencelock(&server, &["run", "-w", "60s", "job", "--", "true"]).spawn().unwrap();
    eventually("the next one waits", || !status().contains("\"waiters\":[]"));
    let out = fencelock(&server, &["release", "job", "--force", "--token", &token]).output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(job.wait().unwrap().code(), Some(76));
    assert!(next.wait_with_output().unwrap().status.success());
}

/// A mistake or two: each is told in a line, with the way out.
#[test]
fn what_cannot_be() {
    let server = MariaDb::start();
    let run = |url: &str| {
        let out = fencelock(&server, &["--url", url, "status", "x"]).output().unwrap();
        (out.status.code().unwrap(), said(&out))
    };
    let url = server.url();
    for (url, code, says) in [
        (url.replace("/test", "/nowhere"), 78, "no such database"),
        (url.replace("//root@", "//ann@"), 78, "user or password"),
        (url.replace("/test", ""), 78, "a database is missing"),
        (format!("{url}?schema=x"), 78, "unknown key"),
        (format!("mariadb://ann:hunter2@127.0.0.1:{}/x", fencelock_testkit::Port::free()), 69, "no connection"),
    ] {
        let (found, told) = run(&url);
        assert!(found == code && told.contains(says), "{url}: {found} {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
