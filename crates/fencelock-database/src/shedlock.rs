//! Locks that are shared with ShedLock: a row of its table, by the server's clock (`docs/design/0013-shedlock.md`).
use crate::{
    AGAIN, CONNECT_TIMEOUT, Fault, Haunted, LEAVE, Reply, after_locked, before_answered, granted, open_window,
};
use async_trait::async_trait;
use fencelock_core::{
    BootClock, Busy, Clock, Engine, EngineInfo, Error, ErrorKind, Event, Fencing, Grant, HoldId, Listing, Moment, Name,
    Ordering, Outcome, Page, Released, Renewed, Reports, Request, Result, ServerTime, Status, Token, Waiting,
};
use std::{fmt, future::pending, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, Notify, mpsc},
    task::JoinSet,
    time::sleep,
};

/// Nothing tells that it is free. So often whoever waits looks, for so long; then less often.
const LOOK: [Duration; 2] = [Duration::from_millis(40), Duration::from_millis(250)];
const EAGER: Duration = Duration::from_secs(5);

/// The table of ShedLock in one database, and the way there.
#[async_trait]
pub trait Table: fmt::Debug + Send + Sync + 'static {
    /// A connection.
    type Conn: Send + Sync;
    /// What stops a call.
    type Fault: Fault;

    /// What does not differ.
    fn lease(&self) -> &dyn Engine;
    /// What is known of the server's clock.
    fn time(&self) -> &ServerTime;
    /// A connection broke: what became of the holds is not known (SAFETY G6).
    fn broke(&self) -> &Notify;
    /// What is done besides, for as long as the engine's own background runs. It never returns.
    async fn run(&self) {
        pending().await
    }
    /// A connection; where there is no server it is tried again for a while, until the request is stopped.
    async fn soon(&self, request: &Request) -> Result<Self::Conn, Self::Fault>;
    /// A connection.
    async fn here(&self) -> Result<Self::Conn, Self::Fault>;

    /// Takes the row, not later than this by the server's clock.
    async fn acquire(&self, conn: &Self::Conn, request: &Request, not_after: i64) -> Result<Reply, Self::Fault>;
    /// Gives it back, with this token if one is known; within so long.
    async fn release(
        &self,
        conn: &Self::Conn,
        limit: Duration,
        name: &Name,
        hold: HoldId,
        token: Option<Token>,
    ) -> Result<Reply, Self::Fault>;
    /// As [`Engine::renew`].
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>>;
    /// As [`Engine::force_release`].
    async fn force_release(&self, name: &Name, token: Token) -> Result<Reply, Self::Fault>;
    /// As [`Engine::inspect`].
    async fn inspect(&self, name: &Name) -> Result<Status, Self::Fault>;
    /// So many names at most that begin so, come after this one and are held; `None`: one that is no text.
    async fn names(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<Option<String>>, Self::Fault>;
}

/// Locks in the table of ShedLock.
#[derive(Debug)]
pub struct ShedLock<T> {
    info: EngineInfo,
    table: Arc<T>,
    /// The most letters of a name that the column takes.
    longest: usize,
    haunted: Haunted,
    orders: mpsc::UnboundedSender<Sweep>,
    inbox: Mutex<mpsc::UnboundedReceiver<Sweep>>,
}
/// A command that grants this hold may arrive until then, and nobody has it any more.
#[derive(Debug)]
struct Sweep {
    name: Name,
    hold: HoldId,
    until: Moment,
}

