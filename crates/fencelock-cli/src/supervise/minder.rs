//! The hidden subcommand `minder`: parent of the job, and the one that ends it in time (SAFETY R1).
//!
//! It does nothing but wait, on one thread: the job's parent-death signal fires when the *thread* that started it ends.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitStatus, getpid, kill_process, set_child_subreaper};

use super::clock::{self, Alarm, Nanos};
use super::orders::Orders;
use super::schedule::Due;
use super::tree::{Backoff, OVERDUE, Refused, Tree};
use super::wire::{End, Frame, Link, Reason, Received};
use crate::args::OnLoss;
use crate::exit;
use crate::render::{complain, detach};

/// `minder …`, see [`Orders`].
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(orders) = Orders::parse(args) else {
        complain("the subcommand `minder` is not for use by hand");
        return ExitCode::from(exit::USAGE);
    };
    // It was started as /proc/self/exe, and would be listed as `exe`.
    let _ = rustix::thread::set_name(c"fencelock");
    let minder = Link::from_stdin().and_then(|link| {
        let started = Minder::start(orders, link.another()?);
        if let Err(e) = &started {
            link.send(Frame::Ended(End::NotStarted(e.raw_os_error().unwrap_or(0)), None));
        }
        started
    });
    match minder {
        Ok(Some((minder, signals))) => minder.run(signals),
        // The wrapper died first, or it was too late.
        Ok(None) => {}
        // The wrapper says it, if it has been told.
        Err(_) => return ExitCode::from(exit::BUG),
    }
    ExitCode::SUCCESS
}

struct Minder {
    link: Link,
    /// The wrapper's end is closed.
    alone: bool,
    children: UnixStream,
    alarm: Alarm,
    tree: Tree,
    orders: Orders,
    job: i32,
    end: Option<End>,
    /// What made us stop the job; not what we do to those that it left behind.
    reason: Option<Reason>,
    /// Until when an end of the job is taken for the answer to our TERM. One that shrugs it off, and whose lease is
    /// renewed after all, ends by itself later.
    answer_until: Nanos,
    /// When KILL comes for what the ended job left behind.
    leftovers: Option<Nanos>,
    /// KILL until nothing is left.
    killing: Option<Backoff>,
}

impl Minder {
    /// Starts the job; the signals that came for it before. `None`: nobody wants it any more, or its time is over.
    fn start(orders: Orders, link: Link) -> io::Result<Option<(Self, Vec<i32>)>> {
        let warn = orders.schedule.on_loss == OnLoss::Warn;
        if !warn {
            set_child_subreaper(Some(getpid()))?;
        }
        let children = super::signals::be_deaf()?;
        let alarm = Alarm::new()?;
        let tree = Tree::new()?;
        let Some(stdin) = link.receive_descriptor()? else { return Ok(None) };
        let mut minder = Self {
            link,
            alone: false,
            children,
            alarm,
            tree,
            orders,
            job: 0,
            end: None,
            reason: None,
            answer_until: 0,
            leftovers: None,
            killing: None,
        };
        // As on every waking: until now may have taken long, too.
        let signals = minder.hear();
        minder.look_at_the_clock();
        if minder.reason.is_some() || minder.alone {
            minder.link.send(Frame::Ended(End::NotStarted(0), minder.reason));
            return Ok(None);
        }
        minder.job = spawn(&minder.orders, stdin, if warn { 0 } else { getpid().as_raw_pid() })?;
        minder.link.send(Frame::Started);
        Ok(Some((minder, signals)))
    }

    fn run(mut self, mut signals: Vec<i32>) {
        loop {
            // First of all on every waking, after a stop or a suspended machine too: what does the clock say? The
            // frames before it cost microseconds, and one of them may be the renewal that makes all well.
            signals.extend(self.hear());
            self.look_at_the_clock();
            if let Some(backoff) = &self.killing {
                let overdue = backoff.tries() > OVERDUE;
                // Him it knows without a look at the others, for which a descriptor may be wanting.
                self.forward(Signal::KILL.as_raw());
                let refused = self.tree.signal(Signal::KILL);
                self.name_stuck(refused, overdue);
            }
            for signal in signals.drain(..) {
                self.forward(signal);
            }
            if self.reap() {
                self.link.send(Frame::Ended(self.end.unwrap_or(End::Unknown), self.reason));
                return;
            }
            self.wait();
        }
    }

    /// Takes what the wrapper has sent; returns the signals for the job.
    fn hear(&mut self) -> Vec<i32> {
        let mut signals = Vec::new();
        while !self.alone {
            match self.link.receive(false) {
                Received::Frame(Frame::Deadline(at)) => self.orders.schedule.renewed(at),
                Received::Frame(Frame::Signal(n)) => signals.push(n),
                Received::Frame(Frame::Kill) => self.kill(Reason::Lost),
                Received::Frame(_) => {}
                Received::Nothing => break,
                Received::Closed => {
                    self.alone = true;
                    if self.orders.schedule.on_loss != OnLoss::Warn {
                        self.kill(Reason::WrapperGone);
                    }
                }
            }
        }
        signals
    }

