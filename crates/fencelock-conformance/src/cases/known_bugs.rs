//! redis.md 1.5 and 3, consensus.md 5, sql.md 3.1 and 5: known bugs.
use super::prelude::*;

cases! {}
roles! {}
