//! The core of fencelock: what a lock is on every engine. Users take the facade crate `fencelock`; those who write an engine
//! implement [`Engine`].
//!
//! The rules that make it safe have names (`SAFETY G1` …): `docs/design/safety.md` lists them.
mod adjust;
mod admin;
mod attempt;
pub mod blocking;
mod chaos;
mod claimed;
mod client;
mod clock;
#[doc(hidden)]
pub mod config;
mod connections;
mod engine;
mod error;
mod floors;
mod gate;
mod guard;
mod hold;
mod keeper;
mod locks;
pub mod memory;
#[doc(hidden)]
pub mod mutants;
mod observe;
mod os;
mod pace;
mod pauses;
mod quorum;
mod server_time;
mod shared_guard;
pub mod testing;
mod ticket;
mod together;
mod turns;
mod types;
pub mod url;
mod watched;

pub use admin::Admin;
pub use attempt::{Acquire, Try};
pub use chaos::{Chaos, Operation, Trouble};
pub use claimed::Claimed;
pub use client::{Client, ClientBuilder};
pub use clock::{BootClock, Clock, Moment, TokioClock};
pub use connections::{Connection, Connections, NoConnection};
#[doc(hidden)]
pub use connections::{on_tokio, soon, within};
pub use engine::{Cells, Engine};
pub use error::{Error, ErrorKind, Result};
pub use gate::Gate;
pub use guard::{Guard, Held};
pub use keeper::Reports;
pub use locks::{
    Cell, Election, Leader, Member, MultiGuard, MultiLock, Mutex, Observer, Owner, RwLock, Semaphore, Term,
};
pub use pace::Pace;
pub use quorum::Quorum;
pub use server_time::ServerTime;
pub use shared_guard::SharedGuard;
pub use ticket::Ticket;
pub use types::{
    Busy, Capabilities, Claim, Conflict, EngineId, EngineInfo, Event, Fencing, Grant, HoldId, Holder, Identity, Kind,
    Lease, Listing, LossReason, Missing, Name, Ordering, Outcome, Page, Released, Renewed, Request, SessionId, Status,
    TakenAway, Together, Token, UnknownKind, Version, Versioned, Waiter, Waiting,
};
