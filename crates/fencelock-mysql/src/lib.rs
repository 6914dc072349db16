#![doc = include_str!("docs.md")]
mod admin;
mod config;
mod engine;
mod error;
mod keeper;
mod link;
mod list;
mod making;
mod pool;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod raw;
mod session;
mod shared;
mod shedlock;
mod tls;
mod turns;
mod wire;

pub use config::{Config, Keys, Strategy, Tls};
pub use engine::{MysqlEngine, connect};
pub use session::MysqlSessionEngine;
pub use shedlock::MysqlShedLockEngine;
