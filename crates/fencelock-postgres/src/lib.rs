#![doc = include_str!("docs.md")]
mod config;
mod engine;
mod error;
mod keeper;
mod link;
mod list;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod raw;
mod session;
mod shared;
mod tls;
mod turns;
mod wire;

pub use config::{Config, Keys, Listen, Strategy, Tls};
pub use engine::PostgresEngine;
pub use session::{PostgresSessionEngine, connect};
