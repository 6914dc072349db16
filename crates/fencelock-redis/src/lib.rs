#![doc = include_str!("docs.md")]
mod acl;
mod config;
mod engine;
mod error;
mod keeper;
mod link;
mod list;
mod observers;
mod plain;
mod redisson;
mod redlock;
mod renew;
mod shared;
mod spin;
mod turns;
mod watch;
mod wire;

#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod raw;

pub use acl::Acl;
pub use config::{Config, Layout, Templates, Tls, Topology, Wait};
pub use engine::RedisEngine;
pub use plain::{RedisPlainEngine, connect};
pub use redisson::RedisRedissonEngine;
pub use redlock::redlock;
