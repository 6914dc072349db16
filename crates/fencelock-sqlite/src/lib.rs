#![doc = include_str!("docs.md")]

mod config;
mod engine;
mod error;
mod keeper;
mod session;
mod wire;
mod worker;

pub use config::Config;
pub use engine::SqliteEngine;
