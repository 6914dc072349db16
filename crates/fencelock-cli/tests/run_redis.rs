//! A server that goes while a job runs under it, and one that wants a password.
//!
//! Planted to see it red: a lease that ends while nobody answers the release taken for a loss; no ear for signals meanwhile; the
//! namespace left out of what a job is told.

mod common;
#[path = "common/server.rs"]
mod server;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use common::{Place, Running, code_of, done, end_of, finish, kill, minder_of, pid_of, start, until};
use fencelock_testkit::{Redis, RedisOptions};
use rustix::process::Signal;

/// A job that ends with 7 when it may, and its minder.
fn held(place: &Place, redis: &Redis, ttl: &str) -> (Running, String) {
    let job = "echo > $D/held; until [ -e $D/go ]; do sleep 0.01; done; exit 7";
    let mut run = place.run(&["--ttl", ttl, "--grace", "50ms"], job);
    let holder = start(run.env("FENCELOCK_URL", redis.url()).stderr(Stdio::piped()));
    place.line("held");
    let minder = format!("/proc/{}", minder_of(pid_of(&holder)).as_raw_pid());
    (holder, minder)
}

fn said(holder: &mut Running) -> String {
    let mut said = String::new();
    holder.stderr.take().expect("its messages").read_to_string(&mut said).expect("text");
    said
}

#[test]
fn a_release_that_nobody_answers_is_no_loss() {
    let place = Place::new();
    let redis = Redis::start();
    let (mut holder, _) = held(&place, &redis, "5s");
    redis.kill();
    fs::write(place.path("go"), "").expect("a file");
    let said = said(&mut holder);
    assert_eq!(done(holder), 7, "{said}");
    assert!(said.starts_with("fencelock: x could not be released: ") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_signal_ends_the_wait_for_a_release() {
    for signal in [Signal::TERM, Signal::INT] {
        let (place, redis) = (Place::new(), Redis::start());
        let (mut holder, minder) = held(&place, &redis, "10m");
        redis.pause(true);
        fs::write(place.path("go"), "").expect("a file");
        until("the end of the minder", || (!Path::new(&minder).exists()).then_some(()));
        // One that asks for something else is nobody's any more.
        kill(pid_of(&holder).as_raw_pid(), Signal::USR1);
        kill(pid_of(&holder).as_raw_pid(), signal);
        let code = code_of(end_of(&mut holder));
        redis.pause(false);
        let said = said(&mut holder);
        assert_eq!(code, 128 + signal.as_raw(), "{said}");
        assert!(said.starts_with("fencelock: x could not be released: "), "{said}");
    }
}

/// One that wants a password, and the URL that has it.
fn secret() -> (Redis, String) {
    let arguments = ["--requirepass", "hunter2"].map(str::to_owned).to_vec();
    let redis = Redis::with(RedisOptions { arguments, ..RedisOptions::default() });
    let url = format!("redis://:hunter2@127.0.0.1:{}", redis.port());
    (redis, url)
}

// Planted: the URL passed on whatever it holds; the variable left as the outer run had it; the default engine below such a run.
#[test]
fn a_secret_url_is_not_passed_on_unless_that_is_said() {
    let place = Place::new();
    let (redis, url) = secret();
    fs::write(place.path("url"), format!("{url}\n")).expect("a file");
    let nested = format!("{} run -n x", common::binary().display());
    let script = format!(
        "echo ${{FENCELOCK_URL-none}}; env | grep -c hunter2; {nested} -- echo in; echo $?; {nested} --url-file url -- echo in; echo $?"
    );
    for from in ["file", "environment"] {
        let options: &[&str] = if from == "file" { &["--url-file", "url"] } else { &[] };
        let mut run = place.run(options, &script);
        run.env_remove("FENCELOCK_URL").env("XDG_STATE_HOME", place.path("state"));
        if from == "environment" {
            run.env("FENCELOCK_URL", &url);
        }
        let (code, out, err) = finish(&mut run);
        assert_eq!((code, out.as_str()), (0, "none\n0\n78\n75\n"), "{from}: {err}");
        let (refused, busy) = err.split_once('\n').expect("lines");
        let outer = format!("fencelock: the outer run used redis://127.0.0.1:{}", redis.port());
        assert!(refused.starts_with(&outer) && refused.ends_with("; give --url, or --pass-url there"), "{from}: {err}");
        assert!(busy.starts_with("fencelock: x was not got: held ") && !err.contains("hunter2"), "{from}: {err}");
        assert!(!place.path("state").exists(), "{from}: the nested one made a database");
    }
    let (code, out, err) = finish(place.run(&["--pass-url"], &script).env("FENCELOCK_URL", &url));
    assert_eq!((code, out.as_str()), (0, format!("{url}\n1\n75\n75\n").as_str()), "{err}");
}

#[test]
fn a_lock_of_another_namespace_is_another_one_though_the_url_is_secret() {
    let place = Place::new();
    let (_redis, url) = secret();
    let nested = format!("{} run --reentrant -n", common::binary().display());
    let tell = "-- bash -c 'echo $FENCELOCK_HOLD'";
    let script =
        format!("echo $FENCELOCK_HOLD; {nested} x {tell}; {nested} --namespace b x {tell}; echo $FENCELOCK_ENGINE");
    let mut run = place.run(&["--pass-url", "--namespace", "a"], &script);
    let (code, out, err) = finish(run.env("FENCELOCK_URL", url));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines.len()), (0, 4), "{out}{err}");
    assert!(lines[0] == lines[1] && lines[1] != lines[2], "{out}");
    assert!(lines[3].ends_with("?namespace=a") && !out.contains("hunter2"), "{out}");
}

