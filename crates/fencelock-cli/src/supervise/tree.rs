//! Signals for everything below this process, and its end (SAFETY R1).
//!
//! Minder and wrapper are subreapers: whatever loses its parent becomes a child of theirs. So "no child left" means that
//! nothing of the job is left, and it is enough to kill children until then; what lies deeper is reached only to be quick.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open, pidfd_send_signal, wait,
};

/// Whether `/proc` tells of this process, and not of one of the same number in another namespace (`unshare --pid` alone), whose children
/// would be taken for ours. *Invariant (SAFETY R1):* nobody runs a job who cannot tell what is left of it.
pub(crate) fn sees_processes() -> bool {
    fs::read_link("/proc/self").is_ok_and(|me| me.to_str() == Some(&getpid().as_raw_pid().to_string()))
}

/// A process that a signal could not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) pid: i32,
    pub(super) error: i32,
}

/// How long to wait before the next try at what does not die: 1, 2, 5, 10 ms, later 100 ms.
#[derive(Debug, Default)]
pub(super) struct Backoff(usize);

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        const STEPS: [u64; 4] = [1, 2, 5, 10];
        let step = self.0;
        self.0 = step.saturating_add(1);
        // After about a second of tries nothing will die in the next 10 ms either.
        let last = if step < 100 { 10 } else { 100 };
        Duration::from_millis(STEPS.get(step).copied().unwrap_or(last))
    }

    pub(super) fn tries(&self) -> usize {
        self.0
    }
}

/// Everything below this process.
#[derive(Debug)]
pub(super) struct Tree {
    me: i32,
    /// What was below us before the job, with its start time: `sh -c 'sleep 9 & exec fencelock run …'` leaves the wrapper
    /// some. All of it and not only children: what is orphaned later becomes a child then. By number alone a process of
    /// the job that gets the number of a dead one would be spared too.
    spared: BTreeMap<i32, u64>,
    /// What was already named to the user.
    named: BTreeSet<i32>,
}

impl Tree {
    /// The tree of this process; what is below it now is not part of the job.
    pub(super) fn new() -> io::Result<Self> {
        let mut tree = Self { me: getpid().as_raw_pid(), spared: BTreeMap::new(), named: BTreeSet::new() };
        let mut below = children_of(tree.me)?;
        while let Some(pid) = below.pop() {
            if let Some(started) = started(pid)
                && tree.spared.insert(pid, started).is_none()
            {
                match children_of(pid) {
                    Ok(further) => below.extend(further),
                    // Another user's, whose own are not to be seen.
                    Err(e) if is_hidden(&e) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(tree)
    }

    /// Takes the dead children. `true`: nothing of the job is left, which nobody knows who cannot look.
    pub(super) fn reap(&mut self, mut dead: impl FnMut(i32, WaitStatus)) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    self.spared.remove(&pid.as_raw_pid());
                    self.named.remove(&pid.as_raw_pid());
                    dead(pid.as_raw_pid(), status);
                }
                Ok(None) => return !self.spared.is_empty() && self.children().is_ok_and(|left| left.is_empty()),
                Err(Errno::INTR) => {}
                // ECHILD. There is no other error for these arguments.
                Err(_) => return true,
            }
        }
    }

    /// Signals every process of the job, as far as the system lets us, and tells which it did not.
    pub(super) fn signal(&self, signal: Signal) -> Vec<Refused> {
        let mut refused = Vec::new();
        let mut note = |pid: i32, result: rustix::io::Result<()>| match result {
            // ESRCH: dead, and not reaped by its parent yet.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(e) => refused.push(Refused { pid, error: e.raw_os_error() }),
        };
        // Where it cannot look, for want of a descriptor, those who kill come again.
        let children = self.children().unwrap_or_default();
        let further = |pid| children_of(pid).unwrap_or_default();
        let mut below: Vec<i32> = children.iter().copied().flat_map(further).collect();
        for &raw in &children {
            // A child is ours until we reap it, and only this thread reaps: the number cannot mean anybody else.
            if let Some(pid) = Pid::from_raw(raw) {
                note(raw, kill_process(pid, signal));
            }
        }
        let mut seen: BTreeSet<i32> = children.into_iter().collect();
        while let Some(raw) = below.pop() {
            if seen.insert(raw) {
                below.extend(further(raw));
                note(raw, self.signal_deep(raw, signal));
            }
        }
        refused
    }

    /// Those of the refused, or of the ones that KILL did not end, that were not named before.
    pub(super) fn unnamed(&mut self, refused: Vec<Refused>, overdue: bool) -> Vec<Refused> {
        let mut fresh = refused;
        if overdue {
            fresh.extend(self.children().unwrap_or_default().into_iter().map(|pid| Refused { pid, error: 0 }));
        }
        fresh.retain(|r| self.named.insert(r.pid));
        fresh
    }

    /// Kills until nothing is left. Blocks for as long as something cannot be killed.
    pub(super) fn sweep(&mut self, mut stuck: impl FnMut(Refused)) {
        let mut backoff = Backoff::default();
        while !self.reap(|_, _| {}) {
            let refused = self.signal(Signal::KILL);
            for r in self.unnamed(refused, backoff.tries() > OVERDUE) {
                stuck(r);
            }
            std::thread::sleep(backoff.next());
        }
    }

    fn children(&self) -> io::Result<Vec<i32>> {
        let mut children = children_of(self.me)?;
        children.retain(|&pid| !self.is_spared(pid));
        Ok(children)
    }

    fn is_spared(&self, pid: i32) -> bool {
        self.spared.get(&pid).is_some_and(|&at| started(pid) == Some(at))
    }

    /// A process that is not our child may be gone, and its number another's, at any moment: the descriptor is opened
    /// first, and what it names is signalled only if it then still descends from us.
    fn signal_deep(&self, raw: i32, signal: Signal) -> rustix::io::Result<()> {
        let pid = Pid::from_raw(raw).ok_or(Errno::SRCH)?;
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        if !self.descends(raw) {
            return Err(Errno::SRCH);
        }
        pidfd_send_signal(&fd, signal)
    }

    fn descends(&self, pid: i32) -> bool {
        let mut at = pid;
        // A loop of parents cannot be, but /proc is read while it changes.
        for _ in 0..4096 {
            match parent_of(at) {
                Some(parent) if parent == self.me => return !self.is_spared(at),
                Some(parent) if parent > 1 => at = parent,
                _ => return false,
            }
        }
        false
    }
}

