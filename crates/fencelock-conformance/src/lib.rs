//! The conformance suite of fencelock: what every engine has to do, as trials that anybody can run against an engine of their
//! own. Trials are families of engines × cases, generated, so that no engine can forget a case; what an engine cannot do is
//! *ignored* and its name says why; a family without a trial is a failure.
//!
//! A binary that proves an engine is a [`Family`] and one line (`examples/own_engine/main.rs` is a whole one):
//!
//! ```no_run
//! use async_trait::async_trait;
//! use fencelock_conformance::{Connection, Family, Fixture};
//! use fencelock_core::{BootClock, memory::{MemoryEngine, MemoryServer}};
//! use std::{process::ExitCode, sync::Arc, time::Duration};
//!
//! struct MyFamily;
//! impl Family for MyFamily {
//!     fn name(&self) -> &'static str {
//!         "mine"
//!     }
//!     fn scopes(&self) -> &'static [&'static str] {
//!         &["any", "lease", "queue"]
//!     }
//!     fn start(&self) -> Box<dyn Fixture> {
//!         Box::new(Store(MemoryServer::new(Arc::new(BootClock))))
//!     }
//! }
//! struct Store(Arc<MemoryServer>);
//! #[async_trait]
//! impl Fixture for Store {
//!     async fn engine(&self, ttl: Duration) -> Connection {
//!         Connection::new(Arc::new(MemoryEngine::on(self.0.clone()).default_ttl(ttl)))
//!     }
//! }
//! fn main() -> ExitCode {
//!     fencelock_conformance::main(&[&MyFamily])
//! }
//! ```
//!
//! Exclusion is always judged by a counter that is not atomic and by intervals of holding on the boot clock ([`judge`]), in
//! more than one process where the engine has them.
mod case;
mod cases;
mod catalogue;
pub mod claims;
mod context;
mod fixture;
pub mod judge;
mod peer;
pub mod proxy;
mod puppet;
#[allow(clippy::unwrap_used, reason = "it fails where it unwraps")]
pub mod replies;
mod stalls;
mod suite;

pub use case::{Case, Need, Role, all_cases};
pub use catalogue::{Known, catalogue};
pub use context::{Context, STUCK, Silence, eventually, listed, once, within};
pub use fixture::{
    Clocks, Connection, Cut, Deletions, Family, Fixture, Namespaces, Records, Server, Sessions, WakeUps,
};
pub use peer::{Peer, RoleContext};
pub use puppet::Puppet;
pub use suite::{full, ignored, main, run, tenth};
