//! What users and systems do to `run` without meaning well: one clear message, the right code, nothing left held, and no job
//! outside of its lock.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{NEXT, Place, binary, code_of, end_of, finish, granted, kill, lives, pid_of, start, stopped, until};
use rustix::process::Signal;

/// A bash that knows the place as `$D`, the binary as `$F` and its engine.
fn bash(place: &Place, script: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", script]).env("D", place.path("")).env("F", binary()).env("FENCELOCK_URL", place.url());
    command.env_remove("FENCELOCK_ENGINE").current_dir(place.path("")).stdin(Stdio::null());
    command
}

/// Nobody holds it.
fn free(place: &Place) {
    assert_eq!(finish(&mut place.run(&["-n"], "exit 4")).0, 4);
}

// Planted: `%` decoded in names; names through a path of the file system.
#[test]
fn names_are_only_names() {
    let place = Place::new();
    let longest = "n".repeat(512);
    for name in ["a\nb", "../x", "/etc/passwd", "%41%", "%00", "a b'\"$(id)", ".", "é日\u{202e}", "x -y --z", &longest]
    {
        let mut command = place.fencelock();
        command.args(["run", name, "--", "bash", "-c", "printf %s \"$FENCELOCK_NAME\""]);
        assert_eq!(finish(&mut command), (0, name.to_owned(), String::new()));
        let nested = format!("\"{}\" run -n \"$FENCELOCK_NAME\" -- true", binary().display());
        let (code, _, err) = finish(place.fencelock().args(["run", name, "--", "bash", "-c", &nested]));
        assert_eq!(code, 75, "{name:?}: {err}");
        // The second line says that it waits for itself.
        assert!(!err.contains('\u{202e}') && err.lines().count() == 2, "{err:?}");
    }
    // It looks like an option, and a slip of the keyboard in one should not become a lock.
    for name in ["-x", "--no-such"] {
        assert_eq!(finish(place.fencelock().args(["run", name, "--", "true"])).0, 64);
    }
}

// Planted: clap's own parser, which names neither the argument nor its value.
#[test]
fn what_is_no_text_is_refused_by_name() {
    let place = Place::new();
    let odd = OsStr::from_bytes(b"a\xffb");
    let (code, _, err) = finish(place.fencelock().arg("run").arg(odd).args(["--", "touch", "ran"]));
    assert_eq!(code, 64);
    assert!(err.contains("NAME") && err.contains("a\u{fffd}b") && err.contains("UTF-8"), "{err}");
    for option in ["--url", "--namespace", "--note"] {
        let (code, _, err) = finish(place.fencelock().args(["run", option]).arg(odd).args(["x", "--", "touch", "ran"]));
        assert_eq!(code, 64);
        assert!(err.contains(option) && err.contains("UTF-8"), "{err}");
    }
    let (code, _, err) = finish(place.run(&[], "touch ran").env("FENCELOCK_URL", odd));
    assert_eq!((code, err.as_str()), (78, "fencelock: FENCELOCK_URL is not UTF-8\n"));
    for url in ["garbage \x1b[31m", ":", "sqlite", "sqlite:%zz", "sqlite::memory:", "mongodb://u:p@h/d", "://"] {
        let (code, _, err) = finish(place.run(&[], "touch ran").env("FENCELOCK_URL", url));
        assert_eq!(code, 78, "{url:?}: {err}");
        assert!(err.starts_with("fencelock: ") && !err.contains('\x1b') && !err.contains("u:p@"), "{err:?}");
    }
    assert!(!place.path("ran").exists());
}

// Planted: a descriptor of the engine left below 3, which is what happens to a program that does not take the numbers of its
// closed streams first: the job's output lands in the database.
#[test]
fn closed_streams_never_become_the_engines() {
    let place = Place::new();
    for closed in ["0<&-", "1>&-", "2>&-", "0<&- 1>&-", "0<&- 2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"] {
        let job =
            "readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 > $D/fds; echo JUNK; echo JUNK >&2; read x; exit 5";
        let script = format!("\"$F\" run -v x -- bash -c '{job}' {closed}; exit $?");
        let (code, ..) = finish(&mut bash(&place, &script));
        assert_eq!(code, 5, "{closed}");
        let streams = place.read("fds");
        assert_eq!(streams.lines().count(), 3, "{closed}: {streams}");
        assert!(!streams.contains("locks.db") && !streams.contains("socket"), "{closed}: {streams}");
    }
    assert_eq!(place.sql("PRAGMA integrity_check"), "ok");
    free(&place);
}

