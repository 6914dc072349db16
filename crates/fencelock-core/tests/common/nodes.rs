//! Several stores on paused time, and clients of all of them.
#![allow(dead_code)] // each file uses its part
use crate::common::*;
use fencelock_core::{
    Chaos, Client, Clock, Engine, Guard, Operation, Quorum, TokioClock, Trouble,
    memory::{MemoryEngine, MemoryServer},
};
use std::{sync::Arc, time::Duration};

pub(crate) const TTL: Duration = Duration::from_secs(6);

/// Some stores on paused time, in the order in which a quorum numbers them.
pub(crate) struct Nodes {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) servers: Vec<Arc<MemoryServer>>,
}
/// A client of all of them, and a hand on its way to each.
pub(crate) struct Hand {
    pub(crate) client: Client,
    pub(crate) ways: Vec<Arc<Chaos>>,
}
impl Nodes {
    pub(crate) fn new(n: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::start());
        let mut servers: Vec<_> = (0..n).map(|_| MemoryServer::new(clock.clone())).collect();
        servers.sort_by_key(|server| MemoryEngine::on(server.clone()).info().id);
        Self { clock, servers }
    }
    pub(crate) fn hand(&self) -> Hand {
        self.hand_with(|quorum| quorum)
    }
    pub(crate) fn hand_with(&self, options: impl FnOnce(Quorum) -> Quorum) -> Hand {
        let way = |server: &Arc<MemoryServer>| {
            Arc::new(Chaos::new(Arc::new(MemoryEngine::on(server.clone()).default_ttl(TTL))))
        };
        let ways: Vec<_> = self.servers.iter().map(way).collect();
        let engines: Vec<_> = ways.iter().rev().map(|way| way.clone() as Arc<dyn Engine>).collect();
        let quorum = options(Quorum::new(engines).unwrap().clock(self.clock.clone()));
        Hand { client: here(Arc::new(quorum), &self.clock), ways }
    }
    /// A client of this node alone, as one whose quorum is another.
    pub(crate) fn alone(&self, node: usize) -> Client {
        here(Arc::new(MemoryEngine::on(self.servers[node].clone()).default_ttl(LONG)), &self.clock)
    }
    /// Each of these nodes is held by somebody else, who has no other.
    pub(crate) async fn held_by_others(&self, nodes: std::ops::Range<usize>) -> Vec<(Guard, Client)> {
        let mut held = Vec::new();
        for other in nodes.map(|node| self.alone(node)) {
            held.push((other.mutex("x").note("another").lock().await.unwrap(), other));
        }
        held
    }
    pub(crate) fn census(&self) -> Vec<(usize, usize)> {
        self.servers.iter().map(|server| server.census()).collect()
    }
    pub(crate) async fn nothing_is_left(&self) {
        let free = vec![(0, 0); self.servers.len()];
        let mut census = self.census();
        for _ in 0..400 {
            if census == free {
                return;
            }
            tokio::time::sleep(10 * MS).await;
            census = self.census();
        }
        panic!("left: {census:?}");
    }
}
impl Hand {
    /// From now on everything that is sent to this node fails, or hangs.
    pub(crate) fn break_node(&self, node: usize, how: Trouble) {
        use Operation::*;
        for of in [Acquire, Exchange, Inspect, Release, Renew, Withdraw] {
            self.ways[node].next(of, u32::MAX, how);
        }
    }
    pub(crate) fn mend(&self, node: usize) {
        use Operation::*;
        for of in [Acquire, Exchange, Inspect, Release, Renew, Withdraw] {
            self.ways[node].next(of, 0, Trouble::Fail);
        }
    }
    pub(crate) async fn lock(&self) -> Guard {
        within("a lock", LONG, self.client.mutex("x").lock()).await.unwrap()
    }
}
