//! What is written, and how it is asked for.
pub(crate) mod key;
pub(crate) mod pb;
pub(crate) mod record;
pub(crate) mod txn;