// Planted: the descriptor for the lock only above 100.
#[test]
fn few_descriptors() {
    let place = Place::new();
    let limited = |n: u32| finish(&mut bash(&place, &format!("ulimit -n {n}; exec \"$F\" run x -- bash -c 'exit 5'")));
    for n in [101, 100, 64, 40] {
        let (code, _, err) = limited(n);
        assert_eq!(code, 5, "{n}: {err}");
    }
    // Somewhere below the engine has too few: a clear end, and no job.
    for n in [24, 20, 16, 12, 8, 6, 4] {
        let (code, _, err) = limited(n);
        assert!(matches!(code, 5 | 69 | 70 | 78), "{n}: {code} {err}");
        assert!(code == 5 || err.lines().count() >= 1, "{n}: {err}");
        // One that cannot begin says why, and has not died.
        assert!(!err.contains("minds the job died"), "{n}: {err}");
    }
    free(&place);
}

// Planted: `NotFound` always told as a command that is not there.
#[test]
fn commands_that_are_odd() {
    let place = Place::on_disk();
    let script = |name: &str, text: &str| {
        // By another process: a descriptor of ours, open for writing, could be in a child of a neighbouring test.
        assert_eq!(finish(&mut bash(&place, &format!("printf '{text}' > {name}; chmod +x {name}"))).0, 0);
    };
    script("bare", "exit $1\\n");
    script("lost", "#!/no/such/interpreter\\n");
    let run = |command: &[&str]| finish(place.fencelock().args(["run", "x", "--"]).args(command));
    // As in a shell: without a first line it is one for sh.
    assert_eq!(run(&["./bare", "9"]).0, 9);
    let (code, _, err) = run(&["./lost"]);
    assert_eq!(
        (code, err.as_str()),
        (126, "fencelock: cannot run \"./lost\": the interpreter that it names is not there\n")
    );
    let (code, _, err) = run(&["/"]);
    assert_eq!((code, err.as_str()), (126, "fencelock: cannot run \"/\": it is not executable\n"));
    assert_eq!(run(&["./no-such"]).0, 127);
    let within = binary().display().to_string();
    assert_eq!(run(&[&within, "run", "-n", "y", "--", "bash", "-c", "exit 3"]).0, 3);
    let (code, out, _) = finish(&mut bash(&place, "\"$F\" run x -- yes | head -1; echo ${PIPESTATUS[*]}"));
    assert_eq!((code, out.as_str()), (0, "y\n141 0\n"));
    let (code, out, _) = finish(&mut bash(&place, "\"$F\" run x -- head -c 30000000 /dev/zero | wc -c"));
    assert_eq!((code, out.trim()), (0, "30000000"));
    assert_eq!(
        finish(&mut bash(&place, "echo in | \"$F\" run x -- cat; \"$F\" run x -- cat <<< here")).1,
        "in\nhere\n"
    );
    free(&place);
}

// Planted: the current directory asked for, by its name.
#[test]
fn odd_places_to_stand_in() {
    let place = Place::new();
    let gone = "mkdir $D/gone; cd $D/gone; rmdir $D/gone; exec \"$F\" run x -- bash -c 'exit 5' 2>&1";
    assert_eq!(finish(&mut bash(&place, gone)).0, 5);
    let relative = "mkdir $D/gone; cd $D/gone; rmdir $D/gone; exec \"$F\" run --url sqlite:l.db x -- touch $D/ran";
    let (code, _, err) = finish(&mut bash(&place, relative));
    assert_eq!(code, 78);
    assert!(err.contains("l.db"), "{err}");
    assert_eq!(finish(&mut bash(&place, "cd /proc/self; exec \"$F\" run x -- bash -c 'exit 6'")).0, 6);
    // As cron and service managers start it: no terminal, a session of its own, hardly an environment.
    let (code, out, _) = finish(&mut bash(
        &place,
        "exec setsid env -i FENCELOCK_URL=$FENCELOCK_URL \"$F\" run x -- /bin/sh -c 'echo $FENCELOCK_NAME'",
    ));
    assert_eq!((code, out.as_str()), (0, "x\n"));
    assert!(!place.path("ran").exists());
    free(&place);
}

