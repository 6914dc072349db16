//! sql.md 12.8: with_advisory_lock, coditory, sherlock.
use super::prelude::*;

cases! {}
roles! {}
