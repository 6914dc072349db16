//! A connection that bears locks: what is held there lives as long as its session.
//!
//! *Invariant (SAFETY E3):* nothing that waits is asked of a session that holds, the server ends one that is silent for its ttl, and one
//! that bears a lock is never anybody else's: it is closed, or it has given the lock back.
use crate::{
    error::Fault,
    link::{Link, PATIENCE, rows, within},
    wire::{
        call::identifier,
        reply::{Reply, reply},
    },
};
use fencelock_core::{BootClock, Clock, Event, HoldId, Moment, Name, Reports, SessionId};
use fencelock_sql::keys::Key;
use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::{Notify, mpsc::UnboundedReceiver};
use tokio_postgres::{Client, SimpleQueryRow};

/// A waiter that is gone keeps its place no longer than that; and no limit of the role's ends a wait or a hold.
const OWN: &str = "SET client_connection_check_interval = '1s'; SET statement_timeout = 0;";
/// So long one statement waits in the server's queue: it keeps old rows from being cleaned up meanwhile, in the whole database.
const WAITS: &str = "SET lock_timeout = '10min';";
/// Whatever else somebody keeps is not waited for by one that bears locks.
const BEARS: &str = "SET lock_timeout = '100ms';";

#[derive(Debug)]
pub(crate) struct Bearer {
    client: Client,
    pub(crate) session: SessionId,
    pub(crate) ttl: Duration,
    /// One that waited for its lock bears no other, and is closed afterwards.
    pub(crate) alone: bool,
    /// The server's process, and when it began: another one may have its number later.
    pub(crate) process: Process,
    holds: Mutex<HashMap<HoldId, Borne>>,
    /// Up to then its life was reported, in ns.
    reported: AtomicU64,
    /// It has ended, or is about to.
    over: AtomicBool,
    /// A statement of it waits: it says nothing else meanwhile.
    waits: AtomicBool,
    /// It is to be closed, or looked at.
    pub(crate) closing: Notify,
}
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: i64,
    born: String,
}
/// What is held in a session, or may be: its claim was sent.
#[derive(Clone, Debug)]
pub(crate) struct Borne {
    pub(crate) name: Name,
    pub(crate) key: Lock,
    /// 0: not granted, as far as is known.
    pub(crate) token: i64,
    /// It is not held any longer than that, whatever its holder does (SAFETY G5).
    pub(crate) ends: Option<Moment>,
}
/// An advisory lock, and how it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) key: Key,
    pub(crate) shared: bool,
}
impl Lock {
    /// As the functions take it: one number, and whether it is two.
    pub(crate) fn words(self) -> (i64, bool) {
        match self.key {
            Key::Int8(key) => (key, false),
            Key::Int4s(high, low) => ((i64::from(high) << 32) | i64::from(low.cast_unsigned()), true),
        }
    }
    fn excludes(self, other: Self) -> bool {
        self.key == other.key && !(self.shared && other.shared)
    }
}

