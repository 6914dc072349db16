//! Servers for the tests: private ones, on loopback, on free ports, in folders of their own, and gone afterwards, also when the
//! test is killed.
mod clock;
mod process;
mod redis;

pub use clock::WallClock;
pub use process::{Folder, free_port};
pub use redis::{Redis, RedisOptions};
