//! What is written, and what is answered.
pub(crate) mod call;
pub(crate) mod reply;
pub(crate) mod schema;
