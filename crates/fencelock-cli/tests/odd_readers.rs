//! Whoever reads what is printed: one that has gone, one that has had enough, one that is slow, a disk without room for it.

mod common;

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::process::{Command, Stdio};

use common::{Place, Running, code_of, end_of, finish, start, until};
use rustix::fs::{OFlags, fcntl_setfl};

/// What prints something, and the code when nobody reads it.
const ALL: [(&[&str], i32); 14] = [
    (&["status", "x"], 0),
    (&["status", "x", "--json"], 0),
    (&["list"], 0),
    (&["list", "--json"], 0),
    (&["list", "--watch", "--json"], 0),
    (&["cell", "get", "c"], 0),
    (&["cell", "get", "c", "--json"], 0),
    (&["cell", "set", "c", "2"], 0),
    (&["bench", "memory:", "--json", "--seconds", "0.1", "--tasks", "1", "--waiters", "2", "--holders", "0"], 0),
    (&["man", "run"], 0),
    (&["completions", "bash"], 0),
    (&["acl", "redis", "--url", "redis://h"], 0),
    (&["--help"], 0),
    // What nobody hears of is of no use.
    (&["hold", "y"], 74),
];

/// One that has `x` held, and a value in `c`.
fn place() -> (Place, Running) {
    let place = Place::new();
    let holder = start(place.run(&["--ttl", "10m"], "touch $D/held; exec sleep 600").stderr(Stdio::null()));
    until("it is held", || place.path("held").exists().then_some(()));
    assert_eq!(finish(place.fencelock().args(["cell", "set", "c", "1"])).0, 0);
    (place, holder)
}

fn is_free(place: &Place, name: &str) -> bool {
    finish(place.fencelock().args(["status", "-q", name])).0 == 1
}

/// Its end, and what it said on standard error.
fn said(command: &mut Command) -> (i32, String) {
    let mut child = start(command.stderr(Stdio::piped()));
    let code = code_of(end_of(&mut child));
    (code, std::io::read_to_string(child.stderr.take().expect("its messages")).expect("text"))
}

// Planted: a reader that has gone told as an error; a value that could not be written passed over.
#[test]
fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is_one() {
    let (place, _holder) = place();
    for (args, code) in ALL {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (found, told) = said(place.fencelock().args(args).stdout(writer).stdin(Stdio::piped()));
        assert_eq!(found, code, "{args:?}: {told}");
        assert_eq!(told.is_empty(), code == 0, "{args:?}: {told}");
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let (found, told) = said(place.fencelock().args(args).stdout(full).stdin(Stdio::piped()));
        assert_eq!((found, told.lines().count()), (74, 1), "{args:?}: {told}");
        assert!(told.contains("cannot write to standard output: No space left"), "{args:?}: {told}");
    }
    assert!(is_free(&place, "y"));
    // As a script sees it.
    let mut bash = Command::new("bash");
    bash.args(["-c", "\"$F\" status x --json | head -c1; echo ${PIPESTATUS[*]}"]);
    let (_, out, err) = finish(bash.env("F", common::binary()).env("FENCELOCK_URL", place.url()));
    assert_eq!((out.as_str(), err.as_str()), ("{0 0\n", ""));
}

// Planted: who reads no more ends it, and the page is not there.
#[test]
fn a_page_of_figures_needs_no_reader() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let args = [
        "bench",
        "memory:",
        "--html",
        "page.html",
        "--seconds",
        "0.1",
        "--tasks",
        "1,2",
        "--waiters",
        "2",
        "--holders",
        "0",
    ];
    let (code, told) = said(place.fencelock().args(args).stdout(writer));
    assert_eq!((code, told.as_str()), (0, ""));
    let page = std::fs::read_to_string(place.path("page.html")).expect("the page");
    assert!(page.contains("hand-over"), "{page}");
}

