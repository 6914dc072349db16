//! sql.md 12.2: ShedLock.
use super::prelude::*;

cases! {}
roles! {}
