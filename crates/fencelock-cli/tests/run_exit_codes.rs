//! The exit codes of CLI.md, each shown.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Place, end_of, finish, start, until};

// Planted: 1 for every code above 0.
#[test]
fn the_code_of_the_job_is_exact() {
    let place = Place::new();
    for code in [0, 1, 3, 64, 75, 76, 127, 255] {
        assert_eq!(finish(&mut place.run(&[], &format!("exit {code}"))).0, code);
    }
}

// Planted: the number of the signal without the 128.
#[test]
fn a_job_that_died_of_a_signal_is_told_as_a_shell_tells_it() {
    let place = Place::new();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("SEGV", 139)] {
        assert_eq!(finish(&mut place.run(&[], &format!("ulimit -c 0; kill -{signal} $$"))).0, code, "{signal}");
    }
}

// Planted: 126 for both.
#[test]
fn a_command_that_cannot_run() {
    let place = Place::new();
    let (code, _, err) = finish(place.fencelock().args(["run", "x", "--", "no-such-command"]));
    assert_eq!((code, err.as_str()), (127, "fencelock: cannot run \"no-such-command\": there is no such command\n"));
    let (code, _, err) = finish(place.fencelock().args(["run", "x", "--", "/etc/passwd"]));
    assert_eq!((code, err.as_str()), (126, "fencelock: cannot run \"/etc/passwd\": it is not executable\n"));
    assert_eq!(finish(place.fencelock().args(["run", "x", "--", ""])).0, 127);
    // Nothing is left held.
    assert_eq!(finish(&mut place.run(&["-n"], "exit 5")).0, 5);
}

// Planted: --skip-ok exits with 75; --no-wait misspelt; a code above 127 cut off.
#[test]
fn a_lock_that_was_not_got() {
    let place = Place::new();
    let mut holder = start(place.run(&[], "echo > $D/held; read; exit 0").stdin(Stdio::piped()));
    place.line("held");
    let (code, _, err) = finish(&mut place.run(&["-n"], "echo no > $D/ran"));
    assert_eq!(code, 75);
    assert!(err.starts_with("fencelock: x was not got: "), "{err}");
    assert_eq!(finish(&mut place.run(&["-w", "50ms"], "echo no > $D/ran")).0, 75);
    assert_eq!(finish(&mut place.run(&["-n", "-E", "3"], "echo no > $D/ran")).0, 3);
    for code in ["0", "1", "255"] {
        let (found, _, err) = finish(&mut place.run(&["--no-wait", "--busy-exit-code", code], "echo no > $D/ran"));
        assert_eq!(found.to_string(), code);
        assert!(err.starts_with("fencelock: x was not got: held "), "{err}");
    }
    assert_eq!(finish(&mut place.run(&["-w", "0.05", "--skip-ok"], "echo no > $D/ran")).0, 0);
    assert_eq!(place.read("ran"), "");
    drop(holder.stdin.take());
    assert!(end_of(&mut holder).success());
    assert_eq!(finish(&mut place.run(&["-n"], "exit 4")).0, 4);
}

// Planted: clap's own code 2.
#[test]
fn a_command_line_that_is_wrong() {
    let place = Place::new();
    let wrong: [&[&str]; 11] = [
        &[],
        &["fly"],
        &["run"],
        &["run", "x"],
        &["run", "x", "--"],
        &["run", "x", "-n", "-w", "1s", "--", "true"],
        &["run", "x", "-w", "soon", "--", "true"],
        &["run", "x", "-w", "0s", "--", "true"],
        &["run", "x", "--max-hold", "0", "--", "true"],
        &["run", "x", "-E", "256", "--", "true"],
        &["release", "x", "--token", "1"],
    ];
    for args in wrong {
        let (code, out, err) = finish(place.fencelock().args(args));
        assert_eq!(code, 64, "{args:?}: {err}");
        assert_eq!(out, "", "{args:?}");
        assert_ne!(err, "", "{args:?}");
    }
    assert!(finish(place.fencelock().args(["run", "x", "-w", "soon", "--", "true"])).2.contains("'soon'"));
    assert_eq!(finish(place.fencelock().arg("list")).1, "");
}

