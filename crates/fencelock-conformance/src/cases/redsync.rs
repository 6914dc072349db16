//! redis.md 6.5: redsync.
use super::prelude::*;

cases! {}
roles! {}
