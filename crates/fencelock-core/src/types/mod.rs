//! What passes through the engine door. Data only.
mod capabilities;
mod cell;
mod claim;
mod grant;
mod name;
mod request;
mod status;

pub use capabilities::{Capabilities, EngineInfo, Fencing, Missing, Ordering, TakenAway, Waiting};
pub use cell::{Conflict, Version, Versioned};
pub use claim::{Claim, Kind, UnknownKind};
pub use grant::{Event, Grant, Lease, LossReason, Outcome, Released, Renewed, SessionId, Together, Token};
pub use name::{EngineId, HoldId, Identity, Name};
pub(crate) use name::{Minter, Spread};
pub use request::Request;
pub(crate) use request::Wish;
pub use status::{Busy, Holder, Listing, Page, Status, Waiter};