// Planted: the grace taken as given; the default engine used below an outer run.
#[test]
fn a_configuration_that_is_wrong() {
    let place = Place::new();
    let (code, _, err) = finish(&mut place.run(&["--ttl", "3s", "--grace", "1001ms"], "echo no > $D/ran"));
    assert_eq!(code, 78);
    assert!(err.contains("1.001s") && err.contains("1s") && err.contains("--grace"), "{err}");
    let (code, _, err) =
        finish(place.run(&[], "exit 0").env_remove("FENCELOCK_URL").env("FENCELOCK_ENGINE", "redis://10.0.0.5"));
    assert_eq!(
        (code, err.trim_end()),
        (78, "fencelock: the outer run used redis://10.0.0.5; give --url, or --pass-url there")
    );
    let (code, _, err) = finish(&mut place.run(&["--url-file", "/nowhere/url"], "exit 0"));
    assert_eq!(code, 78);
    assert!(err.contains("/nowhere/url"), "{err}");
    for options in [["--url", "carrier-pigeon:x"], ["--ttl", "0s"], ["--ttl", "1000d"]] {
        let (code, _, err) = finish(&mut place.run(&options, "echo no > $D/ran"));
        assert_eq!(code, 78, "{options:?}: {err}");
        assert_eq!(err.lines().next().map(|l| l.starts_with("fencelock: ")), Some(true), "{err}");
    }
    for name in ["", &"n".repeat(513)] {
        let (code, _, err) = finish(place.fencelock().args(["run", name, "--", "true"]));
        assert_eq!(code, 78, "{name:?}: {err}");
    }
    assert_eq!(place.read("ran"), "");
    assert_eq!(finish(&mut place.run(&["-n"], "exit 4")).0, 4);
}

/// As a cron job starts: nothing in the environment, and a place for what this user has.
fn bare(place: &Place, args: &[&str]) -> std::process::Command {
    let mut command = place.fencelock();
    command.env_remove("FENCELOCK_URL").env("XDG_STATE_HOME", place.path("state")).args(args);
    command
}

// Planted: a file that is read, and not used; a warning for whatever comes from a file.
#[test]
fn a_url_in_a_file_is_used_and_draws_no_warning() {
    let place = Place::new();
    std::fs::write(place.path("url"), format!("{}\n", place.url())).expect("a file");
    let mut run = bare(&place, &["run", "x", "--url-file", "url", "--", "bash", "-c", "echo > held; read; exit 0"]);
    let mut holder = start(run.stdin(Stdio::piped()).stderr(Stdio::piped()));
    place.line("held");
    let look = |url: &[&str]| finish(&mut bare(&place, &[&["status", "-q", "x"], url].concat()));
    assert_eq!(look(&["--url", &place.url()]), (0, String::new(), String::new()));
    assert_eq!(look(&["--url-file", "url"]), (0, String::new(), String::new()));
    drop(holder.stdin.take());
    assert!(end_of(&mut holder).success());
    let said = std::io::read_to_string(holder.stderr.take().expect("its messages")).expect("text");
    assert_eq!(said, "");
    assert_eq!(look(&["--url", &place.url()]).0, 1);
    // Who is nowhere: it is refused for that, and nothing is said of what it holds.
    std::fs::write(place.path("url"), "carrier://me:hunter2@host\n").expect("a file");
    let (code, _, err) = look(&["--url-file", "url"]);
    assert!(code == 78 && !err.contains("warning") && !err.contains("hunter2"), "{code} {err}");
}

// Planted: the scheme told for the place; `--verbose` without its token.
#[test]
fn verbose_tells_the_database_and_the_token() {
    let place = Place::new();
    // The one of this user, where nothing is said.
    for (file, url) in [("locks.db", Some(place.url())), ("state/fencelock/locks.db", None)] {
        for option in ["-v", "--verbose"] {
            let mut run = bare(&place, &["run", option, "x", "--", "bash", "-c", "echo $FENCELOCK_TOKEN"]);
            let (code, out, err) = finish(run.envs(url.as_ref().map(|url| ("FENCELOCK_URL", url))));
            let database = place.path(file);
            assert!(code == 0 && database.is_file(), "{database:?}: {err}");
            assert_eq!(err, format!("fencelock: engine {}\nfencelock: token {out}", database.display()));
        }
    }
}

