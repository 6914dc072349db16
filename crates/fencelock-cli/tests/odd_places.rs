//! SQLite where it is seldom: files that may only be read, a database of a group, containers that share a folder, a kernel that tells of no
//! files. What this user or machine does not allow says why.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::spaces::{CONTAINER, elsewhere, is_root};
use common::{Place, Running, cannot_run, code_of, end_of, finish, kill, not_run, start, until};
use rustix::process::Signal;

fn set_mode(place: &Place, name: &str, mode: u32) {
    fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).expect("permissions");
}

/// The binary, where everybody may run it.
fn copy(place: &Place) {
    // By another process: a descriptor of ours, open for writing, could be in a child of a neighbouring test.
    let copied = Command::new("cp").arg(common::binary()).arg(place.path("fencelock")).status().expect("cp");
    assert!(copied.success());
}

/// `fencelock run x OPTIONS -- bash -c SCRIPT` of this user and group.
fn run_as(place: &Place, user: u32, group: u32, options: &[&str], script: &str) -> Command {
    let mut command = Command::new(place.path("fencelock"));
    command.args(["run", "x"]).args(options).args(["--", "bash", "-c", script]);
    command.env("FENCELOCK_URL", place.url()).env("D", place.path("")).current_dir(place.path(""));
    command.stdin(Stdio::null()).uid(user).gid(group);
    command
}

// Planted: what may not be written told as an outage, which is waited for.
#[test]
fn what_may_only_be_read_is_refused_and_left_as_it_is() {
    let place = Place::on_disk();
    assert_eq!(finish(&mut place.run(&[], "true")).0, 0);
    let before = fs::read(place.path("locks.db")).expect("a database");
    if is_root() {
        copy(&place);
        set_mode(&place, "", 0o777);
        set_mode(&place, "locks.db", 0o444);
        let (code, out, err) = finish(&mut run_as(&place, 65534, 65534, &[], "touch $D/ran"));
        assert_eq!((code, out.as_str(), err.lines().count()), (78, "", 1), "{err}");
        assert!(err.contains("locks.db") && err.contains("must be writable"), "{err}");
        set_mode(&place, "locks.db", 0o644);
    } else {
        not_run("only root is somebody else");
    }
    let read_only = "mount --bind . . && mount -o remount,bind,ro . && cd $PWD && $F run x -- touch $D/ran";
    if finish(&mut elsewhere(&place, "-m", "mount --bind . . && mount -o remount,bind,ro .")).0 == 0 {
        let holds = read_only.replace("run x -- touch $D/ran", "hold x");
        let (code, out, err) = finish(&mut elsewhere(&place, "-m", &holds));
        assert_eq!((code, out.as_str(), err.lines().count()), (78, "", 1), "{err}");
        let (code, out, err) = finish(&mut elsewhere(&place, "-m", read_only));
        assert_eq!((code, out.as_str(), err.lines().count()), (78, "", 1), "{err}");
        assert!(err.contains("locks.db") && err.contains("must be writable"), "{err}");
    } else {
        cannot_run("there are no mounts of its own to be had");
    }
    assert!(!place.path("ran").exists());
    assert!(fs::read(place.path("locks.db")).expect("a database") == before, "it was written to");
    assert_eq!(finish(&mut place.run(&["-n"], "true")).0, 0);
}

