//! The keeper's thread: it opens the session, beats, hears the doorbell, and takes the lock for whoever's turn has come. So a
//! blocked runtime of the user delays no heartbeat and costs nobody a hand-over.
use crate::{
    error::Fault,
    observers::{self, Observers},
    session::{
        Own, Shared,
        doorbell::{self, CHECK_HOLDS},
        liveness::{self, Rights},
        watches::Watches,
        writers,
    },
    wire::{
        acquire::{Entered, Won, enter},
        exchange::renew,
        look::{Calm, LOOK, Look, look},
        open::{connect, idle, needs_sweep, register, retire, sweep},
        release::withdraw,
        scope::{Scope, read, write},
    },
};
use fencelock_core::{
    BootClock, Clock, Error, ErrorKind, Grant, HoldId, LossReason, Name, Renewed, Reports, Request, Result, Token,
};
use rusqlite::Connection;
use rustix::{
    event::{PollFd, PollFlags, poll},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};
use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    thread,
};
use tokio::sync::oneshot;

/// After an event of inotify the lock on the file is still held for a moment: look again after these.
pub(crate) const ECHOES: [i64; 3] = [1_000_000, 5_000_000, 20_000_000];
/// What cannot be opened is tried again this much later.
pub(crate) const AGAIN: i64 = 100_000_000;
/// And for so long, before those who wait for it are told (SAFETY E8).
const CONNECT_TIMEOUT: i64 = 5_000_000_000;
const HOUR: i64 = 3_600_000_000_000;

pub(crate) enum Order {
    /// Core attends: open a session.
    Attend(Reports),
    /// This request has a place in the queue of this lock.
    Wait {
        request: Request,
        session: i64,
        lock: i64,
        reply: oneshot::Sender<Result<Turned, Fault>>,
    },
    Withdraw {
        request: Request,
        reply: oneshot::Sender<Result<(), Fault>>,
    },
    /// Somebody found the session's row gone.
    Check,
    Renew {
        grants: Vec<Grant>,
        reply: oneshot::Sender<Result<Vec<Renewed>, Fault>>,
    },
    /// Tell when this token is not that of the one who holds it alone.
    Observe {
        name: Name,
        seen: Option<Token>,
        reply: observers::Reply,
    },
    Close {
        reply: oneshot::Sender<()>,
    },
}
/// How a wait ended.
pub(crate) enum Turned {
    Granted(Won),
    Stopped,
    Displaced,
}
struct Wait {
    request: Request,
    session: i64,
    lock: i64,
    reply: oneshot::Sender<Result<Turned, Fault>>,
    /// Whose files it watches.
    watching: Vec<i64>,
    next: i64,
    echoes: usize,
    /// What its last look relied on, while this connection had written so often.
    calm: Option<(Calm, u64)>,
}

/// Sends orders to the thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    orders: mpsc::Sender<Order>,
    shared: Arc<Shared>,
}
impl Keeper {
    pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let (orders, inbox) = mpsc::channel();
        let ours = shared.clone();
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let watches = Watches::new();
        let spawn = move || {
            let (waits, observers, conn, bell) = (HashMap::new(), Observers::default(), None, None);
            let (retry, failing_since, next_tidy, writes, retired) = (0, 0, i64::MAX, 0, 0);
            let thread = Thread {
                shared: ours,
                inbox,
                timer,
                watches,
                waits,
                observers,
                conn,
                bell,
                retry,
                failing_since,
                next_tidy,
                writes,
                retired,
            };
            thread.serve();
        };
        thread::Builder::new().name("fencelock-turn".into()).spawn(spawn)?;
        Ok(Self { orders, shared })
    }
    pub(crate) fn send(&self, order: Order) -> bool {
        let sent = self.orders.send(order).is_ok();
        self.shared.wake_keeper();
        sent
    }
}
impl Drop for Keeper {
    fn drop(&mut self) {
        // The channel closes with us; the thread has to look.
        let (reply, _) = oneshot::channel();
        let _ = self.orders.send(Order::Close { reply });
        self.shared.wake_keeper();
    }
}

