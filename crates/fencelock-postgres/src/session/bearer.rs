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

/// What only the session knows that it was said to.
const SECRET: &str = "current_setting('fencelock.session', true)";
/// So long one statement waits in the server's queue: it keeps old rows from being cleaned up meanwhile, in the whole database.
const WAITS: &str = "10min";
/// Whatever else somebody keeps is not waited for by one that bears locks.
const BEARS: &str = "100ms";

#[derive(Debug)]
pub(crate) struct Bearer {
    client: Client,
    known: Session<Lock>,
    /// Added to a statement: it does nothing in any other session.
    ours: String,
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
        let secret = format!("{:032x}", fastrand::u128(..));
        let ours = format!(" WHERE {SECRET} = '{secret}'");
        // A waiter that is gone keeps its place no longer than that; and no limit of the role's ends a wait or a hold.
        let set = format!(
            "SELECT set_config('fencelock.session', '{secret}', false), {}, set_config('statement_timeout', '0', false), \
             set_config('client_connection_check_interval', '1s', false) WHERE coalesce({SECRET}, '') = ''; \
             SELECT setting, pg_backend_pid(), extract(epoch FROM backend_start) \
             FROM pg_settings, pg_stat_get_activity(pg_backend_pid()){ours} AND name = 'idle_session_timeout'",
            limits(ttl, BEARS)
        );
        // Nothing: another one has spoken here before us.
        let said = ask(&client, PATIENCE, &set).await?;
        let row = said.get(1).ok_or(Fault::Pooled)?;
        let field = |n| row.get(n).map(str::to_owned).ok_or(Fault::Answer);
        // What it is, not what was said to it.
        if field(0)? != ttl.as_millis().to_string() {
            let what = format!("the server ends idle sessions after {} ms, and not when it is told to", field(0)?);
            return Err(Fault::Unusable { what, hint: "connect to PostgreSQL 14 or newer, without a pooler" });
        }
        let process = Process { pid: field(1)?.parse().map_err(|_| Fault::Answer)?, born: field(2)? };
        let channel = identifier(&format!("fencelock_session_{}", process.pid));
        ask(&client, PATIENCE, &format!("LISTEN {channel}")).await?;
        Ok((Self { client, known: Session::new(session, ttl, alone), ours, process }, heard))
    }
    /// It is about to wait: until it has confirmed what it gets it may be silent for so long.
    pub(crate) async fn begin_waiting(&self, idle: Duration) -> Result<(), Fault> {
        self.will_wait();
        self.tell(&format!("SELECT {}", limits(idle, WAITS))).await
    }
    /// A sign of life: this very process of the server has heard it.
    pub(crate) async fn beat(&self) -> Result<Moment, Fault> {
        let sent_at = BootClock.now();
        self.here(self.ttl / 3, &format!("SELECT {}", limits(self.ttl, BEARS))).await?;
        self.waits_no_more();
        Ok(sent_at)
    }
    /// A function on one lock, of one that waits: for as long as it takes.
    pub(crate) async fn wait(&self, call: &str) -> Result<Reply, Fault> {
        let answer = self.client.simple_query(&self.only_here(call)).await;
        reply(&one(rows(answer.map_err(Fault::of)?))?).ok_or(Fault::Answer)
    }
    pub(crate) async fn tell(&self, call: &str) -> Result<(), Fault> {
        self.here(PATIENCE, call).await.map(drop)
    }
    /// The row that it answers.
    pub(crate) async fn here(&self, limit: Duration, call: &str) -> Result<SimpleQueryRow, Fault> {
        one(ask(&self.client, limit, &self.only_here(call)).await?)
    }
    /// *Invariant (SAFETY E3):* what is asked of a session is done in it, or not at all: a pooler that has come in between since it was opened
    /// may give it away, with its locks, or give us somebody else's.
    fn only_here(&self, call: &str) -> String {
        format!("{call}{}", self.ours)
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
        reply(&self.here(limit, call).await?).ok_or(Fault::Answer)
    }
}
/// How long the session may be silent, and for how long a statement of it waits.
fn limits(idle: Duration, waits: &str) -> String {
    let idle = idle.as_millis();
    format!("set_config('idle_session_timeout', '{idle}', false), set_config('lock_timeout', '{waits}', false)")
}
/// A pooler that gives our session away has given our locks away: nothing of it is there any more.
fn one(rows: Vec<SimpleQueryRow>) -> Result<SimpleQueryRow, Fault> {
    rows.into_iter().next().ok_or(Fault::Pooled)
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
