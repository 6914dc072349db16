//! redis.md 6.6: redis-py.
use super::prelude::*;

cases! {}
roles! {}
