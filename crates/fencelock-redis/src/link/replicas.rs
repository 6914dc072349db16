//! Grants that count only when replicas have them, too (`replicas=n`).
//!
//! `WAIT` answers for what its own connection has written, and keeps all that comes after it on that connection waiting. So a grant is
//! written once more, by a confirm, and waited for on a connection that nobody else uses meanwhile: replication has an order, so who has
//! the confirm has the grant.
use super::{Conn, Link, PRIMARY_TIMEOUT, Wire, server::Server};
use crate::{error::Fault, wire::reply::number};
use fencelock_core::within;
use std::{
    pin::pin,
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
    idle: Mutex<Vec<(Id, Arc<Wire>)>>,
}
impl Replicas {
    pub(super) fn new(wanted: u32) -> Self {
        Self { wanted, turns: Semaphore::new(AT_ONCE), idle: Mutex::default() }
    }
    fn idle(&self) -> MutexGuard<'_, Vec<(Id, Arc<Wire>)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(super) fn forget(&self) {
        self.idle().clear();
    }
    /// One that nobody uses, of this runtime to this server.
    fn known(&self, server: &Arc<Server>) -> Option<Arc<Wire>> {
        let (mut idle, here) = (self.idle(), Handle::current().id());
        let same = |(runtime, wire): &(Id, Arc<Wire>)| *runtime == here && Arc::ptr_eq(&wire.server, server);
        idle.iter().position(same).map(|at| idle.swap_remove(at).1)
    }
    fn keep(&self, wire: Arc<Wire>) {
        let mut idle = self.idle();
        if idle.len() >= AT_ONCE {
            // Those of runtimes that are gone are among them.
            idle.clear();
        }
        idle.push((Handle::current().id(), wire));
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
        // Wherever the key is: what one server has is counted there, and by the connection that wrote it.
        let ask = |conn: Conn| {
            let ask = &ask;
            async move {
                let (wire, answer) = self.written(replicas, &conn, ask).await?;
                self.counted(replicas, wire, ttl).await.map(|()| answer)
            }
        };
        self.turned(self.at(key).await?, ask).await
    }
    /// On a connection of its own to the same server. One that was idle may have broken meanwhile, and then so have the others.
    async fn written<T, A>(
        &self,
        replicas: &Replicas,
        conn: &Conn,
        ask: impl Fn(Conn) -> A,
    ) -> Result<(Arc<Wire>, T), Fault>
    where
        A: Future<Output = Result<T, Fault>>,
    {
        let asked = async |wire: Arc<Wire>| {
            let answer = ask(Conn { asking: conn.asking, ..Conn::alone(wire.clone()) }).await;
            answer.map(|answer| (wire, answer))
        };
        if let Some(wire) = replicas.known(&conn.server) {
            match asked(wire).await {
                Err(fault @ Fault::Redis(_)) if fault.ends_connection() => replicas.forget(),
                answer => return answer,
            }
        }
        let new = within(PRIMARY_TIMEOUT, self.open(conn.server.clone(), None)).await;
        asked(new.unwrap_or(Err(Fault::Unreached))?).await
    }
    async fn counted(&self, replicas: &Replicas, wire: Arc<Wire>, ttl: Duration) -> Result<(), Fault> {
        let (conn, wait) = (Conn::alone(wire.clone()), MOST.min(ttl / PART));
        let mut cmd = redis::cmd("WAIT");
        cmd.arg(replicas.wanted).arg(wait.as_millis().to_string());
        let had = self.limited(&conn, wait + conn.server.patience(), pin!(conn.send(&cmd))).await?;
        replicas.keep(wire);
        match number(&had) {
            Some(had) if had >= i64::from(replicas.wanted) => Ok(()),
            Some(had) => Err(Fault::TooFew { had, wanted: replicas.wanted }),
            None => Err(Fault::Answer),
        }
    }
}
