//! What people lock: thin handles over one attempt.
mod cell;
mod election;
mod multi;
mod mutex;
mod options;
mod owner;
mod rw_lock;
mod semaphore;

pub use cell::Cell;
pub use election::{Election, Leader, Observer, Term};
pub use multi::{Member, MultiGuard, MultiLock};
pub use mutex::Mutex;
pub(crate) use options::Options;
pub use owner::Owner;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