/// After how many tries a process that took the signal but does not die is named: about a second.
pub(super) const OVERDUE: usize = 100;

/// The children of a process; a list read while it changes may lack some, so callers come again.
fn children_of(pid: i32) -> io::Result<Vec<i32>> {
    let tasks = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(tasks) => tasks,
        Err(e) if is_gone(&e) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut children = Vec::new();
    for task in tasks {
        let task = match task {
            Ok(task) => task,
            Err(e) if is_gone(&e) => break,
            Err(e) => return Err(e),
        };
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => children.extend(list.split_ascii_whitespace().filter_map(|n| n.parse::<i32>().ok())),
            Err(e) if !is_gone(&e) => return Err(e),
            // A thread that has just ended; or a kernel without this file, which none of the process's threads has.
            Err(_) if !fs::exists("/proc/thread-self/children")? => return scan_for_children(pid),
            Err(_) => {}
        }
    }
    Ok(children)
}

/// What was to be read has ended.
fn is_gone(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::NOENT | Errno::SRCH))
}

fn is_hidden(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::PERM | Errno::ACCESS))
}

fn scan_for_children(pid: i32) -> io::Result<Vec<i32>> {
    let mut parents: BTreeMap<i32, i32> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(n) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        match fs::read(format!("/proc/{n}/stat")) {
            Ok(stat) => drop(field(&stat, PARENT).map(|parent| parents.insert(n, parent))),
            Err(e) if is_gone(&e) || is_hidden(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(parents.into_iter().filter(|&(_, parent)| parent == pid).map(|(child, _)| child).collect())
}

fn parent_of(pid: i32) -> Option<i32> {
    field(&fs::read(format!("/proc/{pid}/stat")).ok()?, PARENT)
}

/// Whether this process descends from that one.
pub(crate) fn is_below(ancestor: i32) -> bool {
    let mut at = getpid().as_raw_pid();
    // As in `descends`.
    for _ in 0..4096 {
        match parent_of(at) {
            Some(parent) if parent == ancestor => return true,
            Some(parent) if parent > 1 => at = parent,
            _ => return false,
        }
    }
    false
}

/// When a process started, in ticks since the boot: with its number, its identity.
fn started(pid: i32) -> Option<u64> {
    field(&fs::read(format!("/proc/{pid}/stat")).ok()?, STARTED)
}

const PARENT: usize = 1;
const STARTED: usize = 19;

/// The n-th field of a stat file, counted from the state.
fn field<T: std::str::FromStr>(stat: &[u8], n: usize) -> Option<T> {
    // The command's name stands in parentheses and may hold anything, closing ones too: what follows the last counts.
    let end = stat.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(n)?.parse().ok()
}

/// The name of a process for a message; what /proc says, without control characters.
pub(super) fn name_of(pid: i32) -> String {
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    crate::render::plain(String::from_utf8_lossy(&comm).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: `position` instead of `rposition`.
    #[test]
    fn the_parent_is_found_whatever_the_name_holds() {
        assert_eq!(field(b"812 (a) S 1 (b) c) S 77 812 812 0", PARENT), Some(77));
        assert_eq!(field(b"812 (\xff\n) Z 1 0 0", PARENT), Some(1));
        assert_eq!(field::<i32>(b"812", PARENT), None);
        let parent = rustix::process::getppid().map(Pid::as_raw_pid);
        assert_eq!(parent_of(getpid().as_raw_pid()), parent);
        assert!(parent.is_some_and(is_below) && !is_below(getpid().as_raw_pid()) && !is_below(0));
    }

    // Planted: only the main thread's children are read.
    #[test]
    fn a_child_of_any_thread_is_seen_in_both_ways() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a child");
        let pid = i32::try_from(child.id()).expect("a pid");
        let me = getpid().as_raw_pid();
        assert!(children_of(me).is_ok_and(|all| all.contains(&pid)));
        assert!(scan_for_children(me).is_ok_and(|all| all.contains(&pid)));
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }

    // Planted: no cap on the back-off.
    #[test]
    fn the_back_off_grows_to_a_tenth_of_a_second() {
        let mut b = Backoff::default();
        let first: Vec<u128> = (0..6).map(|_| b.next().as_millis()).collect();
        assert_eq!(first, [1, 2, 5, 10, 10, 10]);
        for _ in 0..100 {
            b.next();
        }
        assert_eq!(b.next().as_millis(), 100);
    }
}
