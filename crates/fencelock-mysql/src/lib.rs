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

pub use config::{Config, Tls};
pub use engine::MysqlEngine;
