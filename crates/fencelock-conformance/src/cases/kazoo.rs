//! consensus.md 6: kazoo.
use super::prelude::*;

cases! {}
roles! {}
