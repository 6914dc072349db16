//! sql.md 12.5: cirello pglock.
use super::prelude::*;

cases! {}
roles! {}
