//! What fencelock's engines on SQL databases have in common. Users take the facade crate `fencelock`: this one is for the engines
//! alone, and may change at any time.
mod attempt;
mod fault;
mod hosts;
mod reply;
pub mod session;
mod shedlock;
mod turned;

pub use attempt::{AGAIN, Haunted, WINDOW, after_locked, before_answered, end_of_look, granted, micros, open_window};
pub use fault::Fault;
pub use hosts::{ONE_HOST, one_of};
pub use reply::{Fields, Reply, Value, letter, status};
pub use shedlock::{ShedLock, Table};
pub use turned::Turned;

use std::time::Duration;

/// For so long a connection is tried (SAFETY E8).
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For so long an answer is waited for: a server that writes its pages, or a checkpoint, is silent for a second now and then.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// Core waits for a second.
pub const LEAVE: Duration = Duration::from_millis(800);