// Planted: files that the group may not write.
#[test]
fn two_users_of_a_group_share_a_database() {
    const GROUP: u32 = 60_100;
    let place = Place::on_disk();
    if !is_root() {
        return cannot_run("only root is two users");
    }
    // What the guide says, to the letter.
    let guide = include_str!("../../fencelock-sqlite/src/docs.md");
    let lines: Vec<&str> = guide.lines().filter(|line| line.starts_with("install ")).collect();
    assert_eq!(lines.len(), 2, "a folder and a database");
    let folder = place.path("");
    let here = folder.to_str().expect("a path").trim_end_matches('/');
    let script = lines.join(" && ").replace("/srv/locks", here).replace("-g locks", &format!("-g {GROUP}"));
    assert!(Command::new("sh").args(["-c", &script]).status().expect("sh").success(), "{script}");
    copy(&place);
    let held = |user| run_as(&place, user, GROUP, &["--ttl", "30s"], "echo $$ > $D/job; exec sleep 600");
    for (one, other) in [(60_001, 60_002), (60_002, 60_001)] {
        place.clear();
        let mut holder = start(held(one).stderr(Stdio::null()));
        let job = place.pid("job").as_raw_pid();
        let (code, _, err) = finish(&mut run_as(&place, other, GROUP, &["-n"], "true"));
        assert_eq!(code, 75, "{err}");
        assert!(err.contains(&format!("pid {}", holder.id())), "{err}");
        let mut waiter = start(&mut run_as(&place, other, GROUP, &[], "true"));
        place.waiting(1);
        // It dies, with its wrapper: that is told to a stranger, too.
        holder.kill().expect("a child to kill");
        end_of(&mut holder);
        until("its job is dead", || (!common::lives(job)).then_some(()));
        assert_eq!(code_of(end_of(&mut waiter)), 0);
    }
    // Whoever is not of the group is refused.
    let (code, _, err) = finish(&mut run_as(&place, 65534, 65534, &["-n"], "true"));
    assert_eq!((code, err.lines().count()), (78, 1), "{err}");
    assert!(err.contains("locks.db"), "{err}");
}

/// Holds `x` in a container of its own until it is killed; a pid there says nothing here.
fn container(place: &Place) -> Running {
    let script = "exec $F run x -- bash -c 'echo $$ > $D/job; touch $D/held; exec sleep 600'";
    let holder = start(elsewhere(place, CONTAINER, script).stderr(Stdio::null()));
    until("it is held", || place.path("held").exists().then_some(()));
    holder
}

// Planted: a holder taken for dead.
#[test]
fn containers_share_a_folder() {
    let place = Place::on_disk();
    if finish(&mut elsewhere(&place, CONTAINER, "true")).0 != 0 {
        return cannot_run("there are no processes of its own to be had");
    }
    let mut holder = container(&place);
    let (code, _, err) = finish(&mut elsewhere(&place, CONTAINER, "$F run -n x -- touch $D/ran"));
    assert_eq!(code, 75, "{err}");
    assert_eq!(finish(&mut place.run(&["-n"], "touch $D/ran")).0, 75);
    let mut waiter = start(&mut elsewhere(&place, CONTAINER, "exec $F run x -- true"));
    place.waiting(1);
    // The container is killed: its first process takes all others along.
    let init = children(holder.id()).into_iter().next().expect("its first process");
    let killed = Instant::now();
    kill(init, Signal::KILL);
    assert_eq!(code_of(end_of(&mut waiter)), 0);
    assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
    end_of(&mut holder);
    assert!(!place.path("ran").exists());
}

fn children(of: u32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split(' ').filter_map(|pid| pid.trim().parse().ok()).collect()
}

// Planted: a death that nothing tells waited for to the end of the lease.
#[test]
fn where_the_kernel_tells_of_no_files() {
    let place = Place::on_disk();
    let none = "echo 0 > /proc/sys/user/max_inotify_instances";
    let without = |script: &str| elsewhere(&place, "-Ur", &format!("{none} && {script}"));
    if finish(&mut without("true")).0 != 0 {
        return cannot_run("the limit of inotify cannot be set here");
    }
    // Hand-over, and a death: nobody is told of it by inotify.
    let hold = "exec $F run x --ttl 10m -- bash -c 'echo $$ > $D/job; exec sleep 600'";
    let mut holder = start(without(hold).stderr(Stdio::null()));
    let job = place.pid("job").as_raw_pid();
    let mut waiter = start(without("exec $F run x --ttl 10m -- true").stderr(Stdio::null()));
    place.waiting(1);
    kill(job, Signal::TERM);
    end_of(&mut holder);
    assert_eq!(code_of(end_of(&mut waiter)), 0);
    place.clear();
    let mut holder = start(without(hold).stderr(Stdio::null()));
    let job = place.pid("job").as_raw_pid();
    let mut waiter = start(without("exec $F run x --ttl 10m -- true").stderr(Stdio::null()));
    place.waiting(1);
    holder.kill().expect("a child to kill");
    let killed = Instant::now();
    assert_eq!(code_of(end_of(&mut waiter)), 0);
    println!("without inotify a death was known after {:?}", killed.elapsed());
    assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
    assert!(!common::lives(job));
}
