//! What goes over the wire, and what lies in the store.
pub(crate) mod jute;
pub(crate) mod node;
pub(crate) mod op;
pub(crate) mod record;