impl Bearer {
    /// Another one; what it hears by itself comes out there, whose end is the connection's.
    pub(crate) async fn open(
        link: &Link,
        session: SessionId,
        ttl: Duration,
        alone: bool,
    ) -> Result<(Self, UnboundedReceiver<String>), Fault> {
        let (client, heard) = link.dedicated().await?;
        let set = format!(
            "SET idle_session_timeout = {}; {OWN} {BEARS} SELECT pg_backend_pid(), extract(epoch FROM backend_start), \
             (SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout') FROM pg_stat_get_activity(pg_backend_pid())",
            ttl.as_millis()
        );
        let said = ask(&client, PATIENCE, &set).await?;
        let row = said.first().ok_or(Fault::Answer)?;
        let field = |n| row.get(n).map(str::to_owned).ok_or(Fault::Answer);
        // What it is, not what was said to it.
        if field(2)? != ttl.as_millis().to_string() {
            let what = format!("the server ends idle sessions after {} ms, and not when it is told to", field(2)?);
            return Err(Fault::Unusable { what, hint: "connect to PostgreSQL 14 or newer, without a pooler" });
        }
        let process = Process { pid: field(0)?.parse().map_err(|_| Fault::Answer)?, born: field(1)? };
        let channel = identifier(&format!("fencelock_session_{}", process.pid));
        ask(&client, PATIENCE, &format!("LISTEN {channel}")).await?;
        let (holds, reported, over, waits, closing) = Default::default();
        Ok((Self { client, session, ttl, alone, process, holds, reported, over, waits, closing }, heard))
    }
    fn holds(&self) -> MutexGuard<'_, HashMap<HoldId, Borne>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn is_open(&self) -> bool {
        !self.over.load(Relaxed) && !self.client.is_closed()
    }
    /// Nothing more is taken there.
    pub(crate) fn end(&self) {
        self.over.store(true, Relaxed);
    }
    /// It ends, and its holders are told so before the server is (by whoever tends it).
    pub(crate) fn close(&self) {
        self.end();
        self.closing.notify_one();
    }
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits.load(Relaxed)
    }
    pub(crate) fn will_wait(&self) {
        self.waits.store(true, Relaxed);
    }
    /// It is about to wait: until it has confirmed what it gets it may be silent for so long.
    pub(crate) async fn begin_waiting(&self, idle: Duration) -> Result<(), Fault> {
        self.will_wait();
        self.tell(&format!("SET idle_session_timeout = {}; {WAITS}", idle.as_millis())).await
    }
    /// From here on it is looked after. False: another hold of this session is in the way, which the server, for which they are one, would
    /// not say.
    pub(crate) fn intend(&self, hold: HoldId, borne: Borne) -> bool {
        let mut holds = self.holds();
        if holds.iter().any(|(other, it)| *other != hold && it.key.excludes(borne.key)) {
            return false;
        }
        holds.insert(hold, borne);
        true
    }
    pub(crate) fn granted(&self, hold: HoldId, token: i64, ends: Option<Moment>) {
        if let Some(borne) = self.holds().get_mut(&hold) {
            (borne.token, borne.ends) = (token, ends);
        }
    }
    /// A writer's has become a reader's.
    pub(crate) fn softened(&self, hold: HoldId) {
        if let Some(borne) = self.holds().get_mut(&hold) {
            borne.key.shared = true;
        }
    }
    pub(crate) fn found(&self, hold: HoldId) -> Option<Borne> {
        self.holds().get(&hold).cloned()
    }
    pub(crate) fn forget(&self, hold: HoldId) {
        self.holds().remove(&hold);
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.holds().is_empty()
    }
    /// Those whose time is over, and when the next one's is.
    pub(crate) fn overdue(&self, now: Moment) -> (Vec<HoldId>, Option<Moment>) {
        let holds = self.holds();
        let over = holds.iter().filter(|(_, borne)| borne.ends.is_some_and(|ends| ends <= now)).map(|(hold, _)| *hold);
        (over.collect(), holds.values().filter_map(|borne| borne.ends).filter(|ends| *ends > now).min())
    }
    /// The server has worked something off that was sent then: it ends the session a ttl later, or after what comes next.
    ///
    /// *Invariant (SAFETY G1):* reported before a grant of it is returned; one that is a little older has been.
    pub(crate) fn alive(&self, reports: Option<&Reports>, sent_at: Moment) {
        let step = u64::try_from((self.ttl / 16).as_nanos()).unwrap_or(u64::MAX);
        let last = self.reported.load(Relaxed);
        if last == 0 || sent_at.as_nanos() > last.saturating_add(step) {
            self.reported.fetch_max(sent_at.as_nanos(), Relaxed);
            if let Some(reports) = reports {
                reports.send(Event::SessionAlive { session: self.session, sent_at });
            }
        }
    }
    /// A sign of life: this very process of the server has heard it.
    pub(crate) async fn beat(&self) -> Result<Moment, Fault> {
        let sent_at = BootClock.now();
        let set = format!("SET idle_session_timeout = {}; {BEARS} SELECT pg_backend_pid()", self.ttl.as_millis());
        let said = ask(&self.client, self.ttl / 3, &set).await?;
        let pid = said.first().and_then(|row| row.get(0)).and_then(|pid| pid.parse().ok());
        // A pooler that gives our session away has given our locks away.
        if pid != Some(self.process.pid) {
            return Err(Fault::Pooled);
        }
        self.waits.store(false, Relaxed);
        Ok(sent_at)
    }
    /// A function on one lock, of one that holds: it never waits.
    pub(crate) async fn run(&self, limit: Duration, call: &str) -> Result<Reply, Fault> {
        let said = ask(&self.client, limit, call).await?;
        reply(said.first().ok_or(Fault::Answer)?).ok_or(Fault::Answer)
    }
    /// The same of one that waits: for as long as it takes.
    pub(crate) async fn wait(&self, call: &str) -> Result<Reply, Fault> {
        let said = rows(self.client.simple_query(call).await.map_err(Fault::of)?);
        reply(said.first().ok_or(Fault::Answer)?).ok_or(Fault::Answer)
    }
    pub(crate) async fn tell(&self, call: &str) -> Result<(), Fault> {
        ask(&self.client, PATIENCE, call).await.map(drop)
    }
}
async fn ask(client: &Client, limit: Duration, call: &str) -> Result<Vec<SimpleQueryRow>, Fault> {
    let answer = within(limit, client.simple_query(call)).await.ok_or(Fault::Unanswered)?;
    answer.map(rows).map_err(Fault::of)
}
impl Process {
    /// Ends it, if it is still this one; true when it is gone.
    pub(crate) async fn bury(&self, link: &Link) -> Result<bool, Fault> {
        let from =
            format!("FROM pg_stat_get_activity({}) WHERE extract(epoch FROM backend_start) = {}", self.pid, self.born);
        let conn = link.here().await?;
        let there = link.rows(&conn, PATIENCE, &format!("SELECT pg_terminate_backend(pid) {from}")).await?;
        Ok(there.is_empty())
    }
}
