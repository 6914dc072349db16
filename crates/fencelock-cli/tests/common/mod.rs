//! What the end-to-end tests share: a private place, the binary, jobs that are hard to kill, and waiting for conditions.

#![allow(dead_code)]

pub(crate) mod bars;
pub(crate) mod pty;
pub(crate) mod spaces;

use std::fs;
use std::io::Write as _;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// What counts as stuck: less than is left of a lease of 30 s that is renewed, so that no end of one is taken for what comes before it.
pub(crate) const STUCK: Duration = Duration::from_secs(18);

/// A directory of this test's own, with a database in it; gone at the end, with every process that was told of it.
pub(crate) struct Place {
    dir: PathBuf,
}

impl Place {
    /// In memory where there is such a place: a disk's own times are not what is judged.
    pub(crate) fn new() -> Self {
        Self::within(Path::new("/dev/shm")).or_else(|_| Self::within(&std::env::temp_dir())).expect("a directory")
    }

    /// Where a program may lie: containers forbid to run what is in /dev/shm, and leave it 64 MB.
    pub(crate) fn on_disk() -> Self {
        Self::within(&std::env::temp_dir()).expect("a directory")
    }

    fn within(parent: &Path) -> std::io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("fencelock-e2e-{}-{n}", std::process::id()));
        fs::create_dir(&dir)?;
        Ok(Self { dir })
    }

    /// For the next repetition: what jobs have written is gone, the database stays.
    pub(crate) fn clear(&self) {
        for name in ["beats", "job", "ready", "next", "held", "end", "ran"] {
            let _ = fs::remove_file(self.path(name));
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    /// The binary, with this place's engine.
    pub(crate) fn fencelock(&self) -> Command {
        // Whoever starts the tests in the background of a script, or under nohup, starts them with signals ignored.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT,QUIT,HUP").arg(binary());
        for (key, _) in std::env::vars_os() {
            if key.to_string_lossy().starts_with("FENCELOCK_") {
                command.env_remove(key);
            }
        }
        command.env("FENCELOCK_URL", self.url()).current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    /// `fencelock run x OPTIONS -- bash -c SCRIPT`, with the place as `$D`.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.fencelock();
        command.args(["run", "x"]).args(options).args(["--", "bash", "-c", script]).env("D", &self.dir);
        command
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The text of the file, once it has a whole line.
    pub(crate) fn line(&self, name: &str) -> String {
        until(&format!("a line in {name}"), || {
            let text = self.read(name);
            text.ends_with('\n').then(|| text.trim().to_owned())
        })
    }

    /// Waits until so many wait for `x`.
    pub(crate) fn waiting(&self, n: usize) {
        until(&format!("{n} in the queue"), || {
            let (_, out, _) = finish(self.fencelock().args(["status", "x", "--json"]));
            let object: serde_json::Value = serde_json::from_str(&out).ok()?;
            (object["waiters"].as_array()?.len() == n).then_some(())
        });
    }

    /// The token of the one who holds `x`.
    pub(crate) fn token(&self) -> String {
        let (_, out, _) = finish(self.fencelock().args(["status", "x", "--json"]));
        let object: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        object["holders"][0]["token"].to_string()
    }

    /// Waits until the one who holds `x` has no job and no minder any more.
    pub(crate) fn alone(&self) {
        until("nobody below the holder", || {
            let (_, out, _) = finish(self.fencelock().args(["status", "x", "--json"]));
            let object: serde_json::Value = serde_json::from_str(&out).ok()?;
            let pid = i32::try_from(object["holders"][0]["pid"].as_i64()?).ok()?;
            children(Pid::from_raw(pid)?).is_empty().then_some(())
        });
    }

    /// What `sqlite3` says to this about the database.
    pub(crate) fn sql(&self, statement: &str) -> String {
        let (code, out, err) = finish(
            // After a kill -9 whoever comes first puts the database in order, and keeps it to himself for that long.
            Command::new("sqlite3").args(["-cmd", ".timeout 15000"]).arg(self.path("locks.db")).arg(statement),
        );
        assert_eq!(code, 0, "{err}");
        out.trim().to_owned()
    }

    /// The pid that a job has written.
    pub(crate) fn pid(&self, name: &str) -> Pid {
        let line = self.line(name);
        line.parse().ok().and_then(Pid::from_raw).unwrap_or_else(|| panic!("no pid in {name}: {line:?}"))
    }

    /// The last beat of [`BEATS`] in microseconds since 1970.
    pub(crate) fn last_beat(&self) -> u64 {
        self.last_beat_of("")
    }

    /// The last one of this pid, of anybody's for none.
    pub(crate) fn last_beat_of(&self, pid: &str) -> u64 {
        let text = self.read("beats");
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let beats = whole.lines().filter_map(|l| l.split_once(' '));
        let of = beats.filter(|(who, _)| pid.is_empty() || *who == pid);
        of.filter_map(|(_, at)| micros(at)).max().expect("a beat")
    }

    /// Those who have beaten, and live.
    pub(crate) fn beating(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = self.read("beats").lines().filter_map(|l| l.split(' ').next()?.parse().ok()).collect();
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|&pid| lives(pid));
        pids
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.beating() {
            kill(pid, Signal::KILL);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_fencelock"))
}

/// A job that is hard to kill: it and two descendants ignore TERM, INT and HUP and write `PID TIME` to `beats` every 10 ms;
/// one is a grandchild whose parent has gone, the other has a session of its own too. `ready` says that all three beat.
pub(crate) const BEATS: &str = r#"
beat='trap "" TERM INT HUP; exec 9<> <(:)
while :; do echo "$BASHPID $EPOCHREALTIME" >> $D/beats; read -t 0.01 -u 9; done'
(bash -c "$beat" &)
(setsid bash -c "(bash -c '$beat' &)" &)
echo $$ > $D/job
(until [ $(cut -d" " -f1 $D/beats | sort -u | wc -l) = 3 ]; do sleep 0.01; done; echo yes > $D/ready) &
eval "$beat"
"#;

/// What a next holder runs: it writes when it was let in.
pub(crate) const NEXT: &str = "echo - $EPOCHREALTIME > $D/next";

/// The moment that [`NEXT`] wrote.
pub(crate) fn granted(place: &Place) -> u64 {
    moment(place, "next")
}

/// The moment in a file: a word and a time.
pub(crate) fn moment(place: &Place, name: &str) -> u64 {
    micros(place.line(name).split(' ').nth(1).expect("a time")).expect("a time")
}

fn micros(text: &str) -> Option<u64> {
    let (s, us) = text.split_once(['.', ','])?;
    Some(s.parse::<u64>().ok()? * 1_000_000 + us.parse::<u64>().ok()?)
}

pub(crate) fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("before the year 500000")
}

/// Waits for a condition, and fails the test when it is stuck.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < STUCK, "stuck: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A child that does not outlive a failed test; what a wrapper minds dies with it.
pub(crate) struct Running(Child);

/// Starts it.
pub(crate) fn start(command: &mut Command) -> Running {
    Running(command.spawn().expect("a child"))
}

impl Deref for Running {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let minder = children(pid_of(self)).first().copied();
            let _ = self.0.kill();
            let _ = self.0.wait();
            if let Some(minder) = minder {
                kill(minder, Signal::CONT);
            }
        }
    }
}

