//! What stands in Redis: names of keys, scripts, and what they answer (docs.md is the layout in words).
pub(crate) mod key;
pub(crate) mod record;
pub(crate) mod reply;
pub(crate) mod scripts;
