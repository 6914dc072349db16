//! The bare driver with our calls: what a program could have at best, for the benchmark's other side. Not part of the library.
#![allow(missing_docs, clippy::missing_errors_doc, reason = "for our own benchmarks")]
use crate::{
    config::{Config, Strategy},
    error::Fault,
    link::{Conn, Ears, Link},
    shared::Shared,
    wire::{call::Call, reply::Reply},
};
use fencelock_core::{EngineId, Error, ErrorKind, HoldId, Result};
use fencelock_database::{CONNECT_TIMEOUT, PATIENCE, micros};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::timeout};

const TTL: Duration = Duration::from_secs(30);
/// Each statement in a session that bears locks is done in it, or not at all (`Bearer::here`).
const SECRET: &str = "00000000000000000000000000000000";
/// A word may be lost.
const LOOK: Duration = Duration::from_millis(250);

/// One connection on the runtime that made it, and one that listens once somebody waits; no library.
#[derive(Clone)]
pub struct Raw {
    shared: Arc<Shared>,
    conn: Conn,
    /// Of ShedLock's table, which nobody waits for.
    rows: bool,
    ears: Arc<Mutex<Option<Ears>>>,
}
/// What it holds.
#[derive(Debug)]
pub struct RawHold {
    name: String,
    hold: HoldId,
    token: i64,
}
impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Raw")
    }
}

impl Raw {
    pub async fn connect(url: &str) -> Result<Self> {
        let config = Config::from_url(url)?;
        let link = Link::new(&config)?;
        link.set_up(&config).await.map_err(|fault| link.tell("connect", &fault))?;
        let conn = link.here().await.map_err(|fault| link.tell("connect", &fault))?;
        if config.strategy == Strategy::Session {
            let set = format!("SELECT set_config('fencelock.session', '{SECRET}', false)");
            link.rows(&conn, PATIENCE, &set).await.map_err(|fault| link.tell("connect", &fault))?;
        }
        let told = |_| Error::new(ErrorKind::Closed, "connect", "no number could be made");
        let client = EngineId::random()?.to_string().parse::<HoldId>().map_err(told)?;
        let shared = Arc::new(Shared::new(link, config.namespace.clone(), client));
        Ok(Self { shared, conn, rows: config.strategy == Strategy::ShedLock, ears: Arc::default() })
    }
    async fn claim(&self, name: &str, hold: HoldId, wait: bool) -> std::result::Result<Reply, Fault> {
        let shared = &self.shared;
        if self.rows {
            let call = shared.link.call("shed_acquire").text(name).id(hold).number(micros(TTL)).number(i64::MAX / 2);
            return shared.link.run(&self.conn, PATIENCE, &call.number(0).text(&shared.identity("")).end()).await;
        }
        let call = shared.link.call("acquire").text(&shared.space).text(name).id(hold).text("mutex").text("m");
        let call = call.number(1).number(0).number(micros(TTL)).number(i64::MAX / 2).number(0).flag(wait);
        let call = call.id(shared.client).or_null(shared.ears()).text(&shared.identity("")).flag(false);
        shared.link.run(&self.conn, PATIENCE, &call.end()).await
    }
    async fn give_back(&self, held: &RawHold) -> std::result::Result<(), Fault> {
        let of = |call: Call| call.text(&held.name).id(held.hold).number(held.token);
        let call = match self.rows {
            true => of(self.shared.link.call("shed_release")).end(),
            false => of(self.shared.link.call("release").text(&self.shared.space)).flag(false).end(),
        };
        self.shared.link.run(&self.conn, PATIENCE, &call).await.map(drop)
    }
    /// Takes a lock that is free and gives it back: the same bytes as the engine sends.
    pub async fn pair(&self, name: &str, hold: u128) -> Result<()> {
        let fails = |fault: Fault| fault.tell("lock", "the bare driver");
        let hold = HoldId::from_bytes(hold.to_be_bytes());
        match self.claim(name, hold, true).await.map_err(fails)? {
            Reply::Done { number, .. } => self.release(RawHold { name: name.to_owned(), hold, token: number }).await,
            _ => Err(fails(Fault::Answer)),
        }
    }
    /// The same in a session that bears it (`strategy=session`), by this key of the server's.
    pub async fn pair_in_session(&self, name: &str, key: i64, hold: u128) -> Result<()> {
        self.bear_one(name, key, HoldId::from_bytes(hold.to_be_bytes()))
            .await
            .map_err(|fault| fault.tell("lock", "the bare driver"))
    }
    async fn bear_one(&self, name: &str, key: i64, hold: HoldId) -> std::result::Result<(), Fault> {
        let shared = &self.shared;
        let begin =
            |function| shared.link.call(function).text(&shared.space).text(name).number(key).flag(false).id(hold);
        let here = |call: Call| format!("{} WHERE current_setting('fencelock.session', true) = '{SECRET}'", call.end());
        let call = begin("bear").text("mutex").text("m").number(micros(TTL)).number(0).number(0);
        match shared.link.run(&self.conn, PATIENCE, &here(call.text(&shared.identity("")))).await? {
            Reply::Done { .. } => shared.link.run(&self.conn, PATIENCE, &here(begin("let_go"))).await.map(drop),
            _ => Err(Fault::Answer),
        }
    }
    /// Waits for the lock: release, word of it, one call.
    pub async fn lock(&self, name: &str, hold: u128) -> Result<RawHold> {
        let fails = |fault: Fault| fault.tell("lock", "the bare driver");
        let hold = HoldId::from_bytes(hold.to_be_bytes());
        loop {
            // Nobody listens for the one who gets it at once.
            match self.claim(name, hold, self.shared.ears().is_some()).await.map_err(fails)? {
                Reply::Done { number, .. } => return Ok(RawHold { name: name.to_owned(), hold, token: number }),
                Reply::Queued { .. } => break,
                Reply::Busy(_) => self.listen().await.map_err(fails)?,
                Reply::Locked => {}
                _ => return Err(fails(Fault::Answer)),
            }
        }
        let mut ears = self.ears.lock().await;
        let Some(ears) = ears.as_mut() else { return Err(fails(Fault::Closed)) };
        let mut told = false;
        loop {
            if !told {
                let _ = timeout(LOOK, ears.heard.recv()).await;
            }
            told = false;
            let call = self.shared.link.call("refresh").text(&self.shared.space).text(name);
            let call = call.id(hold).number(micros(TTL)).number(i64::MAX / 2).number(ears.pid).flag(true).end();
            match self.shared.link.run(&self.conn, PATIENCE, &call).await.map_err(fails)? {
                Reply::Done { number, .. } => return Ok(RawHold { name: name.to_owned(), hold, token: number }),
                Reply::Queued { .. } => drop(self.shared.beat(PATIENCE).await.map_err(fails)?),
                // Who told it has not gone yet.
                Reply::Locked => told = true,
                _ => return Err(fails(Fault::Answer)),
            }
        }
    }
    async fn listen(&self) -> std::result::Result<(), Fault> {
        let channel = self.shared.channel();
        let listening = self.shared.link.listen(&channel);
        let ears = timeout(CONNECT_TIMEOUT, listening).await.unwrap_or(Err(Fault::Unreached))?.ok_or(Fault::Closed)?;
        self.shared.set_ears(Some(ears.pid));
        self.shared.beat(PATIENCE).await?;
        *self.ears.lock().await = Some(ears);
        Ok(())
    }
    pub async fn release(&self, held: RawHold) -> Result<()> {
        self.give_back(&held).await.map_err(|fault| fault.tell("release", "the bare driver"))
    }
}
