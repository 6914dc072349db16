//! A connection that bears locks: what is held there lives as long as its session.
//!
//! *Invariant (SAFETY E3):* nothing that waits is asked of a session that holds, the server ends one that is silent for its ttl, and one
//! that bears a lock is never anybody else's: it is closed, or it has given the lock back.
use crate::{
    error::Fault,
    link::{Link, rows},
    wire::{
        call::identifier,
        reply::{Reply, reply},
    },
};
use async_trait::async_trait;
use fencelock_core::{BootClock, Clock, Moment, SessionId, within};
use fencelock_database::{
    PATIENCE,
    session::{Bears, Excludes, Session},
};
use fencelock_sql::keys::Key;
use std::{ops::Deref, time::Duration};
use tokio::sync::mpsc::UnboundedReceiver;
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
    known: Session<Lock>,
    /// The server's process, and when it began: another one may have its number later.
    pub(crate) process: Process,
}
impl Deref for Bearer {
    type Target = Session<Lock>;
    fn deref(&self) -> &Session<Lock> {
        &self.known
    }
}
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: i64,
    born: String,
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
}
impl Excludes for Lock {
    fn excludes(&self, other: &Self) -> bool {
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
        Ok((Self { client, known: Session::new(session, ttl, alone), process }, heard))
    }
    /// It is about to wait: until it has confirmed what it gets it may be silent for so long.
    pub(crate) async fn begin_waiting(&self, idle: Duration) -> Result<(), Fault> {
        self.will_wait();
        self.tell(&format!("SET idle_session_timeout = {}; {WAITS}", idle.as_millis())).await
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
        self.waits_no_more();
        Ok(sent_at)
    }
    /// A function on one lock, of one that waits: for as long as it takes.
    pub(crate) async fn wait(&self, call: &str) -> Result<Reply, Fault> {
        let said = rows(self.client.simple_query(call).await.map_err(Fault::of)?);
        reply(said.first().ok_or(Fault::Answer)?).ok_or(Fault::Answer)
    }
    pub(crate) async fn tell(&self, call: &str) -> Result<(), Fault> {
        ask(&self.client, PATIENCE, call).await.map(drop)
    }
}
#[async_trait]
impl Bears for Bearer {
    type Key = Lock;
    type Fault = Fault;

    fn is_connected(&self) -> bool {
        !self.client.is_closed()
    }
    async fn run(&self, limit: Duration, call: &str) -> Result<Reply, Fault> {
        let said = ask(&self.client, limit, call).await?;
        reply(said.first().ok_or(Fault::Answer)?).ok_or(Fault::Answer)
    }
}
async fn ask(client: &Client, limit: Duration, call: &str) -> Result<Vec<SimpleQueryRow>, Fault> {
    let answer = within(limit, client.simple_query(call)).await.ok_or(Fault::Unanswered)?;
    answer.map(rows).map_err(Fault::of)
}
impl Process {
    /// Ends it, if it is still this one; true when it is gone.
    pub(crate) async fn bury(&self, link: &Link) -> Result<bool, Fault> {
        self.is_gone(link, "pg_terminate_backend(pid)").await
    }
    /// Another connection of ours says that it is not at the server any more.
    pub(crate) async fn has_vanished(&self, link: &Link) -> bool {
        matches!(self.is_gone(link, "pid").await, Ok(true))
    }
    async fn is_gone(&self, link: &Link, what: &str) -> Result<bool, Fault> {
        let conn = link.here().await?;
        let ask = format!(
            "SELECT {what} FROM pg_stat_get_activity({}) WHERE extract(epoch FROM backend_start) = {}",
            self.pid, self.born
        );
        Ok(link.rows(&conn, PATIENCE, &ask).await?.is_empty())
    }
}