/// The end of a child, in time.
pub(crate) fn end_of(child: &mut Child) -> ExitStatus {
    until("a child that ends", || child.try_wait().expect("a child to wait for"))
}

/// Waits for the end of a load that takes as long as it takes, but not for ever.
pub(crate) fn done(mut child: Running) -> i32 {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child to wait for") {
            return code_of(status);
        }
        assert!(start.elapsed() < Duration::from_secs(600), "stuck");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs to its end, in time, and says the exit code and what was printed.
pub(crate) fn finish(command: &mut Command) -> (i32, String, String) {
    finish_within(command, STUCK)
}

/// As [`finish`], of one that has a lot to do.
pub(crate) fn finish_within(command: &mut Command, limit: Duration) -> (i32, String, String) {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a child");
    let pid = pid_of(&child);
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || tx.send(child.wait_with_output()));
    let Ok(output) = rx.recv_timeout(limit) else {
        let _ = kill_process(pid, Signal::KILL);
        panic!("stuck: {command:?}");
    };
    let Output { status, stdout, stderr } = output.expect("output");
    (code_of(status), text(&stdout), text(&stderr))
}

/// The code as a shell tells it.
pub(crate) fn code_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|s| 128 + s)).expect("an end")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// The minder of a wrapper: its only child.
pub(crate) fn minder_of(wrapper: Pid) -> Pid {
    until("a minder", || Pid::from_raw(*children(wrapper).first()?))
}

pub(crate) fn children(of: Pid) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", of.as_raw_pid())) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|t| fs::read_to_string(t.path().join("children")).ok());
    lists.collect::<String>().split(' ').filter_map(|n| n.parse().ok()).collect()
}

/// Whether a process runs: a zombie does not.
pub(crate) fn lives(pid: i32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let end = stat.iter().rposition(|&b| b == b')');
    end.is_some_and(|end| stat.get(end + 2).is_some_and(|state| !matches!(state, b'Z' | b'X')))
}

pub(crate) fn stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 't']))
}

pub(crate) fn stop(pid: Pid) {
    kill(pid.as_raw_pid(), Signal::STOP);
    let all = || fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten().flatten();
    let sleeps = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['T', 't', 'Z', 'X']))
    };
    until("it is stopped", || all().all(sleeps).then_some(()));
}

/// Stopped, and not inside a transaction: that would stop the database for everybody, as the engine's page says.
pub(crate) fn stop_wrapper(place: &Place, pid: Pid) {
    let writable = || {
        let mut look = Command::new("sqlite3");
        look.args(["-cmd", ".timeout 20"]).arg(place.path("locks.db")).arg("BEGIN IMMEDIATE; ROLLBACK");
        finish(&mut look).0 == 0
    };
    loop {
        stop(pid);
        if writable() {
            return;
        }
        kill(pid.as_raw_pid(), Signal::CONT);
        until("the end of its transaction", || writable().then_some(()));
    }
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid)
        && test_kill_process(pid).is_ok()
    {
        let _ = kill_process(pid, signal);
    }
}

/// What this user or machine does not allow. Where every change is proved (`.ci/run` sets `CI`) that is a failure.
pub(crate) fn cannot_run(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "this test has to run here: {why}");
    not_run(why);
}

/// What may be missing there, too. To the real standard error: what a test that passes prints is shown to nobody.
pub(crate) fn not_run(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "{}: cannot run here, because {why}", thread.name().unwrap_or("a test"));
}
