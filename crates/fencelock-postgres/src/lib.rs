#![doc = include_str!("docs.md")]
mod admin;
mod config;
mod engine;
mod error;
mod keeper;
mod leaving;
mod link;
mod list;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod raw;
mod session;
mod shared;
mod shedlock;
mod turns;
mod wire;

pub use config::{Config, Keys, Listen, Strategy, Tls};
pub use engine::PostgresEngine;
pub use session::{PostgresSessionEngine, connect};
pub use shedlock::PostgresShedLockEngine;
