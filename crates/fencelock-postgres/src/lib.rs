#![doc = include_str!("docs.md")]
mod config;
mod engine;
mod error;
mod keeper;
mod link;
mod list;
mod shared;
mod tls;
mod turns;
mod wire;

pub use config::{Config, Listen, Tls};
pub use engine::PostgresEngine;