#[test]
fn a_job_whose_server_goes_is_stopped() {
    let redis = Redis::start();
    server::a_job_whose_server_goes_is_stopped(&redis.url(), || redis.pause(true));
    redis.pause(false);
}

/// With `--on-loss warn` it goes on, and its own code counts.
#[test]
fn a_job_that_is_only_warned_outlives_its_server() {
    let (place, redis) = (Place::new(), Redis::start());
    let job = "echo > $D/held; until [ -e $D/go ]; do sleep 0.01; done; exit 7";
    let mut run = place.run(&["--ttl", "5s", "--on-loss", "warn"], job);
    let mut holder = start(run.env("FENCELOCK_URL", redis.url()).stderr(Stdio::piped()));
    place.line("held");
    redis.kill();
    let mut told = std::io::BufReader::new(holder.stderr.take().expect("its messages"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut told, &mut line).expect("a line");
    fs::write(place.path("go"), "").expect("a file");
    assert_eq!(done(holder), 7, "{line}");
    assert!(line.contains("the engine could not be reached") && line.ends_with(": the job runs on\n"), "{line}");
}

/// A server that does not answer for a while is told of once, and what comes then is shown. (Red: the first look that fails ends it.)
#[test]
fn a_list_that_is_watched_outlives_an_outage() {
    let redis = Redis::start();
    let mut watch = server::fencelock(&redis.url(), &["list", "--watch"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a list");
    let read = |from: &mut dyn std::io::BufRead| {
        let mut line = String::new();
        assert!(from.read_line(&mut line).expect("a line") > 0, "it has ended");
        line
    };
    let mut out = std::io::BufReader::new(watch.stdout.take().expect("its output"));
    let mut err = std::io::BufReader::new(watch.stderr.take().expect("its messages"));
    let hold = |name: &str| {
        let mut hold = server::fencelock(&redis.url(), &["hold", name]);
        hold.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a holder")
    };
    let mut first = hold("a");
    let mut shown = |name: &str| while !read(&mut out).starts_with(name) {};
    shown("a: held");
    redis.pause(true);
    let told = read(&mut err);
    assert!(told.starts_with("fencelock: list: ") && told.ends_with("; it is looked again\n"), "{told}");
    redis.pause(false);
    let mut second = hold("b");
    shown("b: held");
    watch.kill().expect("it is there");
    watch.wait().expect("its end");
    let mut more = String::new();
    err.read_to_string(&mut more).expect("text");
    assert_eq!(more, "");
    for holder in [&mut first, &mut second] {
        drop(holder.stdin.take());
        holder.wait().expect("its end");
    }
}

#[test]
fn what_cannot_be() {
    let (_redis, url) = secret();
    let cases = [
        (url.replace("hunter2", "hunter3"), 78, "password"),
        (format!("{url}?layuot=plain"), 78, "unknown key"),
        (url.replace("redis:", "rdis:"), 78, "did you mean redis:"),
    ];
    server::what_cannot_be(&url, &cases);
    server::nobody_is_there(&format!("redis://ann:hunter2@127.0.0.1:{}", fencelock_testkit::Port::free()));
}

// Planted: FROM and TO exchanged; a version that is not compared.
#[test]
fn values_and_sizes() {
    let redis = Redis::start();
    server::a_value_is_written_by_its_version(&redis.url());
    server::a_semaphore_is_resized(&redis.url());
    server::a_hold_is_watched(&redis.url());
}
