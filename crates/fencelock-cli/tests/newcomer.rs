//! A newcomer's path, by README's own commands: the first lock, the first loss, the first fenced write. With `cargo xtask prove` from a fresh
//! clone, which is built; else with the binary that is here.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, binary, children, code_of, end_of, finish, finish_within, minder_of, pid_of, start, until};
use fencelock_testkit::processes::{bar, full};

/// What README shows below this heading: each command, and what follows it.
fn shown(heading: &str) -> Vec<(String, String)> {
    let readme = include_str!("../../../README.md");
    let (_, below) = readme.split_once(heading).unwrap_or_else(|| panic!("README has no {heading}"));
    let below = below.split("\n#").next().unwrap_or(below);
    let blocks = below.split("```console\n").skip(1).filter_map(|block| block.split("```").next());
    let commands = blocks.flat_map(|block| block.split("$ ").skip(1)).filter_map(|shown| shown.split_once('\n'));
    commands.map(|(command, said)| (command.to_owned(), said.to_owned())).collect()
}
/// In a shell of the newcomer's, who has the program in the PATH.
fn shell(place: &Place, program: &Path, line: &str) -> Command {
    let folder = program.parent().expect("a folder").display();
    let mut command = Command::new("bash");
    command.args(["-c", line]).current_dir(place.path(".")).stdin(Stdio::null()).env("FENCELOCK_URL", place.url());
    command.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap_or_default()));
    command
}

/// README's first command in a clone of its own; the binary that it has built.
fn cloned(place: &Place) -> PathBuf {
    let (root, clone) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), place.path("fencelock"));
    let (line, _) = shown("# fencelock\n").swap_remove(0);
    let began = Instant::now();
    let (code, _, err) = finish(Command::new("git").arg("clone").arg("--quiet").arg(root).arg(&clone));
    assert_eq!(code, 0, "{err}");
    let mut first = shell(place, &clone.join("none"), &line);
    let (code, out, err) =
        finish_within(first.env_remove("CARGO_TARGET_DIR").current_dir(&clone), Duration::from_secs(1800));
    assert_eq!(code, 0, "{line}: {err}");
    assert!(out.ends_with("report: written\n"), "{out}");
    let took = began.elapsed();
    bar("a newcomer: clone, build, first lock", format!("{took:.0?}"), "reported", true);
    clone.join("target/release/fencelock")
}

// Planted: a write without its fence, which the stale one gets through; `release` that tells the holder nothing; README with another exit
// code, with another message, without the condition of its write.
#[test]
fn the_first_lock_the_first_loss_the_first_fenced_write() {
    let place = Place::on_disk();
    let program = if full() { cloned(&place) } else { binary().to_owned() };
    let shell = |line: &str| shell(&place, &program, line);
    let told = |what: &str, began: Instant| bar(what, format!("{:.1?}", began.elapsed()), "reported", true);
    let [(job, lost), (_, exit), (ask, asked), (take, taken), (table, _), (write, rows)] =
        <[_; 6]>::try_from(shown("### The first loss")).expect("six commands in README");

    let began = Instant::now();
    let mut job = start(shell(&job).stderr(Stdio::piped()));
    let (_, in_readme) = take.rsplit_once(' ').expect("a token");
    // The lock comes before the job: what is lost between them is a job that was not started.
    let started = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    until("its job runs", || children(minder_of(pid_of(&job))).iter().any(started).then_some(()));
    told("a newcomer: a lock, once it is built", began);

    let began = Instant::now();
    // Who holds it, and which token has to be said: in the words of README, but for the numbers.
    let (code, _, hint) = finish(&mut shell(&ask));
    assert_eq!(code, 64, "{hint}");
    let (_, token) = hint.trim_end().rsplit_once(' ').expect("a token");
    let last = |text: &str| text.replace(in_readme, token).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(last(&hint), last(&asked));
    let (done, _, said) = finish(&mut shell(&take.replace(in_readme, token)));
    assert_eq!((done, last(&said)), (0, last(&taken)));
    assert_eq!(code_of(end_of(&mut job)).to_string(), exit.trim(), "lost, and the job stopped");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut job.stderr.take().expect("its messages"), &mut said).expect("text");
    assert_eq!(said, lost);
    told("a newcomer: a lock that is taken away, and its job stopped", began);

    let began = Instant::now();
    assert_eq!(finish(&mut shell(&table)).0, 0);
    let written = |line: &str| {
        let (code, out, err) = finish(&mut shell(line));
        assert_eq!(code, 0, "{line}: {err}");
        out
    };
    assert_eq!(written(&write), rows);
    // Somebody who had the lock before, and was paused since.
    let (_, stale) = write.split_once(" -- ").expect("a job");
    assert_eq!(written(&format!("FENCELOCK_TOKEN={token} {stale}")), "0\n", "stale");
    assert_eq!(written(&write), rows);
    told("a newcomer: fenced writes, and a stale one refused", began);
}
