//! Clients that have a way of their own to a server, which can be cut.
use fencelock_conformance::{Connection as Link, proxy::Proxy};
use fencelock_core::Engine;
use std::sync::{Arc, Mutex, Weak};

type Way = (Weak<dyn Engine>, Arc<Proxy>);
/// The ways of those that are there: one goes with its engine.
#[derive(Default)]
pub(crate) struct Ways(Mutex<Vec<Way>>);
impl Ways {
    /// Of one that has come by this way; its signs of life are its engine's own.
    pub(crate) fn link(&self, engine: Arc<dyn Engine>, proxy: Proxy) -> Link {
        let (proxy, mut ways) = (Arc::new(proxy), self.0.lock().unwrap());
        ways.retain(|(engine, _)| engine.strong_count() > 0);
        ways.push((Arc::downgrade(&engine), proxy.clone()));
        Link::new(engine).cut_by(move |cut| proxy.silent(cut))
    }
}