// Planted: no lifeline in the minder, and one that is 30 ms late: the job outlives its lock.
#[test]
fn a_job_that_closes_all_it_inherited() {
    let place = Place::new();
    let job = r#"trap "" TERM; for fd in /proc/$$/fd/*; do n=${fd##*/}; [ $n -gt 2 ] && eval "exec $n<&-"; done
ls /proc/$$/fd > $D/fds; exec 9<> <(:); echo $$ > $D/job
while :; do echo "$$ $EPOCHREALTIME" >> $D/beats; read -t 0.005 -u 9; done"#;
    for _ in 0..fencelock_testkit::processes::tenth(50) {
        place.clear();
        let mut holder = start(place.run(&["--ttl", "10m"], job).stderr(Stdio::null()));
        place.line("job");
        assert!(!place.read("fds").lines().any(|n| n.parse::<u32>().is_ok_and(|n| n >= 100)), "{}", place.read("fds"));
        until("a beat", || place.path("beats").exists().then_some(()));
        let mut next = start(&mut place.run(&[], NEXT));
        place.waiting(1);
        kill(pid_of(&holder).as_raw_pid(), Signal::KILL);
        end_of(&mut holder);
        assert_eq!(code_of(end_of(&mut next)), 0);
        assert!(place.last_beat() < granted(&place));
        assert_eq!(place.beating(), [0; 0]);
    }
}

// Planted: one look at the children and not until none is left.
#[test]
fn a_job_that_forks_faster_than_it_dies() {
    let place = Place::on_disk();
    // Chains of processes that live for some 400 µs each, every other one in a session of its own; bounded by time and
    // number: fewer in all than the 32768 pids that there may be, so that none comes twice.
    let chain = r#"#include <stdio.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>
int main(int c, char **v) {
  struct timeval t, s;
  signal(SIGTERM, SIG_IGN);
  gettimeofday(&s, 0);
  int beats = open(v[1], O_WRONLY | O_APPEND | O_CREAT, 0666);
  long end = s.tv_sec + 3;
  for (int n = 0; n < 7000; n++) {
    gettimeofday(&t, 0);
    if (t.tv_sec > end) break;
    if (n % 16 == 0) dprintf(beats, "%d %ld.%06ld\n", getpid(), (long)t.tv_sec, (long)t.tv_usec);
    long early = 400L * n - (t.tv_sec - s.tv_sec) * 1000000 - (t.tv_usec - s.tv_usec);
    if (early > 0) usleep(early);
    if (fork()) _exit(0);
    if (n % 2) setsid();
  }
}
"#;
    fs::write(place.path("chain.c"), chain).expect("a source");
    assert_eq!(finish(&mut bash(&place, "cc -o chain chain.c")).0, 0);
    let storm = "trap '' TERM; for i in 1 2 3 4; do $D/chain $D/beats & done; while :; do sleep 0.1; done";
    let options = ["--max-hold", "2s", "--grace", "50ms"];
    let mut holder = start(place.run(&options, storm).stderr(Stdio::null()));
    place.line("beats");
    let mut next = start(&mut place.run(&[], NEXT));
    assert_eq!(code_of(end_of(&mut holder)), 76);
    assert_eq!(code_of(end_of(&mut next)), 0);
    assert!(place.last_beat() < granted(&place));
    assert_eq!(place.beating(), [0; 0]);
    assert!(place.read("beats").lines().count() > 60, "too slow to be hard");
}

