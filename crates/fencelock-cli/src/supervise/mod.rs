//! A job that never outlives its lock: wrapper (here) → minder → job (CLI.md, SAFETY R).
//!
//! The wrapper holds and renews the lock and tells the minder every new end of it; the minder starts the job and kills
//! all of it in time, by itself, even when the wrapper is stopped or dead. When the minder dies the wrapper does it.

mod clock;
pub(crate) mod job;
pub(crate) mod minder;
mod orders;
mod schedule;
pub(crate) mod signals;
mod terminal;
mod tree;
mod wire;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::time::Duration;

use fencelock::{Held, LossReason, Moment};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use crate::args::OnLoss;
use crate::render::complain;
use orders::Orders;
use schedule::Schedule;
use signals::Caught;
use tree::Tree;
pub(crate) use tree::{is_below, sees_processes};
pub(crate) use wire::{End, Reason};
use wire::{Frame, Link, Received};

/// A future of a tenure.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What the job runs under: a hold of our own, or that of an outer run.
pub(crate) trait Tenure {
    /// Until then nobody else has been let in.
    fn valid_until(&self) -> Moment;
    /// Resolves when it is lost. The first call drives what the others tell.
    fn lost(&self) -> Later<'_, LossReason>;
    /// Resolves when its end has moved.
    fn renewed(&self) -> Later<'_, ()>;
}

impl Tenure for Held {
    fn valid_until(&self) -> Moment {
        self.valid_until()
    }
    fn lost(&self) -> Later<'_, LossReason> {
        Box::pin(self.lost())
    }
    fn renewed(&self) -> Later<'_, ()> {
        Box::pin(self.renewed())
    }
}

/// What to run, and when to stop it.
pub(crate) struct Plan {
    pub(crate) command: Vec<OsString>,
    /// What the job's environment has differently; `None` removes.
    pub(crate) env: Vec<(&'static str, Option<OsString>)>,
    pub(crate) on_loss: OnLoss,
    pub(crate) grace: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) ttl: Duration,
    /// What keeps the lock alive on this host as long as somebody has it open (SQLite's flock).
    pub(crate) lifeline: Option<OwnedFd>,
}

/// What became of the job. Nothing of it is left, except under `--on-loss warn`.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// Why it was stopped.
    pub(crate) reason: Option<Reason>,
    pub(crate) lost: Option<LossReason>,
}

/// How long a minder may take after a loss until the wrapper acts in its place: it may be stopped.
const BACKSTOP: Duration = Duration::from_millis(50);

/// Runs the job under the hold until all of it is gone.
pub(crate) async fn run(
    tenure: &dyn Tenure,
    plan: Plan,
    signals: &mut UnboundedReceiver<Caught>,
) -> io::Result<Outcome> {
    let warn = plan.on_loss == OnLoss::Warn;
    let tree = Tree::new()?;
    if !warn {
        set_child_subreaper(Some(getpid()))?;
    }
    let (link, theirs) = Link::pair()?;
    let mut reports = listen(link.another()?)?;
    let group = terminal::group_for_job();
    let deadline = tenure.valid_until().as_nanos();
    let margin = (plan.ttl / 10).clamp(Duration::from_millis(30), Duration::from_millis(500));
    let minder = spawn(plan, theirs, group, deadline, margin)?;
    let in_terminal = group.is_some();
    let mut wrapper = Wrapper { tenure, warn, margin, in_terminal, link, minder, tree, started: false, told: deadline };
    match wrapper.link.send_descriptor(io::stdin().as_fd()) {
        // A minder that has died, and the reports say so.
        Err(e) if !matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            let _ = kill_process(minder, Signal::KILL);
            wrapper.bury(false);
            Err(e)
        }
        _ => Ok(wrapper.attend(&mut reports, signals).await),
    }
}

struct Wrapper<'a> {
    tenure: &'a dyn Tenure,
    warn: bool,
    /// The minder kills this long before the end of the lease.
    margin: Duration,
    /// The job is in our process group and gets what the terminal sends.
    in_terminal: bool,
    link: Link,
    minder: Pid,
    tree: Tree,
    started: bool,
    /// The end of the lease that the minder knows.
    told: u64,
}

