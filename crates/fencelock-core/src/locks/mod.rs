//! What people lock: thin handles over one attempt.
mod mutex;

pub use mutex::Mutex;
