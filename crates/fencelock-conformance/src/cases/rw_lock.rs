//! redis.md 6.3: readers and writers.
use super::prelude::*;

cases! {}
roles! {}
