#![doc = include_str!("docs.md")]
pub mod advisory;
mod dialect;
mod door;
mod drivers;
mod explain;
mod fault;
pub mod fence;
mod hold;
pub mod keys;
mod lock;
mod refused;
mod retry;
mod row;
mod tx;
mod update;
mod value;

pub use dialect::Dialect;
pub use explain::NoIndex;
/// Waits for one of our calls in a program without a runtime, with `rusqlite`, whose calls are done when they return. (The other drivers want
/// their runtime: there it is `Runtime::block_on`.)
pub use fencelock_core::blocking::block_on;
pub use hold::Hold;
pub use lock::{Lock, Locked};
pub use refused::Refused;
pub use retry::Retry;
pub use row::Row;
pub use tx::{Connection, DriverError, Transaction, Tx, seen};
pub use value::Value;
