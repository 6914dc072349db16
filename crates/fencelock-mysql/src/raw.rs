//! The bare driver with our calls, and with the named locks that the server has of its own: what a program could have at best, for the
//! benchmark's other side. Not part of the library.
#![allow(missing_docs, clippy::missing_errors_doc, reason = "for our own benchmarks")]
use crate::{
    config::{Config, Strategy},
    error::Fault,
    link::{Link, ask},
    wire::{
        call::{Call, literal},
        reply::{Reply, column, reply},
    },
};
use fencelock_core::{EngineId, Error, ErrorKind, HoldId, Result};
use fencelock_database::micros;
use mysql_async::{Conn as Session, Row};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::runtime::Handle;

const TTL: Duration = Duration::from_secs(30);
/// As long as what a holder says of itself.
const WHO: &str = "bench 1 ";

/// As many connections as it has calls at once, of the runtime that calls; no library.
#[derive(Clone, Debug)]
pub struct Raw {
    link: Arc<Link>,
    space: String,
    /// Of ShedLock's table.
    rows: bool,
    client: HoldId,
    idle: Arc<Mutex<Vec<Session>>>,
    /// What bears named locks, once one is asked for.
    bearer: Arc<tokio::sync::Mutex<Option<Session>>>,
}
/// A named lock, and the session that has it.
#[derive(Debug)]
pub struct RawHold {
    named: String,
    session: Session,
}

impl Raw {
    pub async fn connect(url: &str) -> Result<Self> {
        let config = Config::from_url(url)?;
        let link = Link::new(&config)?;
        link.set_up(&config).await.map_err(|fault| link.tell("connect", &fault))?;
        let told = |_| Error::new(ErrorKind::Closed, "connect", "no number could be made");
        let client = EngineId::random()?.to_string().parse::<HoldId>().map_err(told)?;
        Ok(Self {
            link: Arc::new(link),
            space: config.namespace.clone(),
            rows: config.strategy == Strategy::ShedLock,
            client,
            idle: Arc::default(),
            bearer: Arc::default(),
        })
    }
    async fn session(&self) -> std::result::Result<Session, Fault> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(session) => Ok(session),
            None => self.link.dedicated().await,
        }
    }
    fn put(&self, session: Session) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
    }
    /// Takes a lock that is free and gives it back: the same bytes as the engine sends.
    pub async fn pair(&self, name: &str, hold: u128) -> Result<()> {
        self.free_one(name, HoldId::from_bytes(hold.to_be_bytes())).await.map_err(told)
    }
    async fn free_one(&self, name: &str, hold: HoldId) -> std::result::Result<(), Fault> {
        let mut session = self.session().await?;
        let call = if self.rows {
            let call = Call::new("shed_acquire").letters(name).id(hold).number(micros(TTL)).number(i64::MAX / 2);
            call.number(0).text(WHO).end()
        } else {
            let call = Call::new("acquire").text(&self.space).text(name).id(hold).text("mutex").text("m");
            let call = call.number(1).number(0).number(micros(TTL)).number(i64::MAX / 2).number(0).flag(true);
            call.id(self.client).null().text(WHO).end()
        };
        let token = loop {
            match reply(&one(&mut session, call.clone()).await?) {
                Some(Reply::Done { number, .. }) => break number,
                Some(Reply::Locked) => {}
                _ => return Err(Fault::Answer),
            }
        };
        let call = match self.rows {
            true => Call::new("shed_release").letters(name),
            false => Call::new("release").text(&self.space).text(name),
        };
        one(&mut session, call.id(hold).number(token).end()).await?;
        self.put(session);
        Ok(())
    }
    /// The same in the one session that bears what it takes; in a runtime that keeps it, if there is one.
    pub async fn pair_in_session(&self, name: &str, hold: u128, kept: Option<&Handle>) -> Result<()> {
        self.bear_one(name, HoldId::from_bytes(hold.to_be_bytes()), kept).await.map_err(told)
    }
    async fn bear_one(&self, name: &str, hold: HoldId, kept: Option<&Handle>) -> std::result::Result<(), Fault> {
        let mut bearer = self.bearer.lock().await;
        let mut session = match bearer.take() {
            Some(session) => session,
            None => {
                let mut session = self.link.dedicated().await?;
                let pulse = format!("SELECT GET_LOCK(CONCAT('fencelock.', HEX(X'{}')), 0)", self.client);
                one(&mut session, pulse).await?;
                session
            }
        };
        let key = literal(format!("fencelock.bench.{name}").as_bytes());
        let begin = |procedure| Call::new(procedure).text(&self.space).text(name).expression(&key);
        let bear = begin("bear").id(self.client).id(hold).number(micros(TTL)).number(0).number(0).text(WHO).end();
        for (call, is_bear) in [(bear, true), (begin("let_go").id(hold).end(), false)] {
            let said = async move {
                let said = one(&mut session, call).await;
                (session, said)
            };
            let (back, said) = match kept {
                Some(kept) => kept.spawn(said).await.map_err(|_| Fault::Closed)?,
                None => said.await,
            };
            session = back;
            let done = matches!(reply(&said?), Some(Reply::Done { .. }));
            if is_bear && !done {
                return Err(Fault::Answer);
            }
        }
        *bearer = Some(session);
        Ok(())
    }
    /// Waits for the named lock itself: the server hands it over.
    pub async fn lock(&self, name: &str) -> Result<RawHold> {
        let named = literal(name.as_bytes());
        let mut session = self.session().await.map_err(told)?;
        while column(&one(&mut session, format!("SELECT GET_LOCK({named}, 60)")).await.map_err(told)?, 0) != Some("1") {
        }
        Ok(RawHold { named, session })
    }
    pub async fn release(&self, held: RawHold) -> Result<()> {
        let RawHold { named, mut session } = held;
        one(&mut session, format!("SELECT RELEASE_LOCK({named})")).await.map_err(told)?;
        self.put(session);
        Ok(())
    }
}
fn told(fault: Fault) -> Error {
    fault.tell("lock", "the bare driver")
}
/// The first row of what it answers.
async fn one(session: &mut Session, call: String) -> std::result::Result<Row, Fault> {
    ask(session, call).await.map_err(Fault::of)?.into_iter().next().ok_or(Fault::Answer)
}
