#![doc = include_str!("docs.md")]
mod cells;
mod claims;
mod config;
mod engine;
mod error;
mod keeper;
mod link;
mod list;
mod permits;
mod shared;
mod status;
mod turns;
mod wire;

pub use config::Config;
pub use engine::ZooKeeperEngine;
pub use wire::node::Dialect;
