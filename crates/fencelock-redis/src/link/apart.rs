//! Servers of which each fails by itself: none counts under two names.
use super::{Conn, Link, Wire};
use crate::{
    error::Fault,
    wire::{reply::text, scripts::REMEMBER},
};
use fencelock_core::EngineId;
use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Which store each of them was when it was last met.
pub(crate) struct Stores {
    known: Mutex<Vec<Known>>,
    settled: AtomicBool,
}
struct Known {
    endpoint: Arc<str>,
    /// What it calls itself. Empty: it was not met, or does not count.
    store: String,
    link: Weak<Link>,
}
impl Stores {
    /// So many, by what people call them. None of them is met yet.
    pub(crate) fn new(endpoints: impl IntoIterator<Item = Arc<str>>) -> Arc<Self> {
        let known = |endpoint| Known { endpoint, store: String::new(), link: Weak::new() };
        let known = Mutex::new(endpoints.into_iter().map(known).collect());
        Arc::new(Self { known, settled: AtomicBool::new(false) })
    }
    /// Those who are there have been met together.
    pub(crate) fn settle(&self) {
        self.settled.store(true, Relaxed);
    }
}
/// One of them, and under which key it keeps what it calls itself.
pub(crate) struct Apart {
    pub(crate) stores: Arc<Stores>,
    pub(crate) node: usize,
    pub(crate) key: String,
}
impl Apart {
    /// *Invariant (SAFETY K3):* a store counts once. It is asked with each connection, since one that was not there in the beginning, or a
    /// name that leads elsewhere since, is a second name as well. When one of them is another store than it was, all are asked anew: a
    /// store that has lost its data calls itself something else, and connections that were open before do not know. (What is on its way
    /// over them then may count once more; such a store must be kept away for a ttl anyway.)
    pub(super) async fn check(&self, link: &Link, wire: &Wire) -> Result<(), Fault> {
        let conn = Conn::alone(wire.clone());
        // What it calls itself from now on, if it does not yet: no two the same.
        let name = EngineId::random().map_err(|_| Fault::Unreached)?.to_string();
        let args = [name.as_bytes()];
        let answer = link.eval(&conn, conn.server.patience(), &REMEMBER, &[&self.key], args.into_iter()).await;
        let answer = answer.map_err(|fault| match fault {
            // Nothing was sent that matters.
            Fault::Redis(e) => Fault::Connect(e),
            Fault::Unanswered => Fault::Unreached,
            fault => fault,
        })?;
        let (other, doubted) = self.is(link, text(&answer).ok_or(Fault::Answer)?);
        doubted.iter().filter_map(Weak::upgrade).for_each(|link| link.move_on());
        other.map_or(Ok(()), |other| Err(Fault::Twice { other, key: self.key.clone() }))
    }
    /// Under which other name this store counts, and whose connections are good for nothing any more.
    fn is(&self, link: &Link, store: &str) -> (Option<Arc<str>>, Vec<Weak<Link>>) {
        let mut known = self.stores.known.lock().unwrap_or_else(PoisonError::into_inner);
        let others = || known.iter().enumerate().filter(|(node, _)| *node != self.node).map(|(_, known)| known);
        let other = others().find(|known| known.store == store).map(|known| known.endpoint.clone());
        let links: Vec<_> = others().filter(|known| !known.store.is_empty()).map(|known| known.link.clone()).collect();
        let Some(mine) = known.get_mut(self.node) else { return (other, Vec::new()) };
        let (same, moved) = (mine.store == store, !mine.store.is_empty() && mine.store != store);
        mine.link = link.me.clone();
        mine.store = if other.is_some() { String::new() } else { store.to_owned() };
        // Of another runtime, which lead to what it was.
        let mut doubted = if moved { vec![mine.link.clone()] } else { Vec::new() };
        if !same && other.is_none() && self.stores.settled.load(Relaxed) {
            doubted.extend(links);
        }
        (other, doubted)
    }
}
