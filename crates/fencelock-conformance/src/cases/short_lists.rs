//! redis.md 6.8: rueidislock, bsm, python-redis-lock, pottery, Spring.
use super::prelude::*;

cases! {}
roles! {}