    fn look_at_the_clock(&mut self) {
        if self.killing.is_some() {
            return;
        }
        let now = clock::now();
        match self.orders.schedule.due(now) {
            Due::Kill(reason) => self.kill(reason),
            Due::Term(reason) => self.term(Some(reason)),
            Due::Nothing => {}
        }
        if self.leftovers.is_some_and(|at| now >= at) && self.killing.is_none() {
            self.killing = Some(Backoff::default());
        }
    }

    fn kill(&mut self, reason: Reason) {
        if self.end.is_none() && self.killing.is_none() {
            self.reason = Some(reason);
        }
        self.killing.get_or_insert_default();
    }

    fn term(&mut self, reason: Option<Reason>) {
        if self.end.is_none() && reason.is_some() {
            self.reason = reason;
            self.answer_until = clock::now().saturating_add(self.orders.schedule.grace);
        }
        let refused = self.tree.signal(Signal::TERM);
        self.name_stuck(refused, false);
        // One that Ctrl-Z has stopped takes TERM only when it goes on.
        self.tree.signal(Signal::CONT);
    }

    fn forward(&self, signal: i32) {
        // Until it is reaped its number is its own.
        if self.end.is_none()
            && let (Some(job), Some(signal)) = (Pid::from_raw(self.job), Signal::from_named_raw(signal))
        {
            let _ = kill_process(job, signal);
        }
    }

    /// Takes the dead. `true`: all is done.
    fn reap(&mut self) -> bool {
        let (mut end, mut any) = (None, false);
        let job = self.job;
        let empty = self.tree.reap(|pid, status| {
            any = true;
            if pid == job {
                end = Some(end_of(status));
            }
        });
        if any && let Some(backoff) = &mut self.killing {
            *backoff = Backoff::default();
        }
        if end.is_some() {
            self.end = end;
            if self.killing.is_none() && clock::now() > self.answer_until {
                self.reason = None;
            }
            if self.orders.schedule.on_loss == OnLoss::Warn {
                return true;
            }
            if !empty && self.killing.is_none() {
                self.term(None);
                let patience = self.orders.schedule.grace.min(1_000_000_000);
                self.leftovers = Some(clock::now().saturating_add(patience));
            }
        }
        empty
    }

    fn wait(&mut self) {
        let timeout = match &mut self.killing {
            // The clock has nothing more to say.
            Some(backoff) => {
                let _ = self.alarm.set(None);
                Some(clock::timespec(clock::nanos(backoff.next())))
            }
            None => {
                let next = [self.orders.schedule.next(), self.leftovers].into_iter().flatten().min();
                // Without a timer, look again every 10 ms: never later than the margin allows.
                self.alarm.set(next).err().map(|_| clock::timespec(10_000_000))
            }
        };
        let mut fds = vec![PollFd::new(&self.children, PollFlags::IN), PollFd::new(&self.alarm, PollFlags::IN)];
        if !self.alone {
            fds.push(PollFd::new(&self.link, PollFlags::IN));
        }
        // EINTR is a waking like any other.
        let _ = poll(&mut fds, timeout.as_ref());
        let mut drained = [0; 64];
        while matches!((&self.children).read(&mut drained), Ok(n) if n > 0) {}
    }

    /// Says which processes stay, once each: while the wrapper lives they keep the lock renewed (SAFETY R1).
    fn name_stuck(&mut self, refused: Vec<Refused>, overdue: bool) {
        for Refused { pid, error } in self.tree.unnamed(refused, overdue) {
            if !self.alone {
                // The wrapper prints it: it is in the terminal's group, which may be asked to hold background output.
                self.link.send(Frame::Stuck(pid, error));
            } else if detach().is_ok() {
                complain(&super::stuck(pid, error));
            }
        }
    }
}

fn spawn(orders: &Orders, stdin: OwnedFd, die_with: i32) -> io::Result<i32> {
    // Standard output and error are inherited, and so are the descriptors that keep the lock alive on this host. What is
    // the minder's own is closed on exec, and its link, as standard input, is replaced.
    let child = Command::new("/proc/self/exe")
        .arg0("fencelock")
        .args(["job".into(), OsString::from(die_with.to_string()), "--".into()])
        .args(&orders.command)
        .stdin(Stdio::from(stdin))
        .process_group(orders.group.unwrap_or(0))
        .spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signaled(signal),
        (None, None) => End::Unknown,
    }
}