struct Thread {
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Order>,
    timer: OwnedFd,
    watches: Watches,
    waits: HashMap<HoldId, Wait>,
    observers: Observers,
    conn: Option<Connection>,
    bell: Option<OwnedFd>,
    /// When to try again to open a session; 0: nobody attends yet, `i64::MAX`: it is open.
    retry: i64,
    /// Since when it cannot be opened; 0: it can.
    failing_since: i64,
    next_tidy: i64,
    /// How often it has written.
    writes: u64,
    /// The last record that the clean-up of this hour has looked at.
    retired: i64,
}
impl Thread {
    fn serve(mut self) {
        loop {
            while let Ok(order) = self.inbox.try_recv() {
                if let Order::Close { reply } = order {
                    self.close();
                    let _ = reply.send(());
                    return;
                }
                self.obey(order);
                self.beat_if_due();
            }
            let now = self.shared.time.now();
            if self.retry > 0 && now >= self.retry {
                self.open();
            }
            self.beat_if_due();
            self.look_due();
            if self.shared.time.now() >= self.next_tidy {
                self.tidy();
            }
            self.sleep();
        }
    }
    fn obey(&mut self, order: Order) {
        match order {
            Order::Attend(reports) => {
                self.shared.attend(reports);
                self.retry = 1;
            }
            Order::Wait { request, session, lock, reply } => {
                let wait = Wait { request, session, lock, reply, watching: Vec::new(), next: 0, echoes: 0, calm: None };
                self.waits.insert(wait.request.hold(), wait);
            }
            Order::Withdraw { request, reply } => {
                if let Some(wait) = self.waits.remove(&request.hold()) {
                    self.end(wait, Ok(Turned::Stopped));
                }
                let (name, hold) = (request.name().as_str(), request.hold());
                let done = self.write(|scope| withdraw(scope, name, hold));
                if done.is_ok() {
                    self.shared.drop_hold(hold);
                }
                let _ = reply.send(done);
            }
            Order::Check => self.beat(),
            Order::Renew { grants, reply } => {
                let _ = reply.send(self.renew(&grants));
            }
            Order::Observe { name, seen, reply } => self.observers.add(name, seen, reply),
            Order::Close { .. } => {}
        }
    }
    fn connection(&mut self) -> Result<&Connection> {
        if self.conn.is_none() {
            self.conn = Some(connect(&self.shared.database, self.shared.config.sync_full, false)?);
        }
        match &self.conn {
            Some(conn) => Ok(conn),
            None => unreachable!("it was just put there"),
        }
    }
    fn write<T>(&mut self, op: impl FnMut(&Scope<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        let shared = self.shared.clone();
        // What this connection writes does not change its own `data_version`.
        self.writes += 1;
        match self.connection() {
            Ok(conn) => {
                let _pass = shared.writers.enter(writers::Thread::Keeper);
                write(conn, &shared, op)
            }
            Err(_) => Err(Fault::SessionGone),
        }
    }
    fn read<T>(&mut self, op: impl FnMut(&Scope<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        let shared = self.shared.clone();
        match self.connection() {
            Ok(conn) => read(conn, &shared, op),
            Err(_) => Err(Fault::SessionGone),
        }
    }

    /// A session: files first, locked, then the row, so nobody finds a row whose file is not locked.
    fn open(&mut self) {
        let again = self.conn.is_some();
        if self.failing_since == 0 {
            self.failing_since = self.shared.time.now();
        }
        match self.try_open() {
            Ok(()) => {
                (self.retry, self.failing_since) = (i64::MAX, 0);
                self.next_tidy = self.shared.time.now();
            }
            Err(error) => {
                let now = self.shared.time.now();
                self.shared.is_in_trouble(&error);
                // What is wrong from the start is told at once; what may pass is waited for, for those who are in the queue.
                let hopeless = self.shared.is_replaced() || (!again && error.kind() != ErrorKind::Unreachable);
                if hopeless || now - self.failing_since >= CONNECT_TIMEOUT {
                    self.shared.failed(&error);
                }
                self.retry = now + AGAIN;
            }
        }
    }
    fn try_open(&mut self) -> Result<()> {
        if self.shared.is_replaced() {
            return Err(replaced(&self.shared));
        }
        let no_files = |e: rustix::io::Errno, shared: &Shared| {
            let refused = matches!(e, rustix::io::Errno::ACCESS | rustix::io::Errno::PERM | rustix::io::Errno::ROFS);
            let kind = if refused { ErrorKind::PermissionDenied } else { ErrorKind::Unreachable };
            Error::new(kind, "connect", "a session's files cannot be made")
                .with("folder", shared.folder.display())
                .because(std::io::Error::from(e))
                .hint(match e {
                    rustix::io::Errno::MFILE | rustix::io::Errno::NFILE => "raise the limit of open files (ulimit -n)",
                    rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => "make room on the disk",
                    _ => "the folder beside the database must be writable for this user",
                })
        };
        let shared = self.shared.clone();
        let rights = Rights::of(&shared.database).map_err(|e| no_files(e, &shared))?;
        liveness::make_folder(&shared.folder, rights).map_err(|e| no_files(e, &shared))?;
        let (id, live, bell) = loop {
            let id = random_id()?;
            if let Some((live, bell)) = liveness::make(&shared.folder, id, rights).map_err(|e| no_files(e, &shared))? {
                break (id, live, bell);
            }
        };
        let sent_at = BootClock.now();
        let database = shared.database.clone();
        let beat = match self.connection().map(|conn| write(conn, &shared, |scope| register(scope, id))) {
            Ok(Ok(beat)) => beat,
            failed => {
                liveness::remove(&shared.folder, id);
                return Err(match failed {
                    Err(error) => error,
                    Ok(Err(fault)) => fault.tell("connect", &database),
                    Ok(Ok(_)) => Fault::Closed.tell("connect", &database),
                });
            }
        };
        self.bell = Some(bell);
        shared.open(id, live, beat, sent_at);
        Ok(())
    }
    /// Whoever opens a session buries the dead, and so does everybody once an hour; the idle records go then, too. Nothing
    /// waits for it, and nothing needs it.
    fn tidy(&mut self) {
        self.next_tidy = self.shared.time.now() + HOUR;
        if self.shared.session().is_none() {
            return;
        }
        let after = self.retired;
        let swept = self.read(needs_sweep).unwrap_or(false) && self.write(sweep).is_ok();
        let idle = self.read(|scope| idle(scope, after)).unwrap_or(None);
        let retired = match &idle {
            Some(idle) => idle.is_empty() || self.write(|scope| retire(scope, idle)).is_ok(),
            None => false,
        };
        self.retired = idle.and_then(|idle| idle.last).filter(|_| retired).unwrap_or(0);
        if swept || retired {
            // There may be more than one turn takes.
            self.next_tidy = self.shared.time.now() + AGAIN;
        }
    }
    /// Asked between any two things that take time: a flood of them must not cost a hold.
    fn beat_if_due(&mut self) {
        if self.shared.time.now() >= self.shared.next_beat() {
            self.beat();
        }
    }
    fn beat(&mut self) {
        let Some(session) = self.shared.session() else { return };
        if self.shared.is_replaced() {
            self.lose_session();
            return;
        }
        // What was taken away was told by the bell; this look finds it when the bell was not heard, and keeps nobody from writing,
        // however many there are. What it does not find and what may have run out is judged in the beat's own transaction.
        let missing = self.read(|scope| Ok((scope.missing(session)?, scope.now)));
        let beaten = missing.and_then(|(missing, looked)| {
            self.write(|scope| {
                scope.verify(session, &missing)?;
                scope.beat(session)
            })?;
            Ok(looked)
        });
        match beaten {
            Ok(looked) => self.shared.looked(session, looked),
            Err(Fault::SessionGone) => self.lose_session(),
            // Busy, or a full disk: tried again soon, and meanwhile the holds run out by themselves.
            Err(_) => self.retry_beat(),
        }
    }
    fn retry_beat(&self) {
        self.shared.postpone_beat(self.shared.time.now() + AGAIN / 4);
    }
    /// Somebody ended it: the holds are lost, the waits begin anew.
    fn lose_session(&mut self) {
        if let Some((id, lock)) = self.shared.end() {
            liveness::remove(&self.shared.folder, id);
            drop(lock);
        }
        self.bell = None;
        for (_, wait) in std::mem::take(&mut self.waits) {
            self.end(wait, Ok(Turned::Displaced));
        }
        self.retry = 1;
    }
    fn renew(&mut self, grants: &[Grant]) -> Result<Vec<Renewed>, Fault> {
        let session = self.shared.session().ok_or(Fault::SessionGone)?;
        let sent_at = BootClock.now();
        let ours: Vec<_> = grants.iter().map(|grant| (grant.clone(), self.own(grant))).collect();
        self.write(|scope| renew(scope, session, &ours))?;
        let lost = Renewed::Lost(LossReason::TakenOver);
        let answer = |grant: &Grant| if self.own(grant).is_some() { Renewed::Extended { sent_at } } else { lost };
        Ok(grants.iter().map(answer).collect())
    }
    /// By hold id and token (SAFETY A1).
    fn own(&self, grant: &Grant) -> Option<Own> {
        self.shared.own(grant.hold).filter(|own| own.token == grant.token.get())
    }

    fn look_due(&mut self) {
        let now = self.shared.time.now();
        let due: Vec<HoldId> = self.waits.iter().filter(|(_, wait)| wait.next <= now).map(|(hold, _)| *hold).collect();
        for hold in due {
            if let Some(wait) = self.waits.remove(&hold) {
                self.look(wait);
            }
            self.beat_if_due();
        }
        for name in self.observers.due(self.shared.time.now()) {
            let shared = self.shared.clone();
            // Only the first session opens it, and whoever observes has waited for that one.
            let conn = self.conn.as_ref().ok_or(Fault::SessionGone);
            let conn = if shared.is_replaced() { Err(Fault::Replaced) } else { conn };
            self.observers.look(&name, conn, &shared, &mut self.watches);
            self.beat_if_due();
        }
    }
    /// Looks, and acts when there is something to do. Watch first, then test: so a look that changes what is watched is done
    /// again.
    fn look(&mut self, mut wait: Wait) {
        let shared = self.shared.clone();
        let (mut acted, mut watched) = (false, false);
        loop {
            if wait.request.is_stopped() || wait.reply.is_closed() {
                return self.end(wait, Ok(Turned::Stopped));
            }
            if let Some((calm, writes)) = wait.calm.take()
                && writes == self.writes
                && self.read(|scope| calm.holds(scope)).unwrap_or(false)
            {
                wait.next = (shared.time.now() + LOOK).min(calm.until);
                wait.calm = Some((calm, writes));
                self.waits.insert(wait.request.hold(), wait);
                return;
            }
            let (lock, claim, hold) = (wait.lock, wait.request.claim(), wait.request.hold());
            let seen = self.read(|scope| look(scope, lock, claim, hold));
            let now = shared.time.now();
            match seen {
                Ok(Look::Rest { watch, next, calm }) if watch == wait.watching => {
                    wait.calm = Some((calm, self.writes));
                    let echo = ECHOES.get(wait.echoes).map_or(i64::MAX, |after| now + after);
                    wait.echoes = wait.echoes.saturating_add(1);
                    wait.next = next.min(echo).max(now + 1);
                    self.waits.insert(hold, wait);
                    return;
                }
                Ok(Look::Rest { watch, .. }) if !watched => {
                    self.watch(&mut wait, watch);
                    watched = true;
                }
                Ok(Look::Act) if !acted => {
                    let (request, session) = (wait.request.clone(), wait.session);
                    match self.write(|scope| enter(scope, &request, session)) {
                        Ok(Entered::Granted(won)) => return self.end(wait, Ok(Turned::Granted(won))),
                        Ok(Entered::Queued { .. }) => acted = true,
                        Ok(Entered::Stopped) => return self.end(wait, Ok(Turned::Stopped)),
                        Ok(Entered::Busy(_) | Entered::OtherKind(_) | Entered::OtherCapacity(_)) => {
                            return self.end(wait, Ok(Turned::Displaced));
                        }
                        Err(Fault::SessionGone) if self.shared.is_ours(session) => {
                            self.waits.insert(hold, wait);
                            return self.lose_session();
                        }
                        Err(Fault::SessionGone) => return self.end(wait, Ok(Turned::Displaced)),
                        Err(fault) if !fault.is_temporary() => return self.end(wait, Err(fault)),
                        Err(_) => {
                            wait.next = now + AGAIN / 4;
                            self.waits.insert(hold, wait);
                            return;
                        }
                    }
                }
                Ok(Look::Rest { .. } | Look::Act) => {
                    // Somebody was buried or passed and it is still not this one's turn, or who is in the way goes on changing:
                    // not now.
                    wait.next = now + 1_000_000;
                    self.waits.insert(hold, wait);
                    return;
                }
                Ok(Look::Gone) => return self.end(wait, Ok(Turned::Displaced)),
                Err(fault) if !fault.is_temporary() => return self.end(wait, Err(fault)),
                Err(_) => {
                    wait.next = now + AGAIN;
                    self.waits.insert(hold, wait);
                    return;
                }
            }
        }
    }
    fn watch(&mut self, wait: &mut Wait, sessions: Vec<i64>) {
        sessions.iter().for_each(|session| self.watches.add(&self.shared.folder, *session));
        let before = std::mem::replace(&mut wait.watching, sessions);
        before.into_iter().for_each(|session| self.watches.remove(session));
        // Nothing has happened yet: no echoes.
        wait.echoes = ECHOES.len();
    }
    fn end(&mut self, wait: Wait, how: Result<Turned, Fault>) {
        wait.watching.iter().for_each(|session| self.watches.remove(*session));
        let _ = wait.reply.send(how);
    }

    fn sleep(&mut self) {
        let waits = self.waits.values().map(|wait| wait.next).min().unwrap_or(i64::MAX);
        let retry = if self.retry > 0 { self.retry } else { i64::MAX };
        let until = waits.min(self.observers.next()).min(retry).min(self.next_tidy).min(self.shared.next_beat());
        let heard = self.shared.sleep(until).then(|| self.poll(until));
        // From here on nobody needs to wake us: we are awake.
        let _ = self.shared.sleep(i64::MIN);
        let Some((rung, closed)) = heard else { return };
        // As many as fit: some may have found it full.
        let full = rung.len() >= doorbell::MANY;
        if full || rung.contains(&CHECK_HOLDS) {
            self.beat();
        }
        let now = self.shared.time.now();
        for wait in self.waits.values_mut() {
            let hit = wait.watching.iter().any(|session| closed.contains(session));
            if hit || full || rung.contains(&wait.lock) {
                (wait.next, wait.echoes, wait.calm) = (now, 0, None);
            }
        }
        self.observers.wake(now, &rung, &closed, full);
    }
    /// What rang, and whose file was closed.
    fn poll(&mut self, until: i64) -> (Vec<i64>, Vec<i64>) {
        set(&self.timer, &self.shared, until);
        let mut fds = vec![PollFd::new(&self.shared.bell, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        fds.extend(self.bell.iter().map(|bell| PollFd::new(bell, PollFlags::IN)));
        fds.extend(self.watches.fd.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        // An interrupted sleep is a short one.
        let _ = poll(&mut fds, None);
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.shared.bell, &mut count);
        let _ = rustix::io::read(&self.timer, &mut count);
        let rung = self.bell.as_ref().map(doorbell::heard).unwrap_or_default();
        (rung, self.watches.events())
    }

    /// Gives up the session: its rows, then its files, then the lock.
    fn close(&mut self) {
        self.close_session();
        self.shared.failed(&Fault::Closed.tell("lock", &self.shared.database));
    }
    fn close_session(&mut self) {
        for (_, wait) in std::mem::take(&mut self.waits) {
            self.end(wait, Ok(Turned::Stopped));
        }
        // Told before anybody else can get in; its lock is held until its rows are gone.
        let Some((id, lock)) = self.shared.end() else { return };
        let _ = self.write(|scope| scope.bury(id, None));
        drop(lock);
    }
}
fn set(timer: &OwnedFd, shared: &Shared, until: i64) {
    // Our clock is the host's; the timer's is this namespace's.
    let ahead = u64::try_from(until.saturating_sub(shared.time.now())).unwrap_or(0);
    let at = if until == i64::MAX { 0 } else { BootClock.now().as_nanos().saturating_add(ahead).max(1) };
    let seconds = i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX);
    let value = Timespec { tv_sec: seconds, tv_nsec: i64::try_from(at % 1_000_000_000).unwrap_or(0) };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    let _ = timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once);
}
fn random_id() -> Result<i64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::new(ErrorKind::Unreachable, "connect", "the system has no random numbers").because(e.to_string())
    })?;
    Ok(i64::from_ne_bytes(bytes) & i64::MAX)
}
fn replaced(shared: &Shared) -> Error {
    Error::new(ErrorKind::Closed, "connect", "the database file was removed or replaced")
        .with("database", shared.database.display())
        .hint("connect again; what was held through the old file is lost")
}
