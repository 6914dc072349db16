//! Grants that count only when replicas have them, too (`replicas=n`).
//!
//! `WAIT` answers for what its own connection has written, and keeps all that comes after it on that connection waiting. So a grant is
//! written once more, by a confirm, and waited for on a connection that nobody else uses meanwhile: replication has an order, so who has
//! the confirm has the grant.
use super::{Conn, Link, Wire};
use crate::{error::Fault, wire::reply::number};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    runtime::{Handle, Id},
    sync::Semaphore,
};

/// So many wait at once.
const AT_ONCE: usize = 16;
/// For so long at most, and for this part of the ttl.
const MOST: Duration = Duration::from_secs(1);
const PART: u32 = 4;

pub(crate) struct Replicas {
    pub(crate) wanted: u32,
    turns: Semaphore,
    idle: Mutex<Vec<(Id, Wire)>>,
}
impl Replicas {
    pub(super) fn new(wanted: u32) -> Self {
        Self { wanted, turns: Semaphore::new(AT_ONCE), idle: Mutex::default() }
    }
    fn idle(&self) -> MutexGuard<'_, Vec<(Id, Wire)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(super) fn forget(&self) {
        self.idle().clear();
    }
}
impl Link {
    /// Asks on a connection of its own, and then whether enough replicas have what it wrote.
    pub(crate) async fn acknowledged<T, A>(
        &self,
        replicas: &Replicas,
        key: &str,
        ttl: Duration,
        ask: impl Fn(Conn) -> A,
    ) -> Result<T, Fault>
    where
        A: Future<Output = Result<T, Fault>>,
    {
        let _turn = replicas.turns.acquire().await.map_err(|_| Fault::Closed)?;
        // Where the key is, as everybody else finds it.
        let server = self.at(key).await?.server.clone();
        let here = Handle::current().id();
        let known = {
            let mut idle = replicas.idle();
            let same = |(runtime, wire): &(Id, Wire)| *runtime == here && Arc::ptr_eq(&wire.server, &server);
            idle.iter().position(same).map(|at| idle.swap_remove(at).1)
        };
        let wire = match known {
            Some(wire) => wire,
            None => self.open(server, None).await?,
        };
        let conn = Conn::alone(wire.clone());
        let answer = self.turned(conn.clone(), &ask).await?;
        let wait = MOST.min(ttl / PART);
        let mut cmd = redis::cmd("WAIT");
        cmd.arg(replicas.wanted).arg(wait.as_millis().to_string());
        let had = self.limited(&conn, wait + conn.server.patience(), conn.send(&cmd)).await?;
        let mut idle = replicas.idle();
        if idle.len() >= AT_ONCE {
            // Those of runtimes that are gone are among them.
            idle.clear();
        }
        idle.push((here, wire));
        drop(idle);
        match number(&had) {
            Some(had) if had >= i64::from(replicas.wanted) => Ok(answer),
            Some(had) => Err(Fault::TooFew { had, wanted: replicas.wanted }),
            None => Err(Fault::Answer),
        }
    }
}
