//! A worker: how a test starts it, hears it, and kills or stops it; how it speaks.
use super::{eventually, full};
use crate::WallClock;
use crate::process::signal;
use fencelock_core::{BootClock, Clock};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// For so long a word of a worker is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The boot clock, which all processes share, in ns.
pub fn now() -> u64 {
    BootClock.now().as_nanos()
}
/// What a worker tells its test: a line, and when it was said.
pub fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{} {what}", now());
    let _ = out.flush();
}

/// A worker, as the tests see it: this binary, with `worker` as its first word. Killed when it is dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}
impl Worker {
    /// Starts one that is told these words.
    pub fn start<W: AsRef<OsStr>>(words: &[W]) -> Self {
        Self::start_by(None, words)
    }
    /// As [`start`](Self::start); its wall clock is this one.
    pub fn start_by<W: AsRef<OsStr>>(clock: Option<&WallClock>, words: &[W]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.envs(clock.map(WallClock::environment).into_iter().flatten());
        command.arg("worker").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let (tx, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| {
                let _ = tx.send(line);
            })
        });
        Self { child, input, lines }
    }
    /// One that claims and holds until it is told otherwise (the role `hold`). It has said that it waits.
    pub fn claim<A: AsRef<OsStr> + ?Sized>(
        address: &A,
        name: &str,
        claim: &str,
        ttl: Duration,
        least: Duration,
    ) -> Self {
        let (ttl, least) = (ttl.as_millis().to_string(), least.as_millis().to_string());
        let [hold, name, ttl, claim, least] = ["hold", name, &ttl, claim, &least].map(OsStr::new);
        let mut worker = Self::start(&[hold, address.as_ref(), name, ttl, claim, least]);
        worker.hear("waiting");
        worker
    }
    /// As [`claim`](Self::claim), a mutex.
    pub fn hold<A: AsRef<OsStr> + ?Sized>(address: &A, name: &str, ttl: Duration) -> Self {
        Self::claim(address, name, "mutex", ttl, Duration::ZERO)
    }
    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
    /// The next line: when it was said, and the rest after the expected word.
    pub fn hear(&mut self, word: &str) -> (u64, String) {
        let line = self.lines.recv_timeout(PATIENCE);
        Self::parse(word, &line.unwrap_or_else(|e| panic!("waited a minute for {word:?}: {e}")))
    }
    /// Nothing is there to be heard.
    pub fn is_silent(&self) -> bool {
        match self.lines.try_recv() {
            Ok(line) => panic!("it should be silent, and said {line:?}"),
            Err(e) => e == mpsc::TryRecvError::Empty,
        }
    }
    fn parse(word: &str, line: &str) -> (u64, String) {
        let (at, said) = line.trim().split_once(' ').unwrap_or(("0", ""));
        let rest = said.strip_prefix(word).unwrap_or_else(|| panic!("waited for {word:?}, heard {line:?}"));
        (at.parse().unwrap(), rest.trim().to_owned())
    }
    /// A line on its standard input.
    pub fn tell(&mut self, order: &str) {
        writeln!(self.input.as_mut().unwrap(), "{order}").unwrap();
    }
    /// Sends a signal; when.
    pub fn signal(&self, signal: Signal) -> u64 {
        let at = now();
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        at
    }
    /// `kill -9`; when. The kernel may still be at it.
    pub fn kill(&self) -> u64 {
        self.signal(Signal::KILL)
    }
    /// `kill -9`, and it is gone; when it was sent.
    pub fn bury(mut self) -> u64 {
        let at = self.kill();
        let _ = self.child.wait();
        at
    }
    /// Stops it, every thread of it.
    pub fn stop(&self) {
        signal(&self.child, Signal::STOP);
    }
    /// It goes on; since when.
    pub fn wake(&self) -> u64 {
        self.signal(Signal::CONT)
    }
    /// Until it ends by itself; whether it succeeded. One that is stuck did not.
    pub fn wait(self) -> bool {
        self.wait_until(Self::deadline())
    }
    pub(super) fn deadline() -> Instant {
        Instant::now() + Duration::from_secs(if full() { 900 } else { 120 })
    }
    pub(super) fn wait_until(mut self, deadline: Instant) -> bool {
        self.input = None;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status.success(),
                None if Instant::now() >= deadline => return false,
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}
impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
/// Who of these is in first, and when; then the other one.
pub fn first_in<'a>(one: &'a mut Worker, other: &'a mut Worker) -> (u64, [&'a mut Worker; 2]) {
    let mut line = None;
    eventually("one of two is in", PATIENCE, || {
        line = [&one, &other].into_iter().enumerate().find_map(|(i, w)| w.lines.try_recv().ok().map(|line| (i, line)));
        line.is_some()
    });
    let (i, line) = line.unwrap_or_default();
    (Worker::parse("held", &line).0, if i == 0 { [one, other] } else { [other, one] })
}