// Planted: TERM without CONT; killing by the group.
#[test]
fn a_job_that_hides_or_sleeps_when_its_time_is_up() {
    let place = Place::new();
    let stops = "trap 'echo > $D/termed; exit 3' TERM; echo $$ > $D/job; kill -STOP $$; while :; do sleep 1; done";
    let mut holder = start(place.run(&["--max-hold", "5s", "--grace", "5s"], stops).stderr(Stdio::null()));
    let job = place.pid("job");
    until("it stops itself", || (stopped(job) || place.path("termed").exists()).then_some(()));
    assert_eq!(code_of(end_of(&mut holder)), 76);
    assert_eq!(place.read("termed"), "\n");
    place.clear();
    let hides = "trap '' TERM; set -m; (setsid sleep 600 & echo $! > $D/job); sleep 600 & wait";
    assert_eq!(finish(&mut place.run(&["--max-hold", "5s", "--grace", "50ms"], hides)).0, 76);
    assert!(!lives(place.pid("job").as_raw_pid()));
}

// Planted: only the children that are there at the start are spared; the sweep after an end that was told.
#[test]
fn what_was_there_before_and_loses_its_parent_is_spared() {
    for minder_dies in [false, true] {
        let place = Place::new();
        // The shell that becomes the wrapper has a child with a child, and the one between them ends during the job.
        let script = r#"bash -c 'sleep 600 & echo $! > $D/before; until [ -e $D/go ]; do sleep 0.01; done' &
until [ -s $D/before ]; do sleep 0.01; done
exec "$F" run x -- bash -c 'echo $PPID > $D/job; until [ -e $D/done ]; do sleep 0.01; done'"#;
        let mut wrapper = start(bash(&place, script).stderr(Stdio::null()));
        let minder = place.pid("job").as_raw_pid();
        let before = place.pid("before");
        fs::write(place.path("go"), "").expect("a file");
        until("its parent's end", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", before.as_raw_pid())).ok()?;
            stat.contains(&format!(") S {} ", wrapper.id())).then_some(())
        });
        if minder_dies {
            kill(minder, Signal::KILL);
        } else {
            fs::write(place.path("done"), "").expect("a file");
        }
        assert_eq!(code_of(end_of(&mut wrapper)), if minder_dies { 76 } else { 0 });
        let spared = lives(before.as_raw_pid());
        kill(before.as_raw_pid(), Signal::KILL);
        assert!(spared, "minder dies: {minder_dies}");
    }
}

/// Makes `rights MS`, which takes root's rights and sleeps for so long, or until there is a file `go`, and `fencelock`
/// for an unprivileged user; false where that is impossible.
fn takes_other_rights(place: &Place) -> bool {
    let source = r#"#include <stdlib.h>
#include <unistd.h>
int main(int c, char **v) {
  if (setuid(0)) return 9;
  for (int left = atoi(v[1]); left > 0 && access("go", F_OK); left -= 10) usleep(10000);
  return 0;
}
"#;
    fs::write(place.path("rights.c"), source).expect("a source");
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o777)).expect("permissions");
    let make = "cp \"$F\" fencelock && cc -o rights rights.c && chmod 4755 rights";
    rustix::process::geteuid().is_root()
        && finish(&mut bash(place, make)).0 == 0
        && finish(&mut bash(place, &format!("exec {NOBODY} ./rights 1"))).0 == 0
}

const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

fn nobody(place: &Place, rest: &str) -> Command {
    bash(place, &format!("exec {NOBODY} ./fencelock {rest}"))
}

// Planted: a job that cannot be killed is left behind, and the lock released.
#[test]
fn a_job_with_other_rights_keeps_the_lock_and_is_named() {
    let place = Place::on_disk();
    if !takes_other_rights(&place) {
        return common::cannot_run("it takes root and a file system where programs may take other rights");
    }
    let stubborn = "run --ttl 6s --max-hold 6s --grace 50ms x -- ./rights 60000";
    let mut holder = start(nobody(&place, stubborn).stderr(Stdio::piped()));
    until("it is held", || (finish(&mut nobody(&place, "status -q x")).0 == 0).then_some(()));
    // Past its lease and its time, at the end of which nothing may happen: it runs, so the lock is held.
    std::thread::sleep(std::time::Duration::from_secs(8));
    let (code, _, err) = finish(&mut nobody(&place, "run -n x -- touch ran"));
    assert_eq!(code, 75, "{err}");
    fs::write(place.path("go"), "").expect("a file");
    assert_eq!(code_of(end_of(&mut holder)), 76);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut holder.stderr.take().expect("its messages"), &mut said).expect("text");
    assert!(said.contains("(rights): it runs as another user"), "{said}");
    assert!(!place.path("ran").exists());
}

