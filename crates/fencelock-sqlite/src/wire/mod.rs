//! What is written into the database, by whom, and in which transaction.
pub(crate) mod acquire;
pub(crate) mod cell;
pub(crate) mod claim;
pub(crate) mod exchange;
pub(crate) mod judge;
pub(crate) mod line;
pub(crate) mod look;
pub(crate) mod observe;
pub(crate) mod open;
pub(crate) mod release;
pub(crate) mod scope;
pub(crate) mod sql;
pub(crate) mod time;