impl<T: Table> ShedLock<T> {
    /// Of a table whose column for the name takes so many letters.
    pub fn new(table: T, longest: usize) -> Self {
        let mut info = table.lease().info().clone();
        info.layout = "shedlock";
        let can = &mut info.capabilities;
        (can.read_write, can.downgrade, can.permits, can.cells, can.tickets) = (false, false, false, false, false);
        (can.fencing, can.ordering, can.waiting) = (Fencing::OursOnly, Ordering::Any, Waiting::Poll);
        let (orders, inbox) = mpsc::unbounded_channel();
        let (table, haunted, inbox) = (Arc::new(table), Haunted::default(), Mutex::new(inbox));
        Self { info, table, longest, haunted, orders, inbox }
    }
    fn tell(&self, operation: &'static str, fault: &T::Fault) -> Error {
        fault.tell(operation, &self.info.endpoint)
    }
    fn told(&self, operation: &'static str) -> impl Fn(T::Fault) -> Error + '_ {
        move |fault| self.tell(operation, &fault)
    }
    /// No lock has a name that its column does not take.
    fn check(&self, name: &Name, operation: &'static str) -> Result<()> {
        if name.as_str().chars().count() <= self.longest {
            return Ok(());
        }
        let error = Error::new(ErrorKind::InvalidName, operation, "the name is longer than its column");
        let error = error.with("name", name).with("letters", self.longest);
        Err(error.hint("use a shorter one, or ALTER TABLE shedlock"))
    }
    /// Nobody has it from here on, and what of its attempt may still arrive is swept up.
    fn drop_hold(&self, name: &Name, hold: HoldId) {
        if let Some(until) = self.haunted.haunts(hold) {
            let _ = self.orders.send(Sweep { name: name.clone(), hold, until });
        }
    }
    fn released(&self, left: Result<Reply, T::Fault>) -> Result<Released> {
        match left.map_err(self.told("release"))? {
            Reply::Done { .. } => Ok(Released::Released),
            Reply::Gone { holder } => Ok(Released::NotHeld { holder: holder.map(|holder| *holder) }),
            _ => Err(self.tell("release", &T::Fault::ANSWER)),
        }
    }
}
/// Ends this hold. A row that somebody keeps is tried again for as long as core waits.
async fn leave<T: Table>(table: &T, name: &Name, hold: HoldId, token: Option<Token>) -> Result<Reply, T::Fault> {
    let (limit, mut tries) = (BootClock.now() + LEAVE, 0);
    loop {
        let conn = table.here().await?;
        let left = BootClock.now().until(limit).max(Duration::from_millis(10));
        match table.release(&conn, left, name, hold, token).await {
            Ok(Reply::Locked) if BootClock.now() < limit => tries += 1,
            Ok(Reply::Locked) => return Err(T::Fault::LOCKED),
            end => return end,
        }
        sleep(after_locked(tries)).await;
    }
}
async fn sweep<T: Table>(table: Arc<T>, Sweep { name, hold, until }: Sweep) {
    sleep(BootClock.now().until(until) + Duration::from_millis(1)).await;
    // What is not ended by then ends with its lease.
    for _ in 0..10 {
        if leave(&*table, &name, hold, None).await.is_ok() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
}
/// Until the next look of one who has waited for so long: when the lease in the way ends, and now and then.
fn nap(waited: Duration, busy: &Busy) -> Duration {
    let look = if waited < EAGER { LOOK[0] } else { LOOK[1] };
    let look = look.mul_f32(0.5 + fastrand::f32());
    busy.holder.as_ref().map_or(look, |holder| look.min(holder.left + Duration::from_millis(1)))
}

#[async_trait]
impl<T: Table> Engine for ShedLock<T> {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        self.check(request.name(), "lock")?;
        let (began, limit) = (BootClock.now(), BootClock.now() + CONNECT_TIMEOUT);
        let (mut misses, mut late, mut locked, mut locked_since, mut queued) = (0, 0, 0, None, false);
        loop {
            let conn = match self.table.soon(request).await {
                Ok(conn) => conn,
                Err(fault) => match self.tell("lock", &fault) {
                    // Whoever waits does so over an outage, too (SAFETY E8).
                    error if queued && error.is_temporary() && !request.is_stopped() => {
                        request.cut_off();
                        continue;
                    }
                    error => return Err(error),
                },
            };
            let sent_at = BootClock.now();
            let Some((not_after, ends)) = open_window(self.table.time(), request, sent_at) else {
                return Ok(Outcome::Busy(Busy::default()));
            };
            let waited = began.until(sent_at);
            let answer = self.table.acquire(&conn, request, not_after).await;
            if !matches!(answer, Ok(Reply::Locked)) {
                locked = 0;
            }
            if answer.is_ok() {
                request.in_touch();
            }
            let pause = match answer {
                Ok(Reply::Done { number, now }) => {
                    let token = Token::new(number).ok_or_else(|| self.tell("lock", &T::Fault::ANSWER))?;
                    return Ok(Outcome::Granted(granted(request, token, sent_at, now)));
                }
                Ok(Reply::Busy(busy)) if request.wait() => {
                    let next = nap(waited, &busy);
                    (queued, misses, late) = (true, 0, 0);
                    request.queued(busy);
                    next
                }
                Ok(Reply::Busy(busy)) => {
                    // Core takes this for nothing left behind.
                    self.drop_hold(request.name(), request.hold());
                    return Ok(Outcome::Busy(busy));
                }
                Ok(Reply::Locked) => {
                    let tried = locked_since.get_or_insert(sent_at).until(BootClock.now());
                    locked += 1;
                    if request.wait() {
                        if locked == 4 {
                            queued = true;
                            request.queued(Busy::default());
                        }
                        after_locked(locked)
                    } else if let Some(pause) = before_answered(locked, tried) {
                        pause
                    } else if misses > 0 {
                        // One of these may have been granted: core takes it back.
                        return Err(self.tell("lock", &T::Fault::UNANSWERED));
                    } else {
                        return Ok(Outcome::Busy(Busy::default()));
                    }
                }
                Ok(Reply::Past) if late < ServerTime::AGAIN => {
                    late += 1;
                    Duration::ZERO
                }
                Ok(Reply::Past) => {
                    let error = Error::new(ErrorKind::Unreachable, "lock", "commands take too long to arrive");
                    return Err(error.with(self.info.scheme, &self.info.endpoint));
                }
                Ok(_) => return Err(self.tell("lock", &T::Fault::ANSWER)),
                Err(fault) => {
                    let error = self.tell("lock", &fault);
                    misses += 1;
                    self.haunted.haunt(request.hold(), ends);
                    let passes = queued || misses <= AGAIN || fault.is_soon_over() && BootClock.now() < limit;
                    if !error.is_temporary() || !passes || request.is_stopped() {
                        return Err(error);
                    }
                    if queued {
                        request.cut_off();
                    }
                    Duration::from_millis(10 << misses.min(5))
                }
            };
            tokio::select! {
                biased;
                () = request.stopped() => {}
                () = sleep(pause) => {}
            }
        }
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        let left = leave(&*self.table, request.name(), request.hold(), None).await;
        left.map(drop).map_err(self.told("withdraw"))
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        self.table.renew(grants).await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        let left = leave(&*self.table, &grant.name, grant.hold, Some(grant.token)).await;
        if left.is_ok() {
            self.drop_hold(&grant.name, grant.hold);
        }
        self.released(left)
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        let mut inbox = self.inbox.lock().await;
        let (mut sweeps, mut beside) = (JoinSet::new(), self.table.run());
        loop {
            tokio::select! {
                order = inbox.recv() => match order {
                    Some(order) => drop(sweeps.spawn(sweep(self.table.clone(), order))),
                    None => return Ok(()),
                },
                Some(_) = sweeps.join_next(), if !sweeps.is_empty() => {}
                () = &mut beside => return Ok(()),
                // A failover may have cost holds: they are looked at at once (SAFETY G6).
                () = self.table.broke().notified() => reports.send(Event::Recheck),
            }
        }
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        self.check(name, "inspect")?;
        self.table.inspect(name).await.map_err(self.told("inspect"))
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        let limit = page.limit.max(1);
        let names = self.table.names(prefix, page.after.as_deref(), limit.saturating_add(1)).await;
        let names = names.map_err(self.told("list"))?;
        let mut listing = Listing::default();
        if names.len() > limit {
            listing.next = names.get(limit - 1).cloned().flatten();
        }
        // What is no name of ours cannot be asked for.
        for name in names.into_iter().take(limit).filter_map(|name| Name::new(name?).ok()) {
            let status = self.inspect(&name).await?;
            // It may be free since; and for the table other letters may be the same.
            if status.is_held() && status.name.as_str().starts_with(prefix) {
                listing.items.push(status);
            }
        }
        Ok(listing)
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        self.check(name, "release")?;
        self.released(self.table.force_release(name, token).await)
    }
    async fn close(&self) -> Result<()> {
        self.table.lease().close().await
    }
}
