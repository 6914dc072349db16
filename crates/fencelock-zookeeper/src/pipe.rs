//! Commands on their way out, in order, and those whose answers are awaited.
use crate::{
    error::Fault,
    link::{PATIENCE, Session},
    wire::op::{Answer, Happened, Op},
};
use fencelock_core::{BootClock, Clock, Moment};
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    net::tcp::OwnedWriteHalf,
    sync::{Notify, oneshot},
    time::sleep,
};

/// What somebody wants to be sent.
pub(crate) struct Command {
    pub(crate) op: Op,
    /// The session that it is meant for; `None`: any.
    pub(crate) session: Option<Session>,
    pub(crate) reply: oneshot::Sender<Result<Answer, Fault>>,
    pub(crate) watch: Option<oneshot::Sender<Happened>>,
}
/// What was sent and is not answered yet.
pub(crate) struct Sent {
    xid: i32,
    pub(crate) op: Op,
    /// `None`: it is the connection's own.
    pub(crate) reply: Option<oneshot::Sender<Result<Answer, Fault>>>,
    pub(crate) watch: Option<oneshot::Sender<Happened>>,
    pub(crate) at: Moment,
}
/// Whoever asks writes by himself, where nobody else does: another thread is not woken for it. The connection's own side writes what
/// does not go out at once, and all that is encrypted.
///
/// *Invariant:* what is sent is written, and noted as awaited, in one order: both under the mutex.
pub(crate) struct Pipe {
    flow: Mutex<Flow>,
    more: Notify,
    /// A child after fork has the same socket.
    process: u32,
}
#[derive(Default)]
struct Flow {
    /// Of the connection that there is; `None`: there is none.
    session: Option<i64>,
    xid: i32,
    /// What was asked while there was none.
    waiting: VecDeque<(Moment, Command)>,
    sent: VecDeque<Sent>,
    out: Vec<u8>,
    socket: Option<Arc<OwnedWriteHalf>>,
    /// The connection's own side is at it.
    busy: bool,
}

impl Pipe {
    pub(crate) fn new() -> Self {
        Self { flow: Mutex::default(), more: Notify::new(), process: std::process::id() }
    }
    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Sends these, one after the other and nothing in between.
    pub(crate) fn put(&self, commands: impl IntoIterator<Item = Command>) {
        if std::process::id() != self.process {
            for command in commands {
                let _ = command.reply.send(Err(Fault::Closed));
            }
            return;
        }
        let mut flow = self.flow();
        for command in commands {
            flow.put(command);
        }
        self.write(flow);
    }
    /// Sends the connection's own.
    pub(crate) fn say(&self, op: Op) {
        let mut flow = self.flow();
        flow.send(op, None, None);
        self.write(flow);
    }
    fn write(&self, mut flow: MutexGuard<'_, Flow>) {
        if !flow.write() {
            drop(flow);
            self.nudge();
        }
    }
    /// The connection's own side looks.
    pub(crate) fn nudge(&self) {
        self.more.notify_one();
    }
    /// It has to look.
    pub(crate) async fn nudged(&self) {
        self.more.notified().await;
    }
    /// There is a connection: `first` goes out, then what has waited.
    pub(crate) fn open(&self, session: i64, first: Vec<u8>, socket: Option<Arc<OwnedWriteHalf>>) {
        let mut flow = self.flow();
        (flow.session, flow.out, flow.socket, flow.busy) = (Some(session), first, socket, true);
        for (_, command) in std::mem::take(&mut flow.waiting) {
            flow.put(command);
        }
    }
    /// What the connection's own side is to write next. `None`: nothing, and whoever asks writes by himself.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        let mut flow = self.flow();
        flow.busy = !flow.out.is_empty();
        flow.busy.then(|| std::mem::take(&mut flow.out))
    }
    /// There is no connection. What was sent by it stays, until it is [`given_up`](Self::given_up).
    pub(crate) fn shut(&self) {
        let mut flow = self.flow();
        (flow.session, flow.socket, flow.busy) = (None, None, false);
        flow.out.clear();
    }
    pub(crate) fn given_up(&self) -> VecDeque<Sent> {
        std::mem::take(&mut self.flow().sent)
    }
    /// For as long as there is no connection: what nobody waits for any more is thrown away, and nobody waits for longer than his patience.
    pub(crate) async fn prune(&self) {
        loop {
            self.flow().prune();
            sleep(PATIENCE / 8).await;
        }
    }
    /// The number of what is to be answered next.
    pub(crate) fn next(&self) -> Option<i32> {
        self.flow().sent.front().map(|sent| sent.xid)
    }
    /// What this answers. `None`: it is out of order.
    pub(crate) fn answered(&self, xid: i32) -> Option<Sent> {
        let mut flow = self.flow();
        flow.sent.front().is_some_and(|sent| sent.xid == xid).then(|| flow.sent.pop_front()).flatten()
    }
    /// It is not answered after all.
    pub(crate) fn put_back(&self, sent: Sent) {
        self.flow().sent.push_front(sent);
    }
    /// Nobody wants to hear of this path any more; unless somebody has asked for word of it and was not answered yet.
    ///
    /// *Invariant:* whoever asks after this is behind it.
    pub(crate) fn unwatch(&self, path: String) {
        let mut flow = self.flow();
        let of = |sent: &Sent| sent.watch.is_some() && sent.op.watch(true).is_some_and(|(at, _)| at == path);
        if !flow.sent.iter().any(of) {
            flow.send(Op::RemoveWatches { path }, None, None);
            self.write(flow);
        }
    }
}
impl Flow {
    fn put(&mut self, command: Command) {
        let Some(open) = self.session else { return self.waiting.push_back((BootClock.now(), command)) };
        let Command { op, session, reply, watch } = command;
        // Whoever has given up did so before it was sent: then it is not.
        if reply.is_closed() && !must_go(&op) {
            return;
        }
        if session.is_some_and(|session| session.0 != open) {
            let _ = reply.send(Err(Fault::SessionOver));
            return;
        }
        self.send(op, Some(reply), watch);
    }
    fn send(
        &mut self,
        op: Op,
        reply: Option<oneshot::Sender<Result<Answer, Fault>>>,
        watch: Option<oneshot::Sender<Happened>>,
    ) {
        self.xid = if self.xid == i32::MAX { 1 } else { self.xid + 1 };
        let at = BootClock.now();
        self.out.extend(op.write(self.xid));
        self.sent.push_back(Sent { xid: self.xid, op, reply, watch, at });
    }
    fn prune(&mut self) {
        let now = BootClock.now();
        self.waiting.retain(|(_, command)| !command.reply.is_closed() || must_go(&command.op));
        while self.waiting.front().is_some_and(|(since, it)| since.until(now) > PATIENCE && !must_go(&it.op)) {
            let over = self.waiting.pop_front();
            over.into_iter().for_each(|(_, command)| drop(command.reply.send(Err(Fault::Unanswered))));
        }
    }
    /// False: the connection's own side has to.
    fn write(&mut self) -> bool {
        if self.busy || self.out.is_empty() {
            return true;
        }
        let Some(socket) = &self.socket else { return false };
        match socket.try_write(&self.out) {
            Ok(len) => drop(self.out.drain(..len)),
            // What is wrong it will see, too.
            Err(_) => return false,
        }
        self.out.is_empty()
    }
}
impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pipe")
    }
}
/// Whoever closes does not wait for it.
const fn must_go(op: &Op) -> bool {
    matches!(op, Op::Close)
}
