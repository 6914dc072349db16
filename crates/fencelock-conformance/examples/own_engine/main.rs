//! An engine of your own, proved: `cargo run -p fencelock-conformance --example own_engine`.
//!
//! This page is all that the suite needs: what the engine is called, which cases apply to it, how a store begins, how a client
//! reaches it, and what is left over in it at the end. What the engine cannot do its capabilities say, so the suite leaves that
//! out and says why; what it says that it can do is proved. The engine itself, a small honest one, is in `engine.rs`.
mod engine;

use async_trait::async_trait;
use engine::{Map, MapEngine};
use fencelock_conformance::{Connection, Family, Fixture};
use fencelock_core::EngineId;
use std::{process::ExitCode, sync::Arc, time::Duration};

fn main() -> ExitCode {
    fencelock_conformance::main(&[&MapFamily])
}

struct MapFamily;
impl Family for MapFamily {
    fn name(&self) -> &'static str {
        "map"
    }
    fn scopes(&self) -> &'static [&'static str] {
        &["any", "lease", "queue"]
    }
    fn start(&self) -> Box<dyn Fixture> {
        let id = EngineId::random().expect("the system has random numbers");
        Box::new(Store { id, map: Arc::default() })
    }
}
struct Store {
    id: EngineId,
    map: Arc<Map>,
}
#[async_trait]
impl Fixture for Store {
    async fn engine(&self, ttl: Duration) -> Connection {
        Connection::cuttable(Arc::new(MapEngine::new(self.id, self.map.clone(), ttl)))
    }
    async fn clean(&self) -> Vec<String> {
        self.map.in_use()
    }
}
