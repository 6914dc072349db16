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
mod shared;
mod tls;
mod turns;
mod wire;

pub use config::{Config, Listen, Tls};
pub use engine::PostgresEngine;
