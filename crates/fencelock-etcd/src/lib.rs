#![doc = include_str!("docs.md")]
mod advice;
mod cells;
mod claims;
mod config;
mod engine;
mod error;
mod keeper;
mod leases;
mod link;
mod list;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod raw;
mod shared;
mod shelf;
mod status;
mod together;
mod turns;
mod watch;
mod wire;

pub use config::{Config, Tls};
pub use engine::EtcdEngine;