// Planted: the child told no URL where nobody was told one.
#[test]
fn a_run_below_one_that_was_told_no_place_meets_its_locks() {
    let place = Place::new();
    let (binary, elsewhere) = (common::binary(), place.path("elsewhere"));
    let script = format!("XDG_STATE_HOME='{}' '{}' run -n x -- echo in", elsewhere.display(), binary.display());
    for options in [&[][..], &["--pass-url"]] {
        let (code, out, err) =
            finish(&mut bare(&place, &[&["run", "x"], options, &["--", "bash", "-c", &script]].concat()));
        assert_eq!((code, out.as_str()), (75, ""), "{options:?}: {err}");
        assert!(err.starts_with("fencelock: x was not got: held "), "{options:?}: {err}");
        assert!(place.path("state").exists() && !elsewhere.exists(), "{options:?}: the inner one made a database");
    }
}

// Planted: no version.
#[test]
fn the_version_is_told() {
    let place = Place::new();
    for option in ["-V", "--version"] {
        let told = (0, format!("fencelock {}\n", env!("CARGO_PKG_VERSION")), String::new());
        assert_eq!(finish(place.fencelock().arg(option)), told);
    }
}

// Planted: no TERM before the KILL of --max-hold; both at once.
#[test]
fn max_hold_ends_the_job_with_76() {
    let place = Place::new();
    let script = "trap 'echo > $D/termed; exit 0' TERM; echo > $D/up; while :; do sleep 0.01; done";
    let began = Instant::now();
    let (code, _, err) = finish(&mut place.run(&["--max-hold", "5s"], script));
    assert_eq!(code, 76, "{err}");
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(place.read("termed"), "\n");
    assert!(err.contains("--max-hold"), "{err}");
    let deaf = "trap '' TERM; while :; do sleep 0.01; done";
    // Said, and a third of a ttl where nothing is.
    for (options, grace) in [(["--grace", "700ms"], 700), (["--ttl", "3s"], 1_000)] {
        let began = Instant::now();
        let (code, _, err) = finish(&mut place.run(&[&["--max-hold", "100ms"], &options[..]].concat(), deaf));
        assert_eq!(code, 76, "{err}");
        assert!(began.elapsed() >= Duration::from_millis(100 + grace), "{options:?}: {:?}", began.elapsed());
    }
}

// Planted: the arguments through `String`; the environment of the job built anew.
#[test]
fn arguments_environment_and_streams_are_the_jobs_own() {
    let place = Place::new();
    let odd = OsStr::from_bytes(b"a\xffb\n c");
    let mut command = place.fencelock();
    // As hexadecimal: read as text, a byte that is none and what stands for it look alike.
    command.args(["run", "x", "--", "bash", "-c", "printf '%s|' \"$@\" | od -An -tx1", "0"]).arg(odd).arg("--note");
    assert_eq!(finish(&mut command).1.trim(), "61 ff 62 0a 20 63 7c 2d 2d 6e 6f 74 65 7c");
    let mut command = place
        .run(&[], "cat; echo out; echo err >&2; printf %s \"$ODD\" | wc -c; ls -l /proc/self/fd | grep -c socket:");
    let mut child = command
        .env("ODD", odd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child");
    use std::io::Write;
    child.stdin.take().expect("its input").write_all(b"in\n").expect("written");
    let output = child.wait_with_output().expect("output");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.starts_with("in\nout\n6\n0\n"), "{out}");
    assert_eq!(output.stderr, b"err\n");
}

