//! Servers of which each fails by itself: none counts under two names.
use super::{Conn, Link, Wire};
use crate::{
    error::Fault,
    wire::{reply::text, scripts::REMEMBER},
};
use fencelock_core::{BootClock, Clock, EngineId, Moment};
use futures_util::future::join_all;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// A connection that is open has so long to say where it leads.
const SAYS: Duration = Duration::from_secs(1);
/// A store that is refused is not connected to anew for so long: it has others to answer.
const REFUSED: Duration = Duration::from_secs(1);

/// Which store each of them was when it was last met.
pub(crate) struct Stores(Mutex<Vec<Known>>);
struct Known {
    endpoint: Arc<str>,
    /// What it calls itself. Empty: it was not met, or does not count.
    store: String,
    link: Weak<Link>,
    /// Since when, and as another name of whom.
    refused: Option<(Moment, Arc<str>)>,
}
impl Stores {
    /// So many, by what people call them. None of them is met yet.
    pub(crate) fn new(endpoints: impl IntoIterator<Item = Arc<str>>) -> Arc<Self> {
        let known = |endpoint| Known { endpoint, store: String::new(), link: Weak::new(), refused: None };
        Arc::new(Self(Mutex::new(endpoints.into_iter().map(known).collect())))
    }
    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
/// One of them, and under which key it keeps what it calls itself.
pub(crate) struct Apart {
    pub(crate) stores: Arc<Stores>,
    pub(crate) node: usize,
    pub(crate) key: String,
}
impl Apart {
    /// A new connection of this one may be used.
    ///
    /// *Invariant (SAFETY K3):* as far as is known when a connection is made no other node has one to the same store, so it counts once. Each
    /// new connection asks its store what it calls itself, and all that are open: a store may have lost its name without their knowing. One
    /// that is silent is given up, and the new one refused, this time. What was sent over one that broke is never answered.
    pub(super) async fn check(&self, link: &Link, wire: &Arc<Wire>) -> Result<(), Fault> {
        let conn = Conn::alone(wire.clone());
        let store = self.name(link, &conn, conn.server.patience()).await.map_err(|fault| match fault {
            // Nothing was sent that matters.
            Fault::Redis(e) => Fault::Connect(e),
            Fault::Unanswered => Fault::Unreached,
            fault => fault,
        })?;
        let links = self.claim(link, &store)?;
        // They are asked together: another node that comes meanwhile finds the claim.
        let open =
            links.iter().flat_map(|(node, link)| link.open_ones().into_iter().map(move |conn| (*node, link, conn)));
        let asked = open.map(|(node, link, conn)| async move {
            let name = self.name(link, &conn, SAYS).await;
            (node, link, conn, name)
        });
        let mut doubt = None;
        for (node, link, conn, name) in join_all(asked).await {
            let ours = node == self.node;
            match name {
                Ok(name) if name == store && !ours => return Err(self.refuse(&mut self.stores.known(), node)),
                Ok(name) if ours && name != store => link.give_up(&conn),
                Ok(_) => {}
                Err(fault) => {
                    link.give_up(&conn);
                    let broke = matches!(fault, Fault::Redis(_)) && fault.ends_connection();
                    doubt = doubt.or(Some(node).filter(|_| !ours && !broke));
                }
            }
        }
        let Some(node) = doubt else { return Ok(()) };
        let mut known = self.stores.known();
        known[self.node].store.clear();
        Err(Fault::Doubted(known[node].endpoint.clone()))
    }
    /// What a store calls itself; from now on, if it did not. No two the same.
    async fn name(&self, link: &Link, conn: &Conn, limit: Duration) -> Result<String, Fault> {
        let fresh = EngineId::random().map_err(|_| Fault::Unreached)?.to_string();
        let answer = link.eval(conn, limit, &REMEMBER, &[&self.key], [fresh.as_bytes()].into_iter()).await?;
        text(&answer).map(str::to_owned).ok_or(Fault::Answer)
    }
    /// It counts under this name, unless another one was met as that store. Whom to ask whether that is so.
    fn claim(&self, link: &Link, store: &str) -> Result<Vec<(usize, Arc<Link>)>, Fault> {
        let mut known = self.stores.known();
        if let Some(other) = (0..known.len()).find(|node| *node != self.node && known[*node].store == store) {
            return Err(self.refuse(&mut known, other));
        }
        known[self.node].link = link.me.clone();
        store.clone_into(&mut known[self.node].store);
        Ok(known.iter().enumerate().filter_map(|(node, known)| Some((node, known.link.upgrade()?))).collect())
    }
    fn refuse(&self, known: &mut [Known], as_other: usize) -> Fault {
        let other = known[as_other].endpoint.clone();
        known[self.node].store.clear();
        known[self.node].refused = Some((BootClock.now(), other.clone()));
        self.twice(other)
    }
    fn twice(&self, other: Arc<str>) -> Fault {
        Fault::Twice { other, key: self.key.clone() }
    }
    /// It was refused just now.
    pub(super) fn refused(&self) -> Result<(), Fault> {
        let known = self.stores.known();
        let refused = known[self.node].refused.as_ref().filter(|(at, _)| at.until(BootClock.now()) < REFUSED);
        refused.map_or(Ok(()), |(_, other)| Err(self.twice(other.clone())))
    }
}
