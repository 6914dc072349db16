//! What a redis-server, a member of a cluster and a sentinel have in common.
use crate::{
    clock::WallClock,
    process::{Port, blocking, log_of, signal, spawn, state_of},
    resp::{self, Reply, fields},
};
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    process::Child,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

pub(crate) const READY: Duration = Duration::from_secs(20);
/// How long an operator waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often is looked whether something has come true.
const LOOK: Duration = Duration::from_millis(10);

/// One process; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    port: Port,
    /// Its files, and its log.
    folder: PathBuf,
    /// Of whoever may do everything.
    password: Option<String>,
    child: Mutex<Option<Child>>,
    is_paused: AtomicBool,
}
impl Process {
    pub(crate) fn new(folder: PathBuf, password: Option<&str>) -> Self {
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let (child, is_paused) = (Mutex::default(), AtomicBool::new(false));
        Self { port: Port::free(), folder, password: password.map(str::to_owned), child, is_paused }
    }
    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }
    pub(crate) fn log(&self) -> String {
        log_of(&self.folder)
    }
    /// A file in its folder.
    pub(crate) fn write(&self, name: &str, lines: &[String]) {
        let file = self.folder.join(name);
        std::fs::write(&file, lines.join("\n") + "\n").unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }
    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn runs(&self) -> bool {
        self.child().as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }
    /// It runs, and nobody has stopped it.
    pub(crate) fn is_up(&self) -> bool {
        self.runs() && !self.is_paused.load(SeqCst)
    }
    /// Starts it, or starts it again.
    pub(crate) fn begin(&self, words: &[String], clock: Option<&WallClock>) {
        let mut child = self.child();
        kill(&mut child);
        self.is_paused.store(false, SeqCst);
        let started = spawn(words, clock.iter().flat_map(|clock| clock.environment()), &self.folder);
        *child = Some(started.unwrap_or_else(|e| panic!("{}: {e}; `cargo xtask test` installs it", words[0])));
    }
    /// Until it logs this. False: it ended.
    pub(crate) fn wait(&self, what: &str, ready: &str) -> bool {
        blocking(|| {
            let deadline = Instant::now() + READY;
            loop {
                if !self.runs() {
                    return false;
                }
                let log = self.log();
                if log.contains(ready) {
                    return true;
                }
                let doing = || state_of(self.child().as_ref());
                assert!(Instant::now() < deadline, "{what} is not ready within {READY:?}: {}\n{log}", doing());
                thread::sleep(Duration::from_millis(2));
            }
        })
    }
    pub(crate) fn kill(&self) {
        blocking(|| kill(&mut self.child()));
    }
    pub(crate) fn pause(&self, paused: bool) {
        if let Some(child) = &*self.child() {
            self.is_paused.store(paused, SeqCst);
            signal(child, if paused { Signal::STOP } else { Signal::CONT });
        }
    }
    pub(crate) fn ask(&self, words: &[&str]) -> io::Result<Reply> {
        blocking(|| resp::ask(self.port(), self.password.as_deref(), words, PATIENCE))
    }
    /// A section of `INFO`; nothing where it does not answer.
    pub(crate) fn info(&self, section: &str) -> BTreeMap<String, String> {
        self.ask(&["INFO", section]).map(|reply| fields(&reply.into_lines())).unwrap_or_default()
    }
    /// How it copes with its replication: its role, whom it follows and whether it hears from there, or how many follow it.
    pub(crate) fn replication(&self) -> Replication {
        let info = self.info("replication");
        let field = |name: &str| info.get(name).map_or("", String::as_str);
        let has_all = |(name, value): (&String, &String)| name.starts_with("slave") && value.contains("state=online");
        Replication {
            is_primary: field("role") == "master",
            follows: field("master_port").parse().ok(),
            is_linked: field("master_link_status") == "up" && field("master_sync_in_progress") == "0",
            replicas: info.iter().filter(|it| has_all(*it)).count(),
            offset: field(if field("role") == "master" { "master_repl_offset" } else { "slave_repl_offset" })
                .parse()
                .ok(),
        }
    }
}
#[derive(Debug)]
pub(crate) struct Replication {
    pub(crate) is_primary: bool,
    pub(crate) follows: Option<u16>,
    pub(crate) is_linked: bool,
    pub(crate) replicas: usize,
    /// How much of what was ever written it has.
    pub(crate) offset: Option<u64>,
}
fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        signal(&child, Signal::KILL);
        let _ = child.wait();
    }
}
impl Drop for Process {
    fn drop(&mut self) {
        kill(&mut self.child());
    }
}

/// Until there is one.
pub(crate) fn eventually<T>(within: Duration, what: impl Fn() -> String, is: impl Fn() -> Option<T>) -> T {
    blocking(|| {
        let deadline = Instant::now() + within;
        loop {
            if let Some(it) = is() {
                return it;
            }
            assert!(Instant::now() < deadline, "not within {within:?}: {}", what());
            thread::sleep(LOOK);
        }
    })
}
/// Until all of these have what the primary has now.
pub(crate) fn catch_up(primary: &Process, all: &[&Process], within: Duration) {
    let offset = |of: &Process| of.replication().offset;
    let end = eventually(within, || format!("the primary answers:\n{}", primary.log()), || offset(primary));
    let behind = || all.iter().copied().find(|it| offset(it).is_none_or(|has| has < end));
    let what = || behind().map_or_else(String::new, |it| format!("{:?}: {end}\n{}", it.replication(), it.log()));
    eventually(within, what, || behind().is_none().then_some(()));
}
/// Words of a configuration: with this, a process has no files but in its folder, is on loopback, and keeps its data as is said.
pub(crate) fn common(port: u16, append_only: bool, password: Option<&str>) -> Vec<String> {
    let mut lines = vec![format!("port {port}"), "bind 127.0.0.1".to_owned(), r#"save """#.to_owned()];
    lines.push(format!("appendonly {}", if append_only { "yes" } else { "no" }));
    lines.push("appendfsync always".to_owned());
    // A replica that got its first data without a file is called online a second before anything that is written meanwhile is sent to it.
    lines.push("repl-diskless-sync no".to_owned());
    // Nobody is told of a replica of a cluster that has never been sent anything.
    lines.push("repl-ping-replica-period 1".to_owned());
    if let Some(password) = password {
        lines.extend([format!("requirepass {password}"), format!("masterauth {password}")]);
    }
    lines
}