// Planted: one of the variables left out; the note with the arguments.
#[test]
fn what_the_job_is_told() {
    let place = Place::new();
    let (code, out, _) = finish(&mut place.run(&["--ttl", "6s"], "echo $FENCELOCK_NAME,$FENCELOCK_MODE,$FENCELOCK_TTL_MS; echo $FENCELOCK_URL; echo $FENCELOCK_ENGINE; echo $((FENCELOCK_TOKEN > 0)),${#FENCELOCK_HOLD}"));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines[0], lines[3]), (0, "x,mutex,6000", "1,32"), "{out}");
    assert!(lines[1].contains("locks.db") && !lines[2].is_empty(), "{out}");
}

// Planted: the wrapper does not wait for what its job left behind.
#[test]
fn nothing_of_the_job_survives_it() {
    let place = Place::new();
    let script = "trap '' TERM; (setsid sleep 600 & echo $! > $D/left); sleep 600 & echo $! > $D/left2; exit 3";
    assert_eq!(finish(&mut place.run(&[], script)).0, 3);
    for name in ["left", "left2"] {
        assert!(!common::lives(place.pid(name).as_raw_pid()), "{name} lives");
    }
}

// Planted: the children that `exec` handed down are taken for the job's.
#[test]
fn a_child_from_before_is_spared() {
    let place = Place::new();
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", "sleep 600 & echo $! > $D/before; exec $F run x -- bash -c 'sleep 600 & exit 6'"]);
    shell.env("D", place.path("")).env("F", common::binary()).env("FENCELOCK_URL", place.url());
    assert_eq!(common::code_of(end_of(&mut start(shell.stdout(Stdio::null())))), 6);
    let before = place.pid("before").as_raw_pid();
    assert!(common::lives(before));
    common::kill(before, rustix::process::Signal::KILL);
    until("its end", || (!common::lives(before)).then_some(()));
}

// Planted: FENCELOCK_URL taken from the environment of the wrapper only.
#[test]
fn a_nested_run_meets_the_same_locks() {
    let place = Place::new();
    let other = format!("sqlite:{}", place.path("other.db").display());
    let nested = format!("{} run -n x -- echo in", common::binary().display());
    let (code, out, err) = finish(&mut place.run(&["--url", &other], &nested));
    assert_eq!((code, out.as_str()), (75, ""), "{err}");
    let (code, out, _) = finish(&mut place.run(&["--url", &other, "--namespace", "a b"], &nested));
    assert_eq!((code, out.as_str()), (75, ""));
    let elsewhere = format!("{} run --namespace c -n x -- echo in", common::binary().display());
    assert_eq!(finish(&mut place.run(&["--url", &other, "--namespace", "a b"], &elsewhere)).1, "in\n");
}

// Planted: no warning; the password in the error; no look at the keys; the rest of a password taken for a path.
#[test]
fn a_password_on_the_command_line_draws_a_warning() {
    let place = Place::new();
    let urls = ["carrier://me:secret@host", "redis+sentinel://nowhere/main?x=y&sentinel_password=secret"];
    for url in urls {
        let (code, _, err) = finish(place.fencelock().args(["run", "x", "--url", url, "--", "true"]));
        assert_eq!(code, 78, "{err}");
        assert!(err.starts_with("warning: ") && err.contains("--url-file") && !err.contains("secret"), "{err}");
    }
    for url in
        ["redis://me:1/secret@host:1", "redis://me:secret?x@host:1/", "redis://:1?secret/x@host", "x://a:@b/secret@c"]
    {
        let (code, _, err) = finish(place.fencelock().args(["run", "x", "--", "true"]).env("FENCELOCK_URL", url));
        assert_eq!(code, 78, "{url}: {err}");
        assert!(
            err.contains("%2F") && err.contains("%3F") && !err.contains("secret") && !err.contains("host:"),
            "{err}"
        );
    }
}

// Planted: `eprintln!`, which panics when it cannot write.
#[test]
fn a_standard_error_that_is_closed_is_no_reason_to_fail() {
    let place = Place::new();
    let script =
        "\"$F\" run -v x -- bash -c 'exit 7' 2>&-; a=$?; \"$F\" run -v x -- bash -c 'exit 8' 2>/dev/full; echo $a $?";
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", script]).env("F", common::binary()).env("FENCELOCK_URL", place.url());
    assert_eq!(finish(&mut shell).1, "7 8\n");
}