// Planted: a page that could not be written passed over; the pages printed, too.
#[test]
fn pages_in_a_folder_need_no_reader_and_a_full_disk_is_told() {
    let place = Place::new();
    let man = |to: Stdio| said(place.fencelock().args(["man", "--dir", "man1"]).stdout(to));
    std::fs::create_dir(place.path("man1")).expect("a folder");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let full = || File::options().write(true).open("/dev/full").expect("a device");
    for nobody in [writer.into(), full().into()] {
        assert_eq!(man(nobody), (0, String::new()));
        for page in ["fencelock.1", "fencelock-run.1", "fencelock-cell-get.1", "fencelock-man.1"] {
            assert!(place.read(&format!("man1/{page}")).contains(".TH "), "{page}");
            std::fs::remove_file(place.path("man1").join(page)).expect("a page");
        }
    }
    std::os::unix::fs::symlink("/dev/full", place.path("man1/fencelock-run.1")).expect("a link");
    let (code, told) = man(Stdio::null());
    assert_eq!((code, told.lines().count()), (74, 1), "{told}");
    assert!(told.contains("cannot write man1/fencelock-run.1: No space left"), "{told}");
}

/// A pipe that takes no more for now, and does not block: as whoever shares the other end of a terminal or a socket may set it.
fn full() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::WRONLY | OFlags::NONBLOCK).expect("a pipe that does not block");
    while writer.write(&[b'~'; 4096]).is_ok() {}
    (reader, writer)
}

/// It sleeps, as one of one thread does only that waits for the pipe; or it has ended, and has lost what it had to say.
fn waits_or_has_ended(child: &mut Running) {
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap_or_default();
    until("it waits", || {
        let name = of("comm");
        let sleeps = of("stat").rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['S', 'Z']));
        (name == "fencelock\n" && sleeps || name.is_empty()).then_some(())
    });
}

// Planted: `write_all` of the standard library, which takes EAGAIN for the end.
#[test]
fn a_reader_that_is_slow_is_waited_for_whatever_the_descriptor_says() {
    let (place, _holder) = place();
    for args in [&["man", "run"][..], &["completions", "zsh"], &["--help"]] {
        let (_, expected, _) = finish(place.fencelock().args(args));
        let (mut reader, writer) = full();
        let mut slow = start(place.fencelock().args(args).stdout(writer));
        waits_or_has_ended(&mut slow);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).expect("all of it");
        assert_eq!(code_of(end_of(&mut slow)), 0);
        let text = String::from_utf8(bytes).expect("text");
        assert_eq!(text.trim_start_matches('~'), expected, "{args:?}");
    }
    // It holds, and ends in time also when nobody has read its line by then.
    for reads in [true, false] {
        let (mut reader, writer) = full();
        let mut holder = start(place.fencelock().args(["hold", "y"]).stdout(writer).stdin(Stdio::piped()));
        until("it is held", || (!is_free(&place, "y")).then_some(()));
        if reads {
            let mut line = Vec::new();
            while !line.ends_with(b"\n") {
                let mut byte = [0];
                reader.read_exact(&mut byte).expect("a line");
                line.push(byte[0]);
            }
            assert!(String::from_utf8_lossy(&line).contains("\"token\":"));
            drop(holder.stdin.take());
            assert_eq!(code_of(end_of(&mut holder)), 0);
        } else {
            common::kill(common::pid_of(&holder).as_raw_pid(), rustix::process::Signal::TERM);
            assert_eq!(code_of(end_of(&mut holder)), 0);
        }
        assert!(is_free(&place, "y"));
    }
}

// Planted: messages that do not fit at once thrown away.
#[test]
fn a_message_is_not_lost_on_a_full_pipe_that_does_not_block() {
    let place = Place::new();
    for args in [&["man", "walk"][..], &["status", "x", "--quiet", "--json"], &["acl", "redis", "--url", "sqlite:"]] {
        let (code, _, expected) = finish(place.fencelock().args(args));
        let (mut reader, writer) = full();
        let mut slow = start(place.fencelock().args(args).stderr(writer));
        waits_or_has_ended(&mut slow);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).expect("all of it");
        assert_eq!(code_of(end_of(&mut slow)), code, "{args:?}");
        let text = String::from_utf8(bytes).expect("text");
        assert_eq!(text.trim_start_matches('~'), expected, "{args:?}");
    }
}
