//! redis.md 6.7: rslock.
use super::prelude::*;

cases! {}
roles! {}
