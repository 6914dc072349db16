#![doc = include_str!("docs.md")]

mod config;
mod engine;
mod error;
mod filesystem;
mod keeper;
mod observers;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod raw;
mod session;
mod wire;
mod worker;

pub use config::Config;
pub use engine::SqliteEngine;