/// A standard error that takes nothing: the reader has it all to read first.
fn full() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    std::io::Write::write_all(&mut writer, &[b'x'; 65536]).expect("a full pipe");
    (reader, writer)
}

// Planted: the error of handing over the standard input passed over, and a minder that waits for it.
#[test]
fn a_system_that_hands_no_descriptor_over() {
    let place = Place::on_disk();
    if !takes_other_rights(&place) {
        return common::cannot_run("it takes root and a file system where programs may take other rights");
    }
    // A hundred are on their way, and then no more than fifty may be.
    let crowd = r#"#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int c, char **v) {
  struct rlimit few = { 50, 50 };
  int s[2], fds[100] = { 0 };
  char space[CMSG_SPACE(sizeof fds)], byte = 0;
  struct iovec one = { &byte, 1 };
  struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
  struct cmsghdr *head = CMSG_FIRSTHDR(&m);
  head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fds);
  memcpy(CMSG_DATA(head), fds, sizeof fds);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, s) || sendmsg(s[0], &m, 0) != 1 || setrlimit(RLIMIT_NOFILE, &few)) return 9;
  return execv(v[1], v + 1);
}
"#;
    fs::write(place.path("crowd.c"), crowd).expect("a source");
    assert_eq!(finish(&mut bash(&place, "cc -o crowd crowd.c")).0, 0);
    let (code, _, err) = finish(&mut bash(&place, &format!("exec {NOBODY} ./crowd ./fencelock run x -- touch ran")));
    assert_eq!(code, 70, "{err}");
    assert!(err.starts_with("fencelock: the system refused: "), "{err}");
    assert_eq!(finish(&mut nobody(&place, "run -n x -- bash -c 'exit 4'")).0, 4);
    assert!(!place.path("ran").exists());
}

// Planted: a look at the children that failed taken for none.
#[test]
fn nothing_is_released_by_one_who_cannot_look() {
    let place = Place::new();
    let script = r#"sleep 600 & echo $! > $D/before
exec "$F" run x -- bash -c 'setsid sleep 600 & echo $! > $D/left; echo $PPID > $D/job; wait'"#;
    let mut holder = start(bash(&place, script).stderr(Stdio::null()));
    let (minder, left) = (place.pid("job").as_raw_pid(), place.pid("left").as_raw_pid());
    let wrapper = pid_of(&holder);
    let limit = |descriptors| {
        let (current, maximum) = (Some(descriptors), Some(1024));
        let limit = rustix::process::Rlimit { current, maximum };
        rustix::process::prlimit(Some(wrapper), rustix::process::Resource::Nofile, limit).map(drop)
    };
    limit(3).expect("a limit");
    kill(minder, Signal::KILL);
    until("it is buried", || (!Path::new(&format!("/proc/{minder}")).exists()).then_some(()));
    // Whoever took the failed look for an empty one has ended by now, or ends before the limit is gone.
    assert!(lives(left) && holder.try_wait().is_ok_and(|end| end.is_none()));
    limit(1024).expect("a limit");
    assert_eq!(code_of(end_of(&mut holder)), 76);
    let (spared, dead) = (lives(place.pid("before").as_raw_pid()), !lives(left));
    kill(place.pid("before").as_raw_pid(), Signal::KILL);
    kill(left, Signal::KILL);
    assert!(spared && dead, "{spared} {dead}");
}

