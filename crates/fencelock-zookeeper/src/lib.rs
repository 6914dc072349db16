#![doc = include_str!("docs.md")]
mod cells;
mod claims;
mod config;
mod engine;
mod error;
mod identity;
mod keeper;
mod link;
mod list;
mod permits;
mod pipe;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod raw;
mod session;
mod shared;
mod status;
mod tls;
mod turns;
mod wire;

pub use config::{Config, Tls};
pub use engine::ZooKeeperEngine;
pub use wire::node::Dialect;