impl Wrapper<'_> {
    async fn attend(
        &mut self,
        reports: &mut UnboundedReceiver<Frame>,
        signals: &mut UnboundedReceiver<Caught>,
    ) -> Outcome {
        let tenure = self.tenure;
        let (mut lost, mut renewed) = (tenure.lost(), tenure.renewed());
        let (mut loss, mut ended) = (None, None);
        // When the wrapper stops to rely on the minder; `None` once it has.
        let mut backstop: Option<Instant> = None;
        let mut alone = self.warn;
        loop {
            if loss.is_none() {
                self.tell_deadline();
                backstop = (!alone).then(|| self.half_a_margin_before_the_end());
            }
            tokio::select! {
                biased;
                reason = &mut lost, if loss.is_none() => {
                    loss = Some(reason);
                    if self.warn {
                        complain(&format!("the lock is lost, {reason}: the job runs on"));
                    } else {
                        // SAFETY R2: grace only while validity remains. For an expired lease the minder has acted already.
                        self.link.send(Frame::Kill);
                        backstop = (!alone).then(|| Instant::now() + BACKSTOP);
                    }
                }
                frame = reports.recv() => match frame {
                    Some(Frame::Started) => self.started = true,
                    Some(Frame::Stuck(pid, error)) => complain(&stuck(pid, error)),
                    Some(Frame::Ended(end, reason)) => ended = Some((end, reason)),
                    Some(_) => {}
                    None => break,
                },
                () = &mut renewed, if loss.is_none() => renewed = tenure.renewed(),
                Some(caught) = signals.recv() => self.pass_on(caught),
                () = sleep_until(backstop.unwrap_or_else(Instant::now)), if backstop.is_some() => {
                    // It is stopped, or at a tree that it cannot end; either way what follows is done better here.
                    (backstop, alone) = (None, true);
                    let _ = kill_process(self.minder, Signal::KILL);
                }
            }
        }
        self.bury(ended.is_none());
        // What made us act in the minder's place, if we did.
        let why = match loss {
            _ if self.warn || !alone => Reason::MinderGone,
            Some(_) => Reason::Lost,
            None => Reason::Deadline,
        };
        let (end, reason) = ended.unwrap_or((End::Unknown, Some(why)));
        Outcome { end, reason, lost: loss }
    }

    fn tell_deadline(&mut self) {
        let deadline = self.tenure.valid_until().as_nanos();
        if deadline != self.told {
            self.link.send(Frame::Deadline(deadline));
            self.told = deadline;
        }
    }

    /// By then a minder that runs has killed, and said so.
    fn half_a_margin_before_the_end(&self) -> Instant {
        let end = self.told.saturating_sub(clock::nanos(self.margin / 2));
        Instant::now() + Duration::from_nanos(end.saturating_sub(clock::now()))
    }

    fn pass_on(&self, caught: Caught) {
        // What the terminal sent, the job has got too, if it was there already.
        if !(caught.from_terminal && self.in_terminal && self.started) {
            self.link.send(Frame::Signal(caught.signal));
        }
    }

    /// The minder is gone: takes it off the process table, and what it left when it died. One that told the end has
    /// left nothing, and what is below us now is not the job's: an orphan of those who were there before it.
    fn bury(&mut self, died: bool) {
        while let Err(rustix::io::Errno::INTR) = waitpid(Some(self.minder), WaitOptions::empty()) {}
        if died && !self.warn {
            self.tree.sweep(|r| complain(&stuck(r.pid, r.error)));
        }
    }
}

fn spawn(plan: Plan, link: OwnedFd, group: Option<i32>, deadline: u64, margin: Duration) -> io::Result<Pid> {
    let warn = plan.on_loss == OnLoss::Warn;
    let max_hold = plan.max_hold.map(|d| clock::now().saturating_add(clock::nanos(d)));
    let schedule = Schedule::new(
        plan.on_loss,
        clock::nanos(plan.grace),
        clock::nanos(margin),
        (!warn).then_some(deadline),
        max_hold,
    );
    // Inherited by minder, job and all that the job starts: the kernel lets go of the lock when the last of them is
    // gone, so no takeover can come first (SAFETY R1).
    let lifeline = plan.lifeline.filter(|_| !warn).map(|fd| inheritable(&fd)).transpose()?;
    let orders = Orders { group, schedule, command: plan.command };
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fencelock").args(orders.to_args()).stdin(Stdio::from(link)).process_group(0);
    for (key, value) in plan.env {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    let child = command.spawn()?;
    drop(lifeline);
    Ok(Pid::from_child(&child))
}

/// The descriptor again, above 100, where no shell script opens its own; lower where `ulimit -n` allows no such number.
fn inheritable(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let mut found = Err(rustix::io::Errno::INVAL);
    for floor in [100, 30, 10, 3] {
        found = rustix::io::fcntl_dupfd_cloexec(fd, floor);
        if !matches!(found, Err(rustix::io::Errno::INVAL | rustix::io::Errno::MFILE)) {
            break;
        }
    }
    let high = found?;
    rustix::io::fcntl_setfd(&high, rustix::io::FdFlags::empty())?;
    Ok(high)
}

/// Hands on what the minder says. The channel ends with the link, that is, with the minder.
fn listen(link: Link) -> io::Result<UnboundedReceiver<Frame>> {
    let (tx, rx) = unbounded_channel();
    std::thread::Builder::new().name("reports".into()).stack_size(128 << 10).spawn(move || {
        while let Received::Frame(frame) = link.receive(true) {
            if tx.send(frame).is_err() {
                return;
            }
        }
    })?;
    Ok(rx)
}

fn stuck(pid: i32, error: i32) -> String {
    let name = tree::name_of(pid);
    let why = match rustix::io::Errno::from_raw_os_error(error) {
        rustix::io::Errno::PERM => "it runs as another user".to_owned(),
        _ if error == 0 => "it does not end on KILL, and waits for a device or a file system".to_owned(),
        e => io::Error::from(e).to_string(),
    };
    format!("cannot stop pid {pid} ({name}): {why}")
}