// Planted: the message written by the thread that kills, in the minder and in the wrapper.
#[test]
fn a_standard_error_that_nobody_reads_holds_up_nobody_who_kills() {
    let place = Place::on_disk();
    if !takes_other_rights(&place) {
        return common::cannot_run("it takes root and a file system where programs may take other rights");
    }
    for minder_dies in [false, true] {
        place.clear();
        let (reader, writer) = full();
        let script = "run --ttl 10m x -- bash -c './rights 4000 & echo $! > job; sleep 600'";
        let mut holder = start(nobody(&place, script).stderr(writer));
        let wrapper = pid_of(&holder);
        let minder = common::minder_of(wrapper).as_raw_pid();
        let job = place.pid("job").as_raw_pid();
        // It has taken its rights.
        let comm = format!("/proc/{job}/comm");
        until("the job", || fs::read_to_string(&comm).is_ok_and(|name| name == "rights\n").then_some(()));
        if minder_dies {
            kill(minder, Signal::KILL);
            until("a free lock", || (finish(&mut nobody(&place, "status -q x")).0 == 1).then_some(()));
            assert!(!lives(job), "released before all were gone");
            // It has only its message left, and whoever sends a signal need not wait for that; it may not have come so far yet.
            kill(wrapper.as_raw_pid(), Signal::TERM);
            let code = code_of(end_of(&mut holder));
            assert!([143, 76].contains(&code), "{code}");
        } else {
            kill(wrapper.as_raw_pid(), Signal::KILL);
            end_of(&mut holder);
            until("the end of the minder", || (!lives(minder)).then_some(()));
        }
        drop(reader);
    }
}

// Planted: the messages written by the thread that runs the job.
#[test]
fn a_standard_error_that_nobody_reads_holds_up_no_signal() {
    let place = Place::new();
    let (reader, writer) = full();
    let listens = "trap '[ -e $D/got ] && exit 40; echo > $D/got' TERM; exec 9<> <(:); read -t 0.01 -u 9; echo > $D/job; while :; do read -t 0.01 -u 9; done";
    let mut holder = start(place.run(&["-v", "--on-loss", "warn"], listens).stderr(writer));
    // It has said its token by then, or would have.
    place.line("job");
    let job = common::minder_of(pid_of(&holder)).as_raw_pid();
    assert_eq!(finish(place.fencelock().args(["release", "x", "--force", "--token", &place.token()])).0, 0);
    until("a free lock", || (finish(place.fencelock().args(["status", "-q", "x"])).0 == 1).then_some(()));
    kill(pid_of(&holder).as_raw_pid(), Signal::TERM);
    place.line("got");
    // Nothing that was said is lost.
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(reader)).map(|line| line.expect("text"));
    assert!(lines.by_ref().any(|line| line.contains("token ")), "its token");
    assert!(lines.by_ref().any(|line| line.ends_with("it was taken away: the job runs on")), "its loss");
    kill(pid_of(&holder).as_raw_pid(), Signal::TERM);
    until("the end of the job", || (!lives(job)).then_some(()));
    assert_eq!(code_of(end_of(&mut holder)), 40);
    assert_eq!(lines.next(), None);
}

/// Taken off at the end, a failed one too.
struct Mounted<'a>(&'a Place);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = bash(self.0, "umount -l small").status();
    }
}

// Planted: the job goes on when renewals fail.
#[test]
fn a_disk_that_is_full() {
    let place = Place::new();
    let root = rustix::process::geteuid().is_root();
    let mounted = root && finish(&mut bash(&place, "mkdir small && mount -t tmpfs -o size=600k none small")).0 == 0;
    if !mounted {
        return common::cannot_run("there is no file system of its own to be had");
    }
    let _mounted = Mounted(&place);
    let url = format!("sqlite:{}", place.path("small/locks.db").display());
    let fill = "trap '' TERM; dd if=/dev/zero of=$D/small/fill bs=1k 2> $D/dd; echo $$ > $D/job; sleep 600";
    let (code, _, err) = finish(place.run(&["--url", &url, "--ttl", "3s"], fill).stdin(Stdio::null()));
    let dead = !lives(place.pid("job").as_raw_pid());
    let (late, _, said) = finish(&mut place.run(&["--url", &format!("{url}2")], "exit 5"));
    let freed =
        finish(&mut bash(&place, "rm small/fill; \"$F\" run -n --url sqlite:$D/small/locks.db x -- bash -c 'exit 5'"))
            .0;
    assert_eq!((code, dead), (76, true), "{err}");
    assert_eq!(late, 69, "{said}");
    assert!(said.contains("full"), "{said}");
    assert_eq!(freed, 5);
}
